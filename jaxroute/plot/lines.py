"""Draws curves over time, differences between them, and values at the horizon: by policy, against a setting, as quantiles, and as points."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, SupportsFloat

import numpy as np
import xarray as xr

from jaxroute import metrics
from jaxroute.core import checks
from jaxroute.core.attributes import decoded
from jaxroute.metrics.comparisons import is_paired
from jaxroute.plot import style
from jaxroute.plot.axes import HIGH, WIDE, axis_title, grid_lines, marker_places, numbers, places_of, scale_of, settings_axis
from jaxroute.plot.selection import at_end, check_curves, chosen_policies, policy_names, scalar_metric, time_label


@style.styled
def curves(
    data: xr.Dataset,
    metric: str = "regret",
    *,
    band: Literal["stderr", "deviation", "quantile"] | None = "stderr",
    reference: Mapping[str, Sequence[Any] | SupportsFloat] | None = None,
    log: bool | Literal["x", "y"] = False,
    ax: Any = None,
    policies: Sequence[str] | None = None,
    title: str | None = None,
):
    """Draws mean curves over time, a line per policy (and per setting, if there are at most eight). Returns the axes.

    Args:
      data: a result; or paired differences from `metrics.paired`, with the baseline as the zero line.
      metric: name of the metric; may be omitted for paired differences, which have only one.
      band: band around each line: "stderr" for two standard errors, "deviation" for one standard deviation of the runs, "quantile" for
        their 5 to 95 % range, or None. If no run is below zero, the band is cut off at zero.
      reference: dotted grey lines: name to `(times, values)`, or to one number (a budget, a target).
      log: True for two logarithmic axes, "x" or "y" for one.
      ax, policies, title: axes (default: a new figure), policies to draw (default: all), and title.
    """
    if is_paired(data):
        return _curves_of_differences(data, metric, band, reference, log, ax, policies, title)
    data, array = scalar_metric(data, metric)
    check_curves(array)
    if band is not None:
        checks.one_of("band", band, ("stderr", "deviation", "quantile"))
    if log not in (True, False, "x", "y"):
        raise ValueError(f"log must be True, False, 'x' or 'y', got {log!r}")
    drawn = chosen_policies(array, policies)
    ax, styles, own = style.begin(ax, policy_names(array))
    middle, number = metrics.mean(data, metric), metrics.count(data, metric)
    if band == "quantile":
        low, high = (metrics.quantiles(data, metric, q=(q,)).isel(quantile=0) for q in (0.05, 0.95))
    else:
        error = metrics.deviation(data, metric) if band == "deviation" else 2 * metrics.stderr(data, metric)
        low, high = middle - error, middle + error
    used = {name: metrics.own_axes_of(data.sel(policy=name), metric) for name in drawn}
    lines = list(_lines(middle, used))
    for line in lines if log in (True, "y") else ():
        if not (line.of(middle) > 0).any():
            got = f"{log!r} for {line.label!r}"
            raise ValueError(f"log must be False or 'x' where a curve is nowhere positive, got {got}")
    if band is not None and bool((low < 0).any()) and metrics.has_runs(data):
        smallest = float(metrics.pick(data, metric).sel(policy=drawn).min())
        low = low.clip(min=0.0) if smallest >= 0 else low
    _draw_lines(ax, lines, middle, None if band is None else (low, high), log)
    for name, values in (reference or {}).items():
        styles.add([name], role="reference")
        look = styles.style(name)
        if not isinstance(values, Sequence):
            ax.axhline(float(values), label=name, **look)
        elif len(values) == 2 and np.shape(values[0]) == np.shape(values[1]):
            ax.plot(*values, label=name, **look)
        else:
            wrong = checks.show(values)
            raise ValueError(f"reference[{name!r}] must be (times, values) of equal length, or a number, got {wrong}")
    _time_axes(ax, array, log)
    meaning = {"stderr": " ± 2 s.e.", "deviation": " ± 1 s.d.", "quantile": " and 5–95 % range", None: ""}[band]
    seeds = metrics.show_seeds([count for line in lines for count in np.ravel(line.of(number))])
    ax.set_xlabel(f"{time_label(array)}\nmean{meaning} of {seeds}{_violations(data, drawn)}")
    ax.set_ylabel(axis_title(array.attrs, metric, HIGH))
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
    """Draws curves of the paired differences of policies from the baseline `minus`, with two standard errors. Returns the axes.

    Policies share common random numbers, so differences separate curves that coincide to the eye. The zero line is the baseline. `log` makes the
    time axis logarithmic. `ax`, `policies`, `title`: axes (default: a new figure), policies to draw (default: all), and title.
    """
    data, array = scalar_metric(data, metric)
    check_curves(array)
    checks.one_of("minus", minus, policy_names(array))
    drawn = [p for p in chosen_policies(array, policies) if p != minus]
    used = {name: metrics.own_axes_of(data.sel(policy=[name, minus]), metric) for name in drawn}
    found = metrics.paired(data, metric, minus)
    return _draw_differences(found, used, log, ax, title, _violations(data, [minus, *drawn]))


def _curves_of_differences(
    found: xr.Dataset, metric: str, band: Any, reference: Any, log: Any, ax: Any, policies: Any, title: str | None
) -> Any:
    about, array = decoded(found.attrs), found["mean"]
    check_curves(array)
    if metric not in ("regret", "mean", about["metric"]):  # The default, "regret", is accepted, too.
        raise ValueError(f"metric must be {about['metric']!r}, the one of these differences, got {metric!r}")
    for name, value, allowed in (("band", band, ("stderr",)), ("reference", reference, (None,)), ("log", log, (False, "x"))):
        if value not in allowed:
            shown = " or ".join(map(repr, allowed))
            raise ValueError(f"{name} must be {shown} for differences, which have two signs, got {checks.show(value)}")
    if vectors := metrics.vector_dims(array):
        got = f"one per {vectors[0]}: select one with data.sel({vectors[0]}=...)"
        raise ValueError(f"data must have one difference per policy, got {got}")
    drawn = chosen_policies(array, policies)
    used = {name: metrics.own_axes([found[v].sel(policy=name) for v in ("mean", "stderr")]) for name in drawn}
    notes = "".join(f"\n{style.wrapped(note, WIDE)}" for note in about.get("notes", ()))
    return _draw_differences(found, used, log == "x", ax, title, notes)


def _draw_differences(found: xr.Dataset, used: Any, log: bool, ax: Any, title: str | None, notes: str) -> Any:
    """Draws the differences `found`, a result of `metrics.paired`, and the baseline as the zero line. Returns the axes.

    `used` maps each drawn policy to the setting axes on which it depends. If `log`, the time axis is logarithmic. `notes` end the label of this axis.
    """
    array, minus = found["mean"], decoded(found.attrs)["baseline"]
    label = str(array.attrs["long_name"]).removesuffix(f" minus that of {minus}")
    ax, styles, own = style.begin(ax, [minus, *policy_names(array)])
    lines = list(_lines(array, used))
    borders = array - 2 * found["stderr"], array + 2 * found["stderr"]
    look = {name: styles.style(minus)[name] for name in ("color", "linestyle", "linewidth")}
    ax.axhline(0.0, label=minus, **look)
    _draw_lines(ax, lines, array, borders, "x" if log else False)
    _time_axes(ax, array, "x" if log else False)
    seeds = metrics.show_seeds([found["count"].sel(policy=name).values.max() for name in used])
    ax.set_xlabel(f"{time_label(array)}\nmean of paired differences ± 2 s.e. of {seeds}{notes}")
    unit = f" ({array.attrs['units']})" if array.attrs.get("units") else ""
    ax.set_ylabel(f"{style.wrapped(label, HIGH)}\nminus that of {minus}{unit}")
    style.legend(ax, title, own)
    return ax


def _violations(data: xr.Dataset, drawn: Sequence[str]) -> str:
    """Returns lines for a caption: which of the policies `drawn` exceed a limit, such as a budget, at the horizon. Returns "" if none does."""
    by_words: dict[str, list[str]] = {}
    for one in metrics.violations(data):
        if one.policy in drawn and one.policy not in by_words.setdefault(one.words, []):
            by_words[one.words].append(one.policy)
    whole = "\N{NO-BREAK SPACE}"  # A name stays on its line.
    joined = {words: ", ".join(name.replace(" ", whole) for name in names) for words, names in by_words.items() if names}
    return "".join(f"\n{style.wrapped(f'{words}: {names}', WIDE)}" for words, names in joined.items()).replace(whole, " ")


class _Line(NamedTuple):
    """Line of a figure: one policy in one setting.

    Attributes:
      policy: name of the policy.
      label: name in the legend.
      place: index of the setting's value on each setting axis, by the axis's name.
      position: running number of the line among those of the policy, from 0; it decides the shade.
      number: number of lines of the policy.
    """

    policy: str
    label: str
    place: dict[str, int]
    position: int
    number: int

    def of(self, array: xr.DataArray) -> np.ndarray:
        """Returns the policy's values in this setting, `[time]`."""
        return array.sel(policy=self.policy).isel(self.place).values


def _lines(middle: xr.DataArray, used: Mapping[str, Sequence[str]]) -> Iterator[_Line]:
    """Yields a line for each policy and setting in the means `middle`. `used` maps policies to the setting axes on which they depend."""
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
    times, styles, lines = middle["time"].values, style.styles_of(ax), list(lines)
    looks = [styles.shade(line.policy, line.label, line.position, line.number) for line in lines]
    covers = style.separate_overlaps([(times, line.of(middle)) for line in lines], looks, joined=True)
    for number, (line, look, cover) in enumerate(zip(lines, looks, covers, strict=True)):
        shift = number if cover is None else cover + 2  # Midway between the markers of the covering line.
        ax.plot(times, line.of(middle), label=line.label, markevery=marker_places(times, log in (True, "x"), shift), **look)
        if borders is not None:
            low, high = (line.of(border) for border in borders)
            # Many overlapping bands would look like one grey area, so only the band of the strongest line stays strong.
            alpha = 0.18 if len(lines) < 4 or (style.role_of(line.policy) == "subject" and line.number == 1) else 0.09
            ax.fill_between(times, low, high, color=look["color"], alpha=alpha, linewidth=0, zorder=2)


def _time_axes(ax: Any, array: xr.DataArray, log: bool | str) -> None:
    if log in (True, "x"):
        ax.set_xscale("log")
    else:
        ax.set_xlim(0, 1.02 * array["time"].values[-1])
    if log in (True, "y"):
        ax.set_yscale("log")
    numbers(ax.xaxis)
    numbers(ax.yaxis)
    grid_lines(ax)


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
    """Draws a metric at the last recorded time: a dot per policy, or lines against one setting axis. Returns the axes.

    If the settings are 0 and a logarithmic grid, their axis is logarithmic, with 0 at its left end before a dotted line.

    Args:
      data: a result without setting axes, or with one; select a value of each other axis before.
      metric: name of the metric.
      x: name of the setting axis (default: the only one).
      log: whether the axis of the metric is logarithmic; a mean that is not positive then raises ValueError.
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
    size = style.SIZE if axes else (style.SIZE[0], 1.0 + 0.3 * max(len(known), 2))
    ax, styles, own = style.begin(ax, names, size)
    if not axes:
        for row, i in enumerate(known):
            value, bar = float(middle[i]), float(error[i])
            ax.errorbar(value, row, xerr=2 * bar if bar > 0 else None, capsize=2.5, markersize=6, **styles.style(names[i]))
            beside = {"xycoords": ("axes fraction", "data"), "va": "center", "annotation_clip": False}
            ax.annotate(metrics.rounded(value, bar), (1.02, row), fontsize=8, **beside)
        _rows(ax, [names[i] for i in known], f"{axis_title(array.attrs, metric, WIDE)}\n{note}", title)
        if log:
            ax.set_xscale("log")
        ax.margins(x=0.08)
        numbers(ax.xaxis, few=True)
        grid_lines(ax)
        return ax
    (axis,) = axes
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


def _rows(ax: Any, names: Sequence[str], label: str, title: str | None) -> None:
    """Makes the vertical axis a list of names, one row each, the first at the top; `label` is the title of the horizontal axis."""
    state = style.state_of(ax.figure)
    height = state.rows * (1.0 + 0.2 * len(names))
    if state.shared and height > state.size[1]:  # Names in neighbouring rows would touch each other.
        state.size = (state.size[0], height)
        style.share_legend(ax.figure)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel(label)
    style.title(ax, title)


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
    """Draws quantiles over seeds at the last recorded time, for each policy, or for each value of one setting axis. Returns the axes.

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
    if log:
        if not (values > 0).any():
            raise ValueError(f"log must be False where nothing is positive, got True for {metric!r}")
        values = np.maximum(values, 0.7 * float(values[values > 0].min()))
    settings = array[axes[0]].values if axes else np.zeros(1)
    size = style.SIZE if axes else (style.SIZE[0], 1.0 + 0.3 * max(len(drawn), 2))
    ax, styles, own = style.begin(ax, names, size)
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
    note = f"5, 25, 50, 75, 95 % and mean (tick)\nof {metrics.show_seeds(metrics.count(data, metric).values)}{when}"
    grid_lines(ax)
    if axes:
        ax.set_xticks(range(len(settings)), [metrics.show_value(v) for v in settings])
        ax.set_xlabel(f"{x or axes[0]}\n{note}")
        ax.set_ylabel(axis_title(array.attrs, metric, HIGH))
        ax.margins(x=0.06)
        style.legend(ax, title, own)
    else:
        _rows(ax, drawn, f"{axis_title(array.attrs, metric, WIDE)}\n{note}", title)
    return ax


def _one_axis(array: xr.DataArray, x: str | None) -> list[str]:
    """Returns a list with the only setting axis, or [] if there is none. Raises ValueError for several axes, or if `x` is given and not this axis."""
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
    series: Mapping[str, Sequence[Any]], *, x: str, y: str, ax: Any = None, join: bool = True, title: str | None = None
):
    """Draws points of several policies in a plane, such as cost and score, with two standard errors in both directions. Returns the axes.

    Args:
      series: name to points `(x, y)`, each a number or a pair of mean and standard error.
      x, y: labels of the axes, with units and the number of seeds.
      join: whether lines join the points of a name.
      ax, title: axes to draw on (default: a new figure), and title above them.
    """
    ax, styles, own = style.begin(ax, series)
    pairs = {name: [[np.resize([*np.ravel(v), 0.0], 2) for v in place] for place in at] for name, at in series.items()}
    every = {name: np.array(places, float) for name, places in pairs.items() if places}
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
