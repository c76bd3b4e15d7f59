"""Policies of contextual bandits against float64 loops on the same random numbers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import in_double, x64
from reference import contextual as plain

from jaxroute import simulate
from jaxroute.problems import contextual as co

SEEDS, HORIZON, K, D = (0, 5, 12), 400, 4, 3
THETA = np.float32([[0.9, -0.3, 0.2], [-0.5, 0.7, 0.4], [0.1, 0.2, -0.9], [0.4, 0.5, 0.3]])
STEEP = 4.0 * THETA
SHARED = co.SharedParameters()


def tie_order(key):
    """Numbers `[K]` whose order is that of ties: random bits, with the model's number in the last three."""
    return (jax.random.bits(key, (K,), jnp.uint32) >> 4 << 3) + jnp.arange(K, dtype=jnp.uint32)


@functools.cache
def random_numbers(seed, rows):
    """Contexts, random numbers of the rewards and draws of the policy, from the documented keys of a run."""

    def one(run, t):
        env, act = (jax.random.fold_in(jax.random.fold_in(run, child), t) for child in (2, 5))
        context, reward = (jax.random.fold_in(env, child) for child in (0, 1))
        unit = jax.random.uniform(context, (rows, D), jnp.float32)
        return {
            "contexts": np.float32(1 / np.sqrt(D)) * (2 * unit - 1),
            "normal": jax.random.normal(reward, (), jnp.float32),
            "uniform": jax.random.uniform(reward, (), jnp.float32),
            "normals": jax.random.normal(act, (K,), jnp.float32),
            "weights": jax.random.normal(act, (D,), jnp.float32),
            "coins": jax.random.uniform(act, (2,), jnp.float32),
            "coin": jax.random.uniform(act, (), jnp.float32),
            "order": tie_order(act),
            "order after a coin": tie_order(jax.random.fold_in(act, 0)),
        }

    with x64(False):
        run = jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), seed)
        drawn = jax.jit(jax.vmap(one, (None, 0)))(run, jnp.arange(HORIZON))
        return {name: np.asarray(x, np.float64) for name, x in drawn.items()}


# Policy, and its reference for the random numbers of a run; a name with "shared" or "logistic" selects that environment.
CASES = {
    "LinUCB": (co.LinUCB(alpha=0.4), lambda z: plain.linucb(K, D, 0.4, z["order"])),
    "LinUCB, shared": (
        co.LinUCB(alpha=0.4, ridge=2.0, parameters=SHARED),
        lambda z: plain.linucb(K, D, 0.4, z["order"], ridge=2.0, shared=True),
    ),
    "OFUL": (co.OFUL(noise=0.1), lambda z: plain.oful(K, D, 0.1, 1.0, 0.01, z["order"], shared=False)),
    "OFUL, shared": (
        co.OFUL(noise=0.1, norm=0.7, delta=0.1, ridge=0.5, parameters=SHARED),
        lambda z: plain.oful(K, D, 0.1, 0.7, 0.1, z["order"], ridge=0.5),
    ),
    "Thompson": (co.LinearThompson(scale=0.2), lambda z: plain.disjoint_thompson(K, D, 0.2, z["normals"])),
    "Thompson, shared": (
        co.LinearThompson(scale=0.2, parameters=SHARED),
        lambda z: plain.shared_thompson(K, D, 0.2, z["weights"]),
    ),
    "epsilon": (
        co.EpsilonGreedy(epsilon=0.1),
        lambda z: plain.epsilon_greedy(K, D, 0.1, *z["coins"].T, z["order after a coin"]),
    ),
    "SquareCB": (co.SquareCB(), lambda z: plain.squarecb(K, D, HORIZON, 0.01, z["coin"])),
    "SquareCB, shared": (
        co.SquareCB(delta=0.1, ridge=0.5, parameters=SHARED),
        lambda z: plain.squarecb(K, D, HORIZON, 0.1, z["coin"], ridge=0.5, shared=True),
    ),
    "logistic": (
        co.LogisticThompson(scale=0.5, ridge=0.3),
        lambda z: plain.logistic_thompson(K, D, 0.5, z["normals"], ridge=0.3),
    ),
    "logistic, shared": (
        co.LogisticThompson(parameters=SHARED),
        lambda z: plain.logistic_thompson(K, D, 1.0, z["weights"], shared=True),
    ),
}


def environment(name):
    """The environment of a case, and its parameters, link and random numbers of the rewards."""
    shared = {"num_models": K} if "shared" in name else {}
    if "logistic" in name:
        theta = STEEP[0] if shared else STEEP
        return co.logistic(theta, **shared), np.atleast_2d(theta), "logistic", "uniform"
    theta = THETA[0] if shared else THETA
    return co.linear(theta, 0.1, **shared), np.atleast_2d(theta), "identity", "normal"


@pytest.mark.parametrize("name", CASES)
def test_equals_the_reference_round_by_round(name):
    policy, reference = CASES[name]
    env, theta, link, kind = environment(name)
    options = {"horizon": HORIZON, "record_every": 1, "record": ["pulls", "reward", "regret"], "progress": False}
    with x64():
        data = simulate(in_double(env), in_double(policy), seeds=SEEDS, **options).isel(policy=0)
    pulls = np.diff(data["pulls"].values, axis=1, prepend=0)
    rewards = np.diff(data["reward"].values * data["time"].values, axis=1, prepend=0)
    for i, seed in enumerate(SEEDS):
        drawn = random_numbers(seed, K if "shared" in name else 1)
        noise = float(np.float32(0.1))
        expected = plain.simulate(drawn["contexts"], theta.astype(float), drawn[kind], reference(drawn), link, noise)
        different = np.flatnonzero(pulls[i].argmax(-1) != expected[0])
        assert not different.size, f"seed {seed}: {different.size} rounds differ, the first is {different[0]}"
        np.testing.assert_allclose(rewards[i], expected[1], atol=2e-5)
        np.testing.assert_allclose(data["regret"].values[i], expected[2], atol=2e-3)
