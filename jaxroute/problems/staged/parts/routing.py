"""Routing of a query over the deployed models."""

import abc
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxroute.core import numerics
from jaxroute.problems.staged.types import SlotState
from jaxroute.solvers.budgeted_fill import budgeted_fill


class Routing(NamedTuple):
    """Routing of a query.

    Attributes:
      amount: `[M]` probability of each slot.
      multiplier: `[]` shadow price of the budget, reward per cost; 0 if the rule ignores the budget.
      feasible: `[]` bool, whether a routing within budget and capacities exists.
    """

    amount: jax.Array
    multiplier: jax.Array
    feasible: jax.Array


class RoutingRule(abc.ABC):
    """Rule that distributes queries over the deployed models."""

    @abc.abstractmethod
    def route(self, value: jax.Array, cost: jax.Array, state: SlotState, budget: jax.Array, priority: jax.Array) -> Routing:
        """Returns the routing of one query.

        Args:
          value: `[M]` upper bounds of rewards.
          cost: `[M]` lower bounds of costs.
          state: slots that are in use, and their capacities.
          budget: `[]` cost per query.
          priority: `[M]` int32, order of equal models.
        """


@dataclass(frozen=True)
class RouteOPT(RoutingRule):
    """Linear program: maximises `U . p` over `{L . p <= budget, sum p = 1, 0 <= p <= capacity}`; the cheapest routing if it is infeasible.

    Source: StageRoute, eq. (7).

    Attributes:
      steps: dual steps of the solver (default: by the number of slots).
    """

    steps: int | None = None

    def route(self, value: jax.Array, cost: jax.Array, state: SlotState, budget: jax.Array, priority: jax.Array) -> Routing:
        capacity, valid = state.slot_capacity, state.slot_filled
        solution = budgeted_fill(value, cost, capacity, budget, valid=valid, priority=priority, steps=self.steps)
        return Routing(solution.amount, solution.multiplier, solution.feasible)


@dataclass(frozen=True)
class RatioRouting(RoutingRule):
    """Models in order of falling ratio of the bounds, each up to its capacity; the budget is ignored. See `staged/open-choices`."""

    def route(self, value: jax.Array, cost: jax.Array, state: SlotState, budget: jax.Array, priority: jax.Array) -> Routing:
        del budget
        capacity, valid = state.slot_capacity, state.slot_filled
        ratio = jnp.minimum(value / jnp.where(valid, cost, 1.0), 1e30)  # The ratio of a free model is not finite.
        solution = budgeted_fill(ratio, cost, capacity, jnp.inf, valid=valid, priority=priority, steps=0)
        return Routing(solution.amount, jnp.zeros(()), solution.feasible)


@dataclass(frozen=True)
class BestRatioRouting(RoutingRule):
    """All traffic to the deployed model of largest ratio; budget and capacities are ignored. See `staged/open-choices`."""

    def route(self, value: jax.Array, cost: jax.Array, state: SlotState, budget: jax.Array, priority: jax.Array) -> Routing:
        del budget
        ratio = jnp.where(state.slot_filled, value / jnp.where(state.slot_filled, cost, 1.0), -1.0)
        first = numerics.rank(ratio, -cost, -priority) == 0
        return Routing((first & state.slot_filled).astype(jnp.float32), jnp.zeros(()), jnp.ones((), bool))


@dataclass(frozen=True)
class UniformRouting(RoutingRule):
    """Equal shares of all deployed models; budget and capacities are ignored. Not in the paper."""

    def route(self, value: jax.Array, cost: jax.Array, state: SlotState, budget: jax.Array, priority: jax.Array) -> Routing:
        del value, cost, budget, priority
        filled = state.slot_filled.astype(jnp.float32)
        return Routing(filled / jnp.maximum(jnp.sum(filled), 1.0), jnp.zeros(()), jnp.ones((), bool))
