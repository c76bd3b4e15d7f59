"""Locations of the packs of a store: files of a folder, or objects of S3, Google Cloud Storage or Azure.

A location has methods that list files, read a part of a file, write a whole file in one step, and delete a file. Packs are never changed. `str` of
a location is its name in messages.
"""

import contextlib
import errno
import functools
import itertools
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from jaxroute.core.checks import show

# Folder of the packs, inside the folder of a result.
STORE_NAME = "store"
# Number of bytes that one request sends or reads: obstore ends a request after 30 s, and connections may be slow.
_PART = 5 << 20


class FileState(NamedTuple):
    """Size of a file in bytes, and the time of its last change as the disk or server measures it."""

    size: int
    changed: float


class Folder:
    """Location whose files are those of a folder on disk, which is created when the first file is written."""

    def __init__(self, path: Path):
        self.path = path
        self._made = path.is_dir()

    def __str__(self) -> str:
        return str(self.path)

    def names(self, ending: str) -> dict[str, FileState]:
        """Returns size and time of the files whose names have an ending, by name; nothing if the folder does not exist."""
        found = {}
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.path) as entries:
            for entry in entries:
                if entry.name.endswith(ending):
                    with contextlib.suppress(FileNotFoundError):
                        about = entry.stat()
                        found[entry.name] = FileState(about.st_size, about.st_mtime)
        return found

    def read(self, name: str, start: int, stop: int) -> bytes:
        """Reads the bytes `start`, ..., `stop - 1` of a file; raises `FileNotFoundError` if the file does not exist."""
        with open(self.path / name, "rb") as file:
            file.seek(start)
            return file.read(stop - start)

    def write(self, name: str, parts: Sequence[bytes], durable: bool = True) -> None:
        """Writes a file from its parts in one step: readers see all of it or nothing. If `durable`, it survives a power cut."""
        self._make()
        partial = self.path / f"{name}.{uuid.uuid4().hex}.partial"
        try:
            with open(partial, "wb") as file:
                file.writelines(parts)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(partial, self.path / name)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
        if durable:
            _flush(self.path)

    def delete(self, name: str) -> None:
        """Removes a file, if it exists."""
        (self.path / name).unlink(missing_ok=True)

    def _make(self) -> None:
        if self._made:
            if not self.path.is_dir():
                raise OSError(errno.ENOENT, "it was moved or removed while the run was writing to it")
            return
        path = self.path.resolve()  # A link may lead to a folder that does not exist yet.
        new = [path, *(folder for folder in path.parents if not folder.exists())]
        path.mkdir(parents=True, exist_ok=True)
        for folder in new:  # The parent folder stores the name of a new folder.
            _flush(folder.parent)
        self._made = True


def _flush(folder: Path) -> None:
    """Flushes the list of the files in a folder to the disk, on systems that can open folders."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class Bucket:
    """Location whose files are objects with a common prefix in S3 or a compatible store, Google Cloud Storage, Azure, or memory for tests.

    Keys, region and endpoint that a URL lacks come from the environment, as obstore documents it: `AWS_ACCESS_KEY_ID`,
    `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL` (with `AWS_ALLOW_HTTP=true` if it has no TLS), `GOOGLE_SERVICE_ACCOUNT`,
    `AZURE_STORAGE_ACCOUNT_NAME`, `AZURE_STORAGE_ACCOUNT_KEY`, or from the machine's role in its cloud. Profiles in `~/.aws` are not read.
    The methods are those of `Folder`.

    Args:
      url: URL of the folder, such as "s3://bucket/results/figure-2/store".
      given: argument `out` of the user, which error messages show; empty if it is `url`.

    Raises:
      ValueError: the URL is not that of an object store.
      ImportError: obstore is not installed.
    """

    def __init__(self, url: str, given: str = ""):
        given = given or url
        try:
            import obstore
            import obstore.exceptions
        except ImportError:
            raise ImportError(f'out={given!r} needs obstore: pip install "jaxroute[objects]"') from None
        self._obstore, self._error = obstore, obstore.exceptions.BaseError
        self.url = url
        try:
            self._client = _memory(url) if url.lower().startswith("memory:") else obstore.store.from_url(url)
        except (self._error, ValueError) as error:
            raise ValueError(
                f"out must be a folder or the URL of an object store, such as s3://bucket/folder, got {given!r}: {_reason(error)}"
            ) from None

    def __str__(self) -> str:
        return self.url

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.url,)

    def names(self, ending: str) -> dict[str, FileState]:
        with self._explained("", "read"):
            found = [one for batch in self._obstore.list(self._client) for one in batch if "/" not in one["path"]]
        states = {one["path"]: FileState(one["size"], one["last_modified"].timestamp()) for one in found}
        return {name: state for name, state in states.items() if name.endswith(ending)}

    def read(self, name: str, start: int, stop: int) -> bytes:
        ranges = itertools.pairwise([*range(start, stop, _PART), stop])
        with self._explained(name, "read"):
            return b"".join(bytes(self._obstore.get_range(self._client, name, start=a, end=b)) for a, b in ranges)

    def write(self, name: str, parts: Sequence[bytes], durable: bool = True) -> None:
        del durable  # An object store does not lose what it has accepted.
        with self._explained(name, "written"):
            self._obstore.put(self._client, name, b"".join(parts), chunk_size=_PART, max_concurrency=1)

    def delete(self, name: str) -> None:
        with self._explained(name, "removed"), contextlib.suppress(FileNotFoundError):
            self._obstore.delete(self._client, name)

    @contextlib.contextmanager
    def _explained(self, name: str, what: str) -> Iterator[None]:
        """Context that turns errors of obstore into an `OSError`: the file `name` (the location, if it is empty) cannot be `what`, such as "read"."""
        try:
            yield
        except (self._error, FileNotFoundError) as error:
            denied = type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError")
            gone = isinstance(error, FileNotFoundError) and what != "written"  # On writing, the bucket is missing.
            code = errno.ENOENT if gone else errno.EACCES if denied else errno.EIO
            where = f"{self.url}/{name}".rstrip("/")
            raise OSError(code, f"{where!r} cannot be {what}: {_reason(error)}") from None


@functools.cache
def _memory(url: str) -> Any:
    from obstore.store import MemoryStore

    del url
    return MemoryStore()


def _reason(error: Exception) -> str:
    """Returns the server's message from an error of obstore, otherwise the library's message without its debug notes."""
    text, _, debug = str(error).partition("\n\nDebug source")
    if "BadScheme" in debug:
        return "its endpoint has no TLS, which must be allowed (for S3 by AWS_ALLOW_HTTP=true)"
    found = re.search(r"<Message>(.+?)</Message>", text, re.DOTALL)
    return " ".join((found[1] if found else re.sub(r"^Generic \w+ error: ", "", text.partition("\n")[0])).split())


Location: TypeAlias = Folder | Bucket


def place_of(path: str | os.PathLike[str]) -> Location:
    """Returns the location of a result's packs: the folder "store" in `path` (a folder or URL), or `path` itself if its name is "store" already.

    Raises `ValueError` if `path` is empty or neither a path nor the URL of an object store, `ImportError` if a URL needs obstore and it is missing.
    """
    if is_url(path):
        return Bucket(_store_url(str(path)), str(path))
    return Folder(store_path(path))


def is_url(path: Any) -> bool:
    """Whether `path` is the text of a URL, such as "s3://bucket/run"; False for a Windows path with a drive, such as "C:/run"."""
    return isinstance(path, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", path) is not None


def store_path(path: str | os.PathLike[str]) -> Path:
    """Returns the folder "store" in `path`, or `path` if its name is "store" already; raises `ValueError` if `path` is empty or not a path."""
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise ValueError(f"the folder of a result must be a path, got {show(path)}")
    path = Path(path)
    return path if path.name == STORE_NAME else path / STORE_NAME


def _store_url(url: str) -> str:
    scheme, _, rest = url.partition("://")
    if scheme.lower() == "file":
        raise ValueError(f"out must be the path of a folder without file://, got {url!r}")
    if "?" in rest or "#" in rest:
        raise ValueError(f"out must be a URL without ? and #, as all options come from the environment, got {url!r}")
    parts = [part for part in rest.split("/") if part]
    if not parts:
        raise ValueError(
            f"out must be a folder or the URL of an object store, such as s3://bucket/folder, got {url!r}: it names no bucket"
        )
    if len(parts) < 2 or parts[-1] != STORE_NAME:
        parts.append(STORE_NAME)
    return f"{scheme}://{'/'.join(parts)}"
