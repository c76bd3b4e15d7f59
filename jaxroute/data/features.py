"""Standardised features of queries, and contexts made of them."""

from dataclasses import dataclass

import numpy as np

from jaxroute.core import checks

# Columns of one embedding have standard deviations within this factor of each other.
_LARGEST_RATIO = 100.0


@dataclass(frozen=True, eq=False)
class Standardisation:
    """Mean and standard deviation of each column of a log's features; applied also to the features of new queries."""

    mean: np.ndarray  # `[d]` float64.
    scale: np.ndarray  # `[d]` float64 standard deviations, infinite for a constant column.

    @classmethod
    def fit(cls, features: np.ndarray) -> "Standardisation":
        """Returns the standardisation that gives every column of `[Q, d]` features mean 0 and standard deviation 1.

        A column is constant if it varies by rounding alone. Differences from the first row are exact for a large column that
        varies little, and are divided by the largest of them, so that no square overflows or vanishes.
        """
        features = np.asarray(features, np.float64)
        moved = features - features[0]
        largest = np.abs(moved).max(axis=0)
        moved = moved / np.where(largest > 0, largest, 1.0)
        constant = largest <= 8 * np.finfo(np.float64).eps * np.abs(features).max(axis=0)
        mean = features[0] + largest * moved.mean(axis=0)
        return cls(mean, np.where(constant, np.inf, largest * moved.std(axis=0)))

    def of(self, features: np.ndarray) -> np.ndarray:
        """Returns `[Q, d]` float32 standardised features; 0 in a constant column."""
        return ((np.asarray(features, np.float64) - self.mean) / self.scale).astype(np.float32)


def scales(features: np.ndarray) -> np.ndarray:
    """Returns `[d]` divisors of columns: standard deviations that differ by more than those of one embedding, else 1."""
    scale = Standardisation.fit(features).scale
    finite = scale[np.isfinite(scale)]
    return scale if finite.size and finite.max() > _LARGEST_RATIO * finite.min() else np.ones_like(scale)


def main_directions(features: np.ndarray, number: int) -> np.ndarray:
    """Returns contexts: 1 and the directions in which features of queries differ most.

    Args:
      features: `[N, d]`; columns of unlike size are standardised.
      number: number of directions, at most `d`.

    Returns:
      `[N, 1 + number]`: ones, then the principal components, the longest row of these of length 1.
    """
    features = np.asarray(features, np.float64)
    features = (features - features.mean(axis=0)) / scales(features)
    axes = np.linalg.svd(features, full_matrices=False)[2][: checks.count("directions", number, 1, features.shape[1])]
    parts = features @ axes.T
    longest = np.linalg.norm(parts, axis=1).max()
    return np.column_stack([np.ones(len(parts)), parts / longest if longest > 0 else parts])
