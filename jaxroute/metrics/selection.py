"""Selects metrics, runs and axes of a result."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from jaxroute.core import checks

_KINDS = ("total", "average", "gauge")

Data = xr.Dataset | xr.DataArray


class NeedsRunsError(ValueError):
    """Raised if a function needs single runs, but the result stores only statistics of them."""


def has_runs(data: Data) -> bool:
    """Whether a result stores single runs rather than statistics and a histogram of each metric."""
    names = [str(name) for name in data if str(name).endswith("_histogram")] if isinstance(data, xr.Dataset) else []
    return not any(f"{name.removesuffix('_histogram')}_bin" in data[name].coords for name in names)


def metric_names(data: xr.Dataset) -> list[str]:
    """Returns the names of scalar metrics, without flags such as `valid`. If the result has a dimension `time`, metrics without it are left out."""
    check_result(data)
    names = [name for name, variable in data.data_vars.items() if variable.attrs.get("kind") in _KINDS]
    if "time" in data.dims:
        names = [name for name in names if "time" in data[name].dims]
    names = [str(name) for name in names if not vector_dims(data[name])]
    return names if has_runs(data) else [name.removesuffix("_mean") for name in names]


def check_result(data: Any) -> None:
    if not isinstance(data, xr.Dataset):
        raise ValueError(f"data must be the xarray.Dataset of a simulation, got {checks.show(data)}")


def metrics_with_statistics(data: xr.Dataset) -> list[str]:
    """Returns the names of all metrics, also vectors, of a result that stores statistics instead of runs."""
    return [str(n).removesuffix("_mean") for n, v in data.data_vars.items() if v.attrs.get("kind") in _KINDS]


def check_metrics(data: xr.Dataset, metrics: str | Sequence[str] | None) -> list[str]:
    """Returns names of metrics as a list (default: all with a single number per run). Raises ValueError for unknown names."""
    check_result(data)
    if metrics is None:
        return metric_names(data)
    known = [str(n) for n in data.data_vars if n != "valid"] if has_runs(data) else metrics_with_statistics(data)
    return [checks.one_of("metrics", m, known) for m in ([metrics] if isinstance(metrics, str) else metrics)]


def statistic(data: Data, metric: str | None, name: str) -> xr.DataArray:
    """Returns a stored statistic of a metric, such as `name="mean"`, with the name and the attributes of the metric."""
    own = metrics_with_statistics(data)  # pyright: ignore[reportArgumentType]
    checks.one_of("metric", metric, own + [f"{n}_difference" for n in own if f"{n}_difference_mean" in data])
    return data[f"{metric}_{name}"].rename(metric).assign_attrs(data[f"{metric}_mean"].attrs)


def like(data: Data, metric: str | None = None) -> xr.DataArray:
    """Returns a template for results: an array with dimensions (except `seed`), coordinates and attributes of a metric; its values mean nothing."""
    if not has_runs(data):
        return statistic(data, metric, "mean")
    return _recorded_runs(data, metric).isel(seed=0, drop=True).astype(np.float64)


def setting_axes(data: Data) -> list[str]:
    """Returns the names of the setting axes (swept hyperparameters), in order."""
    if isinstance(data, xr.Dataset):
        return list(dict.fromkeys(a for v in data.data_vars.values() for a in setting_axes(v)))
    return [str(d) for d in data.dims[: _pivot(data)] if d not in ("policy", "baseline")]


def vector_dims(array: xr.DataArray) -> list[str]:
    """Returns the dimensions that index a vector metric, such as `model`; empty for a single number per run."""
    return [str(d) for d in array.dims[_pivot(array) :] if d not in ("seed", "time")]


def check_scalar(argument: str, array: xr.DataArray, advice: str = "") -> None:
    """Raises ValueError if `array` is a vector metric. The message begins with `argument` and ends with `advice`, "DIM" replaced by the dimension."""
    if vectors := vector_dims(array):
        got = f"{array.name!r} with one per {vectors[0]}{advice.replace('DIM', vectors[0])}"
        raise ValueError(f"{argument} must be a single number per run, got {got}")


def _pivot(array: xr.DataArray) -> int:
    """Returns the position of the first dimension that is `seed` or `time`, where setting axes end; without either, the number of dimensions."""
    return next((i for i, d in enumerate(array.dims) if d in ("seed", "time")), len(array.dims))


def pick(data: Data, metric: str | None = None) -> xr.DataArray:
    """Returns the runs of one metric as float64; values of invalid runs are NaN.

    Args:
      data: a result, or one variable of it.
      metric: name of the variable; None if `data` is a variable.

    Raises:
      ValueError: there is no such metric, or it has no seeds; `NeedsRunsError` if the result stores only statistics.
    """
    array = _recorded_runs(data, metric).astype(np.float64)
    if not isinstance(data, xr.Dataset) or "valid" not in data:
        return array
    valid = data["valid"]
    return array if set(valid.dims) <= set(array.dims) and bool(valid.values.all()) else array.where(valid)


def _recorded_runs(data: Data, metric: str | None) -> xr.DataArray:
    """Returns one metric as it was recorded, with the dimension `seed`. Raises ValueError for unknown names and results without runs, like `pick`."""
    if not has_runs(data):
        problem = "single runs are needed, but only their statistics are stored; run with keep='runs'"
        raise NeedsRunsError(f"{metric or 'this'}: {problem}")
    if isinstance(data, xr.DataArray):
        if metric is not None:
            raise ValueError(f"metric must be None when data is a single variable, got {metric!r}")
        array = data
    elif isinstance(data, xr.Dataset):
        known = [str(n) for n, v in data.data_vars.items() if n != "valid" and ("seed" in v.dims or "seed" in v.coords)]
        if not known:
            got = f"a Dataset of {', '.join(map(str, data.data_vars)) or 'nothing'}"
            raise ValueError(f"data must be the result of a simulation, with single runs along 'seed', got {got}")
        array = data[checks.one_of("metric", metric, known)]
    else:
        raise ValueError(f"data must be an xarray.Dataset or DataArray, got {type(data).__name__}")
    if "seed" not in array.dims:
        if "seed" not in array.coords:
            raise ValueError(f"data must have the dimension 'seed', got {tuple(map(str, array.dims))}")
        array = array.expand_dims("seed", axis=_pivot(array))
    return array


def recorded_times(array: xr.DataArray) -> np.ndarray:
    """Returns the recorded times of an array. Raises ValueError if it has no dimension `time`."""
    if "time" not in array.dims:
        raise ValueError(f"data must have the dimension 'time', got {tuple(map(str, array.dims))}")
    return array["time"].values


def at_time(data: xr.Dataset, time: int | None) -> xr.Dataset:
    """Returns `data` at the recorded `time` (None: the last), as it is if it has a single time. Raises ValueError for any other `time`."""
    check_result(data)
    if "time" not in data.dims:
        if time is not None:
            raise ValueError(f"time must be None when data is a single time, got {checks.show(time)}")
        return data
    times = data["time"].values
    if time is None:
        return data.isel(time=-1)
    if not np.isin(time, times):
        raise ValueError(f"time must be a recorded time ({show_times(times)}), got {checks.show(time)}")
    return data.sel(time=time)


def show_times(times: np.ndarray) -> str:
    """Returns times as text, separated by commas; of more than six times, only the first three and the last are shown."""
    shown = [f"{t:,.10g}" for t in times]
    return ", ".join(shown if len(shown) <= 6 else [*shown[:3], "...", shown[-1]])


def own_axes(arrays: Sequence[xr.DataArray]) -> list[str]:
    """Returns the setting axes on which at least one array depends: its values differ along the axis, or the axis has a single value."""

    def differs(array: xr.DataArray, axis: str) -> bool:
        first = array.isel({axis: [0]}).values
        same = np.broadcast_to(first, array.shape)
        return array.sizes[axis] == 1 or not np.array_equal(array.values, same, equal_nan=True)

    axes = dict.fromkeys(a for array in arrays for a in setting_axes(array))
    return [a for a in axes if any(a in array.dims and differs(array, a) for array in arrays)]


def own_axes_of(data: xr.Dataset, metric: str) -> list[str]:
    """Returns the setting axes along which values of a metric differ."""
    if has_runs(data):
        return own_axes([pick(data, metric)])
    return own_axes([statistic(data, metric, s) for s in ("count", "mean", "variance", "minimum", "maximum")])


def describe(result: xr.DataArray, array: xr.DataArray, label: str, unit: str | None = None, **attrs: Any) -> xr.DataArray:
    """Returns `result` with name and attributes of `array`, but a new `label` ("{}": the old one), `unit` (None: the old one) and `attrs`."""
    unit = array.attrs.get("units", "") if unit is None else unit
    label = label.replace("{}", str(array.attrs.get("long_name", array.name)))
    return result.rename(array.name).assign_attrs({**array.attrs, "long_name": label, "units": unit, **attrs})
