"""MOSS: minimax optimal regret, for a known horizon and for any."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import checks, numerics
from jaxroute.core.rewards import Assumptions
from jaxroute.core.types import Leaf, Spec
from jaxroute.problems.stochastic.policies.base import SumPolicy
from jaxroute.problems.stochastic.types import ArmStatistics, Choice, rounds_of

# Rewards in [0, 1] are sub-Gaussian with constant 1/2, as are others that vary no more.
_ASSUMED = Assumptions(noise=0.5, remedy="scale the rewards, so that they vary no more than those in [0, 1]")


@struct.dataclass
class MossState:
    """Statistics of every model, and the horizon `[]`."""

    arms: ArmStatistics
    rounds: Array


def _choice(arms: ArmStatistics, rounds: Array, width: Leaf) -> Choice:
    share = 1.0 / jnp.maximum(arms.pulls, 1).astype(jnp.float32)
    part = rounds / arms.pulls.shape[-1]
    radius = jnp.sqrt(width * jnp.maximum(jnp.log(part * share), 0.0) * share)
    bound = jnp.where(arms.pulls > 0, arms.reward_sum * share + radius, jnp.inf)
    return numerics.argmax(bound, order=arms.order), {"bound": bound}


@struct.dataclass
class MOSS:
    """Uses the model with the largest bound `mean + sqrt(max(log(T / (K pulls)), 0) / pulls)`, for a known horizon `T`.

    In the worst case its regret is of the order of `sqrt(K T)`, as that of the best policy; UCB1 loses a factor `sqrt(log T)`. A model that
    was used in `T / K` rounds is not explored any more.

    Source: Audibert and Bubeck (2009), MOSS, for rewards in [0, 1]. A model that was never used comes first.

    Attributes:
      horizon: `[]` number of rounds `T`; None for those of the run.
    """

    horizon: Leaf | None = None

    assumes = _ASSUMED

    def check(self) -> None:
        if self.horizon is not None:
            checks.positive("horizon", self.horizon, ())

    def init(self, key: Array, spec: Spec) -> MossState:
        return MossState(ArmStatistics.empty(key, spec.num_models), rounds_of(spec, self.horizon))

    def act(self, key: Array, state: MossState, obs: tuple[()], t: Array) -> Choice:
        del key, obs, t
        return _choice(state.arms, state.rounds, 1.0)

    def update(self, key: Array, state: MossState, obs: tuple[()], action: Array, feedback: Array, t: Array) -> MossState:
        del key, obs, t
        return state.replace(arms=state.arms.add(action, feedback))


@struct.dataclass
class AnytimeMOSS(SumPolicy):
    """Uses MOSS's bound without a horizon: `mean + sqrt((1 + alpha) / 2 max(log(t / (K pulls)), 0) / pulls)`.

    Source: Degenne and Perchet (2016), MOSS-anytime, with `alpha = 1.35`, for rewards in [0, 1]; `t` is 1 in the first round. A model
    that was never used comes first.

    Attributes:
      alpha: `[]` exploration.
    """

    alpha: Leaf = 1.35

    assumes = _ASSUMED

    def check(self) -> None:
        checks.non_negative("alpha", self.alpha, ())

    def act(self, key: Array, state: ArmStatistics, obs: tuple[()], t: Array) -> Choice:
        del key, obs
        rounds = jnp.asarray(t, state.reward_sum.dtype) + 1.0
        return _choice(state, rounds, 0.5 * (1.0 + self.alpha))
