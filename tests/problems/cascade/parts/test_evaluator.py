"""Evaluators that are learned from rewards: worked cases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cascade_cases import NUMBER, drawn, f32, play, slow, study

from jaxroute.estimators import links
from jaxroute.estimators.glm import ExactGLM, FrozenGLM, OnlineGLM, fit_glm
from jaxroute.problems import cascade as ca
from jaxroute.problems.cascade.parts.streaming import StreamingNewton
from jaxroute.problems.cascade.theory import evaluator_error


@pytest.mark.slow
def test_a_frozen_evaluator_is_as_good_as_its_data():
    """Fitted offline on many outputs of random boxes, then fixed."""
    env = ca.uniform_cascade(evaluator=5)
    period = drawn(env, 5)
    box = np.random.default_rng(0).integers(0, 3, NUMBER)
    at = np.arange(NUMBER), box
    phi, score = np.asarray(period.features)[at], np.asarray(period.score)[at]
    reward = (np.asarray(period.coin) < score).astype(float)
    policies = {}
    for number in (300, NUMBER):
        theta = fit_glm(phi[:number], reward[:number], links.LOGISTIC)
        policies[str(number)] = ca.COSMOS(fit=StreamingNewton(), evaluator=FrozenGLM(theta))
    policies["true"] = ca.COSMOS(fit=StreamingNewton(), evaluator=FrozenGLM(np.asarray(env.evaluator.theta)))
    regret = play(env, policies, horizon=2000, seeds=256, record=("regret",), record_every=1000)["regret"]
    end = regret.isel(time=-1).mean("seed")
    assert float(end.sel(policy="300")) > 1.3 * float(end.sel(policy="true"))
    assert float(end.sel(policy=str(NUMBER))) < 1.15 * float(end.sel(policy="true"))


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


def test_evaluator_with_the_identity_is_ridge_regression():
    rng = np.random.default_rng(4)
    features, rewards = rng.normal(size=(40, 4)), rng.random(40)
    for n, theta in zip((1, 7, 40), learned(OnlineGLM(), features, rewards, links.IDENTITY, ridge=0.7)[[0, 6, 39]]):
        design = 0.7 * np.eye(4) + features[:n].T @ features[:n]
        np.testing.assert_allclose(theta, np.linalg.solve(design, features[:n].T @ rewards[:n]), atol=1e-4)


@pytest.mark.parametrize("link", [slow(links.LOGISTIC), links.PROBIT, links.IDENTITY])
def test_fitted_evaluator_solves_its_equation(link):
    rng = np.random.default_rng(6)
    features = rng.uniform(-1, 1, (200, 4))
    rewards = np.asarray(link.value(f32(0.4 + 0.3 * features[:, 0])), float)
    theta = fit_glm(features, rewards, link, ridge=0.5)
    residual = rewards - np.asarray(link.value(f32(features @ theta)), float)
    np.testing.assert_allclose(features.T @ residual, 0.5 * theta, atol=1e-4)


@pytest.mark.slow
def test_online_evaluator_is_nearly_as_good_as_the_exact_one():
    """The ratio of their errors after 1,000 periods is 1.02."""
    fits = {"exact": ExactGLM(1000), "online": OnlineGLM()}
    policies = {n: ca.QueryAll(evaluator=e) for n, e in fits.items()}
    options = {"horizon": 1000, "seeds": 128, "probes": {"error": evaluator_error}}
    error = study(ca.uniform_cascade(evaluator=5), policies, **options)["error"].isel(time=-1).mean("seed")
    ratio = float(error.sel(policy="online") / error.sel(policy="exact"))
    assert 0.97 < ratio < 1.07 and ratio != 1.0
