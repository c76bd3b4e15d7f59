"""MOSS: the policy whose worst regret is least, for a known horizon and for any."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import checks, numerics
from jaxroute.core.rewards import Assumptions
from jaxroute.core.types import Leaf, Spec
from jaxroute.problems.stochastic.policies.base import OnSums
from jaxroute.problems.stochastic.types import ArmStatistics, added, no_statistics, rounds_of

# Rewards in [0, 1] are sub-Gaussian with 1/2, and so are others that vary no more.
_ASSUMED = Assumptions(noise=0.5, remedy="scale the rewards, so that they vary no more than those in [0, 1]")


@struct.dataclass
class MossState:
    """Sums of every model, and the horizon.

    Attributes:
      arms: sums by model.
      rounds: `[]` float32, the horizon.
    """

    arms: ArmStatistics
    rounds: jax.Array


def _choice(arms: ArmStatistics, rounds: jax.Array, width: Leaf) -> tuple[jax.Array, dict[str, jax.Array]]:
    share = 1.0 / jnp.maximum(arms.pulls, 1).astype(jnp.float32)
    part = rounds / arms.pulls.shape[-1]
    radius = jnp.sqrt(width * jnp.maximum(jnp.log(part * share), 0.0) * share)
    bound = jnp.where(arms.pulls > 0, arms.reward_sum * share + radius, jnp.inf)
    return numerics.argmax(bound, order=arms.order), {"bound": bound}


@struct.dataclass
class MOSS:
    """Uses the model with the largest bound `mean + sqrt(max(log(T / (K pulls)), 0) / pulls)`, which knows the horizon `T`.

    In the worst case its regret is of the order of `sqrt(K T)`, that of the best policy, where UCB1 loses a factor `sqrt(log T)`: a model that
    had its share of the rounds is not explored any more.

    Source: Audibert and Bubeck (2009), MOSS, for rewards in [0, 1]. A model that was never used comes first.

    Attributes:
      horizon: `[]` rounds `T`; None for those of the run.
    """

    horizon: Leaf | None = None

    assumes = _ASSUMED

    def check(self) -> None:
        if self.horizon is not None:
            checks.positive("horizon", self.horizon, ())

    def init(self, key: jax.Array, spec: Spec) -> MossState:
        return MossState(no_statistics(key, spec), rounds_of(spec, self.horizon))

    def act(self, key: jax.Array, state: MossState, obs: tuple[()], t: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        del key, obs, t
        return _choice(state.arms, state.rounds, 1.0)

    def update(
        self, key: jax.Array, state: MossState, obs: tuple[()], action: jax.Array, feedback: jax.Array, t: jax.Array
    ) -> MossState:
        del key, obs, t
        return state.replace(arms=added(state.arms, action, feedback))


@struct.dataclass
class AnytimeMOSS(OnSums):
    """MOSS without a horizon: `mean + sqrt((1 + alpha) / 2 max(log(t / (K pulls)), 0) / pulls)`.

    Source: Degenne and Perchet (2016), MOSS-anytime, with `alpha = 1.35`, for rewards in [0, 1]; `t` is 1 in the first round. A model
    that was never used comes first.

    Attributes:
      alpha: `[]` exploration.
    """

    alpha: Leaf = 1.35

    assumes = _ASSUMED

    def check(self) -> None:
        checks.non_negative("alpha", self.alpha, ())

    def act(
        self, key: jax.Array, state: ArmStatistics, obs: tuple[()], t: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        del key, obs
        rounds = jnp.asarray(t, state.reward_sum.dtype) + 1.0
        return _choice(state, rounds, 0.5 * (1.0 + self.alpha))
