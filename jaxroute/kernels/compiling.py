"""Compilations of kernels: begun when a program is lowered, finished before it is compiled."""

import contextlib
import contextvars
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from jaxroute.engine.memory import cores
from jaxroute.kernels.ir import Unsupported

# Seconds that a compilation may take.
MOST_S = 120

# Threads that compile.
pool = ThreadPoolExecutor(cores(), thread_name_prefix="kernels")
# Compilations, and the kernels of GPUs that they are of.
Begun = list[tuple[Future[Any], Any]]
_begun: contextvars.ContextVar[Begun | None] = contextvars.ContextVar("begun", default=None)
# Numbers of the GPUs that programs are lowered for; all of this process if there are none.
devices: contextvars.ContextVar[tuple[int, ...]] = contextvars.ContextVar("devices", default=())


def note(future: Future[Any], kernel: Any = None) -> None:
    """A program that is being lowered calls what this compiles."""
    begun = _begun.get()
    if begun is not None:
        begun.append((future, kernel))


@contextlib.contextmanager
def compilations(own: Sequence[int] = ()) -> Generator[Begun, None, None]:
    """A context that gathers the compilations of kernels that programs lowered inside call, for GPUs of these numbers."""
    begun: Begun = []
    tokens = _begun.set(begun), devices.set(tuple(own))
    try:
        yield begun
    finally:
        _begun.reset(tokens[0])
        devices.reset(tokens[1])


def finish(kernels: Begun) -> None:
    """Waits for compilations.

    Raises:
      Unsupported: one fails, or takes too long.
    """
    for kernel, _ in kernels:
        try:
            kernel.result(MOST_S)
        except TimeoutError:
            raise Unsupported(f"compiling it takes more than {MOST_S} s") from None
