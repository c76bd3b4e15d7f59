"""Stores in an object store: S3 and what speaks like it, Google Cloud Storage, Azure; and in the memory of this process, for tests.

The library is obstore, through `zarr.storage.ObjectStore`: one package for all three clouds, whose writes are atomic and
which can write an object only if it is not there, as the marker below needs. Zarr calls this class experimental, but nothing is used of it but that
it is a store; the other way, `zarr.storage.FsspecStore`, takes a package for each cloud, and fsspec has no conditional writes. What a
URL does not say (keys, region, endpoint) comes from the environment, as obstore documents it: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
`AWS_REGION`, `AWS_ENDPOINT_URL` (with `AWS_ALLOW_HTTP=true` if it has no TLS), `GOOGLE_SERVICE_ACCOUNT`, `AZURE_STORAGE_ACCOUNT_NAME`,
`AZURE_STORAGE_ACCOUNT_KEY`, or from the machine's role in its cloud. Profiles in `~/.aws` are not read.

There are no locks: see `Marker` for what stands in their place.
"""

import contextlib
import dataclasses
import errno
import functools
import json
import re
import threading
import time
import warnings
from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Any

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import MemoryStore, from_url
from zarr.storage import ObjectStore, StorePath

from jaxroute.store import locks
from jaxroute.store.places import Place

_NUMBERS = {PermissionDeniedError: errno.EACCES, UnauthenticatedError: errno.EACCES, NotSupportedError: errno.ENOTSUP}


@dataclasses.dataclass(frozen=True)
class Objects(Place):
    """An object of a store, or all whose keys begin with its key and a slash.

    store: URL of the store.
    client: obstore's, of this URL.
    key: below it; empty for the store itself.
    """

    store: str
    client: Any
    key: str = ""

    @staticmethod
    def at(url: str, name: str) -> "Objects":
        """A store at a URL that ends in `.zarr`, or under a name below any other.

        Raises:
          ValueError: the URL is not one of an object store.
        """
        scheme, _, rest = url.partition("://")
        if scheme.lower() == "file":
            raise ValueError(f"out must be the path of a folder without file://, got {url!r}")
        if "?" in rest or "#" in rest:
            raise ValueError(f"out must be a URL without ? and #, as all options come from the environment, got {url!r}")
        parts = [part for part in rest.split("/") if part]
        if len(parts) < 2 or not parts[-1].endswith(".zarr"):
            parts.append(name)
        store = f"{scheme}://{'/'.join(parts)}"
        try:
            if len(parts) < 2:
                raise ValueError("it names no bucket")
            return Objects(store, _client(store))
        except (BaseError, ValueError) as error:
            raise ValueError(
                f"out must be a folder or the URL of an object store, such as s3://bucket/folder, got {url!r}: {_reason(error)}"
            ) from None

    def __str__(self) -> str:
        return f"{self.store}/{self.key}".rstrip("/")

    def __truediv__(self, name: str) -> "Objects":
        return Objects(self.store, self.client, f"{self.key}/{name}".lstrip("/"))

    def is_folder(self) -> bool:
        return any(self._inside().values())

    def is_file(self) -> bool:
        with _told(self):
            try:
                return bool(self.key and obstore.head(self.client, self.key))
            except FileNotFoundError:
                return False

    def names(self, prefix: str = "") -> list[str]:
        found = self._inside()
        names = [key.rpartition("/")[2] for key in (*found["common_prefixes"], *(one["path"] for one in found["objects"]))]
        return sorted(name for name in names if name.startswith(prefix))

    def _inside(self) -> Any:
        with _told(self):
            return obstore.list_with_delimiter(self.client, self.key or None)

    def read(self) -> bytes | None:
        with _told(self):
            try:
                return obstore.get(self.client, self.key).bytes().to_bytes()
            except FileNotFoundError:
                return None

    def write(self, content: bytes) -> None:
        with _told(self):
            obstore.put(self.client, self.key, content)

    def delete(self) -> None:
        with _told(self), contextlib.suppress(FileNotFoundError):
            obstore.delete(self.client, self.key)

    def flush(self, folders: int | None = 1) -> None:
        """Nothing is left to do: what an object store has taken, it keeps."""

    def flush_all(self, files: Collection[Place]) -> None:
        """Nothing is left to do."""

    def prepare(self) -> None:
        """Nothing is left to do: object stores have no folders."""

    def as_zarr(self) -> StorePath:
        return StorePath(_Told(self.client), self.key)

    def aside(self) -> Place:
        raise ValueError(
            f"{self.store!r} does not grow, as nothing takes another's place in an object store in one step: load it, or play what is more "
            "in a folder"
        )

    def replace(self) -> None:
        raise NotImplementedError

    def is_interrupted(self) -> bool:
        return False

    def settle(self) -> None:
        """Nothing is left to do."""

    def lock(self) -> "Marker":
        return Marker(self.store)


class _Told(ObjectStore):
    """Zarr's store, whose errors are those of files."""

    async def get(self, key: str, *args: Any, **options: Any) -> Any:
        with _told(f"{key} in {self.store}"):
            return await super().get(key, *args, **options)

    async def set(self, key: str, *args: Any, **options: Any) -> None:
        with _told(f"{key} in {self.store}"):
            await super().set(key, *args, **options)

    async def set_if_not_exists(self, key: str, *args: Any, **options: Any) -> None:
        with _told(f"{key} in {self.store}"):
            await super().set_if_not_exists(key, *args, **options)

    async def exists(self, key: str) -> bool:
        with _told(f"{key} in {self.store}"):
            return await super().exists(key)

    async def delete(self, key: str) -> None:
        with _told(f"{key} in {self.store}"):
            await super().delete(key)

    async def delete_dir(self, prefix: str) -> None:
        with _told(f"{prefix} in {self.store}"):
            await super().delete_dir(prefix)


class Marker:
    """Context in which this process alone writes to a store: an object beside it says who does, and goes away at the end.

    It is written only if it is not there (`If-None-Match: *`, which S3 has known since 2024). Its holder rewrites it every few seconds;
    another run is refused as long as it changes, and replaces it once it has stood still for a while, if it is still the same then
    (`If-Match`). No clocks are compared. A process that was cut off for so long, and goes on nevertheless, writes what the one that has
    taken over writes; it says so at the end, and leaves the marker alone.

    Servers that do not know conditional writes, and take them for plain ones, let two runs in.

    Args:
      store: URL of the store, which need not exist yet.

    Raises:
      StoreInUseError: on entry, another run holds the marker; it is named.
      OSError: on entry, nothing can be written there.
    """

    def __init__(self, store: str):
        self._store = store
        self._folder, _, name = store.rpartition("/")
        self._key = name + ".lock"
        # Little patience: a word that comes late says nothing.
        self._client = _client(self._folder, retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=10)})
        self._own = locks.identity()
        self._version: Any = None
        self._over = threading.Event()

    def __enter__(self) -> "Marker":
        try:
            self._acquire()
        except (BaseError, FileNotFoundError) as error:
            raise OSError(
                _number(error),
                f"out must be an object store that can be written to, got {self._folder!r}: {_reason(error)}",
            ) from None
        self._heart = threading.Thread(target=self._beat, daemon=True)
        try:
            self._heart.start()
        except BaseException:  # No more threads, for example.
            self._release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._heart.join()
        self._release()

    def _acquire(self) -> None:
        while True:
            try:
                return self._write(0, "create")
            except AlreadyExistsError:
                content, version = self._read()
            if self._is_own(content):  # It was written, but the answer was lost.
                self._version = version
                return None
            if version is None:  # The holder has just removed it.
                continue
            if self._changes(version):
                raise locks.in_use(self._store, locks.holder_in(content))
            try:
                return self._write(0, version)
            except PreconditionError:  # Another one was faster.
                continue

    def _changes(self, version: Any) -> bool:
        """Whether the holder is alive: its marker changes."""
        end = time.monotonic() + locks._PATIENCE_S
        while time.monotonic() < end:
            time.sleep(locks._BEAT_S / 5)
            _, now = self._read()
            if now != version:
                return now is not None
        return False

    def _beat(self) -> None:
        beat = 0
        while not self._over.wait(locks._BEAT_S):
            beat += 1
            try:
                self._write(beat, self._version)
            except PreconditionError:
                if not self._find():
                    return
            except (BaseError, FileNotFoundError):  # What cannot be written is the run's to report.
                continue

    def _find(self) -> bool:
        """Whether the marker is still this process's; one that was written without an answer has another version."""
        with contextlib.suppress(BaseError):
            content, self._version = self._read()
            return self._is_own(content)
        return True

    def _release(self) -> None:
        with contextlib.suppress(BaseError, FileNotFoundError):  # It may stay: it no longer changes.
            if self._is_own(self._read()[0]):
                obstore.delete(self._client, self._key)
                return
            warnings.warn(
                f"another run may have written to {self._store!r}: the marker beside it is no longer this run's, which could not be seen "
                f"for {locks._PATIENCE_S:.0f} s or more",
                stacklevel=4,
            )

    def _is_own(self, content: bytes) -> bool:
        return (locks.holder_in(content) or {}).get("id") == self._own["id"]

    def _read(self) -> tuple[bytes, Any]:
        """What the marker says, and its version; None if there is none."""
        try:
            found = obstore.get(self._client, self._key)
        except FileNotFoundError:
            return b"", None
        return found.bytes().to_bytes(), _version(found.meta)

    def _write(self, beat: int, mode: Any) -> None:
        content = json.dumps({**self._own, "beat": beat}).encode()
        self._version = _version(obstore.put(self._client, self._key, content, mode=mode))


def _version(about: Any) -> Any:
    """What identifies the content of an object, as its next write takes it."""
    return {name: about[name] for name in ("e_tag", "version") if about[name] is not None}


def _client(url: str, **options: Any) -> Any:
    return _memory(url) if url.lower().startswith("memory:") else from_url(url, **options)


@functools.cache
def _memory(url: str) -> MemoryStore:
    """What lies at a URL in the memory of this process, as long as it lives."""
    del url
    return MemoryStore()


@contextlib.contextmanager
def _told(where: Any) -> Iterator[None]:
    """A context whose errors are those of files, and name what was read or written."""
    try:
        yield
    except (BaseError, FileNotFoundError) as error:
        raise OSError(_number(error), f"{str(where)!r} cannot be reached: {_reason(error)}") from None


def _number(error: Exception) -> int:
    if isinstance(error, FileNotFoundError):
        return errno.ENOENT
    return _NUMBERS.get(type(error), errno.EIO)


def _reason(error: Exception) -> str:
    """What the server said, or else what the library says; without what it says to those who look for its faults."""
    text, _, debug = str(error).partition("\n\nDebug source")
    if "BadScheme" in debug:
        return "its endpoint has no TLS, which must be allowed (for S3 by AWS_ALLOW_HTTP=true)"
    said = re.search(r"<Message>(.+?)</Message>", text, re.DOTALL)
    return " ".join((said[1] if said else re.sub(r"^Generic \w+ error: ", "", text.partition("\n")[0])).split())
