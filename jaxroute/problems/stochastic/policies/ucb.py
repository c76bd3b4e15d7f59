"""Policies that use the mean reward of each model: epsilon-greedy, and upper confidence bounds.

The bounds are UCB1, UCB-V (with empirical variances), and MOSS (minimax optimal) with and without a known horizon.
"""

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics
from jaxroute.core.rewards import Assumptions
from jaxroute.core.types import Leaf, Spec
from jaxroute.problems.stochastic.policies.base import SumPolicy
from jaxroute.problems.stochastic.types import ArmStatistics, Choice, rounds_of


@struct.dataclass
class EpsilonGreedy(SumPolicy):
    """Uses a uniformly random model with probability `min(1, epsilon)`, otherwise the one with the largest empirical mean.

    Models that were never used come first. Equal means are a tie, which `numerics.argmax` breaks. Source: Sutton and Barto (2018), section 2.4.

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


@struct.dataclass
class UCB1(SumPolicy):
    """Uses the model with the largest upper confidence bound `mean + width * sqrt(log(t + 2) / pulls)`.

    A model that was never used has an infinite bound; equal bounds are a tie, which `numerics.argmax` breaks.

    Source: Auer, Cesa-Bianchi and Fischer (2002), Fig. 1, with `width = sqrt(2)`, for rewards in [0, 1].

    Differs from the paper: the paper has the logarithm of the number of past rounds, `t`. Here it is the logarithm of `t + 2`, which is positive from
    the first round on.

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


@struct.dataclass
class VarianceStatistics:
    """State of `UCBV`: sums of the rewards of every model, and of the squared deviations from their mean.

    Source: Welford (1962), for the update of the deviations. A variance from sums of squares would be an imprecise difference of large numbers.

    Attributes:
      pulls: `[K]` int32, uses of each model.
      reward_sum: `[K]` float32, total reward of each model.
      square_sum: `[K]` float32, sum of squared deviations from the mean.
      errors: rounding errors of the sums, see `numerics.accumulate`.
      order: `[K]` int32, ranks by which ties are broken; see `numerics.argmax`.
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
      zeta: `[]` factor of the logarithm; the theory requires more than 1.
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


# Rewards in [0, 1] are sub-Gaussian with constant 1/2, as are others that vary no more.
_ASSUMED = Assumptions(noise=0.5, remedy="scale the rewards, so that they vary no more than those in [0, 1]")


@struct.dataclass
class MossState:
    """State of `MOSS`: number of uses and total reward of every model (`arms`), and the number of rounds `T` in the bounds, a scalar."""

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

    In the worst case its regret is of the order of `sqrt(K T)`, which no policy can improve; that of UCB1 is larger by a factor `sqrt(log T)`. A
    model that was used in `T / K` rounds gets no bonus any more.

    Source: Audibert and Bubeck (2009), MOSS, for rewards in [0, 1]. A model that was never used comes first.

    Attributes:
      horizon: `[]` number of rounds `T`; None for the horizon of the run.
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
    """MOSS without a known horizon. Its bound is `mean + sqrt((1 + alpha) / 2 max(log(t / (K pulls)), 0) / pulls)`.

    Source: Degenne and Perchet (2016), MOSS-anytime, with `alpha = 1.35`, for rewards in [0, 1]; `t` is 1 in the first round. A model
    that was never used comes first.

    Attributes:
      alpha: `[]` parameter of the bonus; larger values explore more.
    """

    alpha: Leaf = 1.35

    assumes = _ASSUMED

    def check(self) -> None:
        checks.non_negative("alpha", self.alpha, ())

    def act(self, key: Array, state: ArmStatistics, obs: tuple[()], t: Array) -> Choice:
        del key, obs
        rounds = jnp.asarray(t, state.reward_sum.dtype) + 1.0
        return _choice(state, rounds, 0.5 * (1.0 + self.alpha))
