"""Small numerical primitives of the hot path: choices, ranks and one-hot views without gathers, sorts or float-equality traps.

A compiled comparison may recompute a score with another rounding than the value it is compared with. Every function here
compares values of one materialised array (`optimization_barrier`), so a choice always picks exactly one element and a rank is
always a permutation.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def one_hot(index, size: int) -> jax.Array:
    """Mask `[size]` that is True at `index`; all False if `index` is out of range."""
    return lax.iota(jnp.int32, size) == index


def pick(mask, values) -> jax.Array:
    """The element of `values` (`[K]` or `[..., K]`) where the one-hot `mask` (`[K]`) is True; zero if it has no True."""
    return jnp.sum(jnp.where(mask, values, jnp.zeros_like(values)), axis=-1)


def argmax(score, allowed=None) -> jax.Array:
    """Index of the largest element of `score` `[K]` among the allowed ones; ties go to the lowest index.

    With nothing allowed, or NaN in the score, the result is `K`: out of range, and `one_hot` of it is empty.
    """
    size = score.shape[-1]
    if allowed is not None:
        score = jnp.where(allowed, score, -jnp.inf)
    score = lax.optimization_barrier(score)
    best = lax.optimization_barrier(jnp.max(score, axis=-1))
    is_best = score == best
    if allowed is not None:
        is_best &= allowed
    return jnp.min(jnp.where(is_best, lax.iota(jnp.int32, size), size), axis=-1)


def argmin(score, allowed=None) -> jax.Array:
    """Index of the smallest element, ties to the lowest index; see `argmax`."""
    return argmax(-score, allowed)


def ahead(*keys) -> jax.Array:
    """Pairwise order by lexicographic keys: `[K, K]`, True at `[i, j]` if `j` ranks ahead of `i`.

    Larger keys come first; remaining ties are broken by the lower index, so that the order is total.

    keys: arrays `[K]` (or booleans), most significant first; pass `-x` to prefer small `x`.
    """
    size = keys[0].shape[-1]
    index = lax.iota(jnp.int32, size)
    result = index[None, :] < index[:, None]
    for key in reversed(keys):
        key = lax.optimization_barrier(key.astype(jnp.int32) if key.dtype == jnp.bool_ else key)
        other, own = key[None, :], key[:, None]
        result = (other > own) | ((other == own) & result)
    return result


def rank(*keys) -> jax.Array:
    """Position of each element in the order of `ahead`, int32 `[K]`: 0 is first."""
    return jnp.sum(ahead(*keys).astype(jnp.int32), axis=-1)


def prefix_sums(values) -> jax.Array:
    """Inclusive prefix sums of `[K]` by a triangular mask: for short axes cheaper than a scan, and order-stable."""
    size = values.shape[-1]
    lower = lax.iota(jnp.int32, size)[None, :] <= lax.iota(jnp.int32, size)[:, None]
    return jnp.sum(jnp.where(lower, values[None, :], 0.0), axis=-1)


def members(groups: Sequence[int] | np.ndarray) -> np.ndarray:
    """Which of `K` elements are in which of `M` groups, from the group of each: bool `[M, K]`, static."""
    return np.asarray(groups)[None, :] == np.arange(max(groups) + 1)[:, None]


def of_group(groups: Sequence[int] | np.ndarray, values) -> jax.Array:
    """The value of each element's group: `[K]` from `[M]`."""
    return jnp.sum(jnp.where(members(groups), values[:, None], jnp.zeros_like(values)[:, None]), axis=0)


def inverse_cdf(probabilities, u) -> jax.Array:
    """Index drawn from `probabilities` `[K]` with one uniform `u` in [0, 1); never an element of probability zero.

    The probabilities need not sum exactly to one. With all of them zero the result is 0.
    """
    size = probabilities.shape[-1]
    cumulative = lax.optimization_barrier(prefix_sums(probabilities))
    threshold = u * jnp.max(cumulative, axis=-1)
    index = jnp.sum((cumulative <= threshold).astype(jnp.int32), axis=-1)
    last = jnp.max(jnp.where(probabilities > 0, lax.iota(jnp.int32, size), 0), axis=-1)
    return jnp.minimum(index, last)
