"""Figures of experiments as tables of panels: metrics by cases or settings, drawn by functions of `plot`."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import xarray as xr

from jaxroute import metrics, plot
from jaxroute.core.attributes import decoded
from jaxroute.experiments.base import Results

Picture = Callable[[Results], Any]


class Panel:
    """Panel of a figure: a metric and how to draw it, such as `Panel("regret", log=True, policies=["ACQB"])`.

    Attributes:
      metric: name of the metric.
      draw: function of `plot` with a result, a metric, axes and a title as arguments.
      title: title above the panel; empty for none.
      case: name of the case to draw; empty if the row or column of the panel decides, or for the first case.
      change: function that is applied to the result before drawing, such as a selection; None for no change.
      label: name of the metric on its axis; empty for the metric's own.
      options: further arguments of `draw`. Each may be a function, which is called with the (changed) result and returns the argument.
    """

    def __init__(
        self, metric: str, draw: Any = plot.curves, title="", case="", change: Any = None, label="", **options: Any
    ):
        self.metric, self.draw, self.title, self.case = metric, draw, title, case
        self.change, self.label, self.options = change, label, options

    def fill(self, ax: Any, data: xr.Dataset, about: str) -> None:
        """Draws a result on `ax`; `about` is the name of its case or setting for the title."""
        data = self.change(data) if self.change else data
        data = data.assign({self.metric: data[self.metric].assign_attrs(long_name=self.label)}) if self.label else data
        made = {name: value(data) if callable(value) else value for name, value in self.options.items()}
        title = ": ".join(part for part in (about, self.title) if part)
        self.draw(data, self.metric, ax=ax, title=title or None, **made)


def panels_of(*, rows: Any, columns: Any, titles: Any = None, cases: Sequence[str] | None = None, **options: Any) -> Picture:
    """Makes a function that draws a table of panels: one side lists metrics, the other is "case" or the name of a setting.

        panels_of(rows=("queue_length", "routing_regret"), columns="case", band="deviation")

    Args:
      rows, columns: one lists metrics (or panels). The other is "case" (one per case) or a setting axis (one per value of it in the first case).
      titles: titles of the cases by name, or a function of the result (default: their coordinates, or names).
      cases: names of the cases to draw (default: all).
      options: arguments of `Panel` for metrics given by name.
    """
    by_column = isinstance(columns, str)
    places, kinds = (columns, rows) if isinstance(columns, str) else (rows, columns)
    if not isinstance(places, str) or isinstance(kinds, str):
        got = f"{rows!r} and {columns!r}"
        raise ValueError(f'one of rows and columns must be "case" or a setting, the other metrics, got {got}')
    panels = [kind if isinstance(kind, Panel) else Panel(kind, **options) for kind in kinds]

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
    """Yields title and data of each row or column of panels: each case if `places` is "case", otherwise each value of the setting axis `places`."""
    if places != "case":
        data = next(iter(results.values()))
        for value in data[places].values:
            yield f"{places} = {metrics.show_value(value)}", data.sel({places: value})
        return
    for name, data in results.items():
        about = decoded(data.attrs).get("case_coordinates", {})
        title = ", ".join(f"{key} = {metrics.show_value(value)}" for key, value in about.items()) or name
        title = "" if len(results) == 1 else title
        yield str(titles(data)) if callable(titles) else (titles or {}).get(name, title), data


def side_by_side(*panels: Panel | str, columns: int = 3, **options: Any) -> Picture:
    """Makes a function that draws `panels`, with `columns` of them in a row. A name of a metric among them stands for `Panel(name, **options)`."""
    made = [one if isinstance(one, Panel) else Panel(one, **options) for one in panels]

    def picture(results: Results) -> Any:
        figure, axes = plot.panels(len(made), columns=columns)
        for ax, one in zip(axes, made, strict=True):
            one.fill(ax, results[one.case or next(iter(results))], "")
        return figure

    return picture
