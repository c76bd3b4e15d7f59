"""The disk as a process sees it: every change below a folder is met on its way, written down, made to fail, or played again in part.

`Watch` stands between Python and the operating system. What it wrote down, a `Journal` gives back: all files after the first `n` changes
(what a killed process leaves), or what may be left of them after a power cut, when only what was flushed (`fsync`) is sure.
"""

import builtins
import contextlib
import dataclasses
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# Content of each file by its place below a folder, None for a folder.
Tree = dict[str, bytes | None]


@dataclasses.dataclass(frozen=True)
class Change:
    """One call of the operating system that changes files.

    kind: "make" a file, "write", "truncate", "link", "rename", "unlink", "mkdir", "rmdir", or "fsync".
    path: of what, below the watched folder.
    to: the other name, of "link" and "rename".
    at: first byte of "write", size after "truncate".
    content: what is written.
    """

    kind: str
    path: str
    to: str = ""
    at: int = 0
    content: bytes = b""


class Watch:
    """Context in which changes below a folder, by any thread of this process, are written down and can be met.

    changes: what has been done, in order.
    lock: held while one is done.
    missed: changes that Python announced to its audit hooks and that did not come this way; none, unless a library goes its own ways.

    Args:
      folder: watched, with all that is in it.
      before: called before each change, with the number of those that are done, and the change; what it raises the caller gets.
    """

    def __init__(self, folder: Path, before: Callable[[int, Change], None] | None = None):
        self.folder = os.path.realpath(folder)
        self.changes: list[Change] = []
        self.missed: list[str] = []
        self._before = before
        self.lock, self._own = threading.RLock(), threading.local()
        self._opened: dict[int, str] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Watch":
        open_, os_open = io.open, os.open
        watch = self

        def opened(file: Any, mode: str = "r", buffering: int = -1, *args: Any, **options: Any) -> Any:
            place = watch.place(file)
            if place is None or not set(mode) & set("wax+"):
                return open_(file, mode, buffering, *args, **options)
            raw = _Raw(watch, file, place, mode.replace("b", "").replace("t", ""))
            buffered = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw)
            return buffered if "b" in mode else io.TextIOWrapper(buffered, *args, **options)

        def handle(path: Any, flags: int, *args: Any, **options: Any) -> int:
            place = watch.place(path, options.get("dir_fd"))
            if place is None:
                return os_open(path, flags, *args, **options)
            number = watch.opening(
                place,
                bool(flags & os.O_CREAT),
                bool(flags & os.O_TRUNC),
                lambda: os_open(path, flags, *args, **options),
            )
            watch._opened[number] = place
            return number

        def of_path(kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
            def changed(path: Any, *args: Any, **options: Any) -> Any:
                place = watch.place(path, options.get("dir_fd"))
                if place is None:
                    return call(path, *args, **options)
                return watch.change(Change(kind, place), lambda: call(path, *args, **options))

            return changed

        def of_two(kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
            def changed(source: Any, target: Any, *args: Any, **options: Any) -> Any:
                one, other = watch.place(source), watch.place(target)
                if one is None or other is None:
                    return call(source, target, *args, **options)
                return watch.change(Change(kind, one, to=other), lambda: call(source, target, *args, **options))

            return changed

        def of_handle(change: Callable[..., Change], call: Callable[..., Any]) -> Callable[..., Any]:
            def changed(file: Any, *args: Any) -> Any:
                number = file if isinstance(file, int) else file.fileno()
                if number not in watch._opened:
                    return call(file, *args)
                return watch.change(change(watch._opened[number], number, *args), lambda: call(file, *args))

            return changed

        def written(place: str, number: int, data: Any) -> Change:
            return Change("write", place, at=os.lseek(number, 0, os.SEEK_CUR), content=bytes(data))

        self._replace(io, "open", opened)
        self._replace(builtins, "open", opened)
        self._replace(os, "open", handle)
        for kind, names in (("unlink", ("unlink", "remove")), ("mkdir", ("mkdir",)), ("rmdir", ("rmdir",))):
            for name in names:
                self._replace(os, name, of_path(kind, getattr(os, name)))
        for kind, names in (("rename", ("rename", "replace")), ("link", ("link",))):
            for name in names:
                self._replace(os, name, of_two(kind, getattr(os, name)))
        self._replace(os, "write", of_handle(written, os.write))
        self._replace(
            os, "ftruncate", of_handle(lambda place, number, size: Change("truncate", place, at=size), os.ftruncate)
        )
        for name in ("fsync", "fdatasync"):
            self._replace(os, name, of_handle(lambda place, number: Change("fsync", place), getattr(os, name)))
        _hear(self)
        return self

    def __exit__(self, *_: object) -> None:
        _HEARING.discard(self)
        self._stack.close()

    def _replace(self, module: Any, name: str, function: Any) -> None:
        self._stack.callback(setattr, module, name, getattr(module, name))
        setattr(module, name, function)

    def place(self, path: Any, folder: int | None = None) -> str | None:
        """Where something is below the watched folder; None if it is elsewhere."""
        if isinstance(path, int):
            return None
        name = os.fsdecode(path)
        if folder is not None:
            if folder not in self._opened:
                return None
            name = os.path.join(self.folder, self._opened[folder], name)
        above, last = os.path.split(os.path.abspath(name))
        whole = os.path.join(os.path.realpath(above), last)
        if whole != self.folder and not whole.startswith(self.folder + os.sep):
            return None
        return os.path.relpath(whole, self.folder)

    def change(self, change: Change, do: Callable[[], Any]) -> Any:
        """Does something, and writes it down if it succeeds."""
        if self._before is not None:
            self._before(len(self.changes), change)
        with self.lock, self._quiet():
            found = do()
            self.changes.append(change)
            return found

    def opening(self, place: str, make: bool, empty: bool, do: Callable[[], Any]) -> Any:
        """Opens a file, which may make or empty it."""
        whole = os.path.join(self.folder, place)
        if make and not os.path.lexists(whole):
            return self.change(Change("make", place), do)
        if empty and os.path.exists(whole):
            return self.change(Change("truncate", place), do)
        with self._quiet():
            return do()

    @contextlib.contextmanager
    def _quiet(self) -> Iterator[None]:
        depth = getattr(self._own, "depth", 0)
        self._own.depth = depth + 1
        try:
            yield
        finally:
            self._own.depth = depth

    def heard(self, event: str, args: tuple[Any, ...]) -> None:
        """Looks whether a change that Python announces came this way."""
        if getattr(self._own, "depth", 0) or not args or not isinstance(args[0], (str, bytes, os.PathLike)):
            return
        # Opening a folder, or a file that is there, changes nothing.
        changes = args[2] & (os.O_CREAT | os.O_TRUNC) if event == "open" else event in _AUDITED
        place = self.place(
            args[0], next((n for n in args[1:] if event in _BY_FOLDER and isinstance(n, int) and n > 2), None)
        )
        if changes and place is not None:
            self.missed.append(f"{event} {place}")


_AUDITED = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
_BY_FOLDER = {"os.remove", "os.rmdir"}
_HEARING: set[Watch] = set()
_HOOKED: list[bool] = []


def _hear(watch: Watch) -> None:
    """Audit hooks stay for ever, so that there is one for all watches."""
    _HEARING.add(watch)
    if not _HOOKED:
        _HOOKED.append(True)

        def hook(event: str, args: tuple[Any, ...]) -> None:
            if event == "open" or event in _AUDITED:
                for one in tuple(_HEARING):
                    one.heard(event, args)

        sys.addaudithook(hook)


class _Raw(io.FileIO):
    """A file that is written to, under a watch."""

    def __init__(self, watch: Watch, file: Any, place: str, mode: str):
        self._watch, self._place = watch, place
        opening = super().__init__
        watch.opening(place, "r" not in mode, "w" in mode, lambda: opening(file, mode))
        watch._opened[self.fileno()] = place

    def write(self, data: Any) -> int:  # type: ignore[override]
        content, write = bytes(data), super().write
        at = os.fstat(self.fileno()).st_size if "a" in self.mode else self.tell()
        return self._watch.change(Change("write", self._place, at=at, content=content), lambda: write(content))

    def truncate(self, size: int | None = None) -> int:
        size, truncate = self.tell() if size is None else size, super().truncate
        return self._watch.change(Change("truncate", self._place, at=size), lambda: truncate(size))

    def close(self) -> None:
        if not self.closed:
            self._watch._opened.pop(self.fileno(), None)
        super().close()


class _File:
    """A file: what it holds, and what of it is on the disk itself (None: nothing yet)."""

    def __init__(self, content: bytes = b"", flushed: bytes | None = None):
        self.content, self.flushed = content, flushed


class _Folder:
    """A folder: its names, those that are on the disk itself, and the changes since, in order."""

    def __init__(self) -> None:
        self.names: dict[str, _File | _Folder] = {}
        self.flushed: dict[str, _File | _Folder] = {}
        self.since: list[Callable[[dict[str, Any]], None]] = []

    def change(self, how: Callable[[dict[str, Any]], None]) -> None:
        how(self.names)
        self.since.append(how)


def _move(names: dict[str, Any], old: str, new: str) -> None:
    names[new] = names.pop(old)


class Files:
    """Files in memory, and what of them a power cut may leave.

    A flushed file keeps its content, a flushed folder its names. Of the changes since, a folder keeps a first part, and a file may hold
    what was flushed, nothing, zeros, or some of what was written: POSIX promises no more.
    """

    def __init__(self, tree: Tree):
        self._root = _Folder()
        for path, content in sorted(tree.items()):
            above, name = self._above(path)
            above.names[name] = _Folder() if content is None else _File(content, content)
            above.flushed[name] = above.names[name]

    def _at(self, path: str) -> Any:
        found: Any = self._root
        for part in Path(path).parts:
            found = found.names[part]
        return found

    def _above(self, path: str) -> tuple[_Folder, str]:
        return self._at(os.path.dirname(path)), os.path.basename(path)

    def do(self, change: Change, share: float = 1.0) -> None:
        """Changes the files; of a write the first `share` of its bytes."""
        if change.kind in ("write", "truncate", "fsync"):
            found = self._at(change.path)
            if change.kind == "fsync":
                found.flushed = dict(found.names) if isinstance(found, _Folder) else found.content
                if isinstance(found, _Folder):
                    found.since = []
            elif change.kind == "truncate":
                found.content = found.content[: change.at].ljust(change.at, b"\0")
            else:
                content = change.content[: int(share * len(change.content))]
                found.content = (
                    found.content[: change.at].ljust(change.at, b"\0") + content + found.content[change.at + len(content) :]
                )
            return
        above, name = self._above(change.path)
        if change.kind in ("make", "mkdir"):
            new = _File() if change.kind == "make" else _Folder()
            above.change(lambda names: names.__setitem__(name, new))
        elif change.kind in ("unlink", "rmdir"):
            above.change(lambda names: names.pop(name, None))
        else:
            there, other = self._above(change.to)
            moved = above.names[name]
            if change.kind == "rename" and there is above:
                above.change(lambda names: _move(names, name, other))
                return
            there.change(lambda names: names.__setitem__(other, moved))
            if change.kind == "rename":
                above.change(lambda names: names.pop(name, None))

    def tree(self) -> Tree:
        """As they are now: what a process that dies leaves."""
        return _listed(self._root, lambda folder: folder.names, lambda file: file.content)

    def lost(self) -> Tree:
        """Only what was flushed."""
        return _listed(self._root, lambda folder: folder.flushed, lambda file: file.flushed or b"")

    def hollow(self, how: Callable[[_File], bytes]) -> Tree:
        """All names; files that were not flushed hold something else."""
        return _listed(self._root, lambda folder: folder.names, how)

    def empty(self) -> Tree:
        """All names, but nothing in a file that was not flushed."""
        return self.hollow(lambda file: file.content if file.flushed == file.content else b"")

    def zeros(self) -> Tree:
        """All names, but zeros in a file that was not flushed."""
        return self.hollow(lambda file: file.content if file.flushed == file.content else bytes(len(file.content)))

    def some(self, rng: np.random.Generator) -> Tree:
        """Of each folder a first part of its changes, of each file that was not flushed one of what may be left."""
        chosen: dict[int, dict[str, Any]] = {}

        def names(folder: _Folder) -> dict[str, Any]:
            if id(folder) not in chosen:
                kept = dict(folder.flushed)
                for how in folder.since[: int(rng.integers(len(folder.since) + 1))]:
                    how(kept)
                chosen[id(folder)] = kept
            return chosen[id(folder)]

        def content(file: _File) -> bytes:
            if file.flushed == file.content:
                return file.content
            half = file.content[: len(file.content) // 2]
            left = [
                file.flushed or b"",
                b"",
                bytes(len(file.content)),
                half,
                half.ljust(len(file.content), b"\0"),
                file.content,
            ]
            return left[int(rng.integers(len(left)))]

        return _listed(self._root, names, content)


def _listed(root: _Folder, names: Callable[[_Folder], dict[str, Any]], content: Callable[[_File], bytes]) -> Tree:
    found: Tree = {}

    def walk(folder: _Folder, above: str) -> None:
        for name, one in names(folder).items():
            path = f"{above}{name}"
            if isinstance(one, _Folder):
                found[path] = None
                walk(one, f"{path}/")
            else:
                found[path] = content(one)

    walk(root, "")
    return found


class Journal:
    """Changes from a beginning.

    Args:
      beginning: files before the first change, all of them flushed.
      changes: in order.
    """

    def __init__(self, beginning: Tree, changes: Sequence[Change]):
        self.beginning, self.changes = beginning, list(changes)

    def __len__(self) -> int:
        return len(self.changes)

    def after(self, number: int, share: float = 0.0) -> Files:
        """Files after the first `number` changes, and after a share of the bytes of the next."""
        files = Files(self.beginning)
        for change in self.changes[:number]:
            files.do(change)
        if share:
            files.do(self.changes[number], share)
        return files


def read_tree(folder: Path) -> Tree:
    """All that is in a folder."""
    return {
        str(p.relative_to(folder)): None if p.is_dir() else p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_dir() or p.is_file()
    }


def write_tree(folder: Path, tree: Tree) -> None:
    """Puts files into a folder that is new, or empty."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in sorted(tree.items()):
        if content is None:
            (folder / path).mkdir(exist_ok=True)
        else:
            (folder / path).write_bytes(content)
