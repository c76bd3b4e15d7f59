"""Cells as numbers, verdicts, texts and dates; a cell that cannot be read is refused with its place."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from jaxroute.core import checks
from jaxroute.data.files import fault
from jaxroute.data.logs.names import EMPTY, KINDS, UNITS, VERDICTS, unit_of, unknown_unit

if TYPE_CHECKING:
    from jaxroute.data.logs.files import Sheet

# Letters of Inspect's logs, which count only together: correct, incorrect, partial, no answer.
_LETTERS = {"c": 1.0, "i": 0.0, "p": 0.5, "n": 0.0}
_SAID = VERDICTS | _LETTERS
_MARKS = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "us$": "USD"}
_CURRENCY = re.compile(r"us\$|[$€£¥]|\b(USD|EUR|GBP|JPY|CHF|CNY|INR|CAD|AUD|SEK|BRL)\b", re.IGNORECASE)
_NUMBER = re.compile(r"^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$", re.IGNORECASE)
_UNITS = {"us": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0, "min": 60.0, "j": 1.0}
_FEWEST_TOKENS = 10.0  # Median; numbers below that are not whole are no means of several answers.
_NOT_NEGATIVE = ("cost", "tokens", "latency", "price")
_THOUSANDS = r"[1-9]\d{0,2}(\.\d{3})+"
_LISTS, _MANY = (list, tuple, np.ndarray), (list, tuple, np.ndarray, dict)


@dataclass
class Numbers:
    """A column as numbers.

    Attributes:
      values: `[R]` float64, NaN where a cell is empty.
      percent: `[R]` whether the cell had a % sign; None if none had.
      named_percent: whether the column's name says percent.
      currency: currency of costs, if cells or the name say one.
      stated: `[R]` whether the cell had a unit; None if none had.
      unit: whether cells or the name say a unit.
      notes: conversions, in words.
    """

    values: np.ndarray
    percent: np.ndarray | None = None
    named_percent: bool = False
    currency: str | None = None
    stated: np.ndarray | None = None
    unit: bool = False
    notes: list[str] = field(default_factory=list)


def empty(cell: Any) -> bool:
    """Whether a cell holds nothing."""
    if isinstance(cell, str):
        return cell.strip().lower().replace(". ", ".") in EMPTY
    return len(cell) == 0 if isinstance(cell, _MANY) else cell is None or bool(pd.isna(cell))


def which_empty(cells: np.ndarray) -> np.ndarray:
    """`[R]` whether cells hold nothing; each different cell is looked at once."""
    try:
        codes, different = pd.factorize(cells, use_na_sentinel=False)
    except TypeError:  # Lists.
        return np.array([empty(cell) for cell in cells], bool)
    return np.array([empty(cell) for cell in different], bool)[codes]


def some_cells(cells: np.ndarray, number: int = 200) -> list[Any]:
    """The first cells that are not empty."""
    return list(islice((cell for cell in cells if not empty(cell)), number))


def examples(cells: np.ndarray) -> str:
    """The first different cells, for a line about a column."""
    different = list(dict.fromkeys(str(cell) for cell in some_cells(cells)))
    shown = [text if len(text) <= 24 else text[:23] + "…" for text in different[:3]]
    return ", ".join(shown) + (", ..." if len(different) > 3 else "")


def read_numbers(
    sheet: "Sheet", column: str, role: str, units: Mapping[str, str] | None = None, called: str | None = None
) -> Numbers:
    """Returns the numbers of a column, in the unit that its name says.

    Args:
      sheet: the open file.
      column: name of the column.
      role: role of the column; verdicts are scores, currencies costs.
      units: units by role as the caller gave them.
      called: name in which units are looked for; None for the column's.

    Raises:
      ValueError: a cell is no number, infinite, negative where it cannot be, or in another currency than those above it.
    """
    kind = KINDS.get(role, "tokens" if role.startswith("tokens") else "length" if role.endswith("_chars") else "feature")
    cells = sheet.cells(column)
    found = Numbers(np.full(len(cells), np.nan))
    if cells.dtype.kind in "biuf":
        found.values = cells.astype(np.float64)
    elif cells.dtype.kind == "m":
        found.values, found.stated = cells.astype("timedelta64[ns]").astype(np.float64) / 1e9, np.ones(len(cells), bool)
    else:
        pointed = sheet.decimal_comma and any(isinstance(cell, str) and "." in cell for cell in cells)
        simple = (isinstance(cell, (str, int, float, type(None))) and not isinstance(cell, bool) for cell in cells[:1000])
        if not pointed and all(simple):
            with suppress(OverflowError):  # A whole number of hundreds of digits is refused below, with its place.
                found.values = np.array(pd.to_numeric(pd.Series(cells), errors="coerce"), np.float64)
        left = np.array([row for row in np.flatnonzero(np.isnan(found.values)) if not empty(cells[row])], int)
        if left.size:
            _read_texts(sheet, column, kind, left, found)
    _check(sheet, column, kind, found.values)
    if role not in KINDS:
        return found
    name, units = column if called is None else called, units or {}
    if role not in units and unknown_unit(kind, name):
        raise ValueError(
            f"{sheet.name}: the unit in the name of {column!r} is not known: give it (units={{{role!r}: ...}}, on the command line --unit {role}=UNIT; "
            f"{', '.join(list(UNITS[kind])[:6])}, ...)"
        )
    factor, currency, unit = unit_of(role, name, units)
    bare = ~np.isnan(found.values) & (True if found.stated is None else ~found.stated)
    if kind == "score":
        found.named_percent = bool(unit)
    elif unit:
        found.values = np.where(bare, found.values * factor, found.values)
        found.notes += [f"in {unit}, times {factor:g}"] if factor != 1 and bare.any() else []
    if not unit and found.stated is not None and bare.any():
        raise _refusal(sheet, np.argmax(bare), column, " without a unit, where others have one: write all in one way")
    found.unit = bool(unit) or found.stated is not None
    found.currency = found.currency or currency
    return found


def _check(sheet: "Sheet", column: str, kind: str, values: np.ndarray) -> None:
    """Refuses what is infinite, what is negative where it cannot be, and a point between thousands that was taken for a decimal one."""
    if kind in ("tokens", "length") and sheet.separator not in (None, ","):
        cells, broken = sheet.cells(column), np.flatnonzero(np.nan_to_num(values, posinf=0, neginf=0) % 1)
        if broken.size and all(isinstance(c, str) and re.fullmatch(_THOUSANDS, c.strip()) for c in cells[broken]):
            why = ": is the point between thousands? write numbers of tokens without marks"  # Others are means of several answers.
            raise _refusal(sheet, broken[0], column, why)
    if kind == "tokens" and np.nan_to_num(values % 1).astype(bool).mean() > 0.5 and np.nanmedian(values) < _FEWEST_TOKENS:
        raise _refusal(
            sheet,
            np.argmax(values % 1 > 0),
            column,
            ", no whole number: are they thousands of tokens? write numbers of tokens",
        )
    rule = "finite and at least 0" if kind in _NOT_NEGATIVE else "finite"
    wrong = np.isinf(values) | (values < 0 if kind in _NOT_NEGATIVE else False)
    if wrong.any():
        why = f"; a {kind} must be {rule}: mend it, or empty the cell to count it as missing"
        raise _refusal(sheet, np.argmax(wrong), column, why)


def _read_texts(sheet: "Sheet", column: str, kind: str, left: np.ndarray, found: Numbers) -> None:
    """Reads the cells that are no plain numbers, each different one once."""
    cells = sheet.cells(column)
    comma = sheet.decimal_comma or _has_decimal_comma(sheet.separator == ";", cells, left)
    rows = np.array([row for row, cell in enumerate(cells) if not empty(cell)], int) if comma else left
    letters = kind == "score" and all(isinstance(cell, str) and cell.strip().lower() in _LETTERS for cell in cells[left])
    seen: dict[Any, tuple[float, str | None, bool]] = {}
    first_in: dict[str, int] = {}
    percent, stated = np.zeros(len(cells), bool), np.zeros(len(cells), bool)
    for row in rows:
        cell = cells[row]
        key = cell if isinstance(cell, (str, int, float, bool)) else repr(cell)
        if key not in seen:
            value = (_LETTERS[cell.strip().lower()], None, False) if letters else _number(cell, kind, comma)
            if value is None:
                raise ValueError(f"{at(sheet, row, column)} {_no_number(cell, kind)}")
            seen[key] = value
        found.values[row], currency, percent[row] = seen[key]
        if kind == "latency":
            stated[row] = cell.strip()[-1:].isalpha() if isinstance(cell, str) else isinstance(cell, timedelta)
        if currency is not None:
            first_in.setdefault(currency, row)
        if len(first_in) > 1:
            other, first = next(iter(first_in.items()))
            why = f", in {currency}, but {at(sheet, first, column)} is in {other}: convert all costs to one currency"
            raise _refusal(sheet, row, column, why)
    found.stated, found.percent = (marks if marks.any() else None for marks in (stated, percent))
    found.currency = next(iter(first_in), None)
    if first_in:
        found.notes.append(f"currency signs left out ({found.currency})")
    if comma:
        found.notes.append("decimal commas read as points")
    elif any(isinstance(cell, str) and "," in cell for cell in seen):
        found.notes.append("commas between thousands left out")
    words = {
        cell.strip(): value[0] for cell, value in seen.items() if isinstance(cell, str) and cell.strip().lower() in _SAID
    }
    broken = np.flatnonzero(np.where(percent, 0, np.nan_to_num(found.values, posinf=0, neginf=0)) % 1)
    if broken.size and not letters and {word.lower() for word in words} - {"true", "false"}:
        raise ValueError(
            f"{sheet.name}, column {column!r} has words ({', '.join(map(repr, list(words)[:2]))}) and numbers ({at(sheet, broken[0], column)} is "
            f"{checks.show(cells[broken[0]])}): write all in one way"
        )
    if words:
        found.notes.append(", ".join(f"{word!r} counts as {value:g}" for word, value in list(words.items())[:4]))


def looks_like_numbers(cells: np.ndarray, kind: str = "cost") -> bool:
    """Whether at least half of the first cells that are not empty are numbers, or, of a score, verdicts."""
    if cells.dtype.kind in "biufm":
        return cells.dtype.kind != "m" or kind == "latency"
    found = some_cells(cells)
    return bool(found) and sum(_is_number(cell, kind) for cell in found) >= len(found) / 2


def looks_like_text(cells: np.ndarray) -> bool:
    """Whether some of the first cells are texts that are no numbers: in any script, formulas or code."""
    if cells.dtype.kind != "O":
        return False
    found = [cell for cell in some_cells(cells) if isinstance(cell, (str, *_MANY))]
    return sum(not isinstance(cell, str) or not _is_number(cell, "cost") for cell in found) > 0.2 * max(len(found), 1)


def looks_like_sentences(cells: np.ndarray) -> bool:
    """Whether cells of a column without a telling name are texts: long, or of several words, and mostly different."""
    found = [cell for cell in some_cells(cells) if isinstance(cell, str)]
    long = [cell for cell in found if len(cell) > 40 or re.search(r"[^\W\d_]+\s+\S", cell)]
    return looks_like_text(cells) and len(long) > 0.2 * len(found) and len(set(found)) > 0.3 * len(found)


def looks_like_dates(cells: np.ndarray) -> bool:
    """Whether most of the first cells are dates, or seconds since 1970."""
    if cells.dtype.kind == "M":
        return True
    found = some_cells(cells, 50)
    return bool(found) and sum(_date(cell) is not None for cell in found) > len(found) / 2


def looks_like_vectors(cells: np.ndarray) -> bool:
    """Whether the first cell is a list of numbers."""
    first = next(iter(some_cells(cells, 1)), None)
    if isinstance(first, str) and first.strip().startswith("["):
        with suppress(ValueError, RecursionError):
            first = json.loads(first)
    return isinstance(first, _LISTS) and all(isinstance(value, (int, float, np.number)) for value in list(first)[:8])


def _is_number(cell: Any, kind: str) -> bool:
    """Whether a cell is a number, with a decimal point or a decimal comma."""
    with_comma = isinstance(cell, str) and "," in cell
    return _number(cell, kind, False) is not None or (with_comma and _number(cell, kind, True) is not None)


def _number(cell: Any, kind: str, comma: bool) -> tuple[float, str | None, bool] | None:
    """Value, currency and whether it is percent; None for what is no number."""
    if isinstance(cell, (timedelta, np.timedelta64)):
        return (pd.Timedelta(cell).total_seconds(), None, False) if kind == "latency" else None
    if isinstance(cell, (int, float, np.bool_, np.integer, np.floating)):
        with suppress(OverflowError):
            return float(cell), None, False
        return np.inf, None, False
    if isinstance(cell, (*_MANY, date)):
        return _number(cell[0], kind, comma) if isinstance(cell, _LISTS) and len(cell) == 1 else None
    text = str(cell).strip().replace("\u2212", "-").replace("\u00a0", " ").replace("\u202f", " ")
    word = text.lower()
    if (kind == "score" and word in VERDICTS) or word.lstrip("+-") in ("inf", "infinity"):
        return VERDICTS.get(word, np.inf), None, False
    currency, percent, factor = None, False, 1.0
    match = _CURRENCY.search(text) if kind in ("cost", "price") else None
    if match:
        currency = _MARKS.get(match[0].lower(), match[0].upper())
        text = _CURRENCY.sub("", text).strip()
    if kind == "score" and text.endswith("%"):
        text, percent, factor = text[:-1].strip(), True, 0.01
    unit = re.search(r"[a-zµ]+$", text, re.IGNORECASE) if kind in ("latency", "cost") else None
    if unit and unit[0].lower() in _UNITS and (kind == "latency") == (unit[0].lower() != "j"):
        text, factor = text[: unit.start()].strip(), _UNITS[unit[0].lower()]
    slash = re.fullmatch(r"(\d+(?:\.\d+)?)\s*/\s*(\d+(?:\.\d+)?)", text) if kind == "score" else None
    if slash and float(slash[2]):
        return float(slash[1]) / float(slash[2]), None, False
    listed = re.fullmatch(r"\[\s*([^,\[\]]+)\s*\]", text)  # A score in a list, as some exports have it.
    if listed:
        return _number(listed[1].strip("\"'"), kind, comma)
    if re.fullmatch(r"[+-]?\d{1,3}([ '’]\d{3})+([.,]\d+)?", text):
        text = re.sub(r"[ '’]", "", text)
    if comma:
        thousands = "," in text or re.fullmatch(rf"[+-]?{_THOUSANDS}", text)
        text = (text.replace(".", "") if thousands else text).replace(",", ".")
    elif re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?", text):
        text = text.replace(",", "")
    return (float(text) * factor, currency, percent) if _NUMBER.match(text) else None


def number_of(cell: Any) -> float:
    """A cell as a number or verdict, NaN for what is neither."""
    number = _number(cell, "score", True)
    return np.nan if number is None else number[0]


def _has_decimal_comma(semicolons: bool, cells: np.ndarray, left: np.ndarray) -> bool:
    """Whether commas are decimal: a cell cannot be read otherwise, or semicolons are between columns and no cell has a point."""

    def decimal(text: str) -> bool:
        number = re.sub(r"[^0-9.,]", "", text)
        if "." in number:
            return number.rfind(",") > number.rfind(".")
        return number.count(",") == 1 and (number.startswith("0") or not re.fullmatch(r"\d{1,3},\d{3}", number))

    texts = [cell for cell in cells[left] if isinstance(cell, str) and "," in cell]
    points = any(isinstance(cell, str) and "." in cell for cell in cells)
    return any(map(decimal, texts)) or (bool(texts) and semicolons and not points)


def at(sheet: "Sheet", row: int, column: str) -> str:
    """The place of a cell."""
    return f"{sheet.place(int(row))}, column {column!r}"


def _refusal(sheet: "Sheet", row: Any, column: str, why: str) -> ValueError:
    """The refusal of a cell, which it shows."""
    return ValueError(f"{at(sheet, row, column)} is {checks.show(sheet.cells(column)[row])}{why}")


def _no_number(cell: Any, kind: str) -> str:
    """Why a cell is no number, and what to write in its place."""
    if isinstance(cell, date):
        return f"is the date {cell:%Y-%m-%d}: Excel makes dates of fractions such as 1/2; format the column as text and write it again"
    if isinstance(cell, _MANY):
        return f"is {checks.show(cell)}, a list or an object and no number: name another column (--column)"
    words = ", a percentage, or a word such as yes, no, true, false, pass, fail" if kind == "score" else ""
    reason = fault(cell)
    return reason if ": " in reason else f"{reason}; write a number{words}, or leave the cell empty where there is none"


def read_texts(cells: np.ndarray) -> np.ndarray:
    """`[R]` texts, empty where a cell is; of messages, their contents."""
    return np.array(["" if empty(cell) else _text(cell) for cell in cells], dtype=object)


def _text(cell: Any) -> str:
    if isinstance(cell, _LISTS):
        asked = [part for part in cell if isinstance(part, dict) and part.get("role") == "user"]
        # Of messages, what the user said last.
        return _text(asked[-1].get("content", "")) if asked else "\n".join(map(_text, cell))
    if isinstance(cell, dict) and {"content", "text"} & cell.keys():
        return _text(cell.get("content", cell.get("text")))
    return "" if cell is None else str(cell)


def read_dates(sheet: "Sheet", column: str) -> np.ndarray:
    """`[R]` datetime64[s], NaT where a cell is empty; ISO 8601, or seconds or milliseconds since 1970, in UTC.

    Raises:
      ValueError: a cell is no date.
    """
    cells = sheet.cells(column)
    if cells.dtype.kind == "M":
        return cells.astype("datetime64[s]")
    found = np.array([None if empty(cell) else _date(cell) for cell in cells], "datetime64[s]")
    wrong = [row for row in np.flatnonzero(np.isnat(found)) if not empty(cells[row])]
    if wrong:
        raise _refusal(sheet, wrong[0], column, ", which is no date; write 2025-01-31 or 2025-01-31 14:05:00")
    return found


def _date(cell: Any) -> np.datetime64 | None:
    """A moment in UTC; None for what is no date."""
    if isinstance(cell, datetime) and cell.tzinfo:
        cell = cell.astimezone(UTC).replace(tzinfo=None)
    if isinstance(cell, np.datetime64):
        return cell.astype("datetime64[s]")
    if isinstance(cell, date):
        return np.datetime64(cell, "s")
    text = str(cell).strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            return _date(datetime.fromisoformat(text.replace("/", "-")))
        except (ValueError, OverflowError):
            return None
    if len(text) == 8 and text.isdigit() and 1970 <= int(text[:4]) <= 2100:
        return _date(f"{text[:4]}-{text[4:6]}-{text[6:]}")
    seconds /= 1000.0 if seconds > 1e11 else 1.0
    return np.datetime64(int(seconds), "s") if 1e8 <= seconds < 1e11 else None  # Not before March 1973.


def read_vectors(sheet: "Sheet", column: str, rows: np.ndarray) -> np.ndarray:
    """`[Q, d]` float64 embeddings in some rows of a column.

    Raises:
      ValueError: a cell is no list of finite numbers, or the lists have different lengths.
    """
    found: list[np.ndarray] = []
    for row, cell in zip(rows, sheet.cells(column)[rows], strict=True):
        try:
            vector = np.asarray(json.loads(cell) if isinstance(cell, str) else cell, np.float64)
        except (TypeError, ValueError, RecursionError):
            vector = np.array(np.nan)
        if vector.ndim != 1 or not vector.size or not np.isfinite(vector).all():
            raise _refusal(sheet, row, column, "; an embedding must be a list of finite numbers such as [0.1, -0.2]")
        if found and len(vector) != len(found[0]):
            raise ValueError(
                f"{at(sheet, row, column)} has {len(vector)} numbers, but the first has {len(found[0])}: embeddings must be equally long"
            )
        found.append(vector)
    return np.stack(found)
