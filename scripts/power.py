"""Ends calls between every two changes to the disk, as `kill -9` and as a power cut do, and looks what is left of the store.

    python scripts/power.py --points 0 --seed 0

Each change of a call to the disk is written down, and is a moment at which the call could have ended: the files of that moment are put into a
new folder, `load` reads it, and the same call of `simulate` goes on. What is left, by kind of end:

    killed: everything up to that moment. in the middle: and half of the bytes of the write that comes next.
    flushed: only what was flushed (fsync). names: all names, but no bytes in files that were not flushed. zeros: or zeros.
    some: of the changes of names that were not flushed any, of each file that was not flushed nothing, a half, zeros or all, at random.

The call is a new one, or it continues another, joins many packs, or replaces a pack with a damaged cell. Exit status 1 as for `chaos.py`, and if
a cell is lost that had been written for good. Stores that differ in leftovers (`.partial`) alone are looked at once.
"""

import argparse
import contextlib
import dataclasses
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from chaos import LOST, SEEDS, Change, Random, Table, Watch, cleared, flipped, look, packs_of, play

from jaxroute.store import packs, places

# Content of each file by its place below a folder, None for a folder.
Tree = dict[str, bytes | None]


@dataclasses.dataclass
class File:
    """What a file holds, and what of it is on the disk itself."""

    content: bytes = b""
    flushed: bytes = b""


Names = dict[str, File | None]


class Disk:
    """Files in memory, and what of them a power cut may leave: POSIX promises what was flushed, and no more."""

    def __init__(self, tree: Tree):
        self.names = {path: None if content is None else File(content, content) for path, content in tree.items()}
        self.kept = dict(self.names)
        self.since: list[tuple[str, Names, set[str]]] = []  # Folder, new names and old ones.

    def do(self, change: Change, share: float = 1.0) -> None:
        """Changes the files; of a write the first `share` of its bytes."""
        path, new, old = change.path, Names(), set[str]()
        found = self.names.get(path)
        if change.kind == "write" and found is not None:
            found.content += change.content[: int(share * len(change.content))]
        elif change.kind == "fsync" and found is not None:
            found.flushed = found.content
        elif change.kind == "fsync":
            for one in [one for one in self.since if one[0] == path]:
                self.since.remove(one)
                self.kept = applied(self.kept, *one[1:])
        elif change.kind in ("make", "mkdir"):
            new = {path: File() if change.kind == "make" else None}
        elif change.kind == "replace":
            new, old = {change.to: found}, {path}
        elif change.kind == "unlink":
            old = {path}
        if new or old:
            self.names = applied(self.names, new, old)
            self.since.append((os.path.dirname(path) or ".", new, old))

    def tree(self, unflushed: Callable[[File], bytes] = lambda file: file.content, names: Names | None = None) -> Tree:
        """All names, or some, that can be reached; files that were not flushed hold what is said."""
        found: Tree = {}
        for path, file in sorted((self.names if names is None else names).items()):
            if os.path.dirname(path) in ("", *found):
                found[path] = None if file is None else file.content if file.flushed == file.content else unflushed(file)
        return found

    def lost(self) -> Tree:
        """Only what was flushed."""
        return self.tree(lambda file: file.flushed, self.kept)

    def some(self, rng: Random) -> Tree:
        """Of the changes of names that were not flushed any, and of each file that was not flushed any of what may be left."""

        def content(file: File) -> bytes:
            half = file.content[: len(file.content) // 2]
            zeros = bytes(len(file.content))
            return [file.flushed, zeros, half, half.ljust(len(zeros), b"\0"), file.content][rng.integers(5)]

        names = dict(self.kept)
        for _, new, old in self.since:
            if rng.integers(2):
                names = applied(names, new, old)
        return self.tree(content, names)


def applied(names: Names, new: Names, old: set[str]) -> Names:
    """Names after a change."""
    return {path: file for path, file in (names | new).items() if path not in old}


def read_tree(folder: Path) -> Tree:
    """All that is in a folder."""
    return {str(p.relative_to(folder)): None if p.is_dir() else p.read_bytes() for p in sorted(folder.rglob("*"))}


def write_tree(folder: Path, tree: Tree) -> Path:
    """Puts files into a folder, in place of those before."""
    cleared(folder).mkdir(parents=True)
    for path, content in sorted(tree.items()):
        (folder / path).mkdir() if content is None else (folder / path).write_bytes(content)
    return folder


def cells_of(folder: Path) -> set[bytes]:
    """Addresses of all cells in a store that are what was written."""
    with contextlib.closing(packs.Store(places.place_of(folder))) as store:
        return set(store.get(list(store.where)))


class Recording:
    """A call that was written down: its changes, and the cells that were written for good before each of them, and at the end."""

    def __init__(self, folder: Path, keep: str, beginning: Tree, tidy: int):
        write_tree(folder, beginning)
        self.beginning, disk = beginning, Disk(beginning)
        with warnings.catch_warnings(), packs_of(1, tidy), Watch(folder) as watch:
            warnings.simplefilter("ignore")
            play(folder / "out", keep)
        self.changes, final = watch.changes, read_tree(folder)
        self.cells = [frozenset(cells_of(write_tree(folder, beginning) / "out"))]
        for change in self.changes:
            disk.do(change)
            kept = self.cells[-1]
            if change.kind == "kept" and (file := disk.names.get(change.path)) is not None:
                kept = kept | cells_of(write_tree(folder, {"store": None, f"store/{Path(change.path).name}": file.content}))
            self.cells.append(kept)
        self.missed = disk.tree() != final

    def left(self, number: int, rng: Random) -> Iterator[tuple[str, Tree]]:
        """What may be left after some changes, by kind of end."""
        disk = Disk(self.beginning)
        for change in self.changes[:number]:
            disk.do(change)
        yield "killed", disk.tree()
        yield "flushed", disk.lost()
        yield "names", disk.tree(lambda file: b"")
        yield "zeros", disk.tree(lambda file: bytes(len(file.content)))
        yield "some", disk.some(rng)
        if number < len(self.changes) and self.changes[number].content:
            disk.do(self.changes[number], 0.5)
            yield "in the middle", disk.tree()


def beginnings(folder: Path, keep: str) -> dict[str, tuple[Tree, int]]:
    """Files before the calls that are ended, and how many small packs these leave."""
    with packs_of(1):
        play(folder / "smaller" / "out", keep, seeds=SEEDS[keep] // 2 + 1)
        play(folder / "whole" / "out", keep)
    smaller, whole = (read_tree(folder / name) for name in ("smaller", "whole"))
    half = {path: content for i, (path, content) in enumerate(sorted(whole.items())) if content is None or i % 2}
    name, content = next((name, content) for name, content in sorted(whole.items()) if content)
    damaged = whole | {name: flipped(content[:20], np.random.default_rng(0)) + content[20:]}
    return {"new": ({}, 1000), "continued": (half, 1000), "joined": (smaller, 1), "mended": (damaged, 1000)}


def power(keep: str, folder: Path, table: Table, *, points: int, seed: int) -> dict[str, int]:
    """Ends calls in every way and at some `points`, or all (0); returns the number of moments by call."""
    rng, numbers, work = np.random.default_rng(seed), dict[str, int](), folder / f"work-{keep}"
    right, smaller = play(None, keep), play(None, keep, seeds=SEEDS[keep] // 2 + 1)
    for start, (beginning, tidy) in beginnings(folder / f"before-{keep}", keep).items():
        recording, seen = Recording(folder / f"recorded-{keep}", keep, beginning, tidy), set()
        table.wrong += [f"{keep}, {start}: something changed files that was not seen"] if recording.missed else []
        length = len(recording.changes)
        moments = rng.choice(length, min(points, length), replace=False).tolist() if points else range(length)
        numbers[start] = len(moments) + 1
        for number in (*moments, length):
            for kind, tree in recording.left(number, rng):
                files = frozenset((path, content) for path, content in tree.items() if not path.endswith(".partial"))
                form = files, recording.cells[number], number == length
                if form not in seen:
                    seen.add(form)
                    write_tree(work, tree)
                    lost = len(recording.cells[number] - cells_of(work / "out"))
                    outcome, bad = look(work / "out", keep, right, [smaller], lost=True, sound=number == length)
                    bad += [(LOST, f"{lost} cells that had been written")] if lost else []
                    table.add(kind, f"{keep}, {start}: after {number} of {length} changes", outcome, bad)
    return numbers


def main() -> int:
    """Prints a table of ends, and what must not happen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=0, help="moments of each call, besides its end (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of what is random (default 0)")
    options, wrong = parser.parse_args(), 0
    with tempfile.TemporaryDirectory() as name:
        for keep in ("runs", "moments"):
            table, start = Table(), time.monotonic()
            numbers = power(keep, Path(name), table, **vars(options))
            table.print(f'keep="{keep}", moments by call: {numbers}; {time.monotonic() - start:.0f} s')
            wrong += len(table.wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
