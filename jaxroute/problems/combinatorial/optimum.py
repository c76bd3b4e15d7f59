"""Computes the best set and the best relaxed selection (a fraction of each model in [0, 1]) for known means; in float64 on the host."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from jaxroute.core import numerics
from jaxroute.core.types import Leaf
from jaxroute.problems.combinatorial.types import Reward
from jaxroute.solvers.selection import num_vertices, subsets

# Relative tolerance of budgets, because costs and budgets are rounded to float32.
_ROUNDING = 1.0 + 1e-6
# Largest number of sets, and of vertices of the any-win problem, that are enumerated; HiGHS is faster for more.
_MOST_SETS, _MOST_CELLS = 200_000, 2_000_000
# Largest number of mixed-integer programs for one any-win problem; random problems of 40 models took 5, at most 26.
_MOST_ROUNDS = 200
# HiGHS stops at an absolute gap of 1e-6 of its objective.
_SCALE = 1e4


def _limits(usable: np.ndarray, size: Any, groups: Sequence[int] | None) -> tuple[np.ndarray, np.ndarray]:
    """Returns the masks `[M, U]` of `M` groups among the `U` models `usable`, and how many to select from each group: `size`, or all if fewer."""
    kinds = np.ones((1, len(usable)), bool) if groups is None else numerics.members(groups)[:, usable]
    return kinds, np.minimum(np.atleast_1d(np.asarray(size, int)), kinds.sum(1))


def _cheapest(weight: np.ndarray, cost: np.ndarray, kinds: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Returns the mask `[U]` of the cheapest set: `sizes[g]` models of least `cost` from group `g` (mask `kinds[g]`). Ties go to more `weight`."""
    chosen = np.zeros(len(cost), bool)
    for kind, size in zip(kinds, sizes, strict=True):
        inside = np.flatnonzero(kind)
        chosen[inside[np.lexsort((-weight[inside], cost[inside]))[:size]]] = True
    return chosen


def best_set(
    reward: Reward, mean: Leaf, cost: Leaf, budget: Any, size: Any, allowed: Leaf = None, groups: Sequence[int] | None = None
) -> tuple[np.ndarray, float]:
    """Returns the best set within the budget as a mask `[K]`, and its reward.

    The set has exactly `size` models, or at most that many if the reward allows it. If no set is within the budget, the cheapest set is returned. If
    fewer than `size` models are allowed, a set of exact size has all of them.

    Source: C2MAB-V, section 3, the optimal action; the budget constraint is our interpretation: without it every policy
    that meets the budget has regret linear in the horizon.

    Args:
      reward: `AnyWin`, `SumUp` or `AllIn`.
      mean, cost: `[K]` success probabilities and mean costs.
      budget: budget for all models, or one for each group.
      size: number of models `N`, or one for each group.
      allowed: `[K]` bool, models that may be selected (default: all).
      groups: index of each model's group, from 0 (default: one group).
    """
    mean, cost = np.asarray(mean, np.float64), np.asarray(cost, np.float64)
    usable = np.flatnonzero(np.ones(mean.shape, bool) if allowed is None else allowed)
    kinds, sizes = _limits(usable, size, groups)
    budgets = np.atleast_1d(budget)
    if len(budgets) > 1:  # One problem per group.
        chosen = np.zeros(mean.shape, bool)
        for kind, part_budget, limit in zip(kinds, budgets, sizes, strict=True):
            chosen |= best_set(reward, mean, cost, part_budget, limit, np.isin(np.arange(len(mean)), usable[kind]))[0]
        return chosen, float(reward.value(chosen, mean, np))
    weight = reward.weight(np.clip(mean, 1e-12, 1.0 - 1e-12), np)[usable]
    limits = (cost[usable], float(budgets[0]) * _ROUNDING, kinds, sizes, reward.exact_size)
    largest = int(sizes.sum())
    few = sum(math.comb(len(usable), m) for m in range(largest if reward.exact_size else 0, largest + 1)) <= _MOST_SETS
    found = (_compared if few else _searched)(weight, *limits)
    chosen = np.zeros(mean.shape, bool)
    chosen[usable] = _cheapest(weight, cost[usable], kinds, sizes) if found is None else found
    return chosen, float(reward.value(chosen, mean, np))


def _compared(
    weight: np.ndarray, cost: np.ndarray, budget: float, kinds: np.ndarray, sizes: np.ndarray, exact_size: bool
) -> np.ndarray | None:
    """Finds by enumeration the set of models with the largest total `weight` `[U]` within the budget. Returns its mask `[U]`, or None if no set fits.

    A set has at most (with `exact_size` exactly) `sizes[g]` models of group `g`, whose mask is `kinds[g]`; their total `cost` is at most `budget`.
    """
    sets = subsets(len(weight), int(sizes.sum()), int(sizes.sum()) if exact_size else 0)
    if len(kinds) > 1:
        numbers = sets.astype(int) @ kinds.T
        sets = sets[((numbers == sizes) if exact_size else (numbers <= sizes)).all(1)]
    fits = sets @ cost <= budget
    return sets[np.argmax(np.where(fits, sets @ weight, -np.inf))] if fits.any() else None


def _searched(
    weight: np.ndarray, cost: np.ndarray, budget: float, kinds: np.ndarray, sizes: np.ndarray, exact_size: bool
) -> np.ndarray | None:
    """Finds by a mixed-integer program the set of largest total `weight` `[U]` within the budget. Returns its mask `[U]`, or None if no set fits.

    The arguments are those of `_compared`, which enumerates the sets; this function is faster if there are many of them.
    """
    from scipy import optimize

    ones, limit = np.ones(len(weight)), cast(Any, sizes)
    rows = [
        optimize.LinearConstraint(cost, -np.inf, budget),
        optimize.LinearConstraint(kinds.astype(float), limit if exact_size else -np.inf, limit),
    ]
    found = optimize.milp(
        -_SCALE * weight, constraints=rows, integrality=ones, bounds=optimize.Bounds(0, 1), options={"mip_rel_gap": 0.0}
    )
    return None if found.x is None else found.x > 0.5


def best_relaxed(
    reward: Reward, mean: Leaf, cost: Leaf, budget: Any, size: Any, allowed: Leaf = None, groups: Sequence[int] | None = None
) -> tuple[np.ndarray, float]:
    """Returns the best relaxed selection, fractions `[K]` of models with success probabilities `mean` and costs `cost`, and its expected reward.

    Budget and size are numbers, or one for each group. `allowed` `[K]` bool marks models that may be selected, None all; `groups` has the index of
    each model's group, None for one group. Source: C2MAB-V, eqs. (3) to (5) with the true means.
    """
    from scipy import optimize

    mean, cost = np.asarray(mean, np.float64), np.asarray(cost, np.float64)
    usable = np.flatnonzero(np.ones(mean.shape, bool) if allowed is None else allowed)
    kinds, sizes = _limits(usable, size, groups)
    budgets = np.atleast_1d(budget)
    z = np.zeros(mean.shape)
    if not sizes.sum():
        return z, float(reward.relaxed(z, mean, np))
    if len(budgets) > 1:  # One problem per group.
        for kind, part_budget, limit in zip(kinds, budgets, sizes, strict=True):
            part = np.isin(np.arange(len(mean)), usable[kind])
            z += best_relaxed(reward, mean, cost, part_budget, limit, part)[0]
    elif not reward.exact_size:
        z[usable] = _any_win_vertex(mean[usable], cost[usable], float(budgets[0]), sizes, kinds)
    else:
        weight = reward.weight(np.clip(mean, 1e-12, 1.0 - 1e-12), np)[usable]
        limits = {"A_ub": cost[usable][None], "b_ub": budgets, "A_eq": kinds.astype(float), "b_eq": sizes}
        found = optimize.linprog(-weight, **limits, bounds=(0, 1), method="highs")
        z[usable] = np.clip(found.x, 0, 1) if found.status == 0 else _cheapest(weight, cost[usable], kinds, sizes)
    return z, float(reward.relaxed(z, mean, np))


def _any_win_vertex(w: np.ndarray, cost: np.ndarray, budget: float, sizes: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """Returns the best relaxed selection for `AnyWin`, fractions `[U]` of models with success probabilities `w` and costs `cost` `[U]`, in float64.

    At most two fractions, of models of the same group, are not 0 or 1; they use up the budget. The fractions of group `g` (mask `kinds[g]`) sum to
    at most `sizes[g]`. The solver `exact_any_win` computes the same in JAX.
    """
    count = len(w)
    if num_vertices(count, int(sizes.sum())) > _MOST_CELLS:
        return _any_win_by_chords(w, cost, budget, sizes, kinds)
    sets = subsets(count, int(sizes.sum()) - 1)
    label = np.append(np.argmax(kinds, axis=0), -1)
    pairs = [(i, j) for i, j in itertools.combinations(range(count + 1), 2) if j == count or label[i] == label[j]]
    free = sizes - sets.astype(int) @ kinds.T
    keep = (sets @ cost <= budget * _ROUNDING) & (free >= 0).all(1)
    sets, free = sets[keep], free[keep]
    spend, loss = sets @ cost, np.exp(sets @ np.log1p(-np.minimum(w, 1 - 1e-15)))
    wide_w, wide_cost = np.append(w, 0.0), np.append(cost, 0.0)
    best, answer = np.inf, np.zeros(count)
    for i, j in pairs:
        eligible = ~sets[:, i] & (True if j == count else ~sets[:, j]) & (free[:, label[i]] >= 1)
        gap = wide_cost[i] - wide_cost[j]
        part = (budget - wide_cost[j] - spend) / (gap if gap else 1e-30)
        part = np.clip(part, 0.0, 1.0) if j == count else part
        value = loss * (1.0 - wide_w[i] * part) * (1.0 - wide_w[j] * (1.0 - part))
        value = np.where(eligible & (part >= 0.0) & (part <= 1.0), value, np.inf)
        row = int(np.argmin(value))
        if value[row] < best - 1e-15:
            best = value[row]
            answer = np.append(sets[row].astype(float), 0.0)
            answer[i], answer[j] = part[row], 1.0 - part[row]
            answer = answer[:count]
    return answer


def _any_win_by_chords(w: np.ndarray, cost: np.ndarray, budget: float, sizes: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """Returns the same as `_any_win_vertex` for many models, by mixed-integer programs instead of enumeration.

    For the fraction `z` of a model with success probability `w`, the objective `-log(1 - w z)` is convex, thus below its chords between chosen
    points, at first 0 and 1. Each program maximises the sum of the chords. Its solution gives new points, until chords and objective agree.
    """
    count = len(w)
    w = np.minimum(w, 1 - 1e-15)
    points = [np.array([0.0, 1.0]) for _ in range(count)]
    best, answer = -np.inf, np.zeros(count)
    for _ in range(_MOST_ROUNDS):
        found, bound = _best_of_chords(w, cost, budget, sizes, kinds, points)
        z = _vertex_near(found, cost, budget, kinds)
        value = -np.log1p(-w * z).sum()
        if value > best:
            best, answer = value, z
        if bound <= best + 1e-9 * max(1.0, best):
            break
        for k in np.flatnonzero((found > 1e-9) & (found < 1.0 - 1e-9)):
            for point in (found[k], z[k]):
                if np.abs(points[k] - point).min() > 1e-9:
                    points[k] = np.sort(np.append(points[k], point))
    return answer


def _best_of_chords(
    w: np.ndarray, cost: np.ndarray, budget: float, sizes: np.ndarray, kinds: np.ndarray, points: list[np.ndarray]
) -> tuple[np.ndarray, float]:
    """Returns the fractions `z` `[U]` that maximise the sum over models of the chords of `-log(1 - w z)`, and this sum.

    `points` has for each model the ascending fractions where its chords begin and end. The total cost is at most `budget`, and the fractions of
    group `g` (mask `kinds[g]`) sum to at most `sizes[g]`.
    """
    from scipy import optimize

    model = np.repeat(np.arange(len(w)), [len(p) - 1 for p in points])
    start, end = (np.concatenate([p[part] for p in points]) for part in (slice(-1), slice(1, None)))
    length, num = end - start, len(model)
    gain = np.log1p(-w[model] * start) - np.log1p(-w[model] * end)
    earlier = np.flatnonzero(model[1:] == model[:-1])
    switch = num + np.arange(len(earlier))
    # Variables: the share of each interval that is below `z`, and binary ones that make it 0 unless the preceding interval is full.
    rows = np.zeros((2 * len(earlier) + 1 + len(kinds), num + len(earlier)))
    place = np.arange(len(earlier))
    rows[place, earlier + 1], rows[place, switch] = 1.0, -1.0
    rows[len(earlier) + place, switch], rows[len(earlier) + place, earlier] = 1.0, -1.0
    rows[2 * len(earlier), :num] = cost[model] * length
    rows[2 * len(earlier) + 1 :, :num] = kinds[:, model] * length
    most: Any = np.concatenate([np.zeros(2 * len(earlier)), [budget], sizes])
    found = optimize.milp(
        -_SCALE * np.append(gain, np.zeros(len(earlier))),
        constraints=optimize.LinearConstraint(rows, -np.inf, most),
        integrality=np.append(np.zeros(num), np.ones(len(earlier))),
        bounds=optimize.Bounds(0, 1),
        options={"mip_rel_gap": 0.0},
    )
    return np.clip(np.bincount(model, found.x[:num] * length, len(w)), 0.0, 1.0), -found.fun / _SCALE


def _vertex_near(z: np.ndarray, cost: np.ndarray, budget: float, kinds: np.ndarray) -> np.ndarray:
    """Returns the fractions `z` `[U]` of a solver without its rounding errors.

    Fractions within 1e-6 of 0 or 1 become 0 or 1. If one other fraction remains, or two with sum 1 in one group (a row of `kinds` `[G, U]`), these
    are set so that the total `cost` is `budget`.
    """
    z = np.where(z > 1.0 - 1e-6, 1.0, np.where(z < 1e-6, 0.0, z))
    free = np.flatnonzero((z > 0.0) & (z < 1.0))
    left = budget - cost[z == 1.0].sum()
    if len(free) == 1 and cost[free[0]] > 0.0:
        z[free] = min(left / cost[free[0]], 1.0)
    elif len(free) == 2 and (kinds[:, free[0]] == kinds[:, free[1]]).all() and abs(z[free].sum() - 1.0) < 1e-6:
        first, second = cost[free]
        part = (left - second) / (first - second) if first != second else z[free[0]]
        z[free] = np.clip([part, 1.0 - part], 0.0, 1.0)
    return z
