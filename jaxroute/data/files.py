"""Reads arrays from npz and npy files, and formats parts of messages for the user."""

import contextlib
import importlib
import os
import shlex
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxroute.core import checks

from .pickles import UnsafePickleError


def file_path(path: Any) -> Path:
    """Returns the path of a file; raises `ValueError` for a folder and for values that are no paths."""
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise ValueError(f"path must be the name of a file, got {checks.show(path)}")
    if Path(path).is_dir():
        raise ValueError(f"path must be a file, got the folder {str(path)!r}")
    return Path(path)


@contextlib.contextmanager
def errors_name(path: str | os.PathLike) -> Iterator[None]:
    """Context manager for reading the file `path`: errors whose message lacks the file's name are replaced by a `ValueError` that has it."""
    try:
        yield
    except (ValueError, OSError) as error:
        if isinstance(error, UnsafePickleError) or str(path) in str(error):
            raise
        raise ValueError(f"{path}: {error}") from error


def join_names(names: Iterable[Any], limit: int = 12) -> str:
    """Joins names by commas for a message. If there are more than `limit`, the others are only counted."""
    names = [str(name) for name in names]
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more if names else "nothing"


def option(name: str, text: str) -> str:
    """Formats the option `name` of the command line with its value `text`, quoted as a shell needs it, for a message: `--column 'cost=Total ($)'`."""
    return f"{name} {shlex.quote(str(text))}"


def import_optional(module: str) -> Any:
    """Imports the optional dependency `module`; if it is missing, the error names the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f'this file needs {module.partition(".")[0]}: pip install "jaxroute[data]"') from error


def read_arrays(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Returns the arrays of an npz file by name. Arrays of Python objects are refused, because reading them could execute code."""
    content = _load(path)
    if not isinstance(content, np.lib.npyio.NpzFile):
        raise ValueError(f"{path} holds one array without a name: use numpy.savez(path, scores=..., costs=..., models=...)")
    with content:
        return {name: _array(path, content, name) for name in content.files}


def _array(path: str | os.PathLike, content: Any, name: str) -> np.ndarray:
    try:
        return content[name]
    except (ValueError, EOFError, OSError, zlib.error, zipfile.BadZipFile) as error:
        objects = "holds Python objects, which are not read; save names with dtype=str and numbers with dtype=float"
        reason = objects if "allow_pickle" in str(error) else f"is damaged ({error})"
        raise ValueError(f"{path}: the array {name!r} {reason}") from None


def _load(path: str | os.PathLike) -> Any:
    """Returns the array of an npy file, or the open content of an npz file."""
    file = file_path(path)
    try:
        return np.load(file, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = "" if "pickle" in str(error) else f" ({error})"  # NumPy takes an unknown format for a pickle.
        raise ValueError(f"{path} is not an npy or npz file of plain arrays, or cut off{reason}") from None


def load_embeddings(path: str | os.PathLike, num_queries: int | None = None) -> np.ndarray:
    """Loads features of queries that an encoder has computed, for `RoutingTable.with_features`.

    Args:
      path: an npy file, or an npz file with a single array or an array called `embeddings`.
      num_queries: required number of rows; None accepts any.

    Returns:
      `[Q, d]` float32.

    Raises:
      ValueError: the file has no such array, or the array is pickled, no matrix of finite numbers, or has not `num_queries` rows.
    """
    array = _load(path)
    if isinstance(array, np.lib.npyio.NpzFile):
        with array as content:
            if not (names := [name for name in content.files if name == "embeddings" or len(content.files) == 1]):
                raise ValueError(f"{path} must have one array, or one called embeddings; it has {join_names(content.files)}")
            array = _array(path, content, names[0])
    if array.dtype.kind not in "fiu" or array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{path} has shape {array.shape} and dtype {array.dtype}; expected [Q, d] numbers")
    if num_queries is not None and len(array) != checks.count("num_queries", num_queries):
        raise ValueError(f"{path} has {len(array)} rows; expected {num_queries}, one per query")
    with np.errstate(over="ignore"):
        array = array.astype(np.float32)
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise ValueError(f"{path} is {array[row, column]} at [{row}, {column}]; embeddings must be finite")
    return array
