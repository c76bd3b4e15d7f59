"""Oracle of the K-armed bandit: a policy that knows the best model."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import numerics
from jaxroute.core.types import FixedPolicy, FixedState
from jaxroute.problems.stochastic.env import BanditEnv
from jaxroute.problems.stochastic.types import Choice


@struct.dataclass
class Oracle(FixedPolicy):
    """Always uses the model with the largest true mean; its regret is zero.

    Attributes:
      best: `[]` int32, index of the model.
    """

    best: Array

    @classmethod
    def of(cls, env: BanditEnv) -> "Oracle":
        """Returns the oracle of an environment; raises `ValueError` if the means change, and with them the best model."""
        if not hasattr(env, "mean"):
            raise ValueError(
                f"Oracle.of needs an environment with fixed means in `mean`, got {type(env).__name__}: if means change, no model is always best; "
                "if they are fixed, pass lambda env: Oracle(best=...)"
            )
        return cls(best=numerics.argmax(jnp.asarray(env.mean)))

    def act(self, key: Array, state: FixedState, obs: tuple[()], t: Array) -> Choice:
        del key, state, obs, t
        return self.best, {}
