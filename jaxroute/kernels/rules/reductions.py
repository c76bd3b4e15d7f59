"""Rules of operations along axes: reductions, cumulative sums, argmax, matrix products and sorting."""

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxroute.core.xla import place_mask
from jaxroute.kernels import ir
from jaxroute.kernels.ir import Value, add, aval_of, flat, mirrored
from jaxroute.kernels.rules.elementwise import beats, combined, rule
from jaxroute.kernels.writer import Writer

# Operation of each reduction, and neutral elements of operations.
_REDUCTIONS = {f"reduce_{one}": one for one in ("max", "min", "and", "or", "xor")} | {
    "reduce_sum": "add",
    "reduce_prod": "mul",
}
_CUMULATIVE = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}
_NEUTRAL = {"add": 0, "mul": 1, "and": 1, "or": 0, "xor": 0}


def _first(dtype: np.dtype, operation: str) -> ir.Expr:
    if operation in _NEUTRAL:
        return ir.literal(_NEUTRAL[operation], dtype)
    if dtype.kind == "b":
        return ir.literal(operation == "min", dtype)
    if dtype.kind == "f":
        return ir.literal(-np.inf if operation == "max" else np.inf, dtype)
    limits = np.iinfo(dtype)
    return ir.literal(limits.min if operation == "max" else limits.max, dtype)


@rule(*_REDUCTIONS)
def _reduction(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    """Writes the reduction `eqn` of `x`, such as a sum, in the order of the elements; returns its result. A maximum or minimum of -0 becomes +0."""
    shape, dtype = aval_of(eqn)
    axes, operation = tuple(eqn.params["axes"]), _REDUCTIONS[eqn.primitive.name]
    terms, extreme = [x.shape[a] for a in axes], operation not in _NEUTRAL
    if extreme and not math.prod(terms):
        raise ir.Unsupported(f"{eqn.primitive.name} of nothing")
    start = _first(dtype, operation)
    whole = len(axes) == len(x.shape)
    if whole and operation == "add" and x.chosen is not None:  # The chosen number, instead of its sum with zeros.
        (which, case), last = x.chosen, lambda found: [ir.Assign(found[0], combined("add", found[0], start))]
        term = lambda place, total: ir.choose(which.at(place), case.at(place), total)  # noqa: E731
        return writer.gathered(x.shape, [start], lambda place, found: [ir.Assign(found[0], term(place, found[0]))], last)
    if whole:
        step = lambda place, found: [ir.Assign(found[0], combined(operation, found[0], x.at(place)))]  # noqa: E731
        (made,) = writer.gathered(x.shape, [start], step)
    else:
        writer.ready(x)
        storage = writer.array(dtype, shape)
        with writer.loops(shape) as place:
            total = writer.local(_at(x, (), (*place, *(0 for _ in axes)), axes) if extreme else start)
            if math.prod(terms):
                with writer.loops(terms) as inner:
                    writer.add(ir.Assign(total, combined(operation, total, _at(x, (), (*place, *inner), axes))))
            writer.add(ir.Assign(ir.element(storage, flat(place, shape)), total))
        made = writer.value_of(storage, shape)
    return [writer.pointwise(shape, dtype, lambda place: made.at(place) + 0) if extreme and dtype.kind == "f" else made]


def has_nan(writer: Writer, x: Value) -> Value:
    """Writes C statements that test whether an array has a NaN, in one pass over the elements. Returns a boolean scalar."""
    if x.storage is not None and x.storage.per_run:
        writer.ready(x)
        found = writer.array(bool, ())
        writer.add(ir.Assign(ir.variable(found), ir.apply("rows_have_nan", ir.variable(x.storage), dtype=bool)))
        return writer.value_of(found, ())

    def look(place: ir.Place, found: Sequence[ir.Expr]) -> list[ir.Statement]:
        now = x.at(place)
        return [ir.Assign(found[0], ir.choose(now.is_nan(), now, found[0]))]

    (odd,) = writer.gathered(x.shape, [ir.literal(0, x.dtype)], look)
    return writer.pointwise((), np.dtype(bool), lambda place: odd.at(place).is_nan())


@rule(*_CUMULATIVE)
def _cumulative(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    shape, dtype = aval_of(eqn)
    axis, reverse = eqn.params["axis"], eqn.params["reverse"]
    operation = _CUMULATIVE[eqn.primitive.name]
    if not x.size:
        return [x]
    writer.ready(x)
    storage = writer.array(dtype, shape)
    with writer.loops([1 if i == axis else n for i, n in enumerate(shape)]) as place:

        def here(step: ir.Index) -> ir.Place:
            return (*place[:axis], mirrored(step, shape[axis]) if reverse else step, *place[axis + 1 :])

        total = writer.local(x.at(here(0)))
        writer.add(ir.Assign(ir.element(storage, flat(here(0), shape)), total))
        with writer.loop(shape[axis], 1) as step:
            writer.add(ir.Assign(total, combined(operation, total, x.at(here(step)))))
            writer.add(ir.Assign(ir.element(storage, flat(here(step), shape)), total))
    return [writer.value_of(storage, shape)]


@rule("argmax", "argmin")
def _extreme(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    (axis,) = eqn.params["axes"]
    shape, dtype = aval_of(eqn)
    varies = writer.varies(x)
    writer.ready(x)
    storage = writer.array(dtype, shape, varies)
    with writer.loops(shape) as place:
        target = ir.element(storage, flat(place, shape))
        writer.add(ir.Assign(target, ir.literal(0, dtype)))
        best = writer.local(x.at((*place[:axis], 0, *place[axis:])), varying=varies)
        with writer.loop(x.shape[axis], 1) as i:
            now = writer.local(x.at((*place[:axis], i, *place[axis:])), varying=varies)
            new = writer.local(beats(now, best, eqn.primitive.name == "argmax"), varying=varies)
            writer.add(ir.Assign(best, now, new), ir.Assign(target, i, new))
    return [writer.value_of(storage, shape)]


@rule("first_best")
def _first_best(writer: Writer, eqn: Any, *operands: Value) -> list[Value]:
    shape, dtype = aval_of(eqn)
    axis, ordered = eqn.params["axis"], eqn.params["ordered"]
    if not shape:
        return [_first_of_largest(writer, ordered, *operands)]
    writer.finish()
    storage = writer.array(dtype, shape)
    with writer.loops(shape) as place:

        def line(x: Value) -> Value:
            return writer.view(x, (x.shape[axis],), lambda i: x.at((*place[:axis], *i, *place[axis:])))

        found = _first_of_largest(writer, ordered, *map(line, operands))
        writer.finish()
        writer.add(ir.Assign(ir.element(storage, flat(place, shape)), found.at(())))
    return [writer.value_of(storage, shape)]


def _first_of_largest(writer: Writer, ordered: bool, score: Value, *given: Value) -> Value:
    """Writes C statements that find the first index of the maximum of a vector `score` where all conditions in `given` hold; returns the index.

    It is the length of `score` if there is no such element, or if one is NaN. If `ordered`, the last array of `given` is no condition but an order:
    its smallest number wins ties, and the low bits of each number are the element's index.
    """
    (size,) = score.shape
    mask, conditions = place_mask(size), given[:-1] if ordered else given
    # Number above those of all elements.
    none = ir.literal((2**31 - 1) & ~mask | size if ordered else size)

    def allowed(place: ir.Place, condition: ir.Expr) -> ir.Expr:
        return functools.reduce(operator.and_, [*(one.at(place) for one in conditions), condition])

    def largest(place: ir.Place, names: Sequence[ir.Expr]) -> list[ir.Statement]:
        now, (best, odd) = score.at(place), names
        larger = ir.choose(allowed(place, now > best), now, best)
        return [ir.Assign(best, larger), ir.Assign(odd, odd | allowed(place, now.is_nan()))]

    best, odd = writer.gathered(score.shape, [_first(score.dtype, "max"), ir.literal(False, bool)], largest)

    def first(place: ir.Place, names: Sequence[ir.Expr]) -> list[ir.Statement]:
        here = allowed(place, score.at(place).equals(best.at(())))
        number = given[-1].at(place) if ordered else ir.as_expr(place[0])
        return [ir.Assign(names[0], ir.apply("min", names[0], ir.choose(here, number, none)))]

    def last(names: Sequence[ir.Expr]) -> list[ir.Statement]:  # No element equals a maximum that is NaN.
        index = names[0] & mask if ordered else names[0]
        return [ir.Assign(names[0], ir.choose(odd.at(()), ir.literal(size), index))]

    return writer.gathered(score.shape, [none], first, last)[0]


@rule("dot_general")
def _dot_general(writer: Writer, eqn: Any, a: Value, b: Value) -> list[Value]:
    (a_sum, b_sum), (a_batch, b_batch) = eqn.params["dimension_numbers"]
    shape, dtype = aval_of(eqn)
    if {a.dtype, b.dtype} != {dtype}:
        raise ir.Unsupported("dot_general of mixed types")
    batch, behind, terms = len(a_batch), len(a.shape) - len(a_sum), [a.shape[i] for i in a_sum]
    writer.ready(a, b)

    def product(place: ir.Place, inner: ir.Place) -> ir.Expr:
        left = _at(a, a_batch, (*place[:behind], *inner), a_sum)
        return left * _at(b, b_batch, (*place[:batch], *place[behind:], *inner), b_sum)

    storage = writer.array(dtype, shape)
    with writer.loops(shape) as place:
        total = writer.local(ir.literal(0, dtype))
        if math.prod(terms):
            with writer.loops(terms) as inner:
                writer.add(ir.Assign(total, total + product(place, inner)))
        writer.add(ir.Assign(ir.element(storage, flat(place, shape)), total))
    return [writer.value_of(storage, shape)]


def _at(x: Value, first: Sequence[int], place: ir.Place, last: Sequence[int]) -> ir.Expr:
    """Returns the C expression of an element of `x`. `place` has its indices, ordered so: axes `first`, those in neither list, axes `last`."""
    axes = (*first, *(i for i in range(len(x.shape)) if i not in (*first, *last)), *last)
    where = dict(zip(axes, place, strict=True))
    return x.at(tuple(where[i] for i in range(len(x.shape))))


# Sorting


def _ahead(own: Sequence[ir.Expr], others: Sequence[ir.Expr]) -> ir.Expr:
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
    axis, keys = eqn.params["dimension"], eqn.params["num_keys"]
    columns: list[Value] = []
    for x in xs:
        own = writer.free(x)
        unfit = writer.wide and own is not None and not (own.varying and own.depth == len(writer.masks))
        several = any(x.storage is y.storage for y in xs if y is not x)
        columns.append(writer.copied(x, varying=True) if own is None or unfit or several else x)
    _insert(writer, columns, axis, lambda own, before: _ahead(own[:keys], before[:keys]))
    return columns


def _insert(
    writer: Writer, columns: Sequence[Value], axis: int, ahead: Callable[[Sequence[ir.Expr], Sequence[ir.Expr]], ir.Expr]
) -> None:
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
    axis = eqn.params.get("axis", -1) % len(x.shape)
    places = Value(x.shape, ir.INT, lambda place: ir.as_expr(place[axis]))
    columns = [writer.copied(one, varying=True) for one in (x, places)]
    _insert(writer, columns, axis, lambda own, before: beats(own[0], before[0]))
    return [writer.view(one, aval_of(eqn)[0], one.at) for one in columns]
