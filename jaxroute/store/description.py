"""The description of a store: which settings it belongs to, how it is laid out, and what was measured, kept twice in its attributes."""

import dataclasses
import datetime
import functools
import hashlib
import json
import os
import platform
import re
import sys
import warnings
from collections.abc import Collection, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxroute.core.checks import show
from jaxroute.core.types import Metric
from jaxroute.store.code import changes as code_changes
from jaxroute.store.difference import difference, layout_beside
from jaxroute.store.places import Folder, Place

STORE_NAME = "result.zarr"
# What holds the marks of finished blocks, and the second copy of the attributes.
DONE = "_done"
# How a store is laid out; 2: the mark of a block is a digest of its values; 3: and of what it belongs to, and descriptions have digests.
FORMAT = 3
# Formats that can be read.
READABLE = (2, 3)
# The entry of a description that is a digest of all others.
_SEAL = "digest"


@dataclasses.dataclass(frozen=True)
class Contents:
    """What a result will hold, before anything has been played.

    policies: names.
    axes: coordinates of the settings by axis.
    policy_axes: the axes along which the runs of each policy differ.
    seeds: `[R]` uint32.
    times: `[records]` counted rounds.
    variables: metric and shape of each recorded quantity, by name.
    model_names: names of the models, or none.
    zero_flows: names of the flows that must be zero.
    settings: all that decides the numbers, as plain JSON.
    layout: how the run is cut into blocks of seeds and tiles of settings.
    code: what the code of policies and environments does (`code.code_of`), and the Python that it was asked of; None if it is not kept.
    made_with: processor, device, flags and versions (`provenance.made_with`).
    from_start: policies whose runs are no beginnings of longer ones, as they know the horizon.
    """

    policies: Sequence[str]
    axes: Mapping[str, np.ndarray]
    policy_axes: Mapping[str, Sequence[str]]
    seeds: np.ndarray
    times: np.ndarray
    variables: Mapping[str, tuple[Metric, tuple[int, ...]]]
    model_names: Sequence[str]
    zero_flows: Sequence[str]
    settings: Mapping[str, Any]
    layout: Any
    code: Mapping[str, Any] | None = None
    made_with: Mapping[str, str] = dataclasses.field(default_factory=dict)
    from_start: Collection[str] = ()


class StoreMismatchError(ValueError):
    """A store was made by other settings, or another version, than the run that wants to continue it."""


@functools.cache
def versions() -> dict[str, str]:
    """Versions of what the numbers depend on, of this process."""
    packages = {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy")}
    own = sys.modules[__name__.partition(".")[0]].__version__  # A clone that is not installed has no metadata.
    return {"python": platform.python_version(), "jaxroute": own, **packages}


def stored_settings(path: str | os.PathLike | None) -> dict[str, Any]:
    """Settings of an existing store; none if there is no store, or nothing that can be read."""
    if path is None:
        return {}
    try:
        return dict((own_attributes(path, repair=True) or {}).get("settings", {}))
    except (ValueError, OSError):  # Whoever writes to it says what is wrong.
        return {}


def stored_layout(
    path: str | os.PathLike | None, settings: Mapping[str, Any], code: Mapping[str, Any] | None = None, accept: bool = False
) -> dict[str, Any] | None:
    """Block and tile sizes of an existing store of the same settings and code, or of fewer settings; None if there is no store.

    Args:
      path: folder or URL of the store, or None.
      settings: of the run.
      code: of the run, as in `Contents`.
      accept: goes on where the code has changed, with a warning.

    Raises:
      StoreMismatchError: the store belongs to other settings or another version, or was made by other code; the difference is named.
    """
    if path is None:
        return None
    place_of(path).settle()
    if not exists(place_of(path)):
        return None
    attributes = own_attributes(path, repair=True)
    if attributes is None:
        raise StoreMismatchError(f"{str(path)!r} holds something else than a jaxroute result; choose another folder")
    if not attributes:
        warnings.warn(
            f"both descriptions of {str(path)!r} are damaged and are written again from the settings of this run; what belongs to it is kept",
            stacklevel=6,
        )
        return None
    if attributes["settings"].get("format") != FORMAT:
        raise StoreMismatchError(
            f"{str(path)!r} was written by an earlier version of jaxroute: it can be read, but not continued; choose another folder"
        )
    found = difference(attributes["settings"], json.loads(json.dumps(fingerprint(settings))))
    if found.refused:
        raise StoreMismatchError(f"{str(path)!r} holds the result of other settings: {found.refused}; choose another folder")
    if code is not None and (reason := _code_difference(attributes.get("code"), code, bool(found.grown))):
        what, told = reason
        if told and not accept:
            raise StoreMismatchError(
                f"{str(path)!r} was made by other code: {what}; choose another folder, or go on nevertheless with "
                "accept_changed_code=True (--accept-changed-code)"
            )
        warnings.warn(f"{str(path)!r}: {what}", stacklevel=6)
    layout = dict(attributes["layout"])
    kept_together = settings.get("keep") == "moments" or settings.get("keep_states")  # What belongs to a block, is not cut.
    return layout if kept_together else layout_beside(layout, found.added)


def _code_difference(stored: Any, own: Mapping[str, Any], grown: bool = False) -> tuple[str, bool] | None:
    """What is different in the code, and whether that can be told; None if it is the same, or if it has `grown` and only has more."""
    if stored is None:
        return "what the code of its policies did was not kept, whether it is still the same cannot be told", False
    if stored["python"] != own["python"]:
        return (
            f"it was made with Python {stored['python']}, whether the code of its policies is still the same cannot be told with "
            f"{own['python']}",
            False,
        )
    changed = code_changes(stored["digests"], own["digests"])
    changed = [name for name in changed if not grown or name in stored["digests"]]
    if not changed:
        return None
    more = f" and {len(changed) - 4} more" if len(changed) > 4 else ""
    return f"{', '.join(changed[:4])}{more} changed", True


def with_code(attributes: Mapping[str, Any], own: Mapping[str, Any] | None, grown: bool = False) -> dict[str, Any]:
    """What to write into a store that goes on with other code than it was begun with; nothing if the code is the same.

    Args:
      attributes: of the store.
      own: code of the run.
      grown: the run asks for more than the store holds, so that there may be more code.
    """
    if own is None or (reason := _code_difference(attributes.get("code"), own, grown)) is None:
        return {}
    return {"code": own, "accepted_code": [*attributes.get("accepted_code", []), {"at": now(), "what": reason[0]}]}


def now() -> str:
    """The time, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def with_session(attributes: Mapping[str, Any], own: Mapping[str, str], store: Place) -> dict[str, Any]:
    """What to write into a store that is played on with something else than before; nothing if that was the case already."""
    made = [dict(one) for one in attributes.get("made_with", [])]
    if dict(own) in made:
        return {}
    if made:
        other = [  # Before 0.2.0 sessions did not say the version of jaxroute.
            f"{name} {repr(made[-1][name]) if name in made[-1] else 'an earlier one'} there and {value!r} here"
            for name, value in own.items()
            if made[-1].get(name) != value
        ]
        warnings.warn(
            f"{str(store)!r} was begun with something else: {', '.join(other)}; what is played now may differ from it in the last bits. "
            "The digest of each block stands for what it was made with",
            stacklevel=8,
        )
    return {"made_with": [*made, dict(own)]}


def own_attributes(path: str | os.PathLike | Place, repair: bool = False) -> Any:
    """Attributes of a store that this package made, None of anything else; empty if both copies are damaged and are to be repaired.

    They are kept twice, each with a digest; the first that is as it was written counts.

    Args:
      path: of the store.
      repair: for a run, which writes again what is damaged.

    Raises:
      ValueError: both are damaged, or one is and there is no other, and nothing is to be repaired.
    """
    store = place_of(path)
    damage = None
    for read in (attributes_in, copied_attributes):
        try:
            found = read(store)
        except ValueError as error:
            damage = damage or str(error)
            continue
        if found is None and read is attributes_in and (store / DONE).is_folder():
            damage = "it is missing"
        if found is None or not {"settings", "layout"} <= set(found):
            continue
        if is_sound(found):
            if damage is not None and not repair:
                warnings.warn(
                    f"{str(store / 'zarr.json')!r} is damaged ({damage}), its second copy is read; run it again to repair it",
                    stacklevel=4,
                )
            return found
        damage = damage or "it is not what was written"
    if damage is None:
        return None
    if repair and (store / DONE).is_folder():
        return {}
    raise ValueError(
        f"{str(store / 'zarr.json')!r} is damaged ({damage}), and so is its second copy; run it again to write both again"
    )


def sealed(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """A description with a digest of all that it says, as plain JSON."""
    plain = json.loads(json.dumps({name: value for name, value in attributes.items() if name != _SEAL}))
    return {**plain, _SEAL: hashlib.blake2b(json.dumps(plain, sort_keys=True).encode(), digest_size=16).hexdigest()}


def is_sound(attributes: Mapping[str, Any]) -> bool:
    """Whether a description is as it was written; of stores of format 2, which have no digest, nobody can tell."""
    if _SEAL not in attributes and attributes.get("settings", {}).get("format") == 2:
        return True
    return attributes.get(_SEAL) == sealed(attributes)[_SEAL]


def attributes_in(folder: Place) -> Any:
    """Attributes of a group or array, None if there is none; `ValueError` if its file is damaged."""
    content = (folder / "zarr.json").read()
    if content is None:
        return None
    found = json.loads(content)
    known = isinstance(found, dict) and found.get("zarr_format") == 3 and found.get("node_type") in ("group", "array")
    attributes = found.get("attributes", {}) if known else None
    if not isinstance(attributes, dict):
        raise ValueError(f"not the description of a group: {show(found)}")
    return attributes


def copied_attributes(store: Place) -> Any:
    """The second copy of a store's attributes."""
    copy = (attributes_in(store / DONE) or {}).get("copy")
    return copy if isinstance(copy, dict) else None


def fingerprint(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the bits of a result depend on."""
    own = versions()
    return {
        "platform": jax.default_backend(),
        **settings,
        "format": FORMAT,
        "jaxroute": own["jaxroute"],
        "jax": own["jax"],
        "threefry_partitionable": bool(getattr(jax.config, "jax_threefry_partitionable", True)),
        "x64": jax.config.read("jax_enable_x64"),
    }


def exists(store: Place) -> bool:
    """Whether something is there already; what is left of a run that died while it wrote the first file, or whose folder was moved
    meanwhile, is nothing."""
    if not store.is_folder():
        return store.is_file()
    names = {name for name in store.names() if not name.endswith(".partial")}
    if names == {"zarr.json"}:
        try:
            return bool(attributes_in(store))  # Zarr itself makes a group that says nothing.
        except ValueError:
            return False
    return bool(names)


def place_of(path: str | os.PathLike | Place) -> Place:
    """Where the store of a result lies that is given as `out`: a folder, or the URL of an object store as text.

    Raises:
      ValueError: it is neither, or empty.
      ImportError: `pip install "jaxroute[objects]"` provides what reads and writes URLs.
    """
    if isinstance(path, Place):
        return path
    if not is_url(path):
        return Folder(store_path(path))
    try:
        from jaxroute.store.objects import Objects
    except ImportError:
        raise ImportError(f'out={path!r} needs obstore: pip install "jaxroute[objects]"') from None
    return Objects.at(str(path), STORE_NAME)


def is_url(path: Any) -> bool:
    """Whether what is given as `out` is a URL; one letter before the colon is a drive."""
    return isinstance(path, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", path) is not None


def store_path(path: str | os.PathLike) -> Path:
    """The store itself, of a folder given as `out`.

    Raises:
      ValueError: it is no path, or an empty one.
    """
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise ValueError(f"the folder of a result must be a path, got {show(path)}")
    path = Path(path)
    return path if path.name.endswith(".zarr") else path / STORE_NAME
