"""Measurement of all routing strategies without online learning on a table."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from jaxroute.data import RoutingTable

from ..page.numbers import share
from ..points import Kind, Point
from . import bounds, cascade, router
from .cascade_routing import PERFECT_ROUTING
from .crossfit import OfflineStrategy, Record, crossfit
from .mixture import BEST_MIXTURE
from .part import Part
from .sample import Outcomes, Sample, sample_of, single_call

_MODULE = "jaxroute.comparison.offline"
# Numbers of queries above which two partitions replace four, and two folds replace three.
_MANY, _FEW = 8000, 2000
# Seed for rules that are fitted to the whole table.
WHOLE = 0


def offline(
    table: RoutingTable,
    targets: Sequence[float],
    *,
    latency: np.ndarray | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[Point]:
    """A point for each model, each rule tuned to each target, and the bounds.

    Rules are evaluated on held-out queries: the queries are partitioned at random, and rules are fitted and tuned on all folds except one and
    evaluated on that one. `chosen_by` is the mean over the even partitions, `judged` over the odd ones. `setting` describes the rule that is
    fitted to the whole table, which `further` reproduces. For a target that no rule reaches on the fitting part, the rule of highest quality is
    used; targets with the same rules give one point.

    Args:
      table: scores and costs of all models.
      targets: qualities in [0, 1] to which rules are tuned.
      latency: `[Q, N]` seconds of each call, or None.
      progress: is called with each step in words.

    Returns:
      The points.

    Raises:
      ValueError: fewer than eight queries, a target outside [0, 1], or latencies that do not fit the table.
    """
    targets = tuple(float(target) for target in targets)
    for target in targets:
        if not 0 <= target <= 1:
            raise ValueError(f"targets has {target}; expected qualities in [0, 1]")
    sample = sample_of(table, latency)
    tell = progress or (lambda line: None)
    points = [*_singles(table, sample), *_bounds(sample, targets)]
    used = strategies(sample)
    with _one_thread():
        records = crossfit(sample, used, targets, *partitions(table.num_queries), tell)
        tell("fitted rules: the whole table")
        whole = Part(sample, WHOLE)
        fitted_to_whole = [strategy.fit(whole) for strategy in used]
    for strategy, fitted, of_targets in zip(used, fitted_to_whole, records):
        made: list[tuple[str, Record]] = []
        for target, record in zip(targets, of_targets):
            rule = str(fitted.tuned(target))
            if any(rule == known and record.same(other) for known, other in made):
                continue
            made.append((rule, record))
            call = strategy.line.format(target=f"{target:g}")
            points.append(
                Point(
                    strategy=strategy.name,
                    kind="offline",
                    setting=f"tuned for {share(target)}: {rule}",
                    chosen_by=record.measures(0),
                    judged=record.measures(1),
                    needs=strategy.needs,
                    shares=record.shares(),
                    tuned=target,
                    further=f"from {_MODULE} import {call.split('(')[0]}; rule = {call}",
                )
            )
    return points


def partitions(num_queries: int) -> tuple[int, int]:
    """Number of partitions and number of folds for a number of queries."""
    return 2 if num_queries > _MANY else 4, 3 if num_queries <= _FEW else 2


def strategies(sample: Sample) -> list[OfflineStrategy[Any]]:
    """Strategies for a sample: routers need features, and predictors features or categories."""
    used: list[OfflineStrategy[Any]] = [BEST_MIXTURE]
    if sample.features is not None:
        used.append(router.NEIGHBOURS)
    if sample.described:
        used += [router.LOGISTIC, cascade.LEARNED]
    return [*used, cascade.PERFECT, PERFECT_ROUTING]


def _one_thread() -> AbstractContextManager[object]:
    """Limits products of small matrices to one thread, which is faster on a busy machine."""
    try:
        from threadpoolctl import threadpool_limits  # pyright: ignore[reportMissingImports]
    except ImportError:
        return nullcontext()
    return threadpool_limits(1, "blas")


def _seen(strategy: str, kind: Kind, setting: str, outcomes: Outcomes, sample: Sample, needs: tuple[str, ...] = ()) -> Point:
    """A point without fitting: a single model or a bound."""
    record = Record(1, sample)
    record.write(0, 0, np.arange(sample.num_queries), outcomes)
    measures = record.measures()
    return Point(strategy, kind, setting, measures, measures, needs=needs, shares=record.shares())


def _singles(table: RoutingTable, sample: Sample) -> list[Point]:
    numbers = (sample.models.index(name) for name in table.models)
    outcomes = (single_call(sample, np.full(sample.num_queries, i)) for i in numbers)
    return [_seen(name, "single", "", each, sample) for name, each in zip(table.models, outcomes)]


def _bounds(sample: Sample, targets: Sequence[float]) -> list[Point]:
    needs = ("the score of every model before any is called, which is impossible",)
    points = [
        _seen("Best model of each query", "bound", "", single_call(sample, bounds.best_of_each(sample)), sample, needs)
    ]
    distinct: list[Outcomes] = []
    for target in targets:
        outcomes = bounds.cheapest_right(sample, target)
        if not any(np.array_equal(outcomes.quality, k.quality) and np.array_equal(outcomes.cost, k.cost) for k in distinct):
            distinct.append(outcomes)
            setting = f"at {share(target)}"
            points.append(_seen("Cheapest right model of each query", "bound", setting, outcomes, sample, needs))
    return points
