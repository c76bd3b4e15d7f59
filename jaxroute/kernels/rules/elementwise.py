"""Operations that make each element from those at the same place."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxroute.engine.batching.dependence import is_key
from jaxroute.kernels.rules.registry import aval_of, kind_of
from jaxroute.kernels.values import (
    Place,
    Unsupported,
    Value,
    narrow,
)
from jaxroute.kernels.writer import Writer


def _functions(**names: str) -> Callable[..., str]:
    """A function of C for each kind of number."""

    def text(kind: str, *args: str, **_: Any) -> str:
        if kind not in names:
            raise Unsupported(f"numbers of kind {kind} in {sorted(names.values())}")
        return f"{names[kind]}({', '.join(args)})"

    return text


def _math(name: str) -> Callable[..., str]:
    """A function of the C library."""
    return _functions(f=f"{name}f", d=name)


def _infix(symbol: str, **functions: str) -> Callable[..., str]:
    def text(kind: str, a: str, b: str, **_: Any) -> str:
        return f"{functions[kind]}({a}, {b})" if kind in functions else f"({a} {symbol} {b})"

    return text


def _power(kind: str, x: str, y: int) -> str:
    """By squaring, in the order of XLA."""
    if y == 0:
        return "1"
    count, total, square = abs(y), "", x
    while count:
        if count & 1:
            total = square if not total else f"({total} * {square})"
        count >>= 1
        if count:
            square = f"({square} * {square})"
    return (f"div_f(1.0f, {total})" if kind == "f" else f"(1.0 / {total})") if y < 0 else total


def _polynomial(kind: str, x: str, *coefficients: str, **_: Any) -> str:
    """Horner's rule; the coefficients begin with the constant one."""
    return functools.reduce(lambda total, more: f"(({total} * {x}) + {more})", reversed(coefficients))


def _converted(writer: Writer, x: str, new: np.dtype, old: np.dtype) -> str:
    if new == old:
        return x
    if new.kind == "b":
        zero = "0.0f" if writer.wide and old.kind == "f" else "0u" if writer.wide and old.kind == "u" else "0"
        return f"({x} != {zero})"
    if old.kind == "f" and new.kind in "iu":
        if old.itemsize == 8 or new.itemsize == 8:
            return writer.converted(new, x)
        whole = f"{'int_of' if new.kind == 'i' else 'unsigned_of'}({x})"
        return whole if new.itemsize == 4 else writer.converted(new, whole)
    return writer.converted(new, x)


def _bitcast(writer: Writer, x: str, new: np.dtype, old: np.dtype) -> str:
    if new.itemsize != old.itemsize or new.itemsize != 4:
        raise Unsupported("bitcast_convert_type of other than 32 bits")
    if old.kind == "f":
        return x if new.kind == "f" else writer.converted(new, f"bits_of({x})")
    return f"float_of({x})" if new.kind == "f" else writer.converted(new, x)


def _round(kind: str, x: str, rounding_method: Any, **_: Any) -> str:
    name = "round" if int(rounding_method) == 0 else "rint"
    return f"{name}{'f' if kind == 'f' else ''}({x})"


def _not(kind: str, x: str, **_: Any) -> str:
    return f"(!{x})" if kind == "b" else f"(~{x})"


def _negative(kind: str, x: str, **_: Any) -> str:
    return f"sub_i(0, {x})" if kind == "i" else f"(-{x})"


def _select(kind: str, own: str, which: str, *cases: str) -> str:
    """One of the cases, of kind `own`. All are read before one is chosen, as `c ? a : b` would not."""
    if kind == "b":
        return f"choose_{own}({which}, {cases[1]}, {cases[0]})"
    text = cases[-1]
    for number, case in reversed(list(enumerate(cases[:-1]))):
        text = f"choose_{own}({which} <= {number}, {case}, {text})"
    return text


_MAX = _functions(f="max_f", i="max_i", u="max_u")
_MIN = _functions(f="min_f", i="min_i", u="min_u")

# Functions that the C library has under the same name.
_IN_THE_LIBRARY = (
    *(
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atanh",
        "cbrt",
        "ceil",
        "cos",
        "cosh",
        "erf",
        "erfc",
        "exp",
        "exp2",
        "expm1",
    ),
    *("floor", "lgamma", "log", "log1p", "pow", "sin", "sinh", "sqrt", "tan", "tanh"),
)

# Of a long array that depends on its places alone, such as a mask of those in use, an element is computed where it is read.
_CHEAP = frozenset(["add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "convert_element_type"])
_SHORT, _MOST_STEPS = 64, 4

# `(kind of the first operand, *expressions, **parameters) -> expression`.
EXPRESSIONS: dict[str, Callable[..., str]] = {
    "abs": _functions(f="fabsf", d="fabs", i="abs_i", u=""),
    "add": _infix("+", i="add_i"),
    "add_any": _infix("+", i="add_i"),
    "and": _infix("&"),
    "atan2": _math("atan2"),
    "clamp": lambda kind, low, x, high, **_: _MIN(kind, _MAX(kind, low, x), high),
    "clz": _functions(i="clz_32", u="clz_32"),
    "digamma": _functions(f="digamma_f"),
    "div": _infix("/", f="div_f", i="div_i", u="div_u"),
    "eq": _infix("=="),
    "erf_inv": _functions(f="erf_inv_f"),
    "ge": _infix(">="),
    "gt": _infix(">"),
    "integer_pow": lambda kind, x, y, **_: _power(kind, x, y),
    "is_finite": _functions(f="is_finite_f"),
    "le": _infix("<="),
    "logistic": _functions(f="logistic_f"),
    "lt": _infix("<"),
    "max": lambda kind, a, b, **_: f"({a} | {b})" if kind == "b" else _MAX(kind, a, b),
    "min": lambda kind, a, b, **_: f"({a} & {b})" if kind == "b" else _MIN(kind, a, b),
    "mul": lambda kind, a, b, **_: f"({a} & {b})" if kind == "b" else f"mul_i({a}, {b})" if kind == "i" else f"({a} * {b})",
    "ne": _infix("!="),
    "neg": _negative,
    "nextafter": _math("nextafter"),
    "not": _not,
    "or": _infix("|"),
    "polynomial": _polynomial,
    "population_count": _functions(i="popcount_32", u="popcount_32"),
    "reduce_precision": lambda kind, x, exponent_bits, mantissa_bits, **_: _precise(kind, x, exponent_bits, mantissa_bits),
    "rem": _functions(f="fmodf", d="fmod", i="rem_i", u="rem_u"),
    "round": _round,
    "rsqrt": _functions(f="rsqrt_f"),
    "shift_left": _functions(i="shl_i", u="shl_u"),
    "shift_right_arithmetic": _functions(i="sar_i", u="shr_u"),
    "shift_right_logical": _functions(i="shr_i", u="shr_u"),
    "sign": _functions(f="sign_f", i="sign_i"),
    "square": lambda kind, x, **_: _power(kind, x, 2) if kind != "i" else f"mul_i({x}, {x})",
    "sub": _infix("-", i="sub_i"),
    "xor": _infix("^"),
    **{name: _math(name) for name in _IN_THE_LIBRARY},
    "le_to": _functions(f="le_to_f", i="le_i", u="le_u"),
    "lt_to": _functions(f="lt_to_f", i="lt_i", u="lt_u"),
    "convert_element_type": lambda *_: "",
    "bitcast_convert_type": lambda *_: "",
    "select_n": _select,
}


def _precise(kind: str, x: str, exponent_bits: int, mantissa_bits: int) -> str:
    if (kind, exponent_bits, mantissa_bits) != ("f", 8, 23):
        raise Unsupported("reduce_precision to fewer bits")
    return x


def element(value: Value, place: Place) -> str:
    """An element of an operand; axes of length 1 are those of its neighbours."""
    return value.at(tuple(0 if n == 1 else p for p, n in zip(place, value.shape, strict=True)) if value.shape else ())


def write(writer: Writer, eqn: Any, args: list[Value]) -> list[Value]:
    name, params = eqn.primitive.name, eqn.params
    shape, dtype = aval_of(eqn)
    if name == "convert_element_type" and args[0].dtype == dtype:
        return [args[0]]
    if name == "bitcast_convert_type" and args[0].shape != shape:
        raise Unsupported("bitcast_convert_type to another width")
    if all(a.known is not None for a in args) and math.prod(shape) <= 4096:
        known = _folded(name, eqn, args)
        if known is not None:
            return [writer.constant(known)]
    if name in ("eq", "ne") and is_key(eqn.invars[0].aval):
        return [_same_keys(writer, name, shape, *args)]
    if name == "select_n" and args[0].shape not in ((), shape):  # Of keys, whose condition has no axis for their words.
        which = args[0]
        args = [writer.view(which, shape, lambda place: which.at(place[: len(which.shape)])), *args[1:]]
    kind = kind_of(args[0].dtype)

    def text_at(place: Place) -> str:
        texts = [element(a, place) for a in args]
        if name == "convert_element_type":
            return _converted(writer, texts[0], dtype, args[0].dtype)
        if name == "bitcast_convert_type":
            return _bitcast(writer, texts[0], dtype, args[0].dtype)
        if name == "select_n":
            return _select(kind, kind_of(dtype), *texts)
        text = EXPRESSIONS[name](kind, *texts, **params)
        return writer.converted(dtype, text) if writer.wide and narrow(dtype) else text

    steps = 1 + sum(a.steps for a in args)
    long = math.prod(shape) > _SHORT and steps <= _MOST_STEPS
    # A mask in memory is four instructions away.
    if name in _CHEAP and (long or (writer.wide and steps == 1 and dtype.kind == "b")) and all(map(_of_places, args)):
        made = Value(shape, dtype, text_at, frozenset().union(*(a.storages for a in args)), steps=steps)
    else:
        made = writer.elementwise([(shape, dtype)], lambda place, names: [f"{names[0]} = {text_at(place)};"])[0]
    if name == "eq":
        made.lone = _lone_axis(*args)
    if name == "select_n" and kind == "b" and args[0].lone is not None and args[0].shape == shape and _is_zero(args[1]):
        made.chosen = args[0], args[2]
        made.storages |= args[0].storages | args[2].storages
    return [made]


def _of_places(x: Value) -> bool:
    """Whether an element depends on nothing but its place and numbers of the run."""
    return x.known is not None or x.uniform or x.size == 1 or x.steps > 0


def _lone_axis(a: Value, b: Value) -> int | None:
    """Axis along which two arrays are equal at one place at most: one of them counts, the other stays as it is."""
    for counts, other in ((a, b), (b, a)):
        known = counts.known
        if (
            known is not None
            and known.ndim == 1
            and len(np.unique(known)) == len(known) > 1
            and (other.uniform or other.size == 1)
        ):
            return 0
    return None


def _is_zero(x: Value) -> bool:
    return x.known is not None and not x.known.any() and not np.signbit(x.known).any()


def _same_keys(writer: Writer, name: str, shape: tuple[int, ...], a: Value, b: Value) -> Value:
    joined = " && " if name == "eq" else " || "

    def make(place: Place, names: Sequence[str]) -> list[str]:
        tests = (f"{a.at((*place, i))} {'==' if name == 'eq' else '!='} {b.at((*place, i))}" for i in (0, 1))
        return [f"{names[0]} = {joined.join(tests)};"]

    return writer.elementwise([(shape, np.dtype(bool))], make)[0]


_FOLDED: dict[str, Callable[..., Any]] = {
    "add": np.add, "and": np.bitwise_and, "eq": np.equal, "ge": np.greater_equal, "gt": np.greater, "le": np.less_equal,
    "lt": np.less, "max": np.maximum, "min": np.minimum, "mul": np.multiply, "ne": np.not_equal, "neg": np.negative,
    "not": np.invert, "or": np.bitwise_or, "sub": np.subtract, "xor": np.bitwise_xor, "abs": np.abs, "floor": np.floor,
    "sqrt": np.sqrt,
}  # fmt: skip


def _folded(name: str, eqn: Any, args: Sequence[Value]) -> np.ndarray | None:
    """The result of an operation on known numbers, where NumPy rounds as every device does."""
    shape, dtype = aval_of(eqn)
    known = [np.asarray(a.known) for a in args]
    with np.errstate(all="ignore"):
        if name in _FOLDED:
            return np.broadcast_to(np.asarray(_FOLDED[name](*known), dtype), shape)
        if name == "convert_element_type" and not (known[0].dtype.kind == "f" and dtype.kind != "f"):
            return known[0].astype(dtype)
    return None
