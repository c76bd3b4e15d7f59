"""Laws of the rewards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_mean_close
from stochastic_cases import MEANS, bandit

from jaxroute.core import draws

# Environments.


@pytest.mark.parametrize("law", ["bernoulli", "gaussian"])
def test_reward_laws(law):
    env = jax.tree.map(jnp.asarray, bandit(law))
    keys = jax.random.split(draws.key(11), 100_000)

    def step(key, action):
        _, reward, flows = env.step(key, (), action, jnp.int32(0))
        return reward, flows["regret"]

    for m, mean in enumerate(MEANS):
        reward, regret = jax.jit(jax.vmap(step, (0, None)))(keys, m)
        assert_mean_close(reward, mean)
        np.testing.assert_allclose(regret, 0.6 - mean, atol=1e-6)
        spread = np.sqrt(mean * (1 - mean)) if law == "bernoulli" else 0.4
        assert np.std(reward) == pytest.approx(spread, rel=0.02)
