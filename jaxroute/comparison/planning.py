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
      target: requested quality.
      warm: share of each order that is not counted.
      orders: number of random orders of the queries.
      grids: largest number of simulations of each online policy.
      steps: largest number of steps: a fit for each fold and for the whole table, the simulations, and the report.
      lines: description of the steps.
    """

    traffic: learning.Traffic
    target: float
    warm: float
    orders: int
    grids: tuple[int, ...]
    steps: int
    lines: list[str]


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
    online, fitted = learning.strategies_for(traffic, targets), offline.strategies(offline.sample_of(table, log.latency))
    grids = tuple(learning.num_grids(strategy) for strategy in online)
    orders = orders or int(np.clip(_SERVED // table.num_queries, *_ORDERS))
    times, folds = offline.partitions(table.num_queries)
    steps = times * folds + 1 + sum(grids) + 1
    uncounted = f" (the first {100 * warm:g} % of each are not counted)" if warm else ""
    more = "" if minutes is None else f", doubled as long as it fits into {minutes:g} min"
    number, models = len(fitted) + len(online), table.num_models
    lines = [
        f"{number} routing strategies between {models} models: which reaches {share(target)} at the least cost?",
        f"{models} single models, each for all queries, as a reference",
        f"{len(fitted)} fitted to a part of the queries and evaluated on the others, in {times} random partitions into {folds} folds: "
        f"{'; '.join(strategy.name for strategy in fitted)}",
        f"{len(online)} learning online, in {orders} random orders of the queries{uncounted}{more}: "
        f"{'; '.join(strategy.name for strategy in online)}",
        f"At most {steps} steps. Takes a few minutes (the first time mostly compilation); can be interrupted and resumed.",
    ]
    return Plan(traffic, target, warm, orders, grids, steps, lines)
