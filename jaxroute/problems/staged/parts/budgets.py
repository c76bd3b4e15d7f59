"""Budget of a query."""

import abc
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxroute.problems.staged.types import Observation


class BudgetRule(abc.ABC):
    """Budget of RouteOPT for each query."""

    @abc.abstractmethod
    def budget(self, obs: Observation) -> jax.Array:
        """Returns the mean cost `[]` that the routing of the query may have."""


@dataclass(frozen=True)
class FixedBudget(BudgetRule):
    """Budget per query that never changes; overspending is measured, not corrected.

    Source: StageRoute, Algorithm 1.
    """

    def budget(self, obs: Observation) -> jax.Array:
        return obs.budget


@dataclass(frozen=True)
class Pace(BudgetRule):
    """Remaining budget divided by the remaining queries, between 0 and five times the budget per query. Not in the paper."""

    def budget(self, obs: Observation) -> jax.Array:
        left = obs.budget - obs.overspend / obs.rounds_left.astype(jnp.float32)
        return jnp.clip(left, 0.0, 5.0 * obs.budget)
