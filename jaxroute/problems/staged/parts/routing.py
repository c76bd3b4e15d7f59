"""Rules that route a query to one of the deployed models."""

import abc
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxroute.core import numerics
from jaxroute.problems.staged.types import SlotState
from jaxroute.solvers.budgeted_fill import budgeted_fill


class Routing(NamedTuple):
    """Probabilities with which a query is sent to the deployed models.

    Attributes:
      amount: `[M]` probability of the model in each slot.
      multiplier: `[]` shadow price of the budget, reward per cost; 0 if the rule ignores the budget.
      feasible: `[]` bool, whether a routing within budget and capacities exists.
    """

    amount: Array
    multiplier: Array
    feasible: Array


class RoutingRule(abc.ABC):
    """Rule that gives each deployed model a share of the traffic."""

    @abc.abstractmethod
    def route(self, value: Array, cost: Array, state: SlotState, budget: Array, priority: Array) -> Routing:
        """Returns the routing of a query over the slots in use, given upper bounds `value` of rewards and lower bounds `cost` of costs, `[M]`.

        `state` has the slots' capacities; `budget` is the mean cost that the query may have. Ties go to the model of lowest `priority` `[M]`.
        """


@dataclass(frozen=True)
class RouteOPT(RoutingRule):
    """Solves a linear program: maximises `U . p` over `{L . p <= budget, sum p = 1, 0 <= p <= capacity}`. Source: StageRoute, eq. (7).

    `p` are probabilities of the models, `U` upper bounds of rewards, `L` lower bounds of costs. If no `p` meets the budget, the cheapest `p` is used.

    Attributes:
      steps: number of dual steps of the solver; None chooses it by the number of slots.
    """

    steps: int | None = None

    def route(self, value: Array, cost: Array, state: SlotState, budget: Array, priority: Array) -> Routing:
        capacity, valid = state.slot_capacity, state.slot_filled
        solution = budgeted_fill(value, cost, capacity, budget, valid=valid, priority=priority, steps=self.steps)
        return Routing(solution.amount, solution.multiplier, solution.feasible)


@dataclass(frozen=True)
class RatioRouting(RoutingRule):
    """Fills models to capacity in descending order of reward bound / cost bound; ignores the budget. See the study `staged/open-choices`."""

    def route(self, value: Array, cost: Array, state: SlotState, budget: Array, priority: Array) -> Routing:
        del budget
        capacity, valid = state.slot_capacity, state.slot_filled
        ratio = jnp.minimum(value / jnp.where(valid, cost, 1.0), 1e30)  # The ratio of a free model is not finite.
        solution = budgeted_fill(ratio, cost, capacity, jnp.inf, valid=valid, priority=priority, steps=0)
        return Routing(solution.amount, jnp.zeros(()), solution.feasible)


@dataclass(frozen=True)
class BestRatioRouting(RoutingRule):
    """Sends all queries to the model of largest reward bound / cost bound; ignores budget and capacities. See the study `staged/open-choices`."""

    def route(self, value: Array, cost: Array, state: SlotState, budget: Array, priority: Array) -> Routing:
        del budget
        ratio = jnp.where(state.slot_filled, value / jnp.where(state.slot_filled, cost, 1.0), -1.0)
        first = numerics.rank(ratio, -cost, -priority) == 0
        return Routing((first & state.slot_filled).astype(jnp.float32), jnp.zeros(()), jnp.ones((), bool))


@dataclass(frozen=True)
class UniformRouting(RoutingRule):
    """Gives all deployed models equal shares; ignores budget and capacities. Not in the paper."""

    def route(self, value: Array, cost: Array, state: SlotState, budget: Array, priority: Array) -> Routing:
        del value, cost, budget, priority
        filled = state.slot_filled.astype(jnp.float32)
        return Routing(filled / jnp.maximum(jnp.sum(filled), 1.0), jnp.zeros(()), jnp.ones((), bool))
