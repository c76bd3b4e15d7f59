"""The best query and assortment: against brute force, and for large utilities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import queueing as ref

from jaxroute.solvers import assortment

slow = pytest.mark.slow


@pytest.mark.parametrize("K", [pytest.param(1, marks=slow), 2, pytest.param(3, marks=slow), 4])
def test_best_pair_equals_brute_force(K, double_precision):
    """1,500 instances for each K, half of them integers with many ties; also with some queries away."""
    rng, B, N, n = np.random.default_rng(K), 4, 5, 1500
    u = rng.normal(size=(n, B, N)) * 2
    u[::2] = rng.integers(-1, 3, size=u[::2].shape)
    waiting = rng.random((n, B)) < 0.7
    waiting[::3] = True
    query, mask = jax.jit(jax.vmap(lambda u, w: assortment.best_pair(u, K, w)))(u, waiting)
    ties = 0
    for i in range(n):
        here = np.flatnonzero(waiting[i])
        if not here.size:
            assert query[i] == B
            continue
        row, models = ref.schedule(u[i, here], K)
        assert query[i] == here[row] and tuple(np.flatnonzero(mask[i])) == models, i
        scores = [ref.best_assortment(v, K)[0] for v in u[i, here]]
        ties += scores.count(max(scores)) > 1
    assert ties > 50
    alone, _ = jax.jit(jax.vmap(lambda u: assortment.best_pair(u, K)))(u[::3])
    np.testing.assert_array_equal(alone, query[::3])


def test_weights_do_not_overflow():
    """In float32 e^88 is the largest power, and a large kappa goes beyond."""
    u = jnp.array([[300.0, 299.9, -300.0], [300.5, -1.0, 0.0]])
    for K, best, models in ((1, 1, [True, False, False]), (2, 0, [True, True, False])):  # 300 + ln(1 + e^-.1) = 300.644.
        query, mask = jax.jit(assortment.best_pair, static_argnums=1)(u, K)
        assert int(query) == best and mask.tolist() == models
    weight, slope = jax.value_and_grad(lambda u: assortment.log_weight_of_best(list(u), 2))(u[0])
    assert float(weight) == pytest.approx(300.644, abs=1e-3)
    np.testing.assert_allclose(slope, [0.52498, 0.47502, 0], atol=1e-4)  # 1 / (1 + e^-.1).
