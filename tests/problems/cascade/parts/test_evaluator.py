"""Evaluators that are learned from rewards: worked cases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cascade_cases import f32

from jaxroute.estimators import links
from jaxroute.estimators.glm import ExactGLM, OnlineGLM, fit_glm

F = np.array(
    [
        [1, 0.2, -0.5],
        [0.3, -1, 0.8],
        [-0.7, 0.4, 1],
        [0.5, 0.5, 0.5],
        [-1, -0.2, 0.1],
        [0.9, -0.6, 0.3],
        [0, 1, -1],
        [0.2, 0.1, 0.9],
    ]
)
R = np.array([1, 0, 1, 1, 0, 1, 0, 1.0])
THETA = [0.74693892, 0.42215979, 0.68518392]


def learned(model, features, rewards, link, bound=10.0, ridge=1.0):
    """Estimates `[n, d]` after each pair."""

    @jax.jit
    def run(features, rewards):
        def one(state, pair):
            state = model.add(state, *pair, jnp.ones((), bool), f32(ridge), link, f32(bound))
            return state, state.theta

        return jax.lax.scan(one, model.init(features.shape[1], f32(ridge)), (features, rewards))[1]

    return np.asarray(run(f32(features), f32(rewards)), float)


def test_evaluator_of_the_example():
    np.testing.assert_allclose(fit_glm(F, R, links.LOGISTIC), THETA, atol=1e-5)
    assert np.linalg.norm(THETA) == pytest.approx(1.0980, abs=5e-5)
    np.testing.assert_allclose(learned(ExactGLM(capacity=8), F, R, links.LOGISTIC)[-1], THETA, atol=1e-5)
    # A pair that was not seen changes nothing.
    model = ExactGLM(capacity=8)
    state = model.init(3, f32(1.0))
    same = model.add(state, f32(F[0]), f32(1.0), jnp.zeros((), bool), f32(1.0), links.LOGISTIC, f32(4.0))
    np.testing.assert_array_equal(same.theta, 0.0)


def test_evaluator_in_a_ball():
    projected = [0.34178259, 0.18368593, 0.31534766]  # Of eq. (19), in the norm of the design.
    for model in (ExactGLM(capacity=8), OnlineGLM()):
        short = learned(model, F, R, links.LOGISTIC, bound=0.5)[-1]
        assert np.linalg.norm(short) == pytest.approx(0.5, abs=1e-5)
        assert np.linalg.norm(short - projected) < 0.05  # The radial projection is near the exact one.
