"""What the best set and the best relaxed selection earn when all means are known; on the host, in float64."""

import itertools
from typing import Any

import numpy as np
from scipy.optimize import linprog

from jaxroute.solvers.selection import subsets

# Vertices of the any-win programme that are compared at most.
_MOST_CELLS = 60_000_000


def best_set(reward: Any, mean, cost, budget: float, size: int, allowed=None) -> tuple[np.ndarray, float]:
    """The best set within the budget, and its reward.

    The set has exactly `size` models, or at most that many if the reward allows it; if no set is within the budget, it is the
    cheapest. With fewer than `size` allowed models all of them count as the only set of exact size.

    Source: C2MAB-V, section 3, the optimal action; that it must respect the budget is our reading (otherwise regret is linear).

    Args:
      reward: `AnyWin`, `SumUp` or `AllIn`. mean, cost: `[K]`. allowed: `[K]` bool (default all).

    Returns:
      Mask `[K]` bool and its reward.
    """
    mean, cost = np.asarray(mean, np.float64), np.asarray(cost, np.float64)
    usable = np.flatnonzero(np.ones(mean.shape, bool) if allowed is None else allowed)
    size = min(int(size), len(usable))
    sets = subsets(len(usable), size, size if reward.exact_size else 0)
    weight = reward.weight(np.clip(mean, 1e-12, 1.0 - 1e-12), np)[usable]
    spend = sets @ cost[usable]
    fits = spend <= budget + 1e-9
    chosen = np.zeros(mean.shape, bool)
    if fits.any():
        chosen[usable[sets[np.argmax(np.where(fits, sets @ weight, -np.inf))]]] = True
    else:  # Equal costs: the better models.
        chosen[usable[np.lexsort((-weight, cost[usable]))[:size]]] = True
    return chosen, float(reward.value(chosen, mean, np))


def best_relaxed(reward: Any, mean, cost, budget: float, size: int, allowed=None) -> tuple[np.ndarray, float]:
    """The best relaxed selection `[K]`, and its relaxed reward: by HiGHS, or over all vertices for any win.

    Arguments as in `best_set`. Source: C2MAB-V, eqs. (3) to (5) with the true means.
    """
    mean, cost = np.asarray(mean, np.float64), np.asarray(cost, np.float64)
    usable = np.flatnonzero(np.ones(mean.shape, bool) if allowed is None else allowed)
    size = min(int(size), len(usable))
    z = np.zeros(mean.shape)
    if not size:
        return z, float(reward.relaxed(z, mean, np))
    if not reward.exact_size:
        z[usable] = _any_win_vertex(mean[usable], cost[usable], budget, size)
        return z, float(reward.relaxed(z, mean, np))
    weight = reward.weight(np.clip(mean, 1e-12, 1.0 - 1e-12), np)[usable]
    found = linprog(
        -weight,
        A_ub=cost[usable][None],
        b_ub=[budget],
        A_eq=np.ones((1, len(usable))),
        b_eq=[size],
        bounds=(0, 1),
        method="highs",
    )
    if found.status == 0:
        z[usable] = np.clip(found.x, 0.0, 1.0)
    else:
        z[usable[np.lexsort((-weight, cost[usable]))[:size]]] = 1.0
    return z, float(reward.relaxed(z, mean, np))


def _any_win_vertex(w, cost, budget: float, size: int) -> np.ndarray:
    """The best vertex for any win: a set, and two fractions (one may be slack) that use up the budget."""
    count = len(w)
    sets = subsets(count, size - 1)
    pairs = np.asarray(list(itertools.combinations(range(count + 1), 2)))
    if len(sets) * len(pairs) > _MOST_CELLS:
        raise ValueError(
            f"size and the number of models must give at most {_MOST_CELLS:,} vertices of the any-win programme, "
            f"got {len(sets) * len(pairs):,} for {count} models and sets of {size}"
        )
    sets = sets[sets @ cost <= budget + 1e-12]
    spend, loss = sets @ cost, np.exp(sets @ np.log1p(-np.minimum(w, 1 - 1e-15)))
    wide_w, wide_cost = np.append(w, 0.0), np.append(cost, 0.0)
    best, answer = np.inf, np.zeros(count)
    for i, j in pairs:
        apart = ~sets[:, i] & (True if j == count else ~sets[:, j])
        gap = wide_cost[i] - wide_cost[j]
        part = (budget - wide_cost[j] - spend) / (gap if gap else 1e-30)
        part = np.minimum(part, 1.0) if j == count else part
        value = loss * (1.0 - wide_w[i] * part) * (1.0 - wide_w[j] * (1.0 - part))
        value = np.where(apart & (part >= 0.0) & (part <= 1.0), value, np.inf)
        row = int(np.argmin(value)) if len(value) else 0
        if len(value) and value[row] < best - 1e-15:
            best = value[row]
            answer = np.append(sets[row].astype(float), 0.0)
            answer[i], answer[j] = part[row], 1.0 - part[row]
            answer = answer[:count]
    return answer


def best_by_availability(find, num_models: int) -> np.ndarray:
    """`find(allowed)` for every set of available models: `[2 ** K]`, indexed by `sum over available k of 2 ** k`."""
    masks = (np.arange(2**num_models)[:, None] >> np.arange(num_models)) & 1
    return np.asarray([find(mask.astype(bool)) for mask in masks])
