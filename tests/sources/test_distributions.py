"""Distributions of rewards and costs against SciPy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_mean_close
from scipy import stats

from jaxroute.core import draws
from jaxroute.sources.distributions import Bernoulli, Beta, Constant, Exponential, Gaussian, LogNormal, Poisson, TokenCost

SIGMA = np.sqrt(np.log(2.0))  # Log-normal with coefficient of variation 1.
# Distribution, means, scale, and SciPy's distribution of a mean.
CASES = {
    "Bernoulli": (Bernoulli(), (0.02, 0.4, 0.97), 0.0, stats.bernoulli),
    "Gaussian": (Gaussian(), (0.02, 0.4, 0.97), 0.1, lambda m: stats.norm(m, 0.1)),
    "relative Gaussian": (Gaussian(relative=True), (0.3, 15.0), 0.1, lambda m: stats.norm(m, 0.1 * m)),
    "log-normal": (LogNormal(), (0.3, 2.0, 15.0), 1.0, lambda m: stats.lognorm(SIGMA, scale=m / np.sqrt(2.0))),
    "beta": (Beta(), (0.2, 0.5), 6.0, lambda m: stats.beta(6 * m, 6 * (1 - m))),
    "exponential": (Exponential(), (0.5, 2.0), 0.0, lambda m: stats.expon(scale=m)),
    "Poisson": (Poisson.of(np.array([0.4, 9.0])), (0.4, 9.0), 0.0, stats.poisson),
}
TRANSFORMS = [name for name, case in CASES.items() if hasattr(case[0], "from_normal")]


def drawn(distribution, means, scale, number=40_000):
    """Values `[number, K]`, one round per key."""
    keys, mean = jax.random.split(draws.key(5), number), jnp.float32(means)
    return np.asarray(jax.jit(jax.vmap(lambda key: distribution(key, mean, jnp.float32(scale))))(keys), np.float64)


def transformed(distribution, means, scale, number=200_000):
    """Values `[number, K]` from standard normal numbers."""
    normal, mean = draws.normal(draws.key(0), (number, distribution.num_normals)), jnp.float32(means)
    return np.asarray(jax.jit(jax.vmap(lambda z: distribution.from_normal(z, mean, jnp.float32(scale))))(normal), np.float64)


@pytest.mark.parametrize(
    ("name", "sample"), [*((name, drawn) for name in CASES), *((name, transformed) for name in TRANSFORMS)]
)
def test_equals_scipy(name, sample):
    """Mean, deviation, and distribution function at five values."""
    distribution, means, scale, scipy = CASES[name]
    values = sample(distribution, means, scale)
    for m, mean in enumerate(means):
        expected, column = scipy(mean), values[:, m]
        assert_mean_close(column, mean)
        assert column.std() == pytest.approx(expected.std(), rel=0.03 if name != "log-normal" else 0.1)
        for value in np.quantile(column, [0.05, 0.3, 0.5, 0.9, 0.999]):
            error = 5 * np.sqrt(expected.cdf(value) * (1 - expected.cdf(value)) / len(column)) + 1e-4
            assert abs((column <= value).mean() - expected.cdf(value)) < error
    if name == "Gaussian":  # All models have the same noise.
        np.testing.assert_allclose(values[:, 0] - means[0], values[:, 2] - means[2], atol=1e-6)


def test_gaussian_with_bounds():
    values = transformed(Gaussian(clip=(0.0, 1.0)), (0.02, 0.4, 0.97), 0.1)
    assert values.min() == 0.0 and values.max() == 1.0
    for m, mean in enumerate((0.02, 0.4, 0.97)):
        low, high = (0.0 - mean) / 0.1, (1.0 - mean) / 0.1
        inside = stats.norm.cdf(high) - stats.norm.cdf(low)
        assert_mean_close(
            values[:, m], mean * inside + 0.1 * (stats.norm.pdf(low) - stats.norm.pdf(high)) + stats.norm.sf(high)
        )


def test_constant_is_the_mean():
    for sample in (drawn, transformed):
        values = sample(Constant(), (0.3, 2.0), 0.0, 10)
        np.testing.assert_array_equal(values, np.broadcast_to(np.float32([0.3, 2.0]), values.shape))


@pytest.mark.parametrize("distribution", [TokenCost(), TokenCost(mean_input=50.0, mean_output=800.0, cap_output=900.0)])
def test_token_costs(distribution):
    """With the cap the mean is still the given one, and costs are proportional across models."""
    cost = transformed(distribution, (0.3, 2.0, 15.0), 1.0, 400_000)
    for m, mean in enumerate((0.3, 2.0, 15.0)):
        assert_mean_close(cost[:, m], mean)
    np.testing.assert_allclose(cost[:, 2] / cost[:, 0], 50.0, rtol=1e-4)
    assert cost[:, 1].std() > 0.2


def test_poisson_has_enough_terms():
    """The probability beyond the last term is below the resolution of a uniform draw, and few terms are superfluous."""
    for mean in (0.01, 1.0, 9.0, 64.0):
        terms = Poisson.of(np.array([mean])).terms
        assert stats.poisson(mean).sf(terms) < 2.0**-23 < stats.poisson(mean).sf(0.6 * terms - 1)


@pytest.mark.fast
def test_without_a_divergence():
    with pytest.raises(ValueError, match=r"distribution must have a known divergence, got LogNormal\(\)"):
        LogNormal().divergence(np.ones(1), 2.0, 1.0)
