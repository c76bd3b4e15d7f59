"""Statistics of the curves of a block of runs, computed on the device that simulated it or on the host.

A GPU simulates a million runs faster than the host can read them. Their curves stay on the device, which returns statistics of fixed size:
the same counts, minima, maxima and histograms as the host's; means and sums of squares differ by the order of sums.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxroute.core.statistics import Histogram, Moments, bins_of, merge

Curves = Mapping[str, Any]  # Arrays of jax on a device, or of NumPy.
# A granule: this number of seeds, whose moments are computed at once; those of neighbours are merged.
GRANULE = 256


def reduced(
    curves: Sequence[Curves], names: Sequence[str], place: int, spans: Sequence[tuple[int, int]]
) -> list[tuple[np.ndarray, Histogram]]:
    """Computes moments `[6, settings, C]` and a histogram of each span of runs on the device, for one policy or the difference of two.

    Args:
      curves: curves of one policy or two, with the runs along axis `place`, and `valid`; invalid runs count as NaN.
      names: names of the quantities, in order.
      place: axis of the runs.
      spans: first and last run of each span: a power of two granules, or part of one granule.
    """
    with jax.enable_x64(True):
        moments, bins = _on_device(curves, tuple(names), place, tuple(spans))
        histograms = [_histogram(one) for one in bins] or [Histogram.empty()] * len(spans)
        return list(zip(map(np.asarray, jax.device_get(moments)), histograms, strict=True))


def reduced_on_host(
    curves: Sequence[Curves], names: Sequence[str], place: int, spans: Sequence[tuple[int, int]]
) -> list[tuple[np.ndarray, Histogram]]:
    """Computes the statistics of `reduced` by NumPy."""
    with np.errstate(invalid="ignore"):
        moments, bins = _moments_and_bins(np, curves, names, place, spans)
    return list(zip(moments, map(Histogram.of_sorted, bins) if bins else [Histogram.empty()] * len(spans), strict=True))


def _values(xp: Any, curves: Sequence[Curves], names: Sequence[str], place: int) -> Any:
    """Returns the curves `[settings, C, R]` of one policy, or the differences of two policies; NaN for invalid runs."""

    def masked(one: Curves, name: str) -> Any:
        values = xp.moveaxis(xp.asarray(one[name], xp.float64), place, -1)
        good = xp.moveaxis(xp.asarray(one["valid"]), place, -1)
        good = good.reshape(good.shape[:-1] + (1,) * (values.ndim - good.ndim) + good.shape[-1:])
        return values if xp is np and good.all() else xp.where(good, values, xp.nan)

    parts = [masked(curves[0], name) for name in names]
    if len(curves) == 2:
        parts = [part - masked(curves[1], name) for part, name in zip(parts, names, strict=True)]
    settings = math.prod(np.broadcast_shapes(*(one["valid"].shape[:place] for one in curves)))
    runs = parts[0].shape[-1] if parts else 0
    return xp.concatenate([xp.zeros((settings, 0, runs)), *(part.reshape(settings, -1, runs) for part in parts)], axis=1)


def _histogram(bins: Array) -> Histogram:
    """Computes the histogram of rows of sorted bins `[rows, R]` that are on the device."""
    first = jnp.concatenate([jnp.ones_like(bins[:, :1], bool), bins[:, 1:] != bins[:, :-1]], axis=1)
    number = int(first.sum())
    size = 1 << max(0, number - 1).bit_length()  # A power of two, so that similar sizes share a compiled program.
    starts, found = jax.device_get(_starts_of_bins(bins, first, size))
    return Histogram.of_starts(starts[:number], found[:number], bins.shape[-1], bins.size)


def _moments_and_bins(xp: Any, curves: Any, names: Sequence[str], place: int, spans: Sequence[tuple[int, int]]) -> Any:
    """Returns the moments and the sorted bins of each span, by NumPy or `jax.numpy`; no bins for a difference."""
    values = _values(xp, curves, names, place)
    moments, bins = [], []
    for start, stop in spans:
        part = values[:, :, start:stop]
        found = Moments.of(part.reshape(*part.shape[:2], max(1, (stop - start) // GRANULE), -1), xp).packed(xp)
        while found.shape[-1] > 1:
            found = xp.stack(merge(xp, found[..., 0::2], found[..., 1::2]))
        moments.append(found[..., 0])
        if len(curves) == 1:
            bins.append(xp.sort(bins_of(part.reshape(-1, stop - start), xp), axis=-1))
    return moments, bins


_on_device = jax.jit(functools.partial(_moments_and_bins, jnp), static_argnums=(1, 2, 3))


@functools.partial(jax.jit, static_argnums=2)
def _starts_of_bins(bins: Array, first: Array, size: int) -> tuple[Array, Array]:
    """Returns the flat indices at which a new bin begins, padded to `size`, and the bins there."""
    starts = jnp.flatnonzero(first, size=size, fill_value=0)
    return starts, bins.ravel()[starts]
