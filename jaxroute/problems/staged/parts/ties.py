"""Which of equal models comes first, once the cheaper has been preferred. The paper breaks ties arbitrarily."""

import abc
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from jaxroute.core import draws


class Tie(abc.ABC):
    """Order of models that bounds do not tell apart."""

    @abc.abstractmethod
    def apply(self, key: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The values `[N]` to rank by, and a priority `[N]` int32 for what is still equal: lower first."""


@dataclass(frozen=True)
class DrawnTie(Tie):
    """Remaining ties go by a random order of the models, drawn in each stage: the rule of all policies (`numerics.argmax`)."""

    def apply(self, key: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
        return value, draws.order(key, value.shape[-1])


@dataclass(frozen=True)
class IndexTie(Tie):
    """Remaining ties go to the lower index."""

    def apply(self, key: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
        del key
        return value, lax.iota(jnp.int32, value.shape[-1])


@dataclass(frozen=True)
class NewestTie(Tie):
    """Remaining ties go to the higher index, that is to the model that arrived last.

    Ours, for markets in which new models should be tried first. No experiment uses it.
    """

    def apply(self, key: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
        del key
        return value, -lax.iota(jnp.int32, value.shape[-1])


@dataclass(frozen=True)
class RandomTie(Tie):
    """Ties are broken by a uniform perturbation of the values, drawn once per stage.

    Source: StageRoute, Lemma 7, averages over random ties. What it changes: `staged/open-choices`.

    Attributes:
      size: the largest perturbation, in units of reward.
    """

    size: float = 1e-6

    def apply(self, key: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
        return value + self.size * draws.uniform(key, value.shape), lax.iota(jnp.int32, value.shape[-1])
