"""Operations that bring elements into order."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxroute.kernels.rules.registry import aval_of, rule
from jaxroute.kernels.values import (
    Unsupported,
    Value,
    c_type,
    counting,
    flat,
)
from jaxroute.kernels.writer import Writer


@rule("sort")
def _sort(writer: Writer, eqn: Any, *xs: Value) -> list[Value]:
    """By insertion, which keeps equal numbers in order; NaN comes last."""
    axis, keys = eqn.params["dimension"], eqn.params["num_keys"]
    columns = [
        writer.copied(x, varying=True)
        if not writer.may_change(x) or any(x.storage is y.storage for y in xs if y is not x)
        else x
        for x in xs
    ]
    shape = xs[0].shape
    if shape[axis] < 2:
        return columns
    writer.ready(*columns)
    for column in columns:
        if column.storage is not None:
            writer.before_writing(column.storage)

    def ahead(own: Sequence[str], others: Sequence[str]) -> str:
        """Whether `own` must come before `others`."""
        text = ""
        for x, a, b in reversed(list(zip(xs, own, others, strict=False))):
            less, same = f"{a} < {b}", f"{a} == {b}"
            if x.dtype.kind == "f":
                less = f"({less} || ({a} == {a} && {b} != {b}))"
                same = f"({same} || ({a} != {a} && {b} != {b}))"
            text = f"({less} || ({same} && {text}))" if text else f"({less})"
        return text

    others = [1 if i == axis else n for i, n in enumerate(shape)]
    with writer.loops(others) as place:

        def here(column: Value, i: Any) -> str:
            return column.at((*place[:axis], i, *place[axis + 1 :]))

        i, j = writer.name("i"), writer.name("i")
        held = [writer.name("s") for _ in xs]
        before = [here(c, f"({j} - 1)") for c in columns]
        writer.line(counting(i, shape[axis], 1) + " {")
        if writer.wide:  # Neighbours change places until no run has two that must.
            own, swap = [here(c, j) for c in columns], writer.name("s")
            writer.line(f"for (int {j} = {i}; {j} > 0; --{j}) {{")
            writer.line(f"const B {swap} = {ahead(own[:keys], before[:keys])};")
            writer.line(f"if (!any({swap})) break;")
            for name, column, a, b in zip(held, columns, own, before, strict=True):
                writer.line(f"const {writer.type_of(column.dtype)} {name} = {a};")
                writer.line(f"SET_IF({swap}, {a}, {b});")
                writer.line(f"SET_IF({swap}, {b}, {name});")
            writer.line("}")
        else:
            for name, column in zip(held, columns, strict=True):
                writer.line(f"const {c_type(column.dtype)} {name} = {here(column, i)};")
            writer.line(f"int {j} = {i};")
            writer.line(f"for (; {j} > 0 && {ahead(held[:keys], before[:keys])}; --{j}) {{")
            for column, text in zip(columns, before, strict=True):
                writer.line(f"{here(column, j)} = {text};")
            writer.line("}")
            for name, column in zip(held, columns, strict=True):
                writer.line(f"{here(column, j)} = {name};")
        writer.line("}")
    return columns


@rule("top_k")
def _top_k(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    """The largest in order, the first of equal ones first; NaN is the largest."""
    if eqn.params.get("axis", len(x.shape) - 1) not in (-1, len(x.shape) - 1):
        raise Unsupported("top_k along another axis")
    shape, dtype = aval_of(eqn)
    k, n = shape[-1], x.shape[-1]
    writer.ready(x)
    best, where = writer.variable(dtype, math.prod(shape)), writer.variable(np.int32, math.prod(shape))
    best.reads = where.reads = 1
    odd = " || ({a} != {a} && {b} == {b})" if dtype.kind == "f" else ""
    with writer.loops(shape[:-1]) as place:

        def value(j: str) -> str:
            return best.element(flat((*place, j), shape))

        def number(j: str) -> str:
            return where.element(flat((*place, j), shape))

        better = "{a} > {b}" + odd
        own = f"{writer.type_of(dtype)} own = {x.at((*place, 'i'))};"
        if writer.wide:  # What is better takes the place of the next, which goes on to the one behind it.
            writer.code(f"""
                for (int i = 0; i < {n}; ++i) {{
                    {own}
                    I at = i;
                    B found = false;
                    for (int j = 0; j < {k}; ++j) {{
                        if (i <= j) {{
                            if (i == j) {value("j")} = own, {number("j")} = at;
                            break;
                        }}
                        found |= {better.format(a="own", b=value("j"))};
                        const {writer.type_of(dtype)} next = {value("j")};
                        const I next_at = {number("j")};
                        SET_IF(found, {value("j")}, own);
                        SET_IF(found, {number("j")}, at);
                        SET_IF(found, own, next);
                        SET_IF(found, at, next_at);
                    }}
                }}""")
        else:
            writer.code(f"""
                int count = 0;
                for (int i = 0; i < {n}; ++i) {{
                    const {own}
                    int j = count;
                    for (; j > 0 && ({better.format(a="own", b=value("(j - 1)"))}); --j) {{
                        if (j < {k}) {value("j")} = {value("(j - 1)")}, {number("j")} = {number("(j - 1)")};
                    }}
                    if (j < {k}) {value("j")} = own, {number("j")} = i;
                    if (count < {k}) ++count;
                }}""")
    return [writer.value_of(best, shape), writer.value_of(where, shape)]
