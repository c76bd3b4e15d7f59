"""Computes sums over time, moving means, and log-log slopes with confidence intervals."""

import re
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy import special

from jaxroute.core import checks
from jaxroute.metrics.averages import check_confidence
from jaxroute.metrics.selection import Data, check_scalar, describe, pick, recorded_times, show_times


def _sum(array: xr.DataArray) -> xr.DataArray:
    kind, times = array.attrs.get("kind"), recorded_times(array)
    if kind not in ("total", "average"):
        raise ValueError(f"metric must be of kind 'total' or 'average', got {array.name!r} of kind {kind!r}")
    return array if kind == "total" else array * xr.DataArray(times.astype(np.float64), dims="time")


def cumulative(data: Data, metric: str | None = None) -> xr.DataArray:
    """Returns the sum of a metric over rounds up to each time, by run. "total" metrics (see `Metric`) stay the same; a gauge raises `ValueError`."""
    array = pick(data, metric)
    total = _sum(array)
    if total is array:
        return array
    about = "cumulative " + re.sub(r"^(mean|average) ", "", str(array.attrs.get("long_name", array.name)))
    return describe(total, array, about, unit=re.sub(r" per \w+$", "", array.attrs.get("units", "")), kind="total")


def window_mean(data: Data, metric: str | None, window: int) -> xr.DataArray:
    """Returns the mean per round of a metric over the last `window` rounds, run by run. The result starts at time `window`.

    A last record at a horizon that is not a multiple of the record interval is dropped. Raises ValueError if `window` is longer than the run
    or no multiple of the interval, or if the metric's kind (see `Metric`) is neither "average" nor "total".
    """
    window = checks.whole("window", window)
    array = pick(data, metric)
    times = recorded_times(array)
    interval = int(times[1] - times[0]) if len(times) > 1 else int(times[0])
    known = {0: -1} | {int(t): i for i, t in enumerate(times)}
    ends = [i for i, t in enumerate(times) if int(t) - window in known]
    if window % interval or not ends:
        allowed = f"a multiple of the record interval ({interval:,}), at most {int(times[-1]):,} rounds"
        raise ValueError(f"window must be {allowed}, got {window:,}")
    total = _sum(array)
    start = xr.zeros_like(total.isel(time=[0])).assign_coords(time=[0])
    before = xr.concat([start, total], "time").isel(time=[known[int(times[i]) - window] + 1 for i in ends])
    moving = total.isel(time=ends)
    moving = moving.copy(data=(moving.values - before.values) / window)
    unit = str(array.attrs.get("units", ""))
    unit = f"{unit} per round" if array.attrs["kind"] == "total" and unit else unit
    return describe(moving, array, f"{{}}, last {window:,} rounds", unit=unit, kind="gauge")


class Slope(NamedTuple):
    """Fitted power law `y = exp(intercept) * x**slope`, with the standard error of the slope and its confidence interval from `low` to `high`."""

    slope: float
    low: float
    high: float
    stderr: float
    intercept: float


def slope(x: Any, y: Any, yerr: Any = None, confidence: float = 0.95) -> Slope:
    """Returns the slope of `log y` against `log x` with a confidence interval.

    The slope is `sum_i c_i log(mean_i)` with the weights of ordinary least squares, `c_i = (l_i - m) / sum_j (l_j - m)^2`,
    where `l = log x` and `m` is its mean. All points have the same weight: real curves are power laws only in the limit, and weights by
    precision would make the slope depend on the noise.

    If `y` has one column per seed, the standard error is that of the jackknife, which computes the slope without each seed in turn. The interval is
    Student's t with one degree of freedom less than seeds. Leaving out whole seeds is correct whether the points of a seed are independent or
    correlated, along a curve or over horizons with common random numbers. With few or skewed seeds its coverage is better than the delta
    method's, and unlike the bootstrap it needs no random numbers.

    If `y` has means, the standard error is that of the delta method, `sqrt(sum_i (c_i yerr_i / mean_i)^2)`, for independent points; the interval is
    normal.

    Args:
      x: `[P]` positive numbers, for example horizons.
      y: `[P]` means, or `[P, S]` one number per point and seed (NaN for an invalid run; its seed is left out).
      yerr: `[P]` standard errors of independent means; only with one-dimensional `y`.
      confidence: probability of the interval.

    Raises:
      ValueError: shapes do not fit, or a mean (or a mean without one seed) is not positive and has no logarithm.
    """
    level = check_confidence(confidence)
    if isinstance(y, xr.DataArray):
        y = y.transpose(..., "seed") if "seed" in y.dims else y
    x, y = checks.positive("x", x), np.asarray(y, np.float64)
    if x.ndim != 1 or len(np.unique(x)) < 2:
        raise ValueError(f"x must be a list of at least two different numbers, got {checks.show(x)}")
    if y.ndim not in (1, 2) or len(y) != len(x):
        raise ValueError(f"y must have shape ({len(x)},) or ({len(x)}, seeds) to match x, got {y.shape}")
    if y.ndim == 2:
        if yerr is not None:
            raise ValueError("yerr must be None when y has one column per seed: the seeds give the error")
        y = y[:, np.isfinite(y).all(axis=0)]
        if y.shape[1] < 2:
            raise ValueError(f"y must have at least two seeds that are finite at every point, got {y.shape[1]}")
        means = y.mean(axis=1)
    else:
        if yerr is None:
            raise ValueError("yerr must be given with one-dimensional y: the standard errors of the means")
        means, yerr = checks.numbers("y", y), checks.non_negative("yerr", yerr, y.shape)
    _check_positive(x, means, "means")
    log_x = np.log(x)
    centred = log_x - log_x.mean()
    weights = centred / (centred @ centred)
    estimate = float(weights @ np.log(means))
    if y.ndim == 2:
        number = y.shape[1]
        without = (y.sum(axis=1, keepdims=True) - y) / (number - 1)
        _check_positive(x, without.min(axis=1), "means without any one seed")
        error = float(np.sqrt((number - 1) * (weights @ np.log(without)).var()))
        width = float(special.stdtrit(number - 1, (1 + level) / 2)) * error
    else:
        error = float(np.sqrt(((weights * yerr / means) ** 2).sum()))
        width = float(special.ndtri((1 + level) / 2)) * error
    intercept = float(np.log(means).mean() - estimate * log_x.mean())
    return Slope(estimate, estimate - width, estimate + width, error, intercept)


def _check_positive(x: np.ndarray, means: np.ndarray, label: str) -> None:
    if (means <= 0).any():
        i = int(np.argmax(means <= 0))
        raise ValueError(f"y must have positive {label} for a log-log slope, got {means[i]:g} at x = {x[i]:g}")


def curve_slope(data: Data, metric: str | None, start: float, confidence: float = 0.95) -> xr.Dataset:
    """Returns the log-log slope of the mean curve over the recorded times from `start` on, for each policy and setting.

    The points of a curve are correlated within a seed, so the error comes from leaving out whole seeds, as in `slope`. The Dataset has `slope`,
    `low`, `high`, `stderr` and `intercept`. They are NaN for a policy without the metric, or if the mean (with or without any one seed) is not
    positive at every time: a regret around zero follows no power law.

    Raises:
      ValueError: `start` leaves fewer than two times, or no curve has a slope.
    """
    start = float(checks.positive("start", start, ()))
    array = pick(data, metric)
    check_scalar("metric", array)
    times = recorded_times(array)
    late = times >= start
    if late.sum() < 2:
        raise ValueError(f"start must leave at least two recorded times ({show_times(times)}), got {start:g}")
    if array.sizes["seed"] < 2:
        raise ValueError("data must have at least two seeds for a slope with an error bar, got 1")
    curves = array.isel(time=late).transpose(..., "time", "seed")
    lead = curves.dims[:-2]
    found = np.full((*curves.shape[:-2], len(Slope._fields)), np.nan)
    for place in np.ndindex(curves.shape[:-2]):
        y = curves.values[place]
        y = y[:, np.isfinite(y).all(axis=0)]
        if y.shape[1] >= 2 and (y.sum(axis=1) > y.max(axis=1).clip(0)).all():
            found[place] = slope(times[late], y, confidence=confidence)
    if np.isnan(found).all():
        problem = f"metric must have a positive mean at every time from round {start:g} on"
        raise ValueError(f"{problem}, but {array.name!r} does not")
    coords = {name: c for name, c in curves.coords.items() if set(c.dims) <= set(lead)}
    variables = {}
    for i, name in enumerate(Slope._fields):
        label, values = f"{name} (log-log) of {{}} from round {start:g} on", xr.DataArray(found[..., i], coords, lead)
        variables[name] = describe(values, array, label, "", kind="")
    return xr.Dataset(variables, attrs={"start": start, "confidence": confidence})
