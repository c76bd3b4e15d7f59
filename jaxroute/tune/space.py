"""Where a search looks: leaves with bounds and scales, and choices among structures, as a cube of positions from 0 to 1."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxroute.core import checks

# Whole numbers on a logarithmic scale: at most so many of them are candidates.
_MOST_STEPS = 64


@dataclass(frozen=True)
class Linear:
    """A number between two others.

    low: smallest value.
    high: largest value.
    """

    low: float
    high: float

    def check(self, name: str) -> None:
        """`ValueError` unless the bounds are finite and in order."""
        checks.numbers(f"leaves[{name!r}].low", self.low, ())
        checks.numbers(f"leaves[{name!r}].high", self.high, ())
        if not self.low < self.high:
            raise ValueError(f"leaves[{name!r}] must have low < high, got {self}")

    @property
    def number(self) -> int:
        """How many values there are; 0 for a continuum."""
        return 0

    def at(self, position: float) -> Any:
        """The value at a position from 0 to 1."""
        return self._inside(self.low + (self.high - self.low) * position)

    def _inside(self, value: float) -> float:
        """A value within the bounds, of so few digits that one which a user wrote is met again."""
        return float(min(max(float(f"{value:.12g}"), self.low), self.high))

    def position(self, value: Any) -> float:
        """The position of a value."""
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Log(Linear):
    """A positive number between two others, on a logarithmic scale."""

    def check(self, name: str) -> None:
        super().check(name)
        if self.low <= 0:
            raise ValueError(f"leaves[{name!r}] must have 0 < low on a logarithmic scale, got {self}")

    def at(self, position: float) -> Any:
        return self._inside(self.low * (self.high / self.low) ** position)

    def position(self, value: Any) -> float:
        return math.log(value / self.low) / math.log(self.high / self.low)


@dataclass(frozen=True)
class Integer:
    """A whole number between two others.

    low: smallest value.
    high: largest value.
    log: on a logarithmic scale; of a wide range the candidates are then some 64 values, spaced evenly in the logarithm.
    """

    low: int
    high: int
    log: bool = False

    def check(self, name: str) -> None:
        """`ValueError` unless the bounds are whole numbers in order."""
        checks.count(f"leaves[{name!r}].low", self.low, minimum=1 if self.log else -(2**31))
        checks.count(f"leaves[{name!r}].high", self.high, minimum=-(2**31), maximum=2**31 - 1)
        if not self.low < self.high:
            raise ValueError(f"leaves[{name!r}] must have low < high, got {self}")

    @property
    def number(self) -> int:
        """How many values there are."""
        return len(self._values) if self.log else self.high - self.low + 1

    @property
    def _values(self) -> np.ndarray:
        """The values of a logarithmic scale."""
        some = min(_MOST_STEPS, self.high - self.low + 1)
        return np.unique(np.rint(np.geomspace(self.low, self.high, some)).astype(int))

    def at(self, position: float) -> Any:
        """The value at a position from 0 to 1."""
        index = round(min(max(position, 0.0), 1.0) * (self.number - 1))
        return int(self._values[index]) if self.log else self.low + index

    def position(self, value: Any) -> float:
        """The position of a value; of one that is no candidate that of the nearest."""
        index = int(np.abs(np.log(self._values / value)).argmin()) if self.log else value - self.low
        return index / (self.number - 1)


@dataclass(frozen=True)
class Choice:
    """One of several objects or numbers, each of which makes a program of its own: static fields, sizes, parts.

    values: the objects.
    """

    values: Sequence[Any]

    def check(self, name: str) -> None:
        """`ValueError` unless there is something to choose."""
        if isinstance(self.values, str) or not isinstance(self.values, Sequence) or len(self.values) < 1:
            raise ValueError(f"leaves[{name!r}] must be a Choice of a list of values, got {checks.show(self.values)}")
        if len(set(self.names)) < len(self.values):
            raise ValueError(
                f"leaves[{name!r}] must be a Choice of values with different names, got {', '.join(self.names)}"
            )

    @property
    def names(self) -> list[str]:
        """What the values are called in a history."""
        return [
            value if isinstance(value, str) else getattr(value, "__name__", None) or checks.show(value)
            for value in self.values
        ]


Scale = Linear | Integer | Choice


@dataclass(frozen=True)
class Space:
    """All candidates of a search.

    leaves: scale by name.
    """

    leaves: Mapping[str, Scale]

    @staticmethod
    def of(leaves: Any) -> "Space":
        """The space of what a user gave as leaves.

        Raises:
          ValueError: there is none, or one of them has no scale, or wrong bounds.
        """
        if not isinstance(leaves, Mapping) or not leaves:
            raise ValueError(f"leaves must be a dict of name to scale with at least one entry, got {checks.show(leaves)}")
        for name, scale in leaves.items():
            if not isinstance(name, str):
                raise ValueError(f"leaves must be named by strings, got {checks.show(name)}")
            if not isinstance(scale, Scale):
                raise ValueError(f"leaves[{name!r}] must be Linear, Log, Integer or Choice, got {checks.show(scale)}")
            scale.check(name)
        return Space(dict(leaves))

    @property
    def numbers(self) -> dict[str, Linear | Integer]:
        """The leaves that have positions."""
        return {name: scale for name, scale in self.leaves.items() if not isinstance(scale, Choice)}

    @property
    def choices(self) -> dict[str, Choice]:
        """The leaves that are chosen among structures."""
        return {name: scale for name, scale in self.leaves.items() if isinstance(scale, Choice)}

    @property
    def structures(self) -> list[dict[str, Any]]:
        """All combinations of the choices; a single empty one without any."""
        return [
            dict(zip(self.choices, values, strict=True))
            for values in itertools.product(*(c.values for c in self.choices.values()))
        ]

    @property
    def structure_names(self) -> list[dict[str, str]]:
        """What the choices of each structure are called."""
        return [
            dict(zip(self.choices, names, strict=True))
            for names in itertools.product(*(c.names for c in self.choices.values()))
        ]

    @property
    def steps(self) -> np.ndarray:
        """`[d]` distance of two values in positions; 0 for a continuum."""
        return np.array([1.0 / (scale.number - 1) if scale.number else 0.0 for scale in self.numbers.values()])

    def values(self, structure: int, point: Sequence[float] | np.ndarray) -> dict[str, Any]:
        """Values by leaf at a point `[d]` of a structure."""
        found = self.structures[structure] | {
            n: s.at(float(u)) for (n, s), u in zip(self.numbers.items(), point, strict=True)
        }
        return {name: found[name] for name in self.leaves}

    def place(self, what: str, values: Any) -> tuple[int, np.ndarray]:
        """Structure and point `[d]` of given values.

        Raises:
          ValueError: a leaf is missing or unknown, or a value lies outside of its bounds.
        """
        if not isinstance(values, Mapping):
            raise ValueError(f"{what} must be a dict of leaf to value, got {checks.show(values)}")
        for name in values:
            checks.one_of(what, name, self.leaves)
        for name, scale in self.leaves.items():
            if name not in values:
                raise ValueError(f"{what} must have a value for each leaf, {name!r} has none")
            value = values[name]
            if isinstance(scale, Choice):
                if not any(value is one or value == one for one in scale.values):
                    raise ValueError(f"{what}[{name!r}] must be one of {', '.join(scale.names)}, got {checks.show(value)}")
            elif not scale.low <= float(checks.numbers(f"{what}[{name!r}]", value, ())) <= scale.high:
                raise ValueError(f"{what}[{name!r}] must be from {scale.low:g} to {scale.high:g}, got {checks.show(value)}")
        chosen = [
            next(i for i, one in enumerate(scale.values) if values[name] is one or values[name] == one)
            for name, scale in self.choices.items()
        ]
        sizes = [len(scale.values) for scale in self.choices.values()]
        structure = int(np.ravel_multi_index(chosen, sizes)) if sizes else 0
        return structure, np.array([scale.position(values[name]) for name, scale in self.numbers.items()])
