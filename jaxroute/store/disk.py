"""What is on the disk for good, and how a store takes the place of another: a process that dies in between is found out later."""

import os
import shutil
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def flush(file: Path, folders: int | None = 1) -> None:
    """Has a file, and its place in the folder, written to the disk itself: a power cut then leaves the one before or this one.

    Args:
      file: the file.
      folders: number of folders above it that are written, too, for the names in them; None for all.
    """
    for place in (file, *file.parents[:folders]):
        _flush(place)


def flush_all(files: Collection[Path], top: Path) -> None:
    """As `flush` for many files and the folders above them, up to `top`: at the same time, which takes a tenth of the time."""
    folders = {place for file in files for place in file.parents if place == top or top in place.parents}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(_flush, files))
        list(pool.map(_flush, folders))


def _flush(place: Path) -> None:
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


def aside(store: Path) -> Path:
    """Where a store is made that is to take the place of another."""
    return store.with_name(f"{store.stem}.growing.zarr")


def _before(store: Path) -> Path:
    return store.with_name(f"{store.stem}.before.zarr")


def is_interrupted(store: Path) -> bool:
    """Whether a process died while one store took the place of another."""
    return not store.exists() and aside(store).exists() and _before(store).exists()


def settle(store: Path) -> None:
    """Finishes what a process that died has begun; the caller holds the lock of the store."""
    if is_interrupted(store):
        aside(store).rename(store)
    if store.exists():
        for leftover in (aside(store), _before(store)):
            shutil.rmtree(leftover, ignore_errors=True)


def replace(store: Path) -> None:
    """The store that was made aside takes the place of this one, if there is one; what it says is on the disk before."""
    _to_disk(aside(store))
    if store.exists():
        store.rename(_before(store))
    aside(store).rename(store)
    flush(store)
    shutil.rmtree(_before(store), ignore_errors=True)


def _to_disk(folder: Path) -> None:
    """Has all files below a folder written to the disk itself."""
    if hasattr(os, "sync"):
        os.sync()
        return
    for file in folder.rglob("*"):
        flush(file)
