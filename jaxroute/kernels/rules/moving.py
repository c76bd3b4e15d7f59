"""Rules of operations that move elements. Most only change the index of an element, at no cost, except reads and writes at computed indices."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from jaxroute.kernels import ir
from jaxroute.kernels.ir import Value, add, aval_of, flat, is_row, mirrored, quotient, remainder, times, unflat
from jaxroute.kernels.rules.elementwise import combined, rule
from jaxroute.kernels.writer import Writer


@rule("broadcast_in_dim")
def _broadcast_in_dim(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    shape, _ = aval_of(eqn)
    dims = eqn.params["broadcast_dimensions"]
    rest = len(x.shape) - len(dims)  # Axis of the words of a key.
    if x.known is not None and x.known.size == 1:
        return [writer.constant(np.full(shape, x.known.reshape(()), x.dtype))]

    def at(place: ir.Place) -> ir.Expr:
        own = [0 if size == 1 else place[d] for d, size in zip(dims, x.shape, strict=False)]
        return x.at((*own, *place[len(place) - rest :])) if rest else x.at(tuple(own))

    same = math.prod(shape) == x.size
    made = writer.view(x, shape, at, x.storage if same else None)
    made.uniform = x.uniform or x.size == 1
    made.lone = x.lone and len(shape) == 1
    return [made]


@rule("reshape", "squeeze", "expand_dims")
def _reshape(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    shape, _ = aval_of(eqn)
    if eqn.primitive.name == "reshape" and eqn.params.get("dimensions") is not None:
        raise ir.Unsupported("reshape in another order")
    if x.known is not None:
        return [writer.constant(x.known.reshape(shape))]
    if shape == x.shape:
        return [x]
    squeezed = [i for i, n in enumerate(x.shape) if n != 1]
    if [x.shape[i] for i in squeezed] == [n for n in shape if n != 1]:
        wide = [i for i, n in enumerate(shape) if n != 1]

        def at(place: ir.Place) -> ir.Expr:
            own: list[ir.Index] = [0] * len(x.shape)
            for source, target in zip(squeezed, wide, strict=True):
                own[source] = place[target]
            return x.at(tuple(own))

        return [writer.view(x, shape, at, x.storage)]
    whole = writer.stored(x)
    return [writer.view(whole, shape, lambda place: whole.at(unflat(flat(place, shape), whole.shape)), whole.storage)]


@rule("transpose")
def _transpose(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    shape, _ = aval_of(eqn)
    permutation = (*eqn.params["permutation"], *range(len(eqn.params["permutation"]), len(x.shape)))
    inverse = [permutation.index(i) for i in range(len(shape))]

    def at(place: ir.Place) -> ir.Expr:
        return x.at(tuple(place[i] for i in inverse))

    # Transposing a stored array twice gives the array itself.
    names = tuple(ir.variable(ir.Storage("i", ir.INT, 0)) for _ in shape)
    own = next(iter(x.storages)) if len(x.storages) == 1 else None
    same = own is not None and shape and own.size == x.size and at(names) == ir.element(own, flat(names, shape))
    return [writer.view(x, shape, at, own if same else None)]


@rule("rev")
def _rev(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    sizes = [(i in eqn.params["dimensions"], n) for i, n in enumerate(x.shape)]
    turned = lambda place: (mirrored(p, n) if turns else p for p, (turns, n) in zip(place, sizes, strict=True))  # noqa: E731
    return [writer.view(x, x.shape, lambda place: x.at(tuple(turned(place))))]


def _part(writer: Writer, x: Value, shape: Sequence[int], starts: Sequence[int], strides: Sequence[int]) -> Value:
    """Returns the part of `x` of this `shape`: along axis `i` every `strides[i]`-th element from `starts[i]`; axes beyond `starts` are whole."""

    def at(place: ir.Place) -> ir.Expr:
        front = (add(times(p, stride), start) for p, start, stride in zip(place, starts, strides, strict=False))
        return x.at((*front, *place[len(starts) :]))

    return writer.view(x, shape, at)


@rule("slice")
def _slice(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    starts = eqn.params["start_indices"]
    return [_part(writer, x, aval_of(eqn)[0], starts, eqn.params["strides"] or (1,) * len(starts))]


@rule("split")
def _split(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    axis, firsts = eqn.params["axis"], itertools.accumulate(eqn.params["sizes"], initial=0)
    parts = zip(range(len(eqn.outvars)), firsts, strict=False)
    return [_part(writer, x, aval_of(eqn, n)[0], [*[0] * axis, first], [1] * (axis + 1)) for n, first in parts]


@rule("unstack")
def _unstack(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    axis = eqn.params["axis"]
    return [writer.row(x, i, axis) for i in range(x.shape[axis])]


@rule("tile")
def _tile(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    return [writer.view(x, aval_of(eqn)[0], lambda place: x.at(tuple(map(remainder, place, x.shape))))]


@rule("iota")
def _iota(writer: Writer, eqn: Any) -> list[Value]:
    shape, dtype = aval_of(eqn)
    axis = eqn.params["dimension"]
    line = np.arange(shape[axis]).astype(dtype)
    known = np.broadcast_to(line.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)

    def at(place: ir.Place) -> ir.Expr:
        number = place[axis]
        return ir.literal(line[number], dtype) if not isinstance(number, ir.Expr) else ir.convert(number, dtype)

    return [Value(shape, dtype, at, known=known)]


@rule("concatenate")
def _concatenate(writer: Writer, eqn: Any, *xs: Value) -> list[Value]:
    axis = eqn.params["dimension"]
    if len(xs) == 1:
        return [xs[0]]
    if all(x.known is not None for x in xs):
        return [writer.constant(np.concatenate([np.asarray(x.known) for x in xs], axis))]
    return [writer.concatenated(aval_of(eqn)[0], xs, [x.shape[axis] for x in xs], axis)]


@rule("stack")
def _stack(writer: Writer, eqn: Any, *xs: Value) -> list[Value]:
    return [writer.stacked(xs, eqn.params["axis"])]


@rule("pad")
def _pad(writer: Writer, eqn: Any, x: Value, value: Value) -> list[Value]:
    shape, dtype = aval_of(eqn)
    config = eqn.params["padding_config"]
    if not x.size:
        return [writer.view(value, shape, lambda place: value.at(()))]
    whole = x if x.known is not None else writer.stored(x)

    def at(place: ir.Place) -> ir.Expr:
        tests: list[ir.Expr] = []
        own: list[ir.Index] = []
        for p, n, (low, high, interior) in zip(place, x.shape, config, strict=True):
            inner, last = add(p, -low), (n - 1) * (interior + 1)
            if not isinstance(inner, ir.Expr):
                tests += [] if 0 <= inner <= last and inner % (interior + 1) == 0 else [ir.literal(False, bool)]
                inner = min(max(inner, 0), last)
            elif low or high:
                tests.append(ir.convert(inner, np.uint32) < last + 1)
                inner = ir.apply("min", ir.apply("max", inner, 0), last)
            if interior and isinstance(inner, ir.Expr):
                tests.append(ir.as_expr(remainder(inner, interior + 1)).equals(0))
            own.append(quotient(inner, interior + 1))
        return ir.choose(ir.both(*tests), whole.at(tuple(own)), value.at(())) if tests else whole.at(tuple(own))

    return [writer.pointwise(shape, dtype, at)]


# Reads and writes at computed indices

# Smallest length of a row that is copied by one statement.
_WIDE_ROW = 8
_Mode = lax.GatherScatterMode


def _clipped(index: ir.Expr, largest: int) -> ir.Index:
    if index.op == "literal":
        return min(max(int(index.number), 0), largest)
    if index.dtype.kind == "u":
        return ir.apply("min", index, ir.literal(largest, np.uint32), dtype=np.uint32)
    at_least = ir.apply("max", index, ir.literal(0), dtype=np.int32)
    return ir.apply("min", at_least, ir.literal(largest))


def _starts(writer: Writer, starts: Sequence[Value], shape: Sequence[int], sizes: Sequence[int]) -> list[ir.Index]:
    """Returns the indices `starts`, one for each axis, clipped so that a part of lengths `sizes` that begins there lies in an array of `shape`."""
    first: list[ir.Index] = [0] * len(shape)
    for axis, start in enumerate(starts):
        if shape[axis] > sizes[axis]:
            at = _clipped(start.at(()), shape[axis] - sizes[axis])
            first[axis] = writer.local(at, at.varies) if isinstance(at, ir.Expr) else at
    return first


def _readable(writer: Writer, x: Value) -> Value:
    return x if x.known is not None or (len(x.storages) == 1 and not x.steps) else writer.stored(x)


@rule("dynamic_slice")
def _dynamic_slice(writer: Writer, eqn: Any, x: Value, *starts: Value) -> list[Value]:
    shape, _ = aval_of(eqn)
    x = _readable(writer, x)
    first = _starts(writer, starts, x.shape, shape)
    if x.storage is not None and x.storage.per_run and is_row(x.shape, shape):
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
    if not (storage.per_run and is_row(x.shape, new.shape)):
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
    numbers: Any, indices: Value, x: Value, sizes: Sequence[int], window: Sequence[tuple[int, int]], place: ir.Place
) -> tuple[ir.Place, list[ir.Expr]]:
    """Returns the index tuple in `x` that belongs to `place`, an index tuple in a gather's result or a scatter's updates, and conditions.

    They hold if the window, a part of `x` of lengths `sizes` from the start in `indices`, need not be moved to lie in `x`. `window` has a pair for
    each axis of `x` that windows span: this axis, and the position in `place` of the index within the window.
    """
    starts: list[ir.Index] = [0] * len(x.shape)
    own = getattr(numbers, "start_indices_batching_dims", getattr(numbers, "scatter_indices_batching_dims", ()))
    index_map = getattr(numbers, "start_index_map", getattr(numbers, "scatter_dims_to_operand_dims", ()))
    batch = [p for i, p in enumerate(place) if all(i != dim for _, dim in window)]
    for axis, at in zip(numbers.operand_batching_dims, own, strict=True):
        starts[axis] = batch[at]
    inside: list[ir.Expr] = []
    for number, axis in enumerate(index_map):
        index, largest = indices.at((*batch, number)), x.shape[axis] - sizes[axis]
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
        # A row of a shared table at an index of each run is copied as a whole, because its elements are contiguous.
        writer.ready(indices, x)
        storage, width = writer.array(x.dtype, shape), math.prod(x.shape[1:])
        with writer.loops(batch_shape) as batch:
            place = (*batch, *[0] * (len(shape) - len(batch)))
            row = _in_window(numbers, indices, x, sizes, window, place)[0][0]
            first = ir.element(storage, flat(place, shape))
            writer.add(ir.Call("rows_of", (first, ir.element(table, 0), ir.as_expr(row)), (storage,), width))
        return [writer.value_of(storage, shape)]

    def at(place: ir.Place) -> ir.Expr:
        where, inside = _in_window(numbers, indices, x, sizes, window, place)
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
        where, inside = _in_window(numbers, indices, x, sizes, window, place)
        target = ir.element(storage, flat(where, x.shape))
        new = combined(operation, target, updates.at(place)) if operation else updates.at(place)
        writer.assign(target, new, ir.both(*inside) if drops and inside else None)
    return [writer.value_of(storage, x.shape)]
