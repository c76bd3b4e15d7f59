"""Content of a report as plain JSON: `summary.json`, from which the page, its pictures and the tables are made.

A pair is a mean and its standard error; NaN and infinity are null. Keys that are not obvious:

- `sentence`, `besides`: headline and further sentences.
- `best`: index of the point of the headline, null if no deployable strategy meets the target.
- `answered`: whether the point of the headline is clearly cheaper than the cheapest single model that meets the target.
- `data`: `file`, `queries` (their number), `unit` and `currency` of costs, `latency` (whether it is recorded), `features` (their source in words),
  `read` (remarks from reading the log), and `models` from the cheapest to the most expensive (`name`, `quality`, `cost`).
- `points`: fields of `points.Point` with the measures of `judged`, in no particular order; `without` is the rare need that prevents deployment,
  `answer` marks the chosen setting of a strategy, and `saving` is relative to the cheapest single model that meets the target.
- `sensitivity`: the cheapest deployable `strategy` and the cheapest `single` model that meet each examined target.
- `seconds`: wall-clock time of each step; `orders`: number of random orders of the queries for online policies.
- `to_route`: explanation and Python code for routing a new query; the code may be empty.
"""

from typing import TYPE_CHECKING

import numpy as np

import jaxroute as jr

from . import choice
from .points import Pair, Point, PointSummary, Summary

if TYPE_CHECKING:
    from .comparing import Comparison


def summary_of(found: "Comparison", assumptions: list[str]) -> Summary:
    """Returns the content of the report of a comparison."""
    log, table, target = found.log, found.log.table, found.target
    singles = {p.strategy: p.judged for p in found.points if p.kind == "single"}
    names = [table.models[k] for k in np.argsort(table.mean_costs(), kind="stable")]
    answer, chosen = found.answer, {id(p) for p in choice.answers(found.points, target)}
    first, *besides = found.sentences
    return {
        "jaxroute": jr.__version__,
        "target": target,
        "sentence": first,
        "besides": besides,
        "best": next((i for i, p in enumerate(found.points) if p is answer.best), None),
        "answered": answer.saves,
        "data": {
            "file": found.name,
            "queries": table.num_queries,
            "unit": table.cost_unit,
            "currency": table.currency,
            "latency": log.latency is not None,
            "features": log.features,
            "read": list(log.read),
            "models": [{"name": n, "quality": singles[n].quality.pair, "cost": singles[n].cost.pair} for n in names],
        },
        "points": [_point(p, target, answer.single, id(p) in chosen, found.opened) for p in found.points],
        "sensitivity": [_sensitivity(choice.answer(found.points, other)) for other in found.targets],
        "assumptions": assumptions,
        "seconds": {name: round(value, 1) for name, value in found.seconds.items()},
        "orders": found.orders,
        "command": found.command,
        "to_route": found.to_route(),
    }


def _point(point: Point, target: float, single: Point | None, chosen: bool, opened: str) -> PointSummary:
    judged, late, learned = point.judged, point.late, point.learning
    return {
        **{name: getattr(point, name) for name in ("strategy", "kind", "setting")},
        **{name: getattr(judged, name).pair for name in ("quality", "cost", "calls")},
        "latency": judged.latency and judged.latency.pair,
        "late_quality": late and late.quality.pair,
        "late_cost": late and late.cost.pair,
        "without": point.without,
        "meets": point.meets(target),
        "answer": chosen,
        "saving": _saving(point, single) if chosen else None,
        "needs": list(point.needs),
        "shares": dict(point.shares),
        "further": "\n".join(line for line in (opened, point.further) if line) if point.further else "",
        "learning": learned and {name: list(getattr(learned, name)) for name in ("queries", "quality", "cost")},
    }


def _sensitivity(found: choice.Answer) -> Summary:
    best, single = found.best, found.single
    return {
        "target": found.target,
        "strategy": best and best.strategy,
        "setting": best and best.setting,
        "quality": best and best.judged.quality.pair,
        "cost": best and best.judged.cost.pair,
        "single": single and single.strategy,
        "saving": best and _saving(best, single),
    }


def _saving(point: Point, single: Point | None) -> Pair | None:
    return None if single is None or single is point else choice.saving(point, single).pair
