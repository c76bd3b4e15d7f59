"""Opening a file of any kind as named columns, with what was guessed about it in words."""

import codecs
import csv
import difflib
import gzip
import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxroute.core import checks
from jaxroute.data.files import (
    ColumnFile,
    Columns,
    named,
    open_columns,
    open_delimited,
    open_jsonl,
    open_text,
    optional,
    some,
)

TEXT = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json")
OTHERS = (".parquet", ".xlsx", ".npz", ".pkl", ".pickle")
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_ENCODINGS = {"utf-8-sig": "UTF-8", "utf-8": "UTF-8", "cp1252": "Windows-1252", "latin-1": "Latin-1"}


class Sheet:
    """Named columns of cells, each read when it is first asked for.

    name: of the file, or "the data frame".
    names: of its columns, in order.
    separator: what is between columns of text, or None.
    decimal_comma: whether numbers are likely to have one, as they do between semicolons.
    about: what kind of file it is, in words.
    """

    def __init__(self, file: ColumnFile, about: str, separator: str | None = None, whole: bool = False):
        """`whole` files are read once, not once for each column."""
        self.name, self.names, self.about = str(file.path), list(file.names), about
        self.separator, self.decimal_comma = separator, separator == ";"
        self._file, self._whole = file, whole
        self._cells: Columns = {}

    def cells(self, name: str) -> np.ndarray:
        """`[R]` cells of a column; what is absent is None, NaN or an empty text."""
        if name not in self._cells:
            unique = [n for n in self._file.names if self._file.names.count(n) == 1 and n]
            wanted = unique if self._whole and name in unique and not self._cells else [name]
            self._cells |= self._file.read(wanted)
        return self._cells[name]

    def add(self, name: str, cells: np.ndarray) -> None:
        """Puts a column there that was made of others."""
        self.names.append(name)
        self._cells[name] = cells

    @property
    def num_rows(self) -> int:
        """`R`."""
        return len(self.cells(self.names[0]))

    def place(self, row: int) -> str:
        """The file, and where in it a row is."""
        return self._file.place(row)


def existing(path: str | os.PathLike) -> Path:
    """The path of what is there.

    Raises:
      ValueError: nothing is, with close names; or the file is empty.
    """
    if not os.fspath(path):
        raise ValueError("data must be the name of a file, got an empty text")
    file = Path(path)
    try:
        there = file.exists()
    except (OSError, ValueError) as error:
        raise ValueError(f"data must be the name of a file, got {checks.show(str(path))}: {error}") from None
    if not there:
        folder = file.parent
        if not folder.is_dir():
            raise ValueError(f"{path}: there is no such file; the folder {str(folder)!r} is not there either")
        names = sorted(entry.name for entry in folder.iterdir())
        close = difflib.get_close_matches(file.name, names, n=3) or difflib.get_close_matches(
            file.stem, names, n=3, cutoff=0.5
        )
        hint = f"; did you mean {' or '.join(repr(str(folder / name)) for name in close)}?" if close else ""
        raise ValueError(f"{path}: there is no such file{hint}")
    if file.is_file() and not file.stat().st_size:
        raise ValueError(f"{path} is empty: it has no bytes")
    return file


def open_sheet(data: Any, separator: str | None = None, encoding: str | None = None) -> Sheet:
    """Opens a file, or a pandas data frame.

    Args:
      data: a path or a data frame.
      separator: what is between columns of text; None to find out.
      encoding: of text; None to find out.

    Raises:
      ValueError: the file is of an unknown kind, damaged, or not what its name says.
      ImportError: an optional dependency reads it.
    """
    if is_frame(data):
        return _of_frame(data)
    path = existing(data)
    if path.is_dir():
        inside = sorted(entry.name for entry in path.iterdir() if entry.name.lower().endswith((*TEXT, *OTHERS, ".gz")))
        raise ValueError(f"{path} is a folder, and not one of SPROUT's parquet files: name a file; it has {some(inside)}")
    if separator is not None:
        separator = {"\\t": "\t", "tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}.get(separator, separator)
        if len(separator) != 1:
            raise ValueError(f"separator must be one character such as ',' or ';' or '\\t', got {separator!r}")
    if encoding is not None:
        try:
            codecs.lookup(encoding)
        except LookupError:
            raise ValueError(f"encoding must be one such as 'utf-8' or 'windows-1252', got {encoding!r}") from None
    suffix = path.name.lower().removesuffix(".gz")
    zipped = ", compressed by gzip" if path.name.lower().endswith(".gz") else ""
    with named(path):
        if suffix.endswith((".csv", ".tsv", ".txt")):
            return _of_text(path, suffix, separator, encoding, zipped)
        if suffix.endswith((".jsonl", ".ndjson", ".json")):
            encoding = encoding or guess_encoding(path)
            open_json = _of_json if suffix.endswith(".json") else _of_lines
            return open_json(path, encoding, f" in {_called(encoding)}{zipped}")
        if suffix.endswith(".xlsx") and not zipped:
            return _of_excel(path)
        if suffix.endswith((".pkl", ".pickle")) and not zipped:
            return Sheet(open_columns(path), "a pickled data frame")
        if suffix.endswith(".parquet") and not zipped:
            try:
                return _flat(Sheet(open_columns(path), "a parquet file"))
            except ValueError:
                raise
            except ImportError:
                raise
            except Exception as error:
                raise ValueError(f"{path} is no parquet file, or damaged: {error}") from None
    accepted = ", ".join((*TEXT, *(f"{name}.gz" for name in TEXT), *OTHERS))
    known = " (an old Excel file: save it as .xlsx or .csv)" if suffix.endswith((".xls", ".xlsb", ".ods")) else ""
    raise ValueError(f"{path} is of an unknown kind{known}; expected a name that ends in {accepted}")


def is_frame(data: Any) -> bool:
    """Whether this is a pandas data frame; pandas is not imported for that."""
    return type(data).__name__ == "DataFrame" and hasattr(data, "columns") and hasattr(data, "iloc")


def _of_frame(frame: Any) -> Sheet:
    names = [str(name) for name in frame.columns]
    if frame.index.names and all(frame.index.names):  # What was made by groupby or set_index.
        frame = frame.reset_index()
        names = [str(name) for name in frame.columns]

    def read(wanted: list[str]) -> Columns:
        return {name: frame.iloc[:, names.index(name)].to_numpy(dtype=object) for name in wanted}

    if not len(frame):
        raise ValueError("the data frame has no rows")
    return _flat(Sheet(ColumnFile("the data frame", names, read), "a data frame"))


# Text.


def _bytes(path: Path) -> Iterable[bytes]:
    with open(path, "rb") as raw:
        zipped = raw.peek(2)[:2] == b"\x1f\x8b"
        try:
            with gzip.GzipFile(fileobj=raw) if zipped else raw as file:
                while block := file.read(1 << 20):
                    yield block
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{path} is a damaged gzip file: {error}") from None


def guess_encoding(path: Path) -> str:
    """In which encoding a text most probably is: the first of UTF-8, UTF-16, Windows-1252 and Latin-1 that fits all of it.

    Raises:
      ValueError: it is no text.
    """
    with open_text(path, "latin-1"):  # Refuses other kinds by their first bytes, and what is empty.
        pass
    decoder, utf8, controls, defined = codecs.getincrementaldecoder("utf-8")(), True, 0, True
    for number, block in enumerate(_bytes(path)):
        if number == 0:
            if block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                return "utf-16"
            if b"\0" in block[:4096]:
                even, odd = block[:4096:2].count(0), block[1:4096:2].count(0)
                half = min(len(block), 4096) // 2
                if max(even, odd) > 0.6 * half and min(even, odd) < 0.1 * half:
                    return "utf-16-be" if even > odd else "utf-16-le"
            controls = sum(byte < 32 and byte not in (9, 10, 12, 13) for byte in block[:65536])
            if b"\0" in block or controls > 0.02 * len(block[:65536]):
                raise ValueError(f"{path} is no text, in spite of its name: it has bytes that no text has")
        try:
            decoder.decode(block)
        except UnicodeDecodeError:
            utf8 = False
        defined &= not any(byte in block for byte in (b"\x81", b"\x8d", b"\x8f", b"\x90", b"\x9d"))
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        utf8 = False
    return "utf-8-sig" if utf8 else "cp1252" if defined else "latin-1"


def _called(encoding: str) -> str:
    return _ENCODINGS.get(encoding.lower(), encoding.upper())


def _of_text(path: Path, suffix: str, separator: str | None, encoding: str | None, zipped: str) -> Sheet:
    guessed = "" if encoding else " (guessed)"
    encoding = encoding or guess_encoding(path)
    if encoding == "utf-8-sig":
        guessed = ""
    separator = separator or ("\t" if suffix.endswith(".tsv") else _guess_separator(path, encoding))
    file = open_delimited(path, separator, encoding)
    between = SEPARATORS.get(separator, repr(separator))
    return Sheet(file, f"text in {_called(encoding)}{guessed}, {between} between columns{zipped}", separator, whole=True)


def _guess_separator(path: Path, encoding: str) -> str:
    """The mark that cuts the first lines into the most columns, equally many in each line."""
    with open_text(path, encoding) as text:
        start = text.read(1 << 18)
    found: dict[str, tuple[bool, int]] = {}
    for mark in SEPARATORS:
        try:
            rows = list(csv.reader(io.StringIO(start), delimiter=mark, skipinitialspace=True))
        except csv.Error:
            continue
        rows = [row for row in rows if any(row)][: 50 if len(start) < 1 << 18 else -1]
        widths = {len(row) for row in rows[:50]}
        found[mark] = len(widths) == 1 and widths != {1}, len(rows[0]) if rows else 0
    if not found:
        return ","
    best = max(found, key=lambda mark: found[mark])
    if found[best][1] < 2:
        head = next((line for line in start.splitlines() if line.strip()), "")
        raise ValueError(
            f"{path} has one column, {checks.show(head.strip())}: if another character is between its columns, give it (separator=..., on the "
            "command line --separator)"
        )
    return best


def _of_lines(path: Path, encoding: str, about: str) -> Sheet:
    return _flat(Sheet(open_jsonl(path, encoding), f"JSON lines{about}", whole=True))


def _of_json(path: Path, encoding: str, about: str) -> Sheet:
    with open_text(path, encoding) as text:
        content = text.read()
    try:
        value = json.loads(content)
    except RecursionError:
        raise ValueError(f"{path} is JSON of too many levels") from None
    except json.JSONDecodeError as error:
        if "Extra data" in error.msg:
            return _of_lines(path, encoding, f"{about}, in spite of its name")
        cut = ": is the file cut off?" if error.pos >= len(content.rstrip()) - 1 else ""
        raise ValueError(f"{path}, line {error.lineno} is not JSON: {error.msg}{cut}") from None
    if isinstance(value, dict):
        inner = next(
            (value[key] for key in ("records", "data", "rows", "results") if isinstance(value.get(key), list)), None
        )
        columns = list(value.values())
        if inner is not None:
            value = inner
        elif columns and all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns):
            value = [dict(zip(value, row, strict=True)) for row in zip(*columns, strict=True)]
        elif columns and all(isinstance(column, dict) and column.keys() == columns[0].keys() for column in columns):
            value = [{name: column[key] for name, column in value.items()} for key in columns[0]]
    if not isinstance(value, list):
        raise ValueError(f"{path} must be a list of records [{{...}}, ...], got {checks.show(value)}")
    if not value:
        raise ValueError(f"{path} is empty: a list without records")
    wrong = next((number for number, record in enumerate(value) if not isinstance(record, dict)), None)
    if wrong is not None:
        raise ValueError(f"{path}, record {wrong} (from 0) must be an object {{...}}, got {checks.show(value[wrong])}")
    return _flat(Sheet(_of_records(path, value), f"JSON{about}"))


def _of_records(path: Path, records: Sequence[dict]) -> ColumnFile:
    def read(wanted: list[str]) -> Columns:
        return {name: np.fromiter((record.get(name) for record in records), object, len(records)) for name in wanted}

    return ColumnFile(path, list(dict.fromkeys(str(name) for record in records for name in record)), read)


def _flat(sheet: Sheet) -> Sheet:
    """The same with columns of objects taken apart: `{"usage": {"in": 3}}` has the column `usage.in`."""
    for name in list(sheet.names):
        if sheet.names.count(name) > 1 or not _of_dicts(sheet, name):
            continue
        cells = sheet.cells(name)
        sheet.names.remove(name)
        for field in dict.fromkeys(str(key) for cell in cells if isinstance(cell, dict) for key in cell):
            parts = (cell.get(field) if isinstance(cell, dict) else None for cell in cells)
            sheet.add(f"{name}.{field}", np.fromiter(parts, object, len(cells)))
            if any(isinstance(cell, dict) for cell in sheet.cells(f"{name}.{field}")):
                _flat(sheet)
    return sheet


def _of_dicts(sheet: Sheet, name: str) -> bool:
    first = next((cell for cell in sheet.cells(name) if cell is not None and cell == cell), None) if name else None
    return isinstance(first, dict)


# Excel.


def _of_excel(path: Path) -> Sheet:
    openpyxl = optional("openpyxl")
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except (zipfile.BadZipFile, KeyError, OSError, ValueError) as error:
        raise ValueError(f"{path} is no Excel file (xlsx), or damaged: {error}") from None
    sheets = book.sheetnames
    numbered = [(number, row) for number, row in enumerate(book[sheets[0]].iter_rows(values_only=True), 1)]
    book.close()
    numbered = [(number, row) for number, row in numbered if any(cell is not None and cell != "" for cell in row)]
    if len(numbered) < 2:
        raise ValueError(f"{path}, sheet {sheets[0]!r} " + ("has a line of names, but no rows" if numbered else "is empty"))
    header = [("" if cell is None else str(cell).strip()) for cell in numbered[0][1]]
    rows = numbered[1:]

    def read(wanted: list[str]) -> Columns:
        places = [header.index(name) for name in wanted]
        return {
            name: np.fromiter((row[place] if place < len(row) else None for _, row in rows), object, len(rows))
            for name, place in zip(wanted, places, strict=True)
        }

    while header and not header[-1]:
        header.pop()
    which = (
        f", sheet {sheets[0]!r} of {len(sheets)}: the others are not read" if len(sheets) > 1 else f", sheet {sheets[0]!r}"
    )
    return Sheet(ColumnFile(path, header, read, [number for number, _ in rows]), f"an Excel file{which}")
