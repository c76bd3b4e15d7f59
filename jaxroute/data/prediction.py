"""How far the scores of a log can be predicted before a query is answered, by folds of which none has seen itself."""

from dataclasses import dataclass

import numpy as np

from jaxroute.data.logs.features import INSTALL, has_sklearn
from jaxroute.data.table import RoutingTable

_FOLDS = 5
_MOST = 8000  # Queries that predictions are judged on.
_NEIGHBOURS = 25


@dataclass(frozen=True)
class Prediction:
    """How well scores are predicted from what is known before a query is answered, by folds of which none has seen itself.

    how: "categories", "nearest neighbours" or "logistic regression" ("linear regression" of scores that are not 0 or 1).
    measure: "AUC" or "R2".
    models: that of each model, NaN where all its scores are equal.
    quality: mean score of the model chosen as best by the prediction, for no more than the cost of the best single model.
    gain: that minus the score of the best single model.
    stderr: standard error of the gain.
    cost: mean cost of what was chosen.
    """

    how: str
    measure: str
    models: tuple[float, ...]
    quality: float
    gain: float
    stderr: float
    cost: float


def best_single(quality: np.ndarray, cost: np.ndarray) -> int:
    """The best model; of equally good ones the cheapest."""
    return int(np.lexsort((cost, -quality))[0])


def predictions_of(table: RoutingTable, scores: np.ndarray, costs: np.ndarray) -> tuple[list[Prediction], list[str]]:
    """How well categories, neighbours and a regression predict scores `[Q, N]`, and what was left out, in words."""
    left_out: list[str] = []
    rng = np.random.default_rng(0)
    chosen = rng.permutation(len(scores))[:_MOST]
    if len(scores) > _MOST:
        left_out.append(f"predictions are judged on {_MOST:,} of the {len(scores):,} queries, drawn at random")
    if len(chosen) < 4 * _FOLDS:
        return [], [f"predictions: {len(chosen)} queries are too few; at least {4 * _FOLDS} are needed"]
    scores, costs = scores[chosen], costs[chosen]
    fold = np.arange(len(chosen)) % _FOLDS
    binary = bool(np.isin(scores, (0.0, 1.0)).all())
    found: list[Prediction] = []
    if table.groups is not None and len(np.unique(table.groups)) > 1:
        groups = table.groups[chosen]
        found.append(_judged("categories", _by_category(groups, scores, fold), scores, costs, fold, binary))
    if table.features is None:
        left_out.append("predictions from features: there are none" + ("" if found else ", and no categories"))
    elif not has_sklearn():
        left_out.append(f"predictions from features need scikit-learn: {INSTALL}")
    else:
        features = table.features[chosen].astype(np.float64)
        near = _by_neighbours(features, scores, fold)
        found.append(_judged("nearest neighbours", near, scores, costs, fold, binary))
        how = "logistic regression" if binary else "linear regression"
        found.append(_judged(how, _by_regression(features, scores, fold, binary), scores, costs, fold, binary))
    return found, left_out


def _by_category(groups: np.ndarray, scores: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """`[Q, N]` mean score of the query's category in the other folds, drawn to the mean of all by two queries' weight."""
    found = np.empty_like(scores)
    for number in range(_FOLDS):
        train, test = fold != number, fold == number
        mean, size = scores[train].mean(axis=0), int(groups.max()) + 1
        count = np.bincount(groups[train], minlength=size)[:, None]
        total = np.stack([np.bincount(groups[train], column, size) for column in scores[train].T], axis=1)
        found[test] = ((total + 2.0 * mean) / (count + 2.0))[groups[test]]
    return found


def _by_neighbours(features: np.ndarray, scores: np.ndarray, fold: np.ndarray) -> np.ndarray:
    from sklearn.neighbors import KNeighborsRegressor

    found = np.empty_like(scores)
    for number in range(_FOLDS):
        train, test = fold != number, fold == number
        near = KNeighborsRegressor(min(_NEIGHBOURS, max(2, train.sum() // 4)), algorithm="brute")
        found[test] = near.fit(features[train], scores[train]).predict(features[test])
    return found


def _by_regression(features: np.ndarray, scores: np.ndarray, fold: np.ndarray, binary: bool) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression, Ridge

    spread = features.std(axis=0)
    features = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    found = np.empty_like(scores)
    for number in range(_FOLDS):
        train, test = fold != number, fold == number
        if not binary:
            found[test] = Ridge(1.0).fit(features[train], scores[train]).predict(features[test])
            continue
        for model, column in enumerate(scores[train].T):
            if column.min() == column.max():
                found[test, model] = column[0]
            else:
                fitted = LogisticRegression(max_iter=200).fit(features[train], column > 0.5)
                found[test, model] = fitted.predict_proba(features[test])[:, 1]
    return found


def _judged(
    how: str, predicted: np.ndarray, scores: np.ndarray, costs: np.ndarray, fold: np.ndarray, binary: bool
) -> Prediction:
    measure = _auc if binary else _explained
    per_model = tuple(measure(predicted[:, i], scores[:, i]) for i in range(scores.shape[1]))
    choice = _choices(predicted, scores, costs, fold)
    rows = np.arange(len(scores))
    single = best_single(scores.mean(axis=0), costs.mean(axis=0))
    gains = scores[rows, choice] - scores[:, single]
    return Prediction(
        how,
        "AUC" if binary else "R2",
        per_model,
        float(scores[rows, choice].mean()),
        float(gains.mean()),
        float(gains.std(ddof=1) / np.sqrt(len(gains))),
        float(costs[rows, choice].mean()),
    )


def _choices(predicted: np.ndarray, scores: np.ndarray, costs: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """`[Q]` the model with the largest predicted score less a price times its mean cost; the price is set on the other folds."""
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
    """The chance that a right answer was predicted higher than a wrong one."""
    values, place = np.unique(predicted, return_inverse=True)
    below = np.concatenate(([0], np.cumsum(np.bincount(place, minlength=len(values)))))
    rank = ((below[:-1] + below[1:] + 1) / 2.0)[place]
    right = truth > 0.5
    positive, negative = int(right.sum()), int((~right).sum())
    if not positive or not negative:
        return float("nan")
    return float((rank[right].sum() - positive * (positive + 1) / 2) / (positive * negative))


def _explained(predicted: np.ndarray, truth: np.ndarray) -> float:
    """The share of the variance that a prediction explains."""
    total = ((truth - truth.mean()) ** 2).sum()
    return float("nan") if total < 1e-12 else float(1.0 - ((truth - predicted) ** 2).sum() / total)
