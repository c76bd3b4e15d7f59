"""What every policy of the staged problem does alike: statistics in slots, a plan per stage, a linear programme per query.

The rounds of a stage touch only the `M` deployed models. `plan` writes the slots' statistics back to the book of all `N` models,
chooses the next deployment and loads it into the slots in index order.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from jaxroute.core import draws, numerics
from jaxroute.core.types import Metric
from jaxroute.estimators.confidence import bernstein_radius
from jaxroute.problems.staged.deploy import IndexTie, Reduced, deploy
from jaxroute.problems.staged.types import Action, StagedSpec, Statistics
from jaxroute.solvers.budgeted_fill import budgeted_fill


def _with_radius(policy, reward_mean, cost_mean, count):
    """`mean + 2 f_rad` and `mean - 2 f_rad`, clipped to what is known in advance. Source: StageRoute, eqs. (4) and (5)."""
    reward_radius = policy.radius_multiplier * bernstein_radius(reward_mean, count, policy.gamma)
    cost_radius = policy.radius_multiplier * bernstein_radius(cost_mean, count, policy.gamma)
    upper = jnp.clip(reward_mean + reward_radius, 0.0, 1.0)
    return upper, jnp.clip(cost_mean - cost_radius, policy.cost_floor, policy.cost_ceiling)


def _per_pull(statistics: Statistics, reward_prior, cost_prior, weight):
    total = statistics.pulls.astype(jnp.float32) + weight
    return (reward_prior + statistics.reward_sum) / total, (cost_prior + statistics.cost_sum) / total


@dataclass(frozen=True)
class Mean:
    """Empirical means; a model that was never used has reward bound 1 and cost bound `cost_floor`.

    Source: StageRoute, eqs. (4) and (5). The start values are ours: the paper gives none.
    """

    def bounds(self, statistics, policy):
        used = statistics.pulls > 0
        reward, cost = _per_pull(statistics, 0.0, 0.0, jnp.where(used, 0.0, 1.0))
        upper, lower = _with_radius(policy, reward, cost, statistics.pulls + 1.0)
        return jnp.where(used, upper, 1.0), jnp.where(used, lower, policy.cost_floor)


@dataclass(frozen=True)
class Lemma3:
    """Sums divided by pulls plus one, as in the paper's Lemma 3: a new model starts at mean 0 and is hardly optimistic."""

    def bounds(self, statistics, policy):
        reward, cost = _per_pull(statistics, 0.0, 0.0, 1.0)
        return _with_radius(policy, reward, cost, statistics.pulls + 1.0)


@dataclass(frozen=True)
class Pseudo:
    """One virtual observation of reward 1 and cost `cost_floor`, which agrees with the `N + 1` in the radius. Not in the paper."""

    def bounds(self, statistics, policy):
        reward, cost = _per_pull(statistics, 1.0, policy.cost_floor, 1.0)
        return _with_radius(policy, reward, cost, statistics.pulls + 1.0)


@dataclass(frozen=True)
class Prior:
    """Empirical means; a model that was never used has the given means.

    Source: StageRoute, appendix, before Lemma 7.
    """

    reward: float = 1.0
    cost: float = 0.0

    def bounds(self, statistics, policy):
        used = statistics.pulls > 0
        reward, cost = _per_pull(statistics, 0.0, 0.0, jnp.where(used, 0.0, 1.0))
        reward, cost = jnp.where(used, reward, self.reward), jnp.where(used, cost, self.cost)
        return _with_radius(policy, reward, cost, statistics.pulls + 1.0)


@dataclass(frozen=True)
class RunScope:
    """Deployment and routing use all data of the run."""

    def write_back(self, book, slots):
        del book
        return slots

    def keep(self, book):
        return book

    def load(self, loaded):
        return loaded


@dataclass(frozen=True)
class RoutingScope:
    """Deployment uses all data, routing only the plays of the current stage.

    Source: the closest joint reading of the paper's section 4 and Lemma 3.
    """

    def write_back(self, book, slots):
        return book + slots

    def keep(self, book):
        return book

    def load(self, loaded):
        return jax.tree.map(jnp.zeros_like, loaded)


@dataclass(frozen=True)
class StageScope:
    """All sums are reset right after each deployment, which so rests on the stage before it alone."""

    def write_back(self, book, slots):
        return book + slots

    def keep(self, book):
        return jax.tree.map(jnp.zeros_like, book)

    def load(self, loaded):
        return jax.tree.map(jnp.zeros_like, loaded)


@dataclass(frozen=True)
class FixedBudget:
    """The budget per query is the only control; overspending is measured. Source: StageRoute, Algorithm 1."""

    def budget(self, obs):
        return obs.budget


@dataclass(frozen=True)
class Pace:
    """The budget per query is what is left, spread over the queries to come, within 0 and five times the budget. Not in the paper."""

    def budget(self, obs):
        left = obs.budget - obs.overspend / obs.rounds_left.astype(jnp.float32)
        return jnp.clip(left, 0.0, 5.0 * obs.budget)


@struct.dataclass
class SlotState:
    """State of every staged policy.

    book: statistics `[N]` of all models, up to the start of the stage. slots: statistics `[M]` of the deployed ones.
    slot_model: `[M]` int32, model in each slot, in ascending order. slot_filled: `[M]` bool. slot_capacity: `[M]`.
    spec: sizes (static).
    """

    book: Statistics
    slots: Statistics
    slot_model: jax.Array
    slot_filled: jax.Array
    slot_capacity: jax.Array
    spec: StagedSpec = struct.field(pytree_node=False)

    def in_slots(self):
        """`[M, N]` bool: model `n` is in slot `m`."""
        here = self.slot_model[:, None] == lax.iota(jnp.int32, self.spec.num_models)[None, :]
        return here & self.slot_filled[:, None]


@struct.dataclass
class SlotRouter:
    """Base of the staged policies: DeployOPT per stage, RouteOPT per query. A policy may choose or route otherwise.

    estimator, scope, filler, tie, budget_mode: choices of behaviour (static objects of this module and of `deploy`).
    lp_steps: dual steps of the routing programme (static; default by the number of slots).
    """

    estimator: Any = struct.field(pytree_node=False, default=Mean(), kw_only=True)
    scope: Any = struct.field(pytree_node=False, default=RunScope(), kw_only=True)
    filler: Any = struct.field(pytree_node=False, default=Reduced(), kw_only=True)
    tie: Any = struct.field(pytree_node=False, default=IndexTie(), kw_only=True)
    budget_mode: Any = struct.field(pytree_node=False, default=FixedBudget(), kw_only=True)
    lp_steps: int | None = struct.field(pytree_node=False, default=None, kw_only=True)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (
            Metric("infeasible_share", "share of queries without feasible routing", "", "average"),
            Metric("multiplier", "shadow price of the budget", "reward per cost", "average", default=False),
        )

    def choose(self, key, state: SlotState, value, cost, obs, t):
        """The models `[N]` bool to deploy, from the bounds of their rewards and costs: here by DeployOPT."""
        del t
        return deploy(key, value, cost, obs, state.spec, self.filler, self.tie)[0]

    def route(self, value, cost, state: SlotState, budget, priority):
        """Routing probabilities `[M]` over the slots, the budget's multiplier, and whether the programme was feasible.

        Here by RouteOPT.
        """
        solution = budgeted_fill(
            value, cost, state.slot_capacity, budget, valid=state.slot_filled, priority=priority, steps=self.lp_steps
        )
        return solution.amount, solution.multiplier, solution.feasible

    def init(self, key, spec: StagedSpec) -> SlotState:
        del key

        def empty(size):
            zeros = jnp.zeros((size,), jnp.float32)
            return Statistics(pulls=jnp.zeros((size,), jnp.int32), reward_sum=zeros, cost_sum=zeros)

        slots = min(spec.max_deployed, spec.num_models)
        return SlotState(
            book=empty(spec.num_models),
            slots=empty(slots),
            slot_model=jnp.zeros((slots,), jnp.int32),
            slot_filled=jnp.zeros((slots,), bool),
            slot_capacity=jnp.zeros((slots,), jnp.float32),
            spec=spec,
        )

    def plan(self, key, state: SlotState, obs, t) -> SlotState:
        in_slots = state.in_slots()

        def write_back(book, slots):
            before = jnp.sum(jnp.where(in_slots, book[None, :], 0), axis=1).astype(book.dtype)
            after = self.scope.write_back(before, slots)
            spread = jnp.sum(jnp.where(in_slots, after[:, None], 0), axis=0).astype(book.dtype)
            return jnp.where(jnp.any(in_slots, axis=0), spread, book)

        book = jax.tree.map(write_back, state.book, state.slots)
        value, cost = self.estimator.bounds(book, self)
        deployed = self.choose(key, state.replace(book=book), value, cost, obs, t) & obs.available
        position = numerics.prefix_sums(deployed.astype(jnp.float32)).astype(jnp.int32) - 1
        slots = state.slot_model.shape[-1]
        load = (position[None, :] == lax.iota(jnp.int32, slots)[:, None]) & deployed[None, :]

        def take(values):
            return jnp.sum(jnp.where(load, values[None, :], 0), axis=1).astype(values.dtype)

        return state.replace(
            book=self.scope.keep(book),
            slots=self.scope.load(jax.tree.map(take, book)),
            slot_model=take(lax.iota(jnp.int32, state.spec.num_models)),
            slot_filled=jnp.any(load, axis=1),
            slot_capacity=take(obs.capacity),
        )

    def act(self, key, state: SlotState, obs, t):
        del t
        value, cost = self.estimator.bounds(state.slots, self)
        _, priority = self.tie.apply(key, value)
        budget = self.budget_mode.budget(obs)
        amount, multiplier, feasible = self.route(value, cost, state, budget, priority)
        slot = numerics.one_hot(numerics.inverse_cdf(amount, draws.uniform(key)), amount.shape[-1])
        in_slots = state.in_slots()
        action = Action(
            model=numerics.pick(slot, state.slot_model),
            probabilities=jnp.sum(jnp.where(in_slots, amount[:, None], 0.0), axis=0),
            deployed=jnp.any(in_slots, axis=0),
        )
        info = {
            "infeasible_share": 1.0 - feasible.astype(jnp.float32),
            "multiplier": multiplier,
            "reward_ucb": value,
            "cost_lcb": cost,
        }
        return action, info

    def update(self, key, state: SlotState, obs, action, feedback, t) -> SlotState:
        del key, obs, t
        slot = (state.slot_model == action.model) & state.slot_filled
        slots = Statistics(
            pulls=state.slots.pulls + slot.astype(jnp.int32),
            reward_sum=state.slots.reward_sum + jnp.where(slot, feedback.reward, 0.0),
            cost_sum=state.slots.cost_sum + jnp.where(slot, feedback.cost, 0.0),
        )
        return state.replace(slots=slots)
