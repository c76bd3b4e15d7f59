"""Compiles kernels for CPUs by the machine's C or C++ compiler, and loads them."""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxroute.kernels.calls import MOST_S
from jaxroute.kernels.ir import Unsupported
from jaxroute.kernels.source import LANES, PRELUDE, WIDE_ENTRY

# Sums and products are rounded individually (`core.arithmetic`); errno and floating-point traps are not used.
FLAGS = ("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-w", "-shared", "-fPIC")
# Flags for this processor, if the compiler supports them.
X86_FLAGS, OTHER_FLAGS = ("-march=native", "-mprefer-vector-width=512"), ("-mcpu=native",)
# Flags for sequential runs, which compile quickly, and for several runs at once, where integers wrap around.
NARROW_FLAGS = ("-Og",)
WIDE_FLAGS = ("-fwrapv", "-fno-strict-aliasing", "-std=gnu++17")
# Number of characters below which short loops of a text are unrolled; GCC's -O3 takes up to five times as long and its code is not faster.
LONG_FLAGS = ("-O1", "-ftree-vectorize")
SHORT_FLAGS = {"GCC": (50_000, (*LONG_FLAGS, "-fpeel-loops")), "Clang": (20_000, ("-O3",))}

INSTALL = "install one by `apt install g++`, `xcode-select --install` or `conda install cxx-compiler`"
# Text of a trivial kernel, which computes sqrt(x) + 1 for several runs at once.
TRIVIAL = f"""{WIDE_ENTRY}(long long first, long long last, long long R, const void **in, void **out) {{
    for (long long r = first; r < last; r += LANES) {{
        const Given<float> x = {{(const float *)in[0] + r, R, last - r}};
        Made<float>{{(float *)out[0] + r, R, last - r}}.put(0, sqrtf(x[0]) + 1.0f);
    }}
}}
"""


class _RefusedError(OSError):
    """Error: the compiler rejects a program; the message has the first of the compiler's errors."""


@functools.cache
def compiler(wide: bool = False) -> str | None:
    """Returns the path of a C compiler, or of a C++ compiler if `wide`: CC or CXX if set, else one of the usual names; None if there is none."""
    own = os.environ.get("CXX" if wide else "CC")
    names = [own] if own else ["c++", "g++", "clang++"] if wide else ["cc", "gcc", "clang"]
    return next((path for path in map(shutil.which, names) if path), None)


def cache_folder() -> Path:
    """Returns the folder in which compiled kernels are cached; it may be missing or not writable."""
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # The user has no home.
        base = Path(os.devnull)
    return base / "jaxroute" / "kernels"


_folders: list["tempfile.TemporaryDirectory[str]"] = []


def _temporary(name: str) -> Path:
    folder = tempfile.TemporaryDirectory(prefix="jaxroute-")
    _folders.append(folder)
    return Path(folder.name) / name


def _run(command: Sequence[str], folder: str | None = None) -> "subprocess.CompletedProcess[str]":
    """Runs a compiler's command line, with its temporary files in `folder` if given. Raises `Unsupported` if it does not start or takes too long."""
    env = os.environ | {"LC_ALL": "C"} | ({"TMPDIR": folder} if folder else {})
    try:
        return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=MOST_S, env=env)
    except subprocess.TimeoutExpired:
        raise Unsupported(f"{command[0]} takes more than {MOST_S} s to compile it") from None
    except OSError as error:
        raise Unsupported(f"the compiler {command[0]} cannot be started ({error.strerror}); {INSTALL}") from None


def own_flags() -> tuple[str, ...]:
    """Returns the compiler flags for this processor."""
    return X86_FLAGS if platform.machine() in ("x86_64", "AMD64") else OTHER_FLAGS


@functools.cache
def _version(path: str, own: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Returns the flags `own`, or no flags if the compiler at `path` rejects one, and its predefined macros, which identify it in a cache."""
    tried = ((flags, _run([path, *flags, "-dM", "-E", "-x", "c", os.devnull])) for flags in (own, ()))
    return next(((flags, done.stdout) for flags, done in tried if not done.returncode), ((), ""))


def compiled(text: str, wide: bool = False) -> Any:
    """Compiles a text in C, or in C++ if `wide`, and returns its function `rounds` by ctypes. The library is cached on disk.

    Raises `Unsupported` if there is no compiler, if the compiler refuses the text, or if no folder allows writing and executing files.
    """
    path = compiler(wide)
    if path is None:
        names = "C++ compiler (c++, g++, clang++, or CXX)" if wide else "C compiler (cc, gcc, clang, or CC)"
        raise Unsupported(f"there is no {names}; {INSTALL}")
    native, macros = _version(path, own_flags())
    length, short = SHORT_FLAGS["Clang" if "__clang__" in macros else "GCC"]
    level = NARROW_FLAGS if not wide else short if len(text) - text.index(WIDE_ENTRY) < length else LONG_FLAGS
    command = [path, *level, *FLAGS, *(WIDE_FLAGS if wide else ()), *native]
    name = hashlib.sha256("\0".join([text, macros, *command]).encode()).hexdigest()[:32] + ".so"
    stored, language = cache_folder() / name, "cpp" if wide else "c"
    # The cache's folder may forbid execution (noexec), or be full, read-only or damaged.
    ways = (
        lambda: stored,
        lambda: shutil.copyfile(stored, _temporary(name)),
        lambda: _compile(command, text, language, stored),
        lambda: shutil.copyfile(stored, _temporary(name)),
        lambda: _compile(command, text, language, _temporary(name)),
    )
    errors = []
    for way in ways:
        try:
            function = _load(way())
        except OSError as error:
            errors.append(error)
            continue
        function.restype = None
        function.argtypes = [ctypes.c_longlong] * 3 + [ctypes.POINTER(ctypes.c_void_p)] * 2
        return function
    if isinstance(errors[-1], _RefusedError):
        raise Unsupported(f"{errors[-1]}; set {'CXX' if wide else 'CC'} to another compiler, or {INSTALL}")
    cache, temporary = (errors[n].strerror or str(errors[n]).rpartition(": ")[2] for n in (2, -1))
    raise Unsupported(
        f"what {path} compiles can be loaded neither from {stored.parent} ({cache}) nor from a temporary folder ({temporary}); set "
        "XDG_CACHE_HOME to a folder that can be written, and from which programs can be run (not noexec)"
    )


def _load(library: Path) -> Any:
    with library.open("rb") as file:
        head, size = file.read(64), os.fstat(file.fileno()).st_size
    offset, each, number = (int.from_bytes(head[a:b], sys.byteorder) for a, b in ((40, 48), (58, 60), (60, 62)))
    if head[:4] == b"\x7fELF" and size < offset + each * number:  # Loading it would kill this process.
        raise OSError(f"{library}: the file is cut off")
    try:
        return ctypes.CDLL(str(library)).rounds
    except AttributeError:
        raise OSError(f"{library}: the function `rounds` is missing") from None


def _compile(command: Sequence[str], text: str, language: str, library: Path) -> Path:
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        source, made = Path(folder) / f"rounds.{language}", Path(folder) / "rounds.so"
        source.write_text(text)
        done = _run([*command, str(source), "-o", str(made), "-lm"], folder)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"it ends with status {done.returncode}"]
            error = next((line for line in lines if "error" in line), lines[0])
            raise _RefusedError(f"{command[0]} does not compile it: {error[:300]}")
        return made.replace(library)


def trial() -> str | None:
    """Compiles, loads and runs a trivial kernel on this CPU. Returns None if it works, else the reason of the failure and a remedy."""
    return _tried(compiler(wide=True), FLAGS, cache_folder())


@functools.cache
def _tried(*_: Any) -> str | None:
    try:
        function = compiled(PRELUDE.read_text() + LANES.read_text() + TRIVIAL, wide=True)
    except Unsupported as error:
        return str(error)
    given, made = np.arange(40, dtype=np.float32), np.empty(40, np.float32)
    function(0, 40, 40, *((ctypes.c_void_p * 1)(array.ctypes.data) for array in (given, made)))
    right = np.array_equal(made, np.sqrt(given) + 1)
    return None if right else f"what {compiler(wide=True)} compiles gives wrong numbers; set CXX to another compiler"
