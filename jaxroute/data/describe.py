"""What a log says before anything is routed: how good and dear models are, how far the best choice per query gets, and what predicts it."""

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from jaxroute.core import checks
from jaxroute.data.logs.features import INSTALL, has_sklearn
from jaxroute.data.logs.log import Log
from jaxroute.data.table import RoutingTable

_FOLDS = 5
_MOST = 8000  # Queries that predictions are judged on.
_NEIGHBOURS = 25


@dataclass(frozen=True)
class ModelLine:
    """One model of a log.

    name: of the model.
    quality: mean score.
    stderr: its standard error.
    cost: mean cost.
    latency: median seconds, or None.
    alone: share of the queries that it alone gets right.
    best: share of the queries that no model scores higher on.
    """

    name: str
    quality: float
    stderr: float
    cost: float
    latency: float | None
    alone: float
    best: float


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


@dataclass(frozen=True)
class Description:
    """What a log says before anything is routed.

    queries: how many.
    models: each model, in the order of the log.
    cost_unit: what costs count.
    best: name of the best single model.
    cheapest: name of the one with the lowest mean cost.
    bound: quality and cost of the cheapest model that gets the best score, chosen for every query.
    all_right: share of the queries that all models get right, that is score at least 1/2.
    none_right: share that none does.
    correlation: `[N, N]` correlation of scores, NaN for a constant one.
    categories: number of categories, 0 for none.
    features: where features come from, in words.
    width: number of features.
    predictions: how well scores are predicted; empty without anything to predict from.
    left_out: what could not be computed, and what to install.
    read: how the file was read.
    """

    queries: int
    models: tuple[ModelLine, ...]
    cost_unit: str
    best: str
    cheapest: str
    bound: tuple[float, float]
    all_right: float
    none_right: float
    correlation: tuple[tuple[float, ...], ...]
    categories: int
    features: str
    width: int
    predictions: tuple[Prediction, ...] = ()
    left_out: tuple[str, ...] = ()
    read: tuple[str, ...] = field(default=(), repr=False)

    def as_dict(self) -> dict[str, Any]:
        """The same for programs: plain dicts, lists and numbers, None in place of NaN."""
        return _plain(asdict(self))

    def lines(self, width: int = 110) -> list[str]:
        """The same for people, in lines of at most `width` characters where names allow."""
        return _Page(self, width).lines()


def describe(log: Log | RoutingTable) -> Description:
    """Describes a log before anything is routed.

    The predictions come from five folds: what is said about a query was learned from the other four fifths. Where a prediction chooses, it
    trades predicted score against the model's mean cost, and the trade is set on the other folds so that it costs no more there than the
    best single model.

    Args:
      log: from `read_log`, or a table.

    Returns:
      The description. Without scikit-learn only categories predict, and `left_out` says so.

    Raises:
      ValueError: `log` is neither.
    """
    if isinstance(log, RoutingTable):
        log = Log(log)
    if not isinstance(log, Log):
        raise ValueError(f"log must be what read_log returns, or a RoutingTable, got {checks.show(log)}")
    table = log.table
    scores, costs = table.scores.astype(np.float64), table.costs.astype(np.float64)
    top = scores.max(axis=1)
    dearest_first = np.where(scores >= top[:, None], costs, np.inf)
    right = scores >= 0.5
    alone = right & (right.sum(axis=1, keepdims=True) == 1)
    latency = None if log.latency is None else np.median(log.latency, axis=0)
    lines = tuple(
        ModelLine(
            name,
            float(scores[:, i].mean()),
            float(scores[:, i].std(ddof=1) / np.sqrt(len(scores))) if len(scores) > 1 else float("nan"),
            float(costs[:, i].mean()),
            None if latency is None else float(latency[i]),
            float(alone[:, i].mean()),
            float((scores[:, i] >= top).mean()),
        )
        for i, name in enumerate(table.models)
    )
    predictions, left_out = _predictions(table, scores, costs)
    return Description(
        queries=table.num_queries,
        models=lines,
        cost_unit=table.cost_unit,
        best=table.models[_best(scores.mean(axis=0), costs.mean(axis=0))],
        cheapest=table.models[int(np.argmin(costs.mean(axis=0)))],
        bound=(float(top.mean()), float(dearest_first.min(axis=1).mean())),
        all_right=float(right.all(axis=1).mean()),
        none_right=float((~right).all(axis=1).mean()),
        correlation=_correlation(scores),
        categories=0 if table.groups is None else len(np.unique(table.groups)),
        features=log.features if log.read else ("none" if table.features is None else "of the table"),
        width=0 if table.features is None else table.features.shape[1],
        predictions=tuple(predictions),
        left_out=tuple(left_out),
        read=log.read,
    )


def _best(quality: np.ndarray, cost: np.ndarray) -> int:
    """The best model; of equally good ones the cheapest."""
    return int(np.lexsort((cost, -quality))[0])


def _correlation(scores: np.ndarray) -> tuple[tuple[float, ...], ...]:
    centred = scores - scores.mean(axis=0)
    size = np.sqrt((centred**2).sum(axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = centred.T @ centred / np.outer(size, size)
    found[:, size < 1e-9] = found[size < 1e-9] = np.nan
    return tuple(tuple(float(value) for value in row) for row in found)


# Predictions.


def _predictions(table: RoutingTable, scores: np.ndarray, costs: np.ndarray) -> tuple[list[Prediction], list[str]]:
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
    single = _best(scores.mean(axis=0), costs.mean(axis=0))
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
        limit = mean[_best(scores[train].mean(axis=0), mean)]
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


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


# For people.


class _Page:
    """The lines of a description."""

    def __init__(self, about: Description, width: int):
        self.about, self.width = about, max(int(width), 40)

    def lines(self) -> list[str]:
        parts = [self._read(), self._models(), self._choice(), self._predicted(), self._left_out()]
        return [
            line for number, part in enumerate(part for part in parts if part) for line in ([""] if number else []) + part
        ]

    def _read(self) -> list[str]:
        return ["How it was read", *self._list(self.about.read)] if self.about.read else []

    def _list(self, texts: Sequence[str]) -> list[str]:
        return [
            line
            for text in texts
            for line in textwrap.wrap(text, self.width, initial_indent="  ", subsequent_indent="      ")
        ]

    def _models(self) -> list[str]:
        about = self.about
        latency = any(m.latency is not None for m in about.models)
        room = self.width - (52 if latency else 42)
        name = max(5, min(max(len(m.name) for m in about.models), room))
        currency = about.cost_unit.split(" per ")[0]
        head = (
            f"  {'model':<{name}}  quality ± s.e.    {_cut(currency + ' a query', 14):>14}"
            + ("   p50 s" if latency else "")
            + "    best"
        )
        lines = [f"{about.queries:,} queries x {len(about.models)} models", head]
        for m in sorted(about.models, key=lambda m: (-m.quality, m.cost)):
            seconds = "" if not latency else f"  {m.latency:>6.3g}" if m.latency is not None else "       -"
            lines.append(
                f"  {_cut(m.name, name):<{name}}  {m.quality:.4f} ± {m.stderr:.4f}   {m.cost:>13.4g}{seconds}  {m.best:>6.1%}"
            )
        lines += self._list(
            [f"best: share of the queries on which no other model scores higher; costs in {about.cost_unit}"]
        )
        return lines

    def _choice(self) -> list[str]:
        about = self.about
        of = {m.name: m for m in about.models}
        best, cheapest = of[about.best], of[about.cheapest]
        quality, cost = about.bound
        share = f", {cost / best.cost:.2g} of the best single model's" if best.cost > 0 else ""
        corr = np.array(about.correlation)
        pairs = corr[np.triu_indices(len(corr), 1)]
        known = pairs[np.isfinite(pairs)]
        texts = [
            f"best single model: {best.name}, quality {best.quality:.4f} at {best.cost:.4g}",
            f"cheapest: {cheapest.name}, quality {cheapest.quality:.4f} at {cheapest.cost:.4g}",
            f"upper bound (the cheapest of the best models for every query): quality {quality:.4f} at {cost:.4g}{share}; "
            f"{quality - best.quality:+.4f} against the best single model",
            f"all models are right (score 1/2 or more) on {about.all_right:.1%} of the queries, none on {about.none_right:.1%}: on the other "
            f"{1 - about.all_right - about.none_right:.1%} the choice matters",
        ]
        if known.size:
            texts.append(
                f"correlation between models' scores: {known.mean():.2f} on average, from {known.min():.2f} to {known.max():.2f}"
                if known.size > 1
                else f"correlation between the models' scores: {known[0]:.2f}"
            )
        return ["What there is to gain", *self._list(texts)]

    def _predicted(self) -> list[str]:
        about = self.about
        if not about.predictions:
            return []
        measure = about.predictions[0].measure
        name = min(max(len(m.name) for m in about.models), self.width - 16 * len(about.predictions) - 2)
        name = max(name, 12)
        short = {"nearest neighbours": "neighbours", "logistic regression": "logistic", "linear regression": "linear"}
        heads = [short.get(p.how, p.how) for p in about.predictions]
        source = f"{about.features}; " if about.width else ""
        lines = self._wrap(
            f"How far scores can be predicted ({measure}, five folds; {source}{about.categories or 'no'} categories)"
        )
        lines.append(f"  {measure + ' of':<{name}}" + "".join(f"{head:>14}" for head in heads))
        for i, m in enumerate(about.models):
            cells = "".join(f"{'-':>14}" if np.isnan(p.models[i]) else f"{p.models[i]:>14.3f}" for p in about.predictions)
            lines.append(f"  {_cut(m.name, name):<{name}}{cells}")
        for p in about.predictions:
            sure = (
                "the same model throughout"
                if p.gain == p.stderr == 0
                else "more"
                if p.gain > 2 * p.stderr
                else "less"
                if p.gain < -2 * p.stderr
                else "no clear difference"
            )
            lines += self._list(
                [
                    f"routing by {p.how}, for no more than the best single model costs: quality {p.quality:.4f} at {p.cost:.4g}, {p.gain:+.4f} ± {p.stderr:.4f} ({sure})"
                ]
            )
        return lines

    def _wrap(self, text: str) -> list[str]:
        return textwrap.wrap(text, self.width, subsequent_indent="  ")

    def _left_out(self) -> list[str]:
        return ["Left out", *self._list(self.about.left_out)] if self.about.left_out else []


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
