"""IMED: an index without optimisation."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import numerics, xla
from jaxroute.estimators.families import Bernoulli, Family, check_family
from jaxroute.problems.stochastic.policies.base import SumPolicy
from jaxroute.problems.stochastic.types import ArmStatistics, Choice


@struct.dataclass
class IMED(SumPolicy):
    """Indexed minimum empirical divergence: uses the model with the least `pulls kl(mean, largest mean) + log pulls`.

    Its regret attains the Lai-Robbins line, as KL-UCB's does, with one divergence per model and no search.

    Source: Honda and Takemura (2015), IMED, with the divergence of a family of one parameter instead of that of all distributions with bounded
    rewards. A model that was never used comes first.

    Attributes:
      family: family of reward distributions; see `KLUCB`.
    """

    family: Family = Bernoulli()

    def check(self) -> None:
        check_family("family", self.family)

    def act(self, key: jax.Array, state: ArmStatistics, obs: tuple[()], t: jax.Array) -> Choice:
        del key, obs, t
        pulls = jnp.maximum(state.pulls, 1).astype(jnp.float32)
        mean = xla.compute_once(state.reward_sum / pulls)
        best = jnp.broadcast_to(jnp.max(mean, axis=-1), mean.shape)
        divergence = jnp.where(mean < best, self.family.divergence(mean, best), 0.0)
        index = jnp.where(state.pulls > 0, pulls * divergence + jnp.log(pulls), -jnp.inf)
        return numerics.argmin(index, order=state.order), {"index": index}
