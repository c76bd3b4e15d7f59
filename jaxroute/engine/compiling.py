"""Compilation by XLA, with options for speed over runs."""

import threading
from collections.abc import Callable
from typing import Any

import jax

from jaxroute.core import checks
from jaxroute.core.quick import quick_options

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
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,CONDITIONAL,DYNAMIC_SLICE_FUSION,WHILE",
}

_dropped: list[str] = []  # names of options, in the order in which they were refused
_lapack = threading.Lock()


def compile_lanes(lowered: jax.stages.Lowered, platform: str, quick: bool = False) -> Any:
    """Returns a program compiled for speed over runs, with the options that this version of XLA has.

    A warning names an option when it is first refused; see `dropped_options`.

    Args:
      lowered: result of `jax.jit(...).lower(...)`.
      platform: name of the platform that it was lowered for.
      quick: on a CPU, with few optimisations: in a third of the time, into a program that takes ten times as long.
    """
    wanted = CPU_OPTIONS if platform == "cpu" else GPU_OPTIONS if platform in ("gpu", "cuda") else {}
    options: dict[str, str | bool] = {k: v for k, v in wanted.items() if k not in _dropped}
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


def calls_lapack(lowered: jax.stages.Lowered) -> bool:
    """Whether a program calls LAPACK: factorisations, eigenvalues and singular values of many matrices on a CPU."""
    return "@lapack_" in lowered.as_text()


def one_at_a_time(executable: Callable[..., Any]) -> Callable[..., Any]:
    """A program that waits until no other one of this process calls LAPACK, and returns when it has ended.

    LAPACK waits on a thread of XLA's pool for tasks in the same pool: two calls on two cores would wait for ever.
    """

    def call(*args: Any) -> Any:
        with _lapack:
            return jax.block_until_ready(executable(*args))

    return call


def dropped_options() -> tuple[str, ...]:
    """Names of the options that this version of XLA has refused."""
    return tuple(_dropped)
