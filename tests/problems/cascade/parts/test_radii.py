"""Radii: formulas, and what they do to a search."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from cascade_cases import moment_of, runs

from jaxroute.core import draws
from jaxroute.problems.cascade.parts.radii import PracticalRadius, TheoreticalRadius


def test_the_radii_of_the_proofs_open_everything():
    data = runs()
    for name in ("regret", "realised_regret", "queries", "opened", "deployed"):
        np.testing.assert_array_equal(data[name].sel(policy="theory"), data[name].sel(policy="all"))
    assert (data["queries"].sel(policy="all") == 3).all()


def test_radii_of_the_proofs():
    theory = TheoreticalRadius(mass=0.3, slope=1.0, reach=0.8, score_slope=0.05, reward_bound=1.0, lipschitz=1.0)
    now = moment_of(n=5000, T=10_000)
    np.testing.assert_allclose(theory.index_radius(now), 509.15, atol=0.006)
    np.testing.assert_allclose(theory.bonus(None, (), now), 0.5 * 509.15, atol=0.003)
    now = moment_of(n=500, t=1000, T=10_000, d=5, trace=3.0)  # delta = 1 / sqrt(T) = .01.
    theta, width = theory.scoring(draws.key(0), now, jnp.ones(5), jnp.eye(5))
    assert float(width) == pytest.approx(378.08, abs=0.006)
    np.testing.assert_array_equal(theta, 1.0)
    np.testing.assert_allclose(theory.index_radius(now), 6807.3, atol=0.06)


def test_practical_radii():
    b, c_p, c_r = 0.10, 0.03, 0.30
    now = moment_of(T=2000)
    radius = b * math.sqrt(3 * math.log(2000) + math.log(3 * 2000 * 2000))
    assert radius == pytest.approx(0.625, abs=5e-4)
    np.testing.assert_allclose(PracticalRadius().bonus(None, (), now), 0.5 * radius, rtol=1e-6)
    now = moment_of(T=400, t=50, d=5, trace=2.5, eta0=0.7)
    log_delta = 0.5 * math.log(400)
    square = b**2 * (3 * math.log(400) + math.log(3 * 400) + log_delta)
    square += c_p**2 * (5 * math.log(50) + log_delta) * 2.5
    np.testing.assert_allclose(PracticalRadius().bonus(None, (), now), 0.5 * math.sqrt(square), rtol=1e-6)
    width = c_r * math.sqrt(5 * math.log(1 + 50 * 8 / 0.7) + 2 * (math.log(2) + log_delta))
    assert float(PracticalRadius().scoring(draws.key(0), now, jnp.ones(5), None)[1]) == pytest.approx(width, rel=1e-6)
