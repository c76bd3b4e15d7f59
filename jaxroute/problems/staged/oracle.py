"""The policy that attains the optimum: StageRoute's own code with the truth in place of the bounds."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core.types import Leaf, Metric, Unplanned
from jaxroute.problems.staged.env import MarketEnv
from jaxroute.problems.staged.stageroute import StageRoute
from jaxroute.problems.staged.types import Action, Feedback, Observation, SlotState, StagedSpec, Statistics


@struct.dataclass
class _WithoutRadius(StageRoute):
    """StageRoute that takes the statistics for the truth: one use of each model, whose reward and cost are the true means."""

    def bounds(self, statistics: Statistics, known_costs: tuple[Leaf, Leaf]) -> tuple[jax.Array, jax.Array]:
        del known_costs
        return statistics.reward_sum, statistics.cost_sum


@struct.dataclass
class Oracle:
    """Deploys and routes optimally for the true means; its expected regret is zero.

    It runs the same code as StageRoute with the truth in place of the bounds, so its regret tests the whole path.

    Source: StageRoute, section 6, "Oracle".

    Attributes:
      reward_mean: `[N]` true mean rewards.
      cost_mean: `[N]` true mean costs.
      policy: StageRoute without confidence radii (static).
    """

    reward_mean: Leaf
    cost_mean: Leaf
    policy: StageRoute = struct.field(pytree_node=False, default=_WithoutRadius())

    @classmethod
    def of(cls, env: MarketEnv) -> "Oracle":
        """The oracle of an environment."""
        return cls(reward_mean=env.outcomes.reward_mean, cost_mean=env.outcomes.cost_mean)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return self.policy.metrics

    def prefers_scan(self, spec: StagedSpec) -> bool:
        del spec
        return True  # It solves the same linear program in all rounds of a stage, XLA once: in .45 of the time of a kernel.

    def init(self, key: jax.Array, spec: StagedSpec) -> Unplanned[SlotState]:
        state = self.policy.init(key, spec).state
        truth = Statistics.of(
            pulls=jnp.ones_like(state.book.pulls),
            reward_sum=jnp.asarray(self.reward_mean, jnp.float32),
            cost_sum=jnp.asarray(self.cost_mean, jnp.float32),
        )
        return Unplanned(state.replace(book=truth))

    def plan(self, key: jax.Array, state: SlotState | Unplanned[SlotState], obs: Observation, t: jax.Array) -> SlotState:
        return self.policy.plan(key, state, obs, t)

    def act(self, key: jax.Array, state: SlotState, obs: Observation, t: jax.Array) -> tuple[Action, dict[str, jax.Array]]:
        return self.policy.act(key, state, obs, t)

    def update(
        self, key: jax.Array, state: SlotState, obs: Observation, action: Action, feedback: Feedback, t: jax.Array
    ) -> SlotState:
        del key, obs, action, feedback, t
        return state
