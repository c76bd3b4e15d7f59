"""What is counted, and what is flagged."""

import jax.numpy as jnp
import pytest
from jax import lax
from queueing_cases import small

from jaxroute.core import draws
from jaxroute.estimators.mnl import Online
from jaxroute.problems import queueing as qu


def test_what_finds_a_full_buffer_is_counted():
    """`simulate` would play the run again with more places."""
    env = small(limit=4, arrival_rate=0.9)

    def round_of(carry, t):
        state, key = carry, draws.fold_in(draws.key(0), t)
        action, _ = qu.Random().act(key, qu.Random().init(key, env.spec), env.observe(key, state, t), t)
        state, _, flows = env.step(key, state, action, t)
        return state, flows["dropped"]

    state, dropped = lax.scan(round_of, env.init(draws.key(0)), jnp.arange(60))
    assert float(dropped.sum()) > 0 and int(state.backlog.length) <= 4
    assert env.with_double_capacity().backlog.limit == 8


@pytest.mark.slow
def test_showing_one_answer_where_two_are_asked_for_is_flagged():
    policy = qu.ACQB(second_answer=0.0, solver=Online(), trigger=qu.DecayingExploration(0.0))
    key, env = draws.key(0), small(num_offered=2)
    state, own = env.init(key), policy.init(key, env.spec)
    for t in range(20):
        place = draws.fold_in(key, t)
        action, _ = policy.act(place, own, env.observe(place, state, jnp.int32(t)), jnp.int32(t))
        waits = bool(state.backlog.length > 0)
        state, _, flows = env.step(place, state, action, jnp.int32(t))
        assert bool(flows["illegal"]) == waits
