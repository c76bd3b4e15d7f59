"""Which deployed model serves a query."""

import abc
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxroute.core import numerics
from jaxroute.problems.staged.types import SlotState
from jaxroute.solvers.budgeted_fill import budgeted_fill


class Routing(NamedTuple):
    """How a query is routed.

    Attributes:
      amount: `[M]` probability of each slot.
      multiplier: `[]` shadow price of the budget, reward per cost; 0 where a rule knows no budget.
      feasible: `[]` bool, whether a routing within budget and capacities exists.
    """

    amount: jax.Array
    multiplier: jax.Array
    feasible: jax.Array


def route_opt(
    value: jax.Array, cost: jax.Array, state: SlotState, budget: jax.Array, priority: jax.Array, steps: int | None = None
) -> Routing:
    """RouteOPT: maximises `U . p` over `{L . p <= budget, sum p = 1, 0 <= p <= capacity}`; the cheapest routing if none is feasible.

    Source: StageRoute, eq. (7).

    Args:
      value: `[M]` upper bounds of rewards.
      cost: `[M]` lower bounds of costs.
      state: which slots are in use, and their capacities.
      budget: `[]` cost per query.
      priority: `[M]` int32, order of equal models.
      steps: dual steps of the solver (static; default by the number of slots).
    """
    solution = budgeted_fill(
        value, cost, state.slot_capacity, budget, valid=state.slot_filled, priority=priority, steps=steps
    )
    return Routing(solution.amount, solution.multiplier, solution.feasible)


class RoutingRule(abc.ABC):
    """How Greedy routes inside a stage, which the paper does not say."""

    @abc.abstractmethod
    def route(
        self,
        value: jax.Array,
        cost: jax.Array,
        state: SlotState,
        budget: jax.Array,
        priority: jax.Array,
        steps: int | None = None,
    ) -> Routing:
        """The routing of one query; arguments as for `route_opt`."""


@dataclass(frozen=True)
class RouteByLP(RoutingRule):
    """Routes by the same linear program as StageRoute."""

    def route(
        self,
        value: jax.Array,
        cost: jax.Array,
        state: SlotState,
        budget: jax.Array,
        priority: jax.Array,
        steps: int | None = None,
    ) -> Routing:
        return route_opt(value, cost, state, budget, priority, steps)


@dataclass(frozen=True)
class RouteByRatio(RoutingRule):
    """Fills the deployed models by falling ratio of the bounds, within capacities; the budget is ignored.

    What it changes: `staged/open-choices`.
    """

    def route(
        self,
        value: jax.Array,
        cost: jax.Array,
        state: SlotState,
        budget: jax.Array,
        priority: jax.Array,
        steps: int | None = None,
    ) -> Routing:
        del budget, steps
        ratio = jnp.minimum(value / jnp.where(state.slot_filled, cost, 1.0), 1e30)  # Of a free model it is not finite.
        solution = budgeted_fill(
            ratio, cost, state.slot_capacity, jnp.inf, valid=state.slot_filled, priority=priority, steps=0
        )
        return Routing(solution.amount, jnp.zeros(()), solution.feasible)


@dataclass(frozen=True)
class RouteToBest(RoutingRule):
    """Sends everything to the deployed model of largest ratio; budget and capacities are ignored.

    What it changes: `staged/open-choices`.
    """

    def route(
        self,
        value: jax.Array,
        cost: jax.Array,
        state: SlotState,
        budget: jax.Array,
        priority: jax.Array,
        steps: int | None = None,
    ) -> Routing:
        del budget, steps
        ratio = jnp.where(state.slot_filled, value / jnp.where(state.slot_filled, cost, 1.0), -1.0)
        first = numerics.rank(ratio, -cost, -priority) == 0
        return Routing((first & state.slot_filled).astype(jnp.float32), jnp.zeros(()), jnp.ones((), bool))
