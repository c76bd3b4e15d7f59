"""Calls are played one ahead of what is written; blocks of a GPU; runs that overflow their capacity are played again with more."""

import contextlib
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toys
from flax import struct
from helpers import setup_of, x64

import jaxroute as jr
from jaxroute import metrics
from jaxroute.core import draws
from jaxroute.core.protocols import with_double_capacity
from jaxroute.core.types import Metric, Spec
from jaxroute.engine.grid import env_settings, larger_settings
from jaxroute.engine.layout import Layout
from jaxroute.engine.running import simulate_ahead
from jaxroute.engine.schedule import Batch, Call
from jaxroute.problems import queueing as qu


class _Numbered(Batch):
    """A batch whose checkpoint is a number."""

    def checkpoint(self, call):
        return call.since + 10


STEPS = [(_Numbered(None, {}, None), Call("policy", {}, np.zeros(1), number)) for number in range(4)]


def test_the_next_task_is_played_while_one_is_written():
    """The writer of each waits until the next one has begun, which it would for ever if nobody played ahead."""
    begun = [threading.Event() for _ in STEPS]

    def play(call, first):
        begun[call.since].set()
        return {"number": call.since, "first": first}, None

    seen = []
    with contextlib.closing(simulate_ahead([None, *STEPS, None], play)) as played:
        for _, call, curves, kept in played:
            number = call.since
            if number + 1 < len(STEPS):
                assert begun[number + 1].wait(60)
            seen.append((number, curves["number"], curves["first"], kept))
    assert seen == [(n, n, n + 10, None) for n in range(4)]


def test_what_goes_wrong_comes_after_what_went_well():
    def play(call, first):
        if call.since == 2:
            raise ValueError("no")
        return {}, None

    seen = []
    with pytest.raises(ValueError, match="no"), contextlib.closing(simulate_ahead(STEPS, play)) as played:
        for _, call, *_ in played:
            seen.append(call.since)
    assert seen == [0, 1]


def test_who_stops_listening_stops_the_playing():
    """At most the task that has begun is played to its end."""
    number = []
    with contextlib.closing(simulate_ahead(STEPS, lambda call, _: (number.append(call.since), None))) as played:
        next(played)
    assert number in ([0], [0, 1])


def test_numbers_have_the_width_of_the_caller():
    def play(call, first):
        return {"wide": jax.config.read("jax_enable_x64")}, None

    for wide in (False, True):
        with x64(wide):
            assert [curves["wide"] for _, _, curves, _ in simulate_ahead(STEPS[:1], play)] == [wide]


@pytest.mark.parametrize("seeds", [1, 7, 16, 1000, 1025, 10_000, 100_000, 131_072])
def test_seeds_are_one_call_on_a_gpu(seeds):
    """With at most a quarter more runs than were asked for, and whole groups of sixteen."""
    chosen = Layout.choose(setup_of(seeds, "gpu"), 1 << 30)
    assert chosen.block >= seeds and chosen.block % 16 == 0
    assert chosen.block <= max(16, 1.25 * seeds + 16)


@pytest.mark.parametrize(
    "seeds, most, waves, block, number",
    [
        (1_000_000, 1 << 30, [135_168], 1 << 20, 1),
        (3_000_000, 1 << 30, [135_168], 1 << 20, 3),
        (131_072, 1 << 30, [118_272], 131_072, 1),  # Two waves, whatever is done.
        (1_000_000, 300_000, [], 262_144, 4),
        # Of 250,000 runs a call 1.85 waves: eight in all. Of 300,000 runs 2.2: twelve.
        (1_000_000, 300_000, [135_168], 262_144, 4),
        # Two blocks of 110,000 runs take two waves each of the first policy, four of the second; three of 81,920 one and three.
        (200_000, 110_000, [100_096, 33_792], 81_920, 3),
    ],
)
def test_blocks_on_a_gpu_take_few_waves(seeds, most, waves, block, number):
    chosen = Layout.choose(setup_of(seeds, "gpu"), most, waves=waves)
    assert (chosen.block, -(-seeds // chosen.block)) == (block, number)


@pytest.mark.parametrize("most", [1, 20, 33_361, 61_000, 250_017, 1_000_001, 1 << 30])
def test_blocks_on_a_gpu_can_be_halved(most):
    """Often, or down to a few hundred runs: how much memory a call takes is a guess."""
    block = Layout.choose(setup_of(3_000_000, "gpu"), most, waves=[100_096]).block
    halvings = next(n for n in range(30) if block % (16 << (n + 1)))
    assert block <= max(16, most + 16) and (halvings >= 6 or block >> halvings <= 256)


def test_what_a_gpu_has_simulated_is_told_while_it_does():
    """Also that it is to end, before what is under way is waited for."""
    ended, told, begun = threading.Event(), [], threading.Event()

    def simulate(call, first):
        begun.set()
        assert ended.wait(60)
        return {}, None

    def waiting(call):
        told.append(call.since)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        next(simulate_ahead(STEPS, simulate, waiting, lambda stopped: ended.set() if stopped else told.append("again")))
    assert told == [0, "again"] and begun.is_set()


HORIZON, SEEDS = 32, 32


@struct.dataclass
class Buffer(toys.Coin):
    """Something comes and something leaves; what finds the buffer full is lost. The state has the buffer's size."""

    rate: float = 0.7
    limit: int = struct.field(pytree_node=False, default=4)

    spec = Spec(num_models=1, metrics=(Metric("length", "length", "", "gauge"),), zero_flows=("lost",), overflow_flow="lost")

    def with_double_capacity(self):
        return None if self.limit >= HORIZON else self.replace(limit=min(2 * self.limit, HORIZON))

    def init(self, key):
        return jnp.zeros((self.limit,), bool)

    def step(self, key, state, action, t):
        comes, leaves = draws.uniform(draws.fold_in(key, 0)) < self.rate, draws.uniform(draws.fold_in(key, 1)) < 0.5
        length = jnp.sum(state) - (leaves & (jnp.sum(state) > 0))
        fits = length < self.limit
        state = jnp.arange(self.limit) < length + (comes & fits)
        return state, length, {"lost": jnp.where(comes & ~fits, 1.0, 0.0)}

    def gauges(self, state):
        return {"length": jnp.sum(state).astype(jnp.float32)}


@struct.dataclass
class Idle(toys.Idle):
    """A policy that does nothing; its state is NaN after `ends` rounds."""

    ends: float = 1e9

    def init(self, key, spec):
        return jnp.zeros(())

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


def test_statistics_and_stores_too(enough, tmp_path):
    moments = played(Buffer(), keep="moments")
    assert int(moments["invalid"].sum()) == 0
    np.testing.assert_allclose(metrics.mean(moments, "length"), metrics.mean(enough, "length"), rtol=1e-6, atol=1e-9)
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
