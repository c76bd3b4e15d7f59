"""Policies that predict rewards by ridge regression: LinUCB, OFUL, Thompson sampling and epsilon-greedy."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics
from jaxroute.core.rewards import Assumptions
from jaxroute.core.types import Leaf
from jaxroute.estimators.gaussian import Ridge
from jaxroute.problems.contextual.policies.parameters import RidgePolicy
from jaxroute.problems.contextual.types import Choice, ContextualSpec


@struct.dataclass
class LinUCB(RidgePolicy):
    """Uses the model with the largest upper confidence bound of its expected reward in the context.

    The bound is `theta_k . x + alpha sqrt(x' A_k^-1 x)` with the ridge estimate `theta_k` and its design matrix `A_k`. With `alpha = 0` it is greedy.

    Source: Li, Chu, Langford and Schapire (2010), Algorithm 1, with `DisjointParameters()`; Chu, Li, Reyzin and Schapire (2011), Algorithm 1, with
    `SharedParameters()`. Both have `ridge = 1`.

    Attributes:
      alpha: `[]` factor of the square root in the bound, in units of reward.
      ridge, parameters: `[]` weight of the squared norm, above 0; `DisjointParameters()`, one vector per model, or `SharedParameters()`, one for all.
    """

    alpha: Leaf = 1.0

    def check(self) -> None:
        super().check()
        checks.non_negative("alpha", self.alpha, ())

    def act(self, key: Array, state: Ridge, obs: Array, t: Array) -> Choice:
        del t
        x = self.parameters.columns(obs)
        bound = state.predict(x) + self.alpha * jnp.sqrt(state.square_deviation(x))  # Algorithm 1, line 9
        return numerics.argmax(bound, order=draws.order(key, bound.shape[-1])), {"bound": bound}


@struct.dataclass
class OFULState:
    """State of `OFUL`: ridge regressions for `G` parameter vectors (one, or one per model), with design matrices `V` that start as `lambda I`.

    `log_det` `[G]` is `log(det V / det(lambda I))`, a sum over rounds; `errors` are its rounding errors, for `numerics.accumulate`.
    """

    estimate: Ridge
    log_det: Array
    errors: dict[str, Array]


@struct.dataclass
class OFUL(RidgePolicy):
    """LinUCB with confidence bounds that hold in all rounds at once with a given probability (optimism in the face of uncertainty, linear).

    The bound is `theta . x + beta sqrt(x' V^-1 x)` with
    `beta = noise sqrt(log(det V / det(lambda I)) + 2 log(1 / delta)) + sqrt(lambda) norm`.

    Source: Abbasi-Yadkori, Pal and Szepesvari (2011), Theorem 2 and Figure 1.

    Differs from the paper: with `DisjointParameters()` each of the `K` parameter vectors has a separate bound, which fails with probability at most
    `delta / K`.

    Attributes:
      noise: `[]` sub-Gaussian constant of the rewards, the paper's R.
      norm: `[]` largest norm of a parameter vector, the paper's S.
      delta: `[]` largest probability that a bound ever fails, in (0, 1].
      ridge: `[]` weight of the squared norm, the paper's lambda, above 0.
      parameters: `DisjointParameters()` for a separate parameter vector of each model, or `SharedParameters()` for one of all models.
    """

    noise: Leaf = 0.5
    norm: Leaf = 1.0
    delta: Leaf = 0.01

    @property
    def assumes(self) -> Assumptions:
        return Assumptions(noise=max(float(self.noise), 0.5), remedy="give noise, the sub-Gaussian constant of a reward")

    def check(self) -> None:
        super().check()
        for name in ("noise", "norm"):
            checks.non_negative(name, getattr(self, name), ())
        checks.share("delta", self.delta, ())

    def init(self, key: Array, spec: ContextualSpec) -> OFULState:
        estimate = super().init(key, spec)
        log_det = jnp.zeros(estimate.theta.shape[-1:], jnp.float32)
        return OFULState(estimate, log_det, numerics.no_errors(log_det=log_det))

    def act(self, key: Array, state: OFULState, obs: Array, t: Array) -> Choice:
        del t
        x = self.parameters.columns(obs)
        number = state.log_det.shape[-1]
        rare = 2.0 * (jnp.log(float(number)) - jnp.log(self.delta))
        radius = self.noise * jnp.sqrt(state.log_det + rare) + jnp.sqrt(self.ridge) * self.norm  # Theorem 2
        bound = state.estimate.predict(x) + radius * jnp.sqrt(state.estimate.square_deviation(x))
        return numerics.argmax(bound, order=draws.order(key, bound.shape[-1])), {"bound": bound}

    def update(self, key: Array, state: OFULState, obs: Array, action: Array, feedback: Array, t: Array) -> OFULState:
        del key, t
        x, seen = self.parameters.of_chosen(self.parameters.columns(obs), action, state.log_det.shape[-1])
        growth = jnp.log1p(state.estimate.square_deviation(x))  # det(V + x x') = det V (1 + x' V^-1 x)
        return numerics.accumulate(state, seen, log_det=growth).replace(estimate=state.estimate.add(x, feedback, seen))


@struct.dataclass
class LinearThompson(RidgePolicy):
    """Draws the parameter vectors from their normal posterior, and uses the model with the largest prediction by this draw.

    The distribution is `N(theta, scale^2 B^-1)` with the ridge estimate `theta` and its design matrix `B`.

    Source: Agrawal and Goyal (2013b), Algorithm 1 with `SharedParameters()`, `ridge = 1` and, for its proof, a `scale` of the order of `noise sqrt(d
    log(t / delta))`.

    Differs from the paper: with `DisjointParameters()` each model has a separate posterior.

    Attributes:
      scale: `[]` the paper's v, in units of reward. If it is the standard deviation of one reward, draws are from the exact posterior of a normal
        prior and normal noise.
      ridge, parameters: `[]` weight of the squared norm, above 0; `DisjointParameters()`, one vector per model, or `SharedParameters()`, one for all.
    """

    scale: Leaf = 0.5

    @property
    def assumes(self) -> Assumptions:
        return Assumptions(noise=max(float(self.scale), 0.5), remedy="give scale, the standard deviation of a reward")

    def check(self) -> None:
        super().check()
        checks.non_negative("scale", self.scale, ())

    def act(self, key: Array, state: Ridge, obs: Array, t: Array) -> Choice:
        del t
        x = self.parameters.columns(obs)
        sample = state.predict(x) + self.scale * self.parameters.errors(key, x, state)
        return numerics.argmax(sample), {"sample": sample}


@struct.dataclass
class EpsilonGreedy(RidgePolicy):
    """Uses a uniformly random model with probability `min(1, epsilon)`, otherwise the best one by ridge regression.

    Source: Sutton and Barto (2018), section 2.4, here with ridge regression on the context; Chapelle and Li (2011) compare it.

    Attributes:
      epsilon: `[]` exploration probability.
      ridge, parameters: `[]` weight of the squared norm, above 0; `DisjointParameters()`, one vector per model, or `SharedParameters()`, one for all.
    """

    epsilon: Leaf = 0.1

    def check(self) -> None:
        super().check()
        checks.probability("epsilon", self.epsilon, ())

    def act(self, key: Array, state: Ridge, obs: Array, t: Array) -> Choice:
        del t
        coin, place = (draws.uniform_at(key, number) for number in range(2))  # Two keys would cost as much again.
        predicted = state.predict(self.parameters.columns(obs))
        size = predicted.shape[-1]
        random = jnp.minimum((place * size).astype(jnp.int32), size - 1)
        explore = coin < self.epsilon
        best = numerics.argmax(predicted, order=draws.order(draws.fold_in(key, 0), size))
        return jnp.where(explore, random, best), {"explored": explore.astype(jnp.float32)}
