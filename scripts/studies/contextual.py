"""Studies of contextual policies: clicks, with each policy at its best width of exploration.

jaxroute run scripts/studies/contextual.py:widths
"""

from typing import Any

import xarray as xr

from jaxroute import plot
from jaxroute.engine.grid import grid
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Quantity, rising
from jaxroute.experiments.contextual import clicks, learners
from jaxroute.experiments.measure import Measured, mean_of
from jaxroute.experiments.pictures import Panel, side_by_side
from jaxroute.problems import contextual as co

# Factors of each policy's exploration width for clicks, whose noise differs from that of linear rewards.
_WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_LOGISTIC = "LogisticThompson"
_TUNED = ("LinUCB", "OFUL", "LinearThompson", "EpsilonGreedy", "SquareCB, 10 gamma")


def _by_width(name: str) -> Any:
    """Makes a grid of the policy `name`, with its exploration width multiplied by each of several factors."""

    def policy(width: float) -> Any:
        return co.LogisticThompson(scale=width) if name == _LOGISTIC else learners(co.DisjointParameters(), width)[name]

    return grid(policy, width=list(_WIDTHS))


def _tuned_gap(other: str) -> Quantity:
    """Makes a quantity: the regret of logistic Thompson sampling minus that of the policy `other`, each at its best exploration width.

    The best widths are chosen on the even seeds, and the regret is measured on the odd ones.
    """

    def best(results: Results, policy: str) -> xr.DataArray:
        runs = results["result"]["regret"].sel(policy=policy).isel(time=-1)
        width = float(runs.isel(seed=slice(0, None, 2)).mean("seed").idxmin("width"))
        return runs.sel(width=width, drop=True).isel(seed=slice(1, None, 2))

    def of(results: Results) -> Measured:
        return mean_of(best(results, _LOGISTIC) - best(results, other))

    return Quantity(f"minus {other}", of)


EXPERIMENTS = (
    Experiment("contextual/widths", "Regret on clicks (logistic bandits) by the width of exploration",
        (Case(clicks, {name: _by_width(name) for name in (_LOGISTIC, *_TUNED)}, 5000),), 512,
        (Claim("thompson", f"on clicks, logistic Thompson sampling has less regret than {'; '.join(_TUNED)}: each at the best of {len(_WIDTHS)} widths",
            "ours, after Chapelle and Li (2011), Table 2", rising(*((_tuned_gap(other), 0.0) for other in _TUNED))),),
        {"widths": side_by_side(Panel("regret", plot.sweep, x="width", log=True), columns=1)},
        source="ours, after Chapelle and Li (2011), Table 2",
        notes="widths are multiples of LogisticThompson's scale 1, of the standard deviation .25 of linear rewards, of epsilon .05, and of one over ten "
            "times SquareCB's gamma; all policies except LogisticThompson learn a wrong linear model",
        smoke_horizon=200),
)  # fmt: skip
