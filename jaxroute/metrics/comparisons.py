"""Compares results: paired differences between policies, ratios of two metrics, and violations of limits."""

import math
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr

from jaxroute.core import checks
from jaxroute.core.attributes import encoded
from jaxroute.metrics.averages import cells, count, final, mean, stderr
from jaxroute.metrics.selection import Data, describe, has_runs, like, metric_names, own_axes_of, pick, setting_axes
from jaxroute.metrics.texts import rounded, show_value


@checks.suggest_keywords
def paired(data: Data, metric: str | None, baseline: str) -> xr.Dataset:
    """Returns the difference between each other policy and a baseline over time, seed by seed.

    Policies share common random numbers, so this has less noise than the difference of two means. A seed counts if the runs of both policies are
    valid. A result of `keep="moments"` stores these differences. `plot.curves` draws the differences.

    Args:
      data: a result, or one variable of it.
      metric: name of the metric; None if `data` is a variable.
      baseline: name of the policy that is subtracted.

    Returns:
      A Dataset of all policies except the baseline: `mean` of the difference, its standard error `stderr`, the ratio `z` of the two (NaN if both are
      zero), and `count`, the number of seeds.

    Example:
      >>> import jaxroute as jr
      >>> from jaxroute.problems import stochastic
      >>> policies = {"UCB1": stochastic.UCB1(), "Oracle": stochastic.Oracle.of}
      >>> result = jr.simulate(stochastic.bernoulli([0.2, 0.8]), policies, horizon=200, seeds=16, progress=False)
      >>> difference = jr.metrics.paired(result, "reward", baseline="Oracle")
      >>> difference["mean"].dims
      ('policy', 'time')
      >>> bool(difference["mean"].sel(policy="UCB1", time=200) < 0)
      True
    """
    array = like(data, metric)
    if "policy" not in array.dims:
        raise ValueError(f"data must have the dimension 'policy', got {tuple(map(str, array.dims))}")
    names = [str(p) for p in array["policy"].values]
    checks.one_of("baseline", baseline, names)
    others = [i for i, name in enumerate(names) if name != baseline]
    if has_runs(data):
        runs = pick(data, metric)
        difference: Any = runs.isel(policy=others) - runs.isel(policy=names.index(baseline), drop=True)
        difference.attrs = array.attrs
        middle, error, number = mean(difference), stderr(difference), count(difference)
    else:
        difference = data.isel(policy=others).sel(baseline=baseline, drop=True)
        middle, error, number = (f(difference, f"{metric}_difference") for f in (mean, stderr, count))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = middle / error
    about = f"{{}} minus that of {baseline}"
    warned = [text for _, text in worst_violations(violations(data))] if isinstance(data, xr.Dataset) else []
    variables = {"mean": describe(middle, array, about), "stderr": describe(error, array, f"standard error of {about}")}
    variables["z"] = describe(z, array, f"{about}, in standard errors", unit="standard errors")
    variables["count"] = describe(number, array, f"seeds of {about}", unit="seeds")
    return xr.Dataset(variables, attrs=encoded({"baseline": baseline, "metric": str(array.name), "notes": warned}))


def is_paired(data: Any) -> bool:
    return isinstance(data, xr.Dataset) and "baseline" in data.attrs and {"mean", "stderr", "count"} <= set(data.data_vars)


def ratio_of_means(data: xr.Dataset, top: str, bottom: str) -> xr.DataArray:
    """Returns the ratio of the means of two metrics, `top` to `bottom`, as a metric: one value per run, and the mean of these values is the ratio.

    At each time, for each setting and policy, a run's value is `R + (top - R * bottom) / mean(bottom)`, where `R` is the ratio of means. The standard
    error of these values is that of `R` by the delta method, so means, error bars, tables and curves work as for any metric. Unlike a mean of ratios,
    it is finite even if `bottom` is zero in one run.
    """
    upper, lower = pick(data, top), pick(data, bottom)
    with np.errstate(divide="ignore", invalid="ignore"):
        middle = mean(lower)
        ratio = mean(upper) / middle
        values = (ratio + (upper - ratio * lower) / middle).transpose(*upper.dims)
    values.attrs = {"long_name": f"{top} / {bottom}", "units": "ratio of means", "kind": "average"}
    return values.rename(f"{top}_per_{bottom}")


class Violation(NamedTuple):
    """Metric whose mean is above its limit, for one policy in one setting.

    Attributes:
      policy: name of the policy.
      where: value of each setting axis.
      metric: name of the metric.
      value: mean of the metric at the compared time.
      error: standard error of the mean.
      limit: largest allowed mean.
      words: name of the violation, such as "over budget".
    """

    policy: str
    where: dict[str, Any]
    metric: str
    value: float
    error: float
    limit: float
    words: str

    def __str__(self) -> str:
        where = "".join(f", {axis} {show_value(value)}" for axis, value in self.where.items())
        return f"{self.policy}{where}: {self.words}, {self.metric} {rounded(self.value, self.error)}, at most {self.limit:g}"


def violations(data: xr.Dataset, time: int | None = None) -> list[Violation]:
    """Returns each policy, setting and metric whose mean exceeds the metric's limit by three standard errors, at a recorded `time` (default: last).

    Environment and policies define limits (`Metric.limit`), for example on spending, on the share of rounds without feasible routing, or on a
    shortfall of satisfaction.
    """
    found = []
    for name in metric_names(data):
        about = like(data, name)
        if "limit" not in about.attrs:
            continue
        limit, own = about.attrs["limit"], own_axes_of(data, name)
        for policy, _, where, cell in cells(final(data, name, time), setting_axes(about), lambda one, own=own: own):
            value, error = map(float, cell[name])
            margin = 3.0 * error if math.isfinite(error) else 0.0
            if value - margin > limit + 1e-6 * max(abs(limit), abs(value)):
                found.append(Violation(policy, where, name, value, error, limit, about.attrs["violation"]))
    return found


def worst_violations(found: Iterable[Violation]) -> list[tuple[Violation, str]]:
    """Returns, for each policy and metric in `found`, the violation with the largest mean over all settings, and a line of text about it."""
    groups: dict[tuple[str, str], list[Violation]] = {}
    for one in found:
        groups.setdefault((one.policy, one.metric), []).append(one)
    worst = [(max(group, key=lambda one: one.value), len(group)) for group in groups.values()]
    return [(one, f"{one}" + (f" (the worst of {number:,})" if number > 1 else "")) for one, number in worst]


def direction(metric: str, attributes: Any) -> Literal["min", "max"] | None:
    """Returns "min" if less of a metric is better, "max" if more is, by words in its name and in `attributes["long_name"]`; None if none tells."""
    words = f"{metric} {attributes.get('long_name', '')}".lower()
    less = ("regret", "cost", "violation", "loss", "queue", "latency", "infeasible", "overspend", "delay")
    if any(word in words for word in less):
        return "min"
    return "max" if any(word in words for word in ("reward", "score", "accuracy", "quality", "utility")) else None
