"""Derivatives of rows against those of the reference, whose loss is that of `negative_log_likelihood`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mnl_cases import observations, pair_rows_of, rows_of
from reference import queueing as ref

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
