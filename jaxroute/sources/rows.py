"""Rows of a recorded table as rounds: each row is used once, in a random order, before any row is repeated."""

import jax
import jax.numpy as jnp
from jax import Array

from jaxroute.core import numerics


def random_order(key: Array, number: int) -> Array:
    """Returns a random order, int32 `[number]`, in which one run uses the `number` rows of a table."""
    return jax.random.permutation(key, number).astype(jnp.int32)


def row_in_order(order: Array, t: Array) -> Array:
    """Returns the index (int32 scalar) of the row for round `t`, from 0, by an `order` from `random_order`, which repeats after its last row."""
    return numerics.at(order, (t % order.shape[0],))
