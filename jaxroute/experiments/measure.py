"""What experiments measure of their results: values at the horizon with standard errors, and how they compare."""

from typing import Any

import numpy as np
import xarray as xr

from jaxroute import metrics
from jaxroute.experiments.base import Results

Measured = tuple[float, float]


def end(data: xr.Dataset, metric: str, policy: str, **where: Any) -> Measured:
    """Mean and standard error of a policy at the horizon, for one setting."""
    runs = metrics.pick(data[[metric, "valid"]].sel(policy=policy, **where), metric).isel(time=-1)
    return float(runs.mean()), float(runs.std("seed", ddof=1) / np.sqrt(runs.count("seed")))


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
    from jaxroute import plot

    figure, axes = plot.panels(number, columns=columns)
    return plot, figure, axes
