"""Rules for the budget of a query in RouteOPT."""

import abc
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from jaxroute.problems.staged.types import Observation


class BudgetRule(abc.ABC):
    """Rule for the budget that RouteOPT may spend on a query."""

    @abc.abstractmethod
    def budget(self, obs: Observation) -> Array:
        """Returns the mean cost, a scalar, that the routing of the query may have."""


@dataclass(frozen=True)
class FixedBudget(BudgetRule):
    """Constant budget per query; overspending is measured, not corrected. Source: StageRoute, Algorithm 1."""

    def budget(self, obs: Observation) -> Array:
        return obs.budget


@dataclass(frozen=True)
class Pace(BudgetRule):
    """Remaining budget divided by the remaining queries, clipped to between 0 and 5 times the constant budget. Not in the paper."""

    def budget(self, obs: Observation) -> Array:
        left = obs.budget - obs.overspend / obs.rounds_left.astype(jnp.float32)
        return jnp.clip(left, 0.0, 5.0 * obs.budget)
