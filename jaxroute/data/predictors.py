"""Predicts the score of each model from features and categories of a query. The commands `data` and `compare` fit these predictors, in NumPy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd

from .features import scales
from .table import RoutingTable

MOST_FEATURES = 64  # More features than this are replaced by their principal directions.
LEAST_OF_GROUP = 5  # A category with fewer fitted queries than this gets no column.
PENALTIES = (0.3, 3.0, 30.0)  # Candidates for the ridge penalty of a logistic regression.
SIZES = (5, 10, 20, 40, 80)  # Candidates for the number of neighbours.
_BLOCK = 512  # Number of queries whose distances are computed at once.
_FOLDS = 5
_MOST_QUERIES = 8000  # Predictions are evaluated on at most so many queries.


@dataclass(frozen=True, eq=False)
class Sample:
    """Some queries of a `RoutingTable`: their arrays in float64, and `latency`, the seconds of each answer, `[Q, N]`, if they are known."""

    models: tuple[str, ...]
    scores: np.ndarray
    costs: np.ndarray
    latency: np.ndarray | None = None
    features: np.ndarray | None = None
    groups: np.ndarray | None = None
    prompts: np.ndarray | None = None

    @classmethod
    def of(cls, table: RoutingTable) -> "Sample":
        features = None if table.features is None else table.features.astype(float)
        scores, costs = table.scores.astype(float), table.costs.astype(float)
        return cls(table.models, scores, costs, None, features, table.groups, table.prompts)

    @property
    def num_queries(self) -> int:
        return self.scores.shape[0]

    @property
    def num_models(self) -> int:
        return self.scores.shape[1]

    @property
    def described(self) -> bool:
        """Whether the queries have features or categories, from which scores can be predicted before an answer is known."""
        return self.features is not None or self.groups is not None

    def take(self, rows: np.ndarray) -> "Sample":
        """Returns the sample restricted to the queries that a mask or an array of indices selects."""
        part = (None if a is None else a[rows] for a in (self.latency, self.features, self.groups, self.prompts))
        return Sample(self.models, self.scores[rows], self.costs[rows], *part)

    def numbered(self) -> np.ndarray:
        """Returns an index of each query's prompt, `[Q]`, in the order of first appearance; copies of a prompt have the same index."""
        return np.arange(self.num_queries) if self.prompts is None else pd.factorize(self.prompts)[0]


class Predictor(Protocol):
    """Object that predicts the score of each model on each query."""

    def predict(self, sample: Sample) -> np.ndarray:
        """Returns the predicted scores of `N` models on `Q` queries, `[Q, N]`."""
        ...


def random_folds(sample: Sample, number: int, seed: int | tuple[int, ...] | np.random.Generator) -> np.ndarray:
    """Assigns each of `Q` queries at random to one of `number` folds with nearly equal numbers of prompts, `[Q]`. Copies of a prompt share a fold."""
    prompts = sample.numbered()
    return np.random.default_rng(seed).permutation(np.arange(prompts.max() + 1) % number)[prompts]


@dataclass(frozen=True, eq=False)
class Design:
    """Converts queries to the input of a predictor: scaled features, then for each category 1 if the query belongs to it and 0 if not.

    The scaled features have a total variance of 1, so the mean squared distance of two queries is 2, as between two categories.
    """

    mean: np.ndarray | None  #: `[d]` mean of the features over the fitted queries, or None without features.
    turn: np.ndarray | None  #: `[d, r]` matrix that scales centred features or projects them to principal directions.
    groups: np.ndarray | None  #: `[G]` categories that have a column, or None without categories.

    def columns(self, sample: Sample) -> np.ndarray:
        """Returns the predictor's input for some queries, `[Q, r + G]`, for `r` scaled features and `G` categories."""
        columns = []
        if self.mean is not None and self.turn is not None and sample.features is not None:
            columns.append((sample.features - self.mean) @ self.turn)
        if self.groups is not None and sample.groups is not None:
            columns.append((sample.groups[:, None] == self.groups).astype(float))
        return np.concatenate(columns, axis=1) if columns else np.zeros((sample.num_queries, 0))


def design(sample: Sample) -> Design:
    """Fits a `Design`. It standardises features if standard deviations differ 100-fold, and reduces more than 64 to 64 principal directions."""
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


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Returns `1 / (1 + exp(-x))` without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def logit(p: np.ndarray) -> np.ndarray:
    """Returns `log(p / (1 - p))`, after `p` is clipped to [0.001, 0.999]."""
    p = np.clip(p, 1e-3, 1 - 1e-3)
    return np.log(p / (1 - p))


def cross_entropy(predicted: np.ndarray, scores: np.ndarray) -> float:
    """Returns the mean of `-s log p - (1 - s) log(1 - p)` over scores `s` and predicted scores `p`."""
    p = np.clip(predicted, 1e-6, 1 - 1e-6)
    return float(-(scores * np.log(p) + (1 - scores) * np.log(1 - p)).mean())


def fit_weights(columns: np.ndarray, scores: np.ndarray, penalties: np.ndarray, steps: int = 60) -> np.ndarray:
    """Fits a logistic regression for each output and penalty, by least cross-entropy plus `penalty / 2 * |weights|^2`.

    `columns` are `[Q, d]` predictors of `Q` queries, `scores` `[Q, M]` in [0, 1] with a column per output, and `penalties` `[A]`, positive. Returns
    intercepts, which have no penalty, and weights, `[A, 1 + d, M]`. The `steps` are accelerated Newton steps (Nesterov) with an upper bound of the
    Hessian, `X'X / 4 + penalty` for columns `X` (Boehning and Lindsay, 1988). One eigendecomposition of this bound serves all outputs.
    """
    middle = columns.mean(0)
    centred = columns - middle  # Orthogonal to the intercept, so that the bound separates into the two.
    values, vectors = np.linalg.eigh(centred.T @ centred)
    turned = np.concatenate([np.ones((len(columns), 1)), centred @ vectors], axis=1)
    num_penalties, num_outputs = len(penalties), scores.shape[1]
    # [1 + d, A * M]: each penalty has its block of columns.
    penalty = np.tile(np.repeat(penalties, num_outputs), (turned.shape[1], 1))
    penalty[0] = 0.0
    curvature = np.append(len(columns), np.maximum(values, 0.0))[:, None] / 4 + penalty
    target = turned.T @ np.tile(scores, num_penalties)
    weights = np.zeros_like(curvature)
    weights[0] = np.tile(_intercepts(scores), num_penalties)
    ahead, pace = weights, 1.0
    for _ in range(steps):
        gradient = turned.T @ sigmoid(turned @ ahead) - target + penalty * ahead
        following = ahead - gradient / curvature
        # Momentum is dropped in the columns where it points uphill (O'Donoghue and Candes, 2015).
        uphill = (gradient * (following - weights)).sum(0) > 0
        faster = (1 + np.sqrt(1 + 4 * pace**2)) / 2
        ahead = following + np.where(uphill, 0.0, (pace - 1) / faster) * (following - weights)
        pace = np.where(uphill, 1.0, faster)
        weights = following
    weights = weights.reshape(-1, num_penalties, num_outputs).transpose(1, 0, 2)
    slopes = vectors @ weights[:, 1:]
    intercepts = weights[:, :1] - np.einsum("d,adm->am", middle, slopes)[:, None]
    return np.concatenate([intercepts, slopes], axis=1)


def _intercepts(scores: np.ndarray) -> np.ndarray:
    """Returns the best intercept of a logistic regression without weights for each column of `scores`, `[Q, M]`: the logit of its mean."""
    least = 1 / (2 * len(scores))
    return logit(np.clip(scores.mean(0), least, 1 - least))


def fit_each(columns: np.ndarray, scores: np.ndarray, penalty: float = 1.0, steps: int = 12) -> np.ndarray:
    """Fits `M` logistic regressions, each with separate predictors and scores, by Newton's method.

    `columns` are `[d, Q, M]` predictors of `Q` queries, and `scores` `[Q, M]`. Returns intercepts, which have no penalty, and weights `[M, 1 + d]`.
    A step that would increase the loss is replaced by one with an upper bound of the Hessian, `X'X / 4 + penalty` for columns `X`.
    """
    middle = columns.mean(1)
    x = np.concatenate([np.ones((1, *scores.shape)), columns - middle[:, None]]).transpose(2, 0, 1)  # [M, 1 + d, Q]
    y = scores.T
    ridge = np.diag(np.append(0.0, np.full(len(columns), penalty)))
    bound = x @ x.transpose(0, 2, 1) / 4 + ridge
    weights = np.zeros(x.shape[:2])
    weights[:, 0] = _intercepts(scores)

    def loss(w: np.ndarray) -> np.ndarray:
        z = (w[:, None] @ x)[:, 0]
        return (np.logaddexp(0.0, z) - y * z).sum(1) + ((w @ ridge) * w).sum(1) / 2

    least = loss(weights)
    for _ in range(steps):
        p = sigmoid((weights[:, None] @ x)[:, 0])
        gradient = (x @ (p - y)[:, :, None]) + (weights @ ridge)[:, :, None]
        curvature = (x * np.maximum(p * (1 - p), 1e-6)[:, None]) @ x.transpose(0, 2, 1) + ridge
        quick, sure = (weights - np.linalg.solve(h, gradient)[:, :, 0] for h in (curvature, bound))
        falls = loss(quick) <= least
        weights = np.where(falls[:, None], quick, sure)
        least = loss(weights)
    weights[:, 0] -= (weights[:, 1:] * middle.T).sum(1)
    return weights


@dataclass(frozen=True, eq=False)
class Logistic:
    """Predicts each model's score on a query by logistic regression."""

    design: Design  #: Columns of numbers that describe a query.
    weights: np.ndarray  #: `[1 + r, N]` intercepts and weights.
    penalty: float  #: Chosen penalty of the squared weights.

    def predict(self, sample: Sample) -> np.ndarray:
        return sigmoid(self.weights[0] + self.design.columns(sample) @ self.weights[1:])


def fit_logistic(sample: Sample, folds: np.ndarray) -> tuple[Logistic, np.ndarray]:
    """Fits a logistic regression whose penalty is chosen on `folds` `[Q]`. Also returns scores `[Q, N]`, each predicted by a fit to other folds."""
    penalties = np.array(PENALTIES)
    predicted = np.empty((len(penalties), *sample.scores.shape))
    for fold in np.unique(folds):
        outside, inside = sample.take(folds != fold), sample.take(folds == fold)
        made = design(outside)
        weights = fit_weights(made.columns(outside), outside.scores, penalties)
        predicted[:, folds == fold] = sigmoid(weights[:, :1] + made.columns(inside) @ weights[:, 1:])
    best = int(np.argmin([cross_entropy(predicted[i], sample.scores) for i in range(len(penalties))]))
    made = design(sample)
    weights = fit_weights(made.columns(sample), sample.scores, penalties[best : best + 1])[0]
    return Logistic(made, weights, float(penalties[best])), predicted[best]


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Predicts each model's score on a query by its mean score on the most similar recorded queries."""

    design: Design  #: Columns of numbers in which distances are computed.
    columns: np.ndarray  #: `[R, r]` columns of the recorded queries.
    scores: np.ndarray  #: `[R, N]` scores of the recorded queries.
    size: int  #: Number of neighbours.

    def predict(self, sample: Sample) -> np.ndarray:
        return _neighbour_means(self.design.columns(sample), self.columns, self.scores, (self.size,))[0]


def fit_neighbours(sample: Sample) -> tuple[Neighbours, np.ndarray]:
    """Fits `Neighbours` with the best number of neighbours. Also returns scores `[Q, N]`, each predicted from queries of other prompts."""
    made, prompts = design(sample), sample.numbered()
    columns = made.columns(sample)
    others = sample.num_queries - int(np.bincount(prompts).max())
    sizes = tuple(sorted({min(size, others) for size in SIZES}))
    predicted = _neighbour_means(columns, columns, sample.scores, sizes, prompts)
    best = int(np.argmin(np.square(predicted - sample.scores).mean((1, 2))))
    return Neighbours(made, columns, sample.scores, sizes[best]), predicted[best]


def _neighbour_means(
    columns: np.ndarray, recorded: np.ndarray, scores: np.ndarray, sizes: tuple[int, ...], prompts: np.ndarray | None = None
) -> np.ndarray:
    """Returns the mean scores of each query's nearest recorded queries, `[S, Q, N]`, for each of `S` ascending numbers of neighbours in `sizes`.

    `columns` `[Q, r]` and `recorded` `[R, r]` have the predictors of queries and recorded queries, and `scores` is `[R, N]`. If both are the same
    queries, `prompts` `[Q]` has the index of each query's prompt: a query and its copies are then excluded from its neighbours.
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


@dataclass(frozen=True)
class Prediction:
    """Result of predicting scores by cross-validation, and of routing by them at no more than the mean cost of the best single model."""

    how: str  #: "categories", "nearest neighbours" or "logistic regression".
    measure: str  #: "AUC", or "R2" if a score is not 0 or 1.
    models: tuple[float, ...]  #: Measure of each model, NaN if all its scores are equal.
    quality: float  #: Mean score of the models that the prediction chooses.
    gain: float  #: Mean difference between that score and the score of the best single model.
    stderr: float  #: Standard error of the gain.
    cost: float  #: Mean cost of the chosen models.


def best_single(quality: np.ndarray, cost: np.ndarray) -> int:
    """Returns the index of the model with the highest quality; if several are equal, of the cheapest among them."""
    return int(np.lexsort((cost, -quality))[0])


def standard_error(values: np.ndarray) -> float:
    """Returns the standard error of the mean of some values, NaN for a single value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def evaluate_predictions(sample: Sample) -> tuple[tuple[Prediction, ...], tuple[str, ...]]:
    """Returns results for category means, nearest neighbours and logistic regression, and lines for the user about omitted methods and queries."""
    left_out, total = [], sample.num_queries
    if total > _MOST_QUERIES:
        left_out.append(f"predictions are evaluated on {_MOST_QUERIES:,} of the {total:,} queries, drawn at random")
    sample = sample.take(np.random.default_rng(0).permutation(total)[:_MOST_QUERIES])
    prompts = sample.numbered()
    different = int(prompts.max()) + 1
    if different < 4 * _FOLDS:
        return (), (f"predictions: {different} queries are too few; at least {4 * _FOLDS} are needed",)
    methods: dict[str, Callable[[Sample, Sample], np.ndarray]] = {}
    if sample.groups is not None and len(np.unique(sample.groups)) > 1:
        methods["categories"] = _category_means
    if sample.features is None:
        left_out.append("predictions from features: there are none" + ("" if methods else ", and no categories"))
    else:
        methods["nearest neighbours"] = lambda others, part: fit_neighbours(others)[0].predict(part)
        methods["logistic regression"] = lambda rest, part: fit_logistic(rest, random_folds(rest, 4, 0))[0].predict(part)
    found = tuple(_evaluate(how, predict, sample, prompts % _FOLDS) for how, predict in methods.items())
    return found, tuple(left_out)


def _category_means(others: Sample, sample: Sample) -> np.ndarray:
    """Predicts scores `[Q, N]` by `(n c + 2 m) / (n + 2)`, from mean scores in `others`: `c` on the `n` queries of the category, `m` on all."""
    assert others.groups is not None and sample.groups is not None
    mean, size = others.scores.mean(axis=0), 1 + int(max(others.groups.max(), sample.groups.max()))
    count = np.bincount(others.groups, minlength=size)[:, None]
    total = np.stack([np.bincount(others.groups, column, size) for column in others.scores.T], axis=1)
    return ((total + 2.0 * mean) / (count + 2.0))[sample.groups]


def _evaluate(how: str, predict: Callable[[Sample, Sample], np.ndarray], sample: Sample, fold: np.ndarray) -> Prediction:
    """Returns the result of the method `how` by cross-validation over `fold` `[Q]`. `predict(others, part)` fits to `others` and predicts `part`."""
    scores, costs, rows = sample.scores, sample.costs, np.arange(sample.num_queries)
    predicted = np.empty_like(scores)
    for number in range(_FOLDS):
        predicted[fold == number] = predict(sample.take(fold != number), sample.take(fold == number))
    choice = _choose_models(predicted, scores, costs, fold)
    gains = scores[rows, choice] - scores[:, best_single(scores.mean(axis=0), costs.mean(axis=0))]
    unit, measure = ("AUC", _auc) if np.isin(scores, (0.0, 1.0)).all() else ("R2", _r_squared)
    models, quality = tuple(map(measure, predicted.T, scores.T)), float(scores[rows, choice].mean())
    cost = float(costs[rows, choice].mean())
    return Prediction(how, unit, models, quality, float(gains.mean()), standard_error(gains), cost)


def _choose_models(predicted: np.ndarray, scores: np.ndarray, costs: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Chooses for each query the index of the model with the largest predicted score minus a weight times the model's mean cost.

    The weight gives the highest mean score on the other folds at no more than the cost of the best single model. `fold`, `[Q]`, is each query's fold.
    """
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
    """Returns the probability that a right answer (`truth` 1) has a higher `predicted` score than a wrong one; NaN if all are right or all wrong."""
    rank, right = pd.Series(predicted).rank().to_numpy(), truth > 0.5
    positive, negative = int(right.sum()), int((~right).sum())
    above = rank[right].sum() - positive * (positive + 1) / 2  # Pairs in which the right answer has the higher prediction.
    return float(above / (positive * negative)) if positive and negative else float("nan")


def _r_squared(predicted: np.ndarray, truth: np.ndarray) -> float:
    total = ((truth - truth.mean()) ** 2).sum()
    return float("nan") if total < 1e-12 else float(1.0 - ((truth - predicted) ** 2).sum() / total)
