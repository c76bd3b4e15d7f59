"""Rules of operations that only move elements: most of them only change the expression of an element, at no cost."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxroute.kernels import ir
from jaxroute.kernels.rules.registry import aval_of, rule
from jaxroute.kernels.values import Value, add, flat, mirrored, quotient, remainder, times, unflat
from jaxroute.kernels.writer import Writer


@rule("broadcast_in_dim")
def _broadcast_in_dim(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    shape, _ = aval_of(eqn)
    dims = eqn.params["broadcast_dimensions"]
    rest = len(x.shape) - len(dims)  # The words of a key.
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

    # Reversing a stored array twice gives the array itself.
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
    """Returns a part of an array, by start and step along the first axes."""

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


def _joined(writer: Writer, shape: tuple[int, ...], xs: Sequence[Value], widths: Sequence[int], axis: int) -> Value:
    """Concatenates pieces with given widths along an axis."""
    storage = writer.array(xs[0].dtype, shape)
    for x, width, first in zip(xs, widths, itertools.accumulate(widths, initial=0), strict=False):
        starts = [first if i == axis else 0 for i in range(len(shape))]
        writer.write_part(storage, shape, starts, x, (*shape[:axis], width, *shape[axis + 1 :]))
    return writer.value_of(storage, shape)


@rule("concatenate")
def _concatenate(writer: Writer, eqn: Any, *xs: Value) -> list[Value]:
    axis = eqn.params["dimension"]
    if len(xs) == 1:
        return [xs[0]]
    if all(x.known is not None for x in xs):
        return [writer.constant(np.concatenate([np.asarray(x.known) for x in xs], axis))]
    return [_joined(writer, aval_of(eqn)[0], xs, [x.shape[axis] for x in xs], axis)]


def stacked(writer: Writer, xs: Sequence[Value], axis: int) -> Value:
    """Stacks arrays along a new axis, the last one for -1."""
    axis = len(xs[0].shape) if axis < 0 else axis
    return _joined(writer, (*xs[0].shape[:axis], len(xs), *xs[0].shape[axis:]), xs, [1] * len(xs), axis)


@rule("stack")
def _stack(writer: Writer, eqn: Any, *xs: Value) -> list[Value]:
    return [stacked(writer, xs, eqn.params["axis"])]


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
