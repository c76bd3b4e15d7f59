"""Running means of what was observed."""

import jax
import jax.numpy as jnp
from flax import struct
from jax.typing import ArrayLike

from jaxroute.core import numerics


@struct.dataclass
class RunningMean:
    """Incremental means.

    Attributes:
      count: `[K]` int32 values seen.
      mean: `[K]` float32, zero where nothing was seen.
      errors: rounding errors of the means, see `numerics.accumulate`.
    """

    count: jax.Array
    mean: jax.Array
    errors: dict[str, jax.Array]

    @classmethod
    def empty(cls, size: int) -> "RunningMean":
        """Nothing seen yet, of `size` quantities."""
        return cls.prior(0, 0.0, size)

    @classmethod
    def prior(cls, count: ArrayLike, mean: ArrayLike, size: int) -> "RunningMean":
        """As if values had been seen.

        Args:
          count: `[]` or `[K]`, how many.
          mean: `[]` or `[K]`, their mean.
          size: `K`.
        """
        counts = jnp.broadcast_to(jnp.asarray(count, jnp.int32), (size,))
        means = jnp.broadcast_to(jnp.asarray(mean, jnp.float32), (size,))
        means = jnp.where(counts > 0, means, 0.0)
        return cls(counts, means, numerics.no_errors(mean=means))

    def add(self, seen: jax.Array, value: jax.Array) -> "RunningMean":
        """With new values.

        Args:
          seen: `[K]` bool, which quantities were seen.
          value: `[K]`.
        """
        count = self.count + seen.astype(jnp.int32)
        step = (value - self.mean) / jnp.maximum(count, 1).astype(jnp.float32)
        return numerics.accumulate(self, seen, mean=step).replace(count=count)

    def losses(self) -> jax.Array:
        """`[K]` sum of `1 - value`, of which few are not lost among many values."""
        return self.count.astype(jnp.float32) * jnp.maximum((1.0 - self.mean) - self.errors["mean"], 0.0)
