"""What theory says of the regret."""

import numpy as np
import pytest

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


def test_auer_bound_by_hand():
    """Gaps .1 and .4: 8 log(t) (10 + 2.5) + (1 + pi^2 / 3) .5; the best model and its equals do not count."""
    env = stochastic.bernoulli([0.9, 0.8, 0.5, 0.9])
    expected = 100.0 * np.log([1.0, 10_000.0]) + 0.5 * (1 + np.pi**2 / 3)
    np.testing.assert_allclose(stochastic.auer_bound(env, [1, 10_000]), expected, rtol=1e-6)
