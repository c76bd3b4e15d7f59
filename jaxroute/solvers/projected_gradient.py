"""Projected gradient ascent over the set of `project`, with an optax step."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from jaxroute.solvers.projection import project


def projected_gradient(
    gradient: Callable[[jax.Array], jax.Array],
    cost,
    budget,
    total,
    *,
    upper: Any = None,
    at_most: bool = False,
    optimizer: optax.GradientTransformation,
    steps: int,
    start: Any = None,
) -> jax.Array:
    """Maximises a function over `{0 <= z <= upper, sum z = total (or <=), cost . z <= budget}` by its gradient; `[K]`.

    Every step is differentiable, so that the result is, end to end, in whatever `gradient`, `cost`, `budget` and `total` depend on.

    Args:
      gradient: of the objective at `z` `[K]`. cost: `[K]`. budget, total: `[]`.
      upper: `[K]` (default all 1). at_most: the sum may be smaller than `total` (static).
      optimizer: optax step, for example `optax.sgd(10.0)`. steps: how many (static).
      start: `[K]` first point before projection (default: `total / K` each).
    """
    cost = jnp.asarray(cost)
    if start is None:
        start = jnp.full_like(cost, 1.0) * total / cost.shape[-1]

    def step(carry, _):
        z, state = carry
        updates, state = optimizer.update(-gradient(z), state, z)
        z = project(z + updates, cost, budget, total, upper=upper, at_most=at_most).z
        return (z, state), None

    z = project(start, cost, budget, total, upper=upper, at_most=at_most).z
    (z, _), _ = lax.scan(step, (z, optimizer.init(z)), None, length=steps)
    return z
