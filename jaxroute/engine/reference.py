"""The engine as a textbook has it: `jax.vmap` over the runs of one scan over rounds. The referee of the fast one, not its rival."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxroute.core import draws
from jaxroute.core.protocols import build_policy, first_state, is_environment, stage_length_of
from jaxroute.engine.batching.lanes import exactly
from jaxroute.engine.precision import widened
from jaxroute.engine.rounds import Record, draws_key, recorded_flows, recorded_gauges, spec_for


def rollout(env: Any, policy: Any, streams: Mapping[str, jax.Array], horizon: int, record: Record) -> dict[str, Any]:
    """Plays what `engine.rollout.rollout` plays, with the same arguments and results, without its ways to be fast."""

    known = {name: one for name, one in (("env", env), ("policy", policy)) if not callable(one)}

    def run(traced: dict[str, Any], words: dict[str, jax.Array]) -> dict[str, Any]:
        players = {"env": env, "policy": policy} | traced
        return play(**players, keys={name: draws_key(pair) for name, pair in words.items()}, horizon=horizon, record=record)

    return jax.vmap(exactly(widened(run)), in_axes=(None, -1), out_axes=-1)(known, dict(streams))


def play(env: Any, policy: Any, keys: Mapping[str, jax.Array], horizon: int, record: Record) -> dict[str, Any]:
    """One run of one environment and one policy: what was recorded in each interval, `[records, ...]` by name.

    Args:
      env: environment, or a sampler `key -> Environment`.
      policy: policy, or a function `env -> policy`.
      keys: typed key of each stream of the run.
      horizon: counted rounds (static).
      record: what to write, and how often (static).
    """
    env = env if is_environment(env) else env(keys["instance"])
    policy = build_policy(policy, env)
    stage_length, free_rounds = stage_length_of(env, policy), env.spec.free_rounds

    def one_round(states: Any, t: Any) -> tuple[Any, dict[str, jax.Array]]:
        env_state, policy_state = states
        key = {name: draws.fold_in(stream, t) for name, stream in keys.items()}
        obs = env.observe(key["env"], env_state, t)
        if stage_length:
            plan = lambda state: policy.plan(key["plan"], state, obs, t)  # noqa: E731
            policy_state = lax.cond(t % stage_length == 0, plan, lambda state: state, policy_state)
        action, info = policy.act(key["act"], policy_state, obs, t)
        env_state, feedback, flows = env.step(key["env"], env_state, action, t)
        policy_state = policy.update(key["update"], policy_state, obs, action, feedback, t)
        return (env_state, policy_state), recorded_flows(record, flows, info, feedback)

    def interval(states: Any, first: Any, count: int) -> Any:
        """Plays `count` rounds from round `first` on: the states after them, and the sums of what was recorded."""

        def add(carry: Any, t: Any) -> tuple[Any, None]:
            states, sums = carry
            states, values = one_round(states, t)
            return (states, jax.tree.map(jnp.add, sums, values)), None

        shapes = jax.eval_shape(one_round, states, first)[1]
        zeros = jax.tree.map(lambda value: jnp.zeros(value.shape, value.dtype), shapes)
        return lax.scan(add, (states, zeros), first + jnp.arange(count, dtype=jnp.int32))[0]

    def read(states: Any, t: Any) -> dict[str, Any]:
        """Gauges and probes after the rounds before `t`."""
        env_state, policy_state = states
        return recorded_gauges(record, env, policy, env_state, policy_state, t)

    def recorded(states: Any, first: Any, count: int) -> tuple[Any, dict[str, Any]]:
        states, sums = interval(states, first, count)
        return states, {**sums, **read(states, first + count)}

    states = env.init(keys["env_init"]), first_state(env, policy, keys["policy_init"], spec_for(env, horizon))
    states, _ = interval(states, jnp.int32(0), free_rounds)
    number, short = divmod(horizon, record.every)
    firsts = free_rounds + record.every * jnp.arange(number, dtype=jnp.int32)
    states, values = lax.scan(lambda states, first: recorded(states, first, record.every), states, firsts)
    if short:
        _, last = recorded(states, jnp.int32(free_rounds + horizon - short), short)
        values = jax.tree.map(lambda many, one: jnp.concatenate([many, one[None]]), values, last)
    return values
