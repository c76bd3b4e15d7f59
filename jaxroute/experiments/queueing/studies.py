"""Studies of ACQB that its paper does not contain: how its constants matter, how its features are trained, and your own table."""

from collections.abc import Mapping
from typing import Any

from jaxroute import grid
from jaxroute.analysis import metrics, plot
from jaxroute.estimators.mnl import Newton
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Verdict
from jaxroute.experiments.measure import listed, mean_of, runs_of, show
from jaxroute.experiments.pictures import panel, panels_of
from jaxroute.experiments.queueing.common import PAPER, RECORD, over_heads
from jaxroute.experiments.queueing.prompts import LOADS, NOTES, TRAININGS, claims, data_case, learners, pictures
from jaxroute.problems import queueing as qu

# How kappa, c1 and lambda_0 matter.


def _constants(env: Any) -> dict[str, Any]:
    del env
    solver = Newton(passes=6, search=True)
    return {
        "ACQB": grid(qu.ACQB, curvature=[0.0, 0.05, 0.3, 1.0, 5.0], c1=[0.0, 1.0, 4.0], ridge=[0.1, 1.0, 5.0], solver=solver)
    }


def _two_loads(arrival_rate: Any = (0.6, 0.7), num_offered: int = 1, horizon: int = 1000) -> Any:
    return grid(qu.RandomQueues, arrival_rate=list(arrival_rate), num_offered=num_offered, horizon=horizon)


def _runs(results: Results, **constants: float) -> Any:
    """Regret of each run at arrival rate .7 and lambda_0 = 1, where not given: kappa = .3, c1 = 1."""
    where = {"arrival_rate": 0.7, "ridge": 1.0, "curvature": 0.3, "c1": 1.0, **constants}
    return runs_of(results["result"], "routing_regret", "ACQB", **where)


def _by(results: Results, axis: str) -> str:
    return listed({v: mean_of(_runs(results, **{axis: v})) for v in results["result"][axis].values}, "{:g}:")


def _large_curvature(results: Results) -> Verdict:
    more = mean_of(_runs(results, curvature=5.0) - 2.0 * _runs(results))
    return (
        f"regret by kappa, {_by(results, 'curvature')}; that of 5 minus twice that of .3, to be above 0 by 3 s.e.: {show(more)}",
        more.above(0.0, by=3.0),
    )


def _exploring_costs(results: Results) -> Verdict:
    costs = {c1: mean_of(_runs(results, c1=c1) - _runs(results, c1=0.0)) for c1 in (1.0, 4.0)}
    text = f"regret by c1, {_by(results, 'c1')}; minus that without, to be above 0 by 3 s.e.: {listed(costs, 'c1 = {:g}:')}"
    return text, all(cost.above(0.0, by=3.0) for cost in costs.values())


_CONSTANTS = panels_of(
    rows=(
        panel("routing_regret", plot.heat, policy="ACQB", x="curvature", y="c1", change=lambda data: data.sel(ridge=1.0)),
    ),
    columns="arrival_rate",
)


# Queues of prompts whose claims are about whatever is played.


class _OfAnyTable(Experiment):
    """An experiment whose claims are about the table that is played, a user's own too."""

    def departures(self, horizon: int, changes: Mapping[str, Mapping[str, Any]]) -> str:
        """As of any experiment, but for what names the table."""
        of_table = ("data", "embeddings", "costs", "models", "dim")
        others = {leaf: value for leaf, value in changes.get("environment", {}).items() if leaf not in of_table}
        return super().departures(horizon, {**changes, "environment": others})


def _draw_heads(data: Results, metric: str, ax: Any, label: str) -> None:
    """What the others have more than ACQB at the horizon, by load: means with their errors, and each head as a dot."""
    series: dict[str, list[tuple[Any, Any]]] = {}
    for one in data.values():
        last = metrics.pick(one, metric).isel(time=-1)
        for place, policy in enumerate(("CQB-eps", *TRAININGS)):
            x = one.attrs["coordinates"]["load"] + 0.012 * (place - 1)
            more = last.sel(policy=policy) - last.sel(policy="ACQB")
            series.setdefault(policy, []).append((x, over_heads(more)))
            if policy in TRAININGS:
                ax.plot(
                    [x + 0.004] * more.sizes["head"],
                    more.mean("seed"),
                    ".",
                    color=plot.look(ax, policy)["color"],
                    markersize=4,
                )
    ax.axhline(0.0, color="#444444", linewidth=0.8)
    about = "load; dots: each head\nmean ± 2 s.e. of heads and seeds"
    plot.points(series, x=about, y=f"{label} minus that of ACQB", ax=ax, join=False)
    ax.set_xticks([one.attrs["coordinates"]["load"] for one in data.values()])


def _heads(results: Results):
    figure, axes = plot.panels(2, columns=2)
    _draw_heads(results, "routing_regret", axes[0], "routing regret (departures)")
    _draw_heads(results, "queue_length", axes[1], "queue length (queries)")
    return figure


STUDIES = (
    Experiment(
        "queueing/kappa-sensitivity",
        "How kappa and c1 matter, at two arrival rates (lambda_0 = 1)",
        (Case(_two_loads, _constants, 1000, settings={"num_offered": 1}, record_every=250, record=RECORD),),
        128,
        (
            Claim("theory-kappa", "a kappa that the theory asks for more than doubles the regret", "ours", _large_curvature),
            Claim("exploring", "at this horizon forced exploration only costs", "ours", _exploring_costs),
        ),
        {"kappa-sensitivity": _CONSTANTS},
        source="ours: the paper gives none of these constants",
        notes="all 90 settings meet the same luck, in one compiled call; those with another lambda_0 (.1, 5) are in the table",
        smoke_horizon=40,
    ),
    _OfAnyTable(
        "queueing/contrastive",
        "What training ACQB-CL's head is good for: four heads of each training, at three loads",
        tuple(data_case("sprout", 1, load, policies=learners) for load in LOADS[1]),
        16,
        claims(only=("beats-cqb", "contrastive", "longer")),
        {"contrastive": _heads},
        source=f"{PAPER}, section 6.2, on the stand-in for SPROUT-o3mini or a table of the user's (--data FILE)",
        notes=NOTES,
        smoke_horizon=60,
    ),
    _OfAnyTable(
        "queueing/table",
        "ACQB on the rows of your own table, at three loads (--data FILE)",
        tuple(data_case("routerbench", 1, load) for load in LOADS[1]),
        32,
        claims(),
        pictures("table", {1: LOADS[1]}),
        source=f"{PAPER}, section 6.2, with a table of the user's",
        notes="at most 1,000 and two thirds of the rows are the pool, the heads of ACQB-CL learn from the others; where the file has no "
        "costs, give the cost per query of each model with --set environment.costs='{\"model\": 0.1, ...}'; " + NOTES,
        smoke_horizon=60,
    ),
)
