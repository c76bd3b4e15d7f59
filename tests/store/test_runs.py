"""The store: what is written can be read, a killed run continues to the same bits, and nobody else's data is touched."""

import functools
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray as xr
import zarr
from engine_child import differences
from helpers import CHILDREN_PATH, retell
from toys import Clock, Cycle, Planner, small_market

import jaxroute as jr
from jaxroute.engine import layout, programs
from jaxroute.problems import staged, stochastic
from jaxroute.store import code, provenance, runs

ENV = stochastic.bernoulli([0.2, 0.7, 0.5])


def play(env=ENV, policies=None, **options):
    """Five blocks of two policies, unless said otherwise."""
    policies = policies or {"ucb": stochastic.UCB1(), "narrow": stochastic.UCB1(width=0.3)}
    settings = {"horizon": 40, "seeds": 70, "record_every": 10, "block": 16, "progress": False} | options
    return jr.simulate(env, policies, **settings)


@pytest.fixture(scope="module")
def undisturbed():
    return play()


def contents(path):
    """Every file below a folder, with its bytes."""
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(Path(path).rglob("*")) if p.is_file()}


# Round trip.


def test_a_stored_result_is_the_result(tmp_path, undisturbed):
    stored = play(out=tmp_path / "out", description={"experiment": "a test"})
    assert differences(undisturbed, stored) == []
    for path in (tmp_path / "out", str(tmp_path / "out"), tmp_path / "out" / "result.zarr"):
        loaded = jr.load(path)
        xr.testing.assert_identical(loaded, stored)
        assert list(loaded) == list(stored)
        assert {name: v.dtype for name, v in loaded.items()} == {name: v.dtype for name, v in stored.items()}
    assert loaded.attrs["experiment"] == "a test"
    assert loaded["valid"].dtype == bool


def test_grids_vectors_gauges_and_names_survive(tmp_path):
    env = jr.grid(Clock, slope=[0.5, 1.0, 2.0])
    policies = {"grid": jr.grid(Cycle, first=[0, 2]), "single": Planner(stage_length=5)}
    options = {"record": ["reward", "pulls", "clock", "plans"], "probes": {"probe": lambda *a: {"t": a[-1]}}, "seeds": 20}
    fresh = play(env, policies, **options)
    stored = play(env, policies, out=tmp_path, **options)
    loaded = jr.load(tmp_path)
    xr.testing.assert_identical(loaded, stored)
    assert differences(fresh, loaded) == []
    assert loaded["pulls"].dims == ("policy", "slope", "first", "seed", "time", "model")
    assert list(loaded["model"].values) == ["a", "b", "c"]
    assert list(loaded["policy"].values) == ["grid", "single"]
    np.testing.assert_array_equal(loaded["probe.t"].isel(policy=0, slope=0, first=0, seed=0), [10, 20, 30, 40])


def test_named_coordinates_survive(tmp_path):
    grid = jr.grid(lambda shape: Cycle(first=len(shape)), shape=["a", "bb"])
    play(Clock(), grid, out=tmp_path, record=["rounds"], seeds=3)
    assert list(jr.load(tmp_path)["shape"].values) == ["a", "bb"]


def test_provenance(tmp_path):
    stored = play(out=tmp_path, seeds=20)
    attributes = jr.load(tmp_path).attrs
    assert attributes["versions"]["jax"] == jax.__version__
    assert attributes["versions"]["jaxroute"] == jr.__version__
    assert {"python", "jaxlib", "numpy"} <= set(attributes["versions"])
    assert attributes["device"].startswith(f"{jax.local_device_count()} x ")
    assert attributes["decisions"] == 2 * 20 * 40
    assert attributes["compile_s"] >= 0
    assert attributes["run_s"] > 0
    assert attributes["created"].startswith("20")
    assert isinstance(attributes["commit"], str)
    settings = attributes["settings"]
    assert settings["problem"] == "stochastic"
    assert (settings["horizon"], settings["record_every"], settings["key"]) == (40, 10, 0)
    assert settings["seeds"] == list(range(20))
    assert "1.41421" in json.dumps(settings["policies"]["ucb"])
    assert "0.69999" in json.dumps(settings["environment"])
    assert attributes["layout"] == stored.attrs["layout"] == {"block": 16, "tile": {}}


def test_a_finished_run_is_not_played_again(tmp_path, count_blocks):
    first = play(out=tmp_path)
    assert len(count_blocks) == 10
    again = play(out=tmp_path)
    assert len(count_blocks) == 10
    assert differences(first, again) == []
    assert again.attrs["decisions"] == first.attrs["decisions"]
    assert jr.load(tmp_path).attrs["decisions"] == first.attrs["decisions"]


@pytest.mark.parametrize("keep", ["runs", "moments"])
def test_a_finished_run_that_is_opened_again_adds_no_seconds(tmp_path, keep):
    """Its programs are traced to see what they record, and not compiled."""
    measured = ("compile_s", "run_s", "decisions", "played_again")
    first = play(out=tmp_path, seeds=32, keep=keep).attrs
    assert first["last_call"] == {name: first[name] for name in measured} and first["last_call"]["decisions"] == 2 * 32 * 40
    for _ in range(2):
        again = play(out=tmp_path, seeds=32, keep=keep).attrs
        assert {name: again[name] for name in measured} == {name: first[name] for name in measured}
        assert again["last_call"] == dict.fromkeys(measured, 0) == jr.load(tmp_path).attrs["last_call"]
    more = play(out=tmp_path, seeds=48, keep=keep).attrs
    assert more["last_call"]["decisions"] == 2 * 16 * 40 and more["last_call"]["run_s"] > 0
    for name in measured:
        assert more[name] == pytest.approx(first[name] + more["last_call"][name])


def test_the_block_of_the_store_holds(tmp_path, undisturbed, count_blocks):
    """The block size is not a setting of the result: a run continues with the stored one."""
    play(out=tmp_path)
    zarr.open_group(tmp_path / "result.zarr", mode="a")["_done"][:, 2:] = False
    again = play(out=tmp_path, block=64)
    assert len(count_blocks) == 10 + 6
    assert again.attrs["layout"]["block"] == 16
    assert differences(undisturbed, again) == []


# Killed runs.

CHILD = """
    import os, signal, sys, time
    import test_runs
    from jaxroute.store import runs

    out, how = sys.argv[1:]
    write, done = runs.RunSink.write, []

    def watched(self, *args):
        if len(done) == 3:
            if how == "between data and flag":
                class Killer:
                    def __setitem__(self, index, value):
                        os.kill(os.getpid(), signal.SIGKILL)
                self.arrays[runs.DONE] = Killer()
            elif how == "between blocks":
                print("ready", flush=True)
                time.sleep(300)
        write(self, *args)
        done.append(args)

    runs.RunSink.write = watched
    test_runs.play(out=out)
"""


@pytest.mark.parametrize("how", ["between blocks", "between data and flag"])
def test_a_run_that_was_killed_continues_to_the_same_bits(tmp_path, undisturbed, count_blocks, how):
    env = os.environ | {"PYTHONPATH": CHILDREN_PATH}
    command = [sys.executable, "-c", textwrap.dedent(CHILD), str(tmp_path), how]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        if how == "between blocks":
            assert child.stdout.readline() == "ready\n", child.stderr.read()[-2000:]
            child.kill()
        _, errors = child.communicate(timeout=300)
    assert child.returncode == -signal.SIGKILL, errors[-2000:]

    with pytest.raises(ValueError, match="unfinished: 7 blocks are missing.*partial=True"):
        jr.load(tmp_path)
    partial = jr.load(tmp_path, partial=True)
    finished = np.zeros((2, 70), bool)
    finished[0, :48] = True
    np.testing.assert_array_equal(np.isfinite(partial["regret"].isel(time=-1))[:, [0, 47, 64]], finished[:, [0, 47, 64]])
    assert differences(undisturbed.isel(policy=[0], seed=slice(48)), partial.isel(policy=[0], seed=slice(48))) == []

    continued = play(out=tmp_path)
    assert len(count_blocks) == 7
    assert differences(undisturbed, continued) == []
    xr.testing.assert_identical(jr.load(tmp_path), continued)


def test_an_interrupt_leaves_what_is_finished(tmp_path, undisturbed, monkeypatch):
    """Ctrl-C in the fourth block."""
    run, blocks = programs.Block.play, []

    def interrupted(self, *args):
        blocks.append(args)
        if len(blocks) == 4:
            raise KeyboardInterrupt
        return run(self, *args)

    monkeypatch.setattr(programs.Block, "play", interrupted)
    with pytest.raises(KeyboardInterrupt):
        play(out=tmp_path)
    monkeypatch.setattr(programs.Block, "play", run)
    with pytest.raises(ValueError, match="7 blocks are missing"):
        jr.load(tmp_path)
    assert differences(undisturbed, play(out=tmp_path)) == []


@pytest.mark.parametrize("moment", ["create_array", "_write_coordinates", "_array"])
def test_a_run_that_was_killed_while_it_made_its_store_can_be_started_again(tmp_path, undisturbed, monkeypatch, moment):
    """The store is made in several steps; whichever was the last, the same command must work again."""

    class Killed(BaseException):
        pass

    def kill(*args, **kwargs):
        raise Killed

    owner = zarr.Group if moment == "create_array" else runs.RunSink
    original, calls = getattr(owner, moment), []

    def after_two(*args, **kwargs):
        calls.append(args)
        if moment == "_write_coordinates":  # All coordinates but not the mark that follows.
            original(*args, **kwargs)
            raise Killed
        if len(calls) == 3:
            raise Killed
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, moment, after_two)
    with pytest.raises(Killed):
        play(out=tmp_path)
    monkeypatch.undo()
    assert differences(undisturbed, play(out=tmp_path)) == []


def test_grids_continue_too(tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "_CPU_LANES", 16)
    env, policies = jr.grid(Clock, slope=[0.5, 1.0, 2.0]), {"grid": jr.grid(Cycle, first=[0, 2]), "single": Cycle(first=1)}
    options = {"record": ["reward", "luck", "pulls"], "seeds": 40}
    whole = play(env, policies, **options)
    play(env, policies, out=tmp_path, **options)
    group = zarr.open_group(tmp_path / "result.zarr", mode="a")
    done = group["_done"]
    assert done[...].all()
    lost = np.random.default_rng(0).random(done.shape) < 0.5
    lost[1] = lost[1][:, :1]  # One block of the policy without an axis covers the whole axis.
    done[...] = np.where(lost, 0, done[...])
    continued = play(env, policies, out=tmp_path, **options)
    assert differences(whole, continued) == []
    assert group["_done"][...].all()


# Other settings.

CHANGES = {
    "a leaf of a policy": ({"policies": {"ucb": stochastic.UCB1(), "narrow": stochastic.UCB1(width=0.4)}}, r"narrow.*width is 0\.3 there and 0\.4 here"),
    "a leaf of the environment": ({"env": stochastic.bernoulli([0.2, 0.8, 0.5])}, r"mean\[1\] is 0\.69\d* there and 0\.80\d* here"),
    "the law": ({"env": stochastic.BanditEnv(mean=ENV.mean, scale=ENV.scale, law=stochastic.sources.gaussian_law)}, "law.*bernoulli_law.*there.*gaussian_law.*here"),
    "the horizon": ({"horizon": 50}, "horizon is 40 there and 50 here"),
    "the record interval": ({"record_every": 20}, "record_every is 10 there and 20 here"),
    "the number of seeds": ({"seeds": 60}, "seeds 60 to 69 are only in the store"),
    "the seeds": ({"seeds": range(1, 71)}, "seeds"),
    "the key": ({"key": 1}, "key is 0 there and 1 here"),
    "the class of a policy": ({"policies": {"ucb": stochastic.UCB1(), "narrow": stochastic.EpsilonGreedy()}}, "narrow.*UCB1.*there.*EpsilonGreedy.*here"),
    "the name of a policy": ({"policies": {"ucb": stochastic.UCB1(), "wide": stochastic.UCB1(width=0.3)}}, "narrow is only in the store"),
    "the metrics": ({"record": ["regret"]}, "record.ucb.flows.*there.*here"),
    "a probe": ({"probes": {"extra": lambda *a: a[-1]}}, "'extra' of policy 'ucb', 'extra' of policy 'narrow'"),
}  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("finished")
    play(out=path)
    return path


@pytest.mark.parametrize("change", CHANGES)
def test_a_store_of_other_settings_is_refused_and_the_difference_named(change, finished):
    options, message = CHANGES[change]
    before = contents(finished)
    with pytest.raises(jr.StoreMismatchError, match=f"{message}.*choose another folder") as error:
        play(out=finished, **options)
    assert str(finished) in str(error.value)
    assert contents(finished) == before


def test_numbers_that_are_not_finite_are_settings_too(tmp_path):
    """NaN differs from itself, but a setting that is NaN is still the same setting."""
    options = {"record": ["rounds"], "seeds": 3, "out": tmp_path}
    play(Clock(broken=np.nan, slope=np.inf), Cycle(), **options)
    play(Clock(broken=np.nan, slope=np.inf), Cycle(), **options)
    with pytest.raises(jr.StoreMismatchError, match="broken is nan there and 1.0 here"):
        play(Clock(broken=1.0, slope=np.inf), Cycle(), **options)


@pytest.mark.parametrize("what", ["jax", "platform"])
def test_a_store_of_another_version_is_refused(tmp_path, what):
    play(Clock(), Cycle(), out=tmp_path, record=["rounds"], seeds=3)
    settings = zarr.open_group(tmp_path / "result.zarr", mode="r").attrs["settings"]
    own = settings[what]
    retell(tmp_path, settings={**settings, what: "0.0.1"})
    with pytest.raises(jr.StoreMismatchError, match=f"{what} is '0.0.1' there and '{own}' here"):
        play(Clock(), Cycle(), out=tmp_path, record=["rounds"], seeds=3)


def test_a_staged_store_names_the_parameter(tmp_path):
    def run(policy, **options):
        return play(small_market(**options), policy, out=tmp_path, horizon=100, record_every=50, seeds=3)

    run(staged.Greedy(gamma=0.2))
    with pytest.raises(jr.StoreMismatchError, match=r"gamma is 0\.2 there and 0\.3 here"):
        run(staged.Greedy(gamma=0.3))
    with pytest.raises(jr.StoreMismatchError, match=r"estimator\.type is 'Mean' there and 'Lemma3' here"):
        run(staged.Greedy(gamma=0.2, estimator=staged.Lemma3()))
    with pytest.raises(jr.StoreMismatchError, match=r"budget is 1\.6\d* there and 1\.7\d* here"):
        run(staged.Greedy(gamma=0.2), budget=1.7)


def with_inner_function(env, policy, env_state, policy_state, t):
    def inner(x):
        return x + 1

    return inner(policy_state.pulls)


def sampler(scale):
    def sample(key):
        return stochastic.BanditEnv(mean=scale * jax.random.uniform(key, (3,)), scale=np.float32(0.0))

    return sample


class Sampler:
    """A sampler that is an object, or a method of one."""

    def __init__(self, scale):
        self.scale = scale

    def sample(self, key):
        return stochastic.BanditEnv(mean=self.scale * jax.random.uniform(key, (3,)), scale=np.float32(0.0))

    __call__ = sample


FUNCTIONS = {
    "another attribute": (lambda *a: a[3].pulls, lambda *a: a[3].reward_sum),
    "another function called": (lambda *a: np.sin(a[-1]), lambda *a: np.cos(a[-1])),
    "another constant": (lambda *a: a[-1] + 1, lambda *a: a[-1] + 2),
    "another constant inside": (lambda *a: (lambda x: x + 1)(a[-1]), lambda *a: (lambda x: x + 2)(a[-1])),
    "another closure": (sampler(0.5), sampler(0.9)),
    "another default": (lambda *a, by=1: a[-1] + by, lambda *a, by=2: a[-1] + by),
    "another object": (Sampler(0.5), Sampler(0.9)),
    "a method of another object": (Sampler(0.5).sample, Sampler(0.9).sample),
    "another compiled function": (jax.jit(lambda *a: a[-1] + 1), jax.jit(lambda *a: a[-1] + 2)),
    "another bound argument": (functools.partial(small_market, budget=1.6), functools.partial(small_market, budget=1.7)),
}


def told(function):
    """What a store keeps of a function: what it was made with, and what its code does."""
    return [provenance.describe(function), code.code_of([function])]


@pytest.mark.parametrize("case", FUNCTIONS)
def test_functions_that_do_something_else_are_told_apart(case):
    one, other = FUNCTIONS[case]
    assert told(one) != told(other)


def test_functions_are_described_alike_in_every_process():
    """Otherwise no other process could continue the store. Addresses in memory must not show."""
    script = "import json, tests.store.test_runs as t; print(json.dumps(t.described()))"
    env = os.environ | {"PYTHONPATH": CHILDREN_PATH, "PYTHONHASHSEED": "7"}
    child = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=300)
    assert child.returncode == 0, child.stderr[-2000:]
    assert json.loads(child.stdout.splitlines()[-1]) == json.loads(json.dumps(described()))


def test_a_function_that_calls_itself_is_described():
    def halve(n):
        return n if n < 2 else halve(n // 2)

    def third(n):
        return n if n < 2 else third(n // 3)

    assert told(halve) != told(third)


def described():
    """Fingerprints of everything that a run may be made of."""
    things = [
        *(f for pair in FUNCTIONS.values() for f in pair),
        with_inner_function,
        ENV,
        small_market(),
        staged.StageRoute(),
    ]
    things += [
        stochastic.Oracle.of,
        staged.lower_bound_market(horizon=100),
        sampler(0.3),
        jr.grid(stochastic.UCB1, width=[1.0, 2.0]),
    ]
    return [told(thing) for thing in things]


# Other people's data, and wrong paths.


def test_somebody_elses_zarr_is_refused_and_left_alone(tmp_path):
    foreign = tmp_path / "result.zarr"
    xr.Dataset({"precious": ("x", [1.0, 2.0])}).to_zarr(foreign, zarr_format=3)
    before = contents(tmp_path)
    with pytest.raises(jr.StoreMismatchError, match=r"holds something else than a jaxroute result; choose another folder"):
        play(out=tmp_path)
    assert contents(tmp_path) == before
    with pytest.raises(ValueError, match="jaxroute result"):
        jr.load(tmp_path)


def test_somebody_elses_old_zarr_is_refused_and_left_alone(tmp_path):
    xr.Dataset({"precious": ("x", [1.0, 2.0])}).to_zarr(tmp_path / "result.zarr", zarr_format=2)
    before = contents(tmp_path)
    with pytest.raises(jr.StoreMismatchError, match=r"holds something else than a jaxroute result; choose another folder"):
        play(out=tmp_path)
    assert contents(tmp_path) == before


def test_somebody_elses_folder_is_refused_and_left_alone(tmp_path):
    """A folder that is itself named as a store. (In any other folder, the store is a new folder beside the other files.)"""
    folder = tmp_path / "mine.zarr"
    folder.mkdir()
    (folder / "notes.txt").write_text("precious")
    with pytest.raises(jr.StoreMismatchError, match=r"holds something else than a jaxroute result; choose another folder"):
        play(out=folder)
    assert [p.name for p in folder.iterdir()] == ["notes.txt"]


def test_an_empty_folder_is_nobody_elses(tmp_path):
    (tmp_path / "mine.zarr").mkdir()
    play(Clock(), Cycle(), out=tmp_path / "mine.zarr", record=["rounds"], seeds=3)
    assert jr.load(tmp_path / "mine.zarr")["valid"].all()


def test_a_store_is_made_beside_other_files(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    play(Clock(), Cycle(), out=tmp_path, record=["rounds"], seeds=3)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt", "result.zarr"]
    play(Clock(), Cycle(), out=tmp_path / "deep" / "er.zarr", record=["rounds"], seeds=3)
    assert (jr.load(tmp_path / "deep" / "er.zarr")["rounds"].isel(time=-1) == 40).all()


def test_a_file_is_no_folder(tmp_path):
    path = tmp_path / "file"
    path.write_text("precious")
    with pytest.raises((ValueError, OSError), match="file"):
        play(Clock(), Cycle(), out=path)
    assert path.read_text() == "precious"


def test_reading_does_not_write(finished):
    before = contents(finished)
    jr.load(finished)
    assert contents(finished) == before
