"""Who gets the slots that the best routing does not need.

DeployOPT (eq. (3)) demands exactly `M` models, while an optimal routing uses as few as the capacities allow: the others get no traffic
in it, but are the ones that are explored.
"""

import abc
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxroute.core import draws

Keys = tuple[jax.Array, jax.Array]


class Filler(abc.ABC):
    """Order of the models for the free slots."""

    def demanded_share(self) -> float:
        """Share of the traffic that every deployed model must get; above 0 all sets are enumerated."""
        return 0.0

    @abc.abstractmethod
    def keys(self, key: jax.Array, value: jax.Array, cost: jax.Array, multiplier: jax.Array) -> Keys:
        """Two scores `[N]` to rank the fillers by, the larger first.

        Args:
          key: of this stage.
          value: `[N]` upper bounds of rewards.
          cost: `[N]` lower bounds of costs.
          multiplier: `[]` shadow price of the budget in the best routing.
        """

    def deployed(self, ranked: jax.Array, support: jax.Array) -> jax.Array:
        """The models `[N]` bool to deploy.

        Args:
          ranked: `[N]` bool, the `M` first, fillers included.
          support: `[N]` bool, models that the best routing uses.
        """
        del support
        return ranked


@dataclass(frozen=True)
class Reduced(Filler):
    """Fills free slots with the models of largest reduced value `U - multiplier * L`: the limit of demanding a tiny share of each.

    To give a share to a model outside the support changes the value of the best routing by that share times the model's reduced
    value, up to what all models have in common; so the best fillers are those with the largest.

    Source: StageRoute, eq. (3), reads the number of deployed models as an equality; the limit is ours.
    """

    def keys(self, key: jax.Array, value: jax.Array, cost: jax.Array, multiplier: jax.Array) -> Keys:
        del key
        return value - multiplier * cost, -cost


@dataclass(frozen=True)
class NoFiller(Filler):
    """Deploys only the models that the optimal routing uses: "at most M" in place of "exactly M". Not the paper's rule.

    What it changes: `staged/open-choices`.
    """

    def keys(self, key: jax.Array, value: jax.Array, cost: jax.Array, multiplier: jax.Array) -> Keys:
        del key, multiplier
        return value, -cost

    def deployed(self, ranked: jax.Array, support: jax.Array) -> jax.Array:
        return ranked & support


@dataclass(frozen=True)
class RandomFiller(Filler):
    """Fills free slots at random, as an arbitrary tie of a mixed-integer solver would. Not the paper's rule.

    What it changes: `staged/open-choices`.
    """

    def keys(self, key: jax.Array, value: jax.Array, cost: jax.Array, multiplier: jax.Array) -> Keys:
        del cost, multiplier
        random = draws.uniform(key, value.shape)
        return random, random


@dataclass(frozen=True)
class IndexFiller(Filler):
    """Fills free slots with the models of lowest index. Not the paper's rule.

    What it changes: `staged/open-choices`.
    """

    def keys(self, key: jax.Array, value: jax.Array, cost: jax.Array, multiplier: jax.Array) -> Keys:
        del key, cost, multiplier
        return jnp.zeros_like(value), jnp.zeros_like(value)


@dataclass(frozen=True)
class MinimumShare(Filler):
    """Demands a finite share of the traffic for each of the M models and enumerates all sets: exact and slow, for cross-checks.

    Attributes:
      share: of the traffic, for each deployed model.
    """

    share: float = 1e-4

    def demanded_share(self) -> float:
        return self.share

    def keys(self, key: jax.Array, value: jax.Array, cost: jax.Array, multiplier: jax.Array) -> Keys:
        del key
        return value - multiplier * cost, -cost
