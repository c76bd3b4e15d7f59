"""Policies of the stochastic bandit: UCB1, Thompson sampling, epsilon-greedy."""

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf, Spec
from jaxroute.problems.stochastic.types import ArmStatistics


def _no_statistics(spec: Spec) -> ArmStatistics:
    size = (spec.num_models,)
    return ArmStatistics(pulls=jnp.zeros(size, jnp.int32), reward_sum=jnp.zeros(size, jnp.float32))


def _add(state: ArmStatistics, action: jax.Array, reward: jax.Array) -> ArmStatistics:
    chosen = numerics.one_hot(action, state.pulls.shape[-1])
    return state.replace(
        pulls=state.pulls + chosen.astype(jnp.int32),
        reward_sum=state.reward_sum + jnp.where(chosen, reward, 0.0),
    )


@struct.dataclass
class UCB1:
    """Uses the model with the largest upper confidence bound `mean + width * sqrt(log(t + 2) / pulls)`.

    A model that was never used has an infinite bound; ties go to the lower index.

    Source: Auer, Cesa-Bianchi and Fischer (2002), Fig. 1, which has `width = sqrt(2)`, for rewards in [0, 1].

    Differs from the paper: its logarithm is that of the plays so far; `t + 2` with rounds from 0 is two more, so that it is above 0 from
    the first round on.

    Attributes:
      width: `[]` multiplier of the radius, in units of reward.
    """

    width: Leaf = 2.0**0.5

    def check(self) -> None:
        checks.non_negative("width", self.width, ())

    def init(self, key: jax.Array, spec: Spec) -> ArmStatistics:
        del key
        return _no_statistics(spec)

    def act(
        self, key: jax.Array, state: ArmStatistics, obs: tuple[()], t: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        del key, obs
        share = 1.0 / jnp.maximum(state.pulls, 1).astype(jnp.float32)  # one division in place of two
        log_t = jnp.log(jnp.asarray(t, float) + 2.0).astype(share.dtype)
        radius = self.width * jnp.sqrt(log_t * share)
        bound = jnp.where(state.pulls > 0, state.reward_sum * share + radius, jnp.inf)
        return numerics.argmax(bound), {"bound": bound}

    def update(
        self, key: jax.Array, state: ArmStatistics, obs: tuple[()], action: jax.Array, feedback: jax.Array, t: jax.Array
    ) -> ArmStatistics:
        del key, obs, t
        return _add(state, action, feedback)


@struct.dataclass
class GaussianThompson:
    """Thompson sampling with a normal posterior: uses the model with the largest posterior draw.

    The posterior of a model is normal with mean `(prior_weight * prior_mean + reward_sum) / (prior_weight + pulls)` and standard
    deviation `scale / sqrt(prior_weight + pulls)`.

    Source: Agrawal and Goyal (2013), Algorithm 1 (which has `scale = 1` and `prior_weight = 1`).

    Attributes:
      scale: `[]` standard deviation of one reward.
      prior_mean: `[]` mean of the prior, in units of reward.
      prior_weight: `[]` observations that the prior is worth.
    """

    scale: Leaf = 1.0
    prior_mean: Leaf = 0.0
    prior_weight: Leaf = 1.0

    def check(self) -> None:
        checks.non_negative("scale", self.scale, ())
        checks.numbers("prior_mean", self.prior_mean, ())
        checks.positive("prior_weight", self.prior_weight, ())

    def init(self, key: jax.Array, spec: Spec) -> ArmStatistics:
        del key
        return _no_statistics(spec)

    def act(
        self, key: jax.Array, state: ArmStatistics, obs: tuple[()], t: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        del obs, t
        weight = self.prior_weight + state.pulls.astype(jnp.float32)
        mean = (self.prior_weight * self.prior_mean + state.reward_sum) / weight
        sample = mean + self.scale * lax.rsqrt(weight) * draws.normal(key, state.pulls.shape)
        return numerics.argmax(sample), {"sample": sample}

    def update(
        self, key: jax.Array, state: ArmStatistics, obs: tuple[()], action: jax.Array, feedback: jax.Array, t: jax.Array
    ) -> ArmStatistics:
        del key, obs, t
        return _add(state, action, feedback)


@struct.dataclass
class BetaThompson:
    """Thompson sampling for Bernoulli rewards with a beta posterior.

    A beta draw is the share of one of two gamma draws; each gamma draw is the Marsaglia-Tsang method with a fixed number of
    tries, so that it has no loop of random length. It costs about 20 times a normal draw per model: prefer `GaussianThompson`
    for speed.

    Source: Thompson (1933); Kaufmann, Korda and Munos (2012). A reward in (0, 1) counts as that share of a success.

    Attributes:
      successes: `[]` prior successes, at least 1.
      failures: `[]` prior failures, at least 1.
    """

    successes: Leaf = 1.0
    failures: Leaf = 1.0

    def check(self) -> None:
        for name in ("successes", "failures"):
            value = getattr(self, name)
            checks.positive(name, value, ())
            if float(value) < 1.0:
                raise ValueError(f"{name} must be at least 1, got {float(value):g}")

    def init(self, key: jax.Array, spec: Spec) -> ArmStatistics:
        del key
        return _no_statistics(spec)

    def act(
        self, key: jax.Array, state: ArmStatistics, obs: tuple[()], t: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        del obs, t
        wins = self.successes + state.reward_sum
        losses = self.failures + (state.pulls.astype(jnp.float32) - state.reward_sum)
        sample = draws.beta(key, wins, losses)
        return numerics.argmax(sample), {"sample": sample}

    def update(
        self, key: jax.Array, state: ArmStatistics, obs: tuple[()], action: jax.Array, feedback: jax.Array, t: jax.Array
    ) -> ArmStatistics:
        del key, obs, t
        return _add(state, action, jnp.clip(feedback, 0.0, 1.0))


@struct.dataclass
class EpsilonGreedy:
    """Explores a uniformly random model with probability `min(1, epsilon)`, else uses the best empirical mean.

    Models that were never used come first, by index.

    Source: Sutton and Barto (2018), section 2.4.

    Attributes:
      epsilon: `[]` exploration probability.
    """

    epsilon: Leaf = 0.1

    def check(self) -> None:
        checks.probability("epsilon", self.epsilon, ())

    def init(self, key: jax.Array, spec: Spec) -> ArmStatistics:
        del key
        return _no_statistics(spec)

    def act(
        self, key: jax.Array, state: ArmStatistics, obs: tuple[()], t: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        del obs, t
        # Two draws of one key: making a key for each would cost as much as both.
        coin, place = (draws.uniform_at(key, number) for number in range(2))
        pulls = jnp.maximum(state.pulls, 1).astype(jnp.float32)
        best = numerics.argmax(jnp.where(state.pulls > 0, state.reward_sum / pulls, jnp.inf))
        explore = coin < self.epsilon
        size = state.pulls.shape[-1]
        anyone = jnp.minimum((place * size).astype(jnp.int32), size - 1)
        return jnp.where(explore, anyone, best), {"explored": explore.astype(jnp.float32)}

    def update(
        self, key: jax.Array, state: ArmStatistics, obs: tuple[()], action: jax.Array, feedback: jax.Array, t: jax.Array
    ) -> ArmStatistics:
        del key, obs, t
        return _add(state, action, feedback)
