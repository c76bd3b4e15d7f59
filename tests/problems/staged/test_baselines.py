"""Greedy, the oracle, and the policies that are not in the paper."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_mean_close
from staged_cases import arena, by_index, end, final_values, near

from jaxroute import simulate
from jaxroute.core import draws
from jaxroute.core.types import planned_state
from jaxroute.problems import staged
from jaxroute.problems.staged import fillers


def test_greedy_at_the_true_values():
    """The six largest mu / c of Table 1: by hand 9 (2.19), 2 (1.13), 10 (1.03), 5 (.97), 8 (.74), 6 (.434), then 3 (.414)."""
    env = jax.tree.map(jnp.asarray, staged.arena_market(max_deployed=6))
    key = draws.key(0)
    obs = env.observe(key, env.init(key), jnp.int32(9999))
    policy = staged.Greedy()
    mu, cost = (jnp.asarray(x, jnp.float32) for x in (env.outcomes.reward_mean, env.outcomes.cost_mean))
    state = planned_state(policy.init(key, env.spec))
    chosen = policy.choose(key, state, mu, cost, obs, 0).deployed
    np.testing.assert_array_equal(np.flatnonzero(chosen), [2, 5, 6, 8, 9, 10])


# Results of NumPy loops of what the reference does not have: policy, then mean and standard error for M = 3, 6, 10 (interval 500).
VARIANTS = {
    "random filler": (staged.StageRoute(filler=fillers.RandomFiller()), (32, 5), (73, 8), (20, 6)),
    "Cheapest": (staged.CheapestModels(), (2850, 22), (1064, 5), (39, 4)),
    "RandomDeploy": (staged.RandomDeploy(), (2337, 111), (1162, 122), (244, 42)),
    "Uniform": (staged.Uniform(), (2436, 100), (2640, 65), (2667, 18)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_comparators_against_numpy_loops(name):
    policy, *expected = VARIANTS[name]
    for slots, figures in zip((3, 6, 10), expected, strict=True):
        env = staged.arena_market(max_deployed=slots, stage_length=500)
        near(final_values(env, by_index(policy), 10_000, 48), *figures)


def run_sets(policy, seeds=12, slots=3, **options):
    """Runs over Table 1 with a record of every stage."""
    market = staged.arena_market(max_deployed=slots, stage_length=500, horizon=3000, **options)
    record = ["deployed", "pulls", "capacity_excess", "conditional_regret"]
    return simulate(market, policy, horizon=3000, seeds=seeds, record_every=500, record=record, progress=False)


def test_the_first_deployment_is_retained():
    data = run_sets(by_index(staged.FirstDeployment()), slots=5)
    expected = np.arange(15) < 5
    assert (data["deployed"].values[0] == expected).all()


def test_cheapest_takes_the_lowest_cost_bounds():
    """With little noise the cheapest three models of Table 1 are deployed: .14, .28, .28 after their arrival."""
    market = staged.arena_market(max_deployed=3, stage_length=500, horizon=10_000, cost_noise=0.0)
    policy, options = staged.CheapestModels(gamma=1e-4), {"record_every": 500, "record": ["deployed"], "progress": False}
    data = simulate(market, policy, horizon=10_000, seeds=6, **options)
    final = data["deployed"].isel(policy=0, time=-1).values
    assert (final == np.isin(np.arange(15), [2, 8, 9])).all()


def test_random_deployments_are_uniform():
    data = run_sets(staged.RandomDeploy(), seeds=200)
    deployed = data["deployed"].values[0]
    assert (deployed.sum(-1) == 3).all()
    first = deployed[:, 0]  # Six models are available, each deployed with probability 1/2.
    assert not first[:, 6:].any()
    for m in range(6):
        assert_mean_close(first[:, m], 0.5, what=f"model {m}")
    assert len({tuple(row) for row in first}) == 20  # All C(6, 3) sets occur.
    assert np.mean((deployed[:, 0] == deployed[:, 1]).all(-1)) < 0.2


def test_uniform_ignores_capacities():
    data = run_sets(staged.Uniform(), seeds=50, slots=2)
    pulls = data["pulls"].isel(policy=0, time=0).values
    live = data["deployed"].isel(policy=0, time=0).values > 0.5
    largest = np.where(live, pulls, np.nan)[:, :6].max(1, initial=0, where=live[:, :6])
    assert_mean_close(largest / 500, 0.5 + 0.4 / 500**0.5, 8)
    assert (pulls[~live] == 0).all()
    excess = data["capacity_excess"].isel(policy=0, time=0).values
    # Two models at 1/2 each: .1 above the capacity .4 of each, except Yi-Lightning (2).
    np.testing.assert_allclose(excess, 500 * 0.1 * (2 - live[:, 2]), rtol=1e-3)


@pytest.mark.parametrize(
    ("slots", "stage", "ratio"), [pytest.param(3, 500, 0.5011, marks=pytest.mark.slow), (6, 250, 0.8395)]
)
def test_oracle_has_no_regret(slots, stage, ratio):
    data = arena(slots, stage, "Oracle")
    assert np.abs(end(data, "conditional_regret")).max() < 1e-2
    assert np.abs(end(data, "conditional_regret").mean()) < 2e-3
    assert_mean_close(end(data, "regret"), 0.0, 4, "pseudo-regret")
    assert_mean_close(end(data, "realised_regret"), 0.0, 4, "realised regret")
    # In expectation the cost ratio is exact, so it has no error bar; the observed one has.
    np.testing.assert_allclose(end(data, "expected_cost") / 2.0, ratio, atol=1e-4)
    assert_mean_close(end(data, "cost_ratio"), end(data, "expected_cost").mean() / 2.0, what="cost ratio")
    assert end(data, "infeasible_share").max() == 0.0
    assert end(data, "capacity_excess").max() < 1e-2
