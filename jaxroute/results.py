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
import json
import math
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr
import zarr

from jaxroute.checks import show
from jaxroute.grid import Grid
from jaxroute.types import Metric

STORE_NAME = "result.zarr"
_DONE = "_done"


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
        "versions": versions(),
        "device": device_name(devices),
        "commit": commit(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **measured,
    }


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
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


def commit() -> str:
    """Commit of the source tree that the package runs from, with "+" if it was changed; empty outside a checkout."""
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
    store = _store_path(path)
    if not (store / "zarr.json").exists():
        raise ValueError(f"path must be a folder with a stored result, got {str(path)!r}, which has no {STORE_NAME}")
    if _own_attributes(path) is None:
        raise ValueError(f"path must hold a jaxroute result, got {str(path)!r}, which holds something else")
    group = zarr.open_group(store, mode="r")
    done: Any = group[_DONE]
    missing = int(np.sum(~done[...]))
    if missing and not partial:
        raise ValueError(
            f"the result in {str(path)!r} is unfinished: {missing} blocks are missing. Run it again to complete it, or load it "
            "with partial=True"
        )
    data = xr.open_zarr(store, consolidated=False, chunks=None).drop_vars(_DONE).load()
    data = data.drop_dims([d for d in data.dims if str(d).startswith("_")])
    return data[data.attrs.pop("variables")]


def stored_layout(path: str | os.PathLike | None, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Block and tile sizes of an existing store of the same settings, None if there is no store.

    Raises:
      StoreMismatchError: the store belongs to other settings or another version; the difference is named.
    """
    if path is None or not _exists(_store_path(path)):
        return None
    attributes = _own_attributes(path)
    if attributes is None:
        raise StoreMismatchError(f"{str(path)!r} holds something else than a jaxroute result; choose another folder")
    difference = _difference(attributes["settings"], json.loads(json.dumps(_fingerprint(settings))))
    if difference:
        raise StoreMismatchError(f"{str(path)!r} holds the result of other settings: {difference}; choose another folder")
    return dict(attributes["layout"])


def _own_attributes(path: str | os.PathLike) -> Any:
    """Attributes of a store that this module made, None of anything else."""
    file = _store_path(path) / "zarr.json"
    if not file.is_file():
        return None
    attributes = json.loads(file.read_text()).get("attributes", {})
    return attributes if {"settings", "layout"} <= set(attributes) else None


def _fingerprint(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the bits of a result depend on."""
    own = versions()
    return {
        **settings,
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
    """Whether something is there already; an empty folder is nothing."""
    return store.exists() and not (store.is_dir() and not any(store.iterdir()))


def _store_path(path: str | os.PathLike) -> Path:
    path = Path(path)
    return path if path.name.endswith(".zarr") else path / STORE_NAME


class Sink:
    """Where finished blocks go: arrays in memory, or chunks of a Zarr store that exactly match the blocks.

    A block's data is written before its flag in `_done`, and each block has its own chunks, so that a killed run leaves whole
    blocks and blocks that will be played again, never a half-written one that counts.
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
    ):
        self.policies, self.axes, self.seeds, self.layout = list(policies), axes, seeds, layout
        needed = 8 * sum(math.prod(shape) for _, shape in variables.values()) * len(times) * len(seeds) * len(policies)
        needed *= math.prod(len(v) for v in axes.values())
        if needed > memory_limit(jax.devices("cpu")[0]) // 2:
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
        self._array(_DONE, tuple(blocks), blocks, dict.fromkeys(blocks, 1), bool, False, {})
        if self.group is not None and "variables" not in self.group.attrs:
            self._write_coordinates()
            self.group.attrs["variables"] = [name for name in self.about if name != _DONE]

    def _open(self, path, settings):
        self.attrs = {"settings": _fingerprint(settings), "layout": dataclasses.asdict(self.layout)}
        if path is None:
            return None
        store = _store_path(path)
        store.parent.mkdir(parents=True, exist_ok=True)
        if _exists(store):
            return zarr.open_group(store, mode="a")
        return zarr.create_group(store, attributes=json.loads(json.dumps(self.attrs)))

    def _array(self, name, dims, sizes, chunks, dtype, fill, attributes) -> None:
        shape = tuple(sizes[d] for d in dims)
        if self.group is None:
            self.arrays[name] = np.full(shape, fill, dtype)
        elif name in self.group:
            self.arrays[name] = self.group[name]
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

    def write(self, policy: str, tile: Mapping[str, int], block: int, values: Mapping[str, np.ndarray]) -> None:
        """Keeps a block: arrays `[tiled axes..., seeds, ...]`; axes that the policy does not have get the same values."""
        first = block * self.layout.block
        region: list[Any] = [self.policies.index(policy)]
        for a, coordinates in self.axes.items():
            start = tile.get(a, 0)
            region.append(slice(start, min(start + self.layout.tile[a], len(coordinates))) if a in tile else slice(None))
        region.append(slice(first, min(first + self.layout.block, len(self.seeds))))
        for name, array in values.items():
            for position, (a, coordinates) in enumerate(self.axes.items()):
                if a not in tile:
                    array = np.repeat(np.expand_dims(array, position), len(coordinates), axis=position)
            self.arrays[name][tuple(region)] = array
        done = self._block_index(policy, tile, block)
        everywhere = tuple(
            i if a in tile or a in ("policy", "seed") else slice(None)
            for i, a in zip(done, ("policy", *self.axes, "seed"), strict=True)
        )
        self.arrays[_DONE][everywhere] = True

    def finish(self, attributes: Mapping[str, Any]) -> xr.Dataset:
        """The whole result, with its provenance."""
        if self.group is not None:
            # A resumed run adds its seconds and decisions to those of the runs before it.
            before = self.group.attrs.asdict()
            attributes = dict(attributes)
            for name in ("compile_s", "run_s", "decisions"):
                attributes[name] += before.get(name, 0)
            self.group.attrs.update(json.loads(json.dumps(attributes)))
        variables = {
            name: (d, np.asarray(self.arrays[name][...]), attrs) for name, (d, attrs) in self.about.items() if name != _DONE
        }
        coords = {name: (name, values) for name, values in self.coords.items()}
        return xr.Dataset(variables, coords=coords, attrs={**self.attrs, **attributes})


def _attributes(metric: Metric) -> dict[str, str]:
    return {"label": metric.label, "unit": metric.unit, "kind": metric.kind}
