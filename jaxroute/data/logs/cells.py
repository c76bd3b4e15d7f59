"""Converts cells of a table to numbers (also verdicts such as "correct"), texts and dates; a cell that cannot be read is refused with its place."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from jaxroute.core import checks

from ..files import join_names
from .names import UNIT_KINDS, UNITS, VERDICTS, WORDS, has_unknown_unit, unit_of

if TYPE_CHECKING:
    from .sheets import Sheet

# Letters of Inspect's logs (correct, incorrect, partial, no answer), read only if all cells are such letters.
_LETTERS = {"c": 1.0, "i": 0.0, "p": 0.5, "n": 0.0}
_CURRENCY_SIGNS = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "us$": "USD"}
_CURRENCY = re.compile(r"us\$|[$€£¥]|\b(USD|EUR|GBP|JPY|CHF|CNY|INR|CAD|AUD|SEK|BRL)\b", re.IGNORECASE)
_NUMBER = re.compile(r"^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$", re.IGNORECASE)
# Units behind the number in a cell, with their factors to seconds and joules.
_CELL_UNITS = {"us": 1e-6, "ms": 1e-3, "msec": 1e-3, **dict.fromkeys(("s", "sec", "secs", "seconds", "j"), 1.0), "min": 60.0}
_FEWEST_TOKENS = 10.0  # Fractions with a median below this are thousands of tokens, and not means of several answers.
_NOT_NEGATIVE = ("cost", "tokens", "latency", "price")
# A comma that is not between thousands, perhaps with points between thousands or a currency.
DECIMAL_COMMA = re.compile(r"[^\d.,]*([\d.]*\.\d+,\d+|0\d*,\d+|\d*,(\d{0,2}|\d{4,}|\d+[eE][+-]?\d+)|\d{4,},\d+)[^\d.,]*")
_THOUSANDS = r"[1-9]\d{0,2}(\.\d{3})+"
_LISTS, _CONTAINERS = (list, tuple, np.ndarray), (list, tuple, np.ndarray, dict)
_Parsed = tuple[float, str | None, bool]  # Number in a cell, its currency, and whether it has a % sign.


@dataclass
class Numbers:
    """Numbers read from a column, in seconds, USD or another fixed unit, and the % signs, currency and unit in its cells or name."""

    values: np.ndarray  #: `[R]` float64, NaN where a cell is empty.
    percent: np.ndarray | None = None  #: `[R]` whether the cell had a % sign; None if no cell had.
    named_percent: bool = False  #: Whether the column's name has percent in it.
    currency: str | None = None  #: Currency of costs, if cells or the name have one.
    unit_known: bool = False  #: Whether cells or the name have a unit.
    notes: list[str] = field(default_factory=list)  #: Conversions, in words.


def is_empty(cell: Any) -> bool:
    """Whether a cell has no content, or a word that means so, such as "n/a"."""
    if isinstance(cell, str):
        return not cell.strip() or cell.strip().lower().replace(". ", ".") in WORDS["empty"]
    return len(cell) == 0 if isinstance(cell, _CONTAINERS) else cell is None or bool(pd.isna(cell))


def which_empty(cells: np.ndarray) -> np.ndarray:
    """Returns a mask (bool) of the empty cells of a column; equal cells are checked only once."""
    try:
        codes, different = pd.factorize(cells, use_na_sentinel=False)
    except TypeError:  # Lists cannot be hashed.
        return np.array([is_empty(cell) for cell in cells], bool)
    return np.array([is_empty(cell) for cell in different], bool)[codes]


def first_cells(cells: np.ndarray, number: int = 200) -> list[Any]:
    """Returns the first `number` cells of a column that are not empty."""
    return list(islice((cell for cell in cells if not is_empty(cell)), number))


def key_text(cell: object) -> str:
    """Converts an id or a label to text. A whole number that pandas stored as a float, because its column has gaps, gets no decimal point."""
    if isinstance(cell, str):
        return cell.strip()
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return "" if is_empty(cell) else str(cell)


def key_texts(cells: np.ndarray) -> np.ndarray:
    if cells.dtype.kind in "iub":
        return cells.astype(str).astype(object)
    return np.array([key_text(cell) for cell in cells], object)


def examples(cells: np.ndarray) -> str:
    """Returns the first three different cells, shortened and joined by commas, for a message about a column."""
    different = list(dict.fromkeys(str(cell) for cell in first_cells(cells)))
    shown = [text if len(text) <= 24 else text[:23] + "…" for text in different[:3]]
    return ", ".join(shown) + (", ..." if len(different) > 3 else "")


def read_numbers(sheet: "Sheet", column: str, role: str, units: Mapping | None = None, name: str | None = None) -> Numbers:
    """Reads a column as numbers in the standard unit of its role: seconds, USD, USD per million tokens, or fractions.

    The unit of the column is the one in `units` (by role), or else the one in `name` (default: the name of the column).
    """
    other = "tokens" if role.startswith("tokens") else "length" if role.endswith("_chars") else "feature"
    kind = UNIT_KINDS.get(role, other)
    cells = sheet.cells(column)
    numbers, has_unit = Numbers(np.full(len(cells), np.nan)), np.zeros(len(cells), bool)
    if cells.dtype.kind in "biuf":
        numbers.values = cells.astype(np.float64)
    elif cells.dtype.kind == "m":
        numbers.values = cells.astype("timedelta64[ns]").astype(np.float64) / 1e9
        has_unit[:] = True
    else:
        pointed = sheet.decimal_comma and any(isinstance(cell, str) and "." in cell for cell in cells)
        simple = (isinstance(cell, (str, int, float, type(None))) and not isinstance(cell, bool) for cell in cells[:1000])
        if not pointed and all(simple):
            with suppress(OverflowError):  # A whole number of hundreds of digits is refused below, with its place.
                numbers.values = np.array(pd.to_numeric(pd.Series(cells), errors="coerce"), np.float64)
        rest = np.array([row for row in np.flatnonzero(np.isnan(numbers.values)) if not is_empty(cells[row])], int)
        if rest.size:
            has_unit = _parse_cells(sheet, column, kind, rest, numbers)
    _check_range(sheet, column, kind, numbers.values)
    if role not in UNIT_KINDS:
        return numbers
    units, name = units or {}, column if name is None else name
    if role not in units and has_unknown_unit(kind, name):
        known = "|".join(list(UNITS[kind])[:6])
        raise ValueError(f"{sheet.name}: the unit in the name of {column!r} is not known: give it (--unit {role}={known})")
    factor, currency, unit = unit_of(role, name, units)
    bare = ~np.isnan(numbers.values) & ~has_unit
    if kind == "score":
        numbers.named_percent = bool(unit)
    elif unit:
        numbers.values = np.where(bare, numbers.values * factor, numbers.values)
        numbers.notes += [f"in {unit}, times {factor:g}"] if factor != 1 and bare.any() else []
    if not unit and has_unit.any() and bare.any():
        raise sheet.cell_error(np.argmax(bare), column, " without a unit, but others have one: write all in the same way")
    numbers.unit_known = bool(unit or has_unit.any())
    numbers.currency = numbers.currency or currency
    return numbers


def _check_range(sheet: "Sheet", column: str, kind: str, values: np.ndarray) -> None:
    """Raises `ValueError` for an infinite value of a column, a negative one of a `kind` such as "cost", or tokens with doubtful fractions (1.234)."""
    if kind in ("tokens", "length") and sheet.separator not in (None, ","):
        cells, fractions = sheet.cells(column), np.flatnonzero(np.nan_to_num(values, posinf=0, neginf=0) % 1)
        # Other fractions are means of several answers.
        if fractions.size and all(isinstance(c, str) and re.fullmatch(_THOUSANDS, c.strip()) for c in cells[fractions]):
            raise sheet.cell_error(fractions[0], column, ": is the point between thousands? write numbers without marks")
    if kind == "tokens" and np.nan_to_num(values % 1).astype(bool).mean() > 0.5 and np.nanmedian(values) < _FEWEST_TOKENS:
        problem = ", not a whole number: are they thousands of tokens? write numbers of tokens"
        raise sheet.cell_error(np.argmax(values % 1 > 0), column, problem)
    rule = "finite and at least 0" if kind in _NOT_NEGATIVE else "finite"
    wrong = np.isinf(values) | (values < 0 if kind in _NOT_NEGATIVE else False)
    if wrong.any():
        problem = f"; a {kind} must be {rule}: correct it, or empty the cell to count it as missing"
        raise sheet.cell_error(np.argmax(wrong), column, problem)


def _parse_cells(sheet: "Sheet", column: str, kind: str, rest: np.ndarray, numbers: Numbers) -> np.ndarray:
    """Reads the cells in the rows `rest` into `numbers`, or raises `ValueError`. Returns a mask of the column's rows: cells with a unit of time."""
    cells = sheet.cells(column)
    with_comma = [cell for cell in cells[rest] if isinstance(cell, str) and "," in cell]
    points = any(isinstance(cell, str) and "." in cell for cell in cells)
    only_commas = bool(with_comma) and sheet.separator == ";" and not points
    comma = sheet.decimal_comma or only_commas or any(map(DECIMAL_COMMA.fullmatch, with_comma))
    rows = np.array([row for row, cell in enumerate(cells) if not is_empty(cell)], int) if comma else rest
    letters = kind == "score" and all(isinstance(cell, str) and cell.strip().lower() in _LETTERS for cell in cells[rest])
    parsed: dict[Any, _Parsed] = {}
    first_rows: dict[str, int] = {}  # By currency.
    percent, has_unit = np.zeros(len(cells), bool), np.zeros(len(cells), bool)
    for row in rows:
        cell = cells[row]
        key = cell if isinstance(cell, (str, int, float, bool)) else repr(cell)
        if key not in parsed:
            number = (_LETTERS[cell.strip().lower()], None, False) if letters else _parse(cell, kind, comma)
            if number is None:
                raise _not_a_number(sheet, row, column, kind)
            parsed[key] = number
        numbers.values[row], currency, percent[row] = parsed[key]
        if kind == "latency":
            has_unit[row] = isinstance(cell, str) and cell.strip()[-1:].isalpha()
        if currency is not None:
            first_rows.setdefault(currency, row)
        if len(first_rows) > 1:
            other, first = next(iter(first_rows.items()))
            problem = f", in {currency}, but {sheet.place(first, column)} is in {other}: convert all to one currency"
            raise sheet.cell_error(row, column, problem)
    numbers.percent = percent if percent.any() else None
    numbers.currency = next(iter(first_rows), None)
    numbers.notes += [f"currency signs left out ({numbers.currency})"] if first_rows else []
    if with_comma:
        numbers.notes.append("decimal commas read as points" if comma else "commas between thousands left out")
    texts = {cell.strip(): value for cell, (value, *_) in parsed.items() if isinstance(cell, str)}
    verdicts = {text: value for text, value in texts.items() if text.lower() in VERDICTS | _LETTERS}
    fractions = np.flatnonzero(np.where(percent, 0, np.nan_to_num(numbers.values, posinf=0, neginf=0)) % 1)
    if fractions.size and not letters and {word.lower() for word in verdicts} - {"true", "false"}:
        place = sheet.place(fractions[0], column)
        both = f"words ({join_names(map(repr, verdicts), 2)}) and numbers ({place} is {checks.show(cells[fractions[0]])})"
        raise ValueError(f"{sheet.name}, column {column!r} has {both}: write all in the same way")
    if verdicts:
        numbers.notes.append(", ".join(f"{word!r} counts as {value:g}" for word, value in list(verdicts.items())[:4]))
    return has_unit


def _parse(cell: Any, kind: str, comma: bool) -> _Parsed | None:
    """Parses a cell as a number of a `kind` such as "score" or "cost", None for other content; `comma` tells whether commas are decimal marks."""
    if isinstance(cell, (int, float, np.bool_, np.integer, np.floating)):
        return np.inf if abs(cell) > 1e308 else float(cell), None, False
    if isinstance(cell, (*_CONTAINERS, date)):
        return _parse(cell[0], kind, comma) if isinstance(cell, _LISTS) and len(cell) == 1 else None
    text = str(cell).strip().replace("\u2212", "-").replace("\u00a0", " ").replace("\u202f", " ")
    word = text.lower()
    if (kind == "score" and word in VERDICTS) or word.lstrip("+-") in ("inf", "infinity"):
        return VERDICTS.get(word, np.inf), None, False
    currency, percent, factor = None, False, 1.0
    if kind in ("cost", "price") and (match := _CURRENCY.search(text)):
        currency = _CURRENCY_SIGNS.get(match[0].lower(), match[0].upper())
        text = _CURRENCY.sub("", text).strip()
    if kind == "score" and text.endswith("%"):
        text, percent, factor = text[:-1].strip(), True, 0.01
    unit = re.search(r"[a-zµ]+$", text, re.IGNORECASE) if kind in ("latency", "cost") else None
    if unit and unit[0].lower() in _CELL_UNITS and (kind == "latency") == (unit[0].lower() != "j"):
        text, factor = text[: unit.start()].strip(), _CELL_UNITS[unit[0].lower()]
    if kind == "score" and (ratio := re.fullmatch(r"(\d+(?:\.\d+)?)\s*/\s*(\d+(?:\.\d+)?)", text)) and float(ratio[2]):
        return float(ratio[1]) / float(ratio[2]), None, False
    if listed := re.fullmatch(r"\[\s*([^,\[\]]+)\s*\]", text):  # A score in a list, as some exports have it.
        return _parse(listed[1].strip("\"'"), kind, comma)
    if re.fullmatch(r"[+-]?\d{1,3}([ '’]\d{3})+([.,]\d+)?", text):
        text = re.sub(r"[ '’]", "", text)
    if comma:
        thousands = "," in text or re.fullmatch(rf"[+-]?{_THOUSANDS}", text)
        text = (text.replace(".", "") if thousands else text).replace(",", ".")
    elif re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?", text):
        text = text.replace(",", "")
    return (float(text) * factor, currency, percent) if _NUMBER.match(text) else None


def number_of(cell: Any) -> float:
    """Converts a cell to a number: verdicts such as "correct" are 1 or 0, % signs and decimal commas are read, and other content is NaN."""
    number = _parse(cell, "score", True)
    return np.nan if number is None else number[0]


def _not_a_number(sheet: "Sheet", row: int, column: str, kind: str) -> ValueError:
    cell = sheet.cells(column)[row]
    if isinstance(cell, date):
        problem = "Excel makes dates of fractions such as 1/2; format the column as text and write it again"
        return ValueError(f"{sheet.place(row, column)} is the date {cell:%Y-%m-%d}: {problem}")
    if isinstance(cell, _CONTAINERS):
        return sheet.cell_error(row, column, ", a list or an object and not a number: name another column (--column)")
    kinds = "a number, a percentage, or a word such as yes, no, true, false" if kind == "score" else "a number such as 0.5"
    return sheet.cell_error(row, column, f", which is not a number; write {kinds}, or empty the cell if there is none")


def _is_number(cell: Any, kind: str) -> bool:
    with_comma = isinstance(cell, str) and "," in cell
    return _parse(cell, kind, False) is not None or (with_comma and _parse(cell, kind, True) is not None)


def looks_like_text(cells: np.ndarray) -> bool:
    """Whether over a fifth of the texts and lists in a column's first cells are not numbers, but words, formulas, code or lists."""
    if cells.dtype.kind != "O":
        return False
    found = [cell for cell in first_cells(cells) if isinstance(cell, (str, *_CONTAINERS))]
    return sum(not isinstance(cell, str) or not _is_number(cell, "cost") for cell in found) > 0.2 * max(len(found), 1)


def are_sentences(cells: np.ndarray) -> bool:
    """Whether a column contains sentences: over a fifth of its first texts have several words or over 40 letters, and over 30 % are different."""
    found = [cell for cell in first_cells(cells) if isinstance(cell, str)]
    long = [cell for cell in found if len(cell) > 40 or re.search(r"[^\W\d_]+\s+\S", cell)]
    return looks_like_text(cells) and len(long) > 0.2 * len(found) and len(set(found)) > 0.3 * len(found)


def has_fractions(cells: np.ndarray) -> bool:
    """Whether the first cells are numbers and some are not whole."""
    try:
        return any(float(cell) % 1 for cell in first_cells(cells))
    except (TypeError, ValueError):
        return False


def fits_role(role: str, cells: np.ndarray) -> bool:
    """Whether the first cells of a column are of the type that a role such as "text", "date" or "score" needs."""
    if role in ("text", "response"):
        return looks_like_text(cells)
    if role == "date":
        found = first_cells(cells, 50)
        return cells.dtype.kind == "M" or (bool(found) and sum(_date(cell) is not None for cell in found) > len(found) / 2)
    if role == "embedding":
        first = next(iter(first_cells(cells, 1)), None)
        if isinstance(first, str) and first.strip().startswith("["):
            with suppress(ValueError, RecursionError):
                first = json.loads(first)
        return isinstance(first, _LISTS) and all(isinstance(value, (int, float, np.number)) for value in list(first)[:8])
    if role in ("model", "category", "user"):
        return (role == "model" and cells.dtype.kind == "O") or not has_fractions(cells)
    if cells.dtype.kind in "biufm":
        return cells.dtype.kind != "m" or role == "latency"
    found = first_cells(cells)  # At least half must be numbers; scores may also be judgements such as "correct".
    kind = role if role in ("score", "latency") else "cost"
    return bool(found) and sum(_is_number(cell, kind) for cell in found) >= len(found) / 2


def read_texts(cells: np.ndarray) -> np.ndarray:
    """Converts a column's cells to texts: an empty cell to "", and a list of chat messages to the content of the user's last message."""
    return np.array(["" if is_empty(cell) else _text(cell) for cell in cells], dtype=object)


def _text(cell: Any) -> str:
    if isinstance(cell, _LISTS):
        messages = [part for part in cell if isinstance(part, dict) and part.get("role") == "user"]
        # Among messages of a chat, the user's last one counts.
        return _text(messages[-1].get("content", "")) if messages else "\n".join(map(_text, cell))
    if isinstance(cell, dict) and {"content", "text"} & cell.keys():
        return _text(cell.get("content", cell.get("text")))
    return "" if cell is None else str(cell)


def read_dates(sheet: "Sheet", column: str) -> np.ndarray:
    """Reads dates (ISO 8601, or seconds or milliseconds since 1970) as datetime64[s] in UTC. An empty cell gives NaT; other content, `ValueError`."""
    cells = sheet.cells(column)
    if cells.dtype.kind == "M":
        return cells.astype("datetime64[s]")
    dates = np.array([None if is_empty(cell) else _date(cell) for cell in cells], "datetime64[s]")
    if wrong := [row for row in np.flatnonzero(np.isnat(dates)) if not is_empty(cells[row])]:
        raise sheet.cell_error(wrong[0], column, ", which is not a date; write 2025-01-31 or 2025-01-31 14:05:00")
    return dates


def _date(cell: Any) -> np.datetime64 | None:
    """Converts a cell to a time in UTC. Returns None for a cell without a date."""
    if isinstance(cell, datetime) and cell.tzinfo:
        cell = cell.astimezone(UTC).replace(tzinfo=None)
    if isinstance(cell, np.datetime64):
        return cell.astype("datetime64[s]")
    if isinstance(cell, date):
        return np.datetime64(cell, "s")
    text = str(cell).strip()
    if len(text) == 8 and text.isdigit() and 1970 <= int(text[:4]) <= 2100:
        return _date(f"{text[:4]}-{text[4:6]}-{text[6:]}")
    try:
        seconds = float(text)
    except ValueError:
        try:
            return _date(datetime.fromisoformat(text.replace("/", "-")))
        except (ValueError, OverflowError):
            return None
    seconds /= 1000.0 if seconds > 1e11 else 1.0
    return np.datetime64(int(seconds), "s") if 1e8 <= seconds < 1e11 else None  # Not before March 1973.


def read_vectors(sheet: "Sheet", column: str, rows: np.ndarray) -> np.ndarray:
    """Returns the embeddings in `rows` of a column, `[len(rows), d]` float64; raises `ValueError` for a cell that is not a list of `d` numbers."""
    vectors: list[np.ndarray] = []
    for row, cell in zip(rows, sheet.cells(column)[rows], strict=True):
        try:
            vector = np.asarray(json.loads(cell) if isinstance(cell, str) else cell, np.float64)
        except (TypeError, ValueError, RecursionError):
            vector = np.array(np.nan)
        if vector.ndim != 1 or not vector.size or not np.isfinite(vector).all():
            raise sheet.cell_error(row, column, "; an embedding must be a list of finite numbers such as [0.1, -0.2]")
        if vectors and len(vector) != len(vectors[0]):
            sizes = f"has {len(vector)} numbers, but the first has {len(vectors[0])}"
            raise ValueError(f"{sheet.place(row, column)} {sizes}: embeddings must be equally long")
        vectors.append(vector)
    return np.stack(vectors)
