"""How XLA is told to compile for speed over runs."""

import threading
from collections.abc import Callable
from typing import Any

import jax

from jaxroute.core import checks
from jaxroute.core.quick import quick_options

# How XLA compiles for CPUs. It drops optimisation barriers before it fuses, and then computes a draw again in each of its consumers;
# keeping them makes UCB1 1.6 to 3 times as fast, and the routing LP twice. Small loops must then not become calls, which hold no barrier.
# Vectors of 512 bits, where the processor has them, in place of 256: on a Zen 5 the bandits are 1.06 to 1.7 times as fast.
# From 4,096 elements on it hands a sum to a kernel library, which takes twice as long as the loop that it would write itself.
CPU_OPTIONS = {
    "xla_disable_hlo_passes": "cse_barrier_expander,small-while-loop-hoisting",
    "xla_cpu_prefer_vector_width": "512",
    "xla_cpu_experimental_ynn_fusion_type": "",
}
# A pass that makes every operation outside of a fusion a fusion of its own. Each fusion takes some 20 ms of CPU time to compile, and without
# the pass programs are as fast; but XLA has scatter only as a fusion.
_WRAPPER, _WRAPPED = "fusion-wrapper", "stablehlo.scatter"

# How XLA compiles for GPUs. The host launches every kernel of every round, if it is not told to let a loop be one graph on the device (WHILE);
# the other types are its defaults, since the list must be complete. A driver of CUDA 12.3 or later is needed; with an older one XLA does
# without.
GPU_OPTIONS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,CONDITIONAL,DYNAMIC_SLICE_FUSION,WHILE",
}

_dropped: list[str] = []  # names of options, in the order in which they were refused
_lapack = threading.Lock()


def compile_lanes(lowered: jax.stages.Lowered, platform: str, quick: bool = False) -> Any:
    """Compiles for speed over runs, with those of `CPU_OPTIONS` or `GPU_OPTIONS` that this version of XLA has.

    The first time that an option is refused, a warning names it; see `dropped_options`.

    Args:
      lowered: what `jax.jit(...).lower(...)` returns.
      platform: name of the platform that it was lowered for.
      quick: on a CPU, with few optimisations: in a third of the time, into a program that takes ten times as long.

    Returns:
      The compiled program.
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
    news = [name for name in refused if name not in _dropped]  # Another thread may have said so.
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

    Such a call waits on a thread of XLA's pool for tasks that it gives to the same pool: two at a time, on two cores, wait for ever.
    """

    def call(*args: Any) -> Any:
        with _lapack:
            return jax.block_until_ready(executable(*args))

    return call


def dropped_options() -> tuple[str, ...]:
    """Names of options that this process has found its version of XLA not to have."""
    return tuple(_dropped)
