"""Compilations of kernels: begun when a program is lowered, finished before it is compiled."""

import contextlib
import contextvars
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from jaxroute.engine.kernels.values import Unsupported
from jaxroute.engine.memory import cores

# Seconds that a compilation may take.
MOST_S = 120

_pool = ThreadPoolExecutor(cores(), thread_name_prefix="kernels")
_begun: contextvars.ContextVar[list[Future[Any]] | None] = contextvars.ContextVar("begun", default=None)


def begin(compile_: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Compiles in another thread."""
    return _pool.submit(compile_, *arguments)


def note(future: Future[Any]) -> None:
    """A program that is being lowered calls what this compiles."""
    begun = _begun.get()
    if begun is not None:
        begun.append(future)


@contextlib.contextmanager
def compilations() -> Generator[list[Future[Any]], None, None]:
    """A context that gathers the compilations of kernels that programs lowered inside call."""
    begun: list[Future[Any]] = []
    token = _begun.set(begun)
    try:
        yield begun
    finally:
        _begun.reset(token)


def finish(kernels: Sequence[Future[Any]]) -> None:
    """Waits for compilations.

    Raises:
      Unsupported: one fails, or takes too long.
    """
    for kernel in kernels:
        try:
            kernel.result(MOST_S)
        except TimeoutError:
            raise Unsupported(f"compiling it takes more than {MOST_S} s") from None


__all__ = ["Unsupported", "begin", "compilations", "finish", "note"]
