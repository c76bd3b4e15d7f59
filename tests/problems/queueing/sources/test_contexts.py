"""Contexts of random instances."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from queueing_cases import play

from jaxroute.core import draws
from jaxroute.core.batching.lanes import lanes
from jaxroute.problems import queueing as qu
from jaxroute.problems.queueing.sources.choice import best_rate


@pytest.mark.parametrize("pairs", [False, True])
def test_a_context_is_the_first_good_one_of_all_candidates(pairs):
    """In some runs none of the first sixteen is good."""
    env = qu.RandomQueues(num_models=3, dim=2, pair_features=pairs)(draws.key(4))
    spec, runs, lead = env.spec, 2000, (3, 2) if pairs else (2,)
    keys = jax.random.split(draws.key(8), runs)
    u = jax.vmap(lambda key: draws.uniform(draws.split(key, 3)[1], (*lead, 64)))(keys)
    x = env.contexts.scale * (2.0 * u - 1.0)
    rate = np.asarray(jax.vmap(lambda x: best_rate(env.contexts.utility(x, pairs), spec.num_offered))(x))
    contexts = env.contexts.replace(arrival_rate=np.float32(np.quantile(rate, 0.85)), slack=np.float32(0.0))
    drawn = jax.jit(lanes(lambda key: contexts.draw(key, jnp.int32(0), spec), runs))(keys)
    good = rate >= contexts.arrival_rate
    first = np.where(good.any(axis=1), good.argmax(axis=1), 63)
    assert (first >= 16).any() and (first < 16).any()
    np.testing.assert_array_equal(drawn.infeasible, ~good.any(axis=1))
    expected = np.take_along_axis(np.asarray(x), first.reshape(-1, *(1,) * len(lead), 1), axis=-1)[..., 0]
    np.testing.assert_allclose(np.moveaxis(np.asarray(drawn.row.features), -1, 0), expected, atol=1e-6)
    np.testing.assert_allclose(drawn.row.best_rate, np.take_along_axis(rate, first[:, None], axis=1)[:, 0], atol=1e-5)


@pytest.mark.slow
def test_rounds_without_a_context_are_counted_and_flagged():
    with pytest.warns(UserWarning, match="runs are invalid"):
        data = play(qu.RandomQueues(horizon=60, slack=0.25, candidates=2), qu.Random(), horizon=60)
    assert (data["infeasible"].isel(policy=0) > 0).any()
