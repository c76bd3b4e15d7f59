"""Rules that select the past data on which deployment and routing of a stage are based."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from jaxroute.problems.staged.types import Statistics


class Scope:
    """Rule that selects the observations of earlier stages on which a stage bases deployment and routing; by default all."""

    def write_back(self, book: Array, slots: Array) -> Array:
        """Returns the deployed models' totals `[M]` to store after a stage: by default `slots`, updated in the stage; `book` are the former ones."""
        del book
        return slots

    def retain(self, book: Statistics) -> Statistics:
        """Returns the statistics `[N]` of all models to store once those of a stage are chosen: by default `book`; a subclass may return zeros."""
        return book

    def load(self, loaded: Statistics) -> Statistics:
        """Returns the deployed models' statistics `[M]` at a stage's start: by default the stored ones, `loaded`; a subclass may return zeros."""
        return loaded


@dataclass(frozen=True)
class RunScope(Scope):
    """Bases deployment and routing on all data of the run."""


@dataclass(frozen=True)
class RoutingScope(Scope):
    """Bases deployment on all data and routing only on the rounds of the current stage.

    Source: StageRoute, section 4 (deployment by all data) with Lemma 3 (data of a stage). The study `staged/open-choices` compares regret by scope.
    """

    def write_back(self, book: Array, slots: Array) -> Array:
        return book + slots

    def load(self, loaded: Statistics) -> Statistics:
        return jax.tree.map(jnp.zeros_like, loaded)


@dataclass(frozen=True)
class StageScope(RoutingScope):
    """Resets all statistics right after each deployment, so that a deployment depends on the previous stage alone, and routing on the current one.

    Source: StageRoute, Lemma 3, read literally. The study `staged/open-choices` measures the effect.
    """

    def retain(self, book: Statistics) -> Statistics:
        return jax.tree.map(jnp.zeros_like, book)
