"""The optimum that regret is measured against, `U*` of eq. (3); the optimum of recorded rows that all models share; and what
simpler rules earn: single calls, the best single threshold, the best list.

On the host in float64, up to the float32 of the environment's distributions.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.core import checks, draws
from jaxroute.core.quick import quick_jit
from jaxroute.core.types import Leaf
from jaxroute.problems.cascade.env import CascadeEnv, as_cascade
from jaxroute.problems.cascade.sources.boxes import RecordedBoxes
from jaxroute.problems.cascade.sources.contexts import RecordedContexts

# Thresholds that are tried, and draws on which they are compared.
_THRESHOLDS = np.arange(1, 100) / 100
# Requests that averages are taken over.
_REQUESTS = 20_000
_DRAWS = 200_000
# Histories that the optimum of joint rows may have: groups, and of each model whether it was called and what was seen of it.
_MOST_HISTORIES = 1 << 21
# Rounds of improving the thresholds of a list one by one; they stop when none gains.
_SWEEPS = 20


def _average(env: CascadeEnv, function: Callable) -> jax.Array:
    """Mean `[K]` of a function of the request over many requests, or over all recorded ones; may be traced."""
    key = draws.key(0)
    if isinstance(env.contexts, RecordedContexts):
        return jnp.mean(jax.vmap(function)(jnp.asarray(env.contexts.table, jnp.float32)), axis=0)

    def of(number: jax.Array) -> jax.Array:
        start, now = draws.split(draws.fold_in(key, number))
        return function(env.contexts.draw(now, env.contexts.init(start), number))

    return jnp.mean(jax.vmap(of)(jnp.arange(_REQUESTS)), axis=0)


# One program each: every operation on its own would be one.
@quick_jit
def _single_values(env: CascadeEnv) -> jax.Array:
    return _average(env, env.single_value)


@quick_jit
def _mean_costs(env: CascadeEnv) -> jax.Array:
    return _average(env, lambda psi: env.boxes.mean_cost(psi, env.base_index(psi)))


@quick_jit
def _cost_order(env: CascadeEnv) -> jax.Array:
    cost = jnp.round(_mean_costs(env), 6)
    return jnp.argsort(jnp.argsort(cost, stable=True), stable=True).astype(jnp.float32)


def single_values(env: CascadeEnv) -> jax.Array:
    """Mean score less weighted cost `[K]` of each model called alone, over the requests of the first 20,000 periods, or all recorded ones."""
    return _single_values(as_cascade(env))


def mean_costs(env: CascadeEnv) -> jax.Array:
    """Mean cost `[K]` of each model, over the requests of the first 20,000 periods, or all recorded ones."""
    return _mean_costs(as_cascade(env))


def cost_order(env: CascadeEnv) -> jax.Array:
    """Place `[K]` of each model from the cheapest (0) to the dearest; equals, to six digits, by their number. May be traced."""
    return _cost_order(as_cascade(env))


def oracle_value(env: CascadeEnv, psi: Leaf, points: int = 4000) -> float:
    """`U*(x) = E max_a min(M_a, index_a)` of a request, by numerical integration.

    Source: Belloni, Chen and Wei (2026), eq. (3).

    Args:
      env: the environment.
      psi: `[m]`, the request.
      points: of the integration between two indices.
    """
    boxes: Any = as_cascade(env).boxes
    if not hasattr(boxes, "above"):
        raise ValueError("oracle_value needs a distribution of scores, got recorded ones")
    checks.count("points", points)
    psi = jnp.asarray(checks.numbers("psi", psi, (env.spec.context_dim,)), jnp.float32)
    base, index = env.base_index(psi), np.asarray(env.true_index(psi), np.float64)
    edges = np.unique(np.concatenate([[min(-1.0, index.min())], index]))
    total = edges[-1]
    for low, high in itertools.pairwise(
        edges
    ):  # A distribution of min(M, index) jumps at indices; other jumps cost accuracy.
        levels = low + (high - low) * (np.arange(points) + 0.5) / points
        above = jax.vmap(lambda level: boxes.above(psi, base, level))(jnp.asarray(levels, jnp.float32))
        below = np.where(levels[:, None] >= index, 1.0, 1.0 - np.asarray(above, np.float64))
        total -= (high - low) * float(below.prod(axis=1).mean())
    return float(total)


def tuned_threshold(env: CascadeEnv, number: int = _DRAWS, seed: int = 0) -> tuple[float, float]:
    """The best single threshold of the cascade from the cheapest model to the dearest, and its mean utility, on other draws
    than those of a run.

    The threshold is set on what a policy sees: scores, or where they are not seen those of an evaluator with the true coefficients, as
    somebody has who trained it beforehand. The draws are the requests of the first `number` periods, which matters where requests change
    over time.
    """
    env, number = as_cascade(env), checks.count("number", number)
    key = draws.key(checks.count("seed", seed, minimum=0))
    theta = None if env.evaluator is None else jnp.asarray(env.evaluator.theta)

    def played(period: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        one = draws.fold_in(key, period)
        drawn = env.draw(one, env.init(draws.fold_in(one, 0)), jnp.int32(period))
        if theta is None or drawn.features is None:
            return drawn.score, drawn.score, drawn.cost
        return env.spec.score_link.value(drawn.features @ theta), drawn.score, drawn.cost

    drawn = quick_jit(lambda periods: jax.lax.map(played, periods, batch_size=4096))(jnp.arange(number))
    seen, score, cost = (np.asarray(x, np.float64) for x in drawn)
    return best_threshold(score, cost, seen, np.argsort(cost_order(env), kind="stable"))


def best_threshold(
    scores: Leaf, costs: Leaf, seen: Leaf | None = None, order: Sequence[int] | np.ndarray | None = None
) -> tuple[float, float]:
    """The best single threshold of a cascade of all models on given rows, and its mean utility.

    Thresholds from .01 to .99 in steps of .01. Ties: the smallest.

    Args:
      scores, costs, seen: as for `best_list`.
      order: models from the first to the last, None for the cheapest first.
    """
    score, cost, seen = _rows(scores, costs, seen)
    chosen = np.argsort(cost.mean(axis=0), kind="stable") if order is None else np.asarray(order)
    best, stop = _stages(chosen, score, cost, seen)
    values = []
    for threshold in _THRESHOLDS:
        values.append(float(_list_value(best, stop, np.full(len(chosen), threshold)).mean()))
    place = int(np.argmax(values))
    return float(_THRESHOLDS[place]), values[place]


class BestList(NamedTuple):
    """A list of models to call one after another.

    Attributes:
      models: `[L]` int, in the order of the calls; some may be left out.
      thresholds: `[L]`, level that the best score so far must miss before each is called; that of the first does not matter.
      utility: mean score less cost on the rows for which it was made.
    """

    models: np.ndarray
    thresholds: np.ndarray
    utility: float


def best_list(scores: Leaf, costs: Leaf, seen: Leaf | None = None) -> BestList:
    """The list of models (subset, order, a threshold for each) with the largest mean utility on given rows.

    By local search: from the best single model and from all models in the order of their costs, a model is put in, left out, exchanged
    for another or moved as long as that gains; thresholds are set one by one, each exactly, until none gains. So the list is at
    least as good as the best model alone and as one threshold for all models. It is not always the best of all lists.

    Source: FrugalGPT (Chen, Zaharia and Zou, 2023), the cascade: a list, and thresholds on what a scorer says.

    Differs from the paper: utility in place of a budget; lists of any length, where theirs have three models; all models may be looked at
    again in each step, where theirs are pruned beforehand.

    Args:
      scores: `[N, K]` of the outputs of each model on each row.
      costs: `[N, K]`, in units of utility.
      seen: `[N, K]`, what is known of the scores when the cascade decides; None if it is the scores themselves.
    """
    score, cost, seen = _rows(scores, costs, seen)
    number = score.shape[1]

    def tuned(models: Sequence[int]) -> BestList:
        best, stop = _stages(np.asarray(models), score, cost, seen)
        thresholds = _best_thresholds(best, stop)
        return BestList(np.asarray(models), thresholds, float(_list_value(best, stop, thresholds).mean()))

    def improved(now: BestList) -> BestList:
        tried = {tuple(now.models.tolist())}
        while True:
            found = now
            for models in _neighbours(now.models.tolist(), number):
                if models not in tried:
                    tried.add(models)
                    found = max(found, tuned(models), key=lambda one: one.utility)
            if found is now:
                return now
            now = found

    starts = [[int((score - cost).mean(axis=0).argmax())], np.argsort(cost.mean(axis=0), kind="stable").tolist()]
    return max((improved(tuned(models)) for models in starts), key=lambda one: one.utility)


def _neighbours(models: list[int], number: int) -> list[tuple[int, ...]]:
    """Lists with a model more, a model less, one in the place of another, or one moved."""
    rest, places = [a for a in range(number) if a not in models], range(len(models))
    shorter = [models[:i] + models[i + 1 :] for i in places]
    found = [[*models[:i], a, *models[i:]] for i in (*places, len(models)) for a in rest]
    found += [[*models[:i], a, *models[i + 1 :]] for i in places for a in rest]
    found += [[*one[:j], models[i], *one[j:]] for i, one in enumerate(shorter) for j in range(len(models))]
    return [tuple(one) for one in (*found, *shorter) if one]


def _rows(scores: Leaf, costs: Leaf, seen: Leaf | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    score = np.asarray(checks.numbers("scores", scores), np.float64)
    if score.ndim != 2 or 0 in score.shape:
        raise ValueError(f"scores must have shape [N, K], got {score.shape}")
    cost = np.asarray(checks.non_negative("costs", costs, score.shape), np.float64)
    return score, cost, score if seen is None else np.asarray(checks.numbers("seen", seen, score.shape), np.float64)


def _stages(models: np.ndarray, score: np.ndarray, cost: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Best that was seen, and utility of stopping, after each call of a list `[N, L]`. Equals: the model with the lower number."""
    best, stop = np.empty((2, len(score), len(models)))
    top, earned, holder = np.full(len(score), -np.inf), np.zeros(len(score)), np.full(len(score), score.shape[1])
    for place, a in enumerate(models):
        better = (seen[:, a] > top) | ((seen[:, a] == top) & (a < holder))
        top, earned, holder = (
            np.where(better, new, old) for new, old in ((seen[:, a], top), (score[:, a], earned), (a, holder))
        )
        best[:, place], stop[:, place] = top, earned
    return best, stop - np.cumsum(cost[:, models], axis=1)


def _list_value(best: np.ndarray, stop: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Utility `[N]` of a list."""
    value = stop[:, -1]
    for place in range(best.shape[1] - 1, 0, -1):
        value = np.where(best[:, place - 1] < thresholds[place], value, stop[:, place - 1])
    return value


def _best_thresholds(best: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Thresholds `[L]`, each the best given the others; between two values that occur, the middle."""
    length = best.shape[1]
    thresholds, utility = np.full(length, np.inf), -np.inf
    for _ in range(_SWEEPS):
        value = stop[:, -1]
        for place in range(length - 1, 0, -1):
            reached = (best[:, : place - 1] < thresholds[1:place]).all(axis=1)
            level, inverse = np.unique(best[reached, place - 1], return_inverse=True)
            gain = np.cumsum(np.bincount(inverse, (value - stop[:, place - 1])[reached], len(level)))
            cut = int(np.argmax(np.append(0.0, gain)))  # So many of the levels go on.
            edges = np.concatenate([[-np.inf], 0.5 * (level[1:] + level[:-1]), [np.inf]]) if len(level) else np.zeros(1)
            thresholds[place] = edges[cut]
            value = np.where(best[:, place - 1] < thresholds[place], value, stop[:, place - 1])
        if not value.mean() > utility:
            break
        utility = float(value.mean())
    return thresholds


class TooManyHistoriesError(ValueError):
    """An exact optimum would have to tell more histories apart than fit into memory."""


class JointPlan(NamedTuple):
    """The best policy on rows that all models share, by what was seen before.

    A history is a number: that of the group, and of each model 0 where it was not called, otherwise 1 more than the number of what was
    seen of it, times the model's stride.

    Attributes:
      value: mean utility of the policy on these rows.
      signals: `[K, V, d]`, what may be seen of each model, in the order of their numbers; NaN where a model has fewer.
      strides: `[K]` int32.
      start: `[G]` int32, history before the first call.
      action: `[H]` int32: models below `K` are called next; `K + a` stops and deploys the output of the model `a`.
    """

    value: float
    signals: np.ndarray
    strides: np.ndarray
    start: np.ndarray
    action: np.ndarray


def joint_plan(env: CascadeEnv) -> JointPlan:
    """The exact optimum on recorded rows that all models share, by dynamic programming over what was seen.

    After some calls the rows that agree in their group and in all that was seen cannot be told apart. Their value is the larger of
    stopping with the output that has the largest mean score among them, and of the next call's cost and the values after it, in the mean:

        V(S, h) = max( max_(a in S) E[score_a | h],  max_(a not in S) E[-cost_a + V(S + a, h and what is seen of a) | h] ).

    What is seen of an output is its score or, where scores are not seen, its features; a cost counts, but tells nothing. The plan
    knows the rows that it is judged on: it is a bound, in sample, and where what is seen hardly repeats it recognises single queries.

    Raises:
      ValueError: the environment has no such rows.
      TooManyHistoriesError: it has more than two million histories.
    """
    boxes: Any = as_cascade(env).boxes
    if not isinstance(boxes, RecordedBoxes) or not boxes.joint:
        raise ValueError("joint_plan needs recorded rows that all models share: replay_cascade(..., joint=True)")
    score = np.asarray(boxes.score, np.float32)
    cost = np.asarray(boxes.cost, np.float64) * float(env.cost_weight)
    groups = np.repeat(np.arange(len(boxes.count)), boxes.count)
    evaluator: Any = env.evaluator
    shown = score[:, :, None] if evaluator is None else np.asarray(evaluator.table, np.float32)
    found = [np.unique(shown[:, a], axis=0, return_inverse=True) for a in range(score.shape[1])]
    seen = np.stack([inverse.reshape(-1) for _, inverse in found], axis=1)
    sizes = np.array([1 + len(levels) for levels, _ in found])
    histories = len(boxes.count) * float(np.prod(sizes, dtype=float))
    if histories > _MOST_HISTORIES:
        raise TooManyHistoriesError(
            f"env must have at most {_MOST_HISTORIES:,} histories for an exact optimum, got {histories:,.0f}: "
            "take fewer models, or scores with fewer values"
        )
    signals = np.full((len(found), sizes.max() - 1, shown.shape[2]), np.nan, np.float32)
    for a, (levels, _) in enumerate(found):
        signals[a, : len(levels)] = levels
    strides = np.concatenate([np.cumprod(sizes[::-1])[-2::-1], [1]])
    start = np.arange(len(boxes.count)) * int(np.prod(sizes))
    value, action = _joint_values(seen, np.asarray(score, np.float64), cost, start[groups], strides, int(histories))
    return JointPlan(value, signals, strides.astype(np.int32), start.astype(np.int32), action)


def _joint_values(
    seen: np.ndarray, score: np.ndarray, cost: np.ndarray, start: np.ndarray, strides: np.ndarray, histories: int
) -> tuple[float, np.ndarray]:
    """Mean value of the plan, and what it does after each history; see `joint_plan`."""
    number = score.shape[1]
    action = np.full(histories, number, np.int32)
    values: dict[
        int, np.ndarray
    ] = {}  # By the set of the called models, as bits: the value `[N]` of the history of each row.
    for called in range((1 << number) - 1, -1, -1):
        inside = [a for a in range(number) if called >> a & 1]
        history = start + (seen[:, inside] + 1) @ strides[inside] if inside else start
        places, row = np.unique(history, return_inverse=True)
        size = np.bincount(row)
        options = {number + a: np.bincount(row, score[:, a]) / size for a in inside}
        options |= {
            a: np.bincount(row, values[called | 1 << a] - cost[:, a]) / size for a in range(number) if a not in inside
        }
        codes, means = np.array(list(options)), np.stack(list(options.values()))
        best = means.argmax(axis=0)
        action[places] = codes[best]
        values[called] = means[best, np.arange(len(places))][row]
    return float(values[0].mean()), action
