"""Models for the slots that the best routing does not need.

DeployOPT (eq. (3)) demands exactly `M` models, but an optimal routing uses only as many as the capacities require. The other deployed
models get no traffic in it; they are the ones that are explored.
"""

import abc
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxroute.core import draws

Keys = tuple[jax.Array, jax.Array]


class Filler(abc.ABC):
    """Order in which models fill the free slots."""

    def demanded_share(self) -> float:
        """Returns the share of the traffic that every deployed model must get; above 0 all sets are enumerated."""
        return 0.0

    @abc.abstractmethod
    def keys(self, key: jax.Array, value: jax.Array, cost: jax.Array, multiplier: jax.Array) -> Keys:
        """Returns two scores `[N]` by which models are ranked, the larger first.

        Args:
          key: key of the stage.
          value: `[N]` upper bounds of rewards.
          cost: `[N]` lower bounds of costs.
          multiplier: `[]` shadow price of the budget in the best routing.
        """

    def deployed(self, ranked: jax.Array, support: jax.Array) -> jax.Array:
        """Returns the models `[N]` bool to deploy.

        Args:
          ranked: `[N]` bool, the first `M` models, fillers included.
          support: `[N]` bool, models that the best routing uses.
        """
        del support
        return ranked


@dataclass(frozen=True)
class ReducedValue(Filler):
    """Models of largest reduced value `U - multiplier * L` come first: the limit of a demand for a tiny share of each.

    A share for a model outside the support changes the value of the best routing by that share times the model's reduced value, up to a
    term that all models have in common. The best fillers are therefore those with the largest reduced value.

    Source: StageRoute, eq. (3), with the number of deployed models as an equality; the limit is ours.
    """

    def keys(self, key: jax.Array, value: jax.Array, cost: jax.Array, multiplier: jax.Array) -> Keys:
        del key
        return value - multiplier * cost, -cost


@dataclass(frozen=True)
class NoFiller(Filler):
    """Free slots stay empty: "at most M" models instead of "exactly M". Not the paper's rule; see `staged/open-choices`."""

    def keys(self, key: jax.Array, value: jax.Array, cost: jax.Array, multiplier: jax.Array) -> Keys:
        del key, multiplier
        return value, -cost

    def deployed(self, ranked: jax.Array, support: jax.Array) -> jax.Array:
        return ranked & support


@dataclass(frozen=True)
class RandomFiller(Filler):
    """Random models, as an arbitrary tie of a mixed-integer solver would give. Not the paper's rule; see `staged/open-choices`."""

    def keys(self, key: jax.Array, value: jax.Array, cost: jax.Array, multiplier: jax.Array) -> Keys:
        del cost, multiplier
        random = draws.uniform(key, value.shape)
        return random, random


@dataclass(frozen=True)
class IndexFiller(Filler):
    """Models of lowest index come first. Not the paper's rule; see `staged/open-choices`."""

    def keys(self, key: jax.Array, value: jax.Array, cost: jax.Array, multiplier: jax.Array) -> Keys:
        del key, cost, multiplier
        return jnp.zeros_like(value), jnp.zeros_like(value)


@dataclass(frozen=True)
class MinimumShare(ReducedValue):
    """A finite share of the traffic for each of the M models; all sets are enumerated, which is exact and slow, for cross-checks.

    Attributes:
      share: share of the traffic of each deployed model.
    """

    share: float = 1e-4

    def demanded_share(self) -> float:
        return self.share
