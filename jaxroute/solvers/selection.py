"""Relaxed selection of a set of models under a budget: the linear programme, and maximisation of the chance of any win."""

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxroute import numerics
from jaxroute.solvers.budgeted_fill import budget_tolerance, budgeted_fill, default_steps

# Sets that are compared at once.
_BLOCK = 4096


class Selection(NamedTuple):
    """A relaxed selection.

    z: `[K]` in [0, 1]. multiplier: `[]` shadow price of the budget (0 where a solver has none).
    feasible: `[]` bool, whether the constraints admit a point; if not, `z` selects the cheapest models.
    """

    z: jax.Array
    multiplier: jax.Array
    feasible: jax.Array


def linear_selection(
    weight, cost, budget, size, *, allowed=None, exact_size: bool = True, steps: int | None = None
) -> Selection:
    """Maximises `weight . z` over `{0 <= z <= allowed, sum z = size (or <=), cost . z <= budget}`, exactly.

    Source: C2MAB-V, eqs. (4) and (5) and the inner step of (3). A `budgeted_fill` with one unit of room per model; "at most" is
    a slack item without value and cost.

    Args:
      weight: `[K]`, of any sign. cost: `[K]` non-negative. budget: `[]`. size: `[]`.
      allowed: `[K]` bool (default all). With fewer than `size` allowed models and an exact size, all of them are selected.
      exact_size: the sum must be `size` (static); otherwise it may be smaller.
      steps: dual steps of the solver (static).
    """
    count = weight.shape[-1]
    size = jnp.asarray(size, weight.dtype)
    capacity = jnp.ones_like(weight) if allowed is None else allowed.astype(weight.dtype)
    if exact_size:
        size = jnp.minimum(size, jnp.sum(capacity))
    else:
        zero = jnp.zeros((1,), weight.dtype)
        weight, cost = jnp.concatenate([weight, zero]), jnp.concatenate([cost, zero])
        capacity = jnp.concatenate([capacity, size[None]])
    steps = default_steps(weight.shape[-1]) if steps is None else steps
    solution = budgeted_fill(weight, cost, capacity, budget, size, steps=steps)
    return Selection(solution.amount[:count], solution.multiplier, solution.feasible)


@functools.cache
def subsets(num_models: int, largest: int, smallest: int = 0) -> np.ndarray:
    """All sets of `smallest` to `largest` of the models, in order of size, then lexicographic: bool `[sets, K]`."""
    chosen = [c for m in range(smallest, largest + 1) for c in itertools.combinations(range(num_models), m)]
    members = np.zeros((len(chosen), num_models), bool)
    for row, c in enumerate(chosen):
        members[row, list(c)] = True
    members.setflags(write=False)
    return members


def exact_any_win(w, cost, budget, size, *, allowed=None, max_size: int) -> Selection:
    """Maximises `1 - prod(1 - w_k z_k)` over `{0 <= z <= allowed, sum z <= size, cost . z <= budget}`, by comparing vertices.

    The logarithm of the chance that all fail is concave in each `z_k`, so that some vertex of the polytope is optimal. With a
    slack item (no value, no cost) a vertex is a set `A` of models with `z = 1` and at most two fractions that sum to one and use
    up the budget. All pairs of fractions meet all sets of at most `max_size - 1` models: 45 times 130 for 9 models and 4 places.

    Args:
      w: `[K]` chances in [0, 1]. cost: `[K]` non-negative. budget: `[]`. size: `[]` whole number, at most `max_size` (static).
    """
    count = w.shape[-1]
    sets = subsets(count, min(max_size, count) - 1)
    pairs = np.asarray(list(itertools.combinations(range(count + 1), 2)), np.int32)
    apart = ~(np.pad(sets, ((0, 0), (0, 1)))[:, pairs].any(-1)).T  # [pairs, sets]: neither model is in the set
    if allowed is not None:
        w = jnp.where(allowed, w, 0.0)
    top = 1.0 - np.finfo(w.dtype).epsneg
    lose = 1.0 - jnp.minimum(w, top)
    table = jnp.asarray(sets, w.dtype)
    exact = lax.Precision.HIGHEST
    set_cost = jnp.dot(table, cost, precision=exact)
    set_loss = jnp.exp(jnp.dot(table, jnp.log(lose), precision=exact))
    set_loss = jnp.where((jnp.sum(table, axis=1) + 1.0 <= size) & (set_cost <= budget), set_loss, jnp.inf)
    set_cost, set_loss = lax.optimization_barrier((set_cost, set_loss))
    zero = jnp.zeros((1,), w.dtype)
    cost, w = jnp.concatenate([cost, zero]), jnp.concatenate([w, zero])

    def losses(i, j, fits):
        """Chance that all fail `[sets]` for each set with the two fractions `i` and `j` (one-hot), and the first fraction."""
        wi, wj, ci, cj = (numerics.pick(k, x) for x in (w, cost) for k in (i, j))
        # The slack item may take any rest: the other fraction is then at most one.
        slack = j[count]
        gap = ci - cj
        part = (budget - cj - set_cost) / jnp.where(gap == 0.0, np.finfo(w.dtype).tiny, gap)
        part = jnp.where(slack, jnp.minimum(part, 1.0), part)
        loss = set_loss * (1.0 - wi * part) * (1.0 - wj * (1.0 - part))
        return jnp.where(fits & (part >= 0.0) & (part <= 1.0), loss, jnp.inf), part

    def hot(index):
        return lax.iota(jnp.int32, count + 1) == index

    def compare(best, candidate):
        number, (i, j), fits = candidate
        loss, _ = losses(hot(i), hot(j), fits)
        here = jnp.min(loss, axis=0)
        return (jnp.minimum(here, best[0]), jnp.where(here < best[0], number, best[1])), None

    numbers = np.arange(len(pairs), dtype=np.int32)
    start = (jnp.full((), jnp.inf, w.dtype), jnp.zeros((), jnp.int32))
    (_, best), _ = lax.scan(compare, start, (numbers, (pairs[:, 0], pairs[:, 1]), apart))
    # The best pair again, to find its set.
    chosen = numerics.one_hot(best, len(pairs))
    i, j = (hot(jnp.sum(jnp.where(chosen, pairs[:, side], 0))) for side in (0, 1))
    fits = ~jnp.any(table[:, :] * (i | j)[None, :count] > 0.0, axis=1)
    loss, part = losses(i, j, fits)
    first = numerics.one_hot(numerics.argmin(loss), len(sets))
    part = numerics.pick(first, part)
    z = jnp.any(first[:, None] & sets, axis=0).astype(w.dtype) + jnp.where(i, part, 0.0)[:count]
    z = z + jnp.where(j, 1.0 - part, 0.0)[:count]
    if allowed is not None:
        z = jnp.where(allowed, z, 0.0)  # A model without chance may have been as good as slack.
    return Selection(z, jnp.zeros((), w.dtype), jnp.asarray(True))


def best_subset(weight, cost, budget, size, *, allowed=None, exact_size: bool, sizes: tuple[int, int]) -> Selection:
    """Maximises the sum of `weight` over sets within the budget, by comparing all of them; the cheapest set if none fits.

    Source: C2MAB-V-Direct, eq. (48), with a bound on the size. Sets are compared in blocks, so that memory does not grow.

    Args:
      weight, cost: `[K]`. budget: `[]`. size: `[]` whole number; with an exact size and fewer allowed models, all of these.
      sizes: smallest and largest set that `size` may ask for (static).
    """
    count = weight.shape[-1]
    sets = subsets(count, sizes[1], sizes[0])
    if allowed is None:
        allowed = jnp.ones((count,), bool)
    available = jnp.sum(allowed.astype(weight.dtype))
    size = jnp.minimum(jnp.asarray(size, weight.dtype), available)
    limit = budget + budget_tolerance(budget, weight.dtype)
    columns = jnp.stack([weight, cost, 1.0 - allowed.astype(weight.dtype), jnp.ones_like(weight)], axis=1)
    block = min(_BLOCK, len(sets))
    codes = np.zeros(-(-len(sets) // block) * block, np.int32)
    codes[: len(sets)] = sets @ (1 << np.arange(count))  # The padding repeats the empty set.

    def compare(best, codes):
        members = ((codes[:, None] >> np.arange(count)) & 1).astype(weight.dtype)
        value, spend, barred, number = jnp.moveaxis(jnp.dot(members, columns, precision=lax.Precision.HIGHEST), 1, 0)
        usable = (barred == 0.0) & ((number == size) if exact_size else (number <= size))
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
    feasible = value > -jnp.inf
    code = jnp.where(feasible, code, cheapest)
    z = ((code >> np.arange(count)) & 1).astype(weight.dtype)
    return Selection(z, jnp.zeros((), weight.dtype), feasible)


def any_win_gradient(w, z):
    """Gradient `[K]` of `-log prod(1 - w_k z_k)`: that of the chance of any win without its common factor."""
    return w / jnp.maximum(1.0 - w * z, np.finfo(w.dtype).eps)


def any_win(w, z):
    """`1 - prod(1 - w_k z_k)`, the relaxed chance that any model wins; `[]`."""
    return 1.0 - jnp.prod(1.0 - w * z, axis=-1)


def continuous_greedy_any_win(w, cost, budget, size, *, allowed=None, steps: int = 10) -> Selection:
    """Any-win selection by continuous greedy: `steps` linear programmes in the direction of the gradient, averaged.

    At least `1 - 1/e` of the optimum. Source: Calinescu, Chekuri, Pal and Vondrak (2011); C2MAB-V, section 4, "common greedy".
    """

    def step(z, _):
        found = linear_selection(any_win_gradient(w, z), cost, budget, size, allowed=allowed, exact_size=False)
        return z + found.z / steps, found.multiplier

    z, multipliers = lax.scan(step, jnp.zeros_like(w), None, length=steps)
    return Selection(jnp.clip(z, 0.0, 1.0), multipliers[-1], jnp.asarray(True))


def log_any_win(w, cost, budget, size, *, allowed=None) -> Selection:
    """Any-win selection by one linear programme with weights `-log(1 - w)`: optimal where its solution is integral.

    No guarantee otherwise: with `w = (.999, .49)`, `cost = (1, .1)` and a budget of .1 it reaches .0999 of .49.
    """
    weight = -jnp.log1p(-jnp.minimum(w, 1.0 - np.finfo(w.dtype).eps))
    return linear_selection(weight, cost, budget, size, allowed=allowed, exact_size=False)


def polish_any_win(start: Selection, w, cost, budget, size, *, allowed=None, steps: int = 2) -> Selection:
    """Unit Frank-Wolfe steps from a selection: each reaches a vertex that is no worse, for the objective is convex.

    The logarithm of the chance that all fail is concave in `z`, so that moving to the best vertex of its linearisation helps.
    """

    def step(found, _):
        weight = any_win_gradient(w, found.z)
        new = linear_selection(weight, cost, budget, size, allowed=allowed, exact_size=False)
        better = any_win(w, new.z) >= any_win(w, found.z)
        return jax.tree.map(lambda n, o: jnp.where(better, n, o), new, found), None

    return lax.scan(step, start, None, length=steps)[0]


def best_any_win(candidates: list[Selection], w) -> Selection:
    """The candidate of largest `any_win`; the first on ties."""
    best = candidates[0]
    for other in candidates[1:]:
        better = any_win(w, other.z) > any_win(w, best.z)
        best = jax.tree.map(lambda n, o: jnp.where(better, n, o), other, best)  # noqa: B023
    return best
