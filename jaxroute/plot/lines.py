"""Draws curves over time, and differences between them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, SupportsFloat

import numpy as np
import xarray as xr

from jaxroute import metrics
from jaxroute.core import checks
from jaxroute.core.attributes import decoded
from jaxroute.metrics.comparisons import is_paired
from jaxroute.plot import style
from jaxroute.plot.axes import HIGH, WIDE, axis_title, grid_lines, marker_places, numbers
from jaxroute.plot.selection import check_few_settings, check_time, chosen_policies, policy_names, scalar_metric, time_label


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
    """Draws mean curves over time, a line per policy (and per setting, if there are at most eight).

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
    check_time(array)
    if band is not None:
        checks.one_of("band", band, ("stderr", "deviation", "quantile"))
    if log not in (True, False, "x", "y"):
        raise ValueError(f"log must be True, False, 'x' or 'y', got {log!r}")
    check_few_settings(array)
    drawn = chosen_policies(array, policies)
    own = ax is None
    ax = style.new_axes(ax)
    style.styles_of(ax, policy_names(array))
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
    borders = None if band is None else (low, high)
    _draw_lines(ax, lines, middle, borders, log)
    for name, values in (reference or {}).items():
        style.styles_of(ax).add([name], role="reference")
        look = style.styles_of(ax).style(name)
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
    """Draws the paired differences between the curves of other policies and the curve of the baseline `minus`, with two standard errors.

    Policies share common random numbers, so the differences separate curves that coincide to the eye. The zero line is the baseline. `log` makes
    the time axis logarithmic.
    """
    data, array = scalar_metric(data, metric)
    check_time(array)
    checks.one_of("minus", minus, policy_names(array))
    check_few_settings(array)
    drawn = [p for p in chosen_policies(array, policies) if p != minus]
    used = {name: metrics.own_axes_of(data.sel(policy=[name, minus]), metric) for name in drawn}
    found = metrics.paired(data, metric, minus)
    label, notes = str(array.attrs.get("long_name", metric)), _violations(data, [minus, *drawn])
    return _draw_differences(found, minus, used, label, log, ax, title, notes)


def _curves_of_differences(
    found: xr.Dataset, metric: str, band: Any, reference: Any, log: Any, ax: Any, policies: Any, title: str | None
) -> Any:
    about, array = decoded(found.attrs), found["mean"]
    check_time(array)
    if metric not in ("regret", "mean", about["metric"]):  # The default, "regret", is accepted, too.
        raise ValueError(f"metric must be {about['metric']!r}, the one of these differences, got {metric!r}")
    for name, value, allowed in (("band", band, ("stderr",)), ("reference", reference, (None,)), ("log", log, (False, "x"))):
        if value not in allowed:
            shown = " or ".join(map(repr, allowed))
            raise ValueError(f"{name} must be {shown} for differences, which have two signs, got {checks.show(value)}")
    vectors = metrics.vector_dims(array)
    if vectors:
        got = f"one per {vectors[0]}: select one with data.sel({vectors[0]}=...)"
        raise ValueError(f"data must have one difference per policy, got {got}")
    check_few_settings(array)
    drawn = chosen_policies(array, policies)
    used = {name: metrics.own_axes([found[v].sel(policy=name) for v in ("mean", "stderr")]) for name in drawn}
    label = str(array.attrs["long_name"]).removesuffix(f" minus that of {about['baseline']}")
    notes = "".join(f"\n{style.wrapped(note, WIDE)}" for note in about.get("notes", ()))
    return _draw_differences(found, about["baseline"], used, label, log == "x", ax, title, notes)


def _draw_differences(
    found: xr.Dataset, minus: str, used: Any, label: str, log: bool, ax: Any, title: str | None, notes: str
) -> Any:
    """Draws the differences `found`, a result of `metrics.paired`, and the baseline `minus` as the zero line.

    `used` maps each drawn policy to the setting axes on which it depends, `label` is the name of the metric, `notes` are lines below the caption,
    and `log` makes the time axis logarithmic.
    """
    array = found["mean"]
    own = ax is None
    ax = style.new_axes(ax)
    styles = style.styles_of(ax, [minus, *policy_names(array)])
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
    """Returns lines of a caption that name the drawn policies above a limit at the horizon, such as their budget."""
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
