"""Bounds of the regret, and best-arm identification."""

import numpy as np
import pytest
from reference import stochastic as plain
from scipy import stats

from jaxroute import simulate
from jaxroute.problems import stochastic


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
    # A best model of mean 1 is identified at once: KL is infinite.
    assert stochastic.lai_robbins(stochastic.bernoulli([0.5, 1.0]), 10) == 0.0


def test_regret_against_lai_robbins():
    """Thompson sampling attains the line's slope, UCB1 is above it by a factor, and below the bound of its proof."""
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
    assert data["regret"].sel(policy="ucb").values[:, -1].mean() < stochastic.auer_bound(env, horizon)


def test_auer_bound_by_hand():
    """Gaps .1 and .4: 8 log(t) (10 + 2.5) + (1 + pi^2 / 3) .5; the best model and its equals do not count."""
    env = stochastic.bernoulli([0.9, 0.8, 0.5, 0.9])
    expected = 100.0 * np.log([1.0, 10_000.0]) + 0.5 * (1 + np.pi**2 / 3)
    np.testing.assert_allclose(stochastic.auer_bound(env, [1, 10_000]), expected, rtol=1e-6)


def test_lai_robbins_of_other_distributions_by_hand():
    """Poisson: kl(1, 2) = 1 + log(1/2) = .306853. Exponential: kl(1, 2) = 1/2 - 1 - log(1/2) = .193147. Beta: by quadrature."""
    assert stochastic.lai_robbins(stochastic.poisson([1.0, 2.0]), np.e) == pytest.approx(1 / 0.306853, rel=1e-5)
    assert stochastic.lai_robbins(stochastic.exponential([1.0, 2.0]), np.e) == pytest.approx(1 / 0.193147, rel=1e-5)
    x = (np.arange(200_000) + 0.5) / 200_000
    p, q = stats.beta(3, 7), stats.beta(5, 5)
    kl = np.mean(p.pdf(x) * (p.logpdf(x) - q.logpdf(x)))
    assert stochastic.lai_robbins(stochastic.beta([0.3, 0.5], 10.0), np.e) == pytest.approx(0.2 / kl, rel=1e-5)


def test_bounds_by_hand():
    """49 sqrt(10 * 1,000) = 4,900; sqrt(10 * 1,000) / 20 = 5, 5 / 20; 2 sqrt(1.718282 * 1,000 * 2 log 2) = 97.613."""
    assert stochastic.minimax_bound(10, 1000) == pytest.approx(4900.0)
    np.testing.assert_allclose(stochastic.minimax_lower_bound(10, [1000, 5]), [5.0, 0.25])
    assert stochastic.exp3_bound(2, 1000) == pytest.approx(97.613, abs=1e-3)


def test_characteristic_time():
    """The weights that the paper prints for its two instances; two normal models, by hand: w = 1/2, T* = 8 scale^2 / gap^2."""
    first = stochastic.bernoulli([0.5, 0.45, 0.43, 0.4])
    np.testing.assert_allclose(stochastic.optimal_weights(first), [0.417, 0.390, 0.136, 0.057], atol=6e-4)
    second = stochastic.bernoulli([0.3, 0.21, 0.2, 0.19, 0.18])
    np.testing.assert_allclose(stochastic.optimal_weights(second), [0.336, 0.251, 0.177, 0.132, 0.104], atol=6e-4)
    normal = stochastic.gaussian([0.2, 0.6], scale=0.5)
    np.testing.assert_allclose(stochastic.optimal_weights(normal), 0.5, atol=1e-6)
    assert stochastic.characteristic_time(normal) == pytest.approx(8 * 0.25 / 0.16, rel=1e-5)
    # No other shares have a larger least cost.
    rng = np.random.default_rng(0)
    mean, least = np.array([0.5, 0.45, 0.43, 0.4]), 1.0 / stochastic.characteristic_time(first)
    for w in rng.dirichlet(400 * stochastic.optimal_weights(first), 100):
        m = (w[0] * mean[0] + w * mean) / (w[0] + w)
        kl = plain.kl_bernoulli
        cost = [w[0] * kl(mean[0], b) + c * kl(a, b) for a, b, c in zip(mean, m, w, strict=True)]
        assert min(cost[1:]) < least + 1e-9
    # A worst mean of 0.
    zero, above = (stochastic.characteristic_time(stochastic.bernoulli([worst, 0.5])) for worst in (0.0, 0.1))
    assert 0 < zero < above


@pytest.mark.fast
def test_bandits_without_a_characteristic_time_are_refused():
    for env, message in (
        (stochastic.bernoulli([0.5, 0.5]), "mean must have one largest of at least two values"),
        (stochastic.bernoulli([0.5]), "mean must have one largest of at least two values"),
        (stochastic.beta([0.3, 0.5]), "distribution must be one of an exponential family"),
    ):
        with pytest.raises(ValueError, match=message):
            stochastic.characteristic_time(env)
