"""Values that pass between environment and policies of the stochastic bandit."""

import jax
from flax import struct

from jaxroute.core.types import Metric

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
    """

    pulls: jax.Array
    reward_sum: jax.Array
