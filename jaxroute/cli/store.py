"""Describes stored results: their size, how they were made, and what is left to simulate.

Examples:
  jaxroute store results/4a --verify
  jaxroute store results/all --merge results/a results/b
  jaxroute store results/4a --export 4a.parquet
"""

import argparse
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxroute.cli.output import Output
from jaxroute.cli.parsing import folder_or_url, path

if TYPE_CHECKING:
    from jaxroute.store.results import Inspection


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", type=folder_or_url, metavar="FOLDER", help="folder of one or several runs, or a URL")
    add("--verify", action="store_true", help="read all data; the exit status is 1 if any is damaged")
    text = "first merge the stores in these folders, of the same settings and other seeds, into FOLDER"
    add("--merge", type=folder_or_url, nargs="+", metavar="SOURCE", help=text)
    text = "write the result as *.zarr, *.nc (netCDF) or *.parquet (tables) instead"
    add("--export", type=path, metavar="FILE", help=text)


def main(options: argparse.Namespace, output: Output) -> int:
    """Merges, exports or describes stored results. Returns 1 if data that a result needs are damaged, else 0."""
    from jaxroute.store import results
    from jaxroute.store.places import is_url

    if options.merge and any(map(is_url, [options.folder, *options.merge])):
        results.merge(options.merge, options.folder)
    elif options.merge:
        output.lines(*map(str, merge_folders(options.merge, options.folder)))
    stores = [options.folder] if is_url(options.folder) else stores_in(options.folder)
    if options.export:
        from jaxroute.store.export import export

        if len(stores) > 1:
            got = f"{str(options.folder)!r} with {len(stores)}: {', '.join(map(str, stores))}"
            raise ValueError(f"--export takes the folder of one result, got {got}")
        files = export(stores[0], options.export)
        output.document({"files": files})
        output.lines(*map(str, files))
        return 0
    found = {str(store): results.inspect(store, verify=options.verify) for store in stores}
    output.document({"stores": [{"store": name, **summary_of(one)} for name, one in found.items()]})
    for i, (name, one) in enumerate(found.items()):
        output.lines(*[""] * (i > 0), f"{name}:")
        output.rows(rows_of(one, most=None if options.verbose else 6), indent=2)
    return 0 if all(one.sound for one in found.values()) else 1


def summary_of(found: "Inspection") -> dict[str, Any]:
    """Converts the description of a store to plain JSON."""
    request, settings = found.request, found.request.settings
    return {
        "problem": settings["problem"],
        "root_seed": settings["root_seed"],
        "policies": request.policies,
        "axes": {name: len(values) for name, values in request.axes.items()},
        "seeds": _ranges(request.seeds),
        "horizon": request.horizon,
        "metrics": [*request.variables, *request.zero_flows],
        "calls": list(found.reports),
        **{name: getattr(found, name) for name in ("size", "cells", "conflicts", "missing", "damage", "verified", "sound")},
    }


def rows_of(found: "Inspection", most: int | None = 6) -> list[tuple[str, ...]]:
    """Returns labels and texts that describe a store, for a table; `most` limits how many ranges of seeds are listed, None lists all."""
    from jaxroute.data.files import join_names
    from jaxroute.store.results import AGAIN

    request, settings = found.request, found.request.settings
    axes = "".join(f" x {len(values)} {axis}" for axis, values in request.axes.items())
    kept = "statistics over the seeds" if request.keep == "moments" else "every run"
    size = f"{found.size / 1e6:,.1f} MB" if found.size > 1e6 else f"{found.size / 1e3:,.1f} kB"
    files = f"{found.packs:,} file{'s' * (found.packs != 1)}"
    spans = [f"{low:,} to {high:,}" if low < high else f"{low:,}" for low, high in _ranges(request.seeds)]
    contents = (
        f"{kept}: {len(request.policies)} policies{axes} x {len(request.seeds):,} seeds x {request.horizon:,} rounds of "
        f"{settings['problem']}, recorded every {settings['record_every']:,}, root seed {settings['root_seed']}"
    )
    rows: list[tuple[str, ...]] = [
        ("contents", contents),
        ("seeds", join_names(spans, most or len(spans))),
        ("policies", ", ".join(request.policies)),
        ("metrics", ", ".join([*request.variables, *request.zero_flows])),
    ]
    by_version: dict[str, list[Any]] = {}
    for one in found.reports:
        commit = f", commit {one['commit']}" if one.get("commit") else ""
        by_version.setdefault(f"{one['device']}, with jax {one['versions']['jax']}{commit}", []).append(one)
    for version, calls in by_version.items():
        dates = sorted(one["created"] for one in calls)
        when = f"{dates[0]} to {dates[-1]}, by {len(calls):,} calls" if len(calls) > 1 else dates[0]
        hosts = join_names(sorted({one.get("host", "") for one in calls}), most or len(calls))
        decisions = sum(one["decisions"] for one in calls)
        rows.append(("created", f"{when} on {hosts}, {version}: {decisions:,} decisions"))
    if len(found.made_with) > 1:
        rows += [("cells", f"{one['cells']:,} by {one['processor']}, jaxroute {one['jaxroute']}") for one in found.made_with]
    if found.others:
        rows.append(("other", f"{found.others} other results, of earlier settings"))
    rows += [("size", f"{size} in {files}, {found.cells:,} cells"), ("missing", found.missing or "nothing")]
    if found.conflicts:
        text = f"{found.conflicts:,} cells were written twice with different numbers; all readers use the same ones"
        rows.append(("note", text, "yellow"))
    if found.damage:
        label, colour, text = ("note", "yellow", "it is not needed") if found.sound else ("DAMAGED", "red", AGAIN)
        return [*rows, (label, f"{found.damage}; {text}", colour)]
    return [*rows, ("check", "all data are as they were written" if found.verified else "not verified (see --verify)")]


def _ranges(seeds: Any) -> list[list[int]]:
    """Returns a pair (first seed, last seed) for each range of consecutive seeds."""
    import numpy as np

    values = np.sort(seeds.astype(np.int64))
    return [[int(run[0]), int(run[-1])] for run in np.split(values, np.flatnonzero(np.diff(values) != 1) + 1)]


def experiment_in(path: str | os.PathLike[str]) -> str:
    """Returns the name of the experiment whose store is at a URL, or is the first in or below a folder. Raises `ValueError` if there is none."""
    from jaxroute.store import results
    from jaxroute.store.places import is_url

    with contextlib.closing(results.opened(path if is_url(path) else stores_in(path)[0])) as store:
        reports = results.CallLog(store).last(store, path)[1]
    if not reports or not reports[-1].get("experiment"):
        got = "those of another program, or of a run that has not finished"
        raise ValueError(f"{str(path)!r} must hold the results of `jaxroute run`, got {got}")
    return str(reports[-1]["experiment"])


def stores_in(folder: str | os.PathLike[str]) -> list[Path]:
    """Returns all folders with a stored result: the given one, or folders below it. Raises ValueError if there is none."""
    from jaxroute.store.packs import ENDING
    from jaxroute.store.places import STORE_NAME, store_path

    path = Path(folder)
    if any(store_path(path).glob(f"*{ENDING}")):
        return [store_path(path).parent]
    found = sorted({file.parent.parent for file in path.rglob(f"{STORE_NAME}/*{ENDING}")})
    if not found:
        raise ValueError(f"folder must hold a stored result, got {str(folder)!r}, where no {STORE_NAME}/*{ENDING} is found")
    return found


def merge_folders(folders: Sequence[Path], out: Path) -> list[Path]:
    """Merges folders of stores: stores at the same relative path in all `folders` become one at this path in `out`. Returns the new stores.

    Raises `ValueError` if the folders hold stores at different paths, or some stores cannot be merged.
    """
    from jaxroute.store import results

    places = [[store.relative_to(folder) for store in stores_in(folder)] for folder in folders]
    for folder, found in zip(folders, places, strict=True):
        if found != places[0]:
            texts = [", ".join(map(str, some)) for some in (places[0], found)]
            raise ValueError(f"folders must hold the same stores, got {texts[0]} in {folders[0]} and {texts[1]} in {folder}")
    for place in places[0]:
        results.merge([folder / place for folder in folders], out / place)
    return [out / place for place in places[0]]
