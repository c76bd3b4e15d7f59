"""Routing of recorded queries as a contextual bandit, the common baseline of papers on routers, on the user's table."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxroute import plot
from jaxroute.data import RoutingTable, standin
from jaxroute.data.logs.log import read_experiment_log
from jaxroute.experiments.base import Case, Experiment, Results
from jaxroute.experiments.measure import end
from jaxroute.problems import contextual as co

_RULE, _SINGLE = "linear rule (in sample)", "best single model (in sample)"


def _rows(data: str, costs: Mapping[str, float] | None) -> RoutingTable:
    if data == "standin":
        return standin("routerbench", scores="binary", queries=4000)[0]
    return read_experiment_log(data, costs).table


def _routing(
    data: str = "standin", weight: float = 0.1, directions: int = 8, costs: Mapping[str, float] | None = None
) -> co.TableEnv:
    """Environment of the rows of a file, in a random order per run.

    Args:
      data: file of a table, or "standin" for generated queries.
      weight: weight of a mean call of the most expensive model, in units of the score.
      directions: number of principal directions of the features in the contexts.
      costs: costs per query of each model, if the file has none.
    """
    table = _rows(data, costs)
    most = float(table.mean_costs().max())
    return co.table_routing(table, cost_weight=weight / most if most > 0 else 0.0, directions=directions)


def _policies(env: co.TableEnv) -> dict[str, Any]:
    """Policies with widths and scales of half a score, since scores are between 0 and 1."""
    paid = float(env.cost_weight) * np.asarray(env.costs, float)
    prices = np.log(np.maximum(np.mean(env.costs, axis=0, dtype=float), 1e-12))
    spread = prices.std()
    descriptors = np.column_stack([np.ones(len(prices)), (prices - prices.mean()) / (spread if spread > 0 else 1.0)])
    by_price = co.SharedParameters(descriptors.astype(np.float32))
    return {
        "LinUCB": co.LinUCB(alpha=0.5),
        "OFUL, by price": co.OFUL(parameters=by_price),
        "LinearThompson": co.LinearThompson(scale=0.5),
        "LogisticThompson": co.LogisticThompson(low=float(-paid.max()), high=1.0),
        "EpsilonGreedy": co.EpsilonGreedy(epsilon=0.05),
        "SquareCB": co.SquareCB(),
        "SquareCB, 10 gamma": co.SquareCB(scale=10.0),
        "Uniform": co.Uniform(),
        _SINGLE: co.BestSingle.of(env),
        _RULE: co.Oracle.of(env),
    }


def _picture(results: Results) -> Any:
    """Cost against score, reward per query over the pass, and regret against the linear rule."""
    data = results["result"]
    figure, axes = plot.panels(3)
    names = [str(p) for p in data["policy"].values]
    where = {p: [tuple(end(data, metric, p) for metric in ("cost", "score"))] for p in names}
    unit = f"{data['cost'].attrs['units']}\nmean ± 2 s.e. of {data.sizes['seed']:,} runs"
    plot.points(where, x=unit, y="mean score", ax=axes[0], join=False)
    plot.log_axis(axes[0], "x")
    clairvoyant = end(data, "reward", _RULE).mean + end(data, "regret", _RULE).mean / float(data["time"][-1])
    plot.curves(data, "reward", log="x", reference={"best model of each query": clairvoyant}, ax=axes[1])
    plot.curves(data, "linear_regret", ax=axes[2], policies=[p for p in names if p != _RULE])
    return figure


TABLE = Experiment(
    name="contextual/table",
    title="Routing of recorded queries as a contextual bandit: all policies on the rows of a table (--data FILE)",
    cases=(
        Case(
            _routing,
            _policies,
            4000,
            settings={"data": "standin", "weight": 0.1, "directions": 8},
            one_pass=lambda env: env.num_queries,
        ),
    ),
    seeds=64,
    figures={"table": _picture},
    source="Li et al. (2010), with recorded outcomes of all models",
    stand_in="a generated stand-in for RouterBench",
    notes="one pass over the rows unless --horizon is given; the reward is the score minus the weighted cost, with weight .1 for a mean call of the "
    "most expensive model (--set environment.weight=.1); two policies know the rows: the best single model, and the linear rule fitted to them",
    smoke_horizon=200,
)
