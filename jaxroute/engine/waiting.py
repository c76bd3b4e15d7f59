"""Waiting for programs that are being compiled: what is still under way, and how long it took last time."""

import contextlib
import json
import os
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


def wait_aloud(compiling: "Mapping[str, Future[Any]]", kinds: Mapping[str, str], progress: bool) -> None:
    """Waits until everything is compiled, or has failed.

    Args:
      compiling: by the name that is shown.
      kinds: by the same name, what it is: under this name it is remembered how long it took.
      progress: shows what is still under way.
    """
    before, start = _seconds(), time.perf_counter()
    left, took = {future: name for name, future in compiling.items() if not future.done()}, {}
    with tqdm(disable=not (progress and left), bar_format=_FORMAT, leave=False) as bar:
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
