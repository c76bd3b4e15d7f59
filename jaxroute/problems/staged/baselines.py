"""Policies to compare StageRoute with: the paper's Greedy, and extra comparators that are not in the paper.

Each is StageRoute with another choice of the models to deploy, and some with another routing.
"""

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import draws, numerics
from jaxroute.problems.staged.parts.deployment import Deployment, deploy
from jaxroute.problems.staged.parts.routing import RouteByLP, Routing, RoutingRule
from jaxroute.problems.staged.stageroute import StageRoute
from jaxroute.problems.staged.types import Observation, SlotState


@struct.dataclass
class Greedy(StageRoute):
    """Deploys the `M` available models of largest ratio of reward bound to cost bound.

    Source: StageRoute, section 6, "Greedy": an upper confidence bound on a utility, with the same bounds.

    Differs from the paper: it does not say how Greedy routes inside a stage; the default is StageRoute's linear program, as "the
    cost constraint is enforced" for all.

    Attributes:
      routing: `RouteByLP`, `RouteByRatio` or `RouteToBest` (static).
    """

    routing: RoutingRule = struct.field(pytree_node=False, default=RouteByLP(), kw_only=True)

    def choose(
        self, key: jax.Array, state: SlotState, value: jax.Array, cost: jax.Array, obs: Observation, t: jax.Array
    ) -> Deployment:
        del t
        value, priority = self.tie.apply(key, value)
        order = numerics.rank(obs.available, value / cost, -cost, -priority)
        return Deployment(obs.available & (order < state.spec.max_deployed))

    def route(self, value: jax.Array, cost: jax.Array, state: SlotState, budget: jax.Array, priority: jax.Array) -> Routing:
        return self.routing.route(value, cost, state, budget, priority, self.lp_steps)


@struct.dataclass
class Cheapest(StageRoute):
    """Deploys the `M` models of lowest cost bound and routes as StageRoute. Not in the paper."""

    def choose(
        self, key: jax.Array, state: SlotState, value: jax.Array, cost: jax.Array, obs: Observation, t: jax.Array
    ) -> Deployment:
        del t
        value, priority = self.tie.apply(key, value)
        return Deployment(obs.available & (numerics.rank(obs.available, -cost, value, -priority) < state.spec.max_deployed))


@struct.dataclass
class RandomDeploy(StageRoute):
    """Deploys `M` random models each stage and routes as StageRoute. Not in the paper."""

    def choose(
        self, key: jax.Array, state: SlotState, value: jax.Array, cost: jax.Array, obs: Observation, t: jax.Array
    ) -> Deployment:
        del value, cost, t
        score = draws.uniform(key, obs.available.shape)
        return Deployment(obs.available & (numerics.rank(obs.available, score) < state.spec.max_deployed))


@struct.dataclass
class Uniform(RandomDeploy):
    """Deploys `M` random models each stage and routes uniformly over them; budget and capacities are ignored. Not in the paper."""

    def route(self, value: jax.Array, cost: jax.Array, state: SlotState, budget: jax.Array, priority: jax.Array) -> Routing:
        del value, cost, budget, priority
        filled = state.slot_filled.astype(jnp.float32)
        return Routing(filled / jnp.maximum(jnp.sum(filled), 1.0), jnp.zeros(()), jnp.ones((), bool))


@struct.dataclass
class Static(StageRoute):
    """Keeps StageRoute's first deployment for ever. Not in the paper."""

    def choose(
        self, key: jax.Array, state: SlotState, value: jax.Array, cost: jax.Array, obs: Observation, t: jax.Array
    ) -> Deployment:
        first = deploy(key, value, cost, obs, state.spec, self.filler, self.tie)
        deployed = jnp.where(t == 0, first.deployed, jnp.any(state.in_slots(), axis=0))
        return Deployment(deployed, converged=jnp.where(t == 0, first.converged, ~state.unfinished))
