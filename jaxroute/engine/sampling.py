"""Runs of a simulation: their seeds, the root of all random draws, and their length."""

from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass

import jax
import numpy as np

from jaxroute.core import checks, provenance


@dataclass(frozen=True)
class Sampling:
    """Runs of a simulation.

    Attributes:
      horizon: counted rounds.
      seeds: `[R]` uint32.
      root_seed: seed of all randomness.
    """

    horizon: int
    seeds: np.ndarray
    root_seed: int


def number_of_seeds(seeds: int | Sequence[int]) -> int:
    """Returns the number of seeds, without a list of them if possible.

    Raises:
      ValueError: there are none, or more than the memory holds.
    """
    if isinstance(seeds, Iterable):
        number = len(seeds) if isinstance(seeds, Sized) else 1
    elif checks.is_integer(seeds) or (isinstance(seeds, float) and seeds.is_integer()):
        number = checks.whole("seeds", seeds)
    else:
        raise ValueError(f"seeds must be a number of seeds or a list of them, got {checks.show(seeds)}")
    most = min(2**32, provenance.memory_limit(jax.local_devices(backend="cpu")[0]) // 40)
    if number > most:
        raise ValueError(f"seeds must be at most {most:,} on this machine (40 bytes for each), got {number:,}")
    return number


def read_sampling(horizon: int, seeds: int | Sequence[int], root_seed: int) -> Sampling:
    """Checks the seeds of `simulate`.

    Raises:
      ValueError: one of them is out of range, or two are equal.
    """
    return Sampling(horizon, _listed(seeds), checks.root_seed(root_seed))


def _listed(seeds: int | Sequence[int]) -> np.ndarray:
    if not isinstance(seeds, Iterable):
        return np.arange(checks.whole("seeds", seeds), dtype=np.uint32)
    values = np.arange(seeds.start, seeds.stop, seeds.step) if isinstance(seeds, range) else np.asarray([*seeds])
    if not values.size or not np.issubdtype(values.dtype, np.integer) or values.ndim != 1:
        raise ValueError(f"seeds must be a non-empty list of whole numbers, got {checks.show(seeds)}")
    if values.min() < 0 or values.max() >= 2**32:
        raise ValueError(f"seeds must be from 0 to 2**32 - 1, got {values.min()} to {values.max()}")
    if len(np.unique(values)) < len(values):
        raise ValueError("seeds must differ from each other: equal seeds are equal runs")
    return values.astype(np.uint32)
