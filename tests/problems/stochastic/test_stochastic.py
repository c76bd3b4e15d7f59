"""The plain bandit: float64 loops on the same draws, rejection-free beta draws, and what theory says of the regret."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_mean_close, assert_means_agree, in_double, x64
from reference import stochastic as plain
from scipy import stats

from jaxroute import grid, simulate
from jaxroute.core import draws
from jaxroute.problems import stochastic
from jaxroute.problems.stochastic.types import ArmStatistics

MEANS = (0.35, 0.6, 0.55, 0.2, 0.5)
SEEDS, HORIZON = (0, 5, 12), 3000


@functools.partial(jax.jit, static_argnums=(1, 2))
def _luck(run, horizon, size):
    """Draws of one run from the documented addresses: child 2 of its key has the environment's rounds, child 5 the acts."""

    def one(t):
        env, act = (jax.random.fold_in(jax.random.fold_in(run, child), t) for child in (2, 5))
        coin, arm = (jax.random.uniform(jax.random.fold_in(act, child)) for child in (0, 1))
        normals = jax.random.normal(act, (size,), jnp.float32)
        return jax.random.uniform(env, (), jnp.float32), jax.random.normal(env, (), jnp.float32), normals, coin, arm

    return jax.vmap(one)(jnp.arange(horizon))


@functools.cache
def luck(seed):
    """Uniform and normal of the reward, `[T, K]` normals of the policy, and its two uniforms."""
    run = jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), seed)
    with x64(False):
        return tuple(np.asarray(x, np.float64) for x in _luck(run, HORIZON, len(MEANS)))


def play(env, policy, double, seeds=SEEDS, horizon=HORIZON):
    """Chosen models `[seed, T]`, rewards and regret curves of runs recorded in every round."""
    record = ["pulls", "reward", "regret"]
    kwargs = {"horizon": horizon, "seeds": seeds, "record_every": 1, "record": record, "progress": False}
    if double:
        with x64():
            data = simulate(in_double(env), in_double(policy), **kwargs)
    else:
        data = simulate(env, policy, **kwargs)
    assert data["valid"].all()
    data = data.isel(policy=0)
    pulls = np.diff(data["pulls"].values, axis=1, prepend=0)
    assert (pulls.sum(-1) == 1).all()
    rewards = np.diff(data["reward"].values * data["time"].values, axis=1, prepend=0)
    return pulls.argmax(-1), rewards, data["regret"].values


def bandit(law, scale=0.4):
    return stochastic.bernoulli(MEANS) if law == "bernoulli" else stochastic.gaussian(MEANS, scale)


def references(law, policy, parameters):
    """The float64 loop of one policy on the draws of every seed."""
    for seed in SEEDS:
        uniform, normal, normals, coin, arm = luck(seed)
        reward_draws = uniform if law == "bernoulli" else normal
        # Means and noise as the environment holds them, in single precision.
        means = [float(x) for x in np.float32(MEANS)]
        common = {"law": law, "noise_scale": float(np.float32(0.4))}
        if policy == "ucb1":
            yield plain.ucb1(means, reward_draws, **parameters, **common)
        elif policy == "thompson":
            yield plain.gaussian_thompson(means, reward_draws, normals, **parameters, **common)
        else:
            yield plain.epsilon_greedy(means, reward_draws, coin, arm, **parameters, **common)


CASES = {
    "ucb1": (stochastic.UCB1(), {"width": 2.0**0.5}),
    "ucb1, narrow": (stochastic.UCB1(width=0.3), {"width": 0.3}),
    "thompson": (stochastic.GaussianThompson(scale=0.5), {"scale": 0.5}),
    "thompson, other prior": (
        stochastic.GaussianThompson(scale=0.8, prior_mean=0.7, prior_weight=2.5),
        {"scale": 0.8, "prior_mean": 0.7, "prior_weight": 2.5},
    ),
    "epsilon": (stochastic.EpsilonGreedy(epsilon=0.1), {"epsilon": 0.1}),
}


@pytest.mark.parametrize("law", ["bernoulli", "gaussian"])
@pytest.mark.parametrize("name", CASES)
def test_equals_the_reference_round_by_round(name, law):
    policy, parameters = CASES[name]
    chosen, rewards, regret = play(bandit(law), policy, double=True)
    for i, expected in enumerate(references(law, name.split(",")[0], parameters)):
        different = np.flatnonzero(chosen[i] != expected[0])
        assert not different.size, f"seed {SEEDS[i]}: {different.size} rounds differ, the first is {different[0]}"
        np.testing.assert_allclose(rewards[i], expected[1], atol=1e-5)
        np.testing.assert_allclose(regret[i], expected[2], atol=1e-3)


@pytest.mark.parametrize("name", ["ucb1", "thompson", "epsilon"])
def test_single_precision_is_the_same_run(name):
    """Sums of 0/1 rewards are exact in float32, so that runs part only where two scores agree to seven digits."""
    policy, parameters = CASES[name]
    chosen, _, _ = play(bandit("bernoulli"), policy, double=False)
    shares = [np.mean(chosen[i] == e[0]) for i, e in enumerate(references("bernoulli", name, parameters))]
    assert np.mean(np.equal(shares, 1.0)) > 0.5, shares
    assert min(shares) > 0.8, shares


def test_two_rounds_by_hand():
    """UCB1 with width 1: pulls (1, 2), sums (1, 1), t = 6: 1 + sqrt(log 8 / 1) = 2.442, .5 + sqrt(log 8 / 2) = 1.5197."""
    policy = stochastic.UCB1(width=1.0)
    state = ArmStatistics(pulls=jnp.array([1, 2, 0], jnp.int32), reward_sum=jnp.array([1.0, 1.0, 0.0]))
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
    state = ArmStatistics(pulls=jnp.array([10, 0], jnp.int32), reward_sum=jnp.array([7.0, 0.0]))
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


# Environments.


@pytest.mark.parametrize("law", ["bernoulli", "gaussian"])
def test_reward_laws(law):
    env = jax.tree.map(jnp.asarray, bandit(law))
    keys = jax.random.split(draws.key(11), 100_000)

    def step(key, action):
        _, reward, flows = env.step(key, (), action, jnp.int32(0))
        return reward, flows["regret"]

    for m, mean in enumerate(MEANS):
        reward, regret = jax.jit(jax.vmap(step, (0, None)))(keys, m)
        assert_mean_close(reward, mean)
        np.testing.assert_allclose(regret, 0.6 - mean, atol=1e-6)
        spread = np.sqrt(mean * (1 - mean)) if law == "bernoulli" else 0.4
        assert np.std(reward) == pytest.approx(spread, rel=0.02)


# Oracle and theory.


def test_oracle_has_no_regret():
    for env in (bandit("bernoulli"), bandit("gaussian")):
        data = simulate(env, stochastic.Oracle.of, horizon=500, seeds=8, record=["regret", "pulls"], progress=False)
        assert np.abs(data["regret"].values).max() == 0.0
        assert (data["pulls"].isel(policy=0, time=-1).values == np.array([0, 500, 0, 0, 0])).all()


def test_lai_robbins_by_hand():
    # KL(.8, .9) = .8 log(.8 / .9) + .2 log(.2 / .1) = .0444030; .1 / .0444030 = 2.252100.
    assert stochastic.lai_robbins(stochastic.bernoulli([0.9, 0.8]), np.e) == pytest.approx(2.2521, abs=1e-4)
    # Two equal worse models count twice, a second best one not at all; log 100 = 4.60517.
    several = stochastic.lai_robbins(stochastic.bernoulli([0.9, 0.8, 0.8, 0.9]), [1, 100])
    np.testing.assert_allclose(several, [0.0, 2 * 2.2521 * 4.60517], rtol=1e-4)
    # A model that never succeeds: KL(0, .5) = log 2, .5 / log 2 = .721348.
    assert stochastic.lai_robbins(stochastic.bernoulli([0.0, 0.5]), np.e) == pytest.approx(0.721348, abs=1e-5)
    # Gaussian: .4^2 / (2 * .5^2) = .32; .4 / .32 = 1.25.
    assert stochastic.lai_robbins(stochastic.gaussian([1.0, 0.6], 0.5), np.e) == pytest.approx(1.25, abs=1e-5)
    # A best model of mean 1 is told apart at once: KL is infinite.
    assert stochastic.lai_robbins(stochastic.bernoulli([0.5, 1.0]), 10) == 0.0


def test_regret_against_lai_robbins():
    """Thompson sampling attains the line's slope, UCB1 is above it by a factor, and its proof's bound above both."""
    means, horizon = (0.9, 0.6), 8000
    env = stochastic.bernoulli(means)
    policies = {"ucb": stochastic.UCB1(), "beta": stochastic.BetaThompson()}
    data = simulate(env, policies, horizon=horizon, seeds=400, record_every=1000, record=["regret"], progress=False)
    line = stochastic.lai_robbins(env, np.array([1000, horizon]))
    growth = {}
    for name in policies:
        curves = data["regret"].sel(policy=name).values
        grown = curves[:, -1] - curves[:, 0]
        growth[name] = grown.mean(), grown.std(ddof=1) / 20
    slope = line[1] - line[0]
    mean, error = growth["beta"]
    assert 0.6 * slope - 5 * error < mean < 1.8 * slope + 5 * error
    mean, error = growth["ucb"]
    assert mean - 5 * error > 2 * slope
    # Auer et al., Theorem 1: 8 log T / gap + (1 + pi^2 / 3) gap.
    gap = means[0] - means[1]
    total = data["regret"].sel(policy="ucb").values[:, -1].mean()
    assert total < 8 * np.log(horizon) / gap + (1 + np.pi**2 / 3) * gap


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


def test_ucb_tries_every_model_once_and_in_order():
    chosen, _, _ = play(bandit("bernoulli"), CASES["ucb1"][0], double=True)
    np.testing.assert_array_equal(chosen[:, :5], [[0, 1, 2, 3, 4]] * 3)
