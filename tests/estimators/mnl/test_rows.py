"""Derivatives of rows, of counts and of the last observation, against the reference and against each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mnl_cases import observations, pair_rows_of, rows_of
from reference import queueing as ref

from jaxroute.estimators import mnl

slow = pytest.mark.slow


@pytest.mark.parametrize("K", [1, pytest.param(2, marks=slow), 3])
def test_derivatives_of_own_parameters(K, double_precision):
    rng, N, d, H = np.random.default_rng(K), 4, 2, 150
    X, _, items, accepted, offered, chosen = observations(rng, H, N, K, d, missing=0.2)
    rows, theta = rows_of(X, items, accepted, N), rng.normal(size=(N, d))
    sums = jax.jit(lambda theta, arms: rows.sums(theta, arms, H))
    for arms in (np.arange(N), np.arange(K), np.array([3, *[-1] * (K - 1)])):
        real = arms[arms >= 0]
        found = sums(theta, jnp.asarray(arms, jnp.int32))
        _, gradient, hessian = ref.disjoint_loss(theta, X, offered, chosen, 0.0, real)
        ours = np.asarray(found.gradient)
        np.testing.assert_allclose(ours[: len(real)].ravel(), gradient, atol=1e-11)
        assert not ours[len(real) :].any()
        inside = len(real) * d
        np.testing.assert_allclose(found.hessian[:inside, :inside], hessian, atol=1e-11)
        assert not np.asarray(found.hessian)[inside:].any()


@pytest.mark.parametrize("K", [1, pytest.param(2, marks=slow), 3])
def test_derivatives_of_one_parameter(K, double_precision):
    rng, N, d, H = np.random.default_rng(K), 4, 3, 150
    _, F, items, accepted, offered, chosen = observations(rng, H, N, K, d, missing=0.2)
    rows, theta = pair_rows_of(F, items, accepted), rng.normal(size=d)
    sums = jax.jit(lambda theta: rows.sums(theta[None], jnp.zeros((1,), jnp.int32), H))
    found = sums(theta)
    _, gradient, hessian = ref.shared_loss(theta, F, offered, chosen, 0.0)
    np.testing.assert_allclose(found.gradient[0], gradient, atol=1e-11)
    np.testing.assert_allclose(found.hessian, hessian, atol=1e-11)


@pytest.mark.parametrize("K", [pytest.param(1, marks=slow), pytest.param(2, marks=slow), 3])
def test_the_new_observation(K, double_precision):
    """`new_row` and `new_pair` are what one row adds to the sums."""
    rng, N, d, H = np.random.default_rng(K), 4, 2, 60
    X, F, items, accepted, _, _ = observations(rng, H, N, K, d, missing=0.3)
    theta, w = rng.normal(size=(N, d)), rng.normal(size=d)

    def of_row(row, arms):
        new = mnl.new_row(theta @ row.features[:, 0], row.features[:, 0], row.items[:, 0], row.accepted[0], arms)
        one = row.sums(jnp.asarray(theta), arms, 1)
        number = jnp.arange(len(arms))
        blocks = one.hessian.reshape(len(arms), d, len(arms), d)[number, :, number]
        outer = jnp.einsum("a,ai,aj->aij", new.weight, new.x, new.x)
        return (new.gradient, outer), (one.gradient, blocks)

    def of_pair(pair):
        new = mnl.new_pair(jnp.asarray(w), pair.features[..., 0], pair.shown[:, 0], pair.accepted[0])
        one = pair.sums(jnp.asarray(w)[None], jnp.zeros((1,), jnp.int32), 1)
        return (new.gradient,), (one.gradient,)

    rows = mnl.Rows(X[:, :, None], items[:, :, None], accepted[:, None])
    x = np.where((items >= 0)[..., None], F[np.arange(H)[:, None], items], 0.0)
    pairs = mnl.PairRows(x[..., None], (items >= 0)[..., None], accepted[:, None])
    everything = jnp.broadcast_to(jnp.arange(N), (H, N))
    last = jnp.broadcast_to(jnp.array([N - 1, 0][:K]), (H, min(K, 2)))
    for ours, theirs in jax.jit(
        lambda: [jax.vmap(of_row)(rows, everything), jax.vmap(of_row)(rows, last), jax.vmap(of_pair)(pairs)]
    )():
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-14)


@pytest.mark.parametrize(("K", "P"), [(1, 6), (1, 100), (2, 6)])
def test_counts_are_rows(K, P, double_precision):
    rng, N, d, H = np.random.default_rng(0), 4, 4, 250
    table, query = rng.normal(size=(P, d)), rng.integers(P, size=H)
    _, _, items, accepted, offered, chosen = observations(rng, H, N, K, d, missing=0.3)
    counts = (mnl.Counts if K == 1 else mnl.PairCounts).empty(N, P, H)

    def add(counts, h):
        counts = counts.add(jnp.asarray(query)[h], jnp.asarray(items)[h], jnp.asarray(accepted)[h], True)
        return counts.add(jnp.asarray(query)[h], jnp.asarray(items)[h], 0, False), None  # Left out.

    counts, _ = jax.jit(lambda counts: jax.lax.scan(add, counts, jnp.arange(H)))(counts)
    assert counts.tried.sum() == offered.sum() and counts.accepted.sum() == (chosen >= 0).sum()
    theta = rng.normal(size=(N, d))
    gradient = jax.jit(lambda arms: counts.sums(jnp.asarray(table.T), arms)(jnp.asarray(theta), hessian=False).gradient)
    for S in ref.combos(N, K):
        expected = ref.disjoint_loss(theta, table[query], offered, chosen, 0.0, S)[1]
        np.testing.assert_allclose(gradient(jnp.asarray(S, jnp.int32)).ravel(), expected, atol=1e-11)


def test_queries_are_listed_in_the_order_of_their_first_time():
    counts = mnl.Counts.empty(2, 50, 40)
    shown = ((7, 1, True), (3, 0, True), (7, 1, True), (9, 1, False), (49, 1, True), (7, 0, True), (1, -1, True))
    for query, item, valid in shown:
        counts = counts.add(jnp.int32(query), jnp.asarray([item]), 0, valid)
    assert counts.listed.tolist() == [2, 2] and counts.queries.shape == (2, 64)
    assert counts.queries[:, :3].tolist() == [[3, 7, 0], [7, 49, 0]]
    assert counts.tried.sum() == 5 and int(counts.tried[1, 7]) == 2


def test_lists_of_pairs_are_in_the_order_of_their_first_time():
    """An item that was shown alone is its own other item; what was not observed leaves no trace."""
    counts = mnl.PairCounts.empty(3, 50, 40)
    assert counts.queries.shape == (3, 64) and counts.places.shape == (3, 3, 50)
    shown = [(7, (1, 2), 0, True), (3, (0, 1), 1, True), (7, (1, 2), 2, True), (9, (0, 2), 0, False)]
    shown += [(7, (1, -1), 0, True), (9, (-1, -1), 2, True), (7, (0, 1), 0, True)]
    for query, items, accepted, valid in shown:
        counts = counts.add(jnp.int32(query), jnp.asarray(items), accepted, valid)
    assert counts.listed.tolist() == [2, 4, 1]
    lists = {
        name: [row[:n].tolist() for row, n in zip(getattr(counts, name), counts.listed, strict=True)]
        for name in ("queries", "others", "tried", "accepted")
    }
    assert lists == {
        "queries": [[3, 7], [7, 3, 7, 7], [7]],
        "others": [[1, 1], [2, 0, 1, 0], [1]],
        "tried": [[1, 1], [2, 1, 1, 1], [2]],
        "accepted": [[0, 1], [1, 1, 1, 0], [0]],
    }


@pytest.mark.parametrize("kind", [mnl.Counts, mnl.PairCounts])
def test_large_numbers_need_wide_integers(kind):
    small, large = kind.empty(2, 40, 1000), kind.empty(2, 40_000, 40_000)
    assert small.tried.dtype == small.queries.dtype == jnp.int16
    assert large.tried.dtype == large.queries.dtype == jnp.int32
