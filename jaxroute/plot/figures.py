"""Draws figures with several panels, logarithmic axes, reference levels and power laws, and writes image files."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr

from jaxroute import metrics
from jaxroute.core import checks
from jaxroute.plot import style
from jaxroute.plot.axes import HIGH, axis_title, grid_lines, numbers


@style.styled
def panels(number: int, *, columns: int = 3, size: tuple[float, float] = style.SIZE):
    """Makes a figure with `number` panels in rows of `columns`, with one legend below them. Returns the figure and the axes as a flat array.

    The legend names the lines of `curves`, `difference`, `sweep`, `quantiles` and `points`; a name has the same look in all panels.
    `share_legend(figure)` adds your own labelled lines. The legend makes the figure higher. `size` is that of a panel, in inches.
    """
    columns = min(checks.count("number", number), columns)
    rows = -(-number // columns)
    whole = (size[0] * columns, size[1] * rows)
    figure, axes = style.pyplot().subplots(rows, columns, figsize=whole, layout="constrained", squeeze=False)
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.06)
    for ax in axes.flat[number:]:
        ax.set_visible(False)
    style.STATES[figure] = style.FigureState(shared=True, size=whole, rows=rows)
    return figure, axes.ravel()[:number]


def save(figure: Any, path: str | os.PathLike) -> Path:
    """Writes a figure at 160 dots per inch, without dates or versions, so equal figures are equal files. Returns the path.

    Args:
      figure: a matplotlib Figure or Axes.
      path: file name, ending in .png, .pdf or .svg; missing folders are created.
    """
    path = Path(path)
    fields = {".png": ("Software",), ".pdf": ("Creator", "Producer", "CreationDate"), ".svg": ("Creator", "Date")}
    kind = checks.one_of("path", path.suffix.lower(), fields)
    figure = figure if hasattr(figure, "savefig") else getattr(figure, "figure", None)
    if figure is None:
        raise ValueError("figure must be a matplotlib Figure or Axes, such as the functions of this module return")
    path.parent.mkdir(parents=True, exist_ok=True)
    with style.pyplot().rc_context({"svg.hashsalt": "jaxroute"}):
        figure.savefig(path, dpi=160, metadata=dict.fromkeys(fields[kind]))
    return path


def log_axis(ax: Any, which: Literal["x", "y"], *, linear: float | None = None) -> None:
    """Makes the axis `which` ("x" or "y") logarithmic, with plain numbers; call it after drawing.

    For values with two signs, `linear` is a distance from zero: the axis is linear up to it and logarithmic beyond it, on both sides.
    """
    checks.one_of("which", which, ("x", "y"))
    scale = getattr(ax, f"set_{which}scale")
    scale("log") if linear is None else scale("symlog", linthresh=linear)
    numbers(getattr(ax, f"{which}axis"))
    if linear is not None:
        (ax.axhline if which == "y" else ax.axvline)(0.0, color="#444444", linewidth=0.8, zorder=2.4)


def level(ax: Any, name: str, value: float, *, along: Literal["x", "y"] = "y") -> None:
    """Draws a line at a `value` of the axis `along`, such as a budget: horizontal for "y", vertical for "x", with a legend. Call it after drawing."""
    checks.one_of("along", along, ("x", "y"))
    styles = style.styles_of(ax)
    styles.add([name], role="reference")
    (ax.axhline if along == "y" else ax.axvline)(value, label=name, **styles.style(name))
    if style.state_of(ax.figure).shared and ax.get_legend() is None:
        style.share_legend(ax.figure)


def line_style(ax: Any, name: str) -> dict[str, Any]:
    """Returns the look of a policy in a figure for your own lines: colour, dash, marker, width and drawing order, as arguments of `ax.plot`."""
    return style.styles_of(ax).style(name)


@style.styled
def power_laws(series: Mapping[str, xr.DataArray], *, ax: Any = None, title: str | None = None):
    """Draws means against a numeric setting on logarithmic axes, with the fitted power law of each series in the legend.

    `series` maps names to values with dimensions `(setting, "seed")`; the setting is the horizontal axis. `ax` are axes (default: a new figure).
    """
    ax, styles, own = style.begin(ax, series)
    array, axis = None, ""
    for name, array in series.items():
        (axis,) = (str(d) for d in array.dims if d != "seed")
        x = array[axis].values
        values = array.transpose(axis, "seed").values
        mean, error = values.mean(axis=1), values.std(axis=1, ddof=1) / math.sqrt(values.shape[1])
        line = styles.style(name)
        label = name
        if (mean > 0).all() and len(x) > 1 and values.shape[1] > 1:
            fit = metrics.slope(x, values)
            label = f"{name}: slope {fit.slope:.2f} ({fit.low:.2f} to {fit.high:.2f})"
            ax.plot(x, np.exp(fit.intercept) * x**fit.slope, color=line["color"], linestyle=line["linestyle"], linewidth=1)
        ax.errorbar(x, mean, yerr=2 * error, label=label, **line | {"linestyle": "none", "capsize": 2})
    if array is None:
        raise ValueError("series must hold at least one series, got none")
    log_axis(ax, "x")
    log_axis(ax, "y")
    ax.set_xlabel(f"{axis}\nmean ± 2 s.e. of {array.sizes['seed']:,} seeds; slopes: 95 % interval")
    ax.set_ylabel(axis_title(array.attrs, str(array.name), HIGH))
    grid_lines(ax)
    style.legend(ax, title, own, shared=False)
    return ax
