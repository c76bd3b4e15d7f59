"""Policies of the plain bandit: rounds by hand, rejection-free beta draws, and limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_mean_close, assert_means_agree
from scipy import stats
from stochastic_cases import SEEDS, bandit, play, tie_order

from jaxroute import grid, simulate
from jaxroute.core import draws
from jaxroute.problems import stochastic
from jaxroute.problems.stochastic.types import ArmStatistics


def test_two_rounds_by_hand():
    """UCB1 with width 1: pulls (1, 2), sums (1, 1), t = 6: 1 + sqrt(log 8 / 1) = 2.442, .5 + sqrt(log 8 / 2) = 1.5197."""
    policy = stochastic.UCB1(width=1.0)
    state = ArmStatistics.of(pulls=jnp.array([1, 2, 0], jnp.int32), reward_sum=jnp.array([1.0, 1.0, 0.0]))
    action, info = policy.act(draws.key(0), state, (), jnp.int32(6))
    np.testing.assert_allclose(info["bound"], [2.4420, 1.5197, np.inf], atol=1e-4)
    assert action == 2  # A model that was never used comes first.
    state = policy.update(draws.key(0), state, (), action, jnp.float32(0.25), jnp.int32(6))
    np.testing.assert_array_equal(state.pulls, [1, 2, 1])
    np.testing.assert_allclose(state.reward_sum, [1.0, 1.0, 0.25])
    # t = 7: log 9 = 2.1972: 1 + 1.4823, .5 + 1.0481, .25 + 1.4823.
    action, info = policy.act(draws.key(0), state, (), jnp.int32(7))
    np.testing.assert_allclose(info["bound"], [2.4823, 1.5481, 1.7323], atol=1e-4)
    assert action == 0


# Draws with a fixed number of tries.


@pytest.mark.parametrize("shape", [1.0, 1.3, 2.0, 7.5, 300.0, 2e4])
def test_gamma_draws(shape):
    samples = np.asarray(draws.gamma(draws.key(3), jnp.full(40_000, shape, jnp.float32)), np.float64)
    assert stats.kstest(samples, stats.gamma(shape).cdf).pvalue > 1e-4
    assert_mean_close(samples, shape)


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (2.0, 5.0), (1.0, 30.0), (400.0, 25.0), (6000.0, 4000.0)])
def test_beta_draws(a, b):
    parameters = (jnp.full(40_000, x, jnp.float32) for x in (a, b))
    samples = np.asarray(draws.beta(draws.key(4), *parameters), np.float64)
    assert stats.kstest(samples, stats.beta(a, b).cdf).pvalue > 1e-4
    assert_mean_close(samples, a / (a + b))


def test_beta_posterior():
    """After 7 successes in 10 trials the draw is Beta(1 + 7, 1 + 3), or with the prior (2, 3) Beta(9, 6)."""
    state = ArmStatistics.of(pulls=jnp.array([10, 0], jnp.int32), reward_sum=jnp.array([7.0, 0.0]))
    keys = jax.random.split(draws.key(7), 20_000)
    for policy, first, second in (
        (stochastic.BetaThompson(), (8, 4), (1, 1)),
        (stochastic.BetaThompson(successes=2.0, failures=3.0), (9, 6), (2, 3)),
    ):
        act = jax.jit(jax.vmap(lambda key, policy=policy: policy.act(key, state, (), jnp.int32(0))))
        action, info = act(keys)
        samples = np.asarray(info["sample"], np.float64)
        for m, parameters in enumerate((first, second)):
            assert stats.kstest(samples[:, m], stats.beta(*parameters).cdf).pvalue > 1e-4
        assert abs(np.corrcoef(samples.T)[0, 1]) < 5 / np.sqrt(20_000)
        np.testing.assert_array_equal(action, samples.argmax(1))


def test_beta_thompson_against_numpy():
    """The same mean regret and pulls as a NumPy loop with NumPy's beta draws, over independent runs."""
    means, horizon, number = np.array([0.5, 0.7, 0.3]), 400, 600
    rng = np.random.default_rng(0)
    wins, losses = np.ones((2, number, 3))
    regret = np.zeros(number)
    for _ in range(horizon):
        arm = rng.beta(wins, losses).argmax(1)
        success = rng.random(number) < means[arm]
        wins[np.arange(number), arm] += success
        losses[np.arange(number), arm] += ~success
        regret += 0.7 - means[arm]
    data = simulate(
        stochastic.bernoulli(means), stochastic.BetaThompson(), horizon=horizon, seeds=600, record=["regret", "pulls"],
        progress=False,
    ).isel(policy=0, time=-1)  # fmt: skip
    assert_means_agree(data["regret"].values, regret)
    for m in range(3):
        assert_means_agree(data["pulls"].values[:, m], (wins + losses - 2)[:, m])
    assert stats.ks_2samp(data["regret"].values, regret).pvalue > 1e-4


# Limits.


def test_exploration_limits():
    """epsilon 0 never explores (by hand it sticks to the first success), epsilon 1 is uniform, 1/4 explores a quarter."""
    policy = grid(stochastic.EpsilonGreedy, epsilon=[0.0, 0.25, 1.0])
    data = simulate(
        stochastic.bernoulli([0.3, 0.8]), policy, horizon=1000, seeds=64, record=["pulls", "info.explored"], progress=False
    ).isel(policy=0, time=-1)
    explored = data["info.explored"].values
    assert (explored[0] == 0).all()
    assert (explored[2] == 1).all()
    assert_mean_close(explored[1], 0.25)
    assert_mean_close(data["pulls"].isel(epsilon=2).values[:, 0], 500)
    greedy = data["pulls"].isel(epsilon=0).values
    assert (greedy.min(1) >= 1).all()
    assert (greedy[:, 0] > 900).any()  # Some runs are caught by the worse model.


def test_one_model_leaves_nothing_to_choose():
    for policy in (stochastic.UCB1(), stochastic.BetaThompson()):
        data = simulate(stochastic.bernoulli([0.4]), policy, horizon=50, seeds=3, record=["pulls", "regret"], progress=False)
        assert (data["pulls"].isel(time=-1).values == 50).all()
        assert (data["regret"].values == 0).all()


def test_ucb_tries_every_model_once_and_in_the_order_of_ties():
    chosen, _, _ = play(bandit("bernoulli"), stochastic.UCB1(), double=True)
    np.testing.assert_array_equal(chosen[:, :5], [tie_order(seed) for seed in SEEDS])


def test_epsilon_greedy_explores_every_model_alike():
    """Whether it explores, and whom, are independent: 100,000 rounds, after which the coin is `.25` in one and the models `1 / 3` each."""
    policy, count = stochastic.EpsilonGreedy(epsilon=0.25), 100_000
    state = ArmStatistics.of(pulls=jnp.asarray([2, 1, 1]), reward_sum=jnp.asarray([2.0, 0.0, 0.0]))
    keys = jax.random.split(draws.key(3), count)
    action, info = jax.jit(jax.vmap(lambda key: policy.act(key, state, (), jnp.int32(4))))(keys)
    explored = np.asarray(info["explored"]) > 0
    assert (np.asarray(action)[~explored] == 0).all()
    assert abs(explored.mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / count)
    shares = np.bincount(np.asarray(action)[explored], minlength=3) / explored.sum()
    np.testing.assert_allclose(shares, 1 / 3, atol=5 * np.sqrt(2 / 9 / explored.sum()))
