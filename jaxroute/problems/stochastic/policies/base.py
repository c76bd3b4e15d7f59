"""What policies on sums of rewards have in common: how they start, and how they learn."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import checks
from jaxroute.core.rewards import UNIT
from jaxroute.core.types import Leaf, Spec
from jaxroute.problems.stochastic.types import ArmStatistics, added, no_statistics


@struct.dataclass
class OnSums:
    """Keeps how often each model was used, and its total reward."""

    def init(self, key: jax.Array, spec: Spec) -> ArmStatistics:
        return no_statistics(key, spec)

    def update(
        self, key: jax.Array, state: ArmStatistics, obs: tuple[()], action: jax.Array, feedback: jax.Array, t: jax.Array
    ) -> ArmStatistics:
        del key, obs, t
        return added(state, action, feedback)


@struct.dataclass
class OnSuccesses(OnSums):
    """Has a beta posterior of each model's probability of success; a reward in (0, 1) counts as that share of a success.

    Attributes:
      successes: `[]` prior successes, at least 1.
      failures: `[]` prior failures, at least 1.
    """

    successes: Leaf = 1.0
    failures: Leaf = 1.0

    assumes = UNIT

    def check(self) -> None:
        checks.at_least("successes", self.successes, 1.0)
        checks.at_least("failures", self.failures, 1.0)

    def posterior(self, state: ArmStatistics) -> tuple[jax.Array, jax.Array]:
        """Both parameters `[K]` of the beta distributions."""
        # In two parts, each exact in float32: few losses are not lost among many pulls.
        few = state.pulls & 4095
        losses = ((state.pulls - few).astype(jnp.float32) - state.reward_sum) + few.astype(jnp.float32)
        losses = jnp.maximum(losses - state.errors["reward_sum"], 0.0)
        return self.successes + state.reward_sum, self.failures + losses

    def update(
        self, key: jax.Array, state: ArmStatistics, obs: tuple[()], action: jax.Array, feedback: jax.Array, t: jax.Array
    ) -> ArmStatistics:
        return super().update(key, state, obs, action, jnp.clip(feedback, 0.0, 1.0), t)
