"""What each operation of a traced function is in C."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jax import lax

from jaxroute.engine.batching.dependence import is_key
from jaxroute.engine.kernels.values import (
    Place,
    Unsupported,
    Value,
    add,
    c_type,
    counting,
    flat,
    literal,
    times,
    unflat,
)

if TYPE_CHECKING:
    from jaxroute.engine.kernels.emitter import Emitter

Rule = Callable[..., list[Value]]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Makes a function `(emitter, eqn, *args) -> values` the rule of operations."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def write(emitter: "Emitter", eqn: Any, args: list[Value]) -> list[Value]:
    """Writes an operation that is neither a loop nor a branch nor a call; its results."""
    name = eqn.primitive.name
    if name in _EXPRESSIONS:
        return _elementwise(emitter, eqn, args)
    if name not in RULES:
        raise Unsupported(name)
    return RULES[name](emitter, eqn, *args)


def _aval(eqn: Any, place: int = 0) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of a result's numbers."""
    aval = eqn.outvars[place].aval
    return ((*aval.shape, 2), np.dtype(np.uint32)) if is_key(aval) else (tuple(aval.shape), np.dtype(aval.dtype))


# Element by element


def _kind(dtype: Any) -> str:
    """f: float32, i: int32 and shorter, u: uint32 and shorter, b: bool, d, l, m: the same of 64 bits."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return "b"
    return {"f": "fd", "i": "il", "u": "um"}[dtype.kind][dtype.itemsize == 8]


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
    return f"({'1.0f' if kind == 'f' else '1.0'} / {total})" if y < 0 else total


def _converted(kind: str, x: str, new: np.dtype, old: np.dtype) -> str:
    if new == old:
        return x
    if new.kind == "b":
        return f"({x} != 0)"
    if old.kind == "f" and new.kind in "iu":
        if old.itemsize == 8 or new.itemsize == 8:
            return f"(({c_type(new)}){x})"
        whole = f"{'int_of' if new.kind == 'i' else 'unsigned_of'}({x})"
        return whole if new.itemsize == 4 else f"(({c_type(new)}){whole})"
    return f"(({c_type(new)}){x})"


def _bitcast(x: str, new: np.dtype, old: np.dtype) -> str:
    if new.itemsize != old.itemsize or new.itemsize != 4:
        raise Unsupported("bitcast_convert_type of other than 32 bits")
    if old.kind == "f":
        return x if new.kind == "f" else f"(({c_type(new)})bits_of({x}))"
    return f"float_of({x})" if new.kind == "f" else f"(({c_type(new)}){x})"


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

# `(kind of the first operand, *expressions, **parameters) -> expression`.
_EXPRESSIONS: dict[str, Callable[..., str]] = {
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
    "population_count": _functions(i="popcount_32", u="popcount_32"),
    "reduce_precision": lambda kind, x, exponent_bits, mantissa_bits, **_: _precise(kind, x, exponent_bits, mantissa_bits),
    "rem": _functions(f="fmodf", d="fmod", i="rem_i", u="rem_u"),
    "round": _round,
    "rsqrt": _functions(f="rsqrt_f"),
    "shift_left": _functions(i="(int)shl_u", u="shl_u"),
    "shift_right_arithmetic": _functions(i="sar_i", u="shr_u"),
    "shift_right_logical": _functions(i="(int)shr_u", u="shr_u"),
    "sign": _functions(f="sign_f", i="sign_i"),
    "square": lambda kind, x, **_: _power(kind, x, 2) if kind != "i" else f"mul_i({x}, {x})",
    "sub": _infix("-", i="sub_i"),
    "xor": _infix("^"),
    **{
        name: _math(text)
        for name, text in {
            **{
                n: n
                for n in (
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
                )
            },
            **{
                n: n
                for n in ("exp2", "expm1", "floor", "lgamma", "log", "log1p", "pow", "sin", "sinh", "sqrt", "tan", "tanh")
            },
        }.items()
    },
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


def _element(value: Value, place: Place) -> str:
    """An element of an operand; axes of length 1 are those of its neighbours."""
    return value.at(tuple(0 if n == 1 else p for p, n in zip(place, value.shape, strict=True)) if value.shape else ())


def _elementwise(emitter: "Emitter", eqn: Any, args: list[Value]) -> list[Value]:
    name, params = eqn.primitive.name, eqn.params
    shape, dtype = _aval(eqn)
    if name == "convert_element_type" and args[0].dtype == dtype:
        return [args[0]]
    if name == "bitcast_convert_type" and args[0].shape != shape:
        raise Unsupported("bitcast_convert_type to another width")
    if all(a.known is not None for a in args) and math.prod(shape) <= 4096:
        known = _folded(name, eqn, args)
        if known is not None:
            return [emitter.constant(known)]
    if name in ("eq", "ne") and is_key(eqn.invars[0].aval):
        return [_same_keys(emitter, name, shape, *args)]
    if name == "select_n" and args[0].shape not in ((), shape):  # Of keys, whose condition has no axis for their words.
        which = args[0]
        args = [emitter.view(which, shape, lambda place: which.at(place[: len(which.shape)])), *args[1:]]
    kind = _kind(args[0].dtype)

    def make(place: Place, names: Sequence[str]) -> list[str]:
        texts = [_element(a, place) for a in args]
        if name == "convert_element_type":
            text = _converted(kind, texts[0], dtype, args[0].dtype)
        elif name == "bitcast_convert_type":
            text = _bitcast(texts[0], dtype, args[0].dtype)
        elif name == "select_n":
            text = _select(kind, _kind(dtype), *texts)
        else:
            text = _EXPRESSIONS[name](kind, *texts, **params)
        return [f"{names[0]} = {text};"]

    made = emitter.elementwise([(shape, dtype)], make)[0]
    if name == "eq":
        made.lone = _lone_axis(*args)
    if name == "select_n" and kind == "b" and args[0].lone is not None and args[0].shape == shape and _is_zero(args[1]):
        made.chosen = args[0], args[2]
        made.storages |= args[0].storages | args[2].storages
    return [made]


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


def _same_keys(emitter: "Emitter", name: str, shape: tuple[int, ...], a: Value, b: Value) -> Value:
    joined = " && " if name == "eq" else " || "

    def make(place: Place, names: Sequence[str]) -> list[str]:
        tests = (f"{a.at((*place, i))} {'==' if name == 'eq' else '!='} {b.at((*place, i))}" for i in (0, 1))
        return [f"{names[0]} = {joined.join(tests)};"]

    return emitter.elementwise([(shape, np.dtype(bool))], make)[0]


_FOLDED: dict[str, Callable[..., Any]] = {
    "add": np.add, "and": np.bitwise_and, "eq": np.equal, "ge": np.greater_equal, "gt": np.greater, "le": np.less_equal,
    "lt": np.less, "max": np.maximum, "min": np.minimum, "mul": np.multiply, "ne": np.not_equal, "neg": np.negative,
    "not": np.invert, "or": np.bitwise_or, "sub": np.subtract, "xor": np.bitwise_xor, "abs": np.abs, "floor": np.floor,
    "sqrt": np.sqrt,
}  # fmt: skip


def _folded(name: str, eqn: Any, args: Sequence[Value]) -> np.ndarray | None:
    """The result of an operation on known numbers, where NumPy rounds as every device does."""
    shape, dtype = _aval(eqn)
    known = [np.asarray(a.known) for a in args]
    with np.errstate(all="ignore"):
        if name in _FOLDED:
            return np.broadcast_to(np.asarray(_FOLDED[name](*known), dtype), shape)
        if name == "convert_element_type" and not (known[0].dtype.kind == "f" and dtype.kind != "f"):
            return known[0].astype(dtype)
    return None


@rule("threefry_2x32")
def _threefry(emitter: "Emitter", eqn: Any, *words: Value) -> list[Value]:
    shape, dtype = _aval(eqn)

    def make(place: Place, names: Sequence[str]) -> list[str]:
        k0, k1, x0, x1 = (_element(w, place) for w in words)
        return [f"{names[0]} = {x0};", f"{names[1]} = {x1};", f"threefry({k0}, {k1}, &{names[0]}, &{names[1]});"]

    return emitter.elementwise([(shape, dtype)] * 2, make)


def _encrypted(
    emitter: "Emitter", shape: tuple[int, ...], key: Callable[[Place], tuple[str, str]], low: Callable[[Place], str]
):
    """Threefry of the block `(0, low)` under a key of two words, at each place of a shape."""

    def make(place: Place, names: Sequence[str]) -> list[str]:
        k0, k1 = key(place)
        return [f"{names[0]} = 0u;", f"{names[1]} = {low(place)};", f"threefry({k0}, {k1}, &{names[0]}, &{names[1]});"]

    return emitter.elementwise([(shape, np.dtype(np.uint32))] * 2, make)


def _as_words(emitter: "Emitter", first: Value, second: Value) -> Value:
    """Keys `[..., 2]` from their words."""
    return _stacked(emitter, [first, second], len(first.shape))


@rule("random_seed")
def _random_seed(emitter: "Emitter", eqn: Any, seeds: Value) -> list[Value]:
    if seeds.dtype.itemsize > 4:
        raise Unsupported("random_seed of 64 bits")
    low = emitter.view(seeds, seeds.shape, lambda place: f"((unsigned){seeds.at(place)})")
    low.dtype = np.dtype(np.uint32)
    return [_as_words(emitter, emitter.constant(np.zeros(seeds.shape, np.uint32)), low)]


def _blocks(emitter: "Emitter", keys: Value, shape: tuple[int, ...]) -> list[Value]:
    """Both words of Threefry for every key at the addresses `0, 1, ...` of a shape."""
    lead = len(keys.shape) - 1
    return _encrypted(
        emitter,
        (*keys.shape[:-1], *shape),
        lambda place: (keys.at((*place[:lead], 0)), keys.at((*place[:lead], 1))),
        lambda place: f"((unsigned){flat(place[lead:], shape)})",
    )


@rule("random_bits")
def _random_bits(emitter: "Emitter", eqn: Any, keys: Value) -> list[Value]:
    if eqn.params["bit_width"] != 32:
        raise Unsupported(f"random_bits of {eqn.params['bit_width']} bits")
    first, second = _blocks(emitter, keys, tuple(eqn.params["shape"]))
    shape, dtype = _aval(eqn)
    return emitter.elementwise(
        [(shape, dtype)], lambda place, names: [f"{names[0]} = {first.at(place)} ^ {second.at(place)};"]
    )


@rule("random_split")
def _random_split(emitter: "Emitter", eqn: Any, keys: Value) -> list[Value]:
    return [_as_words(emitter, *_blocks(emitter, keys, tuple(eqn.params["shape"])))]


@rule("random_fold_in")
def _random_fold_in(emitter: "Emitter", eqn: Any, keys: Value, data: Value) -> list[Value]:
    shape = tuple(np.broadcast_shapes(keys.shape[:-1], data.shape))
    words = _encrypted(
        emitter,
        shape,
        lambda place: (
            (keys.at((*place, 0)), keys.at((*place, 1))) if len(keys.shape) > 1 else (keys.at((0,)), keys.at((1,)))
        ),
        lambda place: f"((unsigned){data.at(place if data.shape else ())})",
    )
    return [_as_words(emitter, *words)]


# What only moves elements


@rule("broadcast_in_dim")
def _broadcast_in_dim(emitter: "Emitter", eqn: Any, x: Value) -> list[Value]:
    shape, _ = _aval(eqn)
    dims = eqn.params["broadcast_dimensions"]
    rest = len(x.shape) - len(dims)  # The words of a key.
    if x.known is not None and x.known.size == 1:
        return [emitter.constant(np.full(shape, x.known.reshape(()), x.dtype))]

    def at(place: Place) -> str:
        own = [0 if size == 1 else place[d] for d, size in zip(dims, x.shape, strict=False)]
        return x.at((*own, *place[len(place) - rest :])) if rest else x.at(tuple(own))

    same = math.prod(shape) == x.size
    made = emitter.view(x, shape, at, x.storage if same else None)
    made.uniform = x.uniform or x.size == 1
    made.lone = dims[x.lone] if x.lone is not None else None
    return [made]


@rule("reshape", "squeeze", "expand_dims")
def _reshape(emitter: "Emitter", eqn: Any, x: Value) -> list[Value]:
    shape, _ = _aval(eqn)
    if eqn.primitive.name == "reshape" and eqn.params.get("dimensions") is not None:
        raise Unsupported("reshape in another order")
    if x.known is not None:
        return [emitter.constant(x.known.reshape(shape))]
    if shape == x.shape:
        return [x]
    squeezed = [i for i, n in enumerate(x.shape) if n != 1]
    if [x.shape[i] for i in squeezed] == [n for n in shape if n != 1]:
        wide = [i for i, n in enumerate(shape) if n != 1]

        def at(place: Place) -> str:
            own: list[Any] = [0] * len(x.shape)
            for source, target in zip(squeezed, wide, strict=True):
                own[source] = place[target]
            return x.at(tuple(own))

        return [emitter.view(x, shape, at, x.storage)]
    whole = emitter.stored(x)
    return [emitter.view(whole, shape, lambda place: whole.at(unflat(flat(place, shape), whole.shape)), whole.storage)]


@rule("transpose")
def _transpose(emitter: "Emitter", eqn: Any, x: Value) -> list[Value]:
    shape, _ = _aval(eqn)
    permutation = (*eqn.params["permutation"], *range(len(eqn.params["permutation"]), len(x.shape)))
    inverse = [permutation.index(i) for i in range(len(shape))]
    return [emitter.view(x, shape, lambda place: x.at(tuple(place[i] for i in inverse)))]


@rule("rev")
def _rev(emitter: "Emitter", eqn: Any, x: Value) -> list[Value]:
    dims = eqn.params["dimensions"]

    def at(place: Place) -> str:
        return x.at(tuple(_mirrored(p, n) if i in dims else p for i, (p, n) in enumerate(zip(place, x.shape, strict=True))))

    return [emitter.view(x, x.shape, at)]


def _mirrored(index: Any, size: int) -> Any:
    return size - 1 - index if isinstance(index, int) else f"({size - 1} - {index})"


@rule("slice")
def _slice(emitter: "Emitter", eqn: Any, x: Value) -> list[Value]:
    shape, _ = _aval(eqn)
    starts = eqn.params["start_indices"]
    strides = eqn.params["strides"] or (1,) * len(starts)

    def at(place: Place) -> str:
        front = (add(times(p, stride), start) for p, start, stride in zip(place, starts, strides, strict=False))
        return x.at((*front, *place[len(starts) :]))

    return [emitter.view(x, shape, at)]


@rule("split")
def _split(emitter: "Emitter", eqn: Any, x: Value) -> list[Value]:
    axis, outs, first = eqn.params["axis"], [], 0
    for place, size in enumerate(eqn.params["sizes"]):
        shape, _ = _aval(eqn, place)

        def at(place: Place, first: int = first) -> str:
            return x.at((*place[:axis], add(place[axis], first), *place[axis + 1 :]))

        outs.append(emitter.view(x, shape, at))
        first += size
    return outs


@rule("unstack")
def _unstack(emitter: "Emitter", eqn: Any, x: Value) -> list[Value]:
    axis = eqn.params["axis"]
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    return [emitter.view(x, rest, lambda place, i=i: x.at((*place[:axis], i, *place[axis:]))) for i in range(x.shape[axis])]


@rule("tile")
def _tile(emitter: "Emitter", eqn: Any, x: Value) -> list[Value]:
    shape, _ = _aval(eqn)

    def at(place: Place) -> str:
        return x.at(tuple(p % n if isinstance(p, int) else f"(({p})%{n})" for p, n in zip(place, x.shape, strict=True)))

    return [emitter.view(x, shape, at)]


@rule("iota")
def _iota(emitter: "Emitter", eqn: Any) -> list[Value]:
    shape, dtype = _aval(eqn)
    axis = eqn.params["dimension"]
    line = np.arange(shape[axis]).astype(dtype)
    known = np.broadcast_to(line.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)

    def at(place: Place) -> str:
        number = place[axis]
        return literal(line[number]) if isinstance(number, int) else f"(({c_type(dtype)}){number})"

    return [Value(shape, dtype, at, known=known)]


def _parts(
    emitter: "Emitter", shape: Sequence[int], dtype: Any, pieces: Sequence[tuple[Sequence[int], Value, Sequence[int]]]
) -> Value:
    """An array from pieces: where each begins, what it is, and its sizes in there."""
    storage = emitter.variable(dtype, math.prod(shape))
    for starts, piece, sizes in pieces:
        emitter.write_part(storage, shape, starts, piece, sizes)
    return emitter.value_of(storage, shape)


@rule("concatenate")
def _concatenate(emitter: "Emitter", eqn: Any, *xs: Value) -> list[Value]:
    shape, dtype = _aval(eqn)
    axis = eqn.params["dimension"]
    if len(xs) == 1:
        return [xs[0]]
    if all(x.known is not None for x in xs):
        return [emitter.constant(np.concatenate([np.asarray(x.known) for x in xs], axis))]
    firsts = itertools.accumulate([0, *(x.shape[axis] for x in xs[:-1])])
    pieces = [([f if i == axis else 0 for i in range(len(shape))], x, x.shape) for f, x in zip(firsts, xs, strict=True)]
    return [_parts(emitter, shape, dtype, pieces)]


def _stacked(emitter: "Emitter", xs: Sequence[Value], axis: int) -> Value:
    """Arrays beside each other along a new axis."""
    shape = (*xs[0].shape[:axis], len(xs), *xs[0].shape[axis:])
    sizes = [*xs[0].shape[:axis], 1, *xs[0].shape[axis:]]
    pieces = [([i if j == axis else 0 for j in range(len(shape))], x, sizes) for i, x in enumerate(xs)]
    return _parts(emitter, shape, xs[0].dtype, pieces)


@rule("stack")
def _stack(emitter: "Emitter", eqn: Any, *xs: Value) -> list[Value]:
    return [_stacked(emitter, xs, eqn.params["axis"])]


@rule("pad")
def _pad(emitter: "Emitter", eqn: Any, x: Value, value: Value) -> list[Value]:
    shape, dtype = _aval(eqn)
    config = eqn.params["padding_config"]
    if any(interior or low < 0 or high < 0 for low, high, interior in config):
        storage = emitter.variable(dtype, math.prod(shape))
        filled = emitter.view(value, shape, lambda place: value.at(()))
        emitter.write(storage, filled)
        kept = [
            [p for p in range(n) if 0 <= low + p * (interior + 1) < size]
            for n, size, (low, _, interior) in zip(x.shape, shape, config, strict=True)
        ]
        for place in itertools.product(*kept):
            target = [low + p * (interior + 1) for p, (low, _, interior) in zip(place, config, strict=True)]
            emitter.line(f"{storage.element(flat(target, shape))} = {x.at(place)};", storage)
        return [emitter.value_of(storage, shape)]

    def make(place: Place, names: Sequence[str]) -> list[str]:
        tests, own = [], []
        for p, n, (low, high, _) in zip(place, x.shape, config, strict=True):
            if not low and not high:
                own.append(p)
                continue
            at = add(p, -low)
            tests.append(f"(unsigned){at} < {n}u")
            own.append(f"min_i(max_i({at}, 0), {n - 1})")
        return [f"{names[0]} = {' && '.join(tests) or 'true'} ? {x.at(tuple(own))} : {value.at(())};"]

    if not x.size:
        return [emitter.view(value, shape, lambda place: value.at(()))]
    whole = x if x.known is not None else emitter.stored(x)
    x = whole
    return emitter.elementwise([(shape, dtype)], make)


# Reductions

_REDUCTIONS: dict[str, tuple[str, str]] = {
    "reduce_sum": ("add", "0"),
    "reduce_prod": ("mul", "1"),
    "reduce_max": ("max", ""),
    "reduce_min": ("min", ""),
    "reduce_and": ("and", "1"),
    "reduce_or": ("or", "0"),
    "reduce_xor": ("xor", "0"),
}


def _lowest(dtype: np.dtype, operation: str) -> Any:
    """What a maximum begins with, or a minimum."""
    if dtype.kind == "b":
        return np.bool_(operation == "min")
    if dtype.kind == "f":
        return dtype.type(-np.inf if operation == "max" else np.inf)
    limits = np.iinfo(dtype)
    return dtype.type(limits.min if operation == "max" else limits.max)


@rule(*_REDUCTIONS)
def _reduce(emitter: "Emitter", eqn: Any, x: Value) -> list[Value]:
    """In the order of the elements, as XLA on a CPU with the runs last."""
    shape, dtype = _aval(eqn)
    axes = tuple(eqn.params["axes"])
    operation, start = _REDUCTIONS[eqn.primitive.name]
    terms = [x.shape[a] for a in axes]
    kind = _kind(dtype)
    if not math.prod(terms) and operation in ("max", "min"):
        raise Unsupported(f"{eqn.primitive.name} of nothing")

    def merged(total: str, text: str) -> str:
        return _EXPRESSIONS[operation](kind, total, text)

    if len(axes) == len(x.shape):
        start = literal(
            _lowest(dtype, operation) if operation in ("max", "min") else np.asarray(int(start)).astype(dtype)[()]
        )
        if operation == "add" and x.chosen is not None and axes == (x.chosen[0].lone,):
            which, case = x.chosen
            own = f"choose_{kind}"
            return emitter.gathered(  # The one that is chosen, in place of a sum of zeros and of it.
                x.shape,
                [(dtype, start)],
                lambda place, names: [f"{names[0]} = {own}({which.at(place)}, {case.at(place)}, {names[0]});"],
                lambda names: [f"{names[0]} = {merged(names[0], start)};"],
            )
        return emitter.gathered(
            x.shape, [(dtype, start)], lambda place, names: [f"{names[0]} = {merged(names[0], x.at(place))};"]
        )

    def at(place: Place, inner: Place) -> str:
        places = iter(place)
        within = dict(zip(axes, inner, strict=True))
        return x.at(tuple(within[i] if i in within else next(places) for i in range(len(x.shape))))

    first = literal(np.asarray(int(start or 0)).astype(dtype)[()])
    if operation in ("max", "min") and math.prod(terms):
        first = ""
    emitter.ready(x)
    storage = emitter.variable(dtype, math.prod(shape) if shape else 0)
    with emitter.loops(shape) as place:
        target = storage.element(flat(place, shape))
        total = emitter.name("s")
        emitter.line(f"{c_type(dtype)} {total} = {first or at(place, (0,) * len(axes))};")
        if math.prod(terms):
            with emitter.loops(terms) as inner:
                emitter.line(f"{total} = {merged(total, at(place, inner))};")
        emitter.line(f"{target} = {total};", storage)
    return [emitter.value_of(storage, shape)]


@rule("cumsum", "cumprod", "cummax", "cummin")
def _cumulative(emitter: "Emitter", eqn: Any, x: Value) -> list[Value]:
    shape, dtype = _aval(eqn)
    axis, reverse = eqn.params["axis"], eqn.params["reverse"]
    operation = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}[eqn.primitive.name]
    if not x.size:
        return [x]
    emitter.ready(x)
    storage = emitter.variable(dtype, math.prod(shape))
    others = [1 if i == axis else n for i, n in enumerate(shape)]
    with emitter.loops(others) as place:

        def here(step: Any) -> Place:
            return (*place[:axis], _mirrored(step, shape[axis]) if reverse else step, *place[axis + 1 :])

        total, step = emitter.name("s"), emitter.name("i")
        emitter.line(f"{c_type(dtype)} {total} = {x.at(here(0))};")
        emitter.line(f"{storage.element(flat(here(0), shape))} = {total};", storage)
        emitter.line(counting(step, shape[axis], 1) + " {")
        emitter.line(f"{total} = {_EXPRESSIONS[operation](_kind(dtype), total, x.at(here(step)))};")
        emitter.line(f"{storage.element(flat(here(step), shape))} = {total};", storage)
        emitter.line("}")
    return [emitter.value_of(storage, shape)]


@rule("argmax", "argmin")
def _extreme(emitter: "Emitter", eqn: Any, x: Value) -> list[Value]:
    """The first place of the largest or smallest number; NaN counts as such."""
    (axis,) = eqn.params["axes"]
    beats = ">" if eqn.primitive.name == "argmax" else "<"

    def better(text: str, best: str) -> str:
        odd = f" || ({text} != {text} && {best} == {best})" if x.dtype.kind == "f" else ""
        return f"{text} {beats} {best}{odd}"

    if len(x.shape) == 1:
        _, dtype = _aval(eqn)
        first = literal(_lowest(x.dtype, "max" if beats == ">" else "min"))

        def step(place: Place, names: Sequence[str]) -> list[str]:
            best, where = names
            text = x.at(place)
            # What equals the start must come first, too.
            return [f"if ({better(text, best)} || {where} < 0) {best} = {text}, {where} = {place[0]};"]

        starts = [(x.dtype, first), (dtype if dtype.kind == "i" else np.dtype(np.int32), "-1")]
        number = emitter.gathered(x.shape, starts, step)[1]
        return [emitter.view(number, (), number.at)]
    return [_first_place(emitter, eqn, x, axis, better)]


def _first_place(emitter: "Emitter", eqn: Any, x: Value, axis: int, better: Callable[[str, str], str]) -> Value:
    shape, dtype = _aval(eqn)
    emitter.ready(x)
    storage = emitter.variable(dtype, math.prod(shape) if shape else 0)
    with emitter.loops(shape) as place:
        best, now, step = emitter.name("s"), emitter.name("s"), emitter.name("i")
        target = storage.element(flat(place, shape))
        number = c_type(x.dtype)

        def here(i: Any) -> str:
            return x.at((*place[:axis], i, *place[axis:]))

        emitter.line(f"{target} = 0;", storage)
        emitter.line(f"{number} {best} = {here(0)};")
        emitter.line(counting(step, x.shape[axis], 1) + " {")
        emitter.line(f"const {number} {now} = {here(step)};")
        emitter.line(f"if ({better(now, best)}) {{")
        emitter.line(f"{best} = {now};")
        emitter.line(f"{target} = {step};", storage)
        emitter.line("}")
        emitter.line("}")
    return emitter.value_of(storage, shape)


@rule("first_best")
def _first_best(emitter: "Emitter", eqn: Any, score: Value, allowed: Value | None = None) -> list[Value]:
    """As `primitives.by_comparison`: the first place of the maximum among those that are allowed; the length where there is none."""
    shape, dtype = _aval(eqn)
    axis = eqn.params["axis"]
    size, floating = score.shape[axis], score.dtype.kind == "f"
    if len(score.shape) == 1:

        def step(place: Place, names: Sequence[str]) -> list[str]:
            best, where, odd = names
            now, may = score.at(place), f"{allowed.at(place)} && " if allowed is not None else ""
            # Where nothing is above the start, the first that is allowed equals it.
            better = f"({now} > {best} || ({now} == {best} && {where} == {size}))" if may else f"{now} > {best}"
            lines = [f"if ({may}{better}) {best} = {now}, {where} = {place[0]};"]
            return [*lines, f"{odd} |= {may}{now} != {now};"] if floating else lines

        def last(names: Sequence[str]) -> list[str]:
            return [f"if ({names[2]}) {names[1]} = {size};"] if floating else []  # Nothing equals a maximum that is NaN.

        first = "0" if allowed is None else str(size)
        starts = [(score.dtype, literal(_lowest(score.dtype, "max"))), (dtype, first), (np.dtype(bool), "false")]
        return emitter.gathered(score.shape, starts, step, last)[1:2]
    emitter.ready(score, *(() if allowed is None else (allowed,)))
    storage = emitter.variable(dtype, math.prod(shape) if shape else 0)
    lowest = "-INF_32" if floating else literal(np.asarray(np.iinfo(score.dtype).min, score.dtype)[()])
    with emitter.loops(shape) as place:
        best, now, number_of = emitter.name("s"), emitter.name("s"), emitter.name("i")
        target, number = storage.element(flat(place, shape)), c_type(score.dtype)

        def here(value: Value, i: Any) -> str:
            return value.at((*place[:axis], i, *place[axis:]))

        emitter.line(f"{target} = {size};", storage)
        emitter.line(f"{number} {best} = {lowest};")
        emitter.line(counting(number_of, size) + " {")
        emitter.line(f"const {number} {now} = {here(score, number_of)};")
        may = f"{here(allowed, number_of)} && " if allowed is not None else ""
        emitter.line(f"if ({may}({now} > {best} || ({now} == {best} && {target} == {size}))) {{")
        emitter.line(f"{best} = {now};")
        emitter.line(f"{target} = {number_of};")
        emitter.line("}")
        if floating:  # Nothing equals a maximum that is NaN.
            emitter.line(f"if ({may}{now} != {now}) {{")
            emitter.line(f"{best} = INF_32;")
            emitter.line(f"{target} = {size};")
            emitter.line("break;")
            emitter.line("}")
        emitter.line("}")
        storage.reads += 1
    return [emitter.value_of(storage, shape)]


@rule("dot_general")
def _dot_general(emitter: "Emitter", eqn: Any, a: Value, b: Value) -> list[Value]:
    (a_sum, b_sum), (a_batch, b_batch) = eqn.params["dimension_numbers"]
    shape, dtype = _aval(eqn)
    if {a.dtype, b.dtype} != {dtype}:
        raise Unsupported("dot_general of mixed types")
    a_free = [i for i in range(len(a.shape)) if i not in (*a_sum, *a_batch)]
    b_free = [i for i in range(len(b.shape)) if i not in (*b_sum, *b_batch)]
    terms = [a.shape[i] for i in a_sum]
    emitter.ready(a, b)

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

    storage = emitter.variable(dtype, math.prod(shape) if shape else 0)
    with emitter.loops(shape) as place:
        batch, rows = place[: len(a_batch)], place[len(a_batch) : len(a_batch) + len(a_free)]
        columns = place[len(a_batch) + len(a_free) :]
        total = emitter.name("s")
        emitter.line(f"{c_type(dtype)} {total} = 0;")
        if math.prod(terms):
            with emitter.loops(terms) as inner:
                left = at(a, a_batch, a_free, a_sum, batch, rows, inner)
                right = at(b, b_batch, b_free, b_sum, batch, columns, inner)
                emitter.line(f"{total} = {total} + {left} * {right};")
        emitter.line(f"{storage.element(flat(place, shape))} = {total};", storage)
    return [emitter.value_of(storage, shape)]


@rule("sort")
def _sort(emitter: "Emitter", eqn: Any, *xs: Value) -> list[Value]:
    """By insertion, which keeps equal numbers in order; NaN comes last."""
    axis, keys = eqn.params["dimension"], eqn.params["num_keys"]
    columns = [
        emitter.copied(x) if not emitter.may_overwrite(x) or any(x.storage is y.storage for y in xs if y is not x) else x
        for x in xs
    ]
    shape = xs[0].shape
    if shape[axis] < 2:
        return columns
    emitter.ready(*columns)
    for column in columns:
        if column.storage is not None:
            emitter.before_writing(column.storage)

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
    with emitter.loops(others) as place:

        def here(column: Value, i: Any) -> str:
            return column.at((*place[:axis], i, *place[axis + 1 :]))

        i, j = emitter.name("i"), emitter.name("i")
        held = [emitter.name("s") for _ in xs]
        emitter.line(counting(i, shape[axis], 1) + " {")
        for name, column in zip(held, columns, strict=True):
            emitter.line(f"const {c_type(column.dtype)} {name} = {here(column, i)};")
        emitter.line(f"int {j} = {i};")
        before = [here(c, f"({j} - 1)") for c in columns]
        emitter.line(f"for (; {j} > 0 && {ahead(held[:keys], before[:keys])}; --{j}) {{")
        for column, text in zip(columns, before, strict=True):
            emitter.line(f"{here(column, j)} = {text};")
        emitter.line("}")
        for name, column in zip(held, columns, strict=True):
            emitter.line(f"{here(column, j)} = {name};")
        emitter.line("}")
    return columns


# Indices that are computed


def _start(value: Value, largest: int) -> Any:
    """An index between 0 and the largest."""
    if value.known is not None:
        known = int(value.known.item())
        return min(max(known, 0), largest)
    text = value.at(())
    return f"min_u({text}, {largest}u)" if value.dtype.kind == "u" else f"min_i(max_i({text}, 0), {largest})"


@rule("dynamic_slice")
def _dynamic_slice(emitter: "Emitter", eqn: Any, x: Value, *starts: Value) -> list[Value]:
    shape, _ = _aval(eqn)
    x = x if x.known is not None else emitter.stored(x)
    first = [emitter.index(_start(s, n - size)) for s, n, size in zip(starts, x.shape, shape, strict=False)]
    first += [0] * (len(x.shape) - len(first))
    view = emitter.view(x, shape, lambda place: x.at(tuple(add(f, p) for f, p in zip(first, place, strict=True))))
    return [emitter.copied(view)]


@rule("dynamic_update_slice")
def _dynamic_update_slice(emitter: "Emitter", eqn: Any, x: Value, new: Value, *starts: Value) -> list[Value]:
    first = [emitter.index(_start(s, n - size)) for s, n, size in zip(starts, x.shape, new.shape, strict=False)]
    first += [0] * (len(x.shape) - len(first))
    new = emitter.apart(new, x)
    storage = emitter.to_change(x)
    emitter.write_part(storage, x.shape, first, new, new.shape)
    return [emitter.value_of(storage, x.shape)]


_Mode = lax.GatherScatterMode


def _gathered_at(
    numbers: Any, indices: Value, shape: Sequence[int], sizes: Sequence[int], batch: Place
) -> tuple[list[Any], list[str]]:
    """First index along every axis, as it is, of the window that a place of the batch stands for; and what its being inside says."""
    starts: list[Any] = [0] * len(shape)
    batching = getattr(numbers, "operand_batching_dims", ())
    own = getattr(numbers, "start_indices_batching_dims", getattr(numbers, "scatter_indices_batching_dims", ()))
    index_map = getattr(numbers, "start_index_map", getattr(numbers, "scatter_dims_to_operand_dims", ()))
    for axis, at in zip(batching, own, strict=True):
        starts[axis] = batch[at]
    inside = []
    for number, axis in enumerate(index_map):
        place = (*batch, number)
        largest = shape[axis] - sizes[axis]
        if indices.known is None or not all(isinstance(p, int) for p in place):
            text = indices.at(place)
            test = f"{text} <= {largest}u" if indices.dtype.kind == "u" else f"{text} >= 0 && {text} <= {largest}"
            inside.append(test)
            starts[axis] = (
                f"min_u({text}, {largest}u)" if indices.dtype.kind == "u" else f"min_i(max_i({text}, 0), {largest})"
            )
        else:
            known = int(indices.known[tuple(map(int, place))])
            if not 0 <= known <= largest:
                inside.append("false")
            starts[axis] = min(max(known, 0), largest)
    return starts, inside


@rule("gather")
def _gather(emitter: "Emitter", eqn: Any, x: Value, indices: Value) -> list[Value]:
    params, numbers = eqn.params, eqn.params["dimension_numbers"]
    shape, dtype = _aval(eqn)
    sizes = tuple(params["slice_sizes"])
    sizes = (*sizes, *x.shape[len(sizes) :])
    x = x if x.known is not None else emitter.stored(x)
    indices = indices if indices.known is not None else emitter.stored(indices)
    words = tuple(range(len(shape) - (len(x.shape) - len(params["slice_sizes"])), len(shape)))
    offset_dims = (*numbers.offset_dims, *words)
    dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    kept = [i for i in range(len(x.shape)) if i not in dropped]
    fills = params["mode"] == _Mode.FILL_OR_DROP
    fill = params.get("fill_value")
    if fills and fill is None:
        fill = (
            np.nan
            if dtype.kind == "f"
            else np.iinfo(dtype).min
            if dtype.kind == "i"
            else True
            if dtype.kind == "b"
            else np.iinfo(dtype).max
        )

    def make(place: Place, names: Sequence[str]) -> list[str]:
        batch = tuple(p for i, p in enumerate(place) if i not in offset_dims)
        starts, inside = _gathered_at(numbers, indices, x.shape, sizes, batch)
        own = list(starts)
        for axis, dim in zip(kept, offset_dims, strict=True):
            own[axis] = add(starts[axis], place[dim])
        text = x.at(tuple(own))
        if fills and inside:
            text = f"({' && '.join(inside)}) ? {text} : {literal(np.asarray(fill).astype(dtype)[()])}"
        return [f"{names[0]} = {text};"]

    return emitter.elementwise([(shape, dtype)], make)


@rule("scatter", *(f"scatter{dash}{how}" for dash in "-_" for how in ("add", "mul", "min", "max", "sub")))
def _scatter(emitter: "Emitter", eqn: Any, x: Value, indices: Value, updates: Value) -> list[Value]:
    params, numbers = eqn.params, eqn.params["dimension_numbers"]
    name = eqn.primitive.name.replace("-", "_")
    if name == "scatter" and params["update_jaxpr"] is not None and params["update_jaxpr"].eqns:
        raise Unsupported("scatter that applies a function")
    kind = _kind(x.dtype)
    operation = name.removeprefix("scatter").removeprefix("_")
    window = (*numbers.update_window_dims, *range(len(updates.shape) - (len(x.shape) - _rank(eqn)), len(updates.shape)))
    dropped = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    kept = [i for i in range(len(x.shape)) if i not in dropped]
    sizes = [1] * len(x.shape)
    for axis, dim in zip(kept, window, strict=True):
        sizes[axis] = updates.shape[dim]
    drops = params["mode"] in (_Mode.FILL_OR_DROP, None)
    indices, updates = emitter.apart(indices, x), emitter.apart(updates, x)
    storage = emitter.to_change(x)
    emitter.ready(indices, updates)
    emitter.before_writing(storage)
    with emitter.loops(updates.shape) as place:
        batch = tuple(p for i, p in enumerate(place) if i not in window)
        starts, inside = _gathered_at(numbers, indices, x.shape, sizes, batch)
        own = list(starts)
        for axis, dim in zip(kept, window, strict=True):
            own[axis] = add(starts[axis], place[dim])
        target = storage.element(flat(tuple(own), x.shape))
        text = updates.at(place)
        if operation:
            text = _EXPRESSIONS[operation](kind, target, text)
            storage.reads += 1
        test = f"if ({' && '.join(inside)}) " if drops and inside else ""
        emitter.line(f"{test}{target} = {text};", storage)
    return [emitter.value_of(storage, x.shape)]


def _rank(eqn: Any) -> int:
    return len(eqn.invars[0].aval.shape)


@rule("top_k")
def _top_k(emitter: "Emitter", eqn: Any, x: Value) -> list[Value]:
    """The largest in order, the first of equal ones first; NaN is the largest."""
    if eqn.params.get("axis", len(x.shape) - 1) not in (-1, len(x.shape) - 1):
        raise Unsupported("top_k along another axis")
    shape, dtype = _aval(eqn)
    k, n = shape[-1], x.shape[-1]
    emitter.ready(x)
    best, where = emitter.variable(dtype, math.prod(shape)), emitter.variable(np.int32, math.prod(shape))
    best.reads = where.reads = 1
    odd = " || ({a} != {a} && {b} == {b})" if dtype.kind == "f" else ""
    with emitter.loops(shape[:-1]) as place:

        def value(j: str) -> str:
            return best.element(flat((*place, j), shape))

        def number(j: str) -> str:
            return where.element(flat((*place, j), shape))

        better = "{a} > {b}" + odd
        emitter.code(f"""
            int count = 0;
            for (int i = 0; i < {n}; ++i) {{
                const {c_type(dtype)} own = {x.at((*place, "i"))};
                int j = count;
                for (; j > 0 && ({better.format(a="own", b=value("(j - 1)"))}); --j) {{
                    if (j < {k}) {value("j")} = {value("(j - 1)")}, {number("j")} = {number("(j - 1)")};
                }}
                if (j < {k}) {value("j")} = own, {number("j")} = i;
                if (count < {k}) ++count;
            }}""")
    return [emitter.value_of(best, shape), emitter.value_of(where, shape)]


@rule("cumlogsumexp")
def _cumlogsumexp(emitter: "Emitter", eqn: Any, x: Value) -> list[Value]:
    shape, dtype = _aval(eqn)
    axis, reverse = eqn.params["axis"], eqn.params["reverse"]
    if _kind(dtype) != "f" or not x.size:
        raise Unsupported("cumlogsumexp of other than float32")
    emitter.ready(x)
    storage = emitter.variable(dtype, math.prod(shape))
    storage.reads = 1
    with emitter.loops([1 if i == axis else n for i, n in enumerate(shape)]) as place:

        def here(step: Any) -> Place:
            return (*place[:axis], _mirrored(step, shape[axis]) if reverse else step, *place[axis + 1 :])

        emitter.code(f"""
            float total = {x.at(here(0))};
            {storage.element(flat(here(0), shape))} = total;
            for (int k = 1; k < {shape[axis]}; ++k) {{
                total = logaddexp_f(total, {x.at(here("k"))});
                {storage.element(flat(here("k"), shape))} = total;
            }}""")
    return [emitter.value_of(storage, shape)]


@rule("custom_linear_solve")
def _custom_linear_solve(emitter: "Emitter", eqn: Any, *args: Value) -> list[Value]:
    """By the solver that it holds."""
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    first = lengths.matvec + lengths.vecmat
    consts = args[first : first + lengths.solve]
    given = args[sum(lengths) :]
    return emitter.call(jaxprs.solve, [*consts, *given])


@rule("platform_index")
def _platform_index(emitter: "Emitter", eqn: Any, *_: Value) -> list[Value]:
    """The default of a choice by platform."""
    return [emitter.constant(np.int32(eqn.params["platforms"].index(None)))]
