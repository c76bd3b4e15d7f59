"""Rules that select models for the deployment slots that the best routing does not need.

DeployOPT (eq. (3)) demands exactly `M` models, but an optimal routing uses only as many as the capacities require: its support. The other deployed
models, here called fillers, get no traffic in that routing; they serve exploration.
"""

import abc
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from jaxroute.core import draws

Keys = tuple[Array, Array]


class Filler(abc.ABC):
    """Rule that selects models for the free slots, which remain when the models that the best routing uses are deployed.

    Attributes:
      share: least share of the queries that each model has in the routings that `deploy` compares; the routing of queries ignores it.
    """

    share: float = 0.0

    @abc.abstractmethod
    def keys(self, key: Array, value: Array, cost: Array, multiplier: Array) -> Keys:
        """Returns two sort keys `[N]` by which models are ranked as fillers, the larger first; the second breaks ties.

        Sort keys may depend on a random `key`, bounds `[N]` of rewards (`value`) and costs (`cost`), and the shadow price `multiplier` of the budget.
        """

    def deployed(self, ranked: Array, support: Array) -> Array:
        """Returns the mask `[N]` of models to deploy: by default `ranked`, which fills all slots; `support` marks those of the best routing."""
        del support
        return ranked


@dataclass(frozen=True)
class ReducedValue(Filler):
    """Fills free slots with the models of largest reduced value `U - multiplier * L`, for the bounds `U` of reward and `L` of cost.

    A small share of the queries for a filler changes the value of the best routing by the share times the filler's reduced value, plus a term that
    is the same for all models. So these fillers are the best ones if every deployed model must get a tiny share.

    Source: StageRoute, eq. (3), with the number of deployed models as an equality; that each model gets a share close to 0 is our assumption.
    """

    def keys(self, key: Array, value: Array, cost: Array, multiplier: Array) -> Keys:
        del key
        return value - multiplier * cost, -cost


@dataclass(frozen=True)
class NoFiller(Filler):
    """Deploys only the models that the best routing uses, so that slots may stay empty. Not the paper's rule; see the study `staged/open-choices`."""

    def keys(self, key: Array, value: Array, cost: Array, multiplier: Array) -> Keys:
        del key, multiplier
        return value, -cost

    def deployed(self, ranked: Array, support: Array) -> Array:
        return ranked & support


@dataclass(frozen=True)
class RandomFiller(Filler):
    """Fills slots that the best routing does not need with random models. Not the paper's rule; see the study `staged/open-choices`."""

    def keys(self, key: Array, value: Array, cost: Array, multiplier: Array) -> Keys:
        del cost, multiplier
        random = draws.uniform(key, value.shape)
        return random, random


@dataclass(frozen=True)
class IndexFiller(Filler):
    """Fills slots that the best routing does not need with the models of lowest index. Not the paper's rule; see the study `staged/open-choices`."""

    def keys(self, key: Array, value: Array, cost: Array, multiplier: Array) -> Keys:
        del key, cost, multiplier
        return jnp.zeros_like(value), jnp.zeros_like(value)


@dataclass(frozen=True)
class MinimumShare(ReducedValue):
    """Makes `deploy` give each model of a set at least the fraction `share` of the queries when it compares sets; used only to test `deploy`."""

    share: float = 1e-4
