"""Fractional knapsack with one budget: the linear program behind every routing decision of the papers."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxroute.core import numerics, xla
from jaxroute.solvers import boundary
from jaxroute.solvers.boundary import Number


class FillSolution(NamedTuple):
    """Solution of `budgeted_fill`.

    Attributes:
      amount: `[K]` optimal amounts; the cheapest ones if the budget is too small; the capacities, scaled to sum to `total`, if these are too small.
      multiplier: `[]` shadow price of the budget, value per unit of cost; the last multiplier tried if infeasible.
      feasible: `[]` bool, whether the constraints admit a point; False if a number is NaN or infinite.
      residual: `[]` increase of the Lagrangian, in units of value, by one more dual step; 0 at the optimum.
      converged: `[]` bool, whether `residual` is zero to rounding.
    """

    amount: Array
    multiplier: Array
    feasible: Array
    residual: Array
    converged: Array


def default_steps(size: int) -> int:
    """Returns a number of dual steps that sufficed, with a reserve, on each of 660,000 instances with up to `size` models."""
    for limit, steps in ((2, 1), (3, 3), (6, 6), (10, 8), (15, 12)):
        if size <= limit:
            return steps
    return 12 + (size - 15) // 2


# A fill: amounts `[K]`, their cost `[]` and their value `[]`.
_Fill = tuple[Array, Array, Array]


def budgeted_fill(
    value: Array,
    cost: Array,
    capacity: Array,
    budget: Number,
    total: Number = 1.0,
    *,
    groups: Sequence[int] | None = None,
    valid: Array | None = None,
    priority: Array | None = None,
    steps: int | None = None,
) -> FillSolution:
    """Maximises `value . x` over `{0 <= x <= capacity, sum(x) = total, cost . x <= budget}`, exactly.

    A fill uses the models in a certain order, each up to its capacity, until the sum is `total`. The order by `value - lam * cost` maximises the
    Lagrangian for the multiplier `lam` of the budget. Two fills enclose the budget: the best (`lam = 0`) and the cheapest. A step takes the slope
    between the two in the cost-value plane as the next multiplier. The fill of this multiplier replaces the more expensive of the two if it exceeds
    the budget, else the cheaper one. Finitely many steps suffice, because each effective one reaches a new vertex of the frontier. The answer mixes
    the last two fills to meet the budget with equality.

    Source: StageRoute (arXiv 2506.17254), eq. (7). The dual method and the number of steps are ours.

    Args:
      value: `[K]` value per unit (a score or an upper confidence bound).
      cost: `[K]` cost per unit.
      capacity: `[K]` upper bounds, non-negative.
      budget: `[]` bound on the cost of `x`, in the unit of `cost`.
      total: `[]` required sum of `x`; with groups `[M]`, the required sum of each group.
      groups: group of each model, from 0 (static); each group is filled separately under the common budget.
      valid: `[K]` bool, models that may be used (default: all).
      priority: `[K]` numbers that break remaining ties, lower first (default: the index).
      steps: number of dual steps (static; default: by the number of models).
    """
    value, cost, capacity, budget, total = boundary.inputs(
        valid, groups, value=value, cost=cost, capacity=capacity, budget=budget, total=total
    )
    size = value.shape[0]
    steps = default_steps(size) if steps is None else steps
    tiny = np.finfo(value.dtype).tiny
    (value, cost), capacity = xla.barrier((value, cost)), xla.compute_once(capacity)
    priority = lax.iota(jnp.int32, size) if priority is None else priority
    # A model is not compared with itself: a compiler that drops barriers may round the two copies of its key differently.
    together, largest = ~np.eye(size, dtype=bool), jnp.sum(capacity)
    if groups is not None:
        inside = np.equal.outer(groups, groups)
        together &= inside
        largest = jnp.sum(jnp.where(inside, capacity[None, :], 0.0), axis=1)
        total = numerics.of_group(groups, total)

    # Last tie-break of all fills: the cheaper model, then by priority.
    place = numerics.rank(-cost, -priority, together=~np.eye(size, dtype=bool))

    def fill(keys: Sequence[Array], ahead: Callable[[Sequence, Sequence], Array]) -> _Fill:
        """Returns amounts, cost and value of a fill. `ahead(other, this)` tells from the `keys` of two models whether the other one is used first."""
        used = xla.sum_over_better(capacity, keys, ahead, together=together)
        x = xla.compute_once(jnp.clip(total - used, 0.0, capacity))
        return x, jnp.sum(cost * x), jnp.sum(value * x)

    def lexicographic(other: Sequence[Array], this: Sequence[Array]) -> Array:
        tie = (other[1] > this[1]) | ((other[1] == this[1]) & (other[2] < this[2]))
        return (other[0] > this[0]) | ((other[0] == this[0]) & tie)

    def at(slope: Array) -> _Fill:
        # Ties values to the slope: otherwise the compiler moves the differences out of the loop, and writes and reads each of them.
        (values, costs), slope = xla.compute_once(((value, cost), slope))

        def ahead(other: Sequence[Array], this: Sequence[Array]) -> Array:
            return (other[0] - this[0]) - slope * (other[1] - this[1]) > 0

        # Rounded gains need not be transitive: three collinear models may be ahead of each other in a circle. The number of models
        # ahead of each model gives a total order (the same one, if the gains had one), and so the right sum of the fill.
        order = xla.sum_over_better(jnp.full_like(place, size), (values, costs), ahead, together=together, start=place)
        return fill((xla.barrier(order),), lambda other, this: other[0] < this[0])

    def slope_of(over: _Fill, under: _Fill) -> Array:
        spread = over[1] - under[1]
        return jnp.where(spread > 0, (over[2] - under[2]) / jnp.where(spread > 0, spread, 1.0), 0.0)

    best, cheapest = fill((value, -cost, place), lexicographic), fill((-cost, value, place), lexicographic)
    limit = budget * (1.0 + boundary.rounding(value.dtype))
    slack, affordable = best[1] <= limit, cheapest[1] <= limit

    def step(_: Array, ends: tuple[_Fill, _Fill]) -> tuple[_Fill, _Fill]:
        over, under = ends
        new = at(slope_of(over, under))
        above = new[1] > limit

        def moved(end: _Fill, replace: bool) -> _Fill:
            return jax.tree.map(lambda n, o: jnp.where(above == replace, n, o), new, end)

        return moved(over, True), moved(under, False)

    over, under = xla.repeat(steps, step, (best, cheapest))
    slope = slope_of(over, under)
    share = jnp.clip((budget - under[1]) / jnp.maximum(over[1] - under[1], tiny), 0.0, 1.0)
    enough = largest >= total * (1.0 - boundary.rounding(value.dtype))  # [] or [K]
    amount = jnp.where(slack, best[0], jnp.where(affordable, under[0] + share * (over[0] - under[0]), cheapest[0]))
    amount = jnp.where(enough, amount, capacity * (total / jnp.maximum(largest, tiny)))
    # One more fill at the final slope must gain nothing; dead code unless `residual` is read.
    last = at(slope)
    residual = jnp.where(slack | ~affordable, 0.0, jnp.maximum((last[2] - under[2]) - slope * (last[1] - under[1]), 0.0))
    scale = jnp.max(jnp.abs(value)) + jnp.where(slack, 0.0, slope * budget)
    return FillSolution(
        amount=amount,
        multiplier=jnp.where(slack, 0.0, slope),
        feasible=boundary.feasible(jnp.minimum(cheapest[1], best[1]), budget, largest, total, value, cost, capacity),
        residual=residual,
        converged=residual <= 64 * np.finfo(value.dtype).eps * scale,
    )
