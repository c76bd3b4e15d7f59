"""Optimal policy: StageRoute's code with the true means instead of the bounds."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core.types import Leaf, UnplannedState, planned_state
from jaxroute.problems.staged.env import MarketEnv
from jaxroute.problems.staged.parts.routing import Routing
from jaxroute.problems.staged.stageroute import StageRoute
from jaxroute.problems.staged.types import POLICY_METRICS, Action, Feedback, Observation, SlotState, StagedSpec, Statistics


@struct.dataclass
class _StageRouteWithoutRadius(StageRoute):
    """StageRoute whose bounds are the sums in the statistics, for statistics of one pull per model with the true means."""

    def bounds(self, statistics: Statistics, known_costs: tuple[Leaf, Leaf]) -> tuple[jax.Array, jax.Array]:
        del known_costs
        return statistics.reward_sum, statistics.cost_sum


@struct.dataclass
class OracleState:
    """State of the oracle.

    Attributes:
      slots: state of StageRoute.
      routing: `[M]` solution of the linear program, the same for all queries of a stage: neither true means nor budget change in it.
    """

    slots: SlotState
    routing: Routing


@struct.dataclass
class Oracle:
    """Deploys and routes optimally for the true means; its expected regret is zero.

    It runs the same code as StageRoute with the true means instead of the bounds, so its regret tests the whole path.

    Source: StageRoute, section 6, "Oracle".

    Attributes:
      reward_mean: `[N]` true mean rewards.
      cost_mean: `[N]` true mean costs.
      policy: StageRoute without confidence radii (static).
    """

    reward_mean: Leaf
    cost_mean: Leaf
    policy: StageRoute = struct.field(pytree_node=False, default=_StageRouteWithoutRadius())

    @classmethod
    def of(cls, env: MarketEnv) -> "Oracle":
        """Returns the oracle of an environment."""
        return cls(reward_mean=env.outcomes.reward_mean, cost_mean=env.outcomes.cost_mean)

    metrics = POLICY_METRICS

    def init(self, key: jax.Array, spec: StagedSpec) -> UnplannedState[OracleState]:
        state = self.policy.init(key, spec).state
        means = Statistics.of(
            pulls=jnp.ones_like(state.book.pulls),
            reward_sum=jnp.asarray(self.reward_mean, jnp.float32),
            cost_sum=jnp.asarray(self.cost_mean, jnp.float32),
        )
        nowhere = Routing(jnp.zeros_like(state.slot_capacity), jnp.zeros(()), jnp.zeros((), bool))
        return UnplannedState(OracleState(state.replace(book=means), nowhere))

    def plan(
        self, key: jax.Array, state: OracleState | UnplannedState[OracleState], obs: Observation, t: jax.Array
    ) -> OracleState:
        slots = self.policy.plan(key, planned_state(state).slots, obs, t)
        return OracleState(slots, self.policy.route_next(slots, obs))

    def act(self, key: jax.Array, state: OracleState, obs: Observation, t: jax.Array) -> tuple[Action, dict[str, jax.Array]]:
        del t
        return self.policy.serve(key, state.slots, obs, state.routing)

    def update(
        self, key: jax.Array, state: OracleState, obs: Observation, action: Action, feedback: Feedback, t: jax.Array
    ) -> OracleState:
        del key, obs, action, feedback, t
        return state
