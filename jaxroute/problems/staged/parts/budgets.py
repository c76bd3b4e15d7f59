"""Rules for the budget of a query in RouteOPT, the linear program that routes it."""

import abc
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from jaxroute.problems.staged.types import Observation


class BudgetRule(abc.ABC):
    """Rule that sets the budget of a query in RouteOPT, the linear program that routes the query."""

    @abc.abstractmethod
    def budget(self, obs: Observation) -> Array:
        """Returns the largest expected cost of the query, a scalar, that the routing may have."""


@dataclass(frozen=True)
class FixedBudget(BudgetRule):
    """Uses the market's budget for every query; overspending is measured, not corrected. Source: StageRoute, Algorithm 1."""

    def budget(self, obs: Observation) -> Array:
        return obs.budget


@dataclass(frozen=True)
class Pace(BudgetRule):
    """Sets a query's budget to the remaining budget per remaining query, clipped to 0 to 5 times the market's budget per query. Not in the paper."""

    def budget(self, obs: Observation) -> Array:
        left = obs.budget - obs.overspend / obs.rounds_left.astype(jnp.float32)
        return jnp.clip(left, 0.0, 5.0 * obs.budget)
