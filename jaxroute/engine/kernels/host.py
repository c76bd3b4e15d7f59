"""The rounds of runs, compiled by the compiler of the host and called by XLA's programs on a CPU."""

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from jaxroute.engine.kernels.source import WIDE_ENTRY
from jaxroute.engine.kernels.values import Unsupported

# Sums and products are rounded one by one, as XLA's are on a CPU; nobody looks at errno or floating-point traps.
FLAGS = ("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-march=native", "-w", "-shared", "-fPIC")
# Of one run after the other: for what is to be compiled soon. Of several at once integers wrap around; loops of short functions are unrolled,
# where for long ones that would take ten times as long to compile, for a few percent.
NARROW_FLAGS = ("-Og",)
WIDE_FLAGS = ("-mprefer-vector-width=512", "-fwrapv", "-fno-strict-aliasing", "-std=gnu++17")
SHORT, SHORT_FLAGS, LONG_FLAGS = 20_000, ("-O3",), ("-O1", "-ftree-vectorize")

# Seconds that the compiler may take.
MOST_S = 120


@functools.cache
def compiler(wide: bool = False) -> str | None:
    """Path of a compiler of C, or of C++ for several runs at once: `CC` or `CXX`, or the first of the usual names."""
    own = os.environ.get("CXX" if wide else "CC")
    names = [own] if own else ["c++", "g++", "clang++"] if wide else ["cc", "gcc", "clang"]
    return next((path for path in map(shutil.which, names) if path), None)


def cache_folder() -> Path:
    """Where compiled kernels are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "jaxroute" / "kernels"


@functools.cache
def _own_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="jaxroute-")


@functools.cache
def _version(path: str) -> str:
    return subprocess.run([path, "--version"], capture_output=True, text=True).stdout


@functools.cache
def _processor() -> str:
    """What this machine's processor can do, which others that see the same folder may not."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return platform.processor()


def flags_for(text: str, wide: bool) -> list[str]:
    """How a text is compiled."""
    if not wide:
        return [*NARROW_FLAGS, *FLAGS]
    short = len(text) - text.index(WIDE_ENTRY) < SHORT
    return [*(SHORT_FLAGS if short else LONG_FLAGS), *FLAGS, *WIDE_FLAGS]


def compiled(text: str, wide: bool = False) -> Any:
    """The function `rounds` of a text in C, or in C++, compiled once and kept on disk.

    Raises:
      Unsupported: there is no compiler, or it refuses the text.
    """
    path = compiler(wide)
    if path is None:
        names = "C++ compiler (c++, g++, clang++, or CXX)" if wide else "C compiler (cc, gcc, clang, or CC)"
        raise Unsupported(f"there is no {names}")
    flags = flags_for(text, wide)
    digest = hashlib.sha256("\0".join([text, path, _version(path), _processor(), *flags]).encode()).hexdigest()[:32]
    library, language = cache_folder() / f"{digest}.so", "cpp" if wide else "c"
    if not library.exists():
        try:
            _compile([path, *flags], text, library, language)
        except OSError:  # The folder cannot be written, for example: it is kept for as long as this process lives.
            library = Path(_own_folder().name) / library.name
            _compile([path, *flags], text, library, language)
    function = ctypes.CDLL(str(library)).rounds
    function.restype = None
    function.argtypes = [ctypes.c_longlong] * 3 + [ctypes.POINTER(ctypes.c_void_p)] * 2
    return function


def _compile(compiler: list[str], text: str, library: Path, language: str) -> None:
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        source, made = Path(folder) / f"rounds.{language}", Path(folder) / "rounds.so"
        source.write_text(text)
        command = [*compiler, str(source), "-o", str(made), "-lm"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=MOST_S)
        except subprocess.TimeoutExpired:
            raise Unsupported(f"{compiler[0]} takes more than {MOST_S} s to compile it") from None
        if done.returncode:
            raise Unsupported(f"{compiler[0]} does not compile it: {done.stderr.strip()[:300]}")
        made.replace(library)
