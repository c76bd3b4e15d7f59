"""Measurements of results, such as means with standard errors, shares, quantiles and slopes, and their texts."""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from jaxroute import metrics
from jaxroute.core.attributes import decoded
from jaxroute.experiments.base import Results
from jaxroute.experiments.verdicts import CONFIDENCE, Measured


def runs_of(data: xr.Dataset, metric: str, policy: str, time: Any = None, **where: Any) -> xr.DataArray:
    """Returns a metric of a policy's valid runs, `[seed]`, at a recorded time (default: the horizon). `where` selects values of setting axes."""
    runs = _curves_of(data, metric, policy, **where)
    runs = runs.isel(time=-1) if time is None else runs.sel(time=time)
    return runs.dropna("seed")


def _curves_of(data: xr.Dataset, metric: str, policy: str, **where: Any) -> xr.DataArray:
    """Returns a metric `[seed, time]` of a policy for the setting `where`, which may omit axes on which the metric does not depend."""
    if metrics.has_runs(data):
        data = data[[metric, "valid"]]
    curves = metrics.pick(data.sel(policy=policy, **where), metric)
    return _one_setting(curves, metrics.own_axes([curves]))


def _one_setting(data: Any, own: Sequence[str]) -> Any:
    """Selects the first value on each setting axis that has only one value or is not in `own`, the axes on which the metric depends."""
    return data.isel({axis: 0 for axis in metrics.setting_axes(data) if axis not in own or data.sizes[axis] == 1})


def end(data: xr.Dataset, metric: str, policy: str, time: Any = None, **where: Any) -> Measured:
    """Returns the mean of a policy's metric, with its standard error, at a recorded time (default: the horizon); `where` selects a setting."""
    if metrics.has_runs(data):
        return mean_of(runs_of(data, metric, policy, time, **where))
    one = data.sel(policy=policy, **where)
    one = one.isel(time=-1) if time is None else one.sel(time=time)
    one = _one_setting(one, metrics.own_axes_of(one, metric))
    mean, error, count = (float(f(one, metric)) for f in (metrics.mean, metrics.stderr, metrics.count))
    return Measured(mean, error, dof=count - 1, places=(_place(one),))


def mean_of(runs: xr.DataArray, unit: str = "") -> Measured:
    """Returns the mean of `runs` `[seed]`. If entries are not seeds, `unit` is what they are, such as "training"; more seeds then reduce no error."""
    found = _series(runs)
    if unit:
        found.index = pd.Index([f"{unit} {label}" for label in found.index])
    one = Measured.of_runs(found, places=(_place(runs),))
    return one.changed(floor=one.error) if unit else one


def _series(runs: xr.DataArray) -> pd.Series:
    return pd.Series(runs.values.astype(float), runs["seed"].values).dropna()


def _place(data: xr.Dataset | xr.DataArray) -> dict[str, Any]:
    """Returns the coordinates with a single value, such as the policy: they identify where a number in the results was read."""
    return {str(name): value.item() for name, value in data.coords.items() if value.ndim == 0}


def share_of(flags: xr.DataArray) -> Measured:
    """Returns the share of runs whose flag is true, with the exact binomial interval (Clopper and Pearson, 1934)."""
    from scipy import stats

    found = _series(flags)
    test = stats.binomtest(int(found.sum()), max(len(found), 1))
    return Measured.of_runs(found, places=(_place(flags),), bounds=lambda confidence: tuple(test.proportion_ci(confidence)))


def quantile_of(runs: xr.DataArray, level: float) -> Measured:
    """Returns the quantile of the runs at `level`. The ends of its interval are two of the sorted runs, with ranks from the binomial distribution.

    The interval is infinite if a rank is outside the sample, as for the 99 % quantile of fewer than 500 runs. The error is half of the 68 % interval.
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
    """Returns the means of several policies at the horizon, by policy name; `where` selects a setting."""
    return {str(policy): end(data, metric, policy, **where) for policy in policies}


def ends_along(
    data: xr.Dataset, metric: str, policy: str, axis: str, values: Iterable[Any] | None = None, **where: Any
) -> dict[Any, Measured]:
    """Returns a policy's mean of a metric at the horizon by value of the setting `axis` (default: all `values`); `where` selects other settings."""
    values = data[axis].values if values is None else values
    return {value: end(data, metric, policy, **{axis: value}, **where) for value in values}


def paired_gap(data: xr.Dataset, metric: str, policy: str, minus: str, place: int = -1) -> Measured:
    """Returns the mean difference in a metric between `policy` and `minus`, paired by seed, at the record with index `place` (default: the last)."""
    if metrics.has_runs(data):
        time = data["time"].values[place]
        return end(data, metric, policy, time).minus(end(data, metric, minus, time))
    found = metrics.paired(data, metric, minus).sel(policy=policy).isel(time=place)
    return Measured(float(found["mean"]), float(found["stderr"]), dof=float(found["count"]) - 1, places=(_place(found),))


def late_slope(data: xr.Dataset, metric: str, policy: str, start: float, every_time: bool = False, **where: Any) -> Measured:
    """Returns the log-log slope (see `power`) of a policy's mean curve from round `start` on: at 13 times, or all if `every_time`."""
    times = data["time"].values
    targets = np.geomspace(max(start, times[0]), times[-1], 13)
    chosen = times >= start if every_time else np.unique(np.abs(times[:, None] - targets).argmin(axis=0))
    return power(_curves_of(data, metric, policy, **where).isel(time=chosen), "time")


def late_runs(data: xr.Dataset, metric: str, policy: str, **where: Any) -> xr.DataArray:
    """Returns a metric's mean per round in the later half of each run, `[seed]`; in the whole run if it has one record. A gauge raises ValueError."""
    total = metrics.cumulative(data.sel(policy=policy, **where)[[metric, "valid"]], metric)
    times, half = data["time"].values, len(data["time"]) // 2 - 1
    first, start = (0.0, 0) if half < 0 else (total.isel(time=half, drop=True), times[half])
    return (total.isel(time=-1, drop=True) - first) / float(times[-1] - start)


def power(runs: xr.DataArray, axis: str) -> Measured:
    """Returns the log-log slope of means over seeds along `axis`; NaN for one point or seed, or if a mean without its largest run is not positive."""
    places, values = (_place(runs),), runs.dropna("seed").transpose(axis, "seed").values
    if min(values.shape) < 2 or not (values.sum(axis=1) > values.max(axis=1).clip(0)).all():
        missing = "none, since a mean is not positive"
        return Measured(math.nan, math.nan, dof=runs.sizes["seed"] - 1, places=places, missing=missing)
    fit = metrics.slope(runs[axis].values, values)
    return Measured(fit.slope, max(fit.stderr, 1e-8), dof=values.shape[1] - 1, places=places)  # Metrics are float32.


def published(value: float, runs: int, simulated: Measured) -> Measured:
    """Returns a paper's mean `value` over `runs` runs, with a standard error that assumes the standard deviation of the simulated runs."""
    error = simulated.error * math.sqrt(simulated.number) / math.sqrt(runs)
    return Measured(value, error, dof=runs - 1, number=math.inf, floor=error)


def product(*factors: Measured, over: Measured | None = None) -> Measured:
    """Returns the product of means, divided by the mean `over` if given. The standard error is that of the delta method, with runs paired by seed.

    The result is infinite if `over` is 0. To compare `a / b` with `c / d` when `b` or `d` may be 0, compare `a d` with `c b`.
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
    """Averages several measured numbers; the standard error takes into account that values of the same run are correlated."""
    values = list(values)
    return functools.reduce(Measured.plus, values).times(1.0 / len(values))


def listed(values: Mapping[Any, Measured], label: str = "{}", between: str = ", ") -> str:
    """Returns one line of text with each number after its name, separated by `between`; `label` is the format of names, such as "b = {:g}:"."""
    return between.join(f"{label.format(name)} {value}" for name, value in values.items())


def along(results: Results, metric: str, axis: str, **fixed: Any) -> xr.DataArray:
    """Joins a metric at the horizon over cases along a new dimension `axis`, one of their coordinates. `fixed` selects cases by other coordinates."""
    cases = {coordinates_of(data)[axis]: data for data in with_coordinates(results, **fixed).values()}
    runs = [cases[value][metric].isel(time=-1, drop=True).drop_vars("case", errors="ignore") for value in sorted(cases)]
    return xr.concat(runs, xr.IndexVariable(axis, sorted(cases)))


def with_coordinates(results: Results, **fixed: Any) -> Results:
    """Selects the cases that have the given coordinates."""
    return {name: data for name, data in results.items() if fixed.items() <= coordinates_of(data).items()}


def coordinates_of(data: xr.Dataset) -> dict[str, Any]:
    """Returns the coordinates of the case to which a result belongs."""
    return decoded(data.attrs)["case_coordinates"]


def over_heads(runs: xr.DataArray, measure: Callable[[xr.DataArray], Measured] = mean_of) -> Measured:
    """Returns `measure` (default: the mean) of runs over seeds and heads, with a standard error that covers both. Runs may lack the dimension `head`.

    A head is a trained projection of the features; every head runs with every seed. The squared standard error is the sum of two: that of the means
    over heads, across seeds, and that of the means over seeds, across heads. Interactions are in both, so the sum is slightly too large. The degrees
    of freedom are Welch's: about three if there are four heads and their error dominates. More seeds do not reduce the error due to heads.
    """
    if "head" not in runs.dims:
        return measure(runs)
    runs = runs.dropna("seed")
    of_seeds, of_heads = measure(runs.mean("head")), measure(runs.mean("seed").rename(head="seed"))
    both = of_seeds.minus(Measured(0.0, of_heads.error, dof=of_heads.dof, number=math.inf, floor=of_heads.error))
    return both.changed(places=of_seeds.places)


def head_gap(data: xr.Dataset, metric: str, policy: str, minus: str, share: float = 1.0) -> Measured:
    """Returns the mean difference in a metric between `policy` and `minus`, paired by seed and head, after the fraction `share` of the rounds."""
    times = data["time"].values
    runs = metrics.pick(data, metric).isel(time=int(np.argmin(np.abs(times - share * times[-1]))))
    return over_heads(runs.sel(policy=policy) - runs.sel(policy=minus))


def windows(data: xr.Dataset, policy: str = "ACQB") -> xr.DataArray:
    """Returns the mean queue of `policy` minus the optimal policy's, `[first, seed]`, in windows of rounds from `first` to about twice `first`."""
    runs = metrics.cumulative(data[["mean_queue_regret", "valid"]].sel(policy=policy), "mean_queue_regret")
    times, places = runs["time"].values, [runs.sizes["time"] - 1]
    while (first := int(np.argmin(np.abs(times - times[places[0]] / 2)))) < places[0]:
        places.insert(0, first)
    if len(places) < 2:
        raise ValueError(
            f"windows need at least two recorded rounds, got {len(times)}: lengthen the horizon, or record more often"
        )
    gains = runs.isel(time=places).diff("time", label="lower").transpose("time", "seed").rename(time="first")
    return gains / np.diff(times[places])[:, None]
