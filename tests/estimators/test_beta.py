"""Quantiles of beta distributions against SciPy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import x64
from scipy import special

from jaxroute.estimators.beta import upper_quantile
from jaxroute.problems.stochastic.policies.posterior import MOST_PRIOR, BayesUCB


def test_quantiles():
    """With up to 1e5 observations, none of them a success or all, and tails down to 1e-7."""
    rng = np.random.default_rng(0)
    number = np.concatenate([rng.integers(0, 30, 300), np.exp(rng.uniform(0, np.log(1e5), 300)).astype(int)])
    a = 1.0 + rng.binomial(number, rng.choice([0.0, 0.001, 0.1, 0.5, 0.9, 0.999, 1.0], 600))
    b = number + 2.0 - a
    tail = 1.0 / np.maximum(number + 2, np.exp(rng.uniform(np.log(2), np.log(1e7), 600)))
    exact = special.betainccinv(a, b, tail)
    spread = np.sqrt(a * b / (a + b) ** 3)
    arguments = (a, b, np.log(tail), -special.ndtri(tail))
    with x64():
        found = np.asarray(jax.jit(upper_quantile)(*map(jnp.asarray, arguments)))
    assert np.max(np.abs(found - exact)) < 2e-6
    assert np.max(np.abs(found - exact) / spread) < 1e-4
    single = jax.jit(upper_quantile)(*(jnp.asarray(x, jnp.float32) for x in arguments))
    assert np.max(np.abs(np.asarray(single, np.float64) - exact)) < 1e-5


def test_priors_up_to_the_strongest_that_is_allowed():
    """All rounds up to 300, in which tails may be larger than the method is made for."""
    rng = np.random.default_rng(1)
    total = np.where(rng.random(20_000) < 0.3, MOST_PRIOR, rng.uniform(2, MOST_PRIOR, 20_000))
    a = 1 + (total - 2) * rng.beta(0.3, 0.3, total.size)
    t = np.floor(np.exp(rng.uniform(0, np.log(300), total.size))) - 1
    wins = rng.binomial(t.astype(int), rng.choice([0, 0.05, 0.5, 0.95, 1], total.size))
    a, b, tail = a + wins, total - a + t - wins, 1 / (t + 2)
    found = jax.jit(upper_quantile)(*(jnp.asarray(x, jnp.float32) for x in (a, b, np.log(tail), -special.ndtri(tail))))
    error = np.abs(np.asarray(found, np.float64) - special.betainccinv(a, b, tail))
    assert np.max(error / np.sqrt(a * b / (a + b) ** 3)) < 3e-4 and error.max() < 2e-5
    BayesUCB(10.0, 10.0).check()
    with pytest.raises(ValueError, match="successes [+] failures must be at most 20, .* got 100"):
        BayesUCB(50.0, 50.0).check()
