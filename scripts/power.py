"""Ends calls between every two disk changes, like `kill -9` and like a power cut, and checks the store.

    python scripts/power.py --points 0 --seed 0

Each disk change of a call is a moment at which the call could have ended: the files of that moment are put into a new folder, `load` reads
it, and the same call of `simulate` continues. The kind of end decides which files remain:

    killed: all changes up to that moment. in the middle: also half of the bytes of the next write.
    flushed: only flushed (fsync) content. names: all files, but empty if not flushed. zeros: the same, but full of zeros.
    some: a random subset of the unflushed changes of names; an unflushed file has no bytes, half of them, zeros or all.

The call is a new one, or it continues another, joins many packs, or replaces a pack with a damaged cell. Exit status 1 as for `chaos.py`, and if
a cell is lost that was durable. Stores that differ only in leftovers (`.partial`) are checked once.
"""

import argparse
import contextlib
import copy
import dataclasses
import itertools
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from chaos import LOST, SEEDS, Change, Files, Random, Table, flipped, look, packs_of, read_files, run, watch, write_files

from jaxroute.store import packs, places


@dataclasses.dataclass
class File:
    """File with its content and the content already flushed to the disk; both are None for a folder."""

    content: bytes | None = b""
    flushed: bytes | None = b""


Names = dict[str, File | None]  # Files by path; None for one that is gone.


class Disk:
    """Model of a disk: files in memory, and what may remain of them after a power cut, when POSIX guarantees only flushed content."""

    def __init__(self, files: Files):
        self.names: Names = {path: File(content, content) for path, content in files.items()}
        self.kept = dict(self.names)
        self.since: dict[str, list[Names]] = {}  # Changes of names that were not flushed, by folder.

    def do(self, change: Change) -> None:
        """Applies a change to the files."""
        path, file = change.path, self.names.get(change.path)
        if change.kind == "write" and file:
            file.content += change.content
        elif change.kind == "fsync":
            for names in self.since.pop(path, []):
                self.kept |= names
            if file:
                file.flushed = file.content
        elif change.kind != "kept":
            new = {"make": {path: File()}, "mkdir": {path: File(None, None)}, "replace": {path: None, change.to: file}}
            names = new.get(change.kind, {path: None})
            self.names |= names
            self.since.setdefault(os.path.dirname(path) or ".", []).append(names)

    def files(self, unflushed: Callable[[File], bytes] = lambda file: file.content, names: Names | None = None) -> Files:
        """Returns the files that the given names reach (default: all); `unflushed` maps a file that is not flushed to its content."""
        found: Files = {}
        for path, file in sorted((self.names if names is None else names).items()):
            if file and os.path.dirname(path) in ("", *found):
                found[path] = file.content if file.flushed == file.content else unflushed(file)
        return found

    def left(self, following: Change | None, rng: Random) -> Iterator[tuple[str, Files]]:
        """Yields pairs of a kind of end, as listed in the module, and the files that remain if the call ends before the change `following`."""

        def part(file: File) -> bytes:
            half, zeros = file.content[: len(file.content) // 2], bytes(len(file.content))
            return [file.flushed, zeros, half, half.ljust(len(zeros), b"\0"), file.content][rng.integers(5)]

        names = dict(self.kept)
        for new in itertools.chain(*self.since.values()):
            names |= new if rng.integers(2) else {}
        yield "killed", self.files()
        yield "flushed", self.files(lambda file: file.flushed, self.kept)
        yield "names", self.files(lambda file: b"")
        yield "zeros", self.files(lambda file: bytes(len(file.content)))
        yield "some", self.files(part, names)
        if following and following.content:
            disk = copy.deepcopy(self)
            disk.do(following._replace(content=following.content[: len(following.content) // 2]))
            yield "in the middle", disk.files()


def cells_of(folder: Path) -> set[bytes]:
    """Returns the addresses of all undamaged cells, the stored units of results, in a store."""
    with contextlib.closing(packs.PackStore(places.place_of(folder))) as store:
        return set(store.get(list(store.where)))


def beginnings(folder: Path, keep: str) -> dict[str, tuple[Files, int]]:
    """Returns the files with which each kind of call starts, by its name, and the number of small packs above which it joins packs."""
    with packs_of(1):
        run(folder / "smaller" / "out", keep, seeds=SEEDS[keep] // 2 + 1)
        run(folder / "whole" / "out", keep)
    smaller, whole = (read_files(folder / name) for name in ("smaller", "whole"))
    half = {path: content for i, (path, content) in enumerate(sorted(whole.items())) if content is None or i % 2}
    name = max(whole, key=lambda path: len(whole[path] or b""))  # It has a cell, other than packs of notes alone.
    damaged = whole | {name: flipped(whole[name][:20], np.random.default_rng(0)) + whole[name][20:]}
    return {"new": ({}, 1000), "continued": (half, 1000), "joined": (smaller, 1), "mended": (damaged, 1000)}


def power(keep: str, folder: Path, table: Table, *, points: int, seed: int) -> dict[str, int]:
    """Ends each call in every way, at `points` random moments or at all (0), and checks the store; returns the number of moments by call."""
    rng, numbers, work = np.random.default_rng(seed), dict[str, int](), folder / f"work-{keep}"
    right, smaller = run(None, keep), run(None, keep, seeds=SEEDS[keep] // 2 + 1)
    for start, (beginning, tidy) in beginnings(folder / f"before-{keep}", keep).items():
        recorded = write_files(folder / f"recorded-{keep}", beginning)
        with warnings.catch_warnings(), packs_of(1, tidy), watch(recorded) as changes:
            warnings.simplefilter("ignore")
            run(recorded / "out", keep)
        disk, seen, length = Disk(beginning), set(), len(changes)
        cells = cells_of(write_files(work, beginning) / "out")  # Written for good.
        moments = {*(rng.choice(length, min(points, length), replace=False) if points else range(length)), length}
        numbers[start] = len(moments)
        for number, change in enumerate([*changes, None]):
            for kind, files in disk.left(change, rng) if number in moments else ():
                whole = frozenset((path, content) for path, content in files.items() if not path.endswith(".partial"))
                if (form := (whole, frozenset(cells), number == length)) not in seen:
                    seen.add(form)
                    lost = len(cells - cells_of(write_files(work, files) / "out"))
                    outcome, bad = look(work / "out", keep, right, [smaller], lost=True, sound=number == length)
                    bad += [(LOST, f"{lost} cells that had been written")] if lost else []
                    table.add(kind, f"{keep}, {start}: after {number} of {length} changes", outcome, bad)
            if change and change.kind == "kept" and (file := disk.names.get(change.path)):
                cells |= cells_of(write_files(work, {"store": None, f"store/{Path(change.path).name}": file.content}))
            elif change:
                disk.do(change)
        seen_all = disk.files() == read_files(recorded)
        table.wrong += [] if seen_all else [f"{keep}, {start}: something changed files that was not seen"]
    return numbers


def main() -> int:
    """Runs all tests and prints tables of ends and failures; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=0, help="moments of each call, besides its end (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of what is random (default 0)")
    options, bad = parser.parse_args(), False
    with tempfile.TemporaryDirectory() as folder:
        for keep in SEEDS:
            numbers = power(keep, Path(folder), table := Table(), **vars(options))
            bad |= table.print(f'keep="{keep}", moments by call: {numbers}')
    return int(bad)


if __name__ == "__main__":
    raise SystemExit(main())
