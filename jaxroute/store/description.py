"""The description of a store: which settings it belongs to, how it is laid out, and what was measured, kept twice in its attributes."""

import abc
import dataclasses
import functools
import json
import os
import platform
import time
import warnings
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import zarr

from jaxroute.core.checks import show

STORE_NAME = "result.zarr"
# What holds the marks of finished blocks, and the second copy of the attributes.
DONE = "_done"
# How a store is laid out; 2: the mark of a block is a digest of its values.
FORMAT = 2


class StoreMismatchError(ValueError):
    """A store was made by other settings, or another version, than the run that wants to continue it."""


@functools.cache
def versions() -> dict[str, str]:
    """Versions of what the numbers depend on, of this process."""
    packages = {name: metadata.version(name) for name in ("jaxroute", "jax", "jaxlib", "numpy")}
    return {"python": platform.python_version(), **packages}


def stored_layout(path: str | os.PathLike | None, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Block and tile sizes of an existing store of the same settings, None if there is no store.

    Raises:
      StoreMismatchError: the store belongs to other settings or another version; the difference is named.
    """
    if path is None or not exists(store_path(path)):
        return None
    attributes = own_attributes(path, repair=True)
    if attributes is None:
        raise StoreMismatchError(f"{str(path)!r} holds something else than a jaxroute result; choose another folder")
    own = json.loads(json.dumps(fingerprint(settings)))
    # What is only said where it is not the usual.
    usual = {"keep": "runs", "until_stderr": None}
    difference = _difference(usual | attributes["settings"], usual | own)
    if difference:
        raise StoreMismatchError(f"{str(path)!r} holds the result of other settings: {difference}; choose another folder")
    return dict(attributes["layout"])


def own_attributes(path: str | os.PathLike, repair: bool = False) -> Any:
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
    return (_attributes_in(store / DONE) or {}).get("copy")


def fingerprint(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the bits of a result depend on."""
    own = versions()
    return {
        **settings,
        "format": FORMAT,
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


def exists(store: Path) -> bool:
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


def writes(method: Callable) -> Callable:
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


class Store(abc.ABC):
    """What all stores have in common: a group that is opened or made, and the provenance that is written at the end.

    layout: how the run is cut into blocks. attrs: settings and layout. group: the Zarr group, None for a result in memory. store: its
    path.
    """

    layout: Any
    attrs: dict[str, Any]
    group: Any
    store: Path

    @writes
    def _open(self, path, settings):
        self.attrs = {"settings": fingerprint(settings), "layout": dataclasses.asdict(self.layout)}
        if path is None:
            return None
        self.store = store = store_path(path)
        store.parent.mkdir(parents=True, exist_ok=True)
        if exists(store):
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

    @abc.abstractmethod
    def missing(self) -> str:
        """Which of the wanted blocks have not been played, in words; empty if all have."""

    def settle(self, late_s: float) -> None:
        """Waits until the wanted blocks can be read, whoever has written them.

        Args:
          late_s: seconds that a shared file system may take to show what another machine has written.

        Raises:
          OSError: what is read is not what was written.
        """
        end = time.monotonic() + late_s
        while lost := self.missing():
            if time.monotonic() >= end:
                raise OSError(
                    f"what is in {str(self.store)!r} is not what was written: {lost}; the same command plays it again"
                )
            time.sleep(1.0)

    @writes
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
            self.group[DONE].attrs.update({"copy": self.group.attrs.asdict()})
        return {**self.attrs, **attributes}
