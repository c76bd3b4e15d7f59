"""Running means of what was observed."""

import jax
import jax.numpy as jnp
from flax import struct
from jax.typing import ArrayLike


@struct.dataclass
class RunningMean:
    """Incremental means: of long runs in float32 more exact than sums.

    Attributes:
      count: `[K]` int32 values seen.
      mean: `[K]` float32, zero where nothing was seen.
    """

    count: jax.Array
    mean: jax.Array

    @classmethod
    def empty(cls, size: int) -> "RunningMean":
        """Nothing seen yet, of `size` quantities."""
        return cls(count=jnp.zeros((size,), jnp.int32), mean=jnp.zeros((size,), jnp.float32))

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
        return cls(count=counts, mean=jnp.where(counts > 0, means, 0.0))

    def add(self, seen: jax.Array, value: jax.Array) -> "RunningMean":
        """With new values.

        Args:
          seen: `[K]` bool, which quantities were seen.
          value: `[K]`.
        """
        count = self.count + seen.astype(jnp.int32)
        step = (value - self.mean) / jnp.maximum(count, 1).astype(jnp.float32)
        return RunningMean(count=count, mean=self.mean + jnp.where(seen, step, 0.0))
