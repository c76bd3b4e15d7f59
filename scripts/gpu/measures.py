"""Measurements: a function for each kind of task, which yields results that are stored at once."""

import collections
import contextlib
import ctypes
import glob
import importlib.metadata
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
from gpu.tasks import FOLDER, alone_on_device
from kernels import ENVIRONMENTS
from resources import VARIANTS, bounded

import jaxroute as jr
from jaxroute.core import draws, provenance
from jaxroute.core.attributes import decoded
from jaxroute.engine import compiling
from jaxroute.engine.grid import canonical
from jaxroute.engine.programs import ROLLOUTS
from jaxroute.engine.rollout import spans_of
from jaxroute.engine.rounds import Record, run_streams
from jaxroute.kernels import compilations, cuda, host, rollout
from jaxroute.kernels.source import Array, Source
from jaxroute.problems import cascade, combinatorial, queueing, service, staged, stochastic
from jaxroute.problems.cascade.parts.indices import StreamingNewton

Pieces = Iterator[dict[str, Any]]
Values = dict[str, np.ndarray]

# Environment and policy of each case, where possible with the rounds of scripts/resources.py.
CASES: dict[str, Any] = {
    "UCB1": lambda: (ENVIRONMENTS["stochastic"](), stochastic.UCB1()),
    "GaussianThompson": lambda: (ENVIRONMENTS["stochastic"](), stochastic.GaussianThompson()),
    "BetaThompson": lambda: (ENVIRONMENTS["stochastic"](), stochastic.BetaThompson()),
    "MESS+": lambda: (ENVIRONMENTS["service"](), service.MessPlus()),
    "COSMOS streaming": lambda: (ENVIRONMENTS["cascade"](), cascade.COSMOS(fit=StreamingNewton())),
    "StageRoute": lambda: (ENVIRONMENTS["staged"](), staged.StageRoute()),
    "C2MABV": lambda: (ENVIRONMENTS["combinatorial"](), combinatorial.C2MABV()),
    "COSMOS": lambda: (ENVIRONMENTS["cascade"](), cascade.COSMOS()),
    "ACQB": lambda: (queueing.RandomQueues(limit=256), queueing.ACQB()),
    "BootstrapCOSMOS": lambda: (ENVIRONMENTS["cascade"](), cascade.BootstrapCOSMOS()),
    "Direct": lambda: (ENVIRONMENTS["combinatorial"](), combinatorial.Direct()),
    "QThS": lambda: (queueing.RandomQueues(limit=256), queueing.QThS()),
    "Random queues": lambda: (queueing.RandomQueues(limit=256), queueing.Random()),
    "SlidingWindowUCB": lambda: (ENVIRONMENTS["stochastic"](), stochastic.SlidingWindowUCB()),
}
# Graphs of a scan's launches: as in jaxroute, by XLA's default, and none.
GRAPHS = {"with loops": compiling.GPU_OPTIONS, "without loops": {}, "none": {"xla_gpu_enable_command_buffer": ""}}
# Options of NVRTC that replace those of the same name, for division, roots and fused multiply-add.
ARITHMETIC = {
    "usual": (),
    "IEEE division": ("-DDIVIDE=__fdiv_rn",),
    "uncorrected division": ("-DDIVIDE=__fdividef",),
    "IEEE root": ("-prec-sqrt=true",),
    "multiply-add": ("-fmad=true",),
    "no multiply-add": ("-DTERM(c,p,w)=((c)+(p)*(w))",),
}
# Ways to compile a kernel: options and launch bounds.
HOW = {**VARIANTS, **{name: (options, "") for name, options in ARITHMETIC.items()}}
# Quotients of a number and itself in C, numbers to try, and threads.
QUOTIENTS = {"corrected": "div_f(x, x)", "reciprocal": "x * RECIPROCAL(x)"}
NUMBERS, THREADS = 10_000_000, 1 << 17
RECORDS = 20
# Also measures kernels of a size at which the scan is faster.
ANY_SIZE = {"MOST_STACK": 1 << 30, "MOST_SCRATCH": 1 << 30}
PACKAGES = (
    *("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "numpy"),
    *("cuda-pathfinder", "torch"),
    *("flax", "optax", "chex", "scipy", "xarray", "zstandard", "pytest", "pytest-xdist", "hypothesis"),
)


class Simulation:
    """A case, compiled for some runs and rounds.

    Args:
      case: one of `CASES`.
      backend: "scan" or "kernel".
      runs, horizon: its size.
      platform: platform of the device (default: of the first device).

    Attributes:
      made: seconds of tracing, of the kernel's compiler (0 if another task has compiled the same C), and of XLA's; for a kernel on a GPU also
        its registers, bytes of the stack, and the largest number of threads on the device.
    """

    def __init__(self, case: str, backend: str, runs: int, horizon: int, platform: str | None = None):
        device = jax.devices(platform)[0]
        env, policy = CASES[case]()
        example = env if hasattr(env, "step") else env(draws.key(0))
        flows = tuple(m for m in example.spec.metrics if m.kind != "gauge" and m.default)
        record = Record(every=max(1, horizon // RECORDS), flows=flows, zero_flows=example.spec.zero_flows)
        leaves, structure = jax.tree.flatten(canonical((env, policy)))
        root = np.asarray(jax.random.key_data(draws.key(0)))
        spans = spans_of(horizon, record.every, 0, 0)

        def simulated(leaves: Any, seeds: Any, spans: Any) -> Any:
            pair = jax.tree.unflatten(structure, leaves)
            return ROLLOUTS[backend](*pair, run_streams(root, seeds), horizon, record, spans=spans)[0]

        with jax.default_device(device), mock.patch.multiple(cuda, **ANY_SIZE):
            self.arguments = jax.device_put((leaves, np.arange(runs, dtype=np.uint32), spans), device)
            marks = [time.perf_counter()]
            with compilations() as kernels:
                lowered = jax.jit(simulated).lower(*self.arguments)
            marks.append(time.perf_counter())
            for kernel, _ in kernels:
                kernel.result()
            marks.append(time.perf_counter())
            self.compiled = compiling.compile_lanes(lowered, device.platform)
            marks.append(time.perf_counter())
        names = ("trace_s", "kernel_s", "compile_s")
        self.made: dict[str, Any] = {name: round(b - a, 3) for name, a, b in zip(names, marks, marks[1:], strict=False)}
        for kernel in (one for _, one in kernels if isinstance(one, cuda.Kernel)):
            with cuda.primary(0):
                loaded = kernel.loaded()
            self.made |= {name: getattr(loaded, name) for name in ("registers", "local_bytes", "threads_at_once")}
        self.on_cpu, self.decisions, self.horizon = device.platform == "cpu", runs * horizon, horizon

    def values(self) -> Values:
        """Returns the records `[records, ..., R]` by name."""
        with contextlib.nullcontext() if self.on_cpu else alone_on_device():
            return jax.device_get(self.compiled(*self.arguments)).by_name()

    def speed(self, repeats: int = 5, most_s: float = 6.0) -> dict[str, Any]:
        """Measures the speed by the median time of several simulations after a first one; of fewer if they take long."""
        seconds: list[float] = []
        with alone_on_device():
            while len(seconds) <= repeats and sum(seconds) < most_s:
                start = time.perf_counter()
                jax.block_until_ready(self.compiled(*self.arguments))
                seconds.append(time.perf_counter() - start)
        middle = statistics.median(seconds[1:] or seconds)
        speeds = {"us_per_round": 1e6 * middle / self.horizon, "decisions_per_s": self.decisions / middle}
        return {"seconds": [round(s, 6) for s in seconds], **speeds}


def info() -> Pieces:
    """Reports commit, device, clocks, driver and installed packages."""
    device = jax.devices()[0]
    yield {"commit": provenance.commit(), "processors": getattr(device, "core_count", None)}
    yield {"platform": device.platform, "device": device.device_kind}
    yield {"variables": {name: os.environ.get(name) for name in ("LD_LIBRARY_PATH", "XLA_FLAGS", cuda.NVRTC_PATH)}}
    yield {"memory": device.memory_stats()}
    yield {"python": platform.python_version(), "cpu_cores": os.cpu_count(), "packages": dict(_versions())}
    yield {"tools": {name: shutil.which(name) for name in ("ncu", "nvcc", "nvdisasm", "cuobjdump", "cc")}}
    names = ("name", "driver_version", "clocks.max.sm", "clocks.sm", "power.limit", "memory.total")
    query = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]
    if shutil.which("nvidia-smi"):
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20).stdout
        yield {"smi": dict(zip(names, answer.splitlines()[0].split(", "), strict=True))}


def _versions() -> Iterator[tuple[str, str]]:
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            yield name, importlib.metadata.version(name)


def probe() -> Pieces:
    """Checks that a kernel compiles, loads, is launched by XLA's program and has the bits of the CPU's scan; then the same of the scan.

    Raises:
      RuntimeError: no kernel can be used; the message names the step that failed.
    """
    step, failure = "NVRTC", None
    truth = Simulation("UCB1", "scan", 64, 40, "cpu").values()
    try:
        if jax.default_backend() == "cpu":
            yield {"compiler": host.compiler()}
        else:
            yield {"nvrtc": cuda.nvrtc()._name, "nvrtc_version": cuda.version(), "architecture": cuda.architecture()}
            start = time.perf_counter()
            code = cuda.compile_text(cuda.TRIVIAL, cuda.architecture())
            yield {"trivial_compile_s": round(time.perf_counter() - start, 3)}
            step = "load"
            with cuda.primary(0):
                cuda.LoadedKernel.of(code, 0)
        step = "kernel of UCB1"
        kernel = Simulation("UCB1", "kernel", 64, 40)
        yield kernel.made
        step = "launch"
        alike = compared(kernel.values(), truth)
        yield {"kernel_against_cpu": alike}
        step = "bits"
        if (most := max(map(abs, alike["z"].values()))) > 5:
            raise ValueError(f"means are {most:.0f} standard errors apart")
    except Exception as error:  # Checks the scan nevertheless.
        failure = error
    yield {"scan_against_cpu": compared(Simulation("UCB1", "scan", 64, 40).values(), truth)}
    if failure:
        raise RuntimeError(f"all kernels are off: {step}: {type(failure).__name__}: {failure}") from failure


def quotients() -> Pieces:
    """Counts the quotients n / n that are not 1, for n up to 1e7, by the kernels' division and by a product with the reciprocal.

    Raises:
      ValueError: the kernels' division has some.
    """
    found = {}
    for name, quotient in QUOTIENTS.items():
        lines = (
            "#ifndef RECIPROCAL",
            "#define RECIPROCAL(x) (1.0f / (x))",
            "#endif",
            "unsigned wrong = 0;",
            f"for (long long n = r + 1; n <= {NUMBERS}; n += R) {{ const float x = (float)n; wrong += {quotient} != 1.0f; }}",
            "out0[r] = wrong;",
        )
        inputs, outputs = (Array((1, 2), np.dtype(np.int32), shared=True),), (Array((), np.dtype(np.uint32)),)
        source = Source("\n".join(lines), "", inputs, outputs, scratch=8)
        count = jax.jit(
            lambda spans, one=source: rollout.rounds_p.bind(spans, source=one, size=THREADS, lead=(), spread=((),))
        )
        found[name] = int(np.asarray(count(np.array([[0, 1]], np.int32))[0]).sum(dtype=np.int64))
        yield {"numbers": NUMBERS, f"{name}_not_1": found[name]}
    if found["corrected"]:
        raise ValueError(f"{found['corrected']} of {NUMBERS:,} n / n are not 1")


def correct(case: str, runs: int, horizon: int) -> Pieces:
    """Checks that the kernel, the scan here and the scan on the CPU agree; the most dangerous checks come last."""
    truth = Simulation(case, "scan", runs, horizon, "cpu").values()
    kernel_values: Values = {}
    failure = None
    try:
        kernel = Simulation(case, "kernel", runs, horizon)
        kernel_values = kernel.values()
        yield {"kernel_against_cpu": compared(kernel_values, truth)}
        yield {"kernel_twice_equal": equal(kernel.values(), kernel_values)}
    except Exception as error:  # Checks the scan nevertheless.
        failure = error
    scan = Simulation(case, "scan", runs, horizon)
    first = scan.values()
    yield {"scan_against_cpu": compared(first, truth)}
    if kernel_values:
        yield {"kernel_against_scan": compared(kernel_values, first)}
    yield {"scan_twice_equal": equal(scan.values(), first)}
    half = Simulation(case, "scan", runs // 2, horizon).values()
    yield {"half_alone_equal": equal(half, {name: value[..., : runs // 2] for name, value in first.items()})}
    if failure:
        raise failure


def equal(ours: Values, theirs: Values) -> bool:
    """Whether all bits are the same."""
    return ours.keys() == theirs.keys() and all(ours[name].tobytes() == theirs[name].tobytes() for name in theirs)


def compared(ours: Values, theirs: Values) -> dict[str, Any]:
    """Compares two simulations of the same streams.

    Returns:
      `runs_equal`: share of the runs that are still equal at each record, up to 1e-4 of the largest number of a metric.
      `bit_equal`: share of equal numbers of each metric.
      `z`: mean difference of each metric in standard errors, with smaller differences set to 0; above 5 it is not due to rounding.
    """
    together: Any = True
    bits, z = {}, {}
    for name, value in theirs.items():
        mine = ours[name]
        bits[name] = float(np.mean((mine == value) | (np.isnan(mine) & np.isnan(value))))
        a, b = (v.astype(np.float64).reshape(len(v), -1, v.shape[-1]) for v in (mine, value))
        most = np.max(np.abs(b), initial=1e-9, where=np.isfinite(b))
        near = np.isclose(a, b, rtol=0.0, atol=1e-4 * most, equal_nan=True)
        together = together & near.all(axis=1)
        with np.errstate(invalid="ignore"):
            difference = np.where(near, 0.0, a - b).sum(axis=(0, 1))
        difference = difference[np.isfinite(difference)]
        error = difference.std(ddof=1) / np.sqrt(difference.size) if difference.size > 1 else 0.0
        z[name] = float(difference.mean() / error) if error > 0 else 0.0
    shares = np.logical_and.accumulate(together, axis=0).mean(axis=1)
    return {"runs_equal": [round(float(share), 4) for share in shares], "bit_equal": bits, "z": z}


def timed(case: str, backend: str, runs: int, horizon: int) -> Pieces:
    """Measures the seconds of tracing and compiling, and the speed."""
    needed = 4 * runs * jr.run_bytes(*CASES[case]())
    limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit", float("inf"))
    if needed > limit:
        yield {"skipped": f"states of {runs:,} runs take about {needed / 2**30:.0f} of {limit / 2**30:.0f} GiB"}
        return
    free = free_bytes()
    simulation = Simulation(case, backend, runs, horizon)
    yield simulation.made | {"program_bytes": simulation.compiled.memory_analysis().temp_size_in_bytes}
    yield simulation.speed()
    yield {"free_bytes": [free, free_bytes()]}


def free_bytes() -> int | None:
    """Returns the free bytes of the device's memory; None on a CPU."""
    if jax.default_backend() == "cpu":
        return None
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    with cuda.primary(0):
        cuda.driver()("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value


def variant(case: str, graphs: str, runs: int, horizon: int) -> Pieces:
    """Measures the speed of the scan with other graphs of launches."""
    with mock.patch.object(compiling, "GPU_OPTIONS", GRAPHS[graphs]):
        yield from timed(case, "scan", runs, horizon)
    yield {"dropped": compiling.dropped_options()}


def width(case: str, threads: int, runs: int, horizon: int) -> Pieces:
    """Measures the speed of the kernel with another number of threads in a block."""
    with mock.patch.object(cuda, "BLOCK", threads):
        yield from timed(case, "kernel", runs, horizon)
    yield from _only_on_gpu("the host's kernel has no blocks of threads")


def options(case: str, how: str, runs: int, horizon: int) -> Pieces:
    """Measures the speed of the kernel with other compiler options; with another arithmetic also compares it with the CPU's scan."""
    given, bounds = HOW[how]
    names = {one.split("=")[0] for one in given}
    wanted, compiled = (*(one for one in cuda.OPTIONS if one.split("=")[0] not in names), *given), cuda.compiled
    rollout._device_target.cache_clear()  # It has kernels of the same C with other options.
    try:
        with mock.patch.object(
            cuda, "compiled", lambda text, architecture: compiled(bounded(text, bounds), architecture, wanted)
        ):
            yield {"options": wanted, "bounds": bounds}
            yield from timed(case, "kernel", runs, horizon)
            if how in ARITHMETIC:
                mine, theirs = Simulation(case, "kernel", 2048, 500), Simulation(case, "scan", 2048, 500, "cpu")
                yield {"kernel_against_cpu": compared(mine.values(), theirs.values())}
    finally:
        rollout._device_target.cache_clear()
    yield from _only_on_gpu("the host's compiler has other options")


def _only_on_gpu(reason: str) -> Pieces:
    """Reports that a task is skipped on a CPU, which only tests its code."""
    if jax.default_backend() == "cpu":
        yield {"skipped": reason}


def simulate(case: str, backend: str, runs: int, horizon: int, keep: str) -> Pieces:
    """Measures the seconds of whole calls of `simulate`: of the first, which compiles, and of two more."""
    env, policy = CASES[case]()
    for call in ("first", "second", "third"):
        start = time.perf_counter()
        with alone_on_device():
            given = {"horizon": horizon, "seeds": runs, "execution": jr.Execution(backend), "keep": keep}
            result = jr.simulate(env, {case: policy}, record=["regret"], progress=False, **given)
        seconds, about = round(time.perf_counter() - start, 3), decoded(result.attrs)
        names = ("backend", "compile_s", "run_s", "decisions", "fell_back")
        yield {call: {"wall_s": seconds, **{name: about.get(name) for name in names}}}


def profile(case: str, runs: int, horizon: int) -> Pieces:
    """Measures the time of a scan by kernel; XLA launches no graphs under the profiler."""
    simulation = Simulation(case, "scan", runs, horizon)
    yield simulation.made
    with tempfile.TemporaryDirectory(dir=os.environ.get(FOLDER)) as folder:
        with alone_on_device():
            jax.block_until_ready(simulation.compiled(*simulation.arguments))
            start = time.perf_counter()
            with jax.profiler.trace(folder):
                jax.block_until_ready(simulation.compiled(*simulation.arguments))
            yield {"watched_us_per_round": 1e6 * (time.perf_counter() - start) / horizon}
        file = max(glob.glob(f"{folder}/**/*.xplane.pb", recursive=True), key=lambda name: Path(name).stat().st_mtime)
        planes = list(jax.profiler.ProfileData.from_file(file).planes)
        watched = [plane for plane in planes if "GPU" in plane.name] or planes
        yield {"planes": {plane.name: _longest(plane) for plane in watched}}


def _longest(plane: Any, most: int = 25) -> list[dict[str, Any]]:
    """Returns the events of a profile with the largest total time."""
    spent, number = collections.Counter[str](), collections.Counter[str]()
    for event in (event for line in plane.lines for event in line.events):
        spent[event.name] += event.duration_ns
        number[event.name] += 1
    return [{"name": name[:80], "times": number[name], "us": round(ns / 1e3, 1)} for name, ns in spent.most_common(most)]


KINDS = {"time": timed}
KINDS |= {kind.__name__: kind for kind in (info, probe, quotients, correct, variant, width, options, simulate, profile)}
