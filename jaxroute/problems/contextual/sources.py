"""Distribution of the contexts of a contextual bandit."""

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxroute.core import checks, draws


@struct.dataclass
class UniformContexts:
    """Contexts with independent entries, uniform on `[-1, 1] / sqrt(d)`; their norm is at most 1.

    Attributes:
      dim: dimension `d` (static).
      rows: number of contexts in a round, 1 if all models have the same, otherwise one for each model (static).
      intercept: whether the first entry is constant, `1 / sqrt(d)` (static).
    """

    dim: int = struct.field(pytree_node=False)
    rows: int = struct.field(pytree_node=False, default=1)
    intercept: bool = struct.field(pytree_node=False, default=False)

    def check(self) -> None:
        checks.count("dim", self.dim)
        checks.count("rows", self.rows)

    def draw(self, key: Array) -> Array:
        """Draws the contexts `[rows, d]` of a round."""
        scale = np.float32(1.0 / np.sqrt(self.dim))
        x = scale * (2.0 * draws.uniform(key, (self.rows, self.dim)) - 1.0)
        return jnp.where(jnp.arange(self.dim) == 0, scale, x) if self.intercept else x

    def sample(self, number: int) -> np.ndarray:
        """Returns the contexts `[number, rows, d]` of `number` rounds as a NumPy array, the same in every call."""
        x = np.random.default_rng(0).uniform(-1.0, 1.0, (number, self.rows, self.dim))
        if self.intercept:
            x[..., 0] = 1.0
        return x / np.sqrt(self.dim)
