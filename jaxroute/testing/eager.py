"""Simulates one run as a plain Python loop over the protocol."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.core import draws
from jaxroute.core.protocols import stage_length_of
from jaxroute.core.quick import quick_jit
from jaxroute.engine import reference
from jaxroute.engine.grid import canonical
from jaxroute.engine.rounds import run_streams


def run_eagerly(
    env: Any,
    policy: Any,
    *,
    horizon: int,
    rounds: int | None = None,
    seed: int = 0,
    root_seed: int = 0,
    change_draws_from: int | None = None,
    jit: bool = False,
) -> list[dict[str, Any]]:
    """Simulates one run in a plain Python loop over the protocol, which a debugger can step through.

    Args:
      env: an environment, or a sampler `key -> Environment`.
      policy: the policy, or a function `env -> policy`.
      horizon: counted rounds of the run.
      rounds: number of simulated rounds, None for all.
      seed: seed of the run.
      root_seed: seed of all randomness.
      change_draws_from: round from which the environment draws from another stream.
      jit: whether to compile the round; its numbers are then those of `simulate`, bit by bit.

    Returns:
      One dict per counted round: `obs`, `action`, `info`, `feedback`, `flows`, `env_state`, `policy_state`.
    """
    usual, others = (
        run_streams(jax.random.key_data(draws.key(k)), np.asarray([seed], np.uint32)) for k in (root_seed, root_seed + 1)
    )
    keys, other = (reference.keys_of({name: words[:, 0] for name, words in one.items()}) for one in (usual, others))
    env, policy, states = reference.first_states(on_device(env), on_device(policy), keys, horizon)
    stage, history = stage_length_of(env, policy), list[dict[str, Any]]()
    simulate_round = [functools.partial(reference.one_round, env, policy, begins=begins) for begins in (False, True)]
    if jit:
        simulate_round = [quick_jit(one, often=True) for one in simulate_round]
    for number in range(env.spec.free_rounds + (horizon if rounds is None else rounds)):
        changes = change_draws_from is not None and number >= change_draws_from
        changed = {"env": other["env"]} if changes else {}
        begins = bool(stage) and number % (stage or 1) == 0
        states, values = simulate_round[begins](keys | changed, states, jnp.int32(number))
        history.append({**values, "env_state": states[0], "policy_state": states[1]})
    return history[env.spec.free_rounds :]


def on_device(value: Any) -> Any:
    """Returns an environment or policy with its arrays on the device; a function unchanged."""
    return value if jax.tree_util.all_leaves([value]) else jax.tree.map(jnp.asarray, canonical(value))
