"""Baseline policies with which StageRoute is compared: the paper's Greedy, and others that are not in the paper.

Each is StageRoute with another selection of the models to deploy; `Uniform` also routes differently.
"""

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import draws, numerics
from jaxroute.problems.staged.parts.deployment import Deployment
from jaxroute.problems.staged.parts.routing import RoutingRule, UniformRouting
from jaxroute.problems.staged.stageroute import StageRoute
from jaxroute.problems.staged.types import Observation, SlotState


@struct.dataclass
class Greedy(StageRoute):
    """Policy that deploys the `M` available models with the largest ratio of the reward's upper bound `U` to the cost's lower bound `L`.

    Source: StageRoute, section 6, "Greedy": an upper confidence bound on a utility; `U` and `L` are those of StageRoute.

    Differs from the paper, which does not say how Greedy routes queries inside a stage. By default (field `routing`) it solves StageRoute's linear
    program, since "the cost constraint is enforced" for all policies.
    """

    def choose(self, key: Array, state: SlotState, value: Array, cost: Array, obs: Observation, t: Array) -> Deployment:
        del t
        value, priority = self.tie.apply(key, value)
        order = numerics.rank(obs.available, value / cost, -cost, -priority)
        return Deployment(obs.available & (order < state.spec.max_deployed))


@struct.dataclass
class CheapestModels(StageRoute):
    """Policy that deploys the `M` models with the smallest lower bounds of mean cost, and routes like StageRoute. Not in the paper."""

    def choose(self, key: Array, state: SlotState, value: Array, cost: Array, obs: Observation, t: Array) -> Deployment:
        del t
        value, priority = self.tie.apply(key, value)
        return Deployment(obs.available & (numerics.rank(obs.available, -cost, value, -priority) < state.spec.max_deployed))


@struct.dataclass
class RandomDeploy(StageRoute):
    """Policy that deploys `M` random models in each stage, and routes like StageRoute. Not in the paper."""

    def choose(self, key: Array, state: SlotState, value: Array, cost: Array, obs: Observation, t: Array) -> Deployment:
        del value, cost, t
        score = draws.uniform(key, obs.available.shape)
        return Deployment(obs.available & (numerics.rank(obs.available, score) < state.spec.max_deployed))


@struct.dataclass
class Uniform(RandomDeploy):
    """Policy that deploys `M` random models in each stage, and sends each query to a random one of them. Not in the paper."""

    routing: RoutingRule = struct.field(pytree_node=False, default=UniformRouting(), kw_only=True)


@struct.dataclass
class FirstDeployment(StageRoute):
    """Policy that deploys in every stage the models that StageRoute selects for the first one, and routes like StageRoute. Not in the paper."""

    def choose(self, key: Array, state: SlotState, value: Array, cost: Array, obs: Observation, t: Array) -> Deployment:
        first = super().choose(key, state, value, cost, obs, t)
        deployed = jnp.where(t == 0, first.deployed, jnp.any(state.in_slots(), axis=0))
        return Deployment(deployed, converged=jnp.where(t == 0, first.converged, ~state.unfinished))
