"""The steps of a comparison, described before it begins."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxroute.data import Log

from . import learning, offline
from .page.numbers import share

# Total number of served queries that determines the number of random orders, and bounds of that number.
_SERVED, _ORDERS = 160_000, (8, 32)


@dataclass(frozen=True)
class Plan:
    """The steps of a comparison.

    Attributes:
      traffic: queries for online policies.
      orders: number of random orders of the queries.
      fitted: names of the strategies that are fitted to recorded queries.
      partitions: number of partitions of the queries for fitting, and number of folds of each.
      learners: names of the online policies.
      grids: largest number of simulations of each online policy.
      singles: number of models.
      target: requested quality.
      warm: share of each order that is not counted.
      minutes: time limit, or None.
    """

    traffic: learning.Traffic
    orders: int
    fitted: tuple[str, ...]
    partitions: tuple[int, int]
    learners: tuple[str, ...]
    grids: tuple[int, ...]
    singles: int
    target: float
    warm: float
    minutes: float | None

    @property
    def steps(self) -> int:
        """Largest number of steps: a fit for each fold and for the whole table, the simulations, and the report."""
        return self.partitions[0] * self.partitions[1] + 1 + sum(self.grids) + 1

    @property
    def lines(self) -> list[str]:
        """Description of the steps."""
        times, folds = self.partitions
        warm = f" (the first {100 * self.warm:g} % of each are not counted)" if self.warm else ""
        more = "" if self.minutes is None else f", doubled as long as it fits into {self.minutes:g} min"
        number = len(self.fitted) + len(self.learners)
        return [
            f"{number} routing strategies between {self.singles} models: which reaches {share(self.target)} at the least cost?",
            f"{self.singles} single models, each for all queries, as a reference",
            f"{len(self.fitted)} fitted to a part of the queries and evaluated on the others, in {times} random partitions into {folds} folds: "
            f"{'; '.join(self.fitted)}",
            f"{len(self.learners)} that learn online, in {self.orders} random orders of the queries{warm}{more}: {'; '.join(self.learners)}",
            f"At most {self.steps} steps. Takes a few minutes (the first time mostly compilation); can be interrupted and resumed.",
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
    """Plans the comparison of a log; arguments are those of `compare`.

    Raises:
      ValueError: no model has a positive cost.
    """
    table = log.table
    traffic = learning.Traffic.of(table, log.latency, log.signals)
    learners = learning.strategies_for(traffic, targets)
    return Plan(
        traffic,
        orders or int(np.clip(_SERVED // table.num_queries, *_ORDERS)),
        tuple(strategy.name for strategy in offline.strategies(offline.sample_of(table, log.latency))),
        offline.partitions(table.num_queries),
        tuple(strategy.name for strategy in learners),
        tuple(learning.num_grids(strategy) for strategy in learners),
        table.num_models,
        target,
        warm,
        minutes,
    )
