"""Mergeable statistics of many runs in float64: moments, and histograms with bins that are fixed in advance.

The statistics of a block of runs take two passes; blocks are merged by the formulas of Chan, Golub and LeVeque (1979).
Histograms have integer counts, so that merges are exact in any order.

A GPU simulates a million runs faster than the host can read them. Their curves stay on the device, which returns statistics of fixed size
(`reduced`): the same counts, minima, maxima and histograms as the host's (`reduced_on_host`). Means and sums of squares differ by the order of sums.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

# Two numbers share a bin if they agree in sign, exponent and this many leading bits of the mantissa.
_MANTISSA_BITS = 6
# Magnitudes below 2**-64 count as zero.
_LEAST_EXPONENT = -64
# Largest relative distance of a number from the middle of its bin.
RELATIVE_ACCURACY = 2.0 ** -(_MANTISSA_BITS + 1)

SHIFT = 52 - _MANTISSA_BITS
LEAST = (1023 + _LEAST_EXPONENT) << _MANTISSA_BITS
MAGNITUDE = 0x7FFF_FFFF_FFFF_FFFF  # All bits except the sign.
NOTHING = np.int32(2**31 - 1)  # Sorts behind every bin.
# A key is `row * 2**_KEY_BITS + bin + 2**(_KEY_BITS - 1)`.
_KEY_BITS = 18
_HALF = 1 << (_KEY_BITS - 1)


@dataclasses.dataclass(frozen=True)
class Moments:
    """Moments of many samples. A sample has one value for each of several runs. Each attribute is an array with one element per sample.

    Attributes:
      count: number of runs, float64, exact up to 2**53.
      mean: mean, rounded to float64; 0 where the count is 0.
      rest: rounding error of `mean`: the true mean is about `mean + rest`. Without it the difference of two large means would be rounding error.
      squares: sum of squared deviations from the mean; 0 where the count is 0.
      low: minimum; inf where the count is 0.
      high: maximum; -inf where the count is 0.
    """

    count: np.ndarray
    mean: np.ndarray
    rest: np.ndarray
    squares: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @staticmethod
    def of(values: Any, xp: Any = np) -> "Moments":
        """Returns the moments of `values` `[..., R]`, float64, over the last axis; NaN is left out. `xp` is numpy or jax.numpy."""
        used = ~xp.isnan(values)
        count = used.sum(axis=-1, dtype=xp.float64)
        number = xp.maximum(count, 1.0)
        whole = xp is np and bool(used.all())

        def filled(array: Any, other: float) -> Any:
            return array if whole else xp.where(used, array, other)

        with np.errstate(invalid="ignore", over="ignore"):
            mean = filled(values, 0.0).sum(axis=-1) / number
            deviation = filled(values - mean[..., None], 0.0)
            drift = deviation.sum(axis=-1)  # The rounding error of the mean.
            squares = xp.maximum((deviation * deviation).sum(axis=-1) - drift * drift / number, 0.0)
            rest = xp.where(xp.isfinite(drift), drift, 0.0) / number
        low = filled(values, xp.inf).min(axis=-1, initial=xp.inf)
        high = filled(values, -xp.inf).max(axis=-1, initial=-xp.inf)
        return Moments(count, mean, rest, squares, low, high)

    def merged(self, other: "Moments") -> "Moments":
        """Returns the moments of the union of each sample with the sample at the same index in `other`."""
        return Moments(*merge(np, self.packed(), other.packed()))

    def reversed(self) -> "Moments":
        """Returns the moments of the same samples after a change of sign of all their values."""
        return Moments(self.count, 0.0 - self.mean, 0.0 - self.rest, self.squares, 0.0 - self.high, 0.0 - self.low)

    def statistics(self) -> dict[str, np.ndarray]:
        """Returns `count` (int64), `mean`, `variance` (divided by `count - 1`), `minimum` and `maximum` by name; NaN where there are too few runs."""
        some, several = self.count > 0, self.count > 1
        return {
            "count": self.count.astype(np.int64),
            "mean": np.where(some, self.mean + self.rest, np.nan),
            "variance": np.where(several, self.squares / np.where(several, self.count - 1.0, 1.0), np.nan),
            "minimum": np.where(some, self.low, np.nan),
            "maximum": np.where(some, self.high, np.nan),
        }

    def standard_errors(self) -> np.ndarray:
        """Returns the standard errors of the means; NaN where there are fewer than two runs."""
        found = self.statistics()
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.sqrt(found["variance"] / found["count"])

    def packed(self, xp: Any = np) -> Any:
        """Returns the six attributes stacked as one array `[6, ...]` of `xp`, numpy or jax.numpy."""
        return xp.stack([getattr(self, field.name) for field in dataclasses.fields(self)])


def merge(xp: Any, one: Any, other: Any) -> tuple[Any, ...]:
    """Returns the six moments of the union of two samples from `one` and `other`, their `Moments.packed` `[6, ...]`; `xp` is numpy or jax.numpy."""
    (count_a, mean_a, rest_a, squares_a, low_a, high_a), (count_b, mean_b, rest_b, squares_b, low_b, high_b) = one, other
    count = count_a + count_b
    with np.errstate(invalid="ignore", over="ignore"):
        share = count_b / xp.maximum(count, 1.0)
        gap = (mean_b - mean_a) + (rest_b - rest_a)
        step = gap * share
        mean = mean_a + step
        part = mean - mean_a
        rest = rest_a + ((mean_a - (mean - part)) + (step - part))  # Knuth's exact rounding error of the sum.
        squares = squares_a + squares_b + gap * gap * (count_a * share)
        # The difference of infinite means is not finite.
        finite = xp.isfinite(gap)
        mean, rest = xp.where(finite, mean, mean_a + mean_b), xp.where(finite, rest, 0.0)
    # Merging with an empty sample does not change the bits of the other sample.
    mean, rest, squares = (
        xp.where(count_a == 0, b, xp.where(count_b == 0, a, c))
        for a, b, c in ((mean_a, mean_b, mean), (rest_a, rest_b, rest), (squares_a, squares_b, squares))
    )
    return count, mean, rest, squares, xp.minimum(low_a, low_b), xp.maximum(high_a, high_b)


def bins_of(values: Any, xp: Any = np) -> Any:
    """Returns each float64 value's int32 histogram bin: larger for larger values, 0 for `|x| < 2**-64`, negative below; the largest int32 for NaN."""
    bits = xp.asarray(values, xp.float64).view(xp.int64)
    size = xp.maximum(((bits & MAGNITUDE) >> SHIFT).astype(xp.int32) - np.int32(LEAST - 1), 0)
    return xp.where(xp.isnan(values), NOTHING, xp.where(bits < 0, -size, size))


def middles(bins: np.ndarray) -> np.ndarray:
    """Returns the value in the middle of each bin, given the bins' numbers (from `Histogram`); infinite for the bin of infinity."""
    bins = np.asarray(bins, np.int64)
    place = np.abs(bins) - 1 + LEAST
    low, high = (np.asarray((place + i) << SHIFT, np.int64).view(np.float64) for i in (0, 1))
    with np.errstate(invalid="ignore", over="ignore"):
        middle = np.where(np.isfinite(low), low + (np.where(np.isfinite(high), high, low) - low) / 2, np.inf)
    return np.where(bins == 0, 0.0, np.where(bins < 0, -middle, middle))


@dataclasses.dataclass(frozen=True)
class Histogram:
    """Histograms of many rows of numbers with the same bins. Empty bins take no space.

    A quantile computed from a histogram has a relative error of at most `RELATIVE_ACCURACY`.

    Attributes:
      keys: `[N]` int64, ascending: `row * 2**18 + bin + 2**17` for each bin that is not empty, by row index and bin index (may be negative).
      counts: `[N]` int64, count in the row and bin of each key.
    """

    keys: np.ndarray
    counts: np.ndarray

    @staticmethod
    def empty() -> "Histogram":
        return Histogram(np.zeros(0, np.int64), np.zeros(0, np.int64))

    @staticmethod
    def of(values: np.ndarray) -> "Histogram":
        """Returns the histogram of each row of `values` `[rows, R]`; NaN is left out."""
        return Histogram.of_sorted(np.sort(bins_of(values), axis=-1))

    @staticmethod
    def of_sorted(bins: Any) -> "Histogram":
        """Returns the histogram of each row of `bins` `[rows, R]`, a NumPy or JAX array: the bin indices of `R` runs in ascending order."""
        xp: Any = np if isinstance(bins, np.ndarray) else jnp
        first = xp.concatenate([xp.ones_like(bins[:, :1], bool), bins[:, 1:] != bins[:, :-1]], axis=1)
        if xp is np:
            starts = np.flatnonzero(first)
            found = bins.ravel()[starts]
        else:
            number = int(first.sum())
            size = 1 << max(0, number - 1).bit_length()  # A power of two, so that similar sizes share a compiled program.
            starts, found = (one[:number] for one in jax.device_get(_starts_of_bins(bins, first, size)))
        counts, kept = np.diff(starts, append=bins.size), found != NOTHING
        keys = ((starts // max(1, bins.shape[-1])) << _KEY_BITS) + found + _HALF
        return Histogram(keys[kept], counts[kept])

    def merged(self, other: "Histogram") -> "Histogram":
        """Returns histograms whose counts are the sums of those of this object and of `other`, row by row."""
        if not self.keys.size:
            return other
        place = np.searchsorted(self.keys, other.keys)
        known = self.keys[np.minimum(place, self.keys.size - 1)] == other.keys
        counts = self.counts.copy()
        counts[place[known]] += other.counts[known]
        if known.all():
            return Histogram(self.keys, counts)
        new = ~known
        return Histogram(np.insert(self.keys, place[new], other.keys[new]), np.insert(counts, place[new], other.counts[new]))

    def rows(self, start: int, stop: int) -> "Histogram":
        """Returns the histograms of the rows from `start` to before `stop`; `start` becomes row 0."""
        first, last = np.searchsorted(self.keys, [start << _KEY_BITS, stop << _KEY_BITS])
        return Histogram(self.keys[first:last] - (start << _KEY_BITS), self.counts[first:last])

    def bins(self) -> np.ndarray:
        """Returns the indices, ascending, of all bins that are not empty in at least one row."""
        return np.unique(self.keys & ((1 << _KEY_BITS) - 1)) - _HALF

    def dense(self, rows: int, bins: np.ndarray) -> np.ndarray:
        """Returns the uint32 counts `[rows, len(bins)]` in the bins with the ascending indices `bins`, which must include all that are not empty."""
        table = np.zeros((rows, len(bins)), np.uint32)
        place = np.searchsorted(bins, (self.keys & ((1 << _KEY_BITS) - 1)) - _HALF)
        table[self.keys >> _KEY_BITS, place] = self.counts
        return table


def quantiles(middle: np.ndarray, counts: np.ndarray, low: np.ndarray, high: np.ndarray, levels: Any) -> np.ndarray:
    """Returns quantiles `[levels, ...]` of the rows of a histogram, interpolated as by NumPy's default method.

    Args:
      middle: `[B]` value of each bin, ascending.
      counts: `[..., B]` count in each bin.
      low, high: `[...]` exact minimum and maximum of each row, NaN for an empty row.
      levels: probabilities of the quantiles, .5 for the median.
    """
    total = np.cumsum(counts, axis=-1, dtype=np.int64)
    number = total[..., -1] if total.shape[-1] else np.zeros(counts.shape[:-1], np.int64)

    def order_statistic(rank: np.ndarray) -> np.ndarray:
        place = (total <= rank[..., None]).sum(axis=-1)
        found: Any = middle[np.minimum(place, len(middle) - 1)] if len(middle) else np.full(rank.shape, np.nan)
        return np.where(rank == 0, low, np.where(rank >= number - 1, high, np.clip(found, low, high)))

    answers = []
    for level in levels:
        rank = level * np.maximum(number - 1, 0)
        below = np.floor(rank).astype(np.int64)
        first, second = order_statistic(below), order_statistic(np.minimum(below + 1, np.maximum(number - 1, 0)))
        with np.errstate(invalid="ignore"):
            part = rank - below
            between = np.where((part == 0) | (first == second), first, first + part * (second - first))
        answers.append(np.where(number > 0, between, np.nan))
    return np.stack(answers)


# Statistics of the curves of a block of runs

Curves = Mapping[str, Any]  # Arrays of jax on a device, or of NumPy.
# Number of seeds (a granule) whose moments are computed at once; the moments of neighbouring granules are then merged.
GRANULE = 256


def reduced(
    curves: Sequence[Curves], names: Sequence[str], place: int, spans: Sequence[tuple[int, int]]
) -> list[tuple[np.ndarray, Histogram]]:
    """Computes, for each span of runs, moments and a histogram of a policy's curves or, given two policies, moments of their differences.

    Curves of JAX arrays are reduced on their device, others by NumPy.

    Args:
      curves: for each policy, arrays by name with axes for settings, runs and values. The array `valid` has True for the runs that count.
      names: names of the curves, in the order of the statistics.
      place: index of the axis of runs in every array, `valid` included.
      spans: first run and end (exclusive) of each span of runs; its length is 256 times a power of two, or less than 256.

    Returns for each span packed `Moments` `[6, settings, C]`, for the `C` values of all curves of a run, and a histogram (empty for two policies).
    """
    on_device = all(isinstance(one["valid"], jax.Array) for one in curves)
    with jax.enable_x64(True) if on_device else np.errstate(invalid="ignore"):
        function = _on_device if on_device else functools.partial(_moments_and_bins, np)
        moments, bins = function(curves, tuple(names), place, tuple(spans))
        histograms = list(map(Histogram.of_sorted, bins)) or [Histogram.empty()] * len(spans)
        return list(zip(map(np.asarray, jax.device_get(moments)), histograms, strict=True))


def _values(xp: Any, curves: Sequence[Curves], names: Sequence[str], place: int) -> Any:
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


def _moments_and_bins(xp: Any, curves: Any, names: Sequence[str], place: int, spans: Sequence[tuple[int, int]]) -> Any:
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
    starts = jnp.flatnonzero(first, size=size, fill_value=0)
    return starts, bins.ravel()[starts]
