"""Exp3: exponential weights for adversarial rewards."""

import math

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import checks, draws, numerics
from jaxroute.core.rewards import UNIT
from jaxroute.core.types import Leaf, Spec
from jaxroute.problems.stochastic.types import Choice, rounds_of


@struct.dataclass
class Exp3State:
    """Weights of the models, and the exploration probability.

    Attributes:
      log_weight: `[K]` float32 logarithms of the weights, the largest is 0.
      gamma: `[]` float32 exploration probability.
      errors: rounding errors of the sums, see `numerics.accumulate`.
    """

    log_weight: jax.Array
    gamma: jax.Array
    errors: dict[str, jax.Array]

    @property
    def probability(self) -> jax.Array:
        """`[K]` probability of each model."""
        weight = jnp.exp(self.log_weight)
        return (1.0 - self.gamma) * weight / jnp.sum(weight, axis=-1) + self.gamma / weight.shape[-1]


@struct.dataclass
class Exp3:
    """Draws a model in proportion to the exponential of its estimated total reward, and with probability `gamma` any model.

    `p = (1 - gamma) w / sum(w) + gamma / K`; the used model's weight `w` is multiplied by `exp(gamma reward / (K p))`. The regret against the best
    single model is at most `2 sqrt((e - 1) T K log K)` for all rewards, also adversarial ones.

    Source: Auer, Cesa-Bianchi, Freund and Schapire (2002), Fig. 1 and Corollary 3.2, whose `gamma = min(1, sqrt(K log K / ((e - 1) T)))` is the
    default; rewards in [0, 1].

    Attributes:
      gamma: `[]` exploration probability; None for that of the horizon.
      horizon: `[]` number of rounds `T`; None for those of the run.
    """

    gamma: Leaf | None = None
    horizon: Leaf | None = None

    assumes = UNIT

    def check(self) -> None:
        if self.gamma is not None:
            checks.share("gamma", self.gamma, ())
        if self.horizon is not None:
            checks.positive("horizon", self.horizon, ())

    def init(self, key: jax.Array, spec: Spec) -> Exp3State:
        del key
        size = spec.num_models
        if self.gamma is None:
            ratio = size * math.log(size) / (math.e - 1.0)
            gamma = jnp.minimum(1.0, jnp.sqrt(ratio / rounds_of(spec, self.horizon)))
        else:
            gamma = jnp.asarray(self.gamma, jnp.float32)
        zeros = jnp.zeros((size,), jnp.float32)
        return Exp3State(zeros, gamma, numerics.no_errors(log_weight=zeros))

    def act(self, key: jax.Array, state: Exp3State, obs: tuple[()], t: jax.Array) -> Choice:
        del obs, t
        probability = state.probability
        return numerics.inverse_cdf(probability, draws.uniform(key)), {"probability": probability}

    def update(
        self, key: jax.Array, state: Exp3State, obs: tuple[()], action: jax.Array, feedback: jax.Array, t: jax.Array
    ) -> Exp3State:
        del key, obs, t
        size = state.log_weight.shape[-1]
        step = state.gamma * feedback / (size * state.probability)
        step = jnp.where(numerics.one_hot(action, size), step, 0.0)
        return numerics.accumulate(state, log_weight=step - jnp.max(state.log_weight + step, axis=-1))
