"""Relaxed selection of a set of models under a budget: by a linear program, or by the probability of any win (that any model succeeds)."""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxroute.core import numerics, xla
from jaxroute.solvers import boundary
from jaxroute.solvers.boundary import Number
from jaxroute.solvers.branching import MOST_NODES, branching_any_win
from jaxroute.solvers.budgeted_fill import budgeted_fill, default_steps

# Largest number of sets that are compared at once, and in total.
_BLOCK = 4096
_MOST_SETS = 5_000_000
# Dual steps of the linear programs inside continuous greedy; exact on 8,000 instances of 9 and 16 models.
_GREEDY_STEPS = 6
# Number of vertices from which on branch and bound is faster: with 256 runs, 16 models and a size of 6 (.9 million vertices) it takes .16 ms
# a run instead of .52; 14 models and a size of 5 (.15 million) .08 instead of .06.
_MOST_VERTICES = 250_000
# Stands for the probability that all fail if a choice is not allowed; finite, so that derivatives are finite too.
_BARRED = 1e20

Groups = Sequence[int] | None


class Selection(NamedTuple):
    """Relaxed selection of models, the result of the solvers of this module.

    Only branch and bound can stop early. The other solvers of this module compare all candidates, or take a fixed number of steps; their docstrings
    state how good an approximation is.

    Attributes:
      z: `[K]` selection in [0, 1].
      multiplier: `[]` shadow price of the budget: gain of the solver's objective per unit of the budget.
      feasible: `[]` bool, whether the constraints admit a point and all numbers are finite; otherwise `z` selects the cheapest models.
      residual: `[]` bound by which a selection that branch and bound did not visit may improve the objective; 0 for other solvers.
      converged: `[]` bool, whether the search is complete; True for other solvers, except where they say otherwise.
      nodes: `[]` int32 number of visited nodes of branch and bound, 0 for other solvers.
    """

    z: Array
    multiplier: Array
    feasible: Array
    residual: Number = 0.0
    converged: Array | bool = True
    nodes: Array | int = 0


def linear_selection(
    weight: Array,
    cost: Array,
    budget: Number,
    size: Number,
    *,
    allowed: Array | None = None,
    groups: Groups = None,
    exact_size: bool = True,
    steps: int | None = None,
) -> Selection:
    """Maximises `weight . z` over `{0 <= z <= allowed, sum z = size (or <=), cost . z <= budget}`, exactly.

    It is a `budgeted_fill` with a capacity of one per model. A sum below `size` is filled up by an additional item without value and cost.

    Source: C2MAB-V, eqs. (4) and (5) and the inner step of (3).

    Args:
      weight: `[K]` weights of any sign.
      cost: `[K]` costs, non-negative.
      budget: `[]` budget.
      size: `[]` required sum; with groups `[M]`, the required sum of each group.
      allowed: `[K]` bool (default: all). If fewer than `size` models are allowed and the size is exact, all are selected, flagged infeasible.
      groups: group of each model, from 0 (static): a partition matroid (default: one group).
      exact_size: whether the sum must be `size` (static); otherwise it may be smaller.
      steps: dual steps of `budgeted_fill` (static; default: by the number of models).
    """
    weight, cost, budget, size = boundary.inputs(allowed, groups, weight=weight, cost=cost, budget=budget, size=size)
    count, capacity, enough = weight.shape[0], boundary.bounds("allowed", allowed, weight), jnp.asarray(True)
    if exact_size:
        largest = group_sums(groups, capacity)
        enough, size = boundary.feasible(0.0, 0.0, largest, size, capacity), jnp.minimum(size, largest)
    else:  # One slack item per group.
        slack = jnp.atleast_1d(size)
        weight, cost = (jnp.concatenate([x, jnp.zeros_like(slack)]) for x in (weight, cost))
        capacity = jnp.concatenate([capacity, slack])
        groups = None if groups is None else (*groups, *range(slack.shape[0]))
    steps = default_steps(weight.shape[-1]) if steps is None else steps
    solution = budgeted_fill(weight, cost, capacity, budget, size, groups=groups, steps=steps)
    return Selection(solution.amount[:count], solution.multiplier, solution.feasible & enough)


def group_sums(groups: Groups, values: Array) -> Array:
    """Returns the sum of `values` `[..., K]` over the models; with `groups`, which has the group of each model, each group's sum `[..., M]`."""
    if groups is None:
        return jnp.sum(values, axis=-1)
    return jnp.sum(jnp.where(numerics.members(groups), values[..., None, :], 0.0), axis=-1)


@functools.lru_cache(maxsize=64)
def subsets(num_models: int, largest: int, smallest: int = 0) -> np.ndarray:
    """Returns all sets with `smallest` to `largest` of `num_models` (`K`) models as masks `[sets, K]`, by size, then by ascending lists of indices.

    Raises:
      ValueError: there are more than five million sets.
    """
    number = sum(math.comb(num_models, m) for m in range(smallest, largest + 1))
    if number > _MOST_SETS:
        raise ValueError(
            f"size and the number of models must give at most {_MOST_SETS:,} sets, got {number:,} sets of {smallest} to {largest} "
            f"of {num_models} models"
        )
    chosen = [c for m in range(smallest, largest + 1) for c in itertools.combinations(range(num_models), m)]
    members = np.zeros((len(chosen), num_models), bool)
    for row, c in enumerate(chosen):
        members[row, list(c)] = True
    members.setflags(write=False)
    return members


class _AnyWinSets(NamedTuple):
    """Sets of models that `exact_any_win` may select fully (`z = 1`); one model, or a pair of models of one group, may join a set in fractions.

    There are `K` models in `M` groups, each with its own largest size, and `P` such pairs.

    Attributes:
      members: `[sets, K]` bool, models of each set; larger sets come later (static).
      full: index of the first set that a pair may join. A pair counts as one model, so with it smaller sets have too few models (static).
      labels: `[K]` group of each model (static).
      pairs: `[P, 2]` indices of the models of each pair (static).
      left: `[sets]` rest of the budget once a set is selected.
      lose: `[M, sets]` probability that all models of the set fail; `_BARRED` (huge) where no model of the group may join it.
    """

    members: np.ndarray
    full: int
    labels: np.ndarray
    pairs: np.ndarray
    left: Array
    lose: Array


# Candidates that may join a set: numbers of each model (`w`, `1 / cost`, whether free) or of each pair (`w`, other `w`, other cost, `1 / gap`).
_Candidates = tuple[Array, ...]


def _any_win_sets(
    w: Array, cost: Array, budget: Number, size: Number, groups: Groups, sizes: tuple[int, int] | None
) -> tuple[_AnyWinSets, _Candidates, _Candidates | None]:
    """Returns sets that `exact_any_win` (same arguments) may select fully, models that may join a set, and pairs that may (None without pairs)."""
    count, dtype = w.shape[-1], w.dtype
    low, high = (1, count) if sizes is None or groups is not None else sizes
    high = high if sizes is None else sizes[1]
    sets = subsets(count, min(high, count) - 1)
    # Smaller sets do not reach the size, so at most one fraction joins them.
    full = int(np.argmax(sets.sum(1) >= min(low, count) - 1))
    labels = np.zeros(count, np.int32) if groups is None else np.asarray(groups, np.int32)
    both = [pair for pair in itertools.combinations(range(count), 2) if labels[pair[0]] == labels[pair[1]]]
    pairs = np.asarray(both, int).reshape(-1, 2)
    rows = jnp.asarray(sets, dtype)

    def over_sets(values: Array) -> Array:
        return jnp.dot(rows, values, precision=lax.Precision.HIGHEST)

    left, lose = budget - over_sets(cost), jnp.exp(over_sets(jnp.log1p(-w)))
    filled = np.stack([(sets & (labels == g)).sum(1) for g in range(labels.max() + 1)])  # [M, sets]
    places = jnp.atleast_1d(jnp.asarray(size, dtype))[:, None] - filled.astype(dtype)
    fits = (left >= 0.0) & jnp.all(places >= 0.0, axis=0)
    lose = jnp.where(fits & (places >= 1.0), lose, _BARRED)  # [M, sets]: the group is not full

    paid = cost > 0.0
    singles = (w, jnp.where(paid, 1.0 / jnp.where(paid, cost, 1.0), 0.0), 1.0 - paid.astype(dtype))
    doubles = None
    if len(pairs):
        first, second = pairs[:, 0], pairs[:, 1]
        gap = _rows(cost, first) - _rows(cost, second)
        inverse = 1.0 / jnp.where(gap == 0.0, np.finfo(dtype).tiny, gap)
        doubles = (_rows(w, first), _rows(w, second), _rows(cost, second), inverse)
    left, lose, singles, doubles = xla.barrier((left, lose, singles, doubles))
    return _AnyWinSets(sets, full, labels, pairs, left, lose), singles, doubles


def _rows(values: Array, places: np.ndarray | Array) -> Array:
    return jnp.asarray(values).at[places].get(mode="promise_in_bounds")


def _join_one(model: _Candidates, left: Array, lose: Array) -> tuple[Array, Array, Array]:
    """Adds `model` to a set that fails with probability `lose`, with the largest fraction that the remaining budget `left` allows; elementwise.

    Returns the probability that the set and the new model fail, the fraction, and the decrease of the probability's logarithm per unit of budget.
    """
    w, inverse, free = model
    part = jnp.minimum(left * inverse + free, 1.0)
    return lose * (1.0 - w * part), part, jnp.where(part < 1.0, w / (1.0 - w * part) * inverse, 0.0)


def _join_two(pair: _Candidates, left: Array, lose: Array) -> tuple[Array, Array, Array]:
    """Adds a `pair` of models to a set, in fractions that sum to one and use up the budget `left`; `lose` is the probability that the set fails.

    Returns the probability that all fail (huge if a fraction is not in [0, 1]), the first fraction, and the multiplier of the budget.
    """
    w, other_w, other_cost, inverse = pair
    part = (left - other_cost) * inverse
    loss = lose * (1.0 - w * part) * (1.0 - other_w * (1.0 - part))
    price = (w / (1.0 - w * part) - other_w / (1.0 - other_w * (1.0 - part))) * inverse
    return jnp.where(part * (1.0 - part) >= 0.0, loss, _BARRED), part, price


def _least_with_one(models: _Candidates, group: np.ndarray, joined: np.ndarray, left: Array, lose: Array) -> Array:
    """Returns for each set the smallest probability `[sets]` that all models fail if one of the `K` candidates `models` is added, perhaps in part.

    `group` `[K]` has the group of each candidate, and the mask `joined` `[sets, K]` the candidates that are already in a set. `left` `[sets]` is the
    budget left; `lose` `[M, sets]` is the probability that the set fails, repeated for each of `M` groups, and huge where the group is full.
    """

    def compare(best: Array, model: Any) -> tuple[Array, None]:
        values, group, barred = model
        loss, *_ = _join_one(values, left, lose[0] if lose.shape[0] == 1 else lose[group])
        return jnp.minimum(best, loss + barred), None

    best = jnp.full(left.shape, _BARRED, left.dtype)
    barred = np.where(joined.T, _BARRED, 0.0).astype(left.dtype)
    return lax.scan(compare, best, (models, group, barred))[0]


def _least_with_two(pairs: _Candidates, group: np.ndarray, joined: np.ndarray, left: Array, lose: Array) -> Array:
    """Returns for each set the smallest probability `[sets]` that all models fail if one of `P` candidate `pairs` is added, in parts that sum to one.

    The mask `joined` `[sets, P]` excludes pairs with a model in the set. `group` `[P]` has each pair's group, `left` `[sets]` the budget left, and
    `lose` `[M, sets]` the probability that the set fails, repeated for each of `M` groups, and huge where the group is full.
    """
    most = int((~joined).sum(1).max())
    if not most:
        return jnp.full(left.shape, _BARRED, left.dtype)
    # Indices of the pairs that may join each set. Short rows are padded with their first pair; sets without a pair are barred.
    free = np.argsort(joined, axis=1, kind="stable").astype(np.int32)[:, :most]
    fits = np.take_along_axis(~joined, free, axis=1)
    free = np.where(fits, free, free[:, :1])
    barred = np.where(fits[:, 0], 0.0, _BARRED).astype(left.dtype)

    def compare(_: None, one: Any) -> tuple[None, Array]:
        left, lose, free, group, barred = one
        lose = lose[0] if lose.shape[0] == 1 else _rows(lose, group)
        loss = _join_two(tuple(_rows(x, free) for x in pairs), left, lose)[0]
        # Without the barrier XLA fuses both operations to a loop that is not vectorised over runs and takes 20 times as long.
        return None, jnp.min(xla.barrier(loss)) + barred

    return lax.scan(compare, None, (left, lose.T, free, group[free], barred))[1]


def _best_join(
    table: _AnyWinSets, place: Array, singles: _Candidates, doubles: _Candidates | None, cost: Array
) -> tuple[Array, Array]:
    """Adds the best of the models `singles` and pairs `doubles` to set number `place` of `table`. Returns a selection `[K]` and its multiplier."""
    count, pairs = table.members.shape[1], table.pairs
    words = [table.members[:, first : first + 31] for first in range(0, count, 31)]  # As int32, 31 models each.
    bits = [jnp.asarray((word @ (1 << np.arange(word.shape[1]))).astype(np.int32)) for word in words]
    inside = jnp.concatenate(
        [(numerics.take(row, place) >> np.arange(word.shape[1])) & 1 == 1 for row, word in zip(bits, words, strict=True)]
    )
    here, here_lose = xla.barrier((numerics.take(table.left, place), numerics.take(table.lose, place)))  # [] and [M]
    loss, part, price = _join_one(singles, here, jnp.where(inside, _BARRED, numerics.of_group(table.labels, here_lose)))
    first = numerics.one_hot(numerics.argmin(loss), count)
    z = inside + jnp.where(first, numerics.pick(first, part), 0.0)
    price = numerics.pick(first, price)
    if doubles is None:
        return z, price
    group_lose = numerics.of_group(table.labels[pairs[:, 0]], here_lose)
    either_inside = _rows(inside, pairs[:, 0]) | _rows(inside, pairs[:, 1])
    pair_loss, part, pair_price = _join_two(doubles, here, jnp.where(either_inside, _BARRED, group_lose))
    second = numerics.one_hot(numerics.argmin(pair_loss), len(pairs))
    part = numerics.pick(second, part)
    i, j = (numerics.one_hot(numerics.pick(second, jnp.asarray(models, jnp.int32)), count) for models in pairs.T)
    # A small second fraction is computed separately: if the second model is expensive, rounding of the first one may exceed the budget.
    other = (numerics.pick(i, cost) - here) * numerics.pick(second, doubles[3])
    other = jnp.where(part > 0.5, jnp.maximum(other, 0.0), 1.0 - part)
    both = inside + jnp.where(i, part, 0.0) + jnp.where(j, other, 0.0)
    better = jnp.min(pair_loss) < jnp.min(loss)
    return jnp.where(better, both, z), jnp.where(better, numerics.pick(second, pair_price), price)


def num_vertices(num_models: int, largest: int) -> int:
    """Returns a bound of the number of vertices in `exact_any_win`: sets of fewer than `largest` of `num_models` models times (models + pairs)."""
    sets = sum(math.comb(num_models, m) for m in range(min(largest, num_models)))
    return sets * math.comb(num_models + 1, 2)


def exact_any_win(
    w: Array,
    cost: Array,
    budget: Number,
    size: Number,
    *,
    allowed: Array | None = None,
    groups: Groups = None,
    sizes: tuple[int, int] | None = None,
    most_nodes: Array | int = MOST_NODES,
) -> Selection:
    """Maximises `1 - prod(1 - w_k z_k)` over `{0 <= z <= allowed, sum z <= size, cost . z <= budget}`, exactly.

    The logarithm of the probability that all fail is concave in each `z_k`, so some vertex of the polytope is optimal: a set of models with `z = 1`,
    and either one fraction that exhausts the budget, or two fractions (of one group) that sum to one and exhaust it. All vertices are compared: for 9
    models and a size of 4, each of 130 sets with any of 9 models or 36 pairs. Ties go to smaller sets, then to lower indices.

    For more than 250,000 vertices the answer is that of `branching_any_win`: memory and compile time do not depend on their number, and ties go to
    any vertex.

    Source: C2MAB-V, eq. (3); the enumeration is ours.

    Args:
      w: `[K]` probabilities in [0, 1] that a model succeeds.
      cost: `[K]` costs, non-negative.
      budget: `[]` bound on the cost of `z`.
      allowed: `[K]` bool, models that may be selected (default: all).
      groups: group of each model, from 0 to `M - 1` (static; default: one group).
      size: `[]` integer; with groups `[M]`, the size of each group. `converged` is False if it is no integer, or its sum is outside `sizes`.
      sizes: smallest and largest value that `size`, summed over groups, may take; fewer vertices are compared (static; default: 0 and any).
      most_nodes: `[]` number of nodes after which branch and bound stops and returns its best selection so far.
    """
    w, cost, budget, size = boundary.inputs(allowed, groups, w=w, cost=cost, budget=budget, size=size)
    count = w.shape[0]
    if num_vertices(count, count if sizes is None else sizes[1]) > _MOST_VERTICES:
        found = branching_any_win(w, cost, budget, size, allowed=allowed, groups=groups, most_nodes=most_nodes)
        return Selection(found.x, found.multiplier, found.feasible, found.residual, found.converged, found.nodes)
    feasible = boundary.feasible(0.0, budget, jnp.inf, size, w, cost)
    total = jnp.sum(size)
    low, high = (0, count) if sizes is None else sizes
    covered = (total == 0.0) | (low <= total) & ((total <= high) | (high >= count)) & jnp.all(size == jnp.round(size))
    w = jnp.minimum(w, 1.0 - np.finfo(w.dtype).epsneg)
    table, singles, doubles = _any_win_sets(w, cost, budget, size, groups, sizes)
    sets, full, labels, pairs, left, lose = table
    best = _least_with_one(singles, labels, sets, left, lose)
    if doubles is not None:
        joined = sets[full:, pairs[:, 0]] | sets[full:, pairs[:, 1]]
        more = _least_with_two(doubles, labels[pairs[:, 0]], joined, left[full:], lose[:, full:])
        more = xla.compute_once(jnp.minimum(best[full:], more))
        best = xla.compute_once(lax.dynamic_update_slice(best, more, (full,)))
    # Evaluate the best set again, to find the models that join it.
    z, price = _best_join(table, numerics.argmin(best), singles, doubles, cost)
    # Drops a joining model that is not allowed, and everything if nothing is feasible or the size is 0.
    z = jnp.where(feasible & (total >= 1.0), z * boundary.bounds("allowed", allowed, z), 0.0)
    return Selection(z, price, feasible, converged=covered & feasible)


def best_subset(
    weight: Array,
    cost: Array,
    budget: Number,
    size: Number,
    *,
    allowed: Array | None = None,
    groups: Groups = None,
    exact_size: bool,
    sizes: tuple[int, int],
) -> Selection:
    """Maximises the sum of `weight` over all sets within the budget, by enumeration. Returns the cheapest set if none is within the budget.

    Source: C2MAB-V-Direct, eq. (48), with a bound on the size. Sets are compared in blocks to bound the memory.

    Args:
      weight: `[K]` weights of any sign.
      cost: `[K]` costs, non-negative.
      budget: `[]` bound on the cost of the set.
      allowed: `[K]` bool, models that may be selected (default: all).
      groups: group of each model, from 0 to `M - 1` (static; default: one group).
      size: `[]` integer; with groups `[M]`, the size of each group. If `exact_size` and fewer models are allowed, the result is all allowed models
        (if `sizes` includes their number), flagged infeasible.
      exact_size: whether sets have exactly `size` models (static); otherwise at most.
      sizes: smallest and largest number of models, in all groups together, of the sets that are compared (static).
    """
    weight, cost, budget, requested = boundary.inputs(allowed, groups, weight=weight, cost=cost, budget=budget, size=size)
    count = weight.shape[0]
    if count > 31:
        raise ValueError(f"sets of at most 31 models can be compared, got {count} models")
    sets = subsets(count, sizes[1], sizes[0])
    usable_models = boundary.bounds("allowed", allowed, weight)
    largest = group_sums(groups, usable_models)
    size = jnp.atleast_1d(jnp.minimum(requested, largest))
    limit = budget * (1.0 + boundary.rounding(weight.dtype))
    kinds = np.ones((1, count), bool) if groups is None else numerics.members(groups)
    columns = jnp.stack([weight, cost, 1.0 - usable_models, *kinds.astype(weight.dtype)], axis=1)
    block = min(_BLOCK, len(sets))
    codes = (sets @ (1 << np.arange(count))).astype(np.int32)
    codes = np.append(codes, np.full(-len(codes) % block, codes[0]))  # The padding repeats the first set.

    def compare(best: Any, codes: Array) -> tuple[Any, None]:
        members = ((codes[:, None] >> np.arange(count)) & 1).astype(weight.dtype)
        value, spend, barred, *numbers = jnp.moveaxis(jnp.dot(members, columns, precision=lax.Precision.HIGHEST), 1, 0)
        usable = barred == 0.0
        for group, number in enumerate(numbers):
            usable &= (number == size[group]) if exact_size else (number <= size[group])
        for position, score in enumerate((jnp.where(spend <= limit, value, -jnp.inf), -spend)):
            first = numerics.argmax(score, usable & jnp.isfinite(score))
            here = numerics.one_hot(first, len(codes))
            top = jnp.where(first < len(codes), numerics.pick(here, score), -jnp.inf)
            code = jnp.sum(jnp.where(here, codes, 0)).astype(jnp.int32)
            old_top, old_code = best[position]
            best[position] = (jnp.where(top > old_top, top, old_top), jnp.where(top > old_top, code, old_code))
        return best, None

    worst = (jnp.full((), -jnp.inf, weight.dtype), jnp.zeros((), jnp.int32))
    ((value, code), (_, cheapest)), _ = lax.scan(compare, [worst, worst], jnp.asarray(codes.reshape(-1, block)))
    found = value > -jnp.inf
    code = jnp.where(found, code, cheapest)
    z = ((code >> np.arange(count)) & 1).astype(weight.dtype)
    feasible = found & boundary.feasible(0.0, budget, largest if exact_size else jnp.inf, requested, weight, cost)
    return Selection(z, jnp.zeros((), weight.dtype), feasible)


def any_win_gradient(w: Array, z: Array) -> Array:
    """Returns the gradient `w_k / (1 - w_k z_k)`, `[K]`, of `-log prod(1 - w_k z_k)` in `z`. The gradient of `any_win` is proportional to it."""
    return w / jnp.maximum(1.0 - w * z, np.finfo(w.dtype).eps)


def any_win_weight(w: Array | np.ndarray, xp: Any = jnp) -> Any:
    """Returns `-log(1 - w)`, whose sum over a set grows with the probability of any win. `w` is clipped below 1; `xp` is numpy or jax.numpy."""
    return -xp.log1p(-xp.minimum(w, 1.0 - np.finfo(w.dtype).epsneg))


def any_win(w: Array | np.ndarray, z: Array | np.ndarray) -> Any:
    """Returns the relaxed probability `1 - prod(1 - w_k z_k)`, `[...]`, that any model of a selection succeeds; `w` and `z` are `[..., K]`."""
    return 1.0 - (1.0 - w * z).prod(axis=-1)


def continuous_greedy_any_win(
    w: Array,
    cost: Array,
    budget: Number,
    size: Number,
    *,
    allowed: Array | None = None,
    groups: Groups = None,
    steps: int = 10,
) -> Selection:
    """Selects models for any win (at least one succeeds) by continuous greedy: the average solution of `steps` linear programs.

    The weights of a program are the gradient at the sum of the earlier solutions, divided by `steps`. Many steps reach at least `1 - 1/e` of the
    optimum. Source: Calinescu, Chekuri, Pal and Vondrak (2011); C2MAB-V, section 4, "common greedy". `w` `[K]`: probabilities of success. The
    selection costs at most `budget` and has at most `size` of the models `allowed` (None: all), or at most `size` `[M]` of each group, if `groups`
    gives each model's group.
    """
    w, cost, budget, size = boundary.inputs(allowed, groups, w=w, cost=cost, budget=budget, size=size)
    dual_steps = min(_GREEDY_STEPS, default_steps(w.shape[0] + 1))

    def step(z: Array, _: None) -> tuple[Array, Array]:
        weight = any_win_gradient(w, z)
        found = linear_selection(
            weight, cost, budget, size, allowed=allowed, groups=groups, exact_size=False, steps=dual_steps
        )
        return z + found.z / steps, found.multiplier

    z, multipliers = lax.scan(step, jnp.zeros_like(w), None, length=steps)
    return Selection(jnp.clip(z, 0.0, 1.0), multipliers[-1], boundary.feasible(0.0, budget, jnp.inf, size, w, cost))


def log_any_win(
    w: Array, cost: Array, budget: Number, size: Number, *, allowed: Array | None = None, groups: Groups = None
) -> Selection:
    """Selects models for any win (at least one succeeds) by one linear program with weights `-log(1 - w)`; optimal if its solution is integral.

    No guarantee otherwise: with `w = (.999, .49)`, `cost = (1, .1)` and a budget of .1, the probability of any win is .0999; the optimum is .49. `w`
    `[K]` has the models' probabilities of success. The selection costs at most `budget` and has at most `size` of the models `allowed` (None: all),
    or at most `size` `[M]` of each group, if `groups` gives each model's group.
    """
    w, cost, budget, size = boundary.inputs(allowed, groups, w=w, cost=cost, budget=budget, size=size)
    found = linear_selection(any_win_weight(w), cost, budget, size, allowed=allowed, groups=groups, exact_size=False)
    return found._replace(feasible=found.feasible & boundary.finite(w))


def polish_any_win(
    start: Selection,
    w: Array,
    cost: Array,
    budget: Number,
    size: Number,
    *,
    allowed: Array | None = None,
    groups: Groups = None,
    steps: int = 2,
) -> Selection:
    """Improves the selection `start` for any win (at least one succeeds) by `steps` Frank-Wolfe steps.

    A step solves the linear program whose weights are the gradient, and moves to its solution unless any win is less probable there. `w` `[K]` has
    the models' probabilities of success. The selection costs at most `budget` and has at most `size` of the models `allowed` (None: all), or at most
    `size` `[M]` of each group, if `groups` gives each model's group.
    """
    w, cost, budget, size = boundary.inputs(allowed, groups, w=w, cost=cost, budget=budget, size=size)

    def step(found: Selection, _: None) -> tuple[Selection, None]:
        weight = any_win_gradient(w, found.z)
        new = linear_selection(weight, cost, budget, size, allowed=allowed, groups=groups, exact_size=False)
        better = any_win(w, new.z) >= any_win(w, found.z)
        return jax.tree.map(lambda n, o: jnp.where(better, n, o), new, found), None

    feasible = jnp.asarray(start.feasible) & boundary.feasible(0.0, budget, jnp.inf, size, w, cost)
    return lax.scan(step, start._replace(feasible=feasible), None, length=steps)[0]


def best_any_win(candidates: Sequence[Selection], w: Array) -> Selection:
    """Returns the first of `candidates` whose selection `z` has the largest probability that any model succeeds, `any_win(w, z)`."""
    best = candidates[0]
    for other in candidates[1:]:
        better = any_win(w, other.z) > any_win(w, best.z)
        best = jax.tree.map(lambda n, o: jnp.where(better, n, o), other, best)  # noqa: B023
    return best
