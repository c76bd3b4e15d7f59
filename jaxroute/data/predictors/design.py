"""Columns of numbers that describe a query before it is served."""

from dataclasses import dataclass

import numpy as np

from ..features import scales
from .sample import Sample

MOST_FEATURES = 64  # More columns are replaced by their main directions.
LEAST_OF_GROUP = 5  # A category with fewer queries in the fitting part has no column.


@dataclass(frozen=True, eq=False)
class Design:
    """Centred features, in their main directions if they are many, then a column per category.

    Columns of unlike size are standardised first. The features have a total variance of 1, so that two queries are on average
    as far apart by their features as by different categories.
    """

    mean: np.ndarray | None  # `[d]` mean of the features in the fitting part.
    turn: np.ndarray | None  # `[d, r]` scaled directions.
    groups: np.ndarray | None  # `[G]` categories that have a column.

    def columns(self, sample: Sample) -> np.ndarray:
        """Returns `[Q, r + G]` numbers of each query."""
        columns = []
        if self.mean is not None and self.turn is not None and sample.features is not None:
            columns.append((sample.features - self.mean) @ self.turn)
        if self.groups is not None and sample.groups is not None:
            columns.append((sample.groups[:, None] == self.groups).astype(float))
        return np.concatenate(columns, axis=1) if columns else np.zeros((sample.num_queries, 0))


def design(sample: Sample) -> Design:
    """Returns the columns that suit a fitting part."""
    mean = turn = groups = None
    if sample.features is not None:
        mean, scale = sample.features.mean(0), scales(sample.features)
        centred = (sample.features - mean) / scale
        turn = np.eye(centred.shape[1])
        if centred.shape[1] > MOST_FEATURES:
            turn = np.linalg.eigh(centred.T @ centred)[1][:, -MOST_FEATURES:]
        total = np.square(centred @ turn).sum(1).mean()
        turn = turn / scale[:, None] / np.sqrt(total) if total > 0 else turn * 0.0
    if sample.groups is not None:
        numbers, counts = np.unique(sample.groups, return_counts=True)
        groups = numbers[counts >= LEAST_OF_GROUP]
    return Design(mean, turn, groups)
