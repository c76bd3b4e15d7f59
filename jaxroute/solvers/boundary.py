"""What a user hands to a solver: lists become arrays, and concrete values that cannot be meant are refused.

Values are looked at only where they are known: under `jit`, `vmap` and `grad` a solver answers with its flags instead.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.core import checks

# What may not be negative.
_NON_NEGATIVE = ("cost", "budget", "total", "size", "upper", "temperature")


def known(value: Any) -> bool:
    """Whether the numbers are known, and not only their shape."""
    return not isinstance(value, jax.core.Tracer)


def vector(name: str, value: Any, length: int | None = None) -> jax.Array:
    """`value` as an array `[K]` without NaN, of at least float32."""
    array = _checked(name, value)
    if array.ndim != 1 or (length is not None and array.shape != (length,)):
        shape = "[K]" if length is None else f"({length},)"
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    return array


def scalar(name: str, value: Any) -> jax.Array:
    """`value` as a single number that is not NaN."""
    array = _checked(name, value)
    if array.ndim:
        raise ValueError(f"{name} must be one number, got {array.shape}")
    return array


def _checked(name: str, value: Any) -> jax.Array:
    if not known(value):
        return _real(value)
    try:
        array = _real(jnp.asarray(value))
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number or an array of numbers, got {checks.show(value)}") from None
    if known(array):
        values = np.asarray(array)
        if np.isnan(values).any():
            raise ValueError(f"{name} must not be NaN, got {checks.show(value)}")
        if name in _NON_NEGATIVE and (values < 0).any():
            raise ValueError(f"{name} must be at least 0, got {values.min():g}")
    return array


def _real(array: jax.Array) -> jax.Array:
    """Of at least float32; a number of Python's keeps the precision that it has."""
    wide = jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.itemsize >= 4
    return array if wide else array.astype(jnp.float32)


def require_feasible(feasible: jax.Array, size: str) -> None:
    """Refuses a problem without a point, where that is known."""
    if known(feasible) and not bool(feasible):
        raise ValueError(
            f"budget and {size} must leave a selection, got a budget below the cost of the cheapest one, or too few models"
        )
