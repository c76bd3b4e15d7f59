"""Propensities of a served log: the probability with which the log's rule let each model answer, given, estimated, and tested."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from jaxroute.data import ServedLog
from jaxroute.data.predictors import design

from .crossfit import folds_of
from .intervals import covariance

_STRENGTHS = (0.3, 10.0)  # Candidates for the inverse penalty of the multinomial model.
_PERIODS = 8  # Parts of the log's time, in each of which the rule may choose differently.
_BINS = 10
_MOST_FITTED = 10_000  # A classifier is fitted to at most so many answers, drawn at random.
_FEWEST = 20  # A model with fewer answers is not tested.
_SIGNIFICANCE = 1e-3


@dataclass(frozen=True, eq=False)
class Calibration:
    """Comparison of estimated probabilities with the shares of models that answered, in bins of the probability, over all queries and models.

    Attributes:
      estimated: `[B]` mean estimated probability in each bin.
      observed: `[B]` share of the answers in the bin that the model gave.
      number: `[B]` number of pairs of an answer and a model.
    """

    estimated: np.ndarray
    observed: np.ndarray
    number: np.ndarray

    @property
    def gap(self) -> float:
        """Mean absolute difference between estimated and observed, weighted by `number`: expected calibration error."""
        return float(np.average(np.abs(self.estimated - self.observed), weights=self.number))


def estimate(log: ServedLog, seed: int = 0) -> tuple[ServedLog, Calibration]:
    """Returns the log with estimated propensities, and their calibration.

    A multinomial logistic regression or a random forest predicts the model from features, categories and the time of a query, in each of five folds of
    the queries from the other folds; the one with the higher likelihood counts. It is right only if the choice depended on nothing else. Needs
    scikit-learn.
    """
    sample, folds = log.sample, folds_of(log, seed)
    columns = design(sample).columns(sample)
    if log.dates is not None:
        order = np.argsort(np.argsort(log.dates, kind="stable"), kind="stable")
        columns = np.concatenate([columns, np.eye(_PERIODS)[order * _PERIODS // len(order)]], axis=1)
    fold, x, y = folds[log.query], columns[log.query], log.model
    found, rng = [], np.random.default_rng(seed)
    for make in _classifiers() if columns.shape[1] else (None,):
        probability = np.zeros((log.num_answers, log.num_models))
        for number in np.unique(fold):
            inside = fold == number
            if make is None or len(np.unique(y[~inside])) == 1:
                probability[inside] = np.bincount(y[~inside], minlength=log.num_models) / max((~inside).sum(), 1)
                continue
            outside = rng.permutation(np.flatnonzero(~inside))[:_MOST_FITTED]
            fit = make().fit(x[outside], y[outside])
            probability[np.ix_(inside, fit.classes_)] = fit.predict_proba(x[inside])
        found.append(probability)
    answers = np.arange(log.num_answers)
    least = 1.0 / log.num_answers  # A model that no other fold has used.
    best = max(found, key=lambda p: float(np.log(np.maximum(p[answers, log.model], least)).sum()))
    # A query with several answers had as many draws of a model.
    number = np.bincount(log.query, minlength=log.num_queries)[log.query]
    propensity = np.clip(number * best[answers, log.model], least, 1.0)
    source = f"estimated from {_inputs(log)}"
    return replace(log, propensity=propensity, source=source), _calibration(best, log.model)


def _classifiers() -> list[Callable[[], Any]]:
    """Returns functions that make classifiers: smooth rules are logistic, and rules with thresholds are found by trees."""
    try:
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        raise ImportError('estimated propensities need scikit-learn: pip install "jaxroute[data]"') from error
    trees = partial(RandomForestClassifier, n_estimators=100, min_samples_leaf=20, random_state=0)
    return [*(partial(LogisticRegression, C=strength, max_iter=500) for strength in _STRENGTHS), trees]


def _inputs(log: ServedLog) -> str:
    """Returns what the choice of a model may have depended on, in words."""
    inputs = [
        *(["features"] if log.features is not None else []),
        *(["the category"] if log.groups is not None else []),
        *(["time"] if log.dates is not None else []),
    ]
    return " and ".join(filter(None, [", ".join(inputs[:-1]), *inputs[-1:]])) or "the shares of the models"


def _calibration(probability: np.ndarray, model: np.ndarray) -> Calibration:
    chosen = model[:, None] == np.arange(probability.shape[1])
    bins = np.minimum((probability * _BINS).astype(int), _BINS - 1)
    number = np.bincount(bins.ravel(), minlength=_BINS)
    used = number > 0
    estimated, observed = (
        np.bincount(bins.ravel(), values.ravel().astype(float), _BINS) for values in (probability, chosen)
    )
    return Calibration(estimated[used] / number[used], observed[used] / number[used], number[used])


@dataclass(frozen=True)
class Balance:
    """Test of a log's propensities: the inverse propensities of each model's answers add up to the number of queries, if they are right.

    Attributes:
      model: name of the model with the largest deviation.
      share: its sum of inverse propensities, divided by the number of queries; 1 if the propensities are right and every query could get the model.
      error: standard error of `share`.
      wrong: whether the propensities contradict the log: some sum is significantly above the number of queries.
    """

    model: str
    share: float
    error: float
    wrong: bool


def balance(log: ServedLog) -> Balance | None:
    """Tests the propensities of a log on models with at least 20 answers, jointly at significance .001; None if no model has as many.

    Too small a sum may also come from queries that could not get the model, so that only too large sums prove that propensities are wrong.
    """
    if log.propensity is None:
        raise ValueError("log must have propensities, got none")
    models = np.flatnonzero(np.bincount(log.model, minlength=log.num_models) >= _FEWEST)
    if not models.size:
        return None
    inverse = [np.bincount(log.query, (log.model == m) / log.propensity, log.num_queries) for m in models]
    contributions = np.array(inverse)
    shares, errors = contributions.mean(1), np.sqrt(np.diag(covariance(contributions, log.clusters)))
    z = (shares - 1) / np.maximum(errors, 1e-12)
    clusters = log.num_queries if log.clusters is None else int(log.clusters.max()) + 1
    limit = float(stats.t.isf(_SIGNIFICANCE / len(models), max(clusters - 1, 1)))
    wrong = (z > limit) & (shares > 1.01)
    most = int(np.argmax(np.where(wrong, z, -np.inf) if wrong.any() else np.abs(z)))
    return Balance(log.models[models[most]], float(shares[most]), float(errors[most]), bool(wrong.any()))
