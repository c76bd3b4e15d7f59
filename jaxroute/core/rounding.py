"""Protection of programs against XLA's rewriting, so that each operation is rounded as in `arithmetic`: a -0.0 that no compiler knows.

XLA contracts `a * b + c` on a CPU, whatever its options, and rewrites a program as if numbers were not rounded. With a number `zero` that is -0.0
and that it does not know, `a * b + zero` is the product, rounded once, also where that sum is contracted; and a constant or a divisor plus `zero` is
neither any more. Where processors contract, this costs nothing: the product becomes the contraction of itself and of `zero`.
"""

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
from jax.extend.core import JaxprEqn, Primitive
from jax.interpreters import ad, batching, mlir

# So many zeros are at hand at least: for as long an axis.
_AT_LEAST = 128
# The number -0.0 that no compiler knows, and a vector of them.
_zeros: ContextVar[tuple[jax.Array, jax.Array] | None] = ContextVar("zeros", default=None)
_own: ContextVar[bool] = ContextVar("own", default=False)


class Trait(enum.IntFlag):
    """Property of a value that makes a compiler rewrite an operation on it.

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
    if not is_exact():
        yield
        return
    # The floor of numbers below 1 is 0, which compilers do not know (they do of a minimum with 0): -0.0 for each run, and as many times as an
    # axis may be long.
    zero = -jnp.floor((words >> 8).astype(jnp.float32) * jnp.float32(2.0**-24))
    vector = lax.optimization_barrier(jnp.tile(zero, -(-_AT_LEAST // zero.shape[0])))
    with given_zeros(vector[0], vector):
        yield


@contextmanager
def given_zeros(zero: jax.Array, vector: jax.Array) -> Generator[None, None, None]:
    """A context in which these are the numbers -0.0 that no compiler knows."""
    token = _zeros.set((zero, vector))
    try:
        yield
    finally:
        _zeros.reset(token)


@contextmanager
def compilers_own() -> Generator[None, None, None]:
    """A context in which functions, sums and roundings are XLA's own: the fast arithmetic of a GPU, and what the exact one is compared with."""
    token = _own.set(True)
    try:
        yield
    finally:
        _own.reset(token)


def is_exact() -> bool:
    """Whether operations are those of the one arithmetic here."""
    return not _own.get()


def unknown_zero() -> jax.Array:
    """A number -0.0 that no compiler knows."""
    known = _zeros.get()
    return _behind_a_barrier(1)[0] if known is None else known[0]


def unknown_zeros(size: int) -> jax.Array:
    """Vector of so many of these numbers."""
    known = _zeros.get()
    if known is None or known[1].shape[0] < size:
        return _behind_a_barrier(size)
    return known[1][:size]


def _behind_a_barrier(size: int) -> jax.Array:
    return lax.optimization_barrier(jnp.full((size,), -0.0, jnp.float32))


# Operations that are rounded once


def product(a: Any, b: Any) -> jax.Array:
    """`a * b`, rounded once, whatever is added to it; operands of one shape, or scalars."""
    return product_p.bind(a, b, unknown_zero())


def quotient(a: Any, b: Any) -> jax.Array:
    """`a / b` by the division of IEEE; operands of one shape, or scalars. A divisor that is the same along an axis needs `uneven`."""
    known = _zeros.get()
    return quotient_p.bind(a, b, unknown_zeros(1) if known is None else known[1])


def uneven(x: Any) -> Any:
    """The same numbers, of which no compiler knows whether they are equal along an axis."""
    for axis, size in enumerate(jnp.shape(x)):
        if size > 1:
            x = x + lax.broadcast_in_dim(unknown_zeros(size), jnp.shape(x), (axis,))
    return x + unknown_zero()


# Operations of which a result is an operand, perhaps with another sign, or no float at all.
# fmt: off
_HANDING_ON = frozenset([
    "abs", "and", "bitcast_convert_type", "ceil", "clamp", "convert_element_type", "copy", "eq", "floor", "ge", "gt", "is_finite", "le", "lt",
    "max", "min", "ne", "neg", "not", "or", "reduce_precision", "round", "select_n", "shift_left", "shift_right_arithmetic",
    "shift_right_logical", "sign", "stop_gradient", "xor",
])
# fmt: on


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
        return (
            kept
            | (some & (Trait.SHIFTED | Trait.RATIO | Trait.EVEN))
            | (Trait.EVEN if name == "broadcast_in_dim" else Trait.NONE)
        )
    if name in ("add", "sub", "add_any"):
        return kept | (Trait.SHIFTED if some & Trait.CONSTANT else Trait.NONE)
    if name in ("div", "sqrt"):
        return kept | Trait.RATIO
    if name in ("mul", "square"):
        return kept
    if name in _HANDING_ON:
        return kept | (some & (Trait.SHIFTED | Trait.RATIO))
    return kept | Trait.RATIO | Trait.SHIFTED  # A function, of which that may be the last operation.


def elementwise_primitive(name: str, zeros: int, function: Callable[..., Any], divides: bool = False) -> Primitive:
    """An operation on arrays of one shape, or scalars.

    Args:
      name: of it.
      zeros: number of the last operands, unknown zeros, which stay as they are under a map.
      function: of the operands: what it computes.
      divides: the second operand is a divisor.
    """
    primitive = Primitive(name)

    @primitive.def_abstract_eval
    def _(*avals: Any, **params: Any) -> Any:
        del params
        return ShapedArray(np.broadcast_shapes(*(a.shape for a in avals[:-zeros])), np.dtype(np.float32))

    def batch(args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        pairs = list(zip(args, dims, strict=True))
        pairs, unknown = (
            pairs[:-zeros],
            [x if d is None else lax.index_in_dim(x, 0, d, keepdims=False) for x, d in pairs[-zeros:]],
        )
        size = next((x.shape[d] for x, d in pairs if d is not None), None)
        if size is None:
            return primitive.bind(*(x for x, _ in pairs), *unknown, **params), None
        rank = max(x.ndim - (d is not None) for x, d in pairs)
        wide = [x[None] if d is None else jnp.moveaxis(x, d, 0) for x, d in pairs]
        wide = [jnp.reshape(x, (x.shape[0], *(1,) * (rank + 1 - x.ndim), *x.shape[1:])) for x in wide]
        if divides and size > 1:  # The divisor may be the same along the new axis.
            own = unknown[-1][:size] if unknown[-1].shape[0] >= size else _behind_a_barrier(size)
            wide[1] = wide[1] + lax.broadcast_in_dim(own, (size, *(1,) * rank), (0,))
        return primitive.bind(*wide, *unknown, **params), 0

    @functools.cache
    def compiled(**params: Any) -> Callable[..., Any]:
        return jax.jit(functools.partial(function, **params))

    primitive.def_impl(lambda *args, **params: compiled(**params)(*args))
    batching.primitive_batchers[primitive] = batch
    mlir.register_lowering(primitive, mlir.lower_fun(function, multiple_results=False))
    return primitive


product_p = elementwise_primitive("rounded_product", 1, lambda a, b, zero: a * b + zero)
quotient_p = elementwise_primitive("rounded_quotient", 1, lambda a, b, zeros: a / b, divides=True)
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
