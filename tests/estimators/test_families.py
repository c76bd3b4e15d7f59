"""Families of distributions: divergences and upper bounds against bisection in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import stochastic as plain

from jaxroute.estimators import families

FAMILIES = {
    "bernoulli": (families.Bernoulli(), plain.kl_bernoulli, 1.0),
    "gaussian": (families.Gaussian(0.7), lambda x, y: plain.kl_gaussian(x, y, 0.7), 50.0),
    "poisson": (families.Poisson(), plain.kl_poisson, 60.0),
    "exponential": (families.Exponential(), plain.kl_exponential, 1e9),
}


def cases(name):
    """Means of a few and of many observations, at both ends too, and levels as in an index policy."""
    rng = np.random.default_rng(0)
    pulls = np.exp(rng.uniform(0, np.log(1e5), 300)).astype(int)
    mean = rng.binomial(pulls, rng.choice([0.0, 0.001, 0.1, 0.5, 0.9, 0.999, 1.0], 300)) / pulls
    mean = mean if name == "bernoulli" else np.maximum(3.0 * mean, 0.0 if name == "poisson" else 0.01)
    level = np.log(np.maximum(pulls, 2) * rng.uniform(1, 100, 300)) / pulls
    return np.float32(mean), np.float32(level)


@pytest.mark.parametrize("name", FAMILIES)
def test_upper_bounds_and_divergences(name):
    family, kl, high = FAMILIES[name]
    mean, level = cases(name)
    bound = np.asarray(jax.jit(family.upper)(jnp.asarray(mean), jnp.asarray(level)), np.float64)
    for x, part, found in zip(mean.astype(float), level.astype(float), bound, strict=True):
        exact = plain.largest_within(kl, x, part, min(high, x * np.exp(part + 2.0) + 1.0) if name == "exponential" else high)
        assert found == pytest.approx(exact, abs=1e-6 + 2e-3 * (exact - x) * (x > 0) + 1e-6 * exact), (x, part)
    inside = (mean > 0) & (bound < high * (1 - 1e-3)) & ((mean < 1) | (name != "bernoulli"))
    other = np.float32(bound[inside])
    found = jax.jit(family.divergence)(jnp.asarray(mean[inside]), jnp.asarray(other))
    expected = [kl(x, y) for x, y in zip(mean[inside].astype(float), other.astype(float), strict=True)]
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-7)


def test_equal_means_are_at_no_distance_and_no_level_is_no_bonus():
    mean = jnp.array([0.2, 0.5, 0.9])
    for family, _, _ in FAMILIES.values():
        np.testing.assert_array_equal(family.divergence(mean, mean), 0.0)
        np.testing.assert_allclose(family.upper(mean, jnp.zeros(3)), mean, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "draw"), [("bernoulli", "binomial"), ("poisson", "poisson"), ("exponential", "exponential")]
)
def test_variances(name, draw):
    rng, mean = np.random.default_rng(0), 0.3
    samples = {"binomial": lambda n: rng.binomial(1, mean, n), "poisson": lambda n: rng.poisson(mean, n)}.get(
        draw, lambda n: rng.exponential(mean, n)
    )(200_000)
    assert float(FAMILIES[name][0].variance(jnp.array([mean]))[0]) == pytest.approx(samples.var(), rel=0.03)
