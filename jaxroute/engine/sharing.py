"""Axes whose settings share most of a run's state, by the flow of data: shared arrays are computed once."""

from collections.abc import Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.core.batching.dependence import carry_dependence, which_depend
from jaxroute.core.protocols import (
    AnyEnvironment,
    AnyPolicy,
    PolicyOf,
    first_state,
    has_plan,
    is_environment,
    is_policy,
    stage_length_of,
)
from jaxroute.engine.grid import Grid
from jaxroute.engine.rounds import States, draws_key, spec_for, state_bytes, strong

# Number of settings from which the analysis is worth its time.
_FEW_SETTINGS = 5


def shared_axes(pairs: Sequence[tuple[Grid, Grid]], static: Collection[str] = ()) -> tuple[str, ...]:
    """Returns the axes that leave most bytes of a run's state unchanged, over all policies: a predictor that all settings train alike.

    Such settings belong into one compiled call, which computes the common part once.

    Args:
      pairs: settings of the environment and of a policy, for each program.
      static: axes along which programs differ, which share nothing.
    """
    total: dict[str, int] = {}
    unchanged: dict[str, int] = {}
    for env, policy in pairs:
        if not is_environment(env.example) or len(env.objects) * len(policy.objects) < _FEW_SETTINGS:
            continue  # A sampler has a separate environment for each run.
        for grid in (env, policy):
            for place, axis in enumerate(grid.axes):
                if axis in static:
                    continue
                swept = [[g is grid and place in varies for varies in g.leaf_axes] for g in (env, policy)]
                for size, changed in leaf_dependence(env.example, policy.example, [*swept[0], *swept[1]]):
                    total[axis] = total.get(axis, 0) + size
                    unchanged[axis] = unchanged.get(axis, 0) + size * (not changed)
    return tuple(axis for axis in total if 2 * unchanged[axis] > total[axis])


def leaf_dependence(env: AnyEnvironment, policy: AnyPolicy | PolicyOf, swept: Sequence[bool]) -> list[tuple[int, bool]]:
    """Returns for each leaf of the state pytrees its bytes, 0 if no round writes it, and whether it depends on a swept leaf.

    Args:
      env: environment.
      policy: policy, or a function `env -> policy`.
      swept: whether each leaf of the pytree `(env, policy)` is swept.

    Raises:
      ValueError: `swept` has another number of entries.
    """
    build: Any = policy
    leaves, structure = jax.tree.flatten((env, policy if is_policy(policy) else ()))
    shapes = [jax.ShapeDtypeStruct(np.shape(x), jax.dtypes.canonicalize_dtype(np.asarray(x).dtype)) for x in leaves]
    word, time = jax.ShapeDtypeStruct((2,), jnp.uint32), jax.ShapeDtypeStruct((), jnp.int32)
    if len(swept) != len(shapes):
        raise ValueError(f"swept must have one entry per leaf ({len(shapes)}), got {len(swept)}")

    def components(leaves: list[Any]) -> tuple[Any, Any]:
        env, given = jax.tree.unflatten(structure, leaves)
        return env, given if is_policy(build) else build(env)

    def start(leaves: list[Any], words: jax.Array) -> States:
        (env, policy), key = components(leaves), draws_key(words)
        return jax.tree.map(strong, (env.init(key), first_state(env, policy, key, spec_for(env, 1))))

    def one_round(leaves: list[Any], states: States, words: jax.Array, t: jax.Array) -> States:
        (env, policy), key = components(leaves), draws_key(words)
        env_state, policy_state = states
        obs = env.observe(key, env_state, t)
        if has_plan(policy) and stage_length_of(env, policy):
            policy_state = policy.plan(key, policy_state, obs, t)
        action, _ = policy.act(key, policy_state, obs, t)
        env_state, feedback, _ = env.step(key, env_state, action, t)
        return jax.tree.map(strong, (env_state, policy.update(key, policy_state, obs, action, feedback, t)))

    states = jax.eval_shape(start, shapes, word)
    sizes = [state_bytes(leaf) for leaf in jax.tree.leaves(states)]
    begin, step = jax.make_jaxpr(start)(shapes, word), jax.make_jaxpr(one_round)(shapes, states, word, time)
    given = step.jaxpr.invars[len(shapes) : len(shapes) + len(sizes)]
    sizes = [0 if now is then else size for size, now, then in zip(sizes, step.jaxpr.outvars, given, strict=True)]
    first = which_depend(begin, [*swept, False])
    changed = carry_dependence(first, lambda now: which_depend(step, [*swept, *now, False, False]))
    return list(zip(sizes, changed, strict=True))
