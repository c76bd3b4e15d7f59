"""Running means of what was observed."""

import jax
import jax.numpy as jnp
from flax import struct


@struct.dataclass
class RunningMean:
    """Incremental means: of long runs in float32 more exact than sums.

    count: `[K]` int32 values seen. mean: `[K]` float32, zero where nothing was seen.
    """

    count: jax.Array
    mean: jax.Array

    @classmethod
    def empty(cls, size: int) -> "RunningMean":
        """Nothing seen yet, of `size` quantities."""
        return cls(count=jnp.zeros((size,), jnp.int32), mean=jnp.zeros((size,), jnp.float32))

    @classmethod
    def prior(cls, count, mean, size: int) -> "RunningMean":
        """As if `count` values with this `mean` had been seen (numbers or `[K]`)."""
        count = jnp.broadcast_to(jnp.asarray(count, jnp.int32), (size,))
        mean = jnp.broadcast_to(jnp.asarray(mean, jnp.float32), (size,))
        return cls(count=count, mean=jnp.where(count > 0, mean, 0.0))

    def add(self, seen, value) -> "RunningMean":
        """With `value` `[K]` added where `seen` `[K]`."""
        count = self.count + seen.astype(jnp.int32)
        step = (value - self.mean) / jnp.maximum(count, 1).astype(jnp.float32)
        return RunningMean(count=count, mean=self.mean + jnp.where(seen, step, 0.0))
