"""Counts of a pool hold what rows hold."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mnl_cases import observations
from reference import queueing as ref

from jaxroute.estimators import mnl


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
