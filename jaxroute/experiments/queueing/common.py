"""Shared parts of the experiments of ACQB: metrics, baselines, means over heads and seeds, and comparisons of two policies."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import xarray as xr

from jaxroute import metrics
from jaxroute.experiments.base import Results
from jaxroute.experiments.claims import Finding, Measure, all_hold
from jaxroute.experiments.measure import Measured, mean_of, show
from jaxroute.problems import queueing as qu

PAPER = "ACQB"
RECORD = (
    *("queue_length", "queue_regret", "routing_regret", "joint_regret", "departures", "retrials", "mean_queue", "arrivals"),
    *("explored", "sojourn", "peak"),
)


def not_learning(num_offered: int) -> dict[str, Any]:
    """Policies of appendix B.3 that do not learn the choice model, for a number of answers."""
    single = {"Q-UCB": qu.QUCB(), "Q-ThS": qu.QThS()} if num_offered == 1 else {}
    return {"Optimal": qu.Optimal.of, "Random": qu.Random(), **single}


def over_heads(runs: xr.DataArray, measure: Callable[[xr.DataArray], Measured] = mean_of) -> Measured:
    """A measure of runs `[seed, ...]`; of runs `[head, seed, ...]` with the errors due to training and to seeds.

    Heads and seeds are crossed: every head runs with every seed. The squared error is the sum of those of the seeds' means and of the heads'
    means. Interactions are counted twice, so that the error is slightly too large. The degrees of freedom are Welch's, which are three if the
    part of four heads dominates. More seeds do not reduce that part.
    """
    if "head" not in runs.dims:
        return measure(runs)
    runs = runs.dropna("seed")
    of_seeds, of_heads = measure(runs.mean("head")), measure(runs.mean("seed").rename(head="seed"))
    both = of_seeds.minus(Measured(0.0, of_heads.error, dof=of_heads.dof, number=math.inf, floor=of_heads.error))
    return both.changed(places=of_seeds.places)


def gap(data: xr.Dataset, metric: str, policy: str, minus: str, share: float = 1.0) -> Measured:
    """Mean of a policy's metric minus another policy's, paired by seed and head, at a share of the horizon."""
    times = data["time"].values
    runs = metrics.pick(data, metric).isel(time=int(np.argmin(np.abs(times - share * times[-1]))))
    return over_heads(runs.sel(policy=policy) - runs.sel(policy=minus))


def less(policy: str, than: str, metric: str = "routing_regret", share: float = 1.0) -> Measure:
    """States that a policy has less of a metric than another in every case, paired by seed.

    Args:
      policy, than: names of the policies.
      metric: its name.
      share: share of the horizon at which they are compared.
    """
    when = "" if share == 1.0 else f" at {share:g} of the horizon"

    @all_hold(f"{policy} minus {than}{when}: ")
    def measure(results: Results) -> Iterator[Finding]:
        for name, data in results.items():
            value = gap(data, metric, policy, than, share)
            yield f"{name} {show(value)}", value.below(0.0)

    return measure
