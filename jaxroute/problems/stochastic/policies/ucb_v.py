"""UCB-V: confidence bounds from the empirical variance."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics
from jaxroute.core.rewards import Assumptions
from jaxroute.core.types import Leaf, Spec
from jaxroute.problems.stochastic.types import Choice


@struct.dataclass
class VarianceStatistics:
    """Sums of the rewards of every model, and of the squares of their deviations.

    Source: Welford (1962), for the deviations: a variance from sums of squares is a difference of large numbers.

    Attributes:
      pulls: `[K]` int32, uses of each model.
      reward_sum: `[K]` float32, total reward of each model.
      square_sum: `[K]` float32, sum of squared deviations from the mean.
      errors: rounding errors of the sums, see `numerics.accumulate`.
      order: `[K]` int32, order of ties; see `numerics.argmax`.
    """

    pulls: Array
    reward_sum: Array
    square_sum: Array
    errors: dict[str, Array]
    order: Array | None = None

    @property
    def mean(self) -> Array:
        """Returns the mean reward `[K]`, 0 for a model that was never used."""
        return self.reward_sum / jnp.maximum(self.pulls, 1).astype(self.reward_sum.dtype)


@struct.dataclass
class UCBV:
    """Uses the model with the largest bound `mean + sqrt(2 variance e / pulls) + 3 c b e / pulls` with `e = zeta log t`.

    The variance is the empirical one: models with almost constant rewards are explored less than by UCB1.

    Source: Audibert, Munos and Szepesvari (2009), UCB-V, with their `zeta = 1.2` and `c = 1`; `t` is 1 in the first round. A model that was
    never used comes first.

    Attributes:
      zeta: `[]` exploration; the theory requires more than 1.
      c: `[]` weight of the last term.
      upper: `[]` largest reward `b`: rewards lie in `[0, b]`.
    """

    zeta: Leaf = 1.2
    c: Leaf = 1.0
    upper: Leaf = 1.0

    @property
    def assumes(self) -> Assumptions:
        return Assumptions(width=float(self.upper), remedy="give upper, the range of the rewards")

    def check(self) -> None:
        checks.non_negative("zeta", self.zeta, ())
        checks.non_negative("c", self.c, ())
        checks.positive("upper", self.upper, ())

    def init(self, key: Array, spec: Spec) -> VarianceStatistics:
        zeros, number = jnp.zeros((spec.num_models,), jnp.float32), spec.num_models
        errors = numerics.no_errors(reward_sum=zeros, square_sum=zeros)
        return VarianceStatistics(jnp.zeros((number,), jnp.int32), zeros, zeros, errors, draws.order(key, number))

    def act(self, key: Array, state: VarianceStatistics, obs: tuple[()], t: Array) -> Choice:
        del key, obs
        share = 1.0 / jnp.maximum(state.pulls, 1).astype(jnp.float32)
        mean, variance = state.mean, state.square_sum * share
        weight = self.zeta * jnp.log(jnp.asarray(t, share.dtype) + 1.0) * share
        bound = mean + jnp.sqrt(2.0 * variance * weight) + 3.0 * self.c * self.upper * weight
        bound = jnp.where(state.pulls > 0, bound, jnp.inf)
        return numerics.argmax(bound, order=state.order), {"bound": bound}

    def update(
        self, key: Array, state: VarianceStatistics, obs: tuple[()], action: Array, feedback: Array, t: Array
    ) -> VarianceStatistics:
        del key, obs, t
        chosen = numerics.one_hot(action, state.pulls.shape[-1])
        new = state.replace(pulls=state.pulls + chosen.astype(jnp.int32))
        new = numerics.accumulate(new, chosen, reward_sum=feedback)
        return numerics.accumulate(new, chosen, square_sum=(feedback - state.mean) * (feedback - new.mean))
