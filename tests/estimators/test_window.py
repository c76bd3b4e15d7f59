"""Sums over the latest rounds against sums that are made anew."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxroute.estimators.running import WindowSums


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
