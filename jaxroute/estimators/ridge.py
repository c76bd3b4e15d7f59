"""Ridge regressions of several models, side by side, kept up to date by one rank-one step per observation."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import numerics
from jaxroute.core.types import Leaf
from jaxroute.estimators.designs import first_inverse, newest, square_norm
from jaxroute.estimators.gaussian import cholesky


@struct.dataclass
class Ridge:
    """Estimates `theta = V^-1 sum y x` with `V = ridge I + sum x x'`, one for each of `G` parameters.

    It is a `Spread`, too: that of `N(theta, V^-1)`.

    Attributes:
      theta: `[d, G]`.
      inverse: `V^-1` `[d, d, G]`.
    """

    theta: jax.Array
    inverse: jax.Array

    @classmethod
    def start(cls, ridge: Leaf, dim: int, number: int) -> "Ridge":
        """Before the first observation.

        Args:
          ridge: `[]`, above 0.
          dim: `d`.
          number: `G`.
        """
        return cls(theta=jnp.zeros((dim, number), jnp.float32), inverse=first_inverse(ridge, dim, number))

    def add(self, x: jax.Array, y: jax.Array, seen: jax.Array) -> "Ridge":
        """With one more observation.

        Args:
          x: `[d, 1]`, or `[d, G]` with one row for each parameter.
          y: `[]`.
          seen: `[G]` bool, the parameters that it is of.
        """
        direction, gain = newest(self.inverse, x, seen)
        theta = self.theta + gain * (y - self.predict(x)) * direction
        return Ridge(theta=theta, inverse=self.inverse - gain * direction[:, None] * direction[None])

    def predict(self, x: jax.Array) -> jax.Array:
        """`theta . x` of each column of `x` `[d, K]` (or `[d, 1]`): `[K]`."""
        return numerics.combine(x, self.theta)

    def square_deviation(self, x: jax.Array) -> jax.Array:
        """`x' V^-1 x`, likewise."""
        return square_norm(self.inverse, x)

    def sample(self, noise: jax.Array) -> jax.Array:
        """`[d]` of `N(0, V^-1)`, for the only parameter.

        Args:
          noise: standard normal `[d]`.
        """
        return numerics.combine(noise, jnp.swapaxes(cholesky(self.inverse[:, :, 0]), 0, 1))
