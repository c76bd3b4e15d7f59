"""Files of arrays (npz, npy), and what all errors about files share: every one names the file and the place in it."""

import contextlib
import importlib
import os
import re
import shlex
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxroute.core import checks

from .pickles import UnsafePickleError


def given(path: Any) -> Path:
    """The path of a file that was given; anything else is refused."""
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise ValueError(f"path must be the name of a file, got {checks.show(path)}")
    if Path(path).is_dir():
        raise ValueError(f"path must be a file, got the folder {str(path)!r}")
    return Path(path)


@contextlib.contextmanager
def named(path: str | os.PathLike) -> Iterator[None]:
    """A context in which errors about values and files say which file it is."""
    try:
        yield
    except UnsafePickleError:
        raise
    except (ValueError, OSError) as error:
        if str(path) in str(error):
            raise
        raise ValueError(f"{path}: {error}") from error


def some(names: Iterable[str], limit: int = 12) -> str:
    """The names for an error message, cut short when there are many."""
    names = [str(name) for name in names]
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more if names else "nothing"


def option(name: str, text: str) -> str:
    """An option of the command line as a shell reads it: `--column 'cost=Total ($)'`."""
    return f"{name} {shlex.quote(str(text))}"


def optional(module: str) -> Any:
    """Imports an optional dependency, or says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f'this file needs {package}: pip install "jaxroute[data]"') from error


def fault(cell: Any) -> str:
    """Why a cell is no number, in words, and what to write in its place."""
    if cell is None or cell == "" or cell != cell:
        return "is empty"
    text = str(cell).strip()
    hint = next((f": {hint}" for pattern, hint in _HINTS if re.search(pattern, text, re.IGNORECASE)), "")
    return f"is {checks.show(cell)}, which is no number{hint}"


_HINTS = (
    (r"^[+-]?\d*,\d+$", "write a point in place of the decimal comma"),
    (r"^[+-]?\d{1,3}(,\d{3})+(\.\d*)?$", "leave out the commas"),
    (r"[$€£¥]|USD|EUR", "leave out the currency"),
    (r"%$", "write a fraction, 0.5 for 50 %"),
    (r"^(yes|no|y|n|correct|wrong|pass|fail)$", "write 1 or 0"),
)


def grouped(labels: Iterable | None) -> dict:
    """Group numbers and names, in alphabetical order, of one label per query."""
    if labels is None:
        return {}
    texts = [
        "unknown" if label is None or (isinstance(label, float) and np.isnan(label)) else str(label) for label in labels
    ]
    names, groups = np.unique(texts, return_inverse=True)
    return {"groups": groups, "group_names": names.tolist()}


def read_arrays(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """The arrays of an npz file by name; Python objects in them are refused."""
    content = load_arrays(path)
    if not isinstance(content, np.lib.npyio.NpzFile):
        raise ValueError(f"{path} holds one array without a name: use numpy.savez(path, scores=..., costs=..., models=...)")
    with content:
        return {name: _array(path, content, name) for name in content.files}


def _array(path: str | os.PathLike, content: Any, name: str) -> np.ndarray:
    try:
        return content[name]
    except (ValueError, EOFError, OSError, zlib.error, zipfile.BadZipFile) as error:
        objects = "holds Python objects, which are not read; save names with dtype=str and numbers with dtype=float"
        what = objects if "allow_pickle" in str(error) else f"is damaged ({error})"
        raise ValueError(f"{path}: the array {name!r} {what}") from None


def load_arrays(path: str | os.PathLike) -> Any:
    """The array of an npy file, or the open content of an npz file; anything else is refused."""
    file = given(path)
    try:
        return np.load(file, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = "" if "pickle" in str(error) else f" ({error})"  # What numpy takes anything unknown for.
        raise ValueError(f"{path} is not an npy or npz file of plain arrays, or cut off{reason}") from None


def load_embeddings(path: str | os.PathLike, num_queries: int | None = None) -> np.ndarray:
    """Features of queries that an encoder has computed, for `RoutingTable.with_features`.

    Args:
      path: an npy file, or an npz with one array or with one called `embeddings`.
      num_queries: how many rows there must be; None accepts any number.

    Returns:
      `[Q, d]` float32.

    Raises:
      ValueError: not such a file, not a matrix of finite numbers, or not `num_queries` rows. Pickled arrays are refused.
    """
    array = load_arrays(path)
    if isinstance(array, np.lib.npyio.NpzFile):
        with array as content:
            names = [name for name in content.files if name == "embeddings" or len(content.files) == 1]
            if not names:
                raise ValueError(f"{path} has no array embeddings, and not exactly one array; it has {some(content.files)}")
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
