"""The policy that attains the benchmark: StageRoute's own code with the truth in place of the bounds."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.problems.staged.env import Market
from jaxroute.problems.staged.slots import SlotRouter
from jaxroute.problems.staged.types import Statistics


@dataclass(frozen=True)
class _Known:
    """Bounds of statistics that hold the truth: the values themselves."""

    def bounds(self, statistics, policy):
        del policy
        return statistics.reward_sum, statistics.cost_sum


@struct.dataclass
class Oracle(SlotRouter):
    """Deploys and routes optimally for the true means; its expected regret is zero.

    It runs the same code as StageRoute with the truth in place of the bounds, so its regret tests the whole path.

    Source: StageRoute, section 6, "Oracle".

    reward_mean, cost_mean: `[N]` true means.
    """

    reward_mean: jax.Array | None = None
    cost_mean: jax.Array | None = None
    estimator: object = struct.field(pytree_node=False, default=_Known())

    @classmethod
    def of(cls, env: Market) -> "Oracle":
        """The oracle of an environment."""
        return cls(reward_mean=env.outcomes.reward_mean, cost_mean=env.outcomes.cost_mean)

    def init(self, key, spec):
        state = super().init(key, spec)
        truth = Statistics(
            pulls=jnp.ones_like(state.book.pulls),
            reward_sum=jnp.asarray(self.reward_mean, jnp.float32),
            cost_sum=jnp.asarray(self.cost_mean, jnp.float32),
        )
        return state.replace(book=truth)

    def update(self, key, state, obs, action, feedback, t):
        del key, obs, action, feedback, t
        return state
