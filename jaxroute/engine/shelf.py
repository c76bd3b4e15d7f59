"""Compiled programs on disk, and what was measured of rounds, found by what they are made of: a command that is given again traces nothing.

JAX keeps compiled programs too, and finds them by their text; but to have the text it must trace the rounds first, which takes
about a second for each policy. A program on the shelf has a name that says all that its text depends on: the package's sources, the code of
policies and environments of others, their structure, sizes and types, JAX's settings, versions and the processor. Where one of them cannot be
told, nothing is taken, or kept.
"""

import contextlib
import functools
import hashlib
import json
import os
import pickle
import re
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import serialize_executable

from jaxroute.core.code import code_of
from jaxroute.core.description import describe
from jaxroute.core.provenance import made_with

# Settings of JAX that decide what is kept or logged, not what is computed.
_UNRELATED = ("cache", "log", "traceback", "dump", "profil")
# In the `repr` of what has none of its own: such a thing cannot be told from another.
_NAMELESS = " at 0x"
# Ends of the names of files: notes, and the executables, which programs of several names may share.
_NOTE, _CODE = ".json", ".code"


class Kept(NamedTuple):
    """A program that is on the shelf.

    load: reads it, in 20 to 200 ms mostly without the interpreter's lock, and returns what is called like what was compiled; any exception
      says that it cannot be read.
    shapes: of what it records of a run, by name.
    in_turn: it waits until other such programs have ended.
    """

    load: Callable[[], Any]
    shapes: dict[str, tuple[int, ...]]
    in_turn: bool


class Shelf:
    """A folder of programs and notes.

    Args:
      folder: made when the first is kept; whoever can write to it can let others run what he likes, as with JAX's own cache.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def take(self, name: str) -> Kept | None:
        """The program of this name; None if there is none, or what is said of it cannot be read."""
        try:
            code, in_tree, out_tree, shapes, in_turn, kernels = pickle.loads((self.folder / name).read_bytes())
        except Exception:  # There is none; or whatever is wrong with it, another one is made in its place.
            return None

        def load() -> Any:
            if (loaded := _live.get((code, in_tree, out_tree))) is not None:
                return loaded
            payload = (self.folder / f"{code}{_CODE}").read_bytes()
            for compiling in [kernel.registered() for kernel in kernels]:
                compiling.result()
            if b"lapack" in payload:
                _load_lapack()
            loaded = serialize_executable.deserialize_and_load(payload, in_tree, out_tree)
            return _live.setdefault((code, in_tree, out_tree), loaded)

        return Kept(load, shapes, in_turn)

    def keep(
        self,
        name: str,
        code: str,
        executable: Any,
        shapes: Mapping[str, Any],
        in_turn: bool,
        whole: bool,
        kernels: Iterable[Any] = (),
    ) -> None:
        """Keeps a program, if that can be done.

        Args:
          name: from `name_of`.
          code: from `code_of_program`.
          executable: what came of it.
          shapes: of what it records of a run, by name.
          in_turn: it waits until other such programs have ended.
          whole: JAX did not take it from its own cache: such a one cannot be written again, as a part of it is missing. It is kept if an
            equal program is, as programs of several names may be one.
          kernels: that it calls.
        """
        with contextlib.suppress(Exception):  # An executable that cannot be written: the next process makes its own.
            _live.setdefault((code, executable.in_tree, executable.out_tree), executable)
            file = f"{code}{_CODE}"
            if whole:
                self._write(file, serialize_executable.serialize(executable)[0])
            if (self.folder / file).exists():
                about = (code, executable.in_tree, executable.out_tree, dict(shapes), in_turn, list(kernels))
                self._write(name, pickle.dumps(about))

    def recall(self, name: str) -> Any:
        """The note of this name; None if there is none, or it cannot be read."""
        try:
            return json.loads((self.folder / f"{name}{_NOTE}").read_text())
        except (OSError, ValueError):
            return None

    def note(self, name: str, value: Any) -> None:
        """Keeps plain JSON, if that can be done."""
        self._write(f"{name}{_NOTE}", json.dumps(value).encode())

    def _write(self, file: str, content: bytes) -> None:
        part = self.folder / f"{file}.{os.getpid()}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            part.write_bytes(content)
            part.replace(self.folder / file)
        except OSError:  # A full disk, for example: the next process finds it out by itself.
            with contextlib.suppress(OSError):
                part.unlink()


_open: list[Shelf] = []
# Programs of this process, by their code and the trees of what they take and return. Horizons and lengths of records, for example, are not
# part of the code, so that programs of several names are one.
_live: weakref.WeakValueDictionary[tuple[str, Any, Any], Any] = weakref.WeakValueDictionary()
_hits: dict[int, int] = {}  # Programs that JAX has taken from its own cache, by thread.


def _count_hit(event: str, **_: Any) -> None:
    if event == "/jax/compilation_cache/cache_hits":
        _hits[threading.get_ident()] = _hits.get(threading.get_ident(), 0) + 1


jax.monitoring.register_event_listener(_count_hit)


def hits() -> int:
    """How many programs JAX has taken from its own cache in this thread."""
    return _hits.get(threading.get_ident(), 0)


@contextlib.contextmanager
def shelf(folder: Path) -> Generator[Shelf, None, None]:
    """A context in which programs are taken from a folder and kept there."""
    _open.append(Shelf(folder))
    try:
        yield _open[-1]
    finally:
        _open.pop()


def current() -> Shelf | None:
    """The shelf of the innermost context, None outside."""
    return _open[-1] if _open else None


def name_of(device: Any, players: Iterable[Any], structures: Iterable[Any], **more: Any) -> str | None:
    """The name of a program or note, None where something cannot be told: a digest of where it is made, and one of what it is.

    Args:
      device: that plays it.
      players: an environment and a policy (or functions that make them), and probes.
      structures: of their pytrees.
      more: whatever else it depends on, as `describe` takes it.
    """
    roots = list(players)
    where = {"sources": _sources(), "made_with": made_with(device), "features": _features(), "config": _config()}
    said = {
        "players": [describe(value) for value in roots],
        "structures": [_structure(s) for s in structures],
        "code": code_of(roots),
        **{key: describe(value) for key, value in more.items()},
    }
    first, second = (json.dumps(part, sort_keys=True, default=repr) for part in (where, said))
    return None if _NAMELESS in first + second else f"{_digest(first)[:16]}-{_digest(second)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def code_of_program(name: str, lowered: jax.stages.Lowered, options: Mapping[str, bool]) -> str | None:
    """Digest of where a program is compiled and of what: its text, the types of its arguments and which of them it takes, and how; None if JAX
    does not tell.

    Arguments that it does not take are not in its text, but are checked where it is called.

    Args:
      name: from `name_of`.
      lowered: what is compiled.
      options: how.
    """
    try:
        taken = sorted(lowered._lowering.compile_args["kept_var_idx"])
        types = [(a.shape, str(a.dtype)) for a in jax.tree.leaves(lowered.in_avals)]
    except (AttributeError, KeyError, TypeError):
        return None
    what = _digest(f"{lowered.as_text()}\n{types} {taken} {dict(options)}")
    return f"{name.partition('-')[0]}-{what}"


def alive(code: str, lowered: jax.stages.Lowered) -> Any:
    """The program of this code, if this process has it; else None."""
    return _live.get((code, lowered.in_tree, lowered.out_tree))


@functools.cache
def _load_lapack() -> None:
    """Lets programs call LAPACK: JAX finds its routines when it first lowers one, without which a call ends the process."""
    jax.jit(jnp.linalg.eigvalsh).lower(jax.ShapeDtypeStruct((1, 1), jnp.float32))


def _structure(structure: Any) -> Any:
    """A structure by its classes and static fields. A function among them stands by its name: `describe` and `code_of` tell the rest."""
    if not isinstance(structure, jax.tree_util.PyTreeDef):
        return describe(structure)
    return re.sub(r"<function (\S+) at 0x[0-9a-f]+>", r"<function \1>", repr(structure))


@functools.cache
def _sources() -> str:
    """Digest of the sources of this package, as they were when this was first asked for."""
    found, root = hashlib.sha256(), os.path.dirname(os.path.dirname(__file__))
    for folder, inside, files in os.walk(root):
        inside[:] = sorted(set(inside) - {"__pycache__"})
        for file in sorted(files):
            path = os.path.join(folder, file)
            with open(path, "rb") as content:
                found.update(os.path.relpath(path, root).encode() + b"\0" + content.read() + b"\0")
    return found.hexdigest()


@functools.cache
def _features() -> str:
    """What the processor has, as Linux tells it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return line.partition(":")[2].strip()
    return ""


def _config() -> dict[str, str]:
    """JAX's settings."""
    return {k: repr(v) for k, v in jax.config.values.items() if not any(word in k for word in _UNRELATED)}
