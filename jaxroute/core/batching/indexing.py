"""Indexed reads and writes of arrays of many runs, whose last axis is the run.

An index that is the same in all runs (a ring buffer, `buffer.at[t % n].set(x)`) becomes a slice, read and written in place. An index that differs
between runs (`pulls.at[action].add(1)`) is compared with every index of a short axis. All others become gathers and scatters with the run axis as
a batch axis.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import JaxprEqn

from jaxroute.core import xla
from jaxroute.core.batching.dependence import is_key
from jaxroute.core.rounding import Trait

# Axes up to this length are written by comparison: 1.4 to 5 times as fast as a scatter, which processes runs one by one.
_FEW_PLACES = 32
# Arrays with more elements per run are written in place; copying smaller ones is cheap.
_LONG = 64
_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "scatter": lambda old, new: new,
    **{f"scatter-{how}": getattr(lax, how) for how in ("add", "max", "min", "mul", "sub")},
}
_Mode = lax.GatherScatterMode
# Negative indices are clipped to 0: JAX has already replaced indices that count from the end.
_slice = functools.partial(lax.dynamic_slice, allow_negative_indices=False)
_update_slice = functools.partial(lax.dynamic_update_slice, allow_negative_indices=False)


class Value(NamedTuple):
    """Value in a jaxpr that `lanes` evaluates for `R` runs at once.

    Attributes:
      array: the values of all runs, `[..., R]`, if mapped, else one value for all; mapped typed keys are stored as words `[..., 2, R]`.
      mapped: whether the value differs between runs.
      is_key: whether the array holds the words of typed keys.
      trait: property that lets a compiler rewrite operations on the value.
    """

    array: Any
    mapped: bool
    is_key: bool = False
    trait: Trait = Trait.NONE


def enter(leaf: Any) -> Value:
    """Converts an array `[..., R]`, or typed keys `[R]`, of `R` runs to a `Value` that differs between runs."""
    if is_key(leaf):
        return Value(jnp.moveaxis(jax.random.key_data(leaf), -1, -2), True, True)
    return Value(leaf, True)


def leave(value: Value) -> Any:
    """Returns the array or the typed random keys that a `Value` represents, as the inverse of `enter`."""
    if value.is_key and value.mapped:
        return jax.random.wrap_key_data(jnp.moveaxis(value.array, -2, -1))
    return value.array


def spread(value: Value, size: int) -> Value:
    """Repeats a value that is the same in all runs along a new last axis for `size` runs. A mapped value stays as it is."""
    if value.mapped:
        return value
    if is_key(value.array):
        words = jax.random.key_data(value.array)
        return Value(_append_axis(words, size), True, True)
    return Value(_append_axis(value.array, size), True, trait=value.trait | Trait.EVEN)


def _append_axis(array: Any, size: int) -> Array:
    shape = jnp.shape(array)
    return lax.broadcast_in_dim(array, (*shape, size), tuple(range(len(shape))))


class Tables:
    """Record of the values read from each long array, which allows XLA to update the array in place.

    XLA updates an array in place only if all reads certainly come before the write. `write` therefore makes the array depend on the reads; without
    that the array would be copied in every round.
    """

    def __init__(self) -> None:
        self._reads: dict[int, tuple[Any, list[Any]]] = {}  # By the array's id; the array is stored to keep it alive.

    def read(self, table: Value, value: Any) -> Any:
        """Records that `value` was read from `table`, if the table is long. Returns `value`; the caller must use the result in its place."""
        long = table.mapped and not table.is_key and math.prod(jnp.shape(table.array)[:-1]) > _LONG
        if not long or math.prod(jnp.shape(value)[:-1]) > _LONG:
            return value
        value = xla.compute_once(value)  # Otherwise the read might be repeated after the write.
        self._reads.setdefault(id(table.array), (table.array, []))[1].append(value)
        return value

    def write(self, table: Value) -> Value:
        """Makes the array `table`, which the caller will update, depend on all recorded reads of it, and returns it."""
        if id(table.array) not in self._reads:
            return table
        _, reads = self._reads.pop(id(table.array))
        return table._replace(array=xla.compute_once([table.array, *reads])[0])


def _places(starts: Sequence[Value], shape: tuple[int, ...], sizes: Sequence[int]) -> tuple[list[int], Array] | None:
    """Returns the `K` axes along which a slice has several possible starts, and the `starts` along them in `R` runs, `[R, K]`.

    Returns None if the slice is longer than 1 along one. A start must differ between runs. `shape` and `sizes` are those of array and slice in a run.
    """
    axes = [axis for axis, start in enumerate(starts) if start.mapped or sizes[axis] != shape[axis]]
    if not all(sizes[axis] == 1 for axis in axes):
        return None
    columns = [jnp.clip(starts[axis].array, 0, shape[axis] - 1) for axis in axes]
    size = next(jnp.shape(s.array)[0] for s in starts if s.mapped)
    return axes, jnp.stack([jnp.broadcast_to(c, (size,)) for c in columns], axis=1)


def _dynamic_slice(eqn: JaxprEqn, values: list[Value], size: int) -> list[Any] | None:
    (operand, *starts), slice_sizes = values, eqn.params["slice_sizes"]
    shape = jnp.shape(operand.array)[: len(slice_sizes)]
    if not any(s.mapped for s in starts):
        return [_slice(operand.array, _with_zero([s.array for s in starts]), (*slice_sizes, size))]
    places = _places(starts, shape, slice_sizes)
    if places is None:
        return None
    axes, index = places
    rank = len(shape)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(rank - len(axes))),
        collapsed_slice_dims=tuple(axes),
        start_index_map=tuple(axes),
        operand_batching_dims=(rank,) if operand.mapped else (),
        start_indices_batching_dims=(0,) if operand.mapped else (),
    )
    sizes = [1 if i in axes else n for i, n in enumerate(shape)] + ([1] if operand.mapped else [])
    taken = lax.gather(operand.array, index, numbers, sizes, mode=_Mode.PROMISE_IN_BOUNDS)
    return [lax.expand_dims(taken, axes)]


def _dynamic_update_slice(eqn: JaxprEqn, values: list[Value], size: int) -> list[Any] | None:
    del eqn  # It has no parameters.
    operand, update = (spread(v, size).array for v in values[:2])
    starts = values[2:]
    if not any(s.mapped for s in starts):
        return [_update_slice(operand, update, _with_zero([s.array for s in starts]))]
    shape = jnp.shape(operand)[:-1]
    places = _places(starts, shape, jnp.shape(update)[:-1])
    if places is None:
        return None
    axes, index = places
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(range(len(shape) - len(axes))),
        inserted_window_dims=tuple(axes),
        scatter_dims_to_operand_dims=tuple(axes),
        operand_batching_dims=(len(shape),),
        scatter_indices_batching_dims=(0,),
    )
    new = lax.squeeze(update, axes)
    return [lax.scatter(operand, index, new, numbers, unique_indices=True, mode=_Mode.PROMISE_IN_BOUNDS)]


def _with_zero(indices: Sequence[Any]) -> list[Any]:
    return [*indices, lax.full((), 0, indices[0].dtype if indices else "int32")]


def _gather(eqn: JaxprEqn, values: list[Value], size: int) -> list[Any]:
    """Computes a gather for `size` runs. `values` are the array and the indices; if all runs share the indices, slices of all runs are read."""
    (operand, indices), params = values, eqn.params
    numbers, sizes = params["dimension_numbers"], tuple(params["slice_sizes"])
    rank = len(sizes)  # of one run's operand
    index = _vectors_last(indices)
    if not indices.mapped:
        last = len(numbers.offset_dims) + jnp.ndim(index) - 1  # in the result
        numbers = numbers._replace(offset_dims=(*numbers.offset_dims, last))
        sizes = (*sizes, size)
    elif operand.mapped:
        numbers = numbers._replace(
            operand_batching_dims=(*numbers.operand_batching_dims, rank),
            start_indices_batching_dims=(*numbers.start_indices_batching_dims, jnp.ndim(index) - 2),
        )
        sizes = (*sizes, 1)
    options = {name: params[name] for name in ("unique_indices", "indices_are_sorted", "mode", "fill_value")}
    options["indices_are_sorted"] &= not indices.mapped
    return [lax.gather(operand.array, index, numbers, sizes, **options)]


def _scatter(eqn: JaxprEqn, values: list[Value], size: int) -> list[Any]:
    """Computes a scatter for `size` runs. `values` are the array, the indices and the updates; the updated array is the only element of the result.

    An index that all runs share becomes a slice update. An index per run into short axes becomes a comparison with all indices.
    """
    numbers, params = eqn.params["dimension_numbers"], eqn.params
    indices = values[1]
    operand, updates = spread(values[0], size).array, spread(values[2], size).array
    applies = eqn.primitive.name == "scatter" and params["update_jaxpr"] is not None  # applies a function to the old value
    one_place = not applies and _one_place(numbers, indices, jnp.shape(operand)[:-1], jnp.shape(updates)[:-1])
    if one_place and not indices.mapped:
        return [_write_slice(eqn, operand, indices.array, updates)]
    if one_place and math.prod(operand.shape[axis] for axis in numbers.scatter_dims_to_operand_dims) <= _FEW_PLACES:
        return [_write_by_comparison(eqn, operand, indices.array, updates)]
    index = _vectors_last(indices)
    if indices.mapped:
        numbers = numbers._replace(
            operand_batching_dims=(*numbers.operand_batching_dims, operand.ndim - 1),
            scatter_indices_batching_dims=(*numbers.scatter_indices_batching_dims, jnp.ndim(index) - 2),
        )
    else:
        numbers = numbers._replace(update_window_dims=(*numbers.update_window_dims, updates.ndim - 1))
    is_sorted = params["indices_are_sorted"] and not indices.mapped
    return [xla.bind(eqn, [operand, index, updates], dimension_numbers=numbers, indices_are_sorted=is_sorted)[0]]


def _one_place(numbers: Any, indices: Value, shape: tuple[int, ...], updates: tuple[int, ...]) -> bool:
    """Whether a scatter writes at one index vector per run. `numbers` are its dimensions; `shape` and `updates` are shapes without the run axis."""
    written = tuple(n for axis, n in enumerate(shape) if axis not in numbers.inserted_window_dims)
    return (
        jnp.ndim(indices.array) == 1 + indices.mapped
        and not numbers.operand_batching_dims
        and sorted(numbers.scatter_dims_to_operand_dims) == sorted(numbers.inserted_window_dims)
        and written == updates
    )


def _vectors_last(indices: Value) -> Any:
    """Moves index vectors of length n for `R` runs from `[..., n, R]` to `[..., R, n]`, as gathers expect. Indices shared by all runs stay as is."""
    return jnp.swapaxes(indices.array, -1, -2) if indices.mapped else indices.array


def _countable(index: Array) -> Array:
    return index if index.dtype.itemsize >= 4 else index.astype(jnp.int32)


def _write_slice(eqn: JaxprEqn, operand: Array, index: Array, updates: Array) -> Array:
    """Computes a scatter (`eqn`) of `updates` into `operand` `[..., R]` at one index vector `[n]` that all `R` runs share, as a slice update."""
    numbers, mode = eqn.params["dimension_numbers"], eqn.params["mode"]
    axes = numbers.scatter_dims_to_operand_dims
    index = _countable(index)
    starts = [jnp.zeros((), index.dtype)] * operand.ndim
    inside = jnp.bool_(True)
    for number, axis in enumerate(axes):
        starts[axis] = index[number]
        inside &= (index[number] >= 0) & (index[number] < operand.shape[axis])
    sizes = [1 if axis in axes else n for axis, n in enumerate(operand.shape)]
    new = lax.expand_dims(updates, sorted(axes))
    drops = mode not in (_Mode.CLIP, _Mode.PROMISE_IN_BOUNDS)
    if drops or eqn.primitive.name != "scatter":
        old = _slice(operand, starts, sizes)
        new = _COMBINE[eqn.primitive.name](old, new)
        new = jnp.where(inside, new, old) if drops else new
    return _update_slice(operand, new, starts)


def _write_by_comparison(eqn: JaxprEqn, operand: Array, index: Array, updates: Array) -> Array:
    """Computes a scatter (`eqn`) of `updates` into `operand` `[..., R]` at one `index` vector per run, `[n, R]`, by comparison with all indices."""
    numbers, mode = eqn.params["dimension_numbers"], eqn.params["mode"]
    axes = numbers.scatter_dims_to_operand_dims
    index, here = _countable(index), jnp.bool_(True)
    for number, axis in enumerate(axes):
        place, length = index[number], operand.shape[axis]
        if mode == _Mode.CLIP:
            place = jnp.clip(place, 0, length - 1)
        here &= lax.broadcasted_iota(place.dtype, operand.shape, axis) == place
    return jnp.where(here, _COMBINE[eqn.primitive.name](operand, lax.expand_dims(updates, sorted(axes))), operand)


# Indexed reads and writes: functions of an equation, its operands and the number `R` of runs. They return results `[..., R]`, or None where
# `jax.vmap` is needed.
READS: dict[str, Callable[..., list[Any] | None]] = {"dynamic_slice": _dynamic_slice, "gather": _gather}
WRITES = {"dynamic_update_slice": _dynamic_update_slice, **dict.fromkeys(_COMBINE, _scatter)}
