"""Running means of observations."""

import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.typing import ArrayLike

from jaxroute.core import numerics


@struct.dataclass
class RunningMean:
    """Incremental means.

    Attributes:
      count: `[K]` int32 number of values.
      mean: `[K]` float32 means; zero without values.
      errors: rounding errors of the means, see `numerics.accumulate`.
    """

    count: Array
    mean: Array
    errors: dict[str, Array]

    @classmethod
    def empty(cls, size: int) -> "RunningMean":
        """Returns the means of `size` quantities without values."""
        return cls.prior(0, 0.0, size)

    @classmethod
    def prior(cls, count: ArrayLike, mean: ArrayLike, size: int) -> "RunningMean":
        """Returns means with pseudo-observations.

        Args:
          count: `[]` or `[K]` number of pseudo-observations.
          mean: `[]` or `[K]` their mean.
          size: number of quantities, `K`.
        """
        counts = jnp.broadcast_to(jnp.asarray(count, jnp.int32), (size,))
        means = jnp.broadcast_to(jnp.asarray(mean, jnp.float32), (size,))
        means = jnp.where(counts > 0, means, 0.0)
        return cls(counts, means, numerics.no_errors(mean=means))

    def add(self, seen: Array, value: Array) -> "RunningMean":
        """Returns the means with new values.

        Args:
          seen: `[K]` bool, observed quantities.
          value: `[K]` values.
        """
        count = self.count + seen.astype(jnp.int32)
        step = (value - self.mean) / jnp.maximum(count, 1).astype(jnp.float32)
        return numerics.accumulate(self, seen, mean=step).replace(count=count)

    def losses(self) -> Array:
        """Returns the sum `[K]` of `1 - value`, without loss of small sums among many values."""
        return self.count.astype(jnp.float32) * jnp.maximum((1.0 - self.mean) - self.errors["mean"], 0.0)
