"""Optimal policy: StageRoute with the true mean rewards and costs instead of confidence bounds."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core.protocols import Info
from jaxroute.core.types import FixedPolicy, Leaf, UnplannedState, planned_state
from jaxroute.problems.staged.env import MarketEnv
from jaxroute.problems.staged.parts.routing import Routing
from jaxroute.problems.staged.stageroute import StageRoute
from jaxroute.problems.staged.types import POLICY_METRICS, Action, Observation, SlotState, StagedSpec, Statistics


@struct.dataclass
class _StageRouteWithoutRadius(StageRoute):
    """StageRoute without confidence radius. Its bounds are `reward_sum` and `cost_sum` of the statistics, where the oracle stores the true means."""

    def bounds(self, statistics: Statistics, known_costs: tuple[Leaf, Leaf]) -> tuple[Array, Array]:
        del known_costs
        return statistics.reward_sum, statistics.cost_sum


@struct.dataclass
class OracleState:
    """State of the oracle: the state of StageRoute, and the routing of the current stage.

    Attributes:
      slots: state of StageRoute, with the true means as its statistics.
      routing: probability of each deployed model, the same for a whole stage, since true means and budget do not change.
    """

    slots: SlotState
    routing: Routing


@struct.dataclass
class Oracle(FixedPolicy):
    """Policy that deploys and routes optimally for the true means. Source: StageRoute, section 6, "Oracle".

    It runs StageRoute's code for deployment and routing, and has an expected regret of zero if that code is correct.

    Attributes:
      reward_mean, cost_mean: `[N]` true mean rewards and costs.
      policy: variant of StageRoute that uses the true means as bounds (static).
    """

    reward_mean: Leaf
    cost_mean: Leaf
    policy: StageRoute = struct.field(pytree_node=False, default=_StageRouteWithoutRadius())

    @classmethod
    def of(cls, env: MarketEnv) -> "Oracle":
        return cls(reward_mean=env.outcomes.reward_mean, cost_mean=env.outcomes.cost_mean)

    metrics = POLICY_METRICS

    def init(self, key: Array, spec: StagedSpec) -> UnplannedState[OracleState]:
        state = self.policy.init(key, spec).state
        means = Statistics.of(
            pulls=jnp.ones_like(state.book.pulls),
            reward_sum=jnp.asarray(self.reward_mean, jnp.float32),
            cost_sum=jnp.asarray(self.cost_mean, jnp.float32),
        )
        nowhere = Routing(jnp.zeros_like(state.slot_capacity), jnp.zeros(()), jnp.zeros((), bool))
        return UnplannedState(OracleState(state.replace(book=means), nowhere))

    def plan(self, key: Array, state: OracleState | UnplannedState[OracleState], obs: Observation, t: Array) -> OracleState:
        slots = self.policy.plan(key, planned_state(state).slots, obs, t)
        return OracleState(slots, self.policy.route_next(slots, obs))

    def act(self, key: Array, state: OracleState, obs: Observation, t: Array) -> tuple[Action, Info]:
        del t
        return self.policy.serve(key, state.slots, obs, state.routing)
