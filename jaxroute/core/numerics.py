"""Numerical functions for authors of policies: choices, ranks, one-hot reads and writes, and sums that do not drift.

A compiled comparison may recompute a score with another rounding than the value it is compared with. These functions compare values behind a
barrier, so that a choice picks exactly one element and a rank is a permutation. They avoid gathers and sorts, which are slow over many runs.
"""

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

from jaxroute.core import xla
from jaxroute.core.exports import public_names

__dir__ = public_names(__name__)
Array = jax.Array | np.ndarray
Index = jax.Array | np.ndarray | int

# Sums up to this number of terms are unrolled.
_MOST_TERMS = 64
# Arrays of at least this size are reduced by this many vectors of this width at a time (`has_nan`).
_LARGE_TABLE, _VECTORS, _WIDTH = 2**17, 64, 16


def one_hot(index: Index, size: int) -> jax.Array:
    """Returns a mask `[size]` that is True at `index`. It is all False if `index` is out of range."""
    return lax.iota(jnp.int32, size) == index


@jax.jit
def pick(mask: Array, values: Array) -> jax.Array:
    """Returns the element of `values` (`[K]` or `[..., K]`) at which the one-hot `mask` `[K]` is True; zero if the mask is all False."""
    return jnp.sum(jnp.where(mask, values, jnp.zeros_like(values)), axis=-1)


def take(values: Array, index: Index) -> jax.Array:
    """Returns `values[..., index]` of `values` `[..., K]`; an index out of range is clipped.

    If the index differs between runs, `pick` is faster for short axes, this function from about a hundred elements on.
    """
    return lax.dynamic_index_in_dim(values, index, axis=values.ndim - 1, keepdims=False)


def put(table: Array, index: Sequence[Index], value: Any) -> jax.Array:
    """Returns the array `table` with `value` at `table[index]`. It works in place if the old array is not used afterwards.

    `index` has one integer for each of the first axes, which is clipped to the range; the other axes are written in full.
    """
    free = table.ndim - len(index)  # number of axes that are written in full
    value = jnp.reshape(value, (*([1] * len(index)), *table.shape[len(index) :])).astype(table.dtype)
    zero = jnp.int32(0)
    return lax.dynamic_update_slice(table, value, (*(jnp.asarray(i, jnp.int32) for i in index), *[zero] * free))


def at(table: Array, index: Sequence[Index]) -> jax.Array:
    """Returns `table[index]` of an array, where `index` has one integer for each of the first axes, clipped to the range."""
    sizes = (*([1] * len(index)), *table.shape[len(index) :])
    starts = (*(jnp.asarray(i, jnp.int32) for i in index), *[jnp.int32(0)] * (table.ndim - len(index)))
    return jnp.reshape(lax.dynamic_slice(table, starts, sizes), table.shape[len(index) :])


def argmax(score: Array, allowed: Array | None = None, order: Array | None = None) -> jax.Array:
    """Returns the index, an int32 scalar, of the largest element of `score` `[K]` for which `allowed` `[K]` is True (None: all).

    Ties go to the first model in `order`, a random order that a policy draws once from its key (`draws.order`). Results then do not depend on how
    models are numbered. Without `order` ties go to the lowest index, as is right for positions in a queue, or if ties are improbable (random scores).
    If nothing is allowed, or any element is NaN, the result is `K`, which is out of range: `one_hot` of it is all False.
    """
    return xla.first_best(score, allowed, order)


def argmin(score: Array, allowed: Array | None = None, order: Array | None = None) -> jax.Array:
    """Returns the index, an int32 scalar, of the smallest allowed element of `score` `[K]`: `argmax` of `-score`, with the same arguments."""
    return argmax(-score, allowed, order)


def rank(*keys: Array, together: np.ndarray | None = None) -> jax.Array:
    """Returns the rank of each of `K` elements, int32 `[K]`: 0 for the largest `keys[0]`. Further keys, then the lower index, break ties.

    Each key is an array `[K]`. The rank of i counts the larger elements j; with a static mask `together` `[K, K]`, only those with `together[j, i]`.
    """
    return xla.weighted_sum_over_better(jnp.ones(keys[0].shape[-1:], jnp.int32), *keys, together=together)


def prefix_sums(values: Array) -> jax.Array:
    """Returns the sum of each element of `values` `[K]` and all before it. The sums are unrolled, which is faster than a scan for short axes."""
    return xla.weighted_sum_over_better(values) + values


def add_up(total: jax.Array, error: jax.Array, value: Array, seen: Array | None = None) -> tuple[jax.Array, jax.Array]:
    """Adds `value` to a compensated sum, which does not drift in 2^31 rounds: each rounding error is added to the next term.

    A plain float32 sum of a million equal numbers has an error of up to a percent, and a sum of ones stops at 2^24. This sum is exact for
    integers; for other numbers the error is at most some millionths of the sum of their magnitudes.

    Returns the new `total` and the new accumulated rounding `error` (initially zero), in the same shape. The mask `seen` is False where nothing
    changes; None adds everywhere.

    Source: Kahan (1965), compensated summation.
    """
    given = jnp.asarray(value) + error
    if seen is not None:
        given = jnp.where(seen, given, 0.0)
    new = total + given
    left = given - (new - total)
    return new, left if seen is None else jnp.where(seen, left, error)


def no_errors(**sums: jax.Array) -> dict[str, jax.Array]:
    """Returns the initial value of a state's field `errors` (see `accumulate`): a zero rounding error for each sum, by field name."""
    return {name: jnp.zeros_like(value) for name, value in sums.items()}


def accumulate(state: Any, seen: Array | None = None, /, **values: Array) -> Any:
    """Returns `state` with each value added to the compensated sum of its name where `seen` is True (None: everywhere). Also updates `errors`."""
    sums, errors = {}, dict(state.errors)
    for name, value in values.items():
        sums[name], errors[name] = add_up(getattr(state, name), errors[name], value, seen)
    return state.replace(errors=errors, **sums)


@struct.dataclass
class Sum:
    """Compensated sum in a policy's state, which does not drift in many rounds (`add_up`).

    Attributes:
      total: `[...]` sum.
      error: `[...]` accumulated rounding error.
    """

    total: jax.Array
    error: jax.Array

    @classmethod
    def of(cls, total: jax.Array) -> "Sum":
        return cls(total, jnp.zeros_like(total))

    def add(self, value: Array, seen: Array | None = None) -> "Sum":
        """Returns the sum plus `value`. Elements where the mask `seen` is False stay as they are; None adds everywhere."""
        return Sum(*add_up(self.total, self.error, value, seen))

    def at(self, place: Index) -> "Sum":
        """Returns the sum at index `place` of the first axis, if this is an array of sums. The index is clipped: negative ones count as 0."""
        return jax.tree.map(lambda x: at(x, (jnp.maximum(place, 0),)), self)

    def put(self, place: Index, one: "Sum") -> "Sum":
        """Returns this array of sums with the sum `one` at index `place` of the first axis. The index is clipped to the range."""
        return jax.tree.map(lambda table, x: put(table, (jnp.maximum(place, 0),), x), self, one)


def members(groups: Sequence[int] | np.ndarray) -> np.ndarray:
    """Returns a constant mask `[M, K]`: whether element k is in group m. `groups` has the group's index, 0 to M - 1, of each of the K elements."""
    return np.asarray(groups)[None, :] == np.arange(max(groups) + 1)[:, None]


def of_group(groups: Sequence[int] | np.ndarray, values: Array) -> jax.Array:
    """Returns `values[groups]`: for each of K elements the value of its group. `values` `[M]` has a value for each of M groups."""
    return jnp.sum(jnp.where(members(groups), values[:, None], jnp.zeros_like(values)[:, None]), axis=0)


def combine(x: Array, rows: Array) -> jax.Array:
    """Returns `sum_i x[i] * rows[i]`, `[...]`, for a vector `x` `[d]` and `rows` `[d, ...]`, which may both differ between runs.

    If `rows` is `[d, ..., K]`, `x` may be `[d, K]`, a separate vector for each index of the last axis. Up to 64 terms are unrolled: XLA's sum over
    the first axis is 2 to 10 times slower.
    """
    size = x.shape[0]
    if size > _MOST_TERMS and x.ndim == 1 and rows.ndim == 2:
        return jnp.dot(x, rows, precision=lax.Precision.HIGHEST)
    if size > _MOST_TERMS:
        return jnp.sum(x.reshape(size, *(1,) * (rows.ndim - x.ndim), *x.shape[1:]) * rows, axis=0)
    pairs = zip(*(lax.split(each, (1,) * size) for each in (x, rows)), strict=True)
    return functools.reduce(operator.add, [lax.squeeze(a, (0,)) * lax.squeeze(b, (0,)) for a, b in pairs])


@jax.jit
def has_nan(values: Array) -> jax.Array:
    """Whether any element of `values` is NaN, which is the case if their maximum is NaN.

    XLA does not vectorise a reduction of booleans over runs. The maximum of more than 32 elements is computed by parts, which is five times as fast.
    The compiler in `jaxroute.kernels` recognises calls by the name `has_nan`, which must stay.
    """
    values = values.reshape(-1)
    if values.size >= _LARGE_TABLE:
        while values.size > _VECTORS * _WIDTH and values.size % (_VECTORS * _WIDTH) == 0:
            values = xla.compute_once(jnp.max(values.reshape(-1, _VECTORS, _WIDTH), axis=1)).reshape(-1)
    while values.size > xla.CHUNK and values.size % xla.CHUNK == 0:
        values = xla.compute_once(jnp.max(values.reshape(-1, xla.CHUNK), axis=-1))
    return jnp.isnan(jnp.max(values))


def project(x: Array, table: Array) -> jax.Array:
    """Returns the product `x @ table` of a vector `[d]` and a matrix `[d, n]` that all runs share, in full float32 precision on every device."""
    return jnp.dot(x, table, precision=lax.Precision.HIGHEST)


def inverse_cdf(probabilities: Array, u: Any) -> jax.Array:
    """Draws an index with the given `probabilities` `[K]` from a uniform number `u` in [0, 1).

    The probabilities need not sum exactly to one. An index of probability zero is never drawn, except 0 if all are zero.
    """
    terms = lax.split(xla.compute_once(probabilities), (1,) * probabilities.shape[0])
    cumulative = list(itertools.accumulate(lax.squeeze(term, (0,)) for term in terms))
    threshold = u * cumulative[-1]
    passed = [partial <= threshold for partial in cumulative]
    index = functools.reduce(operator.add, (flag.astype(jnp.int32) for flag in passed))
    last = jnp.max(jnp.where(probabilities > 0, lax.iota(jnp.int32, probabilities.shape[0]), 0), axis=-1)
    return jnp.minimum(index, last)
