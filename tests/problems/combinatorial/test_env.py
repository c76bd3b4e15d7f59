"""A round of the cloud by hand; distributions of outcomes and costs, drift, and the replay of a table."""

import jax.numpy as jnp
import numpy as np
import pytest
from combinatorial_cases import end, outcomes_of, play
from helpers import assert_mean_close

from jaxroute import simulate
from jaxroute.core import draws
from jaxroute.data import RoutingTable
from jaxroute.problems import combinatorial as cb


def test_cascade_asks_until_the_first_success():
    env = cb.parametric_cloud([1.0, 0.0, 0.5], [0.2, 0.1, 0.4], reward="awc", budget=1.0, size=3, costs=cb.FixedCosts())
    state, key = env.init(draws.key(0)), draws.key(1)
    obs = env.observe(key, state, jnp.int32(0))
    for order, asked, spent in (([1.0, 0.0, 2.0], [1, 1, 0], 0.3), ([0.0, 0.0, 0.0], [1, 0, 0], 0.2)):
        action, _ = cb.Everything().act(key, None, obs, jnp.int32(0))
        _, feedback, flows = env.step(key, state, action.replace(order=jnp.asarray(order)), jnp.int32(0))
        np.testing.assert_array_equal(feedback.observed, asked)
        assert float(flows["cost"]) == pytest.approx(spent)
        np.testing.assert_array_equal(feedback.cost > 0, asked)
        assert float(flows["reward"]) == 1.0
    _, _, flows = env.step(key, state, action.replace(selected=jnp.zeros(3, bool)), jnp.int32(0))
    assert float(flows["reward"]) == 0.0
    assert float(flows["illegal"]) == 0.0


def test_sets_of_the_wrong_size_and_unavailable_models_are_illegal():
    env = cb.sciq_cloud(reward="suc", availability=0.5)
    key, t = draws.key(2), jnp.int32(0)
    state = env.init(key)
    obs = env.observe(key, state, t)
    for selected, illegal in (
        (obs.available, obs.available.sum() > 4),
        (~obs.available, True),
        (obs.available & False, True),
    ):
        action = cb.Everything().act(key, None, obs, t)[0].replace(selected=selected)
        assert bool(env.step(key, state, action, t)[2]["illegal"]) == bool(illegal)


def test_distributions_have_their_means():
    for env in (
        cb.sciq_cloud(),
        cb.sciq_cloud(graded=True, costs=cb.TokenCosts()),
        cb.parametric_cloud([0.3, 0.4, 0.732], [0.1, 0.3, 1.0], reward="awc", budget=0.5, size=2, correlation=0.35),
    ):
        outcome, _, cost = outcomes_of(env)
        for k in range(outcome.shape[1]):
            assert_mean_close(outcome[:, k], float(env.outcomes.outcome_mean[0, k]), what=f"outcome {k}")
            assert_mean_close(cost[:, k], float(env.outcomes.cost_mean[0, k]), what=f"cost {k}")
    tokens = outcomes_of(cb.sciq_cloud(costs=cb.TokenCosts()))[2]
    assert np.corrcoef(tokens.T)[0, 1] > 0.1  # The query is the same for all models.
    levels = outcomes_of(cb.sciq_cloud(graded=True))
    np.testing.assert_allclose(np.unique(levels[0]), [0.0, 0.1, 0.3, 0.5], atol=1e-6)
    np.testing.assert_array_equal(levels[1], levels[0] > 0.4)


def test_correlated_successes_are_calibrated_on_figure_2():
    """Cascade of three models with the printed accuracies: .82 and 59 % of the dearest one's cost with a shared difficulty."""
    price = np.array([5.8, 2.0, 60.0]) / 60.0
    for correlation, accuracy, share in ((0.35, 0.8216, 0.589), (0.0, 0.8874, 0.540)):
        env = cb.parametric_cloud(
            [0.30, 0.40, 0.732], price, reward="awc", budget=1.0, size=3, correlation=correlation, costs=cb.FixedCosts(),
            price=[0.0, 0.1, 1.0],
        )  # fmt: skip
        data = play(env, cb.Everything(), horizon=2000, seeds=64)
        assert abs(end(data, "realised_reward").mean() - accuracy) < 5e-3
        assert abs(end(data, "cost").mean() - share) < 1e-2


def test_drift_moves_means_and_benchmarks():
    env = cb.parametric_cloud(
        [[0.9, 0.1, 0.5], [0.1, 0.9, 0.5]],
        [0.2, 0.2, 0.9],
        reward="suc",
        budget=0.5,
        size=1,
        switch=[0, 50],
        costs=cb.FixedCosts(),
    )
    data = simulate(
        env,
        {"oracle": cb.OracleInteger.of},
        horizon=100,
        seeds=4,
        record_every=50,
        record=["reward", "regret", "pulls"],
        progress=False,
    ).isel(policy=0)
    np.testing.assert_allclose(data["regret"], 0, atol=1e-5)
    np.testing.assert_array_equal(data["pulls"].isel(time=-1), [[50, 50, 0]] * 4)


def test_replay_plays_every_row_once():
    rng = np.random.default_rng(4)
    scores, costs = rng.random((40, 5)), rng.random((40, 5))
    env = cb.table_cloud(RoutingTable(scores, costs, tuple("abcde")), reward="suc", budget=1.5, size=5)
    data = play(env, cb.Everything(), horizon=80, seeds=3, record_every=40)
    for stop in (0, 1):
        np.testing.assert_allclose(data["realised_reward"].isel(time=stop), scores.sum(1).mean(), rtol=1e-5)
        np.testing.assert_allclose(data["cost"].isel(time=stop), costs.sum(1).mean(), rtol=1e-5)
