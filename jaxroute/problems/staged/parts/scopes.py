"""Past data on which the deployment and the routing of a stage are based."""

import abc
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxroute.problems.staged.types import Statistics


class Scope(abc.ABC):
    """Statistics that are carried from one stage to the next."""

    @abc.abstractmethod
    def write_back(self, book: jax.Array, slots: jax.Array) -> jax.Array:
        """Returns one statistic `[M]` of the deployed models at the end of a stage.

        Args:
          book: `[M]` statistic up to the start of the stage.
          slots: `[M]` statistic in the slots.
        """

    @abc.abstractmethod
    def retain(self, book: Statistics) -> Statistics:
        """Returns the statistics `[N]` that later deployments use, besides those of the slots."""

    @abc.abstractmethod
    def load(self, loaded: Statistics) -> Statistics:
        """Returns the statistics `[M]` with which the routing of a stage starts."""


@dataclass(frozen=True)
class RunScope(Scope):
    """Deployment and routing use all data of the run."""

    def write_back(self, book: jax.Array, slots: jax.Array) -> jax.Array:
        del book
        return slots

    def retain(self, book: Statistics) -> Statistics:
        return book

    def load(self, loaded: Statistics) -> Statistics:
        return loaded


@dataclass(frozen=True)
class RoutingScope(Scope):
    """Deployment uses all data, routing only the rounds of the current stage.

    Source: the closest joint reading of StageRoute, section 4 and Lemma 3. `staged/open-choices` measures the effect.
    """

    def write_back(self, book: jax.Array, slots: jax.Array) -> jax.Array:
        return book + slots

    def retain(self, book: Statistics) -> Statistics:
        return book

    def load(self, loaded: Statistics) -> Statistics:
        return jax.tree.map(jnp.zeros_like, loaded)


@dataclass(frozen=True)
class StageScope(RoutingScope):
    """All sums are reset right after each deployment, which is then based on the previous stage alone.

    Source: StageRoute, Lemma 3, read literally. `staged/open-choices` measures the effect.
    """

    def retain(self, book: Statistics) -> Statistics:
        return jax.tree.map(jnp.zeros_like, book)
