"""Policy that knows the parameters."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import numerics
from jaxroute.core.types import Leaf
from jaxroute.problems.contextual.env import ContextualEnv, TableEnv
from jaxroute.problems.contextual.policies.base import StatelessPolicy
from jaxroute.problems.contextual.types import Choice


@struct.dataclass
class Oracle(StatelessPolicy):
    """Always uses the model with the largest expected reward in the context; its regret is zero.

    For a table, whose expected rewards are unknown, it is the linear rule fitted to the rewards of all rows.

    Attributes:
      theta: `[K, d]` parameters, or `[1, d]` shared by all models.
      num_models: `K` (static).
    """

    theta: Leaf
    num_models: int = struct.field(pytree_node=False)

    @classmethod
    def of(cls, env: ContextualEnv | TableEnv) -> "Oracle":
        """Returns the oracle of an environment."""
        theta = env.theta if isinstance(env, ContextualEnv) else jnp.asarray(env.fit).T
        return cls(theta=theta, num_models=env.spec.num_models)

    def act(self, key: jax.Array, state: tuple[()], obs: jax.Array, t: jax.Array) -> Choice:
        del key, state, t
        # Every link is increasing, so the linear predictor has its maximum at the best model.
        predictor = numerics.combine(obs.T, jnp.asarray(self.theta).T)
        return numerics.argmax(jnp.broadcast_to(predictor, (self.num_models,))), {}
