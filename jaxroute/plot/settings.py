"""Draws values at the horizon: by policy, against a setting, as quantiles, and as points in a plane."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from jaxroute import metrics
from jaxroute.core import checks
from jaxroute.plot import style
from jaxroute.plot.axes import HIGH, WIDE, axis_title, grid_lines, numbers, places_of, scale_of, settings_axis
from jaxroute.plot.selection import at_end, chosen_policies, policy_names, scalar_metric


@style.styled
def sweep(
    data: xr.Dataset,
    metric: str = "regret",
    *,
    x: str | None = None,
    log: bool = False,
    ax: Any = None,
    title: str | None = None,
):
    """Draws a metric at the last recorded time: a dot per policy, or lines against one setting axis.

    If the settings are 0 and a logarithmic grid, their axis is logarithmic, with 0 at its left end before a dotted line.

    Args:
      data: a result without setting axes, or with one; select a value of each other axis before.
      metric: name of the metric.
      x: name of the setting axis (default: the only one).
      log: whether the axis of the metric is logarithmic; all means must be positive then.
      ax, title: axes to draw on (default: a new figure), and title above them.
    """
    data, array, when = at_end(*scalar_metric(data, metric))
    axes = _one_axis(array, x)
    middle, error = metrics.mean(data, metric), metrics.stderr(data, metric)
    note = f"mean ± 2 s.e. of {metrics.show_seeds(metrics.count(data, metric).values)}{when}"
    names = policy_names(array)
    known = [i for i in range(len(names)) if np.isfinite(middle.isel(policy=i).values).any()]
    if log and (middle <= 0).any():
        wrong = [names[i] for i in known if (middle.isel(policy=i) <= 0).any()]
        raise ValueError(f"log must be False where a mean is not positive, got True for {metric!r} of {', '.join(wrong)}")
    own = ax is None
    if not axes:
        ax = style.new_axes(ax, (style.SIZE[0], 1.0 + 0.3 * max(len(known), 2)))
        styles = style.styles_of(ax, names)
        for row, i in enumerate(known):
            value, bar = float(middle[i]), float(error[i])
            ax.errorbar(value, row, xerr=2 * bar if bar > 0 else None, capsize=2.5, markersize=6, **styles.style(names[i]))
            beside = {"xycoords": ("axes fraction", "data"), "va": "center", "annotation_clip": False}
            ax.annotate(metrics.rounded(value, bar), (1.02, row), fontsize=8, **beside)
        _rows(ax, [names[i] for i in known])
        if log:
            ax.set_xscale("log")
        ax.margins(x=0.08)
        numbers(ax.xaxis, few=True)
        grid_lines(ax)
        ax.set_xlabel(f"{axis_title(array.attrs, metric, WIDE)}\n{note}")
        style.title(ax, title)
        return ax
    (axis,) = axes
    ax = style.new_axes(ax)
    styles = style.styles_of(ax, names)
    values = array[axis].values
    places = places_of(values)
    order = np.argsort(places)
    looks = [styles.style(names[i]) for i in known]
    style.separate_overlaps([(places[order], middle.isel(policy=i).values[order]) for i in known], looks)
    for i, look in zip(known, looks, strict=True):
        y, bar = middle.isel(policy=i).values, error.isel(policy=i).values
        if scale_of(values) == "names":
            look["linestyle"] = "none"  # There are no values between two names.
        bars = np.where(np.isfinite(bar), 2 * bar, 0.0)[order]
        ax.errorbar(places[order], y[order], yerr=bars, capsize=2, elinewidth=1.2, label=names[i], **look)
    ax.margins(x=0.03)
    settings_axis(ax, "x", values)
    if log:
        ax.set_yscale("log")
    numbers(ax.yaxis)
    ax.set_xlabel(f"{axis}\n{note}")
    ax.set_ylabel(axis_title(array.attrs, metric, HIGH))
    grid_lines(ax)
    style.legend(ax, title, own)
    return ax


def _rows(ax: Any, names: Sequence[str]) -> None:
    """Labels one row of a figure for each name, the first at the top."""
    style.fit_rows(ax, len(names))
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


@style.styled
def quantiles(
    data: xr.Dataset,
    metric: str = "regret",
    *,
    x: str | None = None,
    log: bool = False,
    ax: Any = None,
    policies: Sequence[str] | None = None,
    title: str | None = None,
):
    """Draws quantiles over seeds at the last recorded time, for each policy, or for each value of one setting axis.

    A thin line reaches from the 5 to the 95 % quantile, a thick line from 25 to 75 %; a dot is the median and a tick the mean.

    Args:
      data: a result without setting axes, or with one; select a value of each other axis before.
      metric: name of the metric.
      x: name of the setting axis (default: the only one).
      log: whether the axis of the metric is logarithmic; values that are not positive are drawn at the lower end.
      ax, policies, title: axes (default: a new figure), policies to draw (default: all), and title.
    """
    data, array, when = at_end(*scalar_metric(data, metric))
    axes = _one_axis(array, x)
    names = policy_names(array)
    number = metrics.count(data, metric)
    drawn = [p for p in chosen_policies(array, policies) if number.isel(policy=names.index(p)).values.any()]
    data = data.isel(policy=[names.index(p) for p in drawn])
    levels = metrics.quantiles(data, metric, q=(0.05, 0.25, 0.5, 0.75, 0.95)).values  # [quantile, policy, setting]
    values = np.concatenate([levels, metrics.mean(data, metric).values[None]]).reshape(6, len(drawn), -1)
    floor = -math.inf
    if log:
        if not (values > 0).any():
            raise ValueError(f"log must be False where nothing is positive, got True for {metric!r}")
        floor = 0.7 * float(values[values > 0].min())
    values = np.maximum(values, floor)
    own, settings = ax is None, array[axes[0]].values if axes else np.zeros(1)
    ax = style.new_axes(ax, style.SIZE if axes else (style.SIZE[0], 1.0 + 0.3 * max(len(drawn), 2)))
    styles = style.styles_of(ax, names)
    for row, name in enumerate(drawn):
        # Policies stand side by side at each setting; without settings, each has a row.
        places = np.arange(len(settings)) + 0.14 * (row - (len(drawn) - 1) / 2) if axes else np.array([float(row)])
        one, colour = values[:, row], styles.style(name)["color"]
        middle: dict[str, Any] = {"color": colour, "mec": "white", "markersize": 5, "label": name if axes else None}
        for low, high, width in ((one[0], one[4], 1.0), (one[1], one[3], 3.2)):
            (ax.vlines if axes else ax.hlines)(places, low, high, color=colour, linewidth=width)
        mean: dict[str, Any] = {"color": "black", "markersize": 9, "markeredgewidth": 1.2, "zorder": 1.5}
        for value, marker, look in ((one[5], "_" if axes else "|", mean), (one[2], "o", middle)):
            ax.plot(*((places, value) if axes else (value, places)), marker, **look)
    which = "y" if axes else "x"
    if log:
        getattr(ax, f"set_{which}scale")("log")
    numbers(getattr(ax, f"{which}axis"), few=not axes)
    seeds = metrics.show_seeds(metrics.count(data, metric).values)
    note = f"5, 25, 50, 75, 95 % and mean (tick)\nof {seeds}{when}"
    grid_lines(ax)
    if axes:
        ax.set_xticks(range(len(settings)), [metrics.show_value(v) for v in settings])
        ax.set_xlabel(f"{x or axes[0]}\n{note}")
        ax.set_ylabel(axis_title(array.attrs, metric, HIGH))
        ax.margins(x=0.06)
        style.legend(ax, title, own)
    else:
        _rows(ax, drawn)
        ax.set_xlabel(f"{axis_title(array.attrs, metric, WIDE)}\n{note}")
        style.title(ax, title)
    return ax


def _one_axis(array: xr.DataArray, x: str | None) -> list[str]:
    """Returns a list with the only setting axis, or an empty list. Raises ValueError if there are several axes, or if `x` is not the axis."""
    axes = metrics.setting_axes(array)
    if x is not None and not axes:
        raise ValueError(f"x must be None when the data has no setting axis, got {x!r}")
    if x is not None:
        checks.one_of("x", x, axes)
    if others := [a for a in axes if a != (x or axes[0])]:
        advice = f"select with data.sel({others[0]}=...), or draw two with plot.heat"
        raise ValueError(f"data must have at most one setting axis, got {', '.join(axes)}: {advice}")
    return axes


@style.styled
def points(
    series: Mapping[str, Sequence[Sequence[Any]]],
    *,
    x: str,
    y: str,
    ax: Any = None,
    join: bool = True,
    title: str | None = None,
):
    """Draws points of several policies in a plane, such as cost and score, with two standard errors in both directions.

    Args:
      series: name to points `(x, y)`, each a number or a pair of mean and standard error.
      x, y: labels of the axes, with units and the number of seeds.
      join: whether lines join the points of a name.
      ax, title: axes to draw on (default: a new figure), and title above them.
    """
    own = ax is None
    ax = style.new_axes(ax)
    styles = style.styles_of(ax, series)
    every = {
        name: np.array([[np.resize([*np.ravel(value), 0.0], 2) for value in place] for place in places], float)
        for name, places in series.items()
        if len(places)
    }
    looks = [{"markersize": 5} | styles.style(name) for name in every]
    style.separate_overlaps([at[:, :, 0].T for at in every.values()], looks)
    for (name, at), look in zip(every.items(), looks, strict=True):
        if not join or len(at) == 1:
            look["linestyle"] = "none"
        bars = {"xerr": 2 * at[:, 0, 1], "yerr": 2 * at[:, 1, 1]}
        bars = {which: np.nan_to_num(bar) for which, bar in bars.items() if np.nan_to_num(bar).any()}
        ax.errorbar(at[:, 0, 0], at[:, 1, 0], **bars, elinewidth=1.0, label=name, **look)
    numbers(ax.xaxis)
    numbers(ax.yaxis)
    ax.margins(0.06)
    ax.set_xlabel("\n".join(style.wrapped(line, WIDE) for line in x.splitlines()))
    ax.set_ylabel(style.wrapped(y, HIGH))
    grid_lines(ax)
    style.legend(ax, title, own)
    return ax
