"""Ends runs between every two writes, as `kill -9` and as a power cut do, and looks what is left of the store.

    python scripts/power.py --points 0 --seed 0

A run is played once, and every change that it makes to the disk is written down (`disk.py`). Each of these is then a moment at which it could have
ended: the files of that moment are put into a new folder, `load` reads it, and the same call of `simulate` goes on. What is left, by
kind of end:

    killed: everything up to that moment. in the middle: and half of the bytes of the write that comes next.
    flushed: only what was flushed (fsync). names: all names, but no bytes in files that were not flushed. zeros: or zeros.
    some: of each folder a first part of its changes, of each file that was not flushed old, none, half, zeros or all, at random.

Runs that are ended: a new one, and those that continue an unfinished store, have one of fewer seeds grow, mend a damaged block, or write damaged
descriptions again.
Chains end a run, the run that goes on, and so forth. Children are killed by themselves at such a moment, and what they leave
is compared with what the journal says. Exit status 1 if anything was wrong, refused without need, said badly or lost.
"""

import argparse
import collections
import contextlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from chaos import SEEDS, Counts, cut, data, descriptions, flip, look, play
from disk import Change, Files, Journal, Tree, Watch, read_tree, write_tree

import jaxroute as jr
from jaxroute.store import moments, runs
from jaxroute.store.description import DONE, STORE_NAME

OUT = "out"
# Seeds of a store that grows: its last block is not whole.
FEWER = SEEDS // 2 + 1


@contextlib.contextmanager
def replaced(owner: Any, name: str, function: Any) -> Iterator[None]:
    """Something else in the place of a function."""
    before = getattr(owner, name)
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, before)


class Recording:
    """A run that was written down.

    journal: its changes, from what was there before.
    missed: changes that are not in it.
    played: number of blocks.

    Args:
      folder: a new one.
      keep: of the run.
      beginning: what is in the folder before.
      flush: after each block, as if each took its time.
    """

    def __init__(self, folder: Path, keep: str, beginning: Tree, flush: bool = False):
        write_tree(folder, beginning)
        tasks: list[Any] = []
        done: list[tuple[int, int]] = []
        sink = {"runs": runs.RunSink, "moments": moments.MomentSink}[keep]
        write = sink.write

        def counted(self: Any, policy: str, tile: Any, block: int, *values: Any) -> None:
            write(self, policy, tile, block, *values)
            tasks.append((policy, tile, block))
            done.append((len(watch.changes), sum(self.is_done(*task) for task in tasks)))

        with contextlib.ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            stack.enter_context(replaced(sink, "write", counted))
            stack.enter_context(replaced(runs, "_FLUSH_S", 0.0 if flush else runs._FLUSH_S))
            watch = stack.enter_context(Watch(folder))
            play(folder / OUT, keep)
        self.missed, self.played, self._done = watch.missed, len(tasks), done
        self._at_once = flush or keep == "moments"
        self._abreast = max(collections.Counter(block for _, _, block in tasks).values(), default=0)
        self.journal = Journal(beginning, watch.changes)
        if self.journal.after(len(self.journal)).tree() != read_tree(folder):
            self.missed = [*self.missed, "something that changed files without Python"]

    def done(self, number: int) -> int:
        """Blocks that were finished after some changes."""
        return max((blocks for changes, blocks in self._done if changes <= number), default=0)

    def spare(self, number: int) -> int:
        """Finished blocks that a power cut may cost: none at the end, the last ones if each is flushed, never those of earlier runs."""
        if number == len(self.journal):
            return 0
        return min(self.done(number), self._abreast) if self._at_once else self.done(number)

    @property
    def end(self) -> int:
        """Changes before the end of the run, when all blocks are finished."""
        return self._done[-1][0] if self._done else 0


Left = Callable[[Files, np.random.Generator], Tree]
KILLS = ("killed", "in the middle")
POWER: dict[str, Left] = {
    "flushed": lambda files, rng: files.lost(),
    "names": lambda files, rng: files.empty(),
    "zeros": lambda files, rng: files.zeros(),
    "some": lambda files, rng: files.some(rng),
}


def left(recording: Recording, number: int, rng: np.random.Generator) -> Iterator[tuple[str, Tree]]:
    """What may be left after some changes, by kind of end."""
    journal = recording.journal
    files = journal.after(number)
    yield "killed", files.tree()
    if number < len(journal) and len(journal.changes[number].content) > 1:
        yield "in the middle", journal.after(number, 0.5).tree()
    for kind, how in POWER.items():
        yield kind, how(files, rng)


def beginnings(folder: Path, keep: str) -> dict[str, Tree]:
    """Files before runs that are ended."""
    new = Recording(folder / "new", keep, {})
    half = new.journal.after(next(n for n in range(len(new.journal)) if new.done(n) >= new.played // 2)).tree()

    def damaged(*how: Callable[[Path], Any]) -> Tree:
        place = folder / "damaged"
        shutil.rmtree(place, ignore_errors=True)
        write_tree(place, read_tree(folder / "new"))
        for one in how:
            one(place / OUT / STORE_NAME)
        return read_tree(place)

    play(folder / "smaller" / OUT, keep, seeds=FEWER)
    rng = np.random.default_rng(0)
    block = [
        p for p in data(folder / "new" / OUT / STORE_NAME) if p.parts[-2] not in ("seed", "time") and DONE not in p.parts
    ]
    inside = str((block or data(folder / "new" / OUT / STORE_NAME))[-1].relative_to(folder / "new" / OUT / STORE_NAME))
    return {
        "new": {},
        "flushed often": {},
        "continued": half,
        "grown": read_tree(folder / "smaller"),
        "mended": damaged(lambda store: flip(store / inside, rng)),
        "described again": damaged(lambda store: cut(descriptions(store)[0], rng)),
        "described twice": damaged(*(lambda store, i=i: cut(descriptions(store)[i], rng) for i in range(2))),
    }


class Tally:
    """Outcomes by kind of end, what must not happen, and blocks that were finished and lost.

    Args:
      keep: of the runs.
      folder: for work.
      right: the result. smaller: that of the store that grows, which it holds until the larger one takes its place.
    """

    def __init__(self, keep: str, folder: Path, right: xr.Dataset, smaller: xr.Dataset):
        self.keep, self.folder, self.right, self.smaller = keep, folder, right, smaller
        self.outcomes: Counts = collections.Counter()
        self.lost: dict[str, int] = {}
        self.wrong: list[str] = []

    def put(self, tree: Tree) -> Path:
        """Puts files into the folder for work, in place of those before."""
        shutil.rmtree(self.folder, ignore_errors=True)
        write_tree(self.folder, tree)
        return self.folder / OUT

    def add(self, kind: str, what: str, tree: Tree, due: int | None = None, spare: int = 0, grows: bool = False) -> None:
        """Looks at one store, of which `due` blocks are to be played, or at most `spare` more; one that `grows` may still be smaller."""
        outcome, played, wrong = look(self.put(tree), self.keep, self.right, self.smaller if grows else None)
        if "not continued" in outcome and not wrong:
            wrong = ["it was not continued"]
        self.outcomes[kind, outcome] += 1
        if due is not None:
            self.lost[kind] = max(self.lost.get(kind, 0), played - due)
            if played > due + spare:
                wrong = [*wrong, f"{played - due} finished blocks were played again"]
        self.wrong += [f"{self.keep}: {kind}: {what}: {one}" for one in wrong]


def ends(tally: Tally, start: str, recording: Recording, points: int, rng: np.random.Generator) -> int:
    """Ends one run at each of its changes in every way, or at some of them and at all at its end, with one power cut each; returns their
    number."""
    journal = recording.journal
    numbers = np.arange(len(journal) + 1)
    if points and points < len(numbers):
        chosen = rng.choice(len(numbers), points, replace=False)
        numbers = np.union1d(numbers[recording.end :], chosen)
    seen = set()
    tally.wrong += [f"{tally.keep}: {start}: {one} was not seen" for one in recording.missed]
    for number in map(int, numbers):
        change = journal.changes[number] if number < len(journal) else Change("end", "")
        what = f"{start}: {number} of {len(journal)}, before {change.kind} {change.path}"
        cuts = rng.choice(list(POWER), 1 if points else len(POWER), replace=False)
        for kind, tree in left(recording, number, rng):
            if kind in POWER and kind not in cuts:
                continue
            form = (kind in KILLS, frozenset(tree.items()))
            if form not in seen:
                seen.add(form)
                done = recording.done(number)
                spare = 0 if kind in KILLS else recording.spare(number)
                tally.add(kind, what, tree, recording.played - done, spare, grows=start == "grown")
    return len(numbers)


def chain(tally: Tally, links: int, rng: np.random.Generator) -> None:
    """A run that is ended, the run that goes on, and so forth; each time by a kind of end, at a moment, at random."""
    tree: Tree = {}
    told = []
    for link in range(links):
        folder = tally.folder.with_name(f"{tally.folder.name}-{link}")
        shutil.rmtree(folder, ignore_errors=True)
        try:
            recording = Recording(folder, tally.keep, tree)
        except Exception as error:
            tally.wrong.append(f"{tally.keep}: chain: {told}: the same run says {type(error).__name__}: {error}")
            return
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        number = int(rng.integers(len(recording.journal) + 1))
        kinds = dict(left(recording, number, rng))
        kind = list(kinds)[int(rng.integers(len(kinds)))]
        tree = kinds[kind]
        told.append(f"{kind} {number} of {len(recording.journal)}")
    tally.add("chain", " then ".join(told), tree)


def die(folder: Path, keep: str, number: int, half: bool, notes: Path) -> None:
    """Plays, and kills this process before a change, or in the middle of it; the journal is in `notes`."""

    def before(done: int, change: Change) -> None:
        if done < number:
            return
        with watch.lock:
            torn = half and len(change.content) > 1
            notes.write_bytes(pickle.dumps((watch.changes, change if torn else None)))
            if torn:
                handle = os.open(folder / change.path, os.O_WRONLY)
                os.pwrite(handle, change.content[: len(change.content) // 2], change.at)
            os.kill(os.getpid(), signal.SIGKILL)

    with Watch(folder, before) as watch:
        play(folder / OUT, keep)


def real(tally: Tally, beginning: Tree, length: int, number: int, rng: np.random.Generator) -> None:
    """Kills children for good, and compares what they leave with what their journals say."""
    for point in sorted(rng.choice(length, min(number, length), replace=False)):
        tally.put(beginning)
        notes = tally.folder.with_suffix(".journal")
        command = [
            sys.executable,
            __file__,
            "--die",
            str(point),
            "--notes",
            notes,
            "--folder",
            tally.folder,
            "--keep",
            tally.keep,
        ]
        done = subprocess.run([*map(str, command), *(["--half"] * int(rng.integers(2)))], capture_output=True, text=True)
        what = f"a child after {point} changes"
        if done.returncode != -signal.SIGKILL:
            tally.wrong.append(f"{tally.keep}: {what}: it ended with {done.returncode}: {done.stderr[-500:]}")
            continue
        changes, torn = pickle.loads(notes.read_bytes())
        files = Journal(beginning, changes).after(len(changes))
        if torn is not None:
            files.do(torn, 0.5)
        tree = read_tree(tally.folder)
        if tree != files.tree():
            tally.wrong.append(f"{tally.keep}: {what}: its journal says something else")
        tally.add("a child killed", what, tree)


def power(
    keep: str, folder: Path, *, points: int, chains: int, links: int, children: int, seed: int
) -> tuple[Tally, dict[str, int]]:
    """Ends runs in every way.

    Args:
      keep: of the runs.
      folder: for work.
      points: moments of each run at which it is ended, besides all at its end; 0 for all.
      chains, links: number and length of chains.
      children: processes that are killed.
      seed: of what is random.

    Returns:
      What came of it, and the moments by run.
    """
    rng = np.random.default_rng(seed)
    starts = beginnings(folder / f"before-{keep}", keep)
    smaller = jr.load(folder / f"before-{keep}" / "smaller" / OUT)
    tally = Tally(keep, folder / f"work-{keep}", play(None, keep), smaller)
    numbers = {}
    for i, (start, beginning) in enumerate(starts.items()):
        recording = Recording(folder / f"recorded-{keep}-{i}", keep, beginning, flush=start == "flushed often")
        numbers[start] = ends(tally, start, recording, points, rng)
        if start == "new":
            length = len(recording.journal)
    for _ in range(chains):
        chain(tally, links, rng)
    real(tally, starts["new"], length, children, rng)
    return tally, numbers


def main() -> int:
    """Prints a table of ends and outcomes, and what must not happen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=0, help="moments of each run, besides all at its end (default: all)")
    parser.add_argument("--chains", type=int, default=50, help="runs that are ended again and again (default 50)")
    parser.add_argument("--links", type=int, default=4, help="ends in a chain (default 4)")
    parser.add_argument("--children", type=int, default=5, help="processes that are killed (default 5)")
    parser.add_argument("--seed", type=int, default=0, help="of what is random (default 0)")
    parser.add_argument(
        "--keep", choices=["runs", "moments"], nargs="*", default=["runs", "moments"], help="kinds of stores"
    )
    for name in ("--die", "--notes", "--folder"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--half", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.die is not None:
        die(Path(options.folder), options.keep[0], int(options.die), options.half, Path(options.notes))
        return 1
    sizes = {name: getattr(options, name) for name in ("points", "chains", "links", "children", "seed")}
    bad: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        for keep in options.keep:
            tally, numbers = power(keep, Path(name), **sizes)
            bad += tally.wrong
            moments_ = ", ".join(f"{number} of {start}" for start, number in numbers.items())
            print(f'\nkeep="{keep}", ended at {moments_}; {sum(tally.outcomes.values())} stores')
            for (kind, outcome), times in sorted(tally.outcomes.items()):
                print(f"  {times:5d}  {kind}: {outcome}")
            for kind in POWER:
                print(f"  finished blocks lost at most, {kind}: {tally.lost.get(kind, 0)}")
    print(f"\n{len(bad)} that must not happen", *bad, sep="\n  ")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
