"""Policies to compare StageRoute with: the paper's Greedy, and extra comparators that are not in the paper."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from flax import struct
from jax import lax

from jaxroute.core import draws, numerics
from jaxroute.problems.staged.deploy import deploy
from jaxroute.problems.staged.stageroute import Optimist, StageRoute
from jaxroute.solvers.budgeted_fill import budgeted_fill


@dataclass(frozen=True)
class RouteByLP:
    """Routes by the same linear programme as StageRoute."""

    def route(self, policy, value, cost, state, budget, priority):
        return Optimist.route(policy, value, cost, state, budget, priority)


@dataclass(frozen=True)
class RouteByRatio:
    """Fills the deployed models by falling ratio of the bounds, within capacities; the budget is ignored."""

    def route(self, policy, value, cost, state, budget, priority):
        del policy, budget
        ratio = value / jnp.where(state.slot_filled, cost, 1.0)
        solution = budgeted_fill(
            ratio, cost, state.slot_capacity, jnp.inf, valid=state.slot_filled, priority=priority, steps=0
        )
        return solution.amount, jnp.zeros(()), solution.feasible


@dataclass(frozen=True)
class RouteToBest:
    """Sends everything to the deployed model of largest ratio; budget and capacities are ignored."""

    def route(self, policy, value, cost, state, budget, priority):
        del policy, budget
        ratio = jnp.where(state.slot_filled, value / jnp.where(state.slot_filled, cost, 1.0), -1.0)
        first = numerics.rank(ratio, -cost, -priority) == 0
        return (first & state.slot_filled).astype(jnp.float32), jnp.zeros(()), jnp.ones((), bool)


@struct.dataclass
class Greedy(Optimist):
    """Deploys the `M` available models of largest ratio of reward bound to cost bound.

    Source: StageRoute, section 6, "Greedy": an upper confidence bound on a utility, with the same bounds.

    Differs from the paper: it does not say how Greedy routes inside a stage; the default is StageRoute's programme, as "the cost
    constraint is enforced" for all.

    routing: `RouteByLP`, `RouteByRatio` or `RouteToBest` (static).
    """

    routing: Any = struct.field(pytree_node=False, default=RouteByLP(), kw_only=True)

    def choose(self, key, state, value, cost, obs, t):
        del t
        value, priority = self.tie.apply(key, value)
        order = numerics.rank(obs.available, value / cost, -cost, -priority)
        return obs.available & (order < state.spec.max_deployed)

    def route(self, value, cost, state, budget, priority):
        return self.routing.route(self, value, cost, state, budget, priority)


@struct.dataclass
class Cheapest(Optimist):
    """Deploys the `M` models of lowest cost bound and routes as StageRoute. Not in the paper."""

    def choose(self, key, state, value, cost, obs, t):
        del key, t
        index = lax.iota(jnp.int32, value.shape[-1])
        return obs.available & (numerics.rank(obs.available, -cost, value, -index) < state.spec.max_deployed)


@struct.dataclass
class RandomDeploy(Optimist):
    """Deploys `M` random models each stage and routes as StageRoute. Not in the paper."""

    def choose(self, key, state, value, cost, obs, t):
        del value, cost, t
        score = draws.uniform(key, obs.available.shape)
        return obs.available & (numerics.rank(obs.available, score) < state.spec.max_deployed)


@struct.dataclass
class Uniform(RandomDeploy):
    """Deploys `M` random models each stage and routes uniformly over them; budget and capacities are ignored. Not in the paper."""

    def route(self, value, cost, state, budget, priority):
        del value, cost, budget, priority
        filled = state.slot_filled.astype(jnp.float32)
        return filled / jnp.maximum(jnp.sum(filled), 1.0), jnp.zeros(()), jnp.ones((), bool)


@struct.dataclass
class Static(StageRoute):
    """Keeps StageRoute's first deployment for ever. Not in the paper."""

    def choose(self, key, state, value, cost, obs, t):
        first, _ = deploy(key, value, cost, obs, state.spec, self.filler, self.tie)
        return jnp.where(t == 0, first, jnp.any(state.in_slots(), axis=0))
