"""Samples of normal posteriors of linear models with design matrix `V = ridge I + sum x x'`, and updates of `V` by an observation `x`.

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
    """Returns the lower triangular `L` with `L L' = matrix`, for a symmetric and positive definite `matrix` `[..., d, d]`."""
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


def solve_triangular(lower: Array, b: Array, transposed: bool = False) -> Array:
    """Solves `L x = b`, or `L' x = b` if `transposed`, for a lower triangular `L` `[..., d, d]` and `b` `[..., d]`."""
    size = lower.shape[-1]
    if size > _SMALL:
        options: Any = {"left_side": True, "lower": True, "transpose_a": transposed}
        return lax.linalg.triangular_solve(lower, b[..., None], **options)[..., 0]
    entries: dict[int, Array] = {}
    for i in reversed(range(size)) if transposed else range(size):
        value = b[..., i]
        for j, entry in entries.items():
            value = value - (lower[..., j, i] if transposed else lower[..., i, j]) * entry
        entries[i] = xla.compute_once(value / lower[..., i, i])
    return jnp.stack([entries[i] for i in range(size)], axis=-1)


def solve(matrix: Array, b: Array) -> Array:
    """Solves `matrix x = b` for `b` `[..., d]` and a symmetric and positive definite `matrix` `[..., d, d]`."""
    lower = cholesky(matrix)
    return solve_triangular(lower, solve_triangular(lower, b), transposed=True)


def sherman_morrison(inverse: numerics.Sum, x: Array, weight: Leaf = 1.0) -> numerics.Sum:
    """Returns the inverse of `A + weight x x'` from the `inverse` of `A` `[d, d]`, for `x` `[d]` and a `weight` `[]` of at least 0.

    The result is symmetric to the last bit, because an asymmetry would not decay.
    """
    direction = xla.barrier(
        numerics.combine(x, inverse.total)
    )  # Rounded twice, it would not be the same in rows and columns.
    gain = weight / (1.0 + weight * jnp.sum(x * direction))
    return inverse.add(-gain * (direction[:, None] * direction))


def grown_root(root: numerics.Sum, x: Array) -> numerics.Sum:
    """Returns a square root of `(V + x x')^-1` from a square root `W` `[d, d]` of `V^-1 = W W'`, for `x` `[d]`.

    It is `W (I - c a a')` with `a = W' x` and `c = (1 - (1 + |a|^2)^(-1/2)) / |a|^2`.
    """
    a = xla.compute_once(numerics.combine(x, root.total))
    norm = jnp.sum(a * a)
    # (1 - 1 / s) / n with s = sqrt(1 + n), free of cancellation for small n.
    s = jnp.sqrt(1.0 + norm)
    factor = 1.0 / (s * (1.0 + s))
    image = numerics.combine(a, jnp.swapaxes(root.total, 0, 1))
    return root.add(-factor * xla.compute_once(image)[:, None] * a)


class Sampler(Protocol):
    """Sampler of `N(0, V^-1)` for each of `N` design matrices `V`; the argument `spread` holds all of them in the sampler's own format."""

    def init(self, num: int, dim: int, ridge: Leaf, observations: int) -> Any:
        """Returns the representation of `num` (`N`) matrices `V = ridge I` of size `dim` (`d`), to which at most `observations` vectors are added."""
        ...

    def add(self, spread: Any, chosen: Array, x: Array) -> Any:
        """Returns the representation after adding `x x'` to the matrix of each index in `chosen` `[A]` (-1 for none), for features `x` `[A, d]`."""
        ...

    def sample(self, spread: Any, noise: Array) -> Array:
        """Returns `M` samples of `N(0, V^-1)` for each matrix, `[N, M, d]`, from standard normals `noise` of the same shape."""
        ...

    def min_eigenvalue(self, spread: Any) -> Array:
        """Returns the smallest eigenvalue of each matrix `V`, `[N]`."""
        ...


@struct.dataclass
class ByCholesky:
    """Samples `N(0, V^-1)` for `N` stored design matrices `V`, `[N, d, d]`, which are factorised in every round; for small dimensions."""

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
        return jnp.stack([solve_triangular(lower, noise[:, m], transposed=True) for m in range(noise.shape[1])], axis=1)

    def min_eigenvalue(self, spread: numerics.Sum) -> Array:
        return jnp.linalg.eigvalsh(spread.total)[:, 0]


@struct.dataclass
class ByRoot:
    """Samples `N(0, V^-1)` by stored square roots of `V^-1`, `[N, d, d]`. Each sample or update is a matrix-vector product; for large dimensions."""

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
