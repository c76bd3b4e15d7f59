"""The parts of the staged regret, against the NumPy reference and by hand."""

import numpy as np
import pytest
from reference import staged as reference

import jaxroute as jr
from jaxroute.problems import staged


@pytest.fixture(scope="module")
def run():
    env = staged.arena_market(max_deployed=3, stage_length=500, horizon=3200)
    policies = {"StageRoute": staged.StageRoute(), "Oracle": staged.Oracle.of}
    record = ["regret", "mean_reward", "deployed", "overspend", "cost_ratio"]
    return env, jr.simulate(env, policies, horizon=3200, seeds=16, record_every=100, record=record, progress=False)


def test_parts_add_up_to_the_regret(run):
    env, data = run
    parts = staged.decompose(data, env)
    total = parts["deployment_regret"] + parts["routing_regret"]
    np.testing.assert_allclose(total, data["regret"].isel(time=-1), atol=2e-3)
    assert set(parts.dims) == {"policy", "seed"}


def test_parts_equal_a_plain_loop(run):
    env, data = run
    parts = staged.decompose(data, env)
    reward, cost = np.asarray(env.outcomes.reward_mean, float), np.asarray(env.outcomes.cost_mean, float)
    runs = data.sel(policy="StageRoute", seed=5)
    earned = (runs["mean_reward"] * runs["time"]).sel(time=[500, 1000, 1500, 2000, 2500, 3000, 3200]).values
    earned = np.diff(earned, prepend=0.0)
    best = [0.360847, 0.360847, 0.523810, 0.523810, 0.523810, 0.523810, 0.523810]
    deployment = routing = 0.0
    infeasible = 0
    for k, end in enumerate([500, 1000, 1500, 2000, 2500, 3000, 3200]):
        members = np.flatnonzero(runs["deployed"].sel(time=end).values > 0.5)
        p, _, feasible = reference.route_lp(reward[members], cost[members], np.asarray(env.capacity, float)[members], 2.0)
        value = float(np.dot(p, reward[members])) if feasible else 0.0
        rounds = 500 if end < 3200 else 200
        deployment += rounds * (best[k] - value)
        routing += rounds * value - earned[k]
        infeasible += not feasible
    own = parts.sel(policy="StageRoute", seed=5)
    assert float(own["deployment_regret"]) == pytest.approx(deployment, abs=0.02)
    assert float(own["routing_regret"]) == pytest.approx(routing, abs=0.02)
    assert float(own["infeasible_stages"]) == infeasible > 0, (
        "three slots deploy sets that are infeasible at their true costs"
    )


def test_feasible_parts_leave_out_infeasible_stages(run):
    env, data = run
    parts = staged.decompose(data, env)
    oracle = parts.sel(policy="Oracle")
    assert (oracle["infeasible_stages"] == 0).all()
    np.testing.assert_allclose(oracle["deployment_regret"], 0.0, atol=2e-3)
    np.testing.assert_array_equal(oracle["feasible_routing_regret"], oracle["routing_regret"])
    route = parts.sel(policy="StageRoute")
    assert (abs(route["feasible_deployment_regret"]) < abs(route["deployment_regret"])).all()


def test_records_at_the_end_of_every_stage_are_required(run):
    env, data = run
    with pytest.raises(ValueError, match="no record at round 500: simulate with a record_every that divides 500"):
        staged.decompose(data.sel(time=[100, 1000, 3200]), env)
    with pytest.raises(ValueError, match="'deployed'"):
        staged.decompose(data.drop_vars("deployed"), env)


def test_violation_is_the_spend_above_the_budget(run):
    _, data = run
    above = staged.violation(data)
    expected = np.maximum(2.0 * (data["cost_ratio"] - 1.0), 0.0)
    np.testing.assert_allclose(above, expected, atol=2e-4)
    assert float(above.max()) > 0.0
