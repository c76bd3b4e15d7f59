"""The rounds of runs, compiled by the compiler of the host and called by XLA's programs on a CPU."""

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from jaxroute.engine.kernels.values import Unsupported

# Sums and products are rounded one by one, as XLA's are on a CPU; nobody looks at errno or floating-point traps.
FLAGS = ("-O2", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-march=native", "-w", "-shared", "-fPIC")
# For C++ of several runs at once: integers wrap around.
WIDE_FLAGS = ("-O1", "-ftree-vectorize", "-mprefer-vector-width=512", "-fwrapv", "-fno-strict-aliasing", "-std=gnu++17")

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
def _version(path: str) -> str:
    return subprocess.run([path, "--version"], capture_output=True, text=True).stdout


def compiled(text: str, wide: bool = False) -> Any:
    """The function `rounds` of a text in C, or in C++, compiled once and kept on disk.

    Raises:
      Unsupported: there is no compiler, or it refuses the text.
    """
    path, flags = compiler(wide), [*FLAGS, *(WIDE_FLAGS if wide else ())]
    if path is None:
        raise Unsupported(f"there is no {'C++ compiler (c++, g++, clang++, or CXX)' if wide else 'C compiler (cc, gcc, clang, or CC)'}")
    digest = hashlib.sha256("\0".join([text, path, _version(path), *flags]).encode()).hexdigest()[:32]
    library = cache_folder() / f"{digest}.so"
    if not library.exists():
        _compile([path, *flags], text, library)
    function = ctypes.CDLL(str(library)).rounds
    function.restype = None
    function.argtypes = [ctypes.c_longlong] * 3 + [ctypes.POINTER(ctypes.c_void_p)] * 2
    return function


def _compile(compiler: list[str], text: str, library: Path) -> None:
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        source, made = Path(folder) / ("rounds.cpp" if 'extern "C"' in text else "rounds.c"), Path(folder) / "rounds.so"
        source.write_text(text)
        command = [*compiler, str(source), "-o", str(made), "-lm"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=MOST_S)
        except subprocess.TimeoutExpired:
            raise Unsupported(f"{compiler[0]} takes more than {MOST_S} s to compile it") from None
        if done.returncode:
            raise Unsupported(f"{compiler[0]} does not compile it: {done.stderr.strip()[:300]}")
        made.replace(library)
