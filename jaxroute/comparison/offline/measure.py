"""Measures single models, fitted rules and upper bounds on a table (`offline`), and fits a rule to a whole table for production (`fit_...`)."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import numpy as np

from jaxroute.core import checks
from jaxroute.data import RoutingTable

from ..page.numbers import share
from ..points import Kind, Point
from . import cascade, router
from .cascade_routing import PERFECT_ROUTING, CascadeRouting
from .crossfit import OfflineStrategy, Record, crossfit
from .part import Part
from .sample import Outcomes, Sample, best_of_each, cheapest_right, sample_of, single_call

_MODULE = "jaxroute.comparison.offline"
_WHOLE = 0  # Seed for rules that are fitted to the whole table.


def offline(
    table: RoutingTable,
    targets: Sequence[float],
    *,
    latency: np.ndarray | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Point]:
    """Returns a point for each single model, each rule tuned to each target, and each upper bound.

    The queries are partitioned at random into folds. Rules are fitted and tuned on all folds except one and evaluated on that fold. A point's
    measures `chosen_by` are means over the even partitions, `judged` over the odd ones. Its `setting` describes the rule fitted to the whole table;
    its Python code `further` fits this rule again. If no rule reaches a target on the queries for fitting, the rule of highest quality is used.
    If targets lead to the same rules, they share a point.

    Args:
      table: scores and costs of all models.
      targets: qualities in [0, 1] to which rules are tuned.
      latency: `[Q, N]` seconds of each call, or None.
      progress: is called with each step in words.

    Raises:
      ValueError: fewer than eight queries, a target outside [0, 1], or latencies that do not fit the table.
    """
    targets = tuple(checks.probability("targets", list(targets), ("number",)).tolist())
    sample = sample_of(table, latency)
    singles = {name: single_call(sample, np.full(sample.num_queries, i)) for i, name in enumerate(sample.models)}
    points = [_unfitted(name, "single", "", singles[name], sample) for name in table.models] + _bounds(sample, targets)
    used = strategies(sample)
    with _one_thread():
        records = crossfit(sample, used, targets, *partitions(table.num_queries), progress)
        progress("fitted rules: the whole table")
        whole = Part(sample, _WHOLE)
        fitted_to_whole = [strategy.fit(whole) for strategy in used]
    for strategy, fitted, of_targets in zip(used, fitted_to_whole, records):
        made: list[tuple[str, Record]] = []
        for target, record in zip(targets, of_targets):
            rule = str(fitted.tuned(target))
            if any(rule == known and record.same(other) for known, other in made):
                continue
            made.append((rule, record))
            call = strategy.line.format(target=f"{target:g}")
            further = f"from {_MODULE} import {call.split('(')[0]}; rule = {call}"
            about = {"needs": strategy.needs, "shares": record.shares(), "tuned": target, "further": further}
            setting, measures = f"tuned for {share(target)}: {rule}", (record.measures(0), record.measures(1))
            points.append(Point(strategy.name, "offline", setting, *measures, **about))
    return points


def partitions(num_queries: int) -> tuple[int, int]:
    """Returns how often this many queries are partitioned at random, and into how many folds; fewer of both for a large number, to save time."""
    return 2 if num_queries > 8000 else 4, 3 if num_queries <= 2000 else 2


def strategies(sample: Sample) -> list[OfflineStrategy]:
    """Returns the strategies that a sample allows; it needs features for nearest neighbours, and features or categories for logistic regression."""
    used = [router.BEST_MIXTURE]
    if sample.features is not None:
        used.append(router.NEIGHBOURS)
    if sample.described:
        used += [router.LOGISTIC, cascade.LEARNED]
    return [*used, cascade.PERFECT, PERFECT_ROUTING]


def _one_thread() -> AbstractContextManager[object]:
    """Returns a context in which BLAS uses one thread, which is faster for products of small matrices on a busy machine."""
    try:
        from threadpoolctl import threadpool_limits  # pyright: ignore[reportMissingImports]
    except ImportError:
        return nullcontext()
    return threadpool_limits(1, "blas")


def _unfitted(name: str, kind: Kind, setting: str, outcomes: Outcomes, sample: Sample, needs: tuple[str, ...] = ()) -> Point:
    """Returns the `Point` of a rule that is not fitted, such as a single model, from its `outcomes` on `sample`. Other arguments are its fields."""
    record = Record(1, sample)
    record.write(0, 0, np.arange(sample.num_queries), outcomes)
    measures = record.measures()
    return Point(name, kind, setting, measures, measures, needs=needs, shares=record.shares())


def _bounds(sample: Sample, targets: Sequence[float]) -> list[Point]:
    needs = ("the score of every model before any is called, which is impossible",)
    best = single_call(sample, best_of_each(sample))
    points = [_unfitted("Best model of each query", "bound", "", best, sample, needs)]
    distinct: list[Outcomes] = []
    for target in targets:
        outcomes = cheapest_right(sample, target)
        if not any(np.array_equal(outcomes.quality, k.quality) and np.array_equal(outcomes.cost, k.cost) for k in distinct):
            distinct.append(outcomes)
            name, setting = "Cheapest right model of each query", f"at {share(target)}"
            points.append(_unfitted(name, "bound", setting, outcomes, sample, needs))
    return points


def fit_mixture(table: RoutingTable, target: float) -> router.Mixture:
    """Returns the cheapest random choice between two models whose mean score on a table reaches a target in [0, 1]."""
    return fit_rule(router.BEST_MIXTURE, table, target)


def fit_router(table: RoutingTable, target: float, by: Literal["logistic", "neighbours"] = "logistic") -> router.Router:
    """Returns the router that reaches a mean score, `target` in [0, 1], on a table at the least cost; its method `choose` takes further queries.

    Args:
      table: scores and costs of all models, with features if `by` is "neighbours", else with features or groups (categories) of queries.
      by: method that predicts scores.

    Raises `ValueError` if an argument is wrong, or the table lacks features (for "neighbours"), or both features and groups (for "logistic").
    """
    checks.one_of("by", by, ("logistic", "neighbours"))
    return fit_rule(router.LOGISTIC if by == "logistic" else router.NEIGHBOURS, table, target)


def fit_cascade(table: RoutingTable, target: float, judge: Literal["learned", "perfect"] = "learned") -> cascade.Cascade:
    """Returns FrugalGPT's cascade that reaches a mean score, `target` in [0, 1], on a table at the least cost.

    Args:
      table: scores and costs of all models; for a learned judge with features or groups.
      judge: "learned" for a judge of answers that is fitted to the table, "perfect" for one that sees their scores.

    Raises `ValueError` if an argument is wrong, or the judge is learned and the table has neither features nor groups.
    """
    checks.one_of("judge", judge, ("learned", "perfect"))
    return fit_rule(cascade.LEARNED if judge == "learned" else cascade.PERFECT, table, target)


def fit_cascade_routing(table: RoutingTable, target: float) -> CascadeRouting:
    """Returns the cheapest cascade routing with a perfect judge whose mean quality on a table reaches `target`, in [0, 1]."""
    return fit_rule(PERFECT_ROUTING, table, target)


def fit_rule(strategy: OfflineStrategy, table: RoutingTable, target: float) -> Any:
    """Returns the cheapest rule of a strategy whose mean quality on a table reaches `target`, in [0, 1]. Raises `ValueError` for a wrong argument."""
    if not isinstance(table, RoutingTable):
        raise ValueError(f"table must be a RoutingTable, got {checks.show(table)}")
    checks.probability("target", target, ())
    sample = sample_of(table)
    if strategy is router.NEIGHBOURS and sample.features is None:
        raise ValueError('by="neighbours" needs features, which the table lacks')
    if strategy in (router.NEIGHBOURS, router.LOGISTIC, cascade.LEARNED) and not sample.described:
        raise ValueError("the table has neither features nor groups, so nothing is known about a query before it is served")
    return strategy.fit(Part(sample, _WHOLE)).tuned(target)
