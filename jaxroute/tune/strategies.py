"""Which candidates a search plays next: CMA-ES, and its rivals, random points and a lattice.

A strategy is a frozen description; `begin` makes the search of one structure, which is asked for points of the unit cube and told their
order from best to worst. Orders are all that a strategy sees: constraints and noise are the ranking's affair.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from jaxroute.core import checks


class Points(Protocol):
    """The search of one structure."""

    def ask(self, number: int) -> np.ndarray:
        """The next points `[n, d]` of the unit cube: `number` of them, or fewer if there are no more."""
        ...

    def tell(self, points: np.ndarray, order: Sequence[int]) -> None:
        """What became of the points that were asked for last: their numbers from best to worst."""
        ...

    def centre(self) -> np.ndarray | None:
        """The point `[d]` that it expects most of, whether played or not; None if it has none."""
        ...


class Strategy(Protocol):
    """How to search."""

    def population(self, dimensions: int) -> int:
        """Candidates of a generation."""
        ...

    def begin(self, steps: np.ndarray, start: np.ndarray | None, seed: int) -> Points:
        """The search of one structure.

        Args:
          steps: `[d]` distance of two values in the unit cube, 0 for a continuum.
          start: `[d]` where to begin (default: the centre).
          seed: of its own random numbers.
        """
        ...


@dataclass(frozen=True)
class CMAES:
    """Covariance matrix adaptation: candidates are drawn from a normal distribution, which follows the better half of each generation.

    Leaves that are whole numbers have a least probability to change (CMA-ES with margin). Needs `pip install "jaxroute[tune]"`.

    Source: Hansen (2016), arXiv 1604.00772; margin: Hamano et al. (2022), arXiv 2205.13482; as implemented by the library `cmaes`.

    size: candidates of a generation; few, for many generations.
    width: standard deviation of the first generation, in units of the box.
    """

    size: int = 8
    width: float = 0.3

    def check(self) -> None:
        """`ValueError` for a population that has no better half, or no width."""
        checks.count("size", self.size, 4)
        checks.positive("width", self.width, ())

    def population(self, dimensions: int) -> int:
        """Candidates of a generation."""
        del dimensions
        return self.size

    def begin(self, steps: np.ndarray, start: np.ndarray | None, seed: int) -> Points:
        """The search of one structure."""
        try:
            import cmaes
        except ImportError:
            raise ImportError('CMA-ES needs cmaes: pip install "jaxroute[tune]"') from None
        mean = np.full(len(steps), 0.5) if start is None else np.clip(start, 0.0, 1.0)
        box = np.tile([0.0, 1.0], (len(steps), 1))
        return _Adapted(cmaes.CMAwM(mean, self.width, bounds=box, steps=steps, seed=seed, population_size=self.size), steps)


class _Adapted:
    """The search of one structure by CMA-ES.

    optimizer: of the library; without whole numbers its margin does nothing.
    steps: `[d]` distance of two values.
    """

    def __init__(self, optimizer: Any, steps: np.ndarray):
        self.optimizer, self.steps = optimizer, steps
        self._raw: list[np.ndarray] = []

    def ask(self, number: int) -> np.ndarray:
        """A whole generation; fewer candidates than that say nothing to it."""
        size = self.optimizer.population_size
        if number < size:
            return np.zeros((0, len(self.steps)))
        played, self._raw = (list(many) for many in zip(*(self.optimizer.ask() for _ in range(size)), strict=True))
        return np.array(played)

    def tell(self, points: np.ndarray, order: Sequence[int]) -> None:
        """Ranks in place of values: the update depends on nothing else."""
        del points
        self.optimizer.tell([(self._raw[index], float(rank)) for rank, index in enumerate(order)])

    def centre(self) -> np.ndarray | None:
        """The mean of the distribution, at the nearest whole numbers: less lucky than the best candidate, and mostly better."""
        mean = np.clip(self.optimizer.mean, 0.0, 1.0)
        whole = np.rint(mean / np.where(self.steps > 0, self.steps, 1.0)) * self.steps
        return np.where(self.steps > 0, whole, mean)


@dataclass(frozen=True)
class Random:
    """Uniform points of the box, each generation anew; the rival that every search has to beat.

    size: candidates of a generation.
    """

    size: int = 16

    def check(self) -> None:
        """`ValueError` unless there are candidates."""
        checks.count("size", self.size)

    def population(self, dimensions: int) -> int:
        """Candidates of a generation."""
        del dimensions
        return self.size

    def begin(self, steps: np.ndarray, start: np.ndarray | None, seed: int) -> Points:
        """The search of one structure; it has no start."""
        del start
        generator = np.random.default_rng(seed)
        return _Listed(lambda number: generator.random((number, len(steps))))


@dataclass(frozen=True)
class Lattice:
    """All points of a regular lattice in the box, bounds included, in a random order; what does not fit into the budget is not played.

    points: values of each leaf.
    size: candidates of a generation.
    """

    points: int = 5
    size: int = 16

    def check(self) -> None:
        """`ValueError` unless there are candidates."""
        checks.count("points", self.points, 2)
        checks.count("size", self.size)

    def population(self, dimensions: int) -> int:
        """Candidates of a generation."""
        return min(self.size, self.points**dimensions)

    def begin(self, steps: np.ndarray, start: np.ndarray | None, seed: int) -> Points:
        """The search of one structure; it has no start."""
        del start
        axis = np.linspace(0.0, 1.0, self.points)
        cube = np.stack(np.meshgrid(*[axis] * len(steps), indexing="ij"), -1).reshape(-1, len(steps))
        left = iter(np.random.default_rng(seed).permutation(cube))
        return _Listed(
            lambda number: np.array([p for _, p in zip(range(number), left, strict=False)]).reshape(-1, len(steps))
        )


class _Listed:
    """A search that learns nothing.

    draw: function of a number that returns so many points, or fewer.
    """

    def __init__(self, draw: Any):
        self.draw = draw

    def ask(self, number: int) -> np.ndarray:
        """The next points."""
        return self.draw(number)

    def tell(self, points: np.ndarray, order: Sequence[int]) -> None:
        """Nothing is learnt."""
        del points, order

    def centre(self) -> np.ndarray | None:
        """There is none."""
        return None
