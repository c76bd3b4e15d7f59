"""The staged market: arrivals, metrics, fees and hard budgets, and extreme markets."""

import numpy as np
import pytest
from reference import staged as plain
from staged_cases import EVERYTHING, SEEDS, arena, end

from jaxroute import grid, instances, simulate
from jaxroute.core import draws
from jaxroute.problems import staged
from jaxroute.problems.staged import budgets, estimators, scopes


def test_arrivals():
    """Six models, and one more in each of the rounds 1001, 2001, ..., 9001 (counted from 1): pools of 6 to 15."""
    env = staged.arena_market()
    state = env.init(draws.key(0))

    def pool(t):  # Rounds are counted from 0 in the engine.
        return int(np.sum(env.observe(draws.key(0), state, t).available))

    assert [pool(1000 * j) for j in range(10)] == list(range(6, 16))
    assert [pool(1000 * j - 1) for j in range(1, 11)] == list(range(6, 16))
    np.testing.assert_allclose(env.outcomes.reward_mean, plain.table1_params(6, 250).mu, atol=1e-12)
    np.testing.assert_array_equal(env.outcomes.cost_mean, plain.table1_params(6, 250).cost)
    late = staged.arena_market(arrival_lag=1)
    np.testing.assert_array_equal(late.arrival, [1] * 6 + [1000 * j + 2 for j in range(1, 10)])
    bench = staged.routerbench_market()
    np.testing.assert_array_equal(bench.arrival, [1] * 5 + [5000 * j + 1 for j in range(1, 7)])
    assert -(-36_497 // bench.stage_length) == 73
    assert 36_497 - 72 * bench.stage_length == 497


@pytest.mark.parametrize("policy", ["StageRoute", "Greedy", "Oracle"])
def test_metrics_are_consistent(policy):
    data = arena(6, 250, policy)
    time = data["time"].values
    env = staged.arena_market(max_deployed=6, stage_length=250)
    best = np.array([staged.optimum_total(env, t) for t in time])
    for regret, reward in (
        ("regret", "mean_reward"),
        ("conditional_regret", "expected_reward"),
        ("realised_regret", "reward"),
    ):
        np.testing.assert_allclose(data[regret].values, best - data[reward].values * time, atol=0.05)
    np.testing.assert_allclose(data["cost_ratio"].values, data["cost"].values / 2.0, rtol=1e-5)
    overspend = data["cost"].values * time - 2.0 * time
    np.testing.assert_allclose(data["overspend"].values, overspend, atol=0.3)
    worst = data["worst_overspend"].values
    assert (worst >= np.maximum.accumulate(np.maximum(data["overspend"].values, 0), axis=1) - 1e-3).all()
    assert (np.diff(worst, axis=1) >= 0).all()
    np.testing.assert_array_equal(data["pulls"].values.sum(-1), np.broadcast_to(time, (SEEDS, len(time))))
    mu, cost = env.outcomes.reward_mean, env.outcomes.cost_mean
    np.testing.assert_allclose(data["pulls"].values @ mu, data["mean_reward"].values * time, rtol=1e-5, atol=1e-2)
    np.testing.assert_allclose(data["pulls"].values @ cost, data["mean_cost"].values * time, rtol=1e-5, atol=1e-2)
    # Only deployed models are used, and a deployment counts if the model was not deployed in the previous stage.
    deployed = data["deployed"].values > 0.5
    used = np.diff(data["pulls"].values, axis=1, prepend=0) > 0
    assert not (used & ~deployed).any()
    entered = deployed & ~np.concatenate([np.zeros_like(deployed[:, :1]), deployed[:, :-1]], axis=1)
    np.testing.assert_array_equal(end(data, "deployments"), entered.sum((1, 2)))
    assert end(data, "fee").max() == 0.0
    assert end(data, "capacity_excess").max() < 1e-2


def test_deployment_fees_enter_only_the_spend():
    environments = grid(staged.arena_market, max_deployed=5, stage_length=500, horizon=3000, deploy_fee=[0.0, 1.5])
    data = simulate(
        environments, staged.StageRoute(), horizon=3000, seeds=16, record_every=500, record=EVERYTHING, progress=False
    ).isel(policy=0)
    free, charged = data.isel(deploy_fee=0), data.isel(deploy_fee=1)
    for name in ("pulls", "regret", "cost", "reward", "deployed"):
        np.testing.assert_array_equal(free[name].values, charged[name].values)
    np.testing.assert_allclose(charged["fee"].values, 1.5 * charged["deployments"].values, rtol=1e-5)
    assert (end(charged, "deployments") >= 5 + 1).all()  # Five at first; the sixth is explored as well.
    np.testing.assert_allclose(
        charged["overspend"].values - free["overspend"].values, charged["fee"].values, rtol=1e-4, atol=1e-2
    )
    extra = (charged["cost_ratio"].values - free["cost_ratio"].values) * 2.0 * data["time"].values
    np.testing.assert_allclose(extra, charged["fee"].values, rtol=1e-4)


def test_nothing_happens_after_a_hard_budget_is_spent():
    """There are no queries and no fees then: the spend is the sum of costs and fees."""
    outcomes = staged.ParametricOutcomes(
        np.array([0.2, 0.8, 0.5, 0.9]), np.array([0.5, 3.0, 1.0, 3.5]), np.float32(0.3), np.float32(0.1)
    )
    limits = {"capacity": 0.9, "budget": 1.0, "max_deployed": 3, "deploy_fee": 2.0, "known_costs": (0.1, 50.0)}
    env = staged.market(outcomes, stage_length=10, horizon=200, stop_at_budget=True, **limits)
    names = ["fee", "cost", "cost_ratio", "served", "pulls", "deployments"]
    data = simulate(env, staged.Uniform(), horizon=200, seeds=32, record_every=10, record=names, progress=False).isel(
        policy=0
    )
    assert (end(data, "served") < 190).all()
    spent = data["cost_ratio"].values * 1.0 * data["time"].values
    np.testing.assert_allclose(data["cost"].values * data["time"].values + data["fee"].values, spent, atol=1e-3)
    np.testing.assert_array_equal(data["pulls"].values.sum(-1), data["served"].values)
    assert (end(data, "cost_ratio") >= 1.0 - 1e-4).all()
    assert (end(data, "fee") > 6).all()


# Extreme markets.


def extreme(reward=(0.2, 0.5, 0.4, 0.9), cost=(0.2, 1.0, 0.5, 4.0), noise=0.1, **options):
    outcomes = staged.ParametricOutcomes(np.array(reward), np.array(cost), np.float32(noise), np.float32(noise))
    limits = {"capacity": 0.6, "budget": 1.0, "max_deployed": 2, "stage_length": 20, "horizon": 200}
    market = staged.market(outcomes, **limits | {"require_feasible": False, "known_costs": (0.1, 50.0)} | options)
    return market.replace(support=3)  # One structure for all, so that they are one grid.


EXTREME = {
    "negative empirical means": extreme(reward=(0.0, 0.01, 0.0, 0.02), noise=0.9),
    "equal costs": extreme(cost=(0.5, 0.5, 0.5, 0.5)),
    "equal everything": extreme(reward=(0.3,) * 4, cost=(0.5,) * 4, noise=0.0),
    "a pool of one": extreme(arrival=(1, 400, 400, 400), capacity=1.0),
    "a pool of one with too little capacity": extreme(arrival=(1, 400, 400, 400)),
    "no budget for anything": extreme(cost=(30.0, 40.0, 35.0, 60.0)),
    "too little capacity": extreme(capacity=0.1),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy",
    [
        staged.StageRoute(),
        pytest.param(staged.Greedy(), marks=pytest.mark.slow),
        pytest.param(staged.Oracle.of, marks=pytest.mark.slow),
        staged.StageRoute(estimator=estimators.PseudoObservation(), scope=scopes.StageScope(), budget_mode=budgets.Pace()),
    ],
    ids=["StageRoute", "Greedy", "Oracle", "variants"],
)
def test_extreme_markets_stay_finite(policy):
    names = [*EVERYTHING, "multiplier"]
    data = simulate(
        instances(EXTREME.values()), policy, horizon=200, seeds=16, record_every=20, record=names, progress=False
    ).isel(policy=0)
    for i, name in enumerate(EXTREME):
        run = data.isel(instance=i)
        for metric in names:
            values = run[metric].values
            assert np.isfinite(values).all(), f"{name}: {metric}"
            assert np.abs(values).max() < 1e6, f"{name}: {metric} is {np.abs(values).max():.3g}"
        assert run["valid"].all(), name
        np.testing.assert_array_equal(end(run, "pulls").sum(-1), 200)
    share = {name: end(data.isel(instance=i), "infeasible_share").mean() for i, name in enumerate(EXTREME)}
    for name in ("a pool of one with too little capacity", "no budget for anything", "too little capacity"):
        assert share[name] > 0.5, name
    for name in ("equal costs", "equal everything", "a pool of one"):
        assert share[name] < 0.05, name
    one = data.isel(instance=list(EXTREME).index("a pool of one"))
    np.testing.assert_array_equal(end(one, "pulls")[:, 0], 200)
