"""Base classes with the state and the parameters that several policies share."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import checks
from jaxroute.core.rewards import UNIT, Assumptions
from jaxroute.core.types import Leaf, Spec
from jaxroute.problems.stochastic.types import ArmStatistics


@struct.dataclass
class SumPolicy:
    """Base class of policies whose state is the number of uses and the total reward of each model (`ArmStatistics`)."""

    def check(self) -> None:
        """Checks nothing; subclasses check their parameters."""

    def init(self, key: Array, spec: Spec) -> ArmStatistics:
        return ArmStatistics.empty(key, spec.num_models)

    def update(
        self, key: Array, state: ArmStatistics, obs: tuple[()], action: Array, feedback: Array, t: Array
    ) -> ArmStatistics:
        del key, obs, t
        return state.add(action, feedback)


@struct.dataclass
class BetaPrior:
    """Base class of policies with a beta prior of each model's success probability; a reward in (0, 1) counts as that fraction of a success.

    Attributes:
      successes, failures: `[]` prior successes and failures, each at least 1.
    """

    successes: Leaf = 1.0
    failures: Leaf = 1.0

    assumes = UNIT

    def check(self) -> None:
        super().check()
        checks.at_least("successes", self.successes, 1.0)
        checks.at_least("failures", self.failures, 1.0)

    def update(self, key: Array, state, obs: tuple[()], action: Array, feedback: Array, t: Array):
        return super().update(key, state, obs, action, jnp.clip(feedback, 0.0, 1.0), t)


@struct.dataclass
class BetaPosteriorPolicy(BetaPrior, SumPolicy):
    """Base class of policies that have a beta posterior of each model's success probability."""

    def posterior(self, state: ArmStatistics) -> tuple[Array, Array]:
        """Returns the parameters `a` and `b` of each model's beta posterior, two arrays `[K]`."""
        # In two parts, each exact in float32: few losses are not lost among many pulls.
        few = state.pulls & 4095
        losses = ((state.pulls - few).astype(jnp.float32) - state.reward_sum) + few.astype(jnp.float32)
        losses = jnp.maximum(losses - state.errors["reward_sum"], 0.0)
        return self.successes + state.reward_sum, self.failures + losses


@struct.dataclass
class RangeBound:
    """Base class with parameters of the confidence bounds of Garivier and Moulines (2011), for rewards in `[0, b]`.

    Attributes:
      xi: `[]` factor of the logarithm in the bound; the theory requires more than 1/2.
      upper: `[]` largest reward `b`.
    """

    xi: Leaf = 0.6
    upper: Leaf = 1.0

    @property
    def assumes(self) -> Assumptions:
        return Assumptions(noise=float(self.upper) / 2.0, remedy="give upper, the range of the rewards")

    def check(self) -> None:
        super().check()
        checks.non_negative("xi", self.xi, ())
        checks.positive("upper", self.upper, ())
