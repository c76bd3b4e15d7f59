"""Order of equal models, after the cheaper has been preferred. The paper breaks ties arbitrarily."""

import abc
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from jaxroute.core import draws


class Tie(abc.ABC):
    """Order of models with equal bounds."""

    @abc.abstractmethod
    def apply(self, key: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns the values `[N]` by which models are ranked, and a priority `[N]` int32 of equal ones, lower first."""


@dataclass(frozen=True)
class RandomOrderTie(Tie):
    """Ties go by a random order of the models, drawn in each stage: the rule of all policies (`numerics.argmax`)."""

    def apply(self, key: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
        return value, draws.order(key, value.shape[-1])


@dataclass(frozen=True)
class IndexTie(Tie):
    """Ties go to the lower index."""

    def apply(self, key: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
        del key
        return value, lax.iota(jnp.int32, value.shape[-1])


@dataclass(frozen=True)
class NewestTie(Tie):
    """Ties go to the higher index, which is the model that arrived last. Not in the paper; no experiment uses it."""

    def apply(self, key: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
        del key
        return value, -lax.iota(jnp.int32, value.shape[-1])


@dataclass(frozen=True)
class RandomTie(Tie):
    """Ties are broken by a uniform perturbation of the values, drawn once per stage.

    Source: StageRoute, Lemma 7, averages over random ties. `staged/open-choices` measures the effect.

    Attributes:
      size: largest perturbation, in units of reward.
    """

    size: float = 1e-6

    def apply(self, key: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
        return value + self.size * draws.uniform(key, value.shape), lax.iota(jnp.int32, value.shape[-1])
