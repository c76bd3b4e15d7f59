"""What is measured of one way of routing at one setting."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

# What a point is: a model for every query; a rule that is fitted to recorded queries; a policy that learns while it serves; or
# something that nobody can have, for scale.
Kind = Literal["single", "offline", "online", "bound"]

# What a way of routing needs that knows how good answers are before one of them is served.
JUDGE = "the true score of each answer before it is served (a perfect judge)"
# What it needs that may serve a query again.
RETRIES = "users who accept an answer, or try again until they do"
# What most users do not have: a way that needs it is no answer, and is listed separately under this name.
RARE = {JUDGE: "a perfect judge", RETRIES: "users who try again"}


@dataclass(frozen=True)
class Estimate:
    """A mean and its standard error.

    Attributes:
      value: the mean.
      error: its standard error, NaN where it is not known.
    """

    value: float
    error: float = math.nan

    @property
    def pair(self) -> tuple[float | None, float | None]:
        """Mean and error, what is not known as None."""
        value, error = (None if math.isnan(x) else float(x) for x in (self.value, self.error))
        return value, error


@dataclass(frozen=True)
class Measures:
    """Means over queries.

    Attributes:
      quality: score of the answer that the user gets, in [0, 1].
      cost: per query, of all calls made for it, in the unit of the table.
      calls: models called per query.
      latency: seconds until the user has the answer: calls at the same time take the longest of theirs, one after the other their sum.
        None where the table has none.
    """

    quality: Estimate
    cost: Estimate
    calls: Estimate
    latency: Estimate | None = None


@dataclass(frozen=True)
class Learning:
    """What a policy does while it learns, in pieces of its stream.

    Attributes:
      queries: `[P]` number of queries served at the end of each piece.
      quality: `[P]` mean score in each piece, over all orders.
      cost: `[P]` mean cost per query in each piece.
    """

    queries: tuple[int, ...]
    quality: tuple[float, ...]
    cost: tuple[float, ...]


@dataclass(frozen=True)
class Point:
    """One way of routing at one setting.

    It may be chosen by `chosen_by` alone, and is judged by `judged`: other orders of the queries (of a policy that learns), or other ways
    to part them in fitting and judging (of a rule that is fitted).

    Attributes:
      approach: its name, for example "MESS+"; points of one approach differ in their setting.
      kind: what it is.
      setting: in words, for example "V = 0.01"; empty where there is nothing to set.
      chosen_by: measures that a choice may look at.
      judged: measures to believe, on queries that nothing of this point was fitted to.
      late: of a policy that learns, `judged` in the last half of the stream; else None.
      needs: what it asks for in production, each a few words, for example "a score of each answer that is served".
      further: how to go on with it, a command or a line of Python; empty where there is nothing to run.
      learning: of a policy that learns; else None.
      shares: by model, the share of the queries for which it is called, as judged: 1 in all where one model is called for each query, more where
        several are. Models that are never called are left out.
      tuned: the quality that a rule was tuned to; None where nothing was.
    """

    approach: str
    kind: Kind
    setting: str
    chosen_by: Measures
    judged: Measures
    late: Measures | None = None
    needs: tuple[str, ...] = ()
    further: str = ""
    learning: Learning | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    tuned: float | None = None

    @property
    def without(self) -> str | None:
        """The rare thing without which it is out of reach, for example "a perfect judge"; None if it needs none."""
        return next((RARE[need] for need in self.needs if need in RARE), None)

    @property
    def available(self) -> bool:
        """Whether it may be an answer: it is no bound, and needs nothing rare."""
        return self.kind != "bound" and self.without is None

    def meets(self, target: float) -> bool:
        """Whether its quality reaches a target, where it is chosen and where it is judged."""
        return meets(self.chosen_by.quality, target) and meets(self.judged.quality, target)


def meets(quality: Estimate, target: float) -> bool:
    """Whether a quality reaches a target as far as can be told: it does not miss it by more than half of its standard error."""
    slack = 0.0 if math.isnan(quality.error) else quality.error / 2
    return quality.value + slack >= target
