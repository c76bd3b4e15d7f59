"""What the experiments of ACQB share: what is recorded, who plays, means over heads and seeds, and claims that one policy has less."""

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
    """The policies of appendix B.3 that do not learn the choice model, for a number of answers."""
    single = {"Q-UCB": qu.QUCB(), "Q-ThS": qu.QThS()} if num_offered == 1 else {}
    return {"Optimal": qu.Optimal.of, "Random": qu.Random(), **single}


def over_heads(runs: xr.DataArray, measure: Callable[[xr.DataArray], Measured] = mean_of) -> Measured:
    """What is measured of the mean of runs `[seed, ...]`; of runs `[head, seed, ...]` with the error of both, training and luck.

    Heads and seeds are crossed: every head plays every seed. The squared error is that of the seeds' means, over the seeds, plus that of the
    heads' means, over the heads. What is due to neither alone is counted twice, so that the error is rather too large. The degrees of freedom
    are Welch's: three where the part of four heads is the larger one. More seeds do not reduce that part.
    """
    if "head" not in runs.dims:
        return measure(runs)
    runs = runs.dropna("seed")
    of_seeds, of_heads = measure(runs.mean("head")), measure(runs.mean("seed").rename(head="seed"))
    both = of_seeds.minus(Measured(0.0, of_heads.error, dof=of_heads.dof, number=math.inf, floor=of_heads.error))
    return both.changed(places=of_seeds.places)


def gap(data: xr.Dataset, metric: str, policy: str, minus: str, share: float = 1.0) -> Measured:
    """Mean of a policy's metric minus that of another, seed by seed and head by head, at a share of the horizon."""
    times = data["time"].values
    runs = metrics.pick(data, metric).isel(time=int(np.argmin(np.abs(times - share * times[-1]))))
    return over_heads(runs.sel(policy=policy) - runs.sel(policy=minus))


def less(policy: str, than: str, metric: str = "routing_regret", share: float = 1.0) -> Measure:
    """States that a policy has less of a metric than another in every case, seed by seed.

    Args:
      policy, than: names.
      metric: what is compared.
      share: of the horizon at which it is compared.
    """
    when = "" if share == 1.0 else f" at {share:g} of the horizon"

    @all_hold(f"{policy} minus {than}{when}: ")
    def measure(results: Results) -> Iterator[Finding]:
        for name, data in results.items():
            value = gap(data, metric, policy, than, share)
            yield f"{name} {show(value)}", value.below(0.0)

    return measure
