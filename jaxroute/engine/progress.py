"""Shows the progress of a simulation by bars or lines on the terminal, shows running compilations, and calls the user's `callback`."""

import contextlib
import json
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import jax
import xarray as xr

from jaxroute.core import checks

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # tqdm.auto warns in notebooks without ipywidgets, and then shows its text bar.
    from tqdm.auto import tqdm as tqdm

# Seconds until the first line of progress; each further line comes after twice the time.
_FIRST_LINE_S = 10.0
# File with the seconds of earlier compilations by name, beside JAX's cache of compiled programs.
_SECONDS_FILE = "jaxroute-seconds.json"


class LineProgress(contextlib.AbstractContextManager["LineProgress"]):
    """Prints progress as lines of text where no terminal can show a bar, 10, 20, 40, ... seconds after the start.

    It has the methods of `tqdm` that `jaxroute` calls. Its method `print` can be the argument `callback` of `jaxroute.compare`, which calls it with
    the text of each step.

    Args:
      total: number of blocks.
    """

    def __init__(self, total: int = 0) -> None:
        self.n, self._total, self._description = 0.0, total, ""
        self._started, self._next = time.monotonic(), _FIRST_LINE_S

    def __exit__(self, *_: object) -> None:
        pass

    def set_description(self, text: str) -> None:
        self._description = text

    def update(self, blocks: float) -> None:
        """Counts `blocks` more finished blocks, and prints a line if the time for the next line has come."""
        self.n += blocks
        self.print(f"block {self.n:,.0f} of {self._total:,} ({self._description})")

    def print(self, text: str) -> None:
        """Prints a text if the time for the next line has come; otherwise does nothing."""
        passed = time.monotonic() - self._started
        if passed < self._next:
            return
        while self._next <= passed:
            self._next *= 2
        print(f"jaxroute: {passed:.0f} s, {text}", file=sys.stderr, flush=True)


def print_line(text: str) -> None:
    """Prints `text` as a line on standard error without disturbing progress bars."""
    tqdm.write(f"jaxroute: {text}", file=sys.stderr)


def bar(total: int, progress: bool) -> Any:
    """Returns a progress bar that counts `total` blocks, or a `LineProgress` if standard error is a file. With `progress=False` nothing is shown."""
    in_text = "notebook" not in tqdm.__module__ and not any("notebook" in one.__module__ for one in tqdm.__mro__)
    if progress and in_text and not sys.stderr.isatty():
        return LineProgress(total)
    return tqdm(total=total, disable=not progress or not total, unit="block", leave=False)


def wait_for_compilations(compiling: "Mapping[str, Future[Any]]", kinds: Mapping[str, str], progress: bool) -> None:
    """Waits until all compilations have ended or failed, and stores how many seconds they took, to show them the next time.

    Args:
      compiling: compilations, by the name that is shown.
      kinds: by shown name, the name under which the seconds are stored.
      progress: whether to show the running compilations.
    """
    before, start = _seconds(), time.perf_counter()
    left = {future: name for name, future in compiling.items() if not future.done()}
    number, took = len(left), {}
    shows = progress and left and sys.stderr.isatty()
    with tqdm(disable=not shows, bar_format="{desc} [{elapsed}]", leave=False) as bar:
        while left:
            shown = (
                f"{name} ({before[kinds[name]]:.0f} s last time)" if kinds[name] in before else name
                for name in left.values()
            )
            ended = f", {number - len(left)} of {number} done" if number > 1 else ""
            bar.set_description_str(f"compiling {', '.join(shown)}{ended}")
            for future in wait(left, timeout=1.0, return_when=FIRST_COMPLETED).done:
                took[kinds[left.pop(future)]] = round(time.perf_counter() - start, 1)
    took = {kind: seconds for kind, seconds in took.items() if seconds >= 1.0}
    if took and (path := _path()):
        with contextlib.suppress(OSError):  # Without the file only the display lacks the seconds.
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({**_seconds(), **took}, indent=1))


def _path() -> Path | None:
    folder = getattr(jax.config, "jax_compilation_cache_dir", None)
    return Path(folder) / _SECONDS_FILE if folder and "://" not in str(folder) else None


def _seconds() -> dict[str, float]:
    """Reads the stored seconds of earlier compilations, by name; a damaged file gives an empty dict."""
    path = _path()
    try:
        found: Any = json.loads(path.read_text()) if path else {}
    except (OSError, ValueError):
        return {}
    return {str(k): float(v) for k, v in found.items() if isinstance(v, (int, float))} if isinstance(found, dict) else {}


@dataclass(frozen=True)
class Progress:
    """Progress of a simulation: the argument of the user's `callback`, which is called after each block, once the block is stored.

    Attributes:
      policy: name of the policy of the block.
      setting: coordinates of the settings of the block: a list of values for each axis.
      seeds: position, from 1, of the last seed that was stored with this block. Seeds come in order, except with `share="join"`.
      done: number of blocks that this call has simulated.
      total: number of blocks that this call will simulate.
      seconds: seconds since the call began, with compilation.
      result: function that returns the result so far, labelled like the complete one. In missing runs all values are NaN, and `valid` is False.
    """

    policy: str
    setting: dict[str, list[Any]]
    seeds: int
    done: int
    total: int
    seconds: float
    result: Callable[[], xr.Dataset] = field(repr=False, compare=False)


# Function that is called after each block; it ends the simulation by returning True.
Callback: TypeAlias = Callable[[Progress], Any]


class Monitor:
    """Calls the user's callback after each block, and remembers whether it has ended the simulation.

    Attributes:
      done: number of finished blocks.
      total: number of blocks.
      stopped: whether the callback has ended the simulation.

    Raises:
      ValueError: the callback is no function of one argument.
    """

    def __init__(self, callback: Callback | None):
        if callback is not None and not callable(callback):
            raise ValueError(f"callback must be a function of the progress, got {checks.show(callback)}")
        if callback is not None:
            checks.takes("callback", callback, "progress")
        self.callback, self._started = callback, time.perf_counter()
        self.done, self.total, self.stopped = 0, 0, False

    def report(self, so_far: Callable[[], xr.Dataset], policy: str, setting: dict[str, list[Any]], seeds: int) -> bool:
        """Counts a block and calls the callback with a `Progress` of these values (`so_far` is its `result`). Returns True to end the simulation."""
        self.done += 1
        if self.callback is None:
            return False
        seconds = time.perf_counter() - self._started
        try:
            answer = self.callback(Progress(policy, setting, seeds, self.done, self.total, seconds, so_far))
        except Exception as error:
            error.add_note(f"in the callback, after {self.done} of {self.total} blocks; what is stored is kept")
            raise
        self.stopped = answer is True
        return self.stopped
