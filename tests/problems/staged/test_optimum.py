"""The best feasible routing against known values, by hand, and against HiGHS."""

import numpy as np
import pytest
from reference import staged as plain

from jaxroute.problems import staged
from jaxroute.problems.staged import optimum

VALUES = {
    ("min-max", 6): ([0.384730] + [0.542902] * 3 + [0.612698] + [0.721693] * 2 + [0.732649] * 2 + [0.766050], 6300.8696),
    ("min-max", 3): ([0.360847] + [0.523810] * 3 + [0.612698] + [0.721693] * 5, 6153.4392),
    ("max", 6): ([0.919581] + [0.940255] * 3 + [0.949378] + [0.963624] * 2 + [0.965056] * 2 + [0.969422], 9516.506),
    ("max", 3): ([0.916459] + [0.937759] * 3 + [0.949378] + [0.963624] * 5, 9497.234),
}


@pytest.mark.parametrize(("normalisation", "slots"), VALUES)
def test_optimum_of_the_synthetic_market(normalisation, slots):
    values, total = VALUES[normalisation, slots]
    for stage in (250, 500, 1000):
        env = staged.arena_market(max_deployed=slots, stage_length=stage, normalisation=normalisation)
        assert staged.optimum_total(env, 10_000) == pytest.approx(
            total, abs=5e-3
        )  # The expected sums are of printed values.
    rounds = 1000 * np.arange(10)
    found = [env.optimum_value[np.flatnonzero(env.optimum_start <= t)[-1]] for t in rounds]
    np.testing.assert_allclose(found, values, atol=1e-6)
    params = plain.table1_params(slots, 1000, normalisation={"min-max": "minmax", "max": "max"}[normalisation])
    exact = plain.stage_values(params.mu, params.cost, params.capacity, params.arrival, 2.0, slots, range(1, 10_001, 1000))
    np.testing.assert_allclose(found, exact, atol=1e-7)
    assert staged.optimum_total(env, 10_000) == pytest.approx(1000 * exact.sum(), abs=1e-3)


@pytest.mark.parametrize("slots", [2, 3, 11])
def test_optimum_of_routerbench(slots):
    env = staged.routerbench_market(max_deployed=slots)
    assert staged.optimum_total(env, 36_497) == pytest.approx(20160.903, abs=2e-3)
    np.testing.assert_allclose(np.unique(env.optimum_value)[1:], [0.542437, 0.554288, 0.563752], atol=1e-6)
    scaled = staged.routerbench_market(max_deployed=slots, cost_scale=1e4)
    np.testing.assert_allclose(scaled.optimum_value, env.optimum_value, atol=1e-7)


def test_continuous_optimum():
    """A model that arrives in round 1002 is available from there, not from the next maintenance window at 1501 or 2001."""
    stage, continuous = (staged.arena_market(stage_length=500, arrival_lag=1, optimum=b) for b in ("stage", "continuous"))
    assert [int(s) for s in stage.optimum_start[:3]] == [0, 1500, 2500]
    assert [int(s) for s in continuous.optimum_start[:3]] == [0, 1001, 2001]
    totals = [staged.optimum_total(env, 10_000) for env in (stage, continuous)]
    # Both have the values of VALUES["min-max", 6]; the windows miss 499 rounds of every step.
    steps = np.diff(VALUES["min-max", 6][0])
    assert totals[1] - totals[0] == pytest.approx(499 * steps.sum(), abs=1e-2)
    assert staged.optimum_total(continuous, 10_000) == pytest.approx(6300.8696 - steps.sum(), abs=1e-2)


def test_random_optima_against_highs():
    rng = np.random.default_rng(0)
    compared = 0
    for _ in range(60):
        size, slots = int(rng.integers(3, 7)), int(rng.integers(1, 5))
        mu, c = rng.uniform(size=size), 10.0 ** rng.uniform(-1, 1, size)
        capacity = rng.choice([0.3, 0.4, 0.6, 1.0], size)
        budget = float(10.0 ** rng.uniform(-0.7, 0.7))
        value, _, feasible = plain.deploy_milp(mu, c, capacity, np.ones(size, bool), budget, slots)
        found = optimum.pool_value(mu, c, capacity, budget, range(size), slots)
        assert found == pytest.approx(value if feasible else 0.0, abs=1e-7)
        compared += feasible
    assert 10 < compared < 55


@pytest.mark.parametrize(
    "change", [{"budget": np.float32(1.0)}, {"capacity": np.full(15, 0.2, np.float32)}, {"max_deployed": 2}]
)
def test_a_market_that_was_changed_after_its_optimum_is_refused(change):
    market = staged.arena_market()
    market.check()
    with pytest.raises(ValueError, match="optimum_value is 0.766.*build the market again"):
        market.replace(**change).check()


def test_known_costs_out_of_range_are_refused():
    with pytest.raises(ValueError, match="cost_floor must be above 0, got -1"):
        staged.arena_market().replace(cost_floor=np.float32(-1)).check()
    with pytest.raises(ValueError, match="cost_floor must be at most cost_ceiling = 50, got 60"):
        staged.arena_market().replace(cost_floor=np.float32(60)).check()


def test_many_sets():
    """30,045,015 sets: the optimum is below that of more slots, and the bound of the relaxed program is near."""
    rng = np.random.default_rng(0)
    cost = 10.0 ** rng.uniform(-1, 1, 30)
    outcomes = staged.ParametricOutcomes(np.clip(cost / 10, 0, 1) ** 0.5, cost, np.float32(0), np.float32(0))
    values = []
    for slots in (10, 11, 12):
        env = staged.market(outcomes, capacity=0.1, budget=2.0, max_deployed=slots, stage_length=10, horizon=100)
        values.append(float(env.optimum_value[0]))
    assert values[0] <= values[1] <= values[2]
    relaxed = optimum.routing_values(outcomes.reward_mean, cost, np.full(30, 0.1), 2.0, [range(30)])[0]
    assert values[1:] == pytest.approx([relaxed] * 2, abs=1e-7)  # An optimal routing needs eleven models.
    assert relaxed - 0.01 < values[0] < relaxed


def test_search_and_comparison_agree(monkeypatch):
    """60 instances with tight and slack budgets, equal models and prices in whole numbers."""
    rng = np.random.default_rng(1)
    for row in range(60):
        reward, cost = rng.uniform(size=9), 10.0 ** rng.uniform(-1, 1, 9)
        if row % 2:
            reward, cost = np.round(reward * 4) / 4, np.ceil(cost)
        problem = (reward, cost, rng.choice([0.25, 0.3, 0.4], 9), float(cost.min() * 10.0 ** rng.uniform(-0.1, 1)))
        values = []
        for most in (0, 10**6):
            monkeypatch.setattr(optimum, "_MOST_SETS", most)
            values.append(optimum.pool_value(*problem, range(9), 4))
        assert values[0] == pytest.approx(values[1], abs=1e-10), row
