"""Measurements of a routing strategy at one setting, with their standard errors."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from jaxroute.core import checks

Pair = tuple[float | None, float | None]  # Mean and standard error, each None if unknown.
Summary = dict[str, Any]  # Content of a report as plain JSON; its keys are described in `Comparison.summary`.
PointSummary = dict[str, Any]  # One point as plain JSON: an entry of `points` in a summary.
# One model for all queries; a rule fitted to recorded queries; a policy that learns online; or an upper bound that cannot be deployed.
Kind = Literal["single", "offline", "online", "bound"]

JUDGE = "the true score of each answer before it is served (a perfect judge)"
RECORDED = "scores of all models on a recorded sample"
RETRIES = "users who accept an answer, or try again until they do"
# Requirements that most users cannot meet, with short names. A strategy with such a need is never recommended, and is listed separately.
RARE = {JUDGE: "a perfect judge", RETRIES: "users who try again"}


@dataclass(frozen=True)
class Estimate:
    """Mean with its standard error.

    Attributes:
      value: the mean.
      error: standard error of the mean, NaN if unknown.
    """

    value: float
    error: float = math.nan

    @property
    def pair(self) -> Pair:
        """Mean and standard error as a tuple, each None if unknown."""
        value, error = (None if math.isnan(x) else float(x) for x in (self.value, self.error))
        return value, error


@dataclass(frozen=True)
class Measures:
    """Mean quality, cost, calls and latency over queries, with standard errors.

    Attributes:
      quality: score of the served answer, in [0, 1].
      cost: cost per query of all calls, in the unit of the table.
      calls: number of models called per query.
      latency: seconds until the answer: the longest of simultaneous calls, or the sum of successive ones; None if the log has no latencies.
    """

    quality: Estimate
    cost: Estimate
    calls: Estimate
    latency: Estimate | None = None


@dataclass(frozen=True)
class Learning:
    """Course of learning of an online policy, in `P` successive parts of its stream of queries.

    Attributes:
      queries: `[P]` number of queries served until the end of each part.
      quality: `[P]` mean score in each part, over all simulated orders of the queries.
      cost: `[P]` mean cost per query in each part.
    """

    queries: tuple[int, ...]
    quality: tuple[float, ...]
    cost: tuple[float, ...]


@dataclass(frozen=True)
class Point:
    """Routing strategy at one setting, with its measurements.

    A setting is chosen by `chosen_by` alone. The reported measures, `judged`, come from other random orders of the queries (online policies), or from
    other partitions into fitting and held-out queries (fitted rules).

    Attributes:
      strategy: name of the strategy, for example "MESS+"; several points may share it.
      kind: "single" (one model for all queries), "offline" (fitted rule), "online" (policy that learns) or "bound" (upper bound, never deployable).
      setting: setting in words, for example "V = 0.01"; empty if there is nothing to set.
      chosen_by: measures for choosing a setting.
      judged: measures to report.
      late: `judged` in the last half of the stream; None except for online policies.
      needs: requirements in production in words, for example "a score of each answer that is served".
      further: Python code to continue with this point; may be empty.
      learning: course of learning; None except for online policies.
      shares: share of the queries for which each model is called, without models that are never called. The sum exceeds 1 if several models
        are called for a query.
      tuned: quality to which a rule was tuned, or None.
    """

    strategy: str
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
        """Requirement that is rarely available and so prevents deployment, for example "a perfect judge"; None if there is none."""
        return next((RARE[need] for need in self.needs if need in RARE), None)

    @property
    def available(self) -> bool:
        """Whether the point can be deployed: it is no upper bound, and needs nothing that is rarely available, such as a perfect judge."""
        return self.kind != "bound" and self.without is None

    def meets(self, target: float) -> bool:
        """Whether the quality meets a target both in `chosen_by` and in `judged`. Each may lie below the target by half of its standard error."""
        return meets(self.chosen_by.quality, target) and meets(self.judged.quality, target)


def meets(quality: Estimate, target: float) -> bool:
    """Whether a quality is above a target, or below it by no more than half of its standard error."""
    slack = 0.0 if math.isnan(quality.error) else quality.error / 2
    return quality.value + slack >= target


def checked_target(target_quality: float) -> float:
    """Returns a requested mean score; `ValueError` unless it is above 0 and below 1."""
    target = float(checks.numbers("target_quality", target_quality, ()))
    if not 0.0 < target < 1.0:
        hint = f"; for {target:g} % give {target / 100:g}" if 1.0 < target <= 100.0 else ""
        raise ValueError(f"target_quality must be above 0 and below 1, got {target:g}{hint}")
    return target
