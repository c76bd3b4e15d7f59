"""Logs of served requests for tests of replays: recorded ones, and one for each run, drawn from a full table."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from helpers import x64

from jaxroute import draws
from jaxroute.data import ServedLog
from jaxroute.problems import contextual
from jaxroute.sources.served import ServedRequests

K, D, ROWS = 3, 3, 60


@functools.cache
def full_table():
    """Contexts `[ROWS, D]`, rewards `[ROWS, K]` that depend on them, and probabilities of a log that prefers good models `[ROWS, K]`."""
    rng = np.random.default_rng(7)
    x = np.column_stack([np.ones(ROWS), rng.normal(size=(ROWS, D - 1))])
    scores = 1.0 / (1.0 + np.exp(-x @ rng.normal(size=(D, K)) - rng.normal(size=(ROWS, K))))
    good = np.exp(6.0 * scores)
    return tuple(np.float32(a) for a in (x, scores, 0.1 + 0.7 * good / good.sum(axis=1, keepdims=True)))


def served_log(chosen, scores, costs, propensities, num_models=K):
    """A served log of these events, each the answer to a separate query."""
    names = tuple(f"model {k}" for k in range(num_models))
    return ServedLog(names, np.arange(len(chosen)), np.asarray(chosen), scores, costs, len(chosen), np.asarray(propensities))


def replay_env(contexts, rounds, floor=None, cost_weight=0.0, bootstrap=False, num_models=K, **events):
    """A replay with given contexts."""
    log = served_log(**events, num_models=num_models)
    requests = ServedRequests.of(log, floor=floor, by_model=False, cost_weight=cost_weight, bootstrap=bootstrap)
    return contextual.ServedEnv(requests, np.asarray(contexts, np.float32), rounds)


def recorded(number=400, seed=0):
    """A log with arbitrary numbers, as keyword arguments of `replay_env`; its rewards with `cost_weight` 1/2 are `rewards_of(log)`."""
    rng = np.random.default_rng(seed)
    numbers = {"scores": rng.random(number), "costs": rng.random(number), "propensities": rng.uniform(0.25, 0.6, number)}
    log = {"contexts": rng.normal(size=(number, D)), "chosen": rng.integers(K, size=number), **numbers}
    return {name: x if name == "chosen" else np.float32(x).astype(float) for name, x in log.items()}


def rewards_of(log):
    return {**log, "rewards": log["scores"] - 0.5 * log["costs"]}


def random_numbers(seed, number, bootstrap=False):
    """Order of the events, and uniform numbers of their places, from the documented keys of a run: its child 1 is for the environment's `init`."""
    with x64(False):
        k_order, k_retain = draws.split(jax.random.fold_in(run_key(seed), 1))
        order = np.asarray(jax.random.permutation(k_order, number))
        places, uniforms = (np.asarray(jax.random.uniform(k, (number,)), float) for k in (k_order, k_retain))
        return np.floor(number * places).astype(int) if bootstrap else order, uniforms


def run_key(seed):
    return jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), seed)


def drawn_log(key, probability, floor, number):
    """Draws a log from the full table, whose requests choose the model by `probability` `[ROWS, K]`; without a floor no event is rejected."""
    x, scores, _ = full_table()
    k_row, k_model = draws.split(key)
    row = draws.randint(k_row, ROWS, (number,))
    passed = draws.uniform(k_model, (number,))[:, None] >= jnp.asarray(np.cumsum(probability, axis=1))[row]
    chosen = jnp.minimum(jnp.sum(passed, axis=1, dtype=jnp.int32), K - 1)
    retained = jnp.ones(number) if floor is None else floor / jnp.asarray(probability)[row, chosen]
    log = ServedRequests(chosen, jnp.asarray(scores)[row, chosen], jnp.zeros(number), retained, np.float32(0), num_models=K)
    return log, jnp.asarray(x)[row]
