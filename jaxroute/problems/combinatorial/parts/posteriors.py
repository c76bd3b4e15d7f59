"""What Thompson sampling draws, and what an outcome between 0 and 1 counts as."""

from typing import Protocol

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import draws


class Posterior(Protocol):
    """A distribution of success probabilities."""

    def sample(self, key: jax.Array, wins: jax.Array, losses: jax.Array) -> jax.Array:
        """One probability of each model `[K]` after so many successes and failures `[K]`."""
        ...


@struct.dataclass
class BetaPosterior:
    """Draws from Beta(1 + successes, 1 + failures); fractional outcomes count in part."""

    def sample(self, key: jax.Array, wins: jax.Array, losses: jax.Array) -> jax.Array:
        return draws.beta(key, 1.0 + wins, 1.0 + losses)


@struct.dataclass
class NormalPosterior:
    """Normal draws with the mean and variance of the Beta posterior: three times as fast.

    Near 0 and 1 the Beta posterior is skewed and a normal one is not: means over runs agree, but some runs keep to a set for long, so that on
    `sciq_cloud` the spread over runs is more than twice as large.
    """

    def sample(self, key: jax.Array, wins: jax.Array, losses: jax.Array) -> jax.Array:
        a, b = 1.0 + wins, 1.0 + losses
        total = a + b
        mean = a / total
        return mean + jnp.sqrt(mean * (b / total) / (total + 1.0)) * draws.normal(key, jnp.shape(wins))


class Grading(Protocol):
    """What outcomes in [0, 1] count as."""

    def count(self, key: jax.Array, outcome: jax.Array) -> jax.Array:
        """Successes `[K]` of outcomes `[K]`."""
        ...


@struct.dataclass
class CountInPart:
    """An outcome `x` in [0, 1] counts as `x` of a success."""

    def count(self, key: jax.Array, outcome: jax.Array) -> jax.Array:
        del key
        return outcome


@struct.dataclass
class CountByCoin:
    """An outcome `x` in [0, 1] counts as a success with probability `x`. Source: Agrawal and Goyal (2012)."""

    def count(self, key: jax.Array, outcome: jax.Array) -> jax.Array:
        return (draws.uniform(key, outcome.shape) < outcome).astype(outcome.dtype)
