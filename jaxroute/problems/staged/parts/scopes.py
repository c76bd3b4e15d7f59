"""Which past data the deployment and the routing of a stage rest on."""

import abc
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxroute.problems.staged.types import Statistics


class Scope(abc.ABC):
    """What is remembered over the start of a stage."""

    @abc.abstractmethod
    def write_back(self, book: jax.Array, slots: jax.Array) -> jax.Array:
        """One statistic `[M]` of the deployed models at the end of a stage.

        Args:
          book: `[M]` what the book has of them, up to the start of the stage.
          slots: `[M]` what the slots have.
        """

    @abc.abstractmethod
    def keep(self, book: Statistics) -> Statistics:
        """Statistics `[N]` that deployments to come rest on, besides the slots'."""

    @abc.abstractmethod
    def load(self, loaded: Statistics) -> Statistics:
        """Statistics `[M]` that the routing of a stage starts from."""


@dataclass(frozen=True)
class RunScope(Scope):
    """Deployment and routing use all data of the run."""

    def write_back(self, book: jax.Array, slots: jax.Array) -> jax.Array:
        del book
        return slots

    def keep(self, book: Statistics) -> Statistics:
        return book

    def load(self, loaded: Statistics) -> Statistics:
        return loaded


@dataclass(frozen=True)
class RoutingScope(Scope):
    """Deployment uses all data, routing only the plays of the current stage.

    Source: the closest joint reading of StageRoute, section 4 and Lemma 3. What it changes: `staged/open-choices`.
    """

    def write_back(self, book: jax.Array, slots: jax.Array) -> jax.Array:
        return book + slots

    def keep(self, book: Statistics) -> Statistics:
        return book

    def load(self, loaded: Statistics) -> Statistics:
        return jax.tree.map(jnp.zeros_like, loaded)


@dataclass(frozen=True)
class StageScope(Scope):
    """All sums are reset right after each deployment, which so rests on the stage before it alone.

    Source: StageRoute, Lemma 3, read literally. What it changes: `staged/open-choices`.
    """

    def write_back(self, book: jax.Array, slots: jax.Array) -> jax.Array:
        return book + slots

    def keep(self, book: Statistics) -> Statistics:
        return jax.tree.map(jnp.zeros_like, book)

    def load(self, loaded: Statistics) -> Statistics:
        return jax.tree.map(jnp.zeros_like, loaded)
