"""Sums over the latest rounds against sums that are made anew, and the confidence radius of multinomial-logit estimates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import queueing as ref

from jaxroute.estimators.running import WindowSums, mnl_radius


@pytest.mark.parametrize("window", [1, 7, 50])
def test_sums_of_the_latest_rounds(window):
    rng = np.random.default_rng(0)
    actions, rewards = rng.integers(0, 3, 40), rng.normal(size=40).astype(np.float32)

    def step(sums, given):
        t, action, reward = given
        sums = sums.add(action, reward, t)
        return sums, (sums.pulls, sums.reward_sum)

    _, (pulls, total) = jax.lax.scan(
        step, WindowSums.empty(jax.random.key(0), 3, window), (jnp.arange(40), jnp.asarray(actions), jnp.asarray(rewards))
    )
    for t in range(40):
        recent = slice(max(0, t + 1 - window), t + 1)
        for m in range(3):
            own = rewards[recent][actions[recent] == m]
            assert pulls[t, m] == own.size
            assert total[t, m] == pytest.approx(own.sum(), abs=1e-5)
            assert own.size or total[t, m] == 0.0


def test_radius(double_precision):
    counts = np.array([0, 1, 2, 10, 100, 1000])
    for d, K, kappa, lam0 in ((5, 1, 1.0, 1.0), (5, 2, 0.5, 1.0), (384, 1, 0.1, 0.5), (3, 3, 0.0, 5.0)):
        ours = mnl_radius(counts, d, K, np.float64(kappa), np.float64(lam0))
        np.testing.assert_allclose(ours, ref.alpha_disjoint(counts, d, K, kappa, lam0), rtol=2e-7)
    worked = [
        mnl_radius(l, d, K, k, r)
        for l, d, K, k, r in ((0, 5, 1, 1, 1), (10, 5, 1, 1, 1), (100, 5, 2, 0.5, 1), (1000, 384, 1, 0.1, 0.5))
    ]
    np.testing.assert_allclose(worked, [1, 2.91725, 2.02046, 1.42050], atol=6e-6)
