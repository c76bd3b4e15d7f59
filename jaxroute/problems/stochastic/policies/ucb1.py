"""UCB1: the first finite-time upper confidence bound."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import checks, numerics
from jaxroute.core.rewards import Assumptions
from jaxroute.core.types import Leaf
from jaxroute.problems.stochastic.policies.base import SumPolicy
from jaxroute.problems.stochastic.types import ArmStatistics, Choice


@struct.dataclass
class UCB1(SumPolicy):
    """Uses the model with the largest upper confidence bound `mean + width * sqrt(log(t + 2) / pulls)`.

    A model that was never used has an infinite bound; equal bounds are a tie (`numerics.argmax`).

    Source: Auer, Cesa-Bianchi and Fischer (2002), Fig. 1, with `width = sqrt(2)`, for rewards in [0, 1].

    Differs from the paper: the paper has the logarithm of the past rounds; `t + 2`, with rounds from 0, is two more, so that the logarithm is
    positive from the first round on.

    Attributes:
      width: `[]` multiplier of the radius, in units of reward.
    """

    width: Leaf = 2.0**0.5

    @property
    def assumes(self) -> Assumptions:
        remedy = "give a larger width, sqrt(2) times the standard deviation of a reward"
        return Assumptions(noise=max(float(self.width) / 2.0**0.5, 0.5), remedy=remedy)  # A smaller width is deliberate.

    def check(self) -> None:
        checks.non_negative("width", self.width, ())

    def act(self, key: Array, state: ArmStatistics, obs: tuple[()], t: Array) -> Choice:
        del key, obs
        share = 1.0 / jnp.maximum(state.pulls, 1).astype(jnp.float32)  # one division instead of two
        log_t = jnp.log(jnp.asarray(t, float) + 2.0).astype(share.dtype)
        radius = self.width * jnp.sqrt(log_t * share)
        bound = jnp.where(state.pulls > 0, state.reward_sum * share + radius, jnp.inf)
        return numerics.argmax(bound, order=state.order), {"bound": bound}
