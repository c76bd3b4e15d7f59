"""Opening a log of any kind as named columns of cells, with notes on what was assumed."""

import bz2
import codecs
import csv
import difflib
import functools
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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jaxroute.core import checks
from jaxroute.data.files import named, optional, some
from jaxroute.data.logs import presets
from jaxroute.data.logs.names import KINDS, WRAPPERS, level
from jaxroute.data.logs.records import first_object, frame_of, records_of
from jaxroute.data.pickles import open_pickle

_JSON = (".json", ".jsonl", ".ndjson")
_BINARY = (".parquet", ".feather", ".xlsx", ".pkl", ".pickle", ".npz")
SUFFIXES = (".csv", ".tsv", ".txt", *_JSON, *_BINARY, ".eval")
PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_SEPARATOR_WORDS = {"\\t": "\t", "tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}
_SAMPLE = 1 << 18
_DECIMAL_COMMA = re.compile(r"\s*[+-]?(0,\d+|\d+,(\d{1,2}|\d{4,}))\s*$")  # Which no mark between thousands can be.
# Columns of several files that say in which file, and in which folders, a row is.
FILE_COLUMNS = ("(file)", "(folder)", "(folder 2)", "(folder 3)")
_ENCODINGS = ("cp1252", "cp1250", "cp1251", "cp932", "gb18030", "big5", "cp949", "mac_roman")
# First bytes of files that are not what their names say.
_OTHERS = {
    b"\x93NUMPY": "an npy file of one array without a name",
    b"\xd0\xcf\x11\xe0": "an old Excel file: save it as .xlsx or .csv",
    b"SQLite": "a database: export its table as csv",
    b"%PDF": "a PDF file",
    b"\x80": "a pickle",
}


@dataclass(eq=False)
class Sheet:
    """Named columns of cells, each read when it is first used."""

    name: str  # Of the file, or "the data frame".
    names: list[str]  # Of the columns, in order.
    read: Callable[[str], np.ndarray]  # Reads the cells of a column.
    about: str  # The kind of the file, in words.
    place_of: Callable[[int], str] | None = None  # Names the place of a row of the file.
    separator: str | None = None  # The mark between columns of text.
    notes: list[str] = field(default_factory=list)  # Lines about what was skipped or assumed.
    preset: presets.Preset | None = None  # The known format of the file.
    given: dict[str, str] = field(default_factory=dict)  # Columns by role that the kind of file determines.
    doubt: tuple[str, ...] = ()  # Encodings that the file could be in, where that cannot be told.
    decimal_comma: bool = False  # Whether numbers in the file have one.
    made: set[str] = field(default_factory=set)  # Columns that were made of others.
    rows: np.ndarray | None = None  # Numbers of the rows that are left, None for all.
    _cells: dict[str, np.ndarray] = field(default_factory=dict)

    def cells(self, name: str) -> np.ndarray:
        """`[R]` cells of a column; an absent one is None, NaN or an empty text."""
        if name not in self._cells:
            if self.names.count(name) > 1:
                raise ValueError(f"{self.name} has {self.names.count(name)} columns {name!r}: rename or remove all but one")
            with named(self.name):
                cells = self.read(name)
            self._cells[name] = cells if self.rows is None else cells[self.rows]
        return self._cells[name]

    def put(self, name: str, cells: np.ndarray) -> None:
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
        return len(next(iter(self._cells.values())) if self._cells else self.read(self.names[0]))

    def place(self, row: int) -> str:
        """Returns the name of the file and the place of a row in it."""
        row = int(row if self.rows is None else self.rows[row])
        return f"{self.name}, {self.place_of(row) if self.place_of else f'row {row} (from 0)'}"


def open_log(data: Any, separator: str | None = None, encoding: str | None = None) -> Sheet:
    """Opens a file, a folder, a list of files, a data frame, a dict of columns or a list of records.

    The mark between columns of text and its encoding are found where they are None.
    """
    if separator is not None:
        separator = _SEPARATOR_WORDS.get(separator, separator)
        if len(separator) != 1:
            raise ValueError(f"separator must be one character such as ',' or ';' or '\\t', got {separator!r}")
    if encoding is not None:
        try:
            codecs.lookup(encoding)
        except LookupError:
            raise ValueError(f"encoding must be one such as 'utf-8' or 'windows-1252', got {encoding!r}") from None
    open_one = functools.partial(_of_file, separator=separator, encoding=encoding)
    if isinstance(data, (str, os.PathLike)):
        path = existing(data)
        if path.is_dir():
            return _joined(str(path), _inside(path), open_one)
        with named(path):
            return _known(open_one(path))
    if isinstance(data, (list, tuple)) and data and all(isinstance(item, (str, os.PathLike)) for item in data):
        return _joined(f"the files {some(map(str, data), 3)}", list(map(existing, data)), open_one, named_all=True)
    return _known(_in_memory(data))


def _known(sheet: Sheet) -> Sheet:
    """The same in the columns that the reader knows, if the format is known."""
    preset = sheet.preset or presets.of_names(sheet.names)
    if preset is None:
        return sheet
    if preset.refused:
        raise ValueError(f"{sheet.name} {preset.refused}")
    if (preset.reader or preset.columns) and sheet.preset is None:
        columns = {name: sheet.cells(name).astype(object) for name in dict.fromkeys(sheet.names)}
        records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        sheet = _of_records(Path(sheet.name), records, sheet.about, notes=sheet.notes, doubt=sheet.doubt)
    sheet.preset = preset
    sheet.given = {role: column for role, column in preset.given.items() if "*" in column or column in sheet.names}
    return sheet


def existing(path: str | os.PathLike) -> Path:
    """The path of a file or folder that is there; if not, the error names those that are close."""
    if not os.fspath(path):
        raise ValueError("data must be the name of a file, got an empty text")
    if "://" in str(path):
        raise ValueError(f"data must be the name of a file, got the address {str(path)!r}: download it first")
    file = Path(path)
    try:
        there, folder = file.exists(), file.parent
    except (OSError, ValueError) as error:
        raise ValueError(f"data must be the name of a file, got {checks.show(str(path))}: {error}") from None
    if not there and not folder.is_dir():
        raise ValueError(f"{path}: there is no such file; the folder {str(folder)!r} is not there either")
    if not there:
        names = sorted(os.listdir(folder))
        readable = [name for name in names if _kind(name)]
        close = difflib.get_close_matches(file.name, names) or difflib.get_close_matches(file.stem, readable, cutoff=0.5)
        hint = f"; did you mean {' or '.join(repr(str(folder / name)) for name in close)}?" if close else ""
        raise ValueError(f"{path}: there is no such file{hint}")
    if file.is_file() and not file.stat().st_size:
        raise ValueError(f"{path} is empty: it has no bytes")
    return file


def _stem(path: Path) -> str:
    while path.suffix.lower() in (*SUFFIXES, *PACKED):
        path = path.with_suffix("")
    return path.name


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
        endings = ", ".join((*SUFFIXES, *PACKED))
        raise ValueError(f"{path} is of an unknown kind{known}; expected a name that ends in {endings}")
    with open(path, "rb") as file:
        if file.read(4) == b"PAR1":
            return _of_parquet(path, path)
    return _of_bytes(path, path.read_bytes(), "", separator, encoding)


def _unpack_zst(content: bytes) -> bytes:
    return optional("pyarrow").input_stream(io.BytesIO(content), compression="zstd").read()


_PACKERS = {
    b"\x1f\x8b": ("gzip", gzip.decompress),
    b"BZh": ("bzip2", bz2.decompress),
    b"\xfd7zXZ": ("xz", lzma.decompress),
    b"\x28\xb5\x2f\xfd": ("zstd", _unpack_zst),
}


def _of_bytes(path: Path, content: bytes, packed: str, separator: str | None, encoding: str | None) -> Sheet:
    """A sheet of content, by its first bytes and then by its name."""
    kind = _kind(path.name)
    for magic, (word, unpack) in _PACKERS.items():
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
            return _of_pandas(str(path), pd.DataFrame(rows), "a pickle", preset=preset)
        return Sheet(str(path), *opened, "a pickled data frame")
    for magic, what in _OTHERS.items():
        if content.startswith(magic):
            raise ValueError(f"{path} is {what}, in spite of its name")
    if kind in _BINARY:
        what = {".xlsx": "Excel file (xlsx)", ".parquet": "parquet file"}.get(kind, f"{kind} file")
        raise ValueError(f"{path} is no {what}, or damaged or cut off")
    text, called, doubt = _decoded(str(path), content, encoding)
    if not text.strip():
        raise ValueError(f"{path} is empty")
    if kind in _JSON or (kind not in (".csv", ".tsv") and text.lstrip().startswith(("[", "{"))):
        sheet = _of_json(path, text, f" in {called}{packed}")
    else:
        sheet = _of_text(path, text, separator or ("\t" if kind == ".tsv" else None), f"text in {called}", packed)
    sheet.doubt = doubt
    if doubt:
        sheet.notes.append(f"file: its encoding may be {' or '.join(doubt)}; no name depends on it (--encoding decides)")
    return sheet


def _decoded(name: str, content: bytes, encoding: str | None) -> tuple[str, str, tuple[str, ...]]:
    """Text, the name of its encoding, and all encodings that it could be in where that is unclear."""
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
        if b"\0" in content[:_SAMPLE] or sum(byte < 32 and byte not in b"\t\n\f\r" for byte in content[:4096]) > 80:
            raise ValueError(f"{name} is no text, in spite of its name: it has bytes that no text has")
        return content.decode("utf-8-sig"), "UTF-8", ()
    except UnicodeDecodeError as error:
        text = content.decode("utf-8", errors="replace")
        bad = text.count("\ufffd")
        if 5 * bad < sum(ord(letter) > 127 for letter in text[:_SAMPLE]) or (bad == 1 and error.start >= len(content) - 4):
            return text, f"UTF-8 with {bad} damaged places, the first at byte {error.start:,}", ()
        begin = max(0, min(error.start - 2000, len(content) - _SAMPLE))
    found = optional("charset_normalizer").from_bytes(content[begin : begin + _SAMPLE], cp_isolation=list(_ENCODINGS))
    names = ["cp1252" if "cp1252" in match.could_be_from_charset else match.encoding for match in found]
    if not names:
        raise ValueError(f"{name} is in an unknown encoding: give it (encoding=..., on the command line --encoding)")
    best = "cp1252" if "cp1252" in names else names[0]
    sure = names[0] == "cp1252" or len(names) == 1
    return content.decode(best, errors="replace"), best, () if sure else tuple(names)


def _of_text(path: Path, text: str, separator: str | None, about: str, packed: str) -> Sheet:
    """A sheet of delimited text, read by pandas; lines before the header are skipped and noted."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    notes = []
    setting = re.match(r"(sep=(.))(?:\n|$)", text, re.IGNORECASE)
    if setting:
        separator, text = separator or setting[2], text[setting.end() :]
        notes.append(f"file: the first line, {setting[1]!r}, is a setting")
    mark, width = _separator(text, separator or SEPARATORS)
    if width < 2:
        head = checks.show(text.strip().split("\n")[0].strip())
        raise ValueError(
            f"{path} has one column, {head}: if another character separates columns, give it (separator=..., on the command line --separator)"
        )
    first = list(islice(_rows(text, mark), 20))
    skipped = next((place for place, (_, fields) in enumerate(first) if len(fields) == width), 0)
    # Where numbers follow, the header has another number of fields than the rows, which is refused below.
    lines = first[skipped - 1][0] if skipped and not _like_data(first[skipped][1]) else 0
    *before, body = text.split("\n", lines)
    lines += len(notes)  # The setting is a line as well.
    for line in filter(str.strip, before):
        notes.append(f"file: skipped the line {checks.show(line.strip())} before the names of the columns")
    rest = (fields for _, fields in _rows(body, mark))
    if len(next(rest, [])) == width - 1 and not any(fields[-1].strip() for fields in rest if len(fields) == width):
        body = body.replace("\n", f"{mark}\n", 1)  # A mark at the end of every row but the first.
    try:
        frame = pd.read_csv(
            io.StringIO(body), sep=mark, dtype=str, keep_default_na=False, skipinitialspace=True, header=None, engine="c"
        )
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        _check_fields(path, body, mark, lines)
        raise ValueError(f"{path}: {error}") from None
    if (frame.iloc[:, -1].isna() | (frame.iloc[:, -1] == "")).any():  # Empty, or not there.
        _check_fields(path, body, mark, lines)
    names = [str(name).strip() for name in frame.iloc[0]]
    if any(frame[column].str.contains("\n", regex=False).any() for column in frame):
        try:  # Quotation marks inside of texts that are not closed.
            for _ in csv.reader(io.StringIO(body), delimiter=mark, skipinitialspace=True, strict=True):
                pass
        except csv.Error as error:
            raise ValueError(f"{path}: a quotation mark is not closed ({error}); write quotes around all texts") from None
    rows = np.flatnonzero((frame.iloc[1:] != "").to_numpy().any(axis=1)) + 1
    if not len(rows):
        raise ValueError(f"{path} has a line of names, but no rows")

    def read(name: str) -> np.ndarray:
        return frame.iloc[:, names.index(name)].to_numpy(dtype=object)[rows]

    def place(row: int) -> str:
        numbers = (line for line, _ in _rows(body, mark))
        return f"line {next(islice(numbers, rows[row], None), 0) + lines}"

    about += f", {SEPARATORS.get(mark, repr(mark))} between columns{packed}"
    numeric = [n for n in names if names.count(n) == 1 and any(level(role, n) for role in KINDS)] if mark != "," else []
    comma = any(_DECIMAL_COMMA.match(str(cell)) for name in numeric for cell in read(name)[:200])
    return Sheet(str(path), list(names), read, about, place, mark, notes, decimal_comma=comma)


def _rows(text: str, mark: str) -> Iterator[tuple[int, list[str]]]:
    """Number of the last line and fields of each row that is not blank."""
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # Prompts may be long.
    rows = csv.reader(io.StringIO(text), delimiter=mark, skipinitialspace=True)
    return ((rows.line_num, fields) for fields in rows if any(fields) or len(fields) > 1)


def _separator(text: str, marks: Collection[str]) -> tuple[str, int]:
    """The mark that cuts most of the first rows into equally many fields, the names of columns among the first lines, and how many."""
    found = {}
    for mark in marks:
        rows = [len(fields) for _, fields in islice(_rows(text[:_SAMPLE], mark), 60)]
        rows = rows[:-1] if len(text) > _SAMPLE and len(rows) > 1 else rows or [1]
        width, often = max(Counter(rows).items(), key=lambda item: (len(marks) > 1 and item[0] > 1, item[1]))
        found[mark] = (width > 1 and often >= 0.7 * len(rows), -rows.index(width), width)
    best = max(found, key=found.__getitem__)
    return best, found[best][-1]


def _like_data(fields: Sequence[str]) -> bool:
    """Whether a third of the fields of a line are numbers, which names are not."""
    numbers = [f for f in fields if f.strip().replace(".", "", 1).replace("-", "", 1).replace(",", "", 1).isdigit()]
    return 3 * len(numbers) >= len(fields)


def _check_fields(path: Path, text: str, mark: str, before: int) -> None:
    """Refuses rows with another number of fields than the header, by their line."""
    width = 0
    for line, fields in _rows(text, mark):
        width = width or len(fields)
        number = len(fields)
        if number == width:
            continue
        why = f"put text that contains {mark!r} into quotation marks"
        if number == width + 1:
            why += ", or add a name for the last column (or for names of rows in the first, as R writes them)"
        if number < width or fields[-1].count("\n") > 3:
            why = "is a quotation mark not closed, or the file cut off?"
        raise ValueError(f"{path}, line {line + before}: {number} fields, but the first line names {width} columns; {why}")


def _of_json(path: Path, text: str, about: str) -> Sheet:
    kind, many = "JSON", "\n" in text.strip()
    try:
        value = json.loads(text)
        if _kind(path.name) != ".json" and isinstance(value, dict) and not many:
            value, kind = [value], "JSON lines"  # One line.
    except RecursionError:
        raise ValueError(f"{path} is JSON of too many levels") from None
    except json.JSONDecodeError as error:
        if "Extra data" not in error.msg and (_kind(path.name) == ".json" or not many):
            cut = ": is the file cut off?" if error.pos >= len(text.rstrip()) - 1 else ""
            raise ValueError(f"{path}, line {error.lineno} is not JSON: {error.msg}{cut}") from None
        value, kind = _json_lines(path, text), "JSON lines"
    if isinstance(value, dict) and {"eval", "samples"} <= value.keys():
        records, notes = [{**sample, "log": value} for sample in value["samples"]], []
    else:
        records, notes = records_of(str(path), value)

    def place(row: int) -> str:
        if kind == "JSON":
            return f"record {row} (from 0)"
        lines = (number for number, line in enumerate(text.split("\n"), 1) if line.strip())
        return f"line {next(islice(lines, row, None))}"

    return _of_records(path, records, kind + about, place, notes=notes)


def _of_records(path: Path, records: list[dict], about: str, place: Callable | None = None, **more: Any) -> Sheet:
    """A sheet of records, in the columns that the reader knows; a place is that of one of the records."""
    rows, preset = presets.of_records(path, records)
    frame = frame_of(rows)
    same = rows is records and len(frame) == len(records)
    return _of_pandas(str(path), frame, about, preset=preset, place_of=place if same else None, **more)


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


def _in_memory(data: Any) -> Sheet:
    if isinstance(data, Mapping):
        if not data:
            raise ValueError("data must be columns by name, got an empty dict")
        lists = {str(name): list(values) for name, values in data.items() if not np.isscalar(values)}
        if len(lists) != len(data) or len({len(values) for values in lists.values()}) > 1:
            sizes = some(f"{name}: {len(values)}" for name, values in lists.items())
            raise ValueError(f"data must be columns of equal lengths by name, got {sizes}")
        frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in lists.items()})
        return _of_pandas("the dict", frame, "a dict of columns")
    if isinstance(data, (list, tuple)):
        if not data or not all(isinstance(record, Mapping) for record in data):
            raise ValueError(f"data must be records, as [{{'model': 'a', ...}}, ...], or files, got {checks.show(data)}")
        return _of_pandas("the records", frame_of(list(data)), "a list of records")
    frame = data
    if not isinstance(data, pd.DataFrame) and not np.isscalar(data) and data is not None:  # polars, pyarrow, Hugging Face.
        if not hasattr(data, "to_pandas"):
            data = optional("narwhals").from_native(data, eager_only=True, pass_through=True)
        frame = data.to_pandas() if hasattr(data, "to_pandas") else data
    if not isinstance(frame, pd.DataFrame):
        raise ValueError(
            f"data must be the name of a file, a RoutingTable, a data frame, a dict of columns or a list of records, got {checks.show(data)}"
        )
    if frame.columns.nlevels > 1:  # Pivoted.
        frame = frame.set_axis(["|".join(str(part) for part in column if str(part)) for column in frame.columns], axis=1)
    if all(name is not None for name in frame.index.names):  # Made by groupby or set_index.
        new = [name for name in frame.index.names if name not in frame.columns]
        frame = frame.reset_index(level=new).reset_index(drop=True)
    return _of_pandas("the data frame", frame, "a data frame")


def _of_pandas(name: str, frame: pd.DataFrame, about: str, **more: Any) -> Sheet:
    """A sheet of a data frame; `more` are further attributes."""
    if not frame.size:
        raise ValueError(f"{name} has no {'columns' if len(frame) else 'rows'}")
    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    if frame.columns.is_unique and any(first_object(column) is not None for _, column in frame.items()):
        frame = frame_of(frame.to_dict("records"))
    names = list(frame.columns)

    def read(column: str) -> np.ndarray:
        cells = frame.iloc[:, names.index(column)]
        return cells.to_numpy() if isinstance(cells.dtype, np.dtype) else cells.astype(object).to_numpy()

    return Sheet(name, list(names), read, about, **more)


def _of_parquet(path: Path, content: Any) -> Sheet:
    """A sheet of a parquet file, of which only the columns that are used are read."""
    parquet, arrow = optional("pyarrow.parquet"), optional("pyarrow")
    try:
        file = parquet.ParquetFile(content)
    except (arrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} is no parquet file, or damaged: {error}") from None
    if not file.metadata.num_rows:
        raise ValueError(f"{path} has no rows")
    if any(str(getattr(column.type, "value_type", "")).startswith("struct<") for column in file.schema_arrow):
        return _of_pandas(str(path), pd.DataFrame(file.read().to_pylist()), "a parquet file")

    def flat(table: Any) -> Any:
        """The table with a column for each field of a struct."""
        while any(arrow.types.is_struct(kind) for kind in table.schema.types):
            table = table.flatten()
        return table

    def read(name: str) -> np.ndarray:
        # Not read_table, to which a dot in a name (as in Wizard-V1.2) can mean a field of a struct.
        column = flat(file.read(columns=[name]))[name]
        if arrow.types.is_dictionary(column.type):  # Plain first: to_numpy gives a missing value a label.
            column = column.cast(column.type.value_type)
        if arrow.types.is_nested(column.type):
            cells = np.empty(len(column), object)
            cells[:] = column.to_pylist()
            return cells
        return column.to_numpy()

    return Sheet(str(path), flat(file.schema_arrow.empty_table()).column_names, read, "a parquet file")


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
        head = json.loads(archive.read("header.json"))
        samples = [json.loads(archive.read(name)) for name in members if name.startswith("samples/")]
        return _of_records(path, [{**sample, "log": head} for sample in samples], "an archive")
    inside = {path / name: name for name in sorted(members) if _kind(name)}
    if not inside:
        raise ValueError(f"{path} is a zip archive without a file that can be read; it has {some(members)}")

    def open_one(file: Path) -> Sheet:
        return _of_bytes(file, archive.read(inside[file]), ", in a zip archive", separator, encoding)

    return _joined(str(path), _chosen(list(inside)), open_one)


def _of_excel(path: Path, content: bytes) -> Sheet:
    optional("openpyxl")
    reading = {"sheet_name": None, "header": None, "dtype": object, "keep_default_na": False, "engine": "openpyxl"}
    try:
        book: dict[str, pd.DataFrame] = pd.read_excel(io.BytesIO(content), **reading)
    except (zipfile.BadZipFile, KeyError, OSError, ValueError) as error:
        raise ValueError(f"{path} is no Excel file (xlsx), or damaged: {error}") from None
    filled = {name: frame for name, frame in book.items() if frame.size}
    if not filled:
        raise ValueError(f"{path}, sheet {next(iter(book))!r} is empty")
    which = next((name for name, frame in filled.items() if min(frame.shape) > 2), next(iter(filled)))  # Not a cover.
    frame = filled.pop(which)
    there = frame.map(lambda cell: cell is not None and cell == cell and cell != "").to_numpy()
    rows = np.flatnonzero(there.any(axis=1))
    width = Counter(there[rows].sum(axis=1).tolist()).most_common(1)[0][0]
    full = [row for row in rows[:20] if there[row].sum() >= width - 1]
    head = next((row for row in full if frame.iloc[row][there[row]].map(type).eq(str).all()), rows[0])
    notes = [f"file: skipped row {row + 1} before the names of the columns" for row in rows if row < head]
    rows = rows[rows > head]
    if not len(rows):
        raise ValueError(f"{path}, sheet {which!r} has a line of names, but no rows")
    columns = np.flatnonzero(there[rows].any(axis=0) | there[head])
    names = [str(frame.iat[head, column]).strip() if there[head, column] else "" for column in columns]
    about = f"an Excel file, sheet {which!r}" + (f" (not read: {some(map(repr, filled), 4)})" if filled else "")

    def read(name: str) -> np.ndarray:
        return frame.iloc[rows, columns[names.index(name)]].to_numpy(dtype=object)

    return Sheet(str(path), list(names), read, about, lambda row: f"line {rows[row] + 1}", notes=notes)


def _inside(folder: Path) -> list[Path]:
    files = sorted(file for file in folder.rglob("*") if file.is_file() and _kind(file.name))
    files = [file for file in files if not file.name.startswith(".")] or files
    if not files:
        has = some(sorted(os.listdir(folder)))
        raise ValueError(f"{folder} is a folder without files that can be read ({', '.join(SUFFIXES)}); it has {has}")
    return _chosen(files)


def _chosen(files: list[Path]) -> list[Path]:
    """The files without summaries, and of samples that lm-evaluation-harness wrote again, the last."""
    files = [file for file in files if not presets.is_summary(file)] or files
    return list({re.sub(r"_\d{4}-\d\d-\d\dT[\d.:-]+(?=\.jsonl)", "", str(file)): file for file in files}.values())


def _joined(name: str, files: Sequence[Path], open_one: Callable[[Path], Sheet], named_all: bool = False) -> Sheet:
    """The rows of several files under each other, with columns for the parts of their paths that differ."""
    opened, refused = {}, {}
    for file in files:
        try:
            opened[file] = _known(open_one(file))
        except ValueError as error:
            if named_all or len(files) == 1:
                raise
            refused[file] = error
    if not opened:
        raise next(iter(refused.values()))
    main = dict.fromkeys(max(opened.values(), key=lambda sheet: sheet.num_rows).names)
    common = {file: len(main.keys() & sheet.names) for file, sheet in opened.items()}
    left = [f for f, sheet in opened.items() if common[f] <= 3 and 2 * common[f] < len(main.keys() | sheet.names)]
    others = some((file.name for file in left), 4)
    if left and named_all:
        problem = f"{others} has other columns than the largest, which has {some(map(repr, main))}"
        raise ValueError(f"{name}: {problem}: give all the same names")
    opened = {file: sheet for file, sheet in opened.items() if file not in left}
    parts = {"(file)": [_stem(file) for file in opened]}
    for depth, column in enumerate(FILE_COLUMNS[1:]):
        names = [file.parents[depth].name if len(file.parents) > depth else "" for file in opened]
        if len(set(names)) == 1:
            break
        parts[column] = names
    parts = {column: _unwrapped(names) for column, names in parts.items() if len(set(names)) > 1}
    sheets = list(opened.values())
    joined = _stacked(name, sheets, parts) if len(sheets) > 1 else sheets[0]
    joined.notes += [f"file: left aside {others}, with other columns than the largest"] if left else []
    for file, error in refused.items():
        joined.notes.append(f"file: left aside {file.name}, as {str(error).removeprefix(f'{file} ')}")
    return joined


def _unwrapped(stems: Sequence[str]) -> Sequence[str]:
    """Names of files without the words around the models that all of them have, as in `samples_gpt-4`."""
    for pattern in (r"(?P<word>[a-zA-Z]+)[_\-. ](?P<rest>.+)", r"(?P<rest>.+)[_\-. ](?P<word>[a-zA-Z]+)"):
        matches = [match for match in (re.fullmatch(pattern, stem) for stem in stems) if match]
        words = {match["word"].lower() for match in matches}
        if len(matches) == len(stems) and len(words) == 1 and words <= WRAPPERS:
            return _unwrapped([match["rest"] for match in matches])
    return stems


def _stacked(name: str, sheets: Sequence[Sheet], parts: Mapping[str, Sequence[str]]) -> Sheet:
    names = dict.fromkeys(column for sheet in sheets for column in sheet.names)
    sizes = [sheet.num_rows for sheet in sheets]
    starts = np.cumsum([0, *sizes])

    def read(column: str) -> np.ndarray:
        if column in parts:
            return np.repeat(np.array(parts[column], object), sizes)
        cells = [
            sheet.cells(column) if column in sheet.names else np.full(size, None, object)
            for sheet, size in zip(sheets, sizes, strict=True)
        ]
        return pd.concat([pd.Series(part) for part in cells], ignore_index=True).to_numpy()

    def place(row: int) -> str:
        part = int(np.searchsorted(starts, row, "right")) - 1
        return sheets[part].place(row - int(starts[part])).removeprefix(f"{name}, ")

    about = f"{len(sheets)} files, the first {sheets[0].about}"
    notes = list(dict.fromkeys(note for sheet in sheets for note in sheet.notes))
    joined = Sheet(name, [*names, *parts], read, about, place, sheets[0].separator, notes, sheets[0].preset, sheets[0].given)
    joined.doubt = next((sheet.doubt for sheet in sheets if sheet.doubt), ())
    joined.decimal_comma = any(sheet.decimal_comma for sheet in sheets)
    return joined
