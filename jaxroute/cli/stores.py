"""Command `jaxroute store`: what stored results hold, merged or exported."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxroute.data.files import join_names
from jaxroute.store import results
from jaxroute.store.packs import ENDING
from jaxroute.store.places import STORE_NAME, is_url, store_path


def main(options: Any) -> int:
    """Merges, exports or lists; returns 1 if something that a result needs is damaged."""
    if options.merge and any(map(is_url, [options.folder, *options.merge])):
        results.merge(options.merge, options.folder)
    elif options.merge:
        print(*merge_folders(options.merge, options.folder), sep="\n")
    stores = [options.folder] if is_url(options.folder) else stores_in(options.folder)
    if options.export:
        from jaxroute.store.export import export

        if len(stores) > 1:
            names = ", ".join(map(str, stores))
            raise ValueError(
                f"--export takes the folder of one result, got {str(options.folder)!r} with {len(stores)}: {names}"
            )
        print(*export(stores[0], options.export), sep="\n")
        return 0
    found = [results.inspect(store, verify=options.verify) for store in stores]
    print("\n\n".join("\n  ".join([f"{store}:", *lines_of(one)]) for store, one in zip(stores, found, strict=True)))
    return 0 if all(one.sound for one in found) else 1


def lines_of(found: results.Inspection) -> list[str]:
    """Returns lines of text about a store."""
    request, settings = found.request, found.request.settings
    axes = "".join(f" x {len(values)} {axis}" for axis, values in request.axes.items())
    kept = "statistics over the seeds" if request.keep == "moments" else "every run"
    size = f"{found.size / 1e6:,.1f} MB" if found.size > 1e6 else f"{found.size / 1e3:,.1f} kB"
    lines = [
        f"holds     {kept}: {len(request.policies)} policies{axes} x {len(request.seeds):,} seeds x {request.horizon:,} rounds of "
        f"{settings['problem']}, recorded every {settings['record_every']:,}, key {settings['key']}",
        f"seeds     {spans_of(request.seeds)}",
        f"policies  {', '.join(request.policies)}",
        f"metrics   {', '.join([*request.variables, *request.zero_flows])}",
    ]
    by_version: dict[str, list[Mapping[str, Any]]] = {}
    for one in found.reports:
        commit = f", commit {one['commit']}" if one.get("commit") else ""
        by_version.setdefault(f"{one['device']}, with jax {one['versions']['jax']}{commit}", []).append(one)
    for version, calls in by_version.items():
        first, last = min(one["created"] for one in calls), max(one["created"] for one in calls)
        when = f"{first} to {last}, by {len(calls):,} calls" if len(calls) > 1 else first
        hosts = join_names(sorted({one.get("host", "") for one in calls}), 3)
        lines.append(f"made      {when} on {hosts}, {version}: {sum(one['decisions'] for one in calls):,} decisions")
    if len(found.made_with) > 1:
        lines += [
            f"cells     {one['cells']:,} with {one['processor']}, jaxroute {one['jaxroute']}" for one in found.made_with
        ]
    if found.others:
        lines.append(f"besides   {found.others} other results, asked for before")
    files = f"{found.packs:,} file{'s' * (found.packs != 1)}"
    lines.append(f"size      {size} in {files}, {found.cells:,} cells")
    lines.append(f"to play   {found.missing or 'nothing'}")
    if found.conflicts:
        lines.append(
            f"note      {found.conflicts:,} cells were written twice with other numbers; all readers take the same ones"
        )
    if found.damage:
        lines += [f"{'note' if found.sound else 'DAMAGED':<9} {found.damage}"]
        lines.append(f"          {'nothing of it is needed' if found.sound else results.AGAIN}")
    else:
        lines.append("sound     every cell is what was written" if found.verified else "sound     not looked at (--verify)")
    return lines


def spans_of(seeds: np.ndarray, most: int = 6) -> str:
    """Returns seeds as ranges in words, such as "0 to 99, 200 and 3 more"."""
    values = np.sort(seeds.astype(np.int64))
    parts = np.split(values, np.flatnonzero(np.diff(values) != 1) + 1)
    return join_names([f"{part[0]:,} to {part[-1]:,}" if len(part) > 1 else f"{part[0]:,}" for part in parts], most)


def experiment_of(path: str | os.PathLike[str]) -> str:
    """Returns the name of the experiment whose results are stored in a folder (or below it), or at a URL.

    Raises:
      ValueError: there are none, or they are not those of an experiment.
    """
    with contextlib.closing(results.opened(path if is_url(path) else stores_in(path)[0])) as store:
        found = results.CallLog(store).last(store, path)[1]
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
        results.merge([folder / place for folder in folders], target)
    return made
