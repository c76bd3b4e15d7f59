"""Made-up numbers for the results of experiments, in a few words: levels, growths and orders of policies, cases and settings."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import xarray as xr

from jaxroute.core.attributes import decoded

# How far the runs of a metric lie apart, in units of its value.
_NOISE = 0.003


@dataclass(frozen=True)
class Put:
    """Made-up values of one metric; of other places and metrics they stay what they were. Made by `put`.

    metric: name; "run_s" for the seconds of a case.
    level: the value at the end of every axis, or a function of a case's result that gives it.
    policy: name, or a pattern of names as in a shell.
    case: name, or a pattern.
    where: pairs of an axis and the only place on it.
    runs: factors of the runs, repeated as often as needed; None for equal means with a little noise.
    along: pairs of an axis, or a coordinate of the cases, and the power of it with which values grow, or factors, repeated as needed.
    """

    metric: str
    level: float | Callable[[xr.Dataset], Any]
    policy: str
    case: str
    where: tuple[tuple[str, Any], ...]
    runs: tuple[float, ...] | None
    along: tuple[tuple[str, float | tuple[float, ...]], ...]

    def values(self, data: xr.Dataset, part: xr.DataArray, ends: dict[str, float]) -> xr.DataArray:
        """The values of one policy of a case, at the places of `part`."""
        values = self.level(data) if callable(self.level) else self.level
        for axis, change in self.along:
            points = part[axis] if axis in part.dims else xr.DataArray(float(decoded(data.attrs)["case_coordinates"][axis]))
            if isinstance(change, tuple):
                values = values * points.copy(data=np.resize(np.asarray(change, float), points.shape))
            else:
                values = values * (points / ends.get(axis, points.max())) ** change
        return values * xr.DataArray(_runs(part.sizes["seed"], self.runs), dims="seed") + 0.0 * part


def put(
    metric: str,
    level: float | Callable[[xr.Dataset], Any] = 1.0,
    *,
    policy: str = "*",
    case: str = "*",
    where: dict[str, Any] | None = None,
    runs: Sequence[float] | None = None,
    **along: float | tuple[float, ...],
) -> Put:
    """A `Put`, with axes as keywords: `put("regret", 5, policy="COSMOS", time=0.5)` grows with the square root of time, up to 5."""
    places, runs = tuple((where or {}).items()), None if runs is None else tuple(runs)
    return Put(metric, level, policy, case, places, runs, tuple(along.items()))


def _runs(number: int, factors: Sequence[float] | None = None) -> np.ndarray:
    """Factors of the runs, which have the mean 1 unless they are given."""
    return 1.0 + _NOISE * np.linspace(-1, 1, number) if factors is None else np.resize(np.asarray(factors, float), number)


def _filled(results: dict[str, xr.Dataset], values: Callable[[int, xr.DataArray], np.ndarray]) -> dict[str, xr.Dataset]:
    """Results with `values(number of the case, curve)` instead of each curve, in a second. What a policy does not have stays NaN."""
    made = {}
    for place, (case, data) in enumerate(results.items()):
        new = {
            m: (a.dims, np.where(np.isnan(a.values), np.nan, values(place, a)), a.attrs) for m, a in _curves(data).items()
        }
        made[case] = data.assign(new)
        made[case].attrs["run_s"] = 1.0
    return made


def even(results: dict[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """Results in which everything is 1, in every run about so.

    Args:
      results: by case, of `dry_engine`.
    """

    def ones(place: int, array: xr.DataArray) -> np.ndarray:
        return _runs(array.sizes["seed"]).reshape([-1 if d == "seed" else 1 for d in array.dims])

    return _filled(results, ones)


def made_up(results: dict[str, xr.Dataset], puts: Iterable[Put] = ()) -> dict[str, xr.Dataset]:
    """Results with other values where something is put, the last where several are.

    Args:
      results: by case, from `even`.
      puts: each must match something.
    """
    puts, matched = tuple(puts), set()
    coordinates = [pair for data in results.values() for pair in decoded(data.attrs)["case_coordinates"].items()]
    ends = {axis: max(v for a, v in coordinates if a == axis) for axis, _ in coordinates}
    made = {}
    for case, data in results.items():
        here = [one for one in puts if fnmatchcase(case, one.case) and one.metric in (*_curves(data), "run_s")]
        made[case] = data.assign({m: data[m].copy() for m in {one.metric for one in here} - {"run_s"}})
        for one in here:
            if one.metric == "run_s":
                made[case].attrs["run_s"] = one.level
                matched.add(one)
                continue
            for policy in data["policy"].values:
                if fnmatchcase(policy, one.policy):
                    place = {"policy": policy, **dict(one.where)}
                    array = made[case][one.metric]
                    array.loc[place] = one.values(data, array.loc[place], ends)
                    matched.add(one)
    assert matched == set(puts), f"nothing to put there: {set(puts) - matched}"
    return made


def ordered(results: dict[str, xr.Dataset], sign: int) -> dict[str, xr.Dataset]:
    """Results in which policies, cases and the settings of a policy are in order: later ones have more (1) or less (-1).

    What is more also grows faster with time, and along the entries of a vector.
    """

    def growing(place: int, array: xr.DataArray) -> np.ndarray:
        values, dims = array.values.astype(float), list(array.dims)
        new = np.empty_like(values)
        for number in range(len(values)):
            factors = np.full(values.shape[1:], np.exp(0.5 * sign * (number + 0.3 * place)))
            for axis, name in enumerate(dims[1:]):
                size = values.shape[axis + 1]
                shape = [-1 if i == axis else 1 for i in range(len(dims) - 1)]
                if name == "time":
                    time = np.asarray(array["time"].values, float)
                    factors = factors * ((time / time[-1]) ** (0.5 + 0.25 * sign)).reshape(shape)
                elif name == "seed":
                    factors = factors * _runs(size).reshape(shape)
                elif dims.index(name) > dims.index("seed") or _differs(values[number], axis):
                    factors = factors * np.exp(sign * np.linspace(0, 1, size)).reshape(shape)
            new[number] = factors
        return new

    return _filled(results, growing)


def zeros(results: dict[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """Results in which every curve is zero."""
    return _filled(results, lambda place, array: np.zeros(array.shape))


def _curves(data: xr.Dataset) -> dict[str, xr.DataArray]:
    """What a result holds of every policy, run and time."""
    return {str(n): a for n, a in data.data_vars.items() if "time" in a.dims and a.dtype.kind == "f"}


def _differs(values: np.ndarray, axis: int) -> bool:
    """Whether something differs along an axis."""
    return not np.array_equal(values, np.broadcast_to(values.take([0], axis), values.shape), equal_nan=True)
