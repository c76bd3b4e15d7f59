"""Ready-made cascades: their constants, and the ranges of their scores."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cascade_cases import f32

from jaxroute.core import draws
from jaxroute.problems import cascade as ca


def test_token_costs():
    cost = ca.token_costs(np.array([[100], [200]]), np.array([[50, 10], [0, 20]]), [1e-4, 2e-4], [3e-4, 4e-4])
    np.testing.assert_allclose(cost, [[0.01 + 0.015, 0.02 + 0.004], [0.02, 0.04 + 0.008]])


def score_range(env, requests):
    """Least and largest score that a box can have for these requests `[n, m]`, for uniform scores."""

    def ends(psi):
        base = env.base_index(psi)
        width = env.boxes.width(psi, base)
        low = base - width * env.boxes.quantile
        return low, low + width

    low, high = jax.vmap(ends)(f32(requests))
    return float(low.min()), float(high.max())


def corners(env):
    """Requests of the cube at which a score may be extreme: with both signs of `x_1`, the others along or against an index."""
    rows = np.where(np.asarray(env.index)[:, 2:] > 0, 1, -1)
    return np.array([(1, first, *(sign * row)) for row in rows for first in (-1, 1) for sign in (-1, 1)])


RANGES = {
    "LOC 3": (lambda: ca.uniform_cascade(3, 4), 0.137, 0.939),
    "LOC 5": (lambda: ca.uniform_cascade(5, 4), 0.115, 0.918),
    "LOC 10": (lambda: ca.uniform_cascade(10, 3), 0.085, 0.958),
    "HET 3": (lambda: ca.uniform_cascade(3, 3, tilt=0.25), 0.078, 0.992),
    "HET 5": (lambda: ca.uniform_cascade(5, 20, tilt=0.25), 0.073, 0.951),
    "HET 10": (lambda: ca.uniform_cascade(10, 3, tilt=0.25), 0.035, 1.006),
    "HET 10, less": (lambda: ca.uniform_cascade(10, 3, tilt=0.20), 0.045, 0.997),
    "HET 3, more": (lambda: ca.uniform_cascade(3, 3, tilt=0.5), None, 1.046),
}


@pytest.mark.parametrize("name", RANGES)
def test_scores_stay_in_their_range(name):
    make, low, high = RANGES[name]
    env = make()
    found = score_range(env, corners(env))
    for value, expected in zip(found, (low, high)):
        assert expected is None or value == pytest.approx(expected, abs=6e-4)


def test_ranges_of_groups_misfits_and_spikes():
    assert score_range(ca.group_cascade(), np.eye(6)) == (pytest.approx(0.142, abs=6e-4), pytest.approx(0.884, abs=6e-4))
    requests = np.array([(1, x, y) for x in np.linspace(-1, 1, 201) for y in (-1, 1)])
    for K in (3, 5, 10):
        low, high = score_range(ca.uniform_cascade(K, bend=0.05), requests)
        assert low > 0 and high <= 0.990
        env = ca.uniform_cascade(K, link="tanh")
        assert score_range(env, corners(env))[0] >= 0.0775
        env = ca.spike_cascade(K)
        width = jax.vmap(lambda psi, env=env: env.boxes.width(psi, env.base_index(psi)))(f32(corners(env)))
        assert width.min() >= 0.188
    psi, gap = f32([1.0]), 0.1
    env = ca.safe_and_risky(gap)
    np.testing.assert_allclose(env.boxes.width(psi, env.base_index(psi)), [0.1, 0.4], rtol=1e-6)
    np.testing.assert_allclose(env.true_index(psi), [0.5, 0.5 - gap], rtol=1e-6)


def test_features_are_not_longer_than_said():
    """The bound is the root of `d + 3` where the score's share of the length is at most 3."""
    assert ca.uniform_cascade(evaluator=5).feature_bound == pytest.approx(math.sqrt(8), rel=1e-6)
    for make in (ca.spike_cascade, functools.partial(ca.uniform_cascade, tilt=0.25)):
        env = make(evaluator=5)
        play = jax.jit(jax.vmap(lambda t, env=env: env.draw(draws.fold_in(draws.key(1), t), (), t).features))
        assert np.linalg.norm(play(jnp.arange(5000)), axis=-1).max() <= env.feature_bound
