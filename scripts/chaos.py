"""Damages stores, disturbs calls and kills processes, at random, and counts what must not happen.

    python scripts/chaos.py --faults 2000 --kills 200 --seed 0

Faults are damage to a finished store, in a folder or in memory, and what befalls a call before one of its changes to the disk. Kills end
processes, alone or beside others. Then `load` gives the right numbers or says what is missing, and the same call ends with the bits of an
undisturbed one. Exit status 1 if a number is wrong without a word (silent), a sound store is refused, or a message does not say what is
wrong and what to do (riddle). Power cuts are in `power.py`.
"""

import argparse
import collections
import contextlib
import errno
import faulthandler
import functools
import hashlib
import io
import multiprocessing
import os
import re
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import xarray as xr

import jaxroute as jr
from jaxroute.engine import inputs, plan, programs, simulate
from jaxroute.problems import stochastic
from jaxroute.store import moments, packs, places
from jaxroute.store.places import STORE_NAME

# Content of the files of a store by name.
Files = dict[str, bytes]
Random, Data = np.random.Generator, xr.Dataset
SEEDS, BLOCK = {"runs": 40, "moments": 3 * 256 + 24}, {"runs": 16, "moments": 256}
SIZES = (1, 2000, 1 << 26)  # Bytes of a pack: one cell, some, or all.
SILENT, REFUSED, RIDDLE, LOST = "silent", "refused though sound", "riddles", "lost"


# What must not happen: of which kind, and in words.
Bad = tuple[str, str]


class Table:
    """Counts by kind of fault, and what must not happen, in words."""

    def __init__(self) -> None:
        self.counts: dict[str, collections.Counter[str]] = {}
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []

    def add(self, kind: str, what: str, outcome: str, bad: Sequence[Bad]) -> None:
        """Counts one fault."""
        row = self.counts.setdefault(kind, collections.Counter())
        row["number"] += 1
        row.update({one for one, _ in bad})
        self.outcomes[outcome] += 1
        self.wrong += [f"{kind}: {what}: {one}: {text}" for one, text in bad]

    def print(self, title: str) -> None:
        """Prints the table, and what must not happen."""
        columns = ("number", SILENT, REFUSED, RIDDLE, LOST)
        rows = [*sorted(self.counts.items()), ("all", sum(self.counts.values(), collections.Counter()))]
        width = max(len(kind) for kind, _ in rows)
        print(f"\n{title}\n{'':{width}}", *(f"{name:>{len(name) + 2}}" for name in columns), sep="")
        for kind, row in rows:
            print(f"{kind:{width}}", *(f"{row[name]:{len(name) + 2},}" for name in columns), sep="")
        print("; ".join(f"{number:,} {outcome}" for outcome, number in self.outcomes.most_common()))
        print(*self.wrong, sep="\n", end="\n" if self.wrong else "")


def play(out: str | Path | None, keep: str, *, key: int = 0, seeds: int = 0, share: Any = None) -> Data:
    """The call whose store suffers: a grid of two settings, and a policy without."""
    env, execution = stochastic.bernoulli([0.6, 0.4, 0.5]), jr.Execution(backend="scan", block=BLOCK[keep], share=share)
    policies = {"ucb": jr.grid(stochastic.UCB1, width=[0.5, 1.0]), "thompson": stochastic.GaussianThompson()}
    what: dict[str, Any] = {"horizon": 20, "seeds": seeds or SEEDS[keep], "record": ["regret", "pulls"], "record_every": 10}
    how: dict[str, Any] = {"execution": execution, "progress": False, "accept_changed_code": True}
    return jr.simulate(env, policies, out=out, keep=keep, key=key, **what, **how)


@contextlib.contextmanager
def replaced(*what: tuple[Any, str, Any]) -> Iterator[None]:
    """Something else in the place of some attributes."""
    with contextlib.ExitStack() as stack:
        for owner, name, value in what:
            stack.enter_context(mock.patch.object(owner, name, value, create=True))
        yield


def packs_of(size: int, tidy: int = 32) -> contextlib.AbstractContextManager[None]:
    """A context in which packs have so many bytes, and more than `tidy` small ones are joined."""
    return replaced(
        (simulate, "Store", functools.partial(packs.Store, size=size)),
        (moments, "_WRITE_S", 0.0 if size < 1 << 20 else 5.0),
        (packs.Store, "tidy", functools.partialmethod(packs.Store.tidy, tidy)),
    )


@contextlib.contextmanager
def other_code() -> Iterator[None]:
    """A context in which the policies have other code, and give other numbers."""
    run = programs.Block.play

    def code(self: Any, policy: str, known: Any = inputs.Inputs.code) -> Any:
        found = known(self, policy)
        return {**found, "digests": {**found["digests"], "edited": "1"}}

    def other(*args: Any) -> Any:
        values, seconds = run(*args)
        return {**values, "regret": values["regret"] + 1.0}, seconds

    with replaced((inputs.Inputs, "code", code), (programs.Block, "play", other)):
        yield


@contextlib.contextmanager
def blocks_played() -> Iterator[list[Any]]:
    """The blocks that are played meanwhile."""
    played, run = [], programs.Block.play

    def counted(self: Any, tile: Any, seeds: Any, *begun: Any) -> Any:
        played.append(seeds[0])
        return run(self, tile, seeds, *begun)

    with replaced((programs.Block, "play", counted)):
        yield played


def digest(data: Data) -> str:
    """A digest of the values, names and coordinates of a result."""
    found = hashlib.blake2b()
    for name, variable in sorted(data.variables.items(), key=lambda one: str(one[0])):
        values = np.ascontiguousarray(variable.values)
        found.update(f"{name} {variable.dims} {values.dtype} {values.shape}".encode() + values.tobytes())
    return found.hexdigest()


def helps(error: BaseException, out: str | Path) -> bool:
    """Whether a message names the store and says what to do."""
    known = isinstance(error, (ValueError, OSError)) and str(out) in str(error)
    return known and bool(re.search("same call|can be written to", str(error)))


def read(out: str | Path, right: Data, older: Sequence[Data], lost: bool = False) -> tuple[str, list[Bad]]:
    """What `load` makes of a store: an outcome, and what must not happen. Results before the last come with a warning, or if files are `lost`."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = jr.load(out)
        except Exception as error:
            nothing = isinstance(error, ValueError) and re.search("path must be .* a stored result", str(error))
            bad = [] if nothing or helps(error, out) else [(RIDDLE, f"load says {type(error).__name__}: {error}")]
            if not nothing and "not complete" in str(error):
                part = jr.load(out, partial=True)
                if "seed" in part.dims and not any(same_where_done(part, one) for one in (right, *older)):
                    bad.append((SILENT, "wrong values were loaded in part"))
            return "refused by load", bad
    if digest(found) == digest(right):
        return "read", []
    if any(digest(found) == digest(one) for one in older) and (said or lost):
        return "read as an older result", []
    return "WRONG", [(SILENT, f"wrong values were loaded, of settings {found.attrs['settings']}")]


def same_where_done(found: Data, right: Data) -> bool:
    """Whether runs that are there are right."""
    right = right.isel(seed=slice(found.sizes["seed"]))
    there = np.isfinite(found["regret"].isel(time=-1).values)
    return found.sizes == right.sizes and all(
        np.array_equal(found[name].values[there], right[name].values[there], equal_nan=True) for name in right
    )


def wrong(found: Data, right: Data) -> list[Bad]:
    """What must not be: another result."""
    return [] if digest(found) == digest(right) else [(SILENT, "wrong values of a call")]


def look(
    out: str | Path, keep: str, right: Data, older: Sequence[Data] = (), lost: bool = False, sound: bool = False
) -> tuple[str, list[Bad]]:
    """What comes of a store: an outcome, and what must not happen; `sound`: nothing of it is damaged."""
    outcome, bad = read(out, right, older, lost)
    bad += [(REFUSED, f"load: {outcome}")] if sound and outcome != "read" else []
    with warnings.catch_warnings(), blocks_played() as played:
        warnings.simplefilter("ignore")
        try:
            bad += wrong(play(out, keep), right) + wrong(jr.load(out), right)
        except Exception as error:
            bad.append((REFUSED, f"the same call says {type(error).__name__}: {error}"))
    bad += [(REFUSED, f"{len(played)} finished blocks were played again")] if sound and played else []
    return f"{outcome}, {'some' if played else 'nothing'} simulated again", bad


# Damage to a finished store. Kinds, and whether files are gone as if they had never been, or nothing is damaged.
GONE, SOUND = "gone", "sound"
DAMAGES = {
    **dict.fromkeys(("a bit of a pack", "a bit of an index", "a bit of every pack", "a pack is cut", "a pack is empty"), ""),
    **dict.fromkeys(("a pack has grown", "zeros in a pack", "two packs are exchanged", "an index over another content"), ""),
    **{"a pack of another run under its name": "", "a pack is gone": GONE, "a pack is renamed": GONE},
    **dict.fromkeys(("a pack once more", "packs of another run beside", "leftovers of killed writers"), SOUND),
    "wrong times of files": SOUND,
}


def flipped(content: bytes, rng: Random, first: int = 0) -> bytes:
    """One other bit, not before a place."""
    place = int(rng.integers(max(0, first), len(content)))
    return content[:place] + bytes([content[place] ^ 1 << int(rng.integers(8))]) + content[place + 1 :]


def index_start(content: bytes) -> int:
    """Where the index of a pack begins."""
    footer = np.frombuffer(content[-packs._FOOTER.itemsize :], packs._FOOTER)[0]
    sizes = [int(footer[name]) for name in ("forms", "notes", "rows")]
    return len(content) - footer.nbytes - sum(sizes) - int(footer["frames"]) * packs._FRAMES.itemsize


def harm(kind: str, files: Files, other: Files, rng: Random) -> None:
    """Damages the files of a store; `other`: those of other runs."""
    one, stranger = str(rng.choice(sorted(files))), str(rng.choice(sorted(other)))
    two = str(rng.choice(sorted(files.keys() - {one}))) if len(files) > 1 and rng.integers(2) else stranger
    content, second, name = files[one], files.get(two, other.get(two, b"")), rng.bytes(16).hex()
    start, stop = sorted(rng.integers(len(content) + 1, size=2).tolist()) if rng.integers(4) else (0, len(content))
    more, first = [bytes(16), content, rng.bytes(100)][rng.integers(3)], index_start(content)
    body = second[: index_start(second)]
    if rng.integers(2):
        body = body[:first].ljust(first, b"\0")  # As long as it was.
    new_names = [f"{name}.pack", f"a {one}", one.upper(), f"{one}.bak"]
    same_again = [f"{one[:-5]} (1).pack", f"{one}~", f"{one}.{name}.partial", f".{one}.swp"]
    changed: dict[str, Callable[[], Files]] = {
        "a bit of a pack": lambda: {one: flipped(content, rng)},
        "a bit of an index": lambda: {one: flipped(content, rng, first)},
        "a bit of every pack": lambda: {each: flipped(found, rng) for each, found in files.items()},
        "a pack is cut": lambda: {one: content[:start]},
        "a pack is empty": lambda: {one: b""},
        "a pack has grown": lambda: {one: content + more if rng.integers(3) else more + content},
        "zeros in a pack": lambda: {one: content[:start] + bytes(stop - start) + content[stop:]},
        "a pack is renamed": lambda: {new_names[rng.integers(4)]: content},
        "a pack once more": lambda: {same_again[rng.integers(4)]: content},
        "two packs are exchanged": lambda: {one: second, two: content},
        "a pack of another run under its name": lambda: {one: other[stranger]},
        "packs of another run beside": lambda: {each: found for each, found in other.items() if rng.integers(2)},
        "an index over another content": lambda: {one: body + content[first:]},
        "leftovers of killed writers": lambda: {f"{one}.{name}.partial": content[:start], f"{name}.claim": content[:stop]},
    }
    if DAMAGES[kind] == GONE:
        del files[one]
    files |= changed.get(kind, dict)()


def files_of(out: Path) -> Files:
    """All packs in a folder."""
    return {file.name: file.read_bytes() for file in (out / STORE_NAME).iterdir()}


def put(files: Files, folder: Path, rng: Random, kind: str, number: int) -> str | Path:
    """Puts files into a new folder, or into memory; returns where."""
    if not rng.integers(4) and kind != "wrong times of files":
        places._memory.cache_clear()
        url = f"memory://chaos/{number}"
        for name, content in files.items():
            places.place_of(url).write(name, [content])
        return url
    out = cleared(folder / "out")
    (out / STORE_NAME).mkdir(parents=True)
    for name, content in files.items():
        (out / STORE_NAME / name).write_bytes(content)
        if kind == "wrong times of files" or not rng.integers(3):
            os.utime(out / STORE_NAME / name, (int(rng.choice([0, 1, 10**9, 4 * 10**9])),) * 2)
    return out


def damage(number: int, seed: int, keep: str, folder: Path, table: Table) -> None:
    """Damages finished stores, each kind in turn; they also hold results that were asked for before."""
    rng, fewer, finished, other = np.random.default_rng([seed, len(keep)]), SEEDS[keep] // 2 + 1, list[Files](), Files()
    right, older = play(None, keep), [play(None, keep, seeds=fewer), play(None, keep, key=1)]
    for size in SIZES:
        out, strange, edited = (folder / f"{name}-{keep}-{size}" for name in ("finished", "strange", "edited"))
        with packs_of(size):
            for place, options in ((out, {"key": 1}), (out, {"seeds": fewer}), (out, {}), (strange, {"key": 2})):
                play(place, keep, **options)
            with other_code():
                play(edited, keep)
        finished.append(files_of(out))
        other |= files_of(strange) | files_of(edited)
    for i in range(number):
        kind = list(DAMAGES)[i % len(DAMAGES)]
        files, how = dict(finished[rng.integers(len(SIZES))]), DAMAGES[kind]
        harm(kind, files, other, rng)
        out = put(files, folder, rng, kind, i)
        with packs_of(int(rng.choice(SIZES)), int(rng.choice([1, 32]))):
            table.add(kind, f"{keep}, fault {i}", *look(out, keep, right, older, lost=how == GONE, sound=how == SOUND))


def cleared(out: Path) -> Path:
    """A folder's place, with nothing in it."""
    if out.is_symlink():
        out.unlink()
    shutil.rmtree(out, ignore_errors=True)
    return out


class Change(NamedTuple):
    """A change to the disk: "make", "write" (to the end), "fsync", "replace", "unlink", "mkdir"; "kept" when a file is written for good."""

    kind: str
    path: str
    to: str = ""
    content: bytes = b""


class Watch(contextlib.ExitStack):
    """A context in which the changes of stores below a folder are written down; `before` gets the number of those done, and the next."""

    def __init__(self, folder: Path, before: Callable[[int, Change], None] = lambda done, change: None):
        super().__init__()
        self.folder, self.before, self.changes = os.path.abspath(folder), before, list[Change]()
        self._lock, self._opened = threading.RLock(), dict[int, str]()

    def __enter__(self) -> "Watch":
        def met(kind: str, call: Callable[..., Any], path: Any, *args: Any, **options: Any) -> Any:
            if options:  # `shutil` names folders by their numbers.
                return call(path, *args, **options)
            to = self.place(args[0]) or "" if kind == "replace" else ""
            return self.change(kind, self._opened[path] if kind == "fsync" else path, lambda: call(path, *args), to=to)

        def opened(path: Any, flags: int, *args: Any, call: Callable[..., Any] = os.open, **options: Any) -> int:
            number = call(path, flags, *args, **options)
            self._opened[number] = str(path)
            return number

        def write(folder: Any, name: str, parts: Any, durable: bool = True, call: Any = places.Folder.write) -> None:
            call(folder, name, parts, durable)
            self.changes += [Change("kept", self.place(folder.path / name) or "")] if durable else []

        kinds = ("unlink", "mkdir", "replace", "fsync")
        by_kind = [(os, kind, functools.partial(met, kind, getattr(os, kind))) for kind in kinds]
        ours = replaced((places, "open", self._open), (places.Folder, "write", write), (os, "open", opened), *by_kind)
        self.enter_context(ours)
        return self

    def place(self, path: Any) -> str | None:
        """Where something is below the watched folder; None if it is elsewhere."""
        place = os.path.relpath(os.path.abspath(path), self.folder)
        return None if place.startswith("..") else place

    def change(self, kind: str, path: Any, do: Callable[[], Any], **about: Any) -> Any:
        """Does something, and writes it down if it succeeds."""
        if (place := self.place(path)) is None:
            return do()
        change = Change(kind, place, **about)
        self.before(len(self.changes), change)
        with self._lock:
            found = do()
            self.changes.append(change)
            return found

    def _open(self, path: Any, mode: str) -> Any:
        if "w" not in mode:
            return open(path, mode)
        file = self.change("make", path, lambda: _File(path, mode))
        file.watch, self._opened[file.fileno()] = self, str(path)
        return file


class _File(io.FileIO):
    """A file that is written to under a watch; a write that fails has written a half."""

    watch: Watch

    def writelines(self, parts: Any) -> None:
        content, write = b"".join(parts), super().write
        try:
            self.watch.change("write", self.name, lambda: write(content), content=content)
        except OSError:
            write(content[: len(content) // 2])
            raise


def fail(number: int) -> None:
    """Raises an error of the operating system."""
    raise OSError(number, os.strerror(number))


# Changes that fail: with which errors, whether all from then on, and whether those of one kind alone.
ANY = (errno.EIO, errno.EDQUOT, errno.EPERM, errno.EACCES, errno.ESTALE, errno.EMFILE, errno.ENOSPC, errno.EFBIG)
FAILURES = {
    "full disk": ((errno.ENOSPC,), True, ""),
    "full disk, at fsync": ((errno.ENOSPC, errno.EIO), False, "fsync"),
    "full disk, at rename": ((errno.ENOSPC,), False, "replace"),
    "one change fails": (ANY, False, ""),
    "permission is lost": ((errno.EACCES, errno.EROFS, errno.EPERM), True, ""),
    "nothing can be deleted": ((errno.EPERM,), True, "unlink"),
}
EVENTS = (*FAILURES, "Ctrl-C", "a reader", "a second call", "another result meanwhile", "a moved folder", "a removed folder")


class Scene:
    """A call that is disturbed."""

    def __init__(self, keep: str, folder: Path, seed: int):
        self.keep, self.rng, self.folder = keep, np.random.default_rng([seed, len(keep)]), folder / f"scene-{keep}"
        self.out, self.elsewhere = self.folder / "out", self.folder / "elsewhere"
        self.folder.mkdir()
        with packs_of(1), Watch(folder) as watch:
            self.right = play(self.folder / "whole", keep)
        self.length, self.files = len(watch.changes), files_of(self.folder / "whole")

    def begin(self) -> int:
        """Puts an unfinished store into the folder, or none; returns at which change something happens."""
        cleared(self.out)
        cleared(self.elsewhere)
        number = int(self.length * self.rng.random() ** 3)
        if not self.rng.integers(3):
            return number
        (self.out / STORE_NAME).mkdir(parents=True)
        for name in self.rng.permutation(sorted(self.files))[: len(self.files) // 2]:
            (self.out / STORE_NAME / name).write_bytes(self.files[name])
        return number // 2

    def play(self, before: Callable[[int, Change], None]) -> tuple[str, list[Bad]]:
        """Plays under a watch: an outcome, and what must not happen."""
        size, tidy = int(self.rng.choice(SIZES)), int(self.rng.choice([1, 32]))
        with warnings.catch_warnings(), Watch(self.folder, before), packs_of(size, tidy):
            warnings.simplefilter("ignore")
            try:
                found = play(self.out, self.keep)
            except KeyboardInterrupt:
                return "ended", []
            except Exception as error:
                bad = [(RIDDLE, f"the call says {type(error).__name__}: {error}")]
                return "ended", [] if helps(error, self.out) else bad
        return "went on", wrong(found, self.right)

    def met(self, act: Callable[[], Any], always: bool = False, only: str = "") -> tuple[str, list[Bad]]:
        """Plays, and does something before a change to the disk, or before all from there on; what `act` raises the change gets."""
        number, happened = self.begin(), []

        def before(done: int, change: Change) -> None:
            if done >= number and only in ("", change.kind) and (always or not happened):
                happened.append(done)
                act()

        outcome, bad = self.play(before)
        return outcome if happened else "nothing happened", bad

    def befall(self, event: str) -> tuple[str, list[Bad]]:
        """What comes of an event, and what must not happen."""
        found: list[Bad] = []
        if event in FAILURES:
            numbers, always, only = FAILURES[event]
            return self.met(lambda: fail(int(self.rng.choice(numbers))), always, only)
        acts: dict[str, Callable[[], Any]] = {
            "Ctrl-C": lambda: os.kill(os.getpid(), signal.SIGINT),
            "a reader": lambda: found.extend(read(self.out, self.right, ())[1]),
            "a second call": lambda: found.extend(wrong(play(self.out, self.keep), self.right)),
            "another result meanwhile": lambda: play(self.out, self.keep, key=3),
            "a moved folder": lambda: self.out.rename(self.elsewhere) if self.out.exists() else None,
            "a removed folder": lambda: shutil.rmtree(self.out, ignore_errors=True),
        }
        signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background jobs ignore it.
        outcome, bad = self.met(acts[event])
        return outcome, bad + found + (look(self.elsewhere, self.keep, self.right)[1] if event == "a moved folder" else [])


def disturb(number: int, seed: int, keep: str, folder: Path, table: Table) -> None:
    """Disturbs calls, each event in turn; afterwards the same call ends as it should."""
    scene, other = Scene(keep, folder, seed), play(None, keep, key=3)
    for i in range(number):
        event = EVENTS[i % len(EVENTS)]
        outcome, bad = scene.befall(event)
        older = [other] if event == "another result meanwhile" else []  # It was asked for last.
        after, more = look(scene.out, keep, scene.right, older, lost=True)
        table.add(event, f"{keep}, event {i}", f"{outcome}, then {after}", bad + more)


def invented() -> contextlib.AbstractContextManager[None]:
    """A context in which blocks return numbers that depend on policy, setting and seed alone: processes have nothing to compile."""

    def played(block: Any, tile: Any, seeds: Any, *begun: Any) -> Any:
        settings = np.asarray(tile.get("width", [0]))[:, None, None]
        regret = np.cos(np.arange(1, 3) * (1 + len(block.name) + 50 * settings + np.asarray(seeds)[:, None]))
        zero = np.zeros(regret.shape)
        found = {"nan/rounds": zero, "nan/states": zero != 0, "zero/illegal": zero, "regret": regret}
        found["pulls"] = np.stack([regret, 2 * regret, regret + 1], axis=-1)
        return {name: values if tile else values[0] for name, values in found.items()}, 0.0

    shapes = {"nan/rounds": (), "nan/states": (), "zero/illegal": (), "regret": (), "pulls": (3,)}
    owner, nothing = programs.Block, lambda *args: None
    compiled = ((owner, "compile_in", nothing), (simulate, "compile_blocks", nothing))
    return replaced((owner, "play", played), (owner, "shapes", lambda block: shapes), *compiled)


def victim(out: Path, keep: str, size: int, edited: bool, share: Any, told: Any) -> None:
    """A process that says when it begins to play, takes a moment for each block, and says at the end what it has found."""

    def slowly(*args: Any) -> Any:
        told.send("begins")
        time.sleep(0.03)
        return run(*args)

    faulthandler.dump_traceback_later(60, exit=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # As the command does.
    with invented(), contextlib.suppress(KeyboardInterrupt), packs_of(size, 3):
        run = programs.Block.play
        with (
            replaced((programs.Block, "play", slowly), (plan, "EXPIRES_S", 0.4)),
            other_code() if edited else contextlib.nullcontext(),
        ):
            told.send(digest(play(out, keep, share=share)))


def kill(number: int, seed: int, keep: str, folder: Path, table: Table) -> None:
    """Kills processes at any time, some of them beside others, one after the other on the same store."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["jaxroute.engine.simulate", "jaxroute.problems.stochastic", "xarray", "dask.array"])
    rng, out = np.random.default_rng([seed, len(keep)]), folder / f"killed-{keep}"

    def begin(*how: Any) -> tuple[Any, Any]:
        mine, its = context.Pipe(duplex=False)
        process = context.Process(target=victim, args=(out, keep, int(rng.choice(SIZES)), *how, its))
        process.start()
        its.close()
        return process, mine

    with invented():
        right = play(None, keep)
        with other_code():
            edited = play(None, keep)
        for i in range(number):
            name = str(rng.choice([*["SIGKILL"] * 5, *["SIGTERM", "SIGINT"] * 2, "SIGHUP"]))
            beside = ("alone", "beside another", "beside other code")[rng.integers(3)]
            share, bad = "join" if rng.integers(3) == 0 else None, list[Bad]()
            process, told = begin(False, share)
            other, said = (None, None) if beside == "alone" else begin(beside == "beside other code", share)
            if rng.integers(4):
                told.recv()
            time.sleep(rng.uniform(0, 0.3))
            with contextlib.suppress(ProcessLookupError):  # It has ended.
                os.kill(process.pid, getattr(signal, name))
            process.join()
            if other is not None:
                while (found := said.recv()) == "begins":
                    pass
                if found != digest(edited if beside == "beside other code" else right):
                    bad.append((SILENT, "wrong values of the other process"))
                other.join()
            last = i % 3 == 2 or i == number - 1
            outcome, more = (functools.partial(look, out, keep) if last else functools.partial(read, out))(
                right, [edited], True
            )
            table.add(f"{name} {beside}", f"{keep}, kill {i}", outcome, bad + more)
            if last:
                cleared(out)


def main() -> int:
    """Prints tables of faults, and what must not happen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=2000, help="number, a half of damage, a half of events (default 2000)")
    parser.add_argument("--kills", type=int, default=200, help="number of processes (default 200)")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random (default 0)")
    options = parser.parse_args()
    wrong, faults, kills = 0, options.faults // 4, options.kills // 2
    with tempfile.TemporaryDirectory() as name:
        for what, number, how in (("damage", faults, damage), ("events", faults, disturb), ("kills", kills, kill)):
            table, start = Table(), time.monotonic()
            for keep in ("runs", "moments") if number else ():
                how(number, options.seed, keep, Path(name), table)
            table.print(f"{what}, {time.monotonic() - start:.0f} s")
            wrong += len(table.wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
