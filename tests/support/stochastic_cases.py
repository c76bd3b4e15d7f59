"""Makes bandits, plays them, and recovers the random numbers of their runs, for tests of the plain bandit."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from helpers import in_double, x64

from jaxroute import Execution, simulate
from jaxroute.problems import stochastic

MEANS = (0.35, 0.6, 0.55, 0.2, 0.5)
SEEDS = (0, 5, 12)


class RandomNumbers(NamedTuple):
    """Holds the random numbers of a run, as float64.

    Attributes:
      uniform: `[T]` uniform draw of the rewards.
      normal: `[T]` normal draw of the rewards.
      normals: `[T, K]` normal draws of the policy.
      coin, place: `[T]` two uniform draws of the policy.
    """

    uniform: np.ndarray
    normal: np.ndarray
    normals: np.ndarray
    coin: np.ndarray
    place: np.ndarray


@functools.partial(jax.jit, static_argnums=(1, 2))
def _random_numbers(run, horizon, size):
    """Draws a run's random numbers from the documented keys: child 2 is for the environment, child 5 for the policy's acts."""

    def one(t):
        env, act = (jax.random.fold_in(jax.random.fold_in(run, child), t) for child in (2, 5))
        coin, place = jax.random.uniform(act, (2,), jnp.float32)
        normals = jax.random.normal(act, (size,), jnp.float32)
        return jax.random.uniform(env, (), jnp.float32), jax.random.normal(env, (), jnp.float32), normals, coin, place

    return jax.vmap(one)(jnp.arange(horizon))


@functools.cache
def random_numbers(seed, horizon=3000):
    run = jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), seed)
    with x64(False):
        return RandomNumbers(*(np.asarray(x, np.float64) for x in _random_numbers(run, horizon, len(MEANS))))


@functools.cache
def tie_order(seed, size=len(MEANS)):
    """Models `[K]` in the order of a run's ties: random words of the key of the policy's init, child 3, that end in the model's number."""
    run = jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), seed)
    words = np.asarray(jax.random.bits(jax.random.fold_in(run, 3), (size,), jnp.uint32))
    return np.argsort(words >> 1 >> size.bit_length(), kind="stable")


def run_all_rounds(env, policy, horizon, seeds=SEEDS, double=True, record=("pulls", "reward", "regret")):
    """Simulates with a record of every round. Returns the chosen models `[seed, T]` and the result."""
    if double:
        with x64():
            return run_all_rounds(in_double(env), in_double(policy), horizon, seeds, False, record)
    options = {"horizon": horizon, "seeds": seeds, "record_every": 1, "record": list(record), "progress": False}
    data = simulate(env, policy, execution=Execution(compile="quick" if horizon < 1000 else "full"), **options)
    assert data["valid"].all()
    data = data.isel(policy=0)
    pulls = np.diff(data["pulls"].values, axis=1, prepend=0)
    assert (pulls.sum(-1) == 1).all()
    return pulls.argmax(-1), data


def bandit(distribution, scale=0.4):
    return stochastic.bernoulli(MEANS) if distribution == "bernoulli" else stochastic.gaussian(MEANS, scale)
