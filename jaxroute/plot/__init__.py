"""Figures of results, from the `xarray.Dataset` of a simulation.

Every function draws on the given axes or on a new figure, returns the axes (`ax.figure` is the figure), and never shows or
closes anything. A figure says by itself what is drawn: label and unit on the axis, the number of seeds, the meaning of the
band. A policy keeps its colour, dash and marker in all panels and whichever policies are drawn: they follow its name (see `style`).
Bands and bars are two standard errors unless said otherwise.
"""

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr

from jaxroute import metrics
from jaxroute.core import checks
from jaxroute.core.attributes import decoded
from jaxroute.plot import style
from jaxroute.plot.style import log_spaced

__all__ = [
    "curves",
    "deployment",
    "difference",
    "heat",
    "leaders",
    "level",
    "log_axis",
    "log_spaced",
    "look",
    "panels",
    "points",
    "power_laws",
    "quantiles",
    "save",
    "share_legend",
    "sweep",
]

_MAX_SETTINGS = 8
_WIDE, _HIGH = 46, 30  # Letters of a label along the two axes of a panel.


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


def _at_end(data: xr.Dataset, array: xr.DataArray) -> tuple[xr.Dataset, xr.DataArray, str]:
    """The result and the shape of a metric at the last recorded time, and that time in words."""
    if "time" in array.dims:
        data, array = data.isel(time=-1), array.isel(time=-1)
    when = f" at round {int(array['time']):,}" if "time" in array.coords else ""
    return data, array, when


# Curves.


@style.styled
def curves(
    data: xr.Dataset,
    metric: str = "regret",
    *,
    band: Literal["stderr", "deviation", "quantile"] | None = "stderr",
    reference: Mapping[str, tuple[Any, Any] | float] | None = None,
    log: bool | Literal["x", "y"] = False,
    ax: Any = None,
    policies: Sequence[str] | None = None,
    title: str | None = None,
):
    """Mean curves over time, a line per policy (and per setting, if there are at most eight).

    Args:
      data: a result; or what `metrics.paired` returns, whose curves are differences to a baseline, the zero line.
      metric: name of the metric; of paired differences there is but one.
      band: around each line: "stderr" for two standard errors, "deviation" for one standard deviation of the runs, "quantile" for
        their 5 to 95 % range, or None. Where no run is below zero no band is.
      reference: name to `(times, values)`, or to one number (a budget, a target), drawn dotted and grey.
      log: True for two logarithmic axes, "x" or "y" for one.
      ax: axes to draw on (default: a new figure).
      policies: names of those to draw (default: all that have the metric).
      title: above the figure (default: none).

    Returns:
      The axes.

    Raises:
      ValueError: a name is unknown, or there are too many settings for lines.
    """
    if metrics.is_paired(data):
        return _curves_of_differences(data, metric, band, reference, log, ax, policies, title)
    data, array = _scalar(data, metric)
    _need_time(array)
    if band is not None:
        checks.one_of("band", band, ("stderr", "deviation", "quantile"))
    if log not in (True, False, "x", "y"):
        raise ValueError(f"log must be True, False, 'x' or 'y', got {log!r}")
    _few_settings(array)
    drawn = _chosen(array, policies)
    own = ax is None
    ax = style.new_axes(ax)
    style.cast_of(ax, _names(array))
    middle, number = metrics.mean(data, metric), metrics.count(data, metric)
    if band == "quantile":
        low, high = (metrics.quantiles(data, metric, q=(q,)).isel(quantile=0) for q in (0.05, 0.95))
    else:
        error = metrics.deviation(data, metric) if band == "deviation" else 2 * metrics.stderr(data, metric)
        low, high = middle - error, middle + error
    used = {name: metrics.own_axes_of(data.sel(policy=name), metric) for name in drawn}
    lines = list(_lines(middle, used))
    if log in (True, "y"):
        for line in lines:
            if not (line.of(middle) > 0).any():
                raise ValueError(
                    f"log must be False or 'x' where a curve is nowhere positive, got {log!r} for {line.label!r}"
                )
    if band is not None and bool((low < 0).any()) and metrics.has_runs(data) and _smallest(data, metric, drawn) >= 0:
        low = low.clip(min=0.0)
    borders = None if band is None else (low, high)
    _draw_lines(ax, lines, middle, borders, log)
    for name, values in (reference or {}).items():
        style.cast_of(ax).enrol([name], role="reference")
        look = style.cast_of(ax).style(name)
        if not isinstance(values, Sequence):
            ax.axhline(float(values), label=name, **look)
        elif len(values) == 2 and np.shape(values[0]) == np.shape(values[1]):
            ax.plot(*values, label=name, **look)
        else:
            wrong = checks.show(values)
            raise ValueError(f"reference[{name!r}] must be (times, values) of equal length, or a number, got {wrong}")
    _time_axes(ax, array, log)
    meaning = {
        "stderr": "mean ± 2 s.e. of",
        "deviation": "mean ± 1 s.d. of",
        "quantile": "mean and 5–95 % range of",
        None: "mean of",
    }[band]
    counts = [line.of(number) for line in lines]
    seeds = metrics.show_seeds(np.concatenate([np.ravel(c) for c in counts]) if counts else [])
    ax.set_xlabel(f"{_clock(array)}\n{meaning} {seeds}{_violations(data, drawn)}")
    ax.set_ylabel(style.axis_title(array.attrs, metric, _HIGH))
    style.legend(ax, title, own)
    return ax


@style.styled
def difference(
    data: xr.Dataset,
    metric: str = "regret",
    *,
    minus: str,
    log: bool = False,
    ax: Any = None,
    policies: Sequence[str] | None = None,
    title: str | None = None,
):
    """How far the curves of other policies are from that of one of them, seed by seed, with two standard errors.

    Policies meet the same luck in the same seed, so that curves which coincide to the eye are told apart. The zero line is the
    policy that is subtracted.

    Args:
      data: a result.
      metric: name of the metric.
      minus: the policy that is subtracted.
      log: logarithmic time.
      ax: axes to draw on (default: a new figure).
      policies: names of those to draw (default: all others that have the metric).
      title: above the figure (default: none).

    Returns:
      The axes.

    Raises:
      ValueError: a name is unknown, or there are too many settings for lines.
    """
    data, array = _scalar(data, metric)
    _need_time(array)
    checks.one_of("minus", minus, _names(array))
    _few_settings(array)
    drawn = [p for p in _chosen(array, policies) if p != minus]
    used = {name: metrics.own_axes_of(data.sel(policy=[name, minus]), metric) for name in drawn}
    found = metrics.paired(data, metric, minus)
    label = str(array.attrs.get("long_name", metric)), str(array.attrs.get("units", ""))
    return _draw_differences(found, minus, used, label, log, ax, title, _violations(data, [minus, *drawn]))


def _curves_of_differences(
    found: xr.Dataset, metric: str, band: Any, reference: Any, log: Any, ax: Any, policies: Any, title: str | None
) -> Any:
    """`curves` of what `metrics.paired` returns."""
    about, array = decoded(found.attrs), found["mean"]
    _need_time(array)
    if metric not in ("regret", "mean", about["metric"]):  # "regret" is what nobody has asked for.
        raise ValueError(f"metric must be {about['metric']!r}, the one of these differences, got {metric!r}")
    for name, value, allowed in (("band", band, ("stderr",)), ("reference", reference, (None,)), ("log", log, (False, "x"))):
        if value not in allowed:
            shown = " or ".join(map(repr, allowed))
            raise ValueError(f"{name} must be {shown} for differences, which have two signs, got {checks.show(value)}")
    vectors = metrics.vector_dims(array)
    if vectors:
        raise ValueError(
            f"data must have one difference per policy, got one per {vectors[0]}: select one with data.sel({vectors[0]}=...)"
        )
    _few_settings(array)
    used = {
        name: metrics.own_axes([found[v].sel(policy=name) for v in ("mean", "stderr")]) for name in _chosen(array, policies)
    }
    label = (
        str(array.attrs["long_name"]).removesuffix(f" minus that of {about['baseline']}"),
        str(array.attrs.get("units", "")),
    )
    notes = "".join(f"\n{style.wrapped(note, _WIDE)}" for note in about.get("notes", ()))
    return _draw_differences(found, about["baseline"], used, label, log == "x", ax, title, notes)


def _draw_differences(
    found: xr.Dataset,
    minus: str,
    used: Mapping[str, Sequence[str]],
    label: tuple[str, str],
    log: bool,
    ax: Any,
    title: str | None,
    notes: str,
) -> Any:
    """Lines of paired differences above and below the zero line of the policy that is subtracted.

    Args:
      found: as `metrics.paired` returns it.
      minus: the policy that is subtracted.
      used: axes that each drawn policy depends on.
      label: of the metric, and its unit.
      log: logarithmic time.
      ax: axes to draw on, or None.
      title: above the figure.
      notes: lines below the caption.
    """
    array = found["mean"]
    own = ax is None
    ax = style.new_axes(ax)
    cast = style.cast_of(ax, [minus, *_names(array)])
    lines = list(_lines(array, used))
    borders = array - 2 * found["stderr"], array + 2 * found["stderr"]
    ax.axhline(0.0, label=minus, **{k: v for k, v in cast.style(minus).items() if k in ("color", "linestyle", "linewidth")})
    _draw_lines(ax, lines, array, borders, "x" if log else False)
    _time_axes(ax, array, "x" if log else False)
    seeds = metrics.show_seeds([found["count"].sel(policy=name).values.max() for name in used])
    ax.set_xlabel(f"{_clock(array)}\nmean of paired differences ± 2 s.e. of {seeds}{notes}")
    unit = f" ({label[1]})" if label[1] else ""
    ax.set_ylabel(f"{style.wrapped(label[0], _HIGH)}\nminus that of {minus}{unit}")
    style.legend(ax, title, own)
    return ax


def leaders(
    data: xr.Dataset, metric: str = "regret", *, number: int = 4, best: Literal["auto", "min", "max"] = "auto"
) -> list[str]:
    """Names of the policies with the best means at the last recorded time, for a panel in which the others fill no axis.

    A system that its problem is named for is always among them.

    Args:
      data: a result; a policy with settings counts with its best.
      metric: name of the metric.
      number: of names, more where there are several such systems.
      best: whether less or more is better; "auto" knows regret, cost, violation, queues, rewards and the like.

    Raises:
      ValueError: "auto" does not know the metric.
    """
    data, array, _ = _at_end(*_scalar(data, metric))
    mark = metrics.direction(metric, array.attrs) if best == "auto" else checks.one_of("best", best, ("min", "max"))
    if mark is None:
        raise ValueError(f"best must be 'min' or 'max' for {metric!r}, got 'auto'")
    sign = 1.0 if mark == "min" else -1.0
    value = {name: float((sign * metrics.mean(data, metric).sel(policy=name)).min()) for name in _names(array)}
    in_order = sorted((n for n in value if math.isfinite(value[n])), key=lambda n: value[n])
    first = in_order[:number] + [n for n in in_order[number:] if style.role_of(n) == "subject"]
    return [name for name in value if name in first]


def _violations(data: xr.Dataset, drawn: Sequence[str]) -> str:
    """Lines of a caption that say which policies are above a limit at the end, such as their budget."""
    by_words: dict[str, list[str]] = {}
    for one in metrics.violations(data):
        if one.policy in drawn and one.policy not in by_words.setdefault(one.words, []):
            by_words[one.words].append(one.policy)
    whole = "\N{NO-BREAK SPACE}"  # A name stays on its line.
    lines = [
        f"{words}: {', '.join(name.replace(' ', whole) for name in names)}" for words, names in by_words.items() if names
    ]
    return "".join(f"\n{style.wrapped(line, _WIDE)}" for line in lines).replace(whole, " ")


def _smallest(data: xr.Dataset, metric: str, policies: Sequence[str]) -> float:
    """The smallest value of any valid run."""
    return float(metrics.pick(data, metric).sel(policy=list(policies)).min())


def _need_time(array: xr.DataArray) -> None:
    if "time" not in array.dims:
        raise ValueError("data must have the dimension 'time' for a curve; draw a single time with plot.sweep")


def _few_settings(array: xr.DataArray) -> None:
    axes = metrics.setting_axes(array)
    settings = math.prod(array.sizes[a] for a in axes)
    if settings > _MAX_SETTINGS:
        raise ValueError(
            f"data must have at most {_MAX_SETTINGS} settings for curves, got {settings} "
            f"({', '.join(f'{a}: {array.sizes[a]}' for a in axes)}): select some with data.sel({axes[0]}=...), "
            "or draw the horizon with plot.sweep or plot.heat"
        )


def _chosen(array: xr.DataArray, policies: str | Sequence[str] | None) -> list[str]:
    names = _names(array)
    return [checks.one_of("policies", p, names) for p in ([policies] if isinstance(policies, str) else policies or names)]


def _clock(array: xr.DataArray) -> str:
    return str(array["time"].attrs.get("long_name", "round"))


class _Line(NamedTuple):
    """A line of a figure: whose it is, its name in the legend, where it is in the result, and its number among those of its policy."""

    policy: str
    label: str
    place: dict[str, int]
    position: int
    number: int

    def of(self, array: xr.DataArray) -> np.ndarray:
        """Its values, `[time]`."""
        return array.sel(policy=self.policy).isel(self.place).values


def _lines(middle: xr.DataArray, used: Mapping[str, Sequence[str]]) -> Iterator[_Line]:
    """A line for each policy that has the metric, and for each of its settings; `used` are the axes that a policy depends on."""
    axes = metrics.setting_axes(middle)
    for name, own_axes in used.items():
        if not np.isfinite(middle.sel(policy=name).values).any():
            continue
        places = [dict(zip(axes, i)) for i in np.ndindex(*(middle.sizes[a] if a in own_axes else 1 for a in axes))]
        shown = [a for a in own_axes if middle.sizes[a] > 1]
        for position, place in enumerate(places):
            label = ", ".join([name, *(f"{a}={metrics.show_value(middle[a].values[place[a]])}" for a in shown)])
            yield _Line(name, label, place, position, len(places))


def _draw_lines(
    ax: Any, lines: Iterable[_Line], middle: xr.DataArray, borders: tuple[xr.DataArray, xr.DataArray] | None, log: Any
):
    times, cast, lines = middle["time"].values, style.cast_of(ax), list(lines)
    looks = [cast.shade(line.policy, line.label, line.position, line.number) for line in lines]
    covers = style.uncover([(times, line.of(middle)) for line in lines], looks, joined=True)
    for number, (line, look, cover) in enumerate(zip(lines, looks, covers, strict=True)):
        shift = number if cover is None else cover + 2  # Midway between the markers of what lies above it.
        ax.plot(times, line.of(middle), label=line.label, markevery=style.marked(times, log in (True, "x"), shift), **look)
        if borders is not None:
            low, high = (line.of(border) for border in borders)
            # Many bands on top of each other would be one grey: only that of the strongest line stays as it is.
            alpha = 0.18 if len(lines) < 4 or (style.role_of(line.policy) == "subject" and line.number == 1) else 0.09
            ax.fill_between(times, low, high, color=look["color"], alpha=alpha, linewidth=0, zorder=2)


def _time_axes(ax: Any, array: xr.DataArray, log: bool | str) -> None:
    if log in (True, "x"):
        ax.set_xscale("log")
    else:
        ax.set_xlim(0, 1.02 * array["time"].values[-1])
    if log in (True, "y"):
        ax.set_yscale("log")
    style.numbers(ax.xaxis)
    style.numbers(ax.yaxis)
    style.grid(ax)


# At the horizon.


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
    """The metric at the last recorded time: a dot per policy, or lines against one swept setting.

    Settings that are a logarithmic grid and 0 stand on a logarithmic axis, 0 before the others behind a dotted line.

    Args:
      data: a result without setting axes, or with one; select the others.
      metric: name of the metric.
      x: name of the setting axis (default: the only one).
      log: logarithmic values.
      ax: axes to draw on (default: a new figure).
      title: above the figure (default: none).

    Returns:
      The axes.

    Raises:
      ValueError: a name is unknown, more than one setting axis is left, or a mean is not positive on a logarithmic axis.
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
    note = f"mean ± 2 s.e. of {metrics.show_seeds(metrics.count(data, metric).values)}{when}"
    names = _names(array)
    known = [i for i in range(len(names)) if np.isfinite(middle.isel(policy=i).values).any()]
    if log and (middle <= 0).any():
        wrong = [names[i] for i in known if (middle.isel(policy=i) <= 0).any()]
        raise ValueError(f"log must be False where a mean is not positive, got True for {metric!r} of {', '.join(wrong)}")
    own = ax is None
    if not axes:
        ax = style.new_axes(ax, (style.SIZE[0], 1.0 + 0.3 * max(len(known), 2)))
        cast = style.cast_of(ax, names)
        for row, i in enumerate(known):
            value, bar = float(middle[i]), float(error[i])
            ax.errorbar(value, row, xerr=2 * bar if bar > 0 else None, capsize=2.5, markersize=6, **cast.style(names[i]))
            text = metrics.rounded(value, bar)
            ax.annotate(
                text, (1.02, row), xycoords=("axes fraction", "data"), va="center", fontsize=8, annotation_clip=False
            )
        _rows(ax, [names[i] for i in known])
        if log:
            ax.set_xscale("log")
        ax.margins(x=0.08)
        style.numbers(ax.xaxis, few=True)
        style.grid(ax)
        ax.set_xlabel(f"{style.axis_title(array.attrs, metric, _WIDE)}\n{note}")
        style.title(ax, title)
        return ax
    (axis,) = axes
    ax = style.new_axes(ax)
    cast = style.cast_of(ax, names)
    values = array[axis].values
    places = style.places_of(values)
    order = np.argsort(places)
    looks = [cast.style(names[i]) for i in known]
    style.uncover([(places[order], middle.isel(policy=i).values[order]) for i in known], looks)
    for i, look in zip(known, looks, strict=True):
        y, bar = middle.isel(policy=i).values, error.isel(policy=i).values
        if style.scale_of(values) == "names":
            look["linestyle"] = "none"  # Nothing lies between two names.
        bars = np.where(np.isfinite(bar), 2 * bar, 0.0)[order]
        ax.errorbar(places[order], y[order], yerr=bars, capsize=2, elinewidth=1.2, label=names[i], **look)
    ax.margins(x=0.03)
    style.settings_axis(ax, "x", values)
    if log:
        ax.set_yscale("log")
    style.numbers(ax.yaxis)
    ax.set_xlabel(f"{axis}\n{note}")
    ax.set_ylabel(style.axis_title(array.attrs, metric, _HIGH))
    style.grid(ax)
    style.legend(ax, title, own)
    return ax


def _rows(ax: Any, names: Sequence[str]) -> None:
    """A row for each name, the first at the top."""
    style.room_for_rows(ax, len(names))
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


@style.styled
def points(
    series: Mapping[str, Sequence[tuple[Any, Any]]],
    *,
    x: str,
    y: str,
    ax: Any = None,
    join: bool = True,
    title: str | None = None,
):
    """Measured points of several policies in a plane, with two standard errors in both directions: a cost against a score, say.

    Args:
      series: name to its points `(x, y)`, each a number or a pair of mean and standard error.
      x, y: labels of the axes, with units, and of how many seeds the means are.
      ax: axes to draw on (default: a new figure).
      join: lines between the points of a name.
      title: above the figure (default: none).

    Returns:
      The axes.
    """
    own = ax is None
    ax = style.new_axes(ax)
    cast = style.cast_of(ax, series)
    every = {
        name: np.array([[np.resize([*np.ravel(value), 0.0], 2) for value in place] for place in places], float)
        for name, places in series.items()
        if len(places)
    }
    looks = [{"markersize": 5} | cast.style(name) for name in every]
    style.uncover([at[:, :, 0].T for at in every.values()], looks)
    for (name, at), look in zip(every.items(), looks, strict=True):
        if not join or len(at) == 1:
            look["linestyle"] = "none"
        bars = {"xerr": 2 * at[:, 0, 1], "yerr": 2 * at[:, 1, 1]}
        bars = {which: np.nan_to_num(bar) for which, bar in bars.items() if np.nan_to_num(bar).any()}
        ax.errorbar(at[:, 0, 0], at[:, 1, 0], **bars, elinewidth=1.0, label=name, **look)
    style.numbers(ax.xaxis)
    style.numbers(ax.yaxis)
    ax.margins(0.06)
    ax.set_xlabel("\n".join(style.wrapped(line, _WIDE) for line in x.splitlines()))
    ax.set_ylabel(style.wrapped(y, _HIGH))
    style.grid(ax)
    style.legend(ax, title, own)
    return ax


def level(ax: Any, name: str, value: float, *, along: Literal["x", "y"] = "y") -> None:
    """A line at a value with its name in the legend, for a budget, a target or a bound, in axes that were drawn before.

    Args:
      ax: the axes.
      name: of the line, the same in all panels that show it.
      value: where it stands.
      along: the axis whose value it is; "y" for a horizontal line.
    """
    checks.one_of("along", along, ("x", "y"))
    cast = style.cast_of(ax)
    cast.enrol([name], role="reference")
    (ax.axhline if along == "y" else ax.axvline)(value, label=name, **cast.style(name))
    if style.sheet_of(ax.figure).shared and ax.get_legend() is None:
        style.share_legend(ax.figure)


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
    number = metrics.count(data, metric)
    drawn = [p for p in _chosen(array, policies) if number.isel(policy=names.index(p)).values.any()]
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
    cast = style.cast_of(ax, names)
    for row, name in enumerate(drawn):
        # Side by side at each setting; without settings, a line of its own.
        places = np.arange(len(settings)) + 0.14 * (row - (len(drawn) - 1) / 2) if axes else np.array([float(row)])
        one, colour = values[:, row], cast.style(name)["color"]
        middle: dict[str, Any] = {
            "color": colour,
            "markeredgecolor": "white",
            "markersize": 5,
            "label": name if axes else None,
        }
        for low, high, width in ((one[0], one[4], 1.0), (one[1], one[3], 3.2)):
            (ax.vlines if axes else ax.hlines)(places, low, high, color=colour, linewidth=width)
        mean: dict[str, Any] = {"color": "black", "markersize": 9, "markeredgewidth": 1.2, "zorder": 1.5}
        for value, marker, look in ((one[5], "_" if axes else "|", mean), (one[2], "o", middle)):
            ax.plot(*((places, value) if axes else (value, places)), marker, **look)
    which = "y" if axes else "x"
    if log:
        getattr(ax, f"set_{which}scale")("log")
    style.numbers(getattr(ax, f"{which}axis"), few=not axes)
    seeds = metrics.show_seeds(metrics.count(data, metric).values)
    note = f"5, 25, 50, 75, 95 % and mean (tick)\nof {seeds}{when}"
    style.grid(ax)
    if axes:
        ax.set_xticks(range(len(settings)), [metrics.show_value(v) for v in settings])
        ax.set_xlabel(f"{x or axes[0]}\n{note}")
        ax.set_ylabel(style.axis_title(array.attrs, metric, _HIGH))
        ax.margins(x=0.06)
        style.legend(ax, title, own)
    else:
        _rows(ax, drawn)
        ax.set_xlabel(f"{style.axis_title(array.attrs, metric, _WIDE)}\n{note}")
        style.title(ax, title)
    return ax


def _refuse_axis(x: str) -> None:
    raise ValueError(f"x must be None when the data has no setting axis, got {x!r}")


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
    """Mean at the last recorded time over a grid of two settings, with the best cell marked.

    Quantities with two signs have a diverging map: white at zero, blue below and red above.

    Args:
      data: a result with the setting axes `x` and `y`; select the others.
      metric: name of the metric.
      policy: name of the policy.
      x, y: names of the setting axes.
      best: which cell to mark; "auto" marks the smallest regret, cost, violation, loss, queue or latency and the largest
        reward, score or accuracy, and nothing for other metrics.
      centre: value that is white in a diverging map, for example 1 of a ratio to the budget (default: 0 if there are values on both
        sides of it; otherwise the map has one hue).
      limits: smallest and largest value of the map, for panels to be compared (default: those of the data); of a diverging map, which reaches
        as far on both sides, the one that is farther from its centre counts.
      ax: axes to draw on (default: a new figure).
      title: above the figure (default: the policy).

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
        raise ValueError(f"data must have two setting axes for a heat map, got {axes or 'none'}: draw it with plot.sweep")
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
    centre = None if centre is None else float(checks.numbers("centre", centre, ()))
    limits = None if limits is None else _limits(limits)
    middle = metrics.mean(data, metric).transpose(y, x).values
    if not np.isfinite(middle).any():
        raise ValueError(f"policy must have the metric {metric!r}, got {policy!r}, which is NaN everywhere")
    error = metrics.stderr(data, metric).transpose(y, x).values
    ax = style.new_axes(ax, (style.SIZE[0] + 0.2, style.SIZE[1] + 0.1))
    grid, places = [], []
    for axis in (x, y):
        values = array[axis].values
        at = style.places_of(values)
        order = np.argsort(at)
        grid.append(order)
        places.append(at[order])
        style.settings_axis(ax, "x" if axis == x else "y", values[order])
    (order_x, order_y), (at_x, at_y) = grid, places
    shown = middle[np.ix_(order_y, order_x)]
    borders = [style.edges(at, log_spaced(array[a].values)) for at, a in zip(places, (x, y))]
    mesh = ax.pcolormesh(*borders, np.ma.masked_invalid(shown), rasterized=True, **_colours(shown, centre, limits))
    ax.set_facecolor("#DDDDDD")  # Cells without a value.
    note = ""
    mark = metrics.direction(metric, array.attrs) if best == "auto" else best
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
                clip_on=False,
            )
        note = f"\nring: {'lowest' if mark == 'min' else 'highest'}, {text}"
    ax.set_xlabel(f"{x}{note}")
    ax.set_ylabel(y)
    ax.tick_params(length=2.5)
    bar = ax.figure.colorbar(mesh, ax=ax, pad=0.02)
    seeds = metrics.show_seeds(metrics.count(data, metric).values)
    bar.set_label(f"{style.axis_title(array.attrs, metric, _HIGH)}\nmean of {seeds}{when}")
    bar.outline.set_visible(False)
    style.numbers(bar.ax.yaxis)
    style.title(ax, title or policy)
    return ax


def _limits(limits: Any) -> tuple[float, float]:
    """Both ends of a map; `ValueError` if they are not two numbers, the smaller first."""
    try:
        low, high = checks.numbers("limits", limits, (2,))
    except ValueError:
        low, high = 1.0, 0.0
    if not low < high:
        raise ValueError(
            f"limits must be two finite numbers, the smaller first, such as (0.0, 1.0), got {checks.show(limits)}"
        )
    return float(low), float(high)


def _colours(values: np.ndarray, centre: float | None, limits: tuple[float, float] | None) -> dict[str, Any]:
    """The map of a heat map and its limits, as arguments of `pcolormesh`."""
    low, high = limits or (float(np.nanmin(values)), float(np.nanmax(values)))
    if centre is None and not low < 0 < high:
        return {"cmap": "viridis", "vmin": low, "vmax": high}
    middle = centre or 0.0
    reach = max(abs(low - middle), abs(high - middle)) or 1.0
    return {"cmap": "RdBu_r", "vmin": middle - reach, "vmax": middle + reach}


@style.styled
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
    ax = style.new_axes(ax, (style.SIZE[0] + 0.6, min(1.3 + 0.2 * number, 9.0)))
    edges = np.concatenate([[first], times])
    mesh = ax.pcolormesh(edges, np.arange(number + 1) - 0.5, share, cmap="Blues", vmin=0, vmax=1, rasterized=True)
    ax.hlines(np.arange(1, number) - 0.5, edges[0], edges[-1], color="white", linewidth=0.8)
    step = -(-number // 40)
    ax.set_yticks(range(0, number, step), models[::step])
    ax.set_ylim(number - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    style.numbers(ax.xaxis)
    ax.set_xlabel(_clock(array))
    ax.tick_params(axis="x", length=2.5)
    _share_bar(ax, mesh, f"live, share of {metrics.show_seeds(metrics.count(data, variable).values)}")
    style.title(ax, title or policy)
    return ax


def _share_bar(ax: Any, mesh: Any, label: str) -> None:
    """The colour bar of a share; panels of a sheet have one in common."""
    sheet = style.sheet_of(ax.figure)
    old, panels_with = sheet.bars.get(label, (None, []))
    if old is not None:
        old.remove()
    panels_with = [*panels_with, ax] if sheet.shared else [ax]
    bar = ax.figure.colorbar(mesh, ax=panels_with, pad=0.02, ticks=[0, 0.25, 0.5, 0.75, 1])
    sheet.bars[label] = (bar, panels_with)
    bar.ax.set_yticklabels(["0 %", "25 %", "50 %", "75 %", "100 %"])
    bar.set_label(label)
    bar.outline.set_linewidth(0.6)
    bar.outline.set_edgecolor("#BBBBBB")


def save(figure: Any, path: str | os.PathLike) -> Path:
    """Writes a figure (or the figure of axes) at 160 dots per inch, without dates or versions: equal figures, equal files.

    Args:
      figure: a matplotlib Figure or Axes.
      path: file name, ending in .png, .pdf or .svg; missing folders are made.

    Returns:
      The path.
    """
    plt = style.pyplot()
    path = Path(path)
    unnamed = {
        ".png": {"Software": None},
        ".pdf": {"Creator": None, "Producer": None, "CreationDate": None},
        ".svg": {"Creator": None, "Date": None},
    }
    kind = checks.one_of("path", path.suffix.lower(), unnamed)
    figure = figure if hasattr(figure, "savefig") else getattr(figure, "figure", None)
    if figure is None:
        raise ValueError("figure must be a matplotlib Figure or Axes, such as what the functions of this module return")
    path.parent.mkdir(parents=True, exist_ok=True)
    with plt.rc_context({"svg.hashsalt": "jaxroute"}):
        figure.savefig(path, dpi=160, metadata=unnamed[kind])
    return path


def log_axis(ax: Any, which: Literal["x", "y"], *, linear: float | None = None) -> None:
    """Makes one axis of a figure of one's own logarithmic, with the same plain numbers as elsewhere; call it after drawing.

    Args:
      ax: the axes.
      which: the axis.
      linear: for values with two signs: logarithmic on both sides beyond this distance from zero, even between.
    """
    checks.one_of("which", which, ("x", "y"))
    scale = getattr(ax, f"set_{which}scale")
    scale("log") if linear is None else scale("symlog", linthresh=linear)
    style.numbers(getattr(ax, f"{which}axis"))
    if linear is not None:
        (ax.axhline if which == "y" else ax.axvline)(0.0, color="#444444", linewidth=0.8, zorder=2.4)


@style.styled
def panels(number: int, *, columns: int = 3, size: tuple[float, float] = style.SIZE):
    """A figure with `number` panels in rows of `columns`, with one legend below them.

    What `curves`, `difference`, `sweep`, `quantiles` and `points` draw in it is named in that legend, and a name looks the same in all
    panels. After drawing lines of one's own with labels, `share_legend(figure)` names them too. The figure grows by its legend.

    Args:
      number: of panels.
      columns: in a row.
      size: of a panel, in inches.

    Returns:
      `(figure, axes)`, the axes as a flat array.
    """
    return style.new_sheet(checks.count("number", number), columns, size)


@style.styled
def share_legend(figure: Any) -> None:
    """Names all labelled lines of a figure's panels once, below them; panels that have a legend keep theirs.

    Args:
      figure: one of `panels`.
    """
    style.share_legend(figure)


def look(ax: Any, name: str) -> dict[str, Any]:
    """How a policy is drawn in a figure, for lines of one's own: colour, dash, marker, width and height, as arguments of `ax.plot`."""
    return style.cast_of(ax).style(name)


@style.styled
def power_laws(series: Mapping[str, xr.DataArray], *, ax: Any = None, title: str | None = None):
    """Means against a numeric setting on logarithmic axes, with the fitted power law of each series in the legend.

    Args:
      series: name to values of dimensions `(setting, "seed")`; the setting is the horizontal axis.
      ax: axes to draw on (default: a new figure).
      title: above the figure (default: none).

    Returns:
      The axes.
    """
    own = ax is None
    ax = style.new_axes(ax)
    cast = style.cast_of(ax, series)
    array, axis = None, ""
    for name, array in series.items():
        (axis,) = (str(d) for d in array.dims if d != "seed")
        x = array[axis].values
        values = array.transpose(axis, "seed").values
        mean, error = values.mean(axis=1), values.std(axis=1, ddof=1) / math.sqrt(values.shape[1])
        line = cast.style(name)
        label = name
        if (mean > 0).all() and len(x) > 1 and values.shape[1] > 1:
            fit = metrics.slope(x, values)
            label = f"{name}: slope {fit.slope:.2f} ({fit.low:.2f} to {fit.high:.2f})"
            ax.plot(x, np.exp(fit.intercept) * x**fit.slope, color=line["color"], linestyle=line["linestyle"], linewidth=1)
        ax.errorbar(x, mean, yerr=2 * error, label=label, **line | {"linestyle": "none", "capsize": 2})
    if array is None:
        raise ValueError("series must hold at least one series, got none")
    ax.set_xscale("log")
    ax.set_yscale("log")
    style.numbers(ax.xaxis)
    style.numbers(ax.yaxis)
    ax.set_xlabel(f"{axis}\nmean ± 2 s.e. of {array.sizes['seed']} seeds; slopes: 95 % interval")
    ax.set_ylabel(style.axis_title(array.attrs, str(array.name), _HIGH))
    style.grid(ax)
    style.legend(ax, title, own, shared=False)
    return ax
