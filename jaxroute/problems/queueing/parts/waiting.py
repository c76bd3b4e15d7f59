"""Records waiting times in a histogram during a run, and computes percentiles from it."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import Array

from jaxroute.core import checks

# Least waiting time of each class of the histogram, in rounds: every number up to 64, then eight classes per octave, up to 2^24 rounds.
WAITS = np.concatenate([np.arange(1, 64), np.floor(64.0 * 2.0 ** (np.arange(145) / 8.0))]).astype(np.int32)


def class_of(waited: Array) -> Array:
    """Returns a mask `[W]` over the `W` bins of the histogram of waiting times, True only for the bin that contains `waited` rounds (a scalar)."""
    reached = waited >= jnp.asarray(WAITS, waited.dtype)
    return reached & ~jnp.concatenate([reached[1:], jnp.zeros((1,), bool)])


def waiting_percentiles(data: xr.Dataset, percents: Sequence[float] = (50.0, 95.0, 99.0)) -> xr.DataArray:
    """Returns percentiles of the waiting time of the queries that left, for each run and record time; in rounds, NaN where no query has left.

    Times below 64 rounds are exact. Longer times are counted in bins; a percentile is the longest time of its bin, at most 9 % above the true one.
    Queries that still wait are not included; the metric `oldest_wait` covers them. The result has a dimension `percent` instead of the bins `wait`
    of the histogram in `data` (a record time is a round at which metrics are recorded).

    Args:
      data: result of `simulate(..., record=["waiting_times", ...])`.
      percents: numbers above 0 and at most 100.
    """
    if "waiting_times" not in data:
        raise ValueError('data must have the metric "waiting_times": give simulate record=["waiting_times"]')
    percentages = checks.numbers("percents", percents)
    if percentages.ndim != 1 or not ((percentages > 0) & (percentages <= 100)).all():
        raise ValueError(f"percents must be numbers above 0 and up to 100, got {checks.show(percents)}")
    longest = np.append(WAITS[1:] - 1, WAITS[-1]).astype(np.float64)

    def percentiles(histogram: Any) -> Any:
        below = np.cumsum(histogram, axis=-1)
        total = below[..., -1:]
        least = percentages[:, None] / 100.0 * total[..., None] - 1e-6 * np.maximum(total[..., None], 1.0)
        reached = below[..., None, :] >= least
        return np.where(total > 0, longest[np.argmax(reached, axis=-1)], np.nan)

    times = xr.apply_ufunc(percentiles, data["waiting_times"], input_core_dims=[["wait"]], output_core_dims=[["percent"]])
    name = "waiting time"
    return times.assign_coords(percent=percentages).rename(name).assign_attrs(long_name=name, units="rounds")
