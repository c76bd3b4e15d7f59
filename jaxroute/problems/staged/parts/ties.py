"""Rules that break ties between models of equal value and cost. The paper breaks ties arbitrarily."""

import abc
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array, lax

from jaxroute.core import draws


class Tie(abc.ABC):
    """Rule that orders models with equal confidence bounds."""

    @abc.abstractmethod
    def apply(self, key: Array, value: Array) -> tuple[Array, Array]:
        """Returns the reward bounds `value` `[N]`, perhaps with random terms, and int32 priorities `[N]`; of equal models, lower priority wins."""


@dataclass(frozen=True)
class RandomOrderTie(Tie):
    """Breaks ties by a random order of the models, drawn in each stage. Policies of other problems draw one per run (`numerics.argmax`)."""

    def apply(self, key: Array, value: Array) -> tuple[Array, Array]:
        return value, draws.order(key, value.shape[-1])


@dataclass(frozen=True)
class IndexTie(Tie):
    """Prefers the lower index among equal models."""

    def apply(self, key: Array, value: Array) -> tuple[Array, Array]:
        del key
        return value, lax.iota(jnp.int32, value.shape[-1])


@dataclass(frozen=True)
class NewestTie(Tie):
    """Prefers the higher index, which is the model that arrived last. Not in the paper; no experiment uses it."""

    def apply(self, key: Array, value: Array) -> tuple[Array, Array]:
        del key
        return value, -lax.iota(jnp.int32, value.shape[-1])


@dataclass(frozen=True)
class RandomTie(Tie):
    """Breaks ties by adding a uniform random number to each reward bound, drawn once per stage.

    Source: StageRoute, Lemma 7, which averages over random ties. The study `staged/open-choices` measures the effect.

    Attributes:
      size: largest number that is added, in units of reward.
    """

    size: float = 1e-6

    def apply(self, key: Array, value: Array) -> tuple[Array, Array]:
        return value + self.size * draws.uniform(key, value.shape), lax.iota(jnp.int32, value.shape[-1])
