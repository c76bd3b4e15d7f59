"""Beliefs of the learning policies about outcomes and costs: empirical means, confidence radii, posteriors."""

from typing import Self

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import checks, draws
from jaxroute.core.types import Leaf
from jaxroute.estimators.running import RunningMean, hoeffding_radius, union_log_term
from jaxroute.problems.combinatorial.types import CombinatorialSpec, Feedback


@struct.dataclass
class Statistics:
    """State of learning policies: running means of the outcomes and costs of `K` models. Source: C2MAB-V, Algorithm 1, lines 2 and 9; eq. (6).

    Attributes:
      outcome, cost: `RunningMean` of the outcomes and of the costs: `mean` `[K]` and number of observations `count` `[K]` of each model.
      spec: properties of the environment that a policy knows, such as the number of models (static).
    """

    outcome: RunningMean
    cost: RunningMean
    spec: CombinatorialSpec = struct.field(pytree_node=False)

    def add(self, feedback: Feedback) -> Self:
        """Returns the statistics after the feedback of a round, by eq. (6)."""
        outcome = self.outcome.add(feedback.observed, feedback.outcome)
        return self.replace(outcome=outcome, cost=self.cost.add(feedback.cost_observed, feedback.cost))


@struct.dataclass
class PlainRadius:
    """Confidence radius of CUCB after `n` observations in round `t`, `sqrt(3 log t / (2 n))`. Source: Wang and Chen (2017)."""

    def radius(self, count: Array, num_models: int, t: Array) -> Array:
        """Returns the radius of each of `num_models` models after `count` `[K]` observations, in round `t` (from 1)."""
        del num_models
        return hoeffding_radius(count, 3.0 * jnp.log(t.astype(jnp.float32)))


@struct.dataclass
class UnionRadius:
    """Confidence radius of C2MAB-V with `K` models after `n` observations in round `t`, `width * sqrt(log(2 pi^2 K t^3 / (3 delta)) / (2 n))`.

    Attributes:
      width: `[]` multiplier.
      delta: `[]` largest probability that any bound of a reward or cost ever fails, for a width of 1.
    """

    width: Leaf = 1.0
    delta: Leaf = 1e-4

    def check(self) -> None:
        checks.non_negative("width", self.width, ())
        checks.share("delta", self.delta, ())

    def radius(self, count: Array, num_models: int, t: Array) -> Array:
        radius = hoeffding_radius(count, union_log_term(num_models, t, self.delta))
        return jnp.where(count > 0, self.width * radius, jnp.inf)  # Infinite also for a width of 0.


Radius = PlainRadius | UnionRadius


@struct.dataclass
class BetaPosterior:
    """Distribution Beta(1 + successes, 1 + failures), the posterior of a success probability from a uniform prior."""

    def sample(self, key: Array, wins: Array, losses: Array) -> Array:
        """Draws a success probability of each model `[K]`, given its numbers of successes `wins` and failures `losses`, which may be fractional."""
        return draws.beta(key, 1.0 + wins, 1.0 + losses)


@struct.dataclass
class NormalPosterior:
    """Normal distribution with the mean and variance of the Beta posterior, which can be drawn three times as fast.

    It lacks the skewness of the Beta posterior near 0 and 1. Results have the same mean over runs as with `BetaPosterior`, but on `sciq_cloud` they
    vary more than twice as much between runs, since some runs select one set for many rounds.
    """

    def sample(self, key: Array, wins: Array, losses: Array) -> Array:
        a, b = 1.0 + wins, 1.0 + losses
        total = a + b
        mean = a / total
        return mean + jnp.sqrt(mean * (b / total) / (total + 1.0)) * draws.normal(key, jnp.shape(wins))


Posterior = BetaPosterior | NormalPosterior


@struct.dataclass
class CountInPart:
    """Counts an outcome `x` in [0, 1] as the fraction `x` of a success."""

    def count(self, key: Array, outcome: Array) -> Array:
        """Returns how much each `outcome` `[K]`, in [0, 1], counts as a success: here the outcome itself. Rules that draw at random use `key`."""
        del key
        return outcome


@struct.dataclass
class CountByCoin:
    """Counts an outcome `x` in [0, 1] as a success with probability `x`, otherwise as a failure. Source: Agrawal and Goyal (2012)."""

    def count(self, key: Array, outcome: Array) -> Array:
        return (draws.uniform(key, outcome.shape) < outcome).astype(outcome.dtype)


Grading = CountInPart | CountByCoin
