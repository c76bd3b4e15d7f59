"""Opening a log of any kind as a sheet: the path, the kind of file by its first bytes, archives, and several files as one."""

import bz2
import codecs
import difflib
import gzip
import io
import json
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jaxroute.core import checks

from ..files import errors_name, import_optional, join_names
from ..pickles import open_pickle
from . import presets
from .names import WORDS
from .records import frame_of, records_of
from .sheet import Sheet, open_excel, open_parquet, sheet_in_memory, sheet_of_frame
from .text import decode, open_text

_JSON = (".json", ".jsonl", ".ndjson")
_BINARY = (".parquet", ".feather", ".xlsx", ".pkl", ".pickle", ".npz")
_SUFFIXES = (".csv", ".tsv", ".txt", *_JSON, *_BINARY, ".eval")
_PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
_SEPARATOR_WORDS = {"\\t": "\t", "tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}
# Columns of several files with the file and the folders of each row.
FILE_COLUMNS = ("(file)", "(folder)", "(folder 2)", "(folder 3)")
# First bytes of compressed files, with the name of the compression and the function that undoes it.
_PACKERS: dict[bytes, tuple[str, Callable[[bytes], bytes]]] = {
    b"\x1f\x8b": ("gzip", gzip.decompress),
    b"BZh": ("bzip2", bz2.decompress),
    b"\xfd7zXZ": ("xz", lzma.decompress),
    b"\x28\xb5\x2f\xfd": ("zstd", lambda content: _input_stream(content, "zstd").read()),
}
# First bytes of files that are never read.
_REFUSED = {
    b"\x93NUMPY": "an npy file of one array without a name",
    b"\xd0\xcf\x11\xe0": "an old Excel file: save it as .xlsx or .csv",
    b"SQLite": "a database: export its table as csv",
    b"%PDF": "a PDF file",
    b"\x80": "a pickle",
}


def _input_stream(content: bytes, compression: str) -> Any:
    return import_optional("pyarrow").input_stream(io.BytesIO(content), compression=compression)


def open_log(data: Any, separator: str | None = None, encoding: str | None = None) -> Sheet:
    """Opens a file, a folder, files or data in memory; finds the mark between columns of text and its encoding where they are None."""
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
        return _open_file(path, separator, encoding)

    if isinstance(data, (str, os.PathLike)):
        path = existing_path(data)
        if path.is_dir():
            return _join_files(str(path), _files_in(path), open_one)
        with errors_name(path):
            return _apply_preset(open_one(path))
    if isinstance(data, (list, tuple)) and data and all(isinstance(item, (str, os.PathLike)) for item in data):
        return _join_files(f"the files {join_names(data, 3)}", list(map(existing_path, data)), open_one, listed=True)
    return _apply_preset(sheet_in_memory(data))


def existing_path(path: str | os.PathLike) -> Path:
    """Returns the path of an existing file or folder; otherwise, the error proposes similar names."""
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
    """Suffix of a name without those of compression, empty if it is unknown."""
    name = name.lower()
    while name.endswith(_PACKED):
        name = name[: name.rfind(".")]
    return next((suffix for suffix in _SUFFIXES if name.endswith(suffix)), "")


def _open_file(path: Path, separator: str | None, encoding: str | None) -> Sheet:
    name = path.name.lower()
    if not _suffix(name) and not name.endswith(_PACKED):
        hint = " (an old Excel file: save it as .xlsx or .csv)" if name.endswith((".xls", ".xlsb", ".ods")) else ""
        suffixes = ", ".join((*_SUFFIXES, *_PACKED))
        raise ValueError(f"{path} is of an unknown kind{hint}; expected a name that ends in {suffixes}")
    with open(path, "rb") as file:
        if file.read(4) == b"PAR1":
            return open_parquet(path, path)
    return _open_bytes(path, path.read_bytes(), "", separator, encoding)


def _open_bytes(path: Path, content: bytes, packed: str, separator: str | None, encoding: str | None) -> Sheet:
    """Opens content by its first bytes and then by its name."""
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
        return _open_pickle(path, content)
    for magic, kind in _REFUSED.items():
        if content.startswith(magic):
            raise ValueError(f"{path} is {kind}, despite its name")
    if suffix in _BINARY:
        kind = {".xlsx": "an Excel file (xlsx)", ".parquet": "a parquet file"}.get(suffix, f"a {suffix} file")
        raise ValueError(f"{path} is not {kind}, or is damaged or cut off")
    text, encoding, encodings = decode(str(path), content, encoding)
    if not text.strip():
        raise ValueError(f"{path} is empty")
    if suffix in _JSON or (suffix not in (".csv", ".tsv") and text.lstrip().startswith(("[", "{"))):
        sheet = _open_json(path, text, f" in {encoding}{packed}")
    else:
        sheet = open_text(path, text, separator or ("\t" if suffix == ".tsv" else None), encoding, packed)
    sheet.encodings = encodings
    if encodings:
        either = " or ".join(encodings)
        sheet.notes.append(f"file: its encoding may be {either}; no name depends on it (--encoding decides)")
    return sheet


def _open_pickle(path: Path, content: bytes) -> Sheet:
    opened = open_pickle(path, content)
    if isinstance(opened, list):
        return sheet_of_frame(str(path), frame_of(opened), "a pickled list of records")
    if isinstance(opened, dict):
        columns, preset = presets.routereval_columns(path, opened)
        return sheet_of_frame(str(path), pd.DataFrame(columns), "a pickle", preset=preset)
    return Sheet(str(path), *opened, "a pickled data frame")


def _open_json(path: Path, text: str, about: str) -> Sheet:
    kind, has_lines, is_json = "JSON", "\n" in text.strip(), _suffix(path.name) == ".json"
    try:
        value = json.loads(text)
        if not is_json and isinstance(value, dict) and not has_lines:
            value, kind = [value], "JSON lines"  # One line.
    except RecursionError:
        raise ValueError(f"{path} is JSON of too many levels") from None
    except json.JSONDecodeError as error:
        if "Extra data" not in error.msg and (is_json or not has_lines):
            cut = ": is the file cut off?" if error.pos >= len(text.rstrip()) - 1 else ""
            raise ValueError(f"{path}, line {error.lineno} is not JSON: {error.msg}{cut}") from None
        value, kind = _json_lines(path, text), "JSON lines"
    if isinstance(value, dict) and {"eval", "samples"} <= value.keys():  # A log of Inspect.
        records, notes = [{**sample, "log": value} for sample in value["samples"]], []
    else:
        records, notes = records_of(str(path), value)

    def place(row: int) -> str:
        if kind == "JSON":
            return f"record {row} (from 0)"
        lines = (number for number, line in enumerate(text.split("\n"), 1) if line.strip())
        return f"line {next(islice(lines, row, None))}"

    return _sheet_of_records(path, records, kind + about, place, notes=notes)


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


def _sheet_of_records(
    path: Path, records: list[dict], about: str, place: Callable | None = None, **attributes: Any
) -> Sheet:
    """Sheet of records in the columns of their format; `place` names the place of a record."""
    rows, preset = presets.read_records(path, records)
    frame = frame_of(rows)
    same_rows = rows is records and len(frame) == len(records)
    return sheet_of_frame(str(path), frame, about, preset=preset, place_of=place if same_rows else None, **attributes)


def _apply_preset(sheet: Sheet) -> Sheet:
    """The same sheet in the columns of its format, if that is known."""
    preset = sheet.preset or presets.find_preset(sheet.names)
    if preset is None:
        return sheet
    if preset.refused:
        raise ValueError(f"{sheet.name} {preset.refused}")
    if (preset.reader or preset.columns) and sheet.preset is None:
        columns = {name: sheet.cells(name).astype(object) for name in dict.fromkeys(sheet.names)}
        records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        attributes = {"notes": sheet.notes, "encodings": sheet.encodings}
        sheet = _sheet_of_records(Path(sheet.name), records, sheet.about, **attributes)
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
    readable = {path / name: name for name in sorted(members) if _suffix(name)}
    if not readable:
        raise ValueError(f"{path} is a zip archive without a file that can be read; it has {join_names(members)}")

    def open_one(file: Path) -> Sheet:
        return _open_bytes(file, archive.read(readable[file]), ", in a zip archive", separator, encoding)

    return _join_files(str(path), _without_summaries(readable), open_one)


def _files_in(folder: Path) -> list[Path]:
    files = sorted(file for file in folder.rglob("*") if file.is_file() and _suffix(file.name))
    files = [file for file in files if not file.name.startswith(".")] or files
    if not files:
        has = join_names(sorted(os.listdir(folder)))
        raise ValueError(f"{folder} is a folder without files that can be read ({', '.join(_SUFFIXES)}); it has {has}")
    return _without_summaries(files)


def _without_summaries(files: Iterable[Path]) -> list[Path]:
    """Files without summaries; of samples that lm-evaluation-harness wrote several times, the last."""
    files = [file for file in files if not presets.is_summary(file)] or [*files]
    return list({re.sub(r"_\d{4}-\d\d-\d\dT[\d.:-]+(?=\.jsonl)", "", str(file)): file for file in files}.values())


def _join_files(name: str, files: Sequence[Path], open_one: Callable[[Path], Sheet], listed: bool = False) -> Sheet:
    """Joins the rows of several files; of files that the caller did not list, those that are not logs are left out."""
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
        problem = f"{others} has other columns than the largest, which has {join_names(map(repr, main))}"
        raise ValueError(f"{name}: {problem}: give all the same names")
    opened = {file: sheet for file, sheet in opened.items() if file not in left}
    sheets = list(opened.values())
    joined = _stack(name, sheets, _path_columns([*opened])) if len(sheets) > 1 else sheets[0]
    joined.notes += [f"file: skipped {others}, with other columns than the largest"] if left else []
    for file, error in refused.items():
        joined.notes.append(f"file: skipped {file.name}, as {str(error).removeprefix(f'{file} ')}")
    return joined


def _path_columns(files: Sequence[Path]) -> dict[str, Sequence[str]]:
    """Columns with the parts of paths that differ, a cell for each file."""
    columns = {"(file)": list(map(_stem, files))}
    for depth, column in enumerate(FILE_COLUMNS[1:]):
        folders = [file.parents[depth].name if len(file.parents) > depth else "" for file in files]
        if len(set(folders)) == 1:
            break
        columns[column] = folders
    return {column: _unwrapped(parts) for column, parts in columns.items() if len(set(parts)) > 1}


def _stem(path: Path) -> str:
    while path.suffix.lower() in (*_SUFFIXES, *_PACKED):
        path = path.with_suffix("")
    return path.name


def _unwrapped(stems: Sequence[str]) -> Sequence[str]:
    """Names of files without words around the models that all of them have, as in `samples_gpt-4`."""
    for pattern in (r"(?P<word>[a-zA-Z]+)[_\-. ](?P<rest>.+)", r"(?P<rest>.+)[_\-. ](?P<word>[a-zA-Z]+)"):
        matches = [match for match in (re.fullmatch(pattern, stem) for stem in stems) if match]
        words = {match["word"].lower() for match in matches}
        if len(matches) == len(stems) and len(words) == 1 and words <= WORDS["wrappers"]:
            return _unwrapped([match["rest"] for match in matches])
    return stems


def _stack(name: str, sheets: Sequence[Sheet], parts: Mapping[str, Sequence[str]]) -> Sheet:
    """Sheet with the rows of several, and with columns for the parts of their paths."""
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
