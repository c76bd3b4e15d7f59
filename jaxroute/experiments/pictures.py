"""Figures of experiments as tables of panels: which metrics, of which cases, drawn by which function of `plot`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import xarray as xr

from jaxroute import metrics, plot
from jaxroute.core.attributes import decoded
from jaxroute.experiments.base import Results

Picture = Callable[[Results], Any]


@dataclass(frozen=True)
class Panel:
    """One kind of panel: what is drawn of a result. Made by `panel`.

    metric: its name.
    draw: a function of `plot` that takes a result, a metric, axes and a title.
    title: above the panel; empty for none.
    case: the only case that it shows; None for that of its row or column.
    change: made of the result before it is drawn, for example a selection or another metric.
    options: further arguments of `draw`; one that is a function is called with the (changed) result.
    """

    metric: str
    draw: Callable[..., Any]
    title: str = ""
    case: str | None = None
    change: Callable[[xr.Dataset], xr.Dataset] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def fill(self, ax: Any, data: xr.Dataset, about: str) -> None:
        """Draws it; `about` says which case or setting it is of."""
        data = self.change(data) if self.change else data
        made = {name: value(data) if callable(value) else value for name, value in self.options.items()}
        title = ": ".join(part for part in (about, self.title) if part)
        self.draw(data, self.metric, ax=ax, title=title or None, **made)


def panel(
    metric: str,
    draw: Callable[..., Any] = plot.curves,
    *,
    title: str = "",
    case: str | None = None,
    change: Callable[[xr.Dataset], xr.Dataset] | None = None,
    **options: Any,
) -> Panel:
    """A `Panel`, with arguments of the function that draws as keywords: `panel("regret", log=True, policies=["ACQB"])`."""
    return Panel(metric, draw, title, case, change, options)


def panels_of(
    *,
    rows: str | Sequence[str | Panel],
    columns: str | Sequence[str | Panel],
    titles: Mapping[str, str] | Callable[[xr.Dataset], str] | None = None,
    cases: Sequence[str] | None = None,
    **options: Any,
) -> Picture:
    """A figure as a table: one side lists metrics, the other is "case" or the name of a setting.

        panels_of(rows=("queue_length", "routing_regret"), columns="case", band="deviation")

    Args:
      rows, columns: one of them metrics (or panels, made by `panel`), the other "case" for a place per case of the results, or the name
        of a setting axis for a place per value of it (of the first case).
      titles: of the cases, by name or made from the result (default: their coordinates, or names); of a setting always its value.
      cases: names of those to draw (default: all).
      options: arguments of `panel` for the metrics that are given by name.
    """
    by_column = isinstance(columns, str)
    places, kinds = (columns, rows) if isinstance(columns, str) else (rows, columns)
    if not isinstance(places, str) or isinstance(kinds, str):
        raise ValueError(
            f'one of rows and columns must be "case" or a setting, the other metrics, got {rows!r} and {columns!r}'
        )
    panels = [kind if isinstance(kind, Panel) else panel(kind, **options) for kind in kinds]

    def picture(results: Results) -> Any:
        results = results if cases is None else {name: results[name] for name in cases}
        across = list(_across(results, places, titles))
        figure, axes = plot.panels(len(across) * len(panels), columns=len(across) if by_column else len(panels))
        table = axes.reshape(len(panels), len(across)) if by_column else axes.reshape(len(across), len(panels)).T
        for first, (line, one) in enumerate(zip(table, panels, strict=True)):
            for ax, (about, data) in zip(line, across, strict=True):
                one.fill(ax, data, about if first == 0 or one.title or not by_column else "")
        return figure

    return picture


def _across(results: Results, places: str, titles: Any) -> Iterator[tuple[str, xr.Dataset]]:
    """What the rows or the columns of a table of panels are about, each with its title."""
    if places != "case":
        data = next(iter(results.values()))
        for value in data[places].values:
            yield f"{places} = {metrics.show_value(value)}", data.sel({places: value})
        return
    for name, data in results.items():
        yield title_of(name, data, titles, alone=len(results) == 1), data


def title_of(name: str, data: xr.Dataset, titles: Any = None, alone: bool = False) -> str:
    """The title of a case: as given by name or made from its result, or its coordinates, or its name; none if it stands alone."""
    if callable(titles):
        return str(titles(data))
    if titles and name in titles:
        return titles[name]
    if alone:
        return ""
    about = decoded(data.attrs).get("case_coordinates", {})
    return ", ".join(f"{key} = {metrics.show_value(value)}" for key, value in about.items()) or name


def side_by_side(*panels: Panel | str, columns: int = 3, **options: Any) -> Picture:
    """A figure of single panels, each of its own case (default: the first of the results).

    Args:
      panels: made by `panel`, or metrics.
      columns: panels in a row.
      options: arguments of `panel` for those that are given by name.
    """
    made = [one if isinstance(one, Panel) else panel(one, **options) for one in panels]

    def picture(results: Results) -> Any:
        figure, axes = plot.panels(len(made), columns=columns)
        for ax, one in zip(axes, made, strict=True):
            one.fill(ax, results[one.case or next(iter(results))], "")
        return figure

    return picture
