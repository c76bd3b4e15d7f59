"""Progress on the terminal: bars, lines for log files, and running compilations."""

import contextlib
import json
import os
import sys
import time
import warnings
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any

import jax

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # tqdm.auto warns in notebooks without ipywidgets, and then shows its text bar
    from tqdm.auto import tqdm as tqdm

# Seconds of earlier compilations by name, beside JAX's cache of compiled programs.
_FILE = "jaxroute-seconds.json"
_FORMAT = "{desc} [{elapsed}]"


# Seconds until the first line of progress; each further line comes after twice the time.
_FIRST_LINE_S = 10.0


class LineProgress:
    """Progress where there is no terminal for a bar: a line after ten seconds, and each time that took twice as long.

    Used instead of `tqdm`; `print` is a `callback` of `compare`.

    Args:
      total: number of blocks.
    """

    def __init__(self, total: int = 0) -> None:
        self.n, self._total, self._description = 0.0, total, ""
        self._started, self._next = time.monotonic(), _FIRST_LINE_S

    def __enter__(self) -> "LineProgress":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def set_description(self, text: str) -> None:
        """Sets the description of the running block."""
        self._description = text

    def update(self, blocks: float) -> None:
        """Adds finished blocks."""
        self.n += blocks
        self.print(f"block {self.n:,.0f} of {self._total:,} ({self._description})")

    def print(self, text: str) -> None:
        """Prints a text if it is time."""
        passed = time.monotonic() - self._started
        if passed < self._next:
            return
        while self._next <= passed:
            self._next *= 2
        print(f"jaxroute: {passed:.0f} s, {text}", file=sys.stderr, flush=True)


def print_line(text: str) -> None:
    """Prints a line on standard error, beside bars."""
    tqdm.write(f"jaxroute: {text}", file=sys.stderr)


def bar(total: int, progress: bool) -> Any:
    """Returns a bar of blocks; lines now and then where standard error is a file and no notebook shows the bar."""
    in_text = "notebook" not in tqdm.__module__ and not any("notebook" in one.__module__ for one in tqdm.__mro__)
    if progress and in_text and not sys.stderr.isatty():
        return LineProgress(total)
    return tqdm(total=total, disable=not progress or not total, unit="block", leave=False)


def wait_for_compilations(compiling: "Mapping[str, Future[Any]]", kinds: Mapping[str, str], progress: bool) -> None:
    """Waits until all compilations have ended or failed.

    Args:
      compiling: compilations by the name that is shown.
      kinds: names by which the seconds are stored for the next time, by the same name.
      progress: whether to show the running compilations.
    """
    before, start = _seconds(), time.perf_counter()
    left = {future: name for name, future in compiling.items() if not future.done()}
    number, took = len(left), {}
    with tqdm(disable=not (progress and left and sys.stderr.isatty()), bar_format=_FORMAT, leave=False) as bar:
        while left:
            shown = (
                f"{name} ({before[kinds[name]]:.0f} s last time)" if kinds[name] in before else name
                for name in left.values()
            )
            ended = f", {number - len(left)} of {number} done" if number > 1 else ""
            bar.set_description_str(f"compiling {', '.join(shown)}{ended}")
            for future in wait(left, timeout=1.0, return_when=FIRST_COMPLETED).done:
                took[kinds[left.pop(future)]] = round(time.perf_counter() - start, 1)
    _store({kind: seconds for kind, seconds in took.items() if seconds >= 1.0})


def _path() -> Path | None:
    folder = getattr(jax.config, "jax_compilation_cache_dir", None)
    return Path(folder) / _FILE if folder and "://" not in str(folder) else None


def _seconds() -> dict[str, float]:
    path = _path()
    try:
        found: Any = json.loads(path.read_text()) if path else {}
    except (OSError, ValueError):
        return {}
    return {str(k): float(v) for k, v in found.items() if isinstance(v, (int, float))} if isinstance(found, dict) else {}


def _store(seconds: Mapping[str, float]) -> None:
    path = _path()
    if path is None or not seconds:
        return
    with contextlib.suppress(OSError):  # Only the display depends on it.
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps({**_seconds(), **seconds}, indent=1))
        part.replace(path)
