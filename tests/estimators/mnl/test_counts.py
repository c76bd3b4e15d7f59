"""Counts of a pool hold what rows hold."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mnl_cases import observations
from reference import queueing as ref

from jaxroute.estimators import mnl


@pytest.mark.parametrize("K", [1, 2])
def test_counts_are_rows(K, double_precision):
    rng, N, d, P, H = np.random.default_rng(0), 4, 4, 6, 250
    table, query = rng.normal(size=(P, d)), rng.integers(P, size=H)
    _, _, items, accepted, offered, chosen = observations(rng, H, N, K, d, missing=0.3)
    counts = (mnl.Counts if K == 1 else mnl.PairCounts).empty(N, P, 100)

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
