"""SquareCB: a policy that turns predictions of an online regression into probabilities by inverse gap weighting."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf
from jaxroute.estimators.gaussian import Ridge
from jaxroute.problems.contextual.policies.parameters import RidgePolicy
from jaxroute.problems.contextual.types import Choice, ContextualSpec


@struct.dataclass
class SquareCBState:
    """State of `SquareCB`: the ridge regressions, and the scalar `gamma`, the weight of a predicted gap in the models' probabilities."""

    estimate: Ridge
    gamma: Array


@struct.dataclass
class SquareCB(RidgePolicy):
    """Uses each model with a probability that falls with the gap of its predicted reward to the best prediction.

    Predictions are those of Vovk, Azoury and Warmuth, `theta_k . x / (1 + x' V_k^-1 x)`: ridge regressions to which the new context is added
    with reward 0. A model has the probability `1 / (K + gamma gap)`, the best one 1 minus the sum of these, with
    `gamma = scale sqrt(K T / (B + log(2 / delta)))` and the bound `B` (`square_regret`) of the predictions' regret in square loss. Source: Foster and
    Rakhlin (2020), Algorithm 1 and Theorem 1.

    Differs from the paper: it predicts rewards; the paper has losses, one minus the rewards.

    Attributes:
      scale: `[]` factor of gamma; 1 in the theorem.
      delta: `[]` probability that the bound of the theorem fails, in (0, 1].
      horizon: `[]` number of rounds `T`; None for the horizon of the run.
      ridge, parameters: `[]` weight of the squared norm, above 0; `DisjointParameters()`, one vector per model, or `SharedParameters()`, one for all.
    """

    scale: Leaf = 1.0
    delta: Leaf = 0.01
    horizon: Leaf | None = None

    def check(self) -> None:
        super().check()
        checks.positive("scale", self.scale, ())
        checks.share("delta", self.delta, ())
        if self.horizon is not None:
            checks.at_least("horizon", self.horizon, 1.0)

    def init(self, key: Array, spec: ContextualSpec) -> SquareCBState:
        horizon = spec.horizon if self.horizon is None else self.horizon
        if horizon is None:
            raise ValueError("horizon must be given where no run gives it")
        rounds = jnp.asarray(horizon, jnp.float32)
        dim, number = self.parameters.sizes(spec)
        regret = square_regret(rounds, dim, number, self.ridge)
        gamma = self.scale * jnp.sqrt(spec.num_models * rounds / (regret + jnp.log(2.0 / self.delta)))
        return SquareCBState(estimate=super().init(key, spec), gamma=jnp.asarray(gamma, jnp.float32))

    def act(self, key: Array, state: SquareCBState, obs: Array, t: Array) -> Choice:
        del t
        x = self.parameters.columns(obs)
        predicted = state.estimate.predict(x) / (1.0 + state.estimate.square_deviation(x))
        number = predicted.shape[-1]
        order = draws.order(draws.fold_in(key, 0), number)
        best = numerics.one_hot(numerics.argmax(predicted, order=order), number)
        gap = jnp.max(predicted) - predicted
        others = jnp.where(best, 0.0, 1.0 / (number + state.gamma * gap))  # Algorithm 1 with mu = K.
        probabilities = jnp.where(best, 1.0 - jnp.sum(others), others)
        return numerics.inverse_cdf(probabilities, draws.uniform(key)), {"probability": probabilities}

    def update(
        self, key: Array, state: SquareCBState, obs: Array, action: Array, feedback: Array, t: Array
    ) -> SquareCBState:
        return state.replace(estimate=super().update(key, state.estimate, obs, action, feedback, t))


def square_regret(rounds: Leaf, dim: int, number: int, ridge: Leaf) -> Array:
    """Returns a bound on the regret in square loss of Vovk-Azoury-Warmuth predictions, for rewards in [-1, 1] and features of norm at most 1.

    The bound is `G (lambda + d log(1 + T / (G lambda d)))`.

    Source: Vovk (2001); Azoury and Warmuth (2001); Foster and Rakhlin (2020), their example of linear regression.

    Args:
      rounds: `[]` number of rounds `T`.
      dim: dimension `d` of the features.
      number: number of parameter vectors `G`, among which the rounds are divided.
      ridge: `[]` weight lambda of the squared norm.
    """
    return number * (ridge + dim * jnp.log1p(rounds / (number * ridge * dim)))
