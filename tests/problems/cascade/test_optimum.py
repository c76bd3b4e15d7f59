"""Reservation indices of known laws, values of the optimal search and of simple rules."""

import jax.numpy as jnp
import numpy as np
import pytest
from cascade_cases import RULES, assert_near, f32, first_study, study

from jaxroute.problems import cascade as ca
from jaxroute.solvers.reservation import discrete_index, index_by_bisection, two_point_index, uniform_index


def test_index_cases():
    assert float(uniform_index(0.3, 0.4, 0.05)) == pytest.approx(0.5)
    assert float(uniform_index(0.3, 0.4, 0.35)) == pytest.approx(0.15)
    assert float(two_point_index(0.0, 1.0, 0.1, 0.01)) == pytest.approx(0.9)
    assert float(two_point_index(0.2, 0.9, 0.5, 0.05)) == pytest.approx(0.8)
    assert float(two_point_index(0.2, 0.9, 0.5, 0.5)) == pytest.approx(0.05)
    assert discrete_index([0.2, 0.9], [0.5, 0.5], 0.05) == pytest.approx(0.8, abs=1e-12)
    assert discrete_index([0, 1], [9, 1], 0.01) == pytest.approx(0.9, abs=1e-12)
    assert float(uniform_index(0.3, 0.4, 0.2)) == pytest.approx(0.3)  # Where the two branches meet.


def test_index_of_discrete_laws_is_the_root():
    rng = np.random.default_rng(0)
    for _ in range(200):
        n = int(rng.integers(1, 6))
        values, weights = np.round(rng.random(n), int(rng.integers(1, 4))), rng.random(n) * (rng.random(n) < 0.8)
        weights[0] += 0.1
        cost = rng.random()
        root = discrete_index(values, weights, cost)
        assert weights @ np.maximum(values - root, 0) / weights.sum() == pytest.approx(cost, abs=1e-12)


def test_bisection_equals_the_closed_forms():
    rng = np.random.default_rng(1)
    low, width = rng.uniform(0, 0.5, 500), rng.uniform(0.05, 0.5, 500)
    cost = rng.uniform(0.001, 0.4, 500)

    def excess(level):
        inside = jnp.clip(low + width - level, 0.0, width)
        return 0.5 * inside**2 / width + jnp.maximum(low - level, 0.0)

    np.testing.assert_allclose(index_by_bisection(excess, f32(cost)), uniform_index(low, width, cost), atol=2e-6)
    high, chance = rng.uniform(0.6, 1.0, 500), rng.uniform(0.1, 0.9, 500)

    def two(level):
        return chance * jnp.maximum(high - level, 0) + (1 - chance) * jnp.maximum(low - level, 0)

    np.testing.assert_allclose(index_by_bisection(two, f32(cost)), two_point_index(low, high, chance, cost), atol=2e-6)


@pytest.mark.parametrize(("x", "value"), [((0, 0), 0.5356009), ((0.5, -0.5), 0.6113105), ((-0.9, 0.8), 0.6207554)])
def test_oracle_value_of_a_request(x, value):
    assert ca.oracle_value(ca.uniform_cascade(), (1, *x)) == pytest.approx(value, abs=2e-6)


def test_oracle_value_of_the_two_boxes():
    assert ca.oracle_value(ca.two_boxes(), [1.0]) == pytest.approx(0.54, abs=1e-6)


@pytest.mark.slow
def test_values_with_full_information():
    """First row of the table of section 2.4; its standard errors are about .0003 (queries: two digits)."""
    data = first_study().isel(time=-1)
    row = {"oracle": 0.5807, "one call": 0.5705, "all": 0.5228}
    for name, value in row.items():
        assert_near(data["utility"].sel(policy=name), value, 0.0003, name)
    assert_near(data["queries"].sel(policy="oracle"), 1.312, 0.001, "queries")
    assert data["valid"].all()


def test_tuned_threshold_of_ref():
    threshold, value = ca.tuned_threshold(ca.uniform_cascade(), number=50_000)
    assert threshold == pytest.approx(0.53, abs=0.021)
    assert value == pytest.approx(0.5599, abs=0.003)


TABLE = {
    (3, 3): (0.5807, 1.31, 0.5106, 0.5705, 0.5228, 0.5599, 0.53, 0.5571),
    (3, 5): (0.5582, 1.46, 0.5106, 0.5429, 0.5063, 0.5440, 0.52, 0.5435),
    (3, 10): (0.5474, 1.53, 0.5105, 0.5290, 0.4988, 0.5350, 0.52, 0.5404),
    (5, 5): (0.5856, 1.50, 0.5282, 0.5703, 0.4601, 0.5547, 0.54, 0.5679),
    (5, 10): (0.5669, 1.60, 0.5282, 0.5481, 0.4455, 0.5428, 0.53, 0.5566),
    (10, 5): (0.6051, 1.70, 0.5496, 0.5838, 0.3135, 0.5576, 0.54, 0.5741),
    (10, 10): (0.5925, 1.67, 0.5496, 0.5742, 0.3002, 0.5469, 0.53, 0.5704),
}


@pytest.mark.slow
@pytest.mark.parametrize("size", TABLE)
def test_values_with_full_information_of_all_sizes(size):
    env = ca.uniform_cascade(*size)
    oracle, queries, best, one, everything, frugal, threshold, static = TABLE[size]
    policies = {n: RULES[n] for n in ("oracle", "best", "one call", "all", "static")}
    data = study(env, policies | {"frugal": ca.Frugal(threshold=threshold)}).isel(time=-1)
    expected = {"oracle": oracle, "best": best, "one call": one, "all": everything, "frugal": frugal, "static": static}
    for name, value in expected.items():
        assert_near(data["utility"].sel(policy=name), value, 0.0003, name)
    assert_near(data["queries"].sel(policy="oracle"), queries, 0.0015, "queries", slack=0.005)
    assert ca.tuned_threshold(env)[0] == pytest.approx(threshold, abs=0.021)
