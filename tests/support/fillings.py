"""Made-up numbers for the results of experiments: curves of policies in many orders, sizes and growths."""

import zlib
from collections.abc import Iterable

import numpy as np
import xarray as xr

from jaxroute.experiments.claims import Number

# Powers of time with which a curve grows, how far apart policies and cases are, and how much a setting changes.
_POWERS = (-0.5, 0.0, 0.25, 0.5, 2 / 3, 1.0, 1.5)
_SPREADS = (0.0, 0.03, 0.3, 1.0, 3.0)
_SLOPES = (-3, -1, -0.1, 0.0, 0.1, 1, 3)
_NOISE = 0.003
# How much settings that follow a trend depart from it.
_DEPARTURES = (0.0, 0.0, 0.02)
# Metrics that are zero in half of the fillings.
_ZERO = ("violation",)


def _generator(*names) -> np.random.Generator:
    """Random numbers that belong to these names."""
    return np.random.default_rng([zlib.crc32(str(name).encode()) for name in names])


def own_axes(values: np.ndarray, axes: list[int]) -> list[int]:
    """Axes along which something differs."""
    return [
        a for a in axes if not np.array_equal(values, np.broadcast_to(values.take([0], a), values.shape), equal_nan=True)
    ]


def filled(results: dict[str, xr.Dataset], filling: int) -> dict[str, xr.Dataset]:
    """Results of the cases of an experiment with other numbers.

    Each policy's curve of a metric is a level times a power of time, with a little noise from seed to seed. Levels are products of an effect of
    the policy, of the case, and of each setting; of the metric they depend too. What a policy does not have stays NaN.

    Args:
      results: by case, of `dry_engine`: numbers that differ along the axes on which a policy depends.
      filling: number of the filling; 0 and 1 order policies, cases and settings one way and the other.
    """
    style = _generator("style", filling)
    spread, spread_cases = style.choice(_SPREADS), style.choice(_SPREADS)
    scale, share = np.exp(5.0 * style.normal()), style.random() < 0.3
    power = style.choice(_POWERS) if style.random() < 0.5 else None
    made = {}
    for place, (case, data) in enumerate(results.items()):
        arrays = {}
        for metric, array in data.data_vars.items():
            if "time" not in array.dims or array.dtype.kind != "f":
                continue
            arrays[metric] = (
                array.dims,
                _numbers(array, str(metric), place, case, filling, spread, spread_cases, power),
                array.attrs,
            )
            if share:  # A metric with values up to 1.
                top = np.nanmax(np.abs(arrays[metric][1]), initial=1e-9)
                arrays[metric] = (array.dims, arrays[metric][1] / top, array.attrs)
            elif filling > 1 and metric in _ZERO and _generator("zero", filling, metric).random() < 0.5:
                arrays[metric] = (array.dims, 0.0 * arrays[metric][1], array.attrs)
            elif filling > 1:
                arrays[metric] = (array.dims, arrays[metric][1] * scale, array.attrs)
        made[case] = data.assign(arrays)
        made[case].attrs["run_s"] = float(np.exp(4.0 * _generator("run_s", filling, case).normal()))
    return made


def _numbers(
    array: xr.DataArray, metric: str, place: int, case: str, filling: int, spread, spread_cases, common
) -> np.ndarray:
    dims, values = list(array.dims), array.values
    settings = [i for i, d in enumerate(dims) if d not in ("policy", "seed", "time") and i < dims.index("seed")]
    time = np.asarray(array["time"].values, float)
    relative = (time / (time[-1] if filling % 2 else 1000.0)).reshape([-1 if d == "time" else 1 for d in dims[1:]])
    out = np.empty(values.shape)
    order = {0: 1, 1: -1}.get(filling, 0)
    for number, policy in enumerate(array["policy"].values):
        rng = _generator(filling, metric, policy)
        if order:
            level, power = np.exp(0.5 * order * (number + 0.3 * place)), 0.5 + 0.25 * order
        else:
            case_rng = _generator(filling, metric, policy, case)
            level = np.exp(spread * rng.normal() + spread_cases * case_rng.normal())
            power = rng.choice(_POWERS) if common is None else common
        curve = level * relative**power
        for axis in own_axes(values[number], [i - 1 for i in settings]):
            size = values.shape[axis + 1]
            steps = np.linspace(0, 1, size)
            effect = (
                order * steps if order else rng.choice(_SLOPES) * steps + rng.choice(_DEPARTURES) * rng.normal(size=size)
            )
            curve = curve * np.exp(effect).reshape([-1 if i == axis else 1 for i in range(len(dims) - 1)])
        for axis in range(dims.index("time"), len(dims) - 1):
            weight = rng.dirichlet(np.ones(values.shape[axis + 1]))
            curve = curve * weight.reshape([-1 if i == axis else 1 for i in range(len(dims) - 1)])
        seeds = [values.shape[dims.index("seed")] if d == "seed" else 1 for d in dims[1:]]
        common = _generator(filling, metric).normal(size=seeds)
        noise = _NOISE * (common + 0.3 * rng.normal(size=seeds))
        out[number] = curve * (1.0 + noise)
    return np.where(np.isnan(values), np.nan, out)


def zeros(results: dict[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """Results in which every curve is zero."""
    made = {}
    for case, data in results.items():
        curves = {n: a for n, a in data.data_vars.items() if "time" in a.dims and a.dtype.kind == "f"}
        made[case] = data.assign({name: (a.dims, 0.0 * a.values, a.attrs) for name, a in curves.items()})
        made[case].attrs["run_s"] = 1.0
    return made


def agreeing(results: dict[str, xr.Dataset], numbers: Iterable[Number]) -> dict[str, xr.Dataset]:
    """Results in which every policy has these numbers at the time that they belong to; other values are those of filling 0.

    Args:
      results: by case.
      numbers: of a claim that compares with what others measured.
    """
    made = filled(results, 0)
    for number in numbers:
        data = made[number.case]
        time = data["time"].values[-1] if number.time is None else number.time
        place = {"policy": number.policy, "time": time, **dict(number.where)}
        array = data[number.metric]
        spread = 1.0 + 1e-3 * np.linspace(-1, 1, data.sizes["seed"])
        array.loc[place] = number.value * xr.DataArray(spread, dims="seed")
    return made
