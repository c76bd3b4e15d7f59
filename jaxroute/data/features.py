"""Features of queries as contexts."""

import numpy as np

from jaxroute.core import checks


def main_directions(features: np.ndarray, number: int) -> np.ndarray:
    """1 and the directions in which features of queries differ most, for contexts.

    Args:
      features: `[N, d]`.
      number: of directions, at most `d`.

    Returns:
      `[N, 1 + number]`: a column of ones and the principal components, the longest row of these of length 1.
    """
    features = np.asarray(features, np.float64)
    features = features - features.mean(axis=0)
    axes = np.linalg.svd(features, full_matrices=False)[2][: checks.count("directions", number, 1, features.shape[1])]
    parts = features @ axes.T
    longest = np.linalg.norm(parts, axis=1).max()
    return np.column_stack([np.ones(len(parts)), parts / longest if longest > 0 else parts])
