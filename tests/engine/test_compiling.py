"""Options that the compiler does not have are left out, and named."""

import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import pytest

from jaxroute.engine import compiling
from jaxroute.engine.compiling import CPU_OPTIONS, GPU_OPTIONS, compile_lanes, dropped_options


class Watched:
    """A lowered function that notes the options that it is compiled with; `known`: whether this compiler has them."""

    def __init__(self, function=lambda x: x + 1, known=True):
        self.lowered = jax.jit(function).lower(1.0)
        self.used, self.known = [], known

    def compile(self, compiler_options=None):
        self.used.append(dict(compiler_options or {}))
        return self.lowered.compile(compiler_options=compiler_options if self.known else None)

    def as_text(self):
        return self.lowered.as_text()


UNWRAPPED = CPU_OPTIONS | {"xla_disable_hlo_passes": CPU_OPTIONS["xla_disable_hlo_passes"] + ",fusion-wrapper"}


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """As in a process that has compiled nothing."""
    monkeypatch.setattr(compiling, "_dropped", [])


def test_options_that_this_compiler_does_not_have_are_left_out_and_named_once(monkeypatch):
    monkeypatch.setattr(compiling, "CPU_OPTIONS", {"xla_of_tomorrow": "1", **CPU_OPTIONS, "xla_of_yesterday": "2"})
    watched = Watched()
    assert dropped_options() == ()
    with pytest.warns(UserWarning, match="xla_of_tomorrow, xla_of_yesterday; .* four times as long"):
        assert compile_lanes(watched, "cpu")(1.0) == 2.0
    assert watched.used[-1] == UNWRAPPED and len(watched.used) == 3
    assert dropped_options() == ("xla_of_tomorrow", "xla_of_yesterday")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compile_lanes(watched, "cpu")
    assert watched.used[3:] == [UNWRAPPED]


def test_this_compiler_has_all_options_and_scatter_is_compiled_as_a_fusion():
    watched = Watched()
    compile_lanes(watched, "cpu")
    assert (watched.used, dropped_options()) == ([UNWRAPPED], ())
    watched = Watched(lambda x: jnp.zeros(8).at[jnp.array([3, 4])].add(x))
    assert compile_lanes(watched, "cpu")(1.0).sum() == 2.0
    assert watched.used == [CPU_OPTIONS]


@pytest.mark.parametrize("platform, options", [("gpu", GPU_OPTIONS), ("cuda", GPU_OPTIONS), ("tpu", {})])
def test_each_platform_has_its_options(platform, options):
    watched = Watched(known=False)
    compile_lanes(watched, platform)
    assert watched.used == [options]


def test_an_option_with_a_value_that_it_cannot_have_is_an_error(monkeypatch):
    monkeypatch.setattr(compiling, "CPU_OPTIONS", {"xla_cpu_prefer_vector_width": "wide"})
    with pytest.raises(jax.errors.JaxRuntimeError, match="not a valid int32"):
        compile_lanes(Watched(), "cpu")
    assert dropped_options() == ()


def test_programs_that_call_lapack_are_found():
    many = jnp.ones((5, 3, 3))
    for function, calls in ((jnp.linalg.svd, True), (jnp.linalg.eigvalsh, True), (lambda x: x @ x, False)):
        assert compiling.calls_lapack(jax.jit(function).lower(many)) == calls


def test_programs_that_take_turns_are_never_played_at_once():
    """Each waits on a thread of XLA for another thread of XLA: on two cores, two of them waited for ever."""
    inside, most, both_asked = [], [], threading.Barrier(2)

    def executable(x):
        inside.append(x)
        most.append(len(inside))
        time.sleep(0.05)
        inside.remove(x)
        return jnp.float32(x)

    def play(x):
        both_asked.wait(60)
        return float(compiling.one_at_a_time(executable)(x))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(play, (1.0, 2.0))) == [1.0, 2.0]
    assert most == [1, 1]
