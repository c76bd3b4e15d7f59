"""Epsilon-greedy on a regressor."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf
from jaxroute.estimators.ridge import Ridge
from jaxroute.problems.contextual.policies.base import RidgePolicy
from jaxroute.problems.contextual.types import Choice


@struct.dataclass
class EpsilonGreedy(RidgePolicy):
    """Uses a uniformly random model with probability `min(1, epsilon)`, otherwise the best one by ridge regression.

    Source: Sutton and Barto (2018), section 2.4, on a regression of the context; compared in Chapelle and Li (2011).

    Attributes:
      epsilon: `[]` exploration probability.
      ridge: `[]` weight of the squared norm, above 0.
      parameters: `DisjointParameters()` for a separate parameter of each model, or `SharedParameters()` for the same one.
    """

    epsilon: Leaf = 0.1

    def check(self) -> None:
        super().check()
        checks.probability("epsilon", self.epsilon, ())

    def act(self, key: jax.Array, state: Ridge, obs: jax.Array, t: jax.Array) -> Choice:
        del t
        coin, place = (draws.uniform_at(key, number) for number in range(2))  # Two keys would cost as much again.
        predicted = state.predict(self.parameters.columns(obs))
        size = predicted.shape[-1]
        random = jnp.minimum((place * size).astype(jnp.int32), size - 1)
        explore = coin < self.epsilon
        best = numerics.argmax(predicted, order=draws.order(draws.fold_in(key, 0), size))
        return jnp.where(explore, random, best), {"explored": explore.astype(jnp.float32)}
