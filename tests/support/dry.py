"""The engine without compiling and playing: what a simulation would record, from the abstract trace of one round.

Everything before and after the compiled call is the engine's own: the arguments are checked, settings and records are made, the result has
the names, dimensions, coordinates and attributes of a real one. Its numbers are made up.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.engine import simulate
from jaxroute.engine.rollout import Record, draws_key, game, run_streams

_traced: dict[Any, dict[str, Any]] = {}


def trace_round(env: Any, policy: Any, record: Record, horizon: int) -> dict[str, Any]:
    """Shapes of what one run records of one round, traced as the engine plays it: start, plan, round, reading.

    Args:
      env: environment, or a sampler `key -> Environment`; leaves may be given by their shapes.
      policy: policy, or a function `env -> policy`.
      record: what is recorded.
      horizon: counted rounds of the run.

    Returns:
      Shapes by name, as `rollout` records them of one run.
    """
    leaves, structure = jax.tree.flatten((env, policy))
    leaves = [jax.ShapeDtypeStruct(np.shape(x), jax.dtypes.canonicalize_dtype(np.asarray(x).dtype)) for x in leaves]
    key = (structure, tuple((x.shape, x.dtype) for x in leaves), record, horizon)
    if key not in _traced:

        def play(leaves, root, seeds, t):
            env, policy = jax.tree.unflatten(structure, leaves)
            rounds = game(env, policy, run_streams(root, seeds), horizon, record)
            one, words = jax.tree.map(lambda x: x[..., 0], (rounds.own, rounds.words))
            states = begun = rounds.start(one, words)
            if rounds.stage_length:
                states = rounds.plan(one, words, states, t)
            states, sums = rounds.play(one, words, states, t)
            assert jax.tree.map(jnp.shape, states) == jax.tree.map(jnp.shape, begun)
            return {**sums, **rounds.read(one, words, states, t)}

        words, seeds, t = (jax.ShapeDtypeStruct(s, d) for s, d in (((2,), "uint32"), ((1,), "uint32"), ((), "int32")))
        _traced[key] = jax.eval_shape(play, leaves, words, seeds, t)
    return _traced[key]
