"""Cascades to experiment with: the index of each is known exactly, by construction.

The paper has no experiment. These environments, their names and numbers are ours; `two_boxes` is its only example.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, cast

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

_GROUP_CHANCES = (0.40, 0.30, 0.15, 0.10, 0.04, 0.01)
# How far a score may take an output's features: squared length along `theta` where scores stay between .03 and .97.
_REACH = 3.0


def _float32(x: Any) -> np.ndarray:
    return np.asarray(x, np.float32)


def _scalar(name: str, value: Any, check: Callable[..., np.ndarray] = checks.numbers) -> np.float32:
    return np.float32(check(name, value, ()))


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {checks.show(value)}")
    return bool(value)


def _names(names: Sequence[str], number: int) -> tuple[str, ...]:
    if not isinstance(names, Sequence) or isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"names must be a list of names, got {checks.show(names)}")
    if len(set(names)) < len(names):
        raise ValueError(f"names must differ from each other, got {checks.show(names)}")
    if len(names) not in (0, number):
        raise ValueError(f"names must have one name per model ({number}), got {len(names)}")
    return tuple(names)


def _contexts(contexts: Contexts | None, dim: int) -> Contexts:
    """Given contexts, or uniform ones."""
    if contexts is None:
        return UniformContexts(dim)
    if isinstance(contexts, type) or not hasattr(contexts, "draw"):
        raise ValueError(f"contexts must be an object such as UniformContexts(...), got {checks.show(contexts)}")
    contexts.check()
    if contexts.dim != dim:
        raise ValueError(f"contexts must have {dim} features, as the indices, got {contexts.dim}")
    return contexts


def _share(num_models: int) -> np.ndarray:
    """`a / (K - 1)` of the boxes: from the cheapest to the dearest."""
    return np.arange(checks.count("num_models", num_models, minimum=2)) / (num_models - 1)


def _costs(num_models: int) -> np.ndarray:
    return 0.015 * 5.0 ** _share(num_models)


def _quantiles(num_models: int) -> np.ndarray:
    return 0.7 - 0.4 * _share(num_models)


def _index(num_models: int, dim: int, slopes: float = 0.20) -> np.ndarray:
    """`[K, m]`: intercepts around .52, and slopes whose sizes sum to `slopes`."""
    a, j = (
        np.arange(checks.count("num_models", num_models, minimum=2))[:, None],
        np.arange(1, checks.count("dim", dim))[None, :],
    )
    wave = np.cos(1.3 * a + 2.1 * j + 0.7 * a * j)
    rows = slopes * wave / np.maximum(np.abs(wave).sum(axis=1, keepdims=True), 1e-12)
    return np.column_stack([0.52 + 0.05 * np.cos(2.4 * a), rows])


def default_theta(dim: int) -> np.ndarray:
    """Coefficients `[d]` of an evaluator: alternating signs, growing sizes, length 2."""
    h = (-1.0) ** np.arange(checks.count("feature_dim", dim)) * (1.0 + np.arange(dim) / dim)
    return _float32(2.0 * h / np.linalg.norm(h))


def _makes_features(evaluator: Any) -> bool:
    return not isinstance(evaluator, type) and all(hasattr(evaluator, name) for name in ("draw", "dim", "link", "theta"))


def _evaluator(evaluator: OutputFeatures | int | None) -> OutputFeatures | None:
    """Features of outputs: None, a number of them, or an object that makes them."""
    if evaluator is None or _makes_features(evaluator):
        return cast(OutputFeatures | None, evaluator)
    if isinstance(evaluator, bool) or not isinstance(evaluator, int | np.integer) or evaluator < 1:
        raise ValueError(
            f"evaluator must be None, a number of features or ScoredFeatures(...), got {checks.show(evaluator)}"
        )
    return ScoredFeatures(default_theta(int(evaluator)))


def _built(
    contexts: Contexts,
    boxes: Boxes,
    index: Leaf,
    evaluator: OutputFeatures | int | None = None,
    reach: float = _REACH,
    **options: Any,
) -> CascadeEnv:
    """The environment. reach: squared length that a score may add to an output's features."""
    features = _evaluator(evaluator)
    env = CascadeEnv(contexts=contexts, boxes=boxes, index=_float32(index), evaluator=features, **options)
    env.check()
    longest = 1.0 if features is None else features.bound(float(np.sqrt(reach)))
    return env.replace(context_bound=float(contexts.bound), feature_bound=float(longest))


def _with_a_reason_to_call(env: CascadeEnv, index: Leaf) -> CascadeEnv:
    """The environment; warns where no index is above 0: no call is worth its cost then, and the unit of costs is likely wrong."""
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
    """The main cascade: scores uniform around indices that are linear in the request (`LOC` of the experiments).

    Cheap boxes have a low mean, a wide score and a right tail that is rarely above the index; dear ones are reliable.

    Args:
      num_models: `K`, at least 2.
      dim: `m`.
      tilt: mean costs and widths are `1 + tilt x_1` times as large (`HET` with .25).
      bend: `bend cos(3 x_1 + a)` is added to the index of box `a` (`MISSPEC` with .05).
      link: "identity", "tanh" or "flat".
      contexts: default `UniformContexts(dim)`.
      evaluator: None if scores are seen, otherwise the number of features of an output, or `ScoredFeatures(...)`.
      cost_weight: what a unit of cost counts.
      shows_all: unopened outputs are shown afterwards.
    """
    boxes = UniformBoxes(
        base_cost=_float32(_costs(num_models)),
        quantile=_float32(_quantiles(num_models)),
        tilt=None if tilt is None else _scalar("tilt", tilt),
    )
    return _built(
        _contexts(contexts, dim),
        boxes,
        _index(num_models, dim),
        evaluator,
        reach=_REACH if tilt is None and bend is None else 8.2,
        bend=None if bend is None else _scalar("bend", bend),
        index_link=INDEX_LINKS[checks.one_of("link", link, INDEX_LINKS)],
        cost_weight=_scalar("cost_weight", cost_weight, checks.positive),
        shows_all=_flag("shows_all", shows_all),
    )


def spike_cascade(
    num_models: int = 3, dim: int = 3, *, evaluator: OutputFeatures | int | None = None, cost_weight: float = 1.0
) -> CascadeEnv:
    """`uniform_cascade` whose boxes score .97 once in a hundred times, so that the theory's mass condition holds everywhere."""
    boxes = SpikeBoxes(base_cost=_float32(_costs(num_models)), quantile=_float32(_quantiles(num_models)))
    index = _index(num_models, dim)
    return _built(
        UniformContexts(dim),
        boxes,
        index,
        evaluator,
        reach=3.1,
        cost_weight=_scalar("cost_weight", cost_weight, checks.positive),
    )


def pass_fail_cascade(
    num_models: int = 3, dim: int = 3, *, evaluator: OutputFeatures | int | None = None, cost_weight: float = 1.0
) -> CascadeEnv:
    """Scores of .95 or .1, with a probability that depends on the request."""
    index = _index(num_models, dim, slopes=0.10)
    index[:, 0] = 0.78 + 0.4 * (index[:, 0] - 0.52)
    boxes = PassFailBoxes(
        base_probability=_float32(0.25 + 0.5 * _share(num_models)), slope=np.float32(0.1) if dim > 1 else None
    )
    return _built(
        UniformContexts(dim), boxes, index, evaluator, cost_weight=_scalar("cost_weight", cost_weight, checks.positive)
    )


def group_cascade(
    probabilities: Sequence[float] = _GROUP_CHANCES,
    num_models: int = 3,
    *,
    evaluator: OutputFeatures | int | None = None,
    cost_weight: float = 1.0,
) -> CascadeEnv:
    """Requests of a few groups, some of them rare, with different indices.

    Args:
      probabilities: of the groups.
      num_models: `K`.
      evaluator: as in `uniform_cascade`.
      cost_weight: what a unit of cost counts.
    """
    probability = checks.probability("probabilities", probabilities)
    if probability.ndim != 1 or abs(probability.sum() - 1.0) > 1e-5:
        raise ValueError(
            f"probabilities must be a vector that sums to 1, got shape {probability.shape} with sum {probability.sum():g}"
        )
    costs = _float32(_costs(num_models))
    a, g = np.arange(num_models)[:, None], np.arange(len(probability))[None, :]
    index = 0.52 + 0.15 * np.cos(2.4 * a + 1.7 * g + 0.9 * a * g)
    boxes = UniformBoxes(base_cost=costs, quantile=_float32(_quantiles(num_models)))
    contexts = GroupContexts(_float32(probability))
    return _built(contexts, boxes, index, evaluator, cost_weight=_scalar("cost_weight", cost_weight, checks.positive))


def safe_and_risky(gap: float, *, evaluator: OutputFeatures | int | None = None) -> CascadeEnv:
    """Two boxes without contexts: a narrow one with index .5 and a wide one with index `.5 - gap`. The hard case for `gap =
    s / sqrt(T)`.
    """
    boxes = UniformBoxes(base_cost=_float32([0.05, 0.05]), quantile=_float32([0.0, 0.5]))
    gap = float(checks.numbers("gap", gap, ()))
    return _built(UniformContexts(1), boxes, [[0.5], [0.5 - gap]], evaluator)


def two_boxes() -> CascadeEnv:
    """The paper's example: an answer that is always right for .5, and one that is right once in ten times for .01.

    The cascade "the second, and the first if it fails" earns .54 per request, no single call more than .5.

    Source: Belloni, Chen and Wei (2026), section 2.1.
    """
    boxes = PassFailBoxes(
        base_probability=_float32([1.0, 0.1]), slope=None, low=np.float32(0.0), high=np.float32(1.0), spread=np.float32(0.0)
    )
    return _built(UniformContexts(1), boxes, [[0.5], [0.9]])


def frozen_cascade() -> CascadeEnv:
    """Three boxes, and one context for the whole run: an evaluator's coefficient that may never show.

    Source: Belloni, Chen and Wei (2026), remark 5.2.
    """
    index = np.column_stack([_index(3, 1)[:, 0], np.full(3, 0.1)])
    boxes = UniformBoxes(base_cost=_float32(_costs(3)), quantile=_float32(_quantiles(3)))
    return _built(FrozenContexts(), boxes, index, FrozenFeatures())


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
    """A cascade with given numbers.

    Args:
      index: `[K, m]` coefficients of the indices.
      mean_cost: `[K]`.
      quantile: `[K]` probability that a score is below the index.
      contexts, evaluator: as in `uniform_cascade`.
      cost_spread: of the costs around their mean, at most 1.
      link: as in `uniform_cascade`.
      cost_weight: what a unit of cost counts.
      shows_all: unopened outputs are shown afterwards.
      names: of the models.

    Raises:
      ValueError: an argument is out of range.
    """
    index = checks.numbers("index", index)
    if index.ndim != 2 or 0 in index.shape:
        raise ValueError(f"index must have shape [K, m], got {index.shape}")
    boxes = UniformBoxes(
        base_cost=_float32(checks.positive("mean_cost", mean_cost, (len(index),))),
        quantile=_float32(checks.probability("quantile", quantile, (len(index),))),
        spread=_scalar("cost_spread", cost_spread, checks.probability),
    )
    env = _built(
        _contexts(contexts, index.shape[1]),
        boxes,
        index,
        evaluator,
        reach=25.0,
        index_link=INDEX_LINKS[checks.one_of("link", link, INDEX_LINKS)],
        cost_weight=_scalar("cost_weight", cost_weight, checks.positive),
        shows_all=_flag("shows_all", shows_all),
        names=_names(names, len(index)),
    )
    return _with_a_reason_to_call(env, env.true_index(env.contexts.mean))


def token_costs(input_tokens: Leaf, output_tokens: Leaf, input_price: Leaf, output_price: Leaf) -> np.ndarray:
    """Costs `input price x input tokens + output price x output tokens`, of broadcast arrays.

    Source: Belloni, Chen and Wei (2026), remark 2.1.
    """
    parts = {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "input_price": input_price,
        "output_price": output_price,
    }
    i, o, p, q = (checks.non_negative(name, x) for name, x in parts.items())
    try:
        np.broadcast_shapes(*(x.shape for x in (i, o, p, q)))
    except ValueError:
        raise ValueError(f"{', '.join(parts)} must broadcast, got {i.shape}, {o.shape}, {p.shape} and {q.shape}") from None
    return p * i + q * o


def _recorded_features(features: Leaf, scores: np.ndarray, score_link: str, order: np.ndarray) -> RecordedFeatures:
    """Features `[N, K, d]` of outputs in an order of rows, and the fit of their scores, which have that order already."""
    table = checks.numbers("features", features)
    if table.ndim != 3 or table.shape[:2] != scores.shape:
        raise ValueError(f"features must have shape [{scores.shape[0]}, {scores.shape[1]}, d], got {table.shape}")
    link = SCORE_LINKS[checks.one_of("score_link", score_link, SCORE_LINKS)]
    table = table[order]
    theta = fit_glm(table.reshape(-1, table.shape[-1]), scores.reshape(-1), link)
    return RecordedFeatures(_float32(table), theta, link)


def _recorded(scores: Leaf, costs: Leaf, cost_weight: Any) -> tuple[np.ndarray, np.ndarray, float]:
    """Scores and costs `[N, K]`, and the weight of costs."""
    score = checks.probability("scores", scores)
    if score.ndim != 2 or 0 in score.shape:
        raise ValueError(f"scores must have shape [N, K], got {score.shape}")
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
    """Recorded scores and costs of real queries; a request shows the group of a query.

    Args:
      scores: `[N, K]` in [0, 1].
      costs: `[N, K]`, in any unit; times `cost_weight` they should be of the order of the scores.
      groups: `[N]` number of each query's group, from 0.
      cost_weight: what a unit of cost counts.
      joint: all models answer the same query, as they really did; otherwise each box draws a query of the group for itself,
        which the theory asks for. With `joint` the indices are not optimal, and the best policy in sample is `JointOracle`.
      features: `[N, K, d]` of outputs, where the evaluator is to be learned.
      score_link: "logistic", "probit" or "identity".
      names: of the models.
      cost_unit: of `costs`, for tables and axes.

    Raises:
      ValueError: shapes do not fit, a score is outside [0, 1], a cost negative, or a group empty.
    """
    scores, costs, weight = _recorded(scores, costs, cost_weight)
    number = np.asarray(checks.non_negative("groups", groups, scores.shape[:1]))
    if (number != number.astype(int)).any():
        raise ValueError(f"groups must be whole numbers from 0, got {number[number != number.astype(int)][0]:g}")
    if number.max() >= len(number):
        raise ValueError(f"groups must be numbered without gaps, below {len(number)}, got {number.max():g}")
    number = number.astype(int)
    count = np.bincount(number)
    if (count == 0).any():
        raise ValueError(f"groups must be numbered without gaps, got none with number {int(np.argmin(count))}")
    order = np.argsort(number, kind="stable")
    scores, costs, number = scores[order], costs[order], number[order]
    members = [np.flatnonzero(number == g) for g in range(len(count))]
    mean_score = np.stack([scores[m].mean(axis=0) for m in members])
    mean_cost = np.stack([costs[m].mean(axis=0) for m in members])
    equal = np.ones(len(scores))
    index = [
        [discrete_index(scores[m, a], equal[m], weight * mean_cost[g, a]) for g, m in enumerate(members)]
        for a in range(scores.shape[1])
    ]
    evaluator = None if features is None else _recorded_features(features, scores, score_link, order)
    boxes = RecordedBoxes(
        score=_float32(scores),
        cost=_float32(costs),
        first=np.concatenate([[0], np.cumsum(count)[:-1]]).astype(np.int32),
        count=count.astype(np.int32),
        group_score=_float32(mean_score),
        group_cost=_float32(mean_cost),
        joint=_flag("joint", joint),
    )
    contexts = GroupContexts(_float32(count / count.sum()))
    options = {"names": _names(names, scores.shape[1]), "cost_unit": str(cost_unit)}
    return _with_a_reason_to_call(
        _built(contexts, boxes, index, evaluator, cost_weight=np.float32(weight), **options), index
    )


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
    """Recorded scores and costs of real queries, each once a pass; a request shows the features of its query.

    All models answer the same query, so that outputs depend on each other, and nothing says how a query with the same features would have
    been answered: the indices of the environment are the linear ones that fit the played rows best, in hindsight.

    Args:
      scores: `[N, K]` in [0, 1].
      costs: `[N, K]`, in any unit; times `cost_weight` they should be of the order of the scores.
      contexts: `[N, m]` features of queries, as they are; a column of ones is the intercept.
      cost_weight: what a unit of cost counts.
      shuffled: in another order for each run, otherwise in that of the rows.
      features: `[N, K, d]` of outputs, where the evaluator is to be learned.
      score_link: "logistic", "probit" or "identity".
      names: of the models.
      cost_unit: of `costs`, for tables and axes.

    Raises:
      ValueError: shapes do not fit, a score is outside [0, 1], a cost negative, or a model has no cost at all.
    """
    scores, costs, weight = _recorded(scores, costs, cost_weight)
    psi = checks.numbers("contexts", contexts)
    if psi.ndim != 2 or len(psi) != len(scores) or not psi.shape[1]:
        raise ValueError(f"contexts must have shape [{len(scores)}, m], got {psi.shape}")
    free = np.flatnonzero(costs.sum(axis=0) == 0)
    if free.size:
        raise ValueError(f"costs must be above 0 somewhere in each column, got none in column {free[0]}")
    index = [linear_index(psi, scores[:, a], weight * costs[:, a]) for a in range(scores.shape[1])]
    evaluator = None if features is None else _recorded_features(features, scores, score_link, np.arange(len(scores)))
    boxes = QueryBoxes(_float32(scores), _float32(costs), *(_float32(np.linalg.lstsq(psi, x)[0]) for x in (scores, costs)))
    made = (ShuffledContexts if _flag("shuffled", shuffled) else RecordedContexts)(_float32(psi))
    options = {"names": _names(names, scores.shape[1]), "cost_unit": str(cost_unit)}
    env = _built(made, boxes, index, evaluator, cost_weight=np.float32(weight), **options)
    return _with_a_reason_to_call(env, psi @ np.transpose(index))
