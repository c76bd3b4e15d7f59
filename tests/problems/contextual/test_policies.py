"""Policies of contextual bandits: limits, samples, bounds, and errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxroute import draws
from jaxroute.estimators.gaussian import Ridge
from jaxroute.problems import contextual
from jaxroute.problems.contextual import DisjointParameters, SharedParameters

KEY = draws.key(0)


def state_after(policy, env, rounds):
    """State of the policy after rounds `(context, action, reward)`, without the engine."""
    state = policy.init(KEY, env.spec)
    for t, (x, action, reward) in enumerate(rounds):
        state = policy.update(KEY, state, jnp.float32(x), jnp.int32(action), jnp.float32(reward), jnp.int32(t))
    return state


def test_without_bonus_it_is_greedy():
    """With alpha = 0, scale = 0 or epsilon = 0 the policy uses the best model of the ridge estimate."""
    env = contextual.linear([[1.0, 0.2], [0.1, 0.9], [0.5, 0.5]])
    rounds = [([[1.0, 0.1]], 0, 0.4), ([[0.2, 0.9]], 1, 0.8), ([[0.5, 0.5]], 2, 0.3)]
    for x in np.random.default_rng(0).normal(size=(20, 1, 2)):
        chosen = set()
        policies = contextual.LinUCB(alpha=0.0), contextual.LinearThompson(scale=0.0), contextual.EpsilonGreedy(epsilon=0.0)
        for policy in policies:
            state = state_after(policy, env, rounds)
            chosen.add(int(policy.act(KEY, state, jnp.float32(x), jnp.int32(3))[0]))
        assert chosen == {int(np.argmax(x @ state.theta))}


def test_unit_vectors_as_descriptors_are_disjoint_parameters():
    env = contextual.linear([[1.0, 0.2], [0.1, 0.9], [0.5, 0.5]])
    rng, bounds = np.random.default_rng(1), []
    rounds = [(rng.normal(size=(1, 2)), rng.integers(3), rng.normal()) for _ in range(9)]
    for parameters in (DisjointParameters(), SharedParameters(descriptors=np.eye(3, dtype=np.float32))):
        policy = contextual.LinUCB(alpha=0.7, parameters=parameters)
        obs = jnp.float32([[0.3, -0.4]])
        bounds.append(policy.act(KEY, state_after(policy, env, rounds), obs, jnp.int32(9))[1]["bound"])
    np.testing.assert_allclose(*bounds, rtol=1e-4)


def test_samples_have_the_covariance_of_the_posterior():
    """Errors of all models are those of one parameter: `x_j' V^-1 x_k`, or 0 between disjoint ones."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(6, 3))
    x = jnp.float32(rng.normal(size=(3, 2)))
    number = 40_000
    for parameters, size in ((SharedParameters(), 1), (DisjointParameters(), 2)):
        ridge = Ridge.start(0.5, 3, size)
        for row in rows:
            for place in range(size):
                ridge = ridge.add(jnp.float32(row)[:, None], jnp.float32(0.0), jnp.arange(size) == place)
        keys = jax.vmap(lambda i: draws.fold_in(KEY, i))(jnp.arange(number))
        errors = np.asarray(jax.vmap(lambda k, p=parameters, r=ridge: p.errors(k, x, r))(keys), float)
        expected = x.T @ np.linalg.inv(0.5 * np.eye(3) + rows.T @ rows) @ x
        expected = expected if size == 1 else np.diag(np.diag(expected))
        tolerance = 5 * np.sqrt((expected**2 + np.outer(np.diag(expected), np.diag(expected))) / number)
        assert (np.abs(errors.T @ errors / number - expected) < tolerance).all()


REFUSED = {
    "alpha": (lambda: contextual.LinUCB(alpha=-1.0), "alpha must be at least 0"),
    "ridge": (lambda: contextual.LinUCB(ridge=0.0), "ridge must be above 0"),
    "parameters": (lambda: contextual.LinUCB(parameters=DisjointParameters), "parameters must be an object such as"),
    "delta": (lambda: contextual.OFUL(delta=0.0), r"delta must be in \(0, 1\]"),
    "noise": (lambda: contextual.OFUL(noise=-0.1), "noise must be at least 0"),
    "scale": (lambda: contextual.LinearThompson(scale=-0.1), "scale must be at least 0"),
    "epsilon": (lambda: contextual.EpsilonGreedy(epsilon=1.5), r"epsilon must be in \[0, 1\]"),
    "horizon": (lambda: contextual.SquareCB(horizon=0.5), "horizon must be at least 1"),
    "high": (lambda: contextual.LogisticThompson(low=1.0, high=0.0), "high must be above low"),
    "descriptors": (
        lambda: contextual.LinUCB(parameters=SharedParameters(np.ones(3))),
        r"descriptors must have shape \[K, m\]",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_values_out_of_range_are_refused(name):
    make, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        make().check()


def test_parameters_that_do_not_suit_are_refused():
    env = contextual.linear([[1.0, 0.2], [0.1, 0.9]])
    with pytest.raises(ValueError, match="descriptors of the models must be given"):
        contextual.LinUCB(parameters=SharedParameters()).check_spec(env.spec)
    with pytest.raises(ValueError, match="descriptors must have 2 rows"):
        contextual.LinUCB(parameters=SharedParameters(np.ones((3, 1)))).check_spec(env.spec)


def test_the_bound_of_oful_by_hand():
    """T = 100, d = 2, R = S = lambda = L = 1, delta = .1: 4 sqrt(200 log 51) (1 + sqrt(2 log 10 + 2 log 51)) = 503.4"""
    by_hand = 4 * np.sqrt(200 * np.log(51)) * (1 + np.sqrt(2 * np.log(10) + 2 * np.log(51)))
    assert contextual.oful_bound(100, 2, noise=1.0, delta=0.1) == pytest.approx(by_hand)
    two = contextual.oful_bound(200, 2, noise=1.0, delta=0.2, number=2)
    assert two == pytest.approx(2 * by_hand), "two parameters with half of the rounds and of the probability each"


def test_the_bound_of_squarecb_by_hand():
    """K T = 400, square regret 9, delta = 2 / e: 4 sqrt(3600) + 8 sqrt(400) = 400."""
    assert contextual.squarecb_bound(100, 4, 9.0, delta=2 / np.e) == pytest.approx(400.0)
    assert float(contextual.square_regret(100.0, 2, 5, 0.5)) == pytest.approx(5 * (0.5 + 2 * np.log(1 + 100 / 5)))
