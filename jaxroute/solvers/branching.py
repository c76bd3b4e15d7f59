"""Branch and bound over selections of models: exact, in memory that does not depend on the number of sets.

The search divides the space of selections into pieces. A node is a piece: the decisions about each model so far. Its relaxation is a linear program
over a box with a few rows (constraints). A dual simplex method solves it with a basis as small as the number of rows. Multipliers of the rows give an
upper bound even if they are inexact (weak duality), so that rounding never makes the search drop a node wrongly. The next node can start from any
basis, such as the last one: each variable is put at its upper bound if its reduced gain is positive, else at its lower bound.

The search is one loop. Each step is a simplex pivot, the split of a node in two, or a return to the most recent piece that still waits. Under `vmap`
all runs step together until the last run finishes.

Source: Land and Doig (1960), the search; Lemke (1954), the dual simplex method; Falk and Soland (1969), the split of a convex piece at the solution
of its relaxation. Ours: a model that is no better than another in any respect is selected only after it (dominance).
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from jaxroute.core import numerics, xla
from jaxroute.solvers import boundary
from jaxroute.solvers.boundary import Number

# Default limit of the nodes of a search.
MOST_NODES = 100_000
# Result of a branching rule: value of the solved node, the piece that is searched first, the other piece, and whether the node can be split.
_Branches = tuple[Array, Any, Any, Array]
# Factor that relaxes the bound that the budget alone implies for each model, so that the multiplier belongs to the budget's row.
_SPARE = 1.001


class Program(NamedTuple):
    """Linear program: maximises `constant + gain . (x - low)` over `{low <= x <= high, rows @ x <= limit}`.

    Attributes:
      gain: `[n]` objective per unit of each of `n` variables `x`.
      rows: `[R, n]` coefficients of `R` constraints, scaled by the caller to the order of one; `equal` of `search` flags equations.
      limit: `[R]` right-hand sides.
      low: `[n]` lower bounds.
      high: `[n]` upper bounds.
      constant: `[]` objective at `low`.
    """

    gain: Array
    rows: Array
    limit: Array
    low: Array
    high: Array
    constant: Array


class Basis(NamedTuple):
    """Result of a simplex step: solution for the present basis, and next basis. Columns are the `n` variables, then the slacks of `R` constraints.

    Attributes:
      x: `[n]` basic solution, clipped to the ends (lower and upper limits) of the variables.
      bound: `[]` upper bound of the optimal value, valid for any basis up to rounding.
      reduced: `[n]` reduced gains. `bound` falls by their size per unit by which `x` leaves its upper end (if positive) or lower end (if negative).
      price: `[R]` multipliers of the constraints.
      feasible: `[]` bool, whether the basic solution is between the ends, and so optimal.
      impossible: `[]` bool, whether no point between the ends meets the constraints.
      stuck: `[]` bool, whether neither `feasible` nor `impossible` is true and no pivot element exceeds rounding errors.
      upper: `[n + R]` bool, columns at their upper end in the present basis.
      basis: `[R]` int32 columns of the next basis.
      next_upper: `[n + R]` bool, columns at their upper end in the next basis.
    """

    x: Array
    bound: Array
    reduced: Array
    price: Array
    feasible: Array
    impossible: Array
    stuck: Array
    upper: Array
    basis: Array
    next_upper: Array


class SearchResult(NamedTuple):
    """Result of branch and bound over `n` variables, whose linear programs have `R` constraints (`search`).

    Attributes:
      x: `[n]` best point; zero if no point was found.
      piece: piece of the search space that contains `x`.
      value: `[]` value of `x`; -inf if no point was found.
      price: `[R]` multipliers of the constraints in the linear program that found `x`.
      residual: `[]` upper bound of the amount by which an unvisited point may exceed `value`; 0 for a complete search.
      converged: `[]` bool, whether the search is complete.
      nodes: `[]` int32 number of visited nodes.
      steps: `[]` int32 number of steps of the loop, pivots included.
    """

    x: Array
    piece: Any
    value: Array
    price: Array
    residual: Array
    converged: Array
    nodes: Array
    steps: Array


class _Search(NamedTuple):
    """State of a branch-and-bound search over `n` variables, whose linear programs have `R` constraints.

    Attributes:
      piece: part of the search space that is searched now (the current node).
      basis: `[R]` int32 basic columns; columns from `n` on are slack variables.
      upper: `[n + R]` bool, nonbasic columns at their upper bound.
      pivots: `[]` int32 number of pivots in the current node.
      stack: pieces that are searched later, the last one first.
      bounds: `[depth + 1]` upper bound of each piece in the stack.
      waiting: `[]` int32 number of pieces in the stack.
      lost: `[]` largest upper bound of the pieces that the search abandoned.
      found: best result so far.
      running: `[]` bool, whether the search continues.
    """

    piece: Any
    basis: Array
    upper: Array
    pivots: Array
    stack: Any
    bounds: Array
    waiting: Array
    lost: Array
    found: SearchResult
    running: Array


def tolerance(dtype: DTypeLike) -> float:
    """Returns a bound, for this number type, of the rounding error in sums whose terms are of the order of one."""
    return float(np.finfo(dtype).eps ** 0.8)


def search(
    start: Any,
    program: Callable[[Any], Program],
    branch: Callable[[Any, Basis, Array, Array], _Branches],
    *,
    equal: tuple[bool, ...],
    depth: int,
    most_nodes: Array | int = MOST_NODES,
    needed: Array | bool = True,
) -> SearchResult:
    """Finds the best point of a problem by depth-first branch and bound.

    Args:
      start: the whole search space as a piece, a pytree of arrays.
      program: function from a piece to its relaxation, a `Program`; all its numbers may differ between nodes.
      branch: function of (piece, its `Basis`, best value so far, tolerance of comparisons with that value). It returns the value of the basic
        solution, or -inf if that does not solve the original problem; the half of the piece to search first; the other half; and whether the piece
        can be split.
      equal: for each constraint, whether it is an equation (static).
      depth: capacity of the stack of pieces (static); further pieces are abandoned.
      most_nodes: `[]` limit of the number of visited nodes; while no point has been found, the limit is `depth` higher.
      needed: `[]` bool; if False, nothing is searched, and the result is that no point was found.
    """
    root = jax.eval_shape(program, start)
    count, dtype, num_rows = root.gain.shape[-1], root.gain.dtype, len(equal)
    lowest, zero = jnp.full((), -jnp.inf, dtype), jnp.zeros((), jnp.int32)
    nothing = jnp.zeros((count,), dtype), start, lowest, jnp.zeros((num_rows,), dtype), jnp.zeros((), dtype)
    found = SearchResult(*nothing, converged=jnp.asarray(True), nodes=zero, steps=zero)
    first = _Search(
        piece=start,
        basis=count + lax.iota(jnp.int32, num_rows),  # The slack variables.
        upper=jnp.zeros((count + num_rows,), bool),
        pivots=zero,
        stack=jax.tree.map(lambda x: jnp.zeros((depth + 1, *x.shape), x.dtype), start),
        bounds=jnp.full((depth + 1,), -jnp.inf, dtype),
        waiting=zero,
        lost=lowest,
        found=found,
        running=jnp.asarray(needed, bool),
    )

    def step(s: _Search) -> _Search:
        lp = program(s.piece)
        view = _simplex(lp, equal, s.basis, s.upper)
        best = s.found.value
        margin = _margin(best)
        hopeless = ~(view.bound > best + margin)
        tired = (s.pivots >= 8 * s.upper.size) | view.stuck
        pivot = ~hopeless & ~view.feasible & ~view.impossible & ~tired
        done = ~hopeless & (view.feasible | (tired & ~view.impossible))

        value, near, far, divisible = branch(s.piece, view, best, margin)
        value = jnp.where(view.feasible & done, value, -jnp.inf)
        better = value > best
        best = jnp.where(better, value, best)
        margin = _margin(best)
        found = _where(better, SearchResult(view.x, s.piece, value, view.price, *s.found[4:]), s.found)
        beaten = view.bound <= best + margin
        splits = done & ~beaten & divisible
        stuck = done & ~beaten & ~divisible & ~view.feasible
        fits = s.waiting < depth
        lost = jnp.where(stuck | (splits & ~fits), jnp.maximum(s.lost, view.bound), s.lost)

        stack = jax.tree.map(lambda table, x: numerics.put(table, (s.waiting,), x), s.stack, far)
        bounds = numerics.put(s.bounds, (s.waiting,), view.bound)
        waiting = jnp.where(splits & fits, s.waiting + 1, s.waiting)

        # Return to the last piece that may contain a better point.
        back = ~pivot & ~splits
        place = lax.iota(jnp.int32, depth + 1)
        alive = (place < waiting) & (bounds > best + margin)
        last = jnp.max(jnp.where(alive, place, -1))
        popped = jax.tree.map(lambda table: numerics.at(table, (jnp.maximum(last, 0),)), stack)
        piece = _where(back, popped, _where(splits, near, s.piece))
        waiting = jnp.where(back, jnp.maximum(last, 0), waiting)
        running = ~(back & (last < 0))

        nodes = found.nodes + jnp.where(pivot, 0, 1)
        # The first descent continues until it has found a point.
        over = running & (nodes >= most_nodes + jnp.where(best > -jnp.inf, 0, depth))
        left = jnp.max(jnp.where(alive & (place < waiting), bounds, -jnp.inf))
        left = jnp.maximum(left, jnp.where(back, bounds[jnp.maximum(last, 0)], view.bound))
        lost = jnp.where(over, jnp.maximum(lost, left), lost)
        found = found._replace(nodes=nodes, steps=found.steps + 1)
        return _Search(
            piece=piece,
            basis=jnp.where(pivot, view.basis, s.basis),
            upper=jnp.where(pivot, view.next_upper, view.upper),
            pivots=jnp.where(pivot, s.pivots + 1, 0),
            stack=stack,
            bounds=bounds,
            waiting=waiting,
            lost=lost,
            found=found,
            running=running & ~over,
        )

    last = lax.while_loop(lambda s: s.running, step, first)
    found = last.found
    complete = ~(last.lost > found.value + _margin(found.value))
    return found._replace(residual=jnp.where(complete, 0.0, last.lost - found.value), converged=complete)


def _margin(best: Array) -> Array:
    """Returns the amount by which a node's upper bound must exceed the best value so far, `best`, for the node to be searched."""
    return tolerance(best.dtype) * jnp.maximum(jnp.where(best > -jnp.inf, jnp.abs(best), 0.0), 1.0)


def _where(mask: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda n, o: jnp.where(mask, n, o), new, old)


def _simplex(lp: Program, equal: tuple[bool, ...], basis: Array, upper: Array) -> Basis:
    """Returns the basic solution of the linear program `lp`, and the basis after one step of the dual simplex method.

    `basis` `[R]` has the indices of the basic columns, `upper` `[n + R]` flags other columns at their upper bound, `equal` tells which rows are
    equations.
    """
    count, num_rows, dtype = lp.gain.shape[-1], len(equal), lp.gain.dtype
    tol = tolerance(dtype)
    # Shift the lower bounds to 0, so that small differences are not differences of large numbers.
    limit, range_ = lp.limit - jnp.sum(lp.rows * lp.low, axis=1), lp.high - lp.low
    slack = limit - jnp.sum(jnp.minimum(lp.rows, 0.0) * range_, axis=1)
    columns = jnp.concatenate([lp.rows, jnp.eye(num_rows, dtype=dtype)], axis=1)
    gain = jnp.concatenate([lp.gain, jnp.zeros((num_rows,), dtype)])
    span = jnp.concatenate([range_, jnp.where(np.asarray(equal), 0.0, jnp.maximum(slack, 0.0))])

    def basics(basis: Array) -> Array:
        return basis[:, None] == lax.iota(jnp.int32, count + num_rows)  # [R, n + R]

    inverse, regular = _inverse(jnp.sum(jnp.where(basics(basis)[None], columns[:, None, :], 0.0), axis=-1))
    basis = jnp.where(regular, basis, count + lax.iota(jnp.int32, num_rows))
    inverse = jnp.where(regular, inverse, jnp.eye(num_rows, dtype=dtype))
    chosen = basics(basis)
    basic = jnp.any(chosen, axis=0)

    price = jnp.sum(numerics.pick(chosen, gain)[:, None] * inverse, axis=0)
    reduced = gain - jnp.sum(price[:, None] * columns, axis=0)
    bound = lp.constant + jnp.sum(price * limit) + jnp.sum(jnp.maximum(reduced, 0.0) * span)
    # Where rows are nearly parallel multipliers are large, and so is the rounding of the bound.
    terms = jnp.abs(gain) + jnp.sum(jnp.abs(price[:, None] * columns), axis=0)
    rounding = np.finfo(dtype).eps * (jnp.sum(jnp.abs(price * limit)) + jnp.sum(jnp.where(reduced > 0.0, terms * span, 0.0)))
    reduced, bound = xla.barrier((reduced, bound + jnp.maximum(rounding - tol, 0.0)))
    slope_tol = 8 * np.finfo(dtype).eps * jnp.maximum(jnp.max(jnp.abs(lp.gain)), np.finfo(dtype).tiny)
    slope = jnp.where(basic, 0.0, reduced)
    upper = jnp.where(slope > slope_tol, True, jnp.where(slope < -slope_tol, False, upper))
    outside = jnp.where(~basic & upper, span, 0.0)
    rest = limit - jnp.sum(columns * outside, axis=1)
    inside = jnp.sum(inverse * rest, axis=1)
    below, above = -inside, inside - numerics.pick(chosen, span)
    excess = jnp.maximum(below, above)
    worst = numerics.one_hot(numerics.argmax(excess), num_rows)
    most = numerics.pick(worst, excess)
    feasible = most <= tol
    up = numerics.pick(worst, below) > numerics.pick(worst, above)

    # A column may enter if moving it off its bound moves the worst basic variable towards its box.
    weights = jnp.sum(jnp.where(worst[:, None], inverse, 0.0), axis=0)
    row = jnp.sum(weights[:, None] * columns, axis=0)
    helps = jnp.where(up, -row, row) * jnp.where(upper, -1.0, 1.0)
    eligible = ~basic & (span > 0.0) & (helps > 4 * np.finfo(dtype).eps)
    # The problem is impossible if the weighted rows are violated even at the best bounds of all columns.
    reach = jnp.sum(jnp.where(basic, 0.0, jnp.maximum(helps, 0.0) * span))
    impossible = most > reach + tol * jnp.maximum(jnp.sum(jnp.abs(weights)), 1.0)
    x = jnp.clip(outside + jnp.sum(jnp.where(chosen, inside[:, None], 0.0), axis=0), 0.0, span)[:count]
    missing = limit - jnp.sum(lp.rows * x, axis=1)
    missing = jnp.where(np.asarray(equal), jnp.abs(missing), jnp.maximum(-missing, 0.0))
    feasible |= ~jnp.any(eligible) & ~impossible & (jnp.max(missing) <= 4 * tol)
    size = jnp.where(eligible, helps, 1.0)
    # Largest pivot among the columns whose reduced gains vanish first, up to rounding.
    first = jnp.min(jnp.where(eligible, (jnp.abs(slope) + slope_tol) / size, jnp.inf))
    entering = numerics.argmax(jnp.where(eligible & (jnp.abs(slope) / size <= first), helps, -1.0))
    leaving = jnp.any(chosen & worst[:, None], axis=0)
    return Basis(
        x=jnp.clip(lp.low + x, lp.low, lp.high),
        bound=bound,
        reduced=reduced[:count],
        price=price,
        feasible=feasible,
        impossible=impossible,
        stuck=~feasible & ~impossible & ~jnp.any(eligible),
        upper=upper,
        basis=jnp.where(worst, entering, basis),
        next_upper=jnp.where(leaving, ~up, upper),
    )


def _inverse(matrix: Array) -> tuple[Array, Array]:
    size, dtype = matrix.shape[-1], matrix.dtype
    table = jnp.concatenate([matrix, jnp.eye(size, dtype=dtype)], axis=1)
    regular = jnp.asarray(True)
    place = lax.iota(jnp.int32, size)
    for k in range(size):
        column = jnp.abs(table[:, k])
        chosen = place == numerics.argmax(column, place >= k)
        pivot = jnp.sum(jnp.where(chosen[:, None], table, 0.0), axis=0)
        regular &= jnp.abs(pivot[k]) > 64 * np.finfo(dtype).eps
        pivot_row = pivot / jnp.where(pivot[k] == 0.0, 1.0, pivot[k])
        swapped = jnp.where(chosen[:, None], table[k], table)
        table = jnp.where((place == k)[:, None], pivot_row, swapped - swapped[:, k : k + 1] * pivot_row)
    return table[:, size:], regular


class BranchingSolution(NamedTuple):
    """Result of `sparse_fill` (a mix of models) or of `branching_any_win` (a relaxed selection).

    Attributes:
      x: `[K]` amounts of the mix, or selection in [0, 1].
      members: `[K]` bool, models that count towards the size of the mix (`x` may be 0), or models of the selection with a positive `x`.
      value: `[]` maximum: value of the mix, or `-log prod(1 - w_k x_k)`; -inf if nothing is feasible.
      multiplier: `[]` shadow price of the budget in the linear program that found `x`.
      residual: `[]` bound by which another `x` may improve `value`; 0 for a complete search.
      converged: `[]` bool, whether the search is complete.
      nodes: `[]` int32 number of visited nodes.
      steps: `[]` int32 number of steps of the search's loop.
      feasible: `[]` bool, whether the constraints admit a point and all numbers are finite.
    """

    x: Array
    members: Array
    value: Array
    multiplier: Array
    residual: Array
    converged: Array
    nodes: Array
    steps: Array
    feasible: Array


def sparse_fill(
    value: Array,
    cost: Array,
    capacity: Array,
    budget: Number,
    most: Array | int,
    *,
    valid: Array | None = None,
    priority: Array | None = None,
    most_nodes: Array | int = MOST_NODES,
    needed: Array | bool = True,
) -> BranchingSolution:
    """Maximises `value . x` over `{0 <= x <= capacity, sum(x) = 1, cost . x <= budget}` with at most `most` positive amounts, exactly.

    In the linear relaxation of the branch and bound, a model counts towards `most` with its used share of capacity, `x / capacity`, or with 1 once
    the search has put it in the mix. A model that another model dominates (at least the value and capacity, at most the cost) is used only if the
    other model is used.

    Source: StageRoute (arXiv 2506.17254), eq. (3); the search is ours.

    Args:
      value: `[K]` value of each model per unit of `x`.
      cost: `[K]` non-negative cost of each model per unit of `x`.
      capacity: `[K]` upper bounds of `x`.
      budget: `[]` bound on the cost of `x`.
      most: `[]` largest number of models.
      valid: `[K]` bool, models that may be used (default: all).
      priority: `[K]` numbers that break ties, lower first (default: the index).
      most_nodes: `[]` number of nodes after which the search stops and returns the best mix so far.
      needed: `[]` bool; if False, nothing is searched, and the result is that of an infeasible problem.
    """
    value, cost, capacity, budget, most = boundary.inputs(
        valid, value=value, cost=cost, capacity=capacity, budget=budget, most=most
    )
    count, dtype = value.shape[0], value.dtype
    valid = capacity > 0.0
    priority = lax.iota(jnp.int32, count) if priority is None else priority
    # Amounts sum to one: costs are relative to the budget, and a model's amount is limited by the budget beside the cheapest model.
    cheapest = jnp.min(jnp.where(valid, cost, jnp.inf))
    sound = boundary.feasible(cheapest, budget, jnp.sum(capacity), 1.0, value, cost, capacity) & (most < jnp.inf)
    value, cost = jnp.where(valid, value, 0.0), jnp.where(valid, cost, 0.0)
    budget = jnp.minimum(budget, jnp.max(cost))
    above = jnp.where(valid, cost - cheapest, 0.0)
    left = _SPARE * jnp.maximum(budget - cheapest, 0.0)
    capacity = jnp.where(valid, jnp.where(above * capacity > left, left / jnp.where(above > 0.0, above, 1.0), capacity), 0.0)
    value, cost, capacity = xla.barrier((value, cost, capacity))
    unit = jnp.maximum(jnp.maximum(budget, jnp.where(valid, cheapest, 0.0).max()), np.finfo(dtype).tiny)
    most = jnp.minimum(most, count)
    gain, ones, zeros = value * capacity, jnp.ones((count,), dtype), jnp.zeros((count,), dtype)
    spends = jnp.where(capacity > 0.0, capacity * ((cost - budget) / unit), 0.0)
    tol = tolerance(dtype)

    def program(piece: tuple[Array, Array]) -> Program:
        inside, outside = piece
        places = most - jnp.sum(inside.astype(dtype))
        return Program(
            gain=gain,
            rows=jnp.stack([capacity, spends, jnp.where(inside, zeros, ones)]),
            limit=jnp.stack([jnp.ones((), dtype), jnp.zeros((), dtype), places]),
            low=zeros,
            high=jnp.where(outside, zeros, ones),
            constant=jnp.zeros((), dtype),
        )

    def branch(piece: tuple[Array, Array], at: Basis, best: Array, margin: Array) -> _Branches:
        inside, outside = piece
        free = ~inside & ~outside
        splits = jnp.any(free)  # If all models are decided, both sides are equal and are solved once more.
        used = inside | (free & (at.x > tol))
        fits = jnp.sum(used.astype(dtype)) <= most
        # A free model is decided if the bound after including it, or after excluding it, is no better than the best value.
        least = best + margin
        kept = jnp.maximum(at.reduced, 0.0)
        placed = jnp.maximum(at.reduced + at.price[2], 0.0) - at.price[2]
        out = free & (at.bound - kept + placed <= least)
        inn = free & ~out & (at.bound - kept <= least)
        inside, outside, free = inside | inn, outside | out, free & ~out & ~inn
        part = jnp.minimum(at.x, 1.0 - at.x)
        chosen = numerics.one_hot(numerics.argmax(jnp.where(part > tol, 1.0 + part, at.x), free), count)

        here = functools.partial(numerics.pick, chosen)
        v, c, a = here(value), here(cost), here(capacity)
        order = jnp.sum(jnp.where(chosen, priority, 0))
        same = (value == v) & (cost == c) & (capacity == a)
        behind = (value <= v) & (cost >= c) & (capacity <= a) & (~same | (priority > order))
        ahead = (value >= v) & (cost <= c) & (capacity >= a) & (~same | (priority < order))
        with_it = (inside | chosen | (free & ahead), outside)
        without = (inside, outside | chosen | (free & behind))
        first = here(at.x) >= 0.5
        mixed = jnp.where(fits, jnp.sum(gain * at.x), -jnp.inf)
        return mixed, _where(first, with_it, without), _where(first, without, with_it), splits

    start = (jnp.zeros((count,), bool), capacity <= 0.0)
    found = search(start, program, branch, equal=(True, False, False), depth=count + 1, most_nodes=most_nodes, needed=needed)
    inside, outside = found.piece
    feasible = sound & (found.value > -jnp.inf)
    members = ~outside & (inside | (found.x > tol)) & feasible
    amount = jnp.where(members, found.x * capacity, 0.0)
    found = found._replace(value=jnp.where(sound, found.value, -jnp.inf))
    price = jnp.maximum(found.price[1], 0.0) / unit
    converged = found.converged & boundary.finite(value, cost, capacity)
    return BranchingSolution(
        amount, members, found.value, price, found.residual, converged, found.nodes, found.steps, feasible
    )


def branching_any_win(
    w: Array,
    cost: Array,
    budget: Number,
    size: Number,
    *,
    allowed: Array | None = None,
    groups: Sequence[int] | None = None,
    most_nodes: Array | int = MOST_NODES,
) -> BranchingSolution:
    """Maximises `1 - prod(1 - w_k z_k)` over `{0 <= z <= allowed, sum z <= size, cost . z <= budget}`, by branch and bound.

    `-log` of the product, the `value` of the result, is a sum of convex functions of each `z_k`. A convex function is below its chord between two
    ends. A piece bounds each `z_k` by two ends, so its relaxation by chords is a linear program. The piece is split at the `z_k` whose function is
    farthest below its chord. A model with no larger `w` and no smaller cost than another one of its group has no larger `z_k`.

    Source: C2MAB-V, eq. (3); the search is that of Falk and Soland (1969).

    Args:
      w: `[K]` probabilities in [0, 1] that a model succeeds.
      cost: `[K]` non-negative costs.
      budget: `[]` bound on the cost of `z`.
      size: `[]` bound on the sum of `z`; with groups `[M]`, one for each group.
      allowed: `[K]` bool, models that may be selected (default: all).
      groups: group of each model, from 0 to `M - 1` (static; default: one group).
      most_nodes: `[]` number of nodes after which the search stops and returns the best selection so far.
    """
    w, cost, budget, size = boundary.inputs(allowed, groups, w=w, cost=cost, budget=budget, size=size)
    count, dtype = w.shape[0], w.dtype
    feasible = boundary.feasible(0.0, budget, jnp.inf, size, w, cost)
    allowed = jnp.ones((count,), bool) if allowed is None else jnp.asarray(allowed, bool)
    probability, cost = xla.barrier((jnp.minimum(w, 1.0 - np.finfo(dtype).epsneg), cost))
    kinds = np.ones((1, count), bool) if groups is None else numerics.members(groups)
    # The search is over `z / most`, where `most` is the bound by the budget for one model alone.
    budget = jnp.minimum(budget, jnp.sum(cost))
    unit = jnp.maximum(budget, np.finfo(dtype).tiny)
    left = _SPARE * jnp.maximum(budget, 0.0)
    most = jnp.where(cost > left, left / jnp.where(cost > 0.0, cost, 1.0), 1.0)
    w, most, spends = xla.barrier((probability * most, most, jnp.where(most > 0.0, cost * most / unit, 0.0)))
    rows = jnp.concatenate([spends[None], jnp.where(kinds, most, 0.0)])
    limit = jnp.concatenate([jnp.reshape(budget / unit, (1,)), jnp.minimum(jnp.atleast_1d(size), count)])
    together = kinds.T.astype(int) @ kinds > 0
    short = 64 * np.finfo(dtype).eps

    def weight(z: Array) -> Array:
        return -jnp.log1p(-w * z)

    def program(piece: tuple[Array, Array]) -> Program:
        low, high = piece
        span = high - low
        base = weight(low)
        gain = jnp.where(span > 0.0, (weight(high) - base) / jnp.where(span > 0.0, span, 1.0), 0.0)
        return Program(gain, rows, limit, low, high, jnp.sum(base))

    def branch(piece: tuple[Array, Array], at: Basis, best: Array, margin: Array) -> _Branches:
        low, high = piece
        lp = program(piece)
        wide = high - low > short
        true = weight(at.x)
        gap = weight(low) + lp.gain * (at.x - low) - true
        # Distance of a model from its preferred end at which the bound falls to the best value.
        reach = (at.bound - best + margin) / jnp.where(at.reduced == 0.0, np.finfo(dtype).tiny, jnp.abs(at.reduced))
        nearer = jnp.where(at.reduced > 0.0, jnp.maximum(low, high - reach), low)
        low, high = nearer, jnp.where(at.reduced < 0.0, jnp.minimum(high, low + reach), high)
        splits = jnp.any(wide)
        wide = high - low > short
        chosen = numerics.one_hot(numerics.argmax(gap, wide), count)

        here = functools.partial(numerics.pick, chosen)
        x, bottom, top = here(at.x), here(low), here(high)
        inner = jnp.minimum(x - bottom, top - x) > 0.01 * (top - bottom)
        middle = jnp.where(inner, x, (bottom + top) / 2)
        # `middle` converted to the unit `most` of each other model.
        ends = jnp.where(chosen, middle, jnp.minimum(middle * (here(most) / jnp.where(most > 0.0, most, 1.0)), 1.0))
        better, cheaper = here(probability), here(cost)
        kin = jnp.any(chosen[:, None] & together, axis=0)
        same, place = (probability == better) & (cost == cheaper), lax.iota(jnp.int32, count)
        mine = jnp.sum(jnp.where(chosen, place, 0))
        behind = kin & (probability <= better) & (cost >= cheaper) & (~same | (place > mine))
        ahead = kin & allowed & (probability >= better) & (cost <= cheaper) & (~same | (place < mine))
        below = tuple(jnp.where(chosen | behind, jnp.minimum(end, ends), end) for end in (low, high))
        above = tuple(jnp.where(chosen | ahead, jnp.maximum(end, ends), end) for end in (low, high))
        up = x - bottom >= top - x
        return jnp.sum(true), _where(up, above, below), _where(up, below, above), splits

    start = (jnp.zeros((count,), dtype), (allowed & (most > 0.0)).astype(dtype))
    equal = (False,) * rows.shape[0]
    found = search(start, program, branch, equal=equal, depth=2 * count + 16, most_nodes=most_nodes)
    z = jnp.where(allowed & feasible, found.x * most, 0.0)
    found = found._replace(value=jnp.where(feasible, found.value, -jnp.inf))
    price = jnp.maximum(found.price[0], 0.0) / unit
    converged = found.converged & feasible
    return BranchingSolution(z, z > 0.0, found.value, price, found.residual, converged, found.nodes, found.steps, feasible)
