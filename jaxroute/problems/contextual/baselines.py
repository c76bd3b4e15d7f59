"""Policies that learn nothing: uniform choice, the best single model, and the oracle, which knows the parameters."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import draws, numerics
from jaxroute.core.types import FixedPolicy, FixedState, Leaf
from jaxroute.problems.contextual.env import ContextualEnv, TableEnv
from jaxroute.problems.contextual.types import Choice, ContextualSpec


@struct.dataclass
class Uniform(FixedPolicy):
    """Uses a uniformly random model in every round."""

    def init(self, key: Array, spec: ContextualSpec) -> Array:
        del key
        return jnp.full((spec.num_models,), 1.0 / spec.num_models, jnp.float32)

    def act(self, key: Array, state: Array, obs: Array, t: Array) -> Choice:
        del obs, t
        return draws.randint(key, state.shape[-1]), {}


@struct.dataclass
class BestSingle(FixedPolicy):
    """Always uses the model that is best on average over all contexts: the best policy that ignores contexts.

    Attributes:
      best: `[]` int32, index of the model.
    """

    best: Leaf

    @classmethod
    def of(cls, env: ContextualEnv | TableEnv) -> "BestSingle":
        """Returns the policy that always uses the model with the largest mean reward, `env.average`."""
        return cls(best=numerics.argmax(jnp.asarray(env.average)))

    def act(self, key: Array, state: FixedState, obs: Array, t: Array) -> Choice:
        del key, state, obs, t
        return self.best, {}


@struct.dataclass
class Oracle(FixedPolicy):
    """Always uses the model with the largest expected reward in the context; its regret is then zero.

    The expected rewards of a table are unknown: the policy then uses linear predictions, fitted to the rewards of all rows, and has a positive
    regret.

    Attributes:
      theta: `[K, d]` parameter vectors of the models, or `[1, d]` shared by all.
      num_models: number of models, `K` (static).
    """

    theta: Leaf
    num_models: int = struct.field(pytree_node=False)

    @classmethod
    def of(cls, env: ContextualEnv | TableEnv) -> "Oracle":
        theta = env.theta if isinstance(env, ContextualEnv) else jnp.asarray(env.fit).T
        return cls(theta=theta, num_models=env.spec.num_models)

    def act(self, key: Array, state: FixedState, obs: Array, t: Array) -> Choice:
        del key, state, t
        # Every link is increasing, so the linear predictor has its maximum at the best model.
        predictor = numerics.combine(obs.T, jnp.asarray(self.theta).T)
        return numerics.argmax(jnp.broadcast_to(predictor, (self.num_models,))), {}
