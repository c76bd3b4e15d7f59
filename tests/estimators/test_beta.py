"""Quantiles of beta laws against SciPy's."""

import jax
import jax.numpy as jnp
import numpy as np
from helpers import x64
from scipy import special

from jaxroute.estimators.beta import upper_quantile


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
