"""Rows of a table as rounds: each row once, in a random order, before any is repeated."""

import jax
import jax.numpy as jnp
from jax import Array

from jaxroute.core import numerics


def random_order(key: Array, number: int) -> Array:
    """Returns the order of a table's rows in one run, `[number]` int32."""
    return jax.random.permutation(key, number).astype(jnp.int32)


def row_in_order(order: Array, t: Array) -> Array:
    """Returns the row of round `t` (from 0), `[]` int32; after the last row the order starts again."""
    return numerics.at(order, (t % order.shape[0],))
