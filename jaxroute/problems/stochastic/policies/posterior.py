"""Policies that use the posterior of each mean: Thompson sampling draws from it, Bayes-UCB takes a quantile."""

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax
from jax.scipy.special import ndtri

from jaxroute.core import checks, draws, numerics
from jaxroute.core.rewards import Assumptions
from jaxroute.core.types import Leaf
from jaxroute.estimators.families import upper_quantile
from jaxroute.problems.stochastic.policies.base import BetaPosteriorPolicy, SumPolicy
from jaxroute.problems.stochastic.types import ArmStatistics, Choice


@struct.dataclass
class GaussianThompson(SumPolicy):
    """Uses the model with the largest draw from its normal posterior.

    The posterior of a model is normal with mean `(prior_weight * prior_mean + reward_sum) / (prior_weight + pulls)` and standard
    deviation `scale / sqrt(prior_weight + pulls)`.

    Source: Agrawal and Goyal (2013), Algorithm 2, with Gaussian priors, `scale = 1` and `prior_weight = 1`.

    Attributes:
      scale: `[]` standard deviation of one reward.
      prior_mean: `[]` mean of the prior, in units of reward.
      prior_weight: `[]` number of observations to which the prior is equivalent.
    """

    scale: Leaf = 1.0
    prior_mean: Leaf = 0.0
    prior_weight: Leaf = 1.0

    @property
    def assumes(self) -> Assumptions:
        # An unused model is drawn above a mean two deviations over the prior's once in 40 rounds, and hardly ever above a larger one.
        scale = max(float(self.scale), 0.5)  # A smaller scale is deliberate.
        top = float(self.prior_mean) + 2.0 * scale / float(self.prior_weight) ** 0.5
        remedy = "give scale, the standard deviation of a reward, and prior_mean, near the means"
        return Assumptions(noise=scale, largest_mean=top, remedy=remedy)

    def check(self) -> None:
        checks.non_negative("scale", self.scale, ())
        checks.numbers("prior_mean", self.prior_mean, ())
        checks.positive("prior_weight", self.prior_weight, ())

    def act(self, key: Array, state: ArmStatistics, obs: tuple[()], t: Array) -> Choice:
        del obs, t
        weight = self.prior_weight + state.pulls.astype(jnp.float32)
        mean = (self.prior_weight * self.prior_mean + state.reward_sum) / weight
        sample = mean + self.scale * lax.rsqrt(weight) * draws.normal(key, state.pulls.shape)
        return numerics.argmax(sample), {"sample": sample}


@struct.dataclass
class BetaThompson(BetaPosteriorPolicy):
    """Uses the model with the largest draw from its beta posterior, for Bernoulli rewards.

    A beta draw is `g / (g + h)` with gamma draws `g` and `h`, by the Marsaglia-Tsang method with a fixed number of tries. It takes about 20 times as
    long as a normal draw: prefer `GaussianThompson` for speed.

    Source: Thompson (1933); Kaufmann, Korda and Munos (2012). A reward in (0, 1) counts as that fraction of a success.

    Attributes:
      successes, failures: `[]` prior successes and failures, each at least 1.
    """

    def act(self, key: Array, state: ArmStatistics, obs: tuple[()], t: Array) -> Choice:
        del obs, t
        sample = draws.beta(key, *self.posterior(state))
        return numerics.argmax(sample), {"sample": sample}


MOST_PRIOR = 20  # See `upper_quantile`.


@struct.dataclass
class BayesUCB(BetaPosteriorPolicy):
    """Uses the model whose beta posterior has the largest quantile of level `1 - 1 / t`.

    Its regret attains the Lai-Robbins lower bound. The quantile takes a fixed number of operations.

    Source: Kaufmann, Cappe and Garivier (2012), Algorithm 1, with `c = 0` in the level `1 - 1 / (t (log T)^c)`, as in their experiments; their proof
    has `c = 5`.

    Differs from the paper: `t` is 2 in the first round, so the first level is 1/2 and not 0. A reward in (0, 1) counts as that fraction of a success.

    Attributes:
      successes, failures: `[]` prior successes and failures, each at least 1. Their sum must be at most 20; up to 20 the error of the quantile is at
        most 2.5e-4 standard deviations.
    """

    def check(self) -> None:
        super().check()
        total = np.max(np.add(self.successes, self.failures))
        if total > MOST_PRIOR:
            raise ValueError(f"successes + failures must be at most {MOST_PRIOR}, the range of the quantile, got {total:g}")

    def act(self, key: Array, state: ArmStatistics, obs: tuple[()], t: Array) -> Choice:
        del key, obs
        log_tail = -jnp.log(jnp.asarray(t, state.reward_sum.dtype) + 2.0)
        bound = upper_quantile(*self.posterior(state), log_tail, -ndtri(jnp.exp(log_tail)))
        return numerics.argmax(bound, order=state.order), {"bound": bound}
