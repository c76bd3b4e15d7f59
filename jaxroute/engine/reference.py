"""Plain implementation of the engine by `jax.vmap` of one scan over rounds. Tests compare the fast back ends with it."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer

from jaxroute.core import draws
from jaxroute.core.batching.lanes import exactly
from jaxroute.core.protocols import build_policy, first_state, is_environment, stage_length_of
from jaxroute.engine.precision import widened
from jaxroute.engine.rounds import Record, chunk_length, draws_key, recorded_flows, recorded_gauges, spec_for


def rollout(env: Any, policy: Any, streams: Mapping[str, jax.Array], horizon: int, record: Record) -> dict[str, Any]:
    """Simulates `R` runs with random keys `streams`, words `[2, R]` by name. Returns recorded quantities at `N` times, `[N, ..., R]` by name."""
    dynamic = {name: one for name, one in (("env", env), ("policy", policy)) if not callable(one)}

    def run(traced: dict[str, Any], words: dict[str, jax.Array]) -> dict[str, Any]:
        components = {"env": env, "policy": policy} | traced
        return simulate_run(**components, keys=keys_of(words), horizon=horizon, record=record)

    return jax.vmap(exactly(widened(run)), in_axes=(None, -1), out_axes=-1)(dynamic, dict(streams))


def keys_of(words: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Returns a typed random key for each stream of one run; `words` holds the two 32-bit words of each key."""
    return {name: draws_key(pair) for name, pair in words.items()}


def first_states(env: Any, policy: Any, keys: Mapping[str, jax.Array], horizon: int) -> tuple[Any, Any, tuple[Any, Any]]:
    """Builds the environment and the policy of one run, and the pair of their states before the first round.

    Args:
      env: environment, or a sampler `key -> Environment`.
      policy: policy, or a function `env -> policy`.
      keys: typed key of each stream of the run (see `keys_of`).
      horizon: number of counted rounds (static).
    """
    env = env if is_environment(env) else env(keys["instance"])
    policy = build_policy(policy, env)
    return env, policy, (env.init(keys["env_init"]), first_state(env, policy, keys["policy_init"], spec_for(env, horizon)))


def one_round(
    env: Any, policy: Any, keys: Mapping[str, jax.Array], states: tuple[Any, Any], t: Any, begins: Any
) -> tuple[tuple[Any, Any], dict[str, Any]]:
    """Simulates round `t` of one run. Returns the states after it, and a dict with `obs`, `action`, `info`, `feedback` and `flows`.

    Args:
      env, policy, keys: components of the run, and the typed key of each random stream.
      states: states of environment and policy before the round.
      t: index of the round, from 0.
      begins: whether a stage begins in this round, so that the policy plans.
    """
    env_state, policy_state = states
    key = {name: draws.fold_in(stream, t) for name, stream in keys.items()}
    obs = env.observe(key["env"], env_state, t)
    if isinstance(begins, Tracer):
        plan = lambda state: policy.plan(key["plan"], state, obs, t)  # noqa: E731
        policy_state = lax.cond(begins, plan, lambda state: state, policy_state)
    elif begins:
        policy_state = policy.plan(key["plan"], policy_state, obs, t)
    action, info = policy.act(key["act"], policy_state, obs, t)
    env_state, feedback, flows = env.step(key["env"], env_state, action, t)
    policy_state = policy.update(key["update"], policy_state, obs, action, feedback, t)
    values = {"obs": obs, "action": action, "info": info, "feedback": feedback, "flows": flows}
    return (env_state, policy_state), values


def simulate_run(env: Any, policy: Any, keys: Mapping[str, jax.Array], horizon: int, record: Record) -> dict[str, Any]:
    """Simulates one run; `keys` has a typed key per stream. Returns sums over record intervals and gauges at their ends, `[records, ...]` by name."""
    env, policy, states = first_states(env, policy, keys, horizon)
    stage_length, free_rounds = stage_length_of(env, policy), env.spec.free_rounds
    chunk = chunk_length(record.every, free_rounds, stage_length)

    def simulate_round(states: Any, t: Any) -> tuple[Any, dict[str, jax.Array]]:
        states, values = one_round(env, policy, keys, states, t, stage_length and t % stage_length == 0)
        return states, recorded_flows(record, values["flows"], values["info"], values["feedback"])

    def interval(states: Any, first: Any, count: int) -> Any:
        """Simulates `count` rounds from round `first` on. Returns the states and the sums of recorded values, corrected for rounding errors."""

        def add(carry: Any, t: Any) -> tuple[Any, None]:
            states, sums, parts = carry
            states, values = simulate_round(states, t)
            parts = jax.tree.map(jnp.add, parts, values)
            number = t + 1 - first
            ends = (number % chunk == 0) | (number == count)
            new = jax.tree.map(lambda total, part: jnp.where(ends, total + part, total), sums, parts)
            left = jax.tree.map(lambda total, part, now: jnp.where(ends, part - (now - total), part), sums, parts, new)
            return (states, new, left), None

        shapes = jax.eval_shape(simulate_round, states, first)[1]
        zeros = jax.tree.map(lambda value: jnp.zeros(value.shape, value.dtype), shapes)
        return lax.scan(add, (states, zeros, zeros), first + jnp.arange(count, dtype=jnp.int32))[0][:2]

    def recorded(states: Any, first: Any, count: int) -> tuple[Any, dict[str, Any]]:
        states, sums = interval(states, first, count)
        return states, {**sums, **recorded_gauges(record, env, policy, states[0], states[1], first + count)}

    states, _ = interval(states, jnp.int32(0), free_rounds)
    number, short = divmod(horizon, record.every)
    firsts = free_rounds + record.every * jnp.arange(number, dtype=jnp.int32)
    states, values = lax.scan(lambda states, first: recorded(states, first, record.every), states, firsts)
    if short:
        _, last = recorded(states, jnp.int32(free_rounds + horizon - short), short)
        values = jax.tree.map(lambda many, one: jnp.concatenate([many, one[None]]), values, last)
    return values
