"""Small numerical primitives of the hot path: choices, ranks and one-hot views without gathers, sorts or float-equality traps.

A compiled comparison may recompute a score with another rounding than the value it is compared with. Every function here
compares values of one materialised array (`optimization_barrier`), so a choice always picks exactly one element and a rank is
always a permutation.
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

from jaxroute.core import primitives, xla

Array = jax.Array | np.ndarray
Index = jax.Array | np.ndarray | int

# So many terms of a sum are written out.
_MOST_TERMS = 64
# In tables of so many numbers and more so many vectors are compared at a time, each of so many numbers.
_LARGE_TABLE, _VECTORS, _WIDTH = 2**17, 64, 16


def one_hot(index: Index, size: int) -> jax.Array:
    """Mask `[size]` that is True at `index`; all False if `index` is out of range."""
    return lax.iota(jnp.int32, size) == index


@jax.jit
def pick(mask: Array, values: Array) -> jax.Array:
    """The element of `values` (`[K]` or `[..., K]`) where the one-hot `mask` (`[K]`) is True; zero if it has no True."""
    return jnp.sum(jnp.where(mask, values, jnp.zeros_like(values)), axis=-1)


def take(values: Array, index: Index) -> jax.Array:
    """`values[..., index]` of `values` `[..., K]`; an index out of range is moved to the nearest end.

    For a few elements `pick` is faster; from about a hundred on, and for an index that differs between runs, this one.
    """
    return lax.dynamic_index_in_dim(values, index, axis=values.ndim - 1, keepdims=False)


def put(table: Array, index: Sequence[Index], value: Any) -> jax.Array:
    """`table` with `table[index] = value`, where `index` names a place along each of the first axes.

    In place, if the table is not used any more: for large tables of which few elements change. An index out of range is moved to the
    nearest end. `value`: of the shape of what is left of the table.
    """
    free = table.ndim - len(index)  # axes that are written in full
    value = jnp.reshape(value, (*([1] * len(index)), *table.shape[len(index) :])).astype(table.dtype)
    zero = jnp.int32(0)
    return lax.dynamic_update_slice(table, value, (*(jnp.asarray(i, jnp.int32) for i in index), *[zero] * free))


def at(table: Array, index: Sequence[Index]) -> jax.Array:
    """`table[index]`, where `index` names a place along each of the first axes; see `put`."""
    sizes = (*([1] * len(index)), *table.shape[len(index) :])
    starts = (*(jnp.asarray(i, jnp.int32) for i in index), *[jnp.int32(0)] * (table.ndim - len(index)))
    return jnp.reshape(lax.dynamic_slice(table, starts, sizes), table.shape[len(index) :])


def argmax(score: Array, allowed: Array | None = None, order: Array | None = None) -> jax.Array:
    """Index of the largest element of `score` `[K]` among the allowed ones; int32 `[]`.

    The one rule for ties of all policies: of equal elements the first in `order` is taken, a random order of the models that a policy draws
    from its key (`draws.order`), for the whole run where it keeps it in its state. What a policy earns does then not depend on how models are
    numbered. Without an order ties go to the lowest index: for scores that are drawn, and where the numbers mean something (places in a queue).

    With nothing allowed, or NaN in the score, the result is `K`: out of range, and `one_hot` of it is empty.
    """
    return primitives.first_best(score, allowed, order)


def argmin(score: Array, allowed: Array | None = None, order: Array | None = None) -> jax.Array:
    """Index of the smallest element; see `argmax`."""
    return argmax(-score, allowed, order)


def rank(*keys: Array, together: np.ndarray | None = None) -> jax.Array:
    """Position of each element in the order of lexicographic keys (see `amount_ahead`), int32 `[K]`: 0 is first."""
    return xla.weighted_sum_over_better(jnp.ones(keys[0].shape[-1:], jnp.int32), *keys, together=together)


def prefix_sums(values: Array) -> jax.Array:
    """Inclusive prefix sums of `[K]`, written out: for short axes cheaper than a scan, and order-stable."""
    return xla.weighted_sum_over_better(values) + values


def add_up(total: jax.Array, error: jax.Array, value: Array, seen: Array | None = None) -> tuple[jax.Array, jax.Array]:
    """Adds to a sum that does not drift in 2^31 rounds: what rounding takes from it is added the next time.

    A plain float32 sum of a million equal numbers is off by up to a percent, and one of ones stops at 2^24. This one is exact for whole numbers;
    the error of others is at most some millionths of the sum of their sizes.

    Source: Kahan (1965), compensated summation.

    Args:
      total: sum so far, any shape.
      error: what rounding has left out of it, of the same shape; zero at first.
      value: what is added, which broadcasts to that shape.
      seen: bool, likewise, where it is added; None for everywhere.

    Returns:
      The new `(total, error)`.
    """
    given = jnp.asarray(value) + error
    if seen is not None:
        given = jnp.where(seen, given, 0.0)
    new = total + given
    left = given - (new - total)
    return new, left if seen is None else jnp.where(seen, left, error)


def no_errors(**sums: jax.Array) -> dict[str, jax.Array]:
    """`errors` of the sums of a new state, by the names of its fields: for `accumulate`."""
    return {name: jnp.zeros_like(value) for name, value in sums.items()}


def accumulate(state: Any, seen: Array | None = None, /, **values: Array) -> Any:
    """A state with values added to its sums, by the names of its fields, as in `add_up`; its field `errors` is from `no_errors`."""
    sums, errors = {}, dict(state.errors)
    for name, value in values.items():
        sums[name], errors[name] = add_up(getattr(state, name), errors[name], value, seen)
    return state.replace(errors=errors, **sums)


@struct.dataclass
class Sum:
    """A separate sum, as in `add_up`.

    Attributes:
      total: `[...]` the sum.
      error: `[...]` what rounding has left out of it.
    """

    total: jax.Array
    error: jax.Array

    @classmethod
    def of(cls, total: jax.Array) -> "Sum":
        """Sum of a first value."""
        return cls(total, jnp.zeros_like(total))

    def add(self, value: Array, seen: Array | None = None) -> "Sum":
        """Sum with one more value."""
        return Sum(*add_up(self.total, self.error, value, seen))

    def at(self, place: Index) -> "Sum":
        """Sum at one place of the first axis; below 0 is the first."""
        return jax.tree.map(lambda x: at(x, (jnp.maximum(place, 0),)), self)

    def put(self, place: Index, one: "Sum") -> "Sum":
        """Sum with another one at a place of the first axis, in place as by `numerics.put`."""
        return jax.tree.map(lambda table, x: put(table, (jnp.maximum(place, 0),), x), self, one)


def members(groups: Sequence[int] | np.ndarray) -> np.ndarray:
    """Which of `K` elements are in which of `M` groups, from the group of each: bool `[M, K]`, static."""
    return np.asarray(groups)[None, :] == np.arange(max(groups) + 1)[:, None]


def of_group(groups: Sequence[int] | np.ndarray, values: Array) -> jax.Array:
    """The value of each element's group: `[K]` from `[M]`."""
    return jnp.sum(jnp.where(members(groups), values[:, None], jnp.zeros_like(values)[:, None]), axis=0)


def combine(x: Array, rows: Array) -> jax.Array:
    """`sum_i x[i] rows[i]` of `x` `[d]` and `rows` `[d, ...]`: the product of a matrix that every run has for itself with a vector.

    An `x` `[d, K]` has a vector for each place of the last axis of `rows`.

    Up to 64 terms are written out: a reduction over an axis that is not the last is not vectorised over runs, and takes 2 to 10 times
    as long. Of larger matrices few runs are played at a time: one, for which a product by the library takes a fifth of the time.
    """
    size = x.shape[0]
    if size > _MOST_TERMS and x.ndim == 1 and rows.ndim == 2:
        return jnp.dot(x, rows, precision=lax.Precision.HIGHEST)
    if size > _MOST_TERMS:
        return jnp.sum(x.reshape(size, *(1,) * (rows.ndim - x.ndim), *x.shape[1:]) * rows, axis=0)
    ones = (1,) * size
    terms = [
        lax.squeeze(a, (0,)) * lax.squeeze(b, (0,)) for a, b in zip(lax.split(x, ones), lax.split(rows, ones), strict=True)
    ]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


@jax.jit
def has_nan(values: Array) -> jax.Array:
    """Whether a number of `values` `[...]` is NaN, bool: the largest one is. A call by its name, for which kernels have a loop of their own.

    A reduction of booleans is not vectorised over runs: with it this was a quarter of a round of COSMOS with an unknown evaluator. The
    largest number of a long table is that of parts of 32, and so on: XLA makes windows of a longer reduction, and takes five times as long.
    Tables of which few runs fit in memory at a time are compared as vectors of 16, in a ninth of the time.
    """
    values = values.reshape(-1)
    if values.size >= _LARGE_TABLE:
        while values.size > _VECTORS * _WIDTH and values.size % (_VECTORS * _WIDTH) == 0:
            values = xla.compute_once(jnp.max(values.reshape(-1, _VECTORS, _WIDTH), axis=1)).reshape(-1)
    while values.size > xla.CHUNK and values.size % xla.CHUNK == 0:
        values = xla.compute_once(jnp.max(values.reshape(-1, xla.CHUNK), axis=-1))
    return jnp.isnan(jnp.max(values))


def project(x: Array, table: Array) -> jax.Array:
    """`x @ table` of `x` `[d]` and a `table` `[d, P]` that all runs share: over the runs a product of matrices.

    In full float32 precision, also where an accelerator would round its operands.
    """
    return jnp.dot(x, table, precision=lax.Precision.HIGHEST)


def how_many(flags: Sequence[jax.Array]) -> jax.Array:
    """Number of flags that hold, int32 `[]`."""
    return functools.reduce(operator.add, (flag.astype(jnp.int32) for flag in flags))


def inverse_cdf(probabilities: Array, u: Any) -> jax.Array:
    """Index drawn from `probabilities` `[K]` with one uniform `u` in [0, 1); never an element of probability zero.

    The probabilities need not sum exactly to one. With all of them zero the result is 0.
    """
    cumulative = xla.partial_sums(probabilities)
    threshold = u * cumulative[-1]
    index = how_many([partial <= threshold for partial in cumulative])
    last = jnp.max(jnp.where(probabilities > 0, lax.iota(jnp.int32, probabilities.shape[0]), 0), axis=-1)
    return jnp.minimum(index, last)
