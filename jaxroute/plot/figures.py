"""Draws figures with several panels, logarithmic axes, reference levels, power laws and heat maps, and writes image files."""

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
from jaxroute.plot.axes import HIGH, axis_title, edges, grid_lines, log_spaced, numbers, places_of, settings_axis
from jaxroute.plot.selection import at_end, policy_names, scalar_metric, time_label, with_policies


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
    """Draws a line at `value`, such as a budget: horizontal if `along` is "y", vertical if "x", with the legend `name`. Call it after drawing."""
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

    `series` maps names to values `(setting, "seed")`; the setting is the horizontal axis. Returns the axes: `ax`, or those of a new figure if None.
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


@style.styled
def heat(
    data: xr.Dataset,
    metric: str = "regret",
    *,
    policy: str,
    x: str,
    y: str,
    best: Literal["auto", "min", "max"] | None = "auto",
    centre: float | None = None,
    limits: tuple[float, float] | None = None,
    ax: Any = None,
    title: str | None = None,
):
    """Draws the mean at the last recorded time over a grid of two settings, with the best cell marked. Returns the axes.

    Values with two signs have a diverging map: white at zero, blue below and red above. The axes of the colour bar are `ax.figure.axes[-1]`.

    Args:
      data: a result with the setting axes `x` and `y`; select a value of each other axis before.
      metric: name of the metric.
      policy: name of the policy, which is also the title by default.
      x, y: names of the setting axes.
      best: cell to mark: "min", "max" or None; "auto" marks the smallest regret, cost, violation, loss, queue or latency and the largest
        reward, score or accuracy, and nothing for other metrics.
      centre: value shown as white in a diverging map, for example 1 for a ratio to the budget (default: 0 if there are values on both
        sides of it; otherwise the map has one hue).
      limits: smallest and largest value of the map, for comparable panels (default: those of the data); a diverging map is symmetric, and uses
        the limit that is farther from its centre.
      ax, title: axes to draw on (default: a new figure), and title above them.
    """
    data, array, when = at_end(*scalar_metric(data, metric))
    place = policy_names(array).index(checks.one_of("policy", policy, policy_names(array)))
    data, array = data.isel(policy=place), array.isel(policy=place)
    axes = metrics.setting_axes(array)
    if len(axes) < 2:
        raise ValueError(f"data must have two setting axes for a heat map, got {axes or 'none'}: draw it with plot.sweep")
    for argument, axis in (("x", x), ("y", y)):
        checks.one_of(argument, axis, axes)
    if x == y:
        raise ValueError(f"y must differ from x, got {y!r} for both")
    if others := [a for a in axes if a not in (x, y)]:
        got = f"{', '.join(axes)}: select with data.sel({others[0]}=...)"
        raise ValueError(f"data must have two setting axes, {x} and {y}, got {got}")
    if best not in ("auto", "min", "max", None):
        raise ValueError(f"best must be 'auto', 'min', 'max' or None, got {best!r}")
    centre = None if centre is None else float(checks.numbers("centre", centre, ()))
    if limits is not None:
        try:
            low, high = map(float, checks.numbers("limits", limits, (2,)))
        except ValueError:
            low, high = 1.0, 0.0
        if not low < high:
            needed = "two finite numbers, the smaller first, such as (0.0, 1.0)"
            raise ValueError(f"limits must be {needed}, got {checks.show(limits)}")
        limits = low, high
    order = {axis: np.argsort(places_of(array[axis].values)) for axis in (x, y)}
    data, array = data.isel(order), array.isel(order)
    middle = metrics.mean(data, metric).transpose(y, x).values
    if not np.isfinite(middle).any():
        raise ValueError(f"policy must have the metric {metric!r}, got {policy!r}, which is NaN everywhere")
    error = metrics.stderr(data, metric).transpose(y, x).values
    ax, *_ = style.begin(ax, size=(style.SIZE[0] + 0.2, style.SIZE[1] + 0.1))
    values = [array[axis].values for axis in (x, y)]
    for which, one in zip("xy", values, strict=True):
        settings_axis(ax, which, one)
    borders = [edges(places_of(one), log_spaced(one)) for one in values]
    low, high = limits or (float(np.nanmin(middle)), float(np.nanmax(middle)))
    colours: dict[str, Any] = {"cmap": "viridis", "vmin": low, "vmax": high}
    if centre is not None or low < 0 < high:
        white = centre or 0.0
        reach = max(abs(low - white), abs(high - white)) or 1.0
        colours = {"cmap": "RdBu_r", "vmin": white - reach, "vmax": white + reach}
    mesh = ax.pcolormesh(*borders, np.ma.masked_invalid(middle), rasterized=True, **colours)
    ax.set_facecolor("#DDDDDD")  # Colour of cells without a value.
    note = ""
    mark = metrics.direction(metric, array.attrs) if best == "auto" else best
    if mark is not None:
        pick = (np.nanargmin if mark == "min" else np.nanargmax)(middle)
        row, column = np.unravel_index(pick, middle.shape)
        text = metrics.rounded(middle[row, column], error[row, column])
        for width, colour in ((3.2, "black"), (1.6, "white")):
            ring = {"markersize": 9, "mfc": "none", "mec": colour, "mew": width, "clip_on": False}
            ax.plot(places_of(values[0])[column], places_of(values[1])[row], "o", **ring)
        note = f"\nring: {'lowest' if mark == 'min' else 'highest'}, {text}"
    ax.set_xlabel(f"{x}{note}")
    ax.set_ylabel(y)
    ax.tick_params(length=2.5)
    bar = ax.figure.colorbar(mesh, ax=ax, pad=0.02)
    seeds = metrics.show_seeds(metrics.count(data, metric).values)
    bar.set_label(f"{axis_title(array.attrs, metric, HIGH)}\nmean of {seeds}{when}")
    bar.outline.set_visible(False)
    numbers(bar.ax.yaxis)
    style.title(ax, title or policy)
    return ax


@style.styled
def deployment(data: xr.Dataset, *, policy: str, variable: str = "deployed", ax: Any = None, title: str | None = None):
    """Draws the share of seeds in which each model is deployed, over time. Returns the axes; those of the colour bar are `ax.figure.axes[-1]`.

    Args:
      data: a result without setting axes, or with a value of each selected.
      policy: name of the policy, which is also the title by default.
      variable: name of a vector metric with one value in [0, 1] per model.
      ax, title: axes to draw on (default: a new figure), and title above them.
    """
    data, array = with_policies(data, variable)
    place = policy_names(array).index(checks.one_of("policy", policy, policy_names(array)))
    data, array = data.isel(policy=place), array.isel(policy=place)
    axes, vectors = metrics.setting_axes(array), metrics.vector_dims(array)
    if len(vectors) != 1 or "time" not in array.dims:
        got = f"{variable!r} with {tuple(map(str, array.dims))}"
        raise ValueError(f"variable must have the dimensions time and model, got {got}")
    if axes:
        raise ValueError(f"data must have no setting axis here, got {', '.join(axes)}: select with data.sel({axes[0]}=...)")
    share = metrics.mean(data, variable).transpose(vectors[0], "time").values
    if not np.isfinite(share).any():
        raise ValueError(f"policy must have the variable {variable!r}, got {policy!r}, which is NaN everywhere")
    times = array["time"].values.astype(np.float64)
    number = len(share)
    named = vectors[0] in array.coords
    models = list(map(str, array[vectors[0]].values)) if named else [f"model {i}" for i in range(number)]
    # A gauge is read at the end of its interval, so a cell ends at its time.
    first = max(0.0, times[0] - (times[1] - times[0])) if len(times) > 1 else 0.0
    ax, *_ = style.begin(ax, size=(style.SIZE[0] + 0.6, min(1.3 + 0.2 * number, 9.0)))
    edges = np.concatenate([[first], times])
    mesh = ax.pcolormesh(edges, np.arange(number + 1) - 0.5, share, cmap="Blues", vmin=0, vmax=1, rasterized=True)
    ax.hlines(np.arange(1, number) - 0.5, edges[0], edges[-1], color="white", linewidth=0.8)
    step = -(-number // 40)
    ax.set_yticks(range(0, number, step), models[::step])
    ax.set_ylim(number - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    numbers(ax.xaxis)
    ax.set_xlabel(time_label(array))
    ax.tick_params(axis="x", length=2.5)
    label, state = f"live, share of {metrics.show_seeds(metrics.count(data, variable).values)}", style.state_of(ax.figure)
    old, sharing = state.bars.get(label, (None, []))  # Panels with the same label share a colour bar.
    if old is not None:
        old.remove()
    sharing = [*sharing, ax] if state.shared else [ax]
    bar = ax.figure.colorbar(mesh, ax=sharing, pad=0.02, ticks=[0, 0.25, 0.5, 0.75, 1])
    state.bars[label] = (bar, sharing)
    bar.ax.set_yticklabels(["0 %", "25 %", "50 %", "75 %", "100 %"])
    bar.set_label(label)
    bar.outline.set_linewidth(0.6)
    bar.outline.set_edgecolor("#BBBBBB")
    style.title(ax, title or policy)
    return ax
