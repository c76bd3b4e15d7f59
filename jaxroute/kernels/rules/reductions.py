"""Sums, extremes and products along axes, partial sums, and products of matrices."""

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxroute.core.primitives import place_mask
from jaxroute.kernels import ir
from jaxroute.kernels.rules.elementwise import beats, combined
from jaxroute.kernels.rules.registry import aval_of, rule
from jaxroute.kernels.values import Value, add, flat, mirrored, times, unflat
from jaxroute.kernels.writer import Writer

# The operation of each reduction, and neutral numbers of operations.
_REDUCTIONS = {
    "reduce_sum": "add",
    "reduce_prod": "mul",
    **{f"reduce_{one}": one for one in ("max", "min", "and", "or", "xor")},
}
_CUMULATIVE = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}
_NEUTRAL = {"add": 0, "mul": 1, "and": 1, "or": 0, "xor": 0}
# So many sums of products are added up at once, where each has so many terms.
_SUMS_AT_ONCE, _MANY_TERMS = 8, 8


def _first(dtype: np.dtype, operation: str) -> ir.Expr:
    """The number that an operation on several begins with."""
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
    """Reduces in the order of the elements; an extreme that is zero is +0, whatever the order."""
    (value,) = _reduce(writer, eqn, x)
    if value.dtype.kind != "f" or _REDUCTIONS[eqn.primitive.name] in _NEUTRAL:
        return [value]
    return [writer.pointwise(value.shape, value.dtype, lambda place: value.at(place) + 0)]


def _reduce(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    shape, dtype = aval_of(eqn)
    axes, operation = tuple(eqn.params["axes"]), _REDUCTIONS[eqn.primitive.name]
    terms, extreme = [x.shape[a] for a in axes], operation not in _NEUTRAL
    if extreme and not math.prod(terms):
        raise ir.Unsupported(f"{eqn.primitive.name} of nothing")
    start = _first(dtype, operation)
    if len(axes) == len(x.shape):
        if operation == "add" and x.chosen is not None:  # The number that is chosen, instead of a sum of zeros and of it.
            (which, case), last = x.chosen, lambda found: [ir.Assign(found[0], combined("add", found[0], start))]
            term = lambda place, total: ir.choose(which.at(place), case.at(place), total)  # noqa: E731
            return writer.gathered(x.shape, [start], lambda place, found: [ir.Assign(found[0], term(place, found[0]))], last)
        total = lambda place, found: [ir.Assign(found[0], combined(operation, found[0], x.at(place)))]  # noqa: E731
        return writer.gathered(x.shape, [start], total)

    writer.ready(x)
    storage = writer.array(dtype, shape)
    with writer.loops(shape) as place:
        total = writer.local(_at(x, (), (*place, *(0 for _ in axes)), axes) if extreme else start)
        if writer.wide and dtype == np.float32 and extreme:  # NaN is gathered by itself, which waits less.
            odd = writer.local(total.is_nan())
            with writer.loops(terms) as inner:
                now = writer.local(_at(x, (), (*place, *inner), axes))
                better = now > total if operation == "max" else now < total
                writer.add(ir.Assign(odd, odd | now.is_nan()), ir.Assign(total, ir.choose(better, now, total)))
            writer.add(ir.Assign(total, ir.choose(odd, np.nan, total)))
        elif math.prod(terms):
            with writer.loops(terms) as inner:
                writer.add(ir.Assign(total, combined(operation, total, _at(x, (), (*place, *inner), axes))))
        writer.add(ir.Assign(ir.element(storage, flat(place, shape)), total))
    return [writer.value_of(storage, shape)]


def has_nan(writer: Writer, x: Value) -> Value:
    """`numerics.has_nan` of several runs at once: in one pass, with one comparison for two numbers."""
    writer.ready(x)
    odd, pairs = ir.variable(writer.array(bool, ())), x.size // 2
    assert odd.storage is not None
    if x.storage is not None and x.storage.apart:
        writer.add(ir.Assign(odd, ir.apply("rows_have_nan", ir.variable(x.storage), dtype=bool)))
        return writer.value_of(odd.storage, ())
    writer.add(ir.Assign(odd, ir.literal(False, bool)))

    def look(first: ir.Index, second: ir.Index) -> None:
        a, b = (writer.local(x.at(unflat(i, x.shape))) for i in (first, second))
        writer.add(ir.Assign(odd, odd | ir.apply("either_nan", a, b)))

    if pairs:
        with writer.loop(pairs) as i:
            look(times(i, 2), add(times(i, 2), 1))
    if 2 * pairs < x.size:
        look(2 * pairs, 2 * pairs)
    return writer.value_of(odd.storage, ())


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
    """The first place of the largest or smallest number; NaN counts as such."""
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


class _Contest:
    """Operands of `first_best`: scores, which places are allowed, and numbers of places, the least of which is first on ties."""

    def __init__(self, eqn: Any, score: Value, given: Sequence[Value]):
        self.axis, self._ordered = eqn.params["axis"], eqn.params["ordered"]
        self.score, self.size = score, score.shape[self.axis]
        self._mask, self._given = place_mask(self.size), given
        # Above all numbers of places.
        self.none = ir.literal((2**31 - 1) & ~self._mask | self.size if self._ordered else self.size)

    def index(self, first: ir.Expr, odd: ir.Expr) -> ir.Expr:
        """The index that a number of a place means; nothing equals a maximum that is NaN."""
        return ir.choose(odd, ir.literal(self.size), first & self._mask if self._ordered else first)

    def number_at(self, place: ir.Place) -> ir.Expr:
        """The number of a place."""
        return self._given[-1].at(place) if self._ordered else ir.as_expr(place[self.axis])

    def allowed(self, place: ir.Place) -> list[ir.Expr]:
        """The condition of a place, if there is one."""
        return [one.at(place) for one in (self._given[:-1] if self._ordered else self._given)]


@rule("first_best")
def _first_best(writer: Writer, eqn: Any, score: Value, *given: Value) -> list[Value]:
    """Finds the first place of the maximum among those that are allowed, the length where there is none, as `primitives.by_comparison`."""
    shape, dtype = aval_of(eqn)
    contest = _Contest(eqn, score, given)
    if len(score.shape) == 1:
        return [_first_of_largest(writer, contest)]
    axis, size = contest.axis, contest.size
    writer.ready(score, *given)
    storage = writer.array(dtype, shape)
    with writer.loops(shape) as place:
        target = ir.element(storage, flat(place, shape))
        writer.add(ir.Assign(target, contest.none))
        best, odd = writer.local(_first(score.dtype, "max")), writer.local(ir.literal(False, bool))
        with writer.loop(size) as i:
            here = (*place[:axis], i, *place[axis:])
            now = writer.local(score.at(here))
            tie = ir.both(now.equals(best), contest.number_at(here) < target)
            new = writer.local(ir.both(*contest.allowed(here), ir.either(now > best, tie)))
            writer.add(ir.Assign(best, now, new), ir.Assign(target, contest.number_at(here), new))
            writer.add(ir.Assign(odd, odd | ir.both(*contest.allowed(here), now.is_nan())))
        writer.add(ir.Assign(target, contest.index(target, odd)))
    return [writer.value_of(storage, shape)]


def _first_of_largest(writer: Writer, contest: _Contest) -> Value:
    """The same in two passes, of which no step waits long for the one before: the largest, and the first place that has it."""
    score = contest.score

    def allowed(place: ir.Place, condition: ir.Expr) -> ir.Expr:
        return functools.reduce(operator.and_, [*contest.allowed(place), condition])

    def largest(place: ir.Place, names: Sequence[ir.Expr]) -> list[ir.Statement]:
        now, (best, odd) = score.at(place), names
        return [
            ir.Assign(best, ir.choose(allowed(place, now > best), now, best)),
            ir.Assign(odd, odd | allowed(place, now.is_nan())),
        ]

    best, odd = writer.gathered(score.shape, [_first(score.dtype, "max"), ir.literal(False, bool)], largest)

    def first(place: ir.Place, names: Sequence[ir.Expr]) -> list[ir.Statement]:
        here = allowed(place, score.at(place).equals(best.at(())))
        return [ir.Assign(names[0], ir.apply("min", names[0], ir.choose(here, contest.number_at(place), contest.none)))]

    last = lambda names: [ir.Assign(names[0], contest.index(names[0], odd.at(())))]  # noqa: E731
    return writer.gathered(score.shape, [contest.none], first, last)[0]


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

    def sums(places: Sequence[ir.Place]) -> None:
        """Several sums at once, each in the order of its terms: none waits for the one before."""
        totals = [writer.local(ir.literal(0, dtype)) for _ in places]
        if math.prod(terms):
            with writer.loops(terms) as inner:
                for total, place in zip(totals, places, strict=True):
                    writer.add(ir.Assign(total, total + product(place, inner)))
        for total, place in zip(totals, places, strict=True):
            writer.add(ir.Assign(ir.element(storage, flat(place, shape)), total))

    last = shape[-1] if shape else 1
    width = min(last, _SUMS_AT_ONCE) if writer.wide and math.prod(terms) >= _MANY_TERMS else 1
    with writer.loops(shape[:-1]) as place:
        with writer.loops([last // width]) as (i,):
            sums([(*place, add(times(i, width), n))[: len(shape)] for n in range(width)])
        if last % width:
            sums([(*place, n) for n in range(last // width * width, last)])
    return [writer.value_of(storage, shape)]


def _at(x: Value, first: Sequence[int], place: ir.Place, last: Sequence[int]) -> ir.Expr:
    """An element, by its indices along the first axes, those that are not named, and the last."""
    axes = (*first, *(i for i in range(len(x.shape)) if i not in (*first, *last)), *last)
    where = dict(zip(axes, place, strict=True))
    return x.at(tuple(where[i] for i in range(len(x.shape))))
