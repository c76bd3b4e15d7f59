"""Predicted outcomes of all models on all queries of a served log, each from a fit to other queries (cross-fitting).

A cross-fitted prediction does not depend on the query's own answer, so that the doubly robust estimator stays unbiased.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from jaxroute.data import ServedLog
from jaxroute.data.predictors import Design, Sample, design, random_folds

NUM_FOLDS = 5
_PENALTIES = (1.0, 10.0, 100.0)  # Candidates for the ridge penalty of the weights.
_PRIOR = 2.0  # Number of answers that the outcome of all models together counts for in the intercept of one model.


@dataclass(frozen=True, eq=False)
class Linear:
    """Predicts an outcome of each model on a query by ridge regression, clipped to the range of outcomes.

    Attributes:
      design: converts queries to columns of numbers.
      weights: `[1 + r, N]` intercepts and weights.
      low, high: range of predictions.
    """

    design: Design
    weights: np.ndarray
    low: float = 0.0
    high: float = 1.0

    def predict(self, sample: Sample) -> np.ndarray:
        """Returns the predicted outcomes of `N` models on `Q` queries, `[Q, N]`."""
        return np.clip(self.weights[0] + self.design.columns(sample) @ self.weights[1:], self.low, self.high)


class Fits:
    """Ridge regressions of an outcome on features and categories: for each fold of the queries a fit to the other folds.

    A model's weights are those of all models together plus a deviation, which shrinks to 0 for models with few answers; outcomes without an upper end,
    such as costs, are divided by the mean of their model before. The penalty is the one of
    `_PENALTIES` with the least squared error of cross-fitted predictions.

    Args:
      log: served log.
      outcome: `[A]` outcome of each answer.
      folds: `[Q]` fold of each query.
      high: largest possible outcome.
    """

    def __init__(self, log: ServedLog, outcome: np.ndarray, folds: np.ndarray, high: float = 1.0) -> None:
        self._log, self._outcome, self._folds, self._high = log, np.asarray(outcome, np.float64), folds, high
        self._sample = log.sample
        self._design = design(self._sample)
        columns = self._design.columns(self._sample)
        self._columns = np.concatenate([np.ones((len(columns), 1)), columns], axis=1)
        self._moments = [self._moments_of(folds[log.query] == fold) for fold in range(int(folds.max()) + 1)]

    def _moments_of(self, answers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns `X'X` `[N, p, p]` and `X'y` `[N, p]` of each model's answers in the mask `answers`, `[A]`."""
        log, size = self._log, self._columns.shape[1]
        squares, products = np.zeros((log.num_models, size, size)), np.zeros((log.num_models, size))
        for model in range(log.num_models):
            chosen = answers & (log.model == model)
            x = self._columns[log.query[chosen]]
            squares[model], products[model] = x.T @ x, x.T @ self._outcome[chosen]
        return squares, products

    def _solve(self, left_out: int, penalty: float) -> np.ndarray:
        """Returns the weights `[p, N]` of the fit to all folds except `left_out`."""
        used = [moments for fold, moments in enumerate(self._moments) if fold != left_out]
        squares, products = (np.sum(parts, axis=0) for parts in zip(*used, strict=True))
        scale = np.ones(len(products))
        if math.isinf(self._high):  # Costs of models differ by factors, so that relative costs have similar weights.
            number, total = squares[:, 0, 0], products[:, 0]
            scale = np.where(number > 0, total / np.maximum(number, 1), total.sum() / max(number.sum(), 1))
            products = products / np.where(scale > 0, scale, 1.0)[:, None]
        ridge = np.full(squares.shape[1] - 1, penalty)
        together = np.linalg.solve(squares.sum(0) + np.diag(np.append(1e-9, ridge)), products.sum(0))
        deviation = np.linalg.solve(squares + np.diag(np.append(_PRIOR, ridge)), (products - squares @ together)[..., None])
        return (together[:, None] + deviation[..., 0].T) * scale

    def _predicted(self, penalty: float) -> np.ndarray:
        predicted = np.empty((self._log.num_queries, self._log.num_models))
        for fold in range(len(self._moments)):
            rows = self._folds == fold
            predicted[rows] = self._columns[rows] @ self._solve(fold, penalty)
        return np.clip(predicted, 0.0, self._high)

    @cached_property
    def _best(self) -> tuple[float, np.ndarray]:
        """Ridge penalty with the least squared error of cross-fitted predictions, and these predictions."""
        place, candidates = (self._log.query, self._log.model), _PENALTIES if self._columns.shape[1] > 1 else _PENALTIES[:1]
        found = [(penalty, self._predicted(penalty)) for penalty in candidates]
        return min(found, key=lambda pair: float(np.square(pair[1][place] - self._outcome).sum()))

    def predicted(self) -> np.ndarray:
        """Returns cross-fitted predictions of the outcome of each model on each query, `[Q, N]`."""
        return self._best[1]

    def predictor(self, left_out: int) -> Linear:
        """Returns the predictor fitted to all folds except `left_out`."""
        return Linear(self._design, self._solve(left_out, self._best[0]), 0.0, self._high)


def folds_of(log: ServedLog, seed: int = 0) -> np.ndarray:
    """Assigns each query at random to one of at most five folds, `[Q]`. Queries of one user, or with one prompt, share a fold."""
    sample = log.sample
    return random_folds(sample, min(NUM_FOLDS, int(sample.numbered().max()) + 1), seed)
