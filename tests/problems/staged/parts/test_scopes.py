"""Past data of deployment and routing at the start of a stage."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from staged_cases import by_index, jitted, staged_feedback, two_models

from jaxroute.core import draws
from jaxroute.problems import staged
from jaxroute.problems.staged import estimators, scopes


@pytest.mark.parametrize(
    ("scope", "slots", "book"), [(scopes.RunScope(), 5, 5), (scopes.RoutingScope(), 0, 5), (scopes.StageScope(), 0, 0)]
)
def test_scopes_at_a_stage_start(scope, slots, book):
    """Five pulls of model 1 in the first stage, and their statistics in the second."""
    env = jax.tree.map(jnp.asarray, two_models()).replace(support=2)
    policy = by_index(staged.StageRoute(scope=scope))
    plan, act, update = jitted(policy)
    key, t = draws.key(0), jnp.int32(0)
    obs = env.observe(key, env.init(key), t)
    state = plan(key, policy.init(key, env.spec), obs, t)
    action = act(key, state, obs, t)[0].replace(model=jnp.int32(1))
    for _ in range(5):
        state = update(key, state, obs, action, staged_feedback(0.5, 1.0), t)
    seen = []

    class Spy(estimators.EmpiricalMean):
        def means(self, statistics, cost_floor):
            seen.append(np.asarray(statistics.pulls))
            return super().means(statistics, cost_floor)

    state = policy.replace(estimator=Spy()).plan(key, state, obs, jnp.int32(10))
    np.testing.assert_array_equal(seen[0], [0, 5])  # Every scope deploys with the data of the previous stage.
    np.testing.assert_array_equal(state.slots.pulls, [0, slots])
    np.testing.assert_array_equal(state.book.pulls, [0, book])
