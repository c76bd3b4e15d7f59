"""Spending under a fixed, a paced and a hard budget."""

import functools

import numpy as np
import pytest
from staged_cases import EVERYTHING, end

from jaxroute import simulate
from jaxroute.problems import staged
from jaxroute.problems.staged import budgets


@functools.cache
def overspending(mode):
    """Runs of a policy that spends too much (gamma = 14), with the budget mode "free", "stop" or "pace"."""
    env = staged.arena_market(max_deployed=6, stage_length=250, horizon=6000, stop_at_budget=mode == "stop")
    policy = staged.StageRoute(gamma=14.0, budget_mode=budgets.Pace() if mode == "pace" else budgets.FixedBudget())
    data = simulate(env, policy, horizon=6000, seeds=24, record_every=250, record=EVERYTHING, progress=False)
    return data.isel(policy=0)


@pytest.mark.slow
def test_metrics_of_a_hard_budget_without_one():
    """Queries and reward before the total budget is spent are the same in a run that stops there."""
    free, stopped = overspending("free"), overspending("stop")
    served = end(free, "served")
    assert (served < 6000).mean() > 0.9
    np.testing.assert_array_equal(free["served"].values, stopped["served"].values)
    np.testing.assert_allclose(free["served_reward"].values, stopped["served_reward"].values, atol=1e-2)
    np.testing.assert_allclose(end(stopped, "reward") * 6000, end(free, "served_reward"), atol=1e-2)
    np.testing.assert_array_equal(stopped["pulls"].values.sum(-1), stopped["served"].values)
    # The query that reaches the budget is still served, and none after it.
    spend = end(stopped, "cost") * 6000
    assert (spend >= 2.0 * 6000 - 0.1).all()
    assert (spend < 2.0 * 6000 + 60).all()
    assert (end(free, "cost_ratio") > 1.0).mean() > 0.9
    np.testing.assert_allclose(end(stopped, "cost_ratio"), 1.0, atol=0.01)
