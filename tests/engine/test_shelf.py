"""Programs that a later process takes from a folder in place of tracing them."""

import importlib.util
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from jax.experimental import serialize_executable
from jax.experimental.compilation_cache import compilation_cache

import jaxroute as jr
from jaxroute.core.types import Leaf
from jaxroute.engine import memory, programs, shelf
from jaxroute.problems import queueing, staged, stochastic

ENV = stochastic.bernoulli([0.9, 0.5, 0.1])


@pytest.fixture(autouse=True)
def no_cache_of_jax():
    """What JAX takes from its own cache cannot be put on a shelf."""
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    yield
    jax.config.update("jax_enable_compilation_cache", True)
    compilation_cache.reset_cache()


def kept(folder):
    """Files of programs."""
    return [path for path in folder.iterdir() if not path.suffix]


def play(policy=None, env=ENV, **options):
    """As another process would: nothing is remembered but what is on disk."""
    programs.PROGRAMS.clear()
    memory._measured.clear()
    before = programs.trace_count()
    settings = {"horizon": 50, "seeds": 16, "progress": False} | options
    data = jr.simulate(env, stochastic.UCB1() if policy is None else policy, **settings)
    return data, programs.trace_count() - before


def test_a_program_is_traced_by_the_first_process_only(tmp_path):
    with shelf.shelf(tmp_path / "programs"):
        first, traces = play()
        assert traces == 1 and len(kept(tmp_path / "programs")) == 1
        for changed in ({}, {"key": 7}, {"seeds": range(16, 32)}):
            again, traces = play(**changed)
            assert traces == 0, changed
            if not changed:
                assert again.equals(first)
    alone, traces = play(key=7)
    assert traces == 1
    with shelf.shelf(tmp_path / "programs"):
        assert play(key=7)[0].equals(alone)


OTHERS = {
    "horizon": lambda: play(horizon=60),
    "policy": lambda: play(stochastic.EpsilonGreedy()),
    "records": lambda: play(record_every=5),
    "metrics": lambda: play(record=["reward"]),
    "models": lambda: play(env=stochastic.bernoulli([0.9, 0.5])),
    "grid": lambda: play(jr.grid(stochastic.UCB1, width=[1.0, 2.0])),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_program_has_another_name(name, tmp_path):
    with shelf.shelf(tmp_path):
        play()
        first, traces = OTHERS[name]()
        assert traces == 1 and len(kept(tmp_path)) == 2
        again, traces = OTHERS[name]()
        assert traces == 0 and again.equals(first)


def test_stages_are_kept_and_samplers_that_have_a_name(tmp_path):
    market = staged.arena_market(horizon=40, stage_length=20)
    with shelf.shelf(tmp_path):
        for policy, env in ((staged.StageRoute(), market), (queueing.Random(), queueing.RandomQueues(horizon=40))):
            first, traces = play(policy, env, horizon=40)
            assert traces == 1
            again, traces = play(policy, env, horizon=40)
            assert traces == 0 and again.equals(first)


def test_shapes_of_a_round_are_measured_by_the_first_process_only(tmp_path, monkeypatch):
    measured = []
    shapes = jax.eval_shape
    monkeypatch.setattr(jax, "eval_shape", lambda function, *args: measured.append(function) or shapes(function, *args))
    with shelf.shelf(tmp_path):
        numbers = []
        for _ in range(2):
            measured.clear()
            data, _ = play(record=["regret", "info.bound"])
            numbers.append(len(measured))
        notes = [path for path in tmp_path.iterdir() if path.suffix == ".json"]
        assert numbers[0] == numbers[1] + 2 == numbers[1] + len(notes)  # What a round gives, and bytes of its states.
        for path in notes:
            path.write_text("{nonsense")
        again, _ = play(record=["regret", "info.bound"])
        assert again.equals(data) and all(path.read_text() != "{nonsense" for path in notes)


def test_a_damaged_program_is_made_again(tmp_path):
    with shelf.shelf(tmp_path):
        first, _ = play()
        (path,) = kept(tmp_path)
        (code,) = tmp_path.glob("*.code")
        for damaged in (path, code):
            for content in (b"", damaged.read_bytes()[:100], b"nonsense"):
                damaged.write_bytes(content)
                again, traces = play()
                assert traces == 1 and again.equals(first) and code.stat().st_size > 10_000
        code.unlink()
        assert play()[1] == 1 and code.exists()
        assert play()[1] == 0


def test_what_jax_took_from_its_own_cache_is_not_kept(tmp_path):
    jax.config.update("jax_enable_compilation_cache", True)
    compilation_cache.reset_cache()
    play(horizon=70)  # In JAX's cache from here on, if it was not before.
    jax.clear_caches()
    with shelf.shelf(tmp_path):
        first, _ = play(horizon=70)
        second, traces = play(horizon=70)
        assert first.equals(second) and traces == 1 - len(kept(tmp_path))


def test_programs_of_two_names_share_their_code(tmp_path):
    """JAX finds the second one by its text, and what it finds cannot be written again."""
    settings = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in settings}
    try:
        jax.config.update("jax_enable_compilation_cache", True)
        jax.config.update("jax_compilation_cache_dir", str(tmp_path / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        compilation_cache.reset_cache()
        with shelf.shelf(tmp_path / "programs"):
            for state in ("cold", "warm"):
                for factor in (1, 2):
                    data, traces = play(horizon=70 * factor, record_every=7 * factor)
                    assert traces == (state == "cold") and data["time"][-1] == 70 * factor
                    assert len(kept(tmp_path / "programs")) == (factor if state == "cold" else 2)
        assert len(list((tmp_path / "programs").glob("*.code"))) == 1
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def test_one_process_compiles_and_reads_a_program_of_two_names_once(tmp_path, monkeypatch):
    """Horizon and length of a record are in the name, and not in the program."""
    read, compiled = [], []
    load, compile_lanes = serialize_executable.deserialize_and_load, programs.compile_lanes
    monkeypatch.setattr(serialize_executable, "deserialize_and_load", lambda *args: read.append(args) or load(*args))
    monkeypatch.setattr(programs, "compile_lanes", lambda *args: compiled.append(args) or compile_lanes(*args))
    found = {}
    with shelf.shelf(tmp_path):
        for state, expected in (("cold", (0, 1)), ("warm", (1, 0))):
            programs.PROGRAMS.clear()
            read.clear(), compiled.clear()
            for horizon in (70, 140):
                settings = {"horizon": horizon, "record_every": horizon // 10, "seeds": 16, "progress": False}
                found[state, horizon] = jr.simulate(ENV, stochastic.UCB1(), **settings)
            assert (len(read), len(compiled)) == expected, state
    assert len(kept(tmp_path)) == 2
    for horizon in (70, 140):
        assert found["warm", horizon].equals(found["cold", horizon])


@struct.dataclass
class Labelled(stochastic.BanditEnv):
    """A bandit with a number that no round reads."""

    label: Leaf = 0.0


def test_arguments_that_a_program_does_not_take_tell_it_from_others(tmp_path):
    """A number that differs between settings is an array of them, whether a round reads it or not."""

    def env(label):
        return lambda mean: Labelled(**vars(stochastic.bernoulli([mean, 0.5])), label=label(mean))

    found = []
    with shelf.shelf(tmp_path):
        for label in (lambda mean: np.float32(mean), lambda mean: np.float32(1.0), lambda mean: np.float32([mean, mean])):
            envs = jr.grid(env(label), mean=[0.2, 0.8])
            found.append(jr.simulate(envs, stochastic.UCB1(), horizon=30, seeds=8, progress=False)["regret"])
    for other in found[1:]:
        np.testing.assert_array_equal(other.values, found[0].values)


def largest_eigenvalue(env, policy, env_state, policy_state, t):
    """Of a matrix that is not symmetric: a factorisation without a definition of our own."""
    matrix = jnp.ones((64, 64)) + jnp.diag(policy_state.pulls[0] + jnp.arange(64.0)) + jnp.tri(64)
    return jnp.max(jnp.abs(jnp.linalg.eigvals(matrix)))


@pytest.mark.parametrize("in_turn", [True, False])
def test_programs_that_call_lapack_take_turns_from_the_shelf_too(tmp_path, monkeypatch, in_turn):
    """Without turns the runs of two threads might wait for each other for ever."""
    turns, one_at_a_time = [], programs.one_at_a_time
    monkeypatch.setattr(programs, "one_at_a_time", lambda compiled: turns.append(compiled) or one_at_a_time(compiled))
    options = {"horizon": 8, "seeds": 32, "execution": jr.Execution("scan")}
    options |= {"probes": {"largest": largest_eigenvalue}} if in_turn else {}
    with shelf.shelf(tmp_path):
        first, _ = play(**options)
        again, traces = play(**options)
    assert traces == 0 and again.equals(first)
    assert len(turns) == (2 if in_turn else 0)


def test_a_folder_that_cannot_be_written_to_is_no_fault(tmp_path):
    (tmp_path / "file").write_text("")
    with shelf.shelf(tmp_path / "file" / "programs"):
        assert play()[1] == 1


def test_without_a_shelf_nothing_is_kept(tmp_path):
    with shelf.shelf(tmp_path):
        pass
    play()
    assert shelf.current() is None and not list(tmp_path.iterdir())


def named(policy, **more):
    return shelf.name_of(jax.devices()[0], [ENV, policy], [jax.tree.structure(ENV), jax.tree.structure(policy)], **more)


def of_this_code(folder, body):
    """A policy whose `act` ends with an expression, from a file that somebody edits."""
    path = folder / "mine.py"
    path.write_text(
        "from flax import struct\n\nfrom jaxroute.problems import stochastic\n\n\n@struct.dataclass\nclass Mine(stochastic.UCB1):\n"
        "    def act(self, key, state, obs, t):\n        action, info = super().act(key, state, obs, t)\n"
        f"        return {body}, info\n"
    )
    spec = importlib.util.spec_from_file_location("mine", path)
    sys.modules["mine"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Mine()


def test_the_code_of_a_policy_is_in_the_name(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mine", None)
    one = named(of_this_code(tmp_path, "action"))
    assert one == named(of_this_code(tmp_path, "action")) != named(of_this_code(tmp_path, "action * 0"))
    assert named(stochastic.UCB1()) == named(stochastic.UCB1()) != named(stochastic.UCB1(), rounds=3)


def test_what_has_no_name_is_not_kept():
    class Nameless:
        pass

    assert named(stochastic.UCB1(), thing=Nameless()) is None


def test_settings_of_jax_are_in_the_name():
    before = named(stochastic.UCB1())
    with jax.default_matmul_precision("highest"):
        config = shelf._config()
    assert "jax_enable_x64" in config and not any("cache" in key for key in config)
    with jax.numpy_dtype_promotion("strict"):
        assert isinstance(before, str)


def test_versions_sources_and_processor_are_in_the_name(monkeypatch):
    before = named(stochastic.UCB1())
    for function in ("_sources", "_features"):
        with monkeypatch.context() as patched:
            patched.setattr(shelf, function, lambda: "other")
            assert named(stochastic.UCB1()) != before
    monkeypatch.setenv("XLA_FLAGS", "--xla_some_flag=1")
    assert named(stochastic.UCB1()) != before


_WITH_LAPACK = """
import pathlib, sys
import jax, jax.numpy as jnp
jax.config.update("jax_enable_compilation_cache", False)
import jaxroute as jr
from jaxroute.engine import programs, shelf
from jaxroute.problems import stochastic
def largest(env, policy, env_state, policy_state, t):
    return jnp.max(jnp.abs(jnp.linalg.eigvals(jnp.ones((4, 4)) + jnp.tri(4) * t)))
with shelf.shelf(pathlib.Path(sys.argv[1])):
    env = stochastic.bernoulli([.5, .4])
    data = jr.simulate(env, stochastic.UCB1(), horizon=20, seeds=16, probes={"largest": largest}, progress=False)
print(programs.trace_count(), float(data["largest"].mean()))
"""


def test_a_process_that_has_not_met_lapack_plays_a_program_that_calls_it(tmp_path):
    """It would end with a fault of segmentation: hence a process of its own."""
    said, script = [], tmp_path / "with_lapack.py"
    script.write_text(_WITH_LAPACK)
    for _ in range(2):
        command = [sys.executable, str(script), str(tmp_path / "programs")]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"JAX_PLATFORMS": "cpu"})
        assert done.returncode == 0, done.stderr[-2000:]
        said.append(done.stdout.split())
    (first, mean), (second, again) = said
    assert (first, second) == ("1", "0") and mean == again
