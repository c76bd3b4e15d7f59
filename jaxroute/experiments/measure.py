"""What experiments measure of their results: values at the horizon with standard errors, slopes, and how these are shown."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
import xarray as xr

from jaxroute.analysis import metrics
from jaxroute.experiments.base import Results

Name = TypeVar("Name")
# Points of a curve to which a slope is fitted.
_SLOPE_POINTS = 13


class Measured(NamedTuple):
    """A number with its standard error.

    mean: the number.
    error: its standard error.
    """

    mean: float
    error: float

    def below(self, other: "Measured | float", by: float) -> bool:
        """Whether it is less than another number by so many joint standard errors (if negative, more by at most so many)."""
        mean, error = _with_error(other)
        return bool(self.mean + by * math.hypot(self.error, error) < mean)

    def above(self, other: "Measured | float", by: float) -> bool:
        """Whether it is more than another number by so many joint standard errors (if negative, less by at most so many)."""
        mean, error = _with_error(other)
        return bool(self.mean - by * math.hypot(self.error, error) > mean)

    def near(self, other: "Measured | float", by: float, slack: float = 0.0) -> bool:
        """Whether it is within so many joint standard errors of another number, and a slack."""
        mean, error = _with_error(other)
        return bool(abs(self.mean - mean) < slack + by * math.hypot(self.error, error))

    def times(self, factor: float) -> "Measured":
        """Both times a factor."""
        return Measured(self.mean * factor, self.error * factor)


def _with_error(value: Measured | float) -> tuple[float, float]:
    return value if isinstance(value, Measured) else (value, 0.0)


def runs_of(data: xr.Dataset, metric: str, policy: str, time: Any = None, **where: Any) -> xr.DataArray:
    """The metric of a policy's valid runs at a recorded time (default: the horizon), for one setting: `[seed]`."""
    runs = _curves_of(data, metric, policy, **where)
    runs = runs.isel(time=-1) if time is None else runs.sel(time=time)
    return runs.dropna("seed")


def _curves_of(data: xr.Dataset, metric: str, policy: str, **where: Any) -> xr.DataArray:
    """The metric `[seed, time]` of a policy for one setting; axes that it does not depend on need no value."""
    if metrics.has_runs(data):
        data = data[[metric, "valid"]]
    curves = metrics.pick(data.sel(policy=policy, **where), metric)
    own = metrics.own_axes([curves])
    return curves.isel({axis: 0 for axis in metrics.setting_axes(curves) if axis not in own or curves.sizes[axis] == 1})


def end(data: xr.Dataset, metric: str, policy: str, time: Any = None, **where: Any) -> Measured:
    """Mean and standard error of a policy at the horizon (or at another recorded time), for one setting."""
    if not metrics.has_runs(data):
        one = data.sel(policy=policy, **where)
        one = one.isel(time=-1) if time is None else one.sel(time=time)
        own = metrics.own_axes_of(one, metric)
        one = one.isel({axis: 0 for axis in metrics.setting_axes(one) if axis not in own or one.sizes[axis] == 1})
        return Measured(float(metrics.mean(one, metric)), float(metrics.stderr(one, metric)))
    return mean_of(runs_of(data, metric, policy, time, **where))


def mean_of(runs: xr.DataArray) -> Measured:
    """Mean over seeds with its standard error; a run that is NaN does not count."""
    return Measured(float(runs.mean()), float(runs.std("seed", ddof=1) / np.sqrt(runs.count("seed"))))


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
    """Mean of a policy's metric minus that of another, seed by seed, at the horizon (or another place among the times)."""
    difference = metrics.paired(data, metric, minus).sel(policy=policy).isel(time=place)
    return Measured(float(difference["mean"]), float(difference["stderr"]))


def late_slope(data: xr.Dataset, metric: str, policy: str, start: float, every_time: bool = False, **where: Any) -> Measured:
    """Log-log slope of a policy's mean curve from a round on, with its standard error; NaN where the mean is not positive.

    It is fitted at recorded times that are spaced evenly in the logarithm, or at every one.
    """
    times = data["time"].values
    if every_time:
        return power(_curves_of(data, metric, policy, **where).isel(time=times >= start), "time")
    wanted = np.geomspace(max(start, times[0]), times[-1], _SLOPE_POINTS)
    chosen = np.unique(np.abs(times[:, None] - wanted).argmin(axis=0))
    return power(_curves_of(data, metric, policy, **where).isel(time=chosen), "time")


def late_runs(data: xr.Dataset, metric: str, policy: str, **where: Any) -> xr.DataArray:
    """The mean per request in the second half of each run, `[seed]`; of a run that was read only once, of the whole."""
    total = metrics.cumulative(data.sel(policy=policy, **where)[[metric, "valid"]], metric)
    times, half = data["time"].values, len(data["time"]) // 2 - 1
    first, start = (0.0, 0) if half < 0 else (total.isel(time=half, drop=True), times[half])
    return (total.isel(time=-1, drop=True) - first) / float(times[-1] - start)


def power(runs: xr.DataArray, axis: str) -> Measured:
    """Log-log slope of the mean over seeds along an axis, with its standard error; NaN where a mean is not positive."""
    fit = power_law(runs, axis)
    return Measured(math.nan, math.nan) if fit is None else Measured(fit.slope, fit.stderr)


def power_law(runs: xr.DataArray, axis: str) -> metrics.Slope | None:
    """The power law of the mean over seeds along an axis.

    None where it has none: with fewer than two points or seeds, or where a mean (or a mean without one seed) is not positive.
    """
    values = runs.dropna("seed").transpose(axis, "seed").values
    if values.shape[0] < 2 or values.shape[1] < 2 or not (values.sum(axis=1) > values.max(axis=1).clip(0)).all():
        return None
    return metrics.slope(runs[axis].values, values)


def quotient(a: Measured, b: Measured) -> Measured:
    """`a / b` of two independent means with standard errors."""
    value = a.mean / b.mean if b.mean else np.inf
    return Measured(value, math.hypot(a.error / b.mean, value * b.error / b.mean) if np.isfinite(value) else 0.0)


def lowest(values: Mapping[Name, Measured]) -> Name:
    """The name of the smallest number."""
    return min(values, key=lambda name: values[name].mean)


def highest(values: Mapping[Name, Measured]) -> Name:
    """The name of the largest number."""
    return max(values, key=lambda name: values[name].mean)


def show(value: Measured) -> str:
    """A mean with its standard error, rounded to it."""
    return metrics.rounded(*value)


def show_slope(slope: Measured) -> str:
    """A slope with its standard error, or why there is none."""
    return "none, for a mean is not positive" if math.isnan(slope.mean) else show(slope)


def listed(values: Mapping[Any, Measured], label: str = "{}", between: str = ", ") -> str:
    """Numbers by name in one line; `label` is the format of a name, for example "b = {:g}:"."""
    return between.join(f"{label.format(name)} {show(value)}" for name, value in values.items())


def along(results: Results, metric: str, axis: str, **fixed: Any) -> xr.DataArray:
    """The metric at the horizon of the cases with the given coordinates, along one of their coordinates."""
    chosen = {
        d.attrs["coordinates"][axis]: d[metric].isel(time=-1, drop=True) for d in with_coordinates(results, **fixed).values()
    }
    return xr.concat([chosen[v] for v in sorted(chosen)], xr.IndexVariable(axis, sorted(chosen)))


def with_coordinates(results: Results, **fixed: Any) -> Results:
    """The cases with the given coordinates."""
    return {n: d for n, d in results.items() if all(d.attrs["coordinates"].get(k) == v for k, v in fixed.items())}
