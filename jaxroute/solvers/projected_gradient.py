"""Projected gradient ascent over the constraints of `project` (bounds, a sum and a budget), with an optax step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from jaxroute.core import checks
from jaxroute.solvers import boundary
from jaxroute.solvers.boundary import Number
from jaxroute.solvers.projection import project


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

    The derivative (forward and reverse, first order) in everything that `gradient`, `cost`, `budget`, `total` and `upper` depend on is implicit:
    that of the fixed point `z = P(z + gradient(z))` of the projection `P`, for any optimizer. It is valid if `converged`; if the fixed point is not
    unique, it is the least-norm derivative. At a vertex of the set the derivative in the objective is zero. It costs one `[K, K]` pseudo-inverse and
    `K` directional derivatives of the projection. With `implicit=False` the steps themselves are differentiated, which is right for any number of
    them and takes their time and memory. For a linear objective `differentiable_lp` and `select` are faster.

    Args:
      gradient: function from `z` `[K]` to the gradient of the objective.
      cost: `[K]` costs, non-negative.
      budget: `[]` budget.
      total: `[]` required sum.
      upper: `[K]` upper bounds (default: 1).
      at_most: whether the sum may be smaller than `total` (static).
      optimizer: optax step, for example `optax.sgd(10.0)`.
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

    if implicit:
        first_z = lax.stop_gradient(first.z)
        z, change = lax.custom_root(moved, first_z, lambda _, start: climb(start), _solve_linear, has_aux=True)
    else:
        z, change = climb(first.z)
    residual = jnp.max(jnp.abs(lax.stop_gradient(change)))
    feasible = first.feasible & boundary.finite(*lax.stop_gradient((z, gradient(z))))
    return Ascent(z, feasible, residual, feasible & (residual <= 64.0 * np.finfo(z.dtype).eps))


def _solve_linear(function: Callable[[Array], Array], side: Array) -> Array:
    """Returns the `x` of least norm for which `function(x)`, which is linear, is nearest to `side`."""
    matrix = jax.jacfwd(function)(jnp.zeros_like(side))
    return jnp.linalg.pinv(matrix) @ side
