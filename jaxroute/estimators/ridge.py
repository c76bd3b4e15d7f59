"""Ridge regressions of several models, side by side, kept up to date by one rank-one step per observation.

Of the symmetric matrices the lower triangle is kept, one number after the other, and their quadratic forms are sums over it: half the
numbers to read, and half the products. With ten models and ten features a round of LinUCB is about 1.4 times as fast on a CPU.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import numerics, xla
from jaxroute.core.types import Leaf
from jaxroute.estimators.gaussian import cholesky

# Terms of a quadratic form that are written out at a time, and at most so many in all: longer sums are left to a reduction.
_TERMS, _MOST_TERMS = 64, 512


def _triangle(dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each number of the lower triangle."""
    return np.tril_indices(dim)


def _places(dim: int) -> np.ndarray:
    """`[d, d]`, where in the triangle each number of the matrix is."""
    row, column = _triangle(dim)
    places = np.zeros((dim, dim), np.int32)
    places[row, column] = places[column, row] = np.arange(len(row))
    return places


def _slim(x: jax.Array) -> jax.Array:
    """`[d, 1]` as a vector `[d]`, so that its numbers are scalars of a run; `[d, K]` as it is."""
    return x[:, 0] if x.shape[-1] == 1 else x


def _form(x: jax.Array, triangle: jax.Array) -> jax.Array:
    """`x' A x` of `x` `[d, K]` (or `[d, 1]`) and the triangle `[d (d + 1) / 2, G]` of `A`, for each column."""
    row, column = _triangle(x.shape[0])
    x = _slim(x)
    twice = np.where(row == column, 1.0, 2.0).astype(np.float32).reshape(-1, *(1,) * (x.ndim - 1))
    products = xla.compute_once(twice * x[row] * x[column])
    size = len(row)
    if size > _MOST_TERMS:
        return jnp.sum(products.reshape(size, -1) * triangle, axis=0)
    parts = [numerics.combine(products[i : i + _TERMS], triangle[i : i + _TERMS]) for i in range(0, size, _TERMS)]
    return sum(parts[1:], parts[0])


@struct.dataclass
class Ridge:
    """Estimates `theta = V^-1 sum y x` with `V = ridge I + sum x x'`, one for each of `G` parameters.

    It is a normal distribution, too: that of `N(theta, V^-1)`.

    Attributes:
      theta: `[d, G]`.
      triangle: `[d (d + 1) / 2, G]`, the lower triangle of `V^-1`, row by row.
      errors: rounding errors of the sums, see `numerics.accumulate`.
    """

    theta: jax.Array
    triangle: jax.Array
    errors: dict[str, jax.Array]

    @classmethod
    def start(cls, ridge: Leaf, dim: int, number: int) -> "Ridge":
        """Before the first observation.

        Args:
          ridge: `[]`, above 0.
          dim: `d`.
          number: `G`.
        """
        row, column = _triangle(dim)
        first = jnp.where(row == column, 1.0 / jnp.asarray(ridge, jnp.float32), 0.0)
        theta, triangle = jnp.zeros((dim, number), jnp.float32), jnp.broadcast_to(first[:, None], (len(row), number))
        return cls(theta, triangle, numerics.no_errors(theta=theta, triangle=triangle))

    @property
    def inverse(self) -> jax.Array:
        """`V^-1` `[d, d, G]`."""
        return self.triangle[_places(self.theta.shape[0])]

    def add(self, x: jax.Array, y: jax.Array, seen: jax.Array) -> "Ridge":
        """With one more observation, of one of the parameters.

        Args:
          x: `[d, 1]`, or `[d, G]` with one row for each parameter.
          y: `[]`.
          seen: `[G]`, one-hot: the parameter that it is of.
        """
        dim = self.theta.shape[0]
        row, column = _triangle(dim)
        error = y - numerics.pick(seen, self.predict(x))
        x = x[:, 0] if x.shape[-1] == 1 else numerics.pick(seen, x)
        own = xla.compute_once(numerics.pick(seen, self.triangle))
        direction = xla.compute_once(numerics.combine(x, own[_places(dim)]))
        gain = 1.0 / (1.0 + jnp.sum(x * direction))  # Sherman and Morrison (1950).
        step = gain * error * direction
        change = xla.compute_once(gain * direction[row] * direction[column])
        return numerics.accumulate(self, seen, theta=step[:, None], triangle=-change[:, None])

    def predict(self, x: jax.Array) -> jax.Array:
        """`theta . x` of each column of `x` `[d, K]` (or `[d, 1]`): `[K]`."""
        return numerics.combine(_slim(x), self.theta)

    def square_deviation(self, x: jax.Array) -> jax.Array:
        """`x' V^-1 x`, likewise."""
        return jnp.maximum(_form(x, self.triangle), 0.0)

    def sample(self, noise: jax.Array) -> jax.Array:
        """`[d]` of `N(0, V^-1)`, for the only parameter.

        Args:
          noise: standard normal `[d]`.
        """
        return numerics.combine(noise, jnp.swapaxes(cholesky(self.inverse[:, :, 0]), 0, 1))
