"""Operations that bring elements into order."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxroute.kernels import ir
from jaxroute.kernels.rules.elementwise import beats
from jaxroute.kernels.rules.registry import aval_of, rule
from jaxroute.kernels.values import Value, add, flat
from jaxroute.kernels.writer import Writer


def _ahead(own: Sequence[ir.Expr], others: Sequence[ir.Expr]) -> ir.Expr:
    """Whether `own` must come before `others`, by the first numbers that differ."""
    found = None
    for a, b in reversed(list(zip(own, others, strict=True))):
        less, same = a < b, a.equals(b)
        if a.dtype.kind == "f":
            less = ir.either(less, ir.both(a.equals(a), b.is_nan()))
            same = ir.either(same, ir.both(a.is_nan(), b.is_nan()))
        found = less if found is None else ir.either(less, ir.both(same, found))
    assert found is not None
    return found


@rule("sort")
def _sort(writer: Writer, eqn: Any, *xs: Value) -> list[Value]:
    """Sorts by insertion, which keeps equal numbers in order; NaN comes last."""
    axis, keys, shape = eqn.params["dimension"], eqn.params["num_keys"], xs[0].shape
    columns: list[Value] = []
    for x in xs:
        own = writer.free(x)
        apart = writer.wide and own is not None and not (own.varying and own.depth == len(writer.masks))
        several = any(x.storage is y.storage for y in xs if y is not x)
        columns.append(writer.copied(x, varying=True) if own is None or apart or several else x)
    if shape[axis] < 2:
        return columns
    writer.ready(*columns)
    for column in columns:
        if column.storage is not None:
            writer.before_writing(column.storage)

    with writer.loops([1 if i == axis else n for i, n in enumerate(shape)]) as place, writer.loop(shape[axis], 1) as i:

        def row(index: ir.Index) -> list[ir.Expr]:
            return [column.at((*place[:axis], index, *place[axis + 1 :])) for column in columns]

        with writer.loop(shape[axis], i, step=-1) as j:  # Neighbours change places until no run has two that must.
            own, before = row(j), row(add(j, -1))
            swap = writer.local(_ahead(own[:keys], before[:keys]))
            writer.add(ir.If(~ir.apply("any", swap), [ir.Call("break")]))
            for a, b in zip(own, before, strict=True):
                held = writer.local(a)
                writer.add(ir.Assign(a, b, swap), ir.Assign(b, held, swap))
    return columns


@rule("top_k")
def _top_k(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    """The largest in order, the first of equal ones first; NaN is the largest."""
    if eqn.params.get("axis", len(x.shape) - 1) not in (-1, len(x.shape) - 1):
        raise ir.Unsupported("top_k along another axis")
    shape, dtype = aval_of(eqn)
    k, n = shape[-1], x.shape[-1]
    writer.ready(x)
    best, where = writer.array(dtype, shape), writer.array(np.int32, shape)

    with writer.loops(shape[:-1]) as place:

        def at(j: ir.Index) -> tuple[ir.Expr, ir.Expr]:
            number = flat((*place, j), shape)
            return ir.element(best, number), ir.element(where, number)

        def taken(j: ir.Expr) -> list[ir.Statement]:
            return [ir.Assign(target, new) for target, new in zip(at(j), (own, number), strict=True)]

        with writer.loop(n) as i:  # What is better takes the place of the next, which goes on to the one behind it.
            own, number = writer.local(x.at((*place, i))), writer.local(i)
            found = writer.local(ir.literal(False, bool))
            with writer.loop(k) as j:
                writer.add(ir.If(i <= j, [ir.If(i.equals(j), taken(j)), ir.Call("break")]))
                writer.add(ir.Assign(found, ir.either(found, beats(own, at(j)[0]))))
                following = [writer.local(one) for one in at(j)]
                for target, one in zip(at(j), (own, number), strict=True):
                    writer.add(ir.Assign(target, one, found))
                for one, new in zip((own, number), following, strict=True):
                    writer.add(ir.Assign(one, new, found))
    return [writer.value_of(best, shape), writer.value_of(where, shape)]
