"""Rules of elementwise operations, and of random keys and bits."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxroute.core.batching.dependence import is_key
from jaxroute.kernels import ir
from jaxroute.kernels.ir import Value, aval_of, flat
from jaxroute.kernels.printer import FORMATS, c_type, is_narrow
from jaxroute.kernels.writer import Writer

# Functions that write an operation of a jaxpr in C, `(writer, equation, *operands) -> results`, by the name of the operation's primitive.
Rule = Callable[..., list[Value]]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Returns a decorator that registers a function as the translation to C (in `RULES`) of JAX's operations with these names."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def combined(name: str, *operands: ir.Expr) -> ir.Expr:
    """Returns the C expression of the operation `name` of `printer.FORMATS`; raises `Unsupported` if C lacks it for the type of the operands."""
    dtype = operands[0].dtype
    c_type(dtype)
    if dtype.kind not in FORMATS[name] and "*" not in FORMATS[name]:
        raise ir.Unsupported(f"{name} of numbers of type {dtype.name}")
    return ir.apply(name, *operands)


def _power(x: ir.Expr, y: int) -> ir.Expr:
    if y < 2:
        return combined("div", ir.literal(1, x.dtype), _power(x, -y)) if y < 0 else x if y else ir.literal(1, x.dtype)
    square = _power(x * x, y // 2)
    return x * square if y % 2 else square


def _converted(x: ir.Expr, new: np.dtype) -> ir.Expr:
    old = x.dtype
    if new == old:
        return x
    if new.kind == "b":
        return x.differs(0)
    if old.kind == "f" and new.kind in "iu" and max(old.itemsize, new.itemsize) < 8:
        x = ir.apply("int_of" if new.kind == "i" else "unsigned_of", x, dtype=np.int32 if new.kind == "i" else np.uint32)
    return x if x.dtype == new else ir.convert(x, new)


def _bitcast(x: ir.Expr, new: np.dtype) -> ir.Expr:
    if new.itemsize != x.dtype.itemsize or new.itemsize != 4:
        raise ir.Unsupported("bitcast_convert_type of other than 32 bits")
    if new == x.dtype:
        return x
    if new.kind == "f":
        return ir.apply("float_of", x, dtype=new)
    return ir.convert(ir.apply("bits_of", x, dtype=np.uint32) if x.dtype.kind == "f" else x, new)


def _precise(x: ir.Expr, exponent_bits: int, mantissa_bits: int) -> ir.Expr:
    if (x.dtype, exponent_bits, mantissa_bits) != (np.float32, 8, 23):
        raise ir.Unsupported("reduce_precision to fewer bits")
    return x


def _select(which: ir.Expr, *cases: ir.Expr) -> ir.Expr:
    if which.dtype == np.bool_:
        return ir.choose(which, cases[1], cases[0])
    pairs = reversed(list(enumerate(cases[:-1])))
    return functools.reduce(lambda other, one: ir.choose(which <= one[0], one[1], other), pairs, cases[-1])


# Operations that consist of others: functions `(*operands, **parameters) -> expression`.
_COMPOSED: dict[str, Callable[..., ir.Expr]] = {
    "add_any": lambda a, b: combined("add", a, b),
    "clamp": lambda low, x, high: combined("min", combined("max", low, x), high),
    "integer_pow": _power,
    # Horner's rule; the coefficients begin with the constant one.
    "polynomial": lambda x, *terms: functools.reduce(lambda total, more: total * x + more, reversed(terms)),
    "reduce_precision": _precise,
    "round": lambda x, rounding_method: combined("rint" if int(rounding_method) else "round", x),
    "select_n": _select,
    "square": lambda x: _power(x, 2),
}
_PARAMETERS = ("y", "exponent_bits", "mantissa_bits", "rounding_method")
_BY_TYPE = {"convert_element_type": _converted, "bitcast_convert_type": _bitcast}
NAMES = frozenset([*_COMPOSED, *_BY_TYPE, *FORMATS])

# Elements of a long array that depends on its indices alone, such as a mask of used entries, are computed where they are read.
_CHEAP = frozenset(["add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "convert_element_type"])
_SHORT, _MOST_STEPS = 64, 4


def element(value: Value, place: ir.Place) -> ir.Expr:
    """Returns the C expression of the element of an operand, `value`, that broadcasting pairs with the element `place` of the result."""
    return value.at(tuple(0 if n == 1 else p for p, n in zip(place, value.shape, strict=True)) if value.shape else ())


def write(writer: Writer, eqn: Any, args: list[Value]) -> list[Value]:
    name = eqn.primitive.name
    shape, dtype = aval_of(eqn)
    if name == "convert_element_type" and args[0].dtype == dtype:
        return [args[0]]
    if name == "bitcast_convert_type" and args[0].shape != shape:
        raise ir.Unsupported("bitcast_convert_type to another width")
    if name in ("eq", "ne") and is_key(eqn.invars[0].aval):
        join = ir.both if name == "eq" else ir.either
        words = lambda place: (combined(name, *(a.at((*place, i)) for a in args)) for i in (0, 1))  # noqa: E731
        return [writer.pointwise(shape, dtype, lambda place: join(*words(place)))]
    if name == "select_n" and args[0].shape not in ((), shape):  # Keys: the condition lacks the axis of their words.
        which = args[0]
        args = [writer.view(which, shape, lambda place: which.at(place[: len(which.shape)])), *args[1:]]

    params = {key: eqn.params[key] for key in _PARAMETERS if key in eqn.params}

    def at(place: ir.Place) -> ir.Expr:
        operands = [element(a, place) for a in args]
        if name in _BY_TYPE:
            return _BY_TYPE[name](operands[0], dtype)
        made = _COMPOSED[name](*operands, **params) if name in _COMPOSED else combined(name, *operands)
        return ir.convert(made, dtype) if writer.wide and is_narrow(dtype) else made

    steps = 1 + sum(a.steps for a in args)
    long = math.prod(shape) > _SHORT and steps <= _MOST_STEPS
    # Whether an element depends on its index and on single numbers alone.
    of_places = all(a.known is not None or a.uniform or a.size == 1 or a.steps > 0 for a in args)
    # Reading a mask from memory takes four instructions.
    if name in _CHEAP and (long or (writer.wide and steps == 1 and dtype.kind == "b")) and of_places:
        made = Value(shape, dtype, at, frozenset().union(*(a.storages for a in args)), steps=steps)
    else:
        made = writer.pointwise(shape, dtype, at)
    made.lone = name == "eq" and _is_lone(*args)
    zero = args[1].known if name == "select_n" and args[0].lone else None
    if zero is not None and not zero.any() and not np.signbit(zero).any():
        made.chosen = args[0], args[2]
        made.storages |= args[0].storages | args[2].storages
    return [made]


def _is_lone(a: Value, b: Value) -> bool:
    """Whether `a == b` is known to hold in at most one element: one is a constant vector of different numbers, the other has equal elements."""
    lines = [one.known for one, other in ((a, b), (b, a)) if other.uniform or other.size == 1]
    return any(x is not None and x.ndim == 1 and len(np.unique(x)) == len(x) > 1 for x in lines)


def beats(a: ir.Expr, b: ir.Expr, largest: bool = True) -> ir.Expr:
    """Returns an expression that tests whether `a` is larger than `b`, or smaller if not `largest`. A NaN beats every number in both cases."""
    wins = a > b if largest else a < b
    return ir.either(wins, ir.both(a.is_nan(), b.equals(b))) if a.dtype.kind == "f" else wins


# Random keys and bits by Threefry

WORD = np.dtype(np.uint32)


def _encrypted(writer: Writer, shape: tuple[int, ...], words: Callable[[ir.Place], Sequence[ir.Expr]]) -> list[Value]:
    def make(place: ir.Place, results: Sequence[ir.Storage]) -> list[ir.Statement]:
        k0, k1, *block = words(place)  # The key, then the two words to encrypt.
        declared = [ir.Declare(result, word) for result, word in zip(results, block, strict=True)]
        return [*declared, ir.Call("threefry", (k0, k1, *map(ir.variable, results)), tuple(results))]

    return writer.elementwise(shape, [WORD] * 2, make)


@rule("threefry_2x32")
def _threefry(writer: Writer, eqn: Any, *words: Value) -> list[Value]:
    return _encrypted(writer, aval_of(eqn)[0], lambda place: [element(w, place) for w in words])


@rule("child_words")
def _child_words(writer: Writer, eqn: Any, *words: Value) -> list[Value]:
    def at(place: ir.Place) -> list[ir.Expr]:
        k0, k1, address = (element(w, place) for w in words)
        return [k0, k1, ir.literal(0, WORD), address]

    return [writer.stacked(_encrypted(writer, aval_of(eqn)[0][1:], at), 0)]


@rule("random_seed")
def _random_seed(writer: Writer, eqn: Any, seeds: Value) -> list[Value]:
    if seeds.dtype.itemsize > 4:
        raise ir.Unsupported("jax.random.key of 64 bits")
    low = Value(seeds.shape, WORD, lambda place: ir.convert(seeds.at(place), WORD), seeds.storages)
    return [writer.stacked([writer.constant(np.zeros(seeds.shape, WORD)), low], -1)]


def _blocks(
    writer: Writer, keys: Value, shape: tuple[int, ...], address: Callable[[ir.Place], ir.Index] | None = None
) -> list[Value]:
    """Encrypts counters by Threefry. Returns the two resulting words as arrays of `shape`, which begins with the axes of `keys`.

    `address` gives the counter at an index tuple. By default, each key encrypts 0, 1, 2, ... in the order of its elements.
    """
    lead = len(keys.shape) - 1

    def words(place: ir.Place) -> list[ir.Expr]:
        at = flat(place[lead:], shape[lead:]) if address is None else address(place)
        return [*(keys.at((*place[:lead], i)) for i in (0, 1)), ir.literal(0, WORD), ir.convert(at, WORD)]

    return _encrypted(writer, shape, words)


@rule("random_bits")
def _random_bits(writer: Writer, eqn: Any, keys: Value) -> list[Value]:
    if eqn.params["bit_width"] != 32:
        raise ir.Unsupported(f"jax.random.bits of {eqn.params['bit_width']} bits")
    first, second = _blocks(writer, keys, (*keys.shape[:-1], *eqn.params["shape"]))
    return [writer.pointwise(*aval_of(eqn), lambda place: first.at(place) ^ second.at(place))]


@rule("random_split")
def _random_split(writer: Writer, eqn: Any, keys: Value) -> list[Value]:
    return [writer.stacked(_blocks(writer, keys, (*keys.shape[:-1], *eqn.params["shape"])), -1)]


@rule("random_fold_in")
def _random_fold_in(writer: Writer, eqn: Any, keys: Value, data: Value) -> list[Value]:
    shape = tuple(np.broadcast_shapes(keys.shape[:-1], data.shape))
    return [writer.stacked(_blocks(writer, keys, shape, lambda place: data.at(place if data.shape else ())), -1)]
