"""Euclidean projection onto bounds, a sum and a budget, the differentiable linear program based on it, and projected gradient ascent."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from jaxroute.core import checks, xla
from jaxroute.solvers import boundary
from jaxroute.solvers.boundary import Number

# Newton steps on the multiplier of the budget; where Newton leaves the bracket, the bracket is halved.
_STEPS = 24
# For more models the multiplier of the sum is found by Newton steps too, without arrays of size K x K.
_MANY = 64
_MOST_STEPS = 64


class Projection(NamedTuple):
    """Projection of a point onto `{0 <= z <= upper, sum z = total (or <=), cost . z <= budget}`.

    Attributes:
      z: `[K]` nearest point.
      sum_multiplier: `[]` multiplier of the sum.
      budget_multiplier: `[]` multiplier of the budget, non-negative.
      feasible: `[]` bool, whether some point meets the constraints and all numbers are finite; otherwise `z` is approximately the cheapest point with
        the required or largest possible sum.
      residual: `[]` largest violation of the optimality conditions, over coordinates, sum and budget.
      converged: `[]` bool, whether `residual` is zero to rounding; False if infeasible.
    """

    z: Array
    sum_multiplier: Array
    budget_multiplier: Array
    feasible: Array
    residual: Array
    converged: Array


# Projection without its certificate: `z`, multiplier of the sum, multiplier of the budget, and whether the set is not empty.
_Solution = tuple[Array, Array, Array, Array]
# Solver of `_rows`: `(change, sum_side, budget_side) -> (least change, multiplier of the sum, multiplier of the budget)`.
_RowSolver = Callable[[Array, Array, Array], tuple[Array, Array, Array]]


def _level(u: Array, upper: Array, total: Array, at_most: bool) -> Array:
    """Returns the number `nu` for which `clip(u - nu, 0, upper)` `[K]` sums to `total`; if the sum may be smaller (`at_most`), `nu` is at least 0."""
    if u.shape[-1] > _MANY:
        return _level_of_many(u, upper, total, at_most)
    breaks = jnp.concatenate([u, u - upper])
    sums = jnp.sum(jnp.clip(u[None, :] - breaks[:, None], 0.0, upper[None, :]), axis=1)  # decreasing in the breakpoint
    below = jnp.max(jnp.where(sums >= total, breaks, -jnp.inf))
    above = jnp.min(jnp.where(sums <= total, breaks, jnp.inf))
    # A total of zero or of all of `upper` has breakpoints on one side only; the nearest breakpoint then serves for both.
    below = jnp.where(jnp.isfinite(below), below, jnp.min(breaks))
    above = jnp.where(jnp.isfinite(above), above, jnp.max(breaks))
    high, low = (jnp.sum(jnp.clip(u - nu, 0.0, upper)) for nu in (below, above))
    share = jnp.where(high > low, (high - total) / jnp.where(high > low, high - low, 1.0), 0.0)
    nu = below + jnp.clip(share, 0.0, 1.0) * (above - below)
    return jnp.where(jnp.sum(upper) < total, 0.0, jnp.maximum(nu, 0.0)) if at_most else nu


def _level_of_many(u: Array, upper: Array, total: Array, at_most: bool) -> Array:
    """Computes `_level` (same arguments) for many models: bracketed Newton steps find `nu` up to rounding."""
    eps = np.finfo(u.dtype).eps

    def at(nu: Array) -> tuple[Array, Array]:
        left = u - nu
        excess = jnp.sum(jnp.clip(left, 0.0, upper)) - total
        return excess, jnp.sum(((left > 0.0) & (left < upper)).astype(u.dtype))

    def go_on(state: tuple[Array, ...]) -> Array:
        number, _, _, _, excess, _, width, last = state
        return (number < _MOST_STEPS) & (jnp.abs(excess) > 4.0 * eps * total) & (width < last)

    def step(state: tuple[Array, ...]) -> tuple[Array, ...]:
        number, low, high, nu, excess, free, width, _ = state
        low, high = jnp.where(excess > 0.0, nu, low), jnp.where(excess > 0.0, high, nu)
        newton = nu + excess / jnp.maximum(free, 1.0)
        middle = low + 0.5 * (high - low)
        inside = (free > 0.0) & (newton > low) & (newton < high) & (number % 4 != 3)
        nu = jnp.where(inside, newton, middle)
        return (number + 1, low, high, nu, *at(nu), high - low, width)

    low, high = jnp.min(u - upper), jnp.max(u)
    nu = low + 0.5 * (high - low)
    infinite = jnp.full((), jnp.inf, u.dtype)
    start = (jnp.zeros((), jnp.int32), low, high, nu, *at(nu), 2.0 * (high - low) + 1.0, infinite)
    nu = jax.lax.while_loop(go_on, step, start)[3]
    return jnp.where(jnp.sum(upper) < total, 0.0, jnp.maximum(nu, 0.0)) if at_most else nu


@partial(jax.custom_jvp, nondiff_argnums=(5,))
def _project(y: Array, cost: Array, budget: Array, total: Array, upper: Array, at_most: bool) -> _Solution:
    """Solves `project` (same arguments). Returns `z` `[K]`, the multipliers of the sum and of the budget, and whether a solution exists."""
    eps = np.finfo(y.dtype).eps
    cheapest = _cheapest(cost, upper, total, at_most)
    # The cost of the most expensive model in use if the sum is made up of the cheapest ones. A large multiplier of the budget orders models by cost,
    # and models between their bounds have costs near this one. With a fixed sum the shift affects only rounding: it makes the relevant costs small.
    margin = jnp.zeros((), cost.dtype) if at_most else jnp.max(jnp.where(cheapest > 0.0, cost, 0.0))
    extra = cost - margin
    largest = jnp.max(jnp.where(upper > 0.0, jnp.abs(y), 0.0))

    def at(multiplier: Array) -> tuple[Array, Array, Array]:
        u = y - multiplier * extra
        nu = _level(u, upper, total, at_most)
        z = jnp.clip(u - nu, 0.0, upper)
        return nu, z, jnp.sum(cost * z) - budget

    def slope(nu: Array, z: Array) -> tuple[Array, Array]:
        free = (z > 0.0) & (z < upper)
        number = jnp.sum(free.astype(y.dtype))
        c = jnp.where(free, cost, 0.0)
        mean = jnp.sum(c) / jnp.maximum(number, 1.0)
        mean = jnp.where(nu > 0.0, mean, 0.0) if at_most else mean
        rounding = 4.0 * eps * (largest + jnp.abs(nu))  # of amounts; an amount that is only rounding does not count
        noise = rounding * jnp.sum(jnp.where(z > rounding, c, 0.0))
        return jnp.sum(jnp.where(free, jnp.square(cost - mean), 0.0)), noise

    # Beyond this multiplier the order of y - multiplier * cost is that of -cost alone, with gaps of at least one.
    gaps = jnp.diff(jnp.sort(cost)) if cost.shape[-1] > _MANY else jnp.abs(cost[:, None] - cost[None, :])
    gaps = jnp.where(gaps > 0.0, gaps, jnp.inf)
    smallest = jnp.minimum(jnp.min(gaps), jnp.min(jnp.where(cost > 0.0, cost, jnp.inf)))
    top = (jnp.max(y) - jnp.min(jnp.minimum(y, 0.0)) + 2.0) / jnp.where(jnp.isfinite(smallest), smallest, 1.0)
    nu, z, excess = at(jnp.zeros((), y.dtype))
    slack = excess <= 0.0

    def step(state: tuple[Array, ...], _: None) -> tuple[tuple[Array, ...], None]:
        low, high, here, nu, z, excess = state
        low, high = jnp.where(excess > 0.0, here, low), jnp.where(excess > 0.0, high, here)
        fall, noise = slope(nu, z)
        newton = here + excess / jnp.where(fall > 0.0, fall, 1.0)
        # A geometric mean reaches multipliers of every magnitude.
        middle = jnp.where(low > 0.0, jnp.sqrt(low * high), jnp.minimum(1.0, 0.5 * high))
        inside = (fall > 0.0) & (newton > low) & (newton < high)
        there = jnp.where(inside, newton, middle)
        # A step to the upper end, up to rounding, has found the root there.
        there = jnp.where((fall > 0.0) & (jnp.abs(newton - high) <= 4.0 * eps * high), high, there)
        met = jnp.abs(excess) <= 4.0 * eps * budget + jnp.where(fall > 0.0, 0.0, noise)
        there = jnp.where(met | ((fall > 0.0) & (newton == here)), here, there)
        return (low, high, there, *at(there)), None

    start = (jnp.zeros((), y.dtype), top, jnp.zeros((), y.dtype), nu, z, excess)
    if y.shape[-1] > _MANY:
        *_, here, nu, z, excess = _steps_as_needed(lambda state: step(state, None)[0], start, 4.0 * eps * budget)
    else:
        (*_, here, nu, z, excess), _ = jax.lax.scan(step, start, None, length=_STEPS)
    multiplier = jnp.where(slack, 0.0, here)
    nu = nu - here * margin  # of the original costs
    capacity = jnp.inf if at_most else jnp.sum(upper)
    feasible = boundary.feasible(jnp.sum(cheapest * cost), budget, capacity, total, y, cost, upper)
    z, nu, multiplier = _polish(y, cost, budget, total, upper, at_most, nu, multiplier, z)
    # Rounding is relative to `y` and may cost more than a small budget allows: then reduce models that cost more than needed.
    costly = cost > margin
    left = jnp.where(costly | at_most, 0.0, upper - z)
    moved = jnp.sum(jnp.where(costly, z, 0.0)) / jnp.maximum(jnp.sum(left), np.finfo(y.dtype).tiny)
    other = jnp.where(costly, 0.0, jnp.clip(z + moved * left, 0.0, upper))

    def toward(z: Array, other: Array) -> Array:
        spend, least = jnp.sum(cost * z), jnp.sum(cost * other)
        share = jnp.clip((spend - budget) / jnp.where(spend > least, spend - least, 1.0), 0.0, 1.0)
        return jnp.where(spend > budget * (1.0 + boundary.rounding(y.dtype)), z + share * (other - z), z)

    z = toward(toward(z, other), cheapest)
    return z, nu, multiplier, feasible


def _steps_as_needed(
    step: Callable[[tuple[Array, ...]], tuple[Array, ...]], start: tuple[Array, ...], tolerance: Array
) -> tuple[Array, ...]:
    """Repeats `step` of `_project` from `start` until the cost is within `tolerance` of the budget or the budget's multiplier no longer changes."""

    def go_on(state: tuple[Any, ...]) -> Array:
        number, before, (_, _, here, _, _, excess) = state
        slack = (here == 0.0) & (excess <= 0.0)
        return (number < 2 * _STEPS) & ~slack & (jnp.abs(excess) > tolerance) & (here != before)

    def one(state: tuple[Any, ...]) -> tuple[Any, ...]:
        number, _, now = state
        return number + 1, now[2], step(now)

    return jax.lax.while_loop(go_on, one, (jnp.zeros((), jnp.int32), jnp.full_like(start[2], -1.0), start))[2]


def _cheapest(cost: Array, upper: Array, total: Array, at_most: bool) -> Array:
    """Returns the amounts `[K]`, at most `upper`, that sum to `total` at the least cost; zeros if the sum may be smaller (`at_most`)."""
    if at_most:
        return jnp.zeros_like(cost)
    if cost.shape[-1] > _MANY:
        order = jnp.argsort(cost)
        sorted_upper = upper[order]
        ahead = jnp.cumsum(sorted_upper) - sorted_upper
        return jnp.zeros_like(cost).at[order].set(jnp.clip(total - ahead, 0.0, sorted_upper))
    return jnp.clip(total - xla.weighted_sum_over_better(upper, -cost), 0.0, upper)


def _rows(z: Array, cost: Array, upper: Array, nu: Array, multiplier: Array, at_most: bool) -> tuple[Array, _RowSolver]:
    """Returns a mask `[K]` (1 or 0) of the free coordinates of `z`, which are strictly between 0 and `upper`; and a function (`_RowSolver`).

    The function projects free coordinates onto the binding constraints. The sum binds unless `at_most` and its multiplier `nu` is 0, the budget binds
    if its `multiplier` is positive.
    """
    free = ((z > 0.0) & (z < upper)).astype(z.dtype)
    sum_on = (jnp.asarray(True) if not at_most else nu > 0.0) & (jnp.sum(free) > 0.0)
    number = jnp.maximum(jnp.sum(free), 1.0)
    mean = jnp.where(sum_on, jnp.sum(free * cost) / number, 0.0)
    centred = free * (cost - mean)  # This avoids cancellation.
    spread = jnp.sum(centred * centred)
    # Free costs that are equal up to rounding cannot satisfy the budget.
    budget_on = (multiplier > 0.0) & (spread > 10.0 * np.finfo(z.dtype).eps * jnp.max(free * cost) ** 2)

    def solve(change: Array, sum_side: Array, budget_side: Array) -> tuple[Array, Array, Array]:
        change = free * change
        level = jnp.where(sum_on, (jnp.sum(change) - sum_side) / number, 0.0)
        change = change - free * level
        excess = jnp.sum(centred * change) - (budget_side - mean * jnp.where(sum_on, sum_side, 0.0))
        slope = jnp.where(budget_on, excess / jnp.where(budget_on, spread, 1.0), 0.0)
        return change - slope * centred, level - mean * slope, slope

    return free, solve


def _polish(
    y: Array, cost: Array, budget: Array, total: Array, upper: Array, at_most: bool, nu: Array, multiplier: Array, z: Array
) -> tuple[Array, Array, Array]:
    """Returns `z`, `nu` and `multiplier` of `_project`, refined so that binding constraints hold exactly; unchanged if this violates others."""
    free, solve = _rows(z, cost, upper, nu, multiplier, at_most)
    held = jnp.where(free > 0.0, 0.0, z)
    moved, d_nu, d_multiplier = solve(y, total - jnp.sum(held), budget - jnp.sum(cost * held))
    moved = held + moved
    moved = moved + solve(jnp.zeros_like(z), total - jnp.sum(moved), budget - jnp.sum(cost * moved))[0]
    on = multiplier > 0.0
    ok = jnp.all((moved >= 0.0) & (moved <= upper)) & jnp.any(free > 0.0) & (~on | (d_multiplier > 0.0))
    before = jnp.abs(jnp.sum(cost * z) - budget) + boundary.rounding(z.dtype) * budget
    ok &= jnp.abs(jnp.sum(cost * moved) - budget) <= jnp.where(on, before, jnp.inf)
    return jnp.where(ok, moved, z), jnp.where(ok, d_nu, nu), jnp.where(ok, d_multiplier, multiplier)


@_project.defjvp
def _project_jvp(at_most: bool, primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[_Solution, _Solution]:
    # The projection is piecewise linear. On each piece the binding constraints hold for the coordinates between their bounds.
    y, cost, budget, total, upper = primals
    d_y, d_cost, d_budget, d_total, d_upper = tangents
    found = _project.__wrapped__(y, cost, budget, total, upper, at_most)
    z, nu, multiplier, _ = found
    free, solve = _rows(z, cost, upper, nu, multiplier, at_most)
    at_upper = jnp.where((z >= upper) & (upper > 0.0), d_upper, 0.0)
    d_total, d_budget = d_total - jnp.sum(at_upper), d_budget - jnp.sum(z * d_cost) - jnp.sum(cost * at_upper)
    d_z, d_nu, d_multiplier = solve(d_y - multiplier * d_cost, d_total, d_budget)
    # At a vertex the coordinates that decrease first with the sum share its change (or those that increase first, if all are zero).
    gain, full = y - multiplier * cost, (z >= upper) & (upper > 0.0)
    some = jnp.any(full)
    key = jnp.where(jnp.where(some, full, upper > 0.0), jnp.where(some, upper - gain, gain), -jnp.inf)
    first = ((key == jnp.max(key)) & (key > -jnp.inf) & ((nu > 0.0) | (not at_most))).astype(z.dtype)
    share = jnp.where(jnp.any(free > 0.0), 0.0, first / jnp.maximum(jnp.sum(first), 1.0))
    d_z = d_z + at_upper + share * d_total
    no_tangent: Any = np.zeros((), jax.dtypes.float0)
    return found, (d_z, d_nu, d_multiplier, no_tangent)


def project(
    y: Array, cost: Array, budget: Number, total: Number, *, upper: Array | None = None, at_most: bool = False
) -> Projection:
    """Returns the nearest point of `{0 <= z <= upper, sum z = total, cost . z <= budget}`, with exact derivatives in all arguments.

    `z = clip(y - nu - lam * cost, 0, upper)`. The multiplier `nu` of the sum comes from the breakpoints of a piecewise linear function, or for more
    than 64 models from Newton steps; `lam` of the budget comes from Newton's method inside a bracket. The derivative (forward and reverse)
    differentiates the binding constraints, not the iterations. At a vertex, where the derivatives in `total` from above and from below differ, it is
    the one from below. The derivatives of `z` in `total` thus sum to 1 wherever the sum binds.

    `z` does not depend on the unit of costs and budget. It satisfies sum, bounds and budget to a relative tolerance of 1e-5 (1e-8 in float64).

    Source: the optimality conditions; the derivative as in Amos and Kolter (2017). The method is ours.

    Args:
      y: `[K]` point to project, in float32 preferably within about 30 of zero: rounding errors of `z` are proportional to `|y|`.
      cost: `[K]` costs, non-negative.
      budget: `[]` budget.
      total: `[]` required sum, in `[0, sum of upper]`.
      upper: `[K]` upper bounds, non-negative (default: 1).
      at_most: whether the sum may be smaller than `total` (static).
    """
    y, cost, budget, total = boundary.inputs(y=y, cost=cost, budget=budget, total=total)
    upper = boundary.bounds("upper", upper, y)
    largest = jax.lax.stop_gradient(jnp.max(jnp.where(upper > 0.0, cost, 0.0)))
    unit = jnp.where(largest > 0.0, largest, 1.0)
    cost, budget = cost / unit, budget / unit
    z, nu, multiplier, feasible = found = _project(y, cost, budget, total, upper, at_most)
    residual, converged = _certificate(found, y, cost, budget, total, upper, at_most)
    return Projection(z, nu, multiplier / unit, feasible, residual, converged & feasible)


def _certificate(
    found: _Solution, y: Array, cost: Array, budget: Array, total: Array, upper: Array, at_most: bool
) -> tuple[Array, Array]:
    """Returns the largest violation of the optimality conditions by `found` (`_project` of the other arguments), and whether it is only rounding."""
    z, nu, multiplier = jax.lax.stop_gradient(found[:3])
    y, cost, budget, total, upper = jax.lax.stop_gradient((y, cost, budget, total, upper))
    moved = jnp.max(jnp.abs(z - jnp.clip(y - nu - multiplier * cost, 0.0, upper)))
    short, spare = jnp.sum(z) - total, jnp.sum(cost * z) - budget
    missed = jnp.maximum(short, 0.0) if at_most else jnp.abs(short)
    over = jnp.where(multiplier > 0.0, jnp.abs(spare), jnp.maximum(spare, 0.0))
    rounding = 64.0 * np.finfo(y.dtype).eps
    # A large multiplier makes `moved` inexact, but not the violations of sum and budget.
    kept = jnp.maximum(missed, over) <= rounding * jnp.maximum(jnp.maximum(jnp.abs(total), 1.0), jnp.abs(budget))
    scale = jnp.maximum(jnp.max(jnp.abs(y)) + jnp.max(jnp.abs(multiplier * cost)), jnp.maximum(jnp.abs(total), 1.0))
    return jnp.maximum(moved, jnp.maximum(missed, over)), kept & (moved <= rounding * scale)


def smoothed_lp(
    weight: Array,
    cost: Array,
    budget: Number,
    total: Number,
    temperature: Number,
    *,
    upper: Array | None = None,
    at_most: bool = False,
) -> Projection:
    """Solves a linear program with a quadratic term, which makes it differentiable: maximises `weight . z - temperature / 2 * |z|^2`.

    The constraints are `0 <= z <= upper` (None: 1), `sum z = total` (at most that, if `at_most`) and `cost . z <= budget`; `project` solves it by
    projecting `weight / temperature`. For a small temperature the result is the solution of the linear program with the least norm.

    Its derivative in the weights is zero if the solution is a vertex, which is frequent at small temperatures. For instances with uniform costs, a
    binding budget and weights of at most one, where 4 of 9 or 6 of 100 models are selected:

        temperature                       .01      .03      .1       .3       1
        4 of 9:   derivative is zero in   31 %     25 %     15 %     4 %      .8 %
                  loss of `weight . z`    .001 %   .01 %    .10 %    .80 %    6.9 %
        6 of 100: derivative is zero in   14 %     4 %      .8 %     0        0
                  loss of `weight . z`    .006 %   .04 %    .47 %    2.7 %    9.9 %

    Source: quadratic smoothing of a linear program, Mangasarian and Meyer (1979).

    `weight`, `cost` and `upper` are `[K]`; the other arguments are scalars, `temperature` positive and in the unit of `weight`. The multipliers of
    the linear program are `temperature` times those of the result.
    """
    weight = boundary.vector("weight", weight)
    if boundary.known(temperature) and not np.all(np.asarray(temperature) > 0.0):
        raise ValueError(f"temperature must be above 0, got {temperature}")
    return project(weight / temperature, cost, budget, total, upper=upper, at_most=at_most)


def differentiable_lp(
    reward: Array,
    cost: Array,
    budget: Number,
    total: Number = 1.0,
    *,
    capacity: Array | None = None,
    at_most: bool = False,
    temperature: Number = 0.1,
) -> Projection:
    """Returns the best mix of models under a budget, with exact derivatives in rewards, costs, budget, total and capacities.

    Maximises `reward . z - temperature / 2 * |z|^2` over `{0 <= z <= capacity, sum z = total (or <=), cost . z <= budget}`. It is `smoothed_lp` with
    multipliers in the units of the arguments. Use it under `jax.jit`, `jax.vmap`, `jax.grad`, in a loss or a policy:

        def loss(w, features, reward, cost, budget):  # minus the true reward of the mix that is best for the predicted rewards
            return -reward @ differentiable_lp(features @ w, cost, budget).z

    If the temperature is small compared with the differences of the rewards, the derivative is often zero; see the table of `smoothed_lp`.

    Args:
      reward: `[K]` reward of each model per unit of its amount.
      cost: `[K]` cost of each model per unit of its amount, non-negative.
      budget: `[]` largest cost of the mix, in the unit of `cost`.
      total: `[]` sum of the amounts: 1 for the shares of a router, `N` for a set of models.
      capacity: `[K]` upper bounds of the amounts (default: 1).
      at_most: whether the sum may be smaller than `total` (static).
      temperature: `[]` weight of the quadratic term, positive, in the unit of the rewards.

    Returns:
      A `Projection`: `sum_multiplier` and `budget_multiplier` are the derivatives of the maximum in `total` and in `budget`.
    """
    reward, cost, budget, total = boundary.inputs(reward=reward, cost=cost, budget=budget, total=total)
    upper = boundary.bounds("capacity", capacity, reward)
    found = smoothed_lp(reward, cost, budget, total, temperature, upper=upper, at_most=at_most)
    boundary.require_feasible(found.feasible, budget, "total", total, upper)
    return priced(found, temperature)


def priced(found: Projection, temperature: Number) -> Projection:
    """Returns the projection `found` of `weight / temperature` with both multipliers times `temperature`, which puts them in units of `weight`."""
    return found._replace(
        sum_multiplier=found.sum_multiplier * temperature, budget_multiplier=found.budget_multiplier * temperature
    )


class Ascent(NamedTuple):
    """Result of `projected_gradient`.

    Attributes:
      z: `[K]` last point.
      feasible: `[]` bool, whether some point meets the constraints and all numbers are finite.
      residual: `[]` largest change of a coordinate in the last step, 0 at a stationary point.
      converged: `[]` bool, whether `residual` is zero to rounding.
    """

    z: Array
    feasible: Array
    residual: Array
    converged: Array


def projected_gradient(
    gradient: Callable[[Array], Array],
    cost: Array,
    budget: Number,
    total: Number,
    *,
    upper: Array | None = None,
    at_most: bool = False,
    optimizer: optax.GradientTransformation,
    steps: int,
    start: Array | None = None,
    implicit: bool = True,
) -> Ascent:
    """Maximises a function over `{0 <= z <= upper, sum z = total (or <=), cost . z <= budget}` by its gradient.

    The derivative (forward and reverse, first order) in `cost`, `budget`, `total`, `upper` and all values that `gradient` closes over is implicit: it
    is the derivative of the fixed point `z = P(z + gradient(z))` of the projection `P`, for any optimizer. It is valid if `converged`; if the fixed
    point is not unique, the derivative of least norm is returned. At a vertex of the set, `z` does not react to small changes of the objective, so
    this derivative is zero. The derivative takes one `[K, K]` pseudo-inverse and `K` directional derivatives of the projection. With `implicit=False`
    JAX differentiates through the steps: correct even before convergence, but time and memory grow with `steps`. For a linear objective
    `differentiable_lp` and `select` are faster.

    Args:
      gradient: function from `z` `[K]` to the gradient of the objective.
      cost: `[K]` costs, non-negative.
      budget: `[]` budget.
      total: `[]` required sum.
      upper: `[K]` upper bounds (default: 1).
      at_most: whether the sum may be smaller than `total` (static).
      optimizer: optax optimiser, for example `optax.sgd(10.0)`, which gets the gradient with the opposite sign.
      steps: number of steps, at least one (static).
      start: `[K]` initial point before projection (default: `total / K` each).
      implicit: whether to differentiate the fixed point instead of the steps (static).
    """
    cost, budget, total = boundary.inputs(cost=cost, budget=budget, total=total)
    checks.count("steps", steps)
    if start is None:
        start = jnp.full_like(cost, 1.0) * total / cost.shape[-1]

    def step(carry: tuple[Array, Array, optax.OptState], number: None) -> tuple[tuple[Array, Array, optax.OptState], None]:
        del number
        z, _, state = carry
        updates: Any
        updates, state = optimizer.update(-gradient(z), state, z)
        new = project(z + updates, cost, budget, total, upper=upper, at_most=at_most).z
        return (new, z, state), None

    first = project(start, cost, budget, total, upper=upper, at_most=at_most)

    def climb(start: Array) -> tuple[Array, Array]:
        (z, before, _), _ = lax.scan(step, (start, start, optimizer.init(start)), None, length=steps)
        return z, lax.stop_gradient(z - before)

    def moved(z: Array) -> Array:
        return z - project(z + gradient(z), cost, budget, total, upper=upper, at_most=at_most).z

    def least_norm(function: Callable[[Array], Array], side: Array) -> Array:
        return jnp.linalg.pinv(jax.jacfwd(function)(jnp.zeros_like(side))) @ side

    if implicit:
        first_z = lax.stop_gradient(first.z)
        z, change = lax.custom_root(moved, first_z, lambda _, start: climb(start), least_norm, has_aux=True)
    else:
        z, change = climb(first.z)
    residual = jnp.max(jnp.abs(lax.stop_gradient(change)))
    feasible = first.feasible & boundary.finite(*lax.stop_gradient((z, gradient(z))))
    return Ascent(z, feasible, residual, feasible & (residual <= 64.0 * np.finfo(z.dtype).eps))
