"""The policy that knows the parameters."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import numerics
from jaxroute.core.types import Leaf
from jaxroute.problems.contextual.env import ContextualEnv, TableEnv
from jaxroute.problems.contextual.types import ContextualSpec


@struct.dataclass
class Oracle:
    """Always uses the model with the largest expected reward in the context; its regret is zero.

    Of a table it is the linear rule that was fitted to the rewards of all rows: nobody knows what is expected of a query.

    Attributes:
      theta: `[K, d]` parameters, or `[1, d]` of all models.
      num_models: `K` (static).
    """

    theta: Leaf
    num_models: int = struct.field(pytree_node=False)

    @classmethod
    def of(cls, env: ContextualEnv | TableEnv) -> "Oracle":
        """The oracle of an environment."""
        theta = env.theta if isinstance(env, ContextualEnv) else jnp.asarray(env.fit).T
        return cls(theta=theta, num_models=env.spec.num_models)

    def init(self, key: jax.Array, spec: ContextualSpec) -> tuple[()]:
        del key, spec
        return ()

    def act(self, key: jax.Array, state: tuple[()], obs: jax.Array, t: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        del key, state, t
        # Every link rises, so that the linear predictor says who is best.
        predictor = numerics.combine(obs.T, jnp.asarray(self.theta).T)
        return numerics.argmax(jnp.broadcast_to(predictor, (self.num_models,))), {}

    def update(
        self, key: jax.Array, state: tuple[()], obs: jax.Array, action: jax.Array, feedback: jax.Array, t: jax.Array
    ) -> tuple[()]:
        del key, obs, action, feedback, t
        return state
