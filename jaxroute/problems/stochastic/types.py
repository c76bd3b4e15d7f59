"""Values shared by environment and policies of the stochastic bandit."""

from typing import Self

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import draws, numerics, xla
from jaxroute.core.types import Leaf, Metric, Spec

METRICS = (
    Metric("regret", "cumulative regret", "reward", "total"),
    Metric("reward", "mean reward", "reward per round", "average"),
    Metric("pulls", "times each model was used", "rounds", "total", ("model",), default=False),
)

# Chosen model `[]` int32, and values that can be recorded.
Choice = tuple[Array, dict[str, Array]]


@struct.dataclass
class ArmStatistics:
    """State of most policies: number of uses and total reward of each of `K` models.

    Attributes:
      pulls: `[K]` int32, uses of each model.
      reward_sum: `[K]` float32, total reward of each model.
      errors: rounding errors of the sums, see `numerics.accumulate`.
      order: `[K]` int32, ranks by which ties are broken; see `numerics.argmax`.
    """

    pulls: Array
    reward_sum: Array
    errors: dict[str, Array]
    order: Array | None = None

    @classmethod
    def of(cls, pulls: Array, reward_sum: Array, order: Array | None = None) -> Self:
        return cls(pulls, reward_sum, numerics.no_errors(reward_sum=reward_sum), order)

    @classmethod
    def empty(cls, key: Array, num_models: int) -> Self:
        """Returns statistics without observations; `key` draws the order in which ties are broken."""
        zeros = jnp.zeros((num_models,), jnp.float32)
        return cls.of(zeros.astype(jnp.int32), zeros, draws.order(key, num_models))

    def add(self, action: Array, reward: Array) -> Self:
        chosen = numerics.one_hot(action, self.pulls.shape[-1])
        # Only that model's sum is accumulated, and written back: in a scan faster than `numerics.accumulate` for all models.
        error = self.errors["reward_sum"]
        new = xla.compute_once(numerics.add_up(numerics.pick(chosen, self.reward_sum), numerics.pick(chosen, error), reward))
        return self.replace(
            pulls=self.pulls + chosen.astype(jnp.int32),
            reward_sum=jnp.where(chosen, new[0], self.reward_sum),
            errors={"reward_sum": jnp.where(chosen, new[1], error)},
        )


def rounds_of(spec: Spec, horizon: Leaf | None) -> Array:
    """Returns the number of rounds for which a policy is tuned, a float32 scalar: `horizon`, or the run's horizon if it is None."""
    rounds = spec.horizon if horizon is None else horizon
    if rounds is None:
        raise ValueError("horizon must be given where no run gives it")
    return jnp.asarray(rounds, jnp.float32)
