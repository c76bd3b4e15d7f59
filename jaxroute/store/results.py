"""Results of a store: requests, calls, reading, listing and merging.

A store says what was asked for in notes: a "request" (`cells.Request`) for each result, and a "call" for each beginning and end of a call that
simulated something. The result of a store is the one that was asked for last, with the seeds of all requests that differ from it in the
seeds alone. The order of calls is counted, not read from clocks.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from jaxroute.core import checks, code
from jaxroute.core.attributes import encoded
from jaxroute.core.description import first_difference
from jaxroute.store import lazy, runs
from jaxroute.store.cells import CURVES, STATISTICS, Request
from jaxroute.store.moments import Statistics
from jaxroute.store.packs import ENDING, PackStore, StoreMismatchError, plain
from jaxroute.store.places import STORE_NAME, Folder, place_of
from jaxroute.store.runs import Runs

# Measurements of a call that are summed over the calls for a result.
ADDED = ("compile_s", "run_s", "decisions", "played_again")
AGAIN = "the same call, or command, simulates just that again"


# Classes of results, by what is stored of the runs.
RESULTS: Mapping[str, Callable[[Request, PackStore | None], Runs | Statistics]] = {"runs": Runs, "moments": Statistics}


class CallLog:
    """Requests and calls that are recorded in the notes of a store.

    Args:
      store: the store.

    Attributes:
      calls: notes of the beginnings and ends of calls, in order.
    """

    def __init__(self, store: PackStore):
        self._notes = dict(store.notes)
        calls = [note for note in self._notes.values() if note.get("note") == "call"]
        self.calls = sorted(calls, key=lambda note: (note["order"], note["ended"], note["id"]))

    @functools.cached_property
    def requests(self) -> dict[str, Request]:
        """Requests by digest, the last one at the end."""
        order = {call["request"]: i for i, call in enumerate(self.calls)}
        found = {name: Request.from_plain(note) for name, note in self._notes.items() if note.get("note") == "request"}
        return dict(sorted(found.items(), key=lambda one: order.get(one[0], -1)))

    @property
    def next(self) -> int:
        """Number of the next call."""
        return 1 + max((call["order"] for call in self.calls), default=0)

    def settings(self) -> dict[str, Any]:
        """Returns the settings of the request that was made last; none if there is none."""
        return dict(list(self.requests.values())[-1].settings) if self.requests else {}

    def is_latest(self, request: Request) -> bool:
        """Returns whether a request was the last one, and a call for it has ended."""
        return bool(self.calls) and self.calls[-1]["request"] == request.digest and self.calls[-1]["ended"]

    def reports(self, request: Request) -> list[dict[str, Any]]:
        """Returns the reports of the calls that simulated cells of a result, of any horizon and seeds, in order."""
        own = {one for some in request.identities.values() for one in some}
        like = {
            n for n, r in self.requests.items() if not own.isdisjoint(one for some in r.identities.values() for one in some)
        }
        return [call["report"] for call in self.calls if call["ended"] and call["request"] in like]

    def last(self, store: PackStore, path: Any) -> tuple[Request, list[dict[str, Any]]]:
        """Returns the last request with the seeds of all like it, and the reports of the calls for it, in order.

        Raises:
          ValueError: no request can be read.
        """
        if not self.requests:
            why = damage_of(store) or "it has just been created"
            raise ValueError(f"the result in {str(path)!r} does not say what it consists of: {why}; {AGAIN}")
        ended = [call for call in self.calls if call["ended"]]
        played = {call["request"]: call["report"].get("seeds_played") for call in ended}
        name, request = list(self.requests.items())[-1]
        whole = {call["request"] for call in ended if call["whole"]} | {name}
        like = [n for n, one in self.requests.items() if n in whole and _but_seeds(one) == _but_seeds(request)]
        seeds = _joined([self.requests[one].seeds[: played.get(one)] for one in reversed(like)])
        if len(like) > 1 and (np.diff(np.sort(seeds).astype(np.int64)) == 1).all():
            seeds = np.sort(seeds)
        if not np.array_equal(seeds, request.seeds):
            request = request.with_seeds(seeds)
        return request, self.reports(request)


def _but_seeds(request: Request) -> bytes:
    content = request.plain()
    return plain({**content, "seeds": 0, "settings": {**content["settings"], "seeds": 0, "jaxroute": ""}})


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """All seeds of some parts once, in order."""
    seeds = np.concatenate(parts)
    return seeds[np.sort(np.unique(seeds, return_index=True)[1])]


def begin(store: PackStore, request: Request) -> str:
    """Records a request in all packs of a store; returns the name of the call."""
    call = uuid.uuid4().hex
    store.add_note(request.plain(), always=True)
    about = {"note": "call", "id": call, "request": request.digest, "ended": False, "order": CallLog(store).next}
    store.add_note(about, always=True)
    return call


def end(store: PackStore, request: Request, call: str, report: Mapping[str, Any], whole: bool = True) -> None:
    """Records the end of a call; `whole`: whether the result is complete."""
    about = {"note": "call", "id": call, "request": request.digest, "ended": True, "order": CallLog(store).next}
    store.add_note({**about, "whole": whole, "report": dict(report)})
    store.flush()


def prepare(store: PackStore, request: Request, accept_changed_code: bool) -> bool:
    """Checks a store before anything is simulated; returns whether some of the cells may be stored.

    Raises:
      StoreMismatchError: it holds the same simulation by other code.
    """
    kinds = (CURVES, STATISTICS) if request.keep == "moments" else (CURVES,)
    families = [family for policy in request.policies for kind in kinds for family in request.families(kind, policy)]
    codes = ((family[16:], store.families.get(family[:16], set())) for family in families)
    other = {code for own, some in codes if own not in some for code in some}
    if other and not accept_changed_code:
        raise StoreMismatchError(
            f"{str(store.place)!r} holds the same simulation by other code: {_what_changed(store, request, other)}; undo the change, choose "
            "another folder, or simulate it again beside the other with out=jaxroute.Store(..., accept_changed_code=True) "
            "(--accept-changed-code)"
        )
    if store.damaged:
        checks.warn(
            f"{len(store.damaged)} files in {str(store.place)!r} are damaged ({damage_of(store)}); their content is simulated again"
        )
    here, there = dict(store.session), sessions(store, families)
    for one in there:
        different = [
            f"{name} {one.get(name)!r} there and {value!r} here" for name, value in here.items() if one.get(name) != value
        ]
        if different:
            checks.warn(
                f"{str(store.place)!r} was made with something else: {', '.join(different)}; what is simulated now may differ from it in the last "
                "bits. Each cell says with what it was made"
            )
            break
    return bool(there) or bool(CallLog(store).requests)


def _what_changed(store: PackStore, request: Request, other: set[bytes]) -> str:
    own = {one[:32]: one[32:] for some in request.identities.values() for one in some}
    for earlier in reversed(CallLog(store).requests.values()):
        for one in itertools.chain(*earlier.identities.values()):
            if own.get(one[:32], one[32:]) != one[32:]:
                there, here = earlier.code[one[32:]], request.code[own[one[:32]]]
                if there["python"] != here["python"]:
                    return f"it was made with Python {there['python']}, and whether the code is still the same cannot be told with {here['python']}"
                changed = code.changes(there["digests"], here["digests"])
                more = f" and {len(changed) - 4} more" if len(changed) > 4 else ""
                return f"{', '.join(changed[:4])}{more} changed"
    return f"the earlier code is unknown ({len(other)} other versions)"


def sessions(store: PackStore, families: Sequence[bytes]) -> list[dict[str, Any]]:
    """Returns versions and devices of the cells of some families, the most frequent first, with the number of cells."""
    wanted, found = set(families), Counter()
    for address, (name, row) in store.where.items():
        if address[:24] in wanted:
            found[name, int(store.packs[name].rows["session"][row])] += 1
    sessions: Counter[bytes] = Counter()
    for (name, number), times in found.items():
        sessions[plain(store.packs[name].sessions[number])] += times
    return [{**json.loads(session), "cells": number} for session, number in sessions.most_common()]


@checks.suggest_keywords
def load(path: str | os.PathLike[str], *, partial: bool = False) -> xr.Dataset:
    """Reads a stored result: that of the last call.

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
        request, reports = CallLog(store).last(store, path)
        seeds = len(request.seeds)
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
                f"the result in {str(path)!r} is not complete: {missing}{damage}; {AGAIN}, or load the rest with partial=True"
            )
        if store.damaged:
            checks.warn(
                f"{len(store.damaged)} files of the result in {str(path)!r} cannot be read ({damage_of(store)}): what was asked for last may have been "
                f"in them; {AGAIN}"
            )
        data = found.dataset(seeds)
        data.attrs = encoded({"settings": request.settings, **summed(reports), **made_with(store, found.families)})
        if isinstance(found, lazy.LazyRuns):
            until_read.pop_all()
        return data


def opened(path: str | os.PathLike[str]) -> PackStore:
    """Opens an existing store.

    Raises:
      ValueError: there is none.
    """
    place = place_of(path)
    if isinstance(place, Folder) and not place.path.is_dir():
        raise ValueError(
            f"path must be a folder with a stored result, got {str(path)!r}, which has no folder {STORE_NAME!r}"
        )
    store = PackStore(place)
    if not store.packs and not store.damaged:
        store.close()
        raise ValueError(f"path must be that of a stored result, got {str(path)!r}, where no file ends in {ENDING!r}")
    return store


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


def made_with(store: PackStore, families: Sequence[bytes]) -> dict[str, Any]:
    """Returns with what cells were made, where that is not the same for all, as an attribute."""
    found = sessions(store, families)
    return {"made_with": found} if len(found) > 1 else {}


def damage_of(store: PackStore) -> str:
    """Says what in a store cannot be read; empty if all can, as far as it was read."""
    found = [f"{name}: {why}" for name, (_, why) in sorted(store.damaged.items())[:3]]
    found += ["..."] if len(store.damaged) > 3 else []
    found += [f"{len(store.bad)} cells are not what was written"] if store.bad else []
    return "; ".join(found)


# Listing and merging.


@dataclasses.dataclass(frozen=True)
class Inspection:
    """Summary of a store.

    Attributes:
      request: the result.
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
        notes = CallLog(store)
        request, reports = notes.last(store, path)
        if verify:
            for _ in store.read(list(store.where)):
                pass
        found = RESULTS[request.keep](request, store)
        return Inspection(
            request=request,
            reports=reports,
            others=sum(_but_seeds(one) != _but_seeds(request) for one in notes.requests.values()),
            size=sum(index.file.size for index in store.packs.values()),
            packs=len(store.packs),
            cells=len(store.where),
            missing=found.missing(len(request.seeds)),
            damage=damage_of(store),
            verified=verify,
            made_with=sessions(store, found.families),
            conflicts=store.conflicts,
        )
    finally:
        store.close()


def merge(paths: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> None:
    """Puts stores together: their packs are copied, and the result consists of the seeds of all that differ in seeds alone.

    Args:
      paths: folders or URLs with stored results.
      out: folder or URL of the store, which may exist.

    Raises:
      ValueError: one of them has no result, or one that differs in more than the seeds; what differs is named.
    """
    if not paths:
        raise ValueError("paths must name at least one stored result, got none")
    sources = [opened(path) for path in paths]
    try:
        requests = [CallLog(source).last(source, path)[0] for source, path in zip(sources, paths, strict=True)]
        for path, one in zip(paths[1:], requests[1:], strict=True):
            if _but_seeds(one) != _but_seeds(requests[0]):
                there, here = ({**r.settings, "seeds": 0, "jaxroute": ""} for r in (requests[0], one))
                what = first_difference(there, here) or _code_difference(requests[0], one)
                raise ValueError(f"{str(paths[0])!r} and {str(path)!r} hold the results of different settings: {what}")
        target = PackStore(place_of(out))
        try:
            for source in sources:
                target.add(source)
            request = requests[0].with_seeds(_joined([one.seeds for one in requests]))
            if not CallLog(target).is_latest(request):
                ended = [call["report"] for source in sources for call in CallLog(source).calls if call["ended"]]
                report = {n: v for n, v in (ended or [{}])[-1].items() if n != "seeds_played"}
                merged = {**report, **dict.fromkeys(ADDED, 0), "merged": [str(path) for path in paths]}
                end(target, request, begin(target, request), merged)
        finally:
            target.close()
    finally:
        for source in sources:
            source.close()


def _code_difference(one: Request, other: Request) -> str:
    for policy in one.policies:
        for mine, theirs in zip(one.identities[policy], other.identities.get(policy, ()), strict=False):
            if mine[32:] != theirs[32:]:
                changed = code.changes(one.code[mine[32:]]["digests"], other.code[theirs[32:]]["digests"])
                return f"the code of policy {policy!r}: {', '.join(changed[:4])}"
    return "what is recorded, or the order of policies"
