"""What is in a store, what of it is sound, and what would be played to complete it."""

import dataclasses
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxroute.store import integrity, moments, runs, states
from jaxroute.store.description import DONE, FORMAT, READABLE, STORE_NAME, own_attributes, place_of, store_path
from jaxroute.store.difference import described_seeds
from jaxroute.store.merging import merge


@dataclasses.dataclass(frozen=True)
class Inspection:
    """What a store holds.

    attributes: of the store. axes: number of values by axis. seeds: number. size: bytes of its files.
    blocks: number of blocks that the result consists of. missing: those that have not been played, in words. damage: what is not what was
    written, in words. verified: everything has been read. continued: blocks whose states are kept.
    """

    attributes: Mapping[str, Any]
    axes: Mapping[str, int]
    seeds: int
    size: int
    blocks: int
    missing: str
    damage: Sequence[str]
    verified: bool
    continued: int

    def lines(self) -> list[str]:
        """As text."""
        about, settings = self.attributes, self.attributes["settings"]
        policies = list(settings["policies"])
        axes = "".join(f" x {number} {axis}" for axis, number in self.axes.items())
        kept = "statistics over the seeds" if settings.get("keep") == "moments" else "every run"
        found = [
            f"holds     {kept}: {len(policies)} policies{axes} x {self.seeds:,} seeds x {settings['horizon']:,} rounds of {settings['problem']}, "
            f"recorded every {settings['record_every']:,}, key {settings['key']}",
            f"policies  {', '.join(policies)}",
            f"metrics   {', '.join(_metrics(about))}",
        ]
        if "created" in about:
            commit = f", commit {about['commit']}" if about.get("commit") else ""
            found.append(f"made      {about['created']} on {about['device']} with jax {about['versions']['jax']}{commit}")
        found += [
            f"grown     until {part['until']} it had fewer: {', '.join(part['more'])}" for part in about.get("grown", ())
        ]
        found += [f"merged    from {part['path']}" for part in about.get("merged", ())]
        found += [f"accepted  {one['what']} ({one['at']})" for one in about.get("accepted_code", ())]
        sessions = len(about.get("made_with", ()))
        if sessions > 1:
            found.append(f"sessions  {sessions}, see the attribute made_with of the loaded result")
        if settings.get("keep_states"):
            found.append(f"states    of {self.continued} blocks are kept, a longer horizon goes on from there")
        found.append(f"size      {self.size / 1e6:,.1f} MB" if self.size > 1e6 else f"size      {self.size / 1e3:,.1f} kB")
        found.append(f"to play   {self.missing or 'nothing'}")
        if self.damage:
            found += [f"DAMAGED   {text}" for text in self.damage]
            found.append("          the run that made it plays again what is damaged, and nothing else")
        elif self.verified:
            earlier = "" if settings["format"] == FORMAT else ", as far as an earlier version of jaxroute let it be told"
            found.append(f"sound     all {self.blocks} blocks are what was written{earlier}")
        else:
            found.append("sound     not looked at (--verify)")
        return found


def stores_in(folder: str | os.PathLike[str]) -> list[Path]:
    """The stores of a folder and of those below it.

    Raises:
      ValueError: there are none.
    """
    path = Path(folder)
    if store_path(path).is_dir():
        return [store_path(path)]
    found = sorted(place for place in path.rglob(STORE_NAME) if place.is_dir())
    if not found:
        raise ValueError(f"folder must hold a stored result, got {str(folder)!r}, where no {STORE_NAME} is found")
    return found


def inspect(store: Path, *, verify: bool = False) -> Inspection:
    """What a store holds.

    Args:
      store: its path.
      verify: reads everything, to see whether it is what was written.

    Raises:
      ValueError: nothing can be told, as its description is damaged, or it is something else.
    """
    attributes = own_attributes(store)
    if attributes is None or attributes["settings"].get("format") not in READABLE:
        raise ValueError(f"{str(store)!r} must be a result of jaxroute that this version reads, got something else")
    size = sum(file.stat().st_size for file in store.rglob("*") if file.is_file())
    look = _moments if attributes["settings"].get("keep") == "moments" else _runs
    continued = len(list((store / states.FOLDER).glob(f"*.{states.FINISHED}")))
    return Inspection(
        attributes=attributes, size=size, verified=verify, continued=continued, **look(store, attributes, verify)
    )


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


def _metrics(attributes: Mapping[str, Any]) -> list[str]:
    about = attributes.get("frame", attributes).get("variables", ())
    return [name for name in about if name != "valid"]


def _runs(store: Path, attributes: Mapping[str, Any], verify: bool) -> dict[str, Any]:
    layout = attributes["layout"]
    try:
        stored = runs.opened(str(store), place_of(store), attributes)
    except ValueError as error:
        return {"axes": {}, "seeds": 0, "blocks": 0, "missing": "", "damage": [str(error)]}
    seeds = attributes.get("seeds_played", len(stored.coords["seed"]))
    marks = integrity.marks_of(stored.done)[..., : -(-seeds // layout["block"])]
    damage = []
    if verify:
        _, _, broken = integrity.read(stored.arrays, stored.done, stored.belonging)
        dims = next(iter(stored.dims.values()))
        damage = [runs.cell_name(cell, stored.coords, layout, dims) for cell in broken]
    missing = np.argwhere(marks == 0)
    words = ""
    if len(missing):
        policies = Counter(str(stored.coords["policy"][cell[0]]) for cell in missing)
        words = f"{len(missing)} of {marks.size} blocks: " + ", ".join(f"{n} of {name}" for name, n in policies.items())
    axes = {axis: len(stored.coords[axis]) for axis in stored.axes}
    return {"axes": axes, "seeds": seeds, "blocks": marks.size, "missing": words, "damage": damage}


def _moments(store: Path, attributes: Mapping[str, Any], verify: bool) -> dict[str, Any]:
    del verify  # The statistics are small, and read in any case.
    if "frame" not in attributes:
        seeds = described_seeds(attributes["settings"]["seeds"])
        number = 0 if seeds is None else len(seeds)
        return {"axes": {}, "seeds": number, "blocks": 0, "missing": "everything", "damage": []}
    frame = moments.Frame.made_of(attributes["frame"])
    known, damage = [], []
    for tile in range(len(frame.tiles())):
        try:
            known.append(
                moments.Known.of(
                    list(moments.read_parts(place_of(store) / DONE, tile, moments.belonging(attributes)).values())
                )
            )
        except ValueError as error:
            known.append(moments.Known({}, {}, []))
            damage.append(f"the statistics of {frame.tile_name(tile)}: {error}")
    seeds = attributes.get("seeds_played", frame.seeds)
    blocks = -(-seeds // frame.block)
    missing = moments.missing(frame, known, blocks)
    axes = {axis: len(values) for axis, values in frame.axes.items()}
    return {"axes": axes, "seeds": seeds, "blocks": blocks * len(known), "missing": missing, "damage": damage}
