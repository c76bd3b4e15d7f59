"""Delimited text: its encoding, the mark between columns, the line with their names, and rows that do not fit."""

import codecs
import csv
import io
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd

from jaxroute.core import checks
from jaxroute.data.files import import_optional
from jaxroute.data.logs.names import UNIT_KINDS, match_level
from jaxroute.data.logs.sheet import Sheet

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_SAMPLE = 1 << 18  # Characters or bytes at the beginning of a file that are looked at.
_DECIMAL_COMMA = re.compile(r"\s*[+-]?(0,\d+|\d+,(\d{1,2}|\d{4,}))\s*$")  # Not a mark between thousands.
_ENCODINGS = ("cp1252", "cp1250", "cp1251", "cp932", "gb18030", "big5", "cp949", "mac_roman")


def decode(name: str, content: bytes, encoding: str | None) -> tuple[str, str, tuple[str, ...]]:
    """Returns text, the name of its encoding, and all possible encodings if there are several."""
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
    sample = content[start : start + _SAMPLE]
    found = import_optional("charset_normalizer").from_bytes(sample, cp_isolation=list(_ENCODINGS))
    names = ["cp1252" if "cp1252" in match.could_be_from_charset else match.encoding for match in found]
    if not names:
        raise ValueError(f"{name} is in an unknown encoding: give it (encoding=..., on the command line --encoding)")
    best = "cp1252" if "cp1252" in names else names[0]
    is_sure = names[0] == "cp1252" or len(names) == 1
    return content.decode(best, errors="replace"), best, () if is_sure else tuple(names)


def open_text(path: Path, text: str, separator: str | None, encoding: str, packed: str) -> Sheet:
    """Opens delimited text, which pandas reads; lines before the names of the columns are skipped and noted."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    notes = []
    setting = re.match(r"(sep=(.))(?:\n|$)", text, re.IGNORECASE)
    if setting:
        separator, text = separator or setting[2], text[setting.end() :]
        notes.append(f"file: the first line, {setting[1]!r}, is a setting")
    mark, width = _find_separator(text, separator or _SEPARATORS)
    if width < 2:
        line = checks.show(text.strip().split("\n")[0].strip())
        give = "if another character separates columns, give it (separator=..., on the command line --separator)"
        raise ValueError(f"{path} has one column, {line}: {give}")
    first = list(islice(_rows(text, mark), 20))
    header = next((place for place, (_, fields) in enumerate(first) if len(fields) == width), 0)
    # Where numbers follow, the header has another number of fields than the rows, which is refused below.
    names = first[header][1] if first else []
    is_data = 3 * sum(is_digits(name.strip()) for name in names) >= len(names)
    num_skipped = first[header - 1][0] if header and not is_data else 0
    *skipped, body = text.split("\n", num_skipped)
    before = num_skipped + len(notes)  # The setting is a line as well.
    for line in filter(str.strip, skipped):
        notes.append(f"file: skipped the line {checks.show(line.strip())} before the names of the columns")
    fields_of_rows = (fields for _, fields in _rows(body, mark))
    num_names = len(next(fields_of_rows, []))
    if num_names == width - 1 and not any(fields[-1].strip() for fields in fields_of_rows if len(fields) == width):
        body = body.replace("\n", f"{mark}\n", 1)  # A mark at the end of every row but the first.
    frame = _read_fields(path, body, mark, before)
    names = [str(name).strip() for name in frame.iloc[0]]
    rows = np.flatnonzero((frame.iloc[1:] != "").to_numpy().any(axis=1)) + 1
    if not len(rows):
        raise ValueError(f"{path} has a line of names, but no rows")

    def read(name: str) -> np.ndarray:
        return frame.iloc[:, names.index(name)].to_numpy(dtype=object)[rows]

    def place(row: int) -> str:
        numbers = (line for line, _ in _rows(body, mark))
        return f"line {next(islice(numbers, rows[row], None), 0) + before}"

    about = f"text in {encoding}, {_SEPARATORS.get(mark, repr(mark))} between columns{packed}"
    numeric = [n for n in names if names.count(n) == 1 and any(match_level(role, n) for role in UNIT_KINDS)]
    comma = mark != "," and any(_DECIMAL_COMMA.match(str(cell)) for name in numeric for cell in read(name)[:200])
    return Sheet(str(path), list(names), read, about, place, mark, notes, decimal_comma=comma)


def _read_fields(path: Path, body: str, mark: str, before: int) -> pd.DataFrame:
    """Frame of texts, the names of the columns in its first row; refuses rows that do not fit and open quotation marks."""
    reading = {"dtype": str, "keep_default_na": False, "skipinitialspace": True, "header": None, "engine": "c"}
    try:
        frame = pd.read_csv(io.StringIO(body), sep=mark, **reading)
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        _check_widths(path, body, mark, before)
        raise ValueError(f"{path}: {error}") from None
    if (frame.iloc[:, -1].isna() | (frame.iloc[:, -1] == "")).any():  # Empty, or not there.
        _check_widths(path, body, mark, before)
    if any(frame[column].str.contains("\n", regex=False).any() for column in frame):
        try:  # Quotation marks inside of texts that are not closed.
            for _ in csv.reader(io.StringIO(body), delimiter=mark, skipinitialspace=True, strict=True):
                pass
        except csv.Error as error:
            raise ValueError(f"{path}: a quotation mark is not closed ({error}); write quotes around all texts") from None
    return frame


def _rows(text: str, mark: str) -> Iterator[tuple[int, list[str]]]:
    """Number of the last line and fields of each row that is not blank."""
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # Prompts may be long.
    rows = csv.reader(io.StringIO(text), delimiter=mark, skipinitialspace=True)
    return ((rows.line_num, fields) for fields in rows if any(fields) or len(fields) > 1)


def _find_separator(text: str, marks: Collection[str]) -> tuple[str, int]:
    """Mark that gives most of the first rows equally many fields, and how many; the names of columns come early."""
    found = {}
    for mark in marks:
        widths = [len(fields) for _, fields in islice(_rows(text[:_SAMPLE], mark), 60)]
        widths = widths[:-1] if len(text) > _SAMPLE and len(widths) > 1 else widths or [1]
        width, count = max(Counter(widths).items(), key=lambda item: (len(marks) > 1 and item[0] > 1, item[1]))
        found[mark] = (width > 1 and count >= 0.7 * len(widths), -widths.index(width), width)
    best = max(found, key=found.__getitem__)
    return best, found[best][-1]


def is_digits(field: str) -> bool:
    """Whether a field is a number in digits, which no name of a column is."""
    return field.replace(".", "", 1).replace("-", "", 1).replace(",", "", 1).isdigit()


def _check_widths(path: Path, text: str, mark: str, before: int) -> None:
    """Refuses rows with another number of fields than the header, by their line."""
    width = 0
    for line, fields in _rows(text, mark):
        width, number = width or len(fields), len(fields)
        if number == width:
            continue
        why = f"put text that contains {mark!r} into quotation marks"
        if number == width + 1:
            why += ", or add a name for the last column (or for names of rows in the first, as R writes them)"
        if number < width or fields[-1].count("\n") > 3:
            why = "is a quotation mark not closed, or the file cut off?"
        raise ValueError(f"{path}, line {line + before}: {number} fields, but the first line names {width} columns; {why}")
