"""Options of `simulate` for computing and storing; chooses the devices, the back end and the rounding that these options mean on this machine."""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from jaxroute import kernels
from jaxroute.core import checks
from jaxroute.core.types import CostHint
from jaxroute.engine import ARITHMETICS, BACKENDS, COMPILE, Arithmetic, Backend, Compile
from jaxroute.engine.precision import in_64_bits

# Bytes in a `CostHint`: from the first number on, a CPU simulates runs one by one; from the second on, kernels are always slower than the scan.
_EXPENSIVE_BYTES, _MOST_KERNEL_BYTES = 2**17, 2**19


class PartWarning(UserWarning):
    """Warns that other processes have yet to simulate some runs of the result. Once they have finished, the same call returns all runs."""


@dataclass(frozen=True)
class Execution:
    """Options of the computation. They change its speed, and on a GPU also the rounding of its numbers.

    Attributes:
      backend: implementation of the rounds.

        - "scan": a compiled scan over rounds, with the runs on the last axis.
        - "kernel": one compiled C function for all rounds: on a GPU with a thread for each run, on a CPU in C++ for as many runs at once as a vector
          has numbers. It needs a C++ compiler (`c++`, `g++`, `clang++` or `CXX`), on a GPU NVRTC, which comes with jax (or `JAXROUTE_NVRTC`).
        - "reference": a plain `vmap` of a scan, slower, for comparison.
        - "auto": the kernel, but the scan in double precision or, on a CPU, if a policy has large matrices or settings share most of a run's state.

        On a CPU all give the same bits (see `arithmetic`). For "auto" and "kernel" the scan replaces a kernel that cannot be used: a compiler is
        missing, a compiler, driver or GPU fails, the policy has an operation that kernels lack, or on a GPU it has more than 3 KiB of arrays on a
        thread's stack (COSMOS, ACQB, hundreds of models). The result's attributes `backend` and `fell_back` give the back end and the reason by
        policy. A warning gives the reason, too, unless the scan is faster, or the user gave "auto" and kernels for a CPU lack an operation.
      devices: jax devices among which the seeds are divided (default: all local devices).
      block: number of seeds of a compiled call (default: chosen for the device and its memory).
      share: part of the runs that this process simulates, where several processes make the same call of `simulate` with the same `out` (default:
        all).

        - "I/N" or `(I, N)`: part I of N, from 0, on any machines.
        - "auto": I and N from the environment variables of a cluster (Slurm and others); "auto/N": only I from them.
        - "join": this process simulates blocks that no other process has taken, in random order, until all are stored. Processes may come and
          go; the blocks of a dead one are taken over after half a minute.
      compile: level of optimisation.

        - "full": all optimisations.
        - "quick": few optimisations, for a first look on a CPU: a third of the compile time, five to ten times the run time. A kernel then
          simulates one run after the other, and needs a C compiler (`cc`, `gcc`, `clang` or `CC`); without it, "auto" chooses the scan. Policies
          with expensive rounds are compiled in full, for the scan.
      arithmetic: rounding of functions, sums and products.

        - "exact": every operation is rounded once, in one order, so that all CPUs, compilers and back ends give the same bits, and so does a GPU
          with kernels. Exceptions are products of matrices with sums of more than 64 terms; the result's attribute `inexact` names them by policy.
        - "fast": the fastest rounding of a GPU. It changes the choice between two models in a few runs.
        - "auto": "exact" on a CPU, which has no other one, and "fast" on a GPU, where "exact" takes 40 to 70 % more instructions.

    Raises:
      ValueError: a name is unknown, or devices, block or share are out of range.
    """

    backend: Backend = "auto"
    devices: Sequence[Any] | None = None
    block: int | None = None
    share: str | tuple[int, int] | None = None
    compile: Compile = "full"
    arithmetic: Arithmetic = "auto"

    def __post_init__(self) -> None:
        checks.one_of("backend", self.backend, BACKENDS)
        checks.one_of("compile", self.compile, COMPILE)
        checks.one_of("arithmetic", self.arithmetic, ARITHMETICS)
        devices: Any = self.devices
        listed = isinstance(devices, (list, tuple)) and devices and all(isinstance(one, jax.Device) for one in devices)
        if devices is not None and not listed:
            raise ValueError(
                f"devices must be a non-empty list of jax devices, got {checks.show(self.devices)}; jax.devices('cpu') is one"
            )
        if self.block is not None:
            object.__setattr__(self, "block", checks.whole("block", self.block))
        object.__setattr__(self, "share", _read_share(self.share))

    def device_list(self) -> list[Any]:
        """Returns the devices that simulate: `devices`, or all local devices if it is None."""
        return list(jax.local_devices() if self.devices is None else self.devices)


@dataclass(frozen=True)
class Store:
    """Place and options of a stored result: `out=Store("results", keep_states=True)`; `out="results"` is `Store("results")`.

    Attributes:
      path: folder, or a URL such as "s3://bucket/folder" as text (`pip install "jaxroute[objects]"`).
      keep_states: whether to store the states of environment and policy after the last round, from which a longer horizon continues. A line reports
        their total size before the simulation (see also `run_bytes`).
      accept_changed_code: whether to simulate again, beside the stored runs, if the code has changed (False: an error). A result never mixes versions
        of code.
      description: more attributes of the result, plain JSON values by name.

    Raises:
      ValueError: a choice is not True or False, or the description is no dict of plain JSON values.
    """

    path: str | os.PathLike[str]
    keep_states: bool = False
    accept_changed_code: bool = False
    description: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checks.boolean("keep_states", self.keep_states)
        checks.boolean("accept_changed_code", self.accept_changed_code)
        try:
            json.dumps(dict(self.description), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"description must be a dict of plain JSON values, got {checks.show(self.description)}: {error}"
            ) from None
        if "coordinates" in self.description:
            raise ValueError("description must not have the entry 'coordinates', which xarray takes for itself in files")


Execution.__init__ = checks.suggest_keywords(Execution.__init__)
Store.__init__ = checks.suggest_keywords(Store.__init__)


def read_execution(given: Any) -> Execution:
    """Returns `given`, the argument `execution` of a function, after a check of its type; None gives the default options."""
    if given is None:
        return Execution()
    if not isinstance(given, Execution):
        raise ValueError(f"execution must be a jaxroute.Execution, as Execution(backend='scan'), got {checks.show(given)}")
    return given


@dataclass(frozen=True)
class Target:
    """Devices, back end and rounding that the options of an `Execution` mean on this machine.

    Attributes:
      devices: devices that simulate, of one kind.
      backend: "scan", "kernel" or "reference".
      chosen: True if jaxroute chose the back end, because the user gave "auto".
      quick: whether programs are compiled with few optimisations.
      arithmetic: "exact" or "fast" as in `Execution`, or "float64" if JAX uses 64-bit numbers, whose rounding may depend on the machine.
      block: number of seeds of a compiled call; None if `layout` chooses it.
      no_kernel: why this machine cannot use kernels; empty if it can, or if none is wanted.
    """

    devices: tuple[Any, ...]
    backend: str
    chosen: bool
    quick: bool
    arithmetic: str
    block: int | None
    no_kernel: str

    @property
    def platform(self) -> str:
        return self.devices[0].platform

    @property
    def on_cpu(self) -> bool:
        return self.platform == "cpu"

    def backend_of(self, hint: CostHint) -> str:
        """Returns the back end for a policy of cost `hint`: `backend`, or "scan" if kernels cannot be used.

        The scan also replaces kernels that "auto" has chosen on a CPU if it is faster for this policy.
        """
        free = self.chosen and not self.quick and self.on_cpu
        scan_is_faster = hint.product_bytes >= _EXPENSIVE_BYTES or hint.matrix_bytes >= _MOST_KERNEL_BYTES
        return "scan" if self.no_kernel or (free and scan_is_faster) else self.backend

    def one_by_one(self, hint: CostHint) -> bool:
        """Whether a CPU core simulates a policy's runs one after the other. That is faster if the matrices of one run (see `hint`) fill its cache."""
        scan = self.quick or self.backend_of(hint) == "scan"
        return self.on_cpu and len(self.devices) == 1 and scan and hint.matrix_bytes >= _EXPENSIVE_BYTES


def resolve(execution: Execution, devices: Sequence[Any], has_shared_axes: Callable[[], bool]) -> Target:
    """Chooses back end and rounding for the `devices` that simulate, and warns if kernels are wanted but cannot be used there.

    The function `has_shared_axes` returns whether settings share most of a run's state; only the scan computes a shared state once.

    Raises:
      ValueError: the devices do not support the chosen arithmetic or level of compilation.
    """
    platform, quick, wide = devices[0].platform, execution.compile == "quick", in_64_bits()
    on_cpu = platform == "cpu"
    if quick and not on_cpu:
        raise ValueError(
            f"compile='quick' is for CPUs, got devices of the platform {platform!r}; compile='full' is as quick there"
        )
    arithmetic, backend, reason = execution.arithmetic, execution.backend, ""
    if not wide and arithmetic == "fast" and on_cpu:
        raise ValueError("arithmetic='fast' is for GPUs, got devices of the platform 'cpu', where 'exact' is the only one")
    if not wide and arithmetic == "exact" and not on_cpu and backend == "scan":
        raise ValueError("arithmetic='exact' on a GPU is that of kernels, got backend='scan'")
    if arithmetic == "auto":
        arithmetic = "exact" if on_cpu else "fast"
    if backend == "auto":
        scan = wide or (on_cpu and (has_shared_axes() or (quick and not kernels.compiler())))
        backend = "scan" if scan else "kernel"
    if backend == "kernel" and not (quick or wide):
        known = platform in ("cpu", "gpu")
        other = f"kernels are for CPUs and NVIDIA's GPUs, not for the platform {platform!r}"
        reason = (kernels.trial(platform) or "") if known else other
    if reason:
        backend = "scan" if execution.backend == "auto" else backend
        same = " with the same numbers" if on_cpu else ""
        checks.warn(f"no kernel can be used here, the scan runs instead{same}, mostly more slowly: {reason}")
    arithmetic = "float64" if wide else arithmetic
    return Target(tuple(devices), backend, execution.backend == "auto", quick, arithmetic, execution.block, reason)


# Environment variables of clusters for the index of a process, the number of processes, the first index and the step.
_VARIABLES = (
    ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_STEP"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "", ""),  # Tasks of `srun`; a batch script lacks the second variable.
    ("JOB_COMPLETION_INDEX", "JOB_COMPLETIONS", "", ""),  # Kubernetes; the user must set the second variable.
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "", ""),
    ("SUBMITIT_LOCAL_GLOBAL_ID", "SUBMITIT_LOCAL_NTASKS", "", ""),
    ("RANK", "WORLD_SIZE", "", ""),  # Ray Train, torchrun.
    ("PBS_ARRAY_INDEX", "PBS_ARRAY_COUNT", "", ""),  # The user must set the second variable.
)


def share_here(size: int | None = None) -> tuple[int, int]:
    """Returns the index of this process, from 0, and the number of processes, as the environment variables of a cluster specify them.

    Slurm (arrays, and the tasks of `srun`), Open MPI, submitit, Ray Train and torchrun are supported. Kubernetes' indexed jobs and PBS set the index
    alone and need `size` (or the variables `JOB_COMPLETIONS`, `PBS_ARRAY_COUNT`). Dask and Ray's plain tasks have no variable: give "I/N".

    Args:
      size: number of processes; None to read it from a variable, too.

    Raises:
      ValueError: there is no variable, or the variables contradict each other.
    """
    for index, count, first, step in _VARIABLES:
        if index not in os.environ or (size is None and count not in os.environ):
            continue
        number = int(os.environ[index]) - int(os.environ.get(first, 0))
        rank, wrong = divmod(number, int(os.environ.get(step, 1)))
        total = int(os.environ[count]) if size is None else size
        last = int(os.environ.get("SLURM_ARRAY_TASK_MAX", -1)) if index == "SLURM_ARRAY_TASK_ID" and size is None else -1
        gaps = last >= 0 and (last - int(os.environ.get(first, 0))) // int(os.environ.get(step, 1)) + 1 != total
        if wrong or gaps or not 0 <= rank < total:
            raise ValueError(
                f"share 'auto' needs all tasks of an array, got {index}={os.environ[index]} of {total} tasks with gaps between them; give I/N, "
                "which says whose part this is, or 'join', which simulates what is missing"
            )
        return rank, total
    names = ", ".join(index for index, *_ in _VARIABLES)
    raise ValueError(f"share 'auto' needs a variable that says which process this is (one of {names}), got none; give I/N")


def _read_share(share: Any) -> str | tuple[int, int] | None:
    """Converts the option `share` to a pair (index, number of processes), "join" or None (all work); `ValueError` for any other value."""
    if share is None or share == "join":
        return share
    if isinstance(share, str):
        if auto := re.fullmatch(r"auto(?:/([1-9][0-9]*))?", share):
            return share_here(int(auto[1]) if auto[1] else None)
        if numbers := re.fullmatch(r"([0-9]+)/([0-9]+)", share):
            share = int(numbers[1]), int(numbers[2])
    pair: Any = share
    if not (isinstance(pair, tuple) and [type(number) for number in pair] == [int, int] and 0 <= pair[0] < pair[1]):
        raise ValueError(
            f"share must be None, 'join', 'auto', a text 'I/N' or a pair (I, N), with whole numbers 0 <= I < N, got {checks.show(share)}"
        )
    return pair
