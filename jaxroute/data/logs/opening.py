"""Opens a log as a sheet of named columns. The first bytes of a file decide its kind: text, JSON, archive and others; files can be joined."""

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
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jaxroute.core import checks

from ..files import errors_name, import_optional, join_names
from ..pickles import open_pickle
from . import presets
from .cells import DECIMAL_COMMA
from .names import UNIT_KINDS, WORDS, match_level
from .sheets import Sheet, frame_of, open_excel, open_parquet, records_of, sheet_in_memory, sheet_of_frame

_JSON = (".json", ".jsonl", ".ndjson")
_BINARY = (".parquet", ".feather", ".xlsx", ".pkl", ".pickle", ".npz")
_SUFFIXES = (".csv", ".tsv", ".txt", *_JSON, *_BINARY, ".eval")
_PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
_ENDING = re.compile(rf"({'|'.join(map(re.escape, _SUFFIXES + _PACKED))})+$", re.IGNORECASE)  # All suffixes of a file.
_SEPARATOR_WORDS = {"\\t": "\t", "tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_SAMPLE = 1 << 18  # Only so many characters or bytes at the beginning of a file decide its encoding and separator.
_ENCODINGS = ["cp1252", "cp1250", "cp1251", "cp932", "gb18030", "big5", "cp949", "mac_roman"]
# Columns of several files with the file and the folders of each row.
FILE_COLUMNS = ("(file)", "(folder)", "(folder 2)", "(folder 3)")
# First bytes of compressed files, with the name of the compression and the function that undoes it.
_PACKERS: dict[bytes, tuple[str, Callable[[bytes], bytes]]] = {
    b"\x1f\x8b": ("gzip", gzip.decompress),
    b"BZh": ("bzip2", bz2.decompress),
    b"\xfd7zXZ": ("xz", lzma.decompress),
    b"(\xb5/\xfd": ("zstd", lambda data: import_optional("pyarrow").CompressedInputStream(io.BytesIO(data), "zstd").read()),
}


def open_log(data: Any, separator: str | None = None, encoding: str | None = None) -> Sheet:
    """Opens a file, folder, list of files or data in memory as a sheet. `separator` and `encoding` of a text file are detected if they are None."""
    if separator is not None:
        separator = _SEPARATOR_WORDS.get(separator, separator)
        if len(separator) != 1:
            raise ValueError(f"separator must be one character such as ',' or ';' or '\\t', got {separator!r}")
    if encoding is not None:
        try:
            codecs.lookup(encoding)
        except LookupError:
            raise ValueError(f"encoding must be one such as 'utf-8' or 'windows-1252', got {encoding!r}") from None

    def open_one(path: Path) -> Sheet:
        name = path.name.lower()
        if not _suffix(name) and not name.endswith(_PACKED):
            hint = " (an old Excel file: save it as .xlsx or .csv)" if name.endswith((".xls", ".xlsb", ".ods")) else ""
            raise ValueError(f"{path} is of an unknown kind{hint}; its name must end in {', '.join(_SUFFIXES + _PACKED)}")
        with open(path, "rb") as file:
            if file.read(4) == b"PAR1":
                return open_parquet(path, path)
        return _open_bytes(path, path.read_bytes(), "", separator, encoding)

    if isinstance(data, (str, os.PathLike)):
        path = existing_path(data)
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file() and _suffix(file.name))
            files = [file for file in files if not file.name.startswith(".")] or files
            if not files:
                kinds, names = ", ".join(_SUFFIXES), join_names(sorted(os.listdir(path)))
                raise ValueError(f"{path} is a folder without files that can be read ({kinds}); it has {names}")
            return _join_files(str(path), _without_summaries(files), open_one)
        with errors_name(path):
            return _apply_preset(open_one(path))
    if isinstance(data, (list, tuple)) and data and all(isinstance(item, (str, os.PathLike)) for item in data):
        return _join_files(f"the files {join_names(data, 3)}", list(map(existing_path, data)), open_one, listed=True)
    return _apply_preset(sheet_in_memory(data))


def existing_path(path: str | os.PathLike) -> Path:
    """Returns the path of an existing file or folder; if there is none, the error proposes similar names."""
    if not os.fspath(path):
        raise ValueError("data must be the name of a file, got an empty text")
    if "://" in str(path):
        raise ValueError(f"data must be the name of a file, got the address {str(path)!r}: download it first")
    file = Path(path)
    try:
        exists, folder = file.exists(), file.parent
    except (OSError, ValueError) as error:
        raise ValueError(f"data must be the name of a file, got {checks.show(str(path))}: {error}") from None
    if not exists and not folder.is_dir():
        raise ValueError(f"{path}: there is no such file; the folder {str(folder)!r} does not exist either")
    if not exists:
        names = sorted(os.listdir(folder))
        readable = [name for name in names if _suffix(name)]
        close = difflib.get_close_matches(file.name, names) or difflib.get_close_matches(file.stem, readable, cutoff=0.5)
        hint = f"; did you mean {' or '.join(repr(str(folder / name)) for name in close)}?" if close else ""
        raise ValueError(f"{path}: there is no such file{hint}")
    if file.is_file() and not file.stat().st_size:
        raise ValueError(f"{path} is empty: it has no bytes")
    return file


def _suffix(name: str) -> str:
    """Returns the suffix of a file name, ignoring suffixes of compression such as ".gz"; empty for unknown kinds of files."""
    ending = _ENDING.search(name)
    return next((s for s in reversed(re.findall(r"\.\w+", ending[0].lower())) if s not in _PACKED), "") if ending else ""


def _open_bytes(path: Path, content: bytes, packed: str, separator: str | None, encoding: str | None) -> Sheet:
    """Opens a file's `content` by its first bytes or its name. `packed` is its compression in words, for messages; the rest is as in `open_log`."""
    suffix = _suffix(path.name)
    for magic, (compression, unpack) in _PACKERS.items():
        if content.startswith(magic):
            try:
                content = unpack(content)
            except (EOFError, zlib.error, OSError, lzma.LZMAError, MemoryError) as error:
                raise ValueError(f"{path} is a damaged {compression} file: {error}") from None
            return _open_bytes(path, content, f", compressed by {compression}", separator, encoding)
    if content.startswith(b"PK\x03\x04"):
        return _open_archive(path, content, separator, encoding)
    if content.startswith(b"PAR1"):
        return open_parquet(path, io.BytesIO(content))
    if content.startswith(b"ARROW1"):
        feather = import_optional("pyarrow.feather")
        return sheet_of_frame(str(path), feather.read_table(io.BytesIO(content)).to_pandas(), "a feather file")
    if content.startswith(b"\x80") and suffix in (".pkl", ".pickle", ""):
        opened = open_pickle(path, content)
        if isinstance(opened, dict):
            columns, preset = presets.routereval_columns(path, opened)
            return sheet_of_frame(str(path), pd.DataFrame(columns), "a pickle", preset=preset)
        return Sheet(str(path), *opened, "a pickled data frame")
    if suffix in _BINARY:
        kind = {".xlsx": "an Excel file (xlsx)", ".parquet": "a parquet file"}.get(suffix, f"a {suffix} file")
        raise ValueError(f"{path} is not {kind}, or is damaged or cut off")
    text, encoding, encodings = _decode(str(path), content, encoding)
    if not text.strip():
        raise ValueError(f"{path} is empty")
    if suffix in _JSON or (suffix not in (".csv", ".tsv") and text.lstrip().startswith(("[", "{"))):
        sheet = _open_json(path, text, f" in {encoding}{packed}")
    else:
        sheet = _open_text(path, text, separator or ("\t" if suffix == ".tsv" else None), encoding, packed)
    sheet.encodings = encodings
    if encodings:
        sheet.notes.append(f"file: its encoding may be {' or '.join(encodings)}; no name depends on it (--encoding decides)")
    return sheet


def _decode(name: str, content: bytes, encoding: str | None) -> tuple[str, str, tuple[str, ...]]:
    """Decodes a text file; `encoding` is detected if None. Returns the text, its encoding's name, and all possible encodings (if several fit)."""
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
            raise ValueError(f"{name} is not text, despite its name: it has bytes that text never has")
        return content.decode("utf-8-sig"), "UTF-8", ()
    except UnicodeDecodeError as error:
        text = content.decode("utf-8", errors="replace")
        bad = text.count("\ufffd")
        if 5 * bad < sum(ord(letter) > 127 for letter in text[:_SAMPLE]) or (bad == 1 and error.start >= len(content) - 4):
            return text, f"UTF-8 with {bad} damaged places, the first at byte {error.start:,}", ()
        start = max(0, min(error.start - 2000, len(content) - _SAMPLE))
    found = import_optional("charset_normalizer").from_bytes(content[start : start + _SAMPLE], cp_isolation=_ENCODINGS)
    names = ["cp1252" if "cp1252" in match.could_be_from_charset else match.encoding for match in found]
    if not names:
        raise ValueError(f"{name} is in an unknown encoding: give it (encoding=..., on the command line --encoding)")
    best = "cp1252" if "cp1252" in names else names[0]
    is_sure = names[0] == "cp1252" or len(names) == 1
    return content.decode(best, errors="replace"), best, () if is_sure else tuple(names)


def _open_text(path: Path, text: str, separator: str | None, encoding: str, packed: str) -> Sheet:
    """Opens a text with columns; lines above their names are skipped. A `separator` of None is detected. `encoding` and `packed` are for messages."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    notes = []
    if setting := re.match(r"(sep=(.))(?:\n|$)", text, re.IGNORECASE):
        separator, text = separator or setting[2], text[setting.end() :]
        notes.append(f"file: the first line, {setting[1]!r}, is a setting")
    mark, width = _find_separator(text, separator or _SEPARATORS)
    if width < 2:
        first_line = text.strip().partition("\n")[0].strip()
        how = "if another character separates columns, give it (--separator)"
        raise ValueError(f"{path} has one column, {checks.show(first_line)}: {how}")
    rows, before = list(_rows(text, mark)), len(notes)  # The setting is a line as well.
    header = next((place for place, (_, fields) in enumerate(rows[:20]) if len(fields) == width), 0)
    if 3 * sum(map(is_digits, rows[header][1])) >= len(rows[header][1]):
        header = 0  # The names are another number than the fields of the rows, and are refused below.
    lines, skip = text.split("\n"), rows[header - 1][0] if header else 0
    skipped = [checks.show(line.strip()) for line in lines[:skip] if line.strip()]
    notes += [f"file: skipped the line {line} before the names of the columns" for line in skipped]
    names, rows = [name.strip() for name in rows[header][1]], rows[header + 1 :]
    if len(names) == width - 1 and not any(fields[-1].strip() for _, fields in rows if len(fields) == width):
        names.append("")  # A mark at the end of every row but the first.
    for line, fields in rows:
        if len(fields) != len(names):
            problem = f"{len(fields)} fields, but the first line names {len(names)} columns"
            why = f"is a quotation mark not closed, text with {mark!r} not in quotation marks, or the file cut off?"
            raise ValueError(f"{path}, line {line + before}: {problem}; {why}")
    if any("\n" in field for _, fields in rows for field in fields):
        try:  # Quotation marks inside of texts that are not closed.
            list(csv.reader(io.StringIO("\n".join(lines[skip:])), delimiter=mark, skipinitialspace=True, strict=True))
        except csv.Error as error:
            raise ValueError(f"{path}: a quotation mark is not closed ({error}); write quotes around all texts") from None
    rows = [(line, fields) for line, fields in rows if any(fields)]
    if not rows:
        raise ValueError(f"{path} has a line of names, but no rows")

    def read(name: str) -> np.ndarray:
        place = names.index(name)
        return np.array([fields[place] for _, fields in rows], object)

    about = f"text in {encoding}, {_SEPARATORS.get(mark, repr(mark))} between columns{packed}"
    numeric = [n for n in names if names.count(n) == 1 and any(match_level(role, n) for role in UNIT_KINDS)]
    comma = mark != "," and any(DECIMAL_COMMA.fullmatch(cell) for name in numeric for cell in read(name)[:200])
    sheet = Sheet(str(path), list(names), read, about, lambda row: f"line {rows[row][0] + before}", mark, notes)
    sheet.decimal_comma = comma
    return sheet


def _rows(text: str, mark: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the line number and the fields, which are separated by `mark`, of each row of a text that is not blank."""
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # Prompts may be long.
    rows = csv.reader(io.StringIO(text), delimiter=mark, skipinitialspace=True)
    return ((rows.line_num, fields) for fields in rows if any(fields) or len(fields) > 1)


def _find_separator(text: str, marks: Collection[str]) -> tuple[str, int]:
    """Returns which of the characters `marks` separates the columns, and how many fields most of the first rows then have."""
    found = {}
    for mark in marks:
        widths = [len(fields) for _, fields in islice(_rows(text[:_SAMPLE], mark), 60)]
        widths = widths[:-1] if len(text) > _SAMPLE and len(widths) > 1 else widths or [1]
        width, count = max(Counter(widths).items(), key=lambda item: (len(marks) > 1 and item[0] > 1, item[1]))
        found[mark] = (width > 1 and count >= 0.7 * len(widths), -widths.index(width), width)
    best = max(found, key=found.__getitem__)
    return best, found[best][-1]


def is_digits(field: str) -> bool:
    """Whether a text is a number in digits, and therefore not the name of a column."""
    return re.fullmatch(r"-?(\d+[.,]?\d*|[.,]\d+)", field.strip()) is not None


def _open_json(path: Path, text: str, about: str) -> Sheet:
    """Opens a JSON file, or a file with JSON in each line; `about`, such as " in utf-8", is added to "JSON" in messages."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    is_json, by_line = _suffix(path.name) == ".json", False
    try:
        value = json.loads(text)
        if not is_json and isinstance(value, dict) and len(lines) == 1:
            value, by_line = [value], True
    except RecursionError:
        raise ValueError(f"{path} is JSON of too many levels") from None
    except json.JSONDecodeError as error:
        if "Extra data" not in error.msg and (is_json or len(lines) == 1):
            cut = ": is the file cut off?" if error.pos >= len(text.rstrip()) - 1 else ""
            raise ValueError(f"{path}, line {error.lineno} is not JSON: {error.msg}{cut}") from None
        value, by_line = [], True
        for number, line in lines:
            try:
                value.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path}, line {number} is not JSON: {error}") from None
            if not isinstance(value[-1], dict):
                raise ValueError(f"{path}, line {number} must be an object {{...}}, got {value[-1]!r:.60}") from None
    if isinstance(value, dict) and {"eval", "samples"} <= value.keys():  # A log of Inspect.
        records, notes = [{**sample, "log": value} for sample in value["samples"]], []
    else:
        records, notes = records_of(str(path), value)

    def place(row: int) -> str:
        return f"line {lines[row][0]}" if by_line else f"record {row} (from 0)"

    return _sheet_of_records(path, records, ("JSON lines" if by_line else "JSON") + about, place, notes=notes)


def _sheet_of_records(path: Path, records: list, about: str, place: Callable | None = None, **attributes: Any) -> Sheet:
    """Converts `records` to a `Sheet`, by the rules of their format if it is known.

    `about` is their kind in words, `place(i)` the place of record `i` in the file, for messages; `attributes` are further fields of the sheet.
    """
    rows, preset = presets.read_records(path, records)
    originals = [row.pop(presets.RECORD, {}) for row in rows] if preset.converts else []
    frame = frame_of(rows)
    place = place if rows is records and len(frame) == len(records) else None
    sheet = sheet_of_frame(str(path), frame, about, preset=preset, place_of=place, **attributes)
    if len(originals) == sheet.num_rows:
        sheet.records = originals
    if (preset.keep or preset.unique) and len(rows) < len(records):
        left = f"{len(records) - len(rows):,} of {len(records):,}"
        sheet.notes.append(f"file: left out {left} records of {path.name}, which are repeated or no answers that count")
    return sheet


def _apply_preset(sheet: Sheet) -> Sheet:
    """Renames and converts the columns of a sheet to those of a log, if it has the format of a known tool or data set."""
    preset = sheet.preset if sheet.preset.name else presets.find_preset(sheet.names)
    if preset.refused:
        raise ValueError(f"{sheet.name} {preset.refused}")
    if preset.converts and not sheet.preset.name:
        columns = {name: sheet.cells(name).astype(object) for name in dict.fromkeys(sheet.names)}
        records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        sheet = _sheet_of_records(Path(sheet.name), records, sheet.about, notes=sheet.notes, encodings=sheet.encodings)
    sheet.preset = preset
    sheet.given = {role: column for role, column in preset.given.items() if "*" in column or column in sheet.names}
    return sheet


def _open_archive(path: Path, content: bytes, separator: str | None, encoding: str | None) -> Sheet:
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path} is a damaged zip archive (npz, xlsx or zip): {error}") from None
    members = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX")]
    if members and all(name.endswith(".npy") for name in members):
        raise ValueError(f"{path} is an npz file of arrays: read it alone")
    if any(name.startswith("xl/") for name in members):
        return open_excel(path, content)
    if "header.json" in members:
        head = json.loads(archive.read("header.json"))
        samples = [json.loads(archive.read(name)) for name in members if name.startswith("samples/")]
        return _sheet_of_records(path, [{**sample, "log": head} for sample in samples], "an archive")
    if not (readable := {path / name: name for name in sorted(members) if _suffix(name)}):
        raise ValueError(f"{path} is a zip archive without a file that can be read; it has {join_names(members)}")

    def open_one(file: Path) -> Sheet:
        return _open_bytes(file, archive.read(readable[file]), ", in a zip archive", separator, encoding)

    return _join_files(str(path), _without_summaries(readable), open_one)


def _without_summaries(files: Iterable[Path]) -> list[Path]:
    """Drops files that only summarise others; if lm-evaluation-harness has written the same samples several times, only the last file stays."""
    files = [file for file in files if not presets.is_summary(file)] or [*files]
    return list({re.sub(r"_\d{4}-\d\d-\d\dT[\d.:-]+(?=\.jsonl)", "", str(file)): file for file in files}.values())


def _join_files(name: str, files: Sequence[Path], open_one: Callable[[Path], Sheet], listed: bool = False) -> Sheet:
    """Opens files by `open_one` and joins their rows to the sheet `name`. Files without logs are skipped, or refused if the caller `listed` them."""
    opened, refused = {}, {}
    for file in files:
        try:
            opened[file] = _apply_preset(open_one(file))
        except ValueError as error:
            if listed or len(files) == 1:
                raise
            refused[file] = error
    if not opened:
        raise next(iter(refused.values()))
    main = dict.fromkeys(max(opened.values(), key=lambda sheet: sheet.num_rows).names)
    common = {file: len(main.keys() & sheet.names) for file, sheet in opened.items()}
    left = [f for f, sheet in opened.items() if common[f] <= 3 and 2 * common[f] < len(main.keys() | sheet.names)]
    others = join_names((file.name for file in left), 4)
    if left and listed:
        names = join_names(map(repr, main))
        raise ValueError(f"{name}: {others} has other columns than the largest, which has {names}: give all the same names")
    opened = {file: sheet for file, sheet in opened.items() if file not in left}
    joined = _stack(name, opened) if len(opened) > 1 else next(iter(opened.values()))
    joined.notes += [f"file: skipped {others}, with other columns than the largest"] if left else []
    joined.notes += [f"file: skipped {file.name}, as {str(e).removeprefix(f'{file} ')}" for file, e in refused.items()]
    return joined


def _stack(name: str, opened: dict[Path, Sheet]) -> Sheet:
    """Joins the rows of sheets (`opened`, by path) to one sheet. Parts of the paths that differ become columns, since they may name models."""
    sheets, parts = list(opened.values()), {"(file)": [_ENDING.sub("", file.name) for file in opened]}
    for depth, column in enumerate(FILE_COLUMNS[1:]):
        folders = [file.parents[depth].name if len(file.parents) > depth else "" for file in opened]
        if len(set(folders)) == 1:
            break
        parts[column] = folders
    parts = {column: _unwrapped(texts) for column, texts in parts.items() if len(set(texts)) > 1}
    names = dict.fromkeys(column for sheet in sheets for column in sheet.names)
    sizes = [sheet.num_rows for sheet in sheets]
    starts = np.cumsum([0, *sizes])

    def read(column: str) -> np.ndarray:
        if column in parts:
            return np.repeat(np.array(parts[column], object), sizes)
        cells = [sheet.cells(column) if column in sheet.names else np.full(sheet.num_rows, None, object) for sheet in sheets]
        return pd.concat([pd.Series(part) for part in cells], ignore_index=True).to_numpy()

    def place(row: int) -> str:
        part = int(np.searchsorted(starts, row, "right")) - 1
        return sheets[part].place(row - int(starts[part])).removeprefix(f"{name}, ")

    about = f"{len(sheets)} files, the first {sheets[0].about}"
    notes = list(dict.fromkeys(note for sheet in sheets for note in sheet.notes))
    joined = Sheet(name, [*names, *parts], read, about, place, sheets[0].separator, notes, sheets[0].preset, sheets[0].given)
    joined.encodings = next((sheet.encodings for sheet in sheets if sheet.encodings), ())
    joined.decimal_comma = any(sheet.decimal_comma for sheet in sheets)
    return joined


def _unwrapped(stems: list[str]) -> list[str]:
    """Removes a word such as "samples" that begins or ends all of these names of files, as in `samples_gpt-4`."""
    for pattern in (r"(?P<word>[a-zA-Z]+)[_\-. ](?P<rest>.+)", r"(?P<rest>.+)[_\-. ](?P<word>[a-zA-Z]+)"):
        matches = [match for match in (re.fullmatch(pattern, stem) for stem in stems) if match]
        words = {match["word"].lower() for match in matches}
        if len(matches) == len(stems) and len(words) == 1 and words <= WORDS["wrappers"]:
            return _unwrapped([match["rest"] for match in matches])
    return stems
