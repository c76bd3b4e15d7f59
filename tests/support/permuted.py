"""Environments with their models in any order, one for each problem, and how far the regrets of two orders are apart."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import jaxroute as jr
from jaxroute.problems import (
    cascade,
    combinatorial,
    contextual,
    default_policies,
    problems,
    queueing,
    service,
    staged,
    stochastic,
)

_ROTATED = [[2.0, 0.5], [0.3, -0.8], [-0.4, 0.7], [-1.0, -0.5]]


class Case(NamedTuple):
    """An environment whose models are best first, or in another order.

    make: function of an order, a permutation of the models.
    metric: to compare.
    orders: the two orders.
    """

    make: Callable[[Sequence[int]], Any]
    metric: str = "regret"
    orders: tuple[Sequence[int], Sequence[int]] = ((0, 1, 2, 3), (3, 2, 1, 0))


def _at(values, order):
    return np.asarray(values)[list(order)]


def market(order):
    """Four models that are there from the start, two slots."""
    outcomes = staged.ParametricOutcomes(
        reward_mean=_at([0.9, 0.7, 0.5, 0.3], order),
        cost_mean=_at([1.2, 1.0, 0.9, 0.8], order),
        reward_noise=np.float32(0.1),
        cost_noise=np.float32(0.1),
    )
    return staged.market(outcomes, capacity=0.7, budget=1.1, max_deployed=2, stage_length=20, horizon=60)


def cloud(order, **options):
    """Sets of two of four models."""
    success, cost = _at([0.9, 0.7, 0.4, 0.2], order), _at([0.4, 0.3, 0.3, 0.1], order)
    return combinatorial.parametric_cloud(success, cost, **{"reward": "suc", "budget": 0.6, "size": 2} | options)


def requests(order):
    """Models of equal cost, so that any order rises; the smallest and the largest, which have parts to play, stay."""
    success = np.array([[0.3, 0.9, 0.4, 0.5], [0.4, 0.7, 0.8, 0.6]])
    return service.typed_service(success[:, list(order)], np.full((2, 4), 100.0), alpha=0.7, reveals_labels=True)


def boxes(order):
    index = _at([[0.55, 0.05], [0.48, -0.05], [0.42, 0.05], [0.35, 0.0]], order)
    return cascade.custom_cascade(index, _at([0.05, 0.04, 0.03, 0.02], order), _at([0.4, 0.5, 0.6, 0.6], order))


CASES = {
    "stochastic": Case(lambda order: stochastic.bernoulli(_at([0.9, 0.6, 0.4, 0.2], order))),
    "contextual": Case(lambda order: contextual.logistic(_at(_ROTATED, order), intercept=True)),
    "staged": Case(market),
    "combinatorial": Case(cloud),
    "service": Case(requests, "satisfaction", ((0, 1, 2, 3), (0, 2, 1, 3))),
    "queueing": Case(
        lambda order: queueing.fixed_queue(_at(_ROTATED, order), horizon=60, slack=0.0, arrival_rate=0.6), "routing_regret"
    ),
    "cascade": Case(boxes),
}
EVERYTHING = Case(lambda order: cloud(order, any_size=True))


def policies(only: Sequence[str] = tuple(CASES)) -> dict[str, tuple[Any, Case]]:
    """Every policy with its default settings, by problem and class, and its case."""
    return {
        f"{problem}/{name}": (policy, EVERYTHING if name == "Everything" else CASES[problem])
        for problem, module in problems().items()
        if problem in only
        for name, policy in default_policies(module).items()
    }


def scores_of(name: str, policy: Any, case: Case, horizon: int, seeds: int, **options: Any) -> dict[str, float]:
    """Mean metric in both orders, and its difference in standard errors."""
    ends = []
    for i, order in enumerate(case.orders):
        result = jr.simulate(
            case.make(order), {name: policy}, horizon=horizon, seeds=range(i * seeds, (i + 1) * seeds),
            record=[case.metric], record_every=horizon, progress=False, **options,
        )  # fmt: skip
        ends.append(result[case.metric].values.reshape(seeds, -1)[:, -1].astype(float))
    error = np.sqrt(sum(x.var(ddof=1) for x in ends) / seeds)
    gap = ends[0].mean() - ends[1].mean()
    return {
        "first": ends[0].mean(),
        "second": ends[1].mean(),
        "error": error,
        "z": gap / error if error > 1e-9 else (0.0 if abs(gap) < 1e-5 else np.inf),
    }
