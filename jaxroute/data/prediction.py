"""Predictions of scores before a query is answered, measured on queries that the predictor has not seen."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from jaxroute.data.predictors import Sample, fit_logistic, fit_neighbours, random_folds

_FOLDS = 5
_INNER_FOLDS = 4  # Of the fitting part, as in `compare`.
_MOST_QUERIES = 8000  # Queries on which predictions are evaluated.


@dataclass(frozen=True)
class Prediction:
    """Accuracy of predicted scores in five folds, and gain of routing by them for at most the cost of the best single model."""

    how: str  # "categories", "nearest neighbours" or "logistic regression".
    measure: str  # "AUC", or "R2" of scores that are not 0 or 1.
    models: tuple[float, ...]  # The measure of each model, NaN where all its scores are equal.
    quality: float  # Mean score of the models that the prediction chooses.
    gain: float  # Difference of that and the score of the best single model.
    stderr: float  # Standard error of the gain.
    cost: float  # Mean cost of the chosen models.


def best_single(quality: np.ndarray, cost: np.ndarray) -> int:
    """Returns the number of the best model; of equally good ones, of the cheapest."""
    return int(np.lexsort((cost, -quality))[0])


def standard_error(values: np.ndarray) -> float:
    """Returns the standard error of the mean, NaN for a single value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def evaluate_predictions(sample: Sample) -> tuple[tuple[Prediction, ...], tuple[str, ...]]:
    """Evaluates predictions of scores from categories and by the predictors that `compare` fits; also returns omissions, in words."""
    left_out, found = [], []
    if sample.num_queries > _MOST_QUERIES:
        left_out.append(
            f"predictions are evaluated on {_MOST_QUERIES:,} of the {sample.num_queries:,} queries, drawn at random"
        )
    sample = sample.take(np.random.default_rng(0).permutation(sample.num_queries)[:_MOST_QUERIES])
    prompts = sample.numbered()
    different = int(prompts.max()) + 1
    if different < 4 * _FOLDS:
        return (), (f"predictions: {different} queries are too few; at least {4 * _FOLDS} are needed",)
    if sample.groups is not None and len(np.unique(sample.groups)) > 1:
        found.append(_evaluate("categories", _by_category, sample, prompts % _FOLDS))
    if sample.features is None:
        left_out.append("predictions from features: there are none" + ("" if found else ", and no categories"))
    else:
        found.append(_evaluate("nearest neighbours", _by_neighbours, sample, prompts % _FOLDS))
        found.append(_evaluate("logistic regression", _by_logistic, sample, prompts % _FOLDS))
    return tuple(found), tuple(left_out)


def _by_category(others: Sample, sample: Sample) -> np.ndarray:
    """`[Q, N]` mean score of the query's category among the other queries, shrunk to the mean of all with a weight of two queries."""
    assert others.groups is not None and sample.groups is not None
    mean, size = others.scores.mean(axis=0), 1 + int(max(others.groups.max(), sample.groups.max()))
    count = np.bincount(others.groups, minlength=size)[:, None]
    total = np.stack([np.bincount(others.groups, column, size) for column in others.scores.T], axis=1)
    return ((total + 2.0 * mean) / (count + 2.0))[sample.groups]


def _by_neighbours(others: Sample, sample: Sample) -> np.ndarray:
    return fit_neighbours(others)[0].predict(sample)


def _by_logistic(others: Sample, sample: Sample) -> np.ndarray:
    return fit_logistic(others, random_folds(others, _INNER_FOLDS, 0))[0].predict(sample)


def _evaluate(how: str, predict: Callable[[Sample, Sample], np.ndarray], sample: Sample, fold: np.ndarray) -> Prediction:
    scores, costs, rows = sample.scores, sample.costs, np.arange(sample.num_queries)
    predicted = np.empty_like(scores)
    for number in range(_FOLDS):
        predicted[fold == number] = predict(sample.take(fold != number), sample.take(fold == number))
    choice = _choose_models(predicted, scores, costs, fold)
    gains = scores[rows, choice] - scores[:, best_single(scores.mean(axis=0), costs.mean(axis=0))]
    unit, measure = ("AUC", _auc) if np.isin(scores, (0.0, 1.0)).all() else ("R2", _r_squared)
    return Prediction(
        how,
        unit,
        tuple(map(measure, predicted.T, scores.T)),
        float(scores[rows, choice].mean()),
        float(gains.mean()),
        standard_error(gains),
        float(costs[rows, choice].mean()),
    )


def _choose_models(predicted: np.ndarray, scores: np.ndarray, costs: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """`[Q]` model with the largest predicted score minus a price times its mean cost; the price is fitted to the other folds."""
    choice = np.zeros(len(scores), int)
    for number in range(_FOLDS):
        train, test = np.nonzero(fold != number)[0], np.nonzero(fold == number)[0]
        mean = costs[train].mean(axis=0)
        limit = mean[best_single(scores[train].mean(axis=0), mean)]
        scale = 1.0 / (mean.max() or 1.0)
        best = (-np.inf, 0.0)
        for price in (0.0, *np.geomspace(1e-4, 1e2, 49)):
            chosen = (predicted[train] - price * scale * mean).argmax(axis=1)
            quality, cost = scores[train, chosen].mean(), costs[train, chosen].mean()
            if cost <= limit * (1 + 1e-9) and quality > best[0]:
                best = quality, price
        choice[test] = (predicted[test] - best[1] * scale * mean).argmax(axis=1)
    return choice


def _auc(predicted: np.ndarray, truth: np.ndarray) -> float:
    """Probability that a right answer is predicted higher than a wrong one."""
    rank = pd.Series(predicted).rank().to_numpy()
    right = truth > 0.5
    positive, negative = int(right.sum()), int((~right).sum())
    if not positive or not negative:
        return float("nan")
    return float((rank[right].sum() - positive * (positive + 1) / 2) / (positive * negative))


def _r_squared(predicted: np.ndarray, truth: np.ndarray) -> float:
    """Share of the variance that a prediction explains."""
    total = ((truth - truth.mean()) ** 2).sum()
    return float("nan") if total < 1e-12 else float(1.0 - ((truth - predicted) ** 2).sum() / total)
