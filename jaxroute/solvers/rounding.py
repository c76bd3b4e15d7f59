"""Randomised rounding of a fractional selection to a set, with exactly preserved marginals and negative correlation.

All functions take their uniform random numbers as an argument and have a fixed number of operations.
"""

import functools
import operator
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxroute.core import numerics, xla
from jaxroute.solvers import boundary

# A coordinate this close to 0 or 1 is integral: float32 sums of 32 fractions are exact to about 2e-6.
TOLERANCE = 1e-5
# Bits of a word.
_WORD = 32


def _fractional(x: Array) -> Array:
    return (x > TOLERANCE) & (x < 1.0 - TOLERANCE)


def _at(values: Array, place: Array) -> Array:
    """Returns the elements of the vector `values` at the indices `place`, which are whole numbers stored as floats; zero if out of range."""
    places = lax.iota(jnp.int32, values.shape[-1]).astype(values.dtype)
    return jnp.sum(jnp.where(place[:, None] == places[None, :], values[None, :], 0.0), axis=1)


def pairwise(z: Array, uniforms: Array, *, whole_sum: bool) -> Array:
    """Rounds a fractional selection to a set, `[K]` bool, by pairwise (dependent) rounding: two fractional coordinates at a time.

    Each step (a meeting) takes the two fractional coordinates of lowest index, sets one of them to 0 or 1 and gives the remainder to the other one.
    Each model is in the set with probability `z`. The size is the floor or ceiling of the sum of `z`. The probability that several given models are
    all selected (or all left out) is at most the product of their probabilities.

    Source: Gandhi, Khuller, Parthasarathy and Srinivasan (2006); C2MAB-V, Algorithm 3.

    Args:
      z: `[K]` in [0, 1].
      uniforms: `[K]` on [0, 1): one per meeting, and the last one to round the coordinate that remains fractional.
      whole_sum: whether the sum of `z` is an integer (static). The remaining coordinate is then 0 or 1 up to rounding, and needs no random draw.
    """
    z = boundary.vector("z", z)
    size = z.shape[0]
    values, coins = ([lax.squeeze(row, (0,)) for row in lax.split(rows, (1,) * size)] for rows in xla.barrier((z, uniforms)))
    index = jnp.zeros((), jnp.int32)  # the current coordinate and its value
    value = values[0]
    # Storing the set as bits takes one pass over the meetings; a mask `[K]` would take one pass for each of its elements.
    words = [jnp.zeros((), jnp.uint32)] * (1 + (size - 1) // _WORD)

    def settle(place: Array | int, is_in: Array) -> None:
        for w in range(len(words)):
            here = is_in & (place // _WORD == w)
            words[w] |= jnp.where(here, jnp.uint32(1) << (place % _WORD).astype(jnp.uint32), jnp.uint32(0))

    for k in range(1, size):
        meet = _fractional(value) & _fractional(values[k])
        up, down = jnp.minimum(1.0 - value, values[k]), jnp.minimum(value, 1.0 - values[k])
        raise_carried = coins[k - 1] * (up + down) < down
        shift = jnp.where(meet, jnp.where(raise_carried, up, -down), 0.0)
        carried, other = value + shift, values[k] - shift
        stay = _fractional(carried)
        settle(jnp.where(stay, k, index), jnp.where(stay, other, carried) > 0.5)
        index, value = jnp.where(stay, index, k), jnp.where(stay, carried, other)
    settle(index, value > (0.5 if whole_sum else jnp.where(_fractional(value), coins[size - 1], 0.5)))
    number = lax.iota(jnp.uint32, size)
    return functools.reduce(
        operator.or_,
        [(number // _WORD == w) & ((word >> (number % _WORD)) & 1 == 1) for w, word in enumerate(xla.barrier(tuple(words)))],
    )


def _sets_between(upper: Array, points: Array) -> tuple[Array, Array]:
    """Writes a selection `z` as a mixture of `n` sets by systematic sampling. Returns their weights `[n]` (some may be 0) and masks `[n, K]` bool.

    `upper` `[K]` are the prefix sums of `z`, which bound an interval for each model. An offset `u` in (0, 1] selects each model whose interval
    contains one of `u, u + 1, ...`. As `u` grows, the set changes only at `points` `[n]`: the fractional parts of `upper` in any order, then 1.
    """
    size = points.shape[-1]
    # Sorts by rank, without gathers.
    order = numerics.rank(-points)
    place = order[None, :] == lax.iota(jnp.int32, size)[:, None]
    points = jnp.sum(jnp.where(place, points[None, :], 0.0), axis=1)
    before = jnp.concatenate([jnp.zeros((1,), points.dtype), points[:-1]])
    weight, middle = points - before, 0.5 * (points + before)
    steps = jnp.ceil(upper[None, :] - middle[:, None])
    first = jnp.ceil(-middle)[:, None]
    members = steps - jnp.concatenate([first, steps[:, :-1]], axis=1) > 0.5
    return weight, members


def swap(z: Array, uniforms: Array, surplus_uniforms: Array) -> Array:
    """Rounds a fractional selection to a set, `[K]` bool, by swap rounding.

    It writes the selection as a mixture of sets and merges them one by one; random draws decide which elements remain.

    A merge of two sets pairs the r-th lowest element that only the first has with the r-th lowest that only the second has. One of a pair remains,
    with a probability proportional to the weight of its set. If one set is larger by one, the lowest element that it alone has is unpaired, and
    remains with the same probability. If `z` is a vertex of the polytope given by a budget and a size, only two sets have positive weights, and only
    the last merge is computed.

    Source: Chekuri, Vondrak and Zenklusen (2010); C2MAB-V, Algorithm 2.

    Differs from the paper: `K + 1` sets, because the `K` sets of the paper do not suffice if the sum is not an integer.

    Args:
      z: `[K]` in [0, 1].
      uniforms: `[K, M]` on [0, 1): one per merge and pair, `M` at least the largest size of a set.
      surplus_uniforms: `[K]` on [0, 1): one per merge, for the element without a partner.
    """
    return swap_with(boundary.vector("z", z), lambda merges: uniforms[merges], lambda merges: surplus_uniforms[merges])


def swap_with(z: Array, trades: Callable[[np.ndarray], Array], surplus: Callable[[np.ndarray], Array]) -> Array:
    """Rounds `z` like `swap`, but calls functions for the uniforms: for `n` merge indices, `trades` returns `[n, M]` and `surplus` `[n]`."""
    size = z.shape[-1]
    upper = numerics.prefix_sums(z)
    # Sums that are integers up to rounding are rounded; otherwise a set could be too large by one model.
    upper = jnp.where(_fractional(upper - jnp.floor(upper)), upper, jnp.round(upper))
    upper, fraction = xla.barrier((upper, upper - jnp.floor(upper)))
    largest = xla.barrier(jnp.max(fraction))

    def merged(points: Array) -> Array:
        return _merged(*_sets_between(upper, points), trades, surplus)

    if size == 1:
        return merged(jnp.stack([largest, jnp.ones_like(largest)]))
    # Fractions that differ only by rounding are equal, modulo one.
    several = jnp.any((fraction > 0.0) & (fraction < largest - TOLERANCE))
    chosen = merged(jnp.stack([largest, jnp.ones_like(largest)]))
    # One branch for all runs together: a branch for each run would take longer to compile than everything else.
    needed = xla.largest_over_runs(several.astype(jnp.int32)) > 0
    return lax.cond(
        needed,
        lambda: jnp.where(several, merged(jnp.concatenate([fraction, jnp.ones((1,), z.dtype)])), chosen),
        lambda: chosen,
    )


def _merged(
    weight: Array, members: Array, trades: Callable[[np.ndarray], Array], surplus: Callable[[np.ndarray], Array]
) -> Array:
    """Merges `n` sets, with masks `members` `[n, K]` and weights `weight` `[n]`, to one set `[K]` bool; `trades`, `surplus` as in `swap_with`."""
    count, size = members.shape
    merges = np.arange(size - count + 1, size)
    members = members.astype(weight.dtype)  # Masks as numbers, because booleans are not vectorised together with the coins.
    weight, members, uniforms, surplus_uniforms = xla.barrier((weight, members, trades(merges), surplus(merges)))

    def merge(m: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        kept, kept_weight = carry
        new, new_weight = numerics.at(members, (m + 1,)), numerics.at(weight, (m + 1,))
        coins, surplus_coin = numerics.at(uniforms, (m,)), numerics.at(surplus_uniforms, (m,))
        grows = jnp.sum(kept) < jnp.sum(new)
        b1, b2 = xla.compute_once((jnp.where(grows, new, kept), jnp.where(grows, kept, new)))
        q2 = jnp.where(grows, kept_weight, new_weight)
        total = kept_weight + new_weight
        common = b1 * b2
        only1, only2 = b1 - common, b2 - common
        more = jnp.sum(only1) - jnp.sum(only2)  # 0 or 1
        rank1, rank2 = numerics.prefix_sums(only1) - 1.0 - more, numerics.prefix_sums(only2) - 1.0
        surplus = only1 * (rank1 < 0.0)
        take = (coins * total < q2).astype(weight.dtype)  # whether the r-th trade takes the element of b2
        stay = (surplus_coin * total >= q2).astype(weight.dtype)
        kept = common + (only1 - surplus) * (1.0 - _at(take, rank1)) + only2 * _at(take, rank2) + surplus * stay
        return kept, total

    kept, _ = xla.repeat(count - 1, merge, (members[0], weight[0]))
    return kept > 0.5
