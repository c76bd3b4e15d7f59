"""The virtual queue of MESS+."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core.types import Leaf


@struct.dataclass
class VirtualQueue:
    """How much satisfaction is owed: `Q <- max(0, Q + alpha - s)` after each request, from 0, with an `alpha` that stays.

    Counted from the last request at which nothing was owed: a running sum in float32 would drift by one in a thousand in 1e5
    requests.

    Source: MESS+, eq. (2).

    length: `[]` float32, `Q` in requests.
    requests: `[]` int32, since nothing was owed.
    satisfied: `[]` int32, of these requests.
    """

    length: jax.Array
    requests: jax.Array
    satisfied: jax.Array

    @classmethod
    def empty(cls) -> "VirtualQueue":
        """Nothing owed."""
        zero = jnp.zeros((), jnp.int32)
        return cls(length=jnp.zeros((), jnp.float32), requests=zero, satisfied=zero)

    def served(self, alpha: Leaf, satisfied: jax.Array) -> "VirtualQueue":
        """The queue after a request that was `satisfied` (`[]` float32, 0 or 1)."""
        requests, count = self.requests + 1, self.satisfied + satisfied.astype(jnp.int32)
        length = alpha * requests.astype(jnp.float32) - count.astype(jnp.float32)
        owed = length > 0
        return VirtualQueue(
            length=jnp.where(owed, length, 0.0), requests=jnp.where(owed, requests, 0), satisfied=jnp.where(owed, count, 0)
        )
