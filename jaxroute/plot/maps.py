"""Draws heat maps: a metric over two settings, and deployed models over time."""

from typing import Any, Literal

import numpy as np
import xarray as xr

from jaxroute import metrics
from jaxroute.core import checks
from jaxroute.plot import style
from jaxroute.plot.axes import HIGH, axis_title, edges, log_spaced, numbers, places_of, settings_axis
from jaxroute.plot.selection import at_end, policy_names, scalar_metric, time_label, with_policies


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
    """Draws the mean at the last recorded time over a grid of two settings, with the best cell marked.

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
    limits = None if limits is None else _limits(limits)
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
    mesh = ax.pcolormesh(*borders, np.ma.masked_invalid(middle), rasterized=True, **_colours(middle, centre, limits))
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


def _limits(limits: Any) -> tuple[float, float]:
    """Returns the smallest and largest value of a map. Raises ValueError if the user's `limits` are not two numbers, the smaller first."""
    try:
        low, high = checks.numbers("limits", limits, (2,))
    except ValueError:
        low, high = 1.0, 0.0
    if not low < high:
        needed = "two finite numbers, the smaller first, such as (0.0, 1.0)"
        raise ValueError(f"limits must be {needed}, got {checks.show(limits)}")
    return float(low), float(high)


def _colours(values: np.ndarray, centre: float | None, limits: tuple[float, float] | None) -> dict[str, Any]:
    """Returns colour map and limits of a heat map as arguments of `pcolormesh`. It is diverging if `values` have two signs or `centre` is set."""
    low, high = limits or (float(np.nanmin(values)), float(np.nanmax(values)))
    if centre is None and not low < 0 < high:
        return {"cmap": "viridis", "vmin": low, "vmax": high}
    middle = centre or 0.0
    reach = max(abs(low - middle), abs(high - middle)) or 1.0
    return {"cmap": "RdBu_r", "vmin": middle - reach, "vmax": middle + reach}


@style.styled
def deployment(data: xr.Dataset, *, policy: str, variable: str = "deployed", ax: Any = None, title: str | None = None):
    """Draws the share of seeds in which each model is deployed, over time. The axes of the colour bar are `ax.figure.axes[-1]`.

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
    _share_bar(ax, mesh, f"live, share of {metrics.show_seeds(metrics.count(data, variable).values)}")
    style.title(ax, title or policy)
    return ax


def _share_bar(ax: Any, mesh: Any, label: str) -> None:
    """Draws a colour bar from 0 to 100 %, with a label. In a figure with several panels, panels with the same label share a bar."""
    state = style.state_of(ax.figure)
    old, sharing = state.bars.get(label, (None, []))
    if old is not None:
        old.remove()
    sharing = [*sharing, ax] if state.shared else [ax]
    bar = ax.figure.colorbar(mesh, ax=sharing, pad=0.02, ticks=[0, 0.25, 0.5, 0.75, 1])
    state.bars[label] = (bar, sharing)
    bar.ax.set_yticklabels(["0 %", "25 %", "50 %", "75 %", "100 %"])
    bar.set_label(label)
    bar.outline.set_linewidth(0.6)
    bar.outline.set_edgecolor("#BBBBBB")
