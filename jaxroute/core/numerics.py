"""Small numerical primitives of the hot path: choices, ranks and one-hot views without gathers, sorts or float-equality traps.

A compiled comparison may recompute a score with another rounding than the value it is compared with. Every function here
compares values of one materialised array (`optimization_barrier`), so a choice always picks exactly one element and a rank is
always a permutation.
"""

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

from jaxroute.core import primitives
from jaxroute.core.primitives import kept as kept
from jaxroute.core.primitives import largest_over_runs as largest_over_runs
from jaxroute.core.primitives import on_a_gpu as on_a_gpu
from jaxroute.core.primitives import repeat as repeat
from jaxroute.core.primitives import sums as sums

Array = jax.Array | np.ndarray
Index = jax.Array | np.ndarray | int

# So many terms of a sum are written out.
_MOST_TERMS = 64
# So many terms of a sum over what is ahead are written out; of longer ones so many at a time.
_MOST_AHEAD, _TERMS_AHEAD = 16, 8
# Long axes are worked on in chunks of this many elements.
_CHUNK = 32
# In tables of so many numbers and more so many vectors are compared at a time, each of so many numbers.
_LARGE_TABLE, _VECTORS, _WIDTH = 2**17, 64, 16


def materialised(value: Any) -> Any:
    """`value`, an array or a pytree of arrays, behind a barrier on every device: computed and rounded once in kernels and on a GPU.

    For what is compared with itself (a score with its maximum, which might otherwise be computed twice with different rounding), and for
    what is read from a table before the table is written in place (which would otherwise be copied). For speed alone, `kept` is cheaper.
    In a scan on a CPU a sum of two products may still be rounded twice: XLA drops barriers before it fuses.
    """
    return lax.optimization_barrier(value)


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


def padded(size: int) -> int:
    """Length of an axis that `fold` can work on: whole chunks, if there are several."""
    return size if size <= _CHUNK else -(-size // _CHUNK) * _CHUNK


def fold(leaves: Any, in_use: Index, start: Any, step: Callable[[Any, Any, jax.Array], Any]) -> Any:
    """`step(carry, chunk of the leaves, first index)` over all chunks of the last axis up to index `in_use`.

    For tables that fill up as the rounds go on: what is not in use yet costs nothing.

    Args:
      leaves: pytree of arrays `[..., B]`, with `B` from `padded`.
      in_use: `[]` int32, the same in all runs, see `largest_over_runs`; what comes later may be looked at, or not.
      start: first carry.
      step: function of the carry, a chunk of the leaves `[..., 32]`, and the index of its first element.

    Returns:
      The last carry.
    """
    size = jax.tree.leaves(leaves)[0].shape[-1]
    if size <= _CHUNK:
        return step(start, leaves, jnp.int32(0))

    shapes = jax.tree.leaves(jax.eval_shape(lambda: start))
    alike = {
        kind: [i for i, x in enumerate(shapes) if (x.shape, x.dtype) == kind]
        for kind in {(x.shape, x.dtype): None for x in shapes}
    }
    structure = jax.tree.structure(start)

    def pack(carry: Any) -> list[jax.Array]:
        """Numbers of one kind as one array: a loop copies and updates each array of its carry by itself."""
        values = jax.tree.leaves(carry)
        return [jnp.stack([values[i] for i in places]) for places in alike.values()]

    def unpack(packed: list[jax.Array]) -> Any:
        values = {i: x[n] for x, places in zip(packed, alike.values(), strict=True) for n, i in enumerate(places)}
        return jax.tree.unflatten(structure, [values[i] for i in range(len(values))])

    def body(number: jax.Array, packed: list[jax.Array]) -> list[jax.Array]:
        first = number * _CHUNK
        part = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, first, _CHUNK, axis=x.ndim - 1), leaves)
        return primitives.kept(pack(step(unpack(packed), primitives.kept(part), first)))

    return unpack(lax.fori_loop(0, (jnp.minimum(in_use, size) + _CHUNK - 1) // _CHUNK, body, pack(start)))


def rewrite(leaves: Any, in_use: Index, step: Callable[[Any, jax.Array], Any]) -> Any:
    """The leaves with `step(chunk of the leaves, first index)` in place of each chunk of the last axis up to index `in_use`.

    In place, if the leaves are not used any more: a few elements that differ between runs are written by comparison with all places
    in use, which is faster than run by run.

    Args:
      leaves: pytree of arrays `[..., B]`, with `B` from `padded`.
      in_use: `[]` int32, the same in all runs, see `largest_over_runs`; what comes later may be written, or not.
      step: function of a chunk of the leaves `[..., 32]` and the index of its first element.
    """
    size = jax.tree.leaves(leaves)[0].shape[-1]
    if size <= _CHUNK:
        return step(leaves, jnp.int32(0))

    def body(number: jax.Array, leaves: Any) -> Any:
        first = number * _CHUNK
        part = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, first, _CHUNK, axis=x.ndim - 1), leaves)
        new = primitives.kept(step(primitives.kept(part), first))
        return jax.tree.map(lambda x, y: lax.dynamic_update_slice_in_dim(x, y, first, axis=x.ndim - 1), leaves, new)

    return lax.fori_loop(0, (jnp.minimum(in_use, size) + _CHUNK - 1) // _CHUNK, body, leaves)


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


def sum_ahead(
    values: Array,
    keys: Sequence[Array],
    ahead: Callable[[Sequence[Any], Sequence[Any]], Any],
    *,
    together: np.ndarray | None = None,
    start: Array | None = None,
) -> jax.Array:
    """Sum of `values` `[K]` over the elements that are ahead of each element; `[K]`.

    The sum is written out, one term per element, eight at a time if there are more than 16: a reduction over one axis of a `[K, K]` comparison
    is not vectorised over runs, and takes two to three times as long.

    Args:
      values: `[K]`.
      keys: arrays `[K]`.
      ahead: function `(keys of another element, keys of this one) -> bool`, elementwise: whether the other one is ahead.
      together: `[K, K]` bool, which elements count for which at all (static; default all for all).
      start: `[K]` what the sums begin with (default zero).
    """
    zero = jnp.zeros_like(values)
    total = zero if start is None else start
    size = values.shape[-1]
    if size <= _MOST_AHEAD:
        for j in range(size):
            mask = ahead([k[j] for k in keys], keys)
            total += jnp.where(mask if together is None else mask & together[j], values[j], zero)
        return primitives.kept(total)  # or it would be computed again in every place that uses it

    # The same terms in the same order, some at a time: a program that does not grow with the size.
    pad = -size % _TERMS_AHEAD
    others = [jnp.pad(x, (0, pad)) for x in (jnp.asarray(values), *map(jnp.asarray, keys))]
    counts = None if together is None else jnp.asarray(np.pad(together, ((0, pad), (0, 0))))

    def add(chunk: jax.Array, total: jax.Array) -> jax.Array:
        first = chunk * _TERMS_AHEAD
        amounts, *others_keys = primitives.kept([lax.dynamic_slice_in_dim(x, first, _TERMS_AHEAD) for x in others])
        rows = None if counts is None else lax.dynamic_slice_in_dim(counts, first, _TERMS_AHEAD)
        for j in range(_TERMS_AHEAD):
            mask = ahead([k[j] for k in others_keys], keys)
            total += jnp.where(mask if rows is None else mask & rows[j], amounts[j], zero)
        return total

    return primitives.kept(lax.fori_loop(0, (size + pad) // _TERMS_AHEAD, add, total))


def amount_ahead(values: Array, *keys: Array, together: np.ndarray | None = None) -> jax.Array:
    """Sum of `values` `[K]` over the elements that rank ahead of each element, in the order of lexicographic keys; `[K]`.

    Larger keys come first; remaining ties are broken by the lower index, so that the order is total.

    Args:
      values: `[K]`.
      keys: arrays `[K]` (or booleans), most significant first; pass `-x` to prefer small `x`.
      together: as for `sum_ahead`.
    """
    ranked = [k.astype(jnp.int32) if k.dtype == jnp.bool_ else k for k in keys]
    ranked = [lax.optimization_barrier(k) if jnp.issubdtype(k.dtype, jnp.floating) else primitives.kept(k) for k in ranked]

    def ahead(others: Sequence[Any], these: Sequence[Any]) -> Any:
        result = others[-1] < these[-1]
        for other, key in zip(others[-2::-1], these[-2::-1], strict=True):
            result = (other > key) | ((other == key) & result)
        return result

    return sum_ahead(values, [*ranked, np.arange(values.shape[-1], dtype=np.int32)], ahead, together=together)


def rank(*keys: Array, together: np.ndarray | None = None) -> jax.Array:
    """Position of each element in the order of lexicographic keys (see `amount_ahead`), int32 `[K]`: 0 is first."""
    return amount_ahead(jnp.ones(keys[0].shape[-1:], jnp.int32), *keys, together=together)


def prefix_sums(values: Array) -> jax.Array:
    """Inclusive prefix sums of `[K]`, written out: for short axes cheaper than a scan, and order-stable."""
    return amount_ahead(values) + values


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
            values = kept(jnp.max(values.reshape(-1, _VECTORS, _WIDTH), axis=1)).reshape(-1)
    while values.size > _CHUNK and values.size % _CHUNK == 0:
        values = kept(jnp.max(values.reshape(-1, _CHUNK), axis=-1))
    return jnp.isnan(jnp.max(values))


def project(x: Array, table: Array) -> jax.Array:
    """`x @ table` of `x` `[d]` and a `table` `[d, P]` that all runs share: over the runs a product of matrices.

    In full float32 precision, also where an accelerator would round its operands.
    """
    return jnp.dot(x, table, precision=lax.Precision.HIGHEST)


def partial_sums(values: Array) -> list[jax.Array]:
    """`values[0]`, `values[0] + values[1]`, ... of `values` `[K]`, each an array of its own: for what uses them at once."""
    terms = lax.split(primitives.kept(values), (1,) * values.shape[0])
    return list(itertools.accumulate(lax.squeeze(term, (0,)) for term in terms))


def how_many(flags: Sequence[jax.Array]) -> jax.Array:
    """Number of flags that hold, int32 `[]`."""
    return functools.reduce(operator.add, (flag.astype(jnp.int32) for flag in flags))


def inverse_cdf(probabilities: Array, u: Any) -> jax.Array:
    """Index drawn from `probabilities` `[K]` with one uniform `u` in [0, 1); never an element of probability zero.

    The probabilities need not sum exactly to one. With all of them zero the result is 0.
    """
    cumulative = partial_sums(probabilities)
    threshold = u * cumulative[-1]
    index = how_many([partial <= threshold for partial in cumulative])
    last = jnp.max(jnp.where(probabilities > 0, lax.iota(jnp.int32, probabilities.shape[0]), 0), axis=-1)
    return jnp.minimum(index, last)
