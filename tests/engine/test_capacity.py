"""Runs that need more room than their environment has are played again with more, so that none is left out for its length."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

import jaxroute as jr
from jaxroute import metrics
from jaxroute.core import draws
from jaxroute.core.protocols import with_double_capacity
from jaxroute.core.types import Metric, Spec
from jaxroute.engine.grid import env_settings
from jaxroute.engine.running import larger_settings, overflowed
from jaxroute.problems import queueing as qu

HORIZON, SEEDS = 32, 32


@struct.dataclass
class Buffer:
    """Something comes and something leaves; what finds the buffer full is lost. The state has the buffer's size."""

    rate: float = 0.7
    limit: int = struct.field(pytree_node=False, default=4)

    spec = Spec(num_models=1, metrics=(Metric("length", "length", "", "gauge"),), zero_flows=("lost",), overflow_flow="lost")

    def with_double_capacity(self):
        return None if self.limit >= HORIZON else self.replace(limit=min(2 * self.limit, HORIZON))

    def init(self, key):
        return jnp.zeros((self.limit,), bool)

    def observe(self, key, state, t):
        return jnp.zeros(())

    def step(self, key, state, action, t):
        comes, leaves = draws.uniform(draws.fold_in(key, 0)) < self.rate, draws.uniform(draws.fold_in(key, 1)) < 0.5
        length = jnp.sum(state) - (leaves & (jnp.sum(state) > 0))
        fits = length < self.limit
        state = jnp.arange(self.limit) < length + (comes & fits)
        return state, length, {"lost": jnp.where(comes & ~fits, 1.0, 0.0)}

    def gauges(self, state):
        return {"length": jnp.sum(state).astype(jnp.float32)}


@struct.dataclass
class Idle:
    """A policy that does nothing; its state is NaN after `ends` rounds."""

    ends: float = 1e9

    def init(self, key, spec):
        return jnp.zeros(())

    def act(self, key, state, obs, t):
        return jnp.int32(0), {}

    def update(self, key, state, obs, action, feedback, t):
        return jnp.where(t + 1 >= self.ends, jnp.nan, 0.0)


def played(env, policies=None, **options):
    settings = {"horizon": HORIZON, "seeds": SEEDS, "record_every": 1, "progress": False}
    return jr.simulate(env, {"Idle": Idle()} if policies is None else policies, **settings | options)


@pytest.fixture(scope="module")
def enough():
    """With a place for every round."""
    data = played(Buffer(limit=HORIZON))
    assert data.attrs["played_again"] == 0
    return data


def test_a_run_that_needs_more_room_is_the_run_that_had_it(enough):
    data = played(Buffer())
    longest = enough["length"].max("time")
    assert (longest > 8).any() and (longest <= 4).any()  # Some are played three times and more, some once.
    doublings = np.ceil(np.log2(np.maximum(longest, 4) / 4))
    assert data.attrs["played_again"] == int(doublings.sum())
    assert data["valid"].all() and (data["lost"] == 0).all()
    np.testing.assert_array_equal(data["length"], enough["length"])


def test_a_mean_without_them_would_be_biased(enough):
    """Of those that never needed more than four places: what leaving the others out would give."""
    end = enough["length"].isel(time=-1)
    assert float(end.where(enough["length"].max("time") <= 4).mean()) < 0.6 * float(end.mean())


@pytest.mark.parametrize(
    ("env", "options"),
    [
        (lambda key: Buffer(rate=0.6 + 0.2 * draws.uniform(key)), {}),
        (lambda key: Buffer(rate=0.6 + 0.2 * draws.uniform(key)), {"num_instances": 2}),
        (jr.grid(Buffer, rate=[0.6, 0.8]), {}),
    ],
    ids=["sampler", "instances", "grid"],
)
def test_whatever_the_environment_is_given_as(env, options):
    data = played(env, **options)
    assert data["valid"].all() and data.attrs["played_again"] > 0 and float(data["length"].max()) > 8


def test_a_wrapper_makes_room_inside(enough):
    wrapped = played(jr.Wrapper(Buffer()))
    assert wrapped.attrs["played_again"] > 0
    np.testing.assert_array_equal(wrapped["length"], enough["length"])
    assert with_double_capacity(jr.Wrapper(Buffer(limit=HORIZON))) is None
    assert jr.Wrapper(Buffer()).rate == 0.7
    with pytest.raises(AttributeError, match="'Buffer' object has no attribute 'rooms'"):
        _ = jr.Wrapper(Buffer()).rooms


def test_statistics_too(enough):
    moments = played(Buffer(), keep="moments")
    assert int(moments["invalid"].sum()) == 0
    np.testing.assert_allclose(metrics.mean(moments, "length"), metrics.mean(enough, "length"), rtol=1e-6, atol=1e-9)


def test_a_store_keeps_what_was_played_with_room(enough, tmp_path):
    for _ in range(2):
        np.testing.assert_array_equal(played(Buffer(), out=tmp_path)["length"], enough["length"])


def test_equal_functions_are_one_program():
    def sampler(key):
        return Buffer()

    first, second = (next(larger_settings(env_settings(sampler), Buffer())) for _ in range(2))
    assert first.structure == second.structure and hash(first.structure) == hash(second.structure)


def test_a_probe_of_the_room_itself_keeps_it():
    def places(env, policy, env_state, policy_state, t):
        return env_state

    with pytest.warns(UserWarning, match="first bad value of policy 'Idle'.*lost"):
        data = played(Buffer(), probes={"places": places})
    assert not data["valid"].all() and data.attrs["played_again"] == 0


def test_short_runs_are_found_by_what_they_lost():
    lost = np.zeros((2, 3, 4), np.float32)
    lost[1, 0, 2], lost[0, 2, 3] = 1.0, np.nan  # A number that is none is another fault.
    found = overflowed({"zero/lost": lost}, "lost", 2)
    np.testing.assert_array_equal(found, [[False, False, False], [True, False, False]])
    assert not overflowed({}, None, 2).any()


def test_another_fault_is_found_with_room():
    """The first bad round of a run is not the one in which it was short of room."""
    with pytest.warns(UserWarning, match="'Idle', seed 0: state of the policy in round 30"):
        played(Buffer(), {"Idle": Idle(ends=30.0)})


def test_the_places_of_a_queue_grow_up_to_its_horizon():
    env = qu.RandomQueues(horizon=120, limit=50)
    limits = [env.example(draws.key(0)).backlog.limit for env in larger_settings(env_settings(env), env(draws.key(0)))]
    assert limits == [100, 120]
    assert with_double_capacity(qu.RandomQueues(horizon=120)(draws.key(0))) is None
    assert with_double_capacity(qu.standin_queue("routerbench", arrival_rate=0.8, horizon=50)) is None


@pytest.mark.slow
@pytest.mark.parametrize("policy", [qu.Random(), qu.ACQB(), qu.Optimal.of, qu.QUCB()], ids=lambda p: type(p).__name__)
def test_a_queue_that_outgrows_its_places_is_the_queue_with_enough(policy):
    def run(limit):
        env = qu.RandomQueues(horizon=120, limit=limit)
        record = ["queue_length", "routing_regret"]
        return jr.simulate(env, {"policy": policy}, horizon=120, seeds=32, record=record, progress=False)

    small, large = run(8), run(120)
    ends = large["queue_length"].max("time")
    assert small["valid"].equals(large["valid"]) and small["valid"].sum() > 24
    if isinstance(policy, qu.Random):
        assert (ends > 16).any()
    for metric in ("queue_length", "routing_regret"):
        np.testing.assert_allclose(small[metric], large[metric], rtol=1e-6)
