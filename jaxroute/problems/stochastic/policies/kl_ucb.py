"""Policies that use the Kullback-Leibler divergence of the reward distribution: KL-UCB, a confidence bound, and IMED, which needs no search."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import checks, numerics, xla
from jaxroute.core.types import Leaf
from jaxroute.estimators.families import Bernoulli, Family
from jaxroute.problems.stochastic.policies.base import SumPolicy
from jaxroute.problems.stochastic.types import ArmStatistics, Choice


@struct.dataclass
class KLUCB(SumPolicy):
    """Uses the model whose largest plausible mean is highest: `max {q : pulls kl(mean, q) <= log t + c log log t}`.

    Its regret attains the Lai-Robbins lower bound. With the Gaussian family it is UCB with the radius `scale sqrt(2 (log t + c log log t) / pulls)`.

    Source: Garivier and Cappe (2011), Algorithm 1; `t` is 1 in the first round. Their proofs have `c = 3`, and they recommend `c = 0` in
    practice, which is the default. A model that was never used comes first.

    Differs from the paper: `log log t`, which is undefined for `t = 1` and negative for `t = 2`, is replaced by 0 in these rounds.

    Attributes:
      loglog: `[]` factor `c`.
      family: family of reward distributions, for example `families.Gaussian(scale=0.5)`; the default suits rewards in [0, 1].
    """

    loglog: Leaf = 0.0
    family: Family = Bernoulli()

    def check(self) -> None:
        checks.non_negative("loglog", self.loglog, ())
        checks.part("family", self.family, "variance", "families.Bernoulli()")

    def act(self, key: Array, state: ArmStatistics, obs: tuple[()], t: Array) -> Choice:
        del key, obs
        share = 1.0 / jnp.maximum(state.pulls, 1).astype(jnp.float32)
        log_t = jnp.log(jnp.asarray(t, share.dtype) + 1.0)
        level = log_t + self.loglog * jnp.log(jnp.maximum(log_t, 1.0))
        bound = self.family.upper(state.reward_sum * share, level * share)
        bound = jnp.where(state.pulls > 0, bound, jnp.inf)
        return numerics.argmax(bound, order=state.order), {"bound": bound}


@struct.dataclass
class IMED(SumPolicy):
    """Indexed minimum empirical divergence: uses the model with the least `pulls kl(mean, largest mean) + log pulls`.

    Its regret attains the Lai-Robbins lower bound, like that of KL-UCB, with one divergence per model and no search.

    Source: Honda and Takemura (2015), IMED, with the divergence of a family of one parameter instead of that of all distributions with bounded
    rewards. A model that was never used comes first.

    Attributes:
      family: family of reward distributions, for example `families.Gaussian(scale=0.5)`; the default suits rewards in [0, 1].
    """

    family: Family = Bernoulli()

    def check(self) -> None:
        checks.part("family", self.family, "variance", "families.Bernoulli()")

    def act(self, key: Array, state: ArmStatistics, obs: tuple[()], t: Array) -> Choice:
        del key, obs, t
        pulls = jnp.maximum(state.pulls, 1).astype(jnp.float32)
        mean = xla.compute_once(state.reward_sum / pulls)
        best = jnp.broadcast_to(jnp.max(mean, axis=-1), mean.shape)
        divergence = jnp.where(mean < best, self.family.divergence(mean, best), 0.0)
        index = jnp.where(state.pulls > 0, pulls * divergence + jnp.log(pulls), -jnp.inf)
        return numerics.argmin(index, order=state.order), {"index": index}
