"""A round of the cloud by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxroute.core import draws
from jaxroute.problems import combinatorial as cb


def test_cascade_asks_until_the_first_success():
    env = cb.parametric_cloud([1.0, 0.0, 0.5], [0.2, 0.1, 0.4], reward="awc", budget=1.0, size=3, costs=cb.FixedCosts())
    state, key = env.init(draws.key(0)), draws.key(1)
    obs = env.observe(key, state, jnp.int32(0))
    for order, asked, spent in (([1.0, 0.0, 2.0], [1, 1, 0], 0.3), ([0.0, 0.0, 0.0], [1, 0, 0], 0.2)):
        action, _ = cb.Everything().act(key, None, obs, jnp.int32(0))
        _, feedback, flows = env.step(key, state, action.replace(order=jnp.asarray(order)), jnp.int32(0))
        np.testing.assert_array_equal(feedback.observed, asked)
        assert float(flows["cost"]) == pytest.approx(spent)
        np.testing.assert_array_equal(feedback.cost > 0, asked)
        assert float(flows["reward"]) == 1.0
    _, _, flows = env.step(key, state, action.replace(selected=jnp.zeros(3, bool)), jnp.int32(0))
    assert float(flows["reward"]) == 0.0
    assert float(flows["illegal"]) == 0.0


def test_sets_of_the_wrong_size_and_unavailable_models_are_illegal():
    env = cb.sciq_cloud(reward="suc", availability=0.5)
    key, t = draws.key(2), jnp.int32(0)
    state = env.init(key)
    obs = env.observe(key, state, t)
    for selected, illegal in (
        (obs.available, obs.available.sum() > 4),
        (~obs.available, True),
        (obs.available & False, True),
    ):
        action = cb.Everything().act(key, None, obs, t)[0].replace(selected=selected)
        assert bool(env.step(key, state, action, t)[2]["illegal"]) == bool(illegal)
