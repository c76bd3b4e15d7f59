"""One run at a time on a store.

The lock is the operating system's (`flock`, which NFS passes on to the server): it ends with its process, however that ends, so no
dead process of the same machine can hold it. Where a file system does not pass such locks between machines, the file itself still
tells: its holder rewrites it every few seconds, and another machine takes it over only after it has not changed for a while. No
clocks are compared. A library such as `filelock` offers one or the other, not both.
"""

import contextlib
import json
import os
import platform
import threading
import time
import uuid
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Not on Windows; there the beat alone decides.
    fcntl = None

_BEAT_S = 5.0
_PATIENCE_S = 30.0


class StoreInUseError(ValueError):
    """Another run is writing to the store."""


def identity() -> dict[str, Any]:
    """Who this process is, to others that want to write."""
    return {"host": platform.node(), "pid": os.getpid(), "id": uuid.uuid4().hex}


def holder_in(content: bytes) -> Any:
    """Who holds a lock, by what it says; None if that is empty or unfinished."""
    try:
        found = json.loads(content)
    except ValueError:
        return None
    return found if isinstance(found, dict) and {"host", "pid"} <= set(found) else None


def in_use(store: Any, holder: Any) -> StoreInUseError:
    """The refusal of a store that another process writes to."""
    who = f"process {holder['pid']} on {holder['host']}" if holder else "another process"
    return StoreInUseError(f"{str(store)!r} is being written to by {who}: wait for it, stop it, or choose another folder")


class StoreLock:
    """Context in which this process alone writes to a store; the lock file lies beside it and goes away at the end.

    Links are followed: a store has one lock, whatever it is called by.

    Args:
      store: path of the store, which need not exist yet; missing folders above it are made.

    Raises:
      StoreInUseError: on entry, another run holds the lock; it is named.
      OSError: on entry, the folder cannot be written to.
    """

    def __init__(self, store: Path):
        self.store = store
        self._place = store.resolve()
        self.path = self._place.with_name(store.name + ".lock")
        self._file = -1
        self._made: list[Path] = []
        self._over = threading.Event()
        self._own = identity()

    def __enter__(self) -> "StoreLock":
        folder = self._place.parent
        try:
            self._made = [p for p in (folder, *folder.parents) if not p.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            self._acquire()
            self._heart = threading.Thread(target=self._beat, daemon=True)
            self._heart.start()
        except StoreInUseError:
            raise
        except OSError as error:
            self._remove_folders()
            reason = error.strerror or str(error)
            raise OSError(
                error.errno, f"out must be a folder that can be written to, got {str(self.store.parent)!r}: {reason}"
            ) from None
        except BaseException:  # No more threads, or an interrupt.
            if self._file >= 0:
                self._over.set()
                self._release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        try:
            self._heart.join()
        finally:
            self._release()

    def _release(self) -> None:
        try:
            with contextlib.suppress(OSError):  # The file may stay, without a lock.
                self.path.unlink(missing_ok=True)
        finally:  # Whatever interrupts.
            os.close(self._file)
            self._remove_folders()

    def _acquire(self) -> None:
        while True:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                everywhere = _locked(file)
                if not _is_still(self.path, file):  # The holder has just removed it.
                    os.close(file)
                    continue
                holder = _read(file)
                elsewhere = holder is not None and (not everywhere or holder.get("host") != self._own["host"])
                if elsewhere and self._changes(holder):
                    raise in_use(self.store, holder)
                self._write(file, 0)
                self._file = file
            except BlockingIOError:
                holder = _read(file)
                os.close(file)
                raise in_use(self.store, holder) from None
            except BaseException:
                self._file = -1
                os.close(file)
                raise
            return

    def _changes(self, before: Any) -> bool:
        """Whether the holder is alive: its file changes."""
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end:
            time.sleep(_BEAT_S / 5)
            try:
                file = os.open(self.path, os.O_RDONLY)  # Opened again, so that NFS asks the server.
            except FileNotFoundError:
                return False
            now = _read(file)
            os.close(file)
            if now != before:
                return True
        return False

    def _write(self, file: int, beat: int) -> None:
        text = json.dumps({**self._own, "beat": beat}).encode()
        os.lseek(file, 0, os.SEEK_SET)
        os.write(file, text)
        os.ftruncate(file, len(text))

    def _beat(self) -> None:
        beat = 0
        while not self._over.wait(_BEAT_S):
            beat += 1
            try:
                self._write(self._file, beat)
            except OSError:  # A full disk is the run's to report.
                continue

    def _remove_folders(self) -> None:
        """Folders that were made for nothing."""
        for folder in self._made:
            try:
                folder.rmdir()
            except OSError:
                return


def _locked(file: int) -> bool:
    """Takes the operating system's lock; False where the file system has none. `BlockingIOError` if somebody holds it."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def _is_still(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False


def _read(file: int) -> Any:
    os.lseek(file, 0, os.SEEK_SET)
    return holder_in(os.read(file, 4096))
