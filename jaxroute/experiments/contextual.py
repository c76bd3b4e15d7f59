"""Experiments on contextual bandits: regret compared with theoretical bounds, and routing of the recorded queries of a table."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from jaxroute import plot
from jaxroute.data import standin
from jaxroute.data.logs.log import read_experiment_log
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import bounded, gap, known, mean, rising, slope
from jaxroute.experiments.measure import end
from jaxroute.problems import contextual as co

# Number of models, dimension of contexts, standard deviation of rewards, and norm of the parameters of logistic models (of others: 1).
_MODELS, _DIM, _NOISE, _STEEP = 5, 5, 0.25, 6.0
_TITLES = {
    "disjoint": "linear, a parameter for each model",
    "shared": "linear, one parameter for all models",
    "logistic": "logistic, a parameter for each model",
}


def _unit(number: int) -> np.ndarray:
    """Returns `number` random vectors of length 1, `[number, _DIM]`, the same in every call."""
    rows = np.random.default_rng(1).normal(size=(number, _DIM))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def learners(parameters: Any, width: float = 1.0) -> dict[str, Any]:
    own = {"parameters": parameters}
    return {
        "LinUCB": co.LinUCB(alpha=_NOISE * width, **own),
        "OFUL": co.OFUL(noise=_NOISE * width, **own),
        "LinearThompson": co.LinearThompson(scale=_NOISE * width, **own),
        "EpsilonGreedy": co.EpsilonGreedy(epsilon=0.05 * width, **own),
        "SquareCB": co.SquareCB(**own),
        "SquareCB, 10 gamma": co.SquareCB(scale=10.0 / width, **own),
    }


def clicks() -> Any:
    return co.logistic(_STEEP * _unit(_MODELS), intercept=True)


_BASELINES = {"BestSingle": co.BestSingle.of, "Uniform": co.Uniform(), "Oracle": co.Oracle.of}
_CASES = {
    "disjoint": (lambda: co.linear(_unit(_MODELS), _NOISE, intercept=True), learners(co.DisjointParameters()) | _BASELINES),
    "shared": (lambda: co.linear(_unit(1)[0], _NOISE, num_models=_MODELS), learners(co.SharedParameters()) | _BASELINES),
    "logistic": (clicks, {"LogisticThompson": co.LogisticThompson(), **learners(co.DisjointParameters()), **_BASELINES}),
}
# Number of learned parameters: one for all models, or one for each.
_PARAMETERS = {"shared": 1, "disjoint": _MODELS}


def _oful(case: str, times: Any) -> np.ndarray:
    return co.oful_bound(times, _DIM, noise=_NOISE, number=_PARAMETERS[case])


def _squarecb(case: str, rounds: int) -> np.ndarray:
    return co.squarecb_bound(rounds, _MODELS, co.square_regret(float(rounds), _DIM, _PARAMETERS[case], 1.0))


_RATIO = "Abbasi-Yadkori, Pal and Szepesvari (2011), Theorem 3"


def _regret_figure(results: Results) -> Any:
    figure, axes = plot.panels(len(results))
    for ax, (case, data) in zip(axes, results.items(), strict=True):
        times, bounds = data["time"].values, {}
        if case in _PARAMETERS:
            bounds["bound of OFUL"] = times, _oful(case, times)
            # At each round, gamma is the one for this round as the horizon.
            bounds["bound of SquareCB"] = times, [float(_squarecb(case, int(t))) for t in times]
        shown = [str(p) for p in data["policy"].values if p != "Oracle"]
        plot.curves(data, "regret", log=True, policies=shown, reference=bounds, ax=ax, title=_TITLES[case])
    return figure


_REGRET = Experiment("contextual/regret", "Regret of contextual policies on linear and logistic bandits, beside the bounds",
    tuple(Case(env, policies, 5000, name, coordinates={"rewards": name}) for name, (env, policies) in _CASES.items()),
    seeds=512, claims=(
        Claim("oful-bound", "the regret of OFUL is at most its bound", _RATIO,
              bounded((mean("OFUL", "shared"), known("the bound", partial(_oful, "shared"), "shared"), mean("Uniform", "shared")))),
        Claim("oful-sublinear", "the regret of OFUL grows slower than the rounds: slope of the second half below .9", _RATIO,
              rising(*((slope("OFUL", case, share=0.5), 0.9) for case in ("shared", "disjoint")))),
        Claim("squarecb-bound", "the regret of SquareCB is at most its bound", "Foster and Rakhlin (2020), Theorem 1",
              bounded(*((mean("SquareCB", case), known("the bound", partial(_squarecb, case), case), mean("Uniform", case)) for case in ("shared", "disjoint")))),
        Claim("context", "policies that use contexts have less regret than the best single model", "Li et al. (2010), section 5.4",
              rising(*((gap(policy, "BestSingle", case), 0.0) for case in _TITLES for policy in learners(co.DisjointParameters()))))),
    figures={"regret": _regret_figure},
    source="Li et al. (2010); Abbasi-Yadkori et al. (2011); Agrawal and Goyal (2013b); Chapelle and Li (2011); Foster and Rakhlin (2020)",
    notes="widths and scales are the standard deviation of a reward instead of the values in the proofs, except for OFUL's; rewards are normal, while "
        "SquareCB's theorem has them in [0, 1], and ten times its gamma is a practical value; with logistic rewards all policies except LogisticThompson "
        "learn a wrong linear model", smoke_horizon=200)  # fmt: skip


# Recorded queries.

_RULE, _SINGLE = "linear rule (in sample)", "best single model (in sample)"


def _routing(
    data: str = "standin", weight: float = 0.1, directions: int = 8, costs: Mapping[str, float] | None = None
) -> co.TableEnv:
    """Makes an environment that serves the rows of a file in a random order per run.

    Args:
      data: file of a table, or "standin" for generated queries.
      weight: the reward of a query is `score - weight * cost / C`, `C` the highest mean cost of a model.
      directions: number of principal directions of the features in the contexts.
      costs: costs per query of each model, None for those in the file.
    """
    stand_in = data == "standin"
    table = standin("routerbench", scores="binary", queries=4000)[0] if stand_in else read_experiment_log(data, costs).table
    most = float(table.mean_costs().max())
    return co.table_routing(table, cost_weight=weight / most if most > 0 else 0.0, directions=directions)


def _policies(env: co.TableEnv) -> dict[str, Any]:
    """Makes the policies by name. LinUCB and LinearThompson explore with a width of .5, half of the range of scores."""
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


def _table_figure(results: Results) -> Any:
    """Draws three panels: cost against score, mean reward over time, and regret compared with the best linear rule fitted to the served queries."""
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


_TABLE = Experiment("contextual/table",
    "Routing of recorded queries as a contextual bandit: all policies on the rows of a table (--data FILE)",
    (Case(_routing, _policies, 4000, settings={"data": "standin", "weight": 0.1, "directions": 8}, one_pass=lambda env: env.num_queries),),
    seeds=64, figures={"table": _table_figure}, source="Li et al. (2010), with recorded outcomes of all models",
    stand_in="a generated stand-in for RouterBench",
    notes="one pass over the rows unless --horizon is given; the reward is the score minus the weighted cost, with weight .1 for a mean call of the "
        "most expensive model (--set environment.weight=.1); two policies know the rows: the best single model, and the linear rule fitted to them",
    smoke_horizon=200)  # fmt: skip

EXPERIMENTS = (_REGRET, _TABLE)
