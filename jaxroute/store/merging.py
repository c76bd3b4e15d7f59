"""Stores of the same settings and other seeds put together: what machines made that share no file system."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import zarr

from jaxroute.core.types import Metric
from jaxroute.store import integrity, runs
from jaxroute.store.description import (
    FORMAT,
    Contents,
    StoreMismatchError,
    exists,
    now,
    own_attributes,
    place_of,
    sealed,
)
from jaxroute.store.difference import describe_seeds, difference
from jaxroute.store.growth import by_run, carry_blocks, sessions_of

Attributes = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class _Source:
    """A store that is read.

    path: as the user gave it. attributes: of the store. stored: its arrays. values: what is sound. made: session of each run.
    """

    path: str
    attributes: Attributes
    stored: runs.Stored
    values: Mapping[str, np.ndarray]
    made: np.ndarray

    @property
    def coords(self) -> dict[str, np.ndarray]:
        """Policies, settings by axis, and seeds."""
        return {name: self.stored.coords[name] for name in ("policy", *self.stored.axes, "seed")}


def merge(paths: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> None:
    """Makes a store of the runs of several, which stay as they are.

    Seeds come in the order of the stores; those that several have are taken from the first. A store that is unfinished may be merged: what is
    missing is missing in the result, too, and the same run as theirs, with all these seeds, plays it.

    Args:
      paths: of two stores or more, of single runs, with the same settings but for seeds.
      out: of the new one, where nothing may be yet.

    Raises:
      StoreMismatchError: the stores are of other settings, or were made by other code.
      ValueError: there are fewer than two, one cannot be read, or something is in the way.
    """
    if len(paths) < 2:
        raise ValueError(f"paths must be those of at least two stores, got {len(paths)}")
    target = place_of(out)
    with target.lock():
        if exists(target):
            raise ValueError(f"out must be a new folder, got {str(out)!r}, where there is a store")
        described = [_attributes(path) for path in paths]
        for path, attributes in zip(paths[1:], described[1:], strict=True):
            _check_same(str(paths[0]), described[0], str(path), attributes)
        sources = [_source(str(path), attributes) for path, attributes in zip(paths, described, strict=True)]
        sessions, several = _sessions(sources)
        seeds, chosen = _seeds(sources)
        contents = _contents(sources[0], seeds, sessions[-1])
        aside = target.aside()
        first = sources[0].attributes
        said = {
            "settings": {**first["settings"], "seeds": describe_seeds(seeds)},
            "layout": first["layout"],
            "code": first.get("code"),
            "made_with": sessions,
            **_sums(sources),
        }
        zarr.create_group(aside.as_zarr(), attributes=sealed(said))
        coords = {**sources[0].coords, "seed": seeds.astype(np.int64)}
        carry_blocks(contents, (), coords, *_joined(sources, chosen, sessions), runs.RunSink(aside, contents), several)
        target.replace()


def _attributes(path: str | os.PathLike[str]) -> Attributes:
    found = own_attributes(path) if place_of(path).is_folder() else None
    if found is None:
        raise ValueError(f"paths must be folders with a stored result, got {str(path)!r} without")
    if found["settings"].get("format") != FORMAT:
        raise ValueError(f"the result in {str(path)!r} was written by an earlier version of jaxroute, and can only be read")
    if found["settings"].get("keep", "runs") != "runs" or found["settings"].get("until_stderr"):
        raise ValueError(
            f"only single runs of a fixed number of seeds can be put together, got {str(path)!r} with "
            f"{'until_stderr' if found['settings'].get('until_stderr') else 'statistics over the seeds'}"
        )
    return found


def _check_same(one: str, first: Attributes, path: str, attributes: Attributes) -> None:
    there, here = ({**a["settings"], "seeds": []} for a in (first, attributes))
    found = difference(there, here)
    different = found.refused or ", ".join(found.grown)
    if different:
        raise StoreMismatchError(f"{one!r} and {path!r} hold the results of different settings: {different}")
    if first.get("code") != attributes.get("code"):
        raise StoreMismatchError(f"{one!r} and {path!r} were made by different code of policies or environments")


def _source(path: str, attributes: Attributes) -> _Source:
    stored = runs.opened(path, place_of(path), attributes)
    values, _, _ = integrity.read(stored.arrays, stored.done, stored.belonging)
    coords = {name: stored.coords[name] for name in ("policy", *stored.axes, "seed")}
    return _Source(path, attributes, stored, values, by_run(sessions_of(stored, values), attributes["layout"], coords))


def _sessions(sources: Sequence[_Source]) -> tuple[list[dict[str, str]], int]:
    """What the blocks of all stores were made with; and the number of the entry that stands for several of them, -1 if there is but one."""
    found = [one for source in sources for one in source.attributes["made_with"]]
    sessions = [one for place, one in enumerate(found) if one not in found[:place]]
    if len(sessions) == 1:
        return sessions, -1
    joined = {name: " and ".join(dict.fromkeys(one.get(name, "") for one in sessions)) for name in sessions[0]}
    return [*sessions, joined], len(sessions)


def _joined(
    sources: Sequence[_Source], chosen: Sequence[np.ndarray], sessions: Sequence[Mapping[str, str]]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Values of the chosen seeds of all stores, one after another, and who has made them."""
    axis, parts, made = len(sources[0].coords) - 1, [], []
    for source, seeds in zip(sources, chosen, strict=True):
        place = np.flatnonzero(np.isin(source.coords["seed"], seeds))
        number = np.asarray([*(sessions.index(one) for one in source.attributes["made_with"]), -1])
        parts.append({name: array.take(place, axis) for name, array in source.values.items()})
        made.append(number[source.made].take(place, axis))
    return {name: np.concatenate([part[name] for part in parts], axis) for name in parts[0]}, np.concatenate(made, axis)


def _seeds(sources: Sequence[_Source]) -> tuple[np.ndarray, list[np.ndarray]]:
    """All seeds, and which of them are taken from each store."""
    known, chosen = np.zeros(0, np.int64), []
    for source in sources:
        own = source.coords["seed"]
        chosen.append(own[~np.isin(own, known)])
        known = np.concatenate([known, chosen[-1]])
    return known.astype(np.uint32), chosen


def _contents(source: _Source, seeds: np.ndarray, made_with: Mapping[str, str]) -> Contents:
    """What the new store will hold, as the first one says it."""
    stored, attributes = source.stored, source.attributes
    policies = stored.coords["policy"].tolist()
    zero = {name for record in attributes["settings"]["record"].values() for name in record["zero_flows"]}
    variables = {}
    for name, about in attributes["variables"].items():
        if name not in (*zero, "valid"):
            own = stored.dims[name][len(source.coords) + 1 :]
            shape = stored.arrays[name].shape[len(source.coords) + 1 :]
            variables[name] = Metric(name, about["label"], about["unit"], about["kind"], own), shape
    return Contents(
        policies=policies,
        axes={axis: stored.coords[axis] for axis in stored.axes},
        policy_axes=dict.fromkeys(policies, stored.axes),
        seeds=seeds,
        times=stored.coords["time"],
        variables=variables,
        model_names=[str(name) for name in stored.coords.get("model", ())],
        zero_flows=sorted(zero),
        settings=dict(attributes["settings"]),
        layout=_Layout(**attributes["layout"]),
        made_with=made_with,
    )


@dataclasses.dataclass(frozen=True)
class _Layout:
    """Seeds of a block, settings of a tile."""

    block: int
    tile: dict[str, int]

    def blocks(self, number: int) -> int:
        """Number of blocks of this many seeds."""
        return -(-number // self.block)


def _sums(sources: Sequence[_Source]) -> dict[str, Any]:
    """Provenance of the result: sums of what was measured, and each part's own."""
    names = ("created", "commit", "device", "versions", "decisions", "run_s", "compile_s")
    about = [s.attributes for s in sources]
    parts = [{"path": s.path, **{n: s.attributes[n] for n in names if n in s.attributes}} for s in sources]
    sums = {name: sum(a.get(name, 0) for a in about) for name in ("compile_s", "run_s", "decisions", "played_again")}
    invalid = [one for a in about for one in a.get("invalid", ())]
    first = {
        n: v
        for n, v in about[0].items()
        if n in ("versions", "device", "commit", "processes", "backend", "fell_back", "experiment", "coordinates")
    }
    return {**first, **sums, "created": now(), "merged": parts} | ({"invalid": invalid} if invalid else {})
