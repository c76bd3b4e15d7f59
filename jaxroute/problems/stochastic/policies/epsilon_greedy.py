"""Epsilon-greedy: the policy that explores at random with a constant probability."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf
from jaxroute.problems.stochastic.policies.base import SumPolicy
from jaxroute.problems.stochastic.types import ArmStatistics, Choice


@struct.dataclass
class EpsilonGreedy(SumPolicy):
    """Uses a uniformly random model with probability `min(1, epsilon)`, otherwise the one with the largest empirical mean.

    Models that were never used come first. Equal means are a tie, which `numerics.argmax` breaks.

    Source: Sutton and Barto (2018), section 2.4.

    Attributes:
      epsilon: `[]` exploration probability.
    """

    epsilon: Leaf = 0.1

    def check(self) -> None:
        checks.probability("epsilon", self.epsilon, ())

    def act(self, key: Array, state: ArmStatistics, obs: tuple[()], t: Array) -> Choice:
        del obs, t
        # Two draws of one key: a separate key for each would cost as much as both.
        coin, place = (draws.uniform_at(key, number) for number in range(2))
        pulls = jnp.maximum(state.pulls, 1).astype(jnp.float32)
        best = numerics.argmax(jnp.where(state.pulls > 0, state.reward_sum / pulls, jnp.inf), order=state.order)
        explore = coin < self.epsilon
        size = state.pulls.shape[-1]
        random = jnp.minimum((place * size).astype(jnp.int32), size - 1)
        return jnp.where(explore, random, best), {"explored": explore.astype(jnp.float32)}
