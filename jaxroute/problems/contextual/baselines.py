"""Policies that ignore contexts."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import draws, numerics
from jaxroute.core.types import Leaf
from jaxroute.problems.contextual.env import ContextualEnv, TableEnv
from jaxroute.problems.contextual.policies.base import StatelessPolicy
from jaxroute.problems.contextual.types import Choice, ContextualSpec


@struct.dataclass
class Uniform(StatelessPolicy):
    """Uses a uniformly random model in every round."""

    def init(self, key: jax.Array, spec: ContextualSpec) -> jax.Array:
        del key
        return jnp.full((spec.num_models,), 1.0 / spec.num_models, jnp.float32)

    def act(self, key: jax.Array, state: jax.Array, obs: jax.Array, t: jax.Array) -> Choice:
        del obs, t
        return draws.randint(key, state.shape[-1]), {}


@struct.dataclass
class BestSingle(StatelessPolicy):
    """Always uses the model that is best on average over all contexts: the optimum without looking at them.

    Attributes:
      best: `[]` int32, index of that model.
    """

    best: Leaf

    @classmethod
    def of(cls, env: ContextualEnv | TableEnv) -> "BestSingle":
        """Returns the policy for an environment."""
        return cls(best=numerics.argmax(jnp.asarray(env.average)))

    def act(self, key: jax.Array, state: tuple[()], obs: jax.Array, t: jax.Array) -> Choice:
        del key, state, obs, t
        return self.best, {}
