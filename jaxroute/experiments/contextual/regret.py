"""Regret of all policies on linear and logistic bandits, beside the bounds of theory."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from jaxroute.analysis import plot
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import bounded, rising
from jaxroute.experiments.quantities import gap, known, mean, slope
from jaxroute.problems import contextual as co

# Five models, contexts of five numbers, rewards with a standard deviation of a quarter; parameters are 1 long, of logistic models 6.
_MODELS, _DIM, _NOISE, _STEEP = 5, 5, 0.25, 6.0
_HORIZON = 5000
_TITLES = {
    "disjoint": "linear, a parameter for each model",
    "shared": "linear, one parameter for all models",
    "logistic": "logistic, a parameter for each model",
}


def _unit(number: int) -> np.ndarray:
    """`[number, d]` random directions, always the same."""
    rows = np.random.default_rng(1).normal(size=(number, _DIM))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _learners(parameters: Any) -> dict[str, Any]:
    own = {"parameters": parameters}
    return {
        "LinUCB": co.LinUCB(alpha=_NOISE, **own),
        "OFUL": co.OFUL(noise=_NOISE, **own),
        "LinearThompson": co.LinearThompson(scale=_NOISE, **own),
        "EpsilonGreedy": co.EpsilonGreedy(epsilon=0.05, **own),
        "SquareCB": co.SquareCB(**own),
        "SquareCB, 10 gamma": co.SquareCB(scale=10.0, **own),
    }


_RIVALS = {"BestSingle": co.BestSingle.of, "Uniform": co.Uniform(), "Oracle": co.Oracle.of}
_CASES = {
    "disjoint": (lambda: co.linear(_unit(_MODELS), _NOISE, intercept=True), _learners(co.Disjoint()) | _RIVALS),
    "shared": (lambda: co.linear(_unit(1)[0], _NOISE, num_models=_MODELS), _learners(co.Shared()) | _RIVALS),
    "logistic": (
        lambda: co.logistic(_STEEP * _unit(_MODELS), intercept=True),
        {"LogisticThompson": co.LogisticThompson(), **_learners(co.Disjoint()), **_RIVALS},
    ),
}
# Parameters that are learned: the same for all models, or one for each.
_PARAMETERS = {"shared": 1, "disjoint": _MODELS}


def _oful(case: str, times: Any) -> np.ndarray:
    return co.oful_bound(times, _DIM, noise=_NOISE, number=_PARAMETERS[case])


def _squarecb(case: str, rounds: int) -> np.ndarray:
    square = co.square_regret(float(rounds), _DIM, _PARAMETERS[case], 1.0)
    return co.squarecb_bound(rounds, _MODELS, square)


_LEARNERS = ("LinUCB", "OFUL", "LinearThompson", "EpsilonGreedy", "SquareCB", "SquareCB, 10 gamma")
_RATIO = "Abbasi-Yadkori, Pal and Szepesvari (2011), Theorem 3"
_CLAIMS = (
    ("oful-bound", "the regret of OFUL is at most its bound", _RATIO,
     bounded((mean("OFUL", "shared"), known("the bound", partial(_oful, "shared"), "shared"), mean("Uniform", "shared")))),
    ("oful-sublinear", "the regret of OFUL grows slower than the rounds: slope of the second half below .9", _RATIO,
     rising(*((slope("OFUL", case, share=0.5), 0.9) for case in ("shared", "disjoint")))),
    ("squarecb-bound", "the regret of SquareCB is at most its bound", "Foster and Rakhlin (2020), Theorem 1",
     bounded(*((mean("SquareCB", case), known("the bound", partial(_squarecb, case), case), mean("Uniform", case)) for case in ("shared", "disjoint")))),
    ("context", "whoever looks at contexts has less regret than the best single model", "Li et al. (2010), section 5.4",
     rising(*((gap(policy, "BestSingle", case), 0.0) for case in _CASES for policy in _LEARNERS))),
    ("thompson", "on clicks, logistic Thompson sampling has less regret than LinUCB and epsilon-greedy",
     "Chapelle and Li (2011), Table 2",
     rising(*((gap("LogisticThompson", rival, "logistic"), 0.0) for rival in ("LinUCB", "EpsilonGreedy")))),
)  # fmt: skip


def _picture(results: Results) -> Any:
    figure, axes = plot.panels(len(results))
    for ax, (case, data) in zip(axes, results.items(), strict=True):
        shown = [str(p) for p in data["policy"].values if p != "Oracle"]
        options = {"policies": shown, "reference": _bounds(case, data), "ax": ax, "title": _TITLES[case]}
        plot.curves(data, "regret", log=True, **options)
    return figure


def _bounds(case: str, data: xr.Dataset) -> Mapping[str, Any]:
    """Lines of a panel; SquareCB's bound at a round is that of the gamma for so many rounds."""
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
    notes="widths and scales are the standard deviation of a reward, not those of the proofs but for OFUL's; rewards are normal, where SquareCB's "
    "theorem has them in [0, 1], and ten times its gamma is what one would use; on logistic rewards policies but LogisticThompson learn a linear model that is wrong",
    smoke_horizon=200,
)
