"""Families of distributions: divergences, upper bounds and quantiles against bisection in float64 and against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import x64
from reference import stochastic as plain
from scipy import special

from jaxroute.estimators import families
from jaxroute.estimators.families import upper_quantile
from jaxroute.problems.stochastic.policies.posterior import MOST_PRIOR, BayesUCB

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
