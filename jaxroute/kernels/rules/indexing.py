"""Rules of reads and writes at computed indices."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from jaxroute.kernels import ir
from jaxroute.kernels.rules.elementwise import combined
from jaxroute.kernels.rules.registry import aval_of, rule
from jaxroute.kernels.values import Value, add, flat, is_row
from jaxroute.kernels.writer import Writer

# Length from which on rows are copied as such.
_WIDE_ROW = 8
_Mode = lax.GatherScatterMode


def _clipped(index: ir.Expr, largest: int) -> ir.Index:
    """Clips an index to the range from 0 to the largest."""
    if index.op == "literal":
        return min(max(int(index.number), 0), largest)
    if index.dtype.kind == "u":
        return ir.apply("min", index, ir.literal(largest, np.uint32), dtype=np.uint32)
    at_least = ir.apply("max", index, ir.literal(0), dtype=np.int32)
    return ir.apply("min", at_least, ir.literal(largest))


def _starts(writer: Writer, starts: Sequence[Value], shape: Sequence[int], sizes: Sequence[int]) -> list[ir.Index]:
    """Returns the start along each axis of a part of given sizes; 0 for the words of keys."""
    first: list[ir.Index] = [0] * len(shape)
    for axis, start in enumerate(starts):
        if shape[axis] > sizes[axis]:
            at = _clipped(start.at(()), shape[axis] - sizes[axis])
            first[axis] = writer.local(at, at.varies) if isinstance(at, ir.Expr) else at
    return first


def _readable(writer: Writer, x: Value) -> Value:
    """Returns a value of which few elements are read: stored, unless it is a view of a table, for example its transpose."""
    return x if x.known is not None or (len(x.storages) == 1 and not x.steps) else writer.stored(x)


@rule("dynamic_slice")
def _dynamic_slice(writer: Writer, eqn: Any, x: Value, *starts: Value) -> list[Value]:
    shape, _ = aval_of(eqn)
    x = _readable(writer, x)
    first = _starts(writer, starts, x.shape, shape)
    if x.storage is not None and x.storage.apart and is_row(x.shape, shape):
        writer.ready(x)
        row = writer.array(x.dtype, shape)
        operands = ir.variable(x.storage), ir.element(row, 0), ir.as_expr(first[0])
        writer.add(ir.Call("read_rows", operands, (row,), row.size))
        return [writer.value_of(row, shape)]
    view = writer.view(x, shape, lambda place: x.at(tuple(add(f, p) for f, p in zip(first, place, strict=True))))
    return [writer.copied(view)]


@rule("dynamic_update_slice")
def _dynamic_update_slice(writer: Writer, eqn: Any, x: Value, new: Value, *starts: Value) -> list[Value]:
    first = _starts(writer, starts, x.shape, new.shape)
    new = writer.without(new, x)
    storage = writer.to_change(x)
    if not (storage.apart and is_row(x.shape, new.shape)):
        writer.write_part(storage, x.shape, first, new, new.shape)
        return [writer.value_of(storage, x.shape)]
    if new.storage is None or not new.storage.varying or new.storage.stride:
        new = writer.copied(new, varying=True)
    assert new.storage is not None
    writer.ready(new)
    writer.before_writing(storage)
    operands = ir.variable(storage), ir.element(new.storage, 0), ir.as_expr(first[0]), writer.meant(storage.depth)
    writer.add(ir.Call("write_rows", operands, (storage,), math.prod(new.shape)))
    return [writer.value_of(storage, x.shape)]


def _in_window(
    numbers: Any,
    indices: Value,
    shape: Sequence[int],
    sizes: Sequence[int],
    window: Sequence[tuple[int, int]],
    place: ir.Place,
) -> tuple[ir.Place, list[ir.Expr]]:
    """Returns the array index of an element that a gather reads or a scatter writes, and the conditions that its window is within bounds.

    A window of the given sizes begins at the indices, clipped if needed; `window` has its axes in the array and in the result.
    """
    starts: list[ir.Index] = [0] * len(shape)
    own = getattr(numbers, "start_indices_batching_dims", getattr(numbers, "scatter_indices_batching_dims", ()))
    index_map = getattr(numbers, "start_index_map", getattr(numbers, "scatter_dims_to_operand_dims", ()))
    batch = [p for i, p in enumerate(place) if all(i != dim for _, dim in window)]
    for axis, at in zip(numbers.operand_batching_dims, own, strict=True):
        starts[axis] = batch[at]
    inside: list[ir.Expr] = []
    for number, axis in enumerate(index_map):
        index, largest = indices.at((*batch, number)), shape[axis] - sizes[axis]
        starts[axis] = start = _clipped(index, largest)
        if not isinstance(start, ir.Expr):
            inside += [ir.literal(False, bool)] if start != index.number else []
        elif index.dtype.kind == "u":
            inside.append(index <= ir.literal(largest, np.uint32))
        else:
            inside.append(ir.both(index >= 0, index <= ir.literal(largest)))
    for axis, dim in window:
        starts[axis] = add(starts[axis], place[dim])
    return tuple(starts), inside


def _fill(params: Any, dtype: np.dtype) -> Any:
    """Returns the fill value for reads out of bounds."""
    if params.get("fill_value") is not None:
        return params["fill_value"]
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max
    return np.nan if dtype.kind == "f" else True


@rule("gather")
def _gather(writer: Writer, eqn: Any, x: Value, indices: Value) -> list[Value]:
    params, numbers = eqn.params, eqn.params["dimension_numbers"]
    shape, dtype = aval_of(eqn)
    words = len(x.shape) - len(params["slice_sizes"])
    sizes = (*params["slice_sizes"], *x.shape[len(x.shape) - words :])
    x = _readable(writer, x)
    indices = indices if indices.known is not None else writer.stored(indices)
    offset_dims = (*numbers.offset_dims, *range(len(shape) - words, len(shape)))
    dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    window = list(zip((i for i in range(len(x.shape)) if i not in dropped), offset_dims, strict=True))
    fills = params["mode"] == _Mode.FILL_OR_DROP
    batch_shape = tuple(n for i, n in enumerate(shape) if i not in offset_dims)
    whole_rows = sizes == (1, *x.shape[1:]) and 0 in dropped and offset_dims == tuple(range(len(batch_shape), len(shape)))
    table = x.storage if x.dtype == np.float32 and math.prod(x.shape[1:]) >= _WIDE_ROW else None
    if writer.wide and whole_rows and not fills and table is not None and not table.varying and not table.stride:
        # Rows of a shared table at an index of each run are copied element by element: these are contiguous in the table.
        writer.ready(indices, x)
        storage, width = writer.array(x.dtype, shape), math.prod(x.shape[1:])
        with writer.loops(batch_shape) as batch:
            place = (*batch, *[0] * (len(shape) - len(batch)))
            row = _in_window(numbers, indices, x.shape, sizes, window, place)[0][0]
            first = ir.element(storage, flat(place, shape))
            writer.add(ir.Call("rows_of", (first, ir.element(table, 0), ir.as_expr(row)), (storage,), width))
        return [writer.value_of(storage, shape)]

    def at(place: ir.Place) -> ir.Expr:
        where, inside = _in_window(numbers, indices, x.shape, sizes, window, place)
        found = x.at(where)
        return ir.choose(ir.both(*inside), found, ir.literal(_fill(params, dtype), dtype)) if fills and inside else found

    return [writer.pointwise(shape, dtype, at)]


@rule("scatter", *(f"scatter{dash}{how}" for dash in "-_" for how in ("add", "mul", "min", "max", "sub")))
def _scatter(writer: Writer, eqn: Any, x: Value, indices: Value, updates: Value) -> list[Value]:
    params, numbers = eqn.params, eqn.params["dimension_numbers"]
    operation = eqn.primitive.name.removeprefix("scatter")[1:]
    if not operation and params["update_jaxpr"] is not None and params["update_jaxpr"].eqns:
        raise ir.Unsupported("scatter that applies a function")
    added, rank = len(x.shape) - eqn.invars[0].aval.ndim, len(updates.shape)
    dims = (*numbers.update_window_dims, *range(rank - added, rank))
    dropped = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    window = list(zip((i for i in range(len(x.shape)) if i not in dropped), dims, strict=True))
    sizes = [1] * len(x.shape)
    for axis, dim in window:
        sizes[axis] = updates.shape[dim]
    drops = params["mode"] in (_Mode.FILL_OR_DROP, None)
    indices, updates = writer.without(indices, x), writer.without(updates, x)
    storage = writer.to_change(x)
    writer.ready(indices, updates)
    writer.before_writing(storage)
    with writer.loops(updates.shape) as place:
        where, inside = _in_window(numbers, indices, x.shape, sizes, window, place)
        target = ir.element(storage, flat(where, x.shape))
        new = combined(operation, target, updates.at(place)) if operation else updates.at(place)
        writer.assign(target, new, ir.both(*inside) if drops and inside else None)
    return [writer.value_of(storage, x.shape)]
