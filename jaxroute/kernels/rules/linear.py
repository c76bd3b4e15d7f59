"""Linear algebra of small matrices in C: factorisations, triangular systems, eigenvalues and singular values."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxroute.kernels import ir
from jaxroute.kernels.printer import c_type
from jaxroute.kernels.rules.registry import rule
from jaxroute.kernels.values import Value, flat
from jaxroute.kernels.writer import Writer

# Sweeps of rotations: each about squares what is left beside the diagonal, so that float32 takes five.
_SWEEPS = 12
# Two columns (rows and columns of an eigenproblem) of which so little is common are left as they are: every rotation rounds all of their
# numbers, and a thousand that are for nothing would shorten them by 5e-5.
_SMALL = 2.0**-23


class _Lines:
    """Lines of C, and the expressions in them."""

    def __init__(self) -> None:
        self._operands: list[ir.Expr] = []

    def text(self, e: ir.Expr) -> str:
        """The name that stands for an expression."""
        self._operands.append(e)
        return f"${{e{len(self._operands) - 1}}}"

    def entry(self, storage: ir.Storage, shape: Sequence[int], place: ir.Place, *names: str) -> str:
        """An element whose last indices are variables of C."""
        return self.text(ir.element(storage, flat((*place, *map(_named, names)), shape)))

    def write(self, writer: Writer, template: str, *writes: ir.Storage) -> None:
        writer.add(ir.Raw(template, tuple(self._operands), writes))


def _named(name: str) -> ir.Expr:
    return ir.variable(ir.Storage(name, ir.INT, 0))


@rule("cholesky")
def _cholesky(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    """The lower factor, NaN where there is none."""
    shape, number = x.shape, c_type(x.dtype, writer.wide)
    n, storage = shape[-1], writer.to_change(x)
    root = "sqrtf" if x.dtype.itemsize == 4 else "sqrt"
    lines = _Lines()
    with writer.loops(shape[:-2]) as place:

        def a(i: str, j: str) -> str:
            return lines.entry(storage, shape, place, i, j)

        lines.write(
            writer,
            f"""
            {c_type(bool, writer.wide)} whole = true;
            for (int j = 0; j < {n}; ++j) {{
                {number} d = {a("j", "j")};
                for (int k = 0; k < j; ++k) d -= {a("j", "k")} * {a("j", "k")};
                whole = whole && d > 0;
                d = {root}(d);
                {a("j", "j")} = d;
                for (int i = j + 1; i < {n}; ++i) {{
                    {number} s = {a("i", "j")};
                    for (int k = 0; k < j; ++k) s -= {a("i", "k")} * {a("j", "k")};
                    {a("i", "j")} = s / d;
                }}
            }}
            for (int j = 0; j < {n}; ++j) {{
                for (int i = 0; i < {n}; ++i) {{
                    if (i < j) {a("i", "j")} = 0;
                    SET_IF(!whole, {a("i", "j")}, {"NAN_32" if x.dtype.itemsize == 4 else "NAN_64"});
                }}
            }}""",
            storage,
        )
    return [writer.value_of(storage, shape)]


@rule("triangular_solve")
def _triangular_solve(writer: Writer, eqn: Any, a: Value, b: Value) -> list[Value]:
    params = eqn.params
    shape, n = b.shape, a.shape[-1]
    storage = writer.to_change(writer.copied(b, True) if b.storages & a.storages else b)
    writer.ready(a)
    left, transposed = params["left_side"], params["transpose_a"]
    # Rows of the unknowns if they stand on the right of the matrix, columns if on its left.
    forward = (params["lower"] != transposed) == left
    others = shape[-1] if left else shape[-2]
    lines = _Lines()
    with writer.loops(shape[:-2]) as place:

        def coefficient(i: str, j: str) -> str:
            """Of unknown `j` in the equation of unknown `i`."""
            return lines.text(a.at((*place, *map(_named, (j, i) if transposed == left else (i, j)))))

        def unknown(i: str) -> str:
            return lines.entry(storage, shape, place, *((i, "o") if left else ("o", i)))

        step = "for (int i = 0; i < {n}; ++i)" if forward else "for (int i = {n} - 1; i >= 0; --i)"
        before = "for (int j = 0; j < i; ++j)" if forward else "for (int j = i + 1; j < {n}; ++j)"
        divided = "" if params["unit_diagonal"] else f" / {coefficient('i', 'i')}"
        lines.write(
            writer,
            f"""
            for (int o = 0; o < {others}; ++o) {{
                {step.format(n=n)} {{
                    {c_type(b.dtype, writer.wide)} s = {unknown("i")};
                    {before.format(n=n)} s -= {coefficient("i", "j")} * {unknown("j")};
                    {unknown("i")} = s{divided};
                }}
            }}""",
            storage,
        )
    return [writer.value_of(storage, shape)]


@rule("lu")
def _lu(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    """Factors in place, the row that each row was exchanged with, and the order of rows; the largest of a column is the pivot."""
    shape, number = x.shape, c_type(x.dtype, writer.wide)
    rows, columns = shape[-2:]
    steps, lead = min(rows, columns), shape[:-2]
    storage = writer.to_change(x)
    pivots = writer.variable(np.int32, math.prod(lead) * steps)
    order = writer.variable(np.int32, math.prod(lead) * rows)
    size, chosen = ("fabsf", "choose_f") if x.dtype.itemsize == 4 else ("fabs", "choose_d")
    whole = c_type(np.int32, writer.wide)
    lines = _Lines()
    with writer.loops(lead) as place:

        def a(i: str, j: str) -> str:
            return lines.entry(storage, shape, place, i, j)

        def p(i: str) -> str:
            return lines.entry(pivots, (*lead, steps), place, i)

        def o(i: str) -> str:
            return lines.entry(order, (*lead, rows), place, i)

        lines.write(
            writer,
            f"""
            for (int i = 0; i < {rows}; ++i) {o("i")} = i;
            for (int j = 0; j < {steps}; ++j) {{
                {whole} best = j;
                {number} most = {size}({a("j", "j")});
                for (int i = j + 1; i < {rows}; ++i) {{
                    const {number} own = {size}({a("i", "j")});
                    SET_IF(own > most, best, i);
                    SET_IF(own > most, most, own);
                }}
                {p("j")} = best;
                for (int k = 0; k < {columns}; ++k) {{
                    const {number} s = {a("j", "k")};
                    {a("j", "k")} = {a("best", "k")};
                    {a("best", "k")} = s;
                }}
                const {whole} held = {o("j")};
                {o("j")} = {o("best")};
                {o("best")} = held;
                for (int i = j + 1; i < {rows}; ++i) {{
                    const {number} f = {chosen}({a("j", "j")} == 0, {a("i", "j")}, {a("i", "j")} / {a("j", "j")});
                    {a("i", "j")} = f;
                    for (int k = j + 1; k < {columns}; ++k) {a("i", "k")} -= f * {a("j", "k")};
                }}
            }}""",
            storage,
            pivots,
            order,
        )
    shapes = ((storage, shape), (pivots, (*lead, steps)), (order, (*lead, rows)))
    return [writer.value_of(one, own) for one, own in shapes]


@rule("lu_pivots_to_permutation")
def _lu_pivots(writer: Writer, eqn: Any, pivots: Value) -> list[Value]:
    size, lead, steps = eqn.params["permutation_size"], pivots.shape[:-1], pivots.shape[-1]
    order = writer.variable(np.int32, math.prod(lead) * size)
    pivots = writer.stored(pivots) if pivots.known is None else pivots
    writer.ready(pivots)
    lines = _Lines()
    with writer.loops(lead) as place:

        def o(i: str) -> str:
            return lines.entry(order, (*lead, size), place, i)

        lines.write(
            writer,
            f"""
            for (int i = 0; i < {size}; ++i) {o("i")} = i;
            for (int j = 0; j < {steps}; ++j) {{
                const {c_type(np.int32, writer.wide)} other = {lines.text(pivots.at((*place, _named("j"))))}, held = {o("j")};
                {o("j")} = {o("other")};
                {o("other")} = held;
            }}""",
            order,
        )
    return [writer.value_of(order, (*lead, size))]


@rule("eigh")
def _eigh(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    """Vectors and values in ascending order, by Jacobi's rotations; the sign of a vector is anybody's."""
    params = eqn.params
    if params.get("subset_by_index") not in (None, (0, x.shape[-1])):
        raise ir.Unsupported("eigh of some eigenvalues")
    shape, number, n, lead = x.shape, c_type(x.dtype, writer.wide), x.shape[-1], x.shape[:-2]
    flag = c_type(bool, writer.wide)
    if x.dtype.itemsize != 4:
        raise ir.Unsupported("eigh of 64 bits")
    a_of = writer.to_change(writer.copied(x))
    v_of = writer.variable(x.dtype, x.size)
    w_of = writer.variable(x.dtype, math.prod(lead) * n)
    lines = _Lines()
    with writer.loops(lead) as place:

        def a(i: str, j: str) -> str:
            return lines.entry(a_of, shape, place, i, j)

        def v(i: str, j: str) -> str:
            return lines.entry(v_of, shape, place, i, j)

        def w(i: str) -> str:
            return lines.entry(w_of, (*lead, n), place, i)

        half = "if (j > i)" if params["lower"] else "if (j < i)"
        lines.write(
            writer,
            f"""
            for (int i = 0; i < {n}; ++i) {{
                for (int j = 0; j < {n}; ++j) {{
                    {v("i", "j")} = i == j ? 1.0f : 0.0f;
                    {half} {a("i", "j")} = {a("j", "i")};
                }}
            }}
            ROLLED for (int sweep = 0, moved = 1; sweep < {_SWEEPS} && moved; ++sweep) {{
                moved = 0;
                for (int p = 0; p < {n}; ++p) {{
                    for (int q = p + 1; q < {n}; ++q) {{
                        const {number} beside = {a("p", "q")};
                        const {flag} large = fabsf(beside) > {_SMALL!r}f * sqrtf(fabsf({a("p", "p")})) * sqrtf(fabsf({a("q", "q")}));
                        if (!ANY(large)) continue;
                        moved = 1;
                        const {number} theta = ({a("q", "q")} - {a("p", "p")}) / (2.0f * beside);
                        const {number} turn = choose_f(theta < 0, -1.0f, 1.0f) / (fabsf(theta) + sqrtf(theta * theta + 1.0f));
                        const {number} t = choose_f(large, turn, 0.0f);
                        const {number} c = 1.0f / sqrtf(t * t + 1.0f), s = t * c;
                        for (int k = 0; k < {n}; ++k) {{
                            const {number} x = {a("k", "p")}, y = {a("k", "q")};
                            {a("k", "p")} = c * x - s * y;
                            {a("k", "q")} = s * x + c * y;
                        }}
                        for (int k = 0; k < {n}; ++k) {{
                            const {number} x = {a("p", "k")}, y = {a("q", "k")};
                            {a("p", "k")} = c * x - s * y;
                            {a("q", "k")} = s * x + c * y;
                        }}
                        for (int k = 0; k < {n}; ++k) {{
                            const {number} x = {v("k", "p")}, y = {v("k", "q")};
                            {v("k", "p")} = c * x - s * y;
                            {v("k", "q")} = s * x + c * y;
                        }}
                    }}
                }}
            }}
            for (int i = 0; i < {n}; ++i) {w("i")} = {a("i", "i")};
            for (int i = 1; i < {n}; ++i) {{
                for (int j = i; j > 0; --j) {{
                    const {c_type(bool, writer.wide)} swap = {w("j")} < {w("(j - 1)")};
                    if (!ANY(swap)) break;
                    const {number} x = {w("j")};
                    SET_IF(swap, {w("j")}, {w("(j - 1)")});
                    SET_IF(swap, {w("(j - 1)")}, x);
                    for (int k = 0; k < {n}; ++k) {{
                        const {number} y = {v("k", "j")};
                        SET_IF(swap, {v("k", "j")}, {v("k", "(j - 1)")});
                        SET_IF(swap, {v("k", "(j - 1)")}, y);
                    }}
                }}
            }}""",
            a_of,
            v_of,
            w_of,
        )
    return [writer.value_of(v_of, shape), writer.value_of(w_of, (*lead, n))]


@rule("svd")
def _svd(writer: Writer, eqn: Any, x: Value) -> list[Value]:
    """Singular values in descending order, by rotations that make the columns orthogonal."""
    if eqn.params["compute_uv"]:
        raise ir.Unsupported("svd with vectors")
    if x.dtype.itemsize != 4:
        raise ir.Unsupported("svd of 64 bits")
    if x.shape[-2] < x.shape[-1]:
        turned = (*x.shape[:-2], x.shape[-1], x.shape[-2])
        whole = x
        x = writer.view(whole, turned, lambda place: whole.at((*place[:-2], place[-1], place[-2])))
    shape, number, flag, lead = x.shape, c_type(x.dtype, writer.wide), c_type(bool, writer.wide), x.shape[:-2]
    rows, columns = shape[-2:]
    a_of = writer.to_change(writer.copied(x))
    w_of = writer.variable(x.dtype, math.prod(lead) * columns)
    lines = _Lines()
    with writer.loops(lead) as place:

        def a(i: str, j: str) -> str:
            return lines.entry(a_of, shape, place, i, j)

        def w(i: str) -> str:
            return lines.entry(w_of, (*lead, columns), place, i)

        lines.write(
            writer,
            f"""
            ROLLED for (int sweep = 0, moved = 1; sweep < {_SWEEPS} && moved; ++sweep) {{
                moved = 0;
                for (int p = 0; p < {columns}; ++p) {{
                    for (int q = p + 1; q < {columns}; ++q) {{
                        {number} pp = 0, qq = 0, pq = 0;
                        for (int k = 0; k < {rows}; ++k) {{
                            pp += {a("k", "p")} * {a("k", "p")};
                            qq += {a("k", "q")} * {a("k", "q")};
                            pq += {a("k", "p")} * {a("k", "q")};
                        }}
                        const {flag} large = fabsf(pq) > {_SMALL * math.sqrt(rows)!r}f * sqrtf(pp) * sqrtf(qq);
                        if (!ANY(large)) continue;
                        moved = 1;
                        const {number} theta = (qq - pp) / (2.0f * pq);
                        const {number} turn = choose_f(theta < 0, -1.0f, 1.0f) / (fabsf(theta) + sqrtf(theta * theta + 1.0f));
                        const {number} t = choose_f(large, turn, 0.0f);
                        const {number} c = 1.0f / sqrtf(t * t + 1.0f), s = t * c;
                        for (int k = 0; k < {rows}; ++k) {{
                            const {number} x = {a("k", "p")}, y = {a("k", "q")};
                            {a("k", "p")} = c * x - s * y;
                            {a("k", "q")} = s * x + c * y;
                        }}
                    }}
                }}
            }}
            for (int j = 0; j < {columns}; ++j) {{
                {number} s = 0;
                for (int k = 0; k < {rows}; ++k) s += {a("k", "j")} * {a("k", "j")};
                {w("j")} = sqrtf(s);
            }}
            for (int i = 1; i < {columns}; ++i) {{
                for (int j = i; j > 0; --j) {{
                    const {c_type(bool, writer.wide)} swap = {w("j")} > {w("(j - 1)")};
                    if (!ANY(swap)) break;
                    const {number} x = {w("j")};
                    SET_IF(swap, {w("j")}, {w("(j - 1)")});
                    SET_IF(swap, {w("(j - 1)")}, x);
                }}
            }}""",
            a_of,
            w_of,
        )
    return [writer.value_of(w_of, (*lead, columns))]
