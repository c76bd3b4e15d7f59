"""Bayes-UCB: a quantile of the posterior instead of a draw from it."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.scipy.special import ndtri

from jaxroute.core import numerics
from jaxroute.estimators.beta import upper_quantile
from jaxroute.problems.stochastic.policies.base import BetaPosteriorPolicy
from jaxroute.problems.stochastic.types import ArmStatistics, Choice

MOST_PRIOR = 20  # See `upper_quantile`.


@struct.dataclass
class BayesUCB(BetaPosteriorPolicy):
    """Uses the model whose beta posterior has the largest quantile of level `1 - 1 / t`.

    Its regret attains the Lai-Robbins line. The quantile takes a fixed number of operations (`estimators.beta`).

    Source: Kaufmann, Cappe and Garivier (2012), Algorithm 1, with `c = 0` in the level `1 - 1 / (t (log T)^c)`, as in their experiments; their
    proof has `c = 5`.

    Differs from the paper: `t` is 2 in the first round, so the first level is 1/2 and not 0. A reward in (0, 1) counts as that fraction of a
    success.

    Attributes:
      successes: `[]` prior successes, at least 1.
      failures: `[]` prior failures, at least 1; at most 20 with `successes`, the range of the quantile (2.5e-4 standard deviations).
    """

    def check(self) -> None:
        super().check()
        total = np.max(np.add(self.successes, self.failures))
        if total > MOST_PRIOR:
            raise ValueError(f"successes + failures must be at most {MOST_PRIOR}, the range of the quantile, got {total:g}")

    def act(self, key: jax.Array, state: ArmStatistics, obs: tuple[()], t: jax.Array) -> Choice:
        del key, obs
        log_tail = -jnp.log(jnp.asarray(t, state.reward_sum.dtype) + 2.0)
        bound = upper_quantile(*self.posterior(state), log_tail, -ndtri(jnp.exp(log_tail)))
        return numerics.argmax(bound, order=state.order), {"bound": bound}
