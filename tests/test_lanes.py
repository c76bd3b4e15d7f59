"""`lanes(fn, R)` computes what `jax.vmap(fn, in_axes=-1, out_axes=-1)` computes, whatever `fn` is made of."""

import math

import flax.linen as nn
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import x64
from hypothesis import HealthCheck, given, settings
from jax import lax

import jaxroute.lanes as lanes_module
from jaxroute import draws, fusion, numerics
from jaxroute.lanes import CPU_OPTIONS, lanes
from jaxroute.problems import stochastic

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
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        one, other = plain(one), plain(other)
        if one.dtype.kind == "f":
            np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(one, other)


def both(fn, *args):
    """Results of `lanes` and of `vmap`, compiled in one go."""
    run = jax.jit(lambda *a: (lanes(fn, R)(*a), jax.vmap(fn, in_axes=-1, out_axes=-1, axis_size=R)(*a)))
    return run(*args)


def check(fn, *args, **tolerance):
    ours, theirs = both(fn, *args)
    assert_same(ours, theirs, **tolerance)
    return ours


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
    "once": (lambda x: fusion.once((x, jnp.ones(3), {"sum": x.sum()})), floats(3)),
    "nextafter": (lambda x: jnp.nextafter(x, 2 * x), floats(3)),
}  # fmt: skip

SHAPING = {
    "reductions": (lambda x: (x.sum(), x.sum(0), x.mean(1), x.max(1), x.min(), x.prod(0), x.std()), floats(3, 4)),
    "logical reductions": (lambda a: (a.any(), a.all(0), a.sum(1)), booleans(3, 4)),
    "argmax": (lambda x: (jnp.argmax(x), jnp.argmax(x, 0), jnp.argmin(x, 1)), integers(3, 4, 3)),
    "first best": (lambda x, a: (fusion.first_best(x[:, 0]), fusion.first_best(x, a), fusion.first_best(TABLE[0], a[0])), floats(4, 3), booleans(4, 3)),
    "sums": (lambda x: fusion.sums([x, 2 * x, TABLE]), floats(4, 3)),
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
    "chunks": (lambda x: numerics.fold(x, jnp.int32(70), jnp.zeros(()), lambda c, part, first: c + jnp.sum(part) * (first + 1)), floats(96)),
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


@pytest.mark.parametrize("name", CASES)
def test_equals_vmap(name):
    fn, *args = CASES[name]
    check(fn, *args, **({"rtol": 2e-4, "atol": 1e-5} if name in LINEAR_ALGEBRA or "solve" in name else {}))


def test_closed_over_values_are_not_mapped():
    """Also tracers of an outer `jit`, whose last axis happens to have length R."""
    x, table = floats(3), jnp.arange(3.0 * R).reshape(3, R)

    def outer(x, table):
        def inner(x):
            return x[:, None] * table + jnp.sum(table)

        return lanes(inner, R)(x), jax.vmap(inner, in_axes=-1, out_axes=-1)(x)

    assert_same(*jax.jit(outer)(x, table))
    assert_same(*outer(x, table))


@pytest.mark.parametrize("name", ["arithmetic", "sort", "gather", "scatter", "scan, carry mapped late", "cond", "while, end per run", "draws", "solve"])  # fmt: skip
def test_inside_an_outer_vmap(name):
    """As for a swept setting: one leading axis, over which some arguments vary and others do not."""
    fn, *args = CASES[name]
    scale = jnp.arange(1.0, 4.0)

    def setting(scale, batched):
        def one(*args):
            first = args[0] * scale if args[0].dtype == jnp.float32 else args[0]
            return fn(first, *args[1:]), scale

        return batched(one)(*args)

    def settings_of(batched):
        return jax.vmap(lambda s: setting(s, batched))(scale)

    ours, theirs = jax.jit(
        lambda: (settings_of(lambda f: lanes(f, R)), settings_of(lambda f: jax.vmap(f, in_axes=-1, out_axes=-1)))
    )()
    assert_same(ours, theirs, rtol=2e-4, atol=1e-5)


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


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient_through_lanes(name):
    fn, x = DIFFERENTIABLE[name]

    def total(batched):
        return lambda x: sum(jnp.sum(out) for out in jax.tree.leaves(batched(fn)(x)))

    ours = jax.jit(jax.grad(total(lambda f: lanes(f, R))))(x)
    theirs = jax.jit(jax.grad(total(lambda f: jax.vmap(f, in_axes=-1, out_axes=-1))))(x)
    assert_same(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    ["arithmetic", "integers", "unmapped operands", "gather", "dynamic slice", "dynamic slice per run", "cumulative", "scan", "fori", "solve", "draws"],
)  # fmt: skip
def test_in_double_precision(name):
    fn, *args = CASES[name]
    with x64():
        wide = [
            a.astype(np.float64) if a.dtype == np.float32 else a.astype(np.int64) if a.dtype == np.int32 else a for a in args
        ]
        check(fn, *wide, rtol=1e-12, atol=1e-12) if name != "draws" else check(fn, *wide)


@pytest.mark.parametrize("size", [1, 16])
def test_any_number_of_runs(size):
    x = np.arange(3.0 * size, dtype=np.float32).reshape(3, size)
    for fn in (lambda x: (jnp.sort(x), x @ x, x[jnp.argmax(x)]), lambda x: jnp.zeros(())):
        assert_same(lanes(fn, size)(x), jax.vmap(fn, in_axes=-1, out_axes=-1)(x))


def test_trees_in_and_out():
    tree = {"a": (floats(2), integers(4)), "k": keys(), "none": None, "empty": ()}

    def fn(tree):
        return {**tree, "sum": tree["a"][0].sum() + tree["a"][1], "drawn": draws.uniform(tree["k"])}

    check(fn, tree)


def test_options_that_this_compiler_does_not_have_are_left_out(monkeypatch):
    monkeypatch.setattr(lanes_module, "CPU_OPTIONS", {"xla_of_tomorrow": "1", **CPU_OPTIONS, "xla_of_yesterday": "2"})
    lowered = jax.jit(lambda x: x + 1).lower(1.0)
    used, compile_ = [], lowered.compile

    class Watched:
        def compile(self, compiler_options):
            used.append(dict(compiler_options))
            return compile_(compiler_options=compiler_options)

    assert lanes_module.compile_lanes(Watched(), "cpu")(1.0) == 2.0
    assert used[-1] == CPU_OPTIONS and len(used) == 3
    monkeypatch.setattr(lanes_module, "CPU_OPTIONS", {"xla_cpu_prefer_vector_width": "wide"})
    with pytest.raises(jax.errors.JaxRuntimeError, match="not a valid int32"):
        lanes_module.compile_lanes(lowered, "cpu")


def test_a_step_of_a_policy_moves_no_axis():
    """What `lanes` is for: with `vmap` the same step has transpositions or gathers, here the run axis stays last throughout."""
    policy = stochastic.UCB1()
    state = policy.init(None, stochastic.bernoulli([0.2, 0.5, 0.7]).spec)
    states = jax.tree.map(lambda s: jnp.zeros((*s.shape, R), s.dtype), state)

    def step(state, reward, words):
        key = jax.random.wrap_key_data(words, impl=draws.KEY_IMPL)
        action, info = policy.act(key, state, (), 3)
        noisy = reward + draws.normal(key, (3,)) + numerics.rank(info["bound"])
        return policy.update(key, state, (), action, jnp.sum(jnp.where(numerics.one_hot(action, 3), noisy, 0.0)), 3)

    args = states, floats(3), np.zeros((2, R), np.uint32)
    text, compiled = str(jax.make_jaxpr(lanes(step, R))(*args)), jax.jit(lanes(step, R)).lower(*args).as_text()
    assert "threefry2x32" not in text and "threefry_2x32" not in compiled  # The draws end up as integer arithmetic,
    assert (
        "shift_left" in compiled and "while" not in compiled and "custom_call" not in compiled
    )  # in no loop or call to a library.
    for one in (text, compiled):
        assert "transpose" not in one
        assert "gather" not in one
    check(step, states, floats(3), np.ones((2, R), np.uint32))


# Learned predictors: modules and optimisers inside a step function.


class Network(nn.Module):
    """A small predictor."""

    @nn.compact
    def __call__(self, x):
        x = nn.LayerNorm()(nn.relu(nn.Dense(8, kernel_init=nn.initializers.uniform(1.0))(x)))
        return nn.Dense(1, kernel_init=nn.initializers.uniform(1.0))(x)[..., 0]


@pytest.mark.parametrize(
    ("optimiser", "shared"), [("adam", False), ("sgd", True)], ids=["adam, parameters per run", "sgd, shared start"]
)
def test_training_a_network_in_every_run(optimiser, shared):
    network = Network()
    transform = getattr(optax, optimiser)(0.05)
    xs, ys = floats(4, 3), floats(4)
    fixed = network.init(KEY, jnp.zeros((4, 3)))

    def train(key, xs, ys):
        params = fixed if shared else network.init(key, xs)

        def loss(params):
            return jnp.mean((network.apply(params, xs) - ys) ** 2)

        def step(carry, _):
            params, state = carry
            value, gradient = jax.value_and_grad(loss)(params)
            update, state = transform.update(gradient, state, params)
            return (optax.apply_updates(params, update), state), value

        (params, _), losses = lax.scan(step, (params, transform.init(params)), length=3)
        return params, losses, network.apply(params, xs)

    _, losses, _ = check(train, keys(), xs, ys, rtol=1e-3, atol=1e-4)
    assert (losses[-1] < losses[0]).all()  # It did train.


# Random programs.

STEPS = {
    "add": (2, lambda a, b: a + b),
    "subtract scaled": (2, lambda a, b: a - 0.5 * b),
    "multiply": (2, lambda a, b: jnp.tanh(a) * b),
    "maximum": (2, jnp.maximum),
    "where": (2, lambda a, b: jnp.where(a > b, a, -b)),
    "sum": (1, lambda a: jnp.sum(a)),
    "max of an axis": (1, lambda a: a.max(axis=0) if a.ndim else a),
    "cumsum": (1, lambda a: jnp.cumsum(a, axis=-1) if a.ndim else a),
    "sort": (1, lambda a: jnp.sort(a, axis=0) if a.ndim else a),
    "reverse": (1, lambda a: a[::-1] if a.ndim else a),
    "transpose": (1, lambda a: a.T),
    "ravel": (1, lambda a: a.ravel()),
    "new axis": (1, lambda a: a[None] if a.ndim < 3 else a),
    "half": (1, lambda a: a[: (a.shape[0] + 1) // 2] if a.ndim else a),
    "concatenate": (1, lambda a: jnp.concatenate([a, 2 * a]) if a.ndim and a.shape[0] < 8 else a),
    "pad": (1, lambda a: jnp.pad(a, [(1, 0)] * a.ndim)[1:] if a.ndim else a),
    "pick the best": (1, lambda a: a[jnp.argmax(a, axis=0)] if a.ndim == 1 else a),
    "one-hot": (1, lambda a: jnp.where(numerics.one_hot(numerics.argmax(a), a.shape[0]), a, 0.0) if a.ndim == 1 else a),
    "rank": (1, lambda a: numerics.rank(a).astype(jnp.float32) if a.ndim == 1 else a),
    "set the first": (2, lambda a, b: a.at[0].set(jnp.tanh(b.sum())) if a.ndim else a),
    "outer": (2, lambda a, b: a[:, None] * jnp.tanh(b) if a.ndim == 1 and b.ndim == 1 else a),
    "product": (2, lambda a, b: a @ jnp.tanh(b) if a.ndim == b.ndim == 1 and a.shape == b.shape else a),
    "integers": (1, lambda a: (jnp.clip(a, -9, 9).astype(jnp.int32) % 3).astype(jnp.float32)),
    "scan": (1, lambda a: lax.scan(lambda c, x: (0.5 * c + x, c), jnp.zeros(a.shape[1:]), a)[1] if a.ndim else a),
    "loop": (1, lambda a: lax.fori_loop(0, 3, lambda i, c: 0.5 * c + i, a)),
    "loop per run": (1, lambda a: lax.while_loop(lambda c: jnp.abs(c).max() > 1, lambda c: 0.5 * c, a) if a.size else a),
    "cond per run": (1, lambda a: lax.cond(a.sum() > 0, jnp.sin, lambda a: a + 1, a)),
    "constant": (1, lambda a: jnp.broadcast_to(jnp.arange(a.shape[-1], dtype=jnp.float32), a.shape) if a.ndim else a),
    "draw": (1, lambda a: a + draws.uniform(draws.fold_in(KEY, jnp.clip(a.sum(), 0, 9).astype(jnp.int32)), a.shape)),
}


def run_program(program, values):
    """Each step takes operands by index from all values so far; operands that do not broadcast leave the first one."""
    values = list(values)
    for name, first, second in program:
        arity, step = STEPS[name]
        a, b = values[first % len(values)], values[second % len(values)]
        if arity == 1:
            values.append(step(a))
        else:
            try:
                np.broadcast_shapes(a.shape, b.shape)
            except ValueError:
                b = b.sum()
            values.append(step(a, b))
    return values[2:]


programs = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=7)


def check_program(program):
    ours, theirs = both(lambda *v: run_program(program, v), floats(3), floats(2, 3))
    assert_same(ours, theirs, rtol=1e-4, atol=1e-5)


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(programs)
def test_random_programs(program):
    check_program(program)


@pytest.mark.slow
@settings(max_examples=600, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(programs)
def test_many_random_programs(program):
    check_program(program)


# Branches that some runs take are computed for those runs alone.


def rare(taken, x, words, shared):
    """A branch of several operands: carried arrays, a key as words, and an operand that all runs share."""

    def costly(x):
        key = jax.random.wrap_key_data(words)
        return jnp.tanh(x) + shared * draws.uniform(key, x.shape), jnp.sum(x > 0)

    return lax.cond(taken, costly, lambda x: (x, jnp.int32(-1)), x)


@pytest.mark.parametrize("size", [16, 32, 33, 80])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.4, 1.0])
def test_a_branch_that_some_runs_take(size, share):
    rng = np.random.default_rng(size)
    taken = jnp.asarray(rng.random(size) < share)
    x, words = (
        jnp.asarray(rng.standard_normal((3, size)), jnp.float32),
        jnp.asarray(rng.integers(0, 2**32, (2, size)), jnp.uint32),
    )
    shared = jnp.asarray(rng.standard_normal(3), jnp.float32)

    def one(taken, x, words):
        return rare(taken, x, words, shared)

    ours = jax.jit(lanes(one, size))(taken, x, words)
    theirs = jax.jit(jax.vmap(one, in_axes=-1, out_axes=-1))(taken, x, words)
    assert_same(ours, theirs)
    assert int((ours[1] >= 0).sum()) == int(taken.sum())


def test_a_rare_branch_is_loop_free_elsewhere_and_survives_a_map_over_settings():
    """Predicates may differ between settings too; on other devices than a CPU both branches are computed."""
    size, settings = 48, 3
    rng = np.random.default_rng(0)
    chance = jnp.asarray([0.0, 0.1, 0.9])
    u, x = jnp.asarray(rng.random(size), jnp.float32), jnp.asarray(rng.standard_normal((2, size)), jnp.float32)

    def many(chance):
        return lanes(lambda u, x: lax.cond(u < chance, jnp.sin, lambda x: x, x), size)(u, x)

    found = jax.jit(jax.vmap(many))(chance)
    for s in range(settings):
        expected = np.where(np.asarray(u) < np.asarray(chance[s]), np.sin(np.asarray(x)), np.asarray(x))
        np.testing.assert_allclose(found[s], expected, rtol=1e-5)
    on_gpu = jax.jit(lambda c: many(c)).trace(chance[1]).lower(lowering_platforms=("cuda",)).as_text()
    on_cpu = jax.jit(lambda c: many(c)).trace(chance[1]).lower(lowering_platforms=("cpu",)).as_text()
    assert "stablehlo.while" in on_cpu and "stablehlo.while" not in on_gpu


def test_barriers_keep_what_runs_share_apart():
    """One operand that depends on the run and one that does not, carried through a scan and through a branch."""

    def body(carry, _):
        a, b = lax.optimization_barrier((carry[0] + 1.0, carry[1] * 2.0))
        return (a, b), b

    def scanned(x):
        return lax.scan(body, (x, jnp.float32(1.0)), None, length=3)

    def branched(x):
        return lax.cond(
            TRUE, lambda x: tuple(lax.optimization_barrier((x, jnp.float32(2.0)))), lambda x: (x, jnp.float32(1.0)), x
        )

    for fn in (scanned, branched):
        ours, theirs = both(fn, floats())
        assert_same(ours, theirs)


def test_a_key_inside_a_loop_with_a_branch():
    """What passes through a branch on a key beside it is mapped, whatever it is."""

    def fn(x):
        def body(carry, i):
            a, n = carry
            key = draws.fold_in(KEY, i)
            a, n = lax.cond(i > 0, lambda k, a, n: (a + draws.uniform(k), n + 1), lambda k, a, n: (a, n), key, a, n)
            return (a, n), a

        return lax.scan(body, (x, jnp.int32(0)), jnp.arange(3))

    ours, theirs = both(fn, floats())
    assert_same(ours, theirs)
