"""Compiles programs by XLA, with options that make many parallel runs fast, and stores this process's compiled programs in a cache."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import jax

from jaxroute.core import checks
from jaxroute.core.quick import quick_options
from jaxroute.kernels import Started

# Options for CPUs. XLA drops optimisation barriers before it fuses, and then computes a draw again in each of its consumers; keeping them
# makes UCB1 1.6 to 3 times as fast. Small loops must then not become calls, which hold no barrier. Vectors have 512 bits where the processor
# has them, instead of 256. Sums of 4,096 elements and more are loops instead of calls of a library, which takes twice as long.
CPU_OPTIONS = {
    "xla_disable_hlo_passes": "cse_barrier_expander,small-while-loop-hoisting",
    "xla_cpu_prefer_vector_width": "512",
    "xla_cpu_experimental_ynn_fusion_type": "",
}
# A pass that makes each operation outside of a fusion a separate fusion, which takes some 20 ms to compile and makes nothing faster. XLA has
# scatter only as a fusion.
_WRAPPER, _WRAPPED = "fusion-wrapper", "stablehlo.scatter"
# Options for GPUs. WHILE makes a loop one graph on the device; otherwise the host launches every kernel of every round. The other types are
# the defaults, since the list must be complete. With a driver older than CUDA 12.3 XLA ignores it.
GPU_OPTIONS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,CONDITIONAL,DYNAMIC_SLICE_FUSION,WHILE"
}

_dropped: list[str] = []  # Names of options, in the order in which XLA refused them.
_lapack = threading.Lock()


def compile_lanes(lowered: jax.stages.Lowered, platform: str, quick: bool = False) -> Any:
    """Returns a compiled program, made with all options in `CPU_OPTIONS` or `GPU_OPTIONS` (for the platform) that this version of XLA supports.

    A warning names an option when XLA first refuses it; see `dropped_options`.

    Args:
      lowered: result of `jax.jit(...).lower(...)`.
      platform: name of the platform for which the program was lowered.
      quick: whether to compile a program for CPUs with few optimisations, in a third of the time; the program then runs ten times as long.
    """
    requested = CPU_OPTIONS if platform == "cpu" else GPU_OPTIONS if platform in ("gpu", "cuda") else {}
    options: dict[str, str | bool] = {k: v for k, v in requested.items() if k not in _dropped}
    passes, refused = options.get("xla_disable_hlo_passes", ""), []
    if platform == "cpu" and passes and _WRAPPED not in lowered.as_text():
        options["xla_disable_hlo_passes"] = f"{passes},{_WRAPPER}"
    if platform == "cpu" and quick:
        options |= quick_options()
    while True:
        try:
            compiled = lowered.compile(compiler_options=options or None)
            break
        except jax.errors.JaxRuntimeError as error:
            if "not supported by XLA:CPU ThunkEmitter" in str(error) and options.get("xla_disable_hlo_passes") != passes:
                options["xla_disable_hlo_passes"] = passes
                continue
            unknown = [name for name in options if f"No such compile option: '{name}'" in str(error)]
            if not unknown:
                raise
            del options[unknown[0]]
            refused.append(unknown[0])
    news = [name for name in refused if name not in _dropped]  # Another thread may have warned.
    if news:
        _dropped.extend(news)
        checks.warn(
            f"this version of XLA does not have what jaxroute compiles with on a {platform.upper()}: {', '.join(news)}; results are right, but "
            "simulations may take up to four times as long"
        )
    return compiled


def dropped_options() -> tuple[str, ...]:
    """Returns the names of the compiler options that this version of XLA has refused so far in this process."""
    return tuple(_dropped)


def calls_lapack(lowered: jax.stages.Lowered) -> bool:
    """Whether a traced program for CPUs calls LAPACK, in order to factorise matrices or compute their eigenvalues or singular values."""
    return "@lapack_" in lowered.as_text()


def one_at_a_time(executable: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `executable`, a compiled program that calls LAPACK, so that it waits until no other such program of this process runs.

    LAPACK waits on a thread of XLA's pool for tasks in the same pool: two calls on two cores would wait for ever.
    """

    def call(*args: Any) -> Any:
        with _lapack:
            return jax.block_until_ready(executable(*args))

    return call


@dataclass(eq=False)
class Program:
    """Traced program that simulates a block of seeds, and its compilation. It may call kernels: C or CUDA functions that simulate all rounds.

    Attributes:
      lowered: traced program, ready to compile; None if no kernel can simulate the block (see `reason`).
      kernels: compilations of the kernels that the program calls, as pairs (future, kernel).
      compiled: future of the compiled program; None before its compilation begins.
      reason: why no kernel can simulate the block; empty if there is no obstacle.
      refused: whether the reason is a failure of a compiler, a loader or a driver, not a property of the policy.
      slower: whether the reason is that the scan is faster than the kernel.
      shapes: shape of each recorded quantity in one run, by name.
      calls_lapack: whether the program calls LAPACK and must wait for other programs that do.
    """

    lowered: Any = None
    kernels: Started = field(default_factory=list)
    compiled: "Future[Any] | None" = None
    reason: str = ""
    refused: bool = False
    slower: bool = False
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    calls_lapack: bool = False


class ProgramCache(dict[Any, Program]):
    """Cache of this process's programs, by a key that determines the program, in the order of their last use.

    Each program takes some hundred memory mappings, and a Linux process may have 65,530. Therefore `trim` deletes all but the last `most` programs.

    Attributes:
      most: largest number of programs after `trim`.
      traces: how often the simulation of a policy was traced.
    """

    def __init__(self, most: int = 64):
        super().__init__()
        self.most, self.traces = most, 0

    def use(self, key: Any, make: Callable[[], Program]) -> Program:
        """Returns the program stored under a key. If there is none, `make` builds one, which is stored."""
        program = self[key] = self.pop(key, None) or make()
        return program

    def trim(self) -> None:
        for key in list(self)[: -self.most]:
            del self[key]


PROGRAMS = ProgramCache()


def trace_count() -> int:
    """Returns how often this process has traced the simulation of a policy; the count grows only when a simulation needs a new program."""
    return PROGRAMS.traces
