"""Checksums of a store: which blocks are as they were written, and which must be played again.

A cell is one chunk of every variable: one policy, one tile of settings, one block of seeds. Its mark, 0 until it has been
written, is a digest of all its values and of what they belong to (settings, policy, seeds), so that a chunk that was lost, cut,
overwritten or exchanged is noticed when it is read, and so is a whole cell that came from elsewhere.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxroute.store.places import Place

Cell = tuple[int, ...]

# What Zarr and its codecs raise for bytes that are not what was written: chunks, or the description of an array.
UNREADABLE = (ValueError, RuntimeError, TypeError, ArithmeticError, IndexError, MemoryError)


class Belonging:
    """What the cells of a store belong to, and what they were made with: makes their marks, and knows them again.

    A cell belongs to all settings but those of other policies, to its policy, and to the values of settings and the seeds that it is of: where it
    stands in the store does not enter. Marks of format 2 say nothing of it.

    made: how many of the cells that were looked at were made with each of the sessions in the store's `made_with`.

    Args:
      attributes: of the store.
      coords: policies, settings by axis and seeds of the store.
      own: what this process makes cells with.
    """

    def __init__(
        self, attributes: Mapping[str, Any], coords: Mapping[str, np.ndarray], own: Mapping[str, str] | None = None
    ):
        settings, self._layout = attributes["settings"], attributes["layout"]
        self._says = settings["format"] > 2
        apart = ("policies", "record", "seeds", "until_stderr")
        self._common = {name: value for name, value in settings.items() if name not in apart}
        self._of_policies = {name: settings[name] for name in ("policies", "record")}
        self._coords = coords
        self._known: dict[str, str] = {}
        self._sessions = [_plain(one) for one in attributes.get("made_with", [])] or [b""]
        self._own = self._sessions[-1] if own is None else _plain(own)
        self.made = [0] * len(self._sessions)

    def mark(self, cell: Cell, parts: Mapping[str, np.ndarray], session: int | None = None) -> int:
        """Mark of a cell, from its values by variable; it is made now, or was made by a session of the store."""
        made_with = self._own if session is None else self._sessions[session]
        return digest(parts, self.place(cell) + made_with if self._says else b"")

    def session(self, cell: Cell, parts: Mapping[str, np.ndarray], mark: int) -> int | None:
        """Number of the session of the store that made these values, if the mark is theirs; otherwise None."""
        place = self.place(cell)
        for number, session in enumerate(self._sessions):
            if digest(parts, place + session if self._says else b"") == mark:
                return number
        return None

    def place(self, cell: Cell) -> bytes:
        """What a cell is of: settings, policy, values of settings, seeds; nothing in format 2."""
        if not self._says:
            return b""
        policy = str(self._coords["policy"][cell[0]])
        if policy not in self._known:
            own = {name: of_policy.get(policy) for name, of_policy in self._of_policies.items()}
            self._known[policy] = json.dumps([self._common, policy, own], sort_keys=True)
        names = (name for name in self._coords if name in ("seed", *self._layout["tile"]))
        spans = []
        for name, place in zip(names, cell[1:], strict=True):
            size = self._layout["block"] if name == "seed" else self._layout["tile"][name]
            spans.append([name, [str(v) for v in self._coords[name][place * size : (place + 1) * size]]])
        return json.dumps([self._known[policy], spans]).encode()


def _plain(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def digest(parts: Mapping[str, np.ndarray], belongs: bytes = b"") -> int:
    """Mark of a cell, from its values by variable and what they belong to; never 0.

    A variable that holds nothing (NaN, or False) is as good as absent: Zarr does not write such chunks. All NaNs are alike.
    """
    summary = hashlib.blake2b(belongs, digest_size=8)
    for name in sorted(parts):
        part = np.ascontiguousarray(parts[name])
        if part.dtype.kind == "f":
            absent = np.isnan(part)
            if absent.all():
                continue
            if absent.any():
                part = np.where(absent, np.asarray(np.nan, part.dtype), part)
        elif not part.any():
            continue
        summary.update(f"{name} {part.dtype.str} {part.shape}".encode())
        summary.update(part.tobytes())
    return int.from_bytes(summary.digest(), "little") or 1


def digest_of_coordinates(coords: Mapping[str, np.ndarray]) -> str:
    """Digest of the coordinates by name."""
    plain = {name: [str(v) for v in np.asarray(values).ravel()] for name, values in coords.items()}
    return hashlib.blake2b(json.dumps(plain, sort_keys=True).encode(), digest_size=8).hexdigest()


def region(array: Any, cell: Cell) -> tuple[slice, ...]:
    """Where a cell's values are in a variable, along its leading dimensions."""
    pairs = zip(cell, array.chunks, array.shape, strict=False)
    return tuple(slice(i * size, min((i + 1) * size, whole)) for i, size, whole in pairs)


def marks_of(done: Any) -> np.ndarray:
    """All marks; one that cannot be read counts as not written."""
    return marks_and_lost(done)[0]


def marks_and_lost(done: Any) -> tuple[np.ndarray, list[Cell]]:
    """All marks, and the cells whose mark cannot be read, which count as not written."""
    try:
        return np.asarray(done[...]), []
    except UNREADABLE:
        marks, lost = np.zeros(done.shape, np.uint64), []
    for cell in np.ndindex(*done.shape):
        try:
            marks[cell] = done[cell]
        except UNREADABLE:
            lost.append(cell)
    return marks, lost


def read(arrays: Mapping[str, Any], done: Any, belonging: Belonging) -> tuple[dict[str, np.ndarray], np.ndarray, list[Cell]]:
    """Everything that is stored and sound.

    Args:
      arrays: variables of a store by name, whose leading dimensions are chunked by cells.
      done: the marks, one per cell.
      belonging: what a cell belongs to.

    Returns:
      Values by variable (NaN or False where there is nothing sound), whether each cell has a mark, and the cells whose values are not
      those that were written.
    """
    belonging.made = [0] * len(belonging.made)
    marks = marks_of(done)
    try:
        values = {name: np.asarray(array[...]) for name, array in arrays.items()}
    except UNREADABLE:
        values = {name: np.full(array.shape, array.fill_value, array.dtype) for name, array in arrays.items()}
        for cell in map(tuple, np.argwhere(marks)):
            for name, array in arrays.items():
                where = region(array, cell)
                try:
                    values[name][where] = array[where]
                except UNREADABLE:
                    continue  # The digest will differ.
    broken = []
    for cell in np.ndindex(*marks.shape):
        parts = {name: values[name][region(array, cell)] for name, array in arrays.items()}
        session = belonging.session(cell, parts, int(marks[cell])) if marks[cell] else None
        if session is not None:
            belonging.made[session] += 1
            continue
        if marks[cell]:
            broken.append(cell)
        for name, array in arrays.items():
            values[name][region(array, cell)] = array.fill_value
    return values, marks != 0, broken


def files(folder: Place, arrays: Mapping[str, Any], done: Any, cells: Sequence[Cell]) -> list[Place]:
    """Where cells of a store are: their marks, then their chunks."""
    found = []
    for name, array in [(done.basename, done), *arrays.items()]:
        for cell in cells:
            key = array.metadata.encode_chunk_key((*cell, *(0,) * (len(array.shape) - len(cell))))
            found.append(folder / name / key)
    return found


def remove(folder: Place, arrays: Mapping[str, Any], done: Any, cells: Sequence[Cell]) -> None:
    """Takes cells out of a store: the mark first, then the chunks, which may not be readable."""
    for file in files(folder, arrays, done, cells):
        file.delete()
