"""Factorisations of real matrices in basic operations, with the same bits on every machine.

The bits of LAPACK depend on the machine and the library. The functions of `FACTORISATIONS` have the arguments and results of JAX's primitives of
the same name on a CPU. Each operation is rounded once, and sums of products follow the order of their index. Leading axes are stacks of
matrices; a matrix has at least one entry.

Source: Golub and Van Loan (2013), Algorithms 3.4.1 (LU), 4.2.2 (Cholesky), 5.2.1 (QR), Section 8.5 (Jacobi); Brent and Luk (1985) for the order
of rotations, Rutishauser (1966) for their rounding.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxroute.core import numerics, xla

# A sweep roughly squares the off-diagonal entries: float32 takes 6 sweeps for 8 rows, 8 for 32, and up to 16 for ill-conditioned 48 x 48.
_SWEEPS = 16
# Loops up to this number of steps are unrolled.
_FEW_STEPS = 4


def _loop(count: int, body: Callable[[Any, Any], Any], start: Any) -> Any:
    return lax.fori_loop(0, count, body, start, unroll=count <= _FEW_STEPS) if count else start


def _places(size: int) -> Array:
    return lax.iota(jnp.int32, size)


def _at(x: Array, index: Array, axis: int = 0) -> Array:
    """Returns the slice of `x` at `index` along an axis. All runs of a batch must have the same index."""
    return lax.dynamic_index_in_dim(x, index, axis, keepdims=False, allow_negative_indices=False)


def _sum(terms: Array) -> Array:
    return _loop(terms.shape[0], lambda k, total: total + _at(terms, k), jnp.zeros(terms.shape[1:], terms.dtype))


def _exchange(x: Array, first: Array, second: Array) -> Array:
    """Exchanges the entries `first` and `second` along the first axis of `x`. Only the index `second` may differ between the runs of a batch."""
    place = _places(x.shape[0]).reshape(-1, *[1] * (x.ndim - 1))
    # A sum of bit patterns, at most one of which is not zero, is exact in any order and preserves -0 and NaN.
    bits = lax.bitcast_convert_type(x, jnp.dtype(f"int{8 * x.dtype.itemsize}"))
    picked = lax.bitcast_convert_type(jnp.sum(jnp.where(place == second, bits, 0), axis=0, dtype=bits.dtype), x.dtype)
    # If each consumer recomputed this, it would take ten times as long.
    return xla.compute_once(jnp.where(place == first, picked, jnp.where(place == second, _at(x, first), x)))


def _pivot(size: Array, k: Array) -> Array:
    """Returns the index in `size` `[m]`, which holds magnitudes, of the largest element from index `k` on; `k` if one of these elements is NaN."""
    best = numerics.argmax(size, _places(size.shape[0]) >= k)
    return jnp.where(best < size.shape[0], best, k)


def _diagonal(x: Array) -> Array:
    rows, columns = x.shape
    n = min(rows, columns)
    return lax.slice(x.reshape(-1), (0,), ((n - 1) * columns + n,), (columns + 1,))


def _power(x: Array) -> Array:
    """Returns the power of two by which `x` must be multiplied so that the squares of its largest entries neither overflow nor vanish."""
    third, size = 2.0 ** (jnp.finfo(x.dtype).maxexp // 3), jnp.abs(x)
    largest = jnp.max(jnp.where(size < jnp.inf, size, 0.0))
    return jnp.where(largest > third, third**-2, jnp.where(largest < 1 / third, third**2, 1.0)).astype(x.dtype)


def cholesky(x: Array) -> Array:
    """Returns the lower triangular `L` with `L L^T = x` from the lower triangle of `x` `[n, n]`; NaN if `x` is not positive definite."""
    place = _places(x.shape[0])

    def step(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        x, definite = carry
        column = _at(x, k, 1)
        pivot = _at(column, k)
        root = jnp.sqrt(pivot)
        factors = jnp.where(place > k, column / root, 0.0)
        x = jnp.where(place == k, jnp.where(place == k, root, factors)[:, None], x - factors[:, None] * factors)
        return x, definite & (pivot > 0)

    x, definite = _loop(x.shape[0], step, (x, jnp.bool_(True)))
    return jnp.where(definite, x, jnp.nan)


def triangular_solve(
    a: Array, b: Array, *, left_side: bool, lower: bool, transpose_a: bool, unit_diagonal: bool, **_: Any
) -> Array:
    """Solves `a X = b` (`left_side`) or `X a = b` for X, with a `lower` or upper triangular `a`.

    `transpose_a` transposes `a` first; `unit_diagonal` sets its diagonal to 1.
    """
    n, axis = a.shape[0], 0 if left_side else 1
    forward = (lower != transpose_a) == left_side
    place = lax.expand_dims(_places(n), (1 - axis,))

    def step(number: Array, b: Array) -> Array:
        k = number if forward else n - 1 - number
        factors = _at(a, k, int(left_side != transpose_a))
        solved = lax.expand_dims(_at(b, k, axis), (axis,))
        solved = solved if unit_diagonal else solved / _at(factors, k)
        later = place > k if forward else place < k
        return jnp.where(later, b - lax.expand_dims(factors, (1 - axis,)) * solved, jnp.where(place == k, solved, b))

    return _loop(n, step, b)


def lu(x: Array) -> tuple[Array, Array, Array]:
    """Factors `x` `[m, n]`, with its rows reordered, into `L U`.

    Returns a matrix (`U` with `L` below its diagonal), the row that each step k exchanges with row k, and the resulting order of the rows.
    """
    rows, columns = (_places(size) for size in x.shape)
    steps = _places(min(x.shape))

    def step(k: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, pivots, order = carry
        best = _pivot(jnp.abs(_at(x, k, 1)), k)
        x = _exchange(x, k, best)
        row, column = _at(x, k), _at(x, k, 1)
        pivot = _at(row, k)
        factors = jnp.where(pivot == 0, column, column / pivot)[:, None]
        new = jnp.where(columns > k, x - factors * row, jnp.where(columns == k, factors, x))
        return jnp.where(rows[:, None] > k, new, x), jnp.where(steps == k, best, pivots), _exchange(order, k, best)

    return _loop(min(x.shape), step, (x, steps, rows))


def lu_pivots_to_permutation(pivots: Array, *, permutation_size: int) -> Array:
    """Returns the order of `permutation_size` rows after row k was exchanged with row `pivots[k]`, for k = 0, 1, ..., as `lu` does."""
    return _loop(pivots.shape[0], lambda k, order: _exchange(order, k, _at(pivots, k)), _places(permutation_size))


def geqrf(x: Array) -> tuple[Array, Array]:
    """Factors `x` into `Q R` with `Q = H_0 H_1 ...`, `H_k = I - tau_k v_k v_k^T`. Returns `R` with the `v_k` below its diagonal, and all `tau_k`."""
    return _reflections(x, False)[:2]


def _reflections(x: Array, pivoting: bool) -> tuple[Array, Array, Array]:
    """Returns the results of `geqrf(x)` and the order of columns. With `pivoting`, step k takes the column of largest norm in the rows from k on."""
    rows, columns = _places(x.shape[0])[:, None], _places(x.shape[1])
    steps, power = _places(min(x.shape)), _power(x)

    def step(k: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, taus, order = carry
        if pivoting:
            best = _pivot(_sum(jnp.where(rows >= k, x * x, 0.0)), k)
            x, order = _exchange(x.T, k, best).T, _exchange(order, k, best)
        row, vector = _at(x, k), jnp.where(rows > k, _at(x, k, 1)[:, None], 0.0)
        products = _sum(vector * x)
        entry, square = _at(row, k), _at(products, k)
        norm = jnp.sqrt(entry * entry + square)
        done = square == 0
        diagonal = jnp.where(done, entry, jnp.where(entry < 0, norm, -norm))
        scale = jnp.where(done, 0.0, 1.0 / (entry - diagonal))
        tau = jnp.where(done, 0.0, (diagonal - entry) / diagonal)
        vector = jnp.where(rows == k, 1.0, vector * scale)
        column = jnp.where(rows > k, vector, jnp.where(rows == k, diagonal, x))
        x = jnp.where(columns > k, x - vector * (tau * (row + scale * products)), jnp.where(columns == k, column, x))
        return x, jnp.where(steps == k, tau, taus), order

    y, taus, order = _loop(min(x.shape), step, (x * power, jnp.zeros(steps.shape, x.dtype), columns))
    return jnp.where(rows <= columns, y / power, y), taus, order


def householder_product(a: Array, taus: Array) -> Array:
    """Returns the first `n` columns of `Q`, from the Householder vectors in `a` `[m, n]` and their factors `taus` that `geqrf` returned."""
    rows, last = _places(a.shape[0])[:, None], taus.shape[0] - 1

    def step(number: Array, q: Array) -> Array:
        k = last - number
        vector = jnp.where(rows > k, _at(a, k, 1)[:, None], jnp.where(rows == k, 1.0, 0.0))
        return q - vector * (_at(taus, k) * _sum(vector * q))

    return _loop(last + 1, step, jnp.eye(*a.shape, dtype=a.dtype))


def qr(x: Array, *, pivoting: bool, full_matrices: bool, **_: Any) -> tuple[Array, ...]:
    """Returns orthogonal `Q` (square if `full_matrices`) and upper triangular `R`, `Q R = x`; with `pivoting` also `order`: `Q R = x[:, order]`."""
    m, n = x.shape
    width = m if full_matrices else min(m, n)
    a, taus, order = _reflections(x, pivoting)
    q = householder_product(jnp.pad(a, ((0, 0), (0, max(0, m - n))))[:, :width], taus)
    r = jnp.where(_places(m)[:, None] <= _places(n), a, 0.0)[:width]
    return (q, r, order) if pivoting else (q, r)


def _rotation(norms: Array, products: Array, limit: float) -> tuple[Callable[[Array], Array], Array, Array]:
    """Computes one step of Jacobi rotations of `N` columns, which makes each column `i < N / 2` orthogonal to its partner, column `i + N / 2`.

    For singular values, `norms` `[N]` are the columns' squared norms, and `products` `[N / 2]` twice the scalar products of partners. For eigenvalues
    they are the diagonal of a symmetric matrix, and twice its entries `[i, i + N / 2]`, which become 0. A pair with the two `norms` a and b is
    rotated if the magnitude of its product is above `2 limit sqrt(abs(a b))`. Returns a function that rotates the columns of any matrix `[m, N]` and
    reorders them, so that all pairs meet in `N - 1` steps; a mask `[N / 2]` of the rotated pairs; and the new `norms`.
    """
    half = products.shape[0]
    first, second = norms[:half], norms[half:]
    large = jnp.abs(products) > 2 * limit * jnp.sqrt(jnp.abs(first)) * jnp.sqrt(jnp.abs(second))
    theta = (second - first) / products
    t = jnp.where(large, jnp.where(theta < 0, -1.0, 1.0) / (jnp.abs(theta) + jnp.sqrt(theta * theta + 1.0)), 0.0)
    c = 1.0 / jnp.sqrt(t * t + 1.0)
    s = t * c
    tau = s / (1.0 + c)  # c = 1 - s tau: small rotations have small rounding errors.

    def arrange(x: Array, y: Array) -> Array:
        parts = x[..., :1], y[..., :1], x[..., 1 : half - 1], y[..., 1:], x[..., max(1, half - 1) :]
        return jnp.concatenate(parts, axis=-1)

    def rotate(x: Array) -> Array:
        x, y = x[:, :half], x[:, half:]
        return arrange(x - s * (y + tau * x), y + s * (x - tau * y))

    # A norm is thus rounded once; rotating a matrix from both sides would round its diagonal in each operation.
    shift = t * (0.5 * products)
    return rotate, large, arrange(first - shift, second + shift)


def _sweeps(size: int, step: Callable[[Any], tuple[Any, Array]], start: Any) -> Any:
    """Repeats sweeps of rotations until a sweep rotates no columns in any run, at most 16 times. For `size` columns a sweep is `size - 1` steps.

    `step` maps a value, at first `start`, to a new value and a mask of the rotated pairs. Sweeps that only other runs need do not change a run.
    """

    def one(_: Any, carry: tuple[Any, Array]) -> tuple[Any, Array]:
        value, rotated = carry
        value, large = step(value)
        return value, rotated | large

    def sweep(carry: tuple[Array, Array, Any]) -> tuple[Array, Array, Any]:
        value, rotated = _loop(size - 1, one, (carry[2], jnp.zeros(size // 2, bool)))
        return carry[0] + 1, jnp.any(rotated), value

    def unfinished(carry: tuple[Array, Array, Any]) -> Array:
        return (carry[0] < _SWEEPS) & (xla.largest_over_runs(carry[1].astype(jnp.int32)) > 0)

    return lax.while_loop(unfinished, sweep, (jnp.int32(0), jnp.bool_(True), start))[2]


def _ordered(keys: Array, x: Array) -> Array:
    place = _places(keys.shape[0])

    def count(k: Array, ranks: Array) -> Array:
        key = _at(keys, k)
        return ranks + ((key < keys) | ((key == keys) & (k < place))).astype(jnp.int32)

    ranks = _loop(place.shape[0], count, jnp.zeros_like(place))
    return _loop(place.shape[0], lambda k, y: jnp.where(place == _at(ranks, k), _at(x, k, 1)[:, None], y), x)


def eigh(x: Array, *, lower: bool, **_: Any) -> tuple[Array, Array]:
    """Returns eigenvectors and ascending eigenvalues of a symmetric `x` `[n, n]`, from its `lower` or else upper triangle; NaN if not finite."""
    n = x.shape[0]
    size, place = n + n % 2, _places(n)
    half = size // 2
    x = jnp.where((place[:, None] >= place) == lower, x, x.T)
    finite, power = jnp.all(jnp.abs(x) < jnp.inf), _power(x)
    diagonal = _places(size)[:, None] == _places(size)

    def step(value: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        a, vectors = value
        products = _diagonal(a[:half, half:]) + _diagonal(a[half:, :half])
        rotate, large, values = _rotation(_diagonal(a), products, float(jnp.finfo(a.dtype).eps))
        return (jnp.where(diagonal, values, rotate(rotate(a).T)), rotate(vectors)), large

    start = (jnp.pad(x * power, (0, size - n)), jnp.eye(n, size, dtype=x.dtype))
    a, vectors = _sweeps(size, step, start)
    values = _diagonal(a)[:n]
    results = _ordered(values, jnp.concatenate([values[None] / power, vectors[:, :n]]))
    results = jnp.where(finite, results, jnp.nan)
    return results[1:], results[0]


def svd(x: Array, *, full_matrices: bool, compute_uv: bool, **_: Any) -> tuple[Array, ...]:
    """Returns the singular values of `x` `[m, n]`, descending; with `compute_uv` also left `[m, k]` and transposed right vectors `[k, n]`.

    Here k is `min(m, n)`; with `full_matrices` the vectors form square matrices. Rotations make the columns orthogonal; QR then completes the left
    vectors, also for zero columns. All is NaN if `x` is not finite.
    """
    m, n = x.shape
    if m < n:
        values, *vectors = svd(x.T, full_matrices=full_matrices, compute_uv=compute_uv)
        return values, *(one.T for one in reversed(vectors))
    size, power = n + n % 2, _power(x)
    half, limit = size // 2, float(jnp.finfo(x.dtype).eps) * m**0.5

    def step(y: Array) -> tuple[Array, Array]:
        a = y[:m]
        rotate, large, _ = _rotation(_sum(a * a), 2.0 * _sum(a[:, :half] * a[:, half:]), limit)
        return rotate(y), large

    y = jnp.pad(x * power, ((0, 0), (0, size - n)))
    y = _sweeps(size, step, jnp.concatenate([y, jnp.eye(n, size, dtype=x.dtype)]) if compute_uv else y)[:, :n]
    values = jnp.sqrt(_sum(y[:m] * y[:m]))
    results = _ordered(-values, jnp.concatenate([values[None] / power, y]))
    results = jnp.where(jnp.all(jnp.abs(x) < jnp.inf), results, jnp.nan)
    if not compute_uv:
        return (results[0],)
    u, r = qr(results[1 : m + 1], pivoting=False, full_matrices=full_matrices)
    signs = jnp.where(_diagonal(r) < 0, -1.0, 1.0).astype(x.dtype)
    return results[0], u * jnp.pad(signs, (0, u.shape[1] - n), constant_values=1.0), results[m + 1 :].T


def _of_stacks(function: Callable[..., Any]) -> Callable[..., Any]:
    rank = 1 if function is lu_pivots_to_permutation else 2

    @functools.wraps(function)
    def mapped(*args: Array, **params: Any) -> Any:
        one = functools.partial(function, **params)
        for _ in range(args[0].ndim - rank):
            one = jax.vmap(one)
        return one(*args)

    return mapped


_ALL = (cholesky, triangular_solve, lu, lu_pivots_to_permutation, geqrf, householder_product, qr, eigh, svd)
FACTORISATIONS: dict[str, Callable[..., Any]] = {function.__name__: _of_stacks(function) for function in _ALL}
