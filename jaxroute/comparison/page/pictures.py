"""Draws the pictures of a comparison with matplotlib: quality against cost, the course of learning, and other targets.

Pictures are SVG inside the page, and PNG and PDF beside it. Equal summaries give equal bytes. All lengths are in points, which are pixels in a
layout at 72 dpi. Colours follow Okabe and Ito, darkened to a contrast of 4.5 on white, and lightened for dark screens; the page uses the same ones.
Marks differ as well, so no picture relies on colour alone.
"""

import contextlib
import io
import itertools
import math
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator, NullLocator

from jaxroute.comparison.page import numbers, strategies
from jaxroute.comparison.page.labels import Placer, shortened, stand_in
from jaxroute.comparison.page.numbers import known
from jaxroute.comparison.points import PointSummary, Summary

_SERIES = ("#B84300", "#0069A6", "#00755A", "#A03A7F", "#7A5B00", "#6A3D9A", "#AD1F3F", "#2A6B78", "#55690C", "#8A4B2A")
_SERIES_DARK = ("#FF9457", "#5FB8F2", "#3FD0A6", "#F092CC", "#E3BC55", "#BBA1F2", "#FF8A9E", "#6CCBDC", "#B9CE58", "#DDA27F")
_BASE = {"paper": "#FFFFFF", "raised": "#F6F7F9", "ink": "#16191F", "muted": "#5A6270", "rule": "#DDE1E7", "grid": "#ECEEF2"}
_BASE |= {"dot": "#6F7785", "frontier": "#C9CFD9", "accent": "#0B5CAD", "wash": "#EEF4FB"}
_DARK = {"paper": "#14171C", "raised": "#1C2027", "ink": "#ECEFF4", "muted": "#A4ADBB", "rule": "#343A45", "grid": "#242931"}
_DARK |= {"dot": "#98A1AF", "frontier": "#4A5260", "accent": "#7DB9FF", "wash": "#192331"}
# Markers of matplotlib, with relative sizes that make their areas about equal.
MARKERS = {"o": 1.0, "s": 0.9, "^": 1.15, "D": 0.87, "v": 1.15, "P": 1.15, "X": 1.1, "*": 1.4, "h": 1.08}


def _palette(base: dict[str, str], series: tuple[str, ...], tint: float) -> dict[str, str]:
    """Returns colours by name: those of `base`, and the colours in `series`, one for each strategy, called "c0", "c1" and so on.

    The colours of strategies and "muted" also have pale versions, such as "c0-tint": a share `tint` of the colour, mixed with the background "paper".
    """

    def mixed(colour: str) -> str:
        channels = [(int(colour[i : i + 2], 16), int(base["paper"][i : i + 2], 16)) for i in (1, 3, 5)]
        return "#" + "".join(f"{round(tint * a + (1 - tint) * b):02X}" for a, b in channels)

    strong = {f"c{i}": colour for i, colour in enumerate(series)} | {"muted": base["muted"]}
    return base | strong | {f"{name}-tint": mixed(colour) for name, colour in strong.items()}


LIGHT, DARK = _palette(_BASE, _SERIES, 0.3), _palette(_DARK, _SERIES_DARK, 0.38)
_STYLE: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "jaxroute", "pdf.fonttype": 42, "text.parse_math": False}
_STYLE |= {f"axes.spines.{side}": False for side in ("left", "right", "top")}
_STYLE |= {"axes.edgecolor": LIGHT["rule"], "axes.axisbelow": True, "axes.grid": True, "grid.color": LIGHT["grid"]}
_STYLE |= {"xtick.color": LIGHT["rule"], "xtick.labelcolor": LIGHT["muted"], "ytick.labelcolor": LIGHT["muted"]}
_STYLE |= {"ytick.major.size": 0, "ytick.major.pad": 6, "axes.xmargin": 0.045, "axes.ymargin": 0.06}
_STYLE |= {"legend.frameon": False, "legend.borderpad": 0, "legend.borderaxespad": 0, "legend.handlelength": 1.4}
_SPACE = "{http://www.w3.org/2000/svg}"
_VARIABLES = {colour.lower(): f"var(--{name})" for name, colour in LIGHT.items()}
ET.register_namespace("", _SPACE[1:-1])
ET.register_namespace("xlink", "http://www.w3.org/1999/xlink")
_SPAN = 20.0  # The axis of costs is logarithmic if the largest cost is more than this factor times the smallest.
_DOMINATED = 0.5  # Relative size of the mark of a setting that another setting of the strategy dominates.


@dataclass(frozen=True)
class Look:
    """Mark of a strategy.

    Attributes:
      colour: name of a colour in the palette, such as "c0".
      marker: shape, as in matplotlib.
      fill: "full" for online policies, "tint" (a paler colour) for fitted rules, "hollow" for strategies that cannot be deployed.
    """

    colour: str = "dot"
    marker: str = "o"
    fill: Literal["full", "tint", "hollow"] = "full"

    @property
    def face(self) -> str:
        """Name of the colour inside the mark."""
        return {"full": self.colour, "tint": f"{self.colour}-tint", "hollow": "paper"}[self.fill]

    @property
    def hollow(self) -> "Look":
        """Same mark without a filling."""
        return replace(self, fill="hollow")


def looks_of(summary: Summary) -> dict[str, Look]:
    """Returns marks by strategy: coloured for online policies and fitted rules, grey and hollow for upper bounds. Single models have no entry."""
    looks, markers = {}, list(MARKERS)
    groups = strategies.series(summary["points"])
    routing = [name for name, points in groups.items() if points[0]["kind"] != "bound"]
    for i, name in enumerate(routing):
        first = groups[name][0]
        fill = "hollow" if first["without"] else "full" if first["kind"] == "online" else "tint"
        looks[name] = Look(f"c{i % len(_SERIES)}", markers[i % len(markers)], fill)
    bounds = [name for name in groups if name not in looks]
    return looks | {name: Look("muted", markers[i % len(markers)], "hollow") for i, name in enumerate(bounds)}


class Form(NamedTuple):
    """Sizes of one version (wide or narrow) of the main picture, in points (1/72 inch) unless they are counts.

    Attributes:
      width: width of the picture.
      height: height without the legend.
      font: size of letters.
      radius: radius of marks.
      letters: largest number of letters of a label.
      singles: largest number of single models with a label.
      ticks: largest number of ticks of costs.
      limits: values of `limit` of `Placer.place` for a strategy's label, tried in this order until there is a place.
    """

    width: float
    height: float
    font: float
    radius: float
    letters: int
    singles: int
    ticks: int
    limits: tuple[float, ...]


WIDE = Form(1080, 560, 12.5, 5.2, 34, 14, 9, (30, 70))
NARROW = Form(360, 400, 10.5, 4.2, 20, 5, 5, (12,))
_SMALL, _SMALL_AXES = (430, 270), (58, 44, 412, 242, 12)  # Sizes of the other pictures.


class Picture:
    """Figure of matplotlib with a description.

    Attributes:
      title: description for readers who cannot see the picture.
      figure: the matplotlib figure.
    """

    def __init__(self, title: str, width: float, height: float) -> None:
        self.title = title
        self.figure = Figure((width / 72, height / 72), dpi=72, facecolor=LIGHT["paper"])
        self._renderer = FigureCanvasAgg(self.figure).get_renderer()

    def axes(self, left: float, bottom: float, right: float, top: float, font: float, titles: tuple[str, str]) -> Any:
        """Adds and returns axes with these sides, in points from the picture's left or lower edge, and writes its `titles` (x, y) in size `font`."""
        width, height = self.figure.bbox.size
        ax = self.figure.add_axes((left / width, bottom / height, (right - left) / width, (top - bottom) / height))
        ax.tick_params(labelsize=font - 1)
        look = {"fontsize": font, "weight": "bold", "color": LIGHT["ink"]}
        self.figure.text(right / width, (bottom - 38) / height, titles[0], ha="right", **look)
        self.figure.text(2 / width, (top + 10) / height, titles[1], **look)
        return ax

    def size(self, artist: Any) -> tuple[float, float]:
        return artist.get_window_extent(self._renderer).size

    def legend(self, handles: Sequence[Line2D], font: float, colour: str) -> Any:
        """Adds and returns a legend of `handles`, its text in size `font` and a `colour` of the palette, with as many columns (at most 8) as fit."""
        for columns in range(min(len(handles), 8), 0, -1):
            look = {"columnspacing": 1.6, "handletextpad": 0.5, "labelspacing": 0.55, "labelcolor": LIGHT[colour]}
            made = self.figure.legend(handles=handles, loc="lower left", fontsize=font, ncols=columns, **look)
            if self.size(made)[0] <= self.figure.bbox.width - 8 or columns == 1:
                return made
            made.remove()


def _mark(ax: Any, xy: Sequence[float], look: Look, radius: float, tip: str) -> None:
    """Draws a strategy's mark of a `radius` in points at `xy`. The page shows the text `tip` while the pointer is over it."""
    ax.plot(*zip(xy, strict=True), gid=f"tip: {tip}", zorder=4, **_marker(look, radius))


def _marker(look: Look, radius: float) -> dict[str, Any]:
    full = look.fill == "full"
    colours = {"mfc": LIGHT[look.face], "mec": LIGHT["paper" if full else look.colour], "mew": 0.8 if full else 1.4}
    return {"marker": look.marker, "ms": 2 * radius * MARKERS[look.marker], "ls": "none", **colours}


def _ring(colour: str, radius: float) -> dict[str, Any]:
    return {"ls": "none", "marker": "o", "mfc": "none", "mec": LIGHT[colour], "mew": 2, "ms": 2 * radius}


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Switches to the style of the page while a picture is drawn, and hides warnings about letters that the font lacks."""
    with warnings.catch_warnings(), matplotlib.rc_context():
        warnings.simplefilter("ignore")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def tip_of(point: PointSummary, summary: Summary) -> str:
    """Describes a point in words: strategy, setting, quality, cost and, if it cannot be deployed, the reason."""
    quality, cost = numbers.percent(point["quality"]), numbers.measured(point["cost"], summary["data"]["unit"])
    lines = [f"{point['strategy']}, {point['setting']}".removesuffix(", "), f"quality {quality}", f"cost {cost}"]
    return ", ".join(lines if strategies.deployable(point) else [*lines, strategies.obstacle(point)])


@style()
def quality_cost(summary: Summary, looks: dict[str, Look], form: Form = WIDE) -> Picture:
    """Draws quality against cost of all points (marks `looks`, sizes `form`), the target, the Pareto frontier and the most important names."""
    points = [p for p in summary["points"] if strategies.drawable(p)]
    best, single = strategies.best(summary), strategies.cheapest_single(summary)
    title = f"Quality against cost in {summary['data']['unit']}, target {numbers.share(summary['target'])}."
    for name, point in ((strategies.CHEAPEST, best), ("cheapest single model that does", single)):
        title += f" {name.capitalize()}: {tip_of(point, summary)}." if point is not None else ""
    picture = Picture(f"{title} All values are in the tables below.", form.width, form.height)
    legends = [picture.legend(h, form.font - 0.5, c) for h, c in _handles(points, looks, best, single, form) if h]
    heights = [picture.size(legend)[1] + 10 for legend in legends]
    height, bottom = form.height + sum(heights), 46 + sum(heights)
    picture.figure.set_size_inches(form.width / 72, height / 72)
    for i, legend in enumerate(legends):
        legend.set_bbox_to_anchor((4 / form.width, (4 + sum(heights[i + 1 :])) / height), picture.figure.transFigure)

    costs = [p["cost"][0] for p in points]
    log = _needs_log(costs)
    titles = f"cost, {shortened(summary['data']['unit'], 30)}{' (log scale)' if log else ''}", "quality, %"
    left, right, top = 2.7 * form.font, form.width - 2 * form.font, height - 26
    ax = picture.axes(left, bottom, right, top, form.font, titles)
    target = 100 * summary["target"]
    ax.axhline(target, color=LIGHT["accent"], lw=1.5, ls=(0, (4, 2.7)), zorder=2)
    least = 0.5 * min((c for c in costs if c > 0), default=0.0)  # Error bars stay above it.
    for point in (p for p in points if p["kind"] == "single"):
        _error_bar(ax, point, "dot", least)
        look = Look(fill="hollow") if point.get("evidence") == "extrapolated" else Look()
        _mark(ax, _xy(point), look, form.radius * 0.62, tip_of(point, summary))
    groups = strategies.series(points)
    for name in reversed(groups):  # Online policies are drawn last, on top.
        look, front = looks[name], strategies.frontier(groups[name])
        dash = (0, (2.5, 2.5)) if look.fill == "hollow" else "-"
        ax.plot(*zip(*map(_xy, front), strict=True), color=LIGHT[look.colour], lw=1.2, ls=dash, alpha=0.6, zorder=3)
        for point in sorted(groups[name], key=lambda p: any(p is f for f in front)):
            good = any(point is f for f in front)
            if good:
                _error_bar(ax, point, look.colour, least)
            mark = look.hollow if point.get("evidence") == "extrapolated" else look
            _mark(ax, _xy(point), mark, form.radius * (1.0 if good else _DOMINATED), tip_of(point, summary))
    for point, colour, more, name in ((single, "ink", 2.5, "single"), (best, "accent", 4.5, "best")):
        if point is not None:
            ax.plot(*zip(_xy(point), strict=True), label=name, zorder=5, **_ring(colour, form.radius + more))
    _cost_axis(ax, "x", costs, form.ticks)
    _linear_axis(ax, "y", 7)
    seen = [p for p in points if strategies.deployable(p) and p.get("evidence") != "extrapolated"]
    front = [_xy(p) for p in strategies.frontier(seen)]
    if front:
        front.append((ax.get_xlim()[1], front[-1][1]))
        ax.step(*zip(*front, strict=True), where="post", color=LIGHT["frontier"], lw=5, zorder=1, label="frontier")
    ax.axhspan(target, ax.get_ylim()[1], color=LIGHT["wash"], lw=0, zorder=0)
    _label(picture, ax, Placer((left + 3, bottom + 3, right, top - 2)), summary, looks, front, form)
    return picture


def _xy(point: PointSummary) -> tuple[float, float]:
    return point["cost"][0], 100 * point["quality"][0]


def _error_bar(ax: Any, point: PointSummary, colour: str, least: float) -> None:
    """Draws bars of one standard error, cut off at qualities of -2 and 102 %, and at the cost `least`, as a logarithmic axis has no 0.

    Of a served log, it draws the interval of the quality, and nothing for extrapolated values.
    """
    if point.get("evidence") in ("reweighted", "extrapolated"):
        if point["quality_interval"] is not None:
            low, high = (100 * end for end in point["quality_interval"])
            ax.vlines(point["cost"][0], low, high, LIGHT[colour], linewidth=1.1, alpha=0.45, zorder=3)
        return
    (x, y), (across, up) = _xy(point), (e if known(e) else 0.0 for e in (point["cost"][1], point["quality"][1]))
    up = [[min(100 * up, y + 2)], [max(min(100 * up, 102 - y), 0)]]
    across = [[max(min(across, x - least), 0)], [across]] if x > 0 else None
    ax.errorbar(x, y, up, across, fmt="none", ecolor=LIGHT[colour], elinewidth=1.1, alpha=0.45, zorder=3)


def _needs_log(costs: Sequence[float]) -> bool:
    positive = [c for c in costs if c > 0]
    return bool(positive) and max(positive) > _SPAN * min(positive)


def _linear_axis(ax: Any, letter: str, most: int) -> None:
    _set_ticks(ax, letter, MaxNLocator(most, steps=[1, 2, 5, 10]).tick_values(*getattr(ax, f"get_{letter}lim")()))


def _cost_axis(ax: Any, letter: str, costs: Sequence[float], most: int) -> None:
    """Scales an axis ("x" or "y") for `costs`, with up to `most` ticks. For a wide range it is logarithmic, and a dashed line sets off zero costs."""
    low, high = getattr(ax, f"get_{letter}lim")()
    if not _needs_log(costs):
        getattr(ax, f"set_{letter}lim")(max(low, -0.02 * high) if max(costs, default=0.0) > 0 else low)
        return _linear_axis(ax, letter, most)
    least, free = min(c for c in costs if c > 0), min(costs) <= 0
    options = {"linthresh": 0.8 * least, "linscale": 0.4} if free else {}
    getattr(ax, f"set_{letter}scale")("symlog" if free else "log", **options)
    getattr(ax, f"set_{letter}lim")(-0.25 * least if free else None)
    low, high = getattr(ax, f"get_{letter}lim")()
    powers = range(math.floor(math.log10(0.3 * least)), math.ceil(math.log10(high)) + 1)
    for leads in ((1, 2, 5), (1, 3), (1,)):
        ticks = [float(f"{lead}e{power}") for power in powers for lead in leads]
        ticks = [v for v in ticks if max(low, 0.5 * least) <= v <= high]
        if len(ticks) <= most:
            break
    if free:
        draw = ax.axvline if letter == "x" else ax.axhline
        draw(0.4 * least, color=LIGHT["rule"], lw=1.2, ls=(0, (2, 3)), zorder=1)
    _set_ticks(ax, letter, [*([0.0] if free else []), *ticks[:: max(1, -(-len(ticks) // most))]], log=True)


def _set_ticks(ax: Any, letter: str, ticks: Sequence[float], log: bool = False) -> None:
    low, high = getattr(ax, f"get_{letter}lim")()
    ticks = [float(tick) for tick in ticks if low <= tick <= high]
    getattr(ax, f"set_{letter}ticks")(ticks, numbers.ticks(ticks, log))
    getattr(ax, f"{letter}axis").set_minor_locator(NullLocator())
    getattr(ax, f"set_{letter}lim")(low, high)


def _label(
    picture: Picture, ax: Any, placer: Placer, summary: Summary, looks: dict[str, Look], front: Any, form: Form
) -> None:
    """Writes names of the target, the strategies and some single models where `placer` has space. They avoid the Pareto frontier `front`."""
    place, target = ax.transData.transform, 100 * summary["target"]
    groups = strategies.series(filter(strategies.drawable, summary["points"]))
    (left, y), (right, _) = place([(x, target) for x in ax.get_xlim()])
    placer.avoid_line([(left, y), (right, y)], 8.0)
    corners = [corner for a, b in itertools.pairwise(front) for corner in (a, (b[0], a[1]))]
    if front:
        placer.avoid_line(place([*corners, front[-1]]), 1.0)
    singles = [p for p in strategies.singles(summary) if strategies.drawable(p)]
    placer.avoid([place(_xy(p)) for p in singles], 4.0, 26.0)
    for points in groups.values():
        ends = place(list(map(_xy, strategies.frontier(points))))
        placer.avoid_line(ends, 2.5)
        placer.avoid(ends, form.radius + 2, 24.0)

    def put(ends, words, colour, size, limits=(1e9,), weight="normal", gap=form.radius + 4) -> bool:
        look = {"fontsize": size, "weight": weight, "color": LIGHT[colour], "va": "bottom", "zorder": 9}
        made = ax.annotate(stand_in(words), (0, 0), xycoords="figure points", **look)
        extent = picture.size(made)
        made.set_text(words)
        for limit, at in ((limit, at) for limit in limits for at in ends):
            if (found := placer.place(extent, at, gap, limit)) is not None:
                (x, y, *_), end = found
                made.set_position((x, y))
                if end is not None:
                    arrow = {"arrowstyle": "-", "color": LIGHT["dot"], "lw": 0.8, "shrinkA": 0, "shrinkB": 0.75 * gap}
                    ax.annotate("", at, end, "figure points", "figure points", arrow, zorder=8)
                return True
        made.remove()
        return False

    def name(points, words, *look, **options) -> bool:
        return put([place(_xy(p)) for p in points], shortened(words, form.letters), *look, **options)

    words = f"target {numbers.share(summary['target'])}"
    put([(left, y), (right, y)], words, "accent", form.font, (30.0, 1e9), "bold", 6.0)
    best, single, gap = strategies.best(summary), strategies.cheapest_single(summary), form.radius + 4
    if best is not None and best["kind"] != "single":
        name([best], best["strategy"], looks[best["strategy"]].colour, form.font + 1, weight="bold", gap=gap + 4)
    if single is not None:
        name([single], strategies.name_of(single), "ink", form.font + (single is best), weight="bold", gap=gap + 2)
    for strategy, points in groups.items():
        if best is None or strategy != best["strategy"]:
            answer = [p for p in points if p["answer"]]
            name([*answer[:1], points[-1], points[0]], strategy, looks[strategy].colour, form.font, form.limits)
    first = strategies.frontier(p for p in singles if p is not single)
    others = [p for p in singles if p is not single and not any(p is f for f in first)]
    step, named = max(1, len(others) // 8), 0  # Models on the frontier are named first, then models spread over all costs.
    for point in [*first, *(p for start in range(step) for p in others[start::step])]:
        if named < form.singles:
            words, limits = strategies.name_of(point), (min(26.0, *form.limits),)
            named += name([point], words, "muted", form.font - 1.5, limits, gap=gap - 1)


def _handles(
    points: list[PointSummary], looks: dict[str, Look], best: PointSummary | None, single: PointSummary | None, form: Form
) -> list[tuple[list[Line2D], str]]:
    """Returns two legends as (entries, text colour): one names strategies, one explains fillings, lines and rings around `best` and `single`."""

    def entry(label: str, look: Look, size: float = 1.0) -> Line2D:
        return Line2D([], [], label=label, **_marker(look, size * form.radius))

    drawn, kinds = {p["strategy"] for p in points}, {p["kind"] for p in points if strategies.deployable(p)}
    names = [entry(shortened(name, form.letters), look) for name, look in looks.items() if name in drawn]
    marks = [entry("filled: learns online", Look("muted"))] if "online" in kinds else []
    marks += [entry("pale: fitted beforehand", Look("muted", fill="tint"))] if "offline" in kinds else []
    rare = [strategies.obstacle(of[0]) for of in strategies.series(points).values() if not strategies.deployable(of[0])]
    marks += [entry(f"hollow: {text}", Look("muted", fill="hollow")) for text in dict.fromkeys(rare)]
    if kinds & {"online", "offline"}:
        marks.append(entry("small: dominated by another setting", Look("muted"), _DOMINATED))
    marks += [entry("one model for all queries", Look(), 0.62)] if "single" in kinds else []
    is_served = any("evidence" in p for p in points)
    meets = "cheapest that is proven to meet the target" if is_served else strategies.CHEAPEST
    does = "cheapest single model that is proven to" if is_served else "cheapest single model that does"
    rings = [(best, meets, "accent"), *([(single, does, "ink")] if single is not best else [])]
    marks += [Line2D([], [], label=text, **_ring(c, form.radius + 1.5)) for point, text, c in rings if point is not None]
    marks.append(Line2D([], [], color=LIGHT["frontier"], lw=5, label="Pareto frontier"))
    bar = {"ls": "none", "marker": "|", "mfc": "none", "mec": LIGHT["muted"], "mew": 1.1, "ms": 12}
    if any(p.get("evidence") == "extrapolated" for p in points):
        marks.append(entry("hollow: extrapolated, no interval", Look(fill="hollow"), 0.62))
    text = "95 % interval, for all rules together" if is_served else "\N{PLUS-MINUS SIGN} one standard error"
    marks.append(Line2D([], [], label=text, **bar))
    return [(names, "ink"), (marks, "muted")]


def _dashed(ax: Any, draw: Any, place: float, words: str) -> None:
    """Draws a dashed line across `ax` at the coordinate `place`, by `draw` (`ax.axvline` or `ax.axhline`), and writes `words` above the axes."""
    draw(place, color=LIGHT["accent"], lw=1.3, ls=(0, (4, 3)))
    ax.set_title(f"- - {words}", loc="right", fontsize=11, color=LIGHT["accent"], pad=9)


@style()
def while_learning(summary: Summary, points: Sequence[Any], looks: dict[str, Look]) -> list[Picture]:
    """Draws quality and cost of online policies, at their chosen settings `points`, against the queries served: two pictures without a legend."""
    unit = shortened(summary["data"]["unit"], 30)
    made, names = [], ", ".join(p["strategy"] for p in points)
    for kind, title, scale in (("quality", "quality, %", 100.0), ("cost", f"cost, {unit}", 1.0)):
        picture = Picture(f"{kind.capitalize()} while learning: {names}", *_SMALL)
        ax = picture.axes(*_SMALL_AXES, ("queries served", title))
        values = []
        for point in points:
            look, curve = looks[point["strategy"]], [scale * v if known(v) else math.nan for v in point["learning"][kind]]
            dash = "-" if strategies.deployable(point) else (0, (1.7, 1.7))
            line = {**_marker(look.hollow, 4.0), "color": LIGHT[look.colour], "lw": 1.8, "ls": dash, "zorder": 3}
            ax.plot(point["learning"]["queries"], curve, **line)
            values += [v for v in curve if known(v)]
        ax.set_xlim(0)
        _linear_axis(ax, "x", 6)
        if kind == "quality":
            _dashed(ax, ax.axhline, 100 * summary["target"], f"target {numbers.share(summary['target'])}")
            _linear_axis(ax, "y", 5)
        else:
            _cost_axis(ax, "y", values, 5)
        made.append(picture)
    return made


@style()
def other_targets(summary: Summary, looks: dict[str, Look]) -> Picture:
    """Draws the cost of the cheapest strategy and of the cheapest single model for each examined target."""
    rows, unit = summary["sensitivity"], shortened(summary["data"]["unit"], 30)
    costs = {model["name"]: model["cost"][0] for model in summary["data"]["models"]}
    picture = Picture("Cost of the best strategy and of the cheapest single model for other targets", *_SMALL)
    ax = picture.axes(*_SMALL_AXES, ("target, %", f"cost, {unit}"))
    best = [row["cost"][0] if row["cost"] else None for row in rows]
    single = [costs.get(row["single"] or "") for row in rows]
    lines = (("single", single, "dot", "single model"), ("strategy", best, "accent", "best strategy"))
    for key, values, colour, name in lines:
        places = [(100 * row["target"], v if known(v) else math.nan) for row, v in zip(rows, values, strict=True)]
        ax.plot(*zip(*places, strict=True), color=LIGHT[colour], lw=1.8, label=name, zorder=3)
        for row, place in zip(rows, places, strict=True):
            tip = f"target {numbers.share(row['target'])}, {row[key]}, {numbers.plain(place[1], unit)}"
            _mark(ax, place, looks.get(row[key] or "", Look()), 4.0, tip)
    _dashed(ax, ax.axvline, 100 * summary["target"], f"requested: {numbers.share(summary['target'])}")
    _linear_axis(ax, "x", 6)
    _cost_axis(ax, "y", [v for v in [*best, *single] if known(v)], 5)
    ax.legend(loc="best", fontsize=11, labelcolor="linecolor")
    return picture


@style()
def overlap(summary: Summary) -> Picture:
    """Draws for each model of a served log the number of its answers, and the effective sample size of "always this model", with the least one."""
    rows = sorted(summary["overlap"], key=lambda row: row["answers"])
    about = ", ".join(f"{row['name']} {row['answers']:,} and {row['size']:.0f}" for row in reversed(rows))
    height = 84 + 34 * len(rows)
    picture = Picture(f"Answers and effective sample size of each model: {about}", _SMALL[0], height)
    ax = picture.axes(14, 44, 412, height - 28, 12, ("answers, and effective sample size (dark)", ""))
    largest = max(max(row["answers"], row["size"]) for row in rows)
    for place, row in enumerate(rows):
        for value, colour, width in ((row["answers"], "frontier", 9), (row["size"], "accent", 4)):
            ax.plot([1, max(value, 1)], [place, place], color=LIGHT[colour], lw=width, solid_capstyle="butt", zorder=3)
        name = f"{shortened(row['name'], 40)}  {numbers.percent((row['share'], None))}"
        ax.text(1.05, place + 0.3, name, fontsize=11, color=LIGHT["ink"], zorder=4)
    ax.set_xscale("log")
    ax.set_xlim(1, 1.5 * largest)
    ax.set_ylim(-0.5, len(rows) - 0.1)
    ax.set_yticks([])
    ticks = [10.0**power for power in range(math.ceil(math.log10(max(largest, 1))) + 1)]
    ax.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.axvline(summary["least_size"], color=LIGHT["accent"], lw=1.3, ls=(0, (4, 3)))
    ax.set_title(
        f"- - least for an interval: {summary['least_size']:g}", loc="right", fontsize=11, color=LIGHT["accent"], pad=9
    )
    return picture


@style()
def svg(picture: Picture, name: str) -> Markup:
    """Converts a picture to an SVG element of the page, of the CSS class `name`, in the colours of the page's style sheet.

    Inline styles, which the page forbids, become attributes. Identifiers and clip paths are dropped, as several pictures would have the same.
    """
    matplotlib.rcParams["svg.hashsalt"] = name
    stream = io.StringIO()
    picture.figure.savefig(stream, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    root = ET.fromstring(stream.getvalue())
    for definitions in root.findall(f"{_SPACE}defs"):
        root.remove(definitions)
    for part in list(root.iter()):
        attributes, tag = part.attrib, part.tag.removeprefix(_SPACE)
        styles = [entry.split(":", 1) for entry in attributes.pop("style", "").split(";") if entry]
        styles = {key.strip(): value.strip() for key, value in styles}
        attributes.update({key: _VARIABLES.get(value, value) for key, value in styles.items() if key != "font-family"})
        for key in {"d", "x", "y"} & set(attributes):
            attributes[key] = re.sub(r"\d+\.\d+", lambda n: f"{float(n[0]):.1f}", " ".join(attributes[key].split()))
        attributes.pop("clip-path", None)
        if tag == "text":
            del attributes["transform"]  # All texts are horizontal.
        if tag == "g":
            kind, _, tip = attributes.pop("id", "").partition(": ")
            if kind == "tip":
                part.insert(0, title := ET.Element(f"{_SPACE}title"))
                title.text = tip
        part.text, part.tail = part.text if tag == "text" else None, None
    root.attrib = {"viewBox": root.get("viewBox", ""), "role": "img", "aria-label": picture.title, "class": name}
    return Markup(ET.tostring(root, encoding="unicode"))


@style()
def files(picture: Picture) -> dict[str, bytes]:
    """Returns the content of a picture as PNG and as PDF, by file extension."""
    for label in picture.figure.axes[0].texts:
        label.set_path_effects([withStroke(linewidth=2.5, foreground=LIGHT["paper"])])
    made = {}
    for kind, metadata in (("png", {"Software": None}), ("pdf", {"CreationDate": None})):
        picture.figure.savefig(stream := io.BytesIO(), format=kind, dpi=144, metadata=metadata)
        made[kind] = stream.getvalue()
    return made


def symbol(look: Look) -> Markup:
    """Draws the mark of a strategy as a small SVG element, which the page shows beside the strategy's name."""
    marker, size = MarkerStyle(look.marker), 10 * MARKERS[look.marker]
    corners = np.asarray(marker.get_path().transformed(marker.get_transform().scale(size, -size)).to_polygons()[0])[:-1]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in corners) + "Z"
    path = "M-5 0A5 5 0 1 1 5 0A5 5 0 1 1-5 0Z" if look.marker == "o" else path
    shape = Markup('<path d="{}" fill="var(--{})" stroke="var(--{})"/>').format(path, look.face, look.colour)
    return Markup('<svg class="symbol" viewBox="-8 -8 16 16" aria-hidden="true">{}</svg>').format(shape)
