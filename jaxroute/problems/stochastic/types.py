"""Values that pass between environment and policies of the stochastic bandit."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import draws, numerics, xla
from jaxroute.core.types import Leaf, Metric, Spec

METRICS = (
    Metric("regret", "cumulative regret", "reward", "total"),
    Metric("reward", "mean reward", "reward per round", "average"),
    Metric("pulls", "times each model was used", "rounds", "total", ("model",), default=False),
)


@struct.dataclass
class ArmStatistics:
    """Sufficient statistics of every model.

    Attributes:
      pulls: `[K]` int32, times each model was used.
      reward_sum: `[K]` float32, total reward of each.
      errors: rounding errors of the sums, see `numerics.accumulate`.
      order: `[K]` int32, of ties; see `numerics.argmax`.
    """

    pulls: jax.Array
    reward_sum: jax.Array
    errors: dict[str, jax.Array]
    order: jax.Array | None = None

    @classmethod
    def of(cls, pulls: jax.Array, reward_sum: jax.Array, order: jax.Array | None = None) -> "ArmStatistics":
        """Statistics with exact sums."""
        return cls(pulls, reward_sum, numerics.no_errors(reward_sum=reward_sum), order)


def no_statistics(key: jax.Array, spec: Spec) -> ArmStatistics:
    """Statistics of models that were never used; the key draws the order of ties."""
    zeros = jnp.zeros((spec.num_models,), jnp.float32)
    return ArmStatistics.of(zeros.astype(jnp.int32), zeros, draws.order(key, spec.num_models))


def added(state: ArmStatistics, action: jax.Array, reward: jax.Array) -> ArmStatistics:
    """With one more reward of the model that was used."""
    chosen = numerics.one_hot(action, state.pulls.shape[-1])
    # That model's sum alone is added up, and written back: in a scan faster than `numerics.accumulate` for all models.
    error = state.errors["reward_sum"]
    new = xla.compute_once(numerics.add_up(numerics.pick(chosen, state.reward_sum), numerics.pick(chosen, error), reward))
    return state.replace(
        pulls=state.pulls + chosen.astype(jnp.int32),
        reward_sum=jnp.where(chosen, new[0], state.reward_sum),
        errors={"reward_sum": jnp.where(chosen, new[1], error)},
    )


def rounds_of(spec: Spec, horizon: Leaf | None) -> jax.Array:
    """The rounds that a policy is made for, `[]` float32: the horizon that it was given, or else the run's."""
    rounds = spec.horizon if horizon is None else horizon
    if rounds is None:
        raise ValueError("horizon must be given where no run gives it")
    return jnp.asarray(rounds, jnp.float32)
