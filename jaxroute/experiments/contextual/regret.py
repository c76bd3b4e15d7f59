"""Regret of all policies on linear and logistic bandits, beside the bounds of theory."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from jaxroute import plot
from jaxroute.engine.grid import grid
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import bounded, rising
from jaxroute.experiments.measure import Measured, mean_of
from jaxroute.experiments.quantities import Quantity, gap, known, mean, slope
from jaxroute.problems import contextual as co

# Five models, contexts of five numbers, rewards with a standard deviation of a quarter; parameters of length 1, or 6 for logistic models.
_MODELS, _DIM, _NOISE, _STEEP = 5, 5, 0.25, 6.0
_HORIZON = 5000
_TITLES = {
    "disjoint": "linear, a parameter for each model",
    "shared": "linear, one parameter for all models",
    "logistic": "logistic, a parameter for each model",
    "widths": "logistic, widths of exploration",
}
# Factors of each policy's width for clicks, whose noise is not that of linear rewards.
_WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_CLICKS = "LogisticThompson"
_TUNED = ("LinUCB", "OFUL", "LinearThompson", "EpsilonGreedy", "SquareCB, 10 gamma")


def _unit(number: int) -> np.ndarray:
    """Fixed random directions `[number, d]`."""
    rows = np.random.default_rng(1).normal(size=(number, _DIM))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _learners(parameters: Any, width: float = 1.0) -> dict[str, Any]:
    own = {"parameters": parameters}
    return {
        "LinUCB": co.LinUCB(alpha=_NOISE * width, **own),
        "OFUL": co.OFUL(noise=_NOISE * width, **own),
        "LinearThompson": co.LinearThompson(scale=_NOISE * width, **own),
        "EpsilonGreedy": co.EpsilonGreedy(epsilon=0.05 * width, **own),
        "SquareCB": co.SquareCB(**own),
        "SquareCB, 10 gamma": co.SquareCB(scale=10.0 / width, **own),
    }


def _by_width(name: str) -> Any:
    """A policy at each width."""
    if name == _CLICKS:
        return grid(lambda width: co.LogisticThompson(scale=width), width=list(_WIDTHS))
    return grid(lambda width: _learners(co.DisjointParameters(), width)[name], width=list(_WIDTHS))


_BASELINES = {"BestSingle": co.BestSingle.of, "Uniform": co.Uniform(), "Oracle": co.Oracle.of}
_CASES = {
    "disjoint": (lambda: co.linear(_unit(_MODELS), _NOISE, intercept=True), _learners(co.DisjointParameters()) | _BASELINES),
    "shared": (lambda: co.linear(_unit(1)[0], _NOISE, num_models=_MODELS), _learners(co.SharedParameters()) | _BASELINES),
    "logistic": (
        lambda: co.logistic(_STEEP * _unit(_MODELS), intercept=True),
        {_CLICKS: co.LogisticThompson(), **_learners(co.DisjointParameters()), **_BASELINES},
    ),
    "widths": (
        lambda: co.logistic(_STEEP * _unit(_MODELS), intercept=True),
        {name: _by_width(name) for name in (_CLICKS, *_TUNED)},
    ),
}
# Number of learned parameters: one for all models, or one for each.
_PARAMETERS = {"shared": 1, "disjoint": _MODELS}


def _oful(case: str, times: Any) -> np.ndarray:
    return co.oful_bound(times, _DIM, noise=_NOISE, number=_PARAMETERS[case])


def _squarecb(case: str, rounds: int) -> np.ndarray:
    square = co.square_regret(float(rounds), _DIM, _PARAMETERS[case], 1.0)
    return co.squarecb_bound(rounds, _MODELS, square)


def _tuned_gap(other: str) -> Quantity:
    """Regret of logistic Thompson sampling minus another policy's, each at its best width: chosen on every other seed, judged on the others."""

    def best(results: Results, policy: str) -> tuple[float, xr.DataArray]:
        runs = results["widths"]["regret"].sel(policy=policy).isel(time=-1)
        width = float(runs.isel(seed=slice(0, None, 2)).mean("seed").idxmin("width"))
        return width, runs.sel(width=width, drop=True).isel(seed=slice(1, None, 2))

    def of(results: Results) -> Measured:
        return mean_of(best(results, _CLICKS)[1] - best(results, other)[1])

    return Quantity(f"minus {other}", of)


_LEARNERS = ("LinUCB", "OFUL", "LinearThompson", "EpsilonGreedy", "SquareCB", "SquareCB, 10 gamma")
_RATIO = "Abbasi-Yadkori, Pal and Szepesvari (2011), Theorem 3"
_CLAIMS = (
    ("oful-bound", "the regret of OFUL is at most its bound", _RATIO,
     bounded((mean("OFUL", "shared"), known("the bound", partial(_oful, "shared"), "shared"), mean("Uniform", "shared")))),
    ("oful-sublinear", "the regret of OFUL grows slower than the rounds: slope of the second half below .9", _RATIO,
     rising(*((slope("OFUL", case, share=0.5), 0.9) for case in ("shared", "disjoint")))),
    ("squarecb-bound", "the regret of SquareCB is at most its bound", "Foster and Rakhlin (2020), Theorem 1",
     bounded(*((mean("SquareCB", case), known("the bound", partial(_squarecb, case), case), mean("Uniform", case)) for case in ("shared", "disjoint")))),
    ("context", "policies that use contexts have less regret than the best single model", "Li et al. (2010), section 5.4",
     rising(*((gap(policy, "BestSingle", case), 0.0) for case in _TITLES if case != "widths" for policy in _LEARNERS))),
    ("thompson", f"on clicks, logistic Thompson sampling has less regret than {'; '.join(_TUNED)}: each at the best of {len(_WIDTHS)} widths",
     "ours, after Chapelle and Li (2011), Table 2", rising(*((_tuned_gap(other), 0.0) for other in _TUNED))),
)  # fmt: skip


def _picture(results: Results) -> Any:
    figure, axes = plot.panels(len(results), columns=2)
    for ax, (case, data) in zip(axes, results.items(), strict=True):
        if case == "widths":
            plot.sweep(data, "regret", x="width", log=True, ax=ax, title=_TITLES[case])
            continue
        shown = [str(p) for p in data["policy"].values if p != "Oracle"]
        options = {"policies": shown, "reference": _bounds(case, data), "ax": ax, "title": _TITLES[case]}
        plot.curves(data, "regret", log=True, **options)
    return figure


def _bounds(case: str, data: xr.Dataset) -> Mapping[str, Any]:
    """Reference lines of a panel; SquareCB's bound at a round is that with gamma for this horizon."""
    if case not in _PARAMETERS:
        return {}
    times = data["time"].values
    return {
        "bound of OFUL": (times, _oful(case, times)),
        "bound of SquareCB": (times, [float(_squarecb(case, int(t))) for t in times]),
    }


REGRET = Experiment(
    name="contextual/regret",
    title="Regret of contextual policies on linear and logistic bandits, beside the bounds",
    cases=tuple(
        Case(env, policies, _HORIZON, name, coordinates={"rewards": name}) for name, (env, policies) in _CASES.items()
    ),
    seeds=512,
    claims=tuple(Claim(*claim) for claim in _CLAIMS),
    figures={"regret": _picture},
    source="Li et al. (2010); Abbasi-Yadkori et al. (2011); Agrawal and Goyal (2013b); Chapelle and Li (2011); Foster and Rakhlin (2020)",
    notes="widths and scales are the standard deviation of a reward instead of the values in the proofs, except for OFUL's; rewards are normal, while "
    "SquareCB's theorem has them in [0, 1], and ten times its gamma is a practical value; with logistic rewards all policies except LogisticThompson "
    "learn a wrong linear model. Widths are multiples of LogisticThompson's scale 1, of epsilon .05, and of one over ten times SquareCB's gamma",
    smoke_horizon=200,
)
