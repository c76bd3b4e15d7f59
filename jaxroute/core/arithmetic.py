"""One arithmetic: each operation on float32 is rounded once, in one order, whatever program it is part of and whichever compiler makes it.

IEEE 754 says how `+ - * /` and the square root are rounded, and compilers give other bits all the same: they contract `a * b + c` into one
operation with one rounding, divide by multiplying with a reciprocal, add up in an order of their own, and have functions of their own for
logarithms and exponentials. So results would depend on the compiler, and on the width of a processor's vectors. Here is what they are instead:

- A function that is not correctly rounded has a definition in basic operations (`functions`, `factorisations`), on which `definition` looks up.
- Sums and products along axes go in the order of the elements, from zero (one) on: `reduced`, `cumulative`, `dot`.
- Nothing is contracted, and division and square root are those of IEEE: `rounded`.

Compilers of C are told so by options. XLA has none. What forbids it there is a -0.0 that no compiler knows (`Zero`): `a * b + zero` is the product,
rounded once, also where the sum is contracted; a constant or a divisor plus `zero` is no constant any more.

The rules for what IEEE leaves open, or XLA decides:

- Subnormal numbers are zero, as operands and as results: XLA's programs for CPUs set the processor so. (At the edge itself processors differ:
  a result that is below 2^-126 before it is rounded, and 2^-126 after.)
- Maximum and minimum are NaN if an operand is. Of +0 and -0 they are the second operand; along axes, +0.
- A float beyond the range of an integer type becomes the nearest integer of it, NaN becomes 0.
- The sign and the payload of a NaN mean nothing.
- Derivatives are those of the original functions, not of the bit operations in their definitions.
- float64 (`jax_enable_x64`) has XLA's own functions and order.
"""

import dataclasses
import enum
import functools
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, JaxprEqn, Primitive
from jax.interpreters import ad, batching, mlir

from jaxroute.core.functions import DEFINITIONS

Array = jax.Array | np.ndarray

# So many terms of a sum are written out; of longer ones so many at a time.
_WRITTEN, _BLOCK = 64, 32
# Sums of products of more terms are left to a library, in its order.
MOST_TERMS = 64
# Parameters of operations that their definitions have, too.
_PARAMETERS = {"integer_pow": ("y",)}
_AT_LEAST = 128

# A number -0.0 that no compiler knows, and a vector of them.
_zeros: ContextVar[tuple[jax.Array, jax.Array] | None] = ContextVar("zeros", default=None)


class Trait(enum.IntFlag):
    """What makes a compiler rewrite an operation of which a value is an operand.

    CONSTANT: it is known when the program is compiled.
    SHIFTED: a constant was added to it: another one would be added to that constant.
    RATIO: it is a quotient or a root: dividing by it would become multiplying.
    EVEN: it may be the same along an axis: dividing by it would become multiplying by a reciprocal.
    """

    NONE = 0
    CONSTANT = 1
    SHIFTED = 2
    RATIO = 4
    EVEN = 8


@contextmanager
def protected(words: jax.Array) -> Generator[None, None, None]:
    """A context in which compilers do not know one of the constants: for programs of XLA.

    Args:
      words: uint32 `[R]`, an argument of the program, whatever its numbers.
    """
    # No number is below zero, which a compiler does not know: -0.0 for each run, and as many times as an axis may be long.
    zero = -lax.min(words.astype(jnp.float32), jnp.float32(0))
    vector = lax.optimization_barrier(jnp.tile(zero, -(-_AT_LEAST // zero.shape[0])))
    token = _zeros.set((vector[0], vector))
    try:
        yield
    finally:
        _zeros.reset(token)


def _zero() -> jax.Array:
    """A number -0.0 that no compiler knows."""
    known = _zeros.get()
    return lax.optimization_barrier(jnp.float32(-0.0)) if known is None else known[0]


def _vector(size: int) -> jax.Array:
    """As many of them."""
    known = _zeros.get()
    if known is None or known[1].shape[0] < size:
        return lax.optimization_barrier(jnp.full((size,), -0.0, jnp.float32))
    return known[1][:size]


@functools.cache
def _definition(name: str, parameters: tuple[tuple[str, Any], ...], shapes: tuple[tuple[int, ...], ...]) -> ClosedJaxpr:
    operands = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return jax.make_jaxpr(functools.partial(DEFINITIONS[name], **dict(parameters)))(*operands)


def is_defined(eqn: JaxprEqn) -> bool:
    """Whether an operation has a definition here."""
    name = eqn.primitive.name
    return name in DEFINITIONS and all(getattr(v.aval, "dtype", None) == jnp.float32 for v in (*eqn.invars, *eqn.outvars))


def definition(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """What an operation is in basic operations, for one element: a jaxpr of scalars. None if it is one of those."""
    if not is_defined(eqn):
        return None
    return _Function.of(eqn).definition(((),) * len(eqn.invars))


# Operations that are rounded once


def product(a: Any, b: Any) -> jax.Array:
    """`a * b`, rounded once, whatever is added to it; operands of one shape, or scalars."""
    return product_p.bind(a, b, _zero())


def quotient(a: Any, b: Any) -> jax.Array:
    """`a / b` by the division of IEEE; operands of one shape, or scalars. A divisor that is the same along an axis needs `_uneven`."""
    known = _zeros.get()
    return quotient_p.bind(a, b, _vector(1) if known is None else known[1])


def _uneven(x: Any) -> Any:
    """The same numbers, of which no compiler knows whether they are equal along an axis."""
    for axis, size in enumerate(jnp.shape(x)):
        if size > 1:
            x = x + lax.broadcast_in_dim(_vector(size), jnp.shape(x), (axis,))
    return x + _zero()


def elementwise(eqn: JaxprEqn, arrays: Sequence[Any], traits: Sequence[Trait]) -> list[Any] | None:
    """The result of an elementwise operation on float32; None where XLA's own is right.

    Args:
      eqn: the operation.
      arrays: operands of one shape, or scalars.
      traits: of the operands.
    """
    name = eqn.primitive.name
    if getattr(eqn.outvars[0].aval, "dtype", None) != jnp.float32:
        return None
    if is_defined(eqn):
        return [defined(eqn, arrays, traits)]
    if name in ("add", "sub", "add_any"):
        both = traits[0] | traits[1]
        if not (both & Trait.CONSTANT and both & Trait.SHIFTED):
            return None
        a, b = (x + _zero() if trait & Trait.CONSTANT else x for x, trait in zip(arrays, traits, strict=True))
        return [a - b if name == "sub" else a + b]
    if name == "div":
        a, b = (x + _zero() if trait & Trait.RATIO else x for x, trait in zip(arrays, traits, strict=True))
        shape = np.broadcast_shapes(jnp.shape(a), jnp.shape(b))
        even = traits[1] & Trait.EVEN or jnp.shape(b) != shape
        return [quotient(a, _uneven(jnp.broadcast_to(b, shape)) if even else b)]
    return [_ROUNDED[name](*arrays)] if name in _ROUNDED else None


def trait_of(eqn: JaxprEqn, traits: Sequence[Trait], same_shape: bool) -> Trait:
    """Trait of the results of an operation.

    Args:
      eqn: the operation.
      traits: of its operands.
      same_shape: each element is made from those at the same place.
    """
    name = eqn.primitive.name
    every = functools.reduce(lambda a, b: a & b, traits, Trait.CONSTANT | Trait.EVEN)
    some = functools.reduce(lambda a, b: a | b, traits, Trait.NONE)
    kept = every & (Trait.CONSTANT | Trait.EVEN)
    if not same_shape:
        return kept | (some & (Trait.SHIFTED | Trait.RATIO | Trait.EVEN)) | (Trait.EVEN if name == "broadcast_in_dim" else Trait.NONE)
    if name in ("add", "sub", "add_any"):
        return kept | (Trait.SHIFTED if some & Trait.CONSTANT else Trait.NONE)
    if name in ("div", "sqrt"):
        return kept | Trait.RATIO
    if name in ("mul", "square"):
        return kept
    if name in DEFINITIONS:
        return kept | Trait.RATIO | Trait.SHIFTED
    return kept | (some & (Trait.SHIFTED | Trait.RATIO))


def _extreme(larger: bool, a: Any, b: Any) -> jax.Array:
    first = (a != a) | ((a > b) if larger else (a < b))
    return jnp.where(first, a, b)


def _clamp(low: Any, x: Any, high: Any) -> jax.Array:
    return _extreme(False, _extreme(True, low, x), high)


_ROUNDED: dict[str, Callable[..., Any]] = {
    "mul": product,
    "square": lambda x: product(x, x),
    "max": functools.partial(_extreme, True),
    "min": functools.partial(_extreme, False),
    "clamp": _clamp,
}


# Functions


def defined(eqn: JaxprEqn, arrays: Sequence[Any], traits: Sequence[Trait]) -> jax.Array:
    """A function by its definition, elementwise."""
    shape = np.broadcast_shapes(*map(jnp.shape, arrays))
    wide = [x if jnp.shape(x) == shape else jnp.broadcast_to(x, shape) for x in arrays]
    function = _Function.of(eqn, tuple(t & Trait.EVEN for t in traits))
    return defined_p.bind(*wide, _zero(), _vector(max(shape, default=1)), function=function)


@dataclasses.dataclass(frozen=True)
class _Function:
    """A function with a definition: the primitive that it replaces, with its parameters, and traits of the operands."""

    primitive: Any
    params: tuple[tuple[str, Any], ...]
    traits: tuple[Trait, ...]

    @classmethod
    def of(cls, eqn: JaxprEqn, traits: tuple[Trait, ...] = ()) -> "_Function":
        """The function of an operation."""
        return cls(eqn.primitive, tuple(sorted(eqn.params.items())), traits)

    def definition(self, shapes: tuple[tuple[int, ...], ...]) -> ClosedJaxpr:
        """A jaxpr of basic operations."""
        name = self.primitive.name
        own = tuple((key, value) for key, value in self.params if key in _PARAMETERS.get(name, ()))
        return _definition(name, own, shapes)

    def __call__(self, *operands: Any) -> Any:
        return _computed(self, *operands)

    def original(self, *xs: Any) -> Any:
        """The function as XLA has it."""
        return self.primitive.bind(*xs, **dict(self.params))


@functools.partial(jax.jit, static_argnums=0)
def _computed(function: _Function, *operands: Any) -> Any:
    *xs, zero, zeros = operands
    token = _zeros.set((zero, zeros))
    try:
        return _evaluate(function.definition(tuple(x.shape for x in xs)), xs, function.traits)[0]
    finally:
        _zeros.reset(token)


def _evaluate(closed: ClosedJaxpr, args: Sequence[Any], traits: Sequence[Trait]) -> list[Any]:
    """The results of a jaxpr without loops, each operation rounded once."""
    env: dict[Any, tuple[Any, Trait]] = {}
    env.update(zip(closed.jaxpr.constvars, ((c, Trait.CONSTANT) for c in closed.consts), strict=True))
    env.update(zip(closed.jaxpr.invars, zip(args, traits, strict=True), strict=True))

    def read(var: Any) -> tuple[Any, Trait]:
        return (np.asarray(var.val, var.aval.dtype), Trait.CONSTANT | Trait.EVEN) if hasattr(var, "val") else env[var]

    for eqn in closed.jaxpr.eqns:
        arrays, own = zip(*map(read, eqn.invars), strict=True) if eqn.invars else ((), ())
        if eqn.primitive.name in ("jit", "pjit"):
            outs = _evaluate(eqn.params["jaxpr"], arrays, own)
        else:
            outs = elementwise(eqn, arrays, own)
            outs = bound(eqn, arrays) if outs is None else outs
        trait = trait_of(eqn, own, True)
        env.update(zip(eqn.outvars, ((out, trait) for out in outs), strict=True))
    return [read(v)[0] for v in closed.jaxpr.outvars]


def bound(eqn: JaxprEqn, arrays: Sequence[Any], **others: Any) -> list[Any]:
    """The results of an operation on other operands, and with other parameters where some are given."""
    found = eqn.primitive.get_bind_params(eqn.params)  # a pair in jax 0.9, the parameters alone since 0.10
    functions, params = found if isinstance(found, tuple) else ((), found)
    outs = eqn.primitive.bind(*functions, *arrays, **{**params, **others})
    return list(outs) if eqn.primitive.multiple_results else [outs]


def _elementwise_primitive(name: str, last: int, function: Callable[..., Any]) -> Primitive:
    """An operation on arrays of one shape, or scalars, of which the `last` operands are zeros that stay as they are under a map."""
    primitive = Primitive(name)

    @primitive.def_abstract_eval
    def _(*avals: Any, **params: Any) -> Any:
        del params
        return ShapedArray(np.broadcast_shapes(*(a.shape for a in avals[:-last])), np.dtype(np.float32))

    def batch(args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        zeros = [x if d is None else lax.index_in_dim(x, 0, d, keepdims=False) for x, d in zip(args[-last:], dims[-last:], strict=True)]
        pairs = list(zip(args[:-last], dims[:-last], strict=True))
        size = next((x.shape[d] for x, d in pairs if d is not None), None)
        if size is None:
            return primitive.bind(*args[:-last], *zeros, **params), None
        rank = max(x.ndim - (d is not None) for x, d in pairs)
        wide = [x[None] if d is None else jnp.moveaxis(x, d, 0) for x, d in pairs]
        wide = [jnp.reshape(x, (x.shape[0], *(1,) * (rank + 1 - x.ndim), *x.shape[1:])) for x in wide]
        if last_divides and dims[1] is None and size > 1:  # The divisor is the same along the new axis.
            own = zeros[-1][:size] if zeros[-1].shape[0] >= size else lax.optimization_barrier(jnp.full((size,), -0.0, jnp.float32))
            wide[1] = wide[1] + lax.broadcast_in_dim(own, (size, *(1,) * rank), (0,))
        return primitive.bind(*wide, *zeros, **params), 0

    last_divides = name == "rounded_quotient"
    primitive.def_impl(functools.partial(_apply_jitted, function))
    batching.primitive_batchers[primitive] = batch
    mlir.register_lowering(primitive, mlir.lower_fun(function, multiple_results=False))
    return primitive


def _apply_jitted(function: Callable[..., Any], *args: Any, **params: Any) -> Any:
    return jax.jit(functools.partial(function, **params))(*args)


product_p = _elementwise_primitive("rounded_product", 1, lambda a, b, zero: a * b + zero)
quotient_p = _elementwise_primitive("rounded_quotient", 1, lambda a, b, zeros: a / b)
defined_p = _elementwise_primitive("defined", 2, lambda *operands, function: function(*operands))
ad.defjvp(
    product_p,
    lambda t, a, b, zero: product_p.bind(t, b, zero),
    lambda t, a, b, zero: product_p.bind(a, t, zero),
    None,
)


ad.defjvp(
    quotient_p,
    lambda t, a, b, zeros: quotient_p.bind(t, b, zeros),
    lambda t, a, b, zeros: -product_p.bind(quotient_p.bind(quotient_p.bind(a, b, zeros), b, zeros), t, zeros[0]),
    None,
)


def _summed_to(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """The derivative of an operand that was broadcast, from that of the result."""
    if x.shape == shape:
        return x
    return jnp.sum(x) if not shape else jnp.sum(x, axis=[i for i, n in enumerate(shape) if n != x.shape[i]], keepdims=True)


def _transpose_product(cotangent: Any, a: Any, b: Any, zero: Any) -> list[Any]:
    def of(x: Any, other: Any) -> Any:
        if not ad.is_undefined_primal(x):
            return None
        return _summed_to(product_p.bind(cotangent, other, zero), x.aval.shape)

    return [of(a, b), of(b, a), None]


def _transpose_quotient(cotangent: Any, a: Any, b: Any, zeros: Any) -> list[Any]:
    return [_summed_to(quotient_p.bind(cotangent, b, zeros), a.aval.shape), None, None]


ad.primitive_transposes[product_p] = _transpose_product
ad.primitive_transposes[quotient_p] = _transpose_quotient


def _jvp_defined(primals: Sequence[Any], tangents: Sequence[Any], *, function: _Function) -> Any:
    """The derivative of the function that is defined, not of the bit operations in its definition."""
    *xs, zero, zeros = primals
    slopes = [jnp.zeros_like(x) if isinstance(t, ad.Zero) else t for x, t in zip(xs, tangents, strict=False)]
    traced = jax.make_jaxpr(lambda xs, slopes: jax.jvp(function.original, xs, slopes)[1])(tuple(xs), tuple(slopes))
    token = _zeros.set((zero, zeros))
    try:
        return defined_p.bind(*primals, function=function), _evaluate(traced, [*xs, *slopes], [Trait.EVEN] * (2 * len(xs)))[0]
    finally:
        _zeros.reset(token)


ad.primitive_jvps[defined_p] = _jvp_defined


# Sums and products along axes, in the order of the elements


def reduced(name: str, x: Array, axes: Sequence[int]) -> jax.Array:
    """`reduce_sum` or `reduce_prod` of `x` along axes, which may be followed by others."""
    rest = [axis for axis in range(jnp.ndim(x)) if axis not in axes]
    shape = [jnp.shape(x)[axis] for axis in rest]
    number = int(np.prod([jnp.shape(x)[axis] for axis in axes]))
    terms = jnp.reshape(jnp.transpose(x, (*axes, *rest)), (number, *(jnp.shape(x)[axis] for axis in rest)))
    return _added_up(name == "reduce_prod", terms)


def _step(multiply: bool, total: Any, term: Any) -> Any:
    return product(total, term) if multiply else total + term


def _added_up(multiply: bool, terms: Any) -> jax.Array:
    number, shape = terms.shape[0], terms.shape[1:]
    zero = _zero()
    if not number:
        return jnp.full(shape, 1.0 if multiply else 0.0, jnp.float32)
    if number > _WRITTEN:
        whole = number // _BLOCK * _BLOCK

        def block(total: Any, part: Any) -> tuple[Any, None]:
            return _in_turn(multiply, total, part), None

        start = jnp.full(shape, 1.0 if multiply else 0.0, jnp.float32)
        total, _ = lax.scan(block, start, jnp.reshape(terms[:whole], (whole // _BLOCK, _BLOCK, *shape)))
        return _in_turn(multiply, total, terms[whole:])
    first = lax.squeeze(terms[:1], (0,))
    # 0 + x is x, but for -0.
    return _in_turn(multiply, first if multiply else first - zero, terms[1:])


def _in_turn(multiply: bool, total: Any, terms: Any) -> Any:
    if not terms.shape[0]:
        return total
    for term in lax.split(terms, (1,) * terms.shape[0]):
        total = _step(multiply, total, lax.squeeze(term, (0,)))
    return total


def cumulative(name: str, x: Array, axis: int, reverse: bool) -> jax.Array:
    """`cumsum` or `cumprod` of `x` along an axis."""
    multiply = name == "cumprod"
    terms = jnp.moveaxis(x, axis, 0)
    if terms.shape[0] > _WRITTEN:
        def step(total: Any, term: Any) -> Any:
            total = _step(multiply, total, term)
            return total, total
        start = jnp.full(terms.shape[1:], 1.0 if multiply else -0.0, jnp.float32)
        return jnp.moveaxis(lax.scan(step, start, terms, reverse=reverse)[1], 0, axis)
    parts = [lax.squeeze(t, (0,)) for t in lax.split(terms, (1,) * terms.shape[0])] if terms.shape[0] else []
    found: list[Any] = []
    for part in reversed(parts) if reverse else parts:
        found.append(_step(multiply, found[-1], part) if found else part)
    return jnp.stack(found[::-1] if reverse else found, axis=axis) if found else x


def dot(a: Array, b: Array, dimension_numbers: Any, runs: tuple[bool, bool] = (False, False)) -> jax.Array:
    """`dot_general` of two arrays, the terms of each sum in the order of the summed axes.

    Args:
      a, b: operands.
      dimension_numbers: of `lax.dot_general`.
      runs: whether each has one more axis, the last, of runs.
    """
    (a_sum, b_sum), (a_batch, b_batch) = dimension_numbers

    def parts(x: Any, summed: Any, batch: Any, own: bool) -> tuple[Any, Any, Any]:
        rank = x.ndim - own
        free = [i for i in range(rank) if i not in (*summed, *batch)]
        moved = jnp.transpose(x, (*summed, *batch, *free, *([rank] if own else [])))
        count = int(np.prod([x.shape[i] for i in summed]))
        return jnp.reshape(moved, (count, *moved.shape[len(summed) :])), [x.shape[i] for i in batch], [x.shape[i] for i in free]

    a, batch, a_free = parts(a, a_sum, a_batch, runs[0])
    b, _, b_free = parts(b, b_sum, b_batch, runs[1])
    tail = [a.shape[-1] if runs[0] else b.shape[-1]] if any(runs) else []
    shape = (*batch, *a_free, *b_free, *tail)
    first, last = len(batch), len(batch) + len(a_free)
    a_axes = (*range(last), *([len(shape) - 1] if runs[0] else []))
    b_axes = (*range(first), *range(last, last + len(b_free)), *([len(shape) - 1] if runs[1] else []))

    def term(x: Any, y: Any) -> Any:
        return product(lax.broadcast_in_dim(x, shape, a_axes), lax.broadcast_in_dim(y, shape, b_axes))

    number = a.shape[0]
    if not number:
        return jnp.zeros(shape, jnp.float32)
    pairs = zip(lax.split(a, (1,) * number), lax.split(b, (1,) * number), strict=True)
    terms = [term(lax.squeeze(x, (0,)), lax.squeeze(y, (0,))) for x, y in pairs]
    total = terms[0] - _zero()
    for one in terms[1:]:
        total = total + one
    return total
