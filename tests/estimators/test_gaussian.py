"""Normal posteriors: factorisations, rank-one updates, samplers, and square roots as products of factors."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import x64
from reference import queueing as ref

from jaxroute.core import draws, numerics
from jaxroute.estimators import gaussian
from jaxroute.estimators.gaussian import ByCholesky, ByFactors, ByRoot, Ridge
from jaxroute.problems.cascade.parts.indices import change_of_inverse

slow = pytest.mark.slow


@pytest.mark.parametrize("d", [5, 17, *[pytest.param(d, marks=slow) for d in (1, 2, 3, 8, 16, 30)]])
def test_written_out_factorisations(d, double_precision):
    rng = np.random.default_rng(d)
    V = np.einsum("bij,bkj->bik", *[rng.normal(size=(4, d, d + 2))] * 2) + 0.1 * np.eye(d)
    b = rng.normal(size=(4, d))
    L = np.linalg.cholesky(V)
    np.testing.assert_allclose(gaussian.cholesky(jnp.asarray(V)), L, rtol=1e-10, atol=1e-12)
    for transposed, matrix in ((False, L), (True, np.swapaxes(L, 1, 2))):
        np.testing.assert_allclose(
            gaussian.solve_triangular(jnp.asarray(L), jnp.asarray(b), transposed),
            np.linalg.solve(matrix, b[..., None])[..., 0],
            rtol=1e-7,
        )
    np.testing.assert_allclose(
        gaussian.solve(jnp.asarray(V), jnp.asarray(b)), np.linalg.solve(V, b[..., None])[..., 0], rtol=1e-7
    )
    theirs = ref.thompson_sample(np.zeros(d), 1.0, V[0], b[0][:, None])[:, 0]
    spread = numerics.Sum.of(jnp.asarray(V[:1]))
    np.testing.assert_allclose(ByCholesky().sample(spread, jnp.asarray(b[0])[None, None])[0, 0], theirs, rtol=1e-7)


@pytest.mark.parametrize("d", [5, *[pytest.param(d, marks=slow) for d in (64, 80)]])
def test_rank_one_updates_do_not_drift(d, double_precision):
    rng = np.random.default_rng(d)
    x, weight = rng.normal(size=(500, d)) / math.sqrt(d), rng.uniform(0, 2, 500)

    def add(carry, row):
        inverse, root = carry
        return (gaussian.sherman_morrison(inverse, row[0], row[1]), gaussian.grown_root(root, row[0])), None

    def added(rows):
        start = numerics.Sum.of(jnp.eye(d) / 0.5), numerics.Sum.of(jnp.eye(d) / jnp.sqrt(0.5))
        return (one.total for one in jax.jit(lambda: jax.lax.scan(add, start, rows))()[0])

    inverse, root = added((jnp.asarray(x), jnp.asarray(weight)))
    weighted, plain = (0.5 * np.eye(d) + x.T @ (w[:, None] * x) for w in (weight, np.ones(500)))
    np.testing.assert_allclose(inverse, np.linalg.inv(weighted), atol=1e-11)
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(plain), atol=1e-11)
    # And in float32, as in a run.
    with x64(False):
        inverse, root = added((jnp.asarray(x, jnp.float32), jnp.asarray(weight, jnp.float32)))
    np.testing.assert_allclose(np.asarray(inverse, float) @ weighted, np.eye(d), atol=1e-4)
    np.testing.assert_allclose(np.asarray(root @ root.T, float) @ plain, np.eye(d), atol=1e-4)


ROWS = 200_000


@pytest.mark.parametrize("name", ["inverse", "root", "inverses side by side", pytest.param("ridge", marks=slow)])
def test_matrices_of_many_rows_keep_their_digits(name):
    """In float32 against float64. An inverse that is not symmetric to the last bit is off by 1e-3 here, and wrong after 1e9 rows."""
    d, key = 4, draws.key(0)
    eye = jnp.eye(d)

    def row(t):
        return 2.0 * draws.uniform(draws.fold_in(key, t), (d,)) - 1.0

    start, add, matrix = {
        "inverse": (numerics.Sum.of(eye), gaussian.sherman_morrison, lambda one: one.total),
        "root": (numerics.Sum.of(eye), gaussian.grown_root, lambda one: one.total @ one.total.T),
        "inverses side by side": (
            numerics.Sum.of(eye[:, :, None]),
            lambda one, x: one.add(change_of_inverse(one.total, x)),
            lambda one: one.total[:, :, 0],
        ),
        "ridge": (
            Ridge.start(1.0, d, 1),
            lambda one, x: one.add(x[:, None], x[0], jnp.ones(1, bool)),
            lambda one: one.inverse[:, :, 0],
        ),
    }[name]
    end = jax.jit(lambda one: jax.lax.fori_loop(0, ROWS, lambda t, one: add(one, row(t)), one))(start)
    rows = np.asarray(jax.jit(jax.vmap(row))(jnp.arange(ROWS, dtype=jnp.int32)), float)
    want, found = np.linalg.inv(np.eye(d) + rows.T @ rows), np.asarray(matrix(end), float)
    np.testing.assert_allclose(found, want, atol=5e-7 * np.abs(want).max())
    np.testing.assert_array_equal(found, found.T)


def test_samplers_have_the_same_covariance(double_precision):
    """Both that of the design matrix, within 4 standard errors."""
    rng, d, P, n, ridge = np.random.default_rng(0), 3, 6, 60_000, 0.7
    features, counts = rng.normal(size=(d, P)), rng.integers(0, 5, P)
    V = ridge * np.eye(d) + (features * counts) @ features.T
    inverse = np.linalg.inv(V)
    root = np.eye(d) / math.sqrt(ridge)
    for x in np.repeat(features.T, counts, axis=0):
        root = np.asarray(gaussian.grown_root(numerics.Sum.of(jnp.asarray(root)), jnp.asarray(x)).total)
    noise, kept = jnp.asarray(rng.standard_normal((1, n, d))), ((ByCholesky(), V), (ByRoot(), root))
    spreads = [(sampler, numerics.Sum.of(jnp.asarray(one)[None])) for sampler, one in kept]

    def sampled(sampler, spread):
        return jax.jit(jax.vmap(lambda z: sampler.sample(spread, z[None, None])[0, 0]))(noise[0])

    for name, sample in ((type(sampler).__name__, np.asarray(sampled(sampler, spread))) for sampler, spread in spreads):
        assert (np.abs(sample.mean(0)) < 4 * np.sqrt(np.diag(inverse) / n)).all(), name
        products = sample[:, :, None] * sample[:, None, :]
        error = products.std(axis=0, ddof=1) / math.sqrt(n)
        assert (np.abs(products.mean(0) - inverse) < 4 * error).all(), name
    for sampler, spread in spreads:
        np.testing.assert_allclose(sampler.min_eigenvalue(spread), np.linalg.eigvalsh(V)[:1], rtol=1e-10)


N, D, RIDGE = 5, 12, 0.3


def observations(seed, number=150):
    """Parameters (-1 for none) and features: most are of two parameters, so that these fill several pages; one has none."""
    rng = np.random.default_rng(seed)
    chosen = rng.choice([-1, 0, 1, 2, 3], size=(number, 2), p=[0.1, 0.4, 0.35, 0.1, 0.05]).astype(np.int32)
    return chosen, (rng.normal(size=(number, 2, D)) / np.sqrt(D)).astype(np.float32)


def filled(sampler, chosen, x):
    def add(spread, row):
        return sampler.add(spread, *row), None

    return jax.lax.scan(add, sampler.init(N, D, RIDGE, 2 * len(chosen)), (chosen, x))[0]


@pytest.fixture(scope="module")
def runs():
    """Spread after the observations of three runs: by factors, each alone and side by side, and by roots."""
    data = [observations(seed) for seed in range(3)]
    alone = [jax.jit(lambda c, x: filled(ByFactors(), c, x))(*d) for d in data]
    together = jax.tree.map(lambda *xs: jnp.stack(xs, -1), *data)
    beside = jax.jit(jax.vmap(lambda c, x: filled(ByFactors(), c, x), in_axes=-1, out_axes=-1))(*together)
    roots = [jax.jit(lambda c, x: filled(ByRoot(), c, x))(*d) for d in data]
    return data, alone, beside, roots


@pytest.mark.parametrize("number", [1, 3])
def test_samples_are_those_of_roots(runs, number):
    _, alone, beside, roots = runs
    noise = np.random.default_rng(9).normal(size=(N, number, D, 3)).astype(np.float32)
    of_roots = [ByRoot().sample(r, noise[..., i]) for i, r in enumerate(roots)]
    for i, spread in enumerate(alone):
        np.testing.assert_allclose(jax.jit(ByFactors().sample)(spread, noise[..., i]), of_roots[i], rtol=1e-4, atol=2e-5)
    side_by_side = jax.jit(jax.vmap(ByFactors().sample, in_axes=-1, out_axes=-1))(beside, noise)
    np.testing.assert_allclose(side_by_side, np.stack(of_roots, -1), rtol=1e-4, atol=2e-5)


def test_covariance(runs):
    (data, *_), (alone, *_), *_ = runs
    chosen, x = data
    eye = jnp.broadcast_to(jnp.eye(D), (N, D, D))
    root = np.swapaxes(np.asarray(ByFactors().sample(alone, eye), float), 1, 2)
    V = np.stack([RIDGE * np.eye(D) + x[chosen == j].T.astype(float) @ x[chosen == j] for j in range(N)])
    assert (chosen == 0).sum() > 100 and not (chosen == 4).any()
    np.testing.assert_allclose(root @ np.swapaxes(root, 1, 2) @ V, np.broadcast_to(np.eye(D), V.shape), atol=1e-4)
    np.testing.assert_allclose(ByFactors().min_eigenvalue(alone), np.linalg.eigvalsh(V)[:, 0], rtol=1e-4)


def test_memory_goes_with_the_observations():
    state = ByFactors().init(112, 384, 1.0, 1000)
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(state)) < ByRoot().init(112, 384, 1.0, 1000).total.nbytes / 10
    assert ByFactors().init(3, 4, 1.0, 0).rows.shape[0] == 1


def test_room_is_enough_in_the_worst_case():
    """Every parameter has one observation in its last page, one of them all others."""
    chosen = np.concatenate([np.arange(N), np.zeros(200, int)]).astype(np.int32)[:, None]
    x = np.random.default_rng(0).normal(size=(*chosen.shape, D)).astype(np.float32)
    spread = jax.jit(
        lambda c, x: jax.lax.scan(lambda s, r: (ByFactors().add(s, *r), None), ByFactors().init(N, D, 1.0, len(c)), (c, x))[
            0
        ]
    )(chosen, x)
    assert spread.in_use < spread.owner.shape[0]
    assert not np.asarray(spread.rows[-1]).any() and not np.asarray(spread.mix[-1]).any()
    assert (np.asarray(spread.pages) == [-(-201 // 16), 1, 1, 1, 1]).all()
