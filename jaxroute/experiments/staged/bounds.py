"""Theorem 1 of StageRoute in its models and slots, with the confidence parameter of the theorem, beside the bound itself."""

import math
from typing import Any

import numpy as np

from jaxroute.analysis import plot
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Finding, Measure
from jaxroute.experiments.measure import Measured, along, end, power, show, show_slope, with_coordinates
from jaxroute.experiments.staged.figures import PAPER
from jaxroute.problems import staged

_HORIZON, _DELTA = 2**18, 0.1
_STAGES = 64  # T^(1/3).
_MODELS, _SLOTS = (24, 48, 96), (3, 6, 12)


def _case(models: int, slots: int, which: str) -> Case:
    def market(horizon: int) -> staged.MarketEnv:
        stages = min(horizon, _STAGES)
        return staged.discovery_market(horizon=horizon, stages=stages, max_deployed=slots, num_models=models)

    def policies(env: staged.MarketEnv) -> dict[str, Any]:
        gamma = math.log(models * env.horizon / _DELTA)
        return {"StageRoute": staged.StageRoute(gamma=gamma), "Uniform": staged.Uniform()}

    where = {"N": models, "M": slots, "horizon": _HORIZON, "which": which}
    return Case(market, policies, _HORIZON, f"N{models}-M{slots}", coordinates=where, record_every=_HORIZON)


def _bound(models: int, slots: int, horizon: int) -> float:
    return staged.upper_bound(models, slots, min(horizon, _STAGES), horizon, _DELTA)


def _below_bound(models: int) -> Measure:
    def measure(results: Results) -> Finding:
        parts, stated = [], []
        for data in with_coordinates(results, N=models).values():
            slots, horizon = (data.attrs["coordinates"][name] for name in ("M", "horizon"))
            most = _bound(models, slots, horizon)
            regret, uniform = (end(data, "regret", name) for name in ("StageRoute", "Uniform"))
            too = ", which uniform choice keeps too" * (uniform.mean <= most)
            parts.append(f"M = {slots}: {show(regret)} against {most:,.0f}{too}")
            stated.append(regret.at_most(most).unless("uniform choice", uniform.at_most(most)))
        return "; ".join(parts), stated

    return measure


def _growth(axis: str, low: float, high: float) -> Measure:
    """The power of N with which regret grows for each M, or of M for each N."""
    other, values = ("M", _SLOTS) if axis == "N" else ("N", _MODELS)

    def measure(results: Results) -> Finding:
        found: dict[int, Measured] = {}
        for value in values:
            cases = with_coordinates(results, which="square", **{other: value})
            found[value] = power(along(cases, "regret", axis).sel(policy="StageRoute"), axis)
        text = ", ".join(f"{other} = {value}: {show_slope(slope)}" for value, slope in found.items())
        return f"power of {axis}, {text}", [slope.within(low, high) for slope in found.values()]

    return measure


def _corollary(results: Results) -> Finding:
    parts, stated = [], []
    for data in with_coordinates(results, which="corollary").values():
        models, horizon = (data.attrs["coordinates"][name] for name in ("N", "horizon"))
        most = models ** (1 / 3) * horizon ** (2 / 3)
        regret, uniform = (end(data, "regret", name) for name in ("StageRoute", "Uniform"))
        parts.append(f"N = {models}: {show(regret)} against {most:,.0f}")
        stated.append(regret.at_most(most).unless("uniform choice", uniform.at_most(most)))
    return "; ".join(parts), stated


def _figure(results: Results) -> Any:
    figure, axes = plot.panels(len(_SLOTS))
    for ax, slots in zip(axes, _SLOTS, strict=True):
        cases = with_coordinates(results, which="square", M=slots)
        horizon = next(iter(cases.values())).attrs["coordinates"]["horizon"]
        regret = along(cases, "regret", "N")
        ax.plot(_MODELS, [_bound(n, slots, horizon) for n in _MODELS], label="bound of Theorem 1", **plot.look(ax, "bound"))
        plot.power_laws({name: regret.sel(policy=name) for name in ("StageRoute", "Uniform")}, ax=ax, title=f"M = {slots}")
    return figure


_CLAIMS = (
    *(
        (f"bound-{n}", f"with {n} models regret is below sqrt(M K T log(N T / delta)) + N T / (M K)", "", _below_bound(n))
        for n in _MODELS
    ),
    ("models", "it grows like the models, as N T / (M K) does (power from .9 to 1.1)", "", _growth("N", 0.9, 1.1)),
    (
        "slots",
        "it falls like one over the slots, as N T / (M K) does (power from -1.1 to -.9)",
        "",
        _growth("M", -1.1, -0.9),
    ),
    ("corollary", "with N^(2/3) slots and T^(1/3) stages it is below N^(1/3) T^(2/3)", ", second form", _corollary),
)
EXPERIMENTS = (
    Experiment(
        "staged/theorem-1",
        "How regret grows with the models that wait and falls with the slots, beside the bound of Theorem 1",
        (
            *(_case(models, slots, "square") for models in _MODELS for slots in _SLOTS),
            *(_case(models, int(np.round(models ** (2 / 3))), "corollary") for models in _MODELS),
        ),
        16,
        tuple(Claim(name, text, f"{PAPER}, Theorem 1{where}", measure) for name, text, where, measure in _CLAIMS),
        {"theorem-1": _figure},
        source=f"{PAPER}, Theorem 1; the instance is ours",
        notes="gamma = log(N T / delta) with delta = .1; the theorem leaves its constants open, here they are 1",
        smoke_horizon=4096,
    ),
)
