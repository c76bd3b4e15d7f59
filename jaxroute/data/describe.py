"""What a log says before anything is routed: how good and dear models are, how far the best choice per query gets, and what predicts it."""

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from jaxroute.core import checks
from jaxroute.data.logs.log import Log
from jaxroute.data.prediction import Prediction, best_single, predictions_of
from jaxroute.data.predictors import Sample
from jaxroute.data.table import RoutingTable


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

    Predictions from features are those of the routers that `jaxroute compare` fits. They come from five folds: a query is predicted from the
    other four, which have no copy of its prompt. Where a prediction chooses, it trades predicted score against the model's mean cost, and the
    trade is set on the other folds so that it costs no more there than the best single model.

    Args:
      log: from `read_log`, or a table.

    Returns:
      The description.

    Raises:
      ValueError: `log` is neither.
    """
    if isinstance(log, RoutingTable):
        log = Log(log)
    if not isinstance(log, Log):
        raise ValueError(f"log must be what read_log returns, or a RoutingTable, got {checks.show(log)}")
    table, sample = log.table, Sample.of(log.table)
    scores, costs = sample.scores, sample.costs
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
    predictions, left_out = predictions_of(sample)
    return Description(
        queries=table.num_queries,
        models=lines,
        cost_unit=table.cost_unit,
        best=table.models[best_single(scores.mean(axis=0), costs.mean(axis=0))],
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


def _correlation(scores: np.ndarray) -> tuple[tuple[float, ...], ...]:
    centred = scores - scores.mean(axis=0)
    size = np.sqrt((centred**2).sum(axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = centred.T @ centred / np.outer(size, size)
    found[:, size < 1e-9] = found[size < 1e-9] = np.nan
    return tuple(tuple(float(value) for value in row) for row in found)


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
        short = {"nearest neighbours": "neighbours", "logistic regression": "logistic"}
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
