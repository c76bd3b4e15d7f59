"""Sums, extremes and products along axes, and sums on the way."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxroute.core.primitives import place_mask
from jaxroute.kernels.rules.elementwise import EXPRESSIONS
from jaxroute.kernels.rules.registry import aval_of, kind_of, mirrored, rule
from jaxroute.kernels.values import (
    Index,
    Place,
    Unsupported,
    Value,
    add,
    counting,
    flat,
    literal,
    times,
    unflat,
)
from jaxroute.kernels.writer import Writer

_REDUCTIONS: dict[str, tuple[str, str]] = {
    "reduce_sum": ("add", "0"),
    "reduce_prod": ("mul", "1"),
    "reduce_max": ("max", ""),
    "reduce_min": ("min", ""),
    "reduce_and": ("and", "1"),
    "reduce_or": ("or", "0"),
    "reduce_xor": ("xor", "0"),
}
# So many sums of products are added up at once, where each has so many terms.
_SUMS_AT_ONCE, _MANY_TERMS = 8, 8


def _lowest(dtype: np.dtype, operation: str) -> Any:
    """What a maximum begins with, or a minimum."""
    if dtype.kind == "b":
        return np.bool_(operation == "min")
    if dtype.kind == "f":
        return dtype.type(-np.inf if operation == "max" else np.inf)
    limits = np.iinfo(dtype)
    return dtype.type(limits.min if operation == "max" else limits.max)


@rule(*_REDUCTIONS)
def _reduce(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    """In the order of the elements, as XLA on a CPU with the runs last."""
    shape, dtype = aval_of(eqn)
    axes = tuple(eqn.params["axes"])
    operation, start = _REDUCTIONS[eqn.primitive.name]
    terms = [x.shape[a] for a in axes]
    kind = kind_of(dtype)
    if not math.prod(terms) and operation in ("max", "min"):
        raise Unsupported(f"{eqn.primitive.name} of nothing")

    def merged(total: str, text: str) -> str:
        return EXPRESSIONS[operation](kind, total, text)

    if len(axes) == len(x.shape):
        start = literal(
            _lowest(dtype, operation) if operation in ("max", "min") else np.asarray(int(start)).astype(dtype)[()]
        )
        if operation == "add" and x.chosen is not None and axes == (x.chosen[0].lone,):
            which, case = x.chosen
            own = f"choose_{kind}"
            return writer.gathered(  # The one that is chosen, in place of a sum of zeros and of it.
                x.shape,
                [(dtype, start)],
                lambda place, names: [f"{names[0]} = {own}({which.at(place)}, {case.at(place)}, {names[0]});"],
                lambda names: [f"{names[0]} = {merged(names[0], start)};"],
            )
        return writer.gathered(
            x.shape, [(dtype, start)], lambda place, names: [f"{names[0]} = {merged(names[0], x.at(place))};"]
        )

    def at(place: Place, inner: Place) -> str:
        places = iter(place)
        within = dict(zip(axes, inner, strict=True))
        return x.at(tuple(within[i] if i in within else next(places) for i in range(len(x.shape))))

    first = literal(np.asarray(int(start or 0)).astype(dtype)[()])
    if operation in ("max", "min") and math.prod(terms):
        first = ""
    writer.ready(x)
    storage = writer.variable(dtype, math.prod(shape) if shape else 0)
    with writer.loops(shape) as place:
        target = storage.element(flat(place, shape))
        total = writer.name("s")
        writer.line(f"{writer.type_of(dtype)} {total} = {first or at(place, (0,) * len(axes))};")
        if (
            writer.wide and kind == "f" and operation in ("max", "min")
        ):  # What is NaN is gathered by itself, which waits less.
            odd, now = writer.name("s"), writer.name("s")
            writer.line(f"B {odd} = {total} != {total};")
            with writer.loops(terms) as inner:
                writer.line(f"const F {now} = {at(place, inner)};")
                writer.line(f"{odd} |= {now} != {now};")
                writer.line(f"{total} = choose_f({now} {'>' if operation == 'max' else '<'} {total}, {now}, {total});")
            writer.line(f"{total} = choose_f({odd}, NAN_32, {total});")
        elif math.prod(terms):
            with writer.loops(terms) as inner:
                writer.line(f"{total} = {merged(total, at(place, inner))};")
        writer.line(f"{target} = {total};", storage)
    return [writer.value_of(storage, shape)]


def has_nan(writer: Writer, x: Value) -> Value:
    """`numerics.has_nan` of several runs at once: in one pass, with one comparison for two numbers."""
    writer.ready(x)
    odd, pairs = writer.variable(np.dtype(bool), 0), x.size // 2
    if x.storage is not None and x.storage.apart:
        writer.line(f"{odd.name} = {x.storage.name}.has_nan();", odd)
        return writer.value_of(odd, ())
    writer.line(f"{odd.name} = false;", odd)

    def look(first: Index, second: Index) -> None:
        a, b = writer.name("s"), writer.name("s")
        writer.line(f"const F {a} = {x.at(unflat(first, x.shape))}, {b} = {x.at(unflat(second, x.shape))};")
        writer.line(f"{odd.name} |= either_nan({a}, {b});", odd)

    if pairs:
        i = writer.name("i")
        writer.line(counting(i, pairs) + " {")
        look(times(i, 2), add(times(i, 2), 1))
        writer.line("}")
    if 2 * pairs < x.size:
        look(2 * pairs, 2 * pairs)
    return writer.value_of(odd, ())


@rule("cumsum", "cumprod", "cummax", "cummin")
def _cumulative(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    shape, dtype = aval_of(eqn)
    axis, reverse = eqn.params["axis"], eqn.params["reverse"]
    operation = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}[eqn.primitive.name]
    if not x.size:
        return [x]
    writer.ready(x)
    storage = writer.variable(dtype, math.prod(shape))
    others = [1 if i == axis else n for i, n in enumerate(shape)]
    with writer.loops(others) as place:

        def here(step: Any) -> Place:
            return (*place[:axis], mirrored(step, shape[axis]) if reverse else step, *place[axis + 1 :])

        total, step = writer.name("s"), writer.name("i")
        writer.line(f"{writer.type_of(dtype)} {total} = {x.at(here(0))};")
        writer.line(f"{storage.element(flat(here(0), shape))} = {total};", storage)
        writer.line(counting(step, shape[axis], 1) + " {")
        writer.line(f"{total} = {EXPRESSIONS[operation](kind_of(dtype), total, x.at(here(step)))};")
        writer.line(f"{storage.element(flat(here(step), shape))} = {total};", storage)
        writer.line("}")
    return [writer.value_of(storage, shape)]


@rule("argmax", "argmin")
def _extreme(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    """The first place of the largest or smallest number; NaN counts as such."""
    (axis,) = eqn.params["axes"]
    beats = ">" if eqn.primitive.name == "argmax" else "<"

    def better(text: str, best: str) -> str:
        odd = f" || ({text} != {text} && {best} == {best})" if x.dtype.kind == "f" else ""
        return f"{text} {beats} {best}{odd}"

    if len(x.shape) == 1:
        _, dtype = aval_of(eqn)
        first = literal(_lowest(x.dtype, "max" if beats == ">" else "min"))

        def step(place: Place, names: Sequence[str]) -> list[str]:
            best, where = names
            text = x.at(place)
            # What equals the start must come first, too.
            new = writer.name("s")
            test = f"const {writer.condition(text)} {new} = {better(text, best)} || {where} < 0;"
            return [test, f"SET_IF({new}, {best}, {text});", f"SET_IF({new}, {where}, {place[0]});"]

        starts = [(x.dtype, first), (dtype if dtype.kind == "i" else np.dtype(np.int32), "-1")]
        number = writer.gathered(x.shape, starts, step)[1]
        return [writer.view(number, (), number.at)]
    return [_first_place(writer, eqn, x, axis, better)]


def _first_place(writer: Writer, eqn: Any, x: Value, axis: int, better: Callable[[str, str], str]) -> Value:
    shape, dtype = aval_of(eqn)
    writer.ready(x)
    storage = writer.variable(dtype, math.prod(shape) if shape else 0)
    with writer.loops(shape) as place:
        best, now, step = writer.name("s"), writer.name("s"), writer.name("i")
        target = storage.element(flat(place, shape))
        number = writer.type_of(x.dtype)

        def here(i: Any) -> str:
            return x.at((*place[:axis], i, *place[axis:]))

        writer.line(f"{target} = 0;", storage)
        writer.line(f"{number} {best} = {here(0)};")
        writer.line(counting(step, x.shape[axis], 1) + " {")
        writer.line(f"const {number} {now} = {here(step)};")
        new = writer.name("s")
        writer.line(f"const {writer.type_of(bool)} {new} = {better(now, best)};")
        writer.line(f"SET_IF({new}, {best}, {now});")
        writer.line(f"SET_IF({new}, {target}, {step});", storage)
        writer.line("}")
    return writer.value_of(storage, shape)


@rule("first_best")
def _first_best(writer: Writer, eqn: Any, score: Value, *given: Value) -> list[Value]:
    """As `primitives.by_comparison`: the first place of the maximum among those that are allowed; the length where there is none."""
    shape, dtype = aval_of(eqn)
    axis, ordered = eqn.params["axis"], eqn.params["ordered"]
    size, floating = score.shape[axis], score.dtype.kind == "f"
    order = given[-1] if ordered else None
    allowed = next(iter(given[:-1] if ordered else given), None)
    # Numbers of places, of which the least is first: above all of them `none`; and the index that one means.
    none = str((2**31 - 1) & ~place_mask(size) | size) if ordered else str(size)

    def index(first: str) -> str:
        return f"({first} & {place_mask(size)})" if ordered else first

    def number_at(place: Place) -> Any:
        return place[axis] if order is None else order.at(place)

    if len(score.shape) == 1 and writer.wide and floating:
        return [_first_of_largest(writer, score, allowed, dtype, number_at, none, index)]
    if len(score.shape) == 1:

        def step(place: Place, names: Sequence[str]) -> list[str]:
            best, where, odd = names
            now, may = score.at(place), f"{allowed.at(place)} && " if allowed is not None else ""
            # Where nothing is above the start, the first that is allowed equals it.
            better = f"({now} > {best} || ({now} == {best} && {number_at(place)} < {where}))" if given else f"{now} > {best}"
            new = writer.name("s")
            lines = [f"const {writer.condition(may + now)} {new} = {may}{better};"]
            lines += [f"SET_IF({new}, {best}, {now});", f"SET_IF({new}, {where}, {number_at(place)});"]
            return [*lines, f"{odd} |= {may}{now} != {now};"] if floating else lines

        def last(names: Sequence[str]) -> list[str]:  # Nothing equals a maximum that is NaN.
            end = [f"{names[1]} = {index(names[1])};"] if ordered else []
            return [*end, f"SET_IF({names[2]}, {names[1]}, {size});"] if floating else end

        first = none if given else "0"
        starts = [(score.dtype, literal(_lowest(score.dtype, "max"))), (dtype, first), (np.dtype(bool), "false")]
        return writer.gathered(score.shape, starts, step, last)[1:2]
    writer.ready(score, *given)
    storage = writer.variable(dtype, math.prod(shape) if shape else 0)
    lowest = "-INF_32" if floating else literal(np.asarray(np.iinfo(score.dtype).min, score.dtype)[()])
    with writer.loops(shape) as place:
        best, now, new, odd, number_of = (writer.name(prefix) for prefix in ("s", "s", "s", "s", "i"))
        target, number = storage.element(flat(place, shape)), writer.type_of(score.dtype)
        here = (*place[:axis], number_of, *place[axis:])

        writer.line(f"{target} = {none};", storage)
        writer.line(f"{number} {best} = {lowest};")
        if floating:
            writer.line(f"{writer.type_of(bool)} {odd} = false;")
        writer.line(counting(number_of, size) + " {")
        writer.line(f"const {number} {now} = {score.at(here)};")
        may = f"{allowed.at(here)} && " if allowed is not None else ""
        better = f"({now} > {best} || ({now} == {best} && {number_at(here)} < {target}))"
        writer.line(f"const {writer.type_of(bool)} {new} = {may}{better};")
        writer.line(f"SET_IF({new}, {best}, {now});")
        writer.line(f"SET_IF({new}, {target}, {number_at(here)});")
        if floating:
            writer.line(f"{odd} |= {may}{now} != {now};")
        writer.line("}")
        if ordered:
            writer.line(f"{target} = {index(target)};")
        if floating:  # Nothing equals a maximum that is NaN.
            writer.line(f"SET_IF({odd}, {target}, {size});")
        storage.reads += 1
    return [writer.value_of(storage, shape)]


def _first_of_largest(
    writer: Writer,
    score: Value,
    allowed: Value | None,
    dtype: Any,
    number_at: Callable[[Place], Any],
    none: str,
    index: Callable[[str], str],
) -> Value:
    """The same in two passes, of which no step waits long for the one before: the largest, and the first place that has it."""
    size = score.shape[0]

    def largest(place: Place, names: Sequence[str]) -> list[str]:
        now, (best, odd) = score.at(place), names
        may = f"{allowed.at(place)} & " if allowed is not None else ""
        return [
            f"{best} = choose_f({may}({now} > {best}), {now}, {best});",
            f"{odd} |= {may}({now} != {now});",
        ]

    best, odd = writer.gathered(score.shape, [(score.dtype, "-INF_32"), (np.dtype(bool), "false")], largest)

    def first(place: Place, names: Sequence[str]) -> list[str]:
        may = f"{allowed.at(place)} & " if allowed is not None else ""
        here = f"{may}({score.at(place)} == {best.at(())})"
        return [f"{names[0]} = min_i({names[0]}, choose_i({here}, {number_at(place)}, {none}));"]

    def last(names: Sequence[str]) -> list[str]:  # Nothing equals a maximum that is NaN.
        return [f"{names[0]} = choose_i({odd.at(())}, {size}, {index(names[0])});"]

    return writer.gathered(score.shape, [(dtype, none)], first, last)[0]


@rule("dot_general")
def _dot_general(writer: Writer, eqn: Any, a: Value, b: Value) -> list[Value]:
    (a_sum, b_sum), (a_batch, b_batch) = eqn.params["dimension_numbers"]
    shape, dtype = aval_of(eqn)
    if {a.dtype, b.dtype} != {dtype}:
        raise Unsupported("dot_general of mixed types")
    a_free = [i for i in range(len(a.shape)) if i not in (*a_sum, *a_batch)]
    b_free = [i for i in range(len(b.shape)) if i not in (*b_sum, *b_batch)]
    terms = [a.shape[i] for i in a_sum]
    writer.ready(a, b)

    def at(
        value: Value,
        batch: Sequence[int],
        free: Sequence[int],
        summed: Sequence[int],
        place: Place,
        own: Place,
        inner: Place,
    ) -> str:
        where: dict[int, Any] = dict(zip(summed, inner, strict=True))
        where |= dict(zip(batch, place, strict=False)) | dict(zip(free, own, strict=True))
        return value.at(tuple(where[i] for i in range(len(value.shape))))

    storage = writer.variable(dtype, math.prod(shape) if shape else 0)

    def sums(places: Sequence[Place]) -> None:
        """Several sums at once, each in the order of its terms: none waits for the one before."""
        totals = [writer.name("s") for _ in places]
        for total in totals:
            writer.line(f"{writer.type_of(dtype)} {total} = 0;")
        if math.prod(terms):
            with writer.loops(terms) as inner:
                for total, place in zip(totals, places, strict=True):
                    batch, rows = place[: len(a_batch)], place[len(a_batch) : len(a_batch) + len(a_free)]
                    columns = place[len(a_batch) + len(a_free) :]
                    left = at(a, a_batch, a_free, a_sum, batch, rows, inner)
                    right = at(b, b_batch, b_free, b_sum, batch, columns, inner)
                    writer.line(f"{total} = {total} + {left} * {right};")
        for total, place in zip(totals, places, strict=True):
            writer.line(f"{storage.element(flat(place, shape))} = {total};", storage)

    width = min(shape[-1], _SUMS_AT_ONCE) if writer.wide and shape and math.prod(terms) >= _MANY_TERMS else 1
    with writer.loops(shape[:-1]) as place:
        if not shape:
            sums([()])
        elif width == 1:
            with writer.loops(shape[-1:]) as last:
                sums([(*place, *last)])
        else:
            whole = shape[-1] // width
            with writer.loops([whole]) as (i,):
                sums([(*place, add(times(i, width), n)) for n in range(width)])
            if shape[-1] % width:
                sums([(*place, n) for n in range(whole * width, shape[-1])])
    return [writer.value_of(storage, shape)]


@rule("cumlogsumexp")
def _cumlogsumexp(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    shape, dtype = aval_of(eqn)
    axis, reverse = eqn.params["axis"], eqn.params["reverse"]
    if kind_of(dtype) != "f" or not x.size:
        raise Unsupported("cumlogsumexp of other than float32")
    writer.ready(x)
    storage = writer.variable(dtype, math.prod(shape))
    storage.reads = 1
    with writer.loops([1 if i == axis else n for i, n in enumerate(shape)]) as place:

        def here(step: Any) -> Place:
            return (*place[:axis], mirrored(step, shape[axis]) if reverse else step, *place[axis + 1 :])

        writer.code(f"""
            {writer.type_of(dtype)} total = {x.at(here(0))};
            {storage.element(flat(here(0), shape))} = total;
            for (int k = 1; k < {shape[axis]}; ++k) {{
                total = logaddexp_f(total, {x.at(here("k"))});
                {storage.element(flat(here("k"), shape))} = total;
            }}""")
    return [writer.value_of(storage, shape)]
