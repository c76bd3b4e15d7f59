"""All ways of routing that do not learn while they serve, measured on a table."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from jaxroute.data import RoutingTable

from ..points import Kind, Point
from . import bounds, cascade, router
from .cascade_routing import PerfectCascadeRouting
from .crossfit import Approach, Record, crossfit
from .mixture import BestMixture
from .part import Part
from .sample import Played, Sample, play_single, sample_of

_MODULE = "jaxroute.comparison.offline"
# More queries than the first are parted twice instead of four times; more than the second into two folds instead of three.
_MANY, _FEW = 8000, 2000
# Of folds and draws when a rule is fitted to the whole table; `fit_cascade` and the like use the same.
WHOLE = 0


def offline(
    table: RoutingTable,
    targets: Sequence[float],
    *,
    latency: np.ndarray | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[Point]:
    """A point for each model, each rule tuned to each target, and the bounds.

    Nothing is tuned on what it is judged on: the queries are parted at random, rules are fitted and tuned on all folds but one and play on
    that one. `chosen_by` is the mean over the even partitions, `judged` over the odd ones. `setting` describes the rule that is
    fitted to the whole table, which `further` makes again. A target that nothing reaches on the fitting part takes the rule of highest quality
    there; targets that give the same rules give one point.

    Args:
      table: scores and costs of all models.
      targets: qualities in [0, 1] that rules are tuned to.
      latency: `[Q, N]` seconds of each call, or None.
      progress: is told how far it is.

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
    used = approaches(sample)
    with _one_thread():
        records = crossfit(sample, used, targets, *partings(table.num_queries), tell)
        tell("rules that are fitted: the whole table")
        whole = Part(sample, WHOLE)
        of_whole = [approach.fit(whole) for approach in used]
    for approach, fitted, of_targets in zip(used, of_whole, records):
        made: list[tuple[str, Record]] = []
        for target, record in zip(targets, of_targets):
            rule = str(fitted.tuned(target))
            if any(rule == known and record.same(other) for known, other in made):
                continue
            made.append((rule, record))
            call = approach.line.format(target=f"{target:g}")
            points.append(
                Point(
                    approach=approach.name,
                    kind="offline",
                    setting=f"tuned for {_percent(target)}: {rule}",
                    chosen_by=record.measures(0),
                    judged=record.measures(1),
                    needs=approach.needs,
                    shares=record.shares(),
                    tuned=target,
                    further=f"from {_MODULE} import {call.split('(')[0]}; rule = {call}",
                )
            )
    return points


def partings(num_queries: int) -> tuple[int, int]:
    """How often so many queries are parted, and into how many folds."""
    return 2 if num_queries > _MANY else 4, 3 if num_queries <= _FEW else 2


def approaches(sample: Sample) -> list[Approach]:
    """Those that suit a sample: without features there are no neighbours, and without categories too nothing to predict from."""
    used: list[Approach] = [BestMixture()]
    if sample.features is not None:
        used.append(router.NEIGHBOURS)
    if sample.described:
        used += [router.LOGISTIC, cascade.LEARNED]
    return [*used, cascade.PERFECT, PerfectCascadeRouting()]


def _one_thread() -> AbstractContextManager[object]:
    """Products of small matrices on one thread: beside other work, threads that wait for each other took twice as long in all."""
    try:
        from threadpoolctl import threadpool_limits  # pyright: ignore[reportMissingImports]
    except ImportError:
        return nullcontext()
    return threadpool_limits(1, "blas")


def _percent(target: float) -> str:
    return f"{100 * target:.4g} %"


def _seen(approach: str, kind: Kind, setting: str, played: Played, sample: Sample, needs: tuple[str, ...] = ()) -> Point:
    """A point to which nothing was fitted, or which nobody can have."""
    record = Record(1, sample)
    record.write(0, 0, np.arange(sample.num_queries), played)
    measures = record.measures()
    return Point(approach, kind, setting, measures, measures, needs=needs, shares=record.shares())


def _singles(table: RoutingTable, sample: Sample) -> list[Point]:
    numbers = (sample.models.index(name) for name in table.models)
    played = (play_single(sample, np.full(sample.num_queries, i)) for i in numbers)
    return [_seen(name, "single", "", each, sample) for name, each in zip(table.models, played)]


def _bounds(sample: Sample, targets: Sequence[float]) -> list[Point]:
    needs = ("the score of every model before any is called: nobody has that",)
    points = [
        _seen("Best model of each query", "bound", "", play_single(sample, bounds.best_of_each(sample)), sample, needs)
    ]
    known: list[Played] = []
    for target in targets:
        played = bounds.cheapest_right(sample, target)
        if not any(np.array_equal(played.quality, k.quality) and np.array_equal(played.cost, k.cost) for k in known):
            known.append(played)
            setting = f"at {_percent(target)}"
            points.append(_seen("Cheapest right model of each query", "bound", setting, played, sample, needs))
    return points
