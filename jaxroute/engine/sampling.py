"""Runs of a simulation: their seeds, the root of all random draws, and their length."""

from collections.abc import Sequence, Sized
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
    number = checks.whole("seeds", seeds) if not isinstance(seeds, Sized) and np.ndim(seeds) == 0 else len(seeds)
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
    if isinstance(seeds, float) or checks.is_integer(seeds):
        return np.arange(int(seeds), dtype=np.uint32)
    try:
        values = np.arange(seeds.start, seeds.stop, seeds.step) if isinstance(seeds, range) else np.asarray([*seeds])  # type: ignore[misc]
    except TypeError:
        raise ValueError(f"seeds must be a number of seeds or a list of them, got {checks.show(seeds)}") from None
    if not values.size or not np.issubdtype(values.dtype, np.integer) or values.ndim != 1:
        raise ValueError(f"seeds must be a non-empty list of whole numbers, got {checks.show(seeds)}")
    if values.min() < 0 or values.max() >= 2**32:
        raise ValueError(f"seeds must be from 0 to 2**32 - 1, got {values.min()} to {values.max()}")
    if len(np.unique(values)) < len(values):
        raise ValueError("seeds must differ from each other: equal seeds are equal runs")
    return values.astype(np.uint32)
