"""Queries for fitting rules, with the predictors of scores that several strategies share."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from jaxroute.data import predictors
from jaxroute.data.predictors import Predictor, Sample, cross_entropy, logit

# Largest number of queries for fitting; larger samples are subsampled.
MOST_FITTED = 8000
_FOLDS = 4


@dataclass(eq=False)
class CachedPredictor:
    """Wraps a predictor and stores its predictions for the last sample object, because rules for several targets are evaluated on the same sample."""

    predictor: Predictor
    _last: tuple[Sample, np.ndarray] | None = field(default=None, repr=False)

    def predict(self, sample: Sample) -> np.ndarray:
        if self._last is None or self._last[0] is not sample:
            self._last = sample, self.predictor.predict(sample)
        return self._last[1]


@dataclass(frozen=True, eq=False)
class Constant:
    """Predicts the mean score of each model, `[N]`, for every query."""

    means: np.ndarray

    def predict(self, sample: Sample) -> np.ndarray:
        return np.broadcast_to(self.means, (sample.num_queries, len(self.means)))


@dataclass(frozen=True, eq=False)
class TrueScores:
    """Perfect judge of answers: its predictions are the true scores."""

    def predict(self, sample: Sample) -> np.ndarray:
        return sample.scores


@dataclass(frozen=True, eq=False)
class Judge:
    """Predicts the probability that an answer is right from the query, the model, and the cost of the answer.

    Long answers are often worse, or better, than short ones, and the cost of an answer is known after the call.

    Attributes:
      before: predictor from the query alone.
      weights: `[N, 3]` intercept, weight of the log-odds of the prediction `before`, and weight of the answer's log-cost.
      floor: constant that is added to costs before the logarithm.
    """

    before: Predictor
    weights: np.ndarray
    floor: float

    def predict(self, sample: Sample) -> np.ndarray:
        """Returns the probability that each model's answer is right, `[Q, N]`."""
        return self.of(self.before.predict(sample), sample.costs)

    def of(self, before: np.ndarray, costs: np.ndarray) -> np.ndarray:
        """Returns the probability that each answer is right, from predictions before the call (`before`) and the answers' costs, `[Q, N]` each."""
        w = self.weights
        return predictors.sigmoid(w[:, 0] + w[:, 1] * logit(before) + w[:, 2] * np.log(costs + self.floor))


# A predictor, and its predictions for the queries for fitting, `[Q, N]`. Those of fitted predictors do not use the query's own scores.
Prediction = tuple[Predictor, np.ndarray]


class Part:
    """Queries to which rules are fitted, such as all folds except one, with predictors of scores, each of which is fitted when it is first needed.

    A `sample` of more than `MOST_FITTED` queries is subsampled; `seed` determines the subsample and the folds of cross-validation.
    """

    def __init__(self, sample: Sample, seed: int | tuple[int, ...] = 0) -> None:
        rng = np.random.default_rng(seed)
        if sample.num_queries > MOST_FITTED:
            sample = sample.take(np.sort(rng.permutation(sample.num_queries)[:MOST_FITTED]))
        self.sample = sample
        self.folds = predictors.random_folds(sample, _FOLDS, rng)

    @cached_property
    def means(self) -> Prediction:
        """Predictor of the mean score of each model, and its predictions for these queries, `[Q, N]`."""
        means = self.sample.scores.mean(0)
        return Constant(means), np.broadcast_to(means, self.sample.scores.shape)

    @cached_property
    def neighbours(self) -> Prediction:
        """Predictor of scores from similar queries, and cross-validated predictions for these queries, `[Q, N]`."""
        predictor, predicted = predictors.fit_neighbours(self.sample)
        return CachedPredictor(predictor), predicted

    @cached_property
    def logistic(self) -> Prediction:
        """Predictor of scores by logistic regression on features and categories, and cross-validated predictions for these queries, `[Q, N]`."""
        predictor, predicted = predictors.fit_logistic(self.sample, self.folds)
        return CachedPredictor(predictor), predicted

    @cached_property
    def judge(self) -> Prediction:
        """Predictor of scores after a call, and its predictions `[Q, N]`: a `Judge`, unless `logistic` is at least as good in cross-validation."""
        (before, predicted), sample = self.logistic, self.sample
        paid = sample.costs[sample.costs > 0]
        floor = 1e-3 * float(np.median(paid)) if paid.size else 1.0
        columns = np.stack([logit(predicted), np.log(sample.costs + floor)])

        def judge(rows: np.ndarray) -> Judge:
            return Judge(before, predictors.fit_each(columns[:, rows], sample.scores[rows]), floor)

        judged = np.empty_like(predicted)
        for fold in np.unique(self.folds):
            inside = self.folds == fold
            judged[inside] = judge(~inside).of(predicted[inside], sample.costs[inside])
        if cross_entropy(judged, sample.scores) >= cross_entropy(predicted, sample.scores):
            return before, predicted  # The cost of an answer carries no information here.
        return CachedPredictor(judge(np.ones(len(judged), bool))), judged

    @cached_property
    def perfect(self) -> Prediction:
        """Perfect judge, and its predictions for these queries: the true scores of the answers, `[Q, N]`."""
        return TrueScores(), self.sample.scores
