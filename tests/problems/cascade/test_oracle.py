"""Policies that know the environment."""

import numpy as np
import pytest
from cascade_cases import assert_near, study

import jaxroute as jr
from jaxroute.problems import cascade as ca


@pytest.mark.slow
def test_the_cascade_beats_every_single_call():
    """Two boxes, and .04 per request between the cascade and the best single call."""
    env = ca.two_boxes()
    data = study(env, {"oracle": ca.Oracle.of, "one call": ca.ContextSingle.of}, horizon=400).isel(time=-1)
    assert_near(data["utility"].sel(policy="oracle"), 0.54, 0.0, "cascade")
    assert_near(data["regret"].sel(policy="one call"), 0.04 * 400, 0.0, "one call")
    assert float(np.abs(data["regret"].sel(policy="oracle")).max()) < 1e-3


ORACLE = {
    0.1: (0.6456, 0.0784),
    0.25: (0.6444, 0.0715),
    0.5: (0.6416, 0.0639),
    1.0: (0.6343, 0.0540),
    2.0: (0.6170, 0.0421),
    4.0: (0.5691, 0.0260),
    8.0: (0.5236, 0.0172),
}


THRESHOLDS = {0.40: (0.5540, 0.0258), 0.45: (0.5814, 0.0360), 0.50: (0.6080, 0.0509), 0.55: (0.6282, 0.0693), 0.60: (0.6397, 0.0879), 0.65: (0.6445, 0.1040)}  # fmt: skip


@pytest.mark.slow
def test_cost_and_quality():
    """Mean score and mean cost of the oracle by cost weight, and of fixed thresholds; the oracle's are better."""
    oracle = study(jr.grid(ca.uniform_cascade, cost_weight=list(ORACLE)), {"oracle": ca.Oracle.of}, horizon=800).isel(
        policy=0, time=-1
    )
    frugal = study(ca.uniform_cascade(), {"frugal": jr.grid(ca.Frugal, threshold=list(THRESHOLDS))}, horizon=800).isel(
        policy=0, time=-1
    )
    for data, axis, points in ((oracle, "cost_weight", ORACLE), (frugal, "threshold", THRESHOLDS)):
        for value, (reward, cost) in points.items():
            assert_near(data["reward"].sel({axis: value}, method="nearest"), reward, 0.0003, f"reward at {axis} {value}")
            assert_near(data["cost"].sel({axis: value}, method="nearest"), cost, 0.0001, f"cost at {axis} {value}")
    cost, reward = (oracle[n].mean("seed").values[::-1] for n in ("cost", "reward"))
    above = np.interp(frugal["cost"].mean("seed"), cost, reward) - frugal["reward"].mean("seed")
    assert (np.diff(cost) > 0).all() and (above > 0).all()
