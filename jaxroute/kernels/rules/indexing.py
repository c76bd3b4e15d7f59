"""Reads and writes at places that are computed."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax

from jaxroute.kernels.rules.elementwise import EXPRESSIONS
from jaxroute.kernels.rules.registry import aval_of, kind_of, rule
from jaxroute.kernels.values import (
    Place,
    Unsupported,
    Value,
    add,
    flat,
    is_row,
    literal,
)
from jaxroute.kernels.writer import Writer

# Rows of so many numbers are copied as such.
_WIDE_ROW = 8


def _start(value: Value, largest: int) -> Any:
    """An index between 0 and the largest."""
    if not largest:
        return 0
    if value.known is not None:
        known = int(value.known.item())
        return min(max(known, 0), largest)
    text = value.at(())
    return f"min_u({text}, {largest}u)" if value.dtype.kind == "u" else f"min_i(max_i({text}, 0), {largest})"


def _at_hand(writer: Writer, x: Value) -> Value:
    """A value of which a few elements are read: stored, unless it is another way to look at a table, transposed say."""
    return x if x.known is not None or (len(x.storages) == 1 and not x.steps) else writer.stored(x)


@rule("dynamic_slice")
def _dynamic_slice(writer: Writer, eqn: Any, x: Value, *starts: Value) -> list[Value]:
    shape, _ = aval_of(eqn)
    x = _at_hand(writer, x)
    first = [writer.index(_start(s, n - size)) for s, n, size in zip(starts, x.shape, shape, strict=False)]
    first += [0] * (len(x.shape) - len(first))
    if x.storage is not None and x.storage.apart and is_row(x.shape, shape):
        writer.ready(x)
        row = writer.variable(x.dtype, math.prod(shape))
        writer.line(f"{x.storage.name}.rows<{row.size}>(&{row.element(0)}, {first[0]});", row)
        return [writer.value_of(row, shape)]
    view = writer.view(x, shape, lambda place: x.at(tuple(add(f, p) for f, p in zip(first, place, strict=True))))
    return [writer.copied(view)]


@rule("dynamic_update_slice")
def _dynamic_update_slice(writer: Writer, eqn: Any, x: Value, new: Value, *starts: Value) -> list[Value]:
    first = [writer.index(_start(s, n - size)) for s, n, size in zip(starts, x.shape, new.shape, strict=False)]
    first += [0] * (len(x.shape) - len(first))
    new = writer.apart(new, x)
    storage = writer.to_change(x, assigned=True)
    if storage.apart and is_row(x.shape, new.shape):
        new = (
            new
            if new.storage is not None and new.storage.varying and not new.storage.stride
            else writer.copied(new, varying=True)
        )
        assert new.storage is not None
        writer.ready(new)
        writer.before_writing(storage)
        meant = writer.masks[-1] if storage.depth < len(writer.masks) else "true"
        width, row = math.prod(new.shape), new.storage.element(0)
        writer.line(f"{storage.name}.write_rows<{width}>(&{row}, {first[0]}, {meant});", storage)
    else:
        writer.write_part(storage, x.shape, first, new, new.shape)
    return [writer.value_of(storage, x.shape)]


_Mode = lax.GatherScatterMode


def _gathered_at(
    numbers: Any, indices: Value, shape: Sequence[int], sizes: Sequence[int], batch: Place
) -> tuple[list[Any], list[str]]:
    """First index along every axis, as it is, of the window that a place of the batch stands for; and what its being inside says."""
    starts: list[Any] = [0] * len(shape)
    batching = getattr(numbers, "operand_batching_dims", ())
    own = getattr(numbers, "start_indices_batching_dims", getattr(numbers, "scatter_indices_batching_dims", ()))
    index_map = getattr(numbers, "start_index_map", getattr(numbers, "scatter_dims_to_operand_dims", ()))
    for axis, at in zip(batching, own, strict=True):
        starts[axis] = batch[at]
    inside = []
    for number, axis in enumerate(index_map):
        place = (*batch, number)
        largest = shape[axis] - sizes[axis]
        if indices.known is None or not all(isinstance(p, int) for p in place):
            text = indices.at(place)
            test = f"{text} <= {largest}u" if indices.dtype.kind == "u" else f"{text} >= 0 && {text} <= {largest}"
            inside.append(test)
            starts[axis] = (
                f"min_u({text}, {largest}u)" if indices.dtype.kind == "u" else f"min_i(max_i({text}, 0), {largest})"
            )
        else:
            known = int(indices.known[tuple(map(int, place))])
            if not 0 <= known <= largest:
                inside.append("false")
            starts[axis] = min(max(known, 0), largest)
    return starts, inside


@rule("gather")
def _gather(writer: Writer, eqn: Any, x: Value, indices: Value) -> list[Value]:
    params, numbers = eqn.params, eqn.params["dimension_numbers"]
    shape, dtype = aval_of(eqn)
    sizes = tuple(params["slice_sizes"])
    sizes = (*sizes, *x.shape[len(sizes) :])
    x = _at_hand(writer, x)
    indices = indices if indices.known is not None else writer.stored(indices)
    words = tuple(range(len(shape) - (len(x.shape) - len(params["slice_sizes"])), len(shape)))
    offset_dims = (*numbers.offset_dims, *words)
    dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    kept = [i for i in range(len(x.shape)) if i not in dropped]
    fills = params["mode"] == _Mode.FILL_OR_DROP
    fill = params.get("fill_value")
    if fills and fill is None:
        fill = (
            np.nan
            if dtype.kind == "f"
            else np.iinfo(dtype).min
            if dtype.kind == "i"
            else True
            if dtype.kind == "b"
            else np.iinfo(dtype).max
        )

    batch_shape = tuple(n for i, n in enumerate(shape) if i not in offset_dims)
    whole_rows = sizes == (1, *x.shape[1:]) and 0 in dropped and offset_dims == tuple(range(len(batch_shape), len(shape)))
    shared = x.storage is not None and not x.storage.varying and not x.storage.stride and x.dtype == np.float32
    if writer.wide and whole_rows and shared and not fills and math.prod(x.shape[1:]) >= _WIDE_ROW:
        return [
            _rows(writer, x, indices, batch_shape, lambda batch: _gathered_at(numbers, indices, x.shape, sizes, batch)[0][0])
        ]

    def make(place: Place, names: Sequence[str]) -> list[str]:
        batch = tuple(p for i, p in enumerate(place) if i not in offset_dims)
        starts, inside = _gathered_at(numbers, indices, x.shape, sizes, batch)
        own = list(starts)
        for axis, dim in zip(kept, offset_dims, strict=True):
            own[axis] = add(starts[axis], place[dim])
        text = x.at(tuple(own))
        if fills and inside:
            test, other = " && ".join(inside), literal(np.asarray(fill).astype(dtype)[()])
            text = f"choose_{kind_of(dtype)}({test}, {text}, {other})" if writer.wide else f"({test}) ? {text} : {other}"
        return [f"{names[0]} = {text};"]

    return writer.elementwise([(shape, dtype)], make)


def _rows(writer: Writer, x: Value, indices: Value, batch: tuple[int, ...], row: Callable[[Place], str]) -> Value:
    """Rows of a table that runs share, each run's own, copied number by number of a row: they are next to each other in the table."""
    shape = (*batch, *x.shape[1:])
    assert x.storage is not None
    writer.ready(indices, x)
    storage = writer.variable(x.dtype, math.prod(shape))
    width = math.prod(x.shape[1:])
    with writer.loops(batch) as place:
        first = storage.element(flat((*place, *(0 for _ in x.shape[1:])), shape))
        writer.line(f"rows_of<{width}>(&{first}, &{x.storage.element(0)}, {row(place)});", storage)
    return writer.value_of(storage, shape)


@rule("scatter", *(f"scatter{dash}{how}" for dash in "-_" for how in ("add", "mul", "min", "max", "sub")))
def _scatter(writer: Writer, eqn: Any, x: Value, indices: Value, updates: Value) -> list[Value]:
    params, numbers = eqn.params, eqn.params["dimension_numbers"]
    name = eqn.primitive.name.replace("-", "_")
    if name == "scatter" and params["update_jaxpr"] is not None and params["update_jaxpr"].eqns:
        raise Unsupported("scatter that applies a function")
    kind = kind_of(x.dtype)
    operation = name.removeprefix("scatter").removeprefix("_")
    added, rank = len(x.shape) - eqn.invars[0].aval.ndim, len(updates.shape)
    window = (*numbers.update_window_dims, *range(rank - added, rank))
    dropped = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    kept = [i for i in range(len(x.shape)) if i not in dropped]
    sizes = [1] * len(x.shape)
    for axis, dim in zip(kept, window, strict=True):
        sizes[axis] = updates.shape[dim]
    drops = params["mode"] in (_Mode.FILL_OR_DROP, None)
    indices, updates = writer.apart(indices, x), writer.apart(updates, x)
    storage = writer.to_change(x, assigned=True)
    writer.ready(indices, updates)
    writer.before_writing(storage)
    with writer.loops(updates.shape) as place:
        batch = tuple(p for i, p in enumerate(place) if i not in window)
        starts, inside = _gathered_at(numbers, indices, x.shape, sizes, batch)
        own = list(starts)
        for axis, dim in zip(kept, window, strict=True):
            own[axis] = add(starts[axis], place[dim])
        target = storage.element(flat(tuple(own), x.shape))
        text = updates.at(place)
        if operation:
            text = EXPRESSIONS[operation](kind, target, text)
            storage.reads += 1
        line = writer.assigned(storage, target, text)
        writer.line(writer.only_if(" && ".join(inside), line) if drops and inside else line, storage)
    return [writer.value_of(storage, x.shape)]
