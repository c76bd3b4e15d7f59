"""Figures of a comparison for notebooks. The package `page` draws the pictures of the report."""

from collections.abc import Sequence
from typing import Any

from jaxroute import plot
from jaxroute.comparison import choice
from jaxroute.comparison.comparing import Comparison
from jaxroute.comparison.points import Point
from jaxroute.plot import style


def frontier(found: Comparison, *, ax: Any = None):
    """Draws quality against cost on `ax` (default: a new figure): a line over the Pareto-optimal settings of each strategy, and the target quality.

    Shows means of `Point.judged`, without upper bounds; strategies that cannot be deployed come last, as "(not deployable)". Returns the axes.
    """
    series: dict[str, list[tuple[float, float]]] = {}
    for point in sorted(found.points, key=lambda p: (not p.available, p.judged.cost.value)):
        line = series.setdefault(_name(point), [])
        if point.kind != "bound" and all(point.judged.quality.value > quality for _, quality in line):
            line.append((point.judged.cost.value, point.judged.quality.value))
    drawn = {name: line for name, line in series.items() if line}
    own = ax is None
    if own:
        (ax,) = plot.panels(1, size=(8.0, 4.4))[1]  # Wide, with a legend of many names below.
    style.styles_of(ax).add(drawn, role="rival")  # No system is the subject of the figure.
    plot.points(drawn, x=found.log.table.cost_unit, y="mean score", ax=ax)
    plot.level(ax, "target", found.target)
    plot.log_axis(ax, "x")
    if own:
        plot.share_legend(ax.figure)
    return ax


def learning(found: Comparison, axes: Sequence[Any] | None = None):
    """Draws each online policy's mean score and cost, at its chosen setting, against the queries served. Returns the two axes (default: new ones)."""
    chosen = [point for point in choice.answers(found.points, found.target) if point.learning is not None]
    chosen.sort(key=lambda point: not point.available)
    left, right = plot.panels(2)[1] if axes is None else axes
    for ax in (left, right):
        style.styles_of(ax).add([_name(point) for point in chosen], role="rival")
    for point in chosen:
        parts = point.learning
        assert parts is not None
        for ax, values in ((left, parts.quality), (right, parts.cost)):
            ax.plot(parts.queries, values, label=_name(point), **plot.line_style(ax, _name(point)))
    plot.level(left, "target", found.target)
    for ax, words in ((left, "mean score"), (right, found.log.table.cost_unit)):
        ax.set_xlabel(f"queries served\nmean of {found.orders} orders")
        ax.set_ylabel(words)
    plot.log_axis(right, "y")
    if axes is None:
        plot.share_legend(left.figure)
    return left, right


def _name(point: Point) -> str:
    return point.strategy if point.available else f"{point.strategy} (not deployable)"


def other_targets(found: Comparison, *, ax: Any = None):
    """Draws costs of the cheapest strategy and the cheapest single model that meet each target on `ax` (default: a new figure). Returns the axes."""
    single = {model["name"]: model["cost"][0] for model in found.summary["data"]["models"]}
    rows = found.summary["sensitivity"]
    best = [(row["target"], row["cost"][0]) for row in rows if row["cost"]]
    cheapest_single = [(row["target"], single[row["single"]]) for row in rows if row["single"] in single]
    series = {"the cheapest strategy": best, "the cheapest single model": cheapest_single}
    return plot.points(series, x="target: mean score", y=found.log.table.cost_unit, ax=ax)
