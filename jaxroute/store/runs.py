"""Labelled results: the `xarray.Dataset` of a simulation, its provenance, and the store it is written to block by block.

A result has dimensions `(policy, settings..., seed, time)`, and `model` for vector metrics; one of which only statistics are kept has no
seeds, and other variables (see `moments.dataset`). `time` counts rounds played. Each variable says in its attributes what it is (`label`, `unit`, `kind`): a "total" is the cumulative sum up to `time`, an "average"
the mean per round up to `time`, a "gauge" the state's value at `time`. `valid` is False for a run in which a flow that must be
zero was not, or a value was not finite.
"""

import dataclasses
import itertools
import math
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr
import zarr

from jaxroute.store import integrity, provenance, states
from jaxroute.store.description import DONE, Contents
from jaxroute.store.places import Place
from jaxroute.store.sink import Sink, Task, writes
from jaxroute.store.statistics import Moments

# Attributes of a store that are not those of its result.
_INTERNAL = ("variables", "coordinates_digest", "code", "digest", "made_with")
# Seconds after which blocks are flushed to the disk: what a power cut may cost.
_FLUSH_S = 5.0
_AGAIN = "run it again to play just that once more"


@dataclasses.dataclass(frozen=True)
class Stored:
    """A store as it describes itself, for reading.

    arrays: by variable. done: the marks. dims: of each variable. coords: by dimension. belonging: what its cells belong to.
    """

    arrays: dict[str, Any]
    done: Any
    dims: dict[str, tuple[str, ...]]
    coords: dict[str, np.ndarray]
    belonging: integrity.Belonging

    @property
    def axes(self) -> list[str]:
        """Axes of settings, in order."""
        dims = next(iter(self.dims.values()))
        return list(dims[1 : dims.index("seed")])


def opened(path: str, store: Place, attributes: Mapping[str, Any]) -> Stored:
    """A store of single runs; arguments and errors as for `load`."""
    if "variables" not in attributes:
        raise ValueError(f"the result in {path!r} is not complete: it does not say what it holds; {_AGAIN}")
    try:
        stored: Any = {name: _opened(store, name) for name in (*attributes["variables"], DONE)}
        done = stored.pop(DONE)
        dims = {name: tuple(array.metadata.dimension_names) for name, array in stored.items()}
        names = dict.fromkeys(itertools.chain.from_iterable(dims.values()))
        coords = {name: np.asarray(_opened(store, name)[...]) for name in names if (store / name).is_folder()}
    except KeyError as error:
        raise ValueError(f"the result in {path!r} is not complete: it has no {error}; {_AGAIN}") from None
    except integrity.UNREADABLE as error:
        raise ValueError(f"the result in {path!r} is damaged ({error}); {_AGAIN}") from None
    shapes = {
        name: [len(coords[d]) if d in coords else size for d, size in zip(dims[name], array.shape)]
        for name, array in stored.items()
    }
    if any(list(array.shape) != shapes[name] for name, array in stored.items()):
        raise ValueError(f"the result in {path!r} is damaged (an array does not fit its coordinates); {_AGAIN}")
    if integrity.digest_of_coordinates(coords) != attributes["coordinates_digest"]:
        raise ValueError(f"the coordinates of the result in {path!r} are damaged; {_AGAIN}")
    return Stored(stored, done, dims, coords, integrity.Belonging(attributes, coords))


def load(path: str, store: Place, attributes: Mapping[str, Any], partial: bool) -> xr.Dataset:
    """Reads stored runs.

    Args:
      path: as the user gave it, for messages.
      store: the store.
      attributes: those of the store.
      partial: accept a store whose run has not finished; blocks that are missing are NaN.

    Raises:
      ValueError: the store is damaged or unfinished.
    """
    found = opened(path, store, attributes)
    stored, done, dims, coords, belonging = found.arrays, found.done, found.dims, found.coords, found.belonging
    seeds = attributes.get("seeds_played", len(coords["seed"]))
    place = len(done.shape) - 1
    heads = {name: _Head(array, place, seeds) for name, array in stored.items()}
    marks = _Head(done, place, -(-seeds // attributes["layout"]["block"]))
    values, written, broken = integrity.read(heads, marks, belonging)
    if broken and not partial:
        where = cell_name(broken[0], coords, attributes["layout"], next(iter(dims.values())))
        raise ValueError(
            f"the result in {path!r} is damaged: {len(broken)} of {written.size} blocks are not what was written, the first "
            f"that of {where}; {_AGAIN}, or load the others with partial=True"
        )
    missing = int(np.sum(~written))
    if missing and not partial:
        raise ValueError(
            f"the result in {path!r} is unfinished: {missing} blocks are missing. Run it again to complete it, or load it "
            "with partial=True"
        )
    labels = attributes["variables"]
    if isinstance(labels, list):  # Format 2.
        labels = {name: stored[name].attrs.asdict() for name in labels}
    coords["seed"] = coords["seed"][:seeds]
    return xr.Dataset(
        {name: (dims[name], values[name], labels[name]) for name in stored},
        coords={name: (name, values) for name, values in coords.items()},
        attrs={name: value for name, value in attributes.items() if name not in _INTERNAL},
    ).assign_attrs(_made_with(attributes, belonging))


def _made_with(attributes: Mapping[str, Any], belonging: integrity.Belonging) -> dict[str, Any]:
    """What the blocks were made with, where that changed, and how many of them."""
    made = attributes.get("made_with", [])
    if len(made) < 2:
        return {}
    return {"made_with": [{**one, "blocks": number} for one, number in zip(made, belonging.made, strict=True)]}


def _opened(store: Place, name: str) -> Any:
    """An array of a store; `KeyError` if it is not there."""
    if not (store / name / "zarr.json").is_file():
        raise KeyError(name)
    return zarr.open_array((store / name).as_zarr(), mode="r")


def cell_name(cell: Sequence[int], coords: Mapping[str, np.ndarray], layout: Mapping[str, Any], dims: Sequence[str]) -> str:
    """A block in words: policy, settings, seeds."""
    words = []
    for place, dim in zip(cell, dims, strict=False):
        size = {"policy": 1, "seed": layout["block"]}.get(dim) or layout["tile"][dim]
        values = np.asarray(coords[dim])[place * size : (place + 1) * size]
        span = f"{values[0]}" if len(values) == 1 else f"{values[0]} to {values[-1]}"
        words.append(f"{dim} {span}")
    return ", ".join(words)


class _Head:
    """The first entries of a stored array along one dimension; the others are not read."""

    def __init__(self, array: Any, axis: int, number: int):
        self._array = array
        self.shape = tuple(number if i == axis else size for i, size in enumerate(array.shape))
        self.chunks, self.dtype, self.fill_value = array.chunks, array.dtype, array.fill_value

    def __getitem__(self, where: Any) -> Any:
        if where is not Ellipsis:
            return self._array[where]
        return self._array[tuple(slice(size) for size in self.shape)]


class RunSink(Sink):
    """Where finished blocks go: arrays in memory, or chunks of a Zarr store that exactly match the blocks.

    A block's data is written before its mark in `_done`, and each block has its own chunks, so that a killed run leaves whole
    blocks and blocks that will be played again, never a half-written one that counts. The mark is a digest of the data, so that
    what was damaged later is noticed.

    repair: checks what an existing store holds, and takes out what is damaged, to be played again; one process of a run does that.
    """

    def __init__(self, path: str | os.PathLike[str] | Place | None, contents: Contents, *, repair: bool = True):
        self.contents, self.layout = contents, contents.layout
        self.policies, self.axes, self.seeds = list(contents.policies), contents.axes, contents.seeds
        policies, axes, seeds, times, layout = self.policies, self.axes, self.seeds, contents.times, self.layout
        variables, model_names = contents.variables, contents.model_names
        self.wanted = layout.blocks(len(seeds))
        needed = 8 * sum(math.prod(shape) for _, shape in variables.values()) * len(times) * len(seeds) * len(policies)
        needed *= math.prod(len(v) for v in axes.values())
        if needed > provenance.memory_limit(jax.local_devices(backend="cpu")[0]) // 2:
            raise ValueError(
                f"the result would take {needed / 2**30:.1f} GiB, more than half of the memory: record fewer points (record_every), "
                "fewer metrics (record), or fewer seeds at a time"
            )
        lead = {"policy": len(policies)} | {a: len(v) for a, v in axes.items()} | {"seed": len(seeds)}
        chunk = {"policy": 1} | {a: layout.tile[a] for a in axes} | {"seed": layout.block}
        self.coords = {
            "policy": np.asarray(policies),
            **axes,
            "seed": seeds.astype(np.int64),
            "time": times.astype(np.int64),
        }
        self.arrays: dict[str, Any] = {}
        self._marks_read: np.ndarray | None = None  # All at once: one by one, they take a request each of an object store.
        self.about: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {}  # dimensions and attributes by variable
        self.group = self._open(path, contents.settings, repair)
        self._written: list[Place] = []
        names = (
            (self.store / states.FOLDER).names() if self.group is not None and contents.settings.get("keep_states") else ()
        )
        self._begun = set(names)
        self._flushed_s = time.monotonic()
        sizes = {"time": len(times)}
        for metric, shape in variables.values():
            sizes |= dict(zip(metric.dims, shape, strict=True))
            dims = (*lead, "time", *metric.dims)
            self._array(metric.name, dims, lead | sizes, chunk | sizes, np.float64, np.nan, metric.attributes)
        if "model" in sizes and len(model_names) == sizes["model"]:
            self.coords["model"] = np.asarray(model_names)
        for name in contents.zero_flows:
            label = {"label": f"{name} (must be zero)", "unit": "rounds", "kind": "total"}
            self._array(name, tuple(lead), lead, chunk, np.float64, np.nan, label)
        valid = {"label": "run is valid", "unit": "", "kind": "flag"}
        self._array("valid", tuple(lead), lead, chunk, bool, False, valid)
        blocks = {"_policy": len(policies)} | {f"_{a}": -(-lead[a] // chunk[a]) for a in (*axes, "seed")}
        copy = {} if self.group is None else {"copy": self.group.attrs.asdict()}
        self._array(DONE, tuple(blocks), blocks, dict.fromkeys(blocks, 1), np.uint64, 0, copy)
        del self.about[DONE]
        described = self.attrs if self.group is None else self.group.attrs.asdict()
        self.belonging = integrity.Belonging(described, self.coords, contents.made_with if repair else None)
        if self.group is not None and repair:
            self._mend()

    @writes
    def _mend(self) -> None:
        """Makes an existing store one that can be continued: coordinates as they should be, no block that is not what was written."""
        group: Any = self.group
        digest = integrity.digest_of_coordinates(self.coords)
        labels = {name: attributes for name, (_, attributes) in self.about.items()}
        complete = {"variables": labels, "coordinates_digest": digest}
        if self.fresh:
            self._write_coordinates()
            self._say(complete)
            self._marks_read = np.zeros(self.arrays[DONE].shape, np.uint64)
            return
        try:
            same = integrity.digest_of_coordinates({name: group[name][...] for name in self.coords}) == digest
        except (KeyError, *integrity.UNREADABLE):
            same = False
        if not same:
            self._write_coordinates()
        if not self._is_said(complete):
            self._say(complete)
        data, done = {name: self.arrays[name] for name in self.about}, self.arrays[DONE]
        marks, lost = integrity.marks_and_lost(done)
        broken = integrity.read(data, done, self.belonging)[2] if marks.any() else []
        if broken:
            where = cell_name(broken[0], self.coords, self.attrs["layout"], next(iter(self.about.values()))[0])
            warnings.warn(
                f"{len(broken)} blocks in {str(self.store)!r} are not what was written, the first that of {where}; they are "
                "played again",
                stacklevel=7,
            )
        integrity.remove(self.store, data, done, [*broken, *lost])

    @writes
    def _array(self, name, dims, sizes, chunks, dtype, fill, attributes) -> None:
        shape = tuple(sizes[d] for d in dims)
        cut = tuple(min(chunks[d], n) for d, n in zip(dims, shape, strict=True))
        if self.group is None:
            self.arrays[name] = np.full(shape, fill, dtype)
        elif not self.fresh and (stored := self._stored(name, shape, cut, dtype)) is not None:
            self.arrays[name] = stored
        else:
            self.check_place()
            self.arrays[name] = self.group.create_array(  # type: ignore[union-attr]
                name,
                shape=shape,
                chunks=cut,
                dtype=dtype,
                fill_value=fill,
                dimension_names=dims,
                attributes=attributes,
            )
            self._written.append(self.store / name / "zarr.json")
        self.about[name] = (dims, attributes)

    def _stored(self, name: str, shape: tuple[int, ...], cut: tuple[int, ...], dtype: Any) -> Any:
        """An array of the store; one whose description is damaged is described again, with its chunks left in place."""
        group, file = self.group, self.store / name / "zarr.json"
        try:
            found: Any = group[name]  # type: ignore[index]
            if (found.shape, found.chunks, found.dtype) == (shape, cut, np.dtype(dtype)):
                return found
        except (KeyError, *integrity.UNREADABLE):
            if not file.is_file():
                return None
        warnings.warn(f"{str(file)!r} was damaged and is made again", stacklevel=8)
        file.delete()
        return None

    def _write_coordinates(self) -> None:
        for name, values in self.coords.items():
            text = values.dtype.kind == "U"
            dtype = str if text else values.dtype
            self.check_place()
            array = self.group.create_array(  # type: ignore[union-attr]
                name, shape=values.shape, dtype=dtype, dimension_names=(name,), overwrite=True
            )
            array[...] = values.astype(object) if text else values
            self._written += [self.store / name / "zarr.json", self.store / name / "c" / "0"]

    def spans(self, cell: integrity.Cell) -> tuple[Any, ...]:
        """What a cell is of: its policy, its values along each axis, its seeds."""
        sizes = (*(self.layout.tile[a] for a in self.axes), self.layout.block)
        coords = (*self.axes.values(), self.seeds)
        parts = (v[i * n : (i + 1) * n].tolist() for i, n, v in zip(cell[1:], sizes, coords, strict=True))
        return self.policies[cell[0]], *parts

    @writes
    def take(self, cell: integrity.Cell, parts: Mapping[str, np.ndarray], session: int) -> None:
        """Keeps a cell that a session of another store has made, `[1, settings..., seeds, ...]` by variable."""
        for name, array in parts.items():
            self.arrays[name][integrity.region(self.arrays[name], cell)] = array
        self.arrays[DONE][cell] = self.belonging.mark(cell, parts, session)

    def _block_index(self, policy: str, tile: Mapping[str, int], block: int) -> tuple[int, ...]:
        return (
            self.policies.index(policy),
            *(tile.get(a, 0) // self.layout.tile[a] for a in self.axes),
            block,
        )

    @writes
    def is_done(self, policy: str, tile: Mapping[str, int], block: int) -> bool:
        """Whether this block has been played."""
        if self._marks_read is None:
            self._marks_read = integrity.marks_of(self.arrays[DONE])
        return bool(self._marks_read[self._block_index(policy, tile, block)])

    def is_begun(self, policy: str, tile: Mapping[str, int], block: int) -> bool:
        """Whether the first rounds of a block have been played."""
        return states.name_of(states.BEGUN, self._block_index(policy, tile, block)) in self._begun

    def first_rounds(self, policy: str, tile: Mapping[str, int], block: int) -> states.Kept | None:
        """The first rounds of a block, if they have been played."""
        if not self.is_begun(policy, tile, block):
            return None
        cell = self._block_index(policy, tile, block)
        return states.read(states.file_of(self.store, states.BEGUN, cell), self.belonging.place(cell))

    @writes
    def keep(self, kind: str, cell: integrity.Cell, kept: states.Kept) -> None:
        """Writes what a cell is continued from."""
        file = states.file_of(self.store, kind, cell)
        file.write(kept.encoded(self.belonging.place(cell)))
        self._written.append(file)

    @writes
    def write(
        self,
        policy: str,
        tile: Mapping[str, int],
        block: int,
        values: Mapping[str, np.ndarray],
        kept: states.Kept | None = None,
    ) -> None:
        """Keeps a block: arrays `[tiled axes..., seeds, ...]`; axes that the policy does not have get the same values."""
        self.check_place()
        self._marks_read = None
        first = block * self.layout.block
        region: list[Any] = [self.policies.index(policy)]
        for a, coordinates in self.axes.items():
            start = tile.get(a, 0)
            region.append(slice(start, min(start + self.layout.tile[a], len(coordinates))) if a in tile else slice(None))
        region.append(slice(first, min(first + self.layout.block, len(self.seeds))))
        stored = {}
        for name, array in values.items():
            for position, (a, coordinates) in enumerate(self.axes.items()):
                if a not in tile:
                    array = np.repeat(np.expand_dims(array, position), len(coordinates), axis=position)
            stored[name] = np.asarray(array, self.arrays[name].dtype)
        for name, array in stored.items():
            self.arrays[name][tuple(region)] = array
        place = self._block_index(policy, tile, block)
        if kept is not None:
            self.keep(states.FINISHED, place, kept)
        marks = self._marks(policy, tile, block, stored)
        for cell, mark in marks.items():
            self.arrays[DONE][cell] = mark
        if self.group is not None:
            if self.is_begun(policy, tile, block):
                states.file_of(self.store, states.BEGUN, place).delete()
            data = {name: self.arrays[name] for name in stored}
            self._written += integrity.files(self.store, data, self.arrays[DONE], list(marks))
            if time.monotonic() - self._flushed_s >= _FLUSH_S:
                self._flush()

    def _flush(self) -> None:
        """Has what was written since the last time written to the disk itself."""
        if self._written:
            self.store.flush_all(self._written)
        self._written, self._flushed_s = [], time.monotonic()

    def _marks(self, policy: str, tile: Mapping[str, int], block: int, stored: Mapping[str, np.ndarray]):
        """Marks of all cells that a block fills: several along the axes that its policy does not have."""
        index = self._block_index(policy, tile, block)[1:-1]
        spans = [
            [i] if a in tile else range(-(-len(v) // self.layout.tile[a]))
            for i, (a, v) in zip(index, self.axes.items(), strict=True)
        ]
        marks = {}
        for cell in itertools.product(*spans):
            part = []
            for i, a in zip(cell, self.axes, strict=True):
                size = self.layout.tile[a]
                part.append(slice(None) if a in tile else slice(i * size, (i + 1) * size))
            values = {name: array[tuple(part)][None] for name, array in stored.items()}
            whole = (self.policies.index(policy), *cell, block)
            marks[whole] = 1 if self.group is None else self.belonging.mark(whole, values)
        return marks

    def order(self, task: Task) -> tuple[()]:
        """Tasks may come in any order."""
        del task
        return ()

    def share(self, tasks: Sequence[Task], rank: int, size: int) -> list[Task]:
        """The tasks of one process: every `size`-th."""
        return list(tasks[rank::size])

    def begun(self, block: int) -> bool:
        """Whether this block, or one behind it, has been played."""
        return bool(integrity.marks_of(self.arrays[DONE])[..., block:].any())

    def errors(self, metric: str, policies: Sequence[str], blocks: int) -> np.ndarray:
        """Standard errors of a metric at the horizon over the seeds of the first blocks, of some policies and all settings."""
        number, place = blocks * self.layout.block, 1 + len(self.axes)
        lead = (slice(None),) * place
        ends = np.moveaxis(self.arrays[metric][(*lead, slice(number), -1)], place, -1)
        valid = self.arrays["valid"][(*lead, slice(number))]
        valid = valid.reshape(valid.shape[:-1] + (1,) * (ends.ndim - valid.ndim) + valid.shape[-1:])
        found = Moments.of(np.where(valid, ends, np.nan)).statistics()
        with np.errstate(invalid="ignore", divide="ignore"):
            errors = np.sqrt(found["variance"] / found["count"])
        return errors[[self.policies.index(p) for p in policies]].ravel()

    def stop(self, blocks: int) -> int:
        """The result will consist of these first blocks; returns their number of seeds."""
        self.wanted = blocks
        return min(blocks * self.layout.block, len(self.seeds))

    def missing(self) -> str:
        """Which blocks have not been played, in words; empty if all have."""
        cells = np.argwhere(integrity.marks_of(self.arrays[DONE])[..., : self.wanted] == 0)
        if not len(cells):
            return ""
        where = cell_name(cells[0], self.coords, self.attrs["layout"], next(iter(self.about.values()))[0])
        return f"{len(cells)} blocks are missing, the first that of {where}"

    def finish(self, late_s: float = 0.0) -> xr.Dataset:
        """The whole result, without its provenance.

        Args:
          late_s: seconds that a shared file system may take to show what another machine has written.

        Raises:
          OSError: what is read is not what was written.
        """
        self._flush()
        number, place = self.stop(self.wanted), 1 + len(self.axes)
        values = {name: self.arrays[name] for name in self.about}
        if self.group is None:
            values = {name: array[(slice(None),) * place + (slice(number),)] for name, array in values.items()}
        else:
            values = {name: _Head(array, place, number) for name, array in values.items()}
            values, broken = self._read(values, late_s)
            if broken:
                where = cell_name(broken[0], self.coords, self.attrs["layout"], next(iter(self.about.values()))[0])
                raise OSError(
                    f"{len(broken)} blocks in {str(self.store)!r} are not what was written, the first that of {where}; the "
                    "same command plays them again"
                )
        return self._labelled(values, number)

    @writes
    def so_far(self) -> xr.Dataset:
        """The result so far, of the blocks of seeds of which something has been played: what is missing is NaN, and not valid."""
        self._flush()
        marks = integrity.marks_of(self.arrays[DONE])
        begun = int(np.flatnonzero(marks.any(axis=tuple(range(marks.ndim - 1)))).max(initial=-1)) + 1
        number, place = min(begun * self.layout.block, len(self.seeds)), 1 + len(self.axes)
        if self.group is None:  # Blocks will still be written to these arrays.
            values = {name: self.arrays[name][(slice(None),) * place + (slice(number),)].copy() for name in self.about}
        else:
            heads = {name: _Head(self.arrays[name], place, number) for name in self.about}
            values, _, _ = integrity.read(heads, _Head(self.arrays[DONE], place, begun), self.belonging)
        return self._labelled(values, number)

    def _labelled(self, values: Mapping[str, Any], number: int) -> xr.Dataset:
        """Arrays of the first seeds as a result."""
        variables = {name: (dims, values[name], attrs) for name, (dims, attrs) in self.about.items()}
        coords = {name: (name, found) for name, found in (self.coords | {"seed": self.coords["seed"][:number]}).items()}
        return xr.Dataset(variables, coords=coords)

    def sessions(self) -> dict[str, Any]:
        """What the blocks were made with, as an attribute of the result, where that changed."""
        return {} if self.group is None else _made_with(self.group.attrs.asdict(), self.belonging)

    @writes
    def _read(self, arrays: Mapping[str, Any], late_s: float) -> tuple[dict[str, np.ndarray], list[tuple[int, ...]]]:
        """What is stored, and the cells that are not there or not sound."""
        end, done = time.monotonic() + late_s, self.arrays[DONE]
        done = _Head(done, len(done.shape) - 1, self.wanted)
        while True:
            values, written, broken = integrity.read(arrays, done, self.belonging)
            broken = [*broken, *map(tuple, np.argwhere(~written))]
            if not broken or time.monotonic() >= end:
                return values, broken
            time.sleep(1.0)
