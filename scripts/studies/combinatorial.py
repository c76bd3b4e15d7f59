"""Studies of C2MAB-V: all policies on all tasks, and variants that its paper leaves open.

jaxroute run scripts/studies/combinatorial.py:variants
"""

from functools import partial
from typing import Any

import numpy as np

from jaxroute import grid, plot
from jaxroute.data import C2MABV_TABLE_3
from jaxroute.experiments.base import Case, Results
from jaxroute.experiments.combinatorial import (
    BASELINES,
    COSTS,
    RATIO,
    RECORD,
    SETTINGS,
    STAND_IN,
    TASKS,
    at_horizon,
    dots,
    experiment,
    sciq,
)
from jaxroute.problems import combinatorial as cb
from jaxroute.problems.combinatorial.instances import SCIQ_SUCCESS

_C, _THOMPSON = SETTINGS["C2MAB-V (c)"], BASELINES["Thompson"]
_TWO = {"C2MAB-V (c)": _C, "CUCB": cb.CUCB()}
_MEANS = SCIQ_SUCCESS.astype(np.float32)
# Choices that the paper leaves open, for C2MAB-V and its baselines: settings of the cloud, policies.
_CHOICES = {
    "order": (
        {"reward": "awc"},
        {
            "by price": _C,
            "by reward bound": cb.C2MABV(order=cb.ByReward()),
            "by cost bound": cb.C2MABV(order=cb.ByCost()),
            "by index": cb.C2MABV(order=cb.ByIndex()),
            "at random": cb.C2MABV(order=cb.ByProbability())}),
    "solver": (
        {"reward": "awc"},
        {
            "vertices": _C,
            "continuous greedy": cb.C2MABV(solver=cb.ContinuousGreedy()),
            "projected gradient": cb.C2MABV(solver=cb.ProjectedGradient()),
            "smoothed LP": cb.C2MABV(solver=cb.Smoothed())}),
    "batches": (
        {},
        {
            "B = 1": _C,
            "B = 1, round robin": cb.C2MABV(start=cb.RoundRobin()),
            "B = 50, set held": cb.C2MABV(batch=50),
            "B = 50, relaxed held": cb.C2MABV(batch=50, hold=cb.HoldRelaxed())}),
    "radius": ({}, {"CUCB": cb.CUCB(), "CUCB, union": cb.CUCB(radius=cb.UnionRadius(0.3))}),
    "graded": (
        {"graded": True},
        {"Thompson, in part": _THOMPSON, "Thompson, by coin": cb.Thompson(graded=cb.CountByCoin())}),
}  # fmt: skip
# Further kinds of clouds: constructor and settings.
_NINE = {"success": tuple(_MEANS), "cost": tuple(C2MABV_TABLE_3.prices / C2MABV_TABLE_3.prices.max())}
_CLOUDS = {
    "tokens": (cb.sciq_cloud, {"costs": cb.TokenCosts()}),
    # Two tutors of the first subject and one of each other, with a budget for each subject (appendix C.1).
    "groups": (cb.sciq_cloud, {"groups": (0, 0, 0, 1, 1, 1, 2, 2, 2), "size": (2, 1, 1), "budget": (0.3, 0.15, 0.6)}),
    "availability": (partial(grid, cb.sciq_cloud), {"reward": "awc", "availability": [0.5, 0.8, 1.0]}),
    "feedback": (partial(grid, cb.sciq_cloud), {"arrival": [0.05, 0.2, 1.0]}),
    "difficulty": (
        partial(grid, cb.parametric_cloud),
        {**_NINE, "reward": "awc", "budget": 0.45, "size": 4, "correlation": [0.0, 0.4, 0.8]},
    ),
    # At some round cheap and expensive models exchange their success rates.
    "drift": (
        partial(
            grid, lambda switch, success, **more: cb.parametric_cloud([success, success[::-1]], switch=[0, switch], **more)
        ),
        {**_NINE, "budget": 0.5, "size": 4, "switch": [1000, 5000, 9000]},
    ),
}


def _variant(name: str, policies: Any, settings: dict[str, Any], cloud: Any = cb.sciq_cloud) -> Case:
    settings, record = {"reward": "suc", "costs": COSTS["scaled"], **settings}, (*RECORD, "realised_reward")
    return Case(cloud, policies, 10_000, name, settings, {"variant": name}, record=record)


def _all_policies(env: Any) -> dict[str, Any]:
    """Returns all policies by name for a cloud, except those with a figure in the paper's experiments (single models, two tiers, offline sets)."""
    return {
        **SETTINGS,
        **BASELINES,
        "Direct": cb.Direct(),
        "ConstrainedThompson": cb.ConstrainedThompson(),
        "RandomSet": cb.RandomSet(),
        "OracleRelaxed": cb.OracleRelaxed.of(env),
        "OracleInteger": cb.OracleInteger.of(env),
    }


def _variants_figure(results: Results):
    """Draws the realised reward and the violation of each variant, one panel each."""
    figure, axes = plot.panels(2 * len(results), columns=4)
    for pair, (name, data) in zip(axes.reshape(-1, 2), results.items(), strict=True):
        for ax, metric in zip(pair, ("realised_reward", "violation"), strict=True):
            dots(data, metric, ax=ax, title=name)
    return figure


EXPERIMENTS = (
    experiment("policies", "Every policy on every task: reward, violation and their ratio",
        [sciq(t, _all_policies, f"{t}-{costs}", costs) for t in TASKS for costs in COSTS], {},
        at_horizon("reward", "violation", RATIO), "section 6", smoke_horizon=200, notes=STAND_IN),
    experiment("variants",
        "Choices that the paper leaves open, and further clouds: groups, drift, lost feedback, models that are not always available",
        [
            *(_variant(name, policies, settings) for name, (settings, policies) in _CHOICES.items()),
            *(_variant(name, _TWO, settings, cloud) for name, (cloud, settings) in _CLOUDS.items())],
        {}, _variants_figure, "sections 3 and 6, appendix C.1 and E.3", 64, smoke_horizon=200, notes=STAND_IN),
)  # fmt: skip
