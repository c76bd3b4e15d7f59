"""Figures of results, from the `xarray.Dataset` of a simulation.

Every function draws on the given axes or on a new figure, returns the axes (`ax.figure` is the figure), and never shows or
closes anything. A figure says by itself what is drawn: label and unit on the axis, the number of seeds, the meaning of the
band. A policy keeps its colour, dash and marker whichever policies are drawn: they follow its place in the result. Bands and
bars are two standard errors unless said otherwise.
"""

import functools
import math
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr

from jaxroute.analysis import metrics
from jaxroute.core import checks

# Okabe and Ito's colours, which differ for colour-blind readers too, without yellow (too pale for lines); then grey.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
_DASHES = ("-", (0, (5, 1.6)), (0, (5, 1.3, 1.2, 1.3)), (0, (1.4, 1.2)), (0, (8, 1.6)), (0, (5, 1.2, 1.2, 1.2, 1.2, 1.2)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.title_fontsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.linewidth": 0.8,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "xtick.labelcolor": "black",
    "ytick.labelcolor": "black",
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
}
_SIZE = (4.4, 3.0)
_MAX_SETTINGS = 8


def _styled(function: Callable) -> Callable:
    """Draws in the house style, whatever the user's own defaults, and leaves those as they were."""

    @functools.wraps(function)
    def draw(*args, **kwargs):
        parameters = _pyplot().rcParams
        # Not `rc_context`, which would also undo what importing a notebook's backend sets.
        before = {name: parameters[name] for name in _STYLE}
        parameters.update(_STYLE)
        try:
            return function(*args, **kwargs)
        finally:
            parameters.update(before)

    return draw


def _pyplot():
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError('plots need matplotlib: pip install "jaxroute[plot]"') from None
    return plt


def _axes(ax, size: tuple[float, float] = _SIZE):
    return _pyplot().subplots(figsize=size, layout="constrained")[1] if ax is None else ax


# What is drawn.


def _metric(data: Any, metric: str) -> tuple[xr.Dataset, xr.DataArray]:
    """A result with the dimension `policy`, and the shape of one of its metrics: `[policy, settings..., time]`."""
    if not isinstance(data, xr.Dataset):
        raise ValueError(f"data must be the xarray.Dataset of a simulation, got {type(data).__name__}")
    array = metrics.like(data, metric)
    if "policy" not in array.dims:
        data = data.expand_dims("policy") if "policy" in array.coords else data.expand_dims(policy=["all"])
        array = metrics.like(data, metric)
    return data, array


def _scalar(data: Any, metric: str) -> tuple[xr.Dataset, xr.DataArray]:
    data, array = _metric(data, metric)
    vectors = metrics.vector_dims(array)
    if vectors:
        raise ValueError(
            f"metric must be a single number per run, got {metric!r} with one per {vectors[0]}: "
            f"select one with data.sel({vectors[0]}=...), or draw it with plot.deployment"
        )
    return data, array


def _names(array: xr.DataArray) -> list[str]:
    return [str(p) for p in array["policy"].values]


def _label(array: xr.DataArray, metric: str) -> str:
    """Label and unit, on lines of their own if one would be too long."""
    text = metrics.axis_label(array.attrs, metric)
    if len(text) <= 40:
        return text
    parts = [str(array.attrs.get("label", metric)), *([f"({array.attrs['unit']})"] if array.attrs.get("unit") else [])]
    return "\n".join(textwrap.fill(part, 40, break_long_words=False) for part in parts)


def _at_end(data: xr.Dataset, array: xr.DataArray) -> tuple[xr.Dataset, xr.DataArray, str]:
    """The result and the shape of a metric at the last recorded time, and that time in words."""
    if "time" in array.dims:
        data, array = data.isel(time=-1), array.isel(time=-1)
    when = f" at round {int(array['time']):,}" if "time" in array.coords else ""
    return data, array, when


def _style_of(position: int) -> dict[str, Any]:
    return {
        "color": _COLOURS[position % len(_COLOURS)],
        "linestyle": _DASHES[position % len(_DASHES)],
        "marker": _MARKERS[position % len(_MARKERS)],
        "markeredgecolor": "white",
        "markeredgewidth": 0.6,
    }


def _shade(colour: str, position: int, number: int) -> tuple[float, ...]:
    """The colour at one of `number` steps from light to dark, itself in the middle (black: at the end)."""
    place = 2 * position / (number - 1) - 1 if number > 1 else 0.0
    if colour == "#000000" and number > 1:
        place = (place - 1) / 2
    end, part = (1.0, -0.62 * place) if place < 0 else (0.0, 0.6 * place)
    return tuple((1 - part) * int(colour[i : i + 2], 16) / 255 + part * end for i in (1, 3, 5))


# Axes and legends.


def _numbers(axis, span: tuple[float, float] | None = None) -> None:
    """Plain numbers on an axis, with commas from 10,000 on; powers of ten only where plain numbers would be long."""
    from matplotlib.ticker import FuncFormatter, LogFormatterMathtext, LogLocator, NullFormatter, ScalarFormatter

    if axis.get_scale() == "log":
        low, high = span or axis.get_view_interval()
        axis.set_major_locator(LogLocator(subs=(1.0,) if high > 300 * low else (1.0, 2.0, 5.0)))
        powers = LogFormatterMathtext()
        powers.set_axis(axis)
        axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,g}" if 1e-4 <= v < 1e6 else powers(v)))
        axis.set_minor_formatter(NullFormatter())
        return

    class Commas(ScalarFormatter):
        def format_ticks(self, values):
            texts = super().format_ticks(values)
            if self.get_offset() or not any(abs(v) >= 10_000 for v in values) or any(v != round(v) for v in values):
                return texts
            return [f"{int(v):,}".replace("-", "\N{MINUS SIGN}") for v in values]

    axis.set_major_formatter(Commas())


def _grid(ax) -> None:
    ax.grid(visible=True, color="#E4E4E4", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def _legend(ax, title: str | None, own: bool) -> None:
    """Above the axes, where it hides nothing; beside them if that would take more than three rows."""
    labels = ax.get_legend_handles_labels()[1]
    if not labels:
        return
    width = (1.1 if own else 1.0) * ax.get_position().width * ax.figure.get_figwidth()
    columns = max(1, min(len(labels), int(width / (0.55 + 0.06 * max(map(len, labels))))))
    columns = -(-len(labels) // -(-len(labels) // columns))  # Rows of about the same length.
    options: dict[str, Any] = {
        "title": title,
        "alignment": "left",
        "frameon": False,
        "labelspacing": 0.35,
        "borderaxespad": 0.2,
    }
    if len(labels) > 3 * columns:
        if own:
            ax.figure.set_size_inches(
                _SIZE[0] + 0.5 + 0.068 * max(map(len, labels)), max(_SIZE[1], 0.8 + 0.165 * len(labels))
            )
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), handlelength=2.6, **options)
    else:
        if own:
            ax.figure.set_size_inches(_SIZE[0], _SIZE[1] + 0.17 * -(-len(labels) // columns))
        ax.legend(
            loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=columns, handlelength=2.4, columnspacing=1.4, **options
        )
    ax.get_legend().get_title().set_fontweight("bold")


def log_spaced(values: Any) -> bool:
    """Whether numbers are closer to a geometric than to an arithmetic progression, and span a factor of four or more."""
    values = np.asarray(values)
    if values.dtype.kind not in "iuf" or values.size < 3 or values.min() <= 0 or values.max() < 4 * values.min():
        return False
    linear, logarithmic = (np.diff(np.sort(v)) for v in (values, np.log(values)))
    return bool(logarithmic.std() / logarithmic.mean() < 0.5 * linear.std() / linear.mean())


def _positions(values: np.ndarray) -> tuple[np.ndarray, bool]:
    """Where settings stand on an axis: numbers at their value, names at 0, 1, ...; and whether they are numbers."""
    if values.dtype.kind in "iuf":
        return values.astype(np.float64), True
    return np.arange(len(values), dtype=np.float64), False


def _edges(places: np.ndarray, log: bool) -> np.ndarray:
    """Borders of the cells around sorted places."""
    places = np.log(places) if log else places
    if places.size == 1:
        borders = places[0] + np.array([-0.5, 0.5])
    else:
        middles = (places[1:] + places[:-1]) / 2
        borders = np.concatenate([[2 * places[0] - middles[0]], middles, [2 * places[-1] - middles[-1]]])
    return np.exp(borders) if log else borders


def _settings_axis(ax, which: str, values: np.ndarray) -> None:
    """Scale of an axis of settings; ticks at the settings themselves if they are few, as nothing was measured between."""
    from matplotlib.ticker import NullLocator

    axis, log = getattr(ax, f"{which}axis"), log_spaced(values)
    if log:
        getattr(ax, f"set_{which}scale")("log")
    places, numeric = _positions(values)
    if numeric and len(values) > 8:
        _numbers(axis, (values.min(), values.max()))
        return
    axis.set_minor_locator(NullLocator())
    axis.set_ticks(places, [metrics.show_value(v) for v in values])


# Figures.


@_styled
def curves(
    data: xr.Dataset,
    metric: str = "regret",
    *,
    band: Literal["stderr", "deviation", "quantile"] | None = "stderr",
    reference: Mapping[str, tuple[Any, Any]] | None = None,
    log: bool | Literal["x", "y"] = False,
    ax: Any = None,
    policies: Sequence[str] | None = None,
    title: str | None = None,
):
    """Mean curves over time, a line per policy (and per setting, if there are at most eight).

    Args:
      data: a result.
      metric: name of the metric.
      band: around each line: "stderr" for two standard errors, "deviation" for one standard deviation of the runs, "quantile" for
        their 5 to 95 % range, or None.
      reference: name to `(times, values)`, drawn dashed and grey.
      log: True for two logarithmic axes, "x" or "y" for one.
      ax: axes to draw on (default: a new figure).
      policies: names of those to draw (default: all that have the metric).
      title: above the legend (default: none).

    Returns:
      The axes.

    Raises:
      ValueError: a name is unknown, or there are too many settings for lines.
    """
    data, array = _scalar(data, metric)
    if "time" not in array.dims:
        raise ValueError("data must have the dimension 'time' for a curve; draw a single time with plot.final")
    if band is not None:
        checks.one_of("band", band, ("stderr", "deviation", "quantile"))
    if log not in (True, False, "x", "y"):
        raise ValueError(f"log must be True, False, 'x' or 'y', got {log!r}")
    axes = metrics.setting_axes(array)
    settings = math.prod(array.sizes[a] for a in axes)
    if settings > _MAX_SETTINGS:
        raise ValueError(
            f"data must have at most {_MAX_SETTINGS} settings for curves, got {settings} "
            f"({', '.join(f'{a}: {array.sizes[a]}' for a in axes)}): select some with data.sel({axes[0]}=...), "
            "or draw the horizon with plot.final or plot.heat"
        )
    names = _names(array)
    drawn = [checks.one_of("policies", p, names) for p in ([policies] if isinstance(policies, str) else policies or names)]
    own = ax is None
    ax = _axes(ax)
    times = array["time"].values
    middle, number = metrics.mean(data, metric), metrics.count(data, metric)
    if band == "quantile":
        low, high = (metrics.quantiles(data, metric, q=(q,)).isel(quantile=0) for q in (0.05, 0.95))
    else:
        error = metrics.deviation(data, metric) if band == "deviation" else 2 * metrics.stderr(data, metric)
        low, high = middle - error, middle + error
    log_y, counts = log in (True, "y"), []
    for name in drawn:
        p = names.index(name)
        one = middle.isel(policy=p)
        if not np.isfinite(one.values).any():
            continue  # This policy does not have the metric.
        used = metrics.own_axes_of(data.isel(policy=p), metric)
        places = [dict(zip(axes, i)) for i in np.ndindex(*(array.sizes[a] if a in used else 1 for a in axes))]
        shown = [a for a in used if array.sizes[a] > 1]
        for s, place in enumerate(places):
            style = _style_of(p)
            style["color"] = _shade(style["color"], s, len(places))
            label = ", ".join([name, *(f"{a}={metrics.show_value(one[a].values[place[a]])}" for a in shown)])
            y = one.isel(place).values
            if log_y and not (y > 0).any():
                raise ValueError(f"log must be False or 'x' where a curve is nowhere positive, got {log!r} for {label!r}")
            every = max(1, len(times) // 8)
            ax.plot(times, y, label=label, markevery=((p + s) * every // 4 % every, every), zorder=3, **style)
            if band is not None:
                borders = (b.isel(policy=p).isel(place).values for b in (low, high))
                ax.fill_between(times, *borders, color=style["color"], alpha=0.18, linewidth=0, zorder=2)
            counts.append(number.isel(policy=p).isel(place).values)
    for i, (name, line) in enumerate((reference or {}).items()):
        if len(line) != 2 or np.shape(line[0]) != np.shape(line[1]):
            raise ValueError(f"reference[{name!r}] must be (times, values) of equal length, got {checks.show(line)}")
        ax.plot(*line, color="#555555", linestyle=(0, (3 + 2 * i, 2)), linewidth=1.1, label=name, zorder=2.5)
    if log in (True, "x"):
        ax.set_xscale("log")
    else:
        ax.set_xlim(0, 1.02 * times[-1])
    if log_y:
        ax.set_yscale("log")
    _numbers(ax.xaxis)
    _numbers(ax.yaxis)
    meaning = {
        "stderr": "mean ± 2 s.e. of",
        "deviation": "mean ± 1 s.d. of",
        "quantile": "mean and 5–95 % range of",
        None: "mean of",
    }[band]
    seeds = metrics.show_seeds(np.concatenate([np.ravel(c) for c in counts]) if counts else [])
    ax.set_xlabel(f"round\n{meaning} {seeds}")
    ax.set_ylabel(_label(array, metric))
    _grid(ax)
    _legend(ax, title, own)
    return ax


@_styled
def final(data: xr.Dataset, metric: str = "regret", *, x: str | None = None, ax: Any = None, title: str | None = None):
    """The metric at the last recorded time: a dot per policy, or lines against one swept setting.

    Args:
      data: a result without setting axes, or with one; select the others.
      metric: name of the metric.
      x: name of the setting axis (default: the only one).
      ax: axes to draw on (default: a new figure).
      title: above the figure (default: none).

    Returns:
      The axes.

    Raises:
      ValueError: a name is unknown, or more than one setting axis is left.
    """
    data, array, when = _at_end(*_scalar(data, metric))
    axes = metrics.setting_axes(array)
    if x is not None:
        checks.one_of("x", x, axes) if axes else _refuse_axis(x)
    others = [a for a in axes if a != (x or axes[0])]
    if others:
        raise ValueError(
            f"data must have at most one setting axis, got {', '.join(axes)}: select with data.sel({others[0]}=...), "
            "or draw two with plot.heat"
        )
    middle, error = metrics.mean(data, metric), metrics.stderr(data, metric)
    label = _label(array, metric)
    note = f"mean ± 2 s.e. of {metrics.show_seeds(metrics.count(data, metric).values)}{when}"
    names = _names(array)
    known = [i for i in range(len(names)) if np.isfinite(middle.isel(policy=i).values).any()]
    own = ax is None
    if not axes:
        ax = _axes(ax, (_SIZE[0], 1.0 + 0.3 * max(len(known), 2)))
        for row, i in enumerate(known):
            value, bar = float(middle[i]), float(error[i])
            style = _style_of(i)
            ax.errorbar(value, row, xerr=2 * bar if bar > 0 else None, capsize=2.5, markersize=6, **style)
            text = metrics.rounded(value, bar)
            ax.annotate(
                text, (1.02, row), xycoords=("axes fraction", "data"), va="center", fontsize=8, annotation_clip=False
            )
        ax.set_yticks(range(len(known)), [names[i] for i in known])
        ax.set_ylim(len(known) - 0.4, -0.6)
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        _numbers(ax.xaxis)
        ax.margins(x=0.08)
        _grid(ax)
        ax.set_xlabel(f"{label}\n{note}")
        _title(ax, title)
        return ax
    (axis,) = axes
    ax = _axes(ax)
    values = array[axis].values
    places, numeric = _positions(values)
    order = np.argsort(places)
    for i in known:
        y, bar = middle.isel(policy=i).values, error.isel(policy=i).values
        style = _style_of(i)
        if not numeric:
            style["linestyle"] = "none"  # Nothing lies between two names.
        bars = np.where(np.isfinite(bar), 2 * bar, 0.0)[order]
        ax.errorbar(places[order], y[order], yerr=bars, capsize=2, elinewidth=1.2, label=names[i], **style)
    ax.margins(x=0.03)
    _settings_axis(ax, "x", values)
    _numbers(ax.yaxis)
    ax.set_xlabel(f"{axis}\n{note}")
    ax.set_ylabel(label)
    _grid(ax)
    _legend(ax, title, own)
    return ax


@_styled
def spread(
    data: xr.Dataset,
    metric: str = "regret",
    *,
    x: str | None = None,
    log: bool = False,
    ax: Any = None,
    policies: Sequence[str] | None = None,
    title: str | None = None,
):
    """How runs differ at the last recorded time: quantiles over seeds for each policy, or for each value of one swept setting.

    A thin line from the 5 to the 95 % quantile, a thick one from 25 to 75 %, a dot at the median and a tick at the mean: where a few
    runs are far worse than the others, means with standard errors say little.

    Args:
      data: a result without setting axes, or with one; select the others.
      metric: name of the metric.
      x: name of the setting axis (default: the only one).
      log: logarithmic values; what is not positive is drawn at the lower end.
      ax: axes to draw on (default: a new figure).
      policies: names of those to draw (default: all that have the metric).
      title: above the figure (default: none).

    Returns:
      The axes.

    Raises:
      ValueError: a name is unknown, more than one setting axis is left, or nothing is positive on a logarithmic axis.
    """
    data, array, when = _at_end(*_scalar(data, metric))
    axes = metrics.setting_axes(array)
    if x is not None:
        checks.one_of("x", x, axes) if axes else _refuse_axis(x)
    others = [a for a in axes if a != (x or axes[0])]
    if others:
        raise ValueError(
            f"data must have at most one setting axis, got {', '.join(axes)}: select with data.sel({others[0]}=...)"
        )
    names = _names(array)
    drawn = [checks.one_of("policies", p, names) for p in ([policies] if isinstance(policies, str) else policies or names)]
    number = metrics.count(data, metric)
    drawn = [p for p in drawn if number.isel(policy=names.index(p)).values.any()]
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
    ax = _axes(ax, _SIZE if axes else (_SIZE[0], 1.0 + 0.3 * max(len(drawn), 2)))
    for row, name in enumerate(drawn):
        # Side by side at each setting; without settings, a line of its own.
        places = np.arange(len(settings)) + 0.14 * (row - (len(drawn) - 1) / 2) if axes else np.array([float(row)])
        one, colour = values[:, row], _style_of(names.index(name))["color"]
        middle: dict[str, Any] = {
            "color": colour,
            "markeredgecolor": "white",
            "markersize": 5,
            "label": name if axes else None,
        }
        for low, high, width in ((one[0], one[4], 1.0), (one[1], one[3], 3.2)):
            (ax.vlines if axes else ax.hlines)(places, low, high, color=colour, linewidth=width)
        mean: dict[str, Any] = {"color": "black", "markersize": 9, "markeredgewidth": 1.2, "zorder": 1.5}
        for value, marker, style in ((one[5], "_" if axes else "|", mean), (one[2], "o", middle)):
            ax.plot(*((places, value) if axes else (value, places)), marker, **style)
    which = "y" if axes else "x"
    if log:
        getattr(ax, f"set_{which}scale")("log")
    _numbers(getattr(ax, f"{which}axis"))
    seeds = metrics.show_seeds(metrics.count(data, metric).values)
    note = f"5, 25, 50, 75, 95 % and mean (tick)\nof {seeds}{when}"
    label = _label(array, metric)
    _grid(ax)
    if axes:
        ax.set_xticks(range(len(settings)), [metrics.show_value(v) for v in settings])
        ax.set_xlabel(f"{x or axes[0]}\n{note}")
        ax.set_ylabel(label)
        ax.margins(x=0.06)
        _legend(ax, title, own)
    else:
        ax.set_yticks(range(len(drawn)), drawn)
        ax.set_ylim(len(drawn) - 0.4, -0.6)
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        ax.set_xlabel(f"{label}\n{note}")
        _title(ax, title)
    return ax


def _title(ax, text: str | None, note: str = "") -> None:
    if text or note:
        ax.set_title(f"{text}{note}" if text else note, loc="left", fontsize=8, fontweight="bold" if not note else "normal")


def _refuse_axis(x: str) -> None:
    raise ValueError(f"x must be None when the data has no setting axis, got {x!r}")


@_styled
def heat(
    data: xr.Dataset,
    metric: str = "regret",
    *,
    policy: str,
    x: str,
    y: str,
    best: Literal["auto", "min", "max"] | None = "auto",
    ax: Any = None,
    title: str | None = None,
):
    """Mean at the last recorded time over a grid of two settings, with the best cell marked.

    Args:
      data: a result with the setting axes `x` and `y`; select the others.
      metric: name of the metric.
      policy: name of the policy.
      x, y: names of the setting axes.
      best: which cell to mark; "auto" marks the smallest regret, cost, violation, loss, queue or latency and the largest
        reward, score or accuracy, and nothing for other metrics.
      ax: axes to draw on (default: a new figure).
      title: above the figure, before the best value (default: the policy).

    Returns:
      The axes; the colour bar's are `ax.figure.axes[-1]`.

    Raises:
      ValueError: a name is unknown, or other setting axes are left.
    """
    data, array, when = _at_end(*_scalar(data, metric))
    place = _names(array).index(checks.one_of("policy", policy, _names(array)))
    data, array = data.isel(policy=place), array.isel(policy=place)
    axes = metrics.setting_axes(array)
    if len(axes) < 2:
        raise ValueError(f"data must have two setting axes for a heat map, got {axes or 'none'}: draw it with plot.final")
    for argument, axis in (("x", x), ("y", y)):
        checks.one_of(argument, axis, axes)
    if x == y:
        raise ValueError(f"y must differ from x, got {y!r} for both")
    others = [a for a in axes if a not in (x, y)]
    if others:
        raise ValueError(
            f"data must have two setting axes, {x} and {y}, got {', '.join(axes)}: select with data.sel({others[0]}=...)"
        )
    if best not in ("auto", "min", "max", None):
        raise ValueError(f"best must be 'auto', 'min', 'max' or None, got {best!r}")
    middle = metrics.mean(data, metric).transpose(y, x).values
    if not np.isfinite(middle).any():
        raise ValueError(f"policy must have the metric {metric!r}, got {policy!r}, which is NaN everywhere")
    error = metrics.stderr(data, metric).transpose(y, x).values
    ax = _axes(ax, (_SIZE[0] + 0.2, _SIZE[1] + 0.1))
    grid, places = [], []
    for axis in (x, y):
        values = array[axis].values
        at, _ = _positions(values)
        order = np.argsort(at)
        grid.append(order)
        places.append(at[order])
        _settings_axis(ax, "x" if axis == x else "y", values[order])
    (order_x, order_y), (at_x, at_y) = grid, places
    shown = middle[np.ix_(order_y, order_x)]
    edges = [_edges(at, log_spaced(array[a].values)) for at, a in zip(places, (x, y))]
    mesh = ax.pcolormesh(*edges, np.ma.masked_invalid(shown), cmap="viridis", rasterized=True)
    ax.set_facecolor("#DDDDDD")  # Cells without a value.
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.tick_params(length=2.5)
    note = ""
    mark = _direction(metric, array.attrs) if best == "auto" else best
    if mark is not None:
        pick = (np.nanargmin if mark == "min" else np.nanargmax)(shown)
        row, column = np.unravel_index(pick, shown.shape)
        text = metrics.rounded(shown[row, column], error[np.ix_(order_y, order_x)][row, column])
        for width, colour in ((3.2, "black"), (1.6, "white")):
            ax.plot(
                at_x[column],
                at_y[row],
                "o",
                markersize=9,
                markerfacecolor="none",
                markeredgecolor=colour,
                markeredgewidth=width,
            )
        note = f"; ring: {'lowest' if mark == 'min' else 'highest'}, {text}"
    bar = ax.figure.colorbar(mesh, ax=ax, pad=0.02)
    seeds = metrics.show_seeds(metrics.count(data, metric).values)
    bar.set_label(f"{_label(array, metric)}\nmean of {seeds}{when}")
    bar.outline.set_visible(False)
    _numbers(bar.ax.yaxis)
    _title(ax, title or policy, note)
    return ax


def _direction(metric: str, attributes: Mapping[str, Any]) -> str | None:
    """Whether less or more of a metric is better, by its name; None if that does not tell."""
    words = f"{metric} {attributes.get('label', '')}".lower()
    if any(
        w in words for w in ("regret", "cost", "violation", "loss", "queue", "latency", "infeasible", "overspend", "delay")
    ):
        return "min"
    return "max" if any(w in words for w in ("reward", "score", "accuracy", "quality", "utility")) else None


@_styled
def deployment(data: xr.Dataset, *, policy: str, variable: str = "deployed", ax: Any = None, title: str | None = None):
    """Which model is live when: the share of seeds in which it is, at each recorded time.

    Args:
      data: a result without setting axes, or with all of them selected.
      policy: name of the policy.
      variable: a vector metric over models with values in [0, 1].
      ax: axes to draw on (default: a new figure).
      title: above the figure (default: the policy).

    Returns:
      The axes; the colour bar's are `ax.figure.axes[-1]`.

    Raises:
      ValueError: a name is unknown, or setting axes are left.
    """
    data, array = _metric(data, variable)
    place = _names(array).index(checks.one_of("policy", policy, _names(array)))
    data, array = data.isel(policy=place), array.isel(policy=place)
    axes, vectors = metrics.setting_axes(array), metrics.vector_dims(array)
    if len(vectors) != 1 or "time" not in array.dims:
        raise ValueError(
            f"variable must have the dimensions time and model, got {variable!r} with {tuple(map(str, array.dims))}"
        )
    if axes:
        raise ValueError(f"data must have no setting axis here, got {', '.join(axes)}: select with data.sel({axes[0]}=...)")
    share = metrics.mean(data, variable).transpose(vectors[0], "time").values
    if not np.isfinite(share).any():
        raise ValueError(f"policy must have the variable {variable!r}, got {policy!r}, which is NaN everywhere")
    times = array["time"].values.astype(np.float64)
    number = len(share)
    models = (
        [str(m) for m in array[vectors[0]].values] if vectors[0] in array.coords else [f"model {i}" for i in range(number)]
    )
    # A gauge is read at the end of its interval, so a cell ends at its time.
    first = max(0.0, times[0] - (times[1] - times[0])) if len(times) > 1 else 0.0
    ax = _axes(ax, (_SIZE[0] + 0.6, min(1.3 + 0.2 * number, 9.0)))
    edges = np.concatenate([[first], times])
    mesh = ax.pcolormesh(edges, np.arange(number + 1) - 0.5, share, cmap="Blues", vmin=0, vmax=1, rasterized=True)
    ax.hlines(np.arange(1, number) - 0.5, edges[0], edges[-1], color="white", linewidth=0.8)
    step = -(-number // 40)
    ax.set_yticks(range(0, number, step), models[::step])
    ax.set_ylim(number - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    _numbers(ax.xaxis)
    ax.set_xlabel("round")
    ax.tick_params(axis="x", length=2.5)
    bar = ax.figure.colorbar(mesh, ax=ax, pad=0.02, ticks=[0, 0.25, 0.5, 0.75, 1])
    bar.ax.set_yticklabels(["0 %", "25 %", "50 %", "75 %", "100 %"])
    bar.set_label(f"live, share of {metrics.show_seeds(metrics.count(data, variable).values)}")
    bar.outline.set_linewidth(0.6)
    bar.outline.set_edgecolor("#BBBBBB")
    _title(ax, title or policy)
    return ax


def save(figure: Any, path: str | os.PathLike) -> Path:
    """Writes a figure (or the figure of axes) at 160 dots per inch, without dates or versions: equal figures, equal files.

    Args:
      figure: a matplotlib Figure or Axes.
      path: file name, ending in .png, .pdf or .svg; missing folders are made.

    Returns:
      The path.
    """
    plt = _pyplot()
    path = Path(path)
    unnamed = {
        ".png": {"Software": None},
        ".pdf": {"Creator": None, "Producer": None, "CreationDate": None},
        ".svg": {"Creator": None, "Date": None},
    }
    kind = checks.one_of("path", path.suffix.lower(), unnamed)
    figure = figure if hasattr(figure, "savefig") else figure.figure
    path.parent.mkdir(parents=True, exist_ok=True)
    with plt.rc_context({"svg.hashsalt": "jaxroute"}):
        figure.savefig(path, dpi=160, metadata=unnamed[kind])
    return path


def log_axis(ax: Any, which: Literal["x", "y"]) -> None:
    """Makes one axis of a figure of one's own logarithmic, with the same plain numbers as elsewhere; call it after drawing."""
    checks.one_of("which", which, ("x", "y"))
    getattr(ax, f"set_{which}scale")("log")
    _numbers(getattr(ax, f"{which}axis"))


@_styled
def panels(number: int, *, columns: int = 3):
    """A figure with `number` axes side by side (rows of `columns`): returns `(figure, axes)`, the axes as a flat array."""
    number = checks.count("number", number)
    columns = min(number, columns)
    rows = -(-number // columns)
    size = (_SIZE[0] * columns, _SIZE[1] * rows)
    figure, axes = _pyplot().subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for ax in axes.flat[number:]:
        ax.set_visible(False)
    return figure, axes.ravel()[:number]


@_styled
def power_laws(series: Mapping[str, xr.DataArray], *, ax: Any = None, title: str | None = None):
    """Means against a numeric setting on logarithmic axes, with the fitted power law of each series in the legend.

    Args:
      series: name to values of dimensions `(setting, "seed")`; the setting is the horizontal axis.
      ax: axes to draw on (default: a new figure).
      title: above the figure (default: none).

    Returns:
      The axes.
    """
    ax = _axes(ax)
    array, axis = None, ""
    for position, (name, array) in enumerate(series.items()):
        (axis,) = (str(d) for d in array.dims if d != "seed")
        x = array[axis].values
        values = array.transpose(axis, "seed").values
        mean, error = values.mean(axis=1), values.std(axis=1, ddof=1) / math.sqrt(values.shape[1])
        colour = _COLOURS[position % len(_COLOURS)]
        style = {"color": colour, "marker": _MARKERS[position % len(_MARKERS)], "linestyle": "none", "capsize": 2}
        label = name
        if (mean > 0).all() and len(x) > 1 and values.shape[1] > 1:
            fit = metrics.slope(x, values)
            label = f"{name}: slope {fit.slope:.2f} ({fit.low:.2f} to {fit.high:.2f})"
            ax.plot(
                x,
                np.exp(fit.intercept) * x**fit.slope,
                color=colour,
                linestyle=_DASHES[position % len(_DASHES)],
                linewidth=1,
            )
        ax.errorbar(x, mean, yerr=2 * error, label=label, **style)
    if array is None:
        raise ValueError("series must hold at least one series, got none")
    ax.set_xscale("log")
    ax.set_yscale("log")
    _numbers(ax.xaxis)
    _numbers(ax.yaxis)
    ax.set_xlabel(axis)
    ax.set_ylabel(f"{_label(array, str(array.name))}, mean of {array.sizes['seed']} seeds")
    _grid(ax)
    _legend(ax, title, ax.figure.axes == [ax])
    return ax
