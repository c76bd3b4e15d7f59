"""Labelled results: the `xarray.Dataset` of a simulation, its provenance, and the store it is written to block by block.

A result has dimensions `(policy, settings..., seed, time)`, and `model` for vector metrics. `time` counts rounds played. Each
variable says in its attributes what it is (`label`, `unit`, `kind`): a "total" is the cumulative sum up to `time`, an "average"
the mean per round up to `time`, a "gauge" the state's value at `time`. `valid` is False for a run in which a flow that must be
zero was not, or a value was not finite.
"""

import dataclasses
import datetime
import functools
import hashlib
import inspect
import itertools
import json
import math
import os
import platform
import subprocess
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr
import zarr

from jaxroute import integrity
from jaxroute.checks import show
from jaxroute.grid import Grid
from jaxroute.types import Metric

STORE_NAME = "result.zarr"
_DONE = "_done"
# How a store is laid out; 2: the mark of a block is a digest of its values.
_FORMAT = 2


class StoreMismatchError(ValueError):
    """A store was made by other settings, or another version, than the run that wants to continue it."""


def describe(value: Any) -> Any:
    """What determines a run, as plain JSON: classes, static choices and numbers (long arrays by their hash)."""
    if isinstance(value, Grid):
        axes = {k: describe(v) for k, v in value.axes.items()}
        settings = [describe(o) for o in value.objects]
        if len(settings) == 1:
            return settings[0]
        if len(settings) <= 16:
            return {"grid": axes, "settings": settings}
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
        return {"grid": axes, "first": settings[0], "settings": len(settings), "sha256": digest}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: describe(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"type": type(value).__qualname__, **fields}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {"type": type(value).__qualname__, **{k: describe(getattr(value, k)) for k in value._fields}}
    if isinstance(value, Mapping):
        return {str(k): describe(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [describe(v) for v in value]
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (np.ndarray, jax.Array)):
        array = np.asarray(value)
        if array.size <= 32:
            return array.tolist()
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
        return {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": digest}
    if isinstance(value, range):
        return repr(value)
    if callable(value):
        return _describe_function(value)
    return repr(value)


def _describe_function(function: Any) -> Any:
    """A function by its name, its code, and what it was made with; any other object that can be called by its attributes."""
    if isinstance(function, functools.partial):
        parts = {"arguments": describe(function.args), "keywords": describe(function.keywords)}
        return {"partial": _describe_function(function.func), **parts}
    if hasattr(function, "__wrapped__"):  # A compiled or decorated function.
        return {"wrapped": _describe_function(function.__wrapped__)}
    if inspect.ismethod(function):
        return {"method": _describe_function(function.__func__), "of": describe(function.__self__)}
    code = getattr(function, "__code__", None)
    if code is None and hasattr(function, "__qualname__"):  # A class, or a function written in C.
        return f"{function.__module__}.{function.__qualname__}"
    if code is None:
        return {
            "type": type(function).__qualname__,
            **{k: describe(v) for k, v in getattr(function, "__dict__", {}).items()},
        }
    name = f"{function.__module__}.{function.__qualname__}"
    digest = hashlib.sha256(repr(_describe_code(code)).encode()).hexdigest()[:8]
    inside = [cell.cell_contents for cell in function.__closure__ or ()]
    inside += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    made_with = [name if thing is function else describe(thing) for thing in inside]
    return {"function": f"{name}#{digest}", **({"made_with": made_with} if made_with else {})}


def _describe_code(code: Any) -> list[Any]:
    """What a function's code does, without where it stands."""
    constants = [_describe_code(c) if hasattr(c, "co_code") else repr(c) for c in code.co_consts]
    return [code.co_code, code.co_names, constants]


def provenance(devices: Sequence[Any], **measured: Any) -> dict[str, Any]:
    """Where and with what a result was made."""
    return {
        "versions": dict(versions()),
        "device": device_name(devices),
        "commit": commit(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **measured,
    }


@functools.cache
def versions() -> dict[str, str]:
    """Versions of what the numbers depend on, of this process."""
    packages = {name: metadata.version(name) for name in ("jaxroute", "jax", "jaxlib", "numpy")}
    return {"python": platform.python_version(), **packages}


def device_name(devices: Sequence[Any]) -> str:
    """Number and kind of the devices, for example "1 x NVIDIA H200" or "1 x cpu (2 cores)"."""
    kind = devices[0].device_kind
    cores = f" ({os.cpu_count()} cores)" if devices[0].platform == "cpu" else ""
    return f"{len(devices)} x {kind}{cores}"


def memory_limit(device: Any) -> int:
    """Bytes of memory that a device may use; the host's for a CPU."""
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 << 30


@functools.cache
def commit() -> str:
    """Commit of the source tree that the package runs from, with "+" if it had been changed; empty outside a checkout.

    As it was when this was first called: what is edited later does not run.
    """
    folder = Path(__file__).resolve().parent
    try:
        head, status = (
            subprocess.run(["git", "-C", folder, *args], capture_output=True, text=True, timeout=10, check=True).stdout
            for args in (("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", "--", str(folder)))
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return head.strip() + ("+" if status.strip() else "")


def load(path: str | os.PathLike, *, partial: bool = False) -> xr.Dataset:
    """Reads a stored result.

    Args:
      path: the folder given as `out`, or the store inside it.
      partial: accept a store whose run has not finished; blocks that are missing are NaN.

    Raises:
      ValueError: there is no store, or it is unfinished.
    """
    store = store_path(path)
    if not (store / "zarr.json").exists():
        raise ValueError(f"path must be a folder with a stored result, got {str(path)!r}, which has no {STORE_NAME}")
    attributes = _own_attributes(path)
    if attributes is None:
        raise ValueError(f"path must hold a jaxroute result, got {str(path)!r}, which holds something else")
    if attributes["settings"].get("format") != _FORMAT:
        raise ValueError(f"the result in {str(path)!r} is laid out as another version of jaxroute does it; run it again")
    again = "run it again to play just that once more"
    try:
        group = zarr.open_group(store, mode="r")
        stored: Any = {name: group[name] for name in (*group.attrs["variables"], _DONE)}  # type: ignore[union-attr]
        done = stored.pop(_DONE)
        data = xr.open_zarr(store, consolidated=False, chunks=None)
        coords = {str(name): coordinate.values for name, coordinate in data.coords.items()}
    except integrity.UNREADABLE as error:
        raise ValueError(f"the result in {str(path)!r} is damaged ({error}); {again}") from None
    except KeyError as error:
        raise ValueError(f"the result in {str(path)!r} is not complete: it has no {error}; {again}") from None
    if integrity.digest_of_coordinates(coords) != group.attrs["coordinates_digest"]:
        raise ValueError(f"the coordinates of the result in {str(path)!r} are damaged; {again}")
    values, written, broken = integrity.read(stored, done)
    if broken and not partial:
        where = _cell_name(broken[0], coords, attributes["layout"], next(iter(stored.values())).metadata.dimension_names)
        raise ValueError(
            f"the result in {str(path)!r} is damaged: {len(broken)} of {written.size} blocks are not what was written, the first "
            f"that of {where}; {again}, or load the others with partial=True"
        )
    missing = int(np.sum(~written))
    if missing and not partial:
        raise ValueError(
            f"the result in {str(path)!r} is unfinished: {missing} blocks are missing. Run it again to complete it, or load it "
            "with partial=True"
        )
    data = data.assign({name: (data[name].dims, values[name], data[name].attrs) for name in values}).drop_vars(_DONE).load()
    data = data.drop_dims([d for d in data.dims if str(d).startswith("_")])
    del data.attrs["coordinates_digest"]
    return data[data.attrs.pop("variables")]


def _cell_name(cell: Sequence[int], coords: Mapping[str, np.ndarray], layout: Mapping[str, Any], dims: Sequence[str]) -> str:
    """A block in words: policy, settings, seeds."""
    words = []
    for place, dim in zip(cell, dims, strict=False):
        size = {"policy": 1, "seed": layout["block"]}.get(dim) or layout["tile"][dim]
        values = np.asarray(coords[dim])[place * size : (place + 1) * size]
        span = f"{values[0]}" if len(values) == 1 else f"{values[0]} to {values[-1]}"
        words.append(f"{dim} {span}")
    return ", ".join(words)


def stored_layout(path: str | os.PathLike | None, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Block and tile sizes of an existing store of the same settings, None if there is no store.

    Raises:
      StoreMismatchError: the store belongs to other settings or another version; the difference is named.
    """
    if path is None or not _exists(store_path(path)):
        return None
    attributes = _own_attributes(path, repair=True)
    if attributes is None:
        raise StoreMismatchError(f"{str(path)!r} holds something else than a jaxroute result; choose another folder")
    difference = _difference(attributes["settings"], json.loads(json.dumps(fingerprint(settings))))
    if difference:
        raise StoreMismatchError(f"{str(path)!r} holds the result of other settings: {difference}; choose another folder")
    return dict(attributes["layout"])


def _own_attributes(path: str | os.PathLike, repair: bool = False) -> Any:
    """Attributes of a store that this module made, None of anything else.

    They are kept twice, so that a run can repair a damaged file.

    Raises:
      ValueError: the file is damaged, and `repair` is not wanted, or not possible.
    """
    store = store_path(path)
    damage = None
    try:
        attributes = _attributes_in(store)
    except ValueError as error:
        attributes, damage = None, error
    if attributes is None and repair:
        try:
            attributes = _copied_attributes(store)
        except ValueError as error:
            damage = damage or error
    if attributes is None and damage is not None:
        hint = "nothing can be read from it; choose another folder" if repair else "run it again to repair it"
        raise ValueError(f"{str(store / 'zarr.json')!r} is damaged ({damage}); {hint}")
    return attributes if attributes is not None and {"settings", "layout"} <= set(attributes) else None


def _attributes_in(folder: Path) -> Any:
    """Attributes of a group or array, None if there is none; `ValueError` if its file is damaged."""
    file = folder / "zarr.json"
    if not file.is_file():
        return None
    found = json.loads(file.read_bytes())
    if not isinstance(found, dict):
        raise ValueError(f"not the description of a group: {show(found)}")
    return found.get("attributes", {})


def _copied_attributes(store: Path) -> Any:
    """The second copy of a store's attributes."""
    return (_attributes_in(store / _DONE) or {}).get("copy")


def fingerprint(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the bits of a result depend on."""
    own = versions()
    return {
        **settings,
        "format": _FORMAT,
        "jaxroute": own["jaxroute"],
        "jax": own["jax"],
        "platform": jax.default_backend(),
        "x64": jax.config.read("jax_enable_x64"),
    }


def _difference(stored: Any, wanted: Any, where: str = "") -> str:
    """The first difference of two JSON values, in words; empty if there is none."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        for key in [*stored, *(k for k in wanted if k not in stored)]:
            place = f"{where}.{key}" if where else key
            if key not in stored or key not in wanted:
                return f"{place} is only in {'the store' if key in stored else 'this run'}"
            found = _difference(stored[key], wanted[key], place)
            if found:
                return found
        return ""
    if isinstance(stored, list) and isinstance(wanted, list) and len(stored) == len(wanted):
        return next(
            (d for i, (a, b) in enumerate(zip(stored, wanted, strict=True)) if (d := _difference(a, b, f"{where}[{i}]"))), ""
        )
    return "" if json.dumps(stored) == json.dumps(wanted) else f"{where} is {show(stored)} there and {show(wanted)} here"


def _exists(store: Path) -> bool:
    """Whether something is there already; what is left of a run that died while it wrote the first file is nothing."""
    if not store.is_dir():
        return store.exists()
    names = {p.name for p in store.iterdir() if not p.name.endswith(".partial")}
    if names == {"zarr.json"}:
        try:
            return _attributes_in(store) is not None
        except ValueError:
            return False
    return bool(names)


def store_path(path: str | os.PathLike) -> Path:
    """The store itself, of a folder given as `out`."""
    path = Path(path)
    return path if path.name.endswith(".zarr") else path / STORE_NAME


def _writes(method: Callable) -> Callable:
    """A method of a sink that writes: if the disk is full, or the folder has gone, its error says what is left."""

    @functools.wraps(method)
    def explained(self, *args, **options):
        try:
            return method(self, *args, **options)
        except OSError as error:
            raise OSError(
                error.errno,
                f"could not write to {str(self.store)!r}: {error.strerror or error}; finished blocks are kept, and the same command "
                "continues from there",
            ) from error

    return explained


class Sink:
    """Where finished blocks go: arrays in memory, or chunks of a Zarr store that exactly match the blocks.

    A block's data is written before its mark in `_done`, and each block has its own chunks, so that a killed run leaves whole
    blocks and blocks that will be played again, never a half-written one that counts. The mark is a digest of the data, so that
    what was damaged later is noticed.

    repair: checks what an existing store holds, and takes out what is damaged, to be played again; one process of a run does that.
    """

    def __init__(
        self,
        path: str | os.PathLike | None,
        *,
        policies: Sequence[str],
        axes: Mapping[str, np.ndarray],
        seeds: np.ndarray,
        times: np.ndarray,
        variables: Mapping[str, tuple[Metric, tuple[int, ...]]],
        model_names: Sequence[str],
        zero_flows: Sequence[str],
        settings: Mapping[str, Any],
        layout: Any,
        repair: bool = True,
    ):
        self.policies, self.axes, self.seeds, self.layout = list(policies), axes, seeds, layout
        needed = 8 * sum(math.prod(shape) for _, shape in variables.values()) * len(times) * len(seeds) * len(policies)
        needed *= math.prod(len(v) for v in axes.values())
        if needed > memory_limit(jax.local_devices(backend="cpu")[0]) // 2:
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
        self.about: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {}  # dimensions and attributes by variable
        self.group = self._open(path, settings)
        sizes = {"time": len(times)}
        for metric, shape in variables.values():
            sizes |= dict(zip(metric.dims, shape, strict=True))
            dims = (*lead, "time", *metric.dims)
            self._array(metric.name, dims, lead | sizes, chunk | sizes, np.float64, np.nan, _attributes(metric))
        if "model" in sizes and len(model_names) == sizes["model"]:
            self.coords["model"] = np.asarray(model_names)
        for name in zero_flows:
            label = {"label": f"{name} (must be zero)", "unit": "rounds", "kind": "total"}
            self._array(name, tuple(lead), lead, chunk, np.float64, np.nan, label)
        valid = {"label": "run is valid", "unit": "", "kind": "flag"}
        self._array("valid", tuple(lead), lead, chunk, bool, False, valid)
        blocks = {"_policy": len(policies)} | {f"_{a}": -(-lead[a] // chunk[a]) for a in (*axes, "seed")}
        own = json.loads(json.dumps(self.attrs))
        self._array(_DONE, tuple(blocks), blocks, dict.fromkeys(blocks, 1), np.uint64, 0, {"copy": own})
        del self.about[_DONE]
        if self.group is not None and repair:
            self._mend()

    @_writes
    def _open(self, path, settings):
        self.attrs = {"settings": fingerprint(settings), "layout": dataclasses.asdict(self.layout)}
        if path is None:
            return None
        self.store = store = store_path(path)
        store.parent.mkdir(parents=True, exist_ok=True)
        if _exists(store):
            try:
                whole = _attributes_in(store) is not None
            except ValueError:
                whole = False
            if whole:
                return zarr.open_group(store, mode="a")
            warnings.warn(f"{str(store / 'zarr.json')!r} was damaged and is made again", stacklevel=7)
            (store / "zarr.json").unlink(missing_ok=True)
            return zarr.create_group(store, attributes=_copied_attributes(store))
        (store / "zarr.json").unlink(missing_ok=True)
        return zarr.create_group(store, attributes=json.loads(json.dumps(self.attrs)))

    @_writes
    def _mend(self) -> None:
        """Makes an existing store one that can be continued: coordinates as they should be, no block that is not what was written."""
        group: Any = self.group
        digest = integrity.digest_of_coordinates(self.coords)
        try:
            same = integrity.digest_of_coordinates({name: group[name][...] for name in self.coords}) == digest
        except (KeyError, *integrity.UNREADABLE):
            same = False
        complete = {"variables": list(self.about), "coordinates_digest": digest}
        if not same or any(group.attrs.get(name) != value for name, value in complete.items()):
            self._write_coordinates()
            group.attrs.update(complete)
        data, done = {name: self.arrays[name] for name in self.about}, self.arrays[_DONE]
        broken = integrity.read(data, done)[2] if integrity.marks_of(done).any() else []
        if broken:
            where = _cell_name(broken[0], self.coords, self.attrs["layout"], next(iter(self.about.values()))[0])
            warnings.warn(
                f"{len(broken)} blocks in {str(self.store)!r} are not what was written, the first that of {where}; they are "
                "played again",
                stacklevel=7,
            )
        integrity.remove(self.store, data, done, [*broken, *integrity.unreadable(done)])

    @_writes
    def _array(self, name, dims, sizes, chunks, dtype, fill, attributes) -> None:
        shape = tuple(sizes[d] for d in dims)
        if self.group is None:
            self.arrays[name] = np.full(shape, fill, dtype)
        elif (stored := self._stored(name)) is not None:
            self.arrays[name] = stored
        else:
            self.arrays[name] = self.group.create_array(  # type: ignore[union-attr]
                name,
                shape=shape,
                chunks=tuple(min(chunks[d], n) for d, n in zip(dims, shape, strict=True)),
                dtype=dtype,
                fill_value=fill,
                dimension_names=dims,
                attributes=attributes,
            )
        self.about[name] = (dims, attributes)

    def _stored(self, name: str) -> Any:
        """An array of the store; one whose description is damaged is described again, with its chunks left in place."""
        group: Any = self.group
        try:
            return group[name]
        except KeyError:
            return None
        except integrity.UNREADABLE:
            file = self.store / name / "zarr.json"
            warnings.warn(f"{str(file)!r} was damaged and is made again", stacklevel=8)
            file.unlink()
            return None

    def _write_coordinates(self) -> None:
        for name, values in self.coords.items():
            text = values.dtype.kind == "U"
            dtype = str if text else values.dtype
            array = self.group.create_array(  # type: ignore[union-attr]
                name, shape=values.shape, dtype=dtype, dimension_names=(name,), overwrite=True
            )
            array[...] = values.astype(object) if text else values

    def _block_index(self, policy: str, tile: Mapping[str, int], block: int) -> tuple[int, ...]:
        return (
            self.policies.index(policy),
            *(tile.get(a, 0) // self.layout.tile[a] for a in self.axes),
            block,
        )

    def is_done(self, policy: str, tile: Mapping[str, int], block: int) -> bool:
        """Whether this block has been played."""
        return bool(self.arrays[_DONE][self._block_index(policy, tile, block)])

    @_writes
    def write(self, policy: str, tile: Mapping[str, int], block: int, values: Mapping[str, np.ndarray]) -> None:
        """Keeps a block: arrays `[tiled axes..., seeds, ...]`; axes that the policy does not have get the same values."""
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
        for cell, mark in self._marks(policy, tile, block, stored).items():
            self.arrays[_DONE][cell] = mark

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
            marks[(self.policies.index(policy), *cell, block)] = 1 if self.group is None else integrity.digest(values)
        return marks

    def missing(self) -> str:
        """Which blocks have not been played, in words; empty if all have."""
        cells = np.argwhere(integrity.marks_of(self.arrays[_DONE]) == 0)
        if not len(cells):
            return ""
        where = _cell_name(cells[0], self.coords, self.attrs["layout"], next(iter(self.about.values()))[0])
        return f"{len(cells)} blocks are missing, the first that of {where}"

    @_writes
    def sign(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Writes the provenance of a result whose blocks are all there; returns all attributes."""
        attributes = dict(attributes)
        if self.group is not None:
            # A resumed run adds its seconds and decisions to those of the runs before it.
            before = self.group.attrs.asdict()
            for name in ("compile_s", "run_s", "decisions"):
                attributes[name] += before.get(name, 0)
            attributes = json.loads(json.dumps(attributes))
            self.group.attrs.update(attributes)
            self.arrays[_DONE].attrs.update({"copy": self.group.attrs.asdict()})
        return {**self.attrs, **attributes}

    def finish(self, late_s: float = 0.0) -> xr.Dataset:
        """The whole result, without its provenance.

        Args:
          late_s: seconds that a shared file system may take to show what another machine has written.

        Raises:
          OSError: what is read is not what was written.
        """
        values = {name: self.arrays[name] for name in self.about}
        if self.group is not None:
            values, broken = self._read(values, late_s)
            if broken:
                where = _cell_name(broken[0], self.coords, self.attrs["layout"], next(iter(self.about.values()))[0])
                raise OSError(
                    f"{len(broken)} blocks in {str(self.store)!r} are not what was written, the first that of {where}; the "
                    "same command plays them again"
                )
        variables = {name: (dims, values[name], attrs) for name, (dims, attrs) in self.about.items()}
        coords = {name: (name, found) for name, found in self.coords.items()}
        return xr.Dataset(variables, coords=coords)

    def _read(self, arrays: Mapping[str, Any], late_s: float) -> tuple[dict[str, np.ndarray], list[tuple[int, ...]]]:
        """What is stored, and the cells that are not there or not sound."""
        end = time.monotonic() + late_s
        while True:
            values, written, broken = integrity.read(arrays, self.arrays[_DONE])
            broken = [*broken, *map(tuple, np.argwhere(~written))]
            if not broken or time.monotonic() >= end:
                return values, broken
            time.sleep(1.0)


def _attributes(metric: Metric) -> dict[str, str]:
    return {"label": metric.label, "unit": metric.unit, "kind": metric.kind}
