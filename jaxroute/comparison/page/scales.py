"""Axes: from a value to a place in a picture, and ticks at round values."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from jaxroute.comparison.page import numbers

_WIDE = 20.0  # Costs that span more than this go on a logarithmic axis.
_ZERO_ROOM = 38.0  # Between zero and the start of a logarithmic axis, which has no place for it.


@dataclass(frozen=True)
class Scale:
    """An axis of a picture.

    Attributes:
      low: value at its start.
      high: value at its end.
      start: place of `low`.
      end: place of `high`; less than `start` on an axis that goes up.
      log: whether it is logarithmic.
      zero: place of zero on a logarithmic axis that has one, set apart; else None.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    zero: float | None = None

    def __call__(self, value: float) -> float:
        """Place of a value, kept on the axis."""
        if self.log and value <= 0:
            return self.zero if self.zero is not None else self.start
        a, b, v = (math.log(x) if self.log else x for x in (self.low, self.high, value))
        part = min(max((v - a) / (b - a), 0.0), 1.0)
        return self.start + part * (self.end - self.start)

    def ticks(self, most: int = 8) -> list[tuple[float, str]]:
        """Round values and their labels, zero among them where it has a place apart."""
        values = _powers(self.low, self.high, most) if self.log else _steps(self.low, self.high, most)
        if self.zero is not None:
            values = [0.0, *values]
        return list(zip(values, numbers.ticks(values, self.log), strict=True))


def of_costs(values: Iterable[float], start: float, end: float) -> Scale:
    """An axis for costs: logarithmic if they span more than a factor of twenty, where a zero gets a place before the others."""
    values = list(values)
    positive = [v for v in values if v > 0]
    if positive and max(positive) > _WIDE * min(positive):
        zero = None
        if min(values) <= 0:
            zero, start = start + math.copysign(8.0, end - start), start + math.copysign(8.0 + _ZERO_ROOM, end - start)
        room = (max(positive) / min(positive)) ** 0.05
        return Scale(min(positive) / room, max(positive) * room, start, end, log=True, zero=zero)
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    return _linear(low, high, start, end, floor=0.0)


def of_qualities(values: Iterable[float], start: float, end: float) -> Scale:
    """An axis for fractions, in percent: labels are those of 100 times the value."""
    values = [100 * v for v in values] or [0.0, 100.0]
    return _linear(min(values), max(values), start, end)


def of_counts(values: Iterable[float], start: float, end: float) -> Scale:
    """An axis for numbers of queries, from zero on."""
    return Scale(0.0, max([*values, 1.0]), start, end)


def _linear(low: float, high: float, start: float, end: float, floor: float | None = None) -> Scale:
    room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    low, high = low - room, high + room
    if floor is not None and low < 0.4 * (high - low):
        low = floor - (0.02 * high if floor == 0.0 else 0.0)
    return Scale(low, high, start, end)


def _steps(low: float, high: float, most: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) if step > 1e-9 else i * step for i in range(first, last + 1)]


def _powers(low: float, high: float, most: int) -> list[float]:
    """Powers of ten, with 2 and 5 between them if there is room."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for leads in ((1, 2, 5), (1, 3), (1,)):
        values = [float(f"{lead}e{power}") for power in range(first, last + 1) for lead in leads]
        values = [v for v in values if low <= v <= high]
        if len(values) <= most:
            return values
    return values[:: -(-len(values) // most)]
