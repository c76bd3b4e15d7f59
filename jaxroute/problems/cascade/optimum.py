"""Benchmarks of cascades: largest expected utility `U*` of eq. (3), best thresholds, and the best policy on recorded queries that all models answer.

All are computed on the host in float64; only the parameters of the environment's distributions are float32.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxroute.core import checks, draws
from jaxroute.core.quick import quick_jit
from jaxroute.core.types import Leaf
from jaxroute.problems.cascade.env import CascadeEnv
from jaxroute.problems.cascade.sources.boxes import RecordedBoxes
from jaxroute.problems.cascade.sources.contexts import RecordedContexts

# Candidates of a single threshold, and number of draws for their comparison.
_THRESHOLDS = np.arange(1, 100) / 100
_DRAWS = 200_000
# Number of requests behind an average.
_REQUESTS = 20_000
# Largest number of histories of an exact optimum.
_MOST_HISTORIES = 1 << 21
# Largest number of passes over the thresholds of a list; they end when none increases the utility.
_SWEEPS = 20


def _average(env: CascadeEnv, function: Callable) -> Array:
    """Returns the mean of `function(features)`, an array, over the features `[m]` of 20,000 random requests of `env`, or of all its recorded ones."""
    key = draws.key(0)
    if isinstance(env.contexts, RecordedContexts):
        return jnp.mean(jax.vmap(function)(jnp.asarray(env.contexts.table, jnp.float32)), axis=0)

    def value(number: Array) -> Array:
        k_start, k_context = draws.split(draws.fold_in(key, number))
        return function(env.contexts.draw(k_context, env.contexts.init(k_start), number))

    return jnp.mean(jax.vmap(value)(jnp.arange(_REQUESTS)), axis=0)


# Compiled as a whole: otherwise every operation would be a separate program.
@quick_jit
def _single_values(env: CascadeEnv) -> Array:
    return _average(env, env.single_value)


@quick_jit
def _cost_order(env: CascadeEnv) -> Array:
    cost = jnp.round(_average(env, lambda psi: env.boxes.mean_cost(psi, env.base_index(psi))), 6)
    return jnp.argsort(jnp.argsort(cost, stable=True), stable=True).astype(jnp.float32)


def single_values(env: CascadeEnv) -> Array:
    """Returns each model's mean utility `[K]` (score minus weighted cost) if called alone, over 20,000 requests of `env` or all recorded ones."""
    return _single_values(checks.instance("env", env, CascadeEnv))


def cost_order(env: CascadeEnv) -> Array:
    """Returns the places `[K]` of the models of `env` in the order of mean costs, 0 for the cheapest. Costs equal to six decimals go by index."""
    return _cost_order(checks.instance("env", env, CascadeEnv))


def oracle_value(env: CascadeEnv, psi: Leaf, points: int = 4000) -> float:
    """Integrates `U*(x) = E max_a min(M_a, index_a)`, eq. (3), the largest expected utility of a request `psi` `[m]`.

    Box (model) `a` has the random score `M_a` and the reservation index `index_a`. The integral uses `points` points between neighbouring indices.
    """
    boxes: Any = checks.instance("env", env, CascadeEnv).boxes
    if not hasattr(boxes, "above"):
        raise ValueError("oracle_value needs a distribution of scores, got recorded ones")
    checks.count("points", points)
    psi = jnp.asarray(checks.numbers("psi", psi, (env.spec.context_dim,)), jnp.float32)
    base, index = env.base_index(psi), np.asarray(env.true_index(psi), np.float64)
    edges = np.unique(np.concatenate([[min(-1.0, index.min())], index]))
    total = edges[-1]
    # The distribution of min(M, index) jumps at indices; other jumps cost accuracy.
    for low, high in itertools.pairwise(edges):
        levels = low + (high - low) * (np.arange(points) + 0.5) / points
        above = jax.vmap(lambda level: boxes.above(psi, base, level))(jnp.asarray(levels, jnp.float32))
        below = np.where(levels[:, None] >= index, 1.0, 1.0 - np.asarray(above, np.float64))
        total -= (high - low) * float(below.prod(axis=1).mean())
    return float(total)


def tuned_threshold(env: CascadeEnv, number: int = _DRAWS, seed: int = 0) -> tuple[float, float]:
    """Returns the best threshold of the cascade from the cheapest to the most expensive model of `env`, and its mean utility, on simulated periods.

    The threshold applies to the scores that a policy sees. Where true scores are not seen, an evaluator with the true coefficients estimates them,
    as if trained beforehand. The `number` periods are drawn with `seed`, independently of every run.
    """
    env, number = checks.instance("env", env, CascadeEnv), checks.count("number", number)
    key = draws.key(checks.count("seed", seed, minimum=0))
    theta = None if env.evaluator is None else jnp.asarray(env.evaluator.theta)

    def outputs(period: Array) -> tuple[Array, Array, Array]:
        k_period = draws.fold_in(key, period)
        drawn = env.draw(k_period, env.init(draws.fold_in(k_period, 0)), jnp.int32(period))
        if theta is None or drawn.features is None:
            return drawn.score, drawn.score, drawn.cost
        return env.spec.score_link.value(drawn.features @ theta), drawn.score, drawn.cost

    drawn = quick_jit(lambda periods: jax.lax.map(outputs, periods, batch_size=4096))(jnp.arange(number))
    seen, score, cost = (np.asarray(x, np.float64) for x in drawn)
    return best_threshold(score, cost, seen, np.argsort(cost_order(env), kind="stable"))


def best_threshold(
    scores: Leaf, costs: Leaf, seen: Leaf | None = None, order: Sequence[int] | np.ndarray | None = None
) -> tuple[float, float]:
    """Returns the single threshold with which a cascade of all models earns most on given rows, and its mean utility.

    Thresholds from .01 to .99 in steps of .01 are tried; ties go to the smallest.

    Args:
      scores, costs, seen: `[N, K]` scores, costs in units of utility, and scores that are compared with the threshold, None for `scores`.
      order: indices of the models in the order of their calls, None for the cheapest first.
    """
    score, cost, seen = _rows(scores, costs, seen)
    chosen = np.argsort(cost.mean(axis=0), kind="stable") if order is None else np.asarray(order)
    best, stop = _stages(chosen, score, cost, seen)
    rows = np.arange(len(best))  # The search stops at the first call with a score of at least the threshold, or the last.
    values = [float(stop[rows, (best[:, :-1] < threshold).sum(axis=1)].mean()) for threshold in _THRESHOLDS]
    place = int(np.argmax(values))
    return float(_THRESHOLDS[place]), values[place]


class BestList(NamedTuple):
    """List of models to call one after another, the result of `best_list`.

    Attributes:
      models: `[L]` int, a subset of all models in the order of the calls.
      thresholds: `[L]` threshold of each call, which is made only if the best score so far is below it; the first call is always made.
      utility: mean score less cost on the rows for which the list was made.
    """

    models: np.ndarray
    thresholds: np.ndarray
    utility: float


def best_list(scores: Leaf, costs: Leaf, seen: Leaf | None = None) -> BestList:
    """Returns a list of models, their order and a threshold for each, that a local search finds to have the largest mean utility on given rows.

    The search starts from the best single model and from all models in the order of their costs. It inserts, removes, exchanges or moves a model as
    long as that increases the utility, and sets one threshold after the other to its best value, given the others, until none increases it. The list
    is at least as good as the best single model and as one threshold for all models, but not always the best of all lists. Source: FrugalGPT (Chen,
    Zaharia and Zou, 2023), the cascade: a list, and thresholds on the scores of a scorer.

    Differs from the paper: utility instead of a budget; lists of any length, where theirs have three models; every step considers all models, where
    theirs are pruned beforehand.

    Args:
      scores, costs: `[N, K]` score of each model's output on each row, and its cost in units of utility.
      seen: `[N, K]` scores by which the cascade decides when to stop, for example estimates; None for `scores`.
    """
    score, cost, seen = _rows(scores, costs, seen)
    number = score.shape[1]

    def tuned(models: Sequence[int]) -> BestList:
        chosen = np.asarray(models)
        return BestList(chosen, *_best_thresholds(*_stages(chosen, score, cost, seen)))

    def improved(current: BestList) -> BestList:
        tried = {tuple(current.models.tolist())}
        while True:
            better = current
            for models in _neighbours(current.models.tolist(), number):
                if models not in tried:
                    tried.add(models)
                    better = max(better, tuned(models), key=lambda one: one.utility)
            if better is current:
                return current
            current = better

    starts = [[int((score - cost).mean(axis=0).argmax())], np.argsort(cost.mean(axis=0), kind="stable").tolist()]
    return max((improved(tuned(models)) for models in starts), key=lambda one: one.utility)


def _neighbours(models: list[int], number: int) -> list[tuple[int, ...]]:
    """Returns all nonempty lists that result if one model (an index below `number`) is inserted into `models`, removed, exchanged or moved."""
    others, places = [a for a in range(number) if a not in models], range(len(models))
    shorter = [models[:i] + models[i + 1 :] for i in places]
    lists = [[*models[:i], a, *models[i:]] for i in (*places, len(models)) for a in others]
    lists += [[*models[:i], a, *models[i + 1 :]] for i in places for a in others]
    lists += [[*one[:j], models[i], *one[j:]] for i, one in enumerate(shorter) for j in range(len(models))]
    return [tuple(one) for one in (*lists, *shorter) if one]


def _rows(scores: Leaf, costs: Leaf, seen: Leaf | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    score = checks.numbers("scores", scores, ("N", "K"))
    cost = checks.non_negative("costs", costs, score.shape)
    return score, cost, score if seen is None else checks.numbers("seen", seen, score.shape)


def _stages(models: np.ndarray, score: np.ndarray, cost: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns two arrays `[N, L]` for `N` rows and the calls of `models` `[L]`: the best score seen so far, and the utility of stopping then.

    `seen` `[N, K]` are the scores that the policy sees. Stopping deploys the output with the largest of them (ties: the lowest model index). The
    utility is its true `score` minus the `cost` of all calls so far.
    """
    best, stop = np.empty((2, len(score), len(models)))
    top, earned, holder = np.full(len(score), -np.inf), np.zeros(len(score)), np.full(len(score), score.shape[1])
    for place, a in enumerate(models):
        better = (seen[:, a] > top) | ((seen[:, a] == top) & (a < holder))
        top, earned, holder = (
            np.where(better, new, old) for new, old in ((seen[:, a], top), (score[:, a], earned), (a, holder))
        )
        best[:, place], stop[:, place] = top, earned
    return best, stop - np.cumsum(cost[:, models], axis=1)


def _best_thresholds(best: np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, float]:
    """Returns the thresholds `[L]` of `L` calls, each best given the others, and the mean utility; `best` and `stop` are the results of `_stages`."""
    length = best.shape[1]
    thresholds, utility = np.full(length, np.inf), -np.inf
    for _ in range(_SWEEPS):
        value = stop[:, -1]
        for place in range(length - 1, 0, -1):
            reached = (best[:, : place - 1] < thresholds[1:place]).all(axis=1)
            level, inverse = np.unique(best[reached, place - 1], return_inverse=True)
            gain = np.cumsum(np.bincount(inverse, (value - stop[:, place - 1])[reached], len(level)))
            cut = int(np.argmax(np.append(0.0, gain)))  # Number of the levels below the threshold.
            edges = np.concatenate([[-np.inf], 0.5 * (level[1:] + level[:-1]), [np.inf]]) if len(level) else np.zeros(1)
            thresholds[place] = edges[cut]
            value = np.where(best[:, place - 1] < thresholds[place], value, stop[:, place - 1])
        before, utility = utility, float(value.mean())
        if not utility > before:
            break
    return thresholds, utility


class TooManyHistoriesError(ValueError):
    """Error of `joint_plan` if recorded queries have more possible histories of calls and outputs than its table can store."""


class JointPlan(NamedTuple):
    """Best policy on recorded queries (rows) that all models answer, as a table of actions after each history of calls and outputs.

    A signal is what the output of a called model shows. A history (the group and the signals so far) is coded as an integer: `start[g]` of its group
    `g`, plus `strides[a] * (1 + j)` for each called model `a` that showed `signals[a, j]`.

    Attributes:
      value: mean utility of the policy on these rows.
      signals: `[K, V, d]` outputs that each model may show: up to `V` different scores (`d` is 1), or features if scores are not seen; NaN beyond the
        last.
      strides: `[K]` int32, factors of the models in the code of a history.
      start: `[G]` int32, code of the history before the first call, for each of `G` groups of queries.
      action: `[H]` int32, action after each of `H` histories: a number `a` below `K` calls the model `a`, `K + a` stops and deploys its output.
    """

    value: float
    signals: np.ndarray
    strides: np.ndarray
    start: np.ndarray
    action: np.ndarray


def joint_plan(env: CascadeEnv) -> JointPlan:
    """Computes the best policy on recorded rows that all models share, by dynamic programming over histories of calls and outputs.

    Rows that agree in their group and in all signals so far are indistinguishable. Let `S` be the called models and `h` the signals so far. The
    value of these rows is that of the best action: stop with the output of the largest mean score, or pay for the best next call:

        V(S, h) = max( max_(a in S) E[score_a | h],  max_(a not in S) E[-cost_a + V(S + a, h and the signal of a) | h] ).

    The signal of an output is its score or, where scores are not seen, its features; a cost counts, but is no signal. The plan is evaluated on its
    own rows: the value is an in-sample bound, and too optimistic if signals hardly repeat, since one signal then tells which row was drawn.

    Raises:
      ValueError: the environment has no rows that all models share, or (`TooManyHistoriesError`) more than two million histories.
    """
    boxes: Any = checks.instance("env", env, CascadeEnv).boxes
    if not isinstance(boxes, RecordedBoxes) or not boxes.joint:
        raise ValueError("joint_plan needs recorded rows that all models share: replay_cascade(..., joint=True)")
    score = np.asarray(boxes.score, np.float32)
    cost = np.asarray(boxes.cost, np.float64) * float(env.cost_weight)
    groups = np.repeat(np.arange(len(boxes.count)), boxes.count)
    evaluator: Any = env.evaluator
    shown = score[:, :, None] if evaluator is None else np.asarray(evaluator.table, np.float32)
    pairs = [np.unique(shown[:, a], axis=0, return_inverse=True) for a in range(score.shape[1])]
    seen = np.stack([inverse.reshape(-1) for _, inverse in pairs], axis=1)
    sizes = np.array([1 + len(levels) for levels, _ in pairs])
    histories = len(boxes.count) * float(np.prod(sizes, dtype=float))
    if histories > _MOST_HISTORIES:
        allowed = f"at most {_MOST_HISTORIES:,} histories (fewer models, or scores with fewer values)"
        raise TooManyHistoriesError(f"env must have {allowed} for an exact optimum, got {histories:,.0f}")
    signals = np.full((len(pairs), sizes.max() - 1, shown.shape[2]), np.nan, np.float32)
    for a, (levels, _) in enumerate(pairs):
        signals[a, : len(levels)] = levels
    strides = np.concatenate([np.cumprod(sizes[::-1])[-2::-1], [1]])
    start = np.arange(len(boxes.count)) * int(np.prod(sizes))
    score, number = np.asarray(score, np.float64), len(pairs)
    action = np.full(int(histories), number, np.int32)
    # By the set of the called models, as bits: the value `[N]` of the history of each row.
    values: dict[int, np.ndarray] = {}
    for called in range((1 << number) - 1, -1, -1):
        inside = [a for a in range(number) if called >> a & 1]
        history = start[groups] + ((seen[:, inside] + 1) @ strides[inside] if inside else 0)
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
    value = float(values[0].mean())
    return JointPlan(value, signals, strides.astype(np.int32), start.astype(np.int32), action)
