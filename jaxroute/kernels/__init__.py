"""Kernels: the rounds of a policy as one function of C, which XLA's programs call. The second back end of the engine.

How a policy becomes a kernel:

1. `rollout` traces one round of one run, its plan and what is recorded, to jaxprs; `source` writes the loops over record intervals, chunks and
   rounds around them.
2. `emitter` interprets the jaxprs: calls, scans, branches and loops become those of C, any other operation is written by its rule (`rules`).
   An operation with a definition in basic operations is a function of C, printed once from the definition's jaxpr, or written in line.
3. Rules build typed expressions and statements (`ir`). `writer` keeps the storages, lets operations on arrays of one shape share a loop, and
   writes arrays in place where no value needs what was there. Whether a number differs between runs is a field of its storage.
4. `printer` turns the statements into text, without those that nothing needs: C of one run, for a GPU (NVRTC, a thread for each run) and for a
   quick look on a CPU, or C++ of several runs at once, whose numbers are vectors (`lanes.h`).
5. `cuda` and `host` compile the text, in other threads while XLA compiles its program; `calls` is the way from XLA's program to the kernel.

A function that has no C raises `Unsupported`, and the engine lets the scan run.
"""

from jaxroute.kernels import cuda, host
from jaxroute.kernels.calls import raise_interrupt
from jaxroute.kernels.compiling import Begun, compilations, finish
from jaxroute.kernels.cuda import Kernel as DeviceKernel
from jaxroute.kernels.cuda import version as nvrtc_version
from jaxroute.kernels.host import cache_folder, compiler
from jaxroute.kernels.ir import SlowerThanScan, Unsupported
from jaxroute.kernels.rollout import kernel_rollout

__all__ = [
    "Begun",
    "DeviceKernel",
    "SlowerThanScan",
    "Unsupported",
    "cache_folder",
    "compilations",
    "compiler",
    "finish",
    "kernel_rollout",
    "nvrtc_version",
    "raise_interrupt",
    "trial",
]


def trial(platform: str) -> str | None:
    """Returns why kernels cannot be used on a platform, "cpu" or "gpu", with what helps, or None: a trivial one is compiled and run."""
    return host.trial() if platform == "cpu" else cuda.trial()
