"""Kernels for a GPU, without one: the text compiles, and the driver is called as it should be."""

import ctypes
import importlib.util
import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from c_functions import source_of_function
from helpers import CHILDREN_PATH
from lane_cases import floats, integers

from jaxroute.kernels import cuda
from jaxroute.kernels.ir import SlowerThanScan, Unsupported
from jaxroute.kernels.source import Array, Source, steps


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
    assert code.startswith(b"\x7fELF")
    monkeypatch.setattr(cuda, "compile_text", None)
    assert cuda.compiled(source.for_device(), "sm_90a") == code
    assert [file.suffix for file in tmp_path.rglob("*.*")] == [".cubin"]


@needs_nvrtc
def test_what_nvrtc_refuses_is_said():
    with pytest.raises(Unsupported, match="(?s)NVRTC does not compile it.*no_such_thing"):
        cuda.compile_text("no_such_thing", "sm_90a")


def test_settings_are_blocks_along_y():
    """Each input begins where its own setting does, whatever the other axes are; states of a continued launch where they were written."""
    inputs = (Array((3,), np.dtype(np.float32), shared=True), Array((2,), np.dtype(np.float32)))
    source = Source("", "", inputs, (Array((5, 2), np.dtype(np.float32)),), states=1)
    text = source.for_device((4, 6), ((True, False), (True, True)))
    out, *ins = re.findall(r"const (in\d|out\d) = (?:continued \? out0 : )?\w+ \+ \((.*)\) \* (.*);", text)
    found = [*ins, out]
    assert [(name, number) for name, _, number in found] == [("in0", "3"), ("in1", "2 * R"), ("out0", "10 * R")]
    assert "in1 = continued ? out0 : from1" in text
    assert "__restrict__ const in0" in text and "__restrict__ const in1" not in text
    for setting in range(24):
        first, second = divmod(setting, 6)
        values = [eval(where.replace("/", "//"), {"setting": setting}) for _, where, _ in found]
        assert values == [first, 6 * first + second, 6 * first + second]
    assert steps((4, 6), (False, True)) == [0, 1]


class _Library:
    """Stands in for NVIDIA's driver: one H100 that notes what it is asked.

    Attributes:
      asked: names of the calls; of a launch the grid, the addresses and the numbers behind them, too.
      refuses: status by name of a call.
      local_bytes: stack of a kernel. free: bytes of the device.
      spans: what the first input of a kernel holds.
    """

    def __init__(self):
        self.asked, self.refuses, self.local_bytes, self.free = [], {}, 0, 20 << 30
        self.spans = np.array([[0, 10], [10, 10]], np.int32)

    def __getattr__(self, name):
        def function(*given):
            if name == "cuLaunchKernel":
                values = ctypes.cast(given[9], ctypes.POINTER(ctypes.c_void_p))
                kinds = [ctypes.c_longlong] * 3 + [ctypes.c_int] * 2
                numbers = [ctypes.cast(values[i], ctypes.POINTER(kind))[0] for i, kind in enumerate(kinds)]
                self.asked.append((name, *given[1:8], numbers))
            else:
                self.asked.append((name,))
            first = {"cuDriverGetVersion": 13_010, "cuDeviceGetCount": 1, "cuCtxGetDevice": 0, "cuDeviceGet": 0}
            first["cuMemGetInfo_v2"] = self.free
            attributes = {16: 132, 39: 2048, 75: 9, 76: 0, 82: 65_536}
            if name == "cuDeviceGetAttribute":
                given[0]._obj.value = attributes[given[1]]
            elif name == "cuFuncGetAttribute":
                given[0]._obj.value = {3: self.local_bytes, 4: 64}[given[1]]
            elif name == "cuDevicePrimaryCtxGetState":
                given[2]._obj.value = 1
            elif name == "cuMemcpyDtoHAsync_v2":
                ctypes.memmove(given[0], self.spans.ctypes.data, self.spans.nbytes)
            elif name == "cuGetErrorString":
                given[1]._obj.value = b"out of memory"
            elif name in first:
                given[0]._obj.value = first[name]
            return self.refuses.get(name, 0)

        return function

    def launches(self):
        """First round and end of each launch."""
        return [numbers[3:] for name, *_, numbers in (one for one in self.asked if len(one) > 1)]


@pytest.fixture
def library(monkeypatch):
    fake = _Library()
    for function in (cuda.driver, cuda.attribute, cuda._tried):
        function.cache_clear()
    monkeypatch.setattr(cuda, "_loaded", lambda name: fake)
    monkeypatch.setattr(cuda, "compiled", lambda text, architecture: f"{text} for {architecture}".encode())
    monkeypatch.setattr(cuda, "_reserved", {})
    yield fake
    for function in (cuda.driver, cuda.attribute, cuda._tried):
        function.cache_clear()


def launch(kernel, settings=3):
    kernel.launch([11, 22], intervals=2, runs=100, settings=settings, stream=5)


def test_a_kernel_is_loaded_once_and_launched_on_xlas_stream(library):
    kernel = cuda.Kernel("text").prepare()
    for _ in range(2):
        launch(kernel)
    assert [name for name, *_ in library.asked].count("cuModuleLoadData") == 1
    expected = ("cuLaunchKernel", 2, 3, 1, cuda.BLOCK, 1, 1, 0, [11, 22, 100, 0, 20])
    assert next(one for one in library.asked if len(one) > 1) == expected


def test_a_long_call_is_several_launches_that_end_at_record_times(library, monkeypatch):
    """Eight rounds a second, and a second for a launch: none ends behind a record time that it could have ended at, and all rounds are there once."""
    clock = iter(np.arange(0.0, 1e6, 0.5))
    monkeypatch.setattr(cuda.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(cuda, "FIRST_ROUNDS", 4)
    monkeypatch.setattr(cuda, "LAUNCH_S", 1.0)
    kernel = cuda.Kernel("text")
    launch(kernel)
    assert library.launches() == [[0, 4], [4, 10], [10, 20]] and kernel.done == 1.0


def test_where_a_launch_ends():
    """At the last record time within reach; the last launch may be a quarter longer."""
    cases = [(0, 4, 4), (0, 12, 10), (4, 6, 10), (10, 3, 13), (10, 8, 20), (10, 100, 20), (0, 15, 10), (0, 16, 20)]
    assert [cuda.piece_end(at, most, np.array([10, 20])) for at, most, _ in cases] == [end for *_, end in cases]


def test_an_interrupted_call_ends_behind_its_present_launch(library, monkeypatch):
    monkeypatch.setattr(cuda, "FIRST_ROUNDS", 4)
    kernel = cuda.Kernel("text")
    kernel.interrupt()
    with pytest.raises(InterruptedError):
        launch(kernel)
    assert library.launches() == [[0, 4]] and kernel.done == 0.2
    kernel.interrupt(False)
    launch(kernel)
    assert library.launches()[-1][1] == 20


def test_what_the_driver_refuses_is_said(library):
    for name in ("cuModuleLoadData", "cuLaunchKernel", "cuStreamSynchronize"):
        library.refuses = {name: 2}
        kernel = cuda.Kernel("text")
        with pytest.raises(cuda.DriverError, match=rf"{name}: out of memory \(2\)"):
            launch(kernel)
    library.refuses = {"cuModuleLoadData": 209}
    with pytest.raises(Unsupported, match="cuModuleLoadData"):
        cuda.Kernel("text").prepare()


def test_the_scan_runs_what_waits_for_memory(library):
    library.local_bytes = 3072
    cuda.Kernel("text", 8192).prepare()
    for stack, scratch in ((3080, 0), (0, 8200)):
        library.local_bytes = stack
        with pytest.raises(SlowerThanScan, match=r"has (3|8)\.0 KiB of arrays in memory, with which the scan is faster"):
            cuda.Kernel("text", scratch).prepare()


def test_the_memory_of_local_arrays_is_compared_with_what_is_free(library, monkeypatch):
    """132 processors with 2,048 threads each hold 97,952 bytes for every thread: 26.5 GB."""
    monkeypatch.setattr(cuda, "MOST_STACK", 1 << 20)
    library.local_bytes = 97_952
    with pytest.raises(Unsupported, match="26.5 GB of the device, and 21.5 GB are free"):
        cuda.Kernel("text").prepare()
    library.local_bytes = 60_000
    kernel = cuda.Kernel("text").prepare()
    launch(kernel)
    library.free = 1 << 30  # What the first has reserved serves the second one.
    cuda.Kernel("other").prepare()


def test_the_numbers_of_a_device(library):
    assert cuda.architecture() == "sm_90a"
    # 64 registers a thread: eight warps on each of four schedulers with 16,384 registers, on 132 processors; 100 registers: four.
    assert cuda.Kernel("text").prepare().threads_at_once() == 32 * 32 * 132
    assert cuda.LoadedKernel(None, 0, registers=100, local_bytes=0).threads_at_once == 16 * 32 * 132


class _Nvrtc:
    """Stands in for a version of NVRTC that compiles, or says why it does not."""

    def __init__(self, major, minor, log=""):
        self.number, self.log = (major, minor), log

    def nvrtcVersion(self, major, minor):
        major._obj.value, minor._obj.value = self.number

    def nvrtcCompileProgram(self, program, number, options):
        return bool(self.log)

    def nvrtcGetProgramLog(self, program, log):
        log.value = self.log.encode()

    def nvrtcGetProgramLogSize(self, program, size):
        size._obj.value = len(self.log) + 1

    def __getattr__(self, name):
        return lambda *given: 0


@pytest.mark.parametrize(
    "found, chosen",
    [
        ({"a": _Nvrtc(12, 9), "b": _Nvrtc(13, 0), "c": _Nvrtc(12, 4)}, (13, 0)),
        ({"a": _Nvrtc(14, 0), "b": _Nvrtc(12, 9)}, (12, 9)),
        ({"a": _Nvrtc(13, 0, "failed to open libnvrtc-builtins.so.13.0."), "b": _Nvrtc(12, 9)}, (12, 9)),
        ({"a": _Nvrtc(13, 0, "failed to open libnvrtc-builtins.so.13.0.")}, r"libnvrtc-builtins.*pip install -U nvidia-cuda-nvrtc$"),
        ({"a": _Nvrtc(14, 0)}, "14.0. is newer than the driver, which supports CUDA 13"),
        ({}, "there is no NVRTC; python -m pip install -U nvidia-cuda-nvrtc"),
    ],
)  # fmt: skip
def test_the_newest_nvrtc_that_works_with_the_driver_is_used(library, monkeypatch, found, chosen):
    def load(path):
        if path not in found:
            raise OSError(path)
        return found[path]

    monkeypatch.setattr(cuda, "_candidates", lambda: ["missing", *found])
    monkeypatch.setattr(cuda, "_with_builtins", load)
    cuda.nvrtc.cache_clear()
    try:
        if isinstance(chosen, str):
            with pytest.raises(Unsupported, match=chosen):
                cuda.nvrtc()
        else:
            assert cuda.nvrtc().number == chosen
    finally:
        cuda.nvrtc.cache_clear()


def test_without_a_driver_it_says_so(monkeypatch):
    cuda.driver.cache_clear()
    monkeypatch.setattr(cuda, "_loaded", lambda name: None)
    with pytest.raises(Unsupported, match="no CUDA driver"):
        cuda.driver()


AHEAD_OF_TIME = """
import os
os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"
import jax
import jax.numpy as jnp
jax.config.update("jax_platforms", "cpu")
import kernels
from jaxroute.engine.compiling import compile_lanes
from jaxroute.kernels import calls, cuda
from jaxroute.kernels.rollout import kernel_rollout
from jaxroute.engine.rounds import Record, run_streams
from jaxroute.problems import stochastic

cuda.architecture, cuda.active = lambda device=0: "sm_90a", lambda: []
where = kernels.target()
env = stochastic.bernoulli([0.9, 0.5])

def play(root, seeds):
    return kernel_rollout(env, stochastic.UCB1(), run_streams(root, seeds), 40, Record(every=10))

shapes = [jax.ShapeDtypeStruct((2,), jnp.uint32), jax.ShapeDtypeStruct((64,), jnp.uint32)]
with calls.compilations() as started:
    lowered = jax.jit(play, in_shardings=where, out_shardings=where).trace(*shapes).lower(lowering_platforms=("cuda",))
calls.finish(started)
assert len(started) == 1
assert compile_lanes(lowered, "cuda").as_text().count("custom-call(") == 1
"""


@needs_nvrtc
@pytest.mark.skipif(
    not any(importlib.util.find_spec(f"jax_cuda{n}_plugin") for n in (12, 13)), reason="no compiler for CUDA here"
)
def test_a_program_with_a_kernel_compiles_for_an_h100():
    """In a process of its own, which has not looked for a device."""
    env = os.environ | {"PYTHONPATH": CHILDREN_PATH, "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}
    done = subprocess.run([sys.executable, "-c", AHEAD_OF_TIME], capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr
