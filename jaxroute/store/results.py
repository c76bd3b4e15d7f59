"""Results in a store: which were asked for, by which calls, and how they are read, listed and merged.

A store says what was asked for in notes: a "request" (`cells.Request`) for each result, and a "call" for each beginning and end of a call that
simulated something. The result of a store is the one that was asked for last, with the seeds of all requests that differ from it in the
seeds alone. The order of calls is counted, not read from clocks.
"""

import contextlib
import dataclasses
import json
import os
import uuid
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from jaxroute.core import code
from jaxroute.store import lazy, runs
from jaxroute.store.attributes import encoded
from jaxroute.store.cells import Request, changed_code
from jaxroute.store.moments import Statistics
from jaxroute.store.packs import ENDING, Store, digest_of, plain
from jaxroute.store.places import STORE_NAME, Folder, is_url, place_of, store_path
from jaxroute.store.provenance import StoreMismatchError
from jaxroute.store.runs import Runs

# What a call measures of its work, and what the calls for a result add up.
ADDED = ("compile_s", "run_s", "decisions", "played_again")
_AGAIN = "the same call, or command, simulates just that again"


def collect(request: Request, store: Store | None) -> Runs | Statistics:
    """Returns the result of a request, filled with the cells that are there.

    Raises:
      ValueError: it does not fit into memory.
    """
    return Statistics(request, store) if request.keep == "moments" else Runs(request, store)


def digest_of_request(request: Request) -> str:
    """Returns the digest by which calls name a request."""
    return digest_of(plain(request.plain())).hex()


def calls(store: Store) -> list[dict[str, Any]]:
    """Returns the notes of calls in a store, in order."""
    found = [note for note in store.notes.values() if note.get("note") == "call"]
    return sorted(found, key=lambda note: (note["order"], note["ended"], note["id"]))


def requests(store: Store) -> dict[str, Request]:
    """Returns the requests of a store by digest, the one that was asked for last at the end."""
    order = {call["request"]: i for i, call in enumerate(calls(store))}
    found = {name: Request.made_of(note) for name, note in store.notes.items() if note.get("note") == "request"}
    return dict(sorted(found.items(), key=lambda one: order.get(one[0], -1)))


def last_settings(store: Store) -> dict[str, Any]:
    """Returns the settings of the request that was made last; none if there is none."""
    known = list(requests(store).values())
    return dict(known[-1].settings) if known else {}


def reports(store: Store, request: Request) -> list[dict[str, Any]]:
    """Returns what the calls reported that made cells of a result, in order."""
    own = _simulations(request)
    like = {name for name, one in requests(store).items() if own & _simulations(one)}
    return [call["report"] for call in calls(store) if call["ended"] and call["request"] in like]


def _simulations(request: Request) -> set[tuple[str, bytes]]:
    """Identities of what a request simulates, of any horizon and any seeds, with the code."""
    return {(one, request.code_digest(policy)) for policy, some in request.identities.items() for one in some}


def begin(store: Store, request: Request) -> str:
    """Says in all packs of a store what is simulated; returns the name of the call."""
    name, known = digest_of_request(request), calls(store)
    note = {"note": "call", "id": uuid.uuid4().hex, "request": name, "ended": False, "order": _next(known)}
    store.say(request.plain(), always=True)
    store.say(note, always=True)
    return note["id"]


def end(store: Store, request: Request, call: str, report: Mapping[str, Any], whole: bool = True) -> None:
    """Says how a call ended; `whole`: with all that it asked for, by others perhaps."""
    store.say(
        {
            "note": "call",
            "id": call,
            "request": digest_of_request(request),
            "ended": True,
            "whole": whole,
            "order": _next(calls(store)),
            "report": dict(report),
        }
    )
    store.flush()


def _next(known: Sequence[Mapping[str, Any]]) -> int:
    return 1 + max((call["order"] for call in known), default=0)


def is_latest(store: Store, request: Request) -> bool:
    """Says whether a request was the last one, and a call for it has ended."""
    known = calls(store)
    return bool(known) and known[-1]["request"] == digest_of_request(request) and known[-1]["ended"]


def check_code(store: Store, request: Request, families: Sequence[bytes], accept: bool) -> None:
    """Refuses a store that holds the same simulation by other code, unless it holds it by this code, too.

    Raises:
      StoreMismatchError: it does; what has changed is named.
    """
    other = changed_code(store, families)
    if not other or accept:
        return
    raise StoreMismatchError(
        f"{str(store.place)!r} holds the same simulation by other code: {_what_changed(store, request, other)}; undo the change, choose another "
        "folder, or simulate it anew beside the other with accept_changed_code=True (--accept-changed-code)"
    )


def _what_changed(store: Store, request: Request, other: set[bytes]) -> str:
    for known in reversed(requests(store).values()):
        for policy in known.policies:
            here = next((p for p in request.policies if set(request.identities[p]) & set(known.identities[policy])), None)
            if here is None or known.code_digest(policy) == request.code_digest(here):
                continue
            there, own = known.code[policy], request.code[here]
            if there["python"] != own["python"]:
                return f"it was made with Python {there['python']}, and whether the code is still the same cannot be told with {own['python']}"
            changed = code.changes(there["digests"], own["digests"])
            more = f" and {len(changed) - 4} more" if len(changed) > 4 else ""
            return f"{', '.join(changed[:4])}{more} changed"
    return f"what the code was is not said there ({len(other)} other versions)"


def sessions(store: Store, families: Sequence[bytes]) -> list[dict[str, Any]]:
    """Returns with what the cells of some families were made, the most frequent first, with the number of cells."""
    wanted, found = set(families), Counter()
    for address, (name, row) in store.where.items():
        if address[:24] in wanted:
            index = store.packs[name]
            found[plain(index.sessions[int(index.rows["session"][row])])] += 1
    return [{**json.loads(session), "cells": number} for session, number in found.most_common()]


def load(path: str | os.PathLike[str], *, partial: bool = False) -> xr.Dataset:
    """Reads a stored result: the one that was asked for last.

    Seeds of calls that differ from the last one in their seeds alone are part of it. Runs that would take more than an eighth of the memory are
    read when they are indexed: `load(path).regret.sel(seed=slice(0, 100))` reads what it needs.

    Args:
      path: the folder or URL given as `out`.
      partial: accepts a result that is not complete; what is missing is NaN.

    Raises:
      ValueError: there is no result, or it is not complete.
      ImportError: a URL needs what is not installed.
      OSError: it cannot be read.
    """
    store = opened(path)
    with contextlib.ExitStack() as until_read:
        until_read.callback(store.close)
        request, seeds, reports = last(store, path)
        if request.keep == "moments":
            found = Statistics(request, store, check=False)
        elif runs.is_large(request):
            found = lazy.LazyRuns(request, store, partial)
        else:
            found = Runs(request, store)
        missing = found.missing(seeds)
        if missing and not partial:
            damage = f"; damaged: {damage_of(store)}" if store.damaged or store.bad else ""
            raise ValueError(
                f"the result in {str(path)!r} is not complete: {missing}{damage}; {_AGAIN}, or load the rest with partial=True"
            )
        if store.damaged:
            warnings.warn(
                f"{len(store.damaged)} files of the result in {str(path)!r} cannot be read ({damage_of(store)}): what was asked for last may have been "
                f"in them; {_AGAIN}",
                stacklevel=2,
            )
        data = found.dataset(seeds)
        data.attrs = encoded({"settings": request.settings, **summed(reports), **made_with(store, found.families)})
        if isinstance(found, lazy.LazyRuns):
            until_read.pop_all()
        return data


def opened(path: str | os.PathLike[str]) -> Store:
    """Opens an existing store.

    Raises:
      ValueError: there is none.
    """
    place = place_of(path)
    if isinstance(place, Folder) and not place.path.is_dir():
        raise ValueError(
            f"path must be a folder with a stored result, got {str(path)!r}, which has no folder {STORE_NAME!r}"
        )
    store = Store(place)
    if not store.packs and not store.damaged:
        store.close()
        raise ValueError(f"path must be that of a stored result, got {str(path)!r}, where no file ends in {ENDING!r}")
    return store


def last(store: Store, path: Any) -> tuple[Request, int, list[dict[str, Any]]]:
    """Returns the last request of a store with the seeds of all like it, their number, and the reports of the calls for it, in order.

    Raises:
      ValueError: no request can be read.
    """
    known, made = requests(store), calls(store)
    if not known:
        raise ValueError(
            f"the result in {str(path)!r} does not say what it consists of: {damage_of(store) or 'it has just been begun'}; {_AGAIN}"
        )
    played = {
        call["request"]: call["report"]["seeds_played"]
        for call in made
        if call["ended"] and "seeds_played" in call["report"]
    }
    request = list(known.values())[-1]
    whole = {call["request"] for call in made if call["ended"] and call["whole"]} | {list(known)[-1]}
    like = {name: one for name, one in known.items() if name in whole and _but_seeds(one) == _but_seeds(request)}
    parts = [one.seeds[: played.get(name, len(one.seeds))] for name, one in reversed(like.items())]
    seeds = np.concatenate(parts)
    _, first = np.unique(seeds, return_index=True)
    seeds = seeds[np.sort(first)]
    if len(like) > 1 and (np.diff(np.sort(seeds).astype(np.int64)) == 1).all():
        seeds = np.sort(seeds)
    if len(seeds) != len(request.seeds) or not np.array_equal(seeds, request.seeds):
        request = request.with_seeds(seeds)
    return request, len(seeds), reports(store, request)


def _but_seeds(request: Request) -> bytes:
    said = request.plain()
    return plain({**said, "seeds": 0, "settings": {**said["settings"], "seeds": 0, "jaxroute": ""}})


def summed(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the attributes of a result from the reports of the calls that made it: those of the last one, and sums of what was measured."""
    if not reports:
        return {}
    found = dict(reports[-1])
    sums: dict[str, Any] = {name: sum(one.get(name, 0) for one in reports) for name in ADDED}
    if len(reports) > 1:
        names = ("created", "commit", "device", "versions", "decisions", "run_s")
        sums["calls"] = [{name: one[name] for name in names if name in one} for one in reports]
    return found | sums


def made_with(store: Store, families: Sequence[bytes]) -> dict[str, Any]:
    """Returns with what cells were made, where that is not the same for all, as an attribute."""
    found = sessions(store, families)
    return {"made_with": found} if len(found) > 1 else {}


def damage_of(store: Store) -> str:
    """Says what in a store cannot be read; empty if all can, as far as it was read."""
    found = [f"{name}: {why}" for name, why in sorted(store.damaged.items())[:3]]
    found += ["..."] if len(store.damaged) > 3 else []
    found += [f"{len(store.bad)} cells are not what was written"] if store.bad else []
    return "; ".join(found)


# Listing and merging.


@dataclasses.dataclass(frozen=True)
class Inspection:
    """Summary of a store.

    Attributes:
      request: the result.
      seeds: number.
      reports: of the calls that made it.
      others: number of other results.
      size: bytes of the packs; packs: their number; cells: number of cells.
      missing: what is to be simulated, in words.
      damage: what cannot be read, in words.
      verified: whether everything was read.
      made_with: with what the cells of the result were made.
      conflicts: cells that were written twice with other numbers.
    """

    request: Request
    seeds: int
    reports: Sequence[Mapping[str, Any]]
    others: int
    size: int
    packs: int
    cells: int
    missing: str
    damage: str
    verified: bool
    made_with: Sequence[Mapping[str, Any]]
    conflicts: int

    @property
    def sound(self) -> bool:
        """True if nothing that the result needs is damaged."""
        return not (self.damage and self.missing)

    def lines(self) -> list[str]:
        """Lines of text for a terminal."""
        request, settings = self.request, self.request.settings
        axes = "".join(f" x {len(values)} {axis}" for axis, values in request.axes.items())
        kept = "statistics over the seeds" if request.keep == "moments" else "every run"
        found = [
            f"holds     {kept}: {len(request.policies)} policies{axes} x {self.seeds:,} seeds x {request.horizon:,} rounds of {settings['problem']}, "
            f"recorded every {settings['record_every']:,}, key {settings['key']}",
            f"policies  {', '.join(request.policies)}",
            f"metrics   {', '.join([*request.variables, *request.zero_flows])}",
        ]
        for one in self.reports:
            commit = f", commit {one['commit']}" if one.get("commit") else ""
            found.append(
                f"made      {one['created']} on {one.get('host', '')}, {one['device']}, with jax {one['versions']['jax']}{commit}: {one['decisions']:,} decisions"
            )
        if len(self.made_with) > 1:
            found += [
                f"cells     {one['cells']:,} with {one['processor']}, jaxroute {one['jaxroute']}" for one in self.made_with
            ]
        if self.others:
            found.append(f"besides   {self.others} other results, asked for before")
        size = f"{self.size / 1e6:,.1f} MB" if self.size > 1e6 else f"{self.size / 1e3:,.1f} kB"
        found.append(f"size      {size} in {self.packs:,} files, {self.cells:,} cells")
        found.append(f"to play   {self.missing or 'nothing'}")
        if self.conflicts:
            found.append(
                f"note      {self.conflicts:,} cells were written twice with other numbers; all readers take the same ones"
            )
        if self.damage:
            found += [f"{'note' if self.sound else 'DAMAGED':<9} {self.damage}"]
            found.append(f"          {'nothing of it is needed' if self.sound else _AGAIN}")
        else:
            found.append(
                "sound     every cell is what was written" if self.verified else "sound     not looked at (--verify)"
            )
        return found


def inspect(path: str | os.PathLike[str], *, verify: bool = False) -> Inspection:
    """Returns what a store holds.

    Args:
      path: folder or URL.
      verify: reads everything, to see whether it is what was written.

    Raises:
      ValueError: it holds no result that can be read.
    """
    store = opened(path)
    try:
        request, seeds, reports = last(store, path)
        if verify:
            for _ in store.read(list(store.where)):
                pass
        found = collect(request, store)
        return Inspection(
            request=request,
            seeds=seeds,
            reports=reports,
            others=sum(_but_seeds(one) != _but_seeds(request) for one in requests(store).values()),
            size=sum(index.file.size for index in store.packs.values()),
            packs=len(store.packs),
            cells=len(store.where),
            missing=found.missing(seeds),
            damage=damage_of(store),
            verified=verify,
            made_with=sessions(store, found.families),
            conflicts=store.conflicts,
        )
    finally:
        store.close()


def experiment_of(path: str | os.PathLike[str]) -> str:
    """Returns the name of the experiment whose results are stored in a folder (or below it), or at a URL.

    Raises:
      ValueError: there are none, or they are not those of an experiment.
    """
    store = opened(path if is_url(path) else stores_in(path)[0])
    try:
        found = last(store, path)[2]
    finally:
        store.close()
    if not found or not found[-1].get("experiment"):
        raise ValueError(
            f"{str(path)!r} must hold the results of `jaxroute run`, got those of another program, or of none that has ended"
        )
    return str(found[-1]["experiment"])


def stores_in(folder: str | os.PathLike[str]) -> list[Path]:
    """Returns the folders below a folder, itself among them, that have a stored result.

    Raises:
      ValueError: there are none.
    """
    path = Path(folder)
    if any(store_path(path).glob(f"*{ENDING}")):
        return [store_path(path).parent]
    found = sorted({file.parent.parent for file in path.rglob(f"{STORE_NAME}/*{ENDING}")})
    if not found:
        raise ValueError(f"folder must hold a stored result, got {str(folder)!r}, where no {STORE_NAME}/*{ENDING} is found")
    return found


def merge(paths: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> None:
    """Puts stores together: their packs are copied, and the result consists of the seeds of all that differ in seeds alone.

    Args:
      paths: folders or URLs with stored results.
      out: folder or URL of the store, which may exist.

    Raises:
      ValueError: one of them has no result, or one that differs in more than the seeds; what differs is named.
    """
    from jaxroute.core.description import first_difference

    if not paths:
        raise ValueError("paths must name at least one stored result, got none")
    sources = [opened(path) for path in paths]
    try:
        known = [last(source, path)[0] for source, path in zip(sources, paths, strict=True)]
        for path, one in zip(paths[1:], known[1:], strict=True):
            if _but_seeds(one) != _but_seeds(known[0]):
                there, here = ({**r.settings, "seeds": 0, "jaxroute": ""} for r in (known[0], one))
                what = first_difference(there, here) or _code_difference(known[0], one)
                raise ValueError(f"{str(paths[0])!r} and {str(path)!r} hold the results of different settings: {what}")
        target = Store(place_of(out))
        try:
            for source in sources:
                target.add(source)
            request = known[0].with_seeds(_all_seeds(known))
            if not is_latest(target, request):
                reports = [note["report"] for source in sources for note in calls(source) if note["ended"]]
                call = begin(target, request)
                merged = {
                    **(reports[-1] if reports else {}),
                    **dict.fromkeys(ADDED, 0),
                    "merged": [str(path) for path in paths],
                }
                merged.pop("seeds_played", None)
                end(target, request, call, merged)
        finally:
            target.close()
    finally:
        for source in sources:
            source.close()


def _all_seeds(known: Sequence[Request]) -> np.ndarray:
    seeds = np.concatenate([one.seeds for one in known])
    _, first = np.unique(seeds, return_index=True)
    return seeds[np.sort(first)]


def _code_difference(one: Request, other: Request) -> str:
    for policy in one.policies:
        if policy in other.policies and one.code[policy] != other.code[policy]:
            changed = code.changes(one.code[policy]["digests"], other.code[policy]["digests"])
            return f"the code of policy {policy!r}: {', '.join(changed[:4])}"
    return "what is recorded, or the order of policies"


def merge_folders(folders: Sequence[Path], out: Path) -> list[Path]:
    """Puts the stores of folders together, those of the same place in each; returns the new ones.

    Raises:
      ValueError: the folders hold other stores than each other, or some cannot be put together.
    """
    places = [[store.relative_to(folder) for store in stores_in(folder)] for folder in folders]
    for folder, found in zip(folders, places, strict=True):
        if found != places[0]:
            texts = [", ".join(map(str, some)) for some in (places[0], found)]
            raise ValueError(f"folders must hold the same stores, got {texts[0]} in {folders[0]} and {texts[1]} in {folder}")
    made = [out / place for place in places[0]]
    for place, target in zip(places[0], made, strict=True):
        merge([folder / place for folder in folders], target)
    return made
