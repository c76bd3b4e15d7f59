"""Posteriors of Thompson sampling, and the counting of outcomes between 0 and 1."""

from typing import Protocol

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import draws


class Posterior(Protocol):
    """Distribution of success probabilities."""

    def sample(self, key: jax.Array, wins: jax.Array, losses: jax.Array) -> jax.Array:
        """Draws a probability of each model `[K]`, given successes and failures `[K]`."""
        ...


@struct.dataclass
class BetaPosterior:
    """Beta(1 + successes, 1 + failures); fractional outcomes count in part."""

    def sample(self, key: jax.Array, wins: jax.Array, losses: jax.Array) -> jax.Array:
        return draws.beta(key, 1.0 + wins, 1.0 + losses)


@struct.dataclass
class NormalPosterior:
    """Normal distribution with the mean and variance of the Beta posterior: three times as fast.

    Near 0 and 1 the Beta posterior is skewed and a normal one is not. Means over runs agree, but some runs keep a set for long: on `sciq_cloud` the
    spread over runs is more than twice as large.
    """

    def sample(self, key: jax.Array, wins: jax.Array, losses: jax.Array) -> jax.Array:
        a, b = 1.0 + wins, 1.0 + losses
        total = a + b
        mean = a / total
        return mean + jnp.sqrt(mean * (b / total) / (total + 1.0)) * draws.normal(key, jnp.shape(wins))


class Grading(Protocol):
    """Counting of outcomes in [0, 1]."""

    def count(self, key: jax.Array, outcome: jax.Array) -> jax.Array:
        """Returns the successes `[K]` of outcomes `[K]`."""
        ...


@struct.dataclass
class CountInPart:
    """Counting of an outcome `x` in [0, 1] as `x` successes."""

    def count(self, key: jax.Array, outcome: jax.Array) -> jax.Array:
        del key
        return outcome


@struct.dataclass
class CountByCoin:
    """Counting of an outcome `x` in [0, 1] as a success with probability `x`. Source: Agrawal and Goyal (2012)."""

    def count(self, key: jax.Array, outcome: jax.Array) -> jax.Array:
        return (draws.uniform(key, outcome.shape) < outcome).astype(outcome.dtype)
