"""When a query that has just come is explored."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import queueing as ref

from jaxroute.problems import queueing as rq


@pytest.mark.parametrize("c1", [0.5, 1.0, 3.0])
def test_triggers_fire_as_the_reference_does(c1):
    t = np.repeat(np.arange(400), 3)
    probability = np.array([ref.eta(s, c1) for s in t])
    coin = (probability * np.tile([1 - 1e-5, 1 + 1e-5, 0.72], 400)).astype(np.float32)  # On both sides of eta.
    for ours, theirs in (
        (rq.DecayingExploration(c1), ref.decaying(c1)),
        (rq.PhaseThenCoin.for_horizon(400), ref.phase_then_coin(40, 400)),
    ):
        fires = jax.vmap(lambda t, u: ours.fires(t, u))(jnp.asarray(t), jnp.asarray(coin))  # noqa: B023
        np.testing.assert_array_equal(fires, [theirs(s, float(u)) for s, u in zip(t, coin)])
