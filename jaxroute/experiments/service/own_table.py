"""MESS+ on the rows of the user's own table."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxroute import plot
from jaxroute.data.logs.log import read_experiment_log
from jaxroute.experiments.base import Case, Results
from jaxroute.experiments.measure import end
from jaxroute.experiments.service import common
from jaxroute.experiments.service.common import experiment
from jaxroute.problems import service as sv


def _table_env(
    data: str | None = None,
    alpha: float = 0.75,
    costs: Mapping[str, float] | None = None,
    threshold: float = 0.5,
    arrival: float | None = None,
) -> sv.ServiceEnv:
    """Environment of the rows of a file, in a random order per run."""
    return sv.table_service(read_experiment_log(data, costs).table, alpha=alpha, threshold=threshold, arrival=arrival)


def _table_policies(env: sv.ServiceEnv) -> dict[str, Any]:
    """Policies for a table, with V in units of one over the mean cost of the most expensive model."""
    one = float(1.0 / max(float(env.mean_cost[-1]), 1e-12))
    return {
        "MESS+": sv.MessPlus(V=one),
        "MESS+, V / 10": sv.MessPlus(V=0.1 * one),
        "MESS+, 10 V": sv.MessPlus(V=10.0 * one),
        **{f"always {name}": sv.Single(m) for m, name in enumerate(env.names)},
        **({"EducatedGuessing": sv.EducatedGuessing.of(env)} if env.alpha <= np.max(env.accuracy) else {}),
        "RouterDC": common.trained_routers(env, 4),
        "OracleBlind": sv.OracleBlind.of(env),
    }


def _table_picture(results: Results) -> Any:
    """Cost against satisfaction with the best blind mixtures, and both over the pass."""
    whole = results["result"]
    data = whole.isel(training=0)
    router = common.over_trainings(whole.sel(policy=["RouterDC"]))
    figure, axes = plot.panels(3)
    unit, alpha = data["cost"].attrs["units"], float((data["violation"] + data["satisfaction"]).isel(time=-1).mean())
    where = {}
    for policy in map(str, data["policy"].values):
        one = router if policy == "RouterDC" else data
        where[policy] = [tuple(end(one, metric, policy) for metric in ("cost", "satisfaction"))]
    data = data.assign_coords(time=data["time"].assign_attrs(long_name="request"))
    runs = f"± 2 s.e. of {data.sizes['seed']:,} runs, {whole.sizes['training']} RouterDCs"
    plot.points(where, x=f"{unit}\n{runs}", y="satisfaction", ax=axes[0], join=False)
    single = [where[policy][0] for policy in where if policy.startswith("always ")]
    shares, costs = common.blind_line([s.mean for _, s in single], [c.mean for c, _ in single])
    axes[0].plot(costs, shares, color="#999999", linewidth=1, zorder=1, label="best blind mixtures")
    plot.level(axes[0], "target", alpha)
    moving = [policy for policy in where if not policy.startswith(("always ", "RouterDC"))]
    plot.curves(data, "satisfaction", policies=moving, reference={"target": alpha}, ax=axes[1])
    plot.curves(data, "cost", policies=moving, ax=axes[2])
    return figure


_NOTES = (
    "one pass over the rows unless --horizon is given; V is one over the mean cost of the most expensive model, a tenth of that and ten times; "
    "RouterDC is trained on the same rows; if the file has no costs, specify those of each model by "
    "--set environment.costs='{\"model\": 0.1, ...}'; --set MESS+.V=..., MESS+.c=..., environment.alpha=..., environment.threshold=..."
)
_OWN = Case(
    _table_env,
    _table_policies,
    6000,
    settings={"data": None},
    record=(*common.RECORD, "explore_cost"),
    one_pass=lambda env: len(env.requests.labels),
)
EXPERIMENTS = (
    experiment(
        "table",
        "MESS+ on the rows of your own table (--data FILE)",
        (_OWN,),
        64,
        (),
        {"table": _table_picture},
        "section 4, with logged outcomes",
        _NOTES,
        stand_in="",
    ),
)
