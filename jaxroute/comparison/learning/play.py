"""Plays the approaches that learn, and makes points of their runs."""

import itertools
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr

import jaxroute as jr
from jaxroute.comparison.points import Estimate, Learning, Measures, Point, meets

from .approaches import POOL, Approach, approaches_for
from .traffic import Traffic

# Pieces in which a stream is recorded, and values of a setting that are tried between two of the first look.
_PIECES, _BETWEEN = 20, 3
# Approaches whose stream is no pass over all queries are not looked at a second time: they take long, and their target is another one.
_ONE_LOOK = ("ACQB, with retries",)
# What is metered with its square, for standard errors.
_MEASURED = ("quality", "spent", "calls", "latency")
Say = Callable[[str], None]


def looks(approach: Approach) -> int:
    """How often an approach is played, at most: over its grid, then nearer to the target."""
    return 1 if approach.name in _ONE_LOOK else 2


def play(
    traffic: Traffic,
    target: float,
    targets: Sequence[float],
    *,
    orders: int,
    warm: float = 0.0,
    folder: str | os.PathLike[str] | None = None,
    say: Say | None = None,
) -> Iterator[list[Point]]:
    """Plays each approach on random orders of the queries, from a cold start: first over its grid, then nearer to the target.

    Runs with even numbers may be looked at to choose by (`Point.chosen_by`), those with odd ones judge.

    Args:
      traffic: the queries.
      target: quality asked for.
      targets: qualities for which settings are tried.
      orders: random orders, at least 4; approaches meet the same ones.
      warm: share of each order that is played first and not counted: a warm start.
      folder: where runs are kept, so that a second call goes on from them; None to keep nothing.
      say: is told what is played.

    Yields:
      The points of an approach, as soon as they are there.
    """
    for approach in approaches_for(traffic, targets):
        tell = say or (lambda text: None)
        tell(approach.name)
        looked = _runs(approach, approach.values, orders, _place(folder, approach, "grid"))
        first = _points(approach, traffic, looked, warm)
        between = () if looks(approach) == 1 else values_between(approach, first, target)
        if between:
            tell(f"{approach.name}, nearer to the target")
            # More orders may move the values: each set of them has its own place.
            second = _runs(approach, between, orders, _place(folder, approach, f"near-{between[0]:.6g}"))
            first = first | _points(approach, traffic, second, warm)
        yield list(first.values())


# A point of each setting: values of the axis and of the options.
Settings = tuple[float, ...]


def _place(folder: str | os.PathLike[str] | None, approach: Approach, part: str) -> str | None:
    if folder is None:
        return None
    name = "".join(letter if letter.isalnum() else "-" for letter in approach.name.lower())
    return str(Path(folder) / f"{name}-{part}")


def _runs(approach: Approach, values: Sequence[float], orders: int, out: str | None) -> xr.Dataset:
    with warnings.catch_warnings():
        # That a target is out of reach, or no call worth its cost, at the ends of a grid.
        warnings.simplefilter("ignore", UserWarning)
        environments = jr.grid(approach.environment, **{approach.axis: [float(v) for v in values]})
    options = {name: list(of) for name, of in approach.options.items()}
    policy = jr.grid(approach.policy, **options) if options else approach.policy()
    data = jr.simulate(
        environments,
        {approach.name: policy},
        horizon=approach.rounds,
        seeds=orders,
        record_every=max(1, approach.rounds // _PIECES),
        out=out,
        progress=False,
    )
    return data.sel(policy=approach.name)


def _points(approach: Approach, traffic: Traffic, data: xr.Dataset, warm: float) -> dict[Settings, Point]:
    """A point of each setting."""
    names = [approach.axis, *approach.options]
    arrays = {
        name: data[name].transpose(*names, "seed", "time").to_numpy().astype(np.float64)
        for name in (*_MEASURED, *(f"{name}_square" for name in _MEASURED), "answered")
    }
    times = [int(t) for t in data["time"].values]
    sent = data["sent"].isel(time=-1).transpose(*names, "seed", "model").to_numpy().astype(np.float64)
    before = np.zeros_like(sent)
    if warm:
        begin = int(np.searchsorted(times, warm * times[-1]))
        before = data["sent"].isel(time=begin).transpose(*names, "seed", "model").to_numpy().astype(np.float64)
    models = [str(name) for name in data["model"].values]
    points = {}
    for place in itertools.product(*(range(data.sizes[name]) for name in names)):
        values = tuple(float(data[name].values[i]) for name, i in zip(names, place, strict=True))
        curves = {name: array[place] for name, array in arrays.items()}
        point = _point(approach, traffic, dict(zip(names, values, strict=True)), curves, times, warm)
        # As judged, by the odd runs; calls per query are the sum of all shares.
        called = (sent - before)[place][1::2].sum(axis=0)
        shares = called * point.judged.calls.value / max(float(called.sum()), 1.0)
        points[values] = replace(
            point, shares={name: float(share) for name, share in zip(models, shares, strict=True) if share > 0}
        )
    return points


def _point(
    approach: Approach,
    traffic: Traffic,
    setting: dict[str, float],
    curves: Mapping[str, np.ndarray],
    times: list[int],
    warm: float,
) -> Point:
    """A point of curves `[seed, time]`."""
    if len(times) > 2 and times[-1] - times[-2] < times[0] / 2:  # A last piece of a few queries tells nothing.
        times, curves = [*times[:-2], times[-1]], {name: np.delete(curve, -2, axis=1) for name, curve in curves.items()}
    begin, half = (int(np.searchsorted(times, share * times[-1])) for share in (warm, (1.0 + warm) / 2))
    whole = curves if warm == 0.0 else {name: curve - curve[:, begin : begin + 1] for name, curve in curves.items()}
    even, odd = ({name: curve[first::2] for name, curve in whole.items()} for first in (0, 1))
    values = ", ".join(f"{name}={value!r}" for name, value in setting.items())
    pool = min(POOL, traffic.num_queries) if approach.name in _ONE_LOOK else None
    pieces = {name: np.diff(curve.mean(axis=0), prepend=0.0) for name, curve in curves.items()}
    answered = np.maximum(pieces["answered"], 1e-9)
    return Point(
        approach.name,
        "online",
        approach.words(**setting),
        chosen_by=_measures(even, traffic, pool),
        judged=_measures(odd, traffic, pool),
        late=_measures({name: curve - curve[:, half : half + 1] for name, curve in odd.items()}, traffic, pool),
        needs=approach.needs,
        further=f"env, policy, rounds = jaxroute.comparison.setting_of(log.table, {approach.name!r}, {values}{approach.given})\n"
        f"result = jaxroute.simulate(env, {{{approach.name!r}: policy}}, horizon=rounds, seeds=256)",
        learning=Learning(
            tuple(round(float(n)) for n in np.cumsum(pieces["answered"])),
            tuple((pieces["quality"] / answered).tolist()),
            tuple((pieces["spent"] / answered).tolist()),
        ),
    )


def _measures(curves: Mapping[str, np.ndarray], traffic: Traffic, pool: int | None = None) -> Measures:
    """Means per query at the end of curves `[seed, time]`, with errors over orders and over queries.

    Where each query is met once, runs differ by their orders alone, and what queries differ by is seen within a run. Where queries are
    drawn from a `pool` with replacement and served several times, runs differ by both: a run of as many draws as the pool has queries
    varies as the pool itself would.
    """
    sums = {name: curve[:, -1] for name, curve in curves.items()}
    answered = np.maximum(sums["answered"], 1.0)
    queries = min(float(answered.mean()), traffic.num_queries)

    def estimate(name: str) -> Estimate:
        runs = sums[name] / answered
        between = float(runs.var(ddof=1)) if len(runs) > 1 else math.nan
        of_orders, of_queries = between / len(runs), between * float(answered.mean()) / (pool or 1)
        if pool is None:
            of_queries = max(float((sums[f"{name}_square"] / answered).mean() - np.square(runs).mean()), 0.0) / queries
        return Estimate(float(runs.mean()), math.sqrt(of_orders + of_queries))

    latency = None if traffic.latency is None else estimate("latency")
    return Measures(estimate("quality"), estimate("spent"), estimate("calls"), latency)


def values_between(approach: Approach, points: Mapping[Settings, Point], target: float) -> tuple[float, ...]:
    """Values of an approach's axis between the cheapest setting that reaches a target and its neighbour that does not.

    Only what a choice may look at is looked at.

    Args:
      approach: whose settings.
      points: of the first look, by value of the axis and options.
      target: quality asked for.

    Returns:
      Three values, none if all settings reach the target, or none does.
    """
    reached = {s: p.chosen_by for s, p in points.items() if meets(p.chosen_by.quality, target)}
    if not reached:
        return ()
    best = min(reached, key=lambda s: reached[s].cost.value)
    low, high = sorted(approach.values), best[0]
    place = low.index(high) + (-1 if approach.rising else 1)
    if not 0 <= place < len(low) or (low[place], *best[1:]) in reached:
        return ()
    inside = (
        np.geomspace(low[place], high, _BETWEEN + 2)
        if min(low[place], high) > 0
        else np.linspace(low[place], high, _BETWEEN + 2)
    )
    return tuple(float(v) for v in inside[1:-1])
