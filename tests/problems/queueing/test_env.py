"""What is counted, and what is flagged."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from queueing_cases import play, small

from jaxroute.core import draws
from jaxroute.estimators.mnl import Online
from jaxroute.problems import queueing as qu


@pytest.fixture(scope="module")
def runs():
    policies = {"Optimal": qu.Optimal.of, "Random": qu.Random(), "Q-UCB": qu.QUCB(), "ACQB": qu.ACQB()}
    return play(small(), policies, record_every=1)


def test_the_queue_is_what_came_less_what_left(runs):
    assert runs["valid"].all()
    np.testing.assert_array_equal(runs["queue_length"], runs["arrivals"] - runs["departures"])
    rounds = runs["departures"] + runs["retrials"] + runs["idle"]
    np.testing.assert_array_equal(rounds, np.broadcast_to(runs["time"], rounds.shape))
    assert (runs["arrivals"] == runs["arrivals"].isel(policy=0)).all(), "all policies meet the same arrivals"


def test_queue_regret_is_the_difference_to_the_optimal_policys_run(runs):
    optimal = runs["queue_length"].sel(policy="Optimal")
    np.testing.assert_array_equal(runs["queue_regret"], runs["queue_length"] - optimal)
    assert (np.abs(runs["routing_regret"].sel(policy="Optimal")) < 1e-4).all()


def test_joint_regret_is_at_least_that_of_routing(runs):
    assert (runs["joint_regret"] >= runs["routing_regret"] - 1e-4).all()
    assert float((runs["joint_regret"] - runs["routing_regret"]).sel(policy="Random").isel(time=-1).mean()) > 1.0


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
