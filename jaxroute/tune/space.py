"""Search spaces, and strategies that propose their candidates.

A space maps each numeric hyperparameter to a position from 0 to 1, and each combination of discrete choices to a structure. The positions of all
numeric hyperparameters form a point of the unit cube. Every structure is searched in a separate cube.

A strategy (CMA-ES, and two baselines, random points and a lattice) only holds settings. Its method `begin` makes an optimiser for one structure,
which proposes points of the unit cube and receives only their order from best to worst. The code that ranks them handles constraints and noise.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxroute.core import checks

_MAX_VALUES = 64  # Largest number of candidate values of an integer on a logarithmic scale.


@dataclass(frozen=True)
class Linear:
    """Range of a real-valued hyperparameter, searched on a linear scale.

    Attributes:
      low: smallest value.
      high: largest value.
    """

    low: float
    high: float

    def check(self, name: str) -> None:
        """Raises ValueError, with the hyperparameter's `name`, unless the bounds are finite and in order."""
        for end in ("low", "high"):
            checks.numbers(f"parameters[{name!r}].{end}", getattr(self, end), ())
        if not self.low < self.high:
            raise ValueError(f"parameters[{name!r}] must have low < high, got {self}")

    num_values = 0  # Number of possible values; 0 means that every real number in the range is possible.

    def at(self, position: float) -> Any:
        """Returns the hyperparameter's value at a position: `low` at 0, `high` at 1."""
        return self._clip(self.low + (self.high - self.low) * position)

    def _clip(self, value: float) -> float:
        # Twelve digits, so that a position maps back to exactly the value that the user wrote, such as 0.1.
        return float(min(max(float(f"{value:.12g}"), self.low), self.high))

    def position(self, value: Any) -> float:
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Log(Linear):
    """Range of a positive hyperparameter, searched on a logarithmic scale."""

    def check(self, name: str) -> None:
        super().check(name)
        if self.low <= 0:
            raise ValueError(f"parameters[{name!r}] must have 0 < low on a logarithmic scale, got {self}")

    def at(self, position: float) -> Any:
        return self._clip(self.low * (self.high / self.low) ** position)

    def position(self, value: Any) -> float:
        return math.log(value / self.low) / math.log(self.high / self.low)


@dataclass(frozen=True)
class Integer:
    """Range of a whole-number hyperparameter.

    Attributes:
      low: smallest value.
      high: largest value.
      log: whether the scale is logarithmic; a wide range then has about 64 candidate values, evenly spaced in the logarithm.
    """

    low: int
    high: int
    log: bool = False

    def check(self, name: str) -> None:
        checks.whole(f"parameters[{name!r}].low", self.low, minimum=1 if self.log else -(2**31))
        checks.whole(f"parameters[{name!r}].high", self.high, minimum=-(2**31), maximum=2**31 - 1)
        if not self.low < self.high:
            raise ValueError(f"parameters[{name!r}] must have low < high, got {self}")

    @property
    def num_values(self) -> int:
        return len(self._log_values) if self.log else self.high - self.low + 1

    @property
    def _log_values(self) -> np.ndarray:
        number = min(_MAX_VALUES, self.high - self.low + 1)
        return np.unique(np.rint(np.geomspace(self.low, self.high, number)).astype(int))

    def at(self, position: float) -> Any:
        index = round(min(max(position, 0.0), 1.0) * (self.num_values - 1))
        return int(self._log_values[index]) if self.log else self.low + index

    def position(self, value: Any) -> float:
        """Returns the position (0 to 1) of a value. On a logarithmic scale, it is the position of the nearest candidate value."""
        index = int(np.abs(np.log(self._log_values / value)).argmin()) if self.log else value - self.low
        return index / (self.num_values - 1)


@dataclass(frozen=True)
class Choice:
    """List of alternatives for a hyperparameter that changes compiled code, such as a size or a component. Each is compiled separately.

    Attributes:
      values: the alternatives.
    """

    values: Sequence[Any]

    def check(self, name: str) -> None:
        if isinstance(self.values, str) or not isinstance(self.values, Sequence) or len(self.values) < 1:
            raise ValueError(f"parameters[{name!r}] must be a Choice of a list of values, got {checks.show(self.values)}")
        if len(set(self.names)) < len(self.values):
            got = ", ".join(self.names)
            raise ValueError(f"parameters[{name!r}] must be a Choice of values with different names, got {got}")

    @property
    def names(self) -> list[str]:
        """Names by which a search history refers to the alternatives."""
        return [v if isinstance(v, str) else getattr(v, "__name__", None) or checks.show(v) for v in self.values]

    def index(self, value: Any) -> int | None:
        """Returns the index of an alternative; None if `value` is no alternative."""
        return next((i for i, own in enumerate(self.values) if value is own or value == own), None)


Scale = Linear | Integer | Choice


@dataclass(frozen=True)
class Space:
    """Search space: the hyperparameters of a search and their ranges.

    Attributes:
      parameters: range or list of alternatives of each hyperparameter, by name.
    """

    parameters: Mapping[str, Scale]

    @staticmethod
    def of(parameters: Any) -> "Space":
        """Makes a search space from the user's dict. Raises ValueError if it is empty, or an entry has no range or wrong bounds."""
        if not isinstance(parameters, Mapping) or not parameters:
            got = checks.show(parameters)
            raise ValueError(f"parameters must be a dict of name to scale with at least one entry, got {got}")
        for name, scale in parameters.items():
            if not isinstance(name, str):
                raise ValueError(f"parameters must be named by strings, got {checks.show(name)}")
            if not isinstance(scale, Scale):
                raise ValueError(f"parameters[{name!r}] must be Linear, Log, Integer or Choice, got {checks.show(scale)}")
            scale.check(name)
        return Space(dict(parameters))

    @property
    def numeric(self) -> dict[str, Linear | Integer]:
        """Hyperparameters with a numeric range; their order is that of the coordinates of a point."""
        return {name: scale for name, scale in self.parameters.items() if not isinstance(scale, Choice)}

    @property
    def choices(self) -> dict[str, Choice]:
        """Hyperparameters with a list of alternatives."""
        return {name: scale for name, scale in self.parameters.items() if isinstance(scale, Choice)}

    @property
    def structures(self) -> list[dict[str, Any]]:
        """All structures: one dict of hyperparameter to alternative for each combination. Without choices, a single empty dict."""
        return [dict(zip(self.choices, v)) for v in itertools.product(*(c.values for c in self.choices.values()))]

    @property
    def steps(self) -> np.ndarray:
        """Distance of neighbouring values of each numeric hyperparameter in the unit cube, `[d]`; 0 for a real-valued one."""
        return np.array([1.0 / (s.num_values - 1) if s.num_values else 0.0 for s in self.numeric.values()])

    @property
    def centre(self) -> np.ndarray:
        return np.full(len(self.numeric), 0.5)

    def values(self, structure: int, point: Sequence[float] | np.ndarray) -> dict[str, Any]:
        """Returns all hyperparameters of a candidate, given the index of its structure and its point `[d]` in the unit cube."""
        numbers = {n: s.at(float(u)) for (n, s), u in zip(self.numeric.items(), point, strict=True)}
        found = self.structures[structure] | numbers
        return {name: found[name] for name in self.parameters}

    def locate(self, argument: str, values: Any) -> tuple[int, np.ndarray]:
        """Returns the index of the structure and the point `[d]` in the unit cube of given hyperparameters; `argument` names them in errors.

        Raises `ValueError` if a hyperparameter is missing or unknown, or a value lies outside of its range.
        """
        if not isinstance(values, Mapping):
            raise ValueError(f"{argument} must be a dict of hyperparameter to value, got {checks.show(values)}")
        for name in values:
            checks.one_of(argument, name, self.parameters)
        chosen = []
        for name, scale in self.parameters.items():
            if name not in values:
                raise ValueError(f"{argument} must have a value for each hyperparameter, {name!r} has none")
            value, label = values[name], f"{argument}[{name!r}]"
            if isinstance(scale, Choice):
                chosen.append(scale.index(value))
                if chosen[-1] is None:
                    raise ValueError(f"{label} must be one of {', '.join(scale.names)}, got {checks.show(value)}")
            elif not scale.low <= float(checks.numbers(label, value, ())) <= scale.high:
                raise ValueError(f"{label} must be from {scale.low:g} to {scale.high:g}, got {checks.show(value)}")
        sizes = [len(scale.values) for scale in self.choices.values()]
        structure = int(np.ravel_multi_index(chosen, sizes)) if sizes else 0
        return structure, np.array([scale.position(values[name]) for name, scale in self.numeric.items()])


@dataclass(frozen=True)
class CMAES:
    """Covariance matrix adaptation: candidates come from a normal distribution that moves towards the better half of each generation.

    Whole numbers always have some probability to change (CMA-ES with margin). Needs `pip install "jaxroute[tune]"`.

    Source: Hansen (2016), arXiv 1604.00772; margin: Hamano et al. (2022), arXiv 2205.13482; as implemented by the library `cmaes`.

    Attributes:
      size: number of candidates of a generation; a small one allows many generations.
      width: standard deviation of the first generation, as a share of the range of each hyperparameter.
    """

    size: int = 8
    width: float = 0.3

    def check(self) -> None:
        """Raises ValueError unless a generation has at least four candidates and the width is positive."""
        checks.whole("size", self.size, 4)
        checks.positive("width", self.width, ())

    def population(self, dimensions: int) -> int:
        """Returns the number of candidates of a generation, `size`, whatever the number `dimensions` of numeric hyperparameters."""
        del dimensions
        return self.size

    def begin(self, steps: np.ndarray, start: np.ndarray | None, seed: int) -> "_CMAOptimizer":
        """Returns an optimiser for one structure from `Space.steps`, the first mean `start` `[d]` (None: the centre), and a `seed` for its draws."""
        try:
            import cmaes
        except ImportError:
            raise ImportError('CMA-ES needs cmaes: pip install "jaxroute[tune]"') from None
        mean = np.full(len(steps), 0.5) if start is None else np.clip(start, 0.0, 1.0)
        box = np.tile([0.0, 1.0], (len(steps), 1))
        inner = cmaes.CMAwM(mean, self.width, bounds=box, steps=steps, seed=seed, population_size=self.size)
        return _CMAOptimizer(inner, steps)


class _CMAOptimizer:
    """Optimiser that calls `CMAwM` (CMA-ES with margin) of the library `cmaes`; without whole numbers, the margin has no effect."""

    def __init__(self, inner: Any, steps: np.ndarray):
        self.inner, self.steps = inner, steps
        self._raw: list[np.ndarray] = []

    def ask(self, number: int) -> np.ndarray:
        """Returns a generation of points in the unit cube, `[size, d]`; none, `[0, d]`, if the budget of `number` points is below `size`."""
        if number < self.inner.population_size:
            return np.zeros((0, len(self.steps)))
        generation = [self.inner.ask() for _ in range(self.inner.population_size)]
        self._raw = [raw for _, raw in generation]
        return np.array([point for point, _ in generation])

    def tell(self, order: Sequence[int]) -> None:
        """Receives the ranking of the points of the last `ask`: their row indices from best to worst."""
        # Ranks serve as the scores, because the update depends only on their order.
        self.inner.tell([(self._raw[index], float(rank)) for rank, index in enumerate(order)])

    def centre(self) -> np.ndarray | None:
        """Returns the mean of the distribution, `[d]` in the unit cube, rounded to possible whole numbers; mostly better than the best candidate."""
        mean = np.clip(self.inner.mean, 0.0, 1.0)
        whole = np.rint(mean / np.where(self.steps > 0, self.steps, 1.0)) * self.steps
        return np.where(self.steps > 0, whole, mean)


@dataclass(frozen=True)
class Random:
    """Random search, the baseline of every search: proposes uniformly distributed points of the unit cube.

    Attributes:
      size: number of candidates of a generation.
    """

    size: int = 16

    def check(self) -> None:
        checks.whole("size", self.size)

    def population(self, dimensions: int) -> int:
        del dimensions
        return self.size

    def begin(self, steps: np.ndarray, start: np.ndarray | None, seed: int) -> "_Sequence":
        del start
        generator = np.random.default_rng(seed)
        return _Sequence(generator.random(len(steps)) for _ in itertools.count())


@dataclass(frozen=True)
class Lattice:
    """Grid search: proposes the points of a regular lattice, which includes the bounds, in random order until the budget is spent.

    Attributes:
      points: number of values of each hyperparameter.
      size: number of candidates of a generation.
    """

    points: int = 5
    size: int = 16

    def check(self) -> None:
        checks.whole("points", self.points, 2)
        checks.whole("size", self.size)

    def population(self, dimensions: int) -> int:
        return min(self.size, self.points**dimensions)

    def begin(self, steps: np.ndarray, start: np.ndarray | None, seed: int) -> "_Sequence":
        del start
        axis = np.linspace(0.0, 1.0, self.points)
        cube = np.stack(np.meshgrid(*[axis] * len(steps), indexing="ij"), -1).reshape(-1, len(steps))
        return _Sequence(iter(np.random.default_rng(seed).permutation(cube)))


class _Sequence:
    """Optimiser that proposes given points in order and ignores their ranking."""

    def __init__(self, points: Iterator[np.ndarray]):
        self.points = points

    def ask(self, number: int) -> np.ndarray:
        return np.array(list(itertools.islice(self.points, number)))

    def tell(self, order: Sequence[int]) -> None:
        del order

    def centre(self) -> None:
        return None


Strategy = CMAES | Random | Lattice
Optimizer = _CMAOptimizer | _Sequence
