"""Distributions of the rewards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_mean_close
from scipy import stats
from stochastic_cases import MEANS, bandit

from jaxroute.core import draws
from jaxroute.problems import stochastic
from jaxroute.sources.distributions import Poisson

# Environments.


@pytest.mark.parametrize("distribution", ["bernoulli", "gaussian"])
def test_reward_distributions(distribution):
    env = jax.tree.map(jnp.asarray, bandit(distribution))
    keys = jax.random.split(draws.key(11), 100_000)

    def step(key, action):
        _, reward, flows = env.step(key, (), action, jnp.int32(0))
        return reward, flows["regret"]

    for m, mean in enumerate(MEANS):
        reward, regret = jax.jit(jax.vmap(step, (0, None)))(keys, m)
        assert_mean_close(reward, mean)
        np.testing.assert_allclose(regret, 0.6 - mean, atol=1e-6)
        spread = np.sqrt(mean * (1 - mean)) if distribution == "bernoulli" else 0.4
        assert np.std(reward) == pytest.approx(spread, rel=0.02)


@pytest.mark.parametrize(
    ("env", "distribution"),
    [
        (stochastic.beta([0.2, 0.5], concentration=6.0), lambda m: stats.beta(6 * m, 6 * (1 - m))),
        (stochastic.exponential([0.5, 2.0]), lambda m: stats.expon(scale=m)),
        (stochastic.poisson([0.4, 9.0]), stats.poisson),
    ],
    ids=["beta", "exponential", "poisson"],
)
def test_distributions_of_other_rewards(env, distribution):
    """Against SciPy's distribution functions, mean and deviation."""
    keys = jax.random.split(draws.key(5), 40_000)
    rewards = np.asarray(jax.jit(jax.vmap(lambda key: env.distribution(key, env.mean, env.scale)))(keys), np.float64)
    for m, mean in enumerate(np.asarray(env.mean, np.float64)):
        expected = distribution(mean)
        assert_mean_close(rewards[:, m], mean)
        assert rewards[:, m].std() == pytest.approx(expected.std(), rel=0.03)
        for value in np.quantile(rewards[:, m], [0.05, 0.3, 0.5, 0.9, 0.999]):
            error = 5 * np.sqrt(expected.cdf(value) * (1 - expected.cdf(value)) / keys.size) + 1e-4
            assert abs((rewards[:, m] <= value).mean() - expected.cdf(value)) < error


def test_counts_have_terms_enough():
    """What is left beyond the last term is less than a uniform can tell, and few terms are wasted."""
    for mean in (0.01, 1.0, 9.0, 64.0):
        terms = Poisson.of(np.array([mean])).terms
        assert stats.poisson(mean).sf(terms) < 2.0**-23 < stats.poisson(mean).sf(0.6 * terms - 1)


# Means that change.


def walked(path, horizon, key=0):
    """The path's means `[T, K]`."""

    def step(state, t):
        return path.move(draws.fold_in(draws.key(key), t), state, t), path.mean(state, t)

    return np.asarray(jax.jit(lambda: jax.lax.scan(step, path.init(draws.key(7)), jnp.arange(horizon))[1])())


def test_means_that_change_at_once():
    means = walked(stochastic.garivier_moulines().path, 6000)
    assert (means[:, :2] == np.float32([0.5, 0.3])).all()
    np.testing.assert_array_equal(means[:, 2], np.repeat(np.float32([0.4, 0.9, 0.4]), [3000, 2000, 1000]))


def test_means_that_rise_and_fall():
    """A quarter of the period later the first model is at its top, and the second, half a period behind, at its bottom; late rounds too."""
    path = stochastic.sinusoidal([0.5, 0.6], amplitude=0.25, period=400).path
    np.testing.assert_allclose(
        walked(path, 401)[[0, 100, 300, 400]], [[0.5, 0.6], [0.75, 0.35], [0.25, 0.85], [0.5, 0.6]], atol=1e-6
    )
    np.testing.assert_allclose(path.mean((), jnp.int32(8_000_100)), [0.75, 0.35], atol=1e-5)


def test_means_that_wander():
    """Steps of the given deviation away from the ends, which are never passed, and at which no mean stays."""
    means = walked(stochastic.drifting([0.5, 0.0, 0.9], step=0.02).path, 20_000)
    assert means.min() >= 0 and means.max() <= 1
    inside = (means[:-1] > 0.1) & (means[:-1] < 0.9)
    assert np.diff(means, axis=0)[inside].std() == pytest.approx(0.02, rel=0.03)
    assert means.std(0).min() > 0.2 and ((means == 0) | (means == 1)).mean() < 0.01


def test_means_that_jump():
    """A restless bandit: of the time in the high state up / (up + down), and jumps as often as the probabilities say."""
    env = stochastic.restless([0.1, 0.2], [0.9, 0.6], [0.02, 0.3], [0.06, 0.3])
    high = walked(env.path, 60_000) == np.float32([0.9, 0.6])
    np.testing.assert_allclose(high.mean(0), [0.25, 0.5], atol=0.03)
    for model, (up, down) in enumerate(((0.02, 0.06), (0.3, 0.3))):
        jumps, now = high[1:, model] != high[:-1, model], high[:-1, model]
        assert jumps[~now].mean() == pytest.approx(up, rel=0.1) and jumps[now].mean() == pytest.approx(down, rel=0.1)


def test_regret_is_against_the_best_of_the_moment():
    env = stochastic.piecewise([[0.2, 0.7], [0.9, 0.4]], [0, 3])
    for t, action, regret in ((2, 0, 0.5), (2, 1, 0.0), (3, 0, 0.0), (3, 1, 0.5)):
        _, reward, flows = env.step(draws.key(t), (), jnp.int32(action), jnp.int32(t))
        assert flows["regret"] == pytest.approx(regret, abs=1e-6) and flows["reward"] == reward


@pytest.mark.fast
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: stochastic.beta([0.05, 0.5]),
            r"concentration times mean, .* must be at least 1, got 0.5 with concentration 10",
        ),
        (lambda: stochastic.beta([0.5], concentration=0), "concentration must be above 0, got 0"),
        (lambda: stochastic.beta([1.5]), r"mean must be in \[0, 1\], got 1.5"),
        (lambda: stochastic.poisson([-1.0]), "mean must be at least 0, got -1"),
        (lambda: stochastic.poisson([100.0]), "mean must be at most 64 for counts, got 100"),
        (lambda: stochastic.poisson([]), r"mean must have shape \[K\]"),
        (lambda: stochastic.exponential([0.0]), "mean must be above 0, got 0"),
        (lambda: stochastic.piecewise([0.5, 0.4], [0, 5]), r"means must have shape \[P, K\]"),
        (lambda: stochastic.piecewise([[0.5], [0.4]], [1, 5]), "starts must be whole numbers that begin with 0 and rise"),
        (lambda: stochastic.piecewise([[0.5], [0.4]], [0, 0]), "starts must be whole numbers that begin with 0 and rise"),
        (lambda: stochastic.piecewise([[0.5], [0.4]], [0]), r"starts must have shape \(2,\)"),
        (lambda: stochastic.piecewise([[0.5], [1.4]], [0, 3]), r"means must be in \[0, 1\], got 1.4"),
        (lambda: stochastic.drifting([0.5], step=0.5), "step must be at most an eighth of the interval, 0.125, got 0.5"),
        (lambda: stochastic.drifting(0.5), r"mean must have shape \[K\]"),
        (lambda: stochastic.sinusoidal([0.5, 0.2], amplitude=0.4), r"mean - amplitude must be in \[0, 1\], got -0.2"),
        (lambda: stochastic.sinusoidal([0.5], period=0), "period must be above 0, got 0"),
        (lambda: stochastic.restless([0.1, 0.2], [0.5], [0.1], [0.1]), r"high must have shape \(2,\)"),
        (lambda: stochastic.restless([0.1], [0.5], [0.0], [0.1]), r"up must be in \(0, 1\], got 0"),
        (
            lambda: stochastic.Oracle.of(stochastic.garivier_moulines()),
            "Oracle.of needs an environment with fixed means in `mean`, got ChangingEnv",
        ),
    ],
)
def test_bad_environments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
