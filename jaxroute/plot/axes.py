"""Sets numbers, scales, grid lines and titles of axes."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from jaxroute.metrics.texts import show_value
from jaxroute.plot.style import wrapped

# Largest width of a label in letters: along the horizontal axis (WIDE) and the vertical axis (HIGH) of a panel.
WIDE, HIGH = 46, 30


def numbers(axis: Any, span: tuple[float, float] | None = None, few: bool = False) -> None:
    """Labels a matplotlib `Axis`, such as `ax.xaxis`, by plain numbers with commas; on a logarithmic axis, by powers of ten below 1e-4 and from 1e6.

    On a logarithmic axis, `span` is the smallest and largest value to be labelled (default: those in view), and `few` asks for about six labels.
    """
    from matplotlib.ticker import FuncFormatter, LogFormatterMathtext, LogLocator, NullFormatter, ScalarFormatter

    scale = axis.get_scale()
    if scale == "log":
        low, high = span or axis.get_view_interval()
        subs = (1.0,) if high > 300 * low else (1.0, 3.0) if few and high > 100 * low else (1.0, 2.0, 5.0)
        axis.set_major_locator(LogLocator(subs=subs))
        powers = LogFormatterMathtext()
        powers.set_axis(axis)
        axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,g}" if 1e-4 <= v < 1e6 else powers(v)))
        axis.set_minor_formatter(NullFormatter())
        return
    if scale == "symlog":
        axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,g}".replace("-", "\N{MINUS SIGN}")))
        return

    class Commas(ScalarFormatter):
        def format_ticks(self, values):
            texts = super().format_ticks(values)
            if self.get_offset() or not any(abs(v) >= 1_000 for v in values) or any(v != round(v) for v in values):
                return texts
            return [f"{int(v):,}".replace("-", "\N{MINUS SIGN}") for v in values]

    axis.set_major_formatter(Commas())


def grid_lines(ax: Any) -> None:
    ax.grid(visible=True, color="#E4E4E4", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def log_spaced(values: Any) -> bool:
    """Whether numbers are closer to a geometric than to an arithmetic progression, and span a factor of four or more."""
    values = np.asarray(values)
    if values.dtype.kind not in "iuf" or values.size < 3 or values.min() <= 0 or values.max() < 4 * values.min():
        return False
    linear, logarithmic = (np.diff(np.sort(v)) for v in (values, np.log(values)))
    return bool(logarithmic.std() / logarithmic.mean() < 0.5 * linear.std() / linear.mean())


def scale_of(values: Any) -> Literal["names", "linear", "log", "log and 0"]:
    """Returns the scale of an axis: "names" for texts, "log" for `log_spaced` values, "log and 0" for 0 and such values, otherwise "linear"."""
    values = np.asarray(values)
    if values.dtype.kind not in "iuf":
        return "names"
    if log_spaced(values):
        return "log"
    return "log and 0" if values.size and values.min() == 0 and log_spaced(values[values > 0]) else "linear"


def places_of(values: Any) -> np.ndarray:
    """Returns positions on an axis: 0, 1, ... for texts, otherwise the values. On the scale "log and 0" they are log10, with 0 a step below."""
    values, scale = np.asarray(values), scale_of(values)
    if scale == "names":
        return np.arange(len(values), dtype=np.float64)
    if scale != "log and 0":
        return values.astype(np.float64)
    powers = np.log10(np.where(values > 0, values, 1.0))
    known = np.sort(powers[values > 0])
    return np.where(values > 0, powers, known[0] - np.median(np.diff(known)))


def edges(places: np.ndarray, log: bool) -> np.ndarray:
    """Returns the borders `[n + 1]` of a heat map's cells around `n` sorted `places`, midway between neighbours (on a logarithmic axis if `log`)."""
    places = np.log(places) if log else places
    if places.size == 1:
        borders = places[0] + np.array([-0.5, 0.5])
    else:
        middles = (places[1:] + places[:-1]) / 2
        borders = np.concatenate([[2 * places[0] - middles[0]], middles, [2 * places[-1] - middles[-1]]])
    return np.exp(borders) if log else borders


def settings_axis(ax: Any, which: str, values: np.ndarray) -> None:
    """Sets scale and ticks of the axis `which` ("x" or "y") for a setting's values. On a logarithmic axis a dotted line separates 0 from the rest."""
    from matplotlib.ticker import NullLocator

    axis, scale, places = getattr(ax, f"{which}axis"), scale_of(values), places_of(values)
    if scale == "log":
        getattr(ax, f"set_{which}scale")("log")
    if scale == "log and 0":
        first, second = np.sort(places)[:2]
        line = ax.axvline if which == "x" else ax.axhline
        line((first + second) / 2, color="#888888", linewidth=0.9, linestyle=(0, (1, 1.5)), zorder=2.4)
    elif scale != "names" and len(values) > 8:
        numbers(axis, (values.min(), values.max()))
        return
    axis.set_minor_locator(NullLocator())
    every = max(1, -(-len(values) // 10)) if scale == "log and 0" else 1
    texts = [show_value(v) for v in values[::every]]
    is_long = which == "x" and scale == "names" and sum(map(len, texts)) + 2 * len(texts) > 44
    axis.set_ticks(places[::every], texts, **({"rotation": 25, "ha": "right"} if is_long else {}))


def marker_places(times: np.ndarray, log: bool, shift: int) -> list[int]:
    """Returns indices of about eight `times` for markers, evenly spaced (by logarithms if `log`), moved by `shift % 4` quarters of the spacing."""
    if len(times) < 9:
        return list(range(len(times)))
    shares = (np.arange(8) + (shift % 4) / 4) / 8
    first, last = times[0], times[-1]
    targets = first * (last / first) ** shares if log else first + (last - first) * shares
    return sorted({int(np.abs(times - w).argmin()) for w in targets})


def axis_title(attributes: Mapping[str, Any], name: str, width: int) -> str:
    """Returns a metric's label and unit from its `attributes` (without a label: `name`), broken into lines if longer than `width` letters."""
    parts = [str(attributes.get("long_name", name)), *([f"({attributes['units']})"] if attributes.get("units") else [])]
    text = " ".join(parts)
    return text if len(text) <= width else "\n".join(wrapped(part, width) for part in parts)
