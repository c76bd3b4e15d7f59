"""Control of how XLA computes: barriers, values that are computed once, and loops over chunks of long axes.

For authors of large policies. Most policies need `jaxroute.numerics` alone.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxroute.core.primitives import compute_once as compute_once
from jaxroute.core.primitives import largest_over_runs as largest_over_runs
from jaxroute.core.primitives import on_a_gpu as on_a_gpu
from jaxroute.core.primitives import repeat as repeat
from jaxroute.core.primitives import sums as sums

Array = jax.Array | np.ndarray
Index = jax.Array | np.ndarray | int

# A sum over better elements is written out up to this size; a longer one by a loop over chunks of this many terms.
_MOST_AHEAD, _TERMS_AHEAD = 16, 8
# Long axes are processed in chunks of this many elements.
CHUNK = 32


def barrier(value: Any) -> Any:
    """Returns an array or pytree behind an optimisation barrier on every device: kernels and GPUs compute and round it once.

    For a value that is compared with itself (a score and its maximum), and for a value that is read from a table before the table is
    updated in place. For speed alone `compute_once` is cheaper. In a scan on a CPU a sum of two products may still be rounded twice:
    XLA drops barriers before it fuses.
    """
    return lax.optimization_barrier(value)


def chunked_size(size: int) -> int:
    """Rounds the length of an axis up to whole chunks, as `chunked_fold` needs it."""
    return size if size <= CHUNK else -(-size // CHUNK) * CHUNK


def chunked_fold(leaves: Any, in_use: Index, start: Any, step: Callable[[Any, Any, jax.Array], Any]) -> Any:
    """Folds `step` over the chunks of the last axis up to index `in_use`; the unused part of a growing table costs nothing.

    Args:
      leaves: pytree of arrays `[..., B]`, with `B` from `chunked_size`.
      in_use: `[]` int32, the same in all runs (`largest_over_runs`); later elements may or may not be visited.
      start: initial carry.
      step: function of the carry, a chunk `[..., 32]` of the leaves, and the index of its first element.

    Returns:
      The final carry.
    """
    size = jax.tree.leaves(leaves)[0].shape[-1]
    if size <= CHUNK:
        return step(start, leaves, jnp.int32(0))

    shapes = jax.tree.leaves(jax.eval_shape(lambda: start))
    alike = {
        kind: [i for i, x in enumerate(shapes) if (x.shape, x.dtype) == kind]
        for kind in {(x.shape, x.dtype): None for x in shapes}
    }
    structure = jax.tree.structure(start)

    def pack(carry: Any) -> list[jax.Array]:
        """Stacks arrays of equal shape and type: a loop copies and updates each array of its carry separately."""
        values = jax.tree.leaves(carry)
        return [jnp.stack([values[i] for i in places]) for places in alike.values()]

    def unpack(packed: list[jax.Array]) -> Any:
        values = {i: x[n] for x, places in zip(packed, alike.values(), strict=True) for n, i in enumerate(places)}
        return jax.tree.unflatten(structure, [values[i] for i in range(len(values))])

    def body(number: jax.Array, packed: list[jax.Array]) -> list[jax.Array]:
        first = number * CHUNK
        part = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, first, CHUNK, axis=x.ndim - 1), leaves)
        return compute_once(pack(step(unpack(packed), compute_once(part), first)))

    return unpack(lax.fori_loop(0, (jnp.minimum(in_use, size) + CHUNK - 1) // CHUNK, body, pack(start)))


def chunked_map_inplace(leaves: Any, in_use: Index, step: Callable[[Any, jax.Array], Any]) -> Any:
    """Replaces each chunk of the last axis up to index `in_use` by `step(chunk, first index)`, in place if the leaves are not used afterwards.

    To write elements whose index differs between runs, comparison with all used indices is faster than a scatter.

    Args:
      leaves: pytree of arrays `[..., B]`, with `B` from `chunked_size`.
      in_use: `[]` int32, the same in all runs (`largest_over_runs`); later elements may or may not be written.
      step: function of a chunk `[..., 32]` of the leaves and the index of its first element.
    """
    size = jax.tree.leaves(leaves)[0].shape[-1]
    if size <= CHUNK:
        return step(leaves, jnp.int32(0))

    def body(number: jax.Array, leaves: Any) -> Any:
        first = number * CHUNK
        part = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, first, CHUNK, axis=x.ndim - 1), leaves)
        new = compute_once(step(compute_once(part), first))
        return jax.tree.map(lambda x, y: lax.dynamic_update_slice_in_dim(x, y, first, axis=x.ndim - 1), leaves, new)

    return lax.fori_loop(0, (jnp.minimum(in_use, size) + CHUNK - 1) // CHUNK, body, leaves)


def sum_over_better(
    values: Array,
    keys: Sequence[Array],
    ahead: Callable[[Sequence[Any], Sequence[Any]], Any],
    *,
    together: np.ndarray | None = None,
    start: Array | None = None,
) -> jax.Array:
    """Returns, for each element, the sum of `values` `[K]` over the elements that are better; `[K]`.

    The sum is unrolled (eight terms at a time for more than 16): XLA does not vectorise a reduction over one axis of a `[K, K]` comparison over
    runs, which takes two to three times as long.

    Args:
      values: `[K]` terms.
      keys: arrays `[K]` to compare.
      ahead: elementwise function `(keys of another element, keys of this one) -> bool`: whether the other one is better.
      together: `[K, K]` static bool, pairs of elements that are compared (default: all).
      start: `[K]` initial sums (default: zero).
    """
    zero = jnp.zeros_like(values)
    total = zero if start is None else start
    size = values.shape[-1]
    if size <= _MOST_AHEAD:
        for j in range(size):
            mask = ahead([k[j] for k in keys], keys)
            total += jnp.where(mask if together is None else mask & together[j], values[j], zero)
        return compute_once(total)  # Otherwise each consumer would recompute it.

    # The same terms in the same order, in chunks: the size of the program does not grow with K.
    pad = -size % _TERMS_AHEAD
    others = [jnp.pad(x, (0, pad)) for x in (jnp.asarray(values), *map(jnp.asarray, keys))]
    counts = None if together is None else jnp.asarray(np.pad(together, ((0, pad), (0, 0))))

    def add(chunk: jax.Array, total: jax.Array) -> jax.Array:
        first = chunk * _TERMS_AHEAD
        amounts, *others_keys = compute_once([lax.dynamic_slice_in_dim(x, first, _TERMS_AHEAD) for x in others])
        rows = None if counts is None else lax.dynamic_slice_in_dim(counts, first, _TERMS_AHEAD)
        for j in range(_TERMS_AHEAD):
            mask = ahead([k[j] for k in others_keys], keys)
            total += jnp.where(mask if rows is None else mask & rows[j], amounts[j], zero)
        return total

    return compute_once(lax.fori_loop(0, (size + pad) // _TERMS_AHEAD, add, total))


def weighted_sum_over_better(values: Array, *keys: Array, together: np.ndarray | None = None) -> jax.Array:
    """Returns, for each element, the sum of `values` `[K]` over the elements that rank higher by lexicographic keys; `[K]`.

    Larger keys rank higher; remaining ties go to the lower index.

    Args:
      values: `[K]` terms.
      keys: numbers or booleans `[K]`, most significant first; pass `-x` to prefer small `x`.
      together: as for `sum_over_better`.
    """
    ranked = [k.astype(jnp.int32) if k.dtype == jnp.bool_ else k for k in keys]
    ranked = [lax.optimization_barrier(k) if jnp.issubdtype(k.dtype, jnp.floating) else compute_once(k) for k in ranked]

    def ahead(others: Sequence[Any], these: Sequence[Any]) -> Any:
        result = others[-1] < these[-1]
        for other, key in zip(others[-2::-1], these[-2::-1], strict=True):
            result = (other > key) | ((other == key) & result)
        return result

    return sum_over_better(values, [*ranked, np.arange(values.shape[-1], dtype=np.int32)], ahead, together=together)


def partial_sums(values: Array) -> list[jax.Array]:
    """Returns the prefix sums of `values` `[K]` as a list of scalars."""
    terms = lax.split(compute_once(values), (1,) * values.shape[0])
    return list(itertools.accumulate(lax.squeeze(term, (0,)) for term in terms))
