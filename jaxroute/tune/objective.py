"""Differentiable objectives of simulations.

A run is differentiable where its decisions are: the engine's scan sums an objective along the way, evaluated at the relaxed selection
in the action, while outcomes, feedback and statistics come from the rounded set. The gradient takes the observed data as given: it does
not include rounding, decisions that jump, or the value of exploration.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import checks, draws
from jaxroute.core.types import Metric
from jaxroute.core.wrapper import Wrapper
from jaxroute.engine.precision import as_written
from jaxroute.engine.rollout import rollout
from jaxroute.engine.rounds import Record, run_streams
from jaxroute.tune.candidates import replace

Objective = Callable[[Any, Any, Any, Any], jax.Array]
_METRIC = Metric("objective", "mean objective", "", "average")


@struct.dataclass
class _WithObjective(Wrapper):
    """Environment whose flows also have the objective of the round."""

    objective: Objective = struct.field(pytree_node=False)

    def step(self, key, state, action, t):
        after, feedback, flows = self.env.step(key, state, action, t)
        return after, feedback, {**flows, "objective": self.objective(self.env, state, action, t)}


def objective_of(
    env: Any, policy: Any, objective: Objective, *, horizon: int, root_seed: int = 0
) -> Callable[[Mapping[str, Any], Any], jax.Array]:
    """Returns the objective per round as a differentiable function of a policy's hyperparameters.

    Args:
      env: an environment.
      policy: a policy; its other hyperparameters stay as they are.
      objective: function `(env, env_state, action, t) -> value` of a round, differentiable in the action's fields.
      horizon: rounds of a run.
      root_seed: seed of all randomness.

    Returns:
      A function of a dict of hyperparameter to value `[]`, and of seeds `[R]`, that returns the mean over the rounds of each run, `[R]`.
      Differentiate its mean with `jax.jacfwd`, whose time grows with the number of hyperparameters, or with `jax.grad`, whose memory
      grows with the horizon.
    """
    record = Record(every=checks.whole("horizon", horizon), flows=(_METRIC,))
    root = jax.random.key_data(draws.key(root_seed))
    env = _WithObjective(env, objective)

    @jax.jit  # The engine's loops must not close over tracers of the caller.
    def value(parameters: Mapping[str, Any], seeds: Any) -> jax.Array:
        with as_written():
            streams = run_streams(root, jnp.asarray(seeds, np.uint32))
            recorded = rollout(env, replace(policy, parameters), streams, horizon, record, reversible=True)
        return recorded["objective"][0] / horizon

    return value
