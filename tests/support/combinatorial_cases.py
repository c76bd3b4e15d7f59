"""Plays the combinatorial problem for several test files."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute import simulate
from jaxroute.core import draws

TASKS = ("awc", "suc", "aic")
RECORD = [
    "reward", "realised_reward", "cost", "selected_cost", "violation", "selected_violation", "mean_violation_eq1", "violation_eq1",
    "ratio", "ratio_eq1", "regret", "alpha_regret", "lp_regret", "over_budget", "num_selected", "num_asked", "pulls",
]  # fmt: skip


def play(env, policy, horizon=2000, seeds=32, **options):
    """Simulates one policy in one environment and records the horizon only."""
    options = {"record_every": horizon, "record": RECORD, "progress": False} | options
    return simulate(env, {"policy": policy}, horizon=horizon, seeds=seeds, **options).isel(policy=0)


def end(data, name):
    """Returns the values recorded at the horizon."""
    return data[name].isel(time=-1).values


def outcomes_of(env, count=20_000, seed=0):
    """Draws many rounds. Returns outcomes, successes and costs, `[count, K]` each."""
    keys = jax.vmap(lambda i: jax.random.fold_in(draws.key(seed), i))(jnp.arange(count))
    return [np.asarray(x) for x in jax.jit(jax.vmap(lambda k: env.outcomes.draw(k, (), jnp.int32(0))))(keys)]


# Groups: a partition matroid.
SUBJECTS = {"groups": [0, 0, 0, 1, 1, 1, 2, 2, 2], "size": [2, 1, 1]}
