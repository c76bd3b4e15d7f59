"""Damages stores and disturbs runs, at random, and looks what happens: wrong values without a word, sound stores refused, messages that do
not help.

    python scripts/chaos.py --faults 1000 --events 200 --kills 10 --seed 0

Faults are damage to a finished store, which was moved before. Events befall a run, a new one or one that goes on, before one of its changes
to the disk. Kills end a process at any time. Of every kind it counts how often `load` gave right values, gave them from the second
copy, or refused; and whether the same call of `simulate` then gave the right values. Exit status 1 if anything was wrong, refused without
need, or said badly. What a power cut leaves is in `power.py`.
"""

import argparse
import collections
import contextlib
import errno
import linecache
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from disk import Change, Watch

import jaxroute as jr
from jaxroute.engine import programs
from jaxroute.problems import stochastic
from jaxroute.store.description import DONE, STORE_NAME

Counts = collections.Counter[tuple[str, str]]
Fault = Callable[[Path, np.random.Generator], str]
HORIZON, SEEDS, BLOCK = 60, 40, 8
# What `load` says where there is nothing yet.
NOTHING = f"has no {STORE_NAME}|holds something else"


def play(out: Path | None, keep: str, key: int = 0, seeds: int = SEEDS) -> xr.Dataset:
    """The run whose store is damaged: a grid of two settings, and a policy without."""
    policies = {"ucb": jr.grid(stochastic.UCB1, width=[0.5, 1.0]), "thompson": stochastic.GaussianThompson()}
    options: dict[str, Any] = {"record": ["regret", "pulls"], "record_every": 20, "block": BLOCK, "progress": False}
    env = stochastic.bernoulli([0.6, 0.4, 0.5])
    return jr.simulate(env, policies, horizon=HORIZON, seeds=seeds, out=out, keep=keep, key=key, **options)


def descriptions(store: Path) -> list[Path]:
    """Both descriptions of a store."""
    return [store / "zarr.json", store / DONE / "zarr.json"]


def data(store: Path) -> list[Path]:
    """What is no description: chunks, marks, statistics, coordinates."""
    return sorted(p for p in store.rglob("*") if p.is_file() and p.name != "zarr.json")


def flip(file: Path, rng: np.random.Generator) -> str:
    """One bit of a file."""
    content = bytearray(file.read_bytes())
    if not content:
        return ""
    place = int(rng.integers(len(content)))
    content[place] ^= 1 << int(rng.integers(8))
    file.write_bytes(content)
    return f"bit of byte {place} of {file.parent.name}/{file.name}"


def digit(file: Path, rng: np.random.Generator) -> str:
    """One digit of a file of text."""
    text = file.read_text()
    places = [m.start() for m in re.finditer(r"\d", text)]
    place = places[int(rng.integers(len(places)))]
    other = str((int(text[place]) + int(rng.integers(1, 10))) % 10)
    file.write_text(text[:place] + other + text[place + 1 :])
    return f"digit {place} of {file.parent.name}/{file.name}"


def cut(file: Path, rng: np.random.Generator) -> str:
    """The end of a file."""
    content = file.read_bytes()
    file.write_bytes(content[: int(rng.integers(len(content))) if content else 0])
    return f"end of {file.parent.name}/{file.name}"


def gone(file: Path, rng: np.random.Generator) -> str:
    """A file."""
    del rng
    file.unlink()
    return f"{file.parent.name}/{file.name}"


def of(files: Callable[[Path], list[Path]], how: Callable[[Path, np.random.Generator], str]) -> Fault:
    """A fault of one of some files."""

    def fault(store: Path, rng: np.random.Generator) -> str:
        some = files(store)
        return how(some[int(rng.integers(len(some)))], rng)

    return fault


def both(how: Callable[[Path, np.random.Generator], str]) -> Fault:
    """The same kind of fault of both descriptions."""
    return lambda store, rng: " and ".join(how(file, rng) for file in descriptions(store))


def arrays(store: Path) -> list[Path]:
    """Descriptions of arrays."""
    return sorted(p for p in store.glob("*/zarr.json") if p.parent.name != DONE)


def marks(store: Path) -> list[Path]:
    """Marks of blocks, or files of statistics."""
    return sorted(p for p in (store / DONE).rglob("*") if p.is_file() and p.name != "zarr.json")


def elsewhere(other: Path) -> Fault:
    """A whole cell with its mark, or a file of statistics, from a store of another key."""

    def fault(store: Path, rng: np.random.Generator) -> str:
        mark = marks(store)[int(rng.integers(len(marks(store))))]
        cell = mark.relative_to(store / DONE)
        copied = 0
        for array in (p.parent for p in other.glob("*/zarr.json")):
            for file in array.rglob("*"):
                place = file.relative_to(array)
                if file.is_file() and file.name != "zarr.json" and place.parts[: len(cell.parts)] == cell.parts:
                    (store / array.name / place).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, store / array.name / place)
                    copied += 1
        return f"{copied} files of {cell} from another key"

    return fault


def inside(store: Path, rng: np.random.Generator) -> str:
    """A whole cell with its mark, or a file of statistics, from another place in the same store."""
    some = [mark.relative_to(store / DONE) for mark in marks(store)]
    one, other = (some[i] for i in rng.permutation(len(some))[:2]) if len(some) > 1 else (some[0], Path("7-0.part"))
    for array in [store / DONE, *(p.parent for p in store.glob("*/zarr.json") if p.parent.name != DONE)]:
        for file in [p for p in array.rglob("*") if p.is_file()]:
            place = file.relative_to(array).parts
            if place[: len(one.parts)] == one.parts:
                shutil.copy(file, array.joinpath(*other.parts, *place[len(one.parts) :]))
    return f"{other} from {one}"


def over(other: Path) -> Fault:
    """Half of the files of another result, copied over it."""

    def fault(store: Path, rng: np.random.Generator) -> str:
        for file in sorted(p for p in other.rglob("*") if p.is_file()):
            if rng.integers(2):
                shutil.copy(file, store / file.relative_to(other))
        return "half of the files of another key"

    return fault


def zeros(file: Path, rng: np.random.Generator) -> str:
    """Zeros in the place of a file."""
    del rng
    file.write_bytes(bytes(file.stat().st_size))
    return f"zeros in {file.parent.name}/{file.name}"


def twice(file: Path, rng: np.random.Generator) -> str:
    """A file once more, under the names that synchronisers, editors and dead processes give."""
    name = [f"{file.stem} (1){file.suffix}", f"{file.name}~", f"{file.name}.partial", f"{file.stem}-1{file.suffix}"][
        rng.integers(4)
    ]
    shutil.copy(file, file.with_name(name))
    return f"{file.parent.name}/{file.name} as {name}"


def folder_gone(store: Path, rng: np.random.Generator) -> str:
    """A folder with all that is in it."""
    some = sorted(p for p in store.rglob("*") if p.is_dir())
    folder = some[int(rng.integers(len(some)))]
    shutil.rmtree(folder)
    return str(folder.relative_to(store))


def linked(store: Path, rng: np.random.Generator) -> str:
    """The folder is moved, and a link is left."""
    del rng
    out = store.parent
    there = out.with_name(f"{out.name}-there")
    shutil.rmtree(there, ignore_errors=True)
    out.rename(there)
    out.symlink_to(there)
    return f"to {there.name}"


def faults(other: Path) -> dict[str, tuple[float, Fault]]:
    """Kinds of faults, and how often each is tried."""
    return {
        "a bit of a description": (0.2, of(descriptions, flip)),
        "a digit of a description": (0.2, of(descriptions, digit)),
        "a description is cut": (0.04, of(descriptions, cut)),
        "a description is gone": (0.02, of(descriptions, gone)),
        "a bit of both descriptions": (0.04, both(flip)),
        "both descriptions are cut": (0.02, both(cut)),
        "a bit of a mark": (0.08, of(marks, flip)),
        "a mark is cut": (0.04, of(marks, cut)),
        "a mark is gone": (0.02, of(marks, gone)),
        "a bit of an array's description": (0.06, of(arrays, flip)),
        "a digit of an array's description": (0.04, of(arrays, digit)),
        "a bit of the data": (0.1, of(data, flip)),
        "data are cut": (0.05, of(data, cut)),
        "data are gone": (0.04, of(data, gone)),
        "a cell from another key": (0.05, elsewhere(other)),
        "a cell from another place": (0.04, inside),
        "files of another key over it": (0.04, over(other)),
        "zeros in the place of data": (0.03, of(data, zeros)),
        "zeros in the place of a description": (0.03, of(descriptions, zeros)),
        "a file once more": (0.04, of(lambda store: [*descriptions(store), *data(store)], twice)),
        "a folder is gone": (0.03, folder_gone),
        "behind a link": (0.02, linked),
    }


def same(one: xr.Dataset, other: xr.Dataset) -> bool:
    """Whether two results are equal in every bit of values, coordinates and labels."""
    try:
        xr.testing.assert_identical(one.drop_attrs(deep=False), other.drop_attrs(deep=False))
    except AssertionError:
        return False
    return True


def helps(error: BaseException, out: Path) -> bool:
    """Whether a message names the store and says what to do."""
    text = str(error)
    return (
        isinstance(error, (ValueError, OSError))
        and str(out) in text
        and bool(re.search("run it again|same command|choose", text, re.IGNORECASE))
    )


@contextlib.contextmanager
def blocks_played() -> Iterator[list[Any]]:
    """The blocks that are played meanwhile."""
    played: list[Any] = []
    run = programs.Block.play

    def counted(self: Any, tile: Any, seeds: Any, *begun: Any) -> Any:
        played.append(seeds[0])
        return run(self, tile, seeds, *begun)

    programs.Block.play = counted  # type: ignore[method-assign]
    try:
        yield played
    finally:
        programs.Block.play = run  # type: ignore[method-assign]


def same_where_done(found: xr.Dataset, right: xr.Dataset) -> bool:
    """Whether runs that are there are right."""
    there = np.isfinite(found["regret"].isel(time=-1).values)
    return all(np.array_equal(found[name].values[there], right[name].values[there], equal_nan=True) for name in right)


def read(out: Path, keep: str, right: xr.Dataset, other: xr.Dataset | None = None) -> tuple[str, list[str]]:
    """What `load` makes of a store, and what must not happen; the result may be another one, if it says so."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = jr.load(out)
            if same(found, right):
                return "read" if not said else "read, with a warning", []
            if other is not None and same(found, other) and found.attrs["settings"] == other.attrs["settings"]:
                return "read as the other one", []
            return "WRONG", ["wrong values were loaded"]
        except Exception as error:
            nothing = isinstance(error, ValueError) and re.search(NOTHING, str(error)) and str(out) in str(error)
            wrong = [] if nothing or helps(error, out) else [f"load says {type(error).__name__}: {error}"]
        if keep == "runs" and not nothing:
            try:
                part = jr.load(out, partial=True)
                of_other = other is not None and part.attrs["settings"] == other.attrs["settings"]
                if not same_where_done(part, other if of_other else right):
                    wrong.append("wrong values were loaded in part")
            except ValueError:
                pass  # There is not enough to know what belongs where.
    return "no result yet" if nothing else "refused", wrong


def look(out: Path, keep: str, right: xr.Dataset, other: xr.Dataset | None = None) -> tuple[str, int, list[str]]:
    """What comes of a store: an outcome, blocks that the same run played again, and what must not happen."""
    outcome, wrong = read(out, keep, right, other)
    with warnings.catch_warnings(), blocks_played() as played:
        warnings.simplefilter("ignore")
        try:
            again = play(out, keep)
            outcome += ", mended" if played else ", as it is"
            if not same(again, right) or not same(jr.load(out), right):
                outcome, wrong = "WRONG", [*wrong, "wrong values after playing again"]
        except jr.StoreMismatchError as error:
            outcome += ", not continued"
            if other is None or not helps(error, out):
                wrong.append(f"the same run says {type(error).__name__}: {error}")
        except Exception as error:
            outcome += ", NOT MENDED"
            wrong.append(f"the same run says {type(error).__name__}: {error}")
    if list(out.glob("*.lock")):
        wrong.append("a lock was left")
    return outcome, len(played), wrong


def cleared(out: Path) -> Path:
    """A folder's place, with nothing in it."""
    if out.is_symlink():
        out.unlink()
    shutil.rmtree(out, ignore_errors=True)
    return out


def chaos(number: int, seed: int, keep: str, folder: Path) -> tuple[Counts, list[str]]:
    """Outcomes by kind of fault, and what must not happen, in words."""
    whole, another, out = folder / f"whole-{keep}", folder / f"other-{keep}", folder / f"out-{keep}"
    right = play(whole, keep)
    other = play(another, keep, key=1)
    kinds = faults(another / STORE_NAME)
    chance = np.array([weight for weight, _ in kinds.values()])
    rng = np.random.default_rng(seed)
    outcomes: Counts = collections.Counter()
    wrong: list[str] = []
    for _ in range(number):
        kind = list(kinds)[int(rng.choice(len(kinds), p=chance / chance.sum()))]
        if not (arrays(whole / STORE_NAME) or "array" not in kind):
            continue
        shutil.copytree(whole, cleared(out))
        what = f"{keep}: {kind}: {kinds[kind][1](out / STORE_NAME, rng)}"
        outcome, _, bad = look(out, keep, right, other if kind == "files of another key over it" else None)
        outcomes[kind, outcome] += 1
        wrong += [f"{what}: {one}" for one in bad]
    return outcomes, wrong


class Scene:
    """A run that is disturbed.

    events: what may befall it, by name. Each gives an outcome, and what must not happen.

    Args:
      folder: for work.
      keep: of the run.
      seed: of what is random.
    """

    def __init__(self, folder: Path, keep: str, seed: int):
        self.keep, self.rng = keep, np.random.default_rng(seed)
        self.whole, self.folder = folder / f"finished-{keep}", folder / f"scene-{keep}"
        self.out, self.elsewhere = self.folder / "out", self.folder / "elsewhere"
        self.folder.mkdir()
        with Watch(folder) as watch:
            self.right = play(self.whole, keep)
        self.length = len(watch.changes)
        self.events: dict[str, Callable[[], tuple[str, list[str]]]] = {
            "full disk": lambda: self.fails([errno.ENOSPC], always=True),
            "a change fails": lambda: self.fails([errno.EIO, errno.EDQUOT, errno.EPERM, errno.EACCES, errno.ESTALE]),
            "read-only from some moment on": lambda: self.fails([errno.EROFS], always=True),
            "a read-only folder": self.read_only,
            "a limit of file size": lambda: self.limited(resource.RLIMIT_FSIZE, int(self.rng.integers(1, 6000))),
            "few file handles": self.few_handles,
            "no more threads": self.no_threads,
            "an interrupt": self.interrupted,
            "a reader": self.reader,
            "a second run": self.second,
            "a second run, the lock deleted": self.second_without_lock,
            "a copy meanwhile": self.copied,
            "the folder is moved": self.moved,
            "the folder is removed": lambda: self.met(lambda: shutil.rmtree(self.out)),
            "a link that leads nowhere yet": self.dangling,
        }

    def begin(self) -> int:
        """Puts an unfinished store into the folder, or none; returns at which change something happens."""
        cleared(self.out)
        cleared(self.elsewhere)
        if not self.rng.integers(3):
            return int(self.rng.integers(self.length))
        shutil.copytree(self.whole, self.out)
        for mark in marks(self.out / STORE_NAME):
            if self.rng.integers(2):
                mark.unlink()
        return int(self.rng.integers(self.length // 2))

    def play(self, before: Callable[[int, Change], None] | None = None) -> tuple[str, list[str]]:
        """Plays under a watch: an outcome, and what must not happen."""
        with warnings.catch_warnings(), Watch(self.folder, before) as watch:
            warnings.simplefilter("ignore")
            try:
                found = play(self.out, self.keep)
            except KeyboardInterrupt:
                return "ended", []
            except Exception as error:
                refused = "must be a folder that can be written to" in str(error) and str(self.out) in str(error)
                good = refused or helps(error, self.out)
                return "ended", [] if good else [f"the run says {type(error).__name__}: {error}"]
        missed = [f"not watched: {one}" for one in watch.missed]
        return "went on", missed + ([] if same(found, self.right) else ["wrong values of the run itself"])

    def met(self, act: Callable[[], Any], always: bool = False, number: int | None = None) -> tuple[str, list[str]]:
        """Plays, and does something before a change to the disk, or before all from there on; what `act` raises the change gets."""
        number, happened = self.begin() if number is None else number, []

        def before(done: int, change: Change) -> None:
            del change
            # What plays or reads must not hold up the thread that serves all reading.
            if done >= number and (always or not happened) and "zarr" not in threading.current_thread().name:
                happened.append(done)
                act()

        outcome, wrong = self.play(before)
        return outcome if happened else "nothing happened", wrong

    def fails(self, numbers: list[int], always: bool = False) -> tuple[str, list[str]]:
        """A change fails, or all from there on."""
        number = numbers[int(self.rng.integers(len(numbers)))]

        def fail() -> None:
            raise OSError(number, os.strerror(number))

        return self.met(fail, always)

    def read_only(self) -> tuple[str, list[str]]:
        """Nothing can be changed: the run is refused before anything is played."""

        def fail(done: int, change: Change) -> None:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        self.begin()
        with blocks_played() as played:
            outcome, wrong = self.play(fail)
        return outcome, wrong + (["something was played"] if played else [])

    def limited(self, what: int, limit: int) -> tuple[str, list[str]]:
        """A limit of the operating system holds from some change on."""
        before = resource.getrlimit(what)
        try:
            return self.met(lambda: resource.setrlimit(what, (limit, before[1])))
        finally:
            resource.setrlimit(what, before)

    def few_handles(self) -> tuple[str, list[str]]:
        """Some file handles are left, or none."""
        highest = max(map(int, os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd")))
        return self.limited(resource.RLIMIT_NOFILE, highest + int(self.rng.integers(1, 12)))

    def no_threads(self) -> tuple[str, list[str]]:
        """No thread can be started after some that can."""
        start, left = threading.Thread.start, [int(self.rng.integers(4))]

        def refused(thread: threading.Thread) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise RuntimeError("can't start new thread")
            start(thread)

        self.begin()
        threading.Thread.start = refused  # type: ignore[method-assign]
        try:
            outcome, wrong = self.play()
        finally:
            threading.Thread.start = start  # type: ignore[method-assign]
        return outcome, [one for one in wrong if "can't start new thread" not in one]

    def interrupted(self) -> tuple[str, list[str]]:
        """Ctrl-C."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return self.met(lambda: os.kill(os.getpid(), signal.SIGINT))
        finally:
            signal.signal(signal.SIGINT, before)

    def reader(self) -> tuple[str, list[str]]:
        """Somebody loads the result."""
        found: list[str] = []
        outcome, wrong = self.met(lambda: found.extend(read(self.out, self.keep, self.right)[1]))
        return outcome, [*wrong, *found]

    def second(self) -> tuple[str, list[str]]:
        """Another run begins: it is refused, unless the first is over."""
        wrong = []

        def again() -> None:
            held = list(self.out.glob("*.lock"))
            try:
                if not same(play(self.out, self.keep), self.right):
                    wrong.append("wrong values of the second run")
                if held and held[0].exists():
                    wrong.append("the second run was not refused")
            except jr.StoreInUseError as error:
                if not helps(error, self.out):
                    wrong.append(f"the second run says {error}")

        outcome, more = self.met(again)
        return outcome, [*wrong, *more]

    def second_without_lock(self) -> tuple[str, list[str]]:
        """Somebody deletes the lock, and another run plays all while the first waits."""
        wrong = []

        def again() -> None:
            for lock in self.out.glob("*.lock"):
                lock.unlink()
            try:
                if not same(play(self.out, self.keep), self.right):
                    wrong.append("wrong values of the second run")
            except Exception as error:
                if not helps(error, self.out):
                    wrong.append(f"the second run says {type(error).__name__}: {error}")

        outcome, more = self.met(again)
        return outcome, [*wrong, *more]

    def copied(self) -> tuple[str, list[str]]:
        """Somebody copies the folder: some files now, the others after the run."""

        def copy(some: Callable[[], bool]) -> None:
            for file in sorted(p for p in self.out.rglob("*") if p.is_file()):
                place = self.elsewhere / file.relative_to(self.out)
                if some() and not place.exists():
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, place)

        outcome, wrong = self.met(lambda: copy(lambda: bool(self.rng.integers(2))))
        copy(lambda: True)
        for lock in self.elsewhere.glob("*.lock"):
            lock.unlink()
        found, _, more = look(self.elsewhere, self.keep, self.right)
        return f"{outcome}; the copy {found}", [*wrong, *more]

    def moved(self) -> tuple[str, list[str]]:
        """The folder gets another name: the run ends, and goes on where the folder is now."""
        outcome, wrong = self.met(lambda: self.out.rename(self.elsewhere) if self.out.exists() else None)
        if not self.elsewhere.exists():
            return outcome, wrong
        for lock in self.elsewhere.glob("*.lock"):
            lock.unlink()
        found, _, more = look(self.elsewhere, self.keep, self.right)
        return f"{outcome}; there {found}", [*wrong, *more]

    def dangling(self) -> tuple[str, list[str]]:
        """A link to a folder that does not exist: it is made."""
        self.begin()
        cleared(self.out).symlink_to(self.elsewhere)
        return self.play()

    def befall(self, event: str) -> tuple[str, list[str]]:
        """What comes of an event, and of the same call after it."""
        outcome, wrong = self.events[event]()
        found, _, more = look(self.out, self.keep, self.right)
        if "not continued" in found and event in ("the folder is moved", "the folder is removed"):
            more = [
                one for one in more if "holds something else" not in one
            ]  # Zarr made folders anew: that is said, and nothing is lost.
        return f"{outcome}; then {found}", [f"{self.keep}: {event}: {one}" for one in [*wrong, *more]]


def disturb(number: int, seed: int, keep: str, folder: Path) -> tuple[Counts, list[str]]:
    """Outcomes by event, all of them in turn, and what must not happen, in words."""
    scene, outcomes, wrong = Scene(folder, keep, seed), collections.Counter(), []
    for i in range(number):
        event = list(scene.events)[i % len(scene.events)]
        outcome, bad = scene.befall(event)
        outcomes[event, outcome] += 1
        wrong += bad
    return outcomes, wrong


CHILD = """
    import sys, time
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    import chaos
    from jaxroute.engine import programs

    run = programs.Block.play

    def slowly(self, tile, seeds, *begun):
        time.sleep(float(sys.argv[4]))
        return run(self, tile, seeds, *begun)

    programs.Block.play = slowly
    print("begins", flush=True)
    chaos.play(Path(sys.argv[2]), sys.argv[3])
"""


def child(out: Path, keep: str, environment: Mapping[str, str] | None = None, pause_s: float = 0.0) -> subprocess.Popen:
    """A process that says when it begins to play, and waits before each block."""
    command = [sys.executable, "-c", textwrap.dedent(CHILD), str(Path(__file__).parent), str(out), keep, str(pause_s)]
    env = {**os.environ, **(environment or {})}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill(number: int, seed: int, keep: str, folder: Path) -> tuple[Counts, list[str]]:
    """Outcomes of processes that are killed at any time, one after the other on the same store, and what must not happen."""
    rng, out, outcomes, wrong = np.random.default_rng(seed), folder / f"killed-{keep}", collections.Counter(), []
    right = play(None, keep)
    for i in range(number):
        with child(out, keep, pause_s=0.1) as process:
            assert process.stdout is not None
            process.stdout.readline()
            if rng.integers(4):  # Otherwise perhaps while it compiles.
                while process.poll() is None and not (out / STORE_NAME / DONE / "zarr.json").exists():
                    time.sleep(0.001)
            time.sleep(rng.uniform(0, 0.6))
            process.kill()
            process.communicate()
        outcome, bad = read(out, keep, right)
        outcomes["killed", outcome] += 1
        wrong += [f"{keep}: killed: {one}" for one in bad]
        if i % 3 == 2 or i == number - 1:
            outcome, _, bad = look(out, keep, right)
            outcomes["and then", outcome] += 1
            wrong += [f"{keep}: killed: {one}" for one in bad]
            cleared(out)
    return outcomes, wrong


MINE = """
from flax import struct
from jaxroute.problems import stochastic

@struct.dataclass
class Mine(stochastic.UCB1):
    def act(self, key, state, obs, t):
        action, info = super().act(key, state, obs, t)
        return (action + 0) % 3, info
"""


def others(number: int, seed: int, keep: str, folder: Path) -> tuple[Counts, list[str]]:
    """Outcomes of going on with something else: edited code, other flags, other randomness; and what must not happen."""
    outcomes, wrong, rng = collections.Counter(), [], np.random.default_rng(seed)
    for _ in range(number):
        other(rng, keep, folder, outcomes, wrong)
    return outcomes, wrong


def other(rng: np.random.Generator, keep: str, folder: Path, outcomes: Counts, wrong: list[str]) -> None:
    """Goes on once with each, and counts."""

    def ended(kind: str, outcome: str, good: bool) -> None:
        outcomes[kind, outcome] += 1
        wrong.extend([] if good else [f"{keep}: {kind}: {outcome}"])

    def edited(text: str) -> Any:
        file, found = folder / "mine.py", {"__name__": "mine"}
        file.write_text(text)
        linecache.checkcache()
        exec(compile(text, str(file), "exec"), found)
        return found["Mine"]()

    out, whole = cleared(folder / f"edited-{keep}"), folder / f"flags-{keep}"
    options: dict[str, Any] = {
        "horizon": HORIZON,
        "seeds": SEEDS,
        "block": BLOCK,
        "progress": False,
        "out": out,
        "keep": keep,
    }
    jr.simulate(stochastic.bernoulli([0.6, 0.4, 0.5]), {"mine": edited(MINE)}, **options)
    for mark in rng.permutation(marks(out / STORE_NAME))[:2]:
        mark.unlink()
    try:
        jr.simulate(
            stochastic.bernoulli([0.6, 0.4, 0.5]),
            {"mine": edited(MINE.replace("+ 0", f"+ {rng.integers(1, 3)}"))},
            **options,
        )
        ended("the code is edited", "went on", False)
    except jr.StoreMismatchError as error:
        ended("the code is edited", f"refused: {str(error).split(': ')[-1][:60]}", helps(error, out) and "act" in str(error))
    right = play(whole, keep)
    variables = {
        "another processor": {"XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2"},
        "other randomness": {"JAX_THREEFRY_PARTITIONABLE": "false"},
    }
    for kind, environment in variables.items():
        shutil.copytree(whole, cleared(out))
        for mark in rng.permutation(marks(out / STORE_NAME))[:2]:
            mark.unlink()
        done = child(out, keep, environment)
        said = done.communicate()[1]
        if done.returncode:
            refused = "StoreMismatchError" in said and str(out) in said and "choose another folder" in said
            ended(kind, "refused" if refused else said[-300:], refused and kind == "other randomness")
            continue
        found = jr.load(out)
        close = all(
            np.allclose(found[name], right[name], rtol=1e-5, equal_nan=True)
            for name in right
            if found[name].dtype.kind == "f"
        )
        told = "begun with something else" in said
        ended(kind, f"went on, {'with' if told else 'without'} a warning", close and told and kind == "another processor")


def main() -> int:
    """Prints a table of faults and outcomes, and what must not happen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=1000, help="number, half of them of each kind of store (default 1000)")
    parser.add_argument("--events", type=int, default=300, help="number, likewise (default 300)")
    parser.add_argument("--kills", type=int, default=12, help="number, likewise (default 12)")
    parser.add_argument("--others", type=int, default=2, help="times that something else goes on, likewise (default 2)")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random (default 0)")
    options = parser.parse_args()
    bad: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        for keep in ("runs", "moments"):
            for what, how in (("faults", chaos), ("events", disturb), ("kills", kill), ("others", others)):
                outcomes, wrong = how(getattr(options, what) // 2, options.seed, keep, Path(name))
                bad += wrong
                print(f'\nkeep="{keep}", {sum(outcomes.values())} {what}')
                for (kind, outcome), times in sorted(outcomes.items()):
                    print(f"  {times:5d}  {kind}: {outcome}")
    print(f"\n{len(bad)} that must not happen", *bad, sep="\n  ")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
