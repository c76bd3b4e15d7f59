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
from jaxroute.data.logs.names import KINDS, UNITS, unit_of, unknown_unit

if TYPE_CHECKING:
    from jaxroute.data.logs.files import Sheet

_EMPTY = frozenset(("", "nan", "na", "n/a", "#n/a", "null", "none", "-", "--", "–", "—", "missing", "<na>", "nat"))
VERDICTS = {
    **dict.fromkeys(("true", "yes", "y", "t", "pass", "passed", "correct", "right", "success", "ok", "✓", "good", "c"), 1.0),
    **dict.fromkeys(
        ("false", "no", "n", "f", "fail", "failed", "incorrect", "wrong", "failure", "error", "✗", "bad", "i"), 0.0
    ),
}
# Letters of Inspect's logs, which count only together: correct, incorrect, partial, no answer.
_LETTERS = {"c": 1.0, "i": 0.0, "p": 0.5, "n": 0.0}
_MARKS = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "us$": "USD"}
_CURRENCY = re.compile(r"us\$|[$€£¥]|\b(USD|EUR|GBP|JPY|CHF|CNY|INR|CAD|AUD|SEK|BRL)\b", re.IGNORECASE)
_NUMBER = re.compile(r"^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$", re.IGNORECASE)
_UNITS = {"us": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0, "min": 60.0, "j": 1.0}
_NOT_NEGATIVE = ("cost", "tokens", "latency", "price")


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
    if cell is None:
        return True
    if isinstance(cell, str):
        return cell.strip().lower() in _EMPTY
    if isinstance(cell, (list, tuple, dict, np.ndarray)):
        return len(cell) == 0
    try:
        return bool(cell != cell)
    except (TypeError, ValueError):  # pandas.NA
        return True


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
        found.values = cells.astype("timedelta64[ns]").astype(np.float64) / 1e9
        found.stated = np.ones(len(cells), bool)
    else:
        pointed = sheet.decimal_comma and any(isinstance(cell, str) and "." in cell for cell in cells)
        if _plain_cells(cells) and not pointed:
            with suppress(OverflowError):  # A whole number of hundreds of digits is refused below, with its place.
                found.values = np.array(pd.to_numeric(pd.Series(cells), errors="coerce"), np.float64)
        left = np.array([row for row in np.flatnonzero(np.isnan(found.values)) if not empty(cells[row])], int)
        if left.size:
            _read_texts(sheet, column, kind, cells, left, found)
    if kind in ("tokens", "length"):
        _whole(sheet, column, cells, found)
    _check(sheet, column, found, kind)
    if role not in (units or {}) and unknown_unit(kind, column if called is None else called):
        raise ValueError(
            f"{sheet.name}: the unit in the name of {column!r} is not known: give it (units={{{role!r}: ...}}, on the command line --unit {role}=UNIT; "
            f"{', '.join(list(UNITS[kind])[:6])}, ...)"
        )
    factor, currency, unit = (
        unit_of(role, column if called is None else called, units or {}) if role in KINDS else (1.0, None, "")
    )
    found.named_percent = kind == "score" and bool(unit)
    bare = ~np.isnan(found.values) if found.stated is None else ~np.isnan(found.values) & ~found.stated
    if unit and kind != "score":
        found.values = np.where(bare, found.values * factor, found.values)
        if factor != 1 and bare.any():
            found.notes.append(f"in {unit}, times {factor:g}")
    elif found.stated is not None and bare.any():
        row = int(np.argmax(bare))
        raise ValueError(
            f"{at(sheet, row, column)} is {checks.show(cells[row])} without a unit, where others have one: write all in one way"
        )
    found.unit = bool(unit) or found.stated is not None
    found.currency = found.currency or currency
    return found


def _whole(sheet: "Sheet", column: str, cells: np.ndarray, found: Numbers) -> None:
    """Reads numbers of tokens in which a point between thousands was taken for a decimal one."""
    broken = np.flatnonzero(_fractional(found.values))
    thousands = [
        row for row in broken if isinstance(cells[row], str) and re.fullmatch(r"[1-9]\d{0,2}(\.\d{3})+", cells[row].strip())
    ]
    if not thousands or len(thousands) < len(broken) or sheet.separator in (None, ","):
        return  # Means of several answers.
    row = int(thousands[0])
    raise ValueError(
        f"{at(sheet, row, column)} is {checks.show(cells[row])}: is the point between thousands? write numbers of tokens without marks"
    )


def _fractional(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, 0.0) % 1 != 0


def _plain_cells(cells: np.ndarray) -> bool:
    return all(isinstance(cell, (str, int, float, type(None))) and not isinstance(cell, bool) for cell in cells[:1000])


def _read_texts(sheet: "Sheet", column: str, kind: str, cells: np.ndarray, left: np.ndarray, found: Numbers) -> None:
    """Reads the cells that are no plain numbers, each different one once."""
    comma = sheet.decimal_comma or _has_decimal_comma(sheet.separator == ";", cells, left)
    rows = np.array([row for row in range(len(cells)) if not empty(cells[row])], int) if comma else left
    letters = kind == "score" and all(isinstance(cells[row], str) and cells[row].strip().lower() in _LETTERS for row in left)
    seen: dict[Any, tuple[float, str | None, bool]] = {}
    first_in: dict[str, int] = {}
    percent, stated = np.zeros(len(cells), bool), np.zeros(len(cells), bool)
    for row in rows:
        cell = cells[row]
        key = cell if isinstance(cell, (str, int, float, bool)) else repr(cell)
        if key not in seen:
            value = (_LETTERS[cell.strip().lower()], None, False) if letters else _number(cell, kind, comma)
            if value is None:
                raise ValueError(_no_number(sheet, int(row), column, cell, kind))
            seen[key] = value
        found.values[row], currency, percent[row] = seen[key]
        stated[row] = kind == "latency" and (
            isinstance(cell, timedelta) or (isinstance(cell, str) and cell.strip()[-1:].isalpha())
        )
        if currency is not None and currency not in first_in:
            first_in[currency] = row
            if len(first_in) > 1:
                other = next(iter(first_in))
                raise ValueError(
                    f"{at(sheet, row, column)} is {checks.show(cell)}, in {currency}, but {at(sheet, first_in[other], column)} is in {other}: "
                    "convert all costs to one currency"
                )
    found.stated = stated if stated.any() else None
    found.percent = percent if percent.any() else None
    if first_in:
        found.currency = next(iter(first_in))
        found.notes.append(f"currency signs left out ({found.currency})")
    if comma:
        found.notes.append("decimal commas read as points")
    elif any(isinstance(cell, str) and "," in cell for cell in seen):
        found.notes.append("commas between thousands left out")
    words = {
        cell.strip(): value
        for cell, value in seen.items()
        if isinstance(cell, str) and value and cell.strip().lower() in VERDICTS | _LETTERS
    }
    broken = np.flatnonzero(_fractional(found.values) & ~percent)
    if broken.size and not letters and {word.lower() for word in words} - {"true", "false"}:
        raise ValueError(
            f"{sheet.name}, column {column!r} has words ({', '.join(map(repr, list(words)[:2]))}) and numbers ({at(sheet, broken[0], column)} is "
            f"{checks.show(cells[broken[0]])}): write all in one way"
        )
    if words:
        found.notes.append(", ".join(f"{word!r} counts as {value[0]:g}" for word, value in list(words.items())[:4]))


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
    found = [cell for cell in some_cells(cells) if isinstance(cell, (str, list, tuple, dict, np.ndarray))]
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
        try:
            first = json.loads(first)
        except (ValueError, RecursionError):
            return False
    return isinstance(first, (list, tuple, np.ndarray)) and all(
        isinstance(value, (int, float, np.number)) for value in list(first)[:8]
    )


def _is_number(cell: Any, kind: str) -> bool:
    """Whether a cell is a number, with a decimal point or a decimal comma."""
    return _number(cell, kind, False) is not None or (
        isinstance(cell, str) and "," in cell and _number(cell, kind, True) is not None
    )


def _number(cell: Any, kind: str, comma: bool) -> tuple[float, str | None, bool] | None:
    """Value, currency and whether it is percent; None for what is no number."""
    if isinstance(cell, (bool, np.bool_)):
        return float(cell), None, False
    if isinstance(cell, (timedelta, np.timedelta64)):
        seconds = pd.Timedelta(cell).total_seconds()
        return (seconds, None, False) if kind == "latency" else None
    if isinstance(cell, (int, float, np.integer, np.floating)):
        try:
            return float(cell), None, False
        except OverflowError:
            return np.inf, None, False
    if isinstance(cell, (list, tuple, np.ndarray)) and len(cell) == 1:
        return _number(cell[0], kind, comma)
    if isinstance(cell, (list, tuple, np.ndarray, dict, date)):
        return None
    text = str(cell).strip().replace("\u2212", "-").replace("\u00a0", " ").replace("\u202f", " ")
    if kind == "score" and text.lower() in VERDICTS:
        return VERDICTS[text.lower()], None, False
    if text.lower().lstrip("+-") in ("inf", "infinity"):
        return np.inf, None, False
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
        text = text.replace(".", "") if "," in text or re.fullmatch(r"[+-]?[1-9]\d{0,2}(\.\d{3})+", text) else text
        text = text.replace(",", ".")
    elif re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?", text):
        text = text.replace(",", "")
    return (float(text) * factor, currency, percent) if _NUMBER.match(text) else None


def _has_decimal_comma(semicolons: bool, cells: np.ndarray, left: np.ndarray) -> bool:
    """Whether commas are decimal: a cell cannot be read otherwise, or semicolons are between columns and no cell has a point."""
    texts = [str(cells[row]) for row in left if isinstance(cells[row], str) and "," in cells[row]]
    for text in texts:
        number = re.sub(r"[^0-9.,]", "", text)
        if "." in number:
            if number.rfind(",") > number.rfind("."):
                return True
        elif number.count(",") == 1 and (
            re.fullmatch(r"0*,\d+|0+\d*,\d+", number) or not re.fullmatch(r"\d{1,3},\d{3}", number)
        ):
            return True
    return bool(texts) and semicolons and not any(isinstance(cell, str) and "." in cell for cell in cells)


def at(sheet: "Sheet", row: int, column: str) -> str:
    """The place of a cell."""
    return f"{sheet.place(int(row))}, column {column!r}"


def _no_number(sheet: "Sheet", row: int, column: str, cell: Any, kind: str) -> str:
    if isinstance(cell, (datetime, date)):
        return f"{at(sheet, row, column)} is the date {cell:%Y-%m-%d}: Excel makes dates of fractions such as 1/2; format the column as text and write it again"
    if isinstance(cell, (list, tuple, dict, np.ndarray)):
        return f"{at(sheet, row, column)} is {checks.show(cell)}, a list or an object and no number: name another column (--column)"
    reason = fault(cell)
    allowed = (
        ": a number, a percentage, or a word such as yes, no, true, false, pass, fail" if kind == "score" else ": a number"
    )
    advice = "" if ": " in reason else f"; write{allowed[1:]}, or leave the cell empty where there is none"
    return f"{at(sheet, row, column)} {reason}{advice}"


def _check(sheet: "Sheet", column: str, numbers: Numbers, kind: str) -> None:
    """Refuses what is infinite, and what is negative where it cannot be."""
    wrong = np.isinf(numbers.values)
    if kind in _NOT_NEGATIVE:
        wrong |= numbers.values < 0
    if wrong.any():
        row = int(np.argmax(wrong))
        rule = "finite and at least 0" if kind in _NOT_NEGATIVE else "finite"
        raise ValueError(
            f"{at(sheet, row, column)} is {checks.show(sheet.cells(column)[row])}; a {kind} must be {rule}: mend it, or empty the cell to count "
            "it as missing"
        )


def read_texts(cells: np.ndarray) -> np.ndarray:
    """`[R]` texts, empty where a cell is; of messages, their contents."""
    return np.array(["" if empty(cell) else _text(cell) for cell in cells], dtype=object)


def _text(cell: Any) -> str:
    if isinstance(cell, str):
        return cell
    if isinstance(cell, (list, tuple, np.ndarray)):
        asked = [part for part in cell if isinstance(part, dict) and part.get("role") == "user"]
        if asked:  # Of messages, what the user said last.
            return _text(asked[-1].get("content", ""))
        return "\n".join(_text(part) for part in cell)
    if isinstance(cell, dict):
        return _text(cell.get("content", cell.get("text", ""))) if {"content", "text"} & cell.keys() else str(cell)
    return "" if cell is None else str(cell)


def read_dates(sheet: "Sheet", column: str) -> np.ndarray:
    """`[R]` datetime64[s], NaT where a cell is empty; ISO 8601, or seconds or milliseconds since 1970, in UTC.

    Raises:
      ValueError: a cell is no date.
    """
    cells = sheet.cells(column)
    if cells.dtype.kind == "M":
        return cells.astype("datetime64[s]")
    found = np.full(len(cells), np.datetime64("NaT"), "datetime64[s]")
    for row, cell in enumerate(cells):
        if not empty(cell):
            moment = _date(cell)
            if moment is None:
                raise ValueError(
                    f"{at(sheet, row, column)} is {checks.show(cell)}, which is no date; write 2025-01-31 or 2025-01-31 14:05:00"
                )
            found[row] = moment
    return found


def _date(cell: Any) -> np.datetime64 | None:
    if isinstance(cell, np.datetime64):
        return cell.astype("datetime64[s]")
    if isinstance(cell, datetime):
        return _naive(cell)
    if isinstance(cell, date):
        return np.datetime64(cell.isoformat(), "s")
    text = str(cell).strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            return _naive(datetime.fromisoformat(text.replace("/", "-")))
        except (ValueError, OverflowError):
            return None
    if len(text) == 8 and text.isdigit() and 1970 <= int(text[:4]) <= 2100:
        return _date(f"{text[:4]}-{text[4:6]}-{text[6:]}")
    seconds /= 1000.0 if seconds > 1e11 else 1.0
    return np.datetime64(int(seconds), "s") if 1e8 <= seconds < 1e11 else None  # Not before March 1973.


def _naive(moment: datetime) -> np.datetime64:
    moment = moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    return np.datetime64(moment, "s")


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
            raise ValueError(
                f"{at(sheet, row, column)} is {checks.show(cell)}; an embedding must be a list of finite numbers such as [0.1, -0.2]"
            )
        if found and len(vector) != len(found[0]):
            raise ValueError(
                f"{at(sheet, row, column)} has {len(vector)} numbers, but the first has {len(found[0])}: embeddings must be equally long"
            )
        found.append(vector)
    return np.stack(found)
