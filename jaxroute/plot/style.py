"""How figures look: who is drawn in which colour, what axes, titles and legends are like.

Colours follow names, not places: a policy looks alike in all panels of a figure and, if it is one of the built-in problems', in all
figures. The system that a problem is named for is the thickest line, in vermilion, its variants are warm, its rivals cold, policies that
decide nothing pale, and those that know the truth thin, dashed and black or grey: they lie over the others and hide none of them.
"""

import functools
import textwrap
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxroute import metrics
from jaxroute.core import checks

SIZE = (4.4, 3.0)  # Of one panel, in inches.
_LINE = 0.18  # Height of a line of a legend, in inches.

HOUSE: dict[Any, Any] = {
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


def pyplot() -> Any:
    """The plotting module, imported when something is drawn."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError('plots need matplotlib: pip install "jaxroute[plot]"') from None
    return plt


def styled(function: Callable) -> Callable:
    """Draws in the house style, whatever the user's own defaults, and leaves those as they were.

    What all functions that draw have in common is checked here: names of arguments, the axes, and the title.
    """

    @functools.wraps(function)
    def draw(*args, **kwargs):
        checks.keywords(function.__name__, function, kwargs)
        ax, heading = kwargs.get("ax"), kwargs.get("title")
        if ax is not None and not hasattr(ax, "xaxis"):
            raise ValueError(f"ax must be the axes of one panel, or None for a new figure, got {checks.show(ax)}")
        if not (heading is None or isinstance(heading, str)):
            raise ValueError(f"title must be a text or None, got {checks.show(heading)}")
        parameters = pyplot().rcParams
        # Not `rc_context`, which would also undo what importing a notebook's backend sets.
        before = {name: parameters[name] for name in HOUSE}
        parameters.update(HOUSE)
        try:
            return function(*args, **kwargs)
        finally:
            parameters.update(before)

    return draw


# Who is drawn how.


class _Role(NamedTuple):
    """What the policies of one kind have in common: colours, width of the line, and height in the stack of lines."""

    colours: tuple[str, ...]
    width: float
    zorder: float
    dashes: tuple[Any, ...]


_SOLID = "-"
_DASHES = (_SOLID, (0, (5, 1.6)), (0, (5, 1.3, 1.2, 1.3)), (0, (1.4, 1.2)), (0, (8, 1.6)), (0, (5, 1.2, 1.2, 1.2, 1.2, 1.2)))
_DOTS = ((0, (1, 1.3)), (0, (4, 1.3, 1, 1.3)), (0, (2.5, 1.3)), (0, (7, 1.5)), (0, (1, 3)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# After Okabe and Ito, whose colours differ for colour-blind readers too: vermilion for the subject.
_COLD = (
    "#0072B2",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#6A3D9A",
    "#1B5E63",
    "#8A8D00",
    "#7A90B8",
    "#00324F",
    "#6CC08B",
    "#8C2D78",
    "#A6A6E0",
)
_ROLES = {
    "subject": _Role(("#D55E00",), 2.4, 3.6, (_SOLID,)),
    "variant": _Role(("#E69F00", "#9E1B32", "#7F4A1E", "#F0767F", "#B8860B"), 1.8, 3.4, _DASHES[1:]),
    "rival": _Role(_COLD, 1.5, 3.0, _DASHES),
    "weak": _Role(("#B8AD9C", "#A9BCCB", "#C3B3D1", "#AFC7A8", "#D6BE9C"), 1.3, 2.6, _DASHES),
    "oracle": _Role(("#000000", "#555555", "#8C8C8C"), 1.2, 4.0, _DASHES[1:]),
    "reference": _Role(("#333333", "#6B6B6B"), 1.1, 2.5, _DOTS),
}
# The systems that the problems are named for.
_SUBJECTS = ("StageRoute", "MESS+", "C2MAB-V (c)", "C2MAB-V", "ACQB", "COSMOS")
_WEAK = ("random", "uniform", "always ", "query all", "round robin")
_ORACLES = ("oracle", "optimal", "clairvoyant", "best single", "bestsingle", "contextsingle")
# Rivals that several figures of a problem share, in the order of their colours.
_RIVALS = {
    name: place
    for names in (
        ("UCB1", "GaussianThompson", "BetaThompson", "EpsilonGreedy"),
        ("Greedy", "GreedyByRatio", "GreedyToBest", "NoFiller", "RandomFiller", "IndexFiller", "RandomTie", "Lemma3"),
        ("EducatedGuessing", "RouterDC", "RouteLLM"),
        ("CUCB", "Thompson", "Direct", "EpsilonGreedy", "ConstrainedThompson"),
        ("CQB-eps", "Q-UCB", "Q-ThS"),
        (
            "frugal",
            "greedy",
            "one call",
            "static index",
            "LinUCB",
            "Thompson sampling",
            "explore then commit",
            "epsilon-greedy",
        ),
    )
    for place, name in enumerate(names)
}


def role_of(name: str) -> str:
    """What a policy is in a figure, by its name: "subject", "variant" (of the subject), "oracle", "weak" or "rival"."""
    if name in _SUBJECTS:
        return "subject"
    if name in _RIVALS:
        return "rival"
    if any(name.startswith(s) and not name[len(s)].isalnum() for s in _SUBJECTS if len(name) > len(s)):
        return "variant"
    low = name.lower()
    if low.startswith(_ORACLES):
        return "oracle"
    return "weak" if low.startswith(_WEAK) else "rival"


class Cast:
    """Who is drawn how in one figure: what a name gets at first it keeps in all panels."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[str, int]] = {}
        self._shades: dict[str, tuple[str, dict[str, Any]]] = {}

    def enrol(self, names: Iterable[str], role: str | None = None) -> None:
        """Gives looks to names that have none; those of known rivals first, the others what is left."""
        new = [n for n in dict.fromkeys(names) if n not in self._places]
        for name in sorted(new, key=lambda n: n not in _RIVALS):
            kind = role or role_of(name)
            taken = {place for other, place in self._places.values() if other == kind}
            wanted = _RIVALS.get(name, 0) if kind == "rival" else 0
            self._places[name] = (kind, next(p for p in range(wanted, wanted + len(taken) + 1) if p not in taken))

    def style(self, name: str) -> dict[str, Any]:
        """Colour, dash, marker, width and height of a name's line, as arguments of `plot`."""
        self.enrol([name])
        kind, place = self._places[name]
        role = _ROLES[kind]
        style = {
            "color": role.colours[place % len(role.colours)],
            "linestyle": role.dashes[place % len(role.dashes)],
            "linewidth": role.width,
            "zorder": role.zorder,
        }
        if kind == "reference":
            return style
        return style | {"marker": _MARKERS[place % len(_MARKERS)], "markeredgecolor": "white", "markeredgewidth": 0.6}

    def shade(self, name: str, label: str, position: int, number: int) -> dict[str, Any]:
        """The look of one of several settings of a policy: from light to dark, with dashes and markers that differ too."""
        if label not in self._shades:
            style = self.style(name)
            if number > 1:
                style["color"] = _mixed(style["color"], position, number)
                style["linestyle"] = _DASHES[position % len(_DASHES)]
                style["marker"] = _MARKERS[position % len(_MARKERS)]
                style["linewidth"] = min(style["linewidth"], 1.8)
            self._shades[label] = (name, style)
        return dict(self._shades[label][1])

    def rank(self, label: str) -> int:
        """Place of a label in a legend: the subject first, then its variants, rivals, weak policies, oracles and bounds."""
        name = self._shades[label][0] if label in self._shades else label
        kinds = list(_ROLES)
        return kinds.index(self._places[name][0]) if name in self._places else len(kinds)


def _mixed(colour: str, position: int, number: int) -> tuple[float, ...]:
    """One of `number` steps from a light to a dark tone of a colour, which stands in the middle.

    Many steps go from yellow to violet and are told apart by that; two or three keep the colour, by which policies are told apart.
    """
    place = 2 * position / (number - 1) - 1
    light, dark, reach = (
        ((0.98, 0.86, 0.45), (0.10, 0.0, 0.18), 0.72) if number > 3 else ((1.0, 1.0, 1.0), (0.0, 0.0, 0.0), 0.45)
    )
    end, part = (light, -reach * place) if place < 0 else (dark, reach * place)
    return tuple((1 - part) * int(colour[1 + 2 * i : 3 + 2 * i], 16) / 255 + part * end[i] for i in range(3))


def uncover(places: Sequence[Any], looks: Sequence[dict[str, Any]], joined: bool = False) -> list[int | None]:
    """Changes the looks of what would lie unseen below something else that is at the same places.

    A line below a solid one comes up as a thin dashed core of it; points below others get markers that stand out around theirs.

    Args:
      places: of each line or set of points, `(x, y)`.
      looks: arguments of `plot` for each, changed in place.
      joined: whether they are lines.

    Returns:
      Below which other each of them lies, the uppermost; None for those that can be seen.
    """
    at = [np.asarray(place, np.float64) for place in places]
    heights = [look["zorder"] for look in looks]
    every = np.concatenate([a[:, np.isfinite(a).all(axis=0)] for a in at], axis=1) if at else np.zeros((2, 0))
    near = 0.003 * np.ptp(every, axis=1, keepdims=True) if every.size else 0.0

    def alike(one: np.ndarray, other: np.ndarray) -> bool:
        """Whether two are at the same places to the eye, on an even axis and on a logarithmic one."""
        return one.shape == other.shape and bool(
            np.isclose(one, other, 3e-3, 0.0, equal_nan=True).all()
            and np.isclose(one, other, 0.0, near, equal_nan=True).all()
        )

    in_order = sorted(range(len(at)), key=lambda i: heights[i])  # From the lowest; of two at one height the earlier.
    depth: list[int] = [0] * len(at)
    cover: list[int | None] = [None] * len(at)
    for rank, below in reversed(list(enumerate(in_order))):
        for above in in_order[rank + 1 :]:
            if not alike(at[below], at[above]):
                continue
            depth[below], cover[below] = max(depth[below], depth[above] + 1), above
            if joined and looks[above]["linestyle"] == _SOLID:
                dashes = looks[below]["linestyle"] if looks[below]["linestyle"] != _SOLID else (0, (5, 5))
                looks[below].update(
                    zorder=heights[above] + 0.05, linewidth=0.5 * looks[above]["linewidth"], linestyle=dashes
                )
    if not joined:
        for look, deep in zip(looks, depth, strict=True):
            if deep:
                look["markersize"] = look.get("markersize", HOUSE["lines.markersize"]) + 3 * min(deep, 3)
    return cover


# Figures with several panels.


@dataclass
class Sheet:
    """What a figure remembers between its panels.

    cast: who is drawn how. shared: whether its panels have one legend, below them. size: without that legend, in inches.
    rows: of panels. above: room for the legends of single panels, in inches. bars: colour bars that panels share, by what they show.
    """

    cast: Cast = field(default_factory=Cast)
    shared: bool = False
    size: tuple[float, float] = SIZE
    rows: int = 1
    above: float = 0.0
    bars: dict[str, tuple[Any, list[Any]]] = field(default_factory=dict)


_SHEETS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def sheet_of(figure: Any) -> Sheet:
    """What is remembered of a figure."""
    return _SHEETS.setdefault(figure, Sheet())


def cast_of(ax: Any, names: Iterable[str] = ()) -> Cast:
    """Who is drawn how in the figure of axes, with some names among them."""
    cast = sheet_of(ax.figure).cast
    cast.enrol(names)
    return cast


def new_axes(ax: Any, size: tuple[float, float] = SIZE) -> Any:
    """The given axes, or those of a new figure."""
    return pyplot().subplots(figsize=size, layout="constrained")[1] if ax is None else ax


def new_sheet(number: int, columns: int, size: tuple[float, float]) -> tuple[Any, np.ndarray]:
    """A figure with `number` panels of a size, in rows of `columns`, and its axes as a flat array."""
    columns = min(number, columns)
    rows = -(-number // columns)
    whole = (size[0] * columns, size[1] * rows)
    figure, axes = pyplot().subplots(rows, columns, figsize=whole, layout="constrained", squeeze=False)
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.06)
    for ax in axes.flat[number:]:
        ax.set_visible(False)
    _SHEETS[figure] = Sheet(shared=True, size=whole, rows=rows)
    return figure, axes.ravel()[:number]


def room_for_rows(ax: Any, number: int) -> None:
    """Makes the panels of a sheet higher where one of them has so many rows of names that these would touch."""
    sheet = sheet_of(ax.figure)
    height = sheet.rows * (1.0 + 0.2 * number)
    if sheet.shared and height > sheet.size[1]:
        sheet.size = (sheet.size[0], height)
        share_legend(ax.figure)


# Titles and legends.


def title(ax: Any, text: str | None) -> None:
    """A title at the left, on as many lines as it needs."""
    if text:
        width = ax.get_position().width * ax.figure.get_figwidth()
        ax.set_title(wrapped(text, int(14 * width)), loc="left", fontsize=8, fontweight="bold")


def wrapped(text: str, width: int) -> str:
    """A text on lines of at most so many letters; its own line breaks stay."""
    return "\n".join(textwrap.fill(line, max(width, 12), break_long_words=False) for line in text.splitlines())


def legend(ax: Any, text: str | None, own: bool, shared: bool = True) -> None:
    """Names the lines: below all panels of a sheet, otherwise above the axes, or beside them if that would take more than three rows.

    Args:
      ax: axes whose lines have labels.
      text: title of the axes.
      own: the figure is for these axes alone, and may be made larger.
      shared: panels of a sheet have the legend in common; if not, what is drawn here is named here.
    """
    sheet = sheet_of(ax.figure)
    if sheet.shared and shared:
        title(ax, text)
        share_legend(ax.figure)
        return
    labels = ax.get_legend_handles_labels()[1]
    if not labels:
        title(ax, text)
        return
    width = (1.1 if own else 1.0) * ax.get_position().width * ax.figure.get_figwidth()
    columns = _columns(labels, width)
    options: dict[str, Any] = {
        "title": text,
        "alignment": "left",
        "frameon": False,
        "labelspacing": 0.35,
        "borderaxespad": 0.2,
    }
    rows = -(-len(labels) // columns)
    if rows > 3 and not sheet.shared:
        if own:
            ax.figure.set_size_inches(SIZE[0] + 0.5 + 0.068 * max(map(len, labels)), max(SIZE[1], 0.8 + 0.165 * len(labels)))
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), handlelength=2.6, **options)
    else:
        if own:
            ax.figure.set_size_inches(SIZE[0], SIZE[1] + 0.17 * rows)
        ax.legend(
            loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=columns, handlelength=2.4, columnspacing=1.4, **options
        )
        sheet.above = max(sheet.above, _LINE * rows)
        if sheet.shared:
            share_legend(ax.figure)
    ax.get_legend().get_title().set_fontweight("bold")


def share_legend(figure: Any) -> None:
    """One legend below all panels of a figure, for the lines that no panel names itself; the figure grows by its height."""
    sheet = sheet_of(figure)
    entries: dict[str, Any] = {}
    for ax in figure.axes:
        if ax.get_legend() is None:
            for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
                entries.setdefault(label, handle)
    for old in list(figure.legends):
        old.remove()
    labels = sorted(entries, key=sheet.cast.rank)
    columns = _columns(labels, sheet.size[0] - 0.2) if labels else 1
    rows = -(-len(labels) // columns)
    room = _LINE * rows + 0.1 if labels else 0.0
    figure.set_size_inches(sheet.size[0], sheet.size[1] + sheet.rows * sheet.above + room)
    if labels:
        figure.legend(
            [entries[label] for label in labels],
            labels,
            loc="outside lower center",
            ncols=columns,
            frameon=False,
            handlelength=2.6,
            columnspacing=1.6,
            labelspacing=0.35,
            fontsize=HOUSE["legend.fontsize"],
        )


def _columns(labels: Sequence[str], width: float) -> int:
    """Columns of a legend of a width in inches, with rows of about the same length."""
    columns = max(1, min(len(labels), int(width / (0.62 + 0.062 * max(map(len, labels))))))
    return -(-len(labels) // -(-len(labels) // columns))


# Axes.


def numbers(axis: Any, span: tuple[float, float] | None = None, few: bool = False) -> None:
    """Plain numbers on an axis, with commas from 10,000 on; powers of ten only where plain numbers would be long.

    Args:
      axis: of axes.
      span: its smallest and largest value (default: those in view).
      few: there is little room: at most six numbers on a logarithmic axis.
    """
    from matplotlib.ticker import FuncFormatter, LogFormatterMathtext, LogLocator, NullFormatter, ScalarFormatter

    scale = axis.get_scale()
    if scale == "log":
        low, high = span or axis.get_view_interval()
        subs = (1.0,) if high > 300 * low else (1.0, 2.0, 5.0)
        if few and len(subs) * np.log10(high / low) > 6:
            subs = (1.0, 3.0)
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
            if self.get_offset() or not any(abs(v) >= 10_000 for v in values) or any(v != round(v) for v in values):
                return texts
            return [f"{int(v):,}".replace("-", "\N{MINUS SIGN}") for v in values]

    axis.set_major_formatter(Commas())


def grid(ax: Any) -> None:
    """Pale lines behind the data."""
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
    """How settings are laid out: names one by one, numbers evenly or by their logarithm, where a 0 gets a place before the others."""
    values = np.asarray(values)
    if values.dtype.kind not in "iuf":
        return "names"
    if log_spaced(values):
        return "log"
    return "log and 0" if values.size and values.min() == 0 and log_spaced(values[values > 0]) else "linear"


def places_of(values: Any) -> np.ndarray:
    """Where settings stand on their axis."""
    values, scale = np.asarray(values), scale_of(values)
    if scale == "names":
        return np.arange(len(values), dtype=np.float64)
    if scale != "log and 0":
        return values.astype(np.float64)
    powers = np.log10(np.where(values > 0, values, 1.0))
    known = np.sort(powers[values > 0])
    return np.where(values > 0, powers, known[0] - np.median(np.diff(known)))


def edges(places: np.ndarray, log: bool) -> np.ndarray:
    """Borders of the cells around sorted places."""
    places = np.log(places) if log else places
    if places.size == 1:
        borders = places[0] + np.array([-0.5, 0.5])
    else:
        middles = (places[1:] + places[:-1]) / 2
        borders = np.concatenate([[2 * places[0] - middles[0]], middles, [2 * places[-1] - middles[-1]]])
    return np.exp(borders) if log else borders


def settings_axis(ax: Any, which: str, values: np.ndarray) -> None:
    """Scale of an axis of settings; ticks at the settings themselves if they are few, as nothing was measured between.

    A dotted line stands between 0 and a logarithmic axis, which 0 is not on.
    """
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
    texts = [metrics.show_value(v) for v in values[::every]]
    axis.set_ticks(places[::every], texts)
    if which == "x" and scale == "names" and sum(map(len, texts)) + 2 * len(texts) > 44:
        ax.tick_params(axis="x", labelrotation=25)
        for label in ax.get_xticklabels():
            label.set_horizontalalignment("right")


def marked(times: np.ndarray, log: bool, shift: int) -> list[int]:
    """Which points of a curve get a marker: about eight, evenly spaced on the axis, at other places for another `shift`."""
    if len(times) < 9:
        return list(range(len(times)))
    shares = (np.arange(8) + (shift % 4) / 4) / 8
    if log:
        wanted = times[0] * (times[-1] / times[0]) ** shares
    else:
        wanted = times[0] + (times[-1] - times[0]) * shares
    return sorted({int(np.abs(times - w).argmin()) for w in wanted})


def axis_title(attributes: Mapping[str, Any], name: str, width: int) -> str:
    """Label and unit, on several lines if one would be longer than `width` letters."""
    text = metrics.axis_label(attributes, name)
    if len(text) <= width:
        return text
    parts = [str(attributes.get("long_name", name)), *([f"({attributes['units']})"] if attributes.get("units") else [])]
    return "\n".join(wrapped(part, width) for part in parts)
