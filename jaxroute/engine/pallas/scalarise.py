"""Replay of a function of one run, number by number, for kernels that keep everything in registers.

The function is traced once for one run. Its jaxpr is then replayed on values whose every number is an array `[L]` of its own: that number
in `L` runs. What only moves numbers (reshape, slice, broadcast, concatenate, transpose) costs nothing; sums and products are written out;
an index that differs between runs becomes a chain of selections. What is left are operations on `[L]`, loops and branches: no padding, no
mask, no shuffle between threads, and nothing that a kernel language for GPUs would not take. It suits states of up to some hundreds of
numbers; beyond that `Unsupported` says so.

A number is *static* (a NumPy scalar, known when the function is replayed; operations on such numbers are done then), *shared* (a scalar, the
same in all runs) or *own* (`[L]`).
"""

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxroute.core import draws, primitives
from jaxroute.engine.batching.dependence import carry_dependence, scan_sizes, which_depend

# Operations that a kernel may have: what compiles in a minute or two.
_MOST_OPERATIONS = 100_000
# Numbers of a shared table that are read one by one where the whole table is needed.
_MOST_READ = 4096
# Loops of fewer operations in all are written out; so are loops over static slices, which then cost nothing to look up.
_WRITTEN_OUT = 256
_WRITTEN_OUT_SLICES = 8192
# A branch of so many operations is jumped over where no run takes it.
_WORTH_A_JUMP = 256

# Primitives that act on single numbers, as they are.
_ELEMENTWISE_NAMES = """
    abs acos acosh add add_any and asin asinh atan atan2 atanh bitcast_convert_type cbrt ceil clamp clz
    convert_element_type copy copy_p cos cosh div eq erf_inv exp exp2 expm1 floor ge gt integer_pow is_finite le log log1p
    logistic lt max min mul ne neg nextafter not or population_count pow reduce_precision rem round rsqrt select_n
    shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square stop_gradient sub tan tanh xor
    """
_ELEMENTWISE = frozenset(_ELEMENTWISE_NAMES.split())
_SAME = frozenset(["copy", "copy_p", "stop_gradient"])
_REDUCTIONS = {
    "reduce_sum": "add",
    "reduce_prod": "mul",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_and": "and",
    "reduce_or": "or",
    "reduce_xor": "xor",
}
_OF_NOTHING = {"reduce_sum": 0, "reduce_prod": 1, "reduce_and": True, "reduce_or": False, "reduce_xor": 0}
_CUMULATIVE = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}
_CALLS = {
    "pjit": "jaxpr",
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
}
# Operations whose result NumPy rounds as every device does.
_EXACT: dict[str, Callable] = {
    "abs": np.abs,
    "add": np.add,
    "and": np.bitwise_and,
    "eq": np.equal,
    "floor": np.floor,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "ne": np.not_equal,
    "neg": np.negative,
    "not": np.invert,
    "or": np.bitwise_or,
    "sqrt": np.sqrt,
    "sub": np.subtract,
    "xor": np.bitwise_xor,
}
_PRIMITIVES = {
    "add": lax.add_p,
    "and": lax.and_p,
    "eq": lax.eq_p,
    "floor": lax.floor_p,
    "gt": lax.gt_p,
    "lt": lax.lt_p,
    "max": lax.max_p,
    "min": lax.min_p,
    "mul": lax.mul_p,
    "ne": lax.ne_p,
    "not": lax.not_p,
    "or": lax.or_p,
    "select_n": lax.select_n_p,
    "sub": lax.sub_p,
    "xor": lax.xor_p,
}


class Unsupported(Exception):
    """A function that cannot be replayed number by number; the message says which operation stands in the way."""


class Table:
    """A shared array that stays in memory: what is read by an index is loaded where it is needed.

    load: function of a flat index (shared or own) that reads from memory. shape, dtype: of the array.
    """

    def __init__(self, load: Callable, shape: tuple[int, ...], dtype):
        self.load, self.shape, self.dtype = load, tuple(shape), np.dtype(dtype)


def is_key(aval) -> bool:
    """Whether a value is a typed key; it is held as its two words, on one more axis."""
    return hasattr(aval, "dtype") and jnp.issubdtype(aval.dtype, jax.dtypes.prng_key)


def key_words(key):
    """The words of a typed key; of a key that is known by now, as numbers that are known."""
    if isinstance(key, jax.core.Tracer):
        return jax.random.key_data(key)
    with jax.ensure_compile_time_eval():
        return np.asarray(jax.random.key_data(key))


def count_operations(jaxpr) -> int:
    """About how many operations on single numbers a jaxpr makes."""
    total = 0
    for eqn in jaxpr.eqns:
        inner = [sub for value in eqn.params.values() for sub in _jaxprs(value)]
        if inner:
            total += sum(count_operations(sub) for sub in inner)
        elif eqn.primitive.name in _ELEMENTWISE:
            total += math.prod(eqn.outvars[0].aval.shape)
        elif eqn.primitive.name == "threefry_2x32":
            total += count_operations(_threefry().jaxpr) * math.prod(eqn.outvars[0].aval.shape)
        elif eqn.primitive.name.startswith(("reduce_", "arg", "cum", "dot_general")):
            total += math.prod(eqn.invars[0].aval.shape)
    return total


@functools.cache
def _threefry():
    """One block of Threefry as a jaxpr of single numbers."""
    return jax.make_jaxpr(draws.encrypted)(*[jax.ShapeDtypeStruct((), jnp.uint32)] * 4)


def _jaxprs(value) -> list:
    """The jaxprs in a parameter of a primitive."""
    if isinstance(value, (tuple, list)):
        return [sub for one in value for sub in _jaxprs(one)]
    if hasattr(value, "eqns"):
        return [value]
    return [value.jaxpr] if hasattr(value, "jaxpr") and hasattr(value.jaxpr, "eqns") else []


class Replay:
    """Evaluates jaxprs of one run on numbers of `L` runs.

    A value is an integer array of the value's shape: the place of each number in `numbers`, where equal operations on equal numbers are
    made once.

    Args:
      width: `L`, runs side by side.
      barriers: keep the optimisation barriers of the function (for XLA, which else computes a number again in each of its uses); a
        kernel language for GPUs computes each number once and has none.
    """

    def __init__(self, width: int, *, barriers: bool):
        self.width, self.barriers = width, barriers
        self.numbers: list[Any] = []
        self._known: list[dict[Any, int]] = [{}]  # per scope: what has been computed, and its place
        self._operations = 0

    # Numbers

    def add(self, number) -> int:
        """The place of a shared or own number."""
        self.numbers.append(number)
        return len(self.numbers) - 1

    def static(self, array) -> np.ndarray:
        """The value of a NumPy array."""
        array = np.asarray(array)
        places = [self._static(x) for x in array.ravel()]
        return np.asarray(places, np.int64).reshape(array.shape)

    def _static(self, number: Any) -> int:
        """The place of a NumPy scalar."""
        key = (number.dtype.str, number.tobytes())
        if key not in self._known[0]:
            self._known[0][key] = self.add(number)
        return self._known[0][key]

    def known(self, place: int) -> np.generic | None:
        """The number at a place if it is static."""
        number = self.numbers[place]
        return number if isinstance(number, np.generic) else None

    def is_own(self, place: int) -> bool:
        number = self.numbers[place]
        return not isinstance(number, np.generic) and number.ndim == 1

    def own(self, place: int) -> Any:
        """The number at a place as an array `[L]`."""
        if self.is_own(place):
            return self.numbers[place]
        return self.numbers[self._once(("own", place), lambda: self.add(self._spread(self.numbers[place])))]

    def shared(self, place: int) -> Any:
        """The number at a place, which is static or shared, as a scalar of the device."""
        number = self.numbers[place]
        return lax.full((), np.asarray(number)) if isinstance(number, np.generic) else number

    def _spread(self, number):
        return lax.broadcast_in_dim(number, (self.width,), ())

    def _once(self, key, make: Callable[[], int]) -> int:
        """The place under a key, made where it is not known in this scope or one around it."""
        for scope in reversed(self._known):
            if key in scope:
                return scope[key]
        place = make()
        self._known[-1][key] = place
        return place

    @contextlib.contextmanager
    def scope(self):
        """Numbers made inside are not known outside: the body of a loop or a branch."""
        self._known.append({})
        try:
            yield
        finally:
            self._known.pop()

    # Operations on single numbers

    def operate(self, primitive, places: Sequence[int], params=None) -> int:
        """The place of one operation's result."""
        name, params = primitive.name, params or {}
        simple = self._simplified(name, places, params)
        if simple is not None:
            return simple
        key = (name, *sorted((k, repr(v)) for k, v in params.items()), *places)
        return self._once(key, lambda: self._make(primitive, name, list(places), params))

    def op(self, name: str, *places: int) -> int:
        return self.operate(_PRIMITIVES[name], places)

    def _simplified(self, name, places, params) -> int | None:
        """The result where it is a number that is there already, or static."""
        if name in _SAME:
            return places[0]
        numbers = [self.known(p) for p in places]
        if name == "select_n":
            cases = places[1:]
            if numbers[0] is not None:
                return cases[int(numbers[0])]
            return cases[0] if len(set(cases)) == 1 else None
        if name == "reduce_precision":
            if (params["exponent_bits"], params["mantissa_bits"]) != (8, 23) or self._dtype(places[0]) != np.float32:
                raise Unsupported("reduce_precision to fewer bits")
            return places[0]
        if name == "convert_element_type":
            new = np.dtype(params["new_dtype"])
            if self._dtype(places[0]) == new:
                return places[0]
            number = numbers[0]
            if number is None or (number.dtype.kind == "f" and new.kind != "f"):
                return None
            with np.errstate(all="ignore"):
                return self._static(number.astype(new))
        if all(n is not None for n in numbers) and name in _EXACT:
            with np.errstate(all="ignore"):
                return self._static(np.asarray(_EXACT[name](*numbers))[()])
        for number, other in (zip(numbers, reversed(places), strict=True)) if len(places) == 2 else ():
            if number is None:
                continue
            if name == "and" and number.dtype == np.bool_:
                return other if number else self._static(np.bool_(False))
            if name == "or" and number.dtype == np.bool_:
                return self._static(np.bool_(True)) if number else other
            if (name == "mul" and number == 1) or (name == "add" and number == 0 and number.dtype.kind in "iu"):
                return other
        if name in ("max", "min", "and", "or") and places[0] == places[1]:
            return places[0]
        return None

    def _make(self, primitive, name, places, params) -> int:
        special = {
            "max": self._largest,
            "min": self._largest,
            "clamp": self._clamp,
            "round": self._round,
            "select_n": self._choose,
        }.get(name)
        if special:
            made = special(name, places, params)
            if made is not None:
                return made
        self._operations += 1
        if self._operations > _MOST_OPERATIONS:
            raise Unsupported(f"more than {_MOST_OPERATIONS:,} operations per round")
        if any(self.is_own(p) for p in places):
            operands = [self.own(p) for p in places]
        else:
            operands = [self.shared(p) for p in places]
        return self.add(primitive.bind(*operands, **params))

    def _dtype(self, place: int):
        return self.numbers[place].dtype

    def _largest(self, name, places, params) -> int | None:
        """Maximum or minimum of floating numbers, NaN if one of them is: GPUs would take the other one."""
        del params
        if self._dtype(places[0]).kind != "f":
            return None
        beats = "gt" if name == "max" else "lt"
        first, second = places
        if self.known(second) is not None:
            first, second = second, first
        better = self.op(beats, first, second)
        number = self.known(first)
        if number is None or bool(np.isnan(np.asarray(number))):
            better = self.op("or", better, self.op("ne", first, first))
        return self.select(better, first, second)

    def _clamp(self, name, places, params) -> int:
        del name, params
        low, x, high = places
        return self.op("min", self.op("max", low, x), high)

    def _round(self, name, places, params) -> int:
        """Rounding to the nearest whole number by `floor`; halves go to the even one, or away from zero."""
        del name
        (x,) = places
        kind = self._dtype(x).type
        below = self.op("floor", x)
        rest = self.op("sub", x, below)
        above = self.op("add", below, self._static(kind(1)))
        if int(params["rounding_method"]) == 0:  # away from zero
            up = self.op("gt", x, self._static(kind(0)))
        else:
            halved = self.op("mul", below, self._static(kind(0.5)))
            up = self.op("ne", halved, self.op("floor", halved))
        half = self._static(kind(0.5))
        upwards = self.op("or", self.op("gt", rest, half), self.op("and", self.op("eq", rest, half), up))
        return self.select(upwards, above, below)

    def _choose(self, name, places, params) -> int | None:
        """A choice among numbers by an integer, as a chain of choices between two."""
        del name, params
        which, *cases = places
        if self._dtype(which) == np.bool_:
            return None
        chosen = cases[0]
        for number, case in enumerate(cases[1:], 1):
            chosen = self.select(self.op("eq", which, self._static(self._dtype(which).type(number))), case, chosen)
        return chosen

    def select(self, condition: int, yes: int, no: int) -> int:
        """`yes` where the condition is True."""
        return self.op("select_n", condition, no, yes)

    def each(self, name: str, *values: np.ndarray) -> np.ndarray:
        """One operation on every number of values of equal shape."""
        return self._each(lambda *p: self.op(name, *p), values[0].shape, *values)

    def _each(self, function: Callable, shape, *values: np.ndarray) -> np.ndarray:
        """`function(*places)` of every number of the given shape."""
        wide = [np.broadcast_to(v, shape) for v in values]
        out = np.empty(shape, np.int64)
        for index in np.ndindex(*shape):
            out[index] = function(*(int(w[index]) for w in wide))
        return out

    def _fold(self, name: str, value: np.ndarray) -> np.ndarray:
        """Reduction over the first axis, in order."""
        total = value[0]
        for row in value[1:]:
            total = self.each(name, total, row)
        return total

    # Jaxprs

    def call(self, closed, args: Sequence[Any]) -> list[Any]:
        """The results of a closed jaxpr; its constants must be static."""
        consts = [self._constant(c) for c in closed.consts]
        return self.replay(closed.jaxpr, consts, args)

    def _constant(self, const) -> np.ndarray:
        if isinstance(const, jax.core.Tracer):
            raise Unsupported("a function that closes over a traced value within a loop or a branch")
        return self.static(key_words(const) if is_key(const) else const)

    def replay(self, jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        """The results of a jaxpr: values of its outputs from those of its constants and arguments."""
        values: dict[Any, Any] = {}
        values.update(zip(jaxpr.constvars, consts, strict=True))
        values.update(zip(jaxpr.invars, args, strict=True))

        def read(var):
            return self.static(np.asarray(var.val, var.aval.dtype)) if hasattr(var, "val") else values[var]

        for eqn in jaxpr.eqns:
            outs = self._equation(eqn, [read(v) for v in eqn.invars])
            values.update(zip(eqn.outvars, outs, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def _equation(self, eqn, args: list[Any]) -> list[Any]:
        name = eqn.primitive.name
        if name in _CALLS:
            inner = eqn.params[_CALLS[name]]
            return self.call(inner, args) if hasattr(inner, "consts") else self.replay(inner, [], args)
        if name in ("scan", "cond", "while"):
            return getattr(self, f"_{name}")(eqn, args)
        if isinstance(args[0] if args else None, Table) and name in ("dynamic_slice", "gather"):
            return [getattr(self, f"_{name}")(eqn, *args)]
        args = [self.whole(a) for a in args]
        shape = eqn.outvars[0].aval.shape if eqn.outvars else ()
        if name in _ELEMENTWISE:
            if name == "bitcast_convert_type" and eqn.invars[0].aval.shape != shape:
                raise Unsupported("bitcast_convert_type to another width")
            if any(is_key(v.aval) for v in eqn.invars):
                if name != "select_n":
                    raise Unsupported(f"{name} of random keys")
                args, shape = [args[0][..., None], *args[1:]], (*shape, 2)
            return [self._each(lambda *p: self.operate(eqn.primitive, p, eqn.params), shape, *args)]
        rule = getattr(self, f"_{name}", None)
        if rule is None:
            raise Unsupported(name)
        out = rule(eqn, *args)
        return out if isinstance(out, list) else [out]

    def whole(self, value) -> np.ndarray:
        """A value with all its numbers at hand."""
        if not isinstance(value, Table):
            return value
        size = math.prod(value.shape)
        if size > _MOST_READ:
            raise Unsupported(f"a table of {size:,} numbers that is not only looked up")
        return self._read(value, np.arange(size).reshape(value.shape))

    def _read(self, table: Table, places: np.ndarray, offset: int | None = None) -> np.ndarray:
        """Numbers of a table at flat places, all moved by a computed offset."""

        def one(place):
            index = np.int32(place)
            if offset is not None:
                index = self.numbers[self.op("add", offset, self._static(index))]
            return self.add(table.load(index))

        out = np.empty(places.shape, np.int64)
        for index in np.ndindex(*places.shape):
            place = int(places[index])
            out[index] = self._once(("load", id(table), place, offset), lambda place=place: one(place))
        return out

    # What only moves numbers

    def _broadcast_in_dim(self, eqn, x):
        shape, dims = eqn.params["shape"], eqn.params["broadcast_dimensions"]
        rest = x.shape[len(dims) :]  # the words of a key
        full = [1] * len(shape)
        for d, n in zip(dims, x.shape, strict=False):
            full[d] = n
        return np.broadcast_to(x.reshape((*full, *rest)), (*shape, *rest))

    def _reshape(self, eqn, x):
        return self._shaped(eqn, x)

    def _squeeze(self, eqn, x):
        return self._shaped(eqn, x)

    def _expand_dims(self, eqn, x):
        return self._shaped(eqn, x)

    def _shaped(self, eqn, x):
        if eqn.params.get("dimensions") is not None and eqn.primitive.name == "reshape":
            raise Unsupported("reshape in another order")
        rank = len(eqn.invars[0].aval.shape)
        return x.reshape((*eqn.outvars[0].aval.shape, *x.shape[rank:]))

    def _transpose(self, eqn, x):
        permutation = eqn.params["permutation"]
        return x.transpose((*permutation, *range(len(permutation), x.ndim)))

    def _rev(self, eqn, x):
        return np.flip(x, eqn.params["dimensions"])

    def _slice(self, eqn, x):
        params = eqn.params
        strides = params["strides"] or (1,) * len(params["start_indices"])
        bounds = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
        return x[tuple(slice(*b) for b in bounds)]

    def _split(self, eqn, x):
        stops = list(itertools.accumulate(eqn.params["sizes"]))[:-1]
        return np.split(x, stops, axis=eqn.params["axis"])

    def _concatenate(self, eqn, *xs):
        return np.concatenate(xs, axis=eqn.params["dimension"])

    def _stack(self, eqn, *xs):
        return np.stack(xs, axis=eqn.params["axis"])

    def _unstack(self, eqn, x):
        axis = eqn.params["axis"]
        return [np.take(x, i, axis=axis) for i in range(x.shape[axis])]

    def _tile(self, eqn, x):
        return np.tile(x, eqn.params["reps"])

    def _pad(self, eqn, x, value):
        for axis, (low, high, interior) in enumerate(eqn.params["padding_config"]):
            length = x.shape[axis] + interior * max(0, x.shape[axis] - 1)
            wide = np.full((*x.shape[:axis], length, *x.shape[axis + 1 :]), value, np.int64)
            at = [slice(None)] * x.ndim
            at[axis] = slice(0, None, interior + 1)
            wide[tuple(at)] = x
            widths = [(0, 0)] * x.ndim
            widths[axis] = (max(0, low), max(0, high))
            wide = np.pad(wide, widths, constant_values=int(value))
            at[axis] = slice(max(0, -low), wide.shape[axis] - max(0, -high))
            x = wide[tuple(at)]
        return x

    def _iota(self, eqn):
        params = eqn.params
        line = np.arange(params["shape"][params["dimension"]], dtype=params["dtype"])
        shape = [1] * len(params["shape"])
        shape[params["dimension"]] = line.size
        return self.static(np.broadcast_to(line.reshape(shape), params["shape"]))

    def _optimization_barrier(self, eqn, *xs):
        del eqn
        if not self.barriers:
            return list(xs)
        places = sorted({int(p) for x in xs for p in x.ravel() if self.known(int(p)) is None})
        if not places:
            return list(xs)
        held = lax.optimization_barrier([self.numbers[p] for p in places])
        new = {p: self.add(number) for p, number in zip(places, held, strict=True)}
        return [np.asarray([new.get(int(p), int(p)) for p in x.ravel()], np.int64).reshape(x.shape) for x in xs]

    _computed_once = _optimization_barrier

    # Reductions

    def _first_best(self, eqn, *xs):
        """By comparisons, which a kernel computes once."""
        shapes = [v.aval for v in eqn.invars]
        return self.call(jax.make_jaxpr(partial(primitives.by_comparison, **eqn.params))(*shapes), xs)

    def _reduction(self, eqn, x):
        axes = eqn.params["axes"]
        front = np.moveaxis(x, axes, range(len(axes)))
        if not math.prod(x.shape[a] for a in axes):
            if eqn.primitive.name not in _OF_NOTHING:
                raise Unsupported(f"{eqn.primitive.name} of nothing")
            aval = eqn.outvars[0].aval
            return self.static(np.full(aval.shape, _OF_NOTHING[eqn.primitive.name], aval.dtype))
        return self._fold(_REDUCTIONS[eqn.primitive.name], front.reshape(-1, *front.shape[len(axes) :]))

    _reduce_sum = _reduce_prod = _reduce_max = _reduce_min = _reduce_and = _reduce_or = _reduce_xor = _reduction

    def _cumulative(self, eqn, x):
        axis, name = eqn.params["axis"], _CUMULATIVE[eqn.primitive.name]
        rows = list(np.moveaxis(x, axis, 0))
        rows = rows[::-1] if eqn.params["reverse"] else rows
        totals = rows[:1]
        for row in rows[1:]:
            totals.append(self.each(name, totals[-1], row))
        return np.moveaxis(np.stack(totals[::-1] if eqn.params["reverse"] else totals), 0, axis)

    _cumsum = _cumprod = _cummax = _cummin = _cumulative

    def _extreme(self, eqn, x):
        """The first place of the largest or smallest number; NaN counts as such."""
        (axis,) = eqn.params["axes"]
        kind = np.dtype(eqn.params["index_dtype"]).type
        beats = "gt" if eqn.primitive.name == "argmax" else "lt"

        def first(*places):
            best, index = places[0], self._static(kind(0))
            for number, place in enumerate(places[1:], 1):
                better = self.op(beats, place, best)
                if self._dtype(place).kind == "f":
                    better = self.op("or", better, self.op("and", self.op("ne", place, place), self.op("eq", best, best)))
                best = self.select(better, place, best)
                index = self.select(better, self._static(kind(number)), index)
            return index

        rows = np.moveaxis(x, axis, 0)
        return self._each(first, rows.shape[1:], *rows)

    _argmax = _argmin = _extreme

    def _dot_general(self, eqn, a, b):
        (a_sum, b_sum), (a_batch, b_batch) = eqn.params["dimension_numbers"]
        a_free = [i for i in range(a.ndim) if i not in (*a_sum, *a_batch)]
        b_free = [i for i in range(b.ndim) if i not in (*b_sum, *b_batch)]
        dtype = eqn.outvars[0].aval.dtype
        if {v.aval.dtype for v in eqn.invars} != {dtype}:
            raise Unsupported("dot_general of mixed types")
        batch, terms = [a.shape[i] for i in a_batch], math.prod(a.shape[i] for i in a_sum)
        rows, columns = [a.shape[i] for i in a_free], [b.shape[i] for i in b_free]
        if not terms:
            return self.static(np.zeros(eqn.outvars[0].aval.shape, dtype))
        left = a.transpose((*a_batch, *a_free, *a_sum)).reshape((*batch, *rows, *(1,) * len(columns), terms))
        right = b.transpose((*b_batch, *b_free, *b_sum)).reshape((*batch, *(1,) * len(rows), *columns, terms))
        shape = (*batch, *rows, *columns, terms)
        products = self._each(lambda x, y: self.op("mul", x, y), shape, left, right)
        return self._fold("add", np.moveaxis(products, -1, 0))

    def _sort(self, eqn, *xs):
        """By comparing neighbours, which keeps equal numbers in order; NaN comes last."""
        axis, keys = eqn.params["dimension"], eqn.params["num_keys"]
        columns = [np.moveaxis(x, axis, 0).copy() for x in xs]

        def ahead(own, other):
            """Whether `other` must come before `own`."""
            result = self._static(np.bool_(False))
            for a, b in reversed(list(zip(own, other, strict=True))):
                less, same = self.op("lt", b, a), self.op("eq", a, b)
                if self._dtype(a).kind == "f":
                    odd_a, odd_b = self.op("ne", a, a), self.op("ne", b, b)
                    less = self.op("or", less, self.op("and", odd_a, self.op("not", odd_b)))
                    same = self.op("or", same, self.op("and", odd_a, odd_b))
                result = self.op("or", less, self.op("and", same, result))
            return result

        length = xs[0].shape[axis]
        for last in range(length - 1, 0, -1):
            for i in range(last):
                swap = self._each(
                    lambda *p: ahead(p[:keys], p[keys:]),
                    columns[0].shape[1:],
                    *(c[i] for c in columns[:keys]),
                    *(c[i + 1] for c in columns[:keys]),
                )
                for c in columns:
                    low = self._each(self.select, c.shape[1:], swap, c[i + 1], c[i])
                    high = self._each(self.select, c.shape[1:], swap, c[i], c[i + 1])
                    c[i], c[i + 1] = low, high
        return [np.moveaxis(c, 0, axis) for c in columns]

    # Indices that are computed

    def _is(self, index: int, number: int) -> int:
        """Whether a computed index is a certain number."""
        return self.op("eq", index, self._static(self._dtype(index).type(number)))

    def _bounded(self, index: int, largest: int) -> int:
        kind = self._dtype(index).type
        low = self.op("max", index, self._static(kind(0))) if self._dtype(index).kind == "i" else index
        return self.op("min", low, self._static(kind(largest)))

    def _window(self, x: np.ndarray, axis: int, start: int, size: int) -> np.ndarray:
        """`size` numbers along an axis from a computed index that is in range."""
        last = x.shape[axis] - size
        rows = np.moveaxis(x, axis, 0)
        out = rows[:size]
        for first in range(1, last + 1):
            here = self._is(start, first)
            out = self._each(
                lambda new, old, here=here: self.select(here, new, old), out.shape, rows[first : first + size], out
            )
        return np.moveaxis(out, 0, axis)

    def _dynamic_slice(self, eqn, x, *starts):
        sizes = eqn.params["slice_sizes"]
        starts = [self._bounded(int(s), n - size) for s, n, size in zip(starts, x.shape, sizes, strict=True)]
        if isinstance(x, Table):
            return self._lookup(x, starts, sizes)
        for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
            x = self._window(x, axis, start, size)
        return x

    def _lookup(self, table: Table, starts: Sequence[int], sizes: Sequence[int]) -> np.ndarray:
        """A part of a table in memory, from computed indices that are in range."""
        strides = [math.prod(table.shape[i + 1 :]) for i in range(len(table.shape))]
        offset = self._static(np.int32(0))
        for start, stride in zip(starts, strides, strict=True):
            index = self.operate(lax.convert_element_type_p, [start], _conversion(np.int32))
            offset = self.op("add", offset, self.op("mul", index, self._static(np.int32(stride))))
        window = np.zeros(tuple(sizes), np.int64)
        for axis, stride in enumerate(strides):
            window = window + (np.arange(sizes[axis]) * stride).reshape(-1, *(1,) * (len(sizes) - axis - 1))
        return self._read(table, window, offset)

    def _dynamic_update_slice(self, eqn, x, update, *starts):
        del eqn
        sizes = update.shape
        starts = [self._bounded(int(s), n - size) for s, n, size in zip(starts, x.shape, sizes, strict=True)]
        return self._written(x, update, starts, lambda old, new: new)

    def _written(self, x, update, starts, combine: Callable[[int, int], int], unless: int | None = None) -> np.ndarray:
        """`x` with a window at computed indices combined with `update`; `unless`: a condition under which nothing is written."""
        at = [
            [self._is(start, first) for first in range(n - size + 1)]
            for start, n, size in zip(starts, x.shape, update.shape, strict=True)
        ]
        out = x.copy()
        for firsts in itertools.product(*(range(len(a)) for a in at)):
            here = self._static(np.bool_(True)) if unless is None else self.op("not", unless)
            for axis, first in enumerate(firsts):
                here = self.op("and", here, at[axis][first])
            if self.known(here) is not None and not self.known(here):
                continue
            window = tuple(slice(f, f + n) for f, n in zip(firsts, update.shape, strict=True))
            out[window] = self._each(
                lambda new, old, here=here: self.select(here, combine(old, new), old), update.shape, update, out[window]
            )
        return out

    def _gather(self, eqn, x, indices):
        params = eqn.params
        numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
        fills = params["mode"] == lax.GatherScatterMode.FILL_OR_DROP
        if fills and params["fill_value"] is None:
            kind = np.dtype(eqn.outvars[0].aval.dtype)
            empty = {"f": np.nan, "b": True, "u": np.iinfo(kind).max if kind.kind == "u" else 0}.get(
                kind.kind, np.iinfo(kind).min if kind.kind == "i" else 0
            )
        else:
            empty = params["fill_value"]
        dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
        batch = indices.shape[:-1]
        window = [n for i, n in enumerate(sizes) if i not in dropped]
        out = np.empty((*batch, *window), np.int64)
        for place in np.ndindex(*batch):
            starts = self._starts(indices[place], place, numbers.start_index_map, x.shape, numbers)
            outside = self._outside(starts, x.shape, sizes) if fills else None
            starts = [self._bounded(s, n - size) for s, n, size in zip(starts, x.shape, sizes, strict=True)]
            if isinstance(x, Table):
                part = self._lookup(x, starts, sizes)
            else:
                part = x
                for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
                    part = self._window(part, axis, start, size)
            part = part.reshape(window)
            if outside is not None:
                nothing = self._static(np.asarray(empty, eqn.outvars[0].aval.dtype)[()])
                part = self._each(lambda p, o=outside, n=nothing: self.select(o, n, p), part.shape, part)
            out[place] = part
        # The batch axes are where the window's are not.
        front = [i for i in range(out.ndim) if i not in numbers.offset_dims]
        order = np.argsort([*front, *numbers.offset_dims])
        return out.transpose(tuple(order))

    def _starts(self, vector, place, index_map, shape, numbers) -> list[int]:
        """First index along every axis: computed, or that of the batch, or zero."""
        starts = [self._static(np.int32(0))] * len(shape)
        batching = getattr(numbers, "operand_batching_dims", ())
        own = getattr(numbers, "start_indices_batching_dims", getattr(numbers, "scatter_indices_batching_dims", ()))
        for axis, at in zip(batching, own, strict=True):
            starts[axis] = self._static(np.int32(place[at]))
        for axis, start in zip(index_map, vector, strict=True):
            starts[axis] = int(start)
        return starts

    def _outside(self, starts, shape, sizes) -> int:
        """Whether a window is not wholly inside."""
        outside = self._static(np.bool_(False))
        for start, n, size in zip(starts, shape, sizes, strict=True):
            kind = self._dtype(start).type
            outside = self.op("or", outside, self.op("gt", start, self._static(kind(n - size))))
            if self._dtype(start).kind == "i":
                outside = self.op("or", outside, self.op("lt", start, self._static(kind(0))))
        return outside

    def _scattered(self, eqn, x, indices, updates):
        params, numbers = eqn.params, eqn.params["dimension_numbers"]
        if eqn.primitive.name == "scatter" and params["update_jaxpr"] is not None:
            raise Unsupported("scatter that applies a function")
        combine = {
            "scatter": lambda old, new: new,
            "scatter_add": lambda old, new: self.op("add", old, new),
            "scatter_mul": lambda old, new: self.op("mul", old, new),
            "scatter_min": lambda old, new: self.op("min", old, new),
            "scatter_max": lambda old, new: self.op("max", old, new),
        }[eqn.primitive.name.replace("-", "_")]
        dropped = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
        front = [i for i in range(updates.ndim) if i not in numbers.update_window_dims]
        updates = updates.transpose((*front, *numbers.update_window_dims))
        batch = indices.shape[:-1]
        drops = params["mode"] in (lax.GatherScatterMode.FILL_OR_DROP, None)
        for place in np.ndindex(*batch):
            starts = self._starts(indices[place], place, numbers.scatter_dims_to_operand_dims, x.shape, numbers)
            part = np.expand_dims(updates[place], tuple(sorted(dropped)))
            outside = self._outside(starts, x.shape, part.shape) if drops else None
            starts = [self._bounded(s, n - size) for s, n, size in zip(starts, x.shape, part.shape, strict=True)]
            x = self._written(x, part, starts, combine, outside)
        return x

    # Random keys

    def _random_wrap(self, eqn, words):
        if "threefry" not in str(eqn.params["impl"].name):
            raise Unsupported("keys other than Threefry's")
        return words

    def _random_seed(self, eqn, seeds):
        if "threefry" not in str(eqn.params["impl"].name):
            raise Unsupported("keys other than Threefry's")
        if eqn.invars[0].aval.dtype.itemsize > 4:
            raise Unsupported("random_seed of 64 bits")
        low = self._each(lambda p: self.operate(lax.convert_element_type_p, [p], _conversion(np.uint32)), seeds.shape, seeds)
        return np.stack([self.static(np.zeros(seeds.shape, np.uint32)), low], axis=-1)

    def _random_unwrap(self, eqn, words):
        del eqn
        return words

    def _encrypted(self, key, low) -> tuple[int, int]:
        """Threefry of the block `(0, low)` under a key of two words."""
        zero = self._static(np.uint32(0))
        args = [np.asarray(p, np.int64) for p in (key[0], key[1], zero, low)]
        first, second = self.call(_threefry(), args)
        return int(first), int(second)

    def _threefry_2x32(self, eqn, *words) -> list[np.ndarray]:
        words = [np.broadcast_to(w, eqn.outvars[0].aval.shape) for w in words]
        out = np.empty((2, *words[0].shape), np.int64)
        for place in np.ndindex(*words[0].shape):
            out[(slice(None), *place)] = self.call(_threefry(), [w[place] for w in words])
        return [out[0], out[1]]

    def _blocks(self, keys: np.ndarray, shape) -> tuple[np.ndarray, np.ndarray]:
        """Both words of Threefry for every key at the addresses `0, 1, ...` of the given shape."""
        if not jax.config.jax_threefry_partitionable:  # type: ignore[attr-defined]
            raise Unsupported("jax.random without jax_threefry_partitionable")
        out = np.empty((2, *keys.shape[:-1], *shape), np.int64)
        for index in np.ndindex(*keys.shape[:-1]):
            for address, place in enumerate(np.ndindex(*shape)):
                words = self._encrypted(keys[index], self._static(np.uint32(address)))
                out[(0, *index, *place)], out[(1, *index, *place)] = words
        return out[0], out[1]

    def _random_bits(self, eqn, keys):
        if eqn.params["bit_width"] != 32:
            raise Unsupported(f"random_bits of {eqn.params['bit_width']} bits")
        first, second = self._blocks(keys, eqn.params["shape"])
        return self.each("xor", first, second)

    def _random_split(self, eqn, keys):
        return np.stack(self._blocks(keys, eqn.params["shape"]), axis=-1)

    def _random_fold_in(self, eqn, keys, data):
        del eqn
        shape = np.broadcast_shapes(keys.shape[:-1], data.shape)
        keys, data = np.broadcast_to(keys, (*shape, 2)), np.broadcast_to(data, shape)
        out = np.empty((*shape, 2), np.int64)
        for index in np.ndindex(*shape):
            address = self.operate(lax.convert_element_type_p, [int(data[index])], _conversion(np.uint32))
            out[index] = self._encrypted(keys[index], address)
        return out

    # Loops and branches

    def _flat(self, values: Sequence[np.ndarray]) -> list[int]:
        return [int(p) for value in values for p in value.ravel()]

    def _unflat(self, numbers: Sequence[Any], like: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Values of the given shapes from new numbers."""
        places = iter([self.add(n) for n in numbers])
        return [np.asarray([next(places) for _ in range(v.size)], np.int64).reshape(v.shape) for v in like]

    def _numbers(self, values: Sequence[np.ndarray], own: Sequence[bool]) -> list[Any]:
        """All numbers of the values as arrays, `[L]` or scalars as `own` says of each value."""
        return [
            self.own(int(p)) if wide else self.shared(int(p))
            for value, wide in zip(values, own, strict=True)
            for p in value.ravel()
        ]

    def depends(self, value) -> bool:
        """Whether a value holds a number that differs between runs."""
        return not isinstance(value, Table) and any(self.is_own(int(p)) for p in value.ravel())

    def loop(self, first, stop, body: Callable, carry: Sequence[np.ndarray], own: Sequence[bool]) -> list[np.ndarray]:
        """`carry = body(i, carry)` for `i` from `first` to before `stop` (int32 scalars); what of the carry is `own` stays so."""

        def step(i, numbers):
            with self.scope():
                new = body(self.add(i), self._unflat(numbers, carry))
                return self._numbers(new, own)

        numbers = lax.fori_loop(first, stop, step, self._numbers(carry, own))
        return self._unflat(numbers, carry)

    def _scan(self, eqn, args):
        params = eqn.params
        inner, length, reverse = params["jaxpr"], params["length"], params["reverse"]
        num_consts, num_carry = scan_sizes(params)
        consts, xs = args[:num_consts], args[num_consts + num_carry :]
        carry = [self.whole(c) for c in args[num_consts : num_consts + num_carry]]
        slices = bool(xs) or len(inner.jaxpr.outvars) > num_carry
        work = count_operations(inner.jaxpr) * length
        if length == 0:
            raise Unsupported("scan of length 0")
        if length == 1 or work <= (_WRITTEN_OUT_SLICES if slices else _WRITTEN_OUT):
            xs = [self.whole(x) for x in xs]
            parts = []
            for i in reversed(range(length)) if reverse else range(length):
                outs = self.call(inner, [*consts, *carry, *(x[i] for x in xs)])
                carry = outs[:num_carry]
                parts.append(outs[num_carry:])
            parts = parts[::-1] if reverse else parts
            return [*carry, *(np.stack([self.whole(y) for y in ys]) for ys in zip(*parts, strict=True))]
        own_consts, own_xs = [self.depends(c) for c in consts], [self.depends(x) for x in xs]
        own = carry_dependence(
            [self.depends(c) for c in carry], lambda now: which_depend(inner, [*own_consts, *now, *own_xs])[:num_carry]
        )
        own_ys = which_depend(inner, [*own_consts, *own, *own_xs])[num_carry:]
        ys = [self.static(np.zeros((length, *_shape(v.aval)), _dtype(v.aval))) for v in inner.jaxpr.outvars[num_carry:]]

        def body(i, now):
            number = self.op("sub", self._static(np.int32(length - 1)), i) if reverse else i
            part = [self._row(x, number) for x in xs]
            outs = self.call(inner, [*consts, *now[:num_carry], *part])
            old = now[num_carry:]
            written = [
                self._written(y, self.whole(new)[None], [number] + [self._static(np.int32(0))] * new.ndim, lambda a, b: b)
                for y, new in zip(old, outs[num_carry:], strict=True)
            ]
            return [*(self.whole(c) for c in outs[:num_carry]), *written]

        return self.loop(np.int32(0), np.int32(length), body, [*carry, *ys], [*own, *own_ys])

    def _row(self, x, number: int):
        """One slice along the first axis."""
        if isinstance(x, Table):
            zeros = [self._static(np.int32(0))] * (len(x.shape) - 1)
            return self._lookup(x, [number, *zeros], (1, *x.shape[1:]))[0]
        return self._window(x, 0, number, 1)[0]

    def _platform_index(self, eqn):
        """The default of a choice by platform: no platform's compiler sees these operations."""
        return self.static(np.int32(eqn.params["platforms"].index(None)))

    def _cond(self, eqn, args):
        index, operands = int(self.whole(args[0])), args[1:]
        branches = eqn.params["branches"]
        known = self.known(index)
        if known is not None:
            return self.call(branches[int(known)], operands)
        if self.is_own(index):
            return self._selected(index, operands, branches)
        masks = [which_depend(b, [self.depends(v) for v in operands]) for b in branches]
        own = [any(mask[i] for mask in masks) for i in range(len(eqn.outvars))]
        return self.branch(self.shared(index), [lambda b=b: self.call(b, operands) for b in branches], own)

    def branch(self, index, makers: Sequence[Callable], own: Sequence[bool]) -> list[np.ndarray]:
        """The results of one of several makers of values, by a shared index."""
        like: list[np.ndarray] = []

        def wrapped(make):
            def call():
                with self.scope():
                    outs = [self.whole(v) for v in make()]
                    like[:] = outs
                    return self._numbers(outs, own)

            return call

        numbers = lax.switch(index.astype(jnp.int32), [wrapped(make) for make in makers])
        return self._unflat(numbers, like)

    def _any(self, condition: int):
        """Whether a condition holds in some run: a scalar."""
        return jnp.max(self.own(condition).astype(jnp.int32)) > 0

    def _selected(self, index: int, operands, branches) -> list[np.ndarray]:
        """Results by an index that differs between runs; a costly branch is jumped over where no run takes it."""

        def mixed(old, new, here):
            return [
                self._each(lambda a, b: self.select(here, b, a), o.shape, o, self.whole(n))
                for o, n in zip(old, new, strict=True)
            ]

        outs = [self.whole(v) for v in self.call(branches[0], operands)]
        for number, branch in enumerate(branches[1:], 1):
            here = index if self._dtype(index) == np.bool_ else self._is(index, number)
            if count_operations(branch.jaxpr) < _WORTH_A_JUMP:
                outs = mixed(outs, self.call(branch, operands), here)
                continue
            before = outs
            ways = [
                lambda before=before: before,
                lambda branch=branch, before=before, here=here: mixed(before, self.call(branch, operands), here),
            ]
            outs = self.branch(self._any(here), ways, [True] * len(outs))
        return outs

    def _while(self, eqn, args):
        params = eqn.params
        num_cond, num_body = params["cond_nconsts"], params["body_nconsts"]
        cond_consts, body_consts = args[:num_cond], args[num_cond : num_cond + num_body]
        carry = [self.whole(c) for c in args[num_cond + num_body :]]
        own = carry_dependence(
            [self.depends(c) for c in carry],
            lambda now: which_depend(params["body_jaxpr"], [*map(self.depends, body_consts), *now]),
        )
        stops_apart = which_depend(params["cond_jaxpr"], [*map(self.depends, cond_consts), *own])[0]
        own = [True] * len(carry) if stops_apart else own

        def goes_on(values) -> int:
            return int(self.whole(self.call(params["cond_jaxpr"], [*cond_consts, *values])[0]))

        def cond(numbers):
            with self.scope():
                condition = goes_on(self._unflat(numbers, carry))
                return self._any(condition) if stops_apart else self.shared(condition)

        def body(numbers):
            with self.scope():
                now = self._unflat(numbers, carry)
                new = [self.whole(v) for v in self.call(params["body_jaxpr"], [*body_consts, *now])]
                if stops_apart:
                    here = goes_on(now)
                    new = [
                        self._each(lambda a, b: self.select(here, b, a), o.shape, o, n)
                        for o, n in zip(now, new, strict=True)
                    ]
                return self._numbers(new, own)

        return self._unflat(lax.while_loop(cond, body, self._numbers(carry, own)), carry)


# Primitives with a dash in their names.
for _name in ("scatter", *(f"scatter{dash}{how}" for dash in "-_" for how in ("add", "mul", "min", "max"))):
    setattr(Replay, f"_{_name}", Replay._scattered)


def _conversion(dtype) -> dict[str, Any]:
    return {"new_dtype": np.dtype(dtype), "weak_type": False, "sharding": None}


def _shape(aval) -> tuple[int, ...]:
    """Shape of a value's numbers."""
    return (*aval.shape, 2) if is_key(aval) else aval.shape


def _dtype(aval):
    return np.dtype(np.uint32) if is_key(aval) else aval.dtype
