"""What several tests of the plain bandit share: the draws of a run, and runs on them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from helpers import in_double, x64

from jaxroute import simulate
from jaxroute.problems import stochastic

MEANS = (0.35, 0.6, 0.55, 0.2, 0.5)


SEEDS, HORIZON = (0, 5, 12), 3000


@functools.partial(jax.jit, static_argnums=(1, 2))
def _luck(run, horizon, size):
    """Draws of one run from the documented addresses: child 2 of its key has the environment's rounds, child 5 the acts."""

    def one(t):
        env, act = (jax.random.fold_in(jax.random.fold_in(run, child), t) for child in (2, 5))
        coin, arm = jax.random.uniform(act, (2,), jnp.float32)
        normals = jax.random.normal(act, (size,), jnp.float32)
        return jax.random.uniform(env, (), jnp.float32), jax.random.normal(env, (), jnp.float32), normals, coin, arm

    return jax.vmap(one)(jnp.arange(horizon))


@functools.cache
def luck(seed):
    """Uniform and normal of the reward, `[T, K]` normals of the policy, and its two uniforms."""
    run = jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), seed)
    with x64(False):
        return tuple(np.asarray(x, np.float64) for x in _luck(run, HORIZON, len(MEANS)))


@functools.cache
def tie_order(seed, size=len(MEANS)):
    """`[K]` models in the order of a run's ties: random words at the key of a policy's init, child 3, that end in the model's number."""
    run = jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), seed)
    words = np.asarray(jax.random.bits(jax.random.fold_in(run, 3), (size,), jnp.uint32))
    return np.argsort(words >> 1 >> size.bit_length(), kind="stable")


def play(env, policy, double, seeds=SEEDS, horizon=HORIZON):
    """Chosen models `[seed, T]`, rewards and regret curves of runs recorded in every round."""
    record = ["pulls", "reward", "regret"]
    kwargs = {"horizon": horizon, "seeds": seeds, "record_every": 1, "record": record, "progress": False}
    if double:
        with x64():
            data = simulate(in_double(env), in_double(policy), **kwargs)
    else:
        data = simulate(env, policy, **kwargs)
    assert data["valid"].all()
    data = data.isel(policy=0)
    pulls = np.diff(data["pulls"].values, axis=1, prepend=0)
    assert (pulls.sum(-1) == 1).all()
    rewards = np.diff(data["reward"].values * data["time"].values, axis=1, prepend=0)
    return pulls.argmax(-1), rewards, data["regret"].values


def bandit(distribution, scale=0.4):
    return stochastic.bernoulli(MEANS) if distribution == "bernoulli" else stochastic.gaussian(MEANS, scale)
