"""Kernels for a GPU, without one: the text compiles, and the driver is called as it should be."""

import ctypes
import importlib.util
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from c_functions import source_of_function
from lane_cases import floats, integers

from jaxroute.engine.kernels import calls, cuda
from jaxroute.engine.kernels.source import Array, Source, steps
from jaxroute.engine.kernels.values import Unsupported


def _has_nvrtc():
    try:
        return bool(cuda.nvrtc())
    except Unsupported:
        return False


needs_nvrtc = pytest.mark.skipif(not _has_nvrtc(), reason="there is no NVRTC")

WITH_TABLES = jnp.float32([1.0, jnp.inf, jnp.nan, -jnp.inf])


@needs_nvrtc
@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: (jnp.sort(x), jnp.cumsum(x), x.at[i % 4].add(1.0), jnp.argmax(x)),
        lambda x, i: (WITH_TABLES[i], jnp.linalg.cholesky(jnp.outer(x, x) + jnp.eye(4))),
        lambda x, i: jax.lax.while_loop(lambda c: c[0] < i, lambda c: (c[0] + 1, c[1] * x), (0, x)),
        lambda x, i: (jnp.exp(x), jnp.log(x), jax.lax.erf_inv(x), jnp.tanh(x), jax.scipy.special.digamma(x), x**i),
        lambda x, i: jax.random.uniform(jax.random.fold_in(jax.random.key(0), i), (3,)) + x[0],
    ],
)
def test_what_has_c_compiles_for_an_h100(function):
    source, _ = source_of_function(function, floats(4), integers(4))
    assert cuda.compile_text(source.for_device(), "sm_90a").startswith(b"\x7fELF")


@needs_nvrtc
def test_machine_code_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source, _ = source_of_function(lambda x: 2 * x, floats(4))
    code = cuda.compiled(source.for_device(), "sm_90a")
    monkeypatch.setattr(cuda, "compile_text", None)
    assert cuda.compiled(source.for_device(), "sm_90a") == code
    assert [file.suffix for file in tmp_path.rglob("*.*")] == [".cubin"]


@needs_nvrtc
def test_what_nvrtc_refuses_is_said():
    with pytest.raises(Unsupported, match="(?s)NVRTC does not compile it.*no_such_thing"):
        cuda.compile_text("no_such_thing", "sm_90a")


def test_settings_are_blocks_along_y():
    """Each input begins where its own setting does, whatever the other axes are."""
    inputs = (Array((3,), np.dtype(np.float32), shared=True), Array((2,), np.dtype(np.float32)))
    source = Source("", "", inputs, (Array((5, 2), np.dtype(np.float32)),))
    text = source.for_device((4, 6), ((True, False), (True, True)))
    found = re.findall(r"const (in\d|out\d) = \w+ \+ \((.*)\) \* (.*);", text)
    assert [(name, number) for name, _, number in found] == [("in0", "3"), ("in1", "2 * R"), ("out0", "10 * R")]
    for setting in range(24):
        first, second = divmod(setting, 6)
        values = [eval(where.replace("/", "//"), {"setting": setting}) for _, where, _ in found]
        assert values == [first, 6 * first + second, 6 * first + second]
    assert steps((4, 6), (False, True)) == [0, 1]


class _Library:
    """In place of NVIDIA's driver: notes what is asked."""

    def __init__(self):
        self.asked = []

    def __getattr__(self, name):
        def function(*arguments):
            if name == "cuDeviceGetAttribute":
                arguments[0]._obj.value = {75: 9, 76: 0}[arguments[1]]
            if name == "cuLaunchKernel":
                values = ctypes.cast(arguments[9], ctypes.POINTER(ctypes.c_void_p))
                numbers = [ctypes.cast(values[i], ctypes.POINTER(ctypes.c_longlong))[0] for i in range(3)]
                self.asked.append((name, *arguments[1:8], numbers))
            elif name == "cuGetErrorString":
                arguments[1]._obj.value = b"out of memory"
            else:
                self.asked.append((name,))
            return 2 if name == "cuModuleLoadData" and arguments[1] == b"too large" else 0

        return function


@pytest.fixture
def library(monkeypatch):
    fake = _Library()
    cuda.driver.cache_clear()
    cuda.architecture.cache_clear()
    monkeypatch.setattr(cuda, "_loaded", lambda name: fake)
    yield fake
    cuda.driver.cache_clear()
    cuda.architecture.cache_clear()


def test_a_kernel_is_loaded_once_and_launched_on_xlas_stream(library):
    kernel = cuda.Kernel(lambda: b"code")
    for _ in range(2):
        kernel.launch([11, 22], runs=100, settings=3, stream=5)
    assert [name for name, *_ in library.asked].count("cuModuleLoadData") == 1
    assert library.asked[-1] == ("cuLaunchKernel", 2, 3, 1, cuda.BLOCK, 1, 1, 0, [11, 22, 100])


def test_what_the_driver_refuses_is_said(library):
    with pytest.raises(RuntimeError, match=r"cuModuleLoadData: out of memory \(2\)"):
        cuda.Kernel(lambda: b"too large").launch([], runs=1, settings=1, stream=0)


def test_the_architecture_is_that_of_the_device(library):
    assert cuda.architecture() == "sm_90a"


def test_without_a_driver_or_a_compiler_it_says_so(monkeypatch):
    cuda.driver.cache_clear()
    monkeypatch.setattr(cuda, "_loaded", lambda name: None)
    with pytest.raises(Unsupported, match="no CUDA driver"):
        cuda.driver()
    monkeypatch.setattr(cuda, "_candidates", lambda: ["no-such-library.so"])
    cuda.nvrtc.cache_clear()
    with pytest.raises(Unsupported, match="no NVRTC"):
        cuda.nvrtc()
    cuda.nvrtc.cache_clear()


def test_functions_of_python_are_calls_of_xla():
    """Arguments and results as they are; an error of the function is one of the call."""

    def double(call):
        (given,), (made,) = call.arguments, call.results
        assert given.shape == made.shape == (2, 3)
        source, target = (np.ctypeslib.as_array((ctypes.c_float * 6).from_address(b.address)) for b in (given, made))
        if source[0] < 0:
            raise ValueError(f"below zero: {source[0]}")
        target[:] = 2 * source

    name = calls.register(double, "cpu")
    call = jax.jit(lambda x: jax.ffi.ffi_call(name, jax.ShapeDtypeStruct((2, 3), jnp.float32))(x))
    x = jnp.arange(6, dtype=jnp.float32).reshape(2, 3)
    np.testing.assert_array_equal(call(x), 2 * x)
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match=r"ValueError: below zero: -1\.0"):
        call(x - 1).block_until_ready()


AHEAD_OF_TIME = """
import os
os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"
import jax
import jax.numpy as jnp
jax.config.update("jax_platforms", "cpu")
import kernels
from jaxroute.engine.batching.compiling import compile_lanes
from jaxroute.engine.kernels import compiling, cuda
from jaxroute.engine.kernels.rollout import kernel_rollout
from jaxroute.engine.rounds import Record, run_streams
from jaxroute.problems import stochastic

cuda.architecture = lambda device=0: "sm_90a"
where = kernels.target()
env = stochastic.bernoulli([0.9, 0.5])

def play(root, seeds):
    return kernel_rollout(env, stochastic.UCB1(), run_streams(root, seeds), 40, Record(every=10))

shapes = [jax.ShapeDtypeStruct((2,), jnp.uint32), jax.ShapeDtypeStruct((64,), jnp.uint32)]
with compiling.compilations() as begun:
    lowered = jax.jit(play, in_shardings=where, out_shardings=where).trace(*shapes).lower(lowering_platforms=("cuda",))
compiling.finish(begun)
assert [kernel.result()[:4] for kernel in begun] == [b"\\x7fELF"]
assert compile_lanes(lowered, "cuda").as_text().count("custom-call(") == 1
"""


@pytest.mark.skipif(
    not any(importlib.util.find_spec(f"jax_cuda{n}_plugin") for n in (12, 13)), reason="no compiler for CUDA here"
)
def test_a_program_with_a_kernel_compiles_for_an_h100():
    """In a process of its own, which has not looked for a device."""
    done = subprocess.run([sys.executable, "-c", AHEAD_OF_TIME], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
