"""The engine: a run is the same run in any batch; what is recorded, when, and how often it is traced."""

import contextlib
import dataclasses
import json
import math
import os
import subprocess
import sys
import textwrap
from unittest import mock

import engine_child
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from flax import struct
from helpers import CHILDREN_PATH, SUPPORT
from toys import Clock, Coin, Cycle, Idle, Planner, play_by_hand, small_market

import jaxroute as jr
from jaxroute import testing
from jaxroute.core import draws
from jaxroute.core.attributes import decoded
from jaxroute.core.types import Metric
from jaxroute.engine import layout, programs
from jaxroute.engine.grid import _INSTANCE_ROOT
from jaxroute.engine.rounds import spec_for
from jaxroute.problems import staged, stochastic

BANDIT = engine_child.BANDIT


def play(env, policies, **options):
    settings = {"horizon": 30, "seeds": 3, "record_every": 10, "progress": False} | options
    return jr.simulate(env, policies, **settings)


def run_child(*command, devices=1):
    flags = os.environ.get("XLA_FLAGS", "") + f" --xla_force_host_platform_device_count={devices}"
    env = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": CHILDREN_PATH}
    return subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True, timeout=540)


# A run is the same run in any batch, on any number of devices.


@pytest.fixture(scope="module")
def block_of_64():
    return {problem: engine_child.play(problem) for problem in engine_child.PLAYERS}


@pytest.mark.parametrize("problem", ["bandit", "staged"])
def test_a_seed_is_the_same_run_alone_and_in_blocks(problem, block_of_64):
    whole = block_of_64[problem]
    assert decoded(whole.attrs)["layout"]["block"] == 64
    assert whole["valid"].all()
    assert len(np.unique(whole["regret"].isel(time=-1, policy=0))) > 20  # The seeds are different runs.
    for options in ({"seeds": [7]}, {"seeds": [9, 7, 40]}, {"execution": jr.Execution(block=10)}):
        part = engine_child.play(problem, **options)
        assert decoded(part.attrs)["layout"]["block"] == 16
        assert engine_child.differences(whole, part) == []


@pytest.fixture(scope="module")
def eight_devices(tmp_path_factory):
    path = tmp_path_factory.mktemp("eight") / "arrays.npz"
    child = run_child(SUPPORT / "engine_child.py", path, devices=8)
    assert child.returncode == 0, child.stderr[-3000:]
    return json.loads(child.stdout.splitlines()[-1]), np.load(path)


def test_eight_devices_give_the_bits_of_one(eight_devices, block_of_64):
    report, arrays = eight_devices
    assert report["devices"] == 8
    assert report["block"] == 128  # 16 lanes on each device.
    assert report["one seed"][0] == []
    for problem, data in block_of_64.items():
        for name in data:
            np.testing.assert_array_equal(arrays[f"{problem}/{name}"], data[name].values, err_msg=f"{problem} {name}")


def test_eight_devices_trace_once_and_run_where_they_were_asked_to(eight_devices):
    report = eight_devices[0]
    assert report["traces"] == report["one seed"][1] == 3 and report["on device 5"]
    assert report["resumed on 8"] == report["resumed on 3"] == []


def test_a_block_is_rounded_up_to_whole_vectors_and_says_so():
    """Padding runs are computed but neither returned nor counted as decisions."""
    data = play(BANDIT, stochastic.UCB1(), seeds=21, execution=jr.Execution(block=10))
    assert decoded(data.attrs)["layout"]["block"] == 16
    assert data.sizes["seed"] == 21
    assert data.attrs["decisions"] == 21 * 30


def test_another_root_seed_is_other_noise_and_no_other_trace():
    one, again = play(BANDIT, stochastic.UCB1()), play(BANDIT, stochastic.UCB1())
    before = jr.trace_count()
    other = play(BANDIT, stochastic.UCB1(), root_seed=1)
    assert engine_child.differences(one, again) == [] and jr.trace_count() == before
    assert (one["reward"] != other["reward"]).mean() > 0.5


def test_all_policies_and_settings_meet_the_same_luck():
    data = play(jr.grid(Clock, slope=[1.0, 2.0]), {"a": Cycle(), "b": Planner(stage_length=5)}, record=["luck"], seeds=20)
    luck = data["luck"].isel(time=-1)
    assert len(np.unique(luck)) == 20
    assert (luck == luck.isel(policy=0, slope=0)).all()


def test_threads_do_not_change_the_bits(monkeypatch):
    """A block is cut into as many equal parts as there are cores; a part has at least 32 runs."""
    found = {}
    for cores, threads in ((1, 1), (2, 2), (6, 4), (64, 8)):
        monkeypatch.setattr(layout, "cores", lambda number=cores: number)
        monkeypatch.setattr(programs, "cores", lambda number=cores: number)
        assert programs.threads(jax.local_devices()[:1], 256) == threads
        assert programs.threads(jax.local_devices()[:1], 48) == 1
        found[cores] = play(BANDIT, stochastic.UCB1(), seeds=256)
    for cores in (2, 6, 64):
        assert engine_child.differences(found[1], found[cores]) == []


def hold_at_most(runs, monkeypatch):
    """Lets the device run out of memory with blocks of more runs."""
    compile_lanes = programs.compile_lanes

    def compiled(*lowered):
        program = compile_lanes(*lowered)

        def call(*args):
            if args[4].shape[0] > runs:
                raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")
            return program(*args)

        return call

    monkeypatch.setattr(programs, "compile_lanes", compiled)


def test_a_block_that_does_not_fit_into_memory_is_halved_and_the_store_is_kept(monkeypatch, tmp_path):
    options = {"seeds": 64, "horizon": 31, "record": ["luck", "rounds"]}
    expected = play(Clock(), Cycle(), execution=jr.Execution(block=16), **options)
    for cores in (1, 2):  # Of the parts that two cores simulate at once each is halved.
        monkeypatch.setattr(layout, "cores", lambda number=cores: number)
        monkeypatch.setattr(programs, "cores", lambda number=cores: number)
        with mock.patch.dict(programs.PROGRAMS, clear=True), monkeypatch.context() as patch:
            hold_at_most(16, patch)
            with pytest.warns(UserWarning, match="a block of 64 seeds does not fit into memory; halving it"):
                halved = play(Clock(), Cycle(), out=tmp_path / str(cores), **options)
        assert decoded(halved.attrs)["layout"]["block"] == 64
        for data in (halved, jr.load(tmp_path / str(cores))):
            assert engine_child.differences(expected, data) == []


def test_memory_that_does_not_even_hold_the_smallest_block_is_said(monkeypatch, tmp_path):
    options = {"seeds": 64, "horizon": 31, "execution": jr.Execution(block=16), "out": tmp_path}
    with monkeypatch.context() as patch, mock.patch.dict(programs.PROGRAMS, clear=True):
        hold_at_most(0, patch)
        with pytest.raises(MemoryError, match="a block of 16 seeds does not fit into memory, and is too small to be halved"):
            play(Clock(), Cycle(), **options)
    again = play(Clock(), Cycle(), **options)
    assert engine_child.differences(play(Clock(), Cycle(), **options | {"out": None}), again) == []


# Equal to a plain loop over rounds.


@struct.dataclass
class JaxRandom:
    """A user's policy: `jax.random`, a key in its state, gathers and scatters, integer counts, and a plan."""

    optimism: jax.Array | float = 1.0
    stage_length: int = struct.field(pytree_node=False, default=7)

    def init(self, key, spec):
        zeros = jnp.zeros(spec.num_models)
        order = jax.random.permutation(key, spec.num_models)
        return {"key": key, "counts": zeros.astype(jnp.int32), "sums": zeros, "bonus": zeros, "order": order}

    def plan(self, key, state, obs, t):
        bonus = jax.random.normal(key, state["sums"].shape)
        return {**state, "key": jax.random.fold_in(state["key"], 1), "bonus": bonus[state["order"]]}

    def act(self, key, state, obs, t):
        noise = jax.random.exponential(state["key"]) * jax.random.normal(key, state["sums"].shape)
        score = (state["sums"] + self.optimism) / (state["counts"] + 1) + noise / jnp.sqrt(state["counts"] + 1.0)
        return jnp.argmax(score + state["bonus"]), {}

    def update(self, key, state, obs, action, feedback, t):
        sums = state["sums"].at[action].add(feedback)
        return {**state, "key": jax.random.split(key)[0], "counts": state["counts"].at[action].add(1), "sums": sums}


@pytest.mark.parametrize(
    "policy", [stochastic.UCB1(), stochastic.GaussianThompson(), JaxRandom()], ids=lambda policy: type(policy).__name__
)
def test_a_bandit_equals_a_plain_loop(policy):
    verbs = jax.jit if isinstance(policy, JaxRandom) else lambda verb: verb
    data = play(BANDIT, policy, seeds=[7], record_every=1, record=["regret", "reward", "pulls"]).isel(policy=0, seed=0)
    history, _, _ = play_by_hand(BANDIT, policy, 7, 30, verbs=verbs)
    flows = {name: np.cumsum([np.asarray(f[name], np.float64) for f, _, _ in history], axis=0) for name in history[0][0]}
    np.testing.assert_array_equal(data["pulls"], flows["pulls"])
    np.testing.assert_allclose(data["regret"], flows["regret"], rtol=1e-6)
    np.testing.assert_allclose(data["reward"], flows["reward"] / np.arange(1, 31), rtol=1e-6)


def test_stageroute_equals_a_loop_over_its_compiled_verbs():
    env, policy, horizon = small_market(horizon=35), staged.StageRoute(), 35
    names = ["regret", "cost", "reward", "pulls", "deployed", "overspend"]
    data = play(env, policy, horizon=horizon, seeds=[7], record_every=1, record=names).isel(policy=0, seed=0)
    history, env_state, _ = play_by_hand(env, policy, 7, horizon, verbs=jax.jit)
    rounds = np.arange(1, horizon + 1)
    flows = {name: np.cumsum([np.asarray(f[name], np.float64) for f, _, _ in history], axis=0) for name in history[0][0]}
    np.testing.assert_array_equal(data["pulls"], flows["pulls"])
    np.testing.assert_array_equal(data["deployed"], [np.asarray(a.deployed, float) for _, _, a in history])
    np.testing.assert_allclose(data["regret"], flows["regret"], rtol=1e-5, atol=1e-5)
    for name in ("cost", "reward"):
        np.testing.assert_allclose(data[name], flows[name] / rounds, rtol=1e-5)
    np.testing.assert_allclose(data["overspend"][-1], env_state.overspend, rtol=1e-5, atol=1e-5)


# Time: record intervals, stages, free rounds.


@pytest.mark.parametrize("problem", ["bandit", "staged"])
def test_the_record_interval_changes_nothing_at_common_times(problem, block_of_64):
    """Sums differ by the rounding of float32, counts and everything that decides not at all; 25 also cuts stages into chunks of 5."""
    fine = block_of_64[problem].isel(seed=slice(16))
    coarse = engine_child.play(problem, seeds=16, record_every=25 if problem == "staged" else 100)
    fine, coarse = fine.sel(time=[100]), coarse.sel(time=[100])
    exact = {"pulls", "deployed", "infeasible_share", "valid", "illegal"}
    for name in fine:
        if name in exact:
            np.testing.assert_array_equal(fine[name], coarse[name])
        else:
            np.testing.assert_allclose(fine[name], coarse[name], rtol=1e-5, atol=1e-5)
    assert (fine["pulls"].sum("model") == 100).all()


@pytest.mark.parametrize(
    ("horizon", "stage", "every", "free"),
    [
        (1009, 250, 100, 0),  # A prime horizon; chunks of 50.
        (97, 10, 30, 0),  # Chunks of a whole stage; the last interval and stage are cut.
        (60, 7, 20, 13),  # Nothing divides anything: chunks of one round, counting begins in the middle of a stage.
        (5, 10, 2, 0),  # Less than one stage.
        (10_001, 5000, 10_000, 0),  # A stage longer than the longest chunk.
    ],
)
@pytest.mark.parametrize("whose", ["environment's", "policy's"])
def test_plans_come_exactly_at_the_start_of_each_stage(horizon, stage, every, free, whose):
    if whose == "policy's" and stage != 7:
        pytest.skip("the same code path")
    env = Clock(stage_length=stage if whose == "environment's" else None, free_rounds=free)
    policy = Planner(stage_length=None if whose == "environment's" else stage)
    data = play(env, policy, horizon=horizon, record_every=every, seeds=2).isel(policy=0)
    times = np.unique([*range(every, horizon + 1, every), horizon])
    np.testing.assert_array_equal(data["time"], times)
    expected = {
        "rounds": times,
        "clock": free + times,
        "plans": -(-(free + times) // stage),  # Before the decision of the next round, whose plan is still to come.
        "misplanned": 0 * times,
        "rounds_sum": [sum(range(free, free + t)) for t in times],
        "rounds_mean": [free + (t - 1) / 2 for t in times],
        "waiting": [sum(t % stage for t in range(free, free + end)) for end in times],
    }
    for name, values in expected.items():
        for seed in range(2):
            np.testing.assert_allclose(data[name].isel(seed=seed), values, rtol=1e-5, err_msg=name)
    np.testing.assert_array_equal(data["pulls"].sum("model").isel(seed=0), times)


def test_free_rounds_are_played_but_not_counted_and_a_policy_without_plan_ignores_stages():
    data = play(Clock(stage_length=4), Cycle())
    assert (data["misplanned"] == data["time"]).all()
    data = play(Clock(free_rounds=7), Cycle(first=1), horizon=10, record_every=4, record=["reward", "pulls", "clock"])
    assert list(data["time"]) == [4, 8, 10]
    np.testing.assert_array_equal(data["clock"].isel(policy=0, seed=0), [11, 15, 17])
    np.testing.assert_allclose(data["reward"].isel(policy=0, seed=0), [0.4, 0.8, 1.0], rtol=1e-6)
    used = np.cumsum([np.arange(3) == (t + 1) % 3 for t in range(7, 17)], axis=0)
    np.testing.assert_array_equal(data["pulls"].isel(policy=0, seed=0), used[[3, 7, 9]])


@struct.dataclass
class Counting(Cycle):
    """Knows how many rounds there are, and refuses a run that is too long.

    longest: of the runs it can play (static).
    """

    longest: int = struct.field(pytree_node=False, default=1000)

    @property
    def metrics(self):
        return (Metric("known", "rounds of the run", "rounds", "gauge"),)

    def check_spec(self, spec):
        if spec.horizon > self.longest:
            raise ValueError(f"longest must be at least the horizon of the run, {spec.horizon}, got {self.longest}")

    def init(self, key, spec):
        return jnp.full((), spec.horizon, jnp.int32)

    def gauges(self, state):
        return {"known": state}


@pytest.mark.parametrize(("horizon", "every", "free"), [(30, 10, 0), (17, 5, 3), (1, 1, 2)])
def test_a_policy_knows_the_counted_rounds_of_its_run(horizon, every, free):
    env, policies = Clock(free_rounds=free), {"knows": Counting(), "does not": Cycle()}
    data = play(env, policies, horizon=horizon, record_every=every)
    assert (data["known"].sel(policy="knows") == horizon).all()
    np.testing.assert_array_equal(data["pulls"].sel(policy="knows"), data["pulls"].sel(policy="does not"))
    built = play(env, {"knows": lambda env: Counting()}, horizon=horizon, record_every=every)
    sampled = play(lambda key: Clock(free_rounds=free), {"knows": Counting()}, horizon=horizon, record_every=every)
    for other in (built, sampled):
        np.testing.assert_array_equal(other["known"], data["known"].sel(policy=["knows"]))
    rounds = testing.run_eagerly(env, Counting(), horizon=horizon)
    assert len(rounds) == horizon and all(int(r["policy_state"]) == horizon for r in rounds)
    assert [int(r["policy_state"]) for r in testing.run_eagerly(env, Counting(), horizon=horizon, rounds=1)] == [horizon]
    assert env.spec.horizon is None


def test_a_policy_may_refuse_the_horizon_of_a_run():
    play(Clock(), Counting(longest=30), horizon=30)
    for policy in (Counting(longest=29), lambda env: Counting(longest=29)):
        with pytest.raises(ValueError, match="policy 'knows': longest must be at least the horizon of the run, 30, got 29"):
            play(Clock(), {"knows": policy}, horizon=30)


def test_the_horizon_is_all_that_is_added_to_what_an_environment_declares():
    """Also where the declaration is a problem's own."""
    for env in (BANDIT, small_market(), Clock(stage_length=3)):
        spec = spec_for(env, 12)
        assert type(spec) is type(env.spec) and hash(spec) == hash(spec_for(env, 12))
        assert spec.horizon == 12 and dataclasses.replace(spec, horizon=None) == env.spec


def test_defaults_record_a_hundred_points():
    data = play(Clock(), Cycle(), horizon=1000, record_every=None, record=["rounds"])
    np.testing.assert_array_equal(data["time"], np.arange(10, 1001, 10))
    assert play(Clock(), Cycle(), horizon=6, record_every=50, record=["rounds"]).sizes["time"] == 1


# What is recorded.


def test_counts_may_be_written_as_floats():
    counts = {"horizon": 2e1, "record_every": 1e1, "execution": jr.Execution(block=np.float64(16))}
    whole = {"horizon": 20, "record_every": 10, "execution": jr.Execution(block=16)}
    found = play(random_bandit, stochastic.UCB1(), seeds=1e1, num_instances=2.0, **counts)
    xr.testing.assert_equal(found, play(random_bandit, stochastic.UCB1(), seeds=10, num_instances=2, **whole))


def test_totals_are_accumulated_in_double_precision():
    """2**24 + 1 + 1 + ... stands still in float32."""

    class Big(Clock):
        def step(self, key, state, action, t):
            state, feedback, flows = super().step(key, state, action, t)
            return state, feedback, {**flows, "reward": jnp.where(t == 0, 2.0**24, 1.0)}

    data = play(struct.dataclass(Big)(), Cycle(), horizon=20, record_every=1, record=["reward"])
    assert data["reward"].dtype == np.float64
    np.testing.assert_array_equal(data["reward"].isel(policy=0, seed=0), 2.0**24 + np.arange(20))


def test_vectors_have_named_dimensions_and_attributes_say_what_a_variable_is():
    names = ["pulls", "ages", "hands", "marks", "rounds"]
    data = play(Clock(), {"cycle": Cycle(first=2), "planner": Planner(stage_length=5)}, record=names)
    assert data["rounds"].dims == ("policy", "seed", "time")
    for name in ("pulls", "ages", "hands", "marks"):
        assert data[name].dims == ("policy", "seed", "time", "model")
    assert list(data["model"].values) == ["a", "b", "c"]
    cycle, planner = data.sel(policy="cycle", seed=1), data.sel(policy="planner", seed=1)
    np.testing.assert_array_equal(cycle["pulls"].sel(time=10), [3, 3, 4])
    np.testing.assert_allclose(cycle["ages"].sel(time=20), [0, 9.5, 19.0])
    np.testing.assert_array_equal(cycle["hands"].sel(time=20), [0, 2, 0])
    np.testing.assert_allclose(planner["marks"].sel(time=10), [(0 + 3 + 6 + 9) / 10, (1 + 4 + 7) / 10, (2 + 5 + 8) / 10])
    assert np.isnan(cycle["marks"]).all()  # A policy without this metric.
    data = play(Clock(), Planner(stage_length=5))
    assert data["reward"].attrs == {"long_name": "reward", "units": "reward", "kind": "total"}
    assert data["waiting"].attrs == {"long_name": "rounds since the plan", "units": "rounds", "kind": "total"}
    assert data["clock"].attrs["kind"] == "gauge"
    assert {"luck", "ages", "marks"}.isdisjoint(data)  # Not recorded by default.
    assert list(play(Clock(), Cycle(), record="luck")) == ["luck", "bad", "valid"]


def test_info_is_recorded_as_a_mean_and_may_be_a_vector():
    data = play(Clock(), Cycle(), record=["rounds", "info.twice", "info.both"]).isel(policy=0, seed=0)
    np.testing.assert_allclose(data["info.twice"], [9.0, 19.0, 29.0])
    assert data["info.twice"].attrs["kind"] == "average"
    np.testing.assert_allclose(data["info.both"], [[4.5, -4.5], [9.5, -9.5], [14.5, -14.5]])


def test_info_that_only_one_policy_has_is_missing_in_the_other():
    policies = {"greedy": stochastic.EpsilonGreedy(epsilon=1.0), "ucb": stochastic.UCB1()}
    data = play(BANDIT, policies, record=["info.explored"])
    (name,) = set(data) - {"valid", "illegal"}
    assert (data[name].sel(policy="greedy") == 1.0).all()
    assert np.isnan(data[name].sel(policy="ucb")).all()
    assert data["valid"].all()


def test_nothing_needs_to_be_recorded():
    policies = {"grid": jr.grid(stochastic.UCB1, width=[1.0, 2.0]), "single": stochastic.GaussianThompson()}
    data = play(BANDIT, policies, record=[])
    assert list(data) == ["illegal", "valid"]
    assert data["valid"].shape == (2, 2, 3)
    assert data["valid"].all()


@pytest.mark.parametrize("keep", ["runs", "moments"])
def test_a_probe_that_shows_nan_is_said(keep):
    probes = {"odd": lambda env, policy, env_state, policy_state, t: {"x": jnp.where(t < 11, jnp.nan, 1.0), "y": t}}
    with pytest.warns(UserWarning, match="the probe 'odd.x' is NaN at some time in 3 runs that are valid"):
        play(Clock(), Cycle(), horizon=20, seeds=3, record=["rounds"], probes=probes, keep=keep)


def test_probes_see_both_states_and_the_swept_environment():
    def several(env, policy, env_state, policy_state, t):
        assert isinstance(env, Clock)
        assert isinstance(policy, Planner)
        assert set(policy_state) == {"last", "plans"}
        return {"slope": env.slope, "twice": 2 * t, "gap": env_state["clock"] - policy_state["last"]}

    probes = {"several": several, "vector": lambda *a: jnp.arange(4) + a[-1]}
    env = jr.grid(Clock, slope=[0.5, 2.0])
    data = play(env, Planner(stage_length=7), record=["rounds"], probes=probes, seeds=2).isel(policy=0, seed=1)
    np.testing.assert_array_equal(data["several.slope"], [[0.5] * 3, [2.0] * 3])
    np.testing.assert_array_equal(data["several.twice"], [[20, 40, 60]] * 2)
    np.testing.assert_array_equal(data["several.gap"], [[10 - 7, 20 - 14, 30 - 28]] * 2)
    assert data["vector"].dims == ("slope", "time", "vector_0")
    np.testing.assert_array_equal(data["vector"].isel(slope=0, time=1), [20, 21, 22, 23])


# Runs that are not valid.


def test_a_flow_that_must_be_zero_marks_its_runs():
    """The bad flow alternates in sign, so that only the sum of its absolute values finds it."""
    with pytest.warns(UserWarning, match=r"\d+ of 20 runs are invalid.*see the variable 'valid'"):
        data = play(Clock(bad_from=24), Cycle(), seeds=20, record=["luck", "rounds"]).isel(policy=0)
    unlucky = data["luck"].isel(time=-1) < 0.5
    assert 0 < int(unlucky.sum()) < 20
    np.testing.assert_array_equal(data["valid"], ~unlucky)
    np.testing.assert_array_equal(data["bad"], 6 * unlucky)
    np.testing.assert_array_equal(data["rounds"].isel(time=-1), 30)  # Nothing is dropped or averaged away.


@pytest.mark.parametrize("overflow", [0, 1])
def test_a_flow_that_must_be_zero_may_be_a_vector(overflow):
    """Of one model only, and only in the first round."""

    @struct.dataclass
    class Queues(Clock):
        @property
        def spec(self):
            return dataclasses.replace(super().spec, zero_flows=("overflow",))

        def step(self, key, state, action, t):
            state, feedback, flows = super().step(key, state, action, t)
            return state, feedback, {**flows, "overflow": jnp.where(t == 0, jnp.asarray([0, 0, overflow]), 0)}

    with pytest.warns(UserWarning, match="3 of 3 runs are invalid") if overflow else contextlib.nullcontext():
        data = play(Queues(), Cycle(), record=["rounds"])
    assert data["valid"].shape == (1, 3)
    assert (data["valid"] == (overflow == 0)).all()


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_value_that_is_not_finite_marks_the_run(broken):
    with pytest.warns(UserWarning, match="3 of 3 runs are invalid"):
        data = play(Clock(broken_at=14, broken=broken), Cycle())
    assert not data["valid"].any()
    np.testing.assert_array_equal(np.isfinite(data["reward"].isel(policy=0, seed=0)), [True, False, False])
    assert np.isfinite(data["rounds"]).all()


# Environments and policies given as functions.


def random_bandit(key):
    """A sampler: three models with uniform means."""
    return stochastic.BanditEnv(mean=draws.uniform(key, (3,)), scale=jnp.float32(0.0))


def assert_same_runs(data, alone):
    assert engine_child.differences(data[list(alone)], alone) == []


def test_a_sampler_gives_each_run_its_own_instance():
    policies = {"oracle": stochastic.Oracle.of, "ucb": stochastic.UCB1()}
    probes = {"mean": lambda env, *_: env.mean}
    data = play(random_bandit, policies, seeds=6, probes=probes, record=["regret", "pulls"])
    means = data["mean"].isel(policy=0, time=0)
    assert len(np.unique(means, axis=0)) == 6
    assert (data["regret"].sel(policy="oracle") == 0).all()
    np.testing.assert_array_equal(data["pulls"].sel(policy="oracle").isel(time=-1).argmax("model"), means.argmax("mean_0"))
    assert (data["regret"].sel(policy="ucb").isel(time=-1) > 0).all()
    # The run of the instance that the run's own key draws.
    env = random_bandit(jax.random.fold_in(jax.random.fold_in(jax.random.key(0), 4), 0))
    np.testing.assert_array_equal(means.sel(seed=4), env.mean)
    assert_same_runs(data, play(env, policies, seeds=[4], record=["regret", "pulls"]))


def test_a_sampler_with_a_number_of_instances_shares_them():
    policies = {"oracle": stochastic.Oracle.of, "ucb": stochastic.UCB1()}
    options = {"record": ["regret", "pulls"], "probes": {"mean": lambda env, *_: env.mean}}
    data = play(random_bandit, policies, num_instances=3, **options)
    assert data["pulls"].dims == ("policy", "instance", "seed", "time", "model")
    assert (data["regret"].sel(policy="oracle") == 0).all()
    assert len(np.unique(data["mean"].isel(policy=0, seed=0, time=0), axis=0)) == 3
    assert (data["mean"] == data["mean"].isel(policy=0, seed=0, time=0)).all()
    env = random_bandit(draws.fold_in(draws.key(_INSTANCE_ROOT), 2))
    assert_same_runs(data.isel(instance=2), play(env, policies, record=["regret", "pulls"]))


@struct.dataclass
class RandomBandits:
    """A sampler with a leaf of its own: means uniform on `[0, top]`."""

    top: float = 1.0

    def __call__(self, key):
        return stochastic.BanditEnv(mean=self.top * draws.uniform(key, (3,)), scale=jnp.float32(0.0))


def test_the_leaves_of_a_sampler_can_be_swept_in_one_trace():
    probes = {"mean": lambda env, *_: env.mean}
    policies = {"oracle": stochastic.Oracle.of, "ucb": stochastic.UCB1()}
    before = jr.trace_count()
    data = play(jr.grid(RandomBandits, top=[0.5, 1.0]), policies, probes=probes, record=["regret", "pulls"])
    assert jr.trace_count() == before + 2  # one per policy
    assert (data["regret"].sel(policy="oracle") == 0).all()
    np.testing.assert_allclose(data["mean"].sel(top=0.5), 0.5 * data["mean"].sel(top=1.0), rtol=1e-6)
    assert_same_runs(data.sel(top=0.5), play(RandomBandits(top=0.5), policies, record=["regret", "pulls"]))


def test_a_run_that_cannot_fit_is_refused_with_its_size(monkeypatch):
    size = jr.run_bytes(stochastic.bernoulli([0.5, 0.4]), stochastic.UCB1())
    assert size == 2 * 4 * 4
    monkeypatch.setattr(layout, "memory_limit", lambda device: 100)
    with pytest.raises(
        ValueError, match="'UCB1' needs 3.2e-08 GB for the state of one run, and 16 runs are simulated together"
    ):
        play(stochastic.bernoulli([0.5, 0.4]), stochastic.UCB1())


# How often is traced, and compiled.


def test_what_did_not_compile_is_tried_again_by_the_next_call(monkeypatch, fresh_programs):
    compile_ = programs.compile_lanes

    def failing(*lowered):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: the compiler has no memory")

    env, policies = stochastic.bernoulli([0.3, 0.9]), {"ucb": stochastic.UCB1(), "greedy": stochastic.EpsilonGreedy()}
    monkeypatch.setattr(programs, "compile_lanes", failing)
    with pytest.raises(jax.errors.JaxRuntimeError, match="the compiler has no memory"):
        play(env, policies, seeds=16)
    monkeypatch.setattr(programs, "compile_lanes", compile_)
    assert play(env, policies, seeds=16)["valid"].all()


def test_programs_that_have_not_been_used_for_long_are_dropped(monkeypatch, fresh_programs):
    monkeypatch.setattr(programs.PROGRAMS, "most", 2)

    everyone = [stochastic.UCB1(), stochastic.EpsilonGreedy(), stochastic.GaussianThompson()]

    def traces(*numbers):
        before = jr.trace_count()
        policies = {str(n): everyone[n] for n in numbers}
        play(stochastic.bernoulli([0.3, 0.9]), policies, seeds=16)
        return jr.trace_count() - before

    assert traces(0, 1) == 2
    assert traces(0) == 0  # Now the first one was used last.
    assert traces(2) == 1 and len(programs.PROGRAMS) == 2
    assert traces(0, 2) == 0
    assert traces(1) == 1
    assert traces(0, 1, 2) == 1 and len(programs.PROGRAMS) == 2  # All that a call needs, until it ends.


def test_one_trace_per_structure(monkeypatch, fresh_programs):
    def nothing(lowered, *_):  # What is compiled does not matter here.
        return lambda *args: jax.tree.map(lambda out: np.zeros(out.shape, out.dtype), lowered.out_info)

    monkeypatch.setattr(programs, "compile_lanes", nothing)

    def traces(env, policies, **options):
        before = jr.trace_count()
        data = play(env, policies, horizon=33, execution=jr.Execution(block=16), **options)
        return jr.trace_count() - before, data

    def bandits(*means):
        return jr.grid(lambda best: stochastic.bernoulli([0.3, best]), best=list(means))

    assert traces(stochastic.bernoulli([0.2, 0.5]), stochastic.UCB1())[0] == 1
    assert traces(stochastic.bernoulli([0.3, 0.9]), stochastic.UCB1(width=0.5))[0] == 0  # Other leaves.
    assert traces(stochastic.bernoulli([0.3, 0.9]), stochastic.UCB1(), seeds=50)[0] == 0  # Four blocks.
    assert traces(stochastic.bernoulli([0.3, 0.9]), stochastic.UCB1(), seeds=[5])[0] == 0
    both = {"first": stochastic.UCB1(width=1.0), "second": stochastic.UCB1(width=2.0)}
    assert traces(stochastic.bernoulli([0.3, 0.9]), both)[0] == 0  # Two policies of one structure.
    assert traces(stochastic.bernoulli([0.3, 0.9]), stochastic.GaussianThompson())[0] == 1
    assert traces(stochastic.bernoulli([0.3, 0.9, 0.1]), stochastic.UCB1())[0] == 1  # Another size.
    assert traces(bandits(0.4, 0.5, 0.6, 0.7), stochastic.UCB1())[0] == 1
    assert traces(bandits(0.4, 0.5, 0.6, 0.8), stochastic.UCB1(width=3.0), seeds=20)[0] == 0
    number, data = traces(bandits(*np.linspace(0.4, 0.9, 11)), stochastic.UCB1())  # Three tiles.
    assert number == 0
    assert decoded(data.attrs)["layout"] == {"block": 16, "tile": {"best": 4}}


# Compiling.


@pytest.mark.parametrize("case", ["draws on a shared key", "choices"])
def test_a_small_loop_inside_a_policy_compiles(case):
    """XLA turns loops over few bytes into another kind of call, which must cope with the barriers that the engine keeps.

    In a process of its own: where it does not, the process dies.
    """
    code = f"""
        import jax, jax.numpy as jnp
        from flax import struct
        from jax import lax
        import jaxroute as jr
        from jaxroute import draws, numerics
        from jaxroute.problems import stochastic

        @struct.dataclass
        class Looping(stochastic.UCB1):
            def act(self, key, state, obs, t):
                action, info = super().act(key, state, obs, t)
                def body(i, x):
                    if {case!r} == "choices":
                        return x + numerics.argmax(jnp.stack([x, 0.5 + 0 * x]))
                    return x + draws.uniform(draws.fold_in(draws.key(3) if "shared" in {case!r} else key, i))
                x = lax.fori_loop(0, 5, body, jnp.float32(0) if "shared" in {case!r} else 1.0 * t)
                return (action + x.astype(jnp.int32)) % 2, info

        data = jr.simulate(stochastic.bernoulli([0.2, 0.5]), Looping(), horizon=8, seeds=3, progress=False)
        print("valid", bool(data["valid"].all()))
    """
    child = run_child("-c", textwrap.dedent(code))
    assert child.returncode == 0, child.stderr[-1500:]
    assert child.stdout.split() == ["valid", "True"]


def test_the_smallest_run_compiles():
    data = play(Coin(), Idle(), horizon=5, seeds=1, record_every=2)
    keys = [jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(jax.random.key(0), 0), 2), t) for t in range(5)]
    total = math.fsum(float(jax.random.uniform(k)) for k in keys)
    np.testing.assert_allclose(data["reward"].values.ravel()[-1], total, rtol=1e-6)
