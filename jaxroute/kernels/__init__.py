"""Kernels, the second back end of the engine: all rounds of a policy as one C function that XLA's programs call.

A policy becomes a kernel in five steps:

1. `source` traces one round of one run, its plan (computed where a stage begins) and its gauges (numbers read from the states at recorded times) to
jaxprs. It writes loops around them: over the intervals between records, over chunks of rounds with separate sums, and over rounds. `rollout` binds
the resulting kernel to XLA's program.
2. `emitter` interprets the jaxprs. Calls, scans, branches and loops become those of C; `rules` has a function for each other operation. An operation
with a definition in basic operations becomes a C function, printed once from the definition's jaxpr, or inline code.
3. Rules build typed expressions and statements (`ir`). `writer` manages storages, fuses loops of operations on arrays of one shape, and updates
arrays in place if no value needs the old contents.
4. `printer` turns the statements into text and drops dead ones: C for one run, for a GPU (NVRTC, a thread for each run) and for quick compilation on
a CPU, or C++ for several runs at once, with a vector for each number (`lanes.h`).
5. `cuda` and `host` compile the text in other threads while XLA compiles its program. `calls` connects XLA's program and the kernel.

Words: a `Value` is an array of the traced function, and a place is the indices of one of its elements. A storage is a variable or an array of C. A
group is a loop that several elementwise operations share. A wide kernel simulates several runs at once: a number that varies (differs between runs)
is a vector, with a lane for each run. In memory the lanes of an element are side by side, except in an array that is `per_run`, where the elements of
a run are side by side.

A function that cannot be written in C raises `Unsupported`, and the engine uses its first back end, a `lax.scan` over rounds.
"""

from jaxroute.kernels import cuda, host
from jaxroute.kernels.calls import Started, compilations, finish, raise_interrupt
from jaxroute.kernels.cuda import Kernel as DeviceKernel
from jaxroute.kernels.cuda import version as nvrtc_version
from jaxroute.kernels.host import cache_folder, compiler
from jaxroute.kernels.ir import SlowerThanScan, Unsupported
from jaxroute.kernels.rollout import kernel_rollout

__all__ = [
    "DeviceKernel", "SlowerThanScan", "Started", "Unsupported", "cache_folder", "compilations", "compiler", "finish", "kernel_rollout",
    "nvrtc_version", "raise_interrupt", "trial",
]  # fmt: skip


def trial(platform: str) -> str | None:
    """Compiles and runs a trivial kernel on a platform, "cpu" or "gpu". Returns None if it works, else the reason of the failure and a remedy."""
    return host.trial() if platform == "cpu" else cuda.trial()
