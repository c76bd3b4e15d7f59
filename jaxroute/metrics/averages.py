"""Computes statistics over seeds: means with standard errors, quantiles, tail probabilities, and values at the horizon."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

from jaxroute.core import checks, statistics
from jaxroute.metrics.selection import Data, at_time, check_metrics, describe, has_runs, like, pick, statistic

_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


def mean(data: Data, metric: str | None = None) -> xr.DataArray:
    """Returns the mean of a metric over the valid seeds; NaN for a policy that does not have the metric."""
    if not has_runs(data):
        return statistic(data, metric, "mean")
    return pick(data, metric).mean("seed", keep_attrs=True)


def stderr(data: Data, metric: str | None = None) -> xr.DataArray:
    """Returns the standard error of `mean`: sample deviation (ddof=1) over the square root of the number of seeds; NaN with one seed."""
    if not has_runs(data):
        variance, number = (statistic(data, metric, s) for s in ("variance", "count"))
        return describe((variance / number.where(number > 1)) ** 0.5, variance, "standard error of {}")
    array = pick(data, metric)
    # In NumPy, because xarray's alignments would take most of the time for small results.
    values, axis = array.values, array.get_axis_num("seed")
    number = np.count_nonzero(~np.isnan(values), axis, keepdims=True)
    middle = np.nansum(values, axis, keepdims=True) / np.maximum(number, 1)
    with np.errstate(invalid="ignore", over="ignore"):  # Values may be infinite.
        squares = np.nansum((values - middle) ** 2, axis)
    number = np.where(number > 1, number, np.nan).squeeze(axis)
    errors = array.isel(seed=0, drop=True).copy(data=np.sqrt(squares / (number - 1) / number))
    return describe(errors, array, "standard error of {}")


def deviation(data: Data, metric: str | None = None) -> xr.DataArray:
    """Returns the standard deviation of a metric over the valid seeds (ddof=1)."""
    array = pick(data, metric) if has_runs(data) else statistic(data, metric, "variance")
    return describe(array.std("seed", ddof=1) if has_runs(data) else array**0.5, array, "standard deviation of {}")


def count(data: Data, metric: str | None = None) -> xr.DataArray:
    """Returns the number of valid seeds over which `mean` averages."""
    array = pick(data, metric) if has_runs(data) else statistic(data, metric, "count")
    return describe(array.count("seed") if has_runs(data) else array, array, "seeds of {}", unit="seeds")


def quantiles(data: Data, metric: str | None = None, q: Sequence[float] | float = _LEVELS) -> xr.DataArray:
    """Returns quantiles over the valid seeds at the levels `q` (default: 5, 25, 50, 75 and 95 %), along a first dimension `quantile`.

    If the result stores statistics instead of runs, they come from a histogram and are accurate to 0.8 % (`statistics.RELATIVE_ACCURACY`).
    """
    levels = np.atleast_1d(checks.probability("q", q))
    if not has_runs(data):
        low, high = (statistic(data, metric, s) for s in ("minimum", "maximum"))
        counts = data[f"{metric}_histogram"].transpose(*low.dims, f"{metric}_bin")
        values = statistics.quantiles(data[f"{metric}_bin"].values, counts.values, low.values, high.values, levels)
        return xr.DataArray(values, {**low.coords, "quantile": levels}, ("quantile", *low.dims), metric, low.attrs)
    array = pick(data, metric)
    number = array.count("seed")
    skipna = bool(((number > 0) & (number < array.sizes["seed"])).any())  # NumPy's nanquantile is far slower.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice")
        return array.quantile(levels, "seed", skipna=skipna, keep_attrs=True)


def quantile_intervals(
    data: Data, metric: str | None = None, q: Sequence[float] | float = _LEVELS, confidence: float = 0.95
) -> xr.Dataset:
    """Returns quantiles with confidence intervals that are valid for any distribution.

    Both ends of an interval are sorted runs, chosen so that the quantile lies between them with at least the given probability (the number of runs
    below a quantile is binomial). An end is infinite if there are too few runs: the quantile of 5 % has no lower end with fewer than 72 runs. If the
    result stores statistics instead of runs, the ends are moved outwards by the accuracy of the histogram, 0.8 %.

    Args:
      data: a result, or one variable of it.
      metric: name of the metric; None if `data` is a variable.
      q: levels of the quantiles.
      confidence: probability of each interval.

    Returns:
      A Dataset with a first dimension `quantile`: `value`, as from `quantiles`, and the ends `low` and `high` of the intervals.

    Example:
      >>> import jaxroute as jr
      >>> from jaxroute.problems import stochastic
      >>> env = stochastic.bernoulli([0.2, 0.8])
      >>> result = jr.simulate(env, stochastic.UCB1(), horizon=200, seeds=100, progress=False)
      >>> median = jr.metrics.quantile_intervals(result, "regret", q=[0.5]).isel(policy=0, quantile=0, time=-1)
      >>> bool(median["low"] < median["value"] < median["high"])
      True
    """
    from scipy import stats

    level = check_confidence(confidence)
    values = quantiles(data, metric, q)
    lead = values.isel(quantile=0).dims
    number = count(data, metric).transpose(*lead).values
    levels = values["quantile"].values.reshape(-1, *[1] * number.ndim)
    # Ranks (from 0) of the sorted runs that are the two ends.
    first, last = (stats.binom.ppf((1 + side * level) / 2, number, levels).astype(np.int64) for side in (-1, 1))
    first = first - 1
    if has_runs(data):
        runs = np.sort(pick(data, metric).transpose("seed", *lead).values, axis=0)
        low, high = (np.take_along_axis(runs, np.clip(one, 0, len(runs) - 1), 0) for one in (first, last))
    else:
        least, most = (statistic(data, metric, s).values for s in ("minimum", "maximum"))
        counts = data[f"{metric}_histogram"].transpose(*lead, f"{metric}_bin").values
        middle, share = data[f"{metric}_bin"].values, [r / np.maximum(number - 1, 1) for r in (first, last)]
        low, high = (statistics.quantiles(middle, counts, least, most, np.clip(one, 0, 1)) for one in share)
        low, high = (ends + side * statistics.RELATIVE_ACCURACY * np.abs(ends) for ends, side in ((low, -1), (high, 1)))
        low, high = np.maximum(low, least), np.minimum(high, most)
    low = np.where(number > 0, np.where(first < 0, -np.inf, low), np.nan)
    high = np.where(number > 0, np.where(last >= number, np.inf, high), np.nan)
    about = f"{level:g} confidence of quantiles of {{}}"
    ends = {"low": describe(values.copy(data=low), values, about), "high": describe(values.copy(data=high), values, about)}
    return xr.Dataset({"value": values, **ends}, attrs={"confidence": level})


def check_confidence(confidence: Any) -> float:
    level = float(checks.share("confidence", confidence, ()))
    if level == 1:
        raise ValueError("confidence must be in (0, 1), got 1")
    return level


def tail(data: Data, metric: str | None = None, *, above: float) -> xr.Dataset:
    """Returns the probability that the metric of a run is above a value: the share of the valid seeds, at each recorded time.

    If the result stores statistics instead of runs, the histogram has a bin of a relative width of 1.6 % around the value. Half of the runs in that
    bin count as above.

    Args:
      data: a result, or one variable of it.
      metric: name of the metric; None if `data` is a variable.
      above: threshold of the metric.

    Returns:
      A Dataset of `probability`; its standard error `stderr`; `lower` and `upper`, the share if none or all runs of that bin count as above (equal if
      single runs are stored); and `count`, the number `n` of seeds. `stderr` is 0 if none or all of the runs are above the value, but then the
      probability is not known exactly: at a true probability of 3 / n, one result in twenty has no run above the value.

    Example:
      >>> import jaxroute as jr
      >>> from jaxroute.problems import stochastic
      >>> env = stochastic.bernoulli([0.2, 0.8])
      >>> result = jr.simulate(env, stochastic.UCB1(), horizon=200, seeds=16, progress=False)
      >>> found = jr.metrics.tail(result, "regret", above=10)
      >>> found["probability"].dims
      ('policy', 'time')
      >>> float(found["probability"].sel(policy="UCB1", time=2))
      0.0
    """
    above = float(checks.numbers("above", above, ()))
    array, number = like(data, metric), count(data, metric)
    if has_runs(data):
        surely = perhaps = (pick(data, metric) > above).sum("seed").values
    else:
        counts = data[f"{metric}_histogram"].transpose(*array.dims, f"{metric}_bin").values
        bins, (own,) = statistics.bins_of(data[f"{metric}_bin"].values), statistics.bins_of(np.asarray([above]))
        surely, perhaps = (counts[..., chosen].sum(axis=-1) for chosen in (bins > own, bins >= own))
        if own == 0:  # The histogram counts all numbers of this bin as zero.
            surely = perhaps = surely if above >= 0 else perhaps
        least, most = (statistic(data, metric, s).values for s in ("minimum", "maximum"))
        surely, perhaps = np.where(least > above, number, surely), np.where(most <= above, 0, perhaps)
    some = number.where(number > 0)
    lower, upper = (array.copy(data=one) / some for one in (surely, perhaps))
    share = (lower + upper) / 2
    error = (share * (1 - share) / (number - 1).where(number > 1)) ** 0.5
    about = f"probability of {{}} above {above:g}"
    variables = {"probability": (share, about), "stderr": (error, f"standard error of {about}")}
    variables |= {"lower": (lower, f"{about}, at least"), "upper": (upper, f"{about}, at most")}
    found = {name: describe(values, array, label, unit="", kind="") for name, (values, label) in variables.items()}
    found["count"] = describe(number, array, f"seeds of {about}", unit="seeds", kind="")
    return xr.Dataset(found, attrs={"metric": str(array.name), "above": above})


def final(data: xr.Dataset, metrics: str | Sequence[str] | None = None, time: int | None = None) -> xr.Dataset:
    """Returns mean and standard error of each metric at the horizon, or at another recorded `time`.

    The Dataset has one variable for each of `metrics` (default: all with a single number per run and time), with dimensions `(policy, settings...,
    statistic)`; `statistic` is "mean" or "stderr".
    """
    now = at_time(data, time)
    variables = {}
    for name in check_metrics(data, metrics):
        middle, error = mean(now, name), stderr(now, name)
        both = middle.expand_dims(statistic=["mean", "stderr"], axis=-1)
        variables[name] = both.copy(data=np.stack([middle.values, error.values], axis=-1))
    return xr.Dataset(variables, attrs=data.attrs)


def cells(
    values: xr.Dataset, axes: Sequence[str], own: Callable[[xr.Dataset], Sequence[str]]
) -> Iterator[tuple[str, dict[str, int], dict[str, Any], dict[str, np.ndarray]]]:
    """Yields the cells of a table of `values`, a result of `final`: one for each policy and each combination of its settings.

    `own` gets the values of one policy and returns those of the setting axes `axes` along which they differ; along the others, the first index is
    used. A cell has the policy's name and three dicts: its index in `values` by dimension, its setting by axis from `own`, and by metric an array
    of mean and standard error.
    """
    if "policy" not in values.dims:
        values = values.expand_dims("policy") if "policy" in values.coords else values.expand_dims(policy=["all"])
    for number, policy in enumerate(values["policy"].values):
        one = values.isel(policy=number)
        used = own(one)
        for index in np.ndindex(*(one.sizes[a] if a in used else 1 for a in axes)):
            place = dict(zip(axes, index))
            where = {axis: one[axis].values[i] for axis, i in place.items() if axis in used}
            cell = {str(n): v.values[tuple(place.get(str(d), slice(None)) for d in v.dims)] for n, v in one.items()}
            yield str(policy), {"policy": number, **place}, where, cell
