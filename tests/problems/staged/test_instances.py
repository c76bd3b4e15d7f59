"""Ready-made markets: new models that miss their window, RouterBench, and errors."""

import numpy as np
import pytest
from helpers import assert_mean_close
from staged_cases import final_values, near

from jaxroute import data as jd
from jaxroute import simulate
from jaxroute.core import draws
from jaxroute.problems import staged

# The interval effect, measured with NumPy loops.


def test_new_models_that_miss_their_window():
    """The regret against an optimum that has each model at once, by NumPy loops: 194 (3)."""
    env = staged.arena_market(max_deployed=6, stage_length=500, arrival_lag=1, optimum="continuous")
    near(final_values(env, staged.StageRoute(), 10_000, 48), 194, 3)


@pytest.mark.slow
def test_scores_on_routerbench():
    """With costs in dollars, a higher score than the oracle's at 3.9 times the budget, and a lower one under a hard budget."""
    floor = {"cost_floor": 1e-5, "cost_ceiling": 0.05}
    policies = {"s": staged.StageRoute(**floor), "g": staged.Greedy(**floor), "o": staged.Oracle.of}
    names = ["reward", "cost_ratio", "served", "served_reward"]
    env = staged.routerbench_market()
    data = simulate(env, policies, horizon=36_497, seeds=64, record_every=36_497, record=names, progress=False).isel(time=-1)
    total = data["reward"] * 36_497
    near(total.sel(policy="s").values, 21_962, 85)
    near(total.sel(policy="g").values, 20_938, 22)
    assert_mean_close(total.sel(policy="o").values, 20_160.9)
    assert data["cost_ratio"].sel(policy="s").values.mean() == pytest.approx(3.9, abs=0.2)
    assert data["cost_ratio"].sel(policy="g").values.mean() == pytest.approx(2.7, abs=0.2)
    near(data["served"].sel(policy="s").values, 4261, 142)
    near(data["served_reward"].sel(policy="s").values, 2459, 76)
    near(data["served"].sel(policy="g").values, 8982, 680)
    near(data["served_reward"].sel(policy="g").values, 5002, 362)


def test_policies_know_the_costs_of_the_market():
    """Extremes of a table, half and twice the means of distributions, given bounds, and a policy's own constants."""
    outcomes = staged.ParametricOutcomes(np.array([0.2, 0.8]), np.array([0.5, 3.0]), np.float32(0.1), np.float32(0.1))
    options = {"capacity": 1.0, "budget": 1.0, "max_deployed": 2, "stage_length": 5, "horizon": 20}
    costs = np.array([[0.0, 3.0], [0.25, 7.0]], np.float32)
    table = jd.RoutingTable(np.full((2, 2), 0.5), costs, ("a", "b"))
    for market, floor, ceiling in (
        (staged.market(outcomes, **options), 0.25, 6.0),
        (staged.market(outcomes, known_costs=(0.125, 9.0), **options), 0.125, 9.0),
        (staged.table_market(table, **{**options, "cost_scale": 2.0}), 0.5, 14.0),
        (staged.arena_market(), 0.1, 50.0),
    ):
        obs = market.observe(draws.key(0), market.init(draws.key(0)), 0)
        assert staged.StageRoute().known_costs(obs) == pytest.approx((floor, ceiling))
        assert staged.StageRoute(cost_floor=0.01).known_costs(obs) == pytest.approx((0.01, ceiling))
    with pytest.raises(ValueError, match="known_costs must be the least and the largest cost, got 3 and 1"):
        staged.market(outcomes, known_costs=(3.0, 1.0), **options)


def test_policies_without_own_constants_can_meet_a_budget_in_dollars():
    """With a least cost of .1 where the budget is 2e-4, no query would have a feasible routing."""
    env = staged.routerbench_market(horizon=2000)
    assert final_values(env, staged.StageRoute(), 2000, 16, "infeasible_share").mean() < 0.2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"names": ("a", "a")}, r"names must have one name per model \(2\), all different, got \('a', 'a'\)"),
        ({"reward_mean": [5.0, 0.5]}, r"reward_mean must be in \[0, 1\], got 5 at index \(0,\)"),
        ({"capacity": [1.0]}, r"capacity must have shape \(2,\), got \(1,\)"),
    ],
)
def test_markets_that_make_no_sense_are_refused(changes, message):
    means = {"reward_mean": changes.pop("reward_mean", [0.2, 0.8]), "cost_mean": [0.5, 3.0]}
    outcomes = staged.ParametricOutcomes(**means, reward_noise=0.1, cost_noise=0.1)
    given = {"capacity": 1.0, "budget": 2.0, "max_deployed": 1, "stage_length": 5, "horizon": 5, **changes}
    with pytest.raises(ValueError, match=message):
        staged.market(outcomes, **given)


def test_lists_of_means_and_capacities_per_model():
    outcomes = staged.ParametricOutcomes(reward_mean=[0.2, 0.8], cost_mean=[0.5, 3.0], reward_noise=0.1, cost_noise=0.1)
    env = staged.market(outcomes, capacity=1.0, budget=4.0, max_deployed=1, stage_length=5, horizon=5)
    assert env.outcomes.reward_mean.shape == (2,) and float(env.optimum_value[0]) == pytest.approx(0.8)
    shares = np.linspace(0.3, 1.0, 15)
    np.testing.assert_allclose(staged.arena_market(capacity=shares).capacity, shares, rtol=1e-6)
    assert sorted(set(staged.arena_market(capacity=0.5).capacity.tolist())) == [0.5, 1.0]


def test_more_slots_than_models_warns():
    with pytest.warns(UserWarning, match="max_deployed is 16, but there are 15 models"):
        staged.arena_market(max_deployed=16)
