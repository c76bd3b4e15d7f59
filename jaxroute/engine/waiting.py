"""Waiting for programs that are being compiled: what is still under way, and how long it took last time."""

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

# Seconds that compiling took, by name, beside the compiled programs if JAX keeps these.
_FILE = "jaxroute-seconds.json"
_FORMAT = "{desc} [{elapsed}]"


# Seconds after which progress is first told on a line, and then each time twice as many have passed.
_FIRST_LINE_S = 10.0


class Lines:
    """Tells how far something is where there is no terminal for a bar: a line after ten seconds, and each time that took twice as long.

    Used instead of `tqdm`; `say` is a `callback` of `compare`.

    Args:
      total: number of blocks.
    """

    def __init__(self, total: int = 0) -> None:
        self.n, self._total, self._what = 0.0, total, ""
        self._begun, self._next = time.monotonic(), _FIRST_LINE_S

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def set_description(self, text: str) -> None:
        """Says what is played."""
        self._what = text

    def update(self, blocks: float) -> None:
        """Tells that more blocks have been played."""
        self.n += blocks
        self.say(f"block {self.n:,.0f} of {self._total:,} ({self._what})")

    def say(self, text: str) -> None:
        """Tells it in words, if it is time."""
        passed = time.monotonic() - self._begun
        if passed < self._next:
            return
        while self._next <= passed:
            self._next *= 2
        print(f"jaxroute: {passed:.0f} s, {text}", file=sys.stderr, flush=True)


def tell(text: str) -> None:
    """Prints a line on standard error, beside bars."""
    tqdm.write(f"jaxroute: {text}", file=sys.stderr)


def bar(total: int, progress: bool) -> Any:
    """Returns a bar of blocks; lines now and then where standard error is a file, and no notebook shows the bar."""
    in_text = "notebook" not in tqdm.__module__ and not any("notebook" in one.__module__ for one in tqdm.__mro__)
    if progress and in_text and not sys.stderr.isatty():
        return Lines(total)
    return tqdm(total=total, disable=not progress or not total, unit="block", leave=False)


def wait_aloud(compiling: "Mapping[str, Future[Any]]", kinds: Mapping[str, str], progress: bool) -> None:
    """Waits until everything is compiled, or has failed.

    Args:
      compiling: by the name that is shown.
      kinds: by the same name, what it is: under this name it is remembered how long it took.
      progress: shows what is still under way.
    """
    before, start = _seconds(), time.perf_counter()
    left, took = {future: name for name, future in compiling.items() if not future.done()}, {}
    with tqdm(disable=not (progress and left and sys.stderr.isatty()), bar_format=_FORMAT, leave=False) as bar:
        while left:
            shown = (
                f"{name} ({before[kinds[name]]:.0f} s last time)" if kinds[name] in before else name
                for name in left.values()
            )
            bar.set_description_str(f"compiling {', '.join(shown)}")
            for future in wait(left, timeout=1.0, return_when=FIRST_COMPLETED).done:
                took[kinds[left.pop(future)]] = round(time.perf_counter() - start, 1)
    _keep({kind: seconds for kind, seconds in took.items() if seconds >= 1.0})


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


def _keep(seconds: Mapping[str, float]) -> None:
    path = _path()
    if path is None or not seconds:
        return
    with contextlib.suppress(OSError):  # Nothing but what is shown depends on it.
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps({**_seconds(), **seconds}, indent=1))
        part.replace(path)
