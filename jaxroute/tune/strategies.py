"""Search strategies: CMA-ES and two baselines, random points and a lattice.

A strategy only holds settings. Its method `begin` makes an optimiser for one structure (combination of choices), which proposes points of the
unit cube and receives only their order from best to worst. The code that ranks them handles constraints and noise.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxroute.core import checks


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
        """Returns the number of candidates of a generation in a search over `dimensions` numeric hyperparameters."""
        del dimensions
        return self.size

    def begin(self, steps: np.ndarray, start: np.ndarray | None, seed: int) -> "_CMAOptimizer":
        """Returns an optimiser for one structure (combination of choices).

        Args:
          steps: `[d]` distance of neighbouring values of each hyperparameter in the unit cube, 0 for a real-valued one.
          start: `[d]` first point (default: the centre).
          seed: seed of the optimiser's random numbers.
        """
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
        """Returns a whole generation of points in the unit cube, `[n, d]`, or no points if `number` is less than a generation."""
        if number < self.inner.population_size:
            return np.zeros((0, len(self.steps)))
        asked = [self.inner.ask() for _ in range(self.inner.population_size)]
        self._raw = [raw for _, raw in asked]
        return np.array([point for point, _ in asked])

    def tell(self, order: Sequence[int]) -> None:
        """Receives the ranking of the points of the last `ask`: their row indices from best to worst."""
        # Ranks serve as the scores, because the update depends only on their order.
        self.inner.tell([(self._raw[index], float(rank)) for rank, index in enumerate(order)])

    def centre(self) -> np.ndarray | None:
        """Returns the mean of the normal distribution, rounded to whole numbers where needed. It is mostly better than the best candidate."""
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
        return _Sequence((generator.random(len(steps)) for _ in itertools.count()), len(steps))


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
        return _Sequence(iter(np.random.default_rng(seed).permutation(cube)), len(steps))


class _Sequence:
    """Optimiser that proposes given points in order and ignores their ranking."""

    def __init__(self, points: Iterator[np.ndarray], dimensions: int):
        self.points, self.dimensions = points, dimensions

    def ask(self, number: int) -> np.ndarray:
        return np.array(list(itertools.islice(self.points, number))).reshape(-1, self.dimensions)

    def tell(self, order: Sequence[int]) -> None:
        del order

    def centre(self) -> None:
        return None


Strategy = CMAES | Random | Lattice
Optimizer = _CMAOptimizer | _Sequence
