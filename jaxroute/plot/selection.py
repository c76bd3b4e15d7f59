"""Checks results before drawing, and selects policies and times."""

import math
from collections.abc import Sequence
from typing import Any

import xarray as xr

from jaxroute import metrics
from jaxroute.core import checks
from jaxroute.metrics.selection import check_result, check_scalar, like

MAX_SETTINGS = 8


def with_policies(data: Any, metric: str) -> tuple[xr.Dataset, xr.DataArray]:
    """Returns the result, with a dimension `policy` if it had none, and a template of the metric (see `like`), `[policy, settings..., time]`."""
    check_result(data)
    array = like(data, metric)
    if "policy" not in array.dims:
        data = data.expand_dims("policy") if "policy" in array.coords else data.expand_dims(policy=["all"])
        array = like(data, metric)
    return data, array


def scalar_metric(data: Any, metric: str) -> tuple[xr.Dataset, xr.DataArray]:
    """Returns the same as `with_policies`. Raises ValueError for a metric with several numbers per run and time."""
    data, array = with_policies(data, metric)
    check_scalar("metric", array, ": select one with data.sel(DIM=...), or draw it with plot.deployment")
    return data, array


def policy_names(array: xr.DataArray) -> list[str]:
    return [str(p) for p in array["policy"].values]


def at_end(data: xr.Dataset, array: xr.DataArray) -> tuple[xr.Dataset, xr.DataArray, str]:
    """Returns the result and the array at the last recorded time, and a text that names this time."""
    if "time" in array.dims:
        data, array = data.isel(time=-1), array.isel(time=-1)
    when = f" at round {int(array['time']):,}" if "time" in array.coords else ""
    return data, array, when


def check_curves(array: xr.DataArray) -> None:
    """Raises ValueError without the dimension `time`, or for more than `MAX_SETTINGS` settings, the most for which curves are drawn."""
    if "time" not in array.dims:
        raise ValueError("data must have the dimension 'time' for a curve; draw a single time with plot.sweep")
    axes = metrics.setting_axes(array)
    settings = math.prod(array.sizes[a] for a in axes)
    if settings > MAX_SETTINGS:
        got = f"{settings} ({', '.join(f'{a}: {array.sizes[a]}' for a in axes)})"
        advice = f"select some with data.sel({axes[0]}=...), or draw the horizon with plot.sweep or plot.heat"
        raise ValueError(f"data must have at most {MAX_SETTINGS} settings for curves, got {got}: {advice}")


def chosen_policies(array: xr.DataArray, policies: str | Sequence[str] | None) -> list[str]:
    """Returns the names of the `policies` to draw (None: all in `array`) as a list. Raises ValueError for a name that is not in `array`."""
    names = policy_names(array)
    return [checks.one_of("policies", p, names) for p in ([policies] if isinstance(policies, str) else policies or names)]


def time_label(array: xr.DataArray) -> str:
    return str(array["time"].attrs.get("long_name", "round"))
