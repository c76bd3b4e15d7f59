"""Where finished blocks go: what all sinks have in common, and what each one does in its way."""

import abc
import dataclasses
import errno
import functools
import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import xarray as xr
import zarr

from jaxroute.store.description import (
    DONE,
    Contents,
    attributes_in,
    copied_attributes,
    exists,
    fingerprint,
    is_sound,
    own_attributes,
    place_of,
    sealed,
    with_code,
    with_session,
)
from jaxroute.store.places import Place
from jaxroute.store.states import Kept

# A policy, the first setting of a tile along each axis, and the number of a block of seeds.
Task: TypeAlias = tuple[str, dict[str, int], int]

# What a result measures of the work that went into it, which the calls that made it add up; `last_call` has that of the latest alone.
_ADDED = ("compile_s", "run_s", "decisions", "played_again")
_GONE = "it was moved or removed while the run was writing to it"


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


class Sink(abc.ABC):
    """Where finished blocks go, in memory or in a store: a group that is opened or made, blocks, and the provenance at the end.

    contents: what the result will hold.
    layout: how the run is cut into blocks.
    wanted: blocks of seeds that the result will consist of.
    attrs: settings and layout.
    group: the Zarr group, None for a result in memory.
    store: where it lies.
    fresh: nothing was there before, so that nothing needs to be looked for.
    """

    contents: Contents
    layout: Any
    wanted: int
    attrs: dict[str, Any]
    group: Any
    store: Place
    fresh: bool = False

    @abc.abstractmethod
    def order(self, task: Task) -> tuple[Any, ...]:
        """A sort key that brings tasks into the order in which this sink needs them."""

    @abc.abstractmethod
    def share(self, tasks: Sequence[Task], rank: int, size: int) -> list[Task]:
        """The tasks of one process.

        Args:
          tasks: of all processes, in order.
          rank: of the process.
          size: number of processes.
        """

    @abc.abstractmethod
    def is_done(self, policy: str, tile: Mapping[str, int], block: int) -> bool:
        """Whether this block has been played."""

    @abc.abstractmethod
    def begun(self, block: int) -> bool:
        """Whether this block of seeds, or one behind it, has been played by anybody."""

    def is_begun(self, policy: str, tile: Mapping[str, int], block: int) -> bool:
        """Whether the first rounds of this block have been played, so that it is continued."""
        del policy, tile, block
        return False

    def first_rounds(self, policy: str, tile: Mapping[str, int], block: int) -> Kept | None:
        """The first rounds of this block, if they have been played and can be continued."""
        del policy, tile, block
        return None

    @abc.abstractmethod
    def write(
        self,
        policy: str,
        tile: Mapping[str, int],
        block: int,
        values: Mapping[str, np.ndarray],
        kept: Kept | None = None,
    ) -> None:
        """Takes the curves of a block.

        Args:
          policy: name.
          tile: first setting along each axis that the policy has.
          block: number of the block of seeds.
          values: arrays `[tiled axes..., seeds, ...]` by name.
          kept: what the runs are continued from if they are to be longer.
        """

    @abc.abstractmethod
    def errors(self, metric: str, policies: Sequence[str], blocks: int) -> np.ndarray:
        """Standard errors of a metric at the horizon over the seeds of the first blocks, of some policies and all settings."""

    @abc.abstractmethod
    def stop(self, blocks: int) -> int:
        """The result will consist of these first blocks; returns their number of seeds."""

    @abc.abstractmethod
    def finish(self, late_s: float = 0.0) -> xr.Dataset:
        """The whole result, without its provenance.

        Args:
          late_s: seconds that a shared file system may take to show what another machine has written.

        Raises:
          OSError: what is read is not what was written.
        """

    @abc.abstractmethod
    def so_far(self) -> xr.Dataset:
        """The result so far, without its provenance, of the seeds of which something has been played: what is missing is NaN."""

    @writes
    def _open(self, path, settings, first=True):
        """The group of a store that is opened or made; `first`: this process describes it, the others find it described."""
        self.attrs = {"settings": fingerprint(settings), "layout": dataclasses.asdict(self.layout)}
        if path is None:
            return None
        own = {**self.attrs, "made_with": [dict(self.contents.made_with)]}
        own |= {"code": self.contents.code} if self.contents.code is not None else {}
        self.store = store = place_of(path)
        store.prepare()
        self.fresh = not exists(store)
        begun = None if self.fresh else own_attributes(store, repair=True)
        wanted = sealed(begun or own)
        if begun and first:
            wanted = sealed(
                {**begun, **with_code(begun, self.contents.code), **with_session(begun, self.contents.made_with, store)}
            )
        try:
            there = attributes_in(store)
        except ValueError:
            there = {}
        if there and is_sound(there):
            group = zarr.open_group(store.as_zarr(), mode="a")
            if there != wanted:
                group.attrs.put(wanted)
            return group
        if begun is not None:
            warnings.warn(f"{str(store / 'zarr.json')!r} was damaged and is made again", stacklevel=7)
        (store / "zarr.json").delete()
        group = zarr.create_group(store.as_zarr(), attributes=wanted)
        (store / "zarr.json").flush(folders=None)  # The folders above may be new as well.
        return group

    def check_place(self) -> None:
        """`OSError` if the store is no longer where it was made: nothing is to be made again in its place."""
        if self.group is not None and not (self.store / "zarr.json").is_file():
            raise OSError(errno.ENOENT, _GONE)

    @writes
    def _say(self, more: Mapping[str, Any]) -> dict[str, Any]:
        """Adds to the description of the store, in both copies; returns all of it."""
        said, copy = sealed({**self.group.attrs.asdict(), **more}), self.group.get(DONE)
        if copy is None:
            raise OSError(errno.ENOENT, _GONE)
        self.group.attrs.put(said)
        (self.store / "zarr.json").flush()
        copy.attrs.put({"copy": said})
        (self.store / DONE / "zarr.json").flush()
        return said

    def _is_said(self, wanted: Mapping[str, Any]) -> bool:
        """Whether both copies of the description are alike, and say that."""
        try:
            root, copy = attributes_in(self.store), copied_attributes(self.store)
        except ValueError:
            return False
        return root is not None and root == copy and {**root, **wanted} == root

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
        self.check_place()
        if self.group is not None:
            # A resumed run adds its seconds and decisions to those of the runs before it. One that found everything there has traced the
            # programs to see what they record, and neither compiled nor played any: it adds nothing.
            before, added = self.group.attrs.asdict(), {name: attributes[name] for name in _ADDED}
            added = added if added["decisions"] else dict.fromkeys(_ADDED, 0)
            attributes |= {name: before.get(name, 0) + more for name, more in added.items()} | {"last_call": added}
            attributes |= {name: before[name] for name in ("accepted_code", "grown") if name in before}
            attributes = json.loads(json.dumps(attributes))
            self._say(attributes)
        return {**self.attrs, **attributes, **self.sessions()}

    def sessions(self) -> dict[str, Any]:
        """What the blocks were made with, as an attribute of the result, where that changed and is known."""
        return {}
