"""Studies of ACQB: how its constants matter, and how its features are trained.

jaxroute run scripts/studies/queueing.py:contrastive
"""

from typing import Any

from jaxroute import grid, plot
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Finding
from jaxroute.experiments.measure import listed, mean_of, runs_of
from jaxroute.experiments.pictures import Panel, panels_of
from jaxroute.experiments.queueing import LOADS, NOTES, OURS, PAPER, RECORD, claims, data_case, learners, pictures
from jaxroute.problems import queueing as qu

# Effect of kappa, c1 and lambda_0.


def _constants(env: Any) -> dict[str, Any]:
    del env
    kappas, c1s, ridges = [0.0, 0.05, 0.3, 1.0, 5.0], [0.0, 1.0, 4.0], [0.1, 1.0, 5.0]
    return {"ACQB": grid(qu.ACQB, curvature=kappas, c1=c1s, ridge=ridges)}


def _two_loads(arrival_rate: Any = (0.6, 0.7), num_offered: int = 1, horizon: int = 1000) -> Any:
    return grid(qu.RandomQueues, arrival_rate=list(arrival_rate), num_offered=num_offered, horizon=horizon)


def _runs(results: Results, **constants: float) -> Any:
    """Returns ACQB's regret in each run at arrival rate .7; `constants` replace the defaults lambda_0 = 1, kappa = .3 and c1 = 1."""
    where = {"arrival_rate": 0.7, "ridge": 1.0, "curvature": 0.3, "c1": 1.0, **constants}
    return runs_of(results["result"], "routing_regret", "ACQB", **where)


def _by(results: Results, axis: str) -> str:
    return listed({v: mean_of(_runs(results, **{axis: v})) for v in results["result"][axis].values}, "{:g}:")


def _large_curvature(results: Results) -> Finding:
    more = mean_of(_runs(results, curvature=5.0) - 2.0 * _runs(results))
    text = f"regret by kappa, {_by(results, 'curvature')}; that of 5 minus twice that of .3: {more}"
    return text, more.above(0.0)


def _exploring_costs(results: Results) -> Finding:
    costs = {c1: mean_of(_runs(results, c1=c1) - _runs(results, c1=0.0)) for c1 in (1.0, 4.0)}
    text = f"regret by c1, {_by(results, 'c1')}; minus that without: {listed(costs, 'c1 = {:g}:')}"
    return text, [cost.above(0.0) for cost in costs.values()]


_HEAT = Panel("routing_regret", plot.heat, policy="ACQB", x="curvature", y="c1", change=lambda data: data.sel(ridge=1.0))


EXPERIMENTS = (
    Experiment("queueing/kappa-sensitivity", "Effect of kappa and c1 at two arrival rates (lambda_0 = 1)",
        (Case(_two_loads, _constants, 1000, settings={"num_offered": 1}, record_every=250, record=RECORD),), 128,
        (
            Claim("theory-kappa", "a kappa that the theory requires more than doubles the regret", "ours", _large_curvature),
            Claim("exploring", "forced exploration only increases the regret at this horizon", "ours", _exploring_costs)),
        {"kappa-sensitivity": panels_of(rows=[_HEAT], columns="arrival_rate")},
        source="ours: the paper does not specify these constants",
        notes="all 90 settings share random numbers, in one compiled call; those with another lambda_0 (.1, 5) are in the table",
        smoke_horizon=40),
    Experiment("queueing/contrastive", "Value of training ACQB-CL's head: four heads of each training, at three loads",
        tuple(data_case("sprout", 1, load, policies=learners, data="standin") for load in LOADS[1]), 16,
        claims(only=("beats-cqb", "contrastive", "longer"), source=OURS),
        pictures("contrastive", {1: LOADS[1]}, baselines=False), source=f"{PAPER}, section 6.2",
        stand_in="a generated stand-in for SPROUT-o3mini", notes=NOTES, smoke_horizon=60, any_table=True),
)  # fmt: skip
