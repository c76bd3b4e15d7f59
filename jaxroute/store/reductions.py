"""The statistics of a block where it was played: what `moments.summarise` computes on the host, on the device.

A GPU plays a million runs in less time than the host needs to look at them. So their curves stay there, and what comes back is of fixed size: the
same counts, minima, maxima and histograms, and means and sums of squares that differ by the order of sums.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxroute.store.statistics import LEAST, MAGNITUDE, NOTHING, SHIFT, Histogram, Moments

Key = tuple[Any, ...]
Curves = Mapping[str, jax.Array]


def reduced(
    curves: Sequence[Curves], singles: Sequence[Key], pairs: Sequence[Key], runs_axis: Sequence[int]
) -> tuple[list[Moments], Histogram]:
    """Moments of arrays and of differences, and the histogram of the arrays' rows one after the other.

    Args:
      curves: of each policy, arrays with the runs along `runs_axis`, and `valid`; NaN takes the place of runs that are not valid.
      singles: `(name, policy)` of each array. pairs: `(name, policy, other policy)` of each difference.
      runs_axis: by policy.

    """
    if not singles:
        return [], Histogram.empty()
    with jax.enable_x64(True):
        packed, bins, first = _moments_and_bins(curves, tuple(singles), tuple(pairs), tuple(runs_axis))
        number = int(first.sum())
        size = 1 << (number - 1).bit_length()  # A power of two, so that other numbers meet the same program.
        starts, found, packed = jax.device_get((*_kept(bins, first, size), packed))
    moments = [Moments.unpacked(one) for one in packed]
    histogram = Histogram.of_starts(starts[:number], found[:number], bins.shape[-1], bins.size)
    return moments, histogram


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def _moments_and_bins(curves: Any, singles: tuple[Key, ...], pairs: tuple[Key, ...], runs_axis: tuple[int, ...]) -> Any:
    valid = [jnp.moveaxis(one["valid"], axis, -1) for one, axis in zip(curves, runs_axis, strict=True)]

    def masked(name: str, policy: int) -> jax.Array:
        values, good = jnp.moveaxis(curves[policy][name].astype(jnp.float64), runs_axis[policy], -1), valid[policy]
        good = good.reshape(good.shape[:-1] + (1,) * (values.ndim - good.ndim) + good.shape[-1:])
        return jnp.where(good, values, jnp.nan)

    values = {key: masked(*key) for key in singles}
    found = [_moments(values[key]) for key in singles]
    found += [_moments(values[name, a] - values[name, b]) for name, a, b in pairs]
    rows = [values[key].reshape(-1, values[key].shape[-1]) for key in singles]
    bins = jnp.sort(_bins_of(jnp.concatenate(rows)), axis=-1)
    first = jnp.concatenate([jnp.ones_like(bins[:, :1], bool), bins[:, 1:] != bins[:, :-1]], axis=1)
    return found, bins, first


@functools.partial(jax.jit, static_argnums=2)
def _kept(bins: jax.Array, first: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """Places where a bin begins, in the order of memory, and the bins."""
    starts = jnp.flatnonzero(first, size=size, fill_value=0)
    return starts, bins.ravel()[starts]


def _moments(values: jax.Array) -> jax.Array:
    """`Moments.of(values).packed()`."""
    used = ~jnp.isnan(values)
    count = used.sum(axis=-1, dtype=jnp.float64)
    number = jnp.maximum(count, 1.0)
    mean = jnp.where(used, values, 0.0).sum(axis=-1) / number
    deviation = jnp.where(used, values - mean[..., None], 0.0)
    drift = deviation.sum(axis=-1)
    squares = jnp.maximum((deviation * deviation).sum(axis=-1) - drift * drift / number, 0.0)
    rest = jnp.where(jnp.isfinite(drift), drift, 0.0) / number
    low = jnp.where(used, values, jnp.inf).min(axis=-1)
    high = jnp.where(used, values, -jnp.inf).max(axis=-1)
    return jnp.stack([count, mean, rest, squares, low, high])


def _bins_of(values: jax.Array) -> jax.Array:
    """`statistics.bins_of`."""
    bits = lax.bitcast_convert_type(values, jnp.int64)
    size = jnp.maximum(((bits & MAGNITUDE) >> SHIFT).astype(jnp.int32) - (LEAST - 1), 0)
    return jnp.where(jnp.isnan(values), NOTHING, jnp.where(bits < 0, -size, size))
