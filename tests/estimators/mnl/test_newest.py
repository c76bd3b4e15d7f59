"""What the last observation adds to the derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mnl_cases import observations

from jaxroute.estimators import mnl

slow = pytest.mark.slow


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
