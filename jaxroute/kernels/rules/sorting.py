"""Rules of sorting operations."""

from collections.abc import Callable, Sequence
from typing import Any

from jaxroute.kernels import ir
from jaxroute.kernels.rules.elementwise import beats
from jaxroute.kernels.rules.registry import aval_of, rule
from jaxroute.kernels.values import Value, add
from jaxroute.kernels.writer import Writer


def _ahead(own: Sequence[ir.Expr], others: Sequence[ir.Expr]) -> ir.Expr:
    """Returns the test whether `own` must come before `others`, lexicographically."""
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
    """Sorts stably by insertion; NaN comes last."""
    axis, keys = eqn.params["dimension"], eqn.params["num_keys"]
    columns: list[Value] = []
    for x in xs:
        own = writer.free(x)
        apart = writer.wide and own is not None and not (own.varying and own.depth == len(writer.masks))
        several = any(x.storage is y.storage for y in xs if y is not x)
        columns.append(writer.copied(x, varying=True) if own is None or apart or several else x)
    _insert(writer, columns, axis, lambda own, before: _ahead(own[:keys], before[:keys]))
    return columns


def _insert(
    writer: Writer, columns: Sequence[Value], axis: int, ahead: Callable[[Sequence[ir.Expr], Sequence[ir.Expr]], ir.Expr]
) -> None:
    """Sorts arrays in their own storages along an axis: a number moves forward while it is ahead of its predecessor."""
    shape = columns[0].shape
    if shape[axis] < 2:
        return
    writer.ready(*columns)
    for column in columns:
        if column.storage is not None:
            writer.before_writing(column.storage)

    with writer.loops([1 if i == axis else n for i, n in enumerate(shape)]) as place, writer.loop(shape[axis], 1) as i:

        def row(index: ir.Index) -> list[ir.Expr]:
            return [column.at((*place[:axis], index, *place[axis + 1 :])) for column in columns]

        with writer.loop(shape[axis], i, step=-1) as j:  # Neighbours are exchanged until all runs are sorted.
            own, before = row(j), row(add(j, -1))
            swap = writer.local(ahead(own, before))
            writer.add(ir.If(~ir.apply("any", swap), [ir.Call("break")]))
            for a, b in zip(own, before, strict=True):
                held = writer.local(a)
                writer.add(ir.Assign(a, b, swap), ir.Assign(b, held, swap))


@rule("top_k")
def _top_k(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    """Returns the largest numbers in order, ties in order of index; NaN is the largest."""
    axis = eqn.params.get("axis", -1) % len(x.shape)
    places = Value(x.shape, ir.INT, lambda place: ir.as_expr(place[axis]))
    columns = [writer.copied(one, varying=True) for one in (x, places)]
    _insert(writer, columns, axis, lambda own, before: beats(own[0], before[0]))
    return [writer.view(one, aval_of(eqn)[0], one.at) for one in columns]
