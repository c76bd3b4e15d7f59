"""Reading and writing at places of an array, for many runs at once, with the run axis last throughout.

Three kinds of places: the same in all runs (a ring buffer, `buffer.at[t % n].set(x)`) are slices, read and written in place; one that
differs between runs (`pulls.at[action].add(1)`) is a comparison with every place of a short axis; all others are gathers and scatters
along which the run axis is a batch.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn

from jaxroute.core import primitives
from jaxroute.core.batching.values import Value, spread

READS = ("dynamic_slice", "gather")
WRITES = ("dynamic_update_slice", "scatter", "scatter-add", "scatter-max", "scatter-min", "scatter-mul", "scatter-sub")

# Up to so many places a write compares its index with all of them: 1.4 to 5 times as fast as a scatter, whose runs come one by one.
_FEW_PLACES = 32
# Arrays with more elements per run than this are written in place; copying fewer is cheap.
_LONG = 64
_COMBINE = {
    "scatter": lambda old, new: new,
    "scatter-add": lax.add,
    "scatter-max": lax.max,
    "scatter-min": lax.min,
    "scatter-mul": lax.mul,
    "scatter-sub": lax.sub,
}
_Mode = lax.GatherScatterMode
# An index below zero means the first place; what it meant to whoever wrote it has been worked out before.
_slice = functools.partial(lax.dynamic_slice, allow_negative_indices=False)
_update_slice = functools.partial(lax.dynamic_update_slice, allow_negative_indices=False)


class Tables:
    """What has been read from each long array that differs between runs.

    A compiler writes an array in place only where it can prove that all reads come before; a write that waits for them is such a proof.
    Without it the array is copied in every round.
    """

    def __init__(self) -> None:
        self._reads: dict[int, tuple[Any, list[Any]]] = {}  # by identity; the array is kept alive with it

    def read(self, table: Value, value: Any) -> Any:
        """Notes what is read from an array: the value as it has to be used from now on."""
        if not _is_long(table) or math.prod(jnp.shape(value)[:-1]) > _LONG:
            return value
        value = primitives.compute_once(value)  # or the read might be repeated after the write
        self._reads.setdefault(id(table.array), (table.array, []))[1].append(value)
        return value

    def write(self, table: Value) -> Value:
        """An array that is to be written, after everything that has been read from it."""
        if id(table.array) not in self._reads:
            return table
        _, reads = self._reads.pop(id(table.array))
        return table._replace(array=primitives.compute_once([table.array, *reads])[0])


def _is_long(table: Value) -> bool:
    return table.mapped and not table.is_key and math.prod(jnp.shape(table.array)[:-1]) > _LONG


def read(eqn: JaxprEqn, values: list[Value], size: int) -> list[Any] | None:
    """Results `[..., R]` of an operation of `READS`, or None where there is no rule."""
    if eqn.primitive.name == "dynamic_slice":
        return _dynamic_slice(values, eqn.params["slice_sizes"], size)
    return _gather(values, eqn.params, size)


def write(eqn: JaxprEqn, values: list[Value], size: int) -> list[Any] | None:
    """Results `[..., R]` of an operation of `WRITES`, or None where there is no rule."""
    if eqn.primitive.name == "dynamic_update_slice":
        return _dynamic_update_slice(values, size)
    return _scatter(eqn, values, size)


def _places(starts: Sequence[Value], shape: tuple[int, ...], sizes: Sequence[int]) -> tuple[list[int], jax.Array] | None:
    """Axes along which a slice begins elsewhere in each run, and its first index there `[R, axes]`; None if that is no simple gather.

    Simple: one element long along those axes, of full length along the others.
    """
    axes = [axis for axis, start in enumerate(starts) if start.mapped or sizes[axis] != shape[axis]]
    if not all(sizes[axis] == 1 for axis in axes):
        return None
    columns = [jnp.clip(starts[axis].array, 0, shape[axis] - 1) for axis in axes]
    size = next(jnp.shape(s.array)[0] for s in starts if s.mapped)
    return axes, jnp.stack([jnp.broadcast_to(c, (size,)) for c in columns], axis=1)


def _dynamic_slice(values: list[Value], slice_sizes: Sequence[int], size: int) -> list[Any] | None:
    """A slice that begins elsewhere in each run is a gather that leaves the run axis in place."""
    operand, *starts = values
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


def _dynamic_update_slice(values: list[Value], size: int) -> list[Any] | None:
    """Writing at a place that differs between runs is a scatter, in place where the table is not needed any more."""
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
    """Start indices with one more for the run axis, of the same type."""
    return [*indices, lax.full((), 0, indices[0].dtype if indices else "int32")]


def _gather(values: list[Value], params: dict[str, Any], size: int) -> list[Any]:
    """A gather with one more axis, the last: of each slice if all runs have the same indices, else a batch of indices."""
    operand, indices = values
    numbers, sizes = params["dimension_numbers"], tuple(params["slice_sizes"])
    rank = len(sizes)  # of the operand of one run
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


def _scatter(eqn: JaxprEqn, values: list[Value], size: int) -> list[Any] | None:
    """A scatter with one more axis, the last; one place is written by slices or comparison (see the head of this file)."""
    numbers, params = eqn.params["dimension_numbers"], eqn.params
    indices = values[1]
    operand, updates = spread(values[0], size).array, spread(values[2], size).array
    applies = eqn.primitive.name == "scatter" and params["update_jaxpr"] is not None  # a function to what is there
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
    options = {
        **params,
        "dimension_numbers": numbers,
        "indices_are_sorted": params["indices_are_sorted"] and not indices.mapped,
    }
    return [eqn.primitive.bind(operand, index, updates, **options)]


def _one_place(numbers: Any, indices: Value, shape: tuple[int, ...], updates: tuple[int, ...]) -> bool:
    """Whether a scatter of one run writes one place along some axes, of full length along the others."""
    written = tuple(n for axis, n in enumerate(shape) if axis not in numbers.inserted_window_dims)
    return (
        jnp.ndim(indices.array) == 1 + indices.mapped
        and not numbers.operand_batching_dims
        and sorted(numbers.scatter_dims_to_operand_dims) == sorted(numbers.inserted_window_dims)
        and written == updates
    )


def _vectors_last(indices: Value) -> Any:
    """Indices `[..., R, n]`, whose vectors a gather and a scatter expect on the last axis, from `[..., n, R]`."""
    return jnp.swapaxes(indices.array, -1, -2) if indices.mapped else indices.array


def _countable(index: jax.Array) -> jax.Array:
    """An index of a type that can be compared with the length of any axis."""
    return index if index.dtype.itemsize >= 4 else index.astype(jnp.int32)


def _write_slice(eqn: JaxprEqn, operand: jax.Array, index: jax.Array, updates: jax.Array) -> jax.Array:
    """Writes the place `index` `[n]` of `operand` `[..., R]`, the same in all runs, in place."""
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


def _write_by_comparison(eqn: JaxprEqn, operand: jax.Array, index: jax.Array, updates: jax.Array) -> jax.Array:
    """Writes the place `index` `[n, R]` of `operand` `[..., R]`, which differs between runs, where it is compared with all places."""
    numbers, mode = eqn.params["dimension_numbers"], eqn.params["mode"]
    axes = numbers.scatter_dims_to_operand_dims
    index, here = _countable(index), jnp.bool_(True)
    for number, axis in enumerate(axes):
        place, length = index[number], operand.shape[axis]
        if mode == _Mode.CLIP:
            place = jnp.clip(place, 0, length - 1)
        here &= lax.broadcasted_iota(place.dtype, operand.shape, axis) == place
    return jnp.where(here, _COMBINE[eqn.primitive.name](operand, lax.expand_dims(updates, sorted(axes))), operand)
