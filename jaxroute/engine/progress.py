"""Progress of a simulation, which is reported to a `callback` after each block, and its end by the callback."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import xarray as xr

from jaxroute.core import checks


@dataclass(frozen=True)
class Progress:
    """Progress of a simulation, which the `callback` gets after each block, once the block is stored.

    Attributes:
      policy: name of the policy of the block.
      setting: coordinates of the block by axis, a list of values each.
      seeds: number of seeds with finished runs.
      done: number of blocks that this call has simulated.
      total: number of blocks that this call will simulate.
      seconds: seconds since the call began, with compilation.
    """

    policy: str
    setting: dict[str, list[Any]]
    seeds: int
    done: int
    total: int
    seconds: float
    _so_far: Callable[[], xr.Dataset] = field(repr=False, compare=False)

    def result(self) -> xr.Dataset:
        """Returns the result so far, labelled as the whole one will be; missing runs are NaN, and not `valid`."""
        return self._so_far()


# Called after each block; ends the run by returning True.
Callback: TypeAlias = Callable[[Progress], Any]


@dataclass
class Monitor:
    """Callback of the user, and whether it has ended the simulation.

    Attributes:
      callback: function that is called after each block, or None.
      started: `time.perf_counter` at the beginning.
      done: number of finished blocks.
      total: number of blocks.
      stopped: whether the callback has ended the simulation.
    """

    callback: Callback | None
    started: float = field(default_factory=time.perf_counter)
    done: int = 0
    total: int = 0
    stopped: bool = False

    def __post_init__(self) -> None:
        if self.callback is None:
            return
        if not callable(self.callback):
            raise ValueError(f"callback must be a function of the progress, got {checks.show(self.callback)}")
        checks.takes("callback", self.callback, "progress")

    def report(self, so_far: Callable[[], xr.Dataset], policy: str, setting: dict[str, list[Any]], seeds: int) -> bool:
        """Reports a finished block to the callback; returns whether the simulation ends here."""
        self.done += 1
        if self.callback is None:
            return False
        seconds = time.perf_counter() - self.started
        try:
            answer = self.callback(Progress(policy, setting, seeds, self.done, self.total, seconds, so_far))
        except Exception as error:
            error.add_note(f"in the callback, after {self.done} of {self.total} blocks; what is stored is kept")
            raise
        self.stopped = answer is True
        return self.stopped
