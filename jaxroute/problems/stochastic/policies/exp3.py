"""Exponential weights: Exp3 for adversarial rewards, and Exp3++, whose regret is small for stochastic rewards too."""

import math

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics
from jaxroute.core.rewards import UNIT
from jaxroute.core.types import Leaf, Spec
from jaxroute.problems.stochastic.types import Choice, rounds_of


@struct.dataclass
class Exp3State:
    """State of `Exp3`: the weights of the models, and the exploration probability.

    Attributes:
      log_weight: `[K]` float32 logarithms of the weights, the largest is 0.
      gamma: `[]` float32 exploration probability.
      errors: rounding errors of the sums, see `numerics.accumulate`.
    """

    log_weight: Array
    gamma: Array
    errors: dict[str, Array]

    @property
    def probability(self) -> Array:
        """Returns the probability `[K]` with which each model is used."""
        weight = jnp.exp(self.log_weight)
        return (1.0 - self.gamma) * weight / jnp.sum(weight, axis=-1) + self.gamma / weight.shape[-1]


@struct.dataclass
class Exp3:
    """Draws a model in proportion to the exponential of its estimated total reward, or with probability `gamma` a uniformly random model.

    `p = (1 - gamma) w / sum(w) + gamma / K`; the used model's weight `w` is multiplied by `exp(gamma reward / (K p))`. The regret against the best
    single model is at most `2 sqrt((e - 1) T K log K)` for all rewards, also adversarial ones.

    Source: Auer, Cesa-Bianchi, Freund and Schapire (2002), Fig. 1 and Corollary 3.2, whose `gamma = min(1, sqrt(K log K / ((e - 1) T)))` is the
    default; rewards in [0, 1].

    Attributes:
      gamma: `[]` exploration probability; None for the paper's value, from `horizon`.
      horizon: `[]` number of rounds `T`; None for the horizon of the run.
    """

    gamma: Leaf | None = None
    horizon: Leaf | None = None

    assumes = UNIT

    def check(self) -> None:
        if self.gamma is not None:
            checks.share("gamma", self.gamma, ())
        if self.horizon is not None:
            checks.positive("horizon", self.horizon, ())

    def init(self, key: Array, spec: Spec) -> Exp3State:
        del key
        size = spec.num_models
        if self.gamma is None:
            ratio = size * math.log(size) / (math.e - 1.0)
            gamma = jnp.minimum(1.0, jnp.sqrt(ratio / rounds_of(spec, self.horizon)))
        else:
            gamma = jnp.asarray(self.gamma, jnp.float32)
        zeros = jnp.zeros((size,), jnp.float32)
        return Exp3State(zeros, gamma, numerics.no_errors(log_weight=zeros))

    def act(self, key: Array, state: Exp3State, obs: tuple[()], t: Array) -> Choice:
        del obs, t
        probability = state.probability
        return numerics.inverse_cdf(probability, draws.uniform(key)), {"probability": probability}

    def update(self, key: Array, state: Exp3State, obs: tuple[()], action: Array, feedback: Array, t: Array) -> Exp3State:
        del key, obs, t
        size = state.log_weight.shape[-1]
        step = state.gamma * feedback / (size * state.probability)
        step = jnp.where(numerics.one_hot(action, size), step, 0.0)
        return numerics.accumulate(state, log_weight=step - jnp.max(state.log_weight + step, axis=-1))


@struct.dataclass
class Exp3PlusPlusState:
    """State of `Exp3PlusPlus`: losses of the models, where a loss is 1 minus the reward.

    Attributes:
      pulls: `[K]` int32, uses of each model.
      loss_sum: `[K]` float32, total observed loss of each model.
      loss_estimate: `[K]` float32, importance-weighted total loss of each model (sum of its observed losses, each divided by the model's probability
        in that round), minus the smallest of these `K` totals.
      errors: rounding errors of the sums, see `numerics.accumulate`.
    """

    pulls: Array
    loss_sum: Array
    loss_estimate: Array
    errors: dict[str, Array]


@struct.dataclass
class Exp3PlusPlus:
    """Exponential weights with exploration by estimated gaps, for adversarial and for stochastic rewards.

    Model `k` has the weight `rho_k = exp(-eta L_k) / sum_j exp(-eta L_j)`, with its estimated total loss `L_k` and `eta = sqrt(log K / (t K)) / 2`.
    Its probability is `epsilon_k + (1 - sum_j epsilon_j) rho_k`, with `epsilon_k = min(1 / (2 K), eta, beta log t / (t gap_k^2))`. `gap_k` is a
    difference of two confidence bounds of mean losses: the lower bound of model `k`, less the smallest upper bound of all models. Each bound has the
    radius `sqrt(alpha log(t K^(1 / alpha)) / (2 pulls))`. The regret is of the order of Exp3's for all rewards, and of `log(T)^2` for fixed means.

    Source: Seldin and Slivkins (2014), Algorithm 1, with the gap estimate of Seldin and Lugosi (2017), which has `alpha = 3` and `beta = 256`;
    rewards in [0, 1]; `t` is 1 in the first round.

    Differs from the papers: models are not used once beforehand; a model that was never used has the gap 0.

    Attributes:
      alpha: `[]` confidence parameter of the gaps.
      beta: `[]` exploration parameter of the gaps.
    """

    alpha: Leaf = 3.0
    beta: Leaf = 256.0

    assumes = UNIT

    def check(self) -> None:
        checks.positive("alpha", self.alpha, ())
        checks.non_negative("beta", self.beta, ())

    def init(self, key: Array, spec: Spec) -> Exp3PlusPlusState:
        del key
        zeros = jnp.zeros((spec.num_models,), jnp.float32)
        errors = numerics.no_errors(loss_sum=zeros, loss_estimate=zeros)
        return Exp3PlusPlusState(jnp.zeros((spec.num_models,), jnp.int32), zeros, zeros, errors)

    def _probability(self, state: Exp3PlusPlusState, t: Array) -> Array:
        size = state.pulls.shape[-1]
        number = jnp.asarray(t, state.loss_sum.dtype) + 1.0
        log_t, eta = jnp.log(number), 0.5 * jnp.sqrt(math.log(size) / (size * number))
        share = 1.0 / jnp.maximum(state.pulls, 1).astype(jnp.float32)
        radius = jnp.sqrt(0.5 * (self.alpha * log_t + math.log(size)) * share)
        mean, used = state.loss_sum * share, state.pulls > 0
        least = jnp.min(jnp.where(used, jnp.minimum(mean + radius, 1.0), 1.0), axis=-1)
        gap = jnp.maximum(jnp.where(used, mean - radius, 0.0) - least, 0.0)
        most = jnp.minimum(0.5 / size, eta)
        # min(most, beta log t / (t gap^2)) without a division by a gap of zero.
        explored = self.beta * log_t / number
        large = most * jnp.square(gap) > explored
        epsilon = jnp.where(large, explored / jnp.where(large, jnp.square(gap), 1.0), most)
        weight = jnp.exp(-eta * state.loss_estimate)
        return (1.0 - jnp.sum(epsilon, axis=-1)) * weight / jnp.sum(weight, axis=-1) + epsilon

    def act(self, key: Array, state: Exp3PlusPlusState, obs: tuple[()], t: Array) -> Choice:
        del obs
        probability = self._probability(state, t)
        return numerics.inverse_cdf(probability, draws.uniform(key)), {"probability": probability}

    def update(
        self, key: Array, state: Exp3PlusPlusState, obs: tuple[()], action: Array, feedback: Array, t: Array
    ) -> Exp3PlusPlusState:
        del key, obs
        chosen = numerics.one_hot(action, state.pulls.shape[-1])
        loss = 1.0 - feedback
        step = jnp.where(chosen, loss / self._probability(state, t), 0.0)
        step = step - jnp.min(state.loss_estimate + step, axis=-1)
        state = state.replace(pulls=state.pulls + chosen.astype(jnp.int32))
        return numerics.accumulate(state, loss_sum=jnp.where(chosen, loss, 0.0), loss_estimate=step)
