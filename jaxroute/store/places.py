"""Where a store lies: a tree of named files, whatever keeps it. `Folder` is one on disk, `objects.Objects` one in an object store.

Descriptions, marks, chunks and statistics know a `Place`, and not of which kind it is.
"""

import abc
import contextlib
import dataclasses
import os
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
    def flush(self) -> None:
        """Has a file that was written kept for good: a power cut then leaves the one before or this one."""

    @abc.abstractmethod
    def prepare(self) -> None:
        """Makes what must be there before the first file of a store is written."""

    @abc.abstractmethod
    def as_zarr(self) -> Any:
        """What `zarr.open_group` and its like take."""

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
        partial.write_bytes(content)
        partial.replace(self.path)

    def delete(self) -> None:
        self.path.unlink(missing_ok=True)

    def flush(self) -> None:
        """Has the file, and its place in the folder, written to the disk itself."""
        for place in (self.path, self.path.parent):
            try:
                handle = os.open(place, os.O_RDONLY)
            except OSError:  # Folders cannot be opened everywhere.
                continue
            try:
                os.fsync(handle)
            except OSError:
                pass
            finally:
                os.close(handle)

    def prepare(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def as_zarr(self) -> Path:
        return self.path

    def lock(self) -> locks.StoreLock:
        return locks.StoreLock(self.path)
