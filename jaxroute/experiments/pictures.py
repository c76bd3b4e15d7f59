"""Figures that several experiments draw alike."""

from collections.abc import Callable
from typing import Any

import xarray as xr

from jaxroute.analysis import plot
from jaxroute.experiments.base import Results


def panel_per_case(draw: Callable[[xr.Dataset, Any, str], Any]) -> Callable[[Results], Any]:
    """A figure with a panel for each case; `draw(data, axes, name)` fills the panel of one."""

    def picture(results: Results) -> Any:
        figure, axes = plot.panels(len(results))
        for ax, (name, data) in zip(axes, results.items(), strict=True):
            draw(data, ax, name)
        return figure

    return picture


def one_case(draw: Callable[..., Any], metric: str, case: str = "result", **options: Any) -> Callable[[Results], Any]:
    """A figure of one case: what a function of `plot` makes of a metric, for example `one_case(plot.curves, "regret", log=True)`."""

    def picture(results: Results) -> Any:
        return draw(results[case], metric, **options)

    return picture
