"""Opening a log of any kind as named columns of cells, with notes on what was assumed."""

import bz2
import codecs
import csv
import difflib
import gzip
import io
import json
import lzma
import os
import re
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jaxroute.core import checks
from jaxroute.data.files import named, optional, some
from jaxroute.data.logs import presets
from jaxroute.data.logs.names import KINDS, WRAPPERS, level
from jaxroute.data.logs.records import frame_of, records_of
from jaxroute.data.pickles import open_pickle

SUFFIXES = (
    ".csv",
    ".tsv",
    ".txt",
    ".json",
    ".jsonl",
    ".ndjson",
    ".parquet",
    ".feather",
    ".xlsx",
    ".pkl",
    ".pickle",
    ".npz",
    ".eval",
)
PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_SAMPLE = 1 << 18
_DECIMAL_COMMA = re.compile(r"\s*[+-]?(0,\d+|\d+,(\d{1,2}|\d{4,}))\s*$")  # Which no mark between thousands can be.
# Columns of several files that say in which file, and in which folders, a row is.
FILE_COLUMNS = ("(file)", "(folder)", "(folder 2)", "(folder 3)")
_ENCODINGS = ("cp1252", "cp1250", "cp1251", "cp932", "gb18030", "big5", "cp949", "mac_roman")

Cells = np.ndarray


class Sheet:
    """Named columns of cells, each read when it is first used.

    Attributes:
      name: name of the file, or "the data frame".
      names: names of the columns, in order.
      about: kind of the file, in words.
      separator: mark between columns of text, or None.
      notes: lines about what was skipped or assumed.
      given: columns by role that the kind of file determines, as a caller would give them.
      preset: known format of the file, or None.
      decimal_comma: whether numbers in the file have one.
      made: columns that were made of others.
      doubt: encodings that the file could be in, where that cannot be told.
    """

    def __init__(
        self,
        name: str,
        names: Sequence[str],
        read: Callable[[str], Cells],
        about: str,
        place: Callable[[int], str] | None = None,
        separator: str | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.name, self.names, self.about, self.separator = name, [str(n) for n in names], about, separator
        self.notes, self.given, self.rows = list(notes), {}, None
        self.preset: presets.Preset | None = None
        self.doubt: tuple[str, ...] = ()
        self.decimal_comma, self.made = False, set[str]()
        self._read, self._place = read, place
        self._cells: dict[str, Cells] = {}

    def cells(self, name: str) -> Cells:
        """`[R]` cells of a column; an absent one is None, NaN or an empty text."""
        if name not in self._cells:
            if self.names.count(name) > 1:
                raise ValueError(f"{self.name} has {self.names.count(name)} columns {name!r}: rename or remove all but one")
            with named(self.name):
                cells = self._read(name)
            self._cells[name] = cells if self.rows is None else cells[self.rows]
        return self._cells[name]

    def put(self, name: str, cells: Cells) -> None:
        """Adds or replaces a column."""
        self.made.add(name)
        if name not in self.names:
            self.names.append(name)
        self._cells[name] = cells

    def keep(self, rows: np.ndarray) -> None:
        """Keeps these rows, `[R]` numbers."""
        self.rows = rows if self.rows is None else self.rows[rows]
        self._cells = {name: cells[rows] for name, cells in self._cells.items()}

    @property
    def num_rows(self) -> int:
        """Number of rows, `R`."""
        if self.rows is not None:
            return len(self.rows)
        return len(next(iter(self._cells.values())) if self._cells else self._read(self.names[0]))

    def place(self, row: int) -> str:
        """Returns the name of the file and the place of a row in it."""
        row = int(row if self.rows is None else self.rows[row])
        return f"{self.name}, " + (f"row {row} (from 0)" if self._place is None else self._place(row))


def open_log(data: Any, separator: str | None = None, encoding: str | None = None) -> Sheet:
    """Opens a log.

    Args:
      data: a file, a folder, a list of files, a data frame, a dict of columns or a list of records.
      separator: mark between columns of text; None to find it.
      encoding: encoding of text; None to find it.

    Raises:
      ValueError: there is no such file, or it is of an unknown kind, damaged or empty.
      ImportError: an optional dependency reads it.
    """
    if separator is not None:
        separator = {"\\t": "\t", "tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}.get(separator, separator)
        if len(separator) != 1:
            raise ValueError(f"separator must be one character such as ',' or ';' or '\\t', got {separator!r}")
    if encoding is not None:
        try:
            codecs.lookup(encoding)
        except LookupError:
            raise ValueError(f"encoding must be one such as 'utf-8' or 'windows-1252', got {encoding!r}") from None
    if isinstance(data, (str, os.PathLike)):
        path = existing(data)
        if path.is_dir():
            return _joined(str(path), _inside(path), lambda file: _of_file(file, separator, encoding))
        with named(path):
            return _known(_of_file(path, separator, encoding), path)
    if isinstance(data, (list, tuple)) and data and all(isinstance(item, (str, os.PathLike)) for item in data):
        return _joined(
            f"the files {some(map(str, data), 3)}",
            [existing(item) for item in data],
            lambda file: _of_file(file, separator, encoding),
            True,
        )
    return _known(_in_memory(data), Path("the data"))


def _known(sheet: Sheet, path: Path) -> Sheet:
    """The same in the columns that the reader knows, if the format is known."""
    preset = sheet.preset or presets.of_names(sheet.names)
    if preset is None:
        return sheet
    if preset.refused:
        raise ValueError(f"{sheet.name} {preset.refused}")
    if (preset.reader or preset.columns) and sheet.preset is None:
        columns = {name: sheet.cells(name).astype(object) for name in dict.fromkeys(sheet.names)}
        records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        rows, _ = presets.of_records(path, records)
        notes, doubt, sheet = sheet.notes, sheet.doubt, _of_pandas(sheet.name, frame_of(rows), sheet.about)
        sheet.notes, sheet.doubt = notes, doubt
    sheet.preset = preset
    sheet.given = {role: column for role, column in preset.given.items() if "*" in column or column in sheet.names}
    return sheet


def existing(path: str | os.PathLike) -> Path:
    """Returns the path of a file or folder that is there.

    Raises:
      ValueError: there is none, with names that are close; or the file is empty.
    """
    if not os.fspath(path):
        raise ValueError("data must be the name of a file, got an empty text")
    if "://" in str(path):
        raise ValueError(f"data must be the name of a file, got the address {str(path)!r}: download it first")
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
            file.stem, [name for name in names if _kind(name)], n=3, cutoff=0.5
        )
        hint = f"; did you mean {' or '.join(repr(str(folder / name)) for name in close)}?" if close else ""
        raise ValueError(f"{path}: there is no such file{hint}")
    if file.is_file() and not file.stat().st_size:
        raise ValueError(f"{path} is empty: it has no bytes")
    return file


def _stem(path: Path) -> str:
    name = path.name
    while Path(name).suffix.lower() in (*SUFFIXES, *PACKED):
        name = Path(name).stem
    return name


def _kind(name: str) -> str:
    """The ending of a name, without those of compression."""
    name = name.lower()
    while name.endswith(PACKED):
        name = name[: name.rfind(".")]
    return next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")


def _of_file(path: Path, separator: str | None, encoding: str | None) -> Sheet:
    name = path.name.lower()
    if not _kind(name) and not name.endswith(PACKED):
        known = " (an old Excel file: save it as .xlsx or .csv)" if name.endswith((".xls", ".xlsb", ".ods")) else ""
        raise ValueError(
            f"{path} is of an unknown kind{known}; expected a name that ends in {', '.join((*SUFFIXES, *PACKED))}"
        )
    with open(path, "rb") as file:
        start = file.read(8)
    return _of_parquet(path) if start.startswith(b"PAR1") else _of_bytes(path, path.read_bytes(), "", separator, encoding)


def _unpack_zst(content: bytes) -> bytes:
    arrow = optional("pyarrow")
    with arrow.CompressedInputStream(arrow.BufferReader(content), "zstd") as stream:
        return stream.read()


_PACKERS = (
    (b"\x1f\x8b", "gzip", gzip.decompress),
    (b"BZh", "bzip2", bz2.decompress),
    (b"\xfd7zXZ", "xz", lzma.decompress),
    (b"\x28\xb5\x2f\xfd", "zstd", _unpack_zst),
)


def _of_bytes(path: Path, content: bytes, packed: str, separator: str | None, encoding: str | None) -> Sheet:
    """A sheet of content, by its first bytes and then by its name."""
    kind = _kind(path.name)
    for magic, word, unpack in _PACKERS:
        if content.startswith(magic):
            try:
                content = unpack(content)
            except (EOFError, zlib.error, OSError, lzma.LZMAError, MemoryError) as error:
                raise ValueError(f"{path} is a damaged {word} file: {error}") from None
            return _of_bytes(path, content, f", compressed by {word}", separator, encoding)
    if content.startswith(b"PK\x03\x04"):
        return _of_archive(path, content, separator, encoding)
    if content.startswith(b"PAR1"):
        return _of_parquet(path, io.BytesIO(content))
    if content.startswith(b"ARROW1"):
        feather = optional("pyarrow.feather")
        return _of_pandas(str(path), feather.read_table(io.BytesIO(content)).to_pandas(), "a feather file")
    if content.startswith(b"\x80") and kind in (".pkl", ".pickle", ""):
        opened = open_pickle(path, content)
        if isinstance(opened, list):
            return _of_pandas(str(path), frame_of(opened), "a pickled list of records")
        if isinstance(opened, dict):
            rows, preset = presets.of_dict(path, opened)
            sheet = _of_pandas(str(path), pd.DataFrame(rows), "a pickle")
            sheet.preset = preset
            return sheet
        names, read = opened
        return Sheet(str(path), names, lambda name: read([name])[name], "a pickled data frame")
    for magic, what in _OTHERS:
        if content.startswith(magic):
            raise ValueError(f"{path} is {what}, in spite of its name")
    if kind in (".parquet", ".feather", ".xlsx", ".npz", ".pkl", ".pickle"):
        word = {".xlsx": "no Excel file (xlsx)", ".npz": "no npz file of plain arrays", ".parquet": "no parquet file"}.get(
            kind, f"no {kind} file"
        )
        raise ValueError(f"{path} is {word}, or damaged or cut off")
    text, called, doubt = decoded(str(path), content, encoding)
    first = text.lstrip()[:1]
    if kind in (".json", ".jsonl", ".ndjson") or (first in "[{" and kind not in (".csv", ".tsv") and first):
        sheet = _of_json(path, text, f" in {called}{packed}")
    else:
        sheet = _of_text(path, text, separator or ("\t" if kind == ".tsv" else None), f"text in {called}", packed)
    sheet.doubt = doubt
    if doubt:
        sheet.notes.append(f"file: its encoding may be {' or '.join(doubt)}; no name depends on it (--encoding decides)")
    return sheet


_OTHERS = (
    (b"\x93NUMPY", "an npy file of one array without a name"),
    (b"\xd0\xcf\x11\xe0", "an old Excel file: save it as .xlsx or .csv"),
    (b"SQLite", "a database: export its table as csv"),
    (b"%PDF", "a PDF file"),
    (b"\x80", "a pickle"),
)


def decoded(name: str, content: bytes, encoding: str | None) -> tuple[str, str, tuple[str, ...]]:
    """Returns text, the name of its encoding, and all encodings that it could be in where that cannot be told.

    The encoding is the one given, UTF-8 or UTF-16, or what `charset_normalizer` finds.

    Raises:
      ValueError: the content is no text, is not in the encoding given, or could be in several.
      ImportError: `charset_normalizer` is not installed.
    """
    if encoding is not None:
        try:
            return content.decode(encoding), encoding.upper(), ()
        except UnicodeError as error:
            code = f" (byte 0x{content[error.start]:02x})" if isinstance(error, UnicodeDecodeError) else ""
            raise ValueError(f"{name} is not in {encoding}{code}; leave encoding out to find it") from None
    try:
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return content.decode("utf-16"), "UTF-16", ()
        even, odd = content[:4096:2].count(0), content[1:4096:2].count(0)
        if max(even, odd) > 0.3 * min(len(content), 4096) and min(even, odd) < 0.1 * max(even, odd):
            wide = "utf-16-be" if even > odd else "utf-16-le"
            return content.decode(wide), wide.upper(), ()
        if b"\0" in content[:_SAMPLE] or sum(byte < 32 and byte not in (9, 10, 12, 13) for byte in content[:4096]) > 80:
            raise ValueError(f"{name} is no text, in spite of its name: it has bytes that no text has")
        return content.decode("utf-8-sig"), "UTF-8", ()
    except UnicodeDecodeError as error:
        text = content.decode("utf-8", errors="replace")
        bad = text.count("\ufffd")
        if 5 * bad < sum(ord(letter) > 127 for letter in text[:_SAMPLE]) or (bad == 1 and error.start >= len(content) - 4):
            return text, f"UTF-8 with {bad} damaged places, the first at byte {error.start:,}", ()
        begin = max(0, min(error.start - 2000, len(content) - _SAMPLE))
    found = list(optional("charset_normalizer").from_bytes(content[begin : begin + _SAMPLE], cp_isolation=list(_ENCODINGS)))
    names = ["cp1252" if "cp1252" in match.could_be_from_charset else match.encoding for match in found]
    if not names:
        raise ValueError(
            f"{name} is not in UTF-8, and its encoding is not found: give it (encoding=..., on the command line --encoding)"
        )
    best = "cp1252" if "cp1252" in names else names[0]
    sure = names[0] == "cp1252" or len(names) == 1
    return content.decode(best, errors="replace"), best, () if sure else tuple(names)


# Text.


def _of_text(path: Path, text: str, separator: str | None, about: str, packed: str) -> Sheet:
    """A sheet of delimited text, read by pandas; lines before the header are skipped and noted."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise ValueError(f"{path} is empty")
    first, _, rest = text.partition("\n")
    notes = []
    if first.lower().startswith("sep=") and len(first) == 5:
        separator, text = separator or first[4], rest
        notes.append(f"file: the first line, {first!r}, is a setting")
    mark, width = (separator, _width(text, separator)) if separator else _separator(text)
    if width < 2:
        head = next(line for line in text.splitlines() if line.strip())
        raise ValueError(
            f"{path} has one column, {checks.show(head.strip())}: if another character is between its columns, give it (separator=..., on the "
            "command line --separator)"
        )
    skipped, lines_before, fields = 0, len(notes), []
    for fields in _rows(text, mark):
        if len(fields) == width or skipped == 20:
            break
        skipped += 1
    if skipped == 20 or (skipped and _like_data(fields)):
        skipped = 0  # The header has another number of fields than the rows: refused below.
    begin = 0
    for _ in range(skipped):
        while not text[begin : text.find("\n", begin)].strip():
            begin = text.find("\n", begin) + 1
        line, begin = text[begin : text.find("\n", begin)], text.find("\n", begin) + 1
        notes.append(f"file: skipped the line {checks.show(line.strip())} before the names of the columns")
    lines_before += text.count("\n", 0, begin)
    body = text[begin:]
    head = next(_rows(body, mark), [])
    if len(head) == width - 1 and all(
        not fields[-1].strip() for fields in islice(_rows(body, mark), 1, None) if len(fields) == width
    ):
        first, _, rest = body.partition("\n")
        body = f"{first}{mark}\n{rest}"  # A mark at the end of every row but the first.
    try:
        frame = pd.read_csv(
            io.StringIO(body),
            sep=mark,
            dtype=str,
            keep_default_na=False,
            skipinitialspace=True,
            header=None,
            names=None,
            engine="c",
        )
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        _check_fields(path, body, mark, lines_before)
        raise ValueError(f"{path}: {error}") from None
    if (frame.iloc[:, -1].isna() | (frame.iloc[:, -1] == "")).any():  # Empty, or not there.
        _check_fields(path, body, mark, lines_before)
    names = [str(name).strip() for name in frame.iloc[0]]
    if any(frame[column].str.contains("\n", regex=False).any() for column in frame):
        try:  # Quotation marks inside of texts that are not closed.
            for _ in csv.reader(io.StringIO(body), delimiter=mark, skipinitialspace=True, strict=True):
                pass
        except csv.Error as error:
            raise ValueError(
                f"{path}: a quotation mark is not closed, so that a text holds lines of the file ({error}); write quotes around all texts"
            ) from None
    rows = np.flatnonzero((frame.iloc[1:] != "").to_numpy().any(axis=1)) + 1
    if not len(rows):
        raise ValueError(f"{path} has a line of names, but no rows")

    def read(name: str) -> Cells:
        return frame.iloc[:, names.index(name)].to_numpy(dtype=object)[rows]

    def place(row: int) -> str:
        lines = (line for line, fields in _numbered_rows(body, mark) if fields)
        number = next((line for count, line in enumerate(lines) if count == rows[row]), 0)
        return f"line {number + lines_before}"

    kinds = f", {SEPARATORS.get(mark, repr(mark))} between columns{packed}"
    sheet = Sheet(str(path), names, read, about + kinds, place, mark, notes)
    numeric = [n for n in names if names.count(n) == 1 and any(level(role, n) for role in KINDS)] if mark != "," else []
    sheet.decimal_comma = any(_DECIMAL_COMMA.match(str(cell)) for name in numeric for cell in read(name)[:200])
    return sheet


def _numbered_rows(text: str, mark: str) -> Iterator[tuple[int, list[str]]]:
    """Number of the last line and fields of each row that is not blank."""
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # Prompts may be long.
    rows = csv.reader(io.StringIO(text), delimiter=mark, skipinitialspace=True)
    for fields in rows:
        if any(fields) or len(fields) > 1:
            yield rows.line_num, fields


def _rows(text: str, mark: str) -> Iterator[list[str]]:
    return (fields for _, fields in _numbered_rows(text, mark))


def _width(text: str, mark: str) -> int:
    """The number of fields that most of the first rows have."""
    rows = [len(fields) for fields, _ in zip(_rows(text[:_SAMPLE], mark), range(60))]
    return Counter(rows[:-1] if len(text) > _SAMPLE and len(rows) > 1 else rows).most_common(1)[0][0]


def _separator(text: str) -> tuple[str, int]:
    """The mark that cuts most of the first rows into equally many fields, the names of columns among the first lines, and how many."""
    found = {}
    for mark in SEPARATORS:
        rows = [len(fields) for fields, _ in zip(_rows(text[:_SAMPLE], mark), range(60), strict=False)]
        rows = rows[:-1] if len(text) > _SAMPLE and len(rows) > 1 else rows
        width, often = max(Counter(rows).items(), key=lambda item: (item[0] > 1, item[1]))
        before = next((place for place, fields in enumerate(rows) if fields == width), len(rows))
        found[mark] = (width > 1 and often >= 0.7 * len(rows), -before, width), width
    best = max(found, key=lambda mark: found[mark][0])
    return best, found[best][1]


def _like_data(fields: Sequence[str]) -> bool:
    """Whether a third of the fields of a line are numbers, which names are not."""
    numbers = [f for f in fields if f.strip().replace(".", "", 1).replace("-", "", 1).replace(",", "", 1).isdigit()]
    return 3 * len(numbers) >= len(fields)


def _check_fields(path: Path, text: str, mark: str, before: int) -> None:
    """Refuses rows with another number of fields than the header, by their line."""
    width = 0
    for line, fields in _numbered_rows(text, mark):
        width = width or len(fields)
        if len(fields) != width:
            more = f"put text that contains {mark!r} into quotation marks"
            if len(fields) == width + 1:
                more += ", or add a name for the last column (or for names of rows in the first, as R writes them)"
            if len(fields) == 1 or fields[-1].count("\n") > 3:
                more = "is a quotation mark not closed, or the file cut off?"
            raise ValueError(
                f"{path}, line {line + before}: {len(fields)} fields, but the first line names {width} columns; "
                f"{more if len(fields) > width else 'is a quotation mark not closed, or the file cut off?'}"
            )


# JSON.


def _of_json(path: Path, text: str, about: str) -> Sheet:
    kind = "JSON"
    if not text.strip():
        raise ValueError(f"{path} is empty")
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"{path} is JSON of too many levels") from None
    except json.JSONDecodeError as error:
        extra = "Extra data" in error.msg
        if not extra and not (_kind(path.name) != ".json" and "\n" in text.strip()):
            cut = ": is the file cut off?" if error.pos >= len(text.rstrip()) - 1 else ""
            raise ValueError(f"{path}, line {error.lineno} is not JSON: {error.msg}{cut}") from None
        value, kind = _json_lines(path, text), "JSON lines"
    else:
        if _kind(path.name) != ".json" and isinstance(value, dict) and "\n" not in text.strip():
            value, kind = [value], "JSON lines"  # One line.
    if isinstance(value, dict) and {"eval", "samples"} <= value.keys():
        records, notes = [{**sample, "log": value} for sample in value["samples"]], []
    else:
        records, notes = records_of(str(path), value)
    rows, preset = presets.of_records(path, records)
    frame = frame_of(rows)

    def place(row: int) -> str:
        if kind == "JSON":
            return f"record {row} (from 0)"
        lines = (number for number, line in enumerate(text.split("\n"), 1) if line.strip())
        return f"line {next(number for count, number in enumerate(lines) if count == row)}"

    same = len(frame) == len(records) and rows is records
    sheet = _of_pandas(str(path), frame, kind + about)
    sheet._place, sheet.notes, sheet.preset = place if same else None, notes, preset
    return sheet


def _json_lines(path: Path, text: str) -> list[Any]:
    records = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                records.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path}, line {number} is not JSON: {error}") from None
            if not isinstance(records[-1], dict):
                raise ValueError(f"{path}, line {number} must be an object {{...}}, got {checks.show(records[-1])}")
    return records


# Other files, and data in memory.


def _in_memory(data: Any) -> Sheet:
    if isinstance(data, Mapping):
        if not data:
            raise ValueError("data must be columns by name, got an empty dict")
        columns = {str(name): list(values) if not np.isscalar(values) else values for name, values in data.items()}
        lengths = {name: len(values) for name, values in columns.items() if isinstance(values, list)}
        if len(lengths) != len(columns) or len(set(lengths.values())) > 1:
            raise ValueError(
                f"data must be columns of equal lengths by name, got {some(f'{n}: {v}' for n, v in lengths.items())}"
            )
        data = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})
        return _of_pandas("the dict", data, "a dict of columns")
    if isinstance(data, (list, tuple)):
        if not data or not all(isinstance(record, Mapping) for record in data):
            raise ValueError(
                f"data must be records, as [{{'query': 1, 'model': 'a', ...}}, ...], or names of files, got {checks.show(data)}"
            )
        return _of_pandas("the records", frame_of(list(data)), "a list of records")
    frame = data
    if not isinstance(frame, pd.DataFrame) and not np.isscalar(data) and data is not None:
        if hasattr(data, "to_pylist") and any(str(field.type).find("struct") >= 0 for field in getattr(data, "schema", ())):
            frame = pd.DataFrame(data.to_pylist())  # pyarrow with objects in lists.
        elif hasattr(data, "to_pandas"):
            frame = data.to_pandas()  # polars, pyarrow, Hugging Face.
        else:
            narwhals = optional("narwhals")
            frame = narwhals.from_native(data, eager_only=True, pass_through=True)
            frame = frame.to_pandas() if hasattr(frame, "to_pandas") else data
    if not isinstance(frame, pd.DataFrame):
        raise ValueError(
            f"data must be the name of a file, a RoutingTable, a data frame, a dict of columns or a list of records, got {checks.show(data)}"
        )
    if frame.columns.nlevels > 1:  # Pivoted.
        frame = frame.set_axis(["|".join(str(part) for part in column if str(part)) for column in frame.columns], axis=1)
    if all(name is not None for name in frame.index.names):  # Made by groupby or set_index.
        twice = [name for name in frame.index.names if name in frame.columns]
        frame = frame.reset_index(level=[name for name in frame.index.names if name not in twice]).reset_index(drop=True)
    return _of_pandas("the data frame", frame, "a data frame")


def _of_pandas(name: str, frame: pd.DataFrame, about: str) -> Sheet:
    if not frame.size:
        raise ValueError(f"{name} has no {'columns' if len(frame) else 'rows'}")
    for column in range(frame.shape[1]):  # Lists of objects that arrow or polars gives as arrays.
        first = (
            next((cell for cell in frame.iloc[:, column] if isinstance(cell, np.ndarray) and cell.size), None)
            if getattr(frame.dtypes.iloc[column], "kind", "") == "O"
            else None
        )
        if first is not None and isinstance(first[0], dict):
            frame = frame.assign(
                **{
                    str(frame.columns[column]): [
                        list(cell) if isinstance(cell, np.ndarray) else cell for cell in frame.iloc[:, column]
                    ]
                }
            )
    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    if not frame.columns.duplicated().any() and any(_nested(pd.Series(frame[column])) for column in frame):
        frame = frame_of(frame.to_dict("records"))
    names = list(frame.columns)

    def read(column: str) -> Cells:
        cells = frame.iloc[:, names.index(column)]
        return cells.to_numpy() if isinstance(cells.dtype, np.dtype) else cells.astype(object).to_numpy()

    return Sheet(name, names, read, about)


def _nested(cells: pd.Series) -> bool:
    if cells.dtype != object:
        return False
    first = next((cell for cell in cells if isinstance(cell, (dict, list)) or not pd.api.types.is_scalar(cell)), None)
    return isinstance(first, dict) or (isinstance(first, list) and bool(first) and isinstance(first[0], dict))


def _of_parquet(path: Path, content: Any = None) -> Sheet:
    """A sheet of a parquet file, of which only the columns that are used are read."""
    parquet, arrow = optional("pyarrow.parquet"), optional("pyarrow")
    try:
        file = parquet.ParquetFile(path if content is None else content)
    except (arrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} is no parquet file, or damaged: {error}") from None
    if not file.metadata.num_rows:
        raise ValueError(f"{path} has no rows")
    fields = {name: keys for field in file.schema_arrow for name, keys in _fields(field, ())}

    def read(name: str) -> Cells:
        # Not read_table, to which a dot in a name (as in Wizard-V1.2) can mean a field of a struct.
        column = file.read(columns=[".".join(fields[name])])[fields[name][0]]
        for key in fields[name][1:]:
            column = optional("pyarrow.compute").struct_field(column, key)
        if arrow.types.is_dictionary(column.type):  # Plain first: to_numpy gives a missing value a label.
            column = column.cast(column.type.value_type)
        if arrow.types.is_nested(column.type):
            cells = np.empty(len(column), object)
            cells[:] = column.to_pylist()
            return cells
        return column.to_numpy()

    if any(_lists_of_structs(field.type, arrow) for field in file.schema_arrow):
        return _of_pandas(str(path), pd.DataFrame(file.read().to_pylist()), "a parquet file")
    return Sheet(str(path), list(fields), read, "a parquet file")


def _fields(field: Any, before: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Names of a column and of the fields of a struct, with the path to each."""
    keys = (*before, field.name)
    if str(field.type).startswith("struct<"):
        for inner in field.type:
            yield from _fields(inner, keys)
    else:
        yield ".".join(keys), keys


def _lists_of_structs(kind: Any, arrow: Any) -> bool:
    if arrow.types.is_list(kind) or arrow.types.is_large_list(kind):
        return arrow.types.is_struct(kind.value_type)
    return False


def _of_archive(path: Path, content: bytes, separator: str | None, encoding: str | None) -> Sheet:
    """A sheet of an Excel file or of the files in a zip archive."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path} is a damaged zip archive (npz, xlsx or zip): {error}") from None
    members = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX")]
    if members and all(name.endswith(".npy") for name in members):
        raise ValueError(f"{path} is an npz file of arrays: read it alone")
    if any(name.startswith("xl/") for name in members):
        return _of_excel(path, content)
    if "header.json" in members:
        try:
            head = json.loads(archive.read("header.json"))
        except ValueError as error:
            raise ValueError(f"{path}, header.json is not JSON: {error}") from None
        samples = [json.loads(archive.read(name)) for name in members if name.startswith("samples/")]
        rows, preset = presets.of_records(path, [{**sample, "log": head} for sample in samples])
        sheet = _of_pandas(str(path), frame_of(rows), "an archive")
        sheet.preset = preset
        return sheet
    inside = [name for name in members if _kind(name)]
    if not inside:
        raise ValueError(f"{path} is a zip archive without a file that can be read; it has {some(members)}")
    files = _chosen([path / name for name in sorted(inside)])
    contents = {path / name: name for name in inside}
    return _joined(
        str(path),
        files,
        lambda file: _of_bytes(file, archive.read(contents[file]), ", in a zip archive", separator, encoding),
    )


def _of_excel(path: Path, content: bytes) -> Sheet:
    optional("openpyxl")
    try:
        book = pd.read_excel(
            io.BytesIO(content), sheet_name=None, header=None, dtype=object, keep_default_na=False, engine="openpyxl"
        )
    except (zipfile.BadZipFile, KeyError, OSError, ValueError) as error:
        raise ValueError(f"{path} is no Excel file (xlsx), or damaged: {error}") from None
    filled = {name: frame for name, frame in book.items() if frame.size}
    if not filled:
        raise ValueError(f"{path}, sheet {next(iter(book))!r} is empty")
    tables = [name for name, frame in filled.items() if min(frame.shape) > 2]  # Not a cover.
    which = tables[0] if tables else next(iter(filled))
    frame = filled[which]
    there = (frame.map(lambda cell: cell is not None and cell == cell and cell != "")).to_numpy()
    rows = np.flatnonzero(there.any(axis=1))
    width = Counter(there[rows].sum(axis=1).tolist()).most_common(1)[0][0]
    named = [
        row
        for row in rows[:20]
        if there[row].sum() >= width - 1 and all(isinstance(cell, str) for cell in frame.iloc[row][there[row]])
    ]
    head = named[0] if named else rows[0]
    notes = [f"file: skipped row {row + 1} before the names of the columns" for row in rows if row < head]
    rows = rows[rows > head]
    if not len(rows):
        raise ValueError(f"{path}, sheet {which!r} has a line of names, but no rows")
    columns = np.flatnonzero(there[rows].any(axis=0) | there[head])
    names = [str(frame.iat[head, column]).strip() if there[head, column] else "" for column in columns]
    others = [name for name in filled if name != which]
    others = f" (not read: {some(map(repr, others), 4)})" if others else ""

    def read(name: str) -> Cells:
        return frame.iloc[rows, columns[names.index(name)]].to_numpy(dtype=object)

    return Sheet(
        str(path), names, read, f"an Excel file, sheet {which!r}{others}", lambda row: f"line {rows[row] + 1}", None, notes
    )


# Several files.


def _inside(folder: Path) -> list[Path]:
    files = sorted(file for file in folder.rglob("*") if file.is_file() and _kind(file.name))
    files = [file for file in files if not file.name.startswith(".")] or files
    if not files:
        has = some(sorted(entry.name for entry in folder.iterdir()))
        raise ValueError(f"{folder} is a folder without files that can be read ({', '.join(SUFFIXES)}); it has {has}")
    return _chosen(files)


def _chosen(files: Sequence[Path]) -> list[Path]:
    """The files without summaries, and of samples that lm-evaluation-harness wrote again, the last."""
    files = [file for file in files if not presets.is_summary(file)] or list(files)
    latest = {re.sub(r"_\d{4}-\d\d-\d\dT[\d.:-]+(?=\.jsonl)", "", str(file)): file for file in files}
    return list(latest.values())


def _joined(name: str, files: Sequence[Path], open_one: Callable[[Path], Sheet], named_all: bool = False) -> Sheet:
    """The rows of several files under each other, with columns for the parts of their paths that differ."""
    opened, refused = {}, {}
    for file in files:
        try:
            opened[file] = _known(open_one(file), file)
        except ValueError as error:
            refused[file] = error
            if named_all or len(files) == 1:
                raise
    if not opened:
        raise next(iter(refused.values()))
    files, sheets = list(opened), list(opened.values())
    main = max(sheets, key=lambda sheet: sheet.num_rows).names
    fits = [
        2 * len({*main} & {*sheet.names}) >= len({*main, *sheet.names}) or len({*main} & {*sheet.names}) > 3
        for sheet in sheets
    ]
    left = [file.name for file, fit in zip(files, fits, strict=True) if not fit]
    if left and named_all:
        raise ValueError(
            f"{name}: {some(left, 4)} has other columns than the largest, which has {some(map(repr, main))}: give all the same names"
        )
    files, sheets = ([one for one, fit in zip(of, fits, strict=True) if fit] for of in (files, sheets))
    parts = {"(file)": [_stem(file) for file in files]}
    for depth in range(3):
        names = [file.parents[depth].name if len(file.parents) > depth else "" for file in files]
        if len(set(names)) == 1:
            break
        parts[FILE_COLUMNS[depth + 1]] = names
    parts = {column: _unwrapped(names) for column, names in parts.items() if len(set(names)) > 1}
    stacked = _stacked(name, sheets, parts) if len(sheets) > 1 else sheets[0]
    stacked.notes += [f"file: left aside {some(left, 4)}, with other columns than the largest"] if left else []
    stacked.notes += [
        f"file: left aside {file.name}, as {str(error).removeprefix(f'{file} ')}" for file, error in refused.items()
    ]
    return stacked


def _unwrapped(stems: Sequence[str]) -> Sequence[str]:
    """Names of files without the words around the models that all of them have, as in `samples_gpt-4`."""
    for pattern in (r"^([a-zA-Z]+)[_\-. ](.+)$", r"^(.+)[_\-. ]([a-zA-Z]+)$"):
        matches = [re.match(pattern, stem) for stem in stems]
        found = {match[1 if pattern.startswith("^([") else 2].lower() for match in matches if match}
        if all(matches) and len(found) == 1 and found <= WRAPPERS:
            return _unwrapped([match[2 if pattern.startswith("^([") else 1] for match in matches if match])
    return stems


def _stacked(name: str, sheets: Sequence[Sheet], parts: Mapping[str, Sequence[str]]) -> Sheet:
    names = list(dict.fromkeys(column for sheet in sheets for column in sheet.names))
    sizes = [sheet.num_rows for sheet in sheets]
    starts = np.concatenate([[0], np.cumsum(sizes)])

    def read(column: str) -> Cells:
        if column in parts:
            return np.repeat(np.array(parts[column], object), sizes)
        cells = [
            s.cells(column) if column in s.names else np.full(n, None, object) for s, n in zip(sheets, sizes, strict=True)
        ]
        return cells[0] if len(cells) == 1 else pd.concat([pd.Series(part) for part in cells], ignore_index=True).to_numpy()

    def place(row: int) -> str:
        part = int(np.searchsorted(starts, row, "right")) - 1
        return sheets[part].place(row - int(starts[part])).removeprefix(f"{name}, ")

    about = f"{len(sheets)} files, the first {sheets[0].about}"
    notes = list(dict.fromkeys(note for sheet in sheets for note in sheet.notes))
    joined = Sheet(name, [*names, *parts], read, about, place, sheets[0].separator, notes)
    joined.decimal_comma = any(sheet.decimal_comma for sheet in sheets)
    joined.preset, joined.given = sheets[0].preset, sheets[0].given
    joined.doubt = next((sheet.doubt for sheet in sheets if sheet.doubt), ())
    return joined
