"""Linear models with design matrix `V = ridge I + sum x x'`: samples of normal posteriors, updates of `V` by an observation `x`, ridge regressions.

`ByCholesky` factorises small matrices in every round by unrolled code. For large ones `ByRoot` updates a square root of `V^-1`, at the cost of a
matrix-vector product per update and per sample. `ByFactors` stores this root in factored form, for many large models with few observations each.

`Ridge` stores symmetric matrices as their lower triangle, and their quadratic forms are sums over it: half the reads and half the products, which
makes a round of LinUCB with ten models and ten features about 1.4 times as fast on a CPU.
"""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
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
    """Returns `(A + weight x x')^-1` from `inverse`, which is `A^-1` `[d, d]`, for a vector `x` `[d]` and a `weight` `[]` of at least 0.

    Both inverses are sums with their rounding errors (`numerics.Sum`). The result is symmetric to the last bit, because an asymmetry would not decay
    in later updates.
    """
    direction = xla.barrier(
        numerics.combine(x, inverse.total)
    )  # Rounded twice, it would not be the same in rows and columns.
    gain = weight / (1.0 + weight * jnp.sum(x * direction))
    return inverse.add(-gain * (direction[:, None] * direction))


def grown_root(root: numerics.Sum, x: Array) -> numerics.Sum:
    """Returns a square root of `(V + x x')^-1` from `root`, a square root `W` `[d, d]` of `V^-1 = W W'`, for `x` `[d]`.

    The new root is `W (I - c a a')` with `a = W' x` and `c = (1 - (1 + |a|^2)^(-1/2)) / |a|^2`. Both roots are objects of the class
    `numerics.Sum`, with their rounding errors.
    """
    a = xla.compute_once(numerics.combine(x, root.total))
    norm = jnp.sum(a * a)
    # (1 - 1 / s) / n with s = sqrt(1 + n), free of cancellation for small n.
    s = jnp.sqrt(1.0 + norm)
    factor = 1.0 / (s * (1.0 + s))
    image = numerics.combine(a, jnp.swapaxes(root.total, 0, 1))
    return root.add(-factor * xla.compute_once(image)[:, None] * a)


class Sampler(Protocol):
    """Interface of samplers of `N(0, V^-1)` for each of `N` design matrices `V`, which the argument `spread` holds in the sampler's own format."""

    def init(self, num: int, dim: int, ridge: Leaf, observations: int) -> Any:
        """Returns the representation of `num` (`N`) matrices `V = ridge I` of size `dim`, to which in total `observations` vectors may be added."""
        ...

    def add(self, spread: Any, chosen: Array, x: Array) -> Any:
        """Returns the representation after adding `x x'` to the matrix of each index in `chosen` `[A]` (-1 for none), for features `x` `[A, d]`."""
        ...

    def sample(self, spread: Any, noise: Array) -> Array:
        """Returns `M` samples of `N(0, V^-1)` for each of `N` matrices, `[N, M, d]`, made from standard normals `noise` `[N, M, d]`."""
        ...

    def min_eigenvalue(self, spread: Any) -> Array:
        """Returns the smallest eigenvalue of each matrix `V`, `[N]`."""
        ...


@struct.dataclass
class ByCholesky:
    """Sampler of `N(0, V^-1)` that stores `N` design matrices `V`, `[N, d, d]`, and factorises them in every round; for small dimensions."""

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
    """Sampler of `N(0, V^-1)` that stores square roots of `V^-1`, `[N, d, d]`, with a matrix-vector product per sample; for large dimensions."""

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


# Largest number of terms of a quadratic form that are unrolled at a time, and in total; longer sums are reductions.
_TERMS, _MOST_TERMS = 64, 512


def _places(dim: int) -> np.ndarray:
    """Returns for each entry of a symmetric `[d, d]` matrix (d = `dim`) its index in the lower triangle, which is stored row by row."""
    row, column = np.tril_indices(dim)
    places = np.zeros((dim, dim), np.int32)
    places[row, column] = places[column, row] = np.arange(len(row))
    return places


def _slim(x: Array) -> Array:
    """Returns features `x` in the shape that `numerics.combine` takes: `[d]` from `[d, 1]` (the same features for all models), `[d, K]` unchanged."""
    return x[:, 0] if x.shape[-1] == 1 else x


@struct.dataclass
class Ridge:
    """Ridge estimates `theta = V^-1 sum y x`, `V = ridge I + sum x x'`, of `G` parameter vectors: one for each of `K` models, or one for all.

    Attributes:
      theta: `[d, G]` estimates.
      triangle: `[d (d + 1) / 2, G]` lower triangles of `V^-1`, row by row.
      errors: rounding errors of `theta` and `triangle`, by name, which `numerics.accumulate` adds to the next changes.
    """

    theta: Array
    triangle: Array
    errors: dict[str, Array]

    @classmethod
    def start(cls, ridge: Leaf, dim: int, number: int) -> "Ridge":
        """Returns the estimates of `number` (`G`) parameters of dimension `dim` (`d`) before the first observation, for a `ridge` above 0."""
        row, column = np.tril_indices(dim)
        first = jnp.where(row == column, 1.0 / jnp.asarray(ridge, jnp.float32), 0.0)
        theta, triangle = jnp.zeros((dim, number), jnp.float32), jnp.broadcast_to(first[:, None], (len(row), number))
        return cls(theta, triangle, numerics.no_errors(theta=theta, triangle=triangle))

    @property
    def inverse(self) -> Array:
        """Returns the matrices `V^-1` of all parameters, `[d, d, G]`."""
        return self.triangle[_places(self.theta.shape[0])]

    def add(self, x: Array, y: Array, seen: Array) -> "Ridge":
        """Returns the estimates with one more observation, assigned to one parameter vector.

        Args:
          x: `[d, 1]` features of the observation, or `[d, G]` with a column for each parameter vector.
          y: `[]` response.
          seen: `[G]` bool, True for the parameter vector that gets the observation; if no entry is True, nothing changes.
        """
        dim = self.theta.shape[0]
        row, column = np.tril_indices(dim)
        error = y - numerics.pick(seen, self.predict(x))
        x = x[:, 0] if x.shape[-1] == 1 else numerics.pick(seen, x)
        own = xla.compute_once(numerics.pick(seen, self.triangle))
        direction = xla.compute_once(numerics.combine(x, own[_places(dim)]))
        gain = 1.0 / (1.0 + jnp.sum(x * direction))  # Sherman and Morrison (1950).
        step = gain * error * direction
        change = xla.compute_once(gain * direction[row] * direction[column])
        return numerics.accumulate(self, seen, theta=step[:, None], triangle=-change[:, None])

    def predict(self, x: Array) -> Array:
        """Returns predictions `theta . x` of `K` models, `[K]`, from features `x` `[d, K]`; `x` or `theta` may be `[d, 1]`, equal for all models."""
        return numerics.combine(_slim(x), self.theta)

    def square_deviation(self, x: Array) -> Array:
        """Returns the squared uncertainty `x' V^-1 x` of the prediction of each model, `[K]`, for features `x` `[d, K]`, or `[d, 1]` for all."""
        row, column = np.tril_indices(x.shape[0])
        x, triangle, size = _slim(x), self.triangle, len(row)
        twice = np.where(row == column, 1.0, 2.0).astype(np.float32).reshape(-1, *(1,) * (x.ndim - 1))
        products = xla.compute_once(twice * x[row] * x[column])
        if size > _MOST_TERMS:
            return jnp.maximum(jnp.sum(products.reshape(size, -1) * triangle, axis=0), 0.0)
        parts = [numerics.combine(products[i : i + _TERMS], triangle[i : i + _TERMS]) for i in range(0, size, _TERMS)]
        return jnp.maximum(sum(parts[1:], parts[0]), 0.0)

    def sample(self, noise: Array) -> Array:
        """Returns a random deviation from `theta`, a sample `[d]` of `N(0, V^-1)`, made of standard normals `noise` `[d]`; only for `G` = 1."""
        return numerics.combine(noise, jnp.swapaxes(cholesky(self.inverse[:, :, 0]), 0, 1))


# Number of observations in a page.
_PAGE = 16


@struct.dataclass
class Factors:
    """Square roots `W` of inverse design matrices, `V^-1 = W W'`, for each of `N` parameters, stored in blocks ("pages") of up to 16 observations.

    `W = ridge^-1/2 Q_1 Q_2 ...` has a factor `Q = I - A' T A` for each page of the parameter. The `G` pages of all parameters are stored in the order
    of their creation, so that memory is proportional to the number of observations. Page `G - 1` stays empty; its index means "no page".

    Attributes:
      rows: `[G, 16, d]` matrices `A`, with a row `a = W' x` for each observation `x`, where `W` is the root before that observation; zero if unused.
      mix: `[G, 16, 16]` upper triangular matrices `T`, which make `Q` the product of `I - c a a'` over the rows `a` (see `grown_root`).
      owner: `[G]` int32 index of the parameter of each page.
      after: `[G]` int32 index of the next page of the same parameter; `G - 1` if there is none.
      first: `[N]` int32 index of the first page of each parameter; `G - 1` if there is none.
      last: `[N]` int32 index of the newest page of each parameter; `G - 1` if there is none.
      pages: `[N]` int32 number of pages of each parameter.
      filled: `[N]` int32 number of observations in the newest page of each parameter.
      in_use: `[]` int32 number of used pages.
      scale: `[]` `ridge^-1/2`.
    """

    rows: Array
    mix: Array
    owner: Array
    after: Array
    first: Array
    last: Array
    pages: Array
    filled: Array
    in_use: Array
    scale: Array


def _times(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def _page(spread: Factors, page: Array) -> tuple[Array, Array]:
    return xla.compute_once((numerics.at(spread.rows, (page,)), numerics.at(spread.mix, (page,))))


@struct.dataclass
class ByFactors:
    """Sampler of `N(0, V^-1)` that stores square roots of `V^-1` in product form (`Factors`). Time and memory grow with the observations.

    A sample for all `N` parameters takes about `2 d` multiplications for each observation so far; with `ByRoot` it takes `N d^2` multiplications.
    Both have the same square root, and so the same samples up to rounding.

    Source: the rank-one update of `grown_root`; Schreiber and Van Loan (1989) for products of factors by blocks.
    """

    def init(self, num: int, dim: int, ridge: Leaf, observations: int) -> Factors:
        # Every page except the last one of a parameter is full.
        number = min(num, observations) + observations // _PAGE + 1
        none = jnp.full((num,), number - 1, jnp.int32)
        zeros = jnp.zeros((num,), jnp.int32)
        return Factors(
            rows=jnp.zeros((number, _PAGE, dim), jnp.float32),
            mix=jnp.zeros((number, _PAGE, _PAGE), jnp.float32),
            owner=jnp.zeros((number,), jnp.int32),
            after=jnp.full((number,), number - 1, jnp.int32),
            first=none,
            last=none,
            pages=zeros,
            filled=zeros,
            in_use=jnp.int32(0),
            scale=1.0 / jnp.sqrt(jnp.asarray(ridge, jnp.float32)),
        )

    def add(self, spread: Factors, chosen: Array, x: Array) -> Factors:
        for k in range(chosen.shape[0]):
            spread = self._add(spread, chosen[k], x[k])
        return spread

    def _add(self, spread: Factors, parameter: Array, x: Array) -> Factors:
        counts, none = parameter >= 0, spread.owner.shape[0] - 1
        place = (jnp.maximum(parameter, 0),)
        first, last, pages, filled = (
            numerics.at(table, place) for table in (spread.first, spread.last, spread.pages, spread.filled)
        )
        pages = jnp.where(counts, pages, 0)

        def through(_: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            page, a = carry
            rows, mix = _page(spread, page)
            return numerics.at(spread.after, (page,)), a - _times(_times(_times(rows, a), mix), rows)

        start = (jnp.where(counts, first, none), spread.scale * x)
        a = lax.fori_loop(0, xla.largest_over_runs(pages), through, start)[1]

        new = counts & ((pages == 0) | (filled == _PAGE))
        page = jnp.where(counts, jnp.where(new, spread.in_use, last), none)
        row = jnp.where(new | ~counts, 0, filled)
        norm = jnp.sum(a * a)
        s = jnp.sqrt(1.0 + norm)
        factor = jnp.where(counts, 1.0 / (s * (1.0 + s)), 0.0)  # As in `grown_root`.
        rows, mix = _page(spread, page)
        here = numerics.one_hot(row, _PAGE)
        column = jnp.where(here, factor, -factor * _times(mix, _times(rows, a)))
        mix = jnp.where(here[None, :], column[:, None], mix)
        # Whole pages are written: the written values must depend on all reads, or the tables would be copied in every round.
        rows, mix = xla.barrier((jnp.where(here[:, None], jnp.where(counts, a, 0.0), rows), mix))

        def put(table: Array, place: Array, value: Array) -> Array:
            return numerics.put(table, (place,), jnp.where(counts, value, numerics.at(table, (place,))))

        return spread.replace(
            rows=numerics.put(spread.rows, (page,), rows),
            mix=numerics.put(spread.mix, (page,), mix),
            owner=put(spread.owner, page, *place),
            # Links the previous page to the new one; the empty page stays its own successor.
            after=put(spread.after, last, jnp.where(new & (last < none), page, numerics.at(spread.after, (last,)))),
            first=put(spread.first, *place, jnp.where(pages == 0, page, first)),
            last=put(spread.last, *place, page),
            pages=put(spread.pages, *place, pages + new.astype(jnp.int32)),
            filled=put(spread.filled, *place, row + 1),
            in_use=spread.in_use + new.astype(jnp.int32),
        )

    def sample(self, spread: Factors, noise: Array) -> Array:
        number = xla.largest_over_runs(spread.in_use)

        def through(step: Array, samples: Array) -> Array:
            page = number - 1 - step  # The newest page first.
            rows, mix = _page(spread, page)
            owner = (numerics.at(spread.owner, (page,)),)
            now = xla.barrier(numerics.at(samples, owner))
            return numerics.put(samples, owner, now - _times(_times(_times(now, rows.T), mix.T), rows))

        return spread.scale * lax.fori_loop(0, number, through, noise)

    def min_eigenvalue(self, spread: Factors) -> Array:
        num, dim = spread.first.shape[0], spread.rows.shape[-1]
        eye = jnp.broadcast_to(jnp.eye(dim, dtype=jnp.float32), (num, dim, dim))
        return 1.0 / jnp.square(jnp.linalg.norm(self.sample(spread, eye), ord=2, axis=(-2, -1)))
