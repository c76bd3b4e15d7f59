"""A fitting part, with the predictors that several approaches share."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from jaxroute.data.predictors import Predictor, Sample, fit_logistic, fit_neighbours, random_folds
from jaxroute.data.predictors.logistic import cross_entropy, fit_each, logit, sigmoid

# No fitting part has more queries than this: of a larger one as many are drawn.
MOST_FITTED = 8000
_FOLDS = 4


@dataclass(eq=False)
class Remembering:
    """A predictor that remembers its last sample: rules of all targets are judged on the same one."""

    predictor: Predictor
    _last: tuple[Sample, np.ndarray] | None = field(default=None, repr=False)

    def predict(self, sample: Sample) -> np.ndarray:
        """`[Q, N]` predicted scores."""
        if self._last is None or self._last[0] is not sample:
            self._last = sample, self.predictor.predict(sample)
        return self._last[1]


@dataclass(frozen=True, eq=False)
class Constant:
    """Predicts the mean score of each model, `[N]`, whatever the query."""

    means: np.ndarray

    def predict(self, sample: Sample) -> np.ndarray:
        """`[Q, N]` predicted scores."""
        return np.broadcast_to(self.means, (sample.num_queries, len(self.means)))


@dataclass(frozen=True, eq=False)
class TrueScores:
    """The perfect judge: it sees the score of an answer once it is there."""

    def predict(self, sample: Sample) -> np.ndarray:
        """`[Q, N]` scores."""
        return sample.scores


@dataclass(frozen=True, eq=False)
class Judge:
    """How likely an answer is right: from what is known of the query, the model that answered, and what its answer cost.

    The cost of an answer is known when it is there, and long answers are often worse, or better, than short ones.

    Attributes:
      before: predicts from the query alone.
      weights: `[N, 3]` intercept, weight of the log-odds of that prediction, weight of the answer's log-cost.
      floor: added to costs, so that free answers have a logarithm.
    """

    before: Predictor
    weights: np.ndarray
    floor: float

    def predict(self, sample: Sample) -> np.ndarray:
        """`[Q, N]` probability that each model's answer is right, each seen only if it is there."""
        return self.of(self.before.predict(sample), sample.costs)

    def of(self, before: np.ndarray, costs: np.ndarray) -> np.ndarray:
        """The same from `[Q, N]` predictions and costs."""
        w = self.weights
        return sigmoid(w[:, 0] + w[:, 1] * logit(before) + w[:, 2] * np.log(costs + self.floor))


# A predictor, and its predictions for the fitting part from queries other than the predicted one.
Known = tuple[Predictor, np.ndarray]


class Part:
    """Queries that rules are fitted to.

    Args:
      sample: the queries; of more than `MOST_FITTED` as many are drawn.
      seed: of that draw and of the folds of cross-validation.
    """

    def __init__(self, sample: Sample, seed: int | tuple[int, ...] = 0) -> None:
        rng = np.random.default_rng(seed)
        if sample.num_queries > MOST_FITTED:
            sample = sample.take(np.sort(rng.permutation(sample.num_queries)[:MOST_FITTED]))
        self.sample = sample
        self.folds = random_folds(sample, _FOLDS, rng)

    @cached_property
    def means(self) -> Known:
        """The mean score of each model."""
        means = self.sample.scores.mean(0)
        return Constant(means), np.broadcast_to(means, self.sample.scores.shape)

    @cached_property
    def neighbours(self) -> Known:
        """From similar queries."""
        predictor, predicted = fit_neighbours(self.sample)
        return Remembering(predictor), predicted

    @cached_property
    def logistic(self) -> Known:
        """From features and categories by logistic regression."""
        predictor, predicted = fit_logistic(self.sample, self.folds)
        return Remembering(predictor), predicted

    @cached_property
    def judge(self) -> Known:
        """Of an answer that is there; each fold is judged by weights from the others. Without its cost where that is no worse."""
        (before, predicted), sample = self.logistic, self.sample
        paid = sample.costs[sample.costs > 0]
        floor = 1e-3 * float(np.median(paid)) if paid.size else 1.0
        columns = np.stack([logit(predicted), np.log(sample.costs + floor)])

        def judge(rows: np.ndarray) -> Judge:
            return Judge(before, fit_each(columns[:, rows], sample.scores[rows]), floor)

        judged = np.empty_like(predicted)
        for fold in np.unique(self.folds):
            inside = self.folds == fold
            judged[inside] = judge(~inside).of(predicted[inside], sample.costs[inside])
        if cross_entropy(judged, sample.scores) >= cross_entropy(predicted, sample.scores):
            return before, predicted  # The cost of an answer says nothing here.
        return Remembering(judge(np.ones(len(judged), bool))), judged

    @cached_property
    def perfect(self) -> Known:
        """The true score of an answer that is there."""
        return TrueScores(), self.sample.scores
