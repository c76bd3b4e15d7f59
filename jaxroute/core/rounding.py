"""Protection of float operations against XLA's rewriting, by adding a -0.0 that XLA cannot see to be constant.

On a CPU, XLA contracts `a * b + c` to one operation with one rounding, whatever its options, and simplifies programs as if numbers were not rounded.
A number `zero` that is -0.0, which XLA does not know, prevents this. `a * b + zero` is the product, rounded once, even if this sum is contracted. A
constant plus `zero` is no constant for XLA. If divisors are equal along an axis, XLA multiplies by one reciprocal instead. Adding a vector of unknown
-0.0s to the divisors prevents this, as they might then differ. With fused multiply-add the added zeros cost nothing.
"""

import enum
import functools
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import ShapedArray
from jax.extend.core import JaxprEqn, Primitive
from jax.interpreters import ad, batching, mlir

# Smallest length of the vector of zeros. It serves axes up to its length.
_AT_LEAST = 128
# The number -0.0 that is unknown to the compiler, and a vector of it.
_zeros: ContextVar[tuple[Array, Array] | None] = ContextVar("zeros", default=None)
_own: ContextVar[bool] = ContextVar("own", default=False)


class Trait(enum.IntFlag):
    """Property of a value that lets XLA's compiler rewrite an operation on the value, so that its result is rounded differently.

    Attributes:
      CONSTANT: the value is known at compile time.
      SHIFTED: the value is a sum with a constant; the compiler would merge another added constant with this constant.
      RATIO: the value is a quotient or a root; the compiler would replace a division by the value with a multiplication.
      EVEN: all elements along some axis may be the same, as after a broadcast; the compiler would then divide by multiplying with the reciprocal.
    """

    NONE = 0
    CONSTANT = 1
    SHIFTED = 2
    RATIO = 4
    EVEN = 8


@contextmanager
def protected(words: Array) -> Generator[None, None, None]:
    """Context manager that protects the operations traced inside: they use a number -0.0 that XLA's compiler does not know.

    The program computes one -0.0 for each of `R` runs from its argument `words`, uint32 `[R]`, such as the runs' seeds; any values will do. The
    first -0.0 serves where a scalar is needed; all of them, repeated to the length of an axis, form the vector that is added to divisors.
    """
    if not is_exact():
        yield
        return
    # The floor of a number in [0, 1) is 0, which compilers cannot derive (unlike a minimum with 0). There is one -0.0 for each run,
    # repeated up to the length of an axis.
    zero = -jnp.floor((words >> 8).astype(jnp.float32) * jnp.float32(2.0**-24))
    vector = lax.optimization_barrier(jnp.tile(zero, -(-_AT_LEAST // zero.shape[0])))
    with given_zeros(vector[0], vector):
        yield


@contextmanager
def within(variable: ContextVar[Any], value: Any) -> Generator[None, None, None]:
    """Context manager that sets a context variable to `value` for the statements inside."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def given_zeros(zero: Array, vector: Array) -> AbstractContextManager[None]:
    """Context manager that sets the -0.0s of `protected`: inside, `zero` is added to products, and elements of the array `vector` to divisors."""
    return within(_zeros, (zero, vector))


def compilers_own() -> AbstractContextManager[None]:
    """Context manager that switches exact arithmetic (each operation rounded once) off: XLA uses its own functions and roundings, faster on a GPU."""
    return within(_own, True)


def is_exact() -> bool:
    """Whether operations traced here get exact arithmetic (each is rounded once): True except inside the context manager `compilers_own`."""
    return not _own.get()


def unknown_zero() -> Array:
    """Returns a scalar -0.0 whose value the compiler does not know."""
    known = _zeros.get()
    return _behind_a_barrier(1)[0] if known is None else known[0]


def unknown_zeros(size: int) -> Array:
    """Returns a vector `[size]` of -0.0 whose values the compiler does not know. An optimisation barrier hides them outside `protected`."""
    known = _zeros.get()
    if known is None or known[1].shape[0] < size:
        return _behind_a_barrier(size)
    return known[1][:size]


def _behind_a_barrier(size: int) -> Array:
    return lax.optimization_barrier(jnp.full((size,), -0.0, jnp.float32))


# Operations that are rounded once


def product(a: Any, b: Any) -> Array:
    """Returns `a * b`, rounded once even if the compiler merges it with an addition. Operands are scalars or arrays of one shape."""
    return product_p.bind(a, b, unknown_zero())


def quotient(a: Any, b: Any) -> Array:
    """Returns `a / b`, rounded as IEEE requires, for scalars or arrays of one shape. If `b` was broadcast along an axis, pass `uneven(b)`."""
    known = _zeros.get()
    return quotient_p.bind(a, b, unknown_zeros(1) if known is None else known[1])


def uneven(x: Any) -> Any:
    """Returns `x` unchanged, but in a form from which the compiler cannot tell whether its elements are equal along an axis."""
    for axis, size in enumerate(jnp.shape(x)):
        if size > 1:
            x = x + lax.broadcast_in_dim(unknown_zeros(size), jnp.shape(x), (axis,))
    return x + unknown_zero()


# Operations whose result is an operand (perhaps with another sign) or no float.
# fmt: off
_HANDING_ON = frozenset([
    "abs", "and", "bitcast_convert_type", "ceil", "clamp", "convert_element_type", "copy", "eq", "floor", "ge", "gt", "is_finite", "le", "lt",
    "max", "min", "ne", "neg", "not", "or", "reduce_precision", "round", "select_n", "shift_left", "shift_right_arithmetic",
    "shift_right_logical", "sign", "stop_gradient", "xor",
])
# fmt: on


def trait_of(eqn: JaxprEqn, traits: Sequence[Trait], same_shape: bool) -> Trait:
    """Returns the `Trait` of the result of operation `eqn` from the `traits` of its operands. `same_shape` is True if it is elementwise."""
    name = eqn.primitive.name
    every = functools.reduce(lambda a, b: a & b, traits, Trait.CONSTANT | Trait.EVEN)
    some = functools.reduce(lambda a, b: a | b, traits, Trait.NONE)
    kept = every & (Trait.CONSTANT | Trait.EVEN)
    if not same_shape:
        even = Trait.EVEN if name == "broadcast_in_dim" else Trait.NONE
        return kept | even | (some & (Trait.SHIFTED | Trait.RATIO | Trait.EVEN))
    if name in ("add", "sub", "add_any"):
        return kept | (Trait.SHIFTED if some & Trait.CONSTANT else Trait.NONE)
    if name in ("div", "sqrt"):
        return kept | Trait.RATIO
    if name in ("mul", "square"):
        return kept
    if name in _HANDING_ON:
        return kept | (some & (Trait.SHIFTED | Trait.RATIO))
    return kept | Trait.RATIO | Trait.SHIFTED  # A function that may end in such an operation.


def elementwise_primitive(name: str, zeros: int, function: Callable[..., Any], divides: bool = False) -> Primitive:
    """Creates a JAX primitive called `name` that applies `function` to scalars or to float32 arrays of one shape.

    The last `zeros` operands are -0.0 or vectors of it that the compiler does not know. `function` gets them, too; `jax.vmap` does not batch them. If
    `divides`, the second operand is a divisor: `jax.vmap` adds -0.0s of the last operand to it, so that XLA does not use one reciprocal.
    """
    primitive = Primitive(name)

    @primitive.def_abstract_eval
    def _(*avals: Any, **params: Any) -> Any:
        del params
        return ShapedArray(np.broadcast_shapes(*(a.shape for a in avals[:-zeros])), np.dtype(np.float32))

    def batch(args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        pairs = list(zip(args, dims, strict=True))
        unknown = [x if d is None else lax.index_in_dim(x, 0, d, keepdims=False) for x, d in pairs[-zeros:]]
        pairs = pairs[:-zeros]
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
ad.defjvp(product_p, lambda t, a, b, zero: product_p.bind(t, b, zero), lambda t, a, b, z: product_p.bind(a, t, z), None)
ad.defjvp(
    quotient_p,
    lambda t, a, b, zeros: quotient_p.bind(t, b, zeros),
    lambda t, a, b, zeros: -product_p.bind(quotient_p.bind(quotient_p.bind(a, b, zeros), b, zeros), t, zeros[0]),
    None,
)


def _summed_to(x: Array, shape: tuple[int, ...]) -> Array:
    """Sums the cotangent `x` of a broadcast operand over the broadcast axes, to the operand's `shape`."""
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
