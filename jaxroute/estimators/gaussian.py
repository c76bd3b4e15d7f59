"""Normal posteriors of linear utilities: samples of `N(mean, scale^2 V^-1)` and rank-one updates.

Small matrices are factorised in every round by unrolled code. For large ones a square root of `V^-1` is updated, at the cost of a matrix-vector
product per update and per sample.
"""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array, lax

from jaxroute.core import numerics, xla
from jaxroute.core.types import Leaf

# Factorisations up to this size are unrolled: a library call per run and round costs more.
_SMALL = 16
# Up to this total size of the square roots the products of `ByRoot` are unrolled, and so vectorised over runs.
WRITTEN_OUT = 2**15


def cholesky(matrix: Array) -> Array:
    """Returns the lower triangular `L` with `L L' = matrix` `[..., d, d]`, symmetric and positive definite."""
    size = matrix.shape[-1]
    if size > _SMALL:
        return jnp.linalg.cholesky(matrix)
    columns: list[Array] = []
    for j in range(size):
        column = matrix[..., :, j]
        for other in columns:
            column = column - other * other[..., j : j + 1]
        column = jnp.where(jnp.arange(size) >= j, column * lax.rsqrt(column[..., j : j + 1]), 0.0)
        columns.append(xla.compute_once(column))
    return jnp.stack(columns, axis=-1)


def solve_lower(lower: Array, b: Array) -> Array:
    """Solves `L x = b`.

    Args:
      lower: `L` `[..., d, d]`.
      b: `[..., d]`.
    """
    size = lower.shape[-1]
    if size > _SMALL:
        return lax.linalg.triangular_solve(lower, b[..., None], left_side=True, lower=True)[..., 0]
    entries: list[Array] = []
    for i in range(size):
        value = b[..., i]
        for j, entry in enumerate(entries):
            value = value - lower[..., i, j] * entry
        entries.append(xla.compute_once(value / lower[..., i, i]))
    return jnp.stack(entries, axis=-1)


def solve_upper(lower: Array, b: Array) -> Array:
    """Solves `L' x = b`.

    Args:
      lower: `L` `[..., d, d]`.
      b: `[..., d]`.
    """
    size = lower.shape[-1]
    if size > _SMALL:
        return lax.linalg.triangular_solve(lower, b[..., None], left_side=True, lower=True, transpose_a=True)[..., 0]
    entries: list[Array] = []
    for i in reversed(range(size)):
        value = b[..., i]
        for k, entry in enumerate(entries):
            value = value - lower[..., size - 1 - k, i] * entry
        entries.append(xla.compute_once(value / lower[..., i, i]))
    return jnp.stack(entries[::-1], axis=-1)


def solve(matrix: Array, b: Array) -> Array:
    """Solves `matrix x = b`.

    Args:
      matrix: `[..., d, d]`, symmetric and positive definite.
      b: `[..., d]`.
    """
    lower = cholesky(matrix)
    return solve_upper(lower, solve_lower(lower, b))


def sherman_morrison(inverse: numerics.Sum, x: Array, weight: Leaf = 1.0) -> numerics.Sum:
    """Returns the inverse of `A + weight x x'` from that of `A`, symmetric to the last bit: asymmetry would not decay with the rest.

    Args:
      inverse: `[d, d]`, symmetric.
      x: `[d]`.
      weight: `[]`, not negative.
    """
    direction = numerics.combine(x, inverse.total)
    gain = weight / (1.0 + weight * jnp.sum(x * direction))
    return inverse.add(-gain * (direction[:, None] * direction))


def grown_root(root: numerics.Sum, x: Array) -> numerics.Sum:
    """Returns a square root of `(V + x x')^-1` from a square root `W` of `V^-1 = W W'`.

    It is `W (I - c a a')` with `a = W' x` and `c = (1 - (1 + |a|^2)^(-1/2)) / |a|^2`.

    Args:
      root: `[d, d]`.
      x: `[d]`.
    """
    a = xla.compute_once(numerics.combine(x, root.total))
    norm = jnp.sum(a * a)
    # (1 - 1 / s) / n with s = sqrt(1 + n), free of cancellation for small n.
    s = jnp.sqrt(1.0 + norm)
    factor = 1.0 / (s * (1.0 + s))
    image = numerics.combine(a, jnp.swapaxes(root.total, 0, 1))
    return root.add(-factor * xla.compute_once(image)[:, None] * a)


class Sampler(Protocol):
    """Representation of the design matrices `V`, from which parameters are sampled."""

    def init(self, num: int, dim: int, ridge: Leaf, observations: int) -> Any:
        """Returns the representation of `V = ridge I` for each parameter.

        Args:
          num: number of parameters, `N`.
          dim: dimension, `d`.
          ridge: `[]` ridge.
          observations: largest number of observations.
        """
        ...

    def add(self, spread: Any, chosen: Array, x: Array) -> Any:
        """Returns the representation of `V_j + x x'`.

        Args:
          spread: representation from `init` or `add`.
          chosen: `[A]` int32 parameters; -1 for none.
          x: `[A, d]` features for each parameter.
        """
        ...

    def sample(self, spread: Any, noise: Array) -> Array:
        """Returns samples `[N, M, d]` of `N(0, V^-1)`.

        Args:
          spread: representation of `V`.
          noise: `[N, M, d]` standard normals.
        """
        ...

    def min_eigenvalue(self, spread: Any) -> Array:
        """Returns the least eigenvalue of each `V`, `[N]`."""
        ...


@struct.dataclass
class ByCholesky:
    """Sampler that stores the design matrix `V` `[N, d, d]` and factorises it in every round; for small dimensions."""

    def init(self, num: int, dim: int, ridge: Leaf, observations: int) -> numerics.Sum:
        del observations
        return numerics.Sum.of(jnp.broadcast_to(ridge * jnp.eye(dim, dtype=jnp.float32), (num, dim, dim)))

    def add(self, spread: numerics.Sum, chosen: Array, x: Array) -> numerics.Sum:
        for a in range(chosen.shape[0]):
            mask = numerics.one_hot(chosen[a], spread.total.shape[0])
            spread = spread.add(x[a][:, None] * x[a][None, :], mask[:, None, None])
        return spread

    def sample(self, spread: numerics.Sum, noise: Array) -> Array:
        lower = cholesky(spread.total)
        return jnp.stack([solve_upper(lower, noise[:, m]) for m in range(noise.shape[1])], axis=1)

    def min_eigenvalue(self, spread: numerics.Sum) -> Array:
        return jnp.linalg.eigvalsh(spread.total)[:, 0]


@struct.dataclass
class ByRoot:
    """Sampler that stores a square root of `V^-1` `[N, d, d]`; a matrix-vector product per sample and per update, for large dimensions."""

    def init(self, num: int, dim: int, ridge: Leaf, observations: int) -> numerics.Sum:
        del observations
        return numerics.Sum.of(jnp.broadcast_to(jnp.eye(dim, dtype=jnp.float32) / jnp.sqrt(ridge), (num, dim, dim)))

    def add(self, spread: numerics.Sum, chosen: Array, x: Array) -> numerics.Sum:
        for a in range(chosen.shape[0]):
            root = xla.barrier(spread.at(chosen[a]))
            grown = jax.tree.map(lambda new, old, a=a: jnp.where(chosen[a] >= 0, new, old), grown_root(root, x[a]), root)
            spread = spread.put(chosen[a], xla.barrier(grown))
        return spread

    def sample(self, spread: numerics.Sum, noise: Array) -> Array:
        root = spread.total
        if root.size >= WRITTEN_OUT:
            return jnp.einsum("nij,nmj->nmi", root, noise, precision="highest")
        terms = [root[:, None, :, j] * noise[:, :, j, None] for j in range(root.shape[-1])]
        return sum(terms[1:], terms[0])

    def min_eigenvalue(self, spread: numerics.Sum) -> Array:
        return 1.0 / jnp.square(jnp.linalg.norm(spread.total, ord=2, axis=(-2, -1)))
