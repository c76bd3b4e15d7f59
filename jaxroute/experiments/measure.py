"""What experiments measure of their results: values at the horizon with standard errors, and how they compare."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from jaxroute.analysis import metrics
from jaxroute.experiments.base import Results

Measured = tuple[float, float]
# Points of a curve to which a slope is fitted.
_SLOPE_POINTS = 13
# Runs behind a number whose standard error is not known.
_FEW_RUNS = 24


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
        return float(metrics.mean(one, metric)), float(metrics.stderr(one, metric))
    runs = runs_of(data, metric, policy, time, **where)
    return float(runs.mean()), float(runs.std("seed", ddof=1) / np.sqrt(runs.count("seed")))


def late_slope(data: xr.Dataset, metric: str, policy: str, start: float, **where: Any) -> Measured:
    """Log-log slope of a policy's mean curve from a round on, with its standard error; NaN where the mean is not positive.

    It is fitted at recorded times that are spaced evenly in the logarithm.
    """
    times = data["time"].values
    wanted = np.geomspace(max(start, times[0]), times[-1], _SLOPE_POINTS)
    chosen = np.unique(np.abs(times[:, None] - wanted).argmin(axis=0))
    return power(_curves_of(data, metric, policy, **where).isel(time=chosen), "time")


def power(runs: xr.DataArray, axis: str) -> Measured:
    """Log-log slope of the mean over seeds along an axis, with its standard error; NaN where a mean is not positive."""
    values = runs.dropna("seed").transpose(axis, "seed").values
    if values.shape[0] < 2 or values.shape[1] < 2 or not (values.sum(axis=1) > values.max(axis=1).clip(0)).all():
        return math.nan, math.nan
    fit = metrics.slope(runs[axis].values, values)
    return fit.slope, fit.stderr


class Number(NamedTuple):
    """What somebody else measured.

    policy: name. horizon: of the run. value, error: mean and its standard error; None where it is not known, for that of 24 runs like
    those it is compared with. time: round (default: the horizon). where: setting, as pairs of axis and value. metric, case: names.
    """

    policy: str
    horizon: int
    value: float
    error: float | None
    time: int | None = None
    where: tuple[tuple[str, Any], ...] = ()
    metric: str = "regret"
    case: str = "result"


def agrees(numbers: Sequence[Number], num_sigma: float = 4.0) -> Callable[[Results], tuple[str, bool]]:
    """Whether means are within so many joint standard errors of the given ones, at the horizon for which these were measured."""

    def measure(results: Results) -> tuple[str, bool]:
        parts, worst = [], 0.0
        for number in numbers:
            data = results[number.case]
            if int(data["time"][-1]) != number.horizon:
                return f"the numbers are for {number.horizon:,} rounds, not {int(data['time'][-1]):,}", False
            where = dict(number.where)
            own = end(data, number.metric, number.policy, number.time, **where)
            error = number.error
            if error is None:
                runs = runs_of(data, number.metric, number.policy, number.time, **where)
                error = float(runs.std(ddof=1)) / math.sqrt(_FEW_RUNS)
            worst = max(worst, abs(own[0] - number.value) / max(math.hypot(own[1], error), 1e-12))
            label = [number.case] if len(results) > 1 else []
            label += [number.policy, *(f"{axis} {metrics.show_value(value)}" for axis, value in where.items())]
            label += [f"at {number.time:,}"] if number.time else []
            label += [number.metric] if number.metric != "regret" else []
            parts.append(f"{' '.join(label)}: {show(own)} against {number.value:g} ({error:.2g})")
        return f"largest gap {worst:.1f} joint standard errors; " + "; ".join(parts), worst <= num_sigma

    return measure


def quotient(a: Measured, b: Measured) -> Measured:
    """`a / b` of two independent means with standard errors."""
    value = a[0] / b[0] if b[0] else np.inf
    return value, abs(value) * float(np.hypot(a[1] / a[0], b[1] / b[0])) if np.isfinite(value) else 0.0


def show(value: Measured) -> str:
    """A mean with its standard error, rounded to it."""
    return metrics.rounded(*value)


def along(results: Results, metric: str, axis: str, **fixed: Any) -> xr.DataArray:
    """The metric at the horizon of the cases with the given coordinates, along one of their coordinates."""
    chosen = {
        d.attrs["coordinates"][axis]: d[metric].isel(time=-1, drop=True)
        for d in results.values()
        if all(d.attrs["coordinates"].get(k) == v for k, v in fixed.items())
    }
    return xr.concat([chosen[v] for v in sorted(chosen)], xr.IndexVariable(axis, sorted(chosen)))


def panels(number: int, columns: int = 3):
    """The plotting module, a figure and its axes."""
    from jaxroute.analysis import plot

    figure, axes = plot.panels(number, columns=columns)
    return plot, figure, axes
