"""Exact arithmetic: each float32 operation is rounded once and in one order, whatever the program and the compiler.

IEEE 754 defines the rounding of `+ - * /` and the square root. Compilers still produce other bits. They contract `a * b + c` into one operation
with one rounding, replace a division by a multiplication with the reciprocal, reorder sums, and use different logarithms and exponentials.
Results would depend on the compiler and on the width of the processor's vectors. So here:

- A function that is not correctly rounded has a definition in basic operations (modules `functions` and `factorisations`).
- Sums and products along axes follow the order of the elements and start at zero or one: `reduced`, `cumulative`, `dot`. More than 64
  terms are summed in blocks of 64, because a sequential mean of 20,000 equal terms has a relative error of 2e-4.
- Nothing is contracted, and division and square root are those of IEEE: `elementwise`.

C compilers have options for this. XLA has none; the module `rounding` works around it. What IEEE leaves open or XLA decides is fixed so:

- Subnormal operands and results are zero, as in XLA's programs for CPUs. (Processors differ at the edge: a result below 2^-126 before
  rounding and equal to it after.)
- Maximum and minimum are NaN if an operand is. For +0 and -0 they return the second operand; a maximum along axes that is zero is +0.
- A float beyond the range of an integer type becomes the nearest integer of that type; NaN becomes 0.
- The sign and the payload of a NaN mean nothing.
- Derivatives are those of the original functions, not of the bit operations in their definitions.
- float64 (`jax_enable_x64`) has XLA's own functions and order.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn
from jax.interpreters import ad

from jaxroute.core import rounding
from jaxroute.core.factorisations import FACTORISATIONS
from jaxroute.core.functions import DEFINITIONS
from jaxroute.core.rounding import Trait, is_exact, product, unknown_zero
from jaxroute.core.xla import bind, compute_once

Array = jax.Array | np.ndarray

# Version of this arithmetic; part of the address of a stored result.
VERSION = 3
# Sums up to this number of terms are unrolled, one term after the other.
_BLOCK = 64
# Dot products with more terms are computed by XLA's library, in its order.
MOST_TERMS = 64


def is_defined(eqn: JaxprEqn) -> bool:
    """Whether exact arithmetic is on (`rounding.is_exact()`) and `eqn` is an elementwise float32 operation, such as `exp`, with a `definition`."""
    return is_exact() and _of_one_element(eqn)


def _of_one_element(eqn: JaxprEqn) -> bool:
    types = (jnp.float32, jnp.int32) if eqn.primitive.name == "pow" else (jnp.float32,)
    return eqn.primitive.name in DEFINITIONS and _has_types(eqn, *types)


def definition(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """Returns a jaxpr that computes `eqn` by basic operations, on scalars if it is elementwise, else on arrays; None if it is left to XLA."""
    if _of_one_element(eqn):
        types = tuple(getattr(v.aval, "dtype", None) for v in eqn.invars)
        return _Function.of(eqn).definition(((),) * len(eqn.invars), types)
    return whole_definition(eqn)


def whole_definition(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """Returns a jaxpr that computes `eqn`, an operation on whole arrays such as a factorisation, by basic operations; None if XLA computes `eqn`."""
    name, params = eqn.primitive.name, eqn.params
    # Operations such as `jnp.searchsorted` since jax 0.12, which have a separate definition.
    if name == "call_hi_primitive":
        return jax.make_jaxpr(functools.partial(eqn.primitive.to_lojax, **params))(*(v.aval for v in eqn.invars))
    if name not in WHOLE or not _has_types(eqn, jnp.float32, jnp.int32):
        return None
    avals: list[Any] = [v.aval for v in eqn.invars]
    if name in _LONG and (
        avals[0].dtype != jnp.float32 or math.prod(avals[0].shape[axis] for axis in params["axes"]) <= _BLOCK
    ):
        return None
    if any(0 in aval.shape for aval in avals) or params.get("subset_by_index") not in (None, (0, avals[0].shape[-1])):
        return None
    operands = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
    return jax.make_jaxpr(functools.partial(WHOLE[name], **params))(*operands)


def _has_types(eqn: JaxprEqn, *types: Any) -> bool:
    return all(getattr(v.aval, "dtype", None) in types for v in (*eqn.invars, *eqn.outvars))


def _accumulated(step: Callable[[Any, Any], Any], first: Any, terms: Any, reverse: bool) -> jax.Array:
    """Returns the running totals `total = step(total, term)` from `first` over the first axis of `terms`; `reverse` begins at its end."""

    def both(total: Any, term: Any) -> tuple[Any, Any]:
        new = step(total, term)
        return new, new

    return lax.scan(both, first, terms, reverse=reverse)[1]


def _cumulative_log_sum(x: jax.Array, *, axis: int, reverse: bool) -> jax.Array:
    terms = jnp.moveaxis(x, axis, 0)
    first = jnp.full(terms.shape[1:], -jnp.inf, jnp.float32)
    return jnp.moveaxis(_accumulated(jnp.logaddexp, first, terms, reverse), 0, axis)


def _by_blocks(
    reduce: Callable[..., jax.Array], step: Callable[..., jax.Array], x: jax.Array, *, axes: Sequence[int], **_: Any
) -> jax.Array:
    """Reduces `x` over `axes` in blocks of 64 terms. `reduce` sums or multiplies along an axis; `step` does so for two arrays."""
    axes = tuple(axes)
    terms = jnp.moveaxis(x, axes, range(len(axes)))
    terms = jnp.reshape(terms, (-1, *terms.shape[len(axes) :]))
    whole = len(terms) // _BLOCK * _BLOCK
    blocks = jnp.reshape(terms[:whole], (whole // _BLOCK, _BLOCK, *terms.shape[1:]))
    total = reduce(reduce(blocks, axis=1), axis=0)
    return step(total, reduce(terms[whole:], axis=0)) if whole < len(terms) else total


_LONG: dict[str, Callable[..., Any]] = {
    "reduce_sum": functools.partial(_by_blocks, jnp.sum, jnp.add),
    "reduce_prod": functools.partial(_by_blocks, jnp.prod, jnp.multiply),
}
WHOLE: dict[str, Callable[..., Any]] = {**FACTORISATIONS, **_LONG, "cumlogsumexp": _cumulative_log_sum}


def elementwise(eqn: JaxprEqn, arrays: Sequence[Any], traits: Sequence[Trait]) -> list[Any] | None:
    """Computes the elementwise float32 operation `eqn` on `arrays` of one shape (or scalars), rounded once. Returns None if XLA's own suffices.

    `traits` has a `Trait` for each operand: what XLA knows of the operand, such as that it is constant, and would use to rewrite the operation.
    """
    name = eqn.primitive.name
    if not is_exact() or getattr(eqn.outvars[0].aval, "dtype", None) != jnp.float32:
        return None
    if is_defined(eqn):
        return [defined(eqn, arrays, traits)]
    if name in ("add", "sub", "add_any"):
        both = traits[0] | traits[1]
        if not (both & Trait.CONSTANT and both & Trait.SHIFTED):
            return None
        a, b = (x + unknown_zero() if trait & Trait.CONSTANT else x for x, trait in zip(arrays, traits, strict=True))
        return [a - b if name == "sub" else a + b]
    if name == "div":
        a, b = (x + unknown_zero() if trait & Trait.RATIO else x for x, trait in zip(arrays, traits, strict=True))
        shape = np.broadcast_shapes(jnp.shape(a), jnp.shape(b))
        even = traits[1] & Trait.EVEN or jnp.shape(b) != shape
        return [rounding.quotient(a, rounding.uneven(jnp.broadcast_to(b, shape)) if even else b)]
    return [_ROUNDED[name](*arrays)] if name in _ROUNDED else None


def _extreme(larger: bool, a: Any, b: Any) -> jax.Array:
    first = (a != a) | ((a > b) if larger else (a < b))
    return jnp.where(first, a, b)


_ROUNDED: dict[str, Callable[..., Any]] = {
    "mul": product,
    "square": lambda x: product(x, x),
    "max": functools.partial(_extreme, True),
    "min": functools.partial(_extreme, False),
    "clamp": lambda low, x, high: _extreme(False, _extreme(True, low, x), high),
}


# Elementwise functions


def defined(eqn: JaxprEqn, arrays: Sequence[Any], traits: Sequence[Trait]) -> jax.Array:
    """Computes the function `eqn`, such as `exp`, of `arrays` by its `definition`. `traits` has a `Trait` for each array: what XLA knows of it."""
    shape = np.broadcast_shapes(*map(jnp.shape, arrays))
    wide = [x if jnp.shape(x) == shape else jnp.broadcast_to(x, shape) for x in arrays]
    function = _Function.of(eqn, tuple(t & Trait.EVEN for t in traits))
    return defined_p.bind(*wide, unknown_zero(), rounding.unknown_zeros(max(shape, default=1)), function=function)


@dataclasses.dataclass(frozen=True)
class _Function:
    """Elementwise function, such as `exp`, that is computed by its definition in basic operations. The primitive `defined` has it as a parameter.

    Attributes:
      primitive: JAX primitive of the function.
      params: parameters of the operation.
      traits: property of each operand that lets XLA rewrite an operation (`Trait`).
    """

    primitive: Any
    params: tuple[tuple[str, Any], ...]
    traits: tuple[Trait, ...]

    @classmethod
    def of(cls, eqn: JaxprEqn, traits: tuple[Trait, ...] = ()) -> "_Function":
        return cls(eqn.primitive, tuple(sorted(eqn.params.items())), traits)

    @functools.cache  # noqa: B019
    def definition(self, shapes: tuple[tuple[int, ...], ...], types: tuple[Any, ...]) -> ClosedJaxpr:
        """Returns the jaxpr of basic operations that computes the function for operands of these shapes and types."""
        exponent = {name: value for name, value in self.params if name == "y"}  # Of `integer_pow`.

        def function(*operands: jax.Array) -> jax.Array:
            return DEFINITIONS[self.primitive.name](*(x.astype(jnp.float32) for x in operands), **exponent)

        return jax.make_jaxpr(function)(*map(jax.ShapeDtypeStruct, shapes, types))


@functools.partial(jax.jit, static_argnums=0)
def _computed(function: _Function, *operands: Any) -> Any:
    *xs, zero, zeros = operands
    with rounding.given_zeros(zero, zeros):
        wide = [jnp.atleast_1d(x) for x in xs]  # For a scalar the definition may contain a branch.
        definition = function.definition(tuple(x.shape for x in wide), tuple(x.dtype for x in wide))
        return jnp.reshape(_evaluate(definition, wide, function.traits)[0], xs[0].shape)


def _evaluate(closed: ClosedJaxpr, args: Sequence[Any], traits: Sequence[Trait]) -> list[Any]:
    """Returns the results of the loop-free jaxpr `closed` for `args`, each operation rounded once. `traits`: what XLA knows of each argument."""
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
            outs = bind(eqn, arrays) if outs is None else outs
        trait = rounding.trait_of(eqn, own, True)
        env.update(zip(eqn.outvars, ((out, trait) for out in outs), strict=True))
    return [read(v)[0] for v in closed.jaxpr.outvars]


defined_p = rounding.elementwise_primitive("defined", 2, lambda *operands, function: _computed(function, *operands))


def _jvp_defined(primals: Sequence[Any], tangents: Sequence[Any], *, function: _Function) -> Any:
    """Returns the value of `defined` and JAX's derivative of the original function, because the bit operations of its definition have none."""
    *xs, zero, zeros = primals
    slopes = [jnp.zeros_like(x) if isinstance(t, ad.Zero) else t for x, t in zip(xs, tangents, strict=False)]
    original = functools.partial(function.primitive.bind, **dict(function.params))
    traced = jax.make_jaxpr(lambda xs, slopes: jax.jvp(original, xs, slopes)[1])(tuple(xs), tuple(slopes))
    with rounding.given_zeros(zero, zeros):
        out = defined_p.bind(*primals, function=function)
        return out, _evaluate(traced, [*xs, *slopes], [Trait.EVEN] * (2 * len(xs)))[0]


ad.primitive_jvps[defined_p] = _jvp_defined


# Sums and products along axes, in the order of the elements


def reduced(name: str, x: Array, axes: Sequence[int]) -> jax.Array:
    """Computes `reduce_sum` or `reduce_prod` (the `name`) of `x` along `axes`, term by term. Terms are unrolled, so there must be few of them."""
    rest = [axis for axis in range(jnp.ndim(x)) if axis not in axes]
    number, shape = math.prod(x.shape[axis] for axis in axes), [x.shape[axis] for axis in rest]
    terms = _along(jnp.reshape(jnp.transpose(x, (*axes, *rest)), (number, *shape)))
    return _reduced_in_order(name == "reduce_sum", terms, shape)


def _reduced_in_order(adds: bool, terms: Sequence[jax.Array], shape: Sequence[int]) -> jax.Array:
    """Returns the sum (if `adds`) or product of `terms`, arrays of one `shape`, in their order. Without terms it is 0 or 1."""
    if not terms:
        return jnp.full(shape, 0.0 if adds else 1.0, jnp.float32)
    first = terms[0] - unknown_zero() if adds else terms[0]  # 0 + x is x, except for -0.
    total = functools.reduce(jnp.add if adds else product, terms[1:], first)
    return total if len(terms) == 1 else compute_once(total)


def _along(x: jax.Array) -> list[jax.Array]:
    return [lax.squeeze(part, (0,)) for part in lax.split(x, (1,) * x.shape[0])] if x.shape[0] else []


def cumulative(name: str, x: Array, axis: int, reverse: bool) -> jax.Array:
    """Computes `cumsum` or `cumprod` (the `name`) of `x` along an axis, term by term; `reverse` begins at the end."""
    step: Callable[[Any, Any], Any] = product if name == "cumprod" else lambda a, b: a + b
    terms = jnp.moveaxis(x, axis, 0)
    if terms.shape[0] > _BLOCK:
        first = jnp.full(terms.shape[1:], 1.0 if name == "cumprod" else -0.0, jnp.float32)
        return jnp.moveaxis(_accumulated(step, first, terms, reverse), 0, axis)
    parts = _along(terms)
    made = list(itertools.accumulate(parts[::-1] if reverse else parts, step))
    return compute_once(jnp.stack(made[::-1] if reverse else made, axis=axis)) if made else jnp.asarray(x)


def terms_of(eqn: JaxprEqn) -> int:
    """Returns the number of products that each element of the result of a `dot_general`, `eqn`, adds up."""
    (summed, _), _ = eqn.params["dimension_numbers"]
    aval: Any = eqn.invars[0].aval
    return math.prod(aval.shape[axis] for axis in summed)


def dot(a: jax.Array, b: jax.Array, dimension_numbers: Any, runs: tuple[bool, bool] = (False, False)) -> jax.Array:
    """Computes `lax.dot_general` of `a` and `b`, adding the terms of each sum in order.

    `runs` tells whether `a`, and whether `b`, has an additional last axis of runs. If one has it, the result has it, too, as its last axis.
    """
    (a_sum, b_sum), (a_batch, b_batch) = dimension_numbers

    def parts(x: Any, summed: Any, batch: Any, own: bool) -> tuple[Any, Any, Any]:
        rank = x.ndim - own
        free = [i for i in range(rank) if i not in (*summed, *batch)]
        moved = jnp.transpose(x, (*summed, *batch, *free, *([rank] if own else [])))
        count = int(np.prod([x.shape[i] for i in summed]))
        terms = jnp.reshape(moved, (count, *moved.shape[len(summed) :]))
        return terms, [x.shape[i] for i in batch], [x.shape[i] for i in free]

    a, batch, a_free = parts(a, a_sum, a_batch, runs[0])
    b, _, b_free = parts(b, b_sum, b_batch, runs[1])
    tail = [a.shape[-1] if runs[0] else b.shape[-1]] if any(runs) else []
    shape = (*batch, *a_free, *b_free, *tail)
    first, last = len(batch), len(batch) + len(a_free)
    a_axes = (*range(last), *([len(shape) - 1] if runs[0] else []))
    b_axes = (*range(first), *range(last, last + len(b_free)), *([len(shape) - 1] if runs[1] else []))
    pairs = zip(_along(a), _along(b), strict=True)
    wide = ((lax.broadcast_in_dim(x, shape, a_axes), lax.broadcast_in_dim(y, shape, b_axes)) for x, y in pairs)
    return _reduced_in_order(True, list(itertools.starmap(product, wide)), shape)
