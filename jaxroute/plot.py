"""Figures of results, from the `xarray.Dataset` of a simulation.

Every function draws on the given axes or on a new figure, returns the axes (`ax.figure` is the figure), and never shows or
closes anything. A figure says by itself what is drawn: label and unit on the axis, the number of seeds, the meaning of the
band. A policy keeps its colour, dash and marker whichever policies are drawn: they follow its place in the result. Bands and
bars are two standard errors unless said otherwise.
"""

import colorsys
import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr

from jaxroute import checks, metrics

# Okabe and Ito's colours, which differ for colour-blind readers too, without yellow (too pale for lines); then grey.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
_DASHES = ("-", (0, (5, 1.6)), (0, (5, 1.3, 1.2, 1.3)), (0, (1.4, 1.2)), (0, (8, 1.6)), (0, (5, 1.2, 1.2, 1.2, 1.2, 1.2)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_GREY = "#666666"
_STYLE = {
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
        plt = _pyplot()
        with plt.rc_context(_STYLE):
            return function(*args, **kwargs)

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


def _metric(data: Any, metric: str) -> xr.DataArray:
    """One metric `[policy, settings..., seed, time]`, a single policy included."""
    if not isinstance(data, xr.Dataset):
        raise ValueError(f"data must be the xarray.Dataset of a simulation, got {type(data).__name__}")
    array = metrics.pick(data, metric)
    if "policy" not in array.dims:
        array = array.expand_dims("policy") if "policy" in array.coords else array.expand_dims(policy=["all"])
    return array


def _scalar(data: Any, metric: str) -> xr.DataArray:
    array = _metric(data, metric)
    vectors = metrics.vector_dims(array)
    if vectors:
        raise ValueError(
            f"metric must be a single number per run, got {metric!r} with one per {vectors[0]}: "
            f"select one with data.sel({vectors[0]}=...), or draw it with plot.deployment"
        )
    return array


def _names(array: xr.DataArray) -> list[str]:
    return [str(p) for p in array["policy"].values]


def _at_end(array: xr.DataArray) -> tuple[xr.DataArray, str]:
    """The metric at the last recorded time, and that time in words."""
    if "time" in array.dims:
        array = array.isel(time=-1)
    when = f" at round {int(array['time']):,}" if "time" in array.coords else ""
    return array, when


def _style_of(position: int) -> dict[str, Any]:
    return {
        "color": _COLOURS[position % len(_COLOURS)],
        "linestyle": _DASHES[position % len(_DASHES)],
        "marker": _MARKERS[position % len(_MARKERS)],
        "markeredgecolor": "white",
        "markeredgewidth": 0.6,
    }


def _shade(colour: str, position: int, number: int) -> tuple[float, float, float]:
    """The colour at one of `number` steps from light to dark, itself in the middle."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, light, saturation = colorsys.rgb_to_hls(red, green, blue)
    if number == 1:
        return red, green, blue
    span = np.linspace(0.72, 0.16, number)[position] if light > 0.05 else np.linspace(0.7, 0.0, number)[position]
    return colorsys.hls_to_rgb(hue, float(span), saturation)


# Axes and legends.


def _plain_numbers(axis) -> None:
    """Thousands with commas; very large or small numbers and logarithmic axes as matplotlib writes them."""
    from matplotlib.ticker import ScalarFormatter

    class Commas(ScalarFormatter):
        def __call__(self, x, pos=None):
            text = super().__call__(x, pos)
            if self.orderOfMagnitude == 0 and self.offset == 0 and abs(x) >= 10_000 and x == int(x):
                return f"{int(x):,}"
            return text

    axis.set_major_formatter(Commas())


def _grid(ax, which: str = "both") -> None:
    ax.grid(visible=True, axis=which, color="#E4E4E4", linewidth=0.7)


def _legend(ax, title: str, own: bool) -> None:
    """Inside, where there is room; beside the axes of an own figure if there are many entries."""
    entries = len(ax.get_legend_handles_labels()[0])
    if entries == 0:
        return
    options: dict[str, Any] = {"title": title, "alignment": "left", "handlelength": 2.6, "labelspacing": 0.35}
    if entries > 4:
        if own:
            ax.figure.set_size_inches(_SIZE[0] + 1.5, _SIZE[1])
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, borderaxespad=0.0, **options)
    else:
        ax.legend(loc="best", frameon=True, framealpha=0.85, edgecolor="none", borderpad=0.3, **options)
    ax.get_legend().get_title().set_color(_GREY)


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
    """Scale of an axis of settings, and ticks at the settings themselves if they are few: nothing was measured between."""
    from matplotlib.ticker import NullLocator

    axis, log = getattr(ax, f"{which}axis"), log_spaced(values)
    if log:
        getattr(ax, f"set_{which}scale")("log")
    places, numeric = _positions(values)
    if numeric and len(values) > 8:
        if not log:
            _plain_numbers(axis)
        return
    axis.set_minor_locator(NullLocator())
    axis.set_ticks(places, [metrics.show_value(v) for v in values])


# Figures.


@_styled
def curves(
    data: xr.Dataset,
    metric: str = "regret",
    *,
    band: Literal["stderr", "quantile"] | None = "stderr",
    reference: Mapping[str, tuple[Any, Any]] | None = None,
    log: bool | Literal["x", "y"] = False,
    ax: Any = None,
    policies: Sequence[str] | None = None,
):
    """Mean curves over time, a line per policy (and per setting, if there are at most eight).

    Args:
      data: a result.
      metric: name of the metric.
      band: around each line: "stderr" for two standard errors, "quantile" for the 5 to 95 % range of the runs, None for none.
      reference: name to `(times, values)`, drawn dashed and grey.
      log: True for two logarithmic axes, "x" or "y" for one.
      ax: axes to draw on (default: a new figure).
      policies: names of those to draw (default: all that have the metric).

    Returns:
      The axes.

    Raises:
      ValueError: a name is unknown, or there are too many settings for lines.
    """
    array = _scalar(data, metric)
    if "time" not in array.dims:
        raise ValueError("data must have the dimension 'time' for a curve; draw a single time with plot.final")
    if band is not None:
        checks.one_of("band", band, ("stderr", "quantile"))
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
    middle = metrics.mean(array)
    if band == "quantile":
        low, high = (metrics.quantiles(array, q=(q,)).isel(quantile=0) for q in (0.05, 0.95))
    else:
        error = 2 * metrics.stderr(array)
        low, high = middle - error, middle + error
    log_y, counts, lines = log in (True, "y"), [], 0
    for name in drawn:
        p = names.index(name)
        one = middle.isel(policy=p)
        if not np.isfinite(one.values).any():
            continue  # This policy does not have the metric.
        used = metrics.own_axes([array.isel(policy=p)])
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
            counts.append(metrics.count(array.isel(policy=p).isel(place)).values)
            lines += 1
    for i, (name, (when, values)) in enumerate((reference or {}).items()):
        ax.plot(when, values, color="#555555", linestyle=(0, (3 + 2 * i, 2)), linewidth=1.1, label=name, zorder=2.5)
    if log in (True, "x"):
        ax.set_xscale("log")
    else:
        _plain_numbers(ax.xaxis)
        ax.set_xlim(left=0)
    if log_y:
        ax.set_yscale("log")
    else:
        _plain_numbers(ax.yaxis)
    ax.margins(x=0.02)
    ax.set_xlabel("round")
    ax.set_ylabel(metrics.axis_label(array.attrs, metric))
    _grid(ax)
    meaning = {"stderr": "mean ± 2 s.e.", "quantile": "mean, 5–95 %", None: "mean"}[band]
    _legend(ax, f"{meaning}, {metrics.show_seeds(np.concatenate([np.ravel(c) for c in counts]) if counts else [])}", own)
    return ax


@_styled
def final(data: xr.Dataset, metric: str = "regret", *, x: str | None = None, ax: Any = None):
    """The metric at the last recorded time: a dot per policy, or lines against one swept setting.

    Args:
      data: a result without setting axes, or with one; select the others.
      metric: name of the metric.
      x: name of the setting axis (default: the only one).
      ax: axes to draw on (default: a new figure).

    Returns:
      The axes.

    Raises:
      ValueError: a name is unknown, or more than one setting axis is left.
    """
    array, when = _at_end(_scalar(data, metric))
    axes = metrics.setting_axes(array)
    if x is not None:
        checks.one_of("x", x, axes) if axes else _refuse_axis(x)
    others = [a for a in axes if a != (x or axes[0])]
    if others:
        raise ValueError(
            f"data must have at most one setting axis, got {', '.join(axes)}: select with data.sel({others[0]}=...), "
            "or draw two with plot.heat"
        )
    middle, error = metrics.mean(array), metrics.stderr(array)
    label = metrics.axis_label(array.attrs, metric)
    note = f"mean ± 2 s.e. of {metrics.show_seeds(metrics.count(array).values)}{when}"
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
        _plain_numbers(ax.xaxis)
        ax.margins(x=0.08)
        _grid(ax)
        ax.set_xlabel(f"{label}\n{note}")
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
    _settings_axis(ax, "x", values)
    _plain_numbers(ax.yaxis)
    ax.set_xlabel(axis)
    ax.set_ylabel(label)
    _grid(ax)
    _legend(ax, note, own)
    return ax


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

    Returns:
      The axes; the colour bar's are `ax.figure.axes[-1]`.

    Raises:
      ValueError: a name is unknown, or other setting axes are left.
    """
    array, when = _at_end(_scalar(data, metric))
    array = array.isel(policy=_names(array).index(checks.one_of("policy", policy, _names(array))))
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
    middle = metrics.mean(array).transpose(y, x).values
    if not np.isfinite(middle).any():
        raise ValueError(f"policy must have the metric {metric!r}, got {policy!r}, which is NaN everywhere")
    error = metrics.stderr(array).transpose(y, x).values
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
    note = f"{policy}, mean of {metrics.show_seeds(metrics.count(array).values)}{when}"
    best = _direction(metric, array.attrs) if best == "auto" else best
    if best is not None:
        pick = (np.nanargmin if best == "min" else np.nanargmax)(shown)
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
        note += f"\nring: {'lowest' if best == 'min' else 'highest'}, {text}"
    bar = ax.figure.colorbar(mesh, ax=ax, pad=0.02)
    bar.set_label(metrics.axis_label(array.attrs, metric))
    bar.outline.set_visible(False)
    _plain_numbers(bar.ax.yaxis)
    ax.set_title(note, loc="left", fontsize=8, color=_GREY)
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
def deployment(data: xr.Dataset, *, policy: str, variable: str = "deployed", ax: Any = None):
    """Which model is live when: the share of seeds in which it is, at each recorded time.

    Args:
      data: a result without setting axes, or with all of them selected.
      policy: name of the policy.
      variable: a vector metric over models with values in [0, 1].
      ax: axes to draw on (default: a new figure).

    Returns:
      The axes; the colour bar's are `ax.figure.axes[-1]`.

    Raises:
      ValueError: a name is unknown, or setting axes are left.
    """
    array = _metric(data, variable)
    array = array.isel(policy=_names(array).index(checks.one_of("policy", policy, _names(array))))
    axes, vectors = metrics.setting_axes(array), metrics.vector_dims(array)
    if len(vectors) != 1 or "time" not in array.dims:
        raise ValueError(
            f"variable must have the dimensions time and model, got {variable!r} with {tuple(map(str, array.dims))}"
        )
    if axes:
        raise ValueError(f"data must have no setting axis here, got {', '.join(axes)}: select with data.sel({axes[0]}=...)")
    share = metrics.mean(array).transpose(vectors[0], "time").values
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
    _plain_numbers(ax.xaxis)
    ax.set_xlabel("round")
    bar = ax.figure.colorbar(mesh, ax=ax, pad=0.02, ticks=[0, 0.25, 0.5, 0.75, 1])
    bar.ax.set_yticklabels(["0", "25 %", "50 %", "75 %", "100 %"])
    bar.set_label(f"live, share of {metrics.show_seeds(metrics.count(array).values)}")
    bar.outline.set_linewidth(0.6)
    bar.outline.set_edgecolor("#BBBBBB")
    ax.set_title(policy, loc="left", fontsize=8, color=_GREY)
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
