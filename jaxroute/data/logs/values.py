"""Cells as numbers, words and dates: what people write, and what is refused with its place."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from jaxroute.core import checks
from jaxroute.data.files import fault
from jaxroute.data.logs.columns import plain
from jaxroute.data.logs.reading import Sheet

_EMPTY = frozenset(("", "nan", "na", "n/a", "#n/a", "null", "none", "-", "--", "–", "—", "missing", "<na>", "nat"))
_WORDS = {
    **dict.fromkeys(("true", "yes", "y", "t", "pass", "passed", "correct", "right", "success", "ok", "✓", "good"), 1.0),
    **dict.fromkeys(("false", "no", "n", "f", "fail", "failed", "incorrect", "wrong", "failure", "error", "✗", "bad"), 0.0),
}
_MARKS = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "us$": "USD"}
_CODES = ("USD", "EUR", "GBP", "JPY", "CHF", "CNY", "INR", "CAD", "AUD", "SEK", "BRL")
_CURRENCY = re.compile(rf"us\$|[$€£¥]|\b({'|'.join(_CODES)})\b", re.IGNORECASE)
_PLAIN_NUMBER = re.compile(r"^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$", re.IGNORECASE)
_UNITS = {"ms": 1e-3, "msec": 1e-3, "s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0, "min": 60.0, "j": 1.0}


@dataclass
class Numbers:
    """A column as numbers.

    values: `[R]` float64, NaN where a cell is empty.
    percent: `[R]` whether the cell had a % sign; None if none had.
    currency: what costs are in, if cells say so.
    said: what was converted, in words.
    """

    values: np.ndarray
    percent: np.ndarray | None = None
    currency: str | None = None
    said: list[str] = field(default_factory=list)


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


def read_numbers(sheet: Sheet, column: str, what: str) -> Numbers:
    """The numbers of a column.

    Args:
      sheet: the open file.
      column: its name.
      what: "score", "cost", "tokens", "latency", "price" or "feature"; words such as "yes" are scores, currencies costs.

    Raises:
      ValueError: a cell is no number, infinite, or in another currency than those above it; the message says where.
    """
    cells = sheet.cells(column)
    if cells.dtype.kind in "biuf":
        return _finite(sheet, column, Numbers(cells.astype(np.float64)), what)
    texts = [None if empty(cell) else cell for cell in cells]
    comma = _has_decimal_comma(sheet, texts)
    found = Numbers(np.full(len(cells), np.nan))
    seen: dict[Any, tuple[float, str | None, bool]] = {}
    percent = np.zeros(len(cells), bool)
    first_in: dict[str, int] = {}
    for row, cell in enumerate(texts):
        if cell is None:
            continue
        try:
            known = seen.get(cell)
        except TypeError:
            raise ValueError(f"{_at(sheet, row, column)} is {checks.show(cell)}, a list and no number") from None
        if known is None:
            known = seen[cell] = _number(cell, what, comma) or _refuse(sheet, row, column, cell, what)
        found.values[row], currency, percent[row] = known
        if currency is not None and currency not in first_in:
            first_in[currency] = row
            if len(first_in) > 1:
                other = next(iter(first_in))
                raise ValueError(
                    f"{_at(sheet, row, column)} is {checks.show(cell)}, in {currency}, but {_at(sheet, first_in[other], column)} is in {other}: "
                    "convert all costs to one currency"
                )
    if first_in:
        found.currency = next(iter(first_in))
        found.said.append(f"currency signs left out ({found.currency})")
    if percent.any():
        found.percent = percent
    if comma:
        found.said.append("decimal commas read as points")
    elif any(isinstance(cell, str) and "," in cell for cell in seen):
        found.said.append("commas between thousands left out")
    if any(isinstance(cell, str) and cell.strip().lower() in _WORDS for cell in seen):
        words = list(
            dict.fromkeys(cell.strip() for cell in seen if isinstance(cell, str) and cell.strip().lower() in _WORDS)
        )
        found.said.append(", ".join(f"{word!r} counts as {_WORDS[word.lower()]:g}" for word in words[:4]))
    return _finite(sheet, column, found, what)


def looks_like_numbers(cells: np.ndarray, words: bool = True) -> bool:
    """Whether at least half of the first cells that are not empty are numbers, or words for 0 and 1."""
    if cells.dtype.kind in "biuf":
        return True
    some = [cell for cell in cells[:1000] if not empty(cell)][:200]
    kind = "score" if words else "cost"
    return (
        bool(some)
        and sum(not isinstance(c, (list, dict)) and _number(c, kind, False) is not None for c in some) >= len(some) / 2
    )


def looks_like_text(cells: np.ndarray) -> bool:
    """Whether some of the first cells have several words."""
    some = [str(cell) for cell in cells[:500] if not empty(cell)][:200]
    return sum(bool(re.search(r"[^\W\d_]+\s+\S", text)) for text in some) > 0.2 * len(some)


def _number(cell: Any, what: str, comma: bool) -> tuple[float, str | None, bool] | None:
    """Value, currency and whether it is percent; None for what is no number."""
    if isinstance(cell, (bool, np.bool_)):
        return float(cell), None, False
    if isinstance(cell, (int, float, np.integer, np.floating)):
        try:
            return float(cell), None, False
        except OverflowError:
            return np.inf, None, False
    text = str(cell).strip().replace("\u2212", "-").replace("\u00a0", " ").replace("\u202f", " ")
    if what == "score" and text.lower() in _WORDS:
        return _WORDS[text.lower()], None, False
    if text.lower().lstrip("+-") in ("inf", "infinity"):
        return np.inf, None, False
    currency, percent, factor = None, False, 1.0
    if what in ("cost", "price"):
        marks = _CURRENCY.findall(text)
        if marks:
            match = _CURRENCY.search(text)
            mark = match[0].lower() if match else ""
            currency = _MARKS.get(mark, mark.upper())
            text = _CURRENCY.sub("", text).strip()
    if what == "score" and text.endswith("%"):
        text, percent, factor = text[:-1].strip(), True, 0.01
    unit = re.search(r"[a-z]+$", text, re.IGNORECASE) if what in ("latency", "cost") else None
    if unit and unit[0].lower() in _UNITS and (what == "latency") == (unit[0].lower() != "j"):
        text, factor = text[: unit.start()].strip(), _UNITS[unit[0].lower()]
    slash = re.fullmatch(r"(\d+(?:\.\d+)?)\s*/\s*(\d+(?:\.\d+)?)", text) if what == "score" else None
    if slash and float(slash[2]):
        return float(slash[1]) / float(slash[2]), None, False
    if re.fullmatch(r"[+-]?\d{1,3}([ '’]\d{3})+([.,]\d+)?", text):
        text = re.sub(r"[ '’]", "", text)
    if comma:
        text = text.replace(".", "").replace(",", ".") if "," in text else text
    elif re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?", text):
        text = text.replace(",", "")
    if not _PLAIN_NUMBER.match(text):
        return None
    return float(text) * factor, currency, percent


def _has_decimal_comma(sheet: Sheet, cells: list[Any]) -> bool:
    """Whether commas in a column are decimal: some cell cannot be read otherwise, or semicolons are between columns and no cell has a point."""
    texts = [cell for cell in cells if isinstance(cell, str) and "," in cell]
    if not texts:
        return False
    for text in texts:
        number = re.sub(r"[^0-9.,]", "", text)
        if "." in number:
            if number.rfind(",") > number.rfind("."):
                return True
        elif number.count(",") == 1 and (
            re.fullmatch(r"0*,\d+|0+\d*,\d+", number) or not re.fullmatch(r"\d{1,3},\d{3}", number)
        ):
            return True
    return sheet.decimal_comma and not any(isinstance(cell, str) and "." in cell for cell in cells)


def _at(sheet: Sheet, row: int, column: str) -> str:
    return f"{sheet.place(row)}, column {column!r}"


def _refuse(sheet: Sheet, row: int, column: str, cell: Any, what: str) -> Any:
    reason = fault(cell)
    known = (
        ": a number, a percentage, or a word such as yes, no, true, false, pass, fail" if what == "score" else ": a number"
    )
    advice = "" if ": " in reason else f"; write{known[1:]}, or leave the cell empty where there is none"
    raise ValueError(f"{_at(sheet, row, column)} {reason}{advice}")


def _finite(sheet: Sheet, column: str, numbers: Numbers, what: str) -> Numbers:
    """Refuses what is infinite, and what is negative where it cannot be."""
    wrong = np.isinf(numbers.values)
    if what in ("cost", "tokens", "latency", "price"):
        wrong |= numbers.values < 0
    if wrong.any():
        row = int(np.argmax(wrong))
        rule = "finite" if what in ("score", "feature") else "finite and at least 0"
        raise ValueError(
            f"{_at(sheet, row, column)} is {checks.show(sheet.cells(column)[row])}; a {what} must be {rule}: mend it, or empty the cell to count "
            "it as missing"
        )
    return numbers


def read_latency(sheet: Sheet, column: str) -> Numbers:
    """`[R]` seconds, of a column whose name may end in ms."""
    numbers = read_numbers(sheet, column, "latency")
    name = plain(column)
    if name.endswith(("ms", "milliseconds", "millis")) or re.search(r"(^|[^a-z])ms([^a-z]|$)", column.lower()):
        numbers.values /= 1000.0
        numbers.said.append("milliseconds turned into seconds")
    return numbers


def read_dates(sheet: Sheet, column: str) -> np.ndarray:
    """`[R]` datetime64[s], NaT where a cell is empty; ISO 8601, or seconds or milliseconds since 1970, in UTC.

    Raises:
      ValueError: a cell is no date.
    """
    cells = sheet.cells(column)
    if cells.dtype.kind == "M":
        return cells.astype("datetime64[s]")
    found = np.full(len(cells), np.datetime64("NaT"), "datetime64[s]")
    for row, cell in enumerate(cells):
        if empty(cell):
            continue
        try:
            found[row] = _date(cell)
        except (ValueError, OverflowError, OSError, TypeError):
            raise ValueError(
                f"{_at(sheet, row, column)} is {checks.show(cell)}, which is no date; write 2025-01-31 or 2025-01-31 14:05:00"
            ) from None
    return found


def _date(cell: Any) -> np.datetime64:
    if isinstance(cell, np.datetime64):
        return cell.astype("datetime64[s]")
    if isinstance(cell, datetime):
        return _naive(cell)
    if not isinstance(cell, str) and hasattr(cell, "isoformat"):
        return np.datetime64(cell.isoformat(), "s")
    text = str(cell).strip()
    try:
        seconds = float(text)
    except ValueError:
        return _naive(datetime.fromisoformat(text.replace("/", "-")))
    if len(text) == 8 and text.isdigit() and 1970 <= int(text[:4]) <= 2100:
        return _naive(datetime.fromisoformat(text))
    seconds /= 1000.0 if seconds > 1e11 else 1.0
    if seconds < 1e8:  # Before March 1973: seconds of something else.
        raise ValueError
    return np.datetime64(int(seconds), "s")


def _naive(moment: datetime) -> np.datetime64:
    moment = moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    return np.datetime64(moment, "s")


# Scales of scores.

Place = Callable[[int, int], str]


def in_unit(
    scores: np.ndarray, percent: np.ndarray | None, scale: tuple[float, float] | None, name: str, at: Place
) -> tuple[np.ndarray, str | None]:
    """Scores in [0, 1], and what was done to them in words.

    Args:
      scores: `[Q, N]`, NaN where there is none; what had a % sign is a fraction already.
      percent: `[Q, N]` what had a % sign, or None.
      scale: the lowest and the highest score there can be; None to find out.
      name: of the column.
      at: the place of a score.

    Raises:
      ValueError: a score lies outside, or what the scale is cannot be told.
    """
    known = scores[np.isfinite(scores)]
    if scale is not None:
        low, high = _scale(scale)
        _outside(scores, low, high, f"the scale {low:g}:{high:g} that was given", at)
        return (scores - low) / (high - low), None if (low, high) == (
            0,
            1,
        ) else f"scale {low:g}:{high:g} mapped to 0:1, as given"
    if not known.size or (known.min() >= 0 and known.max() <= 1):
        return scores, "percentages divided by 100" if percent is not None else None
    if percent is not None:
        if percent[np.isfinite(scores)].all():
            _outside(scores, 0.0, 1.0, "0 % to 100 %", at)
        row, column = map(int, np.argwhere((scores > 1) & ~percent)[0]) if ((scores > 1) & ~percent).any() else (0, 0)
        raise ValueError(
            f"{at(row, column)} is {scores[row, column]:g} without a % sign, where others have one: write all in one way"
        )
    slight = (known < 0) | (known > 1)
    if slight.mean() < 0.01 and known.min() >= -0.05 and known.max() <= 1.05:
        far = max(-known.min(), known.max() - 1.0)
        return np.clip(
            scores, 0.0, 1.0
        ), f"{slight.sum()} of {known.size:,} outside [0, 1] by at most {far:.2g}: cut off at the end"
    low, high, whole = known.min(), known.max(), bool((known == np.round(known * 2) / 2).all())
    remedy = "say which scale it is (scale=(LOW, HIGH), on the command line --scale LOW:HIGH)"
    if low < 0 or high > 100:
        row, column = map(int, np.argwhere((scores < 0) | (scores > 100))[0])
        raise ValueError(
            f"{at(row, column)} is {scores[row, column]:g}; scores must lie in [0, 1] or [0, 100]: mend it, or {remedy}"
        )
    judged = any(word in name.lower() for word in ("judge", "rating", "grade", "stars", "likert"))
    if high <= 10 and (judged or (whole and high in (5.0, 10.0) and len(np.unique(known)) > 2)):
        top, bottom = (5.0 if high <= 5 else 10.0), (0.0 if low < 1 else 1.0)
        return (scores - bottom) / (top - bottom), f"taken for a scale of {bottom:g} to {top:g} and mapped to 0 to 1"
    fractions = (known > 0) & (known < 1)
    if high > 10 and known.mean() > 1 and fractions.sum() <= 0.05 * known.size:
        return scores / 100.0, "taken for percent, and divided by 100"
    row, column = map(int, np.argwhere(scores > 1)[0])
    raise ValueError(
        f"{at(row, column)} is {scores[row, column]:g}, and scores go from {low:g} to {high:g}: are they fractions, percent or grades? mend the value, "
        f"or {remedy}, for example 0:10"
    )


def _scale(scale: Any) -> tuple[float, float]:
    try:
        low, high = (float(value) for value in scale)
    except (TypeError, ValueError):
        raise ValueError(f"scale must be two numbers (LOW, HIGH), got {checks.show(scale)}") from None
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise ValueError(f"scale must be (LOW, HIGH) with LOW below HIGH, got {checks.show(scale)}")
    return low, high


def _outside(scores: np.ndarray, low: float, high: float, rule: str, at: Place) -> None:
    wrong = (scores < low) | (scores > high)
    if wrong.any():
        row, column = map(int, np.argwhere(wrong)[0])
        raise ValueError(f"{at(row, column)} is {scores[row, column]:g}, outside {rule}")
