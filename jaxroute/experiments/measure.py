"""Measurements of results: values at the horizon with standard errors, slopes, and their texts."""

import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import xarray as xr

from jaxroute import metrics
from jaxroute.core.attributes import decoded
from jaxroute.experiments.base import Results
from jaxroute.experiments.verdicts import CONFIDENCE, Measured

Name = TypeVar("Name")
# Number of points of a curve to which a slope is fitted.
_SLOPE_POINTS = 13


def runs_of(data: xr.Dataset, metric: str, policy: str, time: Any = None, **where: Any) -> xr.DataArray:
    """Metric `[seed]` of a policy's valid runs at a recorded time (default: the horizon), for one setting."""
    runs = _curves_of(data, metric, policy, **where)
    runs = runs.isel(time=-1) if time is None else runs.sel(time=time)
    return runs.dropna("seed")


def _curves_of(data: xr.Dataset, metric: str, policy: str, **where: Any) -> xr.DataArray:
    """Metric `[seed, time]` of a policy for one setting; axes on which it does not depend need no value."""
    if metrics.has_runs(data):
        data = data[[metric, "valid"]]
    curves = metrics.pick(data.sel(policy=policy, **where), metric)
    own = metrics.own_axes([curves])
    return curves.isel({axis: 0 for axis in metrics.setting_axes(curves) if axis not in own or curves.sizes[axis] == 1})


def end(data: xr.Dataset, metric: str, policy: str, time: Any = None, **where: Any) -> Measured:
    """Mean of a policy at a recorded time (default: the horizon), with its standard error, for one setting."""
    if not metrics.has_runs(data):
        one = data.sel(policy=policy, **where)
        one = one.isel(time=-1) if time is None else one.sel(time=time)
        own = metrics.own_axes_of(one, metric)
        one = one.isel({axis: 0 for axis in metrics.setting_axes(one) if axis not in own or one.sizes[axis] == 1})
        dof = float(metrics.count(one, metric)) - 1
        return Measured(*(float(f(one, metric)) for f in (metrics.mean, metrics.stderr)), dof=dof, places=(_place(one),))
    return mean_of(runs_of(data, metric, policy, time, **where))


def mean_of(runs: xr.DataArray, unit: str = "") -> Measured:
    """Mean over seeds with its standard error, without runs that are NaN.

    Args:
      runs: `[seed]`.
      unit: name of the independent units if these are not seeds, such as trainings; more seeds do not reduce their error.
    """
    found = _series(runs)
    if not unit:
        return Measured.of_runs(found, places=(_place(runs),))
    found.index = pd.Index([f"{unit} {label}" for label in found.index])
    one = Measured.of_runs(found, places=(_place(runs),))
    return one.changed(floor=one.error)


def _series(runs: xr.DataArray) -> pd.Series:
    return pd.Series(runs.values.astype(float), runs["seed"].values).dropna()


def _place(data: xr.Dataset | xr.DataArray) -> dict[str, Any]:
    """Coordinates with a single value, which say where a number was read."""
    return {str(name): value.item() for name, value in data.coords.items() if value.ndim == 0}


def share_of(flags: xr.DataArray) -> Measured:
    """Share of runs with a true flag, with the exact interval of a binomial share (Clopper and Pearson, 1934)."""
    from scipy import stats

    found = _series(flags)
    test = stats.binomtest(int(found.sum()), max(len(found), 1))
    one = Measured.of_runs(found, places=(_place(flags),))
    return one.changed(bounds=lambda confidence: tuple(test.proportion_ci(confidence)))


def quantile_of(runs: xr.DataArray, level: float) -> Measured:
    """Quantile of the runs, with an interval between order statistics of binomial ranks.

    The interval is infinite if a rank is outside the sample, as for the 99 % quantile of fewer than about 500 runs. The error is half of the
    68 % interval.
    """
    from scipy import stats

    found = np.sort(_series(runs).to_numpy())
    padded, number = np.concatenate([[-np.inf], found, [np.inf]]), len(found)

    def bounds(confidence: float) -> tuple[float, float]:
        low, high = stats.binom.ppf([(1 - confidence) / 2, (1 + confidence) / 2], number, level)
        return float(padded[int(low)]), float(padded[int(high) + 1])

    low, high = bounds(0.6827)
    middle = float(np.quantile(found, level, method="inverted_cdf")) if number else math.nan
    least = math.ceil(math.log((1 - CONFIDENCE) / 2) / math.log(max(level, 1 - level)))
    more = {"bounds": bounds, "least": least, "number": number, "places": (_place(runs),)}
    return Measured(middle, (high - low) / 2, dof=number - 1, **more)


def ends(data: xr.Dataset, metric: str, policies: Iterable[str], **where: Any) -> dict[str, Measured]:
    """Means of several policies at the horizon, for one setting."""
    return {str(policy): end(data, metric, policy, **where) for policy in policies}


def ends_along(
    data: xr.Dataset, metric: str, policy: str, axis: str, values: Iterable[Any] | None = None, **where: Any
) -> dict[Any, Measured]:
    """Means of a policy at the horizon by the values of a setting (default: all)."""
    values = data[axis].values if values is None else values
    return {value: end(data, metric, policy, **{axis: value}, **where) for value in values}


def paired_gap(data: xr.Dataset, metric: str, policy: str, minus: str, place: int = -1) -> Measured:
    """Mean of a policy's metric minus another policy's, paired by seed, at the time of an index (default: the horizon)."""
    if metrics.has_runs(data):
        time = data["time"].values[place]
        return end(data, metric, policy, time).minus(end(data, metric, minus, time))
    found = metrics.paired(data, metric, minus).sel(policy=policy).isel(time=place)
    return Measured(float(found["mean"]), float(found["stderr"]), dof=float(found["count"]) - 1, places=(_place(found),))


def late_slope(data: xr.Dataset, metric: str, policy: str, start: float, every_time: bool = False, **where: Any) -> Measured:
    """Log-log slope of a policy's mean curve after a round, with its standard error; NaN if the mean is not positive.

    The slope is fitted at recorded times that are spaced evenly in the logarithm, or at every one.
    """
    times = data["time"].values
    if every_time:
        return power(_curves_of(data, metric, policy, **where).isel(time=times >= start), "time")
    wanted = np.geomspace(max(start, times[0]), times[-1], _SLOPE_POINTS)
    chosen = np.unique(np.abs(times[:, None] - wanted).argmin(axis=0))
    return power(_curves_of(data, metric, policy, **where).isel(time=chosen), "time")


def late_runs(data: xr.Dataset, metric: str, policy: str, **where: Any) -> xr.DataArray:
    """Mean per request `[seed]` in the second half of each run, or in the whole run if it has one record."""
    total = metrics.cumulative(data.sel(policy=policy, **where)[[metric, "valid"]], metric)
    times, half = data["time"].values, len(data["time"]) // 2 - 1
    first, start = (0.0, 0) if half < 0 else (total.isel(time=half, drop=True), times[half])
    return (total.isel(time=-1, drop=True) - first) / float(times[-1] - start)


def power(runs: xr.DataArray, axis: str) -> Measured:
    """Log-log slope of the mean over seeds along an axis, with its standard error; NaN if a mean is not positive."""
    fit, places = power_law(runs, axis), (_place(runs),)
    if fit is None:
        return Measured(math.nan, math.nan, dof=runs.sizes["seed"] - 1, places=places)
    error = max(fit.stderr, 1e-8)  # Metrics are float32.
    return Measured(fit.slope, error, dof=runs.dropna("seed").sizes["seed"] - 1, places=places)


def power_law(runs: xr.DataArray, axis: str) -> metrics.Slope | None:
    """Power law of the mean over seeds along an axis.

    None if there are fewer than two points or seeds, or if a mean (or a mean without one seed) is not positive.
    """
    values = runs.dropna("seed").transpose(axis, "seed").values
    if values.shape[0] < 2 or values.shape[1] < 2 or not (values.sum(axis=1) > values.max(axis=1).clip(0)).all():
        return None
    return metrics.slope(runs[axis].values, values)


def product(*factors: Measured, over: Measured | None = None) -> Measured:
    """Product of means over the same seeds, optionally divided by another mean, with the error of the delta method.

    Compare quotients as products, which never divide by zero.
    """
    means = [factor.mean for factor in factors]
    value, scale = math.prod(means), 1.0
    if over is not None:
        if not over.mean:
            return Measured(np.inf)
        value, scale = value / over.mean, 1.0 / over.mean
    parts = [one.times(scale * math.prod(means[:i] + means[i + 1 :])) for i, one in enumerate(factors)]
    parts += [] if over is None else [over.times(-value * scale)]
    total = functools.reduce(Measured.plus, parts)
    return total.minus(total.mean - value)


def average(values: Iterable[Measured]) -> Measured:
    """Mean of several numbers, paired by run."""
    values = list(values)
    return functools.reduce(Measured.plus, values).times(1.0 / len(values))


def lowest(values: Mapping[Name, Measured]) -> Name:
    """Name of the smallest number."""
    return min(values, key=lambda name: values[name].mean)


def highest(values: Mapping[Name, Measured]) -> Name:
    """Name of the largest number."""
    return max(values, key=lambda name: values[name].mean)


def show(value: Measured) -> str:
    """A mean and its standard error, rounded to the error."""
    return metrics.rounded(*value)


def show_slope(slope: Measured) -> str:
    """A slope with its standard error, or the reason why there is none."""
    return "none, since a mean is not positive" if math.isnan(slope.mean) else show(slope)


def listed(values: Mapping[Any, Measured], label: str = "{}", between: str = ", ") -> str:
    """Numbers by name in one line; `label` is the format of a name, such as "b = {:g}:"."""
    return between.join(f"{label.format(name)} {show(value)}" for name, value in values.items())


def along(results: Results, metric: str, axis: str, **fixed: Any) -> xr.DataArray:
    """Metric at the horizon along a coordinate of the cases, for those with the given coordinates."""
    chosen = {
        decoded(d.attrs)["case_coordinates"][axis]: d[metric].isel(time=-1, drop=True).drop_vars("case", errors="ignore")
        for d in with_coordinates(results, **fixed).values()
    }
    return xr.concat([chosen[v] for v in sorted(chosen)], xr.IndexVariable(axis, sorted(chosen)))


def with_coordinates(results: Results, **fixed: Any) -> Results:
    """Cases with the given coordinates."""
    return {
        n: d for n, d in results.items() if all(decoded(d.attrs)["case_coordinates"].get(k) == v for k, v in fixed.items())
    }
