"""What a run tells a `callback` after each of its blocks, and how the callback ends it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import xarray as xr

from jaxroute.core import checks


@dataclass(frozen=True)
class Progress:
    """How far a run is: what `simulate` gives its `callback` after each block, once the block is kept.

    Attributes:
      policy: name of the policy whose block has just been played.
      setting: coordinates of the block by axis, a list of values each.
      seeds: number of seeds of which something has been played.
      done: blocks that have been played in this call.
      total: blocks that this call will play.
      seconds: since the call began, compiling included.
    """

    policy: str
    setting: dict[str, list[Any]]
    seeds: int
    done: int
    total: int
    seconds: float
    _so_far: Callable[[], xr.Dataset] = field(repr=False, compare=False)

    def result(self) -> xr.Dataset:
        """The result so far, labelled as the whole one will be, with the seeds of which something has been played.

        What is still missing of these is NaN, and not `valid`. Takes as long as reading what has been written.
        """
        return self._so_far()


# Called after each block; ends the run by returning True.
Callback: TypeAlias = Callable[[Progress], Any]


@dataclass
class Follower:
    """Calls a user's function after each block, and remembers whether that has ended the run.

    callback: the function, or None.
    begun: when the run began (`time.perf_counter`).
    done, total: blocks that have been played, and that will be.
    stopped: whether the callback has ended the run.
    """

    callback: Callback | None
    begun: float = field(default_factory=time.perf_counter)
    done: int = 0
    total: int = 0
    stopped: bool = False

    def __post_init__(self) -> None:
        if self.callback is None:
            return
        if not callable(self.callback):
            raise ValueError(f"callback must be a function of the progress, got {checks.show(self.callback)}")
        checks.takes("callback", self.callback, "progress")

    def in_order(self, tasks: Sequence[Any]) -> list[Any]:
        """Tasks block by block of seeds where somebody looks at what there is, so that policies can be compared."""
        return list(tasks) if self.callback is None else sorted(tasks, key=lambda task: task[2])

    def tell(self, so_far: Callable[[], xr.Dataset], **about: Any) -> bool:
        """Says that a block is done; whether the run ends here."""
        self.done += 1
        if self.callback is None:
            return False
        seconds = time.perf_counter() - self.begun
        try:
            answer = self.callback(Progress(done=self.done, total=self.total, seconds=seconds, _so_far=so_far, **about))
        except Exception as error:
            error.add_note(f"in the callback, after {self.done} of {self.total} blocks; what is stored is kept")
            raise
        self.stopped = answer is True
        return self.stopped
