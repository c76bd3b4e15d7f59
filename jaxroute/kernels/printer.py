"""Prints the statements of a kernel as text: C for one run, or C++ for several runs at once."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxroute.kernels import ir

# Largest number of vectors of an array on the stack; longer arrays are on the heap.
_MOST_ON_STACK = 64

# C type of a number, and of a vector of such numbers over several runs (see `lanes.h`).
TYPES = {
    "float32": ("float", "F"), "bool": ("bool", "B"), "int8": ("signed char", "I"), "int16": ("short", "I"), "int32": ("int", "I"),
    "uint8": ("unsigned char", "U"), "uint16": ("unsigned short", "U"), "uint32": ("unsigned", "U"),
}  # fmt: skip


@functools.cache
def c_type(dtype: Any, wide: bool = False) -> str:
    """Returns the C name of a number type or, if `wide`, of a vector of such numbers for several runs. Raises `Unsupported` if there is none."""
    name = np.dtype(dtype).name
    if name not in TYPES:
        raise ir.Unsupported(f"numbers of type {name}" + " of several runs" * wide)
    return TYPES[name][wide]


@functools.cache
def is_narrow(dtype: Any) -> bool:
    """Whether a type is an integer of fewer than 32 bits, which vectors over runs hold in 32 bits."""
    dtype = np.dtype(dtype)
    return dtype.kind in "iu" and dtype.itemsize < 4


def _infix(symbol: str, **functions: str) -> dict[str, str]:
    return {"*": f"{{}} {symbol} {{}}", **functions}


# Text of each operation by the kind of its first operand's type ("f", "i", "u", "b"; "*" for any other): the name of a C function, or a format. The
# last lines are not primitives of JAX: operations on indices, conditions and bits, and operations over several runs.
FORMATS: dict[str, dict[str, str]] = {
    "add": _infix("+", i="add_i"), "sub": _infix("-", i="sub_i"), "mul": _infix("*", i="mul_i", b="{} & {}"),
    "div": _infix("/", f="div_f", i="div_i", u="div_u"), "rem": {"f": "fmodf", "i": "rem_i", "u": "rem_u"},
    "eq": _infix("=="), "ne": _infix("!="), "lt": _infix("<"), "le": _infix("<="), "gt": _infix(">"), "ge": _infix(">="),
    "and": _infix("&"), "or": _infix("|"), "xor": _infix("^"), "not": {"*": "~{}", "b": "!{}"},
    "max": {"f": "max_f", "i": "max_i", "u": "max_u", "b": "{} | {}"},
    "min": {"f": "min_f", "i": "min_i", "u": "min_u", "b": "{} & {}"},
    "abs": {"f": "fabsf", "i": "abs_i", "u": "{}"}, "neg": {"*": "-{}", "i": "sub_i(0, {})"},
    "sign": {"f": "sign_f", "i": "sign_i"}, "is_finite": {"f": "is_finite_f"},
    "clz": {"i": "clz_32", "u": "clz_32"}, "population_count": {"i": "popcount_32", "u": "popcount_32"},
    "shift_left": {"i": "shl_i", "u": "shl_u"}, "shift_right_arithmetic": {"i": "sar_i", "u": "shr_u"},
    "shift_right_logical": {"i": "shr_i", "u": "shr_u"},
    "le_to": {"f": "order_of({}) <= order_of({})", "i": "{} <= {}", "u": "{} <= {}"}, "lt_to": {"f": "order_of({}) < order_of({})", "i": "{} < {}", "u": "{} < {}"},
    **{name: {"f": f"{name}_f"} for name in ("erf_inv", "logistic", "rsqrt")},
    **{name: {"f": f"{name}f"} for name in (  # Functions with the same name in the C library.
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1",
        "floor", "lgamma", "log", "log1p", "nextafter", "pow", "rint", "round", "sin", "sinh", "sqrt", "tan", "tanh",
    )},
    "index_add": _infix("+"), "index_sub": _infix("-"), "index_mul": _infix("*"), "index_div": _infix("/"), "index_rem": _infix("%"),
    "both": _infix("&&"), "either": _infix("||"), "any": {"b": "ANY"},
    **{name: {"*": name} for name in ("bits_of", "float_of", "int_of", "unsigned_of", "first_lane", "largest")},
    "rows_have_nan": {"*": "{}.has_nan()"},
}  # fmt: skip
_STATEMENTS = {
    "begin_round": "BEGIN_ROUND", "break": "break;", "continue": "continue;", "return": "return {0};",
    "threefry": "threefry({0}, {1}, &{2}, &{3});", "rows_of": "rows_of<{size}>(&{0}, &{1}, {2});",
    "read_rows": "{0}.rows<{size}>(&{1}, {2});", "write_rows": "{0}.write_rows<{size}>(&{1}, {2}, {3});",
}  # fmt: skip
_NARROW = {"given": "const {type} *const {1} = {0} + r;", "put": "{0}[({1})*R + r] = {2};"}
_WIDE = {"given": "const Given<{type}> {1} = {{{0} + r, R, count}};", "put": "{0}.put({1}, {2});"}


def literal_text(number: Any) -> str:
    """Returns the C text of a NumPy number; a float is written in hexadecimal, hence exactly."""
    kind = number.dtype.kind
    if kind == "b":
        return "true" if number else "false"
    if kind == "f":
        if np.isnan(number):
            return "NAN_32"
        text = "INF_32" if np.isinf(number) else f"{abs(float(number)).hex()}f"
        return f"(-{text})" if np.signbit(number) else text
    if kind == "u":
        return f"{number}u"
    return f"({int(number) + 1} - 1)" if number < 0 else f"{number}"


class _Printer:
    """Printer of a kernel's statements as C, or C++ if `wide`. It drops statements that write only variables and arrays not in `needed`."""

    def __init__(self, wide: bool, needed: set[ir.Storage]):
        self._wide, self._needed = wide, needed
        self._statements = _STATEMENTS | (_WIDE if wide else _NARROW)
        self.heap = self.scratch = 0

    def expression(self, e: ir.Expr, written: bool = False) -> str:
        """Returns the C text of an expression; `written` means that it is the target of an assignment, not a value that is read."""
        if e.op == "literal":
            return literal_text(e.number)
        if e.storage is not None:
            return self._leaf(e, e.storage.current, written)
        if e.op == "convert" and not self._wide:
            return f"(({c_type(e.dtype)}){self._operand(e.operands[0])})"
        text = _format_of(e)
        if "{" not in text:
            return f"{text}({', '.join(map(self.expression, e.operands))})"
        return text.format(*map(self._operand, e.operands))

    def _operand(self, e: ir.Expr) -> str:
        text = self.expression(e)
        return f"({text})" if e.operands and e.op in FORMATS and "{" in _format_of(e) else text

    def _leaf(self, e: ir.Expr, storage: ir.Storage, written: bool) -> str:
        if not e.operands:
            return storage.name
        if storage.stride and not self._wide:
            return f"{storage.name}[{self._operand(e.operands[0])}*{storage.stride}]"
        index = self.expression(e.operands[0])
        return f"{storage.name}.read({index})" if storage.per_run and not written else f"{storage.name}[{index}]"

    def block(self, statements: ir.Block, end: int = 0) -> list[str]:
        """Returns statements as lines of C. On a GPU, long arrays are in scratch memory after its first `end` bytes; enclosing blocks use those."""
        lines: list[str] = []
        for statement in statements:
            written = statement.written()
            if written and self._needed.isdisjoint(one.current for one in written):
                continue
            if not isinstance(statement, ir.Declare):
                lines += self._statement(statement, end)
            elif statement.storage.successor is None:
                text, end = self._declaration(statement, end)
                lines.append(text)
        return [f"    {line}" for line in lines]

    def _statement(self, statement: ir.Statement, end: int) -> list[str]:
        if isinstance(statement, ir.Assign):
            target, value = self.expression(statement.target, written=True), self.expression(statement.value)
            if statement.mask is None:
                return [f"{target} = {value};"]
            return [f"SET_IF({self.expression(statement.mask)}, {target}, {value});"]
        if isinstance(statement, ir.Loop):
            name = "" if statement.index is None else statement.index.name
            first = "" if statement.first is None else f"int {name} = {self.expression(statement.first)}"
            test = "" if statement.test is None else f" {self.expression(statement.test)}"
            steps = {0: "", 1: f" ++{name}", -1: f" --{name}"}
            step = steps.get(statement.step, f" {name} += {statement.step}") if name else ""
            body, rolled = self.block(statement.body, end), "ROLLED " * statement.rolled
            return [f"{rolled}for ({first};{test};{step}) {{", *body, "}"] if body else []
        if isinstance(statement, ir.If):
            body, otherwise = (self.block(one, end) for one in statement.blocks())
            rest = ["} else {", *otherwise, "}"] if otherwise else ["}"]
            return [f"if ({self.expression(statement.test)}) {{", *body, *rest] if body or otherwise else []
        assert isinstance(statement, ir.Call)
        texts = [self.expression(e) for e in statement.operands]
        kind = c_type(statement.operands[-1].dtype) if statement.name == "given" else ""
        return [self._statements[statement.name].format(*texts, size=statement.size, type=kind)]

    def _declaration(self, statement: ir.Declare, end: int) -> tuple[str, int]:
        storage = statement.storage
        kind, name, size = c_type(storage.dtype, self._wide and storage.varying), storage.name, storage.size
        if statement.value is not None:
            return f"{kind} {name} = {self.expression(statement.value)};", end
        if not size:
            return f"{kind} {name};", end
        if storage.stride:
            after = end + -(-size * storage.dtype.itemsize // 8) * 8
            self.scratch = max(self.scratch, after)
            return f"ARRAY({kind}, {name}, {size}, {end});", after
        if not self._wide:
            return f"{kind} {name}[{size}];", end
        on_stack = not storage.varying or size <= _MOST_ON_STACK
        if on_stack and not storage.per_run:
            return f"Array<{kind}, {size}> {name};", end
        array = f"PerRun<{'float' if kind == 'F' else 'int'}, {size}>" if storage.per_run else f"Array<{kind}, {size}>"
        self.heap += size
        return f"auto &{name} = *({array} *)(heap + {self.heap - size});", end


def _format_of(e: ir.Expr) -> str:
    if e.op == "call":
        return e.number
    if e.op == "choose":
        return f"choose_{e.dtype.kind}"
    if e.op == "convert":
        return f"to_{e.dtype.kind}{8 * e.dtype.itemsize if is_narrow(e.dtype) else ''}"
    formats = FORMATS[e.op]
    return formats.get(e.operands[0].dtype.kind) or formats["*"]


def print_block(statements: ir.Block, wide: bool) -> tuple[str, int, int]:
    """Returns statements as C text (C++ if `wide`), and the memory of long arrays: number of vectors on a CPU's heap, bytes for each run on a GPU."""
    printer = _Printer(wide, ir.live(statements))
    return "\n".join(printer.block(statements)), printer.heap, printer.scratch


class Function(NamedTuple):
    """C function that computes a number from numbers: its name, parameters, statements and result."""

    name: str
    parameters: Sequence[ir.Storage]
    body: ir.Block
    result: ir.Expr


def print_function(function: Function, wide: bool) -> str:
    """Returns the text of a C function, or of a C++ function for several runs at once if `wide`."""
    body = [*function.body, ir.Call("return", (function.result,))]
    printer = _Printer(wide, ir.live(body))
    varies = wide and any(one.varying for one in function.parameters)
    given = ", ".join(f"{c_type(one.dtype, varies)} {one.name}" for one in function.parameters)
    head = f"FUNCTION {c_type(function.result.dtype, varies)} {function.name}({given}) {{"
    return "\n".join([head, *printer.block(body), "}"])


def print_tables(tables: Mapping[ir.Storage, np.ndarray], wide: bool) -> str:
    """Returns the text that declares constant arrays in C, or in C++ if `wide`."""
    lines: list[str] = []
    for storage, array in tables.items():
        kind, size, numbers = c_type(array.dtype), array.size, ", ".join(map(literal_text, array.ravel()))
        kind, numbers = (f"Array<{kind}, {size}>", f"{{{numbers}}}") if wide else (kind, numbers)
        declared = f"{kind} {storage.name}" + ("" if wide else f"[{size}]")
        lines.append(f"CONSTANT {declared} = {{{numbers}}};")
    return "\n".join(lines)
