"""Describes a log before routing is simulated: quality and cost of models, the possible gain of routing, and how well scores can be predicted."""

import json
import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from jaxroute.core import checks

from .logs.complete import Log
from .predictors import Prediction, Sample, best_single, evaluate_predictions, standard_error
from .table import RoutingTable


@dataclass(frozen=True)
class ModelLine:
    """Quality (scores in [0, 1]), cost (per query, in the log's unit) and latency of one model in a log."""

    name: str  #: Name of the model.
    quality: float  #: Mean score.
    stderr: float  #: Standard error of the mean score.
    cost: float  #: Mean cost.
    latency: float | None  #: Median seconds, None if they are unknown.
    alone: float  #: Share of the queries that only this model answers right.
    best: float  #: Share of the queries on which no model scores higher.


@dataclass(frozen=True)
class Description:
    """Description of a log: sizes, models, mean score and cost of the best choice per query (`bound`), and how well scores can be predicted."""

    queries: int  #: Number of queries.
    models: tuple[ModelLine, ...]  #: Quality and cost of each model, in the order of the log.
    cost_unit: str  #: Unit of a cost.
    best: str  #: Name of the best single model.
    cheapest: str  #: Name of the model with the lowest mean cost.
    bound: tuple[float, float]  #: Mean score and cost if the cheapest of the best models answered each query.
    all_right: float  #: Share of the queries that all models answer right (score at least 1/2).
    none_right: float  #: Share of the queries that no model answers right.
    correlation: tuple[tuple[float, ...], ...]  #: `[N, N]` correlation of scores, NaN for a constant score.
    categories: int  #: Number of categories, 0 for none.
    features: str  #: Source of the features, in words.
    width: int  #: Number of features.
    predictions: tuple[Prediction, ...] = ()  #: Accuracy of predicted scores; empty without features and categories.
    left_out: tuple[str, ...] = ()  #: Lines about omissions.
    read: tuple[str, ...] = field(default=(), repr=False)  #: Lines about how the file was read.

    def as_dict(self) -> dict[str, Any]:
        """Returns the description as plain dicts, lists and numbers, with None instead of NaN, for programs."""
        return json.loads(json.dumps(asdict(self)), parse_constant=lambda constant: None)

    def lines(self, width: int = 110) -> list[str]:
        """Formats the description as lines for people, of at most `width` characters unless names are longer."""
        width = max(int(width), 40)
        read, left_out = _list("How it was read", self.read, width), _list("Left out", self.left_out, width)
        parts = [read, _models(self, width), _choice(self, width), _predicted(self, width), left_out]
        return [line for part in parts if part for line in ("", *part)][1:]


def describe(log: Log | RoutingTable) -> Description:
    """Describes a log or table: its models, how good the best choice of a model per query would be, and how well scores can be predicted.

    The predictors are those that `jaxroute compare` fits. There are five folds: queries are predicted from the other four folds, which contain no
    copy of their prompts. Routing by a prediction takes the model with the largest `predicted score - weight * mean cost`. The weight is fitted to
    the other folds, where routing must cost no more than the best single model.

    Raises `ValueError` if `log` is neither the result of `read_log` nor a `RoutingTable`.
    """
    log = Log(log) if isinstance(log, RoutingTable) else log
    if not isinstance(log, Log):
        raise ValueError(f"log must be a Log from read_log, or a RoutingTable, got {checks.show(log)}")
    table, sample = log.table, Sample.of(log.table)
    scores, costs = sample.scores, sample.costs
    top = scores.max(axis=1, keepdims=True)
    best, right = scores >= top, scores >= 0.5
    alone = right & (right.sum(axis=1, keepdims=True) == 1)
    latency = [None] * table.num_models if log.latency is None else np.median(log.latency, axis=0).tolist()
    quality, cost, share_alone, share_best = (values.mean(axis=0).tolist() for values in (scores, costs, alone, best))
    errors = map(standard_error, scores.T)
    predictions, left_out = evaluate_predictions(sample)
    return Description(
        queries=table.num_queries,
        models=tuple(map(ModelLine, table.models, quality, errors, cost, latency, share_alone, share_best)),
        cost_unit=table.cost_unit,
        best=table.models[best_single(scores.mean(axis=0), costs.mean(axis=0))],
        cheapest=table.models[int(np.argmin(costs.mean(axis=0)))],
        bound=(float(top.mean()), float(np.where(best, costs, np.inf).min(axis=1).mean())),
        all_right=float(right.all(axis=1).mean()),
        none_right=float((~right).all(axis=1).mean()),
        correlation=tuple(map(tuple, pd.DataFrame(scores).corr().to_numpy().tolist())),
        categories=0 if table.groups is None else len(np.unique(table.groups)),
        features=log.features if log.read else ("none" if table.features is None else "of the table"),
        width=0 if table.features is None else table.features.shape[1],
        predictions=predictions,
        left_out=left_out,
        read=log.read,
    )


def _list(heading: str, texts: Iterable[str], width: int) -> list[str]:
    """Breaks texts into indented lines of at most `width` characters below a heading; leaves the heading out if it is empty or there are no texts."""
    lines = [line for text in texts for line in textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="      ")]
    return [heading, *lines] if heading and lines else lines


def _models(about: Description, width: int) -> list[str]:
    timed = any(m.latency is not None for m in about.models)
    name = max(5, min(max(len(m.name) for m in about.models), width - (52 if timed else 42)))
    unit = _shorten(about.cost_unit.split(" per ")[0] + " a query", 14)
    lines = [
        f"{about.queries:,} queries x {len(about.models)} models",
        f"  {'model':<{name}}  quality ± s.e.    {unit:>14}{'   p50 s' if timed else ''}    best",
    ]
    for m in sorted(about.models, key=lambda m: (-m.quality, m.cost)):
        seconds = "" if m.latency is None else f"  {m.latency:>6.3g}"
        numbers = f"{m.quality:.4f} ± {m.stderr:.4f}   {m.cost:>13.4g}{seconds}  {m.best:>6.1%}"
        lines.append(f"  {_shorten(m.name, name):<{name}}  {numbers}")
    legend = f"best: share of the queries on which no other model scores higher; costs in {about.cost_unit}"
    return lines + _list("", [legend], width)


def _choice(about: Description, width: int) -> list[str]:
    models = {m.name: m for m in about.models}
    best, cheapest = models[about.best], models[about.cheapest]
    quality, cost = about.bound
    share = f", {cost / best.cost:.2g} of the best single model's" if best.cost > 0 else ""
    texts = [
        f"best single model: {best.name}, quality {best.quality:.4f} at {best.cost:.4g}",
        f"cheapest: {cheapest.name}, quality {cheapest.quality:.4f} at {cheapest.cost:.4g}",
        f"upper bound (the cheapest of the best models for every query): quality {quality:.4f} at {cost:.4g}{share}; "
        f"{quality - best.quality:+.4f} against the best single model",
        f"all models are right (score 1/2 or more) on {about.all_right:.1%} of the queries, none on "
        f"{about.none_right:.1%}: on the other {1 - about.all_right - about.none_right:.1%} the choice matters",
    ]
    pairs = np.array(about.correlation)[np.triu_indices(len(models), 1)]
    known = pairs[np.isfinite(pairs)]
    if known.size == 1:
        texts.append(f"correlation between the models' scores: {known[0]:.2f}")
    elif known.size:
        spread = f"{known.mean():.2f} on average, from {known.min():.2f} to {known.max():.2f}"
        texts.append(f"correlation between models' scores: {spread}")
    return _list("What there is to gain", texts, width)


def _predicted(about: Description, width: int) -> list[str]:
    if not about.predictions:
        return []
    measure = about.predictions[0].measure
    name = max(12, min(max(len(m.name) for m in about.models), width - 16 * len(about.predictions) - 2))
    short = {"nearest neighbours": "neighbours", "logistic regression": "logistic"}
    source = f"{about.features}; " if about.width else ""
    head = f"How far scores can be predicted ({measure}, five folds; {source}{about.categories or 'no'} categories)"
    lines = textwrap.wrap(head, width, subsequent_indent="  ")
    lines.append(f"  {measure + ' of':<{name}}" + "".join(f"{short.get(p.how, p.how):>14}" for p in about.predictions))
    for m, found in zip(about.models, zip(*(p.models for p in about.predictions))):
        cells = "".join(f"{'-':>14}" if np.isnan(value) else f"{value:>14.3f}" for value in found)
        lines.append(f"  {_shorten(m.name, name):<{name}}{cells}")
    routing = []
    for p in about.predictions:
        verdict = "no clear difference"
        if p.gain == p.stderr == 0:
            verdict = "the same model throughout"
        elif abs(p.gain) > 2 * p.stderr:
            verdict = "more" if p.gain > 0 else "less"
        gain = f"quality {p.quality:.4f} at {p.cost:.4g}, {p.gain:+.4f} ± {p.stderr:.4f} ({verdict})"
        routing.append(f"routing by {p.how}, for no more than the best single model costs: {gain}")
    return lines + _list("", routing, width)


def _shorten(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
