"""Results of a store: the log of calls, loading, inspection and merging.

The notes of a store (plain JSON) are a "request" (`cells.Request`) for each result, and a "call" for each beginning and end of a call that simulated
runs. The result of a store belongs to the last request. It includes the seeds of earlier requests that differ from the last one in the seeds alone.
Calls are numbered, because clocks of machines may differ.
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
import pandas as pd
import xarray as xr

from jaxroute.core import checks, code
from jaxroute.core.attributes import encoded
from jaxroute.core.description import first_difference
from jaxroute.store import runs
from jaxroute.store.cells import CURVES, STATISTICS, Request
from jaxroute.store.moments import Statistics
from jaxroute.store.packs import ENDING, PackStore, StoreMismatchError, plain
from jaxroute.store.places import STORE_NAME, Folder, place_of
from jaxroute.store.runs import LazyRuns, Runs

# Measurements in the report of a call that are summed over all calls for a result.
ADDED = ("compile_s", "run_s", "decisions", "played_again")
AGAIN = "the same call, or command, simulates just that again"
# Class of a result by `Request.keep`.
RESULTS: Mapping[str, Callable[[Request, PackStore | None], Runs | Statistics]] = {"runs": Runs, "moments": Statistics}


class CallLog:
    """Log of the calls of `simulate` that used a store. `calls` lists notes of their beginnings and ends in order; an end has a report."""

    def __init__(self, store: PackStore):
        self._notes = dict(store.notes)
        calls = [note for note in self._notes.values() if note.get("note") == "call"]
        self.calls = sorted(calls, key=lambda note: (note["order"], note["ended"], note["id"]))

    @functools.cached_property
    def requests(self) -> dict[str, Request]:
        """Requests (descriptions of simulations) by digest, in the order of their last calls."""
        order = {call["request"]: i for i, call in enumerate(self.calls)}
        found = {name: Request.from_plain(note) for name, note in self._notes.items() if note.get("note") == "request"}
        return dict(sorted(found.items(), key=lambda one: order.get(one[0], -1)))

    def settings(self) -> dict[str, Any]:
        """Returns the settings of the last request; an empty dict if there is none."""
        return dict(list(self.requests.values())[-1].settings) if self.requests else {}

    def is_latest(self, request: Request) -> bool:
        """Whether the last call has ended and was for this request, so that a repeated call that simulates nothing need not be logged."""
        return bool(self.calls) and self.calls[-1]["request"] == request.digest and self.calls[-1]["ended"]

    def reports(self, request: Request) -> list[dict[str, Any]]:
        """Returns the reports, in order, of all finished calls that share a policy and setting with a request, for any horizon and seeds."""
        own = set(itertools.chain(*request.identities.values()))
        like = {n for n, r in self.requests.items() if not own.isdisjoint(itertools.chain(*r.identities.values()))}
        return [call["report"] for call in self.calls if call["ended"] and call["request"] in like]

    def last(self, store: PackStore, path: Any) -> tuple[Request, list[dict[str, Any]]]:
        """Returns the last request and, in order, the `reports` of all finished calls of `simulate` that share a policy and setting with it.

        Finished requests that differ from it in their seeds alone belong to the same result: the returned request has the seeds of all of them.
        Raises `ValueError` if no request can be read; the message names `path`.
        """
        if not self.requests:
            why = damage_of(store) or "it has just been created"
            raise ValueError(f"the result in {str(path)!r} does not say what it consists of: {why}; {AGAIN}")
        ended = [call for call in self.calls if call["ended"]]
        played = {call["request"]: call["report"].get("seeds_played") for call in ended}
        name, request = list(self.requests.items())[-1]
        whole = {call["request"] for call in ended if call["whole"]} | {name}
        like = [n for n, one in self.requests.items() if n in whole and _but_seeds(one) == _but_seeds(request)]
        seeds = pd.unique(np.concatenate([self.requests[one].seeds[: played.get(one)] for one in reversed(like)]))
        if len(like) > 1 and (np.diff(np.sort(seeds).astype(np.int64)) == 1).all():
            seeds = np.sort(seeds)
        if not np.array_equal(seeds, request.seeds):
            request = request.with_seeds(seeds)
        return request, self.reports(request)


def _but_seeds(request: Request) -> bytes:
    content = request.plain()
    return plain({**content, "seeds": 0, "settings": {**content["settings"], "seeds": 0, "jaxroute": ""}})


def _call_note(store: PackStore, request: Request, call: str, ended: bool) -> dict[str, Any]:
    """Returns the note of the beginning or end of the call with the identifier `call`; its entry `order` counts such notes in a store from 1."""
    order = 1 + max((one["order"] for one in CallLog(store).calls), default=0)
    return {"note": "call", "id": call, "request": request.digest, "ended": ended, "order": order}


def begin(store: PackStore, request: Request) -> str:
    """Adds a request, and the beginning of a call of `simulate`, to all packs that `store` will write. Returns an identifier of the call."""
    call = uuid.uuid4().hex
    for note in (request.plain(), _call_note(store, request, call, False)):
        store.add_note(note, always=True)
    return call


def end(store: PackStore, request: Request, call: str, report: Mapping[str, Any], whole: bool = True) -> None:
    """Writes to the store that `call` (from `begin`) has ended, with its report and with `whole`, which tells whether its result is complete."""
    store.add_note(_call_note(store, request, call, True) | {"whole": whole, "report": dict(report)})
    store.flush()


def prepare(store: PackStore, request: Request, accept_changed_code: bool) -> bool:
    """Checks a store before `request` is simulated. Returns whether it has notes of any request, or cells (stored results) of this one.

    Warns of damaged files and of cells that other devices or versions computed. Raises `StoreMismatchError` if only other code has computed cells of
    the same simulation, unless `accept_changed_code`.
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
        if different := [f"{n} {one.get(n)!r} there and {v!r} here" for n, v in here.items() if one.get(n) != v]:
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
    """Returns a dict for each session that computed cells of `families`: versions, devices, and the number of `cells`; most cells first."""
    requested, found = set(families), Counter()
    for address, (name, row) in store.where.items():
        if address[:24] in requested:
            found[name, int(store.packs[name].rows["session"][row])] += 1
    sessions: Counter[bytes] = Counter()
    for (name, number), times in found.items():
        sessions[plain(store.packs[name].sessions[number])] += times
    return [{**json.loads(session), "cells": number} for session, number in sessions.most_common()]


@checks.suggest_keywords
def load(path: str | os.PathLike[str], *, partial: bool = False) -> xr.Dataset:
    """Reads the result of the last call that simulated into a store.

    It includes the seeds of calls that differ from the last one in their seeds alone. Runs that would take more than an eighth of the memory are
    read when they are indexed: `load(path).regret.sel(seed=slice(0, 100))` reads only these runs.

    Args:
      path: folder or URL that was given as `out`.
      partial: whether to accept a result that is not complete, with NaN for missing values.

    Raises:
      ValueError: there is no result, or it is not complete.
      ImportError: a URL needs obstore, which is not installed.
      OSError: the store cannot be read.
    """
    store = opened(path)
    with contextlib.ExitStack() as until_read:
        until_read.callback(store.close)
        request, reports = CallLog(store).last(store, path)
        seeds = len(request.seeds)
        if request.keep == "moments":
            found = Statistics(request, store, check=False)
        elif runs.is_large(request):
            found = LazyRuns(request, store, partial)
        else:
            found = Runs(request, store)
        if (missing := found.missing(seeds)) and not partial:
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
        if isinstance(found, LazyRuns):
            until_read.pop_all()
        return data


def opened(path: str | os.PathLike[str]) -> PackStore:
    """Opens the store of an existing result; raises `ValueError` if there is none."""
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
    """Returns the last report, with times and counts summed over all. If there are several, the entry `calls` has date, versions and time of each."""
    found: dict[str, Any] = dict(reports[-1]) if reports else {}
    found |= {name: sum(one.get(name, 0) for one in reports) for name in ADDED} if reports else {}
    if len(reports) > 1:
        names = ("created", "commit", "device", "versions", "decisions", "run_s")
        found["calls"] = [{name: one[name] for name in names if name in one} for one in reports]
    return found


def made_with(store: PackStore, families: Sequence[bytes]) -> dict[str, Any]:
    """Returns an entry `made_with` that lists the `sessions` of the cells of a result; an empty dict if all have the same versions and device."""
    found = sessions(store, families)
    return {"made_with": found} if len(found) > 1 else {}


def damage_of(store: PackStore) -> str:
    """Describes in words which files and how many cells of a store are damaged; an empty text means none."""
    found = [f"{name}: {why}" for name, (_, why) in sorted(store.damaged.items())[:3]]
    found += ["..."] if len(store.damaged) > 3 else []
    found += [f"{len(store.bad)} cells are not what was written"] if store.bad else []
    return "; ".join(found)


# Inspection and merging.


@dataclasses.dataclass(frozen=True)
class Inspection:
    """Summary of a store.

    Attributes:
      request: request of the result that `load` returns.
      reports: reports of the calls that simulated it.
      others: number of requests for other results.
      size: total size of the packs in bytes.
      packs: number of packs.
      cells: number of cells.
      missing: description of missing runs; empty if there are none.
      damage: description of damaged files and cells; empty if none were found.
      verified: whether all cells were read to find damage.
      made_with: versions and devices by which the cells of the result were computed, with the number of cells.
      conflicts: number of copies of cells whose numbers differ from those of the copy that is read.
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
        """Whether no run is missing because of damage: False if runs are missing and damage was found."""
        return not (self.damage and self.missing)


def inspect(path: str | os.PathLike[str], *, verify: bool = False) -> Inspection:
    """Summarises the result and the files of a store; raises `ValueError` if it has no result that can be read.

    Args:
      path: folder or URL that was given as `out`.
      verify: whether to read all cells, to find damaged ones.
    """
    with contextlib.closing(opened(path)) as store:
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


def merge(paths: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> None:
    """Merges stores whose results differ in the seeds alone: copies their packs to one store, whose result has all seeds.

    Args:
      paths: folders or URLs with stored results.
      out: folder or URL of the merged store, which may exist.

    Raises:
      ValueError: a store has no result, or results differ in more than the seeds; the message names the difference.
    """
    if not paths:
        raise ValueError("paths must name at least one stored result, got none")
    with contextlib.ExitStack() as opening:
        sources = [opening.enter_context(contextlib.closing(opened(path))) for path in paths]
        requests = [CallLog(source).last(source, path)[0] for source, path in zip(sources, paths, strict=True)]
        for path, one in zip(paths[1:], requests[1:], strict=True):
            if _but_seeds(one) != _but_seeds(requests[0]):
                there, here = ({**r.settings, "seeds": 0, "jaxroute": ""} for r in (requests[0], one))
                what = first_difference(there, here) or _code_difference(requests[0], one)
                raise ValueError(f"{str(paths[0])!r} and {str(path)!r} hold the results of different settings: {what}")
        target = opening.enter_context(contextlib.closing(PackStore(place_of(out))))
        for source in sources:
            target.add(source)
        request = requests[0].with_seeds(pd.unique(np.concatenate([one.seeds for one in requests])))
        if not CallLog(target).is_latest(request):
            ended = [call["report"] for source in sources for call in CallLog(source).calls if call["ended"]]
            report = {n: v for n, v in (ended or [{}])[-1].items() if n != "seeds_played"}
            merged = {**report, **dict.fromkeys(ADDED, 0), "merged": [str(path) for path in paths]}
            end(target, request, begin(target, request), merged)


def _code_difference(one: Request, other: Request) -> str:
    for policy in one.policies:
        for mine, theirs in zip(one.identities[policy], other.identities.get(policy, ()), strict=False):
            if mine[32:] != theirs[32:]:
                changed = code.changes(one.code[mine[32:]]["digests"], other.code[theirs[32:]]["digests"])
                return f"the code of policy {policy!r}: {', '.join(changed[:4])}"
    return "what is recorded, or the order of policies"
