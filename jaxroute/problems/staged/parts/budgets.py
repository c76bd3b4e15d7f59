"""What a query may cost."""

import abc
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxroute.problems.staged.types import Observation


class BudgetRule(abc.ABC):
    """The budget of RouteOPT, query by query."""

    @abc.abstractmethod
    def budget(self, obs: Observation) -> jax.Array:
        """Cost `[]` that the query may have on average."""


@dataclass(frozen=True)
class FixedBudget(BudgetRule):
    """The budget per query is the only control; overspending is measured.

    Source: StageRoute, Algorithm 1.
    """

    def budget(self, obs: Observation) -> jax.Array:
        return obs.budget


@dataclass(frozen=True)
class Pace(BudgetRule):
    """The budget per query is what is left, spread over the queries to come, within 0 and five times the budget.

    Not in the paper.
    """

    def budget(self, obs: Observation) -> jax.Array:
        left = obs.budget - obs.overspend / obs.rounds_left.astype(jnp.float32)
        return jnp.clip(left, 0.0, 5.0 * obs.budget)
