"""Damages stores, disturbs calls, kills processes and cuts the power at random, and counts failures.

    python scripts/chaos.py --faults 2000 --kills 200 --seed 0
    python scripts/chaos.py --faults 0 --kills 0 --points 0 --seed 0

Faults are damage to a finished store, in a folder or in memory, and events before one of the disk changes of a call. Kills end processes that
use a store alone or together with others. Afterwards `load` must return the right numbers or report the missing ones, and the same call must end with the bits
of an undisturbed one. Exit status 1 if a number is wrong without a warning (silent), a sound store is refused, or a message does not explain
the problem and the remedy (riddle).

`--points` ends calls between every two disk changes, like `kill -9` and like a power cut. Each disk change of a call is a moment at which the
call could have ended: the files of that moment are put into a new folder, `load` reads it, and the same call of `simulate` continues. The kind of
end decides which files remain:

    killed: all changes up to that moment. in the middle: also half of the bytes of the next write.
    flushed: only flushed (fsync) content. names: all files, but empty if not flushed. zeros: the same, but full of zeros.
    some: a random subset of the unflushed changes of names; an unflushed file has no bytes, half of them, zeros or all.

The call is a new one, or it continues another, joins many packs, or replaces a pack with a damaged cell. It is also a failure if a cell is lost that
was durable. Stores that differ only in leftovers (`.partial`) are checked once.
"""

import argparse
import collections
import contextlib
import copy
import dataclasses
import faulthandler
import functools
import io
import itertools
import multiprocessing
import operator
import os
import re
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from errno import EACCES, EDQUOT, EFBIG, EIO, EMFILE, ENOSPC, EPERM, EROFS, ESTALE
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock, patch

import dask.base
import numpy as np
import pandas as pd
import xarray as xr

import jaxroute as jr
from jaxroute.engine import components, programs, schedule, simulate
from jaxroute.problems import stochastic
from jaxroute.store import moments, packs, places

Files = dict[str, bytes | None]  # Content by path below a folder; None for a folder.
Bad = tuple[str, str]  # Kind and description of a failure.
Found = tuple[str, list[Bad]]  # Outcome for a store, and failures.
Random, Data, Context, Out = np.random.Generator, xr.Dataset, contextlib.AbstractContextManager[Any], str | Path
SEEDS, BLOCK = {"runs": 40, "moments": 3 * 256 + 24}, {"runs": 16, "moments": 256}
SIZES = (1, 2000, 1 << 26)  # Bytes of a pack: one cell, some, or all.
SILENT, REFUSED, RIDDLE, LOST = "silent", "refused though sound", "riddles", "lost"
# New processes have imported this before they begin.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["jaxroute.engine.simulate", "jaxroute.problems.stochastic", "xarray", "dask.array"])


class Table:
    """Table of the numbers of faults and failures by kind of fault, and a description of each failure."""

    def __init__(self) -> None:
        self.counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []
        self._start = time.monotonic()

    def add(self, kind: str, what: str, outcome: str, bad: Sequence[Bad]) -> None:
        """Counts a fault of a kind with its outcome, and the failures `bad` that it caused."""
        self.counts[kind].update({"number", *(one for one, _ in bad)})
        self.outcomes[outcome] += 1
        self.wrong += [f"{kind}: {what}: {one}: {text}" for one, text in bad]

    def print(self, title: str) -> bool:
        """Prints the counts; returns whether there was a failure."""
        counts = pd.DataFrame(self.counts, ("number", SILENT, REFUSED, RIDDLE, LOST)).T.sort_index().fillna(0).astype(int)
        counts.loc["all"] = counts.sum()
        outcomes = "; ".join(f"{number:,} {outcome}" for outcome, number in self.outcomes.most_common())
        seconds = time.monotonic() - self._start
        print(f"\n{title}, {seconds:.0f} s", counts.to_string(), outcomes, *self.wrong, sep="\n")
        return bool(self.wrong)


def read_files(folder: Path) -> Files:
    """Returns the contents of all files below a folder by relative path; None for a folder."""
    return {str(p.relative_to(folder)): None if p.is_dir() else p.read_bytes() for p in sorted(folder.rglob("*"))}


def write_files(folder: Path, files: Files) -> Path:
    """Replaces a folder by one with exactly the given files."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path, content in sorted(files.items()):
        (folder / path).mkdir() if content is None else (folder / path).write_bytes(content)
    return folder


def run(out: Out | None, keep: str, *, root_seed: int = 0, seeds: int = 0, share: Any = None) -> Data:
    """Makes the call of `simulate` that is tested: a grid of two settings, and a policy without a grid. If `out` is None, it stores nothing."""
    env, execution = stochastic.bernoulli([0.6, 0.4, 0.5]), jr.Execution(backend="scan", block=BLOCK[keep], share=share)
    policies = {"ucb": jr.grid(stochastic.UCB1, width=[0.5, 1.0]), "thompson": stochastic.GaussianThompson()}
    what: dict[str, Any] = {"horizon": 20, "seeds": seeds or SEEDS[keep], "record": ["regret", "pulls"], "record_every": 10}
    how: dict[str, Any] = {"execution": execution, "progress": False, "keep": keep, "root_seed": root_seed}
    return jr.simulate(env, policies, out=None if out is None else jr.Store(out, accept_changed_code=True), **what, **how)


# Contexts that replace parts of the package. Only these and `watch` use private names.


@contextlib.contextmanager
def packs_of(size: int, tidy: int = 32) -> Iterator[None]:
    """Context in which the store writes packs of `size` bytes, and joins small packs if there are more than `tidy`."""
    tidied = functools.partialmethod(packs.PackStore.tidy, tidy)
    often = patch.object(moments, "_WRITE_S", 0.0 if size < 1 << 20 else 5.0)
    with patch.object(packs, "_PACK_BYTES", size), patch.object(packs.PackStore, "tidy", tidied), often:
        yield


def blocks_by(function: Callable[..., Any]) -> Context:
    """Context in which `function(simulated, block, tile, seeds)` replaces `simulated(block, tile, seeds)`, which simulates a block."""
    simulated = programs.Block.run
    return patch.object(programs.Block, "run", lambda *args: function(simulated, *args))


@contextlib.contextmanager
def other_code(version: int = 1) -> Iterator[None]:
    """Context in which the policies seem to have changed: their code has another digest, and their regret increases by `version`."""

    def code(self: Any, probes: Any, known: Any = components.Variant.code) -> Any:
        found = known(self, probes)
        return {**found, "digests": {**found["digests"], "edited": str(version)}}

    def other(simulated: Any, *args: Any) -> Any:
        values, seconds = simulated(*args)
        return {**values, "regret": values["regret"] + version}, seconds

    with patch.object(components.Variant, "code", code), blocks_by(other):
        yield


@contextlib.contextmanager
def invented(pipe: Any = None) -> Iterator[None]:
    """Context for quick processes: nothing is compiled, results are invented, claims on blocks expire soon, and `pipe` gets a message for each block."""

    def numbers(simulated: Any, block: Any, tile: Any, seeds: Any, *resumed: Any) -> Any:
        if pipe:
            pipe.send("begins")
            time.sleep(0.03)
        settings = np.asarray(tile.get("width", [0]))[:, None, None]
        regret = np.cos(np.arange(1, 3) * (1 + len(block.name) + 50 * settings + np.asarray(seeds)[:, None]))
        zero, pulls = np.zeros(regret.shape), np.stack([regret, 2 * regret, regret + 1], axis=-1)
        found = {"nan/rounds": zero, "nan/states": zero != 0, "zero/illegal": zero, "regret": regret, "pulls": pulls}
        return {name: values if tile else values[0] for name, values in found.items()}, 0.0

    shapes = {"nan/rounds": (), "nan/states": (), "zero/illegal": (), "regret": (), "pulls": (3,)}
    shaped, expiring = patch.object(programs.Block, "shapes", lambda block: shapes), patch.object(schedule, "EXPIRES_S", 0.4)
    with patch.object(simulate, "compile_blocks", lambda *args: None), shaped, expiring, blocks_by(numbers):
        yield


def digest(data: Data) -> str:
    """Returns a digest of the bits, names and coordinates of a result."""
    return dask.base.tokenize({name: (v.dims, np.ascontiguousarray(v.values)) for name, v in data.variables.items()})


def wrong(found: Data, right: Data) -> list[Bad]:
    """Returns a failure if the result of a call is not bit by bit the right one, otherwise nothing."""
    return [] if digest(found) == digest(right) else [(SILENT, "wrong values of a call")]


def riddle(source: str, error: Exception, out: Out) -> list[Bad]:
    """Returns a failure if an error message does not name the store and the remedy, otherwise nothing."""
    known = isinstance(error, (ValueError, OSError)) and str(out) in str(error)
    clear = known and re.search("same call|can be written to", str(error))
    return [] if clear else [(RIDDLE, f"{source} says {type(error).__name__}: {error}")]


def read(out: Out, right: Data, older: Sequence[Data] = (), lost: bool = False) -> Found:
    """Loads a store, and returns outcome and failures. A result in `older` is only right with a warning, or if files are `lost`."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            found = jr.load(out)
        except Exception as error:
            if isinstance(error, ValueError) and re.search("path must be .* a stored result", str(error)):
                return "refused by load", []
            bad = riddle("load", error, out)
            if "not complete" in str(error) and "seed" in (part := jr.load(out, partial=True)).dims:
                done = part["regret"].isel(time=-1, drop=True).notnull()
                parts = [digest(one.reindex_like(part).astype(float).where(done)) for one in (part, right, *older)]
                bad += [] if parts[0] in parts[1:] else [(SILENT, "wrong values were loaded in part")]
            return "refused by load", bad
    if digest(found) == digest(right):
        return "read", []
    if any(digest(found) == digest(one) for one in older) and (warned or lost):
        return "read as an older result", []
    return "WRONG", [(SILENT, f"wrong values were loaded, of settings {found.attrs['settings']}")]


def look(out: Out, keep: str, right: Data, older: Sequence[Data] = (), lost: bool = False, sound: bool = False) -> Found:
    """Loads a store and makes the call again; returns outcome and failures. If `sound`, the store is undamaged and nothing may be simulated."""
    outcome, bad = read(out, right, older, lost)
    bad += [(REFUSED, f"load: {outcome}")] if sound and outcome != "read" else []
    with warnings.catch_warnings(), blocks_by(blocks := Mock(side_effect=operator.call)):
        warnings.simplefilter("ignore")
        try:
            bad += wrong(run(out, keep), right) + wrong(jr.load(out), right)
        except Exception as error:
            bad.append((REFUSED, f"the same call says {type(error).__name__}: {error}"))
    bad += [(REFUSED, f"{blocks.call_count} finished blocks were simulated again")] if sound and blocks.called else []
    return f"{outcome}, {'some' if blocks.called else 'nothing'} simulated again", bad


# Kinds of damage to a finished store.
DAMAGES = (
    *("a bit of a pack", "a bit of an index", "a bit of every pack", "a pack is cut", "a pack is empty", "a pack has grown"),
    *("zeros in a pack", "two packs are exchanged", "an index over another content", "a pack of another run under its name"),
    *("a pack is gone", "a pack is renamed", "a pack once more", "packs of another run beside"),
    *("leftovers of killed writers", "wrong times of files"),
)


def flipped(content: bytes, rng: Random, first: int = 0) -> bytes:
    """Returns the bytes with one random bit changed, at the byte `first` or later."""
    place = int(rng.integers(max(0, first), len(content)))
    return content[:place] + bytes([content[place] ^ 1 << int(rng.integers(8))]) + content[place + 1 :]


def harmed(kind: str, files: Files, other: Files, bodies: dict[str, int], rng: Random) -> Files:
    """Returns the packs of a store with a kind of damage. `other` are packs of other runs; `bodies` are the bytes before each pack's index."""

    def pick(*some: Any) -> Any:
        return some[rng.integers(len(some))]

    one, stranger, name = pick(*sorted(files)), pick(*sorted(other)), rng.bytes(16).hex()
    two = pick(*sorted(files.keys() - {one})) if len(files) > 1 and rng.integers(2) else stranger
    whole, second, first = files[one], (other | files)[two], bodies[one]
    start, stop = sorted(rng.integers(len(whole) + 1, size=2).tolist()) if rng.integers(4) else (0, len(whole))
    body, more = second[: bodies[two]], pick(bytes(16), whole, rng.bytes(100))
    changed: dict[str, Callable[[], Files]] = {
        "a bit of a pack": lambda: {one: flipped(whole, rng)},
        "a bit of an index": lambda: {one: flipped(whole, rng, first)},
        "a bit of every pack": lambda: {each: flipped(found, rng) for each, found in files.items()},
        "a pack is cut": lambda: {one: whole[:start]},
        "a pack is empty": lambda: {one: b""},
        "a pack has grown": lambda: {one: pick(whole + more, whole + more, more + whole)},
        "zeros in a pack": lambda: {one: whole[:start] + bytes(stop - start) + whole[stop:]},
        "a pack is gone": lambda: {one: None},
        "a pack is renamed": lambda: {one: None, pick(f"{name}.pack", f"a {one}", one.upper(), f"{one}.bak"): whole},
        "a pack once more": lambda: {pick(f"{one[:-5]} (1).pack", f"{one}~", f"{one}.{name}.partial", f".{one}.swp"): whole},
        "two packs are exchanged": lambda: {one: second, two: whole},
        "a pack of another run under its name": lambda: {one: other[stranger]},
        "packs of another run beside": lambda: {each: found for each, found in other.items() if rng.integers(2)},
        "an index over another content": lambda: {one: pick(body, body[:first].ljust(first, b"\0")) + whole[first:]},
        "leftovers of killed writers": lambda: {f"{one}.{name}.partial": whole[:start], f"{name}.claim": whole[:stop]},
        "wrong times of files": dict,
    }
    return {each: found for each, found in (files | changed[kind]()).items() if found is not None}


def put(files: Files, out: Out, rng: Random, wrong_times: bool) -> None:
    """Replaces the store at `out` by the given files; some of them, or all if `wrong_times`, get wrong modification times."""
    place = places.place_of(out)
    for name in place.names(""):
        place.delete(name)
    for name, content in files.items():
        place.write(name, [content], False)
        if isinstance(out, Path) and (wrong_times or not rng.integers(3)):
            os.utime(out / places.STORE_NAME / name, (int(rng.choice([0, 1, 10**9, 4 * 10**9])),) * 2)


def damage(number: int, seed: int, keep: str, folder: Path, table: Table) -> None:
    """Damages finished stores `number` times, with each kind of damage in turn; the stores also contain results of earlier calls."""
    rng, fewer, finished, other = np.random.default_rng([seed, len(keep)]), SEEDS[keep] // 2 + 1, list[Files](), Files()
    right, older, bodies = run(None, keep), [run(None, keep, seeds=fewer), run(None, keep, root_seed=1)], dict[str, int]()
    for size in SIZES:
        out, stranger = stores = [folder / f"{name}-{keep}-{size}" for name in ("finished", "stranger")]
        with packs_of(size):
            for options in ({"root_seed": 1}, {"seeds": fewer}, {}):
                run(out, keep, **options)
            run(stranger, keep, root_seed=2)
            with other_code():
                run(stranger, keep)
        for store in stores:
            with contextlib.closing(packs.PackStore(places.place_of(store))) as found:
                bodies |= {name: int(index.frames["size"].sum()) for name, index in found.packs.items()}
        finished.append(read_files(out / places.STORE_NAME))
        other |= read_files(stranger / places.STORE_NAME)
    for i in range(number):
        kind, whole = DAMAGES[i % len(DAMAGES)], finished[rng.integers(len(SIZES))]
        files, times = harmed(kind, whole, other, bodies, rng), kind == "wrong times of files"
        out = folder / "out" if times or rng.integers(4) else "memory://chaos/out"
        put(files, out, rng, times)
        lost, sound = bool(whole.keys() - files.keys()), whole.items() <= files.items()
        with packs_of(int(rng.choice(SIZES)), int(rng.choice([1, 32]))):
            table.add(kind, f"{keep}, fault {i}", *look(out, keep, right, older, lost, sound))


class Change(NamedTuple):
    """Change to the disk of a kind: "make", "write" (append), "fsync", "replace", "unlink", "mkdir"; "kept" marks that a file is durable."""

    kind: str
    path: str
    to: str = ""
    content: bytes = b""


@contextlib.contextmanager
def watch(folder: Path, before: Callable[[int, Change], None] = lambda done, change: None) -> Iterator[list[Change]]:
    """Context that lists the changes to files below a folder; `before` is called with the number of finished changes and the next change."""
    changes, opened, lock, write = list[Change](), dict[int, str](), threading.RLock(), places.Folder.write

    def below(path: Any) -> str:
        """Returns a path relative to the watched folder."""
        return os.path.relpath(os.path.abspath(path), os.path.abspath(folder))

    def change(kind: str, path: Any, do: Callable[[], Any], to: str = "", content: bytes = b"") -> Any:
        """Makes a change by calling `do`, and lists it if its path is below the folder and it succeeds."""
        if (place := below(path)).startswith(".."):
            return do()
        before(len(changes), new := Change(kind, place, to, content))
        with lock:
            found = do()
            changes.append(new)
            return found

    def os_call(kind: str, call: Callable[..., Any], path: Any, *args: Any, **options: Any) -> Any:
        """Replaces a function `call` of `os`, such as `os.replace`: lists the change that it makes."""
        do = functools.partial(call, path, *args, **options)
        if kind == "open":
            number = change("make", path, do) if args[0] & os.O_CREAT else do()
            opened[number] = path
            return number
        if options:  # `shutil` names folders by their numbers.
            return do()
        return change(kind, opened[path] if kind == "fsync" else path, do, below(args[0]) if kind == "replace" else "")

    def folder_write(place: Any, name: str, parts: Any, durable: bool = True) -> None:
        """Replaces the method that writes a file of a store: lists that the file is durable."""
        write(place, name, parts, durable)
        changes.extend([Change("kept", below(place.path / name))] if durable else [])

    class File(io.FileIO):
        """File whose writes are listed; a write that fails leaves half of its content."""

        def writelines(self, parts: Any) -> None:
            content, write = b"".join(parts), super().write
            try:
                change("write", self.name, lambda: write(content), content=content)
            except OSError:
                write(content[: len(content) // 2])
                raise

    made = functools.partial(File, opener=lambda path, flags: os.open(path, flags, 0o666))
    kinds = ("open", "fsync", "replace", "unlink", "mkdir")
    calls = {kind: functools.partial(os_call, kind, getattr(os, kind)) for kind in kinds}
    with patch.multiple(os, **calls), patch.object(places, "open", made), patch.object(places.Folder, "write", folder_write):
        yield changes


# Changes that fail: with which errors, whether all from then on, and whether those of one kind alone.
FAILURES = {
    "full disk": ((ENOSPC,), True, ""),
    "full disk, at fsync": ((ENOSPC, EIO), False, "fsync"),
    "full disk, at rename": ((ENOSPC,), False, "replace"),
    "one change fails": ((EIO, EDQUOT, EPERM, EACCES, ESTALE, EMFILE, ENOSPC, EFBIG), False, ""),
    "permission is lost": ((EACCES, EROFS, EPERM), True, ""),
    "nothing can be deleted": ((EPERM,), True, "unlink"),
}
EVENTS = (*FAILURES, "Ctrl-C", "a reader", "a second call", "another result meanwhile", "a moved folder", "a removed folder")


def disturb(number: int, seed: int, keep: str, folder: Path, table: Table) -> None:
    """Disturbs `number` calls, by each event in turn, and checks that the same call ends with the right result afterwards."""
    rng, scene = np.random.default_rng([seed, len(keep)]), folder / f"scene-{keep}"
    out, elsewhere, whole = (scene / name for name in ("out", "elsewhere", "whole"))
    scene.mkdir()
    with packs_of(1), watch(scene) as changes:
        right = run(whole, keep)
    other, files, length = run(None, keep, root_seed=3), read_files(whole / places.STORE_NAME), len(changes)
    acts: dict[str, Callable[[], Any]] = {  # Some return failures.
        "Ctrl-C": lambda: os.kill(os.getpid(), signal.SIGINT),
        "a reader": lambda: read(out, right)[1],
        "a second call": lambda: wrong(run(out, keep), right),
        "another result meanwhile": lambda: wrong(run(out, keep, root_seed=3), other),
        "a moved folder": lambda: os.rename(out, elsewhere) if out.exists() else None,
        "a removed folder": lambda: shutil.rmtree(out, ignore_errors=True),
    }

    def disturbed(event: str) -> Found:
        """Makes the call on an unfinished store, or on none, and lets an event happen before one of its changes to the disk."""
        errors, always, only = FAILURES.get(event, ((), False, ""))
        start, happened, bad = int(length * rng.random() ** 3), list[int](), list[Bad]()
        for one in (out, elsewhere):
            shutil.rmtree(one, ignore_errors=True)
        if rng.integers(3):
            half = rng.permutation(sorted(files))[::2].tolist()
            write_files(out / places.STORE_NAME, {name: files[name] for name in half})
            start //= 2

        def before(done: int, change: Change) -> None:
            if done >= start and only in ("", change.kind) and (always or not happened):
                happened.append(done)
                if errors:
                    number = int(rng.choice(errors))
                    raise OSError(number, os.strerror(number))
                bad.extend(acts[event]() or [])

        with warnings.catch_warnings(), watch(scene, before), packs_of(int(rng.choice(SIZES)), int(rng.choice([1, 32]))):
            warnings.simplefilter("ignore")
            try:
                bad += wrong(run(out, keep), right)
            except KeyboardInterrupt:
                return "ended", bad
            except Exception as error:
                return "ended", bad + riddle("the call", error, out)
        return "continued" if happened else "nothing happened", bad

    signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background jobs ignore it.
    for i in range(number):
        event = EVENTS[i % len(EVENTS)]
        outcome, bad = disturbed(event)
        bad += look(elsewhere, keep, right)[1] if elsewhere.exists() else []
        after, more = look(out, keep, right, [other], lost=True)
        table.add(event, f"{keep}, event {i}", f"{outcome}, then {after}", bad + more)


def victim(out: Path, keep: str, size: int, code: Callable[[], Context], share: Any, pipe: Any) -> None:
    """Makes the call in a process. Sends a message to `pipe` when a block begins, and finally a digest of the result."""
    faulthandler.dump_traceback_later(60, exit=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # As the command does.
    with contextlib.suppress(KeyboardInterrupt), invented(pipe), packs_of(size, 3), code():
        pipe.send(digest(run(out, keep, share=share)))


def kill(number: int, seed: int, keep: str, folder: Path, table: Table) -> None:
    """Kills `number` processes at random times, one after the other on the same store; some of them share the store with running processes."""
    rng, out, own_code = np.random.default_rng([seed, len(keep)]), folder / f"killed-{keep}", contextlib.nullcontext

    def begin(*how: Any) -> tuple[Any, Any]:
        mine, its = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(target=victim, args=(out, keep, int(rng.choice(SIZES)), *how, its))
        process.start()
        its.close()
        return process, mine

    with invented():
        alone = run(None, keep)
        with other_code():
            edited = run(None, keep)
        beside = {"alone": [], "beside another": [(own_code, alone)], "beside other code": [(other_code, edited)]}
        for i in range(number):
            name = str(rng.choice(["SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"], p=[0.5, 0.2, 0.2, 0.1]))
            where = list(beside)[rng.integers(3)]
            share, bad = "join" if rng.integers(3) == 0 else None, list[Bad]()
            process, pipe = begin(own_code, share)
            others = [(*begin(code, share), right) for code, right in beside[where]]
            if rng.integers(4):
                pipe.recv()
            time.sleep(rng.uniform(0, 0.3))
            with contextlib.suppress(ProcessLookupError):  # It has ended.
                os.kill(process.pid, getattr(signal, name))
            process.join()
            for other, its_pipe, right in others:
                while (found := its_pipe.recv()) == "begins":
                    pass
                bad += [] if found == digest(right) else [(SILENT, "wrong values of the other process")]
                other.join()
            last = i % 3 == 2 or i == number - 1
            outcome, more = look(out, keep, alone, [edited], True) if last else read(out, alone, [edited], True)
            table.add(f"{name} {where}", f"{keep}, kill {i}", outcome, bad + more)
            if last:
                shutil.rmtree(out, ignore_errors=True)


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
    """Runs all tests and prints tables of faults and failures; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=2000, help="number, a half of damage, a half of events (default 2000)")
    parser.add_argument("--kills", type=int, default=200, help="number of processes (default 200)")
    parser.add_argument("--points", type=int, help="also power cuts, at so many moments of each call; 0: at all")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random (default 0)")
    options, bad = parser.parse_args(), False
    faults, kills = options.faults // 4, options.kills // 2
    with tempfile.TemporaryDirectory() as folder:
        for what, number, how in (("damage", faults, damage), ("events", faults, disturb), ("kills", kills, kill)):
            table = Table()
            for keep in SEEDS if number else ():
                how(number, options.seed, keep, Path(folder), table)
            bad |= table.print(what)
        for keep in SEEDS if options.points is not None else ():
            table = Table()
            moments_of = power(keep, Path(folder), table, points=options.points, seed=options.seed)
            bad |= table.print(f'keep="{keep}", moments by call: {moments_of}')
    return int(bad)


if __name__ == "__main__":
    raise SystemExit(main())
