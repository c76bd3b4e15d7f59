"""The virtual queue of MESS+."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import numerics
from jaxroute.core.types import Leaf


@struct.dataclass
class VirtualQueue:
    """Virtual queue of missing satisfaction: `Q <- max(0, Q + alpha - s)` after each request, from 0, with a constant `alpha`.

    Source: MESS+, eq. (2).

    Attributes:
      length: `[]` float32 `Q` in requests.
      error: `[]` float32 rounding error of `length`, see `numerics.add_up`.
    """

    length: jax.Array
    error: jax.Array

    @classmethod
    def empty(cls) -> "VirtualQueue":
        """Returns the empty queue."""
        zero = jnp.zeros((), jnp.float32)
        return cls(length=zero, error=zero)

    def served(self, alpha: Leaf, satisfied: jax.Array) -> "VirtualQueue":
        """Returns the queue after a request, `satisfied` or not (`[]` float32, 0 or 1)."""
        # Added separately: their difference would be rounded in every round.
        length, error = numerics.add_up(*numerics.add_up(self.length, self.error, jnp.asarray(alpha)), -satisfied)
        owed = length > 0
        return VirtualQueue(length=jnp.where(owed, length, 0.0), error=jnp.where(owed, error, 0.0))
