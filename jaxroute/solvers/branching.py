"""Branch and bound over selections of models, exact, in memory that does not depend on the number of sets.

A node is a piece of the search: what has been decided about each model. Its relaxation is a linear program over a box with a few rows, solved
by a dual simplex method whose basis is as small as the number of rows. Any multipliers of the rows bound the program from above (weak
duality), so that a node is dropped only when it can be, whatever rounding did to the simplex method; the basis goes on from node to node,
for with a box any basis has a choice of bounds that makes it dual feasible.

The search is one loop: each step is a pivot, or a branch, or a return to the last branch with a side left. Under `vmap` all runs step
together until the last of them is done.

Source: Land and Doig (1960), the search; Lemke (1954), the dual simplex method; Falk and Soland (1969), the split of a convex piece at the
solution of its relaxation. The bounds by dominance are ours.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from jaxroute.core import numerics, xla
from jaxroute.solvers import boundary

# Nodes of a search at most, unless told otherwise.
MOST_NODES = 100_000
# What the budget leaves to one model alone is loosened by this: the budget's own row then has the multiplier.
_SPARE = 1.001


class Program(NamedTuple):
    """Linear program of a node: the most of `constant + gain . (x - low)` over `{low <= x <= high, rows @ x <= limit}`, some rows with equality.

    Attributes:
      gain: `[n]`.
      rows: `[R, n]`, of the order of one.
      limit: `[R]`.
      low: `[n]`.
      high: `[n]`.
      constant: `[]`.
    """

    gain: jax.Array
    rows: jax.Array
    limit: jax.Array
    low: jax.Array
    high: jax.Array
    constant: jax.Array


class Solved(NamedTuple):
    """A node's program at a basis.

    Attributes:
      x: `[n]` the basic solution, moved into the box.
      bound: `[]` no point of the node is better by more than the margin, whatever the basis.
      reduced: `[n]` reduced gains: what `bound` loses for each unit that `x` is kept from the end it prefers.
      price: `[R]` multipliers of the rows.
      margin: `[]` what counts as no better than the best point found before.
      best: `[]` value of the best point found before.
    """

    x: jax.Array
    bound: jax.Array
    reduced: jax.Array
    price: jax.Array
    margin: jax.Array
    best: jax.Array


class Branches(NamedTuple):
    """What a problem makes of a node whose program is solved.

    Attributes:
      value: `[]` of the solution, -inf if it is no solution of the problem.
      near: piece to go on with.
      far: piece to return to.
      splits: `[]` bool, whether anything is left to split.
    """

    value: jax.Array
    near: Any
    far: Any
    splits: jax.Array


class Found(NamedTuple):
    """Result of a search.

    Attributes:
      x: `[n]` the best point found; zero if none is feasible.
      piece: that it lies in.
      value: `[]` its value, -inf if none is feasible.
      price: `[R]` multipliers of the rows there.
      residual: `[]` by how much a point that was not looked at may be better: 0 when the search is complete.
      converged: `[]` bool, whether the search is complete.
      nodes: `[]` int32, nodes that were looked at.
      steps: `[]` int32, steps of the loop, pivots included.
    """

    x: jax.Array
    piece: Any
    value: jax.Array
    price: jax.Array
    residual: jax.Array
    converged: jax.Array
    nodes: jax.Array
    steps: jax.Array


class _Search(NamedTuple):
    """State of the loop.

    Attributes:
      piece: of the node in work.
      basis: `[R]` int32, the basic columns; those from `n` on are slacks.
      upper: `[n + R]` bool, columns outside the basis that are at their upper end.
      pivots: `[]` int32, of this node.
      stack: pieces to return to, the last one first.
      bounds: `[depth + 1]` theirs.
      waiting: `[]` int32, how many there are.
      lost: `[]` largest bound of what was given up.
      found: the best so far.
      running: `[]` bool.
    """

    piece: Any
    basis: jax.Array
    upper: jax.Array
    pivots: jax.Array
    stack: Any
    bounds: jax.Array
    waiting: jax.Array
    lost: jax.Array
    found: Found
    running: jax.Array


def tolerance(dtype: DTypeLike) -> float:
    """What counts as rounding, of sums of the order of one."""
    return float(np.finfo(dtype).eps ** 0.8)


def search(
    start: Any,
    program: Callable[[Any], Program],
    branch: Callable[[Any, Solved], Branches],
    *,
    equal: tuple[bool, ...],
    depth: int,
    most_nodes: jax.Array | int = MOST_NODES,
    needed: jax.Array | bool = True,
) -> Found:
    """Depth-first branch and bound.

    Args:
      start: piece of the root, a pytree of arrays.
      program: relaxation of a piece; its columns and gains may differ from node to node.
      branch: what a solved node is worth, and its two sides.
      equal: which rows must be met with equality (static).
      depth: pieces that can wait (static); what does not fit is counted as given up.
      most_nodes: `[]` nodes to look at; up to `depth` more while no point is found.
      needed: `[]` bool, whether to search at all.
    """
    root = jax.eval_shape(program, start)
    count, dtype, num_rows = root.gain.shape[-1], root.gain.dtype, len(equal)
    most_pivots = 8 * (count + num_rows)
    slacks = count + lax.iota(jnp.int32, num_rows)
    lowest = jnp.full((), -jnp.inf, dtype)
    zero = jnp.zeros((), jnp.int32)

    def go_on(s: _Search) -> jax.Array:
        return s.running

    def step(s: _Search) -> _Search:
        lp = program(s.piece)
        view = _simplex(lp, equal, s.basis, s.upper)
        best = s.found.value
        margin = _margin(best)
        hopeless = ~(view.bound > best + margin)
        tired = (s.pivots >= most_pivots) | view.stuck
        pivot = ~hopeless & ~view.feasible & ~view.impossible & ~tired
        done = ~hopeless & (view.feasible | (tired & ~view.impossible))

        solved = Solved(view.x, view.bound, view.reduced, view.price, margin, best)
        sides = branch(s.piece, solved)
        value = jnp.where(view.feasible & done, sides.value, -jnp.inf)
        better = value > best
        best = jnp.where(better, value, best)
        margin = _margin(best)
        found = _where(better, Found(view.x, s.piece, value, view.price, *s.found[4:]), s.found)
        beaten = view.bound <= best + margin
        splits = done & ~beaten & sides.splits
        stuck = done & ~beaten & ~sides.splits & ~view.feasible
        room = s.waiting < depth
        lost = jnp.where(stuck | (splits & ~room), jnp.maximum(s.lost, view.bound), s.lost)

        stack = jax.tree.map(lambda table, x: numerics.put(table, (s.waiting,), x), s.stack, sides.far)
        bounds = numerics.put(s.bounds, (s.waiting,), view.bound)
        waiting = jnp.where(splits & room, s.waiting + 1, s.waiting)

        # Back to the last piece that may still hold a better point.
        back = ~pivot & ~splits
        place = lax.iota(jnp.int32, depth + 1)
        alive = (place < waiting) & (bounds > best + margin)
        last = jnp.max(jnp.where(alive, place, -1))
        popped = jax.tree.map(lambda table: numerics.at(table, (jnp.maximum(last, 0),)), stack)
        piece = _where(back, popped, _where(splits, sides.near, s.piece))
        waiting = jnp.where(back, jnp.maximum(last, 0), waiting)
        running = ~(back & (last < 0))

        nodes = found.nodes + jnp.where(pivot, 0, 1)
        # The first dive may go on until it has found something.
        over = running & (nodes >= most_nodes + jnp.where(best > -jnp.inf, 0, depth))
        left = jnp.maximum(
            jnp.max(jnp.where(alive & (place < waiting), bounds, -jnp.inf)),
            jnp.where(back, bounds[jnp.maximum(last, 0)], view.bound),
        )
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

    found = Found(
        x=jnp.zeros((count,), dtype),
        piece=start,
        value=lowest,
        price=jnp.zeros((num_rows,), dtype),
        residual=jnp.zeros((), dtype),
        converged=jnp.asarray(True),
        nodes=zero,
        steps=zero,
    )
    first = _Search(
        piece=start,
        basis=slacks,
        upper=jnp.zeros((count + num_rows,), bool),
        pivots=zero,
        stack=jax.tree.map(lambda x: jnp.zeros((depth + 1, *x.shape), x.dtype), start),
        bounds=jnp.full((depth + 1,), -jnp.inf, dtype),
        waiting=zero,
        lost=lowest,
        found=found,
        running=jnp.asarray(needed, bool),
    )
    last = lax.while_loop(go_on, step, first)
    found = last.found
    complete = ~(last.lost > found.value + _margin(found.value))
    residual = jnp.where(complete, 0.0, last.lost - found.value)
    return found._replace(residual=residual, converged=complete)


def _margin(best: jax.Array) -> jax.Array:
    """By how much a bound may be above the best value and still count as no better. Not relative to a bound: at some bases they are huge."""
    return tolerance(best.dtype) * jnp.maximum(jnp.where(best > -jnp.inf, jnp.abs(best), 0.0), 1.0)


def _where(mask: jax.Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda n, o: jnp.where(mask, n, o), new, old)


class _View(NamedTuple):
    """A program at a basis, and the next basis.

    Attributes:
      x: `[n]` the basic solution, in the box.
      bound: `[]` of the program.
      reduced: `[n]` reduced gains.
      price: `[R]` multipliers.
      feasible: `[]` bool, the basic solution is in the box, and so optimal.
      impossible: `[]` bool, no point of the box meets the rows.
      stuck: `[]` bool, neither, but there is no pivot that is more than rounding.
      upper: `[n + R]` bool, at the upper end.
      basis: `[R]` int32, the next one.
      next_upper: `[n + R]` bool, there.
    """

    x: jax.Array
    bound: jax.Array
    reduced: jax.Array
    price: jax.Array
    feasible: jax.Array
    impossible: jax.Array
    stuck: jax.Array
    upper: jax.Array
    basis: jax.Array
    next_upper: jax.Array


def _simplex(lp: Program, equal: tuple[bool, ...], basis: jax.Array, upper: jax.Array) -> _View:
    """One step of the dual simplex method with bounds on both sides.

    Args:
      lp: the program.
      equal: rows with equality.
      basis: `[R]` int32.
      upper: `[n + R]` bool.
    """
    count, num_rows, dtype = lp.gain.shape[-1], len(equal), lp.gain.dtype
    tol = tolerance(dtype)
    # From here on columns begin at 0: what differs little is not the difference of what is large.
    limit, range_ = lp.limit - jnp.sum(lp.rows * lp.low, axis=1), lp.high - lp.low
    slack = limit - jnp.sum(jnp.minimum(lp.rows, 0.0) * range_, axis=1)
    columns = jnp.concatenate([lp.rows, jnp.eye(num_rows, dtype=dtype)], axis=1)
    gain = jnp.concatenate([lp.gain, jnp.zeros((num_rows,), dtype)])
    span = jnp.concatenate([range_, jnp.where(np.asarray(equal), 0.0, jnp.maximum(slack, 0.0))])

    def basics(basis: jax.Array) -> jax.Array:
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

    # Moving a column off its end must move the worst basic variable towards its box.
    weights = jnp.sum(jnp.where(worst[:, None], inverse, 0.0), axis=0)
    row = jnp.sum(weights[:, None] * columns, axis=0)
    helps = jnp.where(up, -row, row) * jnp.where(upper, -1.0, 1.0)
    eligible = ~basic & (span > 0.0) & (helps > 4 * np.finfo(dtype).eps)
    # The rows, so weighted, cannot hold even if all columns move as far as they can; large weights make small roundings large.
    reach = jnp.sum(jnp.where(basic, 0.0, jnp.maximum(helps, 0.0) * span))
    impossible = most > reach + tol * jnp.maximum(jnp.sum(jnp.abs(weights)), 1.0)
    x = jnp.clip(outside + jnp.sum(jnp.where(chosen, inside[:, None], 0.0), axis=0), 0.0, span)[:count]
    missing = limit - jnp.sum(lp.rows * x, axis=1)
    missing = jnp.where(np.asarray(equal), jnp.abs(missing), jnp.maximum(-missing, 0.0))
    feasible |= ~jnp.any(eligible) & ~impossible & (jnp.max(missing) <= 4 * tol)
    size = jnp.where(eligible, helps, 1.0)
    # Of the columns whose reduced gains vanish first, within rounding, the one with the largest pivot.
    first = jnp.min(jnp.where(eligible, (jnp.abs(slope) + slope_tol) / size, jnp.inf))
    entering = numerics.argmax(jnp.where(eligible & (jnp.abs(slope) / size <= first), helps, -1.0))
    leaving = jnp.any(chosen & worst[:, None], axis=0)
    return _View(
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


def _inverse(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The inverse of a small matrix `[R, R]` by elimination with pivots, and whether it has one."""
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


class SparseMix(NamedTuple):
    """The best mix of few models.

    Attributes:
      members: `[K]` bool, the models of the mix, at most so many as were allowed.
      amount: `[K]`.
      value: `[]`, -inf if no mix is feasible.
      multiplier: `[]` shadow price of the budget in the last linear program.
      residual: `[]` by how much another mix may be better: 0 when the search is complete.
      converged: `[]` bool, whether the search is complete.
      nodes: `[]` int32, nodes of the search.
      steps: `[]` int32, steps of its loop.
      feasible: `[]` bool, whether the constraints admit a point and all numbers are finite.
    """

    members: jax.Array
    amount: jax.Array
    value: jax.Array
    multiplier: jax.Array
    residual: jax.Array
    converged: jax.Array
    nodes: jax.Array
    steps: jax.Array
    feasible: jax.Array


def sparse_fill(
    value: jax.Array,
    cost: jax.Array,
    capacity: jax.Array,
    budget: jax.Array | float,
    most: jax.Array | int,
    *,
    valid: jax.Array | None = None,
    priority: jax.Array | None = None,
    most_nodes: jax.Array | int = MOST_NODES,
    needed: jax.Array | bool = True,
) -> SparseMix:
    """Maximises `value . x` over `{0 <= x <= capacity, sum(x) = 1, cost . x <= budget}` with at most `most` positive amounts, exactly.

    The relaxation counts a model by the part of its capacity that is used, until it is decided that the model belongs to the mix. A
    model that is no better than another in value, cost and capacity is used only beside it.

    Source: StageRoute (arXiv 2506.17254), eq. (3); the search is ours.

    Args:
      value: `[K]`.
      cost: `[K]` non-negative.
      capacity: `[K]` non-negative.
      budget: `[]`.
      most: `[]` whole number.
      valid: `[K]` bool, models that may be used (default all).
      priority: `[K]` int32, which of equal models comes first (default the index).
      most_nodes: `[]` nodes after which the best mix so far is returned.
      needed: `[]` bool; without need no node is looked at.
    """
    value, cost, capacity, budget, most = boundary.inputs(
        valid, value=value, cost=cost, capacity=capacity, budget=budget, most=most
    )
    count, dtype = value.shape[0], value.dtype
    valid = capacity > 0.0
    priority = lax.iota(jnp.int32, count) if priority is None else priority
    # Amounts sum to one: costs count from the budget, and a model has no more than the budget allows beside the cheapest one.
    cheapest = jnp.min(jnp.where(valid, cost, jnp.inf))
    sound = boundary.feasible(cheapest, budget, jnp.sum(capacity), 1.0, value, cost, capacity) & (most < jnp.inf)
    value, cost = jnp.where(valid, value, 0.0), jnp.where(valid, cost, 0.0)
    budget = jnp.minimum(budget, jnp.max(cost))
    above = jnp.where(valid, cost - cheapest, 0.0)
    room = _SPARE * jnp.maximum(budget - cheapest, 0.0)
    capacity = jnp.where(valid, jnp.where(above * capacity > room, room / jnp.where(above > 0.0, above, 1.0), capacity), 0.0)
    value, cost, capacity = xla.barrier((value, cost, capacity))
    unit = jnp.maximum(jnp.maximum(budget, jnp.where(valid, cheapest, 0.0).max()), np.finfo(dtype).tiny)
    most = jnp.minimum(most, count)
    gain, ones, zeros = value * capacity, jnp.ones((count,), dtype), jnp.zeros((count,), dtype)
    spends = jnp.where(capacity > 0.0, capacity * ((cost - budget) / unit), 0.0)
    tol = tolerance(dtype)

    def program(piece: tuple[jax.Array, jax.Array]) -> Program:
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

    def branch(piece: tuple[jax.Array, jax.Array], at: Solved) -> Branches:
        inside, outside = piece
        free = ~inside & ~outside
        splits = jnp.any(free)  # If all are decided below, both sides are the same, and solved once more.
        used = inside | (free & (at.x > tol))
        fits = jnp.sum(used.astype(dtype)) <= most
        # What is left of the bound if a free model is kept out, and if it is given a place.
        least = at.best + at.margin
        kept = jnp.maximum(at.reduced, 0.0)
        placed = jnp.maximum(at.reduced + at.price[2], 0.0) - at.price[2]
        out = free & (at.bound - kept + placed <= least)
        inn = free & ~out & (at.bound - kept <= least)
        inside, outside, free = inside | inn, outside | out, free & ~out & ~inn
        part = jnp.minimum(at.x, 1.0 - at.x)
        chosen = numerics.one_hot(numerics.argmax(jnp.where(part > tol, 1.0 + part, at.x), free), count)

        def here(x: jax.Array) -> jax.Array:
            return numerics.pick(chosen, x)

        v, c, a = here(value), here(cost), here(capacity)
        order = jnp.sum(jnp.where(chosen, priority, 0))
        same = (value == v) & (cost == c) & (capacity == a)
        behind = (value <= v) & (cost >= c) & (capacity <= a) & (~same | (priority > order))
        ahead = (value >= v) & (cost <= c) & (capacity >= a) & (~same | (priority < order))
        with_it = (inside | chosen | (free & ahead), outside)
        without = (inside, outside | chosen | (free & behind))
        first = here(at.x) >= 0.5
        return Branches(
            value=jnp.where(fits, jnp.sum(gain * at.x), -jnp.inf),
            near=_where(first, with_it, without),
            far=_where(first, without, with_it),
            splits=splits,
        )

    start = (jnp.zeros((count,), bool), capacity <= 0.0)
    found = search(start, program, branch, equal=(True, False, False), depth=count + 1, most_nodes=most_nodes, needed=needed)
    inside, outside = found.piece
    feasible = sound & (found.value > -jnp.inf)
    members = ~outside & (inside | (found.x > tol)) & feasible
    return SparseMix(
        members=members,
        amount=jnp.where(members, found.x * capacity, 0.0),
        value=jnp.where(sound, found.value, -jnp.inf),
        multiplier=jnp.maximum(found.price[1], 0.0) / unit,
        residual=found.residual,
        converged=found.converged & boundary.finite(value, cost, capacity),
        nodes=found.nodes,
        steps=found.steps,
        feasible=feasible,
    )


class SearchedSelection(NamedTuple):
    """A relaxed selection, found by a search.

    Attributes:
      z: `[K]` in [0, 1].
      value: `[]` `-log` of the probability that all fail.
      multiplier: `[]` shadow price of the budget in the linear program that found it.
      residual: `[]` by how much another selection's `value` may be larger: 0 when the search is complete.
      converged: `[]` bool, whether the search is complete.
      nodes: `[]` int32, nodes of the search.
      steps: `[]` int32, steps of its loop.
      feasible: `[]` bool, whether the constraints admit a point and all numbers are finite.
    """

    z: jax.Array
    value: jax.Array
    multiplier: jax.Array
    residual: jax.Array
    converged: jax.Array
    nodes: jax.Array
    steps: jax.Array
    feasible: jax.Array


def branching_any_win(
    w: jax.Array,
    cost: jax.Array,
    budget: jax.Array | float,
    size: jax.Array | float,
    *,
    allowed: jax.Array | None = None,
    groups: Sequence[int] | None = None,
    most_nodes: jax.Array | int = MOST_NODES,
) -> SearchedSelection:
    """Maximises `1 - prod(1 - w_k z_k)` over `{0 <= z <= allowed, sum z <= size, cost . z <= budget}`, by branch and bound.

    `-log` of the probability that all fail is a sum of convex functions of each `z_k`. Between two ends a convex function is below its chord,
    so that the relaxation of a piece, in which each `z_k` is between two ends, is a linear program. A piece is split where the
    solution of its relaxation is farthest from the chord's function. Of two models of a group, one no better and no cheaper than the other,
    the other one is selected at least as far.

    Source: C2MAB-V, eq. (3); the search is that of Falk and Soland (1969).

    Args:
      w: `[K]` probabilities in [0, 1].
      cost: `[K]` non-negative.
      budget: `[]`.
      size: `[]`; with groups `[M]`, that of each.
      allowed: `[K]` bool (default all).
      groups: group of each model, from 0 (static).
      most_nodes: `[]` nodes after which the best selection so far is returned.
    """
    w, cost, budget, size = boundary.inputs(allowed, groups, w=w, cost=cost, budget=budget, size=size)
    count, dtype = w.shape[0], w.dtype
    feasible = boundary.feasible(0.0, budget, jnp.inf, size, w, cost)
    allowed = jnp.ones((count,), bool) if allowed is None else jnp.asarray(allowed, bool)
    probability, cost = xla.barrier((jnp.minimum(w, 1.0 - np.finfo(dtype).epsneg), cost))
    kinds = np.ones((1, count), bool) if groups is None else numerics.members(groups)
    # The search is over `z / most`, where `most` is what the budget leaves to one model alone.
    budget = jnp.minimum(budget, jnp.sum(cost))
    unit = jnp.maximum(budget, np.finfo(dtype).tiny)
    room = _SPARE * jnp.maximum(budget, 0.0)
    most = jnp.where(cost > room, room / jnp.where(cost > 0.0, cost, 1.0), 1.0)
    w, most, spends = xla.barrier((probability * most, most, jnp.where(most > 0.0, cost * most / unit, 0.0)))
    rows = jnp.concatenate([spends[None], jnp.where(kinds, most, 0.0)])
    limit = jnp.concatenate([jnp.reshape(budget / unit, (1,)), jnp.minimum(jnp.atleast_1d(size), count)])
    together = kinds.T.astype(int) @ kinds > 0
    short = 64 * np.finfo(dtype).eps

    def weight(z: jax.Array) -> jax.Array:
        return -jnp.log1p(-w * z)

    def program(piece: tuple[jax.Array, jax.Array]) -> Program:
        low, high = piece
        span = high - low
        base = weight(low)
        gain = jnp.where(span > 0.0, (weight(high) - base) / jnp.where(span > 0.0, span, 1.0), 0.0)
        return Program(gain, rows, limit, low, high, jnp.sum(base))

    def branch(piece: tuple[jax.Array, jax.Array], at: Solved) -> Branches:
        low, high = piece
        lp = program(piece)
        wide = high - low > short
        true = weight(at.x)
        gap = weight(low) + lp.gain * (at.x - low) - true
        # How far a model can be kept from the end it prefers before the bound is beaten.
        reach = (at.bound - at.best + at.margin) / jnp.where(at.reduced == 0.0, np.finfo(dtype).tiny, jnp.abs(at.reduced))
        low, high = (
            jnp.where(at.reduced > 0.0, jnp.maximum(low, high - reach), low),
            jnp.where(at.reduced < 0.0, jnp.minimum(high, low + reach), high),
        )
        splits = jnp.any(wide)
        wide = high - low > short
        chosen = numerics.one_hot(numerics.argmax(gap, wide), count)

        def here(x: jax.Array) -> jax.Array:
            return numerics.pick(chosen, x)

        x, bottom, top = here(at.x), here(low), here(high)
        inner = jnp.minimum(x - bottom, top - x) > 0.01 * (top - bottom)
        middle = jnp.where(inner, x, (bottom + top) / 2)
        # The same selection of the other models.
        ends = jnp.where(chosen, middle, jnp.minimum(middle * (here(most) / jnp.where(most > 0.0, most, 1.0)), 1.0))
        better, cheaper = here(probability), here(cost)
        kin = jnp.any(chosen[:, None] & together, axis=0)
        same, place = (probability == better) & (cost == cheaper), lax.iota(jnp.int32, count)
        mine = jnp.sum(jnp.where(chosen, place, 0))
        behind = kin & (probability <= better) & (cost >= cheaper) & (~same | (place > mine))
        ahead = kin & allowed & (probability >= better) & (cost <= cheaper) & (~same | (place < mine))
        below = (
            jnp.where(chosen | behind, jnp.minimum(low, ends), low),
            jnp.where(chosen | behind, jnp.minimum(high, ends), high),
        )
        above = (
            jnp.where(chosen | ahead, jnp.maximum(low, ends), low),
            jnp.where(chosen | ahead, jnp.maximum(high, ends), high),
        )
        up = x - bottom >= top - x
        return Branches(jnp.sum(true), _where(up, above, below), _where(up, below, above), splits)

    start = (jnp.zeros((count,), dtype), (allowed & (most > 0.0)).astype(dtype))
    equal = (False,) * rows.shape[0]
    found = search(start, program, branch, equal=equal, depth=2 * count + 16, most_nodes=most_nodes)
    return SearchedSelection(
        z=jnp.where(allowed & feasible, found.x * most, 0.0),
        value=jnp.where(feasible, found.value, -jnp.inf),
        multiplier=jnp.maximum(found.price[0], 0.0) / unit,
        residual=found.residual,
        converged=found.converged & feasible,
        nodes=found.nodes,
        steps=found.steps,
        feasible=feasible,
    )
