"""Ready-made cascades, built so that the reservation index of each box is known exactly.

The paper has no experiment. These environments, their names and numbers are ours; only `two_boxes` is an example of the paper.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxroute.core import checks
from jaxroute.core.types import Leaf
from jaxroute.estimators.glm import fit_glm
from jaxroute.estimators.links import INDEX_LINKS, SCORE_LINKS
from jaxroute.problems.cascade.env import CascadeEnv
from jaxroute.problems.cascade.sources.boxes import Boxes, PassFailBoxes, QueryBoxes, RecordedBoxes, SpikeBoxes, UniformBoxes
from jaxroute.problems.cascade.sources.contexts import (
    Contexts,
    FrozenContexts,
    GroupContexts,
    RecordedContexts,
    ShuffledContexts,
    UniformContexts,
)
from jaxroute.problems.cascade.sources.features import FrozenFeatures, OutputFeatures, RecordedFeatures, ScoredFeatures
from jaxroute.solvers.reservation import discrete_index, linear_index

_GROUP_PROBABILITIES = (0.40, 0.30, 0.15, 0.10, 0.04, 0.01)
# Squared length that a score between .03 and .97 may add to the features of an output, along `theta`.
_REACH = 3.0


def _float32(x: Any) -> np.ndarray:
    return np.asarray(x, np.float32)


def _share(num_models: int) -> np.ndarray:
    """Returns equally spaced numbers for the models, from 0 for the cheapest to 1 for the most expensive."""
    return np.arange(checks.count("num_models", num_models, minimum=2)) / (num_models - 1)


def _uniform_boxes(num_models: int, kind: type[UniformBoxes] = UniformBoxes, tilt: Leaf | None = None) -> UniformBoxes:
    share = _share(num_models)
    return kind(base_cost=_float32(0.015 * 5.0**share), quantile=_float32(0.7 - 0.4 * share), tilt=tilt)


def _index(num_models: int, dim: int, slopes: float = 0.20) -> np.ndarray:
    """Returns index coefficients `[K, m]` of `K` models for `m` features: intercepts near .52, and slopes with absolute sum `slopes` in each row."""
    a = np.arange(checks.count("num_models", num_models, minimum=2))[:, None]
    j = np.arange(1, checks.count("dim", dim))[None, :]
    wave = np.cos(1.3 * a + 2.1 * j + 0.7 * a * j)
    rows = slopes * wave / np.maximum(np.abs(wave).sum(axis=1, keepdims=True), 1e-12)
    return np.column_stack([0.52 + 0.05 * np.cos(2.4 * a), rows])


def default_theta(dim: int) -> np.ndarray:
    """Returns the default coefficients `[dim]` by which an evaluator scores an output's `dim` features: alternating signs, growing sizes, norm 2."""
    h = (-1.0) ** np.arange(checks.count("feature_dim", dim)) * (1.0 + np.arange(dim) / dim)
    return _float32(2.0 * h / np.linalg.norm(h))


def _built(
    contexts: Contexts | None,
    boxes: Boxes,
    index: Leaf,
    evaluator: Any = None,
    cost_weight: float = 1.0,
    *,
    reach: float = _REACH,
    link: str = "identity",
    shows_all: bool = False,
    **options: Any,
) -> CascadeEnv:
    """Builds a cascade from fields of `CascadeEnv` and checks it. `contexts` is None for uniform ones; `evaluator` may be a number of features.

    `reach` limits the scores by `|G^-1(score)| <= 2 sqrt(reach)`, with the evaluator's link `G`; the field `feature_bound` follows from it.
    """
    index = _float32(index)
    contexts = UniformContexts(index.shape[1]) if contexts is None else contexts
    checks.part("contexts", contexts, "draw", "UniformContexts(...)")
    if contexts.dim != index.shape[1]:
        raise ValueError(f"contexts must have {index.shape[1]} features, as the indices, got {contexts.dim}")
    if checks.is_integer(evaluator) and evaluator >= 1:
        evaluator = ScoredFeatures(default_theta(int(evaluator)))
    elif evaluator is not None:
        has_methods = all(hasattr(evaluator, name) for name in ("draw", "dim", "link", "theta"))
        if isinstance(evaluator, type) or not has_methods:
            shown = checks.show(evaluator)
            raise ValueError(f"evaluator must be None, a number of features or ScoredFeatures(...), got {shown}")
    options["index_link"] = INDEX_LINKS[checks.one_of("link", link, INDEX_LINKS)]
    options["cost_weight"] = np.float32(checks.positive("cost_weight", cost_weight, ()))
    options["shows_all"] = checks.boolean("shows_all", shows_all)
    env = CascadeEnv(contexts=contexts, boxes=boxes, index=index, evaluator=evaluator, **options)
    env.check()
    longest = 1.0 if evaluator is None else evaluator.bound(float(np.sqrt(reach)))
    return env.replace(names=tuple(env.names), context_bound=float(contexts.bound), feature_bound=float(longest))


def _with_warning(env: CascadeEnv, index: Leaf) -> CascadeEnv:
    """Returns `env`; warns if none of the reservation indices `index` (any shape) is above 0, in which case no call is worth its cost."""
    largest = float(np.max(index))
    if largest <= 0.0:
        weight = float(np.asarray(env.cost_weight))
        warnings.warn(
            f"no index is above 0 (the largest is {largest:.3g}): no call is worth its cost, whatever a policy does. Are costs, times "
            f"cost_weight={weight:g}, in units of the scores?",
            stacklevel=3,
        )
    return env


def uniform_cascade(
    num_models: int = 3,
    dim: int = 3,
    *,
    tilt: float | None = None,
    bend: float | None = None,
    link: str = "identity",
    contexts: Contexts | None = None,
    evaluator: OutputFeatures | int | None = None,
    cost_weight: float = 1.0,
    shows_all: bool = False,
) -> CascadeEnv:
    """Builds the main cascade of our experiments: scores are uniform around reservation indices that are linear in the request.

    Scores of cheap models have a low mean and a wide range, and rarely exceed the index; expensive models are reliable.

    Args:
      num_models, dim: number of models, `K`, at least 2, and number of features of a request, `m`.
      tilt: slope of the factor `1 + tilt x_1` on mean costs and ranges of scores, None for 0; `x_1` is the first feature after the intercept.
      bend: factor of the term `bend cos(3 x_1 + a)` in the index of box `a`, None for 0. Our experiments also use the tilt .25 and the bend .05.
      link: link function of the indices, "identity", "tanh" or "flat".
      contexts: distribution of requests, None for `UniformContexts(dim)`.
      evaluator: None if scores are seen, otherwise the number of features of an output, or `ScoredFeatures(...)`.
      cost_weight, shows_all: utility of a unit of cost, and whether unopened outputs are shown after the period.
    """
    boxes = _uniform_boxes(num_models, tilt=None if tilt is None else np.float32(checks.numbers("tilt", tilt, ())))
    more = {"link": link, "shows_all": shows_all, "reach": _REACH if tilt is None and bend is None else 8.2}
    more["bend"] = None if bend is None else np.float32(checks.numbers("bend", bend, ()))
    return _built(contexts, boxes, _index(num_models, dim), evaluator, cost_weight, **more)


def spike_cascade(
    num_models: int = 3, dim: int = 3, *, evaluator: OutputFeatures | int | None = None, cost_weight: float = 1.0
) -> CascadeEnv:
    """Builds a cascade of uniform scores, 1 % of them replaced by .97, which exceeds any index (assumption 4.1). A request has `dim` features.

    `evaluator`: None if scores are seen, else the number of an output's features, or `ScoredFeatures(...)`. `cost_weight`: utility of a unit of cost.
    """
    return _built(None, _uniform_boxes(num_models, SpikeBoxes), _index(num_models, dim), evaluator, cost_weight, reach=3.1)


def pass_fail_cascade(
    num_models: int = 3, dim: int = 3, *, evaluator: OutputFeatures | int | None = None, cost_weight: float = 1.0
) -> CascadeEnv:
    """Builds a cascade whose scores are .95 with a probability that depends on the request, otherwise .1. A request has `dim` features.

    `evaluator`: None if scores are seen, else the number of an output's features, or `ScoredFeatures(...)`. `cost_weight`: utility of a unit of cost.
    """
    index = _index(num_models, dim, slopes=0.10)
    index[:, 0] = 0.78 + 0.4 * (index[:, 0] - 0.52)
    boxes = PassFailBoxes(
        base_probability=_float32(0.25 + 0.5 * _share(num_models)), slope=np.float32(0.1) if dim > 1 else None
    )
    return _built(None, boxes, index, evaluator, cost_weight)


def group_cascade(
    probabilities: Sequence[float] = _GROUP_PROBABILITIES,
    num_models: int = 3,
    *,
    evaluator: OutputFeatures | int | None = None,
    cost_weight: float = 1.0,
) -> CascadeEnv:
    """Builds a cascade whose requests belong to groups with given probabilities; a request shows its group, on which the reservation indices depend.

    `evaluator`: None if scores are seen, else the number of an output's features, or `ScoredFeatures(...)`. `cost_weight`: utility of a unit of cost.
    """
    GroupContexts(probabilities).check()
    contexts, boxes = GroupContexts(_float32(probabilities)), _uniform_boxes(num_models)
    a, g = np.arange(num_models)[:, None], np.arange(contexts.dim)[None, :]
    index = 0.52 + 0.15 * np.cos(2.4 * a + 1.7 * g + 0.9 * a * g)
    return _built(contexts, boxes, index, evaluator, cost_weight)


def safe_and_risky(gap: float, *, evaluator: OutputFeatures | int | None = None) -> CascadeEnv:
    """Builds a cascade of two models with reservation indices .5 (narrow range of scores) and `.5 - gap` (wide range). A small gap is hard to learn.

    `evaluator` is None if scores are seen, else the number of features of an output, or their distribution, such as `ScoredFeatures(...)`.
    """
    boxes = UniformBoxes(base_cost=_float32([0.05, 0.05]), quantile=_float32([0.0, 0.5]))
    gap = float(checks.numbers("gap", gap, ()))
    return _built(None, boxes, [[0.5], [0.5 - gap]], evaluator)


def two_boxes() -> CascadeEnv:
    """Builds the paper's example of two models. The expensive one (price .5) is always right, the cheap one (price .01) is right in 10 %.

    Calling the cheap model, and the expensive one if it fails, earns .54 per request. A single call earns at most .5.

    Source: Belloni, Chen and Wei (2026), section 2.1.
    """
    boxes = PassFailBoxes(
        base_probability=_float32([1.0, 0.1]), slope=None, low=np.float32(0.0), high=np.float32(1.0), spread=np.float32(0.0)
    )
    return _built(None, boxes, [[0.5], [0.9]])


def frozen_cascade() -> CascadeEnv:
    """Builds a cascade of three models with the same request throughout a run. One evaluator coefficient may then never be learned (remark 5.2)."""
    index = np.column_stack([_index(3, 1)[:, 0], np.full(3, 0.1)])
    return _built(FrozenContexts(), _uniform_boxes(3), index, FrozenFeatures())


def custom_cascade(
    index: Leaf,
    mean_cost: Leaf,
    quantile: Leaf,
    *,
    contexts: Contexts | None = None,
    evaluator: OutputFeatures | int | None = None,
    cost_spread: float = 0.5,
    link: str = "identity",
    cost_weight: float = 1.0,
    shows_all: bool = False,
    names: Sequence[str] = (),
) -> CascadeEnv:
    """Builds a cascade with uniformly distributed scores (`UniformBoxes`) and given reservation indices, mean costs and ranges of scores.

    Args:
      index: `[K, m]` coefficients of the reservation indices.
      mean_cost: `[K]` mean costs.
      quantile: `[K]` probability of a score below the index; scores have a range of `2 mean_cost / (1 - quantile)^2`.
      cost_spread: largest relative deviation of a cost from its mean, at most 1.
      contexts: distribution of requests, None for `UniformContexts(m)`.
      evaluator: None if scores are seen, otherwise the number of features of an output, or `ScoredFeatures(...)`.
      link, cost_weight: link function of the indices, "identity", "tanh" or "flat", and utility of a unit of cost.
      shows_all, names: whether unopened outputs are shown after the period, and names of the models.
    """
    index = checks.numbers("index", index, ("K", "m"))
    boxes = UniformBoxes(
        base_cost=_float32(checks.positive("mean_cost", mean_cost, (len(index),))),
        quantile=_float32(checks.probability("quantile", quantile, (len(index),))),
        spread=np.float32(checks.probability("cost_spread", cost_spread, ())),
    )
    more = {"reach": 25.0, "link": link, "shows_all": shows_all, "names": names}
    env = _built(contexts, boxes, index, evaluator, cost_weight, **more)
    return _with_warning(env, env.true_index(env.contexts.mean))


def token_costs(input_tokens: Leaf, output_tokens: Leaf, input_price: Leaf, output_price: Leaf) -> np.ndarray:
    """Returns costs of calls, `input_price * input_tokens + output_price * output_tokens`, with prices per token; arrays broadcast (remark 2.1)."""
    names = ("input_tokens", "output_tokens", "input_price", "output_price")
    values = (input_tokens, output_tokens, input_price, output_price)
    i, o, p, q = (checks.non_negative(*pair) for pair in zip(names, values, strict=True))
    try:
        np.broadcast_shapes(*(x.shape for x in (i, o, p, q)))
    except ValueError:
        raise ValueError(f"{', '.join(names)} must broadcast, got {i.shape}, {o.shape}, {p.shape} and {q.shape}") from None
    return p * i + q * o


def _recorded_features(features: Leaf, scores: np.ndarray, score_link: str, order: np.ndarray) -> RecordedFeatures:
    """Takes the rows `order` of `features` `[N, K, d]`, which belong to those of `scores` `[N, K]`, and fits scores with the link `score_link`."""
    table = checks.numbers("features", features, (*scores.shape, "d"))[order]
    link = SCORE_LINKS[checks.one_of("score_link", score_link, SCORE_LINKS)]
    theta = fit_glm(table.reshape(-1, table.shape[-1]), scores.reshape(-1), link)
    return RecordedFeatures(_float32(table), theta, link)


def _recorded(scores: Leaf, costs: Leaf, cost_weight: Any) -> tuple[np.ndarray, np.ndarray, float]:
    score = checks.probability("scores", scores, ("N", "K"))
    return score, checks.non_negative("costs", costs, score.shape), float(checks.positive("cost_weight", cost_weight, ()))


def replay_cascade(
    scores: Leaf,
    costs: Leaf,
    groups: Leaf,
    *,
    cost_weight: float = 1.0,
    joint: bool = False,
    features: Leaf | None = None,
    score_link: str = "logistic",
    names: Sequence[str] = (),
    cost_unit: str = "",
) -> CascadeEnv:
    """Builds a cascade from recorded scores and costs of `K` models (boxes) on `N` real queries; policies see only the group of a query.

    Args:
      scores: `[N, K]` scores in [0, 1].
      costs: `[N, K]` costs in any unit; multiplied by `cost_weight` they should be of the order of the scores.
      groups: `[N]` group of each query, from 0.
      cost_weight: utility of a unit of cost.
      joint: whether all models answer the same query, as in the data; otherwise each box answers a separate query of the group, as the theory
        assumes. With `joint` the search by indices is not optimal; `JointOracle` is the best policy for these rows.
      features: `[N, K, d]` features of outputs, from which scores must be learned; None if scores are seen.
      score_link: link function from these features to scores, "logistic", "probit" or "identity".
      names, cost_unit: names of the models, and unit of `costs` for tables and axes.
    """
    scores, costs, weight = _recorded(scores, costs, cost_weight)
    whole = checks.bounded("groups", groups, scores.shape[:1], "whole numbers from 0", lambda g: (g >= 0) & (g % 1 == 0))
    present, number, count = np.unique(whole, return_inverse=True, return_counts=True)
    if present[-1] >= len(present):
        raise ValueError(f"groups must be numbered without gaps, got {checks.show(present.astype(int).tolist())}")
    order = np.argsort(number, kind="stable")
    scores, costs, number = scores[order], costs[order], number[order]
    members = [np.flatnonzero(number == g) for g in range(len(count))]
    mean_score, mean_cost = (np.stack([x[m].mean(axis=0) for m in members]) for x in (scores, costs))
    index = [
        [discrete_index(scores[m, a], np.ones(len(m)), weight * mean_cost[g, a]) for g, m in enumerate(members)]
        for a in range(scores.shape[1])
    ]
    evaluator = None if features is None else _recorded_features(features, scores, score_link, order)
    first, count = (np.cumsum(count) - count).astype(np.int32), count.astype(np.int32)
    scores, costs, mean_score, mean_cost = (_float32(x) for x in (scores, costs, mean_score, mean_cost))
    boxes = RecordedBoxes(scores, costs, mean_score, mean_cost, first, count, joint=checks.boolean("joint", joint))
    contexts = GroupContexts(_float32(count / count.sum()))
    env = _built(contexts, boxes, index, evaluator, weight, names=names, cost_unit=str(cost_unit))
    return _with_warning(env, index)


def query_cascade(
    scores: Leaf,
    costs: Leaf,
    contexts: Leaf,
    *,
    cost_weight: float = 1.0,
    shuffled: bool = True,
    features: Leaf | None = None,
    score_link: str = "logistic",
    names: Sequence[str] = (),
    cost_unit: str = "",
) -> CascadeEnv:
    """Builds a cascade that replays recorded queries, each once per pass through the data; a request shows the features of its query.

    All models answer the same query, so that outputs depend on each other, and true indices of a query are unknown. The indices of the environment
    are linear functions of the features that minimise the loss of COSMOS over all rows, in hindsight.

    Args:
      scores, costs: `[N, K]` scores in [0, 1], and costs, of `K` models on `N` queries.
      contexts: `[N, m]` features of queries; no intercept is added, so that a column of ones must be among them if indices should have one.
      shuffled: whether each run draws an order of the queries; otherwise they come in the order of the rows.
      features: `[N, K, d]` features of outputs, from which scores must be learned; None if scores are seen.
      score_link: link function from these features to scores, "logistic", "probit" or "identity".
      names, cost_unit, cost_weight: names of the models, unit of `costs` for tables and axes, and utility of a unit of cost.
    """
    scores, costs, weight = _recorded(scores, costs, cost_weight)
    psi = checks.numbers("contexts", contexts, (len(scores), "m"))
    free = np.flatnonzero(costs.sum(axis=0) == 0)
    if free.size:
        raise ValueError(f"costs must be above 0 somewhere in each column, got none in column {free[0]}")
    index = [linear_index(psi, scores[:, a], weight * costs[:, a]) for a in range(scores.shape[1])]
    evaluator = None if features is None else _recorded_features(features, scores, score_link, np.arange(len(scores)))
    boxes = QueryBoxes(_float32(scores), _float32(costs), *(_float32(np.linalg.lstsq(psi, x)[0]) for x in (scores, costs)))
    made = (ShuffledContexts if checks.boolean("shuffled", shuffled) else RecordedContexts)(_float32(psi))
    env = _built(made, boxes, index, evaluator, weight, names=names, cost_unit=str(cost_unit))
    return _with_warning(env, psi @ np.transpose(index))
