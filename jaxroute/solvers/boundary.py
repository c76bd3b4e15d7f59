"""Validation of the solvers' arguments, and the test whether a problem is feasible.

Values are validated only if they are concrete; under `jit`, `vmap` and `grad` a solver reports problems by its flags instead.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import DTypeLike

from jaxroute.core import checks

# Arguments that are scalars (or have a number per group); must not be negative; may be infinite (a budget without limit).
_SCALARS = ("budget", "total", "size", "most", "temperature")
_NON_NEGATIVE = ("cost", "budget", "total", "size", "most", "upper", "capacity", "temperature")
_INFINITE = ("budget", "utility")
# A scalar of a problem: a number or an array, perhaps traced.
Number = Array | float


def known(value: Any) -> bool:
    """Returns whether `value` is concrete, not traced by `jit`, `vmap` or `grad`; of a traced value only shape and type are known."""
    return not isinstance(value, Tracer)


def inputs(mask: Any = None, groups: Sequence[int] | None = None, **given: Any) -> list[Array]:
    """Returns a solver's arguments, given by name, as arrays of the first one's number type. Raises `ValueError` for a wrong shape or number.

    `budget`, `total`, `size`, `most` and `temperature` must be scalars, or with `groups` (the group of each model) also `[M]`: one number for each
    group. All other arguments must be vectors `[K]`. Their entries become 0 where `mask` `[K]`, if given, is False.
    """
    found: list[Array] = []
    for name, value in given.items():
        if name not in _SCALARS:
            if mask is not None:
                value = jnp.where(jnp.asarray(mask, bool), jnp.asarray(value), 0.0)
            array = vector(name, value, found[0].shape[0] if found else None)
        else:
            array = _checked(name, value)
            if array.ndim and groups is None:
                raise ValueError(f"{name} must be one number, got {array.shape}")
        found.append(array.astype(found[0].dtype) if found else array)
    return found


def vector(name: str, value: Any, length: int | None = None) -> Array:
    """Returns `value` as a vector `[K]` of at least float32. Raises `ValueError`, naming `name`, if it is invalid or `K` is not a given `length`."""
    array = _checked(name, value)
    if array.ndim != 1 or (length is not None and array.shape != (length,)):
        shape = "[K]" if length is None else f"({length},)"
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    return array


def bounds(name: str, value: Any, like: Array) -> Array:
    """Returns upper bounds `value` (None: all 1) in the shape and number type of `like` `[K]`. Raises `ValueError`, naming `name`, if invalid."""
    return jnp.ones_like(like) if value is None else vector(name, value, like.shape[0]).astype(like.dtype)


def _checked(name: str, value: Any) -> Array:
    if not known(value):
        return _real(value)
    try:
        array = _real(jnp.asarray(value))
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number or an array of numbers, got {checks.show(value)}") from None
    if known(array):
        values = np.asarray(array)
        for allowed, wrong in (
            ("not be NaN", np.isnan(values)),
            ("be finite", np.isinf(values) & (name not in _INFINITE)),
            ("be at least 0", (values < 0) & (name in _NON_NEGATIVE)),
            ("be in [0, 1]", ((values < 0) | (values > 1)) & (name == "w")),
        ):
            if wrong.any():
                where = tuple(int(i) for i in np.argwhere(wrong)[0])
                raise ValueError(f"{name} must {allowed}, got {values[where]:g}{f' at index {where}' if where else ''}")
    return array


def _real(array: Array) -> Array:
    wide = jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.itemsize >= 4
    return array if wide else array.astype(jnp.float32)


def rounding(dtype: DTypeLike) -> float:
    """Returns the relative tolerance of constraints for a number type: a sum or a cost may exceed its limit by this fraction of the limit."""
    return 1e-6 if dtype == jnp.float32 else 1e-9


def finite(*values: Array) -> Array:
    """Returns a boolean scalar: whether all numbers in all arrays, whose shapes must broadcast, are finite."""
    return jnp.max(sum((jnp.abs(x) for x in values[1:]), start=jnp.abs(values[0]))) < jnp.inf


def feasible(least: Number, budget: Number, capacity: Number, total: Number, *values: Array) -> Array:
    """Returns a boolean scalar: whether all numbers are finite, and some `z` within its bounds has the sum `total` at a cost within the budget.

    Within the relative tolerance `rounding`, `least` may exceed the budget, and `total` may exceed `capacity`.

    Args:
      least: `[]` cost of the cheapest `z` with the sum `total`; pass 0 if the sum may be smaller.
      budget: `[]` budget.
      capacity: `[]` sum of the upper bounds, or `[M]` sum in each of `M` groups; pass infinity if the sum of `z` may be smaller than `total`.
      total: `[]` required sum of `z`, or `[M]` required sum in each group.
      values: costs, bounds and objectives of the problem, each `[K]`, only to test that they are finite.
    """
    slack = rounding(values[0].dtype)
    enough = jnp.all((total >= 0.0) & (capacity >= total * (1.0 - slack)) & (total < jnp.inf))
    return enough & (budget >= 0.0) & (least <= budget * (1.0 + slack)) & finite(*values)


def require_feasible(feasible: Array, budget: Array, name: str, total: Array, upper: Array) -> None:
    """Raises `ValueError` if `feasible` is concrete and False. The message has `budget`, `total` (called `name`) and the sum of `upper` `[K]`."""
    if known(feasible) and not bool(feasible):
        given, required, capacity = (f"{float(x):g}" for x in (budget, total, jnp.sum(upper)))
        raise ValueError(
            f"budget and {name} must leave a selection, got budget {given} and {name} {required}, of models with a capacity of {capacity}: "
            "the budget is below the cost of the cheapest one, or there are too few models"
        )
