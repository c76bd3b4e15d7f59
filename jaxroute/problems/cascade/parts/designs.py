"""Inverse design matrices of all boxes in one array `[m, m, K]`: the inverses of `V` in eq. (13) of the paper."""

import jax
import jax.numpy as jnp

from jaxroute.core import numerics, xla
from jaxroute.core.types import Leaf


def first_inverse(ridge: Leaf, dim: int, number: int) -> jax.Array:
    """Inverses `[m, m, K]` before the first row: `I / ridge`."""
    eye = jnp.eye(dim, dtype=jnp.float32)[:, :, None] / jnp.asarray(ridge, jnp.float32)
    return jnp.broadcast_to(eye, (dim, dim, number))


def change_of_inverse(inverse: jax.Array, x: jax.Array) -> jax.Array:
    """Change of the inverses `[m, m, K]` due to another row `x` `[m]`, symmetric as in `gaussian.sherman_morrison`."""
    direction = xla.compute_once(numerics.combine(x, inverse))
    gain = 1.0 / (1.0 + numerics.combine(x, direction))
    return -gain * (direction[:, None] * direction[None])


def square_norm(inverse: jax.Array, x: jax.Array) -> jax.Array:
    """Squared norm `[K]` of `x` `[m]` in the inverses `[m, m, K]`."""
    return jnp.maximum(numerics.combine(x, numerics.combine(x, inverse)), 0.0)
