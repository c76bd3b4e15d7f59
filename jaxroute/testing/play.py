"""One run as a plain Python loop over the protocol."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.core import draws
from jaxroute.core.protocols import build_policy, first_state, is_environment, stage_length_of
from jaxroute.engine.grid import canonical
from jaxroute.engine.rounds import draws_key, run_streams, spec_for


def play(
    env: Any,
    policy: Any,
    *,
    horizon: int,
    rounds: int | None = None,
    seed: int = 0,
    key: int = 0,
    change_luck_from: int | None = None,
    jit: bool = False,
) -> list[dict[str, Any]]:
    """One run as a plain Python loop over the protocol: slow, and easy to step through in a debugger.

    Args:
      env: an environment, or a sampler `key -> Environment`.
      policy: the policy, or a function `env -> policy`.
      horizon: counted rounds of the run.
      rounds: how many of them are played, None for all.
      seed: number of the run.
      key: root of all randomness.
      change_luck_from: draw the environment's luck from another stream from this round on.
      jit: compile each verb by itself.

    Returns:
      One dict per counted round: `obs`, `action`, `info`, `feedback`, `flows`, `env_state`, `policy_state`.
    """
    usual, changed = (run_streams(jax.random.key_data(draws.key(k)), np.asarray([seed], np.uint32)) for k in (key, key + 1))
    streams = {k: np.asarray(v)[:, 0] for k, v in usual.items()}
    other = np.asarray(changed["env"])[:, 0]
    if not is_environment(env):
        env = env(draws_key(streams["instance"]))
    env, policy = on_device(env), build_policy(on_device(policy), on_device(env))
    verb = jax.jit if jit else lambda function: function
    observe, step, act, update = verb(env.observe), verb(env.step), verb(policy.act), verb(policy.update)
    stage = stage_length_of(env, policy)
    plan = verb(policy.plan) if stage else None
    env_state = env.init(draws_key(streams["env_init"]))
    policy_state = first_state(env, policy, draws_key(streams["policy_init"]), spec_for(env, horizon))
    played = []
    for number in range(env.spec.free_rounds + (horizon if rounds is None else rounds)):
        t = jnp.int32(number)
        luck = other if change_luck_from is not None and number >= change_luck_from else streams["env"]
        k_env = draws.fold_in(draws_key(luck), t)
        k_plan, k_act, k_update = (draws.fold_in(draws_key(streams[name]), t) for name in ("plan", "act", "update"))
        obs = observe(k_env, env_state, t)
        if plan and stage and number % stage == 0:
            policy_state = plan(k_plan, policy_state, obs, t)
        action, info = act(k_act, policy_state, obs, t)
        env_state, feedback, flows = step(k_env, env_state, action, t)
        policy_state = update(k_update, policy_state, obs, action, feedback, t)
        played.append(
            {
                "obs": obs,
                "action": action,
                "info": info,
                "feedback": feedback,
                "flows": flows,
                "env_state": env_state,
                "policy_state": policy_state,
            }
        )
    return played[env.spec.free_rounds :]


def on_device(value: Any) -> Any:
    """An environment or policy with its leaves on the device; a function as it is."""
    return value if jax.tree_util.all_leaves([value]) else jax.tree.map(jnp.asarray, canonical(value))
