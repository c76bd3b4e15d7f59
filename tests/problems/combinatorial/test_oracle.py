"""Policies for which all means are known."""

import pytest
from combinatorial_cases import SUBJECTS, TASKS, end, play
from helpers import assert_mean_close
from reference import combinatorial as plain

from jaxroute.problems import combinatorial as cb


@pytest.mark.slow
def test_steady_state_of_the_relaxed_oracle():
    """Closed form: two sets mixed by one coin. Cost at the budget, violation of a round above zero for ever."""
    for costs, fixed in ((cb.ScaledCosts(), False), (cb.FixedCosts(), True)):
        data = play(cb.sciq_cloud(reward="suc", costs=costs), cb.OracleRelaxed.of, horizon=4000, seeds=64)
        expected = plain.steady_state("SUC", plain.SCIQ9_MU, [p / 0.12 for p in plain.SCIQ9_PRICE], 4, 0.5, fixed)
        for name in ("reward", "cost", "violation"):
            assert_mean_close(end(data, name), float(expected[name]), what=f"{costs} {name}")


@pytest.mark.parametrize(
    ("task", "budget"),
    [
        pytest.param(task, budget, marks=() if (task, budget) in (("suc", "common"), ("awc", "own")) else pytest.mark.slow)
        for task in TASKS
        for budget in ("common", "own")
    ],
)
def test_oracle_of_groups(task, budget):
    """Its mean cost meets every budget, sum up earns the relaxed optimum, and its sets take as many of each group as they may."""
    budget = {"common": 0.9, "own": [0.3, 0.15, 0.6]}[budget]
    env = cb.sciq_cloud(reward=task, costs=cb.FixedCosts(), budget=budget, **SUBJECTS)
    data = play(env, cb.OracleRelaxed.of, horizon=500, seeds=64)
    assert data["valid"].all()
    relaxed = float(env.best_relaxed[0, 0])
    if task == "suc":
        assert_mean_close(end(data, "reward"), relaxed, what="reward")
    else:
        assert end(data, "reward").mean() >= relaxed - 5e-3 * relaxed
    assert end(data, "violation_eq1").mean() < 0.02
