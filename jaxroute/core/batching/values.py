"""Values of a batched function, with or without a trailing run axis."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxroute.core.batching.dependence import is_key
from jaxroute.core.rounding import Trait


class Value(NamedTuple):
    """Value in a jaxpr that `lanes` replays for many runs.

    Attributes:
      array: `[..., R]` if mapped, else the value of all runs; mapped typed keys are stored as words `[..., 2, R]`.
      mapped: whether the value differs between runs.
      is_key: whether the array holds the words of typed keys.
      trait: rewrites that a compiler might apply to it.
    """

    array: Any
    mapped: bool
    is_key: bool = False
    trait: Trait = Trait.NONE


def enter(leaf: Any) -> Value:
    """Converts an array or typed keys `[..., R]` to a mapped value."""
    if is_key(leaf):
        return Value(jnp.moveaxis(jax.random.key_data(leaf), -1, -2), True, True)
    return Value(leaf, True)


def leave(value: Value) -> Any:
    """Converts a value back to an array or typed keys; the reverse of `enter`."""
    if value.is_key and value.mapped:
        return jax.random.wrap_key_data(jnp.moveaxis(value.array, -2, -1))
    return value.array


def spread(value: Value, size: int) -> Value:
    """Gives an unmapped value its run axis, of length `size`."""
    if value.mapped:
        return value
    if is_key(value.array):
        words = jax.random.key_data(value.array)
        return Value(_append_axis(words, size), True, True)
    return Value(_append_axis(value.array, size), True, trait=value.trait | Trait.EVEN)


def _append_axis(array: Any, size: int) -> Array:
    shape = jnp.shape(array)
    return lax.broadcast_in_dim(array, (*shape, size), tuple(range(len(shape))))
