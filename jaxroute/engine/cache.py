"""Cache of traced and compiled programs."""

from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from jaxroute.kernels import Begun


@dataclass(eq=False)
class Program:
    """A traced block and its compilation, or the reason why no kernel simulates it.

    Attributes:
      lowered: program to compile.
      kernels: running compilations of the kernels that it calls.
      compiled: running or finished compilation of the program.
      reason: why there is no kernel.
      refused: whether a compiler, a loader or a driver is the reason, not the policy.
      slower: whether the scan is faster than the kernel.
      shapes: shapes of the recorded quantities of a run, by name.
      calls_lapack: whether it must wait for other such programs.
    """

    lowered: Any = None
    kernels: "Begun" = field(default_factory=list)
    compiled: "Future[Any] | None" = None
    reason: str = ""
    refused: bool = False
    slower: bool = False
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    calls_lapack: bool = False


class ProgramCache:
    """Programs of this process by their key, the last used at the end.

    Each takes some hundred memory mappings, of which a Linux process may have 65,530; so `most` stay after a call.

    Attributes:
      most: largest number of programs after a call.
      traces: number of traced rollouts.
    """

    def __init__(self, most: int = 64):
        self.most, self.traces = most, 0
        self._programs: dict[Any, Program] = {}

    def __len__(self) -> int:
        return len(self._programs)

    def compiled(self) -> list[Any]:
        """Returns the finished executables."""
        return [p.compiled.result() for p in self._programs.values() if p.compiled and p.compiled.done()]

    def get(self, key: Any, make: Callable[[], Program]) -> Program:
        """Returns the program of a key, made if there is none yet."""
        program = self._programs.pop(key, None)
        if program is None:
            program = make()
        self._programs[key] = program
        return program

    def trim(self) -> None:
        """Drops the least recently used programs."""
        for key in list(self._programs)[: -self.most]:
            del self._programs[key]

    def clear(self) -> None:
        """Drops all programs."""
        self._programs.clear()

    @contextmanager
    def fresh(self) -> Generator[None, None, None]:
        """Context that begins without programs, and restores the earlier ones at its end."""
        before, self._programs = self._programs, {}
        try:
            yield
        finally:
            self._programs = before


PROGRAMS = ProgramCache()


def trace_count() -> int:
    """Returns how often a rollout has been traced in this process."""
    return PROGRAMS.traces
