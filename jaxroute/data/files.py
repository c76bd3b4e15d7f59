"""Files of columns (csv, tsv, jsonl, parquet, pickled data frames) and of arrays (npz): every error names the file and the place in it.

Text is read with the standard library; nothing in a file is ever executed.
"""

import codecs
import contextlib
import csv
import gzip
import importlib
import io
import json
import os
import re
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxroute.core.checks import show

from .pickles import UnsafePickleError, open_frame

Columns = dict[str, np.ndarray]


class ColumnFile:
    """An open file with named columns, of which only those that are asked for are kept.

    path: of the file.
    names: of its columns, in order.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        names: Sequence[str],
        read: Callable[[list[str]], Columns],
        lines: Sequence[int] | None = None,
    ):
        """`read` gives columns by name, absent cells as None or NaN; `lines`, of text, is the line of each row once it has been read."""
        self.path = path
        self.names = list(names)
        self._read = read
        self._lines = lines

    def read(self, wanted: Iterable[str]) -> Columns:
        """Columns by name.

        Raises:
          ValueError: a column is missing, or there are several of that name; or the file is damaged.
        """
        wanted = list(dict.fromkeys(wanted))
        lacking = [name for name in wanted if name not in self.names]
        if lacking:
            raise ValueError(f"{self.path} lacks the column {', '.join(lacking)}; it has {some(self.names)}")
        for name in wanted:
            if self.names.count(name) > 1:
                raise ValueError(f"{self.path} has {self.names.count(name)} columns {name!r}: rename or remove all but one")
        with named(self.path):
            return self._read(wanted)

    def place(self, row: int) -> str:
        """The file, and where in it a row is."""
        return f"{self.path}, " + (f"row {row} (from 0)" if self._lines is None else f"line {self._lines[row]}")


def open_columns(path: str | os.PathLike, *other_suffixes: str) -> ColumnFile:
    """Opens a file of columns by its suffix.

    Args:
      path: the file.
      other_suffixes: what the caller reads itself, for the error message.

    Raises:
      ValueError: the suffix is unknown, or the file is empty, damaged or of another kind.
      OSError: there is no such file, or it may not be read.
    """
    name = given(path).name.lower()
    for suffixes, open_file in _READERS:
        if name.endswith(suffixes):
            with named(path):
                return open_file(path)
    accepted = ", ".join((*other_suffixes, *(suffix for suffixes, _ in _READERS for suffix in suffixes)))
    raise ValueError(f"path is {str(path)!r}, of an unknown kind; expected a name that ends in {accepted}")


def given(path: Any) -> Path:
    """The path of a file that was given.

    Raises:
      ValueError: it is no path, or that of a folder.
    """
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise ValueError(f"path must be the name of a file, got {show(path)}")
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


def optional(module: str) -> Any:
    """Imports an optional dependency.

    Raises:
      ImportError: it is not installed; the message says how.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f'this file needs {package}: pip install "jaxroute[data]"') from error


# Cells.


def as_numbers(cells: np.ndarray) -> np.ndarray:
    """`[Q]` float64: true and false are 1 and 0, what is absent or no number is NaN."""
    try:
        return np.asarray(cells).astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_number(cell) for cell in cells], dtype=np.float64)


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except OverflowError:  # A whole number beyond float64.
        return np.inf
    except (TypeError, ValueError):
        return {"true": 1.0, "false": 0.0}.get(str(cell).strip().lower(), np.nan)


def fault(cell: Any) -> str:
    """Why a cell is no number, in words, and what to write in its place."""
    if cell is None or cell == "" or cell != cell:
        return "is empty"
    text = str(cell).strip()
    hint = next((f": {hint}" for pattern, hint in _HINTS if re.search(pattern, text, re.IGNORECASE)), "")
    return f"is {show(cell)}, which is no number{hint}"


_HINTS = (
    (r"^[+-]?\d*,\d+$", "write a point in place of the decimal comma"),
    (r"^[+-]?\d{1,3}(,\d{3})+(\.\d*)?$", "leave out the commas"),
    (r"[$€£¥]|USD|EUR", "leave out the currency"),
    (r"%$", "write a fraction, 0.5 for 50 %"),
    (r"^(yes|no|y|n|correct|wrong|pass|fail)$", "write 1 or 0"),
)


# Text.

_OTHER_KINDS = (
    (b"PAR1", "a parquet file"),
    (b"PK\x03\x04", "a zip archive (npz or xlsx)"),
    (b"\x93NUMPY", "an npy file"),
    (b"ARROW1", "a feather file"),
    (b"\x80", "a pickle"),
)


@contextlib.contextmanager
def open_text(path: str | os.PathLike, encoding: str | None = None) -> Generator[io.TextIOWrapper, None, None]:
    """The text of a file, compressed by gzip or not; without an encoding in UTF-8, or in UTF-16 with a byte order mark."""
    with open(path, "rb") as raw:
        zipped = raw.peek(2)[:2] == b"\x1f\x8b"
        try:
            binary: Any = gzip.GzipFile(fileobj=raw) if zipped else raw
            start = binary.peek(64)[:64]
            if not start:
                raise ValueError(f"{path} is empty")
            for magic, kind in _OTHER_KINDS:
                if start.startswith(magic):
                    raise ValueError(f"{path} is {kind} and no text, in spite of its name")
            wide = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            if b"\0" in start and not wide and encoding is None:
                raise ValueError(f"{path} is no text, or in UTF-16 without a byte order mark: save it in UTF-8")
            with io.TextIOWrapper(binary, encoding or ("utf-16" if wide else "utf-8-sig"), newline="") as text:
                yield text
        except UnicodeDecodeError as error:
            code = f"byte 0x{error.object[error.start]:02x}"
            if encoding is not None:
                raise ValueError(f"{path} is not in {encoding} ({code}): {error.reason}") from None
            raise ValueError(
                f"{path} is not in UTF-8 ({code}), but probably in Latin-1 or Windows-1252: save it in UTF-8, for example with "
                "`iconv -f WINDOWS-1252 -t UTF-8`"
            ) from None
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{path} is a damaged gzip file: {error}") from None


def open_delimited(path: str | os.PathLike, separator: str | None = None, encoding: str | None = None) -> ColumnFile:
    """Opens a csv or tsv file.

    Args:
      path: the file.
      separator: what is between its columns; None for what its first line has.
      encoding: as in `open_text`.

    Raises:
      ValueError: the file is empty, damaged or of another kind.
    """
    if separator is None:
        with open_text(path, encoding) as text:
            first = next((line for line in text if line.strip()), "")
        separator = "\t" if ".tsv" in Path(path).name.lower() else _separator(path, first)
    lines: list[int] = []

    def read(wanted: list[str]) -> Columns:
        places = [names.index(name) for name in wanted]
        columns: list[list[str | None]] = [[] for _ in places]
        lines.clear()
        for line, row in _rows(path, separator, encoding):
            lines.append(line)
            for column, place in zip(columns, places, strict=True):
                column.append(row[place].strip() or None)
        del lines[:1]
        if not lines:
            raise ValueError(f"{path} has a line of names, but no rows")
        return {name: np.array(column[1:], dtype=object) for name, column in zip(wanted, columns, strict=True)}

    with contextlib.closing(_rows(path, separator, encoding)) as rows:
        names = [name.strip() for name in next(rows, (0, []))[1]]
    if not names:
        raise ValueError(f"{path} is empty")
    return ColumnFile(path, names, read, lines)


def _separator(path: str | os.PathLike, header: str) -> str:
    """What separates the columns of a csv file, by its first line."""
    found = {mark: len(next(csv.reader([header], delimiter=mark), [])) for mark in (",", ";", "\t")}
    best = max(found, key=lambda mark: found[mark])
    if best != ",":
        kind = {";": "semicolons", "\t": "tabs"}[best]
        warnings.warn(f"{path} is read with {kind} between its columns, as its first line has them", stacklevel=6)
    return best


def _rows(path: str | os.PathLike, separator: str, encoding: str | None) -> Generator[tuple[int, list[str]], None, None]:
    """Number of the last line and fields of each row, the first with the names."""
    width = 0
    with open_text(path, encoding) as text:
        before = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # Prompts may be long.
        rows = csv.reader(text, delimiter=separator, skipinitialspace=True, strict=True)
        try:
            for row in rows:
                if not any(row) and len(row) < 2:
                    continue
                width = width or len(row)
                if len(row) != width:
                    more = f"put text that contains {separator!r} into quotation marks"
                    raise ValueError(
                        f"{path}, line {rows.line_num}: {len(row)} fields, but the first line names {width} columns; "
                        f"{more if len(row) > width else 'is the file cut off?'}"
                    )
                yield rows.line_num, row
        except csv.Error as error:
            where = f"{path}, line {rows.line_num}"
            raise ValueError(f"{where}: {error}; is a quotation mark not closed, or the file cut off?") from None
        finally:
            csv.field_size_limit(before)


def open_jsonl(path: str | os.PathLike, encoding: str | None = None) -> ColumnFile:
    """Opens a file with a JSON object in every line.

    Raises:
      ValueError: a line is something else, or the file is empty or of another kind.
    """
    records, lines = [], []
    with open_text(path, encoding) as text:
        for number, line in enumerate(text, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path}, line {number} is not JSON: {error}") from None
            if not isinstance(record, dict):
                raise ValueError(f"{path}, line {number} must be an object {{...}}, got {show(record)}")
            records.append(record)
            lines.append(number)
    if not records:
        raise ValueError(f"{path} is empty")

    def read(wanted: list[str]) -> Columns:
        return {name: np.fromiter((r.get(name) for r in records), object, len(records)) for name in wanted}

    return ColumnFile(path, list(dict.fromkeys(name for record in records for name in record)), read, lines)


# Other files.


def _open_parquet(path: str | os.PathLike) -> ColumnFile:
    parquet = optional("pyarrow.parquet")

    def read(wanted: list[str]) -> Columns:
        # Not read_table, to which a dot in a name (as in Wizard-V1.2) can mean a field of a struct.
        table = parquet.ParquetFile(path).read(columns=wanted)
        if not table.num_rows:
            raise ValueError(f"{path} has no rows")
        return {name: arrow_values(table[name]) for name in wanted}

    return ColumnFile(path, parquet.read_schema(path).names, read)


def arrow_values(column: Any) -> np.ndarray:
    """An Arrow column as an array, missing values as NaN or None."""
    values = getattr(column.type, "value_type", None)
    # A dictionary (category) column must become plain first: its to_numpy gives a missing value a label.
    return (column if values is None else column.cast(values)).to_numpy()


def _open_pickle(path: str | os.PathLike) -> ColumnFile:
    return ColumnFile(path, *open_frame(path))


_READERS = (
    ((".csv", ".csv.gz", ".tsv", ".tsv.gz"), open_delimited),
    ((".jsonl", ".jsonl.gz"), open_jsonl),
    ((".parquet",), _open_parquet),
    ((".pkl", ".pickle"), _open_pickle),
)


class ArrayFile:
    """An open npz file of plain arrays.

    path: of the file.
    names: of its arrays.
    """

    def __init__(self, path: str | os.PathLike, content: Any):
        self.path = path
        self.names: list[str] = content.files
        self._content = content

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def get(self, name: str) -> np.ndarray | None:
        """An array, None if it is not there."""
        return self[name] if name in self.names else None

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            return self._content[name]
        except (ValueError, EOFError, OSError, zlib.error, zipfile.BadZipFile) as error:
            if "allow_pickle" in str(error):
                raise ValueError(
                    f"{self.path}: the array {name!r} holds Python objects, which are not read; save names with dtype=str and numbers "
                    "with dtype=float"
                ) from None
            raise ValueError(f"{self.path}: the array {name!r} is damaged ({error})") from None


@contextlib.contextmanager
def open_arrays(path: str | os.PathLike) -> Generator[ArrayFile, None, None]:
    """Opens an npz file; pickled arrays in it are refused when they are asked for.

    Raises:
      ValueError: it is no npz file, or damaged.
    """
    content = load_arrays(path)
    if not isinstance(content, np.lib.npyio.NpzFile):
        raise ValueError(
            f"{path} holds one array without a name: save it with numpy.savez(path, scores=..., costs=..., models=...)"
        )
    with content:
        yield ArrayFile(path, content)


def load_arrays(path: str | os.PathLike) -> Any:
    """The array of an npy file, or the open content of an npz file.

    Raises:
      ValueError: it is neither, or damaged.
    """
    try:
        return np.load(given(path), allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        if "path must be" in str(error):
            raise
        reason = "" if "pickle" in str(error) else f" ({error})"  # What numpy takes anything unknown for.
        raise ValueError(f"{path} is not an npy or npz file of plain arrays, or cut off{reason}") from None
