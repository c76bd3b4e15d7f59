"""Relaxed selection of a set of models under a budget: the linear program, and maximisation of the probability of any win."""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxroute.core import numerics, xla
from jaxroute.solvers import boundary
from jaxroute.solvers.branching import MOST_NODES, branching_any_win
from jaxroute.solvers.budgeted_fill import budgeted_fill, default_steps

# Sets that are compared at once, and in all.
_BLOCK = 4096
_MOST_SETS = 5_000_000
# Dual steps of the linear programs inside continuous greedy: on 8,000 instances of 9 and 16 models no result differs from the exact ones'.
_GREEDY_STEPS = 6
# From here on the vertices of any win are searched by branch and bound: with 256 runs at once, 16 models and 6 places (.9 million) take it
# .16 ms a run in place of .52, 14 models and 5 places (.15 million) .08 in place of .06.
_MOST_VERTICES = 250_000
# The loss of a choice that is not allowed; finite, so that derivatives stay finite too.
_BARRED = 1e20

Groups = Sequence[int] | None


class Selection(NamedTuple):
    """A relaxed selection.

    Only a search can stop early: the other solvers of this file compare all candidates, or take the fixed number of steps that
    `budgeted_fill` needs; what is approximate says so, and its guarantee.

    Attributes:
      z: `[K]` in [0, 1].
      multiplier: `[]` shadow price of the budget, what the solver's objective gains per unit of it.
      feasible: `[]` bool, whether the constraints admit a point and all numbers are finite; if not, `z` selects the cheapest models.
      residual: `[]` by how much a selection that a search has not looked at may be better, in the solver's objective.
      converged: `[]` bool, whether a search has looked at all.
      nodes: `[]` int32, nodes of a search.
    """

    z: jax.Array
    multiplier: jax.Array
    feasible: jax.Array
    residual: jax.Array | float = 0.0
    converged: jax.Array | bool = True
    nodes: jax.Array | int = 0


def linear_selection(
    weight: jax.Array,
    cost: jax.Array,
    budget: jax.Array | float,
    size: jax.Array | float,
    *,
    allowed: jax.Array | None = None,
    groups: Groups = None,
    exact_size: bool = True,
    steps: int | None = None,
) -> Selection:
    """Maximises `weight . z` over `{0 <= z <= allowed, sum z = size (or <=), cost . z <= budget}`, exactly.

    Source: C2MAB-V, eqs. (4) and (5) and the inner step of (3). A `budgeted_fill` with one unit of room per model; "at most"
    is a slack item without value and cost.

    Args:
      weight: `[K]`, of any sign.
      cost: `[K]` non-negative.
      budget: `[]`.
      size: `[]`; with groups `[M]`, the sum in each group.
      allowed: `[K]` bool (default all). With fewer than `size` allowed models and an exact size all of them are selected, which is not feasible.
      groups: group of each model, from 0 (static): a partition matroid. Default one group.
      exact_size: the sum must be `size` (static); otherwise it may be smaller.
      steps: dual steps of the solver (static).
    """
    weight, cost, budget, size = boundary.inputs(allowed, groups, weight=weight, cost=cost, budget=budget, size=size)
    count, capacity, enough = weight.shape[0], boundary.bounds("allowed", allowed, weight), jnp.asarray(True)
    if exact_size:
        room = group_sums(groups, capacity)
        enough, size = boundary.feasible(0.0, 0.0, room, size, capacity), jnp.minimum(size, room)
    else:  # One slack item per group.
        slack = jnp.atleast_1d(size)
        weight, cost = (jnp.concatenate([x, jnp.zeros_like(slack)]) for x in (weight, cost))
        capacity = jnp.concatenate([capacity, slack])
        groups = None if groups is None else (*groups, *range(slack.shape[0]))
    steps = default_steps(weight.shape[-1]) if steps is None else steps
    solution = budgeted_fill(weight, cost, capacity, budget, size, groups=groups, steps=steps)
    return Selection(solution.amount[:count], solution.multiplier, solution.feasible & enough)


def group_sums(groups: Groups, values: jax.Array) -> jax.Array:
    """Sum of `values` `[..., K]`, or their sum in each group `[..., M]`."""
    if groups is None:
        return jnp.sum(values, axis=-1)
    return jnp.sum(jnp.where(numerics.members(groups), values[..., None, :], 0.0), axis=-1)


@functools.lru_cache(maxsize=64)
def subsets(num_models: int, largest: int, smallest: int = 0) -> np.ndarray:
    """All sets of some of the models, in order of size, then lexicographic: bool `[sets, K]`.

    Args:
      num_models: `K`.
      largest: most models of a set.
      smallest: fewest models of a set.

    Raises:
      ValueError: there are more than five million.
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
    """All sets that one fraction, or two that sum to one, may join; `M` groups, `P` pairs of models of one group.

    Attributes:
      members: `[sets, K]` bool, in order of size (static).
      full: first set that leaves only one place at the largest size: two fractions may join from here on (static).
      labels: `[K]` group of each model (static).
      pairs: `[P, 2]` the models of each pair (static).
      left: `[sets]` budget that is left.
      lose: `[M, sets]` probability that all of the set fail, `_BARRED` without room for one more of the group.
    """

    members: np.ndarray
    full: int
    labels: np.ndarray
    pairs: np.ndarray
    left: jax.Array
    lose: jax.Array


# What may join a set: numbers of each model (`w`, `1 / cost`, whether free) or of each pair (`w`, other `w`, other cost, `1 / gap`).
_Candidates = tuple[jax.Array, ...]


def _any_win_sets(
    w: jax.Array,
    cost: jax.Array,
    budget: jax.Array | float,
    size: jax.Array | float,
    groups: Groups,
    sizes: tuple[int, int] | None,
) -> tuple[_AnyWinSets, _Candidates, _Candidates | None]:
    """Enumerates the sets, and what one model or a pair of models adds to them."""
    count, dtype = w.shape[-1], w.dtype
    low, high = (1, count) if sizes is None or groups is not None else sizes
    high = high if sizes is None else sizes[1]
    sets = subsets(count, min(high, count) - 1)
    full = int(np.argmax(sets.sum(1) >= min(low, count) - 1))  # Smaller sets leave the size slack: one fraction at most.
    labels = np.zeros(count, np.int32) if groups is None else np.asarray(groups, np.int32)
    both = [pair for pair in itertools.combinations(range(count), 2) if labels[pair[0]] == labels[pair[1]]]
    pairs = np.asarray(both, int).reshape(-1, 2)
    rows = jnp.asarray(sets, dtype)

    def over_sets(values: jax.Array) -> jax.Array:
        return jnp.dot(rows, values, precision=lax.Precision.HIGHEST)

    left, lose = budget - over_sets(cost), jnp.exp(over_sets(jnp.log1p(-w)))
    filled = np.stack([(sets & (labels == g)).sum(1) for g in range(labels.max() + 1)])  # [M, sets]
    places = jnp.atleast_1d(jnp.asarray(size, dtype))[:, None] - filled.astype(dtype)
    fits = (left >= 0.0) & jnp.all(places >= 0.0, axis=0)
    lose = jnp.where(fits & (places >= 1.0), lose, _BARRED)  # [M, sets]: there is room for one more of the group

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


def _rows(values: jax.Array, places: np.ndarray | jax.Array) -> jax.Array:
    """`values[places]` of places that exist."""
    return jnp.asarray(values).at[places].get(mode="promise_in_bounds")


def _join_one(model: _Candidates, left: jax.Array, lose: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Probability that all fail if a model joins as far as the budget goes, its fraction, and the gain of `-log` per budget."""
    w, inverse, free = model
    part = jnp.minimum(left * inverse + free, 1.0)
    return lose * (1.0 - w * part), part, jnp.where(part < 1.0, w / (1.0 - w * part) * inverse, 0.0)


def _join_two(pair: _Candidates, left: jax.Array, lose: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The same if two join, with fractions that sum to one and use up the budget; the first fraction."""
    w, other_w, other_cost, inverse = pair
    part = (left - other_cost) * inverse
    loss = lose * (1.0 - w * part) * (1.0 - other_w * (1.0 - part))
    price = (w / (1.0 - w * part) - other_w / (1.0 - other_w * (1.0 - part))) * inverse
    return jnp.where(part * (1.0 - part) >= 0.0, loss, _BARRED), part, price


def _least_with_one(
    models: _Candidates, group: np.ndarray, joined: np.ndarray, left: jax.Array, lose: jax.Array
) -> jax.Array:
    """The least loss of each set `[sets]`, over the models that may join it: one model after the other, for all sets.

    Args:
      models: arrays `[K]`, see `_join_one`.
      group: `[K]`, of each model.
      joined: `[sets, K]` bool, the model is in the set already.
      left: `[sets]`.
      lose: `[M, sets]`.
    """

    def compare(best: jax.Array, model: Any) -> tuple[jax.Array, None]:
        values, group, barred = model
        loss, *_ = _join_one(values, left, lose[0] if lose.shape[0] == 1 else lose[group])
        return jnp.minimum(best, loss + barred), None

    best = jnp.full(left.shape, _BARRED, left.dtype)
    barred = np.where(joined.T, _BARRED, 0.0).astype(left.dtype)
    return lax.scan(compare, best, (models, group, barred))[0]


def _least_with_two(
    pairs: _Candidates, group: np.ndarray, joined: np.ndarray, left: jax.Array, lose: jax.Array
) -> jax.Array:
    """The least loss of each set `[sets]`, over the pairs that may join it: one set after the other, for its own pairs only.

    Most pairs meet most sets (of 36 pairs 15 may join a set of 3 of 9 models), and their rows lie at places that all runs share. The losses
    are kept before their minimum is taken: fused with it they are not vectorised over runs, and take 20 times as long.

    Args:
      pairs: arrays `[P]`, see `_join_two`.
      group: `[P]`, of each pair.
      joined: `[sets, P]` bool, a model of the pair is in the set already.
      left: `[sets]`.
      lose: `[M, sets]`.
    """
    most = int((~joined).sum(1).max())
    if not most:
        return jnp.full(left.shape, _BARRED, left.dtype)
    # Those that may join a set, by number; if it has fewer than others its first one again, and without any it is barred.
    free = np.argsort(joined, axis=1, kind="stable").astype(np.int32)[:, :most]
    fits = np.take_along_axis(~joined, free, axis=1)
    free = np.where(fits, free, free[:, :1])
    barred = np.where(fits[:, 0], 0.0, _BARRED).astype(left.dtype)

    def compare(_: None, one: Any) -> tuple[None, jax.Array]:
        left, lose, free, group, barred = one
        lose = lose[0] if lose.shape[0] == 1 else _rows(lose, group)
        loss = _join_two(tuple(_rows(x, free) for x in pairs), left, lose)[0]
        return None, jnp.min(xla.barrier(loss)) + barred

    return lax.scan(compare, None, (left, lose.T, free, group[free], barred))[1]


def _best_join(
    table: _AnyWinSets, place: jax.Array, singles: _Candidates, doubles: _Candidates | None, cost: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The best selection `[K]` that the set number `place` can be part of, and its multiplier `[]`."""
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
    # A small second fraction by itself: rounding of the first one may cost more than the budget if the second model is expensive.
    other = (numerics.pick(i, cost) - here) * numerics.pick(second, doubles[3])
    other = jnp.where(part > 0.5, jnp.maximum(other, 0.0), 1.0 - part)
    both = inside + jnp.where(i, part, 0.0) + jnp.where(j, other, 0.0)
    better = jnp.min(pair_loss) < jnp.min(loss)
    return jnp.where(better, both, z), jnp.where(better, numerics.pick(second, pair_price), price)


def num_vertices(num_models: int, largest: int) -> int:
    """Sets of fewer than `largest` models, times the models and pairs that may join each with a fraction."""
    sets = sum(math.comb(num_models, m) for m in range(min(largest, num_models)))
    return sets * math.comb(num_models + 1, 2)


def exact_any_win(
    w: jax.Array,
    cost: jax.Array,
    budget: jax.Array | float,
    size: jax.Array | float,
    *,
    allowed: jax.Array | None = None,
    groups: Groups = None,
    sizes: tuple[int, int] | None = None,
    most_nodes: jax.Array | int = MOST_NODES,
) -> Selection:
    """Maximises `1 - prod(1 - w_k z_k)` over `{0 <= z <= allowed, sum z <= size, cost . z <= budget}`, exactly.

    The logarithm of the probability that all fail is concave in each `z_k`, so that some vertex of the polytope is optimal: a set
    of models with `z = 1` and either one fraction that uses up the budget, or two fractions (of one group) that sum to one
    and use it up. All sets meet all such fractions: 45 fractions and up to 130 sets for 9 models and 4 places. Of equal vertices the
    first is taken: smaller sets come first, then those of lower indices.

    With more than 250,000 vertices the answer is that of `branching_any_win`: memory and compile time do not depend on their number, and
    of equally good vertices it is any.

    Source: C2MAB-V, eq. (3); the enumeration is ours.

    Args:
      w: `[K]` probabilities in [0, 1].
      cost: `[K]` non-negative.
      budget: `[]`.
      size: `[]` whole number; with groups `[M]`, that of each. If it is not whole, or not within `sizes`, the answer has not converged.
      allowed: `[K]` bool (default all).
      groups: group of each model, from 0 (static).
      sizes: smallest and largest (total) size that may be asked for (static; default 0 and any).
      most_nodes: `[]` nodes after which the search returns its best selection so far.
    """
    w, cost, budget, size = boundary.inputs(allowed, groups, w=w, cost=cost, budget=budget, size=size)
    count = w.shape[0]
    if num_vertices(count, count if sizes is None else sizes[1]) > _MOST_VERTICES:
        searched = branching_any_win(w, cost, budget, size, allowed=allowed, groups=groups, most_nodes=most_nodes)
        return Selection(*(getattr(searched, name) for name in Selection._fields))
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
    # The best set again, to find what joins it.
    z, price = _best_join(table, numerics.argmin(best), singles, doubles, cost)
    # A model whose probability is 0 may have been as good as none; and no model joins where there is no place.
    z = jnp.where(feasible & (total >= 1.0), z * boundary.bounds("allowed", allowed, z), 0.0)
    return Selection(z, price, feasible, converged=covered & feasible)


def best_subset(
    weight: jax.Array,
    cost: jax.Array,
    budget: jax.Array | float,
    size: jax.Array | float,
    *,
    allowed: jax.Array | None = None,
    groups: Groups = None,
    exact_size: bool,
    sizes: tuple[int, int],
) -> Selection:
    """Maximises the sum of `weight` over sets within the budget, by comparing all of them; the cheapest set if none fits.

    Source: C2MAB-V-Direct, eq. (48), with a bound on the size. Sets are compared in blocks, so that memory does not grow.

    Args:
      weight: `[K]`.
      cost: `[K]`.
      budget: `[]`.
      size: `[]` whole number, with groups `[M]`, that of each; with an exact size and fewer allowed models, all of these, if `sizes`
        reaches down to so few; that is not feasible.
      allowed: `[K]` bool (default all).
      groups: group of each model, from 0 (static).
      exact_size: sets have `size` models (static); otherwise at most so many.
      sizes: smallest and largest set that `size` may ask for (static).
    """
    weight, cost, budget, asked = boundary.inputs(allowed, groups, weight=weight, cost=cost, budget=budget, size=size)
    count = weight.shape[0]
    if count > 31:
        raise ValueError(f"sets of at most 31 models can be compared, got {count} models")
    sets = subsets(count, sizes[1], sizes[0])
    usable_models = boundary.bounds("allowed", allowed, weight)
    room = group_sums(groups, usable_models)
    size = jnp.atleast_1d(jnp.minimum(asked, room))
    limit = budget * (1.0 + boundary.rounding(weight.dtype))
    kinds = np.ones((1, count), bool) if groups is None else numerics.members(groups)
    columns = jnp.stack([weight, cost, 1.0 - usable_models, *kinds.astype(weight.dtype)], axis=1)
    block = min(_BLOCK, len(sets))
    codes = (sets @ (1 << np.arange(count))).astype(np.int32)
    codes = np.append(codes, np.full(-len(codes) % block, codes[0]))  # The padding repeats the first set.

    def compare(best: Any, codes: jax.Array) -> tuple[Any, None]:
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
    feasible = found & boundary.feasible(0.0, budget, room if exact_size else jnp.inf, asked, weight, cost)
    return Selection(z, jnp.zeros((), weight.dtype), feasible)


def any_win_gradient(w: jax.Array, z: jax.Array) -> jax.Array:
    """Gradient `[K]` of `-log prod(1 - w_k z_k)`: that of the probability of any win without its common factor."""
    return w / jnp.maximum(1.0 - w * z, np.finfo(w.dtype).eps)


def any_win_weight(w: jax.Array | np.ndarray, xp: Any = jnp) -> Any:
    """`-log(1 - w)`, weights whose sum orders sets as the probability of any win does; finite also for `w = 1`."""
    return -xp.log1p(-xp.minimum(w, 1.0 - np.finfo(w.dtype).epsneg))


def any_win(w: jax.Array | np.ndarray, z: jax.Array | np.ndarray) -> Any:
    """`1 - prod(1 - w_k z_k)`, the relaxed probability that any model wins, of arrays `[..., K]` of JAX or NumPy; `[...]`."""
    return 1.0 - (1.0 - w * z).prod(axis=-1)


def continuous_greedy_any_win(
    w: jax.Array,
    cost: jax.Array,
    budget: jax.Array | float,
    size: jax.Array | float,
    *,
    allowed: jax.Array | None = None,
    groups: Groups = None,
    steps: int = 10,
) -> Selection:
    """Any-win selection by continuous greedy: `steps` linear programs in the direction of the gradient, averaged.

    At least `1 - 1/e` of the optimum. Source: Calinescu, Chekuri, Pal and Vondrak (2011); C2MAB-V, section 4, "common
    greedy".

    Args:
      w: `[K]` probabilities in [0, 1].
      cost, budget, size, allowed, groups: as in `linear_selection`.
      steps: linear programs (static).
    """
    w, cost, budget, size = boundary.inputs(allowed, groups, w=w, cost=cost, budget=budget, size=size)
    dual_steps = min(_GREEDY_STEPS, default_steps(w.shape[0] + 1))

    def step(z: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        weight = any_win_gradient(w, z)
        found = linear_selection(
            weight, cost, budget, size, allowed=allowed, groups=groups, exact_size=False, steps=dual_steps
        )
        return z + found.z / steps, found.multiplier

    z, multipliers = lax.scan(step, jnp.zeros_like(w), None, length=steps)
    return Selection(jnp.clip(z, 0.0, 1.0), multipliers[-1], boundary.feasible(0.0, budget, jnp.inf, size, w, cost))


def log_any_win(
    w: jax.Array,
    cost: jax.Array,
    budget: jax.Array | float,
    size: jax.Array | float,
    *,
    allowed: jax.Array | None = None,
    groups: Groups = None,
) -> Selection:
    """Any-win selection by one linear program with weights `-log(1 - w)`: optimal where its solution is integral.

    No guarantee otherwise: with `w = (.999, .49)`, `cost = (1, .1)` and a budget of .1 it reaches .0999 of .49.

    Args:
      w: `[K]` probabilities in [0, 1].
      cost, budget, size, allowed, groups: as in `linear_selection`.
    """
    w, cost, budget, size = boundary.inputs(allowed, groups, w=w, cost=cost, budget=budget, size=size)
    found = linear_selection(any_win_weight(w), cost, budget, size, allowed=allowed, groups=groups, exact_size=False)
    return found._replace(feasible=found.feasible & boundary.finite(w))


def polish_any_win(
    start: Selection,
    w: jax.Array,
    cost: jax.Array,
    budget: jax.Array | float,
    size: jax.Array | float,
    *,
    allowed: jax.Array | None = None,
    groups: Groups = None,
    steps: int = 2,
) -> Selection:
    """Unit Frank-Wolfe steps from a selection: each reaches a vertex that is no worse, for the objective is convex.

    The logarithm of the probability that all fail is concave in `z`, so that moving to the best vertex of its linearisation
    helps.

    Args:
      start: the first selection.
      w: `[K]` probabilities in [0, 1].
      cost, budget, size, allowed, groups: as in `linear_selection`.
      steps: how many (static).
    """

    w, cost, budget, size = boundary.inputs(allowed, groups, w=w, cost=cost, budget=budget, size=size)

    def step(found: Selection, _: None) -> tuple[Selection, None]:
        weight = any_win_gradient(w, found.z)
        new = linear_selection(weight, cost, budget, size, allowed=allowed, groups=groups, exact_size=False)
        better = any_win(w, new.z) >= any_win(w, found.z)
        return jax.tree.map(lambda n, o: jnp.where(better, n, o), new, found), None

    feasible = jnp.asarray(start.feasible) & boundary.feasible(0.0, budget, jnp.inf, size, w, cost)
    return lax.scan(step, start._replace(feasible=feasible), None, length=steps)[0]


def best_any_win(candidates: Sequence[Selection], w: jax.Array) -> Selection:
    """The candidate of largest `any_win`; the first on ties."""
    best = candidates[0]
    for other in candidates[1:]:
        better = any_win(w, other.z) > any_win(w, best.z)
        best = jax.tree.map(lambda n, o: jnp.where(better, n, o), other, best)  # noqa: B023
    return best
