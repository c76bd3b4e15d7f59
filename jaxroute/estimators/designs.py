"""Inverse design matrices of several linear models, side by side: `[m, m, K]`, the inverses of `V = ridge I + sum x x'`."""

import jax
import jax.numpy as jnp

from jaxroute.core import numerics
from jaxroute.core.types import Leaf


def first_inverse(ridge: Leaf, dim: int, number: int) -> jax.Array:
    """Inverses `[m, m, K]` before the first row: `I / ridge`."""
    eye = jnp.eye(dim, dtype=jnp.float32)[:, :, None] / jnp.asarray(ridge, jnp.float32)
    return jnp.broadcast_to(eye, (dim, dim, number))


def newest(inverse: jax.Array, x: jax.Array, seen: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`V^-1 x` and `1 / (1 + x' V^-1 x)`, what a new row changes: `[m, K]`, and `[K]` which is 0 where it is not seen.

    The inverse of `V + x x'` is `V^-1 - gain direction direction'`.

    Args:
      inverse: `V^-1` `[m, m, K]`.
      x: `[m]`, or `[m, K]` with one row for each model.
      seen: `[K]` bool.
    """
    direction = numerics.kept(numerics.combine(x, inverse))
    return direction, jnp.where(seen, 1.0, 0.0) / (1.0 + numerics.combine(x, direction))


def grown_inverse(inverse: jax.Array, x: jax.Array, seen: jax.Array) -> jax.Array:
    """Inverses `[m, m, K]` after one more row `x` (`[m]`, or `[m, K]`) where `seen` `[K]`."""
    direction, gain = newest(inverse, x, seen)
    return inverse - gain * direction[:, None] * direction[None]


def square_norm(inverse: jax.Array, x: jax.Array) -> jax.Array:
    """Squared norm `[K]` of `x` (`[m]`, or `[m, K]`) in the inverses `[m, m, K]`."""
    return jnp.maximum(numerics.combine(x, numerics.combine(x, inverse)), 0.0)
