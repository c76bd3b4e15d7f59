"""Makes markets, runs and the random numbers of runs for tests of the staged problem."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from helpers import in_double, per_round, x64

from jaxroute import simulate
from jaxroute.problems import staged

SEEDS = 64
KNOWN_COSTS = (0.1, 50.0)


EVERYTHING = [
    *("regret", "conditional_regret", "realised_regret", "reward", "mean_reward", "expected_reward", "cost", "mean_cost", "expected_cost"),
    *("cost_ratio", "served", "served_reward", "capacity_excess", "deployments", "fee", "pulls", "overspend", "worst_overspend"),
    *("deployed", "infeasible_share"),
]  # fmt: skip


def by_index(policy):
    """Makes a policy, or function of an environment, resolve ties to the lower index, as the NumPy loops do."""
    if not hasattr(policy, "act"):
        return lambda env: by_index(policy(env))
    if hasattr(policy, "tie"):
        return policy.replace(tie=staged.ties.IndexTie())
    return policy.replace(policy=by_index(policy.policy)) if hasattr(policy, "policy") else policy


@functools.cache
def arena(slots, stage, policy):
    """Simulates 64 runs of one policy on the paper's synthetic market (10,000 rounds), recorded at the end of each stage."""
    policies = {"StageRoute": staged.StageRoute(), "Greedy": staged.Greedy(), "Oracle": staged.Oracle.of}
    env = staged.arena_market(max_deployed=slots, stage_length=stage)
    data = simulate(
        env, by_index(policies[policy]), horizon=10_000, seeds=SEEDS, record_every=stage, record=EVERYTHING, progress=False
    )
    assert data["valid"].all()
    data = data.isel(policy=0)
    deployed = data["deployed"].values  # Every slot is used.
    pool = 6 + np.minimum(np.arange(deployed.shape[1]) * stage // 1000, 9)
    np.testing.assert_array_equal(deployed.sum(-1), np.broadcast_to(np.minimum(slots, pool), deployed.shape[:2]))
    assert slots < 6 or (deployed[:, 0, :6] == 1).all()
    return data


def final_values(env, policy, horizon, seeds, name="regret"):
    """Returns the values of a metric at the horizon, `[..., seed]`."""
    data = simulate(env, policy, horizon=horizon, seeds=seeds, record_every=horizon, record=[name], progress=False)
    assert data["valid"].all()
    return data[name].isel(policy=0, time=-1).values


def end(data, name):
    return data[name].isel(time=-1).values


def near(samples, mean, error, num_sigma=5.0):
    """Checks that the samples' mean agrees with a mean and standard error that NumPy loops measured."""
    own = np.std(samples, ddof=1) / np.sqrt(len(samples))
    gap = abs(np.mean(samples) - mean)
    assert own > 0
    assert gap < num_sigma * np.hypot(own, error), f"{np.mean(samples):.2f} ({own:.2f}), not {mean} ({error})"


def two_models():
    outcomes = staged.ParametricOutcomes(np.array([0.5, 0.5]), np.array([1.0, 1.0]), np.float32(0), np.float32(0))
    return staged.market(
        outcomes, capacity=0.7, budget=2.0, max_deployed=2, stage_length=10, horizon=20, known_costs=KNOWN_COSTS
    )


RECORD = [
    *("pulls", "deployed", "conditional_regret", "regret", "realised_regret", "cost", "served", "fee"),
    *("infeasible_share", "multiplier"),
]


@functools.partial(jax.jit, static_argnums=2)
def _random_numbers(env, act, horizon):
    def one(t):
        normal = jax.random.normal(jax.random.fold_in(env, t), (2,), jnp.float32)
        return normal[0], normal[1], jax.random.uniform(jax.random.fold_in(act, t), (), jnp.float32)

    return jax.vmap(one)(jnp.arange(horizon))


@functools.cache
def random_numbers(seed, horizon):
    """Normal numbers of rewards and costs, and uniform numbers of the routing, each `[T]`, from the documented keys of a run."""
    # Run key = fold_in(root, seed); its children 2 and 5 are the environment's rounds and the policy's acts.
    run = jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), seed)
    env, act = (jax.random.fold_in(run, child) for child in (2, 5))
    return tuple(np.asarray(x, np.float64) for x in _random_numbers(env, act, horizon))


def of_seed(data, name, seed):
    """Returns the values of a metric in each round of a run."""
    return per_round(data[name].isel(policy=0).sel(seed=seed))


def run_all_rounds(market, policy, horizon, seeds, double):
    """Simulates with a record of every round."""
    options = {"horizon": horizon, "seeds": seeds, "record_every": 1, "record": RECORD, "progress": False}
    if not double:
        return simulate(market, policy, **options)
    with x64():
        market = in_double(market)
        policy = in_double(policy(market) if not hasattr(policy, "act") else policy)
        return simulate(market, policy, **options)
