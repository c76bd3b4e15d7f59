"""Means that change, and bandits that are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxroute.core import draws
from jaxroute.problems import stochastic


def walked(path, horizon, key=0):
    """Means `[T, K]` of a path."""

    def step(state, t):
        return path.move(draws.fold_in(draws.key(key), t), state, t), path.mean(state, t)

    return np.asarray(jax.jit(lambda: jax.lax.scan(step, path.init(draws.key(7)), jnp.arange(horizon))[1])())


def test_abrupt_changes():
    means = walked(stochastic.garivier_moulines().path, 6000)
    assert (means[:, :2] == np.float32([0.5, 0.3])).all()
    np.testing.assert_array_equal(means[:, 2], np.repeat(np.float32([0.4, 0.9, 0.4]), [3000, 2000, 1000]))


def test_sinusoidal_means():
    """After a quarter of the period the first model is at its maximum, the second, half a period behind, at its minimum; also late."""
    path = stochastic.sinusoidal([0.5, 0.6], amplitude=0.25, period=400).path
    np.testing.assert_allclose(
        walked(path, 401)[[0, 100, 300, 400]], [[0.5, 0.6], [0.75, 0.35], [0.25, 0.85], [0.5, 0.6]], atol=1e-6
    )
    np.testing.assert_allclose(path.mean((), jnp.int32(8_000_100)), [0.75, 0.35], atol=1e-5)


def test_brownian_motion():
    """Steps have the given deviation away from the ends; no mean crosses an end or stays there."""
    means = walked(stochastic.drifting([0.5, 0.0, 0.9], step=0.02).path, 20_000)
    assert means.min() >= 0 and means.max() <= 1
    inside = (means[:-1] > 0.1) & (means[:-1] < 0.9)
    assert np.diff(means, axis=0)[inside].std() == pytest.approx(0.02, rel=0.03)
    assert means.std(0).min() > 0.2 and ((means == 0) | (means == 1)).mean() < 0.01


def test_markov_chains():
    """The high state has the share up / (up + down) of the rounds, and jumps have the given probabilities."""
    env = stochastic.restless([0.1, 0.2], [0.9, 0.6], [0.02, 0.3], [0.06, 0.3])
    high = walked(env.path, 60_000) == np.float32([0.9, 0.6])
    np.testing.assert_allclose(high.mean(0), [0.25, 0.5], atol=0.03)
    for model, (up, down) in enumerate(((0.02, 0.06), (0.3, 0.3))):
        jumps, now = high[1:, model] != high[:-1, model], high[:-1, model]
        assert jumps[~now].mean() == pytest.approx(up, rel=0.1) and jumps[now].mean() == pytest.approx(down, rel=0.1)


def test_regret_is_against_the_best_model_of_the_round():
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
        (
            lambda: stochastic.drifting([0.5], step=0.5),
            "step must be above 0 and at most an eighth of the interval, 0.125, got 0.5",
        ),
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
