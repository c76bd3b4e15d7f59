"""Simulates online strategies on recorded queries, and summarises the runs of each setting as a point."""

import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

import jaxroute as jr
from jaxroute.comparison.points import Estimate, Learning, Measures, Point, meets

from .strategies import OnlineStrategy, strategies_for
from .traffic import Traffic

# Number of parts of a stream that are recorded, and number of values that the second grid adds between two neighbours of the first.
_PIECES, _BETWEEN = 20, 3
# Metrics that are recorded with their squares, for standard errors.
_MEASURED = ("quality", "spent", "calls", "latency")


def simulate(
    traffic: Traffic,
    target: float,
    targets: Sequence[float],
    *,
    orders: int,
    warm: float = 0.0,
    folder: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Iterator[list[Point]]:
    """Simulates each strategy on random orders of the queries and yields its points: one per setting of a grid, then of a finer grid near the target.

    Runs of even index (every other order) give `Point.chosen_by`, the others `Point.judged`.

    Args:
      target: requested quality, near which the finer grid lies.
      targets: qualities for which the first grid has budgets or other settings.
      orders: number of random orders, at least 4; all strategies share them.
      warm: share of each order that is served first and not counted: a warm start.
      folder: folder that stores the runs, from which an interrupted call resumes; None to store nothing.
      progress: is called with each step in words.
    """
    for strategy in strategies_for(traffic, targets):
        progress(strategy.name)
        name = "".join(letter if letter.isalnum() else "-" for letter in strategy.name.lower())
        place = None if folder is None else str(Path(folder) / name)
        runs = _runs(strategy, strategy.values, orders, place and f"{place}-grid")
        first = _points(strategy, traffic, runs, warm)
        between = () if strategy.num_grids == 1 else values_between(strategy, first, target)
        if between:
            progress(f"{strategy.name}, near the target")
            # The values may change with more orders, so each set of values has its own folder.
            second = _runs(strategy, between, orders, place and f"{place}-near-{between[0]:.6g}")
            first = first | _points(strategy, traffic, second, warm)
        yield list(first.values())


def _runs(strategy: OnlineStrategy, values: Sequence[float], orders: int, out: str | None) -> xr.Dataset:
    with warnings.catch_warnings():
        # Ends of a grid may have unreachable targets or calls that are not worth their cost.
        warnings.simplefilter("ignore", UserWarning)
        environments = jr.grid(strategy.environment, **{strategy.axis: [float(v) for v in values]})
    options = {name: list(of) for name, of in strategy.options.items()}
    policy = jr.grid(strategy.policy, **options) if options else strategy.policy()
    sizes: dict[str, Any] = {"horizon": strategy.rounds, "seeds": orders, "record_every": max(1, strategy.rounds // _PIECES)}
    data = jr.simulate(environments, {strategy.name: policy}, **sizes, out=out, progress=False)
    return data.sel(policy=strategy.name)


def _points(strategy: OnlineStrategy, traffic: Traffic, data: xr.Dataset, warm: float) -> dict[tuple[float, ...], Point]:
    """Returns points of the runs `data` by setting (value of `axis`, then of `options`). The first share `warm` of the queries is not counted."""
    names, times = [strategy.axis, *strategy.options], data["time"].values
    if len(times) > 2 and times[-1] - times[-2] < times[0] / 2:  # A last part of a few queries is too noisy.
        data = data.isel(time=[*range(len(times) - 2), -1])
        times = data["time"].values
    begin, half = (int(np.searchsorted(times, share * times[-1])) for share in (warm, (1.0 + warm) / 2))
    recorded = [*_MEASURED, *(f"{name}_square" for name in _MEASURED), "answered"]
    data = data[[*recorded, "sent"]].transpose(*names, "seed", "time", "model").astype(np.float64)
    counted = data - data.isel(time=begin, drop=True) if warm else data
    models = [str(name) for name in data["model"].values]
    points = {}
    for place in np.ndindex(*(data.sizes[name] for name in names)):
        setting = {name: float(data[name].values[i]) for name, i in zip(names, place, strict=True)}
        values = ", ".join(f"{name}={value!r}" for name, value in setting.items())
        even, odd = ({name: counted[name].values[place][first::2] for name in recorded} for first in (0, 1))
        judged = _measures(odd, traffic, strategy.pool)
        # Shares come from the odd runs, like `judged`, and add up to the calls per query.
        called = counted["sent"].values[place][1::2, -1].sum(axis=0)
        shares = called * judged.calls.value / max(float(called.sum()), 1.0)
        parts = {name: np.diff(data[name].values[place].mean(axis=0), prepend=0.0) for name in recorded}
        answered = np.maximum(parts["answered"], 1e-9)
        points[tuple(setting.values())] = Point(
            strategy.name,
            "online",
            strategy.words(**setting),
            chosen_by=_measures(even, traffic, strategy.pool),
            judged=judged,
            late=_measures({name: curve - curve[:, half : half + 1] for name, curve in odd.items()}, traffic, strategy.pool),
            needs=strategy.needs,
            further=f"env, policy, rounds = jaxroute.comparison.setting_of(log.table, {strategy.name!r}, {values}{strategy.given})\n"
            f"result = jaxroute.simulate(env, {{{strategy.name!r}: policy}}, horizon=rounds, seeds=256)",
            learning=Learning(
                tuple(round(float(n)) for n in np.cumsum(parts["answered"])),
                tuple((parts["quality"] / answered).tolist()),
                tuple((parts["spent"] / answered).tolist()),
            ),
            shares={name: float(share) for name, share in zip(models, shares, strict=True) if share > 0},
        )
    return points


def _measures(curves: Mapping[str, np.ndarray], traffic: Traffic, pool: int | None = None) -> Measures:
    """Returns means per query at the end of cumulative curves `[seed, time]`, with standard errors due to random orders and to the sample of queries.

    With `pool`, each run draws its queries with replacement from a pool of this size. If `pool` is None, each run serves every query once.
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


def values_between(strategy: OnlineStrategy, points: Mapping[tuple[float, ...], Point], target: float) -> tuple[float, ...]:
    """Chooses three values of the environment's parameter, such as a budget, for a finer grid near the cheapest setting that meets a target.

    They lie between this setting's value and the next value of lower quality in the first grid. `points` are the points of the first grid by setting,
    judged here by `chosen_by`. Returns no values if no setting meets the target, there is no next value, or it meets the target, too.
    """
    reached = {s: p.chosen_by for s, p in points.items() if meets(p.chosen_by.quality, target)}
    if not reached:
        return ()
    best = min(reached, key=lambda s: reached[s].cost.value)
    low, high = sorted(strategy.values), best[0]
    place = low.index(high) + (-1 if strategy.rising else 1)
    if not 0 <= place < len(low) or (low[place], *best[1:]) in reached:
        return ()
    spaced = np.geomspace if min(low[place], high) > 0 else np.linspace
    return tuple(float(v) for v in spaced(low[place], high, _BETWEEN + 2)[1:-1])
