"""Formats numbers for a report: three digits, the standard error in parentheses, and powers of ten for tiny and huge numbers."""

import math
from decimal import ROUND_HALF_UP, Decimal
from typing import TypeGuard

from jaxroute.comparison.points import Pair

NOTHING = "\N{EN DASH}"
_MINUS = "\N{MINUS SIGN}"
_SUPERSCRIPTS = str.maketrans("-0123456789", "\N{SUPERSCRIPT MINUS}⁰¹²³⁴⁵⁶⁷⁸⁹")
_SMALLEST, _LARGEST = -5, 6  # Exponents of numbers that are written without a power of ten: 0.0000123, but not 0.00000123.


def known(value: float | None) -> TypeGuard[float]:
    """Whether a value is a finite number."""
    return value is not None and math.isfinite(value)


def measured(pair: Pair | None, unit: str = "", *, decimals: int | None = None) -> str:
    """Formats a mean and its error (`pair`), as in "0.00614 (0.0002) USD", to `decimals` (None: 3 significant digits); an unknown mean is a dash."""
    value, error = pair or (None, None)
    if not known(value):
        return NOTHING
    power = _exponent(value)
    tens = power if decimals is None and value and not _SMALLEST <= power <= _LARGEST else 0
    places = max(0, 2 - power + tens) if decimals is None else decimals
    text = _rounded(value, places, tens, significant=3 if decimals is None else None)
    if known(error):
        text += f" ({_error(abs(error), tens, decimals)})"
    return " ".join(part for part in (text, _power(tens), unit) if part)


def plain(value: float | None, unit: str = "") -> str:
    """Formats a number with three significant digits and its unit, without an error; an unknown number is a dash."""
    return measured((value, None), unit)


def percent(pair: Pair | None) -> str:
    """Formats a fraction and its standard error (`pair`) as percentages with one decimal, as in "75.1 (0.4) %"; an unknown fraction is a dash."""
    value, error = pair or (None, None)
    if not known(value):
        return NOTHING
    return measured((100 * value, 100 * error if known(error) else None), "%", decimals=1)


def within(pair: Pair, interval: Pair | None, evidence: str = "") -> str:
    """Formats a fraction with its interval, as in "75.1 % (73.0 to 77.2)"; without one with its error, if `evidence` is "observed", or as "about"."""
    if interval is not None:
        low, high = (percent((end, None)).removesuffix(" %") for end in interval)
        return f"{percent((pair[0], None))} ({low} to {high})"
    return f"about {percent((pair[0], None))}" if evidence in ("extrapolated", "reweighted") else percent(pair)


def share(value: float) -> str:
    """Formats a fraction, such as a target, as a percentage of up to nine digits without trailing zeros, as in "75 %"."""
    return f"{_trimmed(100 * value)} %"


def portions(shares: dict[str, float]) -> str:
    """Lists the shares of the queries for which each model is called, in decreasing order, as in "a 65 %, b 4.2 %"."""
    ranked = sorted(shares.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {100 * part:.{0 if part >= 0.0995 else 1}f} %" for name, part in ranked)


def ticks(values: list[float], log: bool = False) -> list[str]:
    """Formats tick labels. Very small or large numbers get a power of ten: one for all labels or, on a logarithmic axis (`log`), one for each."""
    top = _exponent(max(map(abs, values), default=0.0))
    return [_tick(v, _exponent(v) if log else top) for v in values]


def count(number: int, one: str, many: str = "") -> str:
    """Formats a number with its noun, as in "1 model" and "11 models". `many` is the plural if it is not `one` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _tick(value: float, power: int) -> str:
    if not value or _SMALLEST < power < _LARGEST:
        return _trimmed(value)
    lead = value / 10.0**power
    return _power(power)[2:] if math.isclose(lead, 1.0) else f"{_trimmed(lead)}\N{THIN SPACE}{_power(power)}"


def _trimmed(value: float) -> str:
    """Formats a number with up to nine digits, without trailing zeros or a power of ten."""
    text = f"{Decimal(f'{value:.9g}'):,f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", _MINUS)


def _exponent(value: float) -> int:
    """Returns the decimal exponent of a number after rounding to three digits; 0 for zero."""
    return int(f"{abs(value):.2e}".split("e")[1]) if value else 0


def _power(tens: int) -> str:
    return f"× 10{str(tens).translate(_SUPERSCRIPTS)}" if tens else ""


def _rounded(value: float, places: int, tens: int = 0, significant: int | None = None) -> str:
    """Formats `value / 10**tens` with `places` decimals; -1 rounds to a multiple of 10, -2 to one of 100. Halves are rounded away from zero.

    If `significant` is given, a number without decimals has only that many significant digits: 123,456 becomes 123,000 for 3.
    """
    number = Decimal(repr(float(value))).scaleb(-tens)
    if significant is not None and number:
        places = min(places, significant - 1 - number.adjusted()) if places <= 0 else places
    number = number.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
    text = f"{number:,f}" if number else f"{abs(number):f}"
    return text.replace("-", _MINUS)


def _error(error: float, tens: int, decimals: int | None) -> str:
    """Formats `error / 10**tens` with `decimals` decimals, or with one significant digit if all of these would be 0.

    If `decimals` is None, it has one significant digit, or two if the first is 1. An error of 0 is "0".
    """
    number = Decimal(repr(float(error))).scaleb(-tens)
    if not number:
        return "0"
    places = -number.adjusted() + (str(number.normalize().as_tuple().digits[0]) == "1")
    if decimals is not None:
        places = decimals if places <= decimals or round(float(number), decimals) else -number.adjusted()
    text = f"{number.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP):,f}"
    return text.rstrip("0").rstrip(".") if "." in text and decimals is None else text
