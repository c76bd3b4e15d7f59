"""Functions of one run, with arguments for `R` of them: what the map over runs and the kernel of one run are both tested on."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxroute.core import draws, numerics, xla

R = 5

KEY = jax.random.key(3)


def floats(*shape):
    return np.random.default_rng(math.prod(shape) + len(shape)).standard_normal((*shape, R)).astype(np.float32)


def integers(high, *shape):
    return np.random.default_rng(high + len(shape)).integers(0, high, (*shape, R)).astype(np.int32)


def booleans(*shape):
    return floats(*shape) > 0


def keys(*shape):
    return jax.random.split(jax.random.key(7), (*shape, R))


def plain(leaf):
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def assert_same(ours, theirs, rtol=2e-6, atol=1e-6):
    """Equal structure, shapes and types; integers and keys are equal, floats up to the order of summation."""
    chex.assert_trees_all_equal_shapes_and_dtypes(ours, theirs)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        one, other = plain(one), plain(other)
        if one.dtype.kind == "f":
            np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(one, other)


def definite(a):
    return a @ a.T + 4 * jnp.eye(a.shape[0])


TABLE = jnp.arange(12.0).reshape(4, 3)

ELEMENTWISE = {
    "arithmetic": (lambda x, y: (x + y, x - 2 * y, x * y / (1 + y * y), -x, x**3, jnp.abs(x) ** y), floats(3), floats(3)),
    "functions": (lambda x: (jnp.exp(x), jnp.log1p(x * x), jnp.tanh(x), lax.rsqrt(1 + x * x), lax.erf_inv(x / 9)), floats(4)),
    "rounding": (lambda x: (jnp.floor(x), jnp.round(x), jnp.sign(x), lax.reduce_precision(x, 8, 7), x % 0.7), floats(4)),
    "comparisons": (lambda x, y: (x < y, x == x, jnp.isfinite(x), jnp.maximum(x, y), jnp.where(x > y, x, 0)), floats(3), floats(3)),
    "integers": (lambda i: (i + 1, i // 3, i % 3, i << 2, i ^ 5, ~i, -i, i**2, lax.population_count(i)), integers(99, 4)),
    "unsigned": (lambda i: (i.astype(jnp.uint32) * jnp.uint32(0x9E3779B9)) >> 7, integers(99, 4)),
    "booleans": (lambda a, b: (a & b, a | b, a ^ b, ~a, jnp.where(a, 1, 2)), booleans(3), booleans(3)),
    "conversions": (lambda x: (x.astype(jnp.int32), x.astype(jnp.bfloat16), x > 0, lax.bitcast_convert_type(x, jnp.uint32)), floats(3)),
    "bitcast to bytes": (lambda x: lax.bitcast_convert_type(x, jnp.uint8), floats(3)),
    "clamp": (lambda x, low: (jnp.clip(x, low, 1.0), lax.clamp(low, x, jnp.float32(0.5))), floats(3), floats()),
    "select by a scalar": (lambda p, x: (lax.select(p, x, -x), jnp.where(p, x, jnp.zeros(3))), booleans(), floats(3)),
    "unmapped operands": (lambda x: (x + jnp.arange(3.0), jnp.arange(3.0) - x, x[:, None] * TABLE[0], TABLE * x.sum()), floats(3)),
    "broadcasting": (lambda x, y: (x[:, None] + y[None, :], x[:, None] < y, jnp.outer(x, y)), floats(3), floats(4)),
    "scalars": (lambda x, i: (x + i, x * 2, i + 1, jnp.full((2, 2), x)), floats(), integers(9)),
    "barrier": (lambda x: lax.optimization_barrier((x, jnp.ones(3), x.sum())), floats(3)),
    "once": (lambda x: xla.compute_once((x, jnp.ones(3), {"sum": x.sum()})), floats(3)),
    "nextafter": (lambda x: jnp.nextafter(x, 2 * x), floats(3)),
}  # fmt: skip

SHAPING = {
    "reductions": (lambda x: (x.sum(), x.sum(0), x.mean(1), x.max(1), x.min(), x.prod(0), x.std()), floats(3, 4)),
    "logical reductions": (lambda a: (a.any(), a.all(0), a.sum(1)), booleans(3, 4)),
    "argmax": (lambda x: (jnp.argmax(x), jnp.argmax(x, 0), jnp.argmin(x, 1)), integers(3, 4, 3)),
    "first best": (lambda x, a: (xla.first_best(x[:, 0]), xla.first_best(x, a), xla.first_best(TABLE[0], a[0])), floats(4, 3), booleans(4, 3)),
    "sums": (lambda x: xla.sums([x, 2 * x, TABLE]), floats(4, 3)),
    "reshape": (lambda x: (x.reshape(6, 2), x.ravel(), x.reshape(2, 2, 3), x[..., None], x[None].squeeze(0)), floats(4, 3)),
    "transpose": (lambda x: (x.T, jnp.moveaxis(x[None], 0, -1), jnp.swapaxes(x, 0, 1)[::-1]), floats(4, 3)),
    "slices": (lambda x: (x[1:3], x[::2], x[:, -1], x[-2], x[::-1, 1:]), floats(4, 3)),
    "concatenate": (lambda x: (jnp.concatenate([x, TABLE, 2 * x]), jnp.stack([x[0], TABLE[0]]), jnp.tile(x, (1, 2))), floats(4, 3)),
    "split": (lambda x: jnp.split(x, [1, 3]), floats(4, 3)),
    "pad": (lambda x: (jnp.pad(x, ((1, 2), (0, 3))), lax.pad(x, jnp.float32(1), [(1, -1, 2), (0, 0, 0)])), floats(4, 3)),
    "pad with a value per run": (lambda x, v: lax.pad(x, v, [(1, -1, 2)]), floats(4), floats()),
    "pad a constant": (lambda v: lax.pad(jnp.arange(3.0), v, [(1, 1, 0)]), floats()),
    "roll and repeat": (lambda x: (jnp.roll(x, 2), jnp.repeat(x, 2, axis=0), jnp.diff(x, axis=1)), floats(4, 3)),
    "cumulative": (lambda x: (jnp.cumsum(x, 0), jnp.cumprod(x, 1), lax.cummax(x, 0), lax.cumlogsumexp(x), lax.cummin(x, 1, True)), floats(4, 3)),
    "sort": (lambda x: (jnp.sort(x), jnp.argsort(x[:, 0]), lax.top_k(x, 2), lax.sort((x[:, 0], x[:, 1]), num_keys=1)), floats(4, 3)),
    "median": (lambda x: (jnp.median(x), jnp.quantile(x, 0.3)), floats(5)),
    "associative scan": (lambda x: lax.associative_scan(jnp.add, x), floats(7)),
    "zero size": (lambda x: (x * 2, x.sum(), jnp.concatenate([x, x]), x.reshape(0, 4), jnp.zeros((0,)) + x), floats(0)),
    "convolution": (lambda x: jnp.convolve(x, jnp.arange(3.0), mode="same"), floats(6)),
    "window": (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2,), (1,), "VALID"), floats(6)),
    "unique": (lambda i: jnp.unique(i, size=3, fill_value=-1), integers(3, 5)),
    "outputs without the input": (lambda x: (x, jnp.arange(3), {"a": 2.0, "b": TABLE}, jnp.bool_(True)), floats(2)),
}  # fmt: skip

WHERE = (TABLE.sum() > 0).astype(jnp.int32) + 2  # 3, which is not known before the function is compiled.

INDEXING = {
    "dynamic slice": (lambda x: lax.dynamic_slice(x, [jnp.int32(1), jnp.int32(9)], (2, 2)), floats(4, 3)),
    "dynamic slice per run": (lambda x, i: (lax.dynamic_slice(x, [i, i], (2, 2)), lax.dynamic_index_in_dim(TABLE, i)), floats(4, 3), integers(5)),
    "dynamic slice, indices of 8 bits": (lambda x: lax.dynamic_slice(x, [jnp.uint8(1), jnp.uint8(0)], (2, 2)), floats(4, 3)),
    "dynamic update": (lambda x, y: lax.dynamic_update_slice(x, y, [jnp.int32(1), jnp.int32(9)]), floats(4, 3), floats(2, 2)),
    "dynamic update of a constant": (lambda y: lax.dynamic_update_slice(TABLE, y, [jnp.int32(1), jnp.int32(0)]), floats(2, 2)),
    "dynamic update, unsigned indices": (lambda x, y: lax.dynamic_update_slice(x, y, [jnp.uint32(1)] * 2), floats(4, 3), floats(2, 2)),
    "dynamic update per run": (lambda x, y, i: lax.dynamic_update_slice(x, y, [i, i]), floats(4, 3), floats(2, 2), integers(5)),
    "gather": (lambda x, i: (x[i], TABLE[i, 1:], x[:, i % 3], jnp.take_along_axis(x, x.argsort(0), 0)), floats(4, 3), integers(4)),
    "gather many": (lambda x, i: (x[i], TABLE[i], jnp.take(x, i, axis=0, mode="clip")), floats(4, 3), integers(6, 2)),
    "scatter": (lambda x, i: (x.at[i].add(2.0), x.at[i].set(0.0), TABLE.at[i].max(5.0), x.at[i % 3].mul(x[0])), floats(4, 3), integers(4)),
    "read and write a ring": (lambda x, y: (x[WHERE], x.at[WHERE].set(y), x.at[WHERE].add(y), x.at[-WHERE].max(y)), floats(100), floats()),
    "write a ring after reading it": (lambda x, y: (a := x[WHERE], b := x[WHERE - 1], x.at[WHERE].set(y).at[WHERE - 2].add(a), b), floats(100), floats()),
    "write rows of a ring": (lambda x, y: (x.at[WHERE].mul(y), x.at[WHERE, 2].min(y[0]), x.at[:, WHERE].set(y[0]), x.at[2, :, WHERE].set(y[1, :3])), floats(9, 3, 8), floats(3, 8)),
    "write beyond the end": (lambda x, y: (x.at[9 * WHERE].set(y), x.at[-9 * WHERE].add(y), x.at[9 * WHERE].set(y, mode="clip"), x.at[-9 * WHERE].mul(y, mode="clip"), x.at[WHERE].set(y, mode="promise_in_bounds")), floats(8), floats()),
    "write at an index of few bits": (lambda x, i: (x.at[WHERE.astype(jnp.uint8)].set(1.0), x.at[i.astype(jnp.uint8)].add(1.0), x[:90].at[i.astype(jnp.int8), 0].set(2.0), x[:9].at[WHERE.astype(jnp.int8)].add(1.0)), floats(300, 2), integers(9)),
    "write per run": (lambda x, i, y: (x.at[i].set(y), x.at[i].add(y), x.at[-1 - i].max(y), x.at[i].min(y), x.at[i].mul(y), x.at[i].divide(2.0)), floats(9), integers(9), floats()),
    "write rows per run": (lambda x, i, y: (x.at[i].set(y), x.at[i, 1].add(y[0]), x.at[:, i % 3].max(y[0]), x.at[i, :, i].set(y[:, 0])), floats(6, 3, 8), integers(6), floats(3, 8)),
    "write per run beyond the end": (lambda x, i, y: (x.at[i + 4].set(y), x.at[-i - 4].add(y), x.at[i + 4].set(y, mode="clip"), x.at[-i - 9].add(y, mode="clip")), floats(8), integers(9), floats()),
    "write in a long table per run": (lambda x, i, y: (x[i], x.at[i].set(y).at[i // 2].add(x[i]), x.at[i + 40].add(y), x.at[-i - 40].max(y, mode="clip")), floats(80), integers(80), floats()),
    "write in a shared table": (lambda i, y: (TABLE.at[WHERE].set(y), TABLE.at[i].add(1.0), jnp.zeros(80).at[i].set(y[0]), jnp.zeros(80).at[WHERE].add(y[1])), integers(4), floats(3)),
    "write an unmapped value": (lambda x, i: (x.at[WHERE].set(2.0), x.at[i].set(TABLE[0])), floats(4, 3), integers(4)),
    "write whole numbers and flags": (lambda x, a, i: (x.at[i].add(2), x.at[WHERE].max(4), a.at[i].set(True), a.at[WHERE].set(False), x.at[i].set(7)), integers(9, 5), booleans(5), integers(5)),
    "apply a function": (lambda x, i: (x.at[i].apply(jnp.cos), x.at[WHERE].apply(jnp.sin), x.at[i].power(2.0)), floats(8), integers(8)),
    "write slices": (lambda x, y, i: (x.at[1:3].set(y), x.at[::2].add(1.0), x.at[i[0] % 3, 1:].set(y[0, 1:]), x.at[jnp.array([0, 2])].max(y)), floats(4, 3), floats(2, 3), integers(4, 2)),
    "write many": (lambda x, i, y: (x.at[i].add(y), jnp.zeros(4).at[i].add(y), x.at[i].mul(2.0), x.at[jnp.array([1, 1, 3])].add(y[:3])), floats(7), integers(4, 5), floats(5)),
    "write many beyond the end": (lambda x, i: (x.at[i + 3].add(1.0), x.at[i + 3].max(2.0, mode="clip"), x.at[-i - 4].add(1.0)), floats(7), integers(9, 5)),
    "read beyond the end": (lambda x, i: (x[i + 4], x[9 * WHERE], jnp.take(x, i + 4), jnp.take(x, i + 4, mode="wrap"), x.at[i + 4].get(mode="fill", fill_value=-1.0), x.at[9 * WHERE].get(mode="fill", fill_value=7.0)), floats(8), integers(9)),
    "read many": (lambda x, i: (x[i], x[:, i[:2]], x[i, 1], x[i, i % 3], TABLE[i], TABLE[:, i % 3], x[jnp.array([2, 0])], x[jnp.array([2, 0]), :2], jnp.take_along_axis(x, i[:, None] % 3, 1)), floats(4, 3), integers(4, 4)),
    "read many beyond the end": (lambda x, i: (jnp.take(x, i + 3), jnp.take(x, i + 3, mode="clip"), x.at[i + 3].get(mode="fill", fill_value=0.5), jnp.take(TABLE, i + 3, axis=1)), floats(7), integers(9, 5)),
    "read below the start": (lambda x: (lax.dynamic_slice(x, [-WHERE - 9], (2,)), lax.dynamic_update_slice(x, x[:2], [-WHERE - 9]), lax.dynamic_slice(x, [-WHERE], (2,))), floats(8)),
    "histogram": (lambda i: jnp.zeros(4, jnp.int32).at[i].add(1), integers(4, 9)),
    "one-hot": (lambda i: (jax.nn.one_hot(i, 4), numerics.one_hot(i, 4), numerics.pick(numerics.one_hot(i, 3), TABLE)), integers(3)),
    "searchsorted": (lambda x, v: jnp.searchsorted(jnp.sort(x), v), floats(5), floats(3)),
}  # fmt: skip

PLACES = {
    "an element of each run's own": (lambda x, i: numerics.take(x, i), floats(3, 10), integers(10)),
    "an element of a shared table": (lambda i: numerics.take(jnp.arange(30.0).reshape(3, 10), i), integers(10)),
    "a place beyond the end": (lambda x, i: numerics.take(x, i + 7), floats(3, 10), integers(10)),
    "a row": (lambda x, i: numerics.at(x, (i,)), floats(4, 3, 2), integers(4)),
    "a cell": (lambda x, i, j: numerics.at(x, (i, j, 1)), floats(4, 3, 2), integers(4), integers(3)),
    "a cell of a shared table": (lambda i, j: numerics.at(jnp.arange(12.0).reshape(4, 3), (i, j)), integers(4), integers(3)),
    "a row written": (lambda x, i: numerics.put(x, (i,), 2.0 * x[0]), floats(4, 3, 2), integers(4)),
    "a cell written": (lambda x, i, j: numerics.put(x, (i, 2, j), 5.0), floats(4, 3, 2), integers(4), integers(2)),
    "a cell of whole numbers written": (lambda x, i: numerics.put(x, (i,), x[0] + 1), integers(9, 4), integers(4)),
    "a cell of a shared table written": (lambda i: numerics.put(jnp.zeros((4, 2)), (i,), jnp.ones(2)), integers(4)),
    "a window that is no single place": (lambda x, i: lax.dynamic_slice(x, (i, 0), (2, 3)), floats(5, 3), integers(4)),
    "chunks": (lambda x: xla.chunked_fold(x, jnp.int32(70), jnp.zeros(()), lambda c, part, first: c + jnp.sum(part) * (first + 1)), floats(96)),
}  # fmt: skip

LINEAR_ALGEBRA = {
    "products": (lambda x, y: (x @ y, x @ TABLE.T[:, :2], TABLE @ y, x[0] @ y, jnp.vdot(x[0], x[1])), floats(4, 3), floats(3, 2)),
    "einsum": (lambda x, y: (jnp.einsum("ij,kj->ik", x, y), jnp.einsum("ij,kj->", x, y)), floats(4, 3), floats(2, 3)),
    "cholesky": (lambda a: jnp.linalg.cholesky(definite(a)), floats(4, 4)),
    "solve": (lambda a, b: (jnp.linalg.solve(definite(a), b), jnp.linalg.inv(definite(a))), floats(4, 4), floats(4)),
    "triangular": (lambda a, b: jax.scipy.linalg.solve_triangular(jnp.tril(a) + 4 * jnp.eye(4), b, lower=True), floats(4, 4), floats(4)),
    "cho_solve": (lambda a, b: jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(definite(a)), b), floats(4, 4), floats(4)),
    "eigenvalues": (lambda a: jnp.linalg.eigvalsh(definite(a)), floats(3, 3)),
    "determinant": (lambda a: jnp.linalg.slogdet(definite(a)), floats(3, 3)),
}  # fmt: skip

TRUE = jnp.arange(3).sum() > 2  # A predicate that is not known before the function is compiled.

CONTROL = {
    "scan": (lambda x: lax.scan(lambda c, y: (c * 0.5 + y, c + y), 0.0, x), floats(6)),
    "scan, unmapped carry": (lambda x: lax.scan(lambda c, y: ((c[0] + 1, c[1] + y * c[0]), c[0]), (0, jnp.zeros(3)), x), floats(6, 3)),
    "scan, carry mapped late": (lambda x: lax.scan(lambda c, _: ((c[1], c[2], c[2] + x), c[0]), (0.0, 1.0, 2.0), length=5), floats()),
    "scan, reverse and unrolled": (lambda x: lax.scan(lambda c, y: (c + y, c), jnp.ones(3), x, reverse=True, unroll=2), floats(6, 3)),
    "scan, consts and xs unmapped": (lambda x: lax.scan(lambda c, row: (c + x @ row, row.sum()), 0.0, TABLE), floats(3)),
    "scan of solves": (lambda a: lax.scan(lambda c, _: (jnp.linalg.solve(definite(a), c), None), jnp.ones(4), length=3)[0], floats(4, 4)),
    "map": (lambda x: lax.map(lambda row: jnp.sin(row).sum(), x), floats(3, 4)),
    "fori": (lambda x: lax.fori_loop(0, 4, lambda i, c: c + x[i] * i, 0.0), floats(4)),
    "fori, indices of another type": (lambda x: lax.fori_loop(jnp.uint32(0), jnp.uint32(3), lambda i, c: c + lax.dynamic_index_in_dim(x, i, 0, False), jnp.zeros(3)), floats(4, 3)),
    "fori, bound per run": (lambda x, n: lax.fori_loop(0, n, lambda i, c: c * x, 1.0), floats(), integers(6)),
    "while, common end": (lambda x: lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, c[1] * x), (0, jnp.ones(3))), floats(3)),
    "while, end per run": (lambda x: lax.while_loop(lambda c: c[1] < 9, lambda c: (c[0] + 1, 2 * c[1]), (0, 0.5 + x * x)), floats()),
    "while, end by a closed-over run": (lambda n: lax.while_loop(lambda i: i < n, lambda i: i + 1, 0), integers(7)),
    "cond": (lambda x: lax.cond(TRUE, lambda x: (x, 1.0), lambda x: (x * 2, 3.0), x), floats(3)),
    "cond, result in one branch unmapped": (lambda x: lax.cond(TRUE, lambda x: jnp.ones(3), lambda x: x, x), floats(3)),
    "cond per run": (lambda x: lax.cond(x[0] > 0, lambda x: (jnp.sin(x), 1), lambda x: (x, 2), x), floats(3)),
    "switch": (lambda x: lax.switch(jnp.argmax(TABLE[0]), [jnp.sin, jnp.cos, jnp.exp], x), floats(3)),
    "switch per run": (lambda x, i: lax.switch(i, [jnp.sin, jnp.cos, jnp.exp], x), floats(3), integers(4)),
    "nested": (lambda x: lax.scan(lambda c, i: (lax.cond(i % 2 == 0, lambda c: lax.fori_loop(0, 2, lambda _, d: d * x, c), lambda c: c + 1, c), None), x, jnp.arange(4))[0], floats()),
    "jit inside": (jax.jit(lambda x: jax.jit(jnp.cumsum)(x) + jax.jit(lambda y: (y * 2).sum())(x)), floats(4)),
    "vmap inside": (lambda x: jax.vmap(lambda row: jnp.sort(row) @ row)(x), floats(3, 4)),
    "checkpoint": (jax.checkpoint(lambda x: jnp.sin(jnp.cos(x))), floats(3)),
}  # fmt: skip

DERIVATIVES = {
    "relu": (lambda x: (jax.nn.relu(x), jax.grad(lambda y: jax.nn.relu(y).sum())(x)), floats(4)),
    "logsumexp": (lambda x: (jax.nn.logsumexp(x), jax.grad(jax.nn.logsumexp)(x)), floats(4)),
    "softmax": (lambda x: (jax.nn.softmax(x), jax.jacobian(jax.nn.softmax)(x), jax.nn.log_softmax(x, 0)), floats(4)),
    "activations": (lambda x: (jax.nn.gelu(x), jax.nn.silu(x), jax.nn.softplus(x), jax.nn.sigmoid(x), jax.nn.elu(x)), floats(4)),
    "gradient of a solve": (lambda a: jax.grad(lambda a: jnp.linalg.solve(definite(a), jnp.ones(3)).sum())(a), floats(3, 3)),
    "jvp of a scan": (lambda x: jax.jvp(lambda x: lax.scan(lambda c, y: (c * y, c), 1.0, x)[0], (x,), (jnp.ones(4),)), floats(4)),
}  # fmt: skip

KEYS = {
    "draws": (lambda k: (draws.normal(k, (3,)), draws.randint(k, 9)), keys()),
    "fold_in and split": (lambda k, t: (draws.fold_in(k, t), draws.split(k, 3), jax.random.fold_in(k, t), jax.random.split(k, 3)), keys(), integers(9)),
    "jax.random": (lambda k, x: (jax.random.normal(k, (3,)), jax.random.categorical(k, x), jax.random.permutation(k, 5)), keys(), floats(4)),
    "rejection": (lambda k, x: jax.random.gamma(k, 0.5 + x * x), keys(), floats()),
    "unmapped key": (lambda x: (x + draws.normal(KEY, (3,)), KEY, jax.random.split(KEY, 2)), floats(3)),
    "key from a seed": (lambda s: (jax.random.key(s), draws.uniform(draws.key(s))), integers(9)),
    "several keys per run": (lambda k: jax.vmap(draws.normal)(k), keys(3)),
    "choice between keys": (lambda p, k: jnp.where(p, k, KEY), booleans(), keys()),
    "key data": (lambda k: jax.random.key_data(k), keys()),
    "equality": (lambda k: k == KEY, keys()),
    "key in a carry": (lambda k: lax.scan(lambda c, _: (jax.random.split(c)[0], draws.normal(c)), k, length=4), keys()),
    "unmapped key in a carry": (lambda x: lax.scan(lambda c, y: (draws.fold_in(c, 1), y + draws.normal(c)), KEY, x), floats(4)),
    "unmapped key scanned": (lambda x: lax.scan(lambda c, k: (c + draws.normal(k), c), x, jax.random.split(KEY, 4)), floats()),
    "key closed over by a loop": (lambda k: lax.fori_loop(0, 3, lambda i, c: c + draws.uniform(draws.fold_in(k, i)), 0.0), keys()),
    "carry that becomes a mapped key": (lambda n: lax.fori_loop(0, 3, lambda i, k: draws.fold_in(k, n + i), KEY), integers(9)),
    "while with a key": (lambda k: lax.while_loop(lambda c: c[1] < 0.5, lambda c: (draws.fold_in(c[0], 1), draws.uniform(c[0])), (k, 0.0)), keys()),
    "while whose key becomes mapped": (lambda n: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, draws.fold_in(c[1], n)), (0, KEY)), integers(9)),
    "keys made in a map": (lambda s: lax.map(jax.random.key, s), integers(9, 3)),
    "keys made in a scan": (lambda s: lax.scan(lambda c, i: (c + 1, draws.fold_in(draws.key(0), c + i)), s, jnp.arange(3)), integers(9)),
    "cond of a key": (lambda k: lax.cond(TRUE, lambda k: draws.fold_in(k, 1), lambda k: k, k), keys()),
    "cond of an unmapped key": (lambda n: lax.cond(TRUE, lambda n: draws.fold_in(KEY, n), lambda n: KEY, n), integers(9)),
    "cond that makes a key": (lambda s: lax.cond(TRUE, draws.key, lambda s: draws.key(s + 1), s), integers(9)),
    "cond per run of a key": (lambda p, k: lax.cond(p, lambda k: draws.fold_in(k, 1), lambda k: k, k), booleans(), keys()),
}  # fmt: skip

CASES = ELEMENTWISE | SHAPING | INDEXING | PLACES | LINEAR_ALGEBRA | CONTROL | DERIVATIVES | KEYS


@jax.custom_jvp
def straight_through(x):
    """Rounds, with the derivative of the identity."""
    return jnp.round(x)


straight_through.defjvp(lambda x, dx: (straight_through(*x), dx[0]))


@jax.custom_vjp
def loud(x):
    """The identity, with the gradient multiplied by 7."""
    return x


loud.defvjp(lambda x: (x, None), lambda _, g: (7 * g,))

DIFFERENTIABLE = {
    "arithmetic": (lambda x: x**2 * jnp.sin(x), floats(4)),
    "sort and cumsum": (lambda x: jnp.cumsum(jnp.sort(x)) * x[0], floats(4)),
    "gather": (lambda x: x[jnp.argmax(x)] * x, floats(4)),
    "scan": (lambda x: lax.scan(lambda c, y: (c * y + 1, c), 1.0, x), floats(4)),
    "cond": (lambda x: lax.cond(x[0] > 0, jnp.sin, lambda x: 2 * x, x), floats(4)),
    "softmax": (lambda x: jax.nn.softmax(x) @ jnp.arange(4.0), floats(4)),
    "solve": (lambda a: jnp.linalg.solve(definite(a), jnp.arange(3.0)), floats(3, 3)),
    "custom_vjp": (lambda x: loud(x) * x, floats(4)),
    "custom_jvp": (lambda x: straight_through(x) * x, floats(4)),
    "relu at zero": (jax.nn.relu, np.zeros((4, R), np.float32)),
}
