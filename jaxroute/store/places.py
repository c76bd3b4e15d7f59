"""Where a store lies: a tree of named files, whatever keeps it. `Folder` is one on disk, `objects.Objects` one in an object store.

Descriptions, marks, chunks and statistics know a `Place`, and not of which kind it is.
"""

import abc
import contextlib
import dataclasses
import os
import shutil
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from jaxroute.store import locks


class Place(abc.ABC):
    """A file or folder of a store, or the store itself; `str` of it is what messages say."""

    @abc.abstractmethod
    def __truediv__(self, name: str) -> "Place":
        """What lies inside under this name, which may have several parts."""

    @abc.abstractmethod
    def is_folder(self) -> bool:
        """Whether it is there and can hold files."""

    @abc.abstractmethod
    def is_file(self) -> bool:
        """Whether it is there and can be read."""

    @abc.abstractmethod
    def names(self, prefix: str = "") -> list[str]:
        """Names of what lies directly inside and begins so, sorted; none if there is no such folder."""

    @abc.abstractmethod
    def read(self) -> bytes | None:
        """The content of a file, None if there is none."""

    @abc.abstractmethod
    def write(self, content: bytes) -> None:
        """Gives a file this content in one step: whoever reads sees the one before or this one."""

    @abc.abstractmethod
    def delete(self) -> None:
        """Removes a file, if it is there."""

    @abc.abstractmethod
    def flush(self, folders: int | None = 1) -> None:
        """Has a file that was written kept for good: a power cut then leaves the one before or this one.

        Args:
          folders: number of folders above it that are kept, too, for the names in them; None for all.
        """

    @abc.abstractmethod
    def flush_all(self, files: "Collection[Place]") -> None:
        """As `flush` for many files inside, and the folders that they are in."""

    @abc.abstractmethod
    def prepare(self) -> None:
        """Makes what must be there before the first file of a store is written."""

    @abc.abstractmethod
    def as_zarr(self) -> Any:
        """What `zarr.open_group` and its like take."""

    @abc.abstractmethod
    def aside(self) -> "Place":
        """Where a store is made that is to take the place of this one; nothing is there any more.

        Raises:
          StoreMismatchError: none can take the place of another here.
        """

    @abc.abstractmethod
    def replace(self) -> None:
        """The store that was made aside takes the place of this one, if there is one; what it says is kept for good before."""

    @abc.abstractmethod
    def is_interrupted(self) -> bool:
        """Whether a process died while one store took the place of another."""

    @abc.abstractmethod
    def settle(self) -> None:
        """Finishes what a process that died has begun; the caller holds the lock of the store."""

    @abc.abstractmethod
    def lock(self) -> contextlib.AbstractContextManager[Any]:
        """A context in which this process alone writes to the store.

        Raises:
          StoreInUseError: on entry, another run writes to it; it is named.
          OSError: on entry, it cannot be written to.
        """


@dataclasses.dataclass(frozen=True)
class Folder(Place):
    """A file or folder on disk.

    path: of it.
    """

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str) -> "Folder":
        return Folder(self.path / name)

    def is_folder(self) -> bool:
        return self.path.is_dir()

    def is_file(self) -> bool:
        return self.path.is_file()

    def names(self, prefix: str = "") -> list[str]:
        try:
            return sorted(name for name in os.listdir(self.path) if name.startswith(prefix))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self) -> bytes | None:
        return self.path.read_bytes() if self.path.is_file() else None

    def write(self, content: bytes) -> None:
        partial = self.path.with_name(self.path.name + ".partial")
        partial.parent.mkdir(exist_ok=True)
        partial.write_bytes(content)
        Folder(partial).flush()  # A power cut could otherwise leave an empty file in the place of the one before.
        partial.replace(self.path)

    def delete(self) -> None:
        self.path.unlink(missing_ok=True)

    def flush(self, folders: int | None = 1) -> None:
        for place in (self.path, *self.path.parents[:folders]):
            _flush(place)

    def flush_all(self, files: Collection[Place]) -> None:
        """At the same time, which takes a tenth of the time."""
        paths = [file.path for file in files if isinstance(file, Folder)]
        folders = {place for file in paths for place in file.parents if place == self.path or self.path in place.parents}
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(_flush, paths))
            list(pool.map(_flush, folders))

    def prepare(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def as_zarr(self) -> Path:
        return self.path

    def lock(self) -> locks.StoreLock:
        return locks.StoreLock(self.path)

    def _beside(self, word: str) -> Path:
        return self.path.with_name(f"{self.path.stem}.{word}.zarr")

    def aside(self) -> "Folder":
        shutil.rmtree(self._beside("growing"), ignore_errors=True)
        return Folder(self._beside("growing"))

    def replace(self) -> None:
        growing = Folder(self._beside("growing"))
        growing.flush_all([Folder(place) for place in growing.path.rglob("*") if place.is_file()])
        if self.path.exists():
            self.path.rename(self._beside("before"))
        growing.path.rename(self.path)
        self.flush()
        shutil.rmtree(self._beside("before"), ignore_errors=True)

    def is_interrupted(self) -> bool:
        return not self.path.exists() and all(self._beside(word).exists() for word in ("growing", "before"))

    def settle(self) -> None:
        if self.is_interrupted():
            self._beside("growing").rename(self.path)
        if self.path.exists():
            for word in ("growing", "before"):
                shutil.rmtree(self._beside(word), ignore_errors=True)


def _flush(place: Path) -> None:
    """Has a file, or the names in a folder, written to the disk itself."""
    try:
        handle = os.open(place, os.O_RDONLY)
    except OSError:  # Folders cannot be opened everywhere; and what holds nothing has no file.
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
