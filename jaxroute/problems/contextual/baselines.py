"""Rivals that do not look at contexts."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import draws, numerics
from jaxroute.core.types import Leaf
from jaxroute.problems.contextual.env import ContextualEnv, TableEnv
from jaxroute.problems.contextual.types import ContextualSpec


@struct.dataclass
class Uniform:
    """Uses a uniformly random model in every round."""

    def init(self, key: jax.Array, spec: ContextualSpec) -> jax.Array:
        del key
        return jnp.full((spec.num_models,), 1.0 / spec.num_models, jnp.float32)

    def act(self, key: jax.Array, state: jax.Array, obs: jax.Array, t: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        del obs, t
        return draws.randint(key, state.shape[-1]), {}

    def update(
        self, key: jax.Array, state: jax.Array, obs: jax.Array, action: jax.Array, feedback: jax.Array, t: jax.Array
    ) -> jax.Array:
        del key, obs, action, feedback, t
        return state


@struct.dataclass
class BestSingle:
    """Always uses the model that is best on average over all contexts: the most that one can do without looking at them.

    Attributes:
      best: `[]` int32, index of that model.
    """

    best: Leaf

    @classmethod
    def of(cls, env: ContextualEnv | TableEnv) -> "BestSingle":
        """That of an environment."""
        return cls(best=numerics.argmax(jnp.asarray(env.average)))

    def init(self, key: jax.Array, spec: ContextualSpec) -> tuple[()]:
        del key, spec
        return ()

    def act(self, key: jax.Array, state: tuple[()], obs: jax.Array, t: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        del key, state, obs, t
        return self.best, {}

    def update(
        self, key: jax.Array, state: tuple[()], obs: jax.Array, action: jax.Array, feedback: jax.Array, t: jax.Array
    ) -> tuple[()]:
        del key, obs, action, feedback, t
        return state
