"""What a comparison is about to do, in words and in steps, before it does it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxroute.data import Log

from . import learning, offline
from .page.numbers import share

# Random orders of the queries: as many as make so many queries in all, within bounds.
_SERVED, _ORDERS = 160_000, (8, 32)


@dataclass(frozen=True)
class Plan:
    """The steps of a comparison.

    Attributes:
      traffic: the queries as policies that learn meet them.
      orders: random orders in which they do.
      fitted: names of the ways that are fitted to recorded queries.
      partings: how often the queries are parted for that, and into how many folds.
      learners: names of the policies that learn.
      looks: how often each of them is played, at most.
      singles: number of models.
      target: quality asked for.
      warm: share of each order that is not counted.
      minutes: of all, or None.
    """

    traffic: learning.Traffic
    orders: int
    fitted: tuple[str, ...]
    partings: tuple[int, int]
    learners: tuple[str, ...]
    looks: tuple[int, ...]
    singles: int
    target: float
    warm: float
    minutes: float | None

    @property
    def fits(self) -> int:
        """Steps of the ways that are fitted: one for each fold, and one for the whole table."""
        return self.partings[0] * self.partings[1] + 1

    @property
    def steps(self) -> int:
        """Steps in all, at most."""
        return self.fits + sum(self.looks) + 1

    @property
    def lines(self) -> list[str]:
        """What is about to be done."""
        times, folds = self.partings
        warm = f" (the first {100 * self.warm:g} % of each are not counted)" if self.warm else ""
        spare = "" if self.minutes is None else f", then in twice as many as long as they fit into {self.minutes:g} min"
        return [
            f"{len(self.fitted) + len(self.learners)} ways of routing between {self.singles} models are compared: which of them reaches "
            f"{share(self.target)} for the least money?",
            f"{self.singles} alone: each model for every query, to compare with",
            f"{len(self.fitted)} fitted to a part of the queries and judged on another, which is drawn {times} times in {folds} folds: "
            f"{'; '.join(self.fitted)}",
            f"{len(self.learners)} that learn while they serve, in {self.orders} random orders of the queries{warm}{spare}: {'; '.join(self.learners)}",
            f"{self.steps} steps at most; this takes minutes, the first time mostly for compiling, and goes on where it was if it is stopped",
        ]


def plan(
    log: Log,
    target: float,
    targets: Sequence[float],
    *,
    orders: int | None = None,
    warm: float = 0.0,
    minutes: float | None = None,
) -> Plan:
    """What will be done with a log; arguments are those of `compare`.

    Raises:
      ValueError: no model costs anything.
    """
    table = log.table
    traffic = learning.Traffic.of(table, log.latency, log.signals)
    learners = learning.approaches_for(traffic, targets)
    return Plan(
        traffic,
        orders or int(np.clip(_SERVED // table.num_queries, *_ORDERS)),
        tuple(approach.name for approach in offline.approaches(offline.sample_of(table, log.latency))),
        offline.partings(table.num_queries),
        tuple(approach.name for approach in learners),
        tuple(learning.looks(approach) for approach in learners),
        table.num_models,
        target,
        warm,
        minutes,
    )
