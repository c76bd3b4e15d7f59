"""Mean scores of the most similar queries."""

from dataclasses import dataclass

import numpy as np

from .design import Design, design
from .sample import Sample

SIZES = (5, 10, 20, 40, 80)
_BLOCK = 512


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Predicts the score of each model as its mean over the recorded queries that are nearest."""

    design: Design  # Columns of numbers in which distances are taken.
    columns: np.ndarray  # `[R, r]` of the recorded queries.
    scores: np.ndarray  # `[R, N]` of the recorded queries.
    size: int  # Number of neighbours.

    def predict(self, sample: Sample) -> np.ndarray:
        """Returns `[Q, N]` predicted scores."""
        return _means(self.design.columns(sample), self.columns, self.scores, (self.size,))[0]


def fit_neighbours(sample: Sample) -> tuple[Neighbours, np.ndarray]:
    """Returns the predictor, its number of neighbours chosen by leaving each prompt out, and those `[Q, N]` predictions."""
    made, prompts = design(sample), sample.numbered()
    columns = made.columns(sample)
    others = sample.num_queries - int(np.bincount(prompts).max())
    sizes = tuple(sorted({min(size, others) for size in SIZES}))
    predicted = _means(columns, columns, sample.scores, sizes, prompts)
    best = int(np.argmin(np.square(predicted - sample.scores).mean((1, 2))))
    return Neighbours(made, columns, sample.scores, sizes[best]), predicted[best]


def _means(
    columns: np.ndarray, recorded: np.ndarray, scores: np.ndarray, sizes: tuple[int, ...], prompts: np.ndarray | None = None
) -> np.ndarray:
    """`[S, Q, N]` mean scores of the nearest recorded queries, for each number of them.

    Where the recorded queries themselves are predicted, `prompts` `[Q]` leaves out those with the same prompt.
    """
    means = np.empty((len(sizes), len(columns), scores.shape[1]))
    lengths, most = np.square(recorded).sum(1), sizes[-1]
    for start in range(0, len(columns), _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, len(columns)))
        distances = lengths - 2 * columns[rows] @ recorded.T
        if prompts is not None:
            np.putmask(distances, prompts[rows, None] == prompts, np.inf)
        nearest = np.argpartition(distances, most - 1, axis=1)[:, :most]
        if len(sizes) > 1:
            nearest = np.take_along_axis(nearest, np.argsort(np.take_along_axis(distances, nearest, 1), axis=1), 1)
        before, total = 0, np.zeros((len(rows), scores.shape[1]))
        for i, size in enumerate(sizes):
            total = total + scores[nearest[:, before:size]].sum(1)
            means[i, rows], before = total / size, size
    return means
