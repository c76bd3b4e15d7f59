"""Compilations of kernels: started while a program is lowered, finished before it is compiled."""

import contextlib
import contextvars
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from jaxroute.core.provenance import cores
from jaxroute.kernels.ir import Unsupported

# Time limit of a compilation, in seconds.
MOST_S = 120

# Threads for compilations.
pool = ThreadPoolExecutor(cores(), thread_name_prefix="kernels")
# Started compilations, each with its kernel on a GPU (None on a CPU).
Begun = list[tuple[Future[Any], Any]]
_begun: contextvars.ContextVar[Begun | None] = contextvars.ContextVar("begun", default=None)
# Numbers of the target GPUs of lowered programs; empty for all of this process.
devices: contextvars.ContextVar[tuple[int, ...]] = contextvars.ContextVar("devices", default=())


def note(future: Future[Any], kernel: Any = None) -> None:
    """Adds a started compilation to those that the surrounding `compilations` collects."""
    begun = _begun.get()
    if begun is not None:
        begun.append((future, kernel))


@contextlib.contextmanager
def compilations(own: Sequence[int] = ()) -> Generator[Begun, None, None]:
    """Context that collects the compilations which start while programs for the given GPUs are lowered inside it."""
    begun: Begun = []
    tokens = _begun.set(begun), devices.set(tuple(own))
    try:
        yield begun
    finally:
        _begun.reset(tokens[0])
        devices.reset(tokens[1])


def finish(kernels: Begun) -> None:
    """Waits until compilations have finished; raises `Unsupported` if one fails or takes too long."""
    for kernel, _ in kernels:
        try:
            kernel.result(MOST_S)
        except TimeoutError:
            raise Unsupported(f"compiling it takes more than {MOST_S} s") from None
