"""Style of figures: colours, dashes and markers of policies, legends, titles and panels.

The look of a policy follows from its name: it is the same in all panels of a figure and, for policies of the built-in problems, in all figures. The
policy of a problem's paper, such as StageRoute, is the thickest line, in vermilion; its variants have warm colours, its rivals cold ones. Policies
that do not choose, such as random or fixed ones, are pale. Oracles are thin, dashed and black or grey lines above the others.
"""

import functools
import textwrap
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

import numpy as np

from jaxroute.core import checks

SIZE = (4.4, 3.0)  # Size of one panel, in inches.
_LINE = 0.18  # Height of one row of a legend, in inches.

RC_PARAMS: dict[Any, Any] = {"font.size": 9, "axes.titlesize": 9, "axes.labelsize": 9, "axes.axisbelow": True}
RC_PARAMS |= {"xtick.labelsize": 8, "ytick.labelsize": 8, "legend.fontsize": 8, "legend.title_fontsize": 8}
RC_PARAMS |= {"axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#444444", "axes.linewidth": 0.8}
RC_PARAMS |= {f"{axis}tick.color": "#444444" for axis in "xy"} | {f"{axis}tick.labelcolor": "black" for axis in "xy"}
RC_PARAMS |= {"lines.linewidth": 1.6, "lines.markersize": 4.5}


def pyplot() -> Any:
    """Imports and returns `matplotlib.pyplot`, which only figures need."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError('plots need matplotlib: pip install "jaxroute[plot]"') from None
    return plt


P = ParamSpec("P")
R = TypeVar("R")


def styled(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator of drawing functions: applies the package's style, and raises an error for unknown argument names or a wrong `ax` or `title`."""

    @functools.wraps(function)
    def draw(*args: P.args, **kwargs: P.kwargs) -> R:
        checks.keywords(function.__name__, function, kwargs)
        ax, heading = kwargs.get("ax"), kwargs.get("title")
        if ax is not None and not hasattr(ax, "xaxis"):
            raise ValueError(f"ax must be the axes of one panel, or None for a new figure, got {checks.show(ax)}")
        if not (heading is None or isinstance(heading, str)):
            raise ValueError(f"title must be a text or None, got {checks.show(heading)}")
        parameters = pyplot().rcParams
        # Not `rc_context`, which would also undo what importing a notebook's backend sets.
        before = {name: parameters[name] for name in RC_PARAMS}
        parameters.update(RC_PARAMS)
        try:
            return function(*args, **kwargs)
        finally:
            parameters.update(before)

    return draw


_SOLID = "-"
_DASHES = (_SOLID, (0, (5, 1.6)), (0, (5, 1.3, 1.2, 1.3)), (0, (1.4, 1.2)), (0, (8, 1.6)), (0, (5, 1.2, 1.2, 1.2, 1.2, 1.2)))
_DOTS = ((0, (1, 1.3)), (0, (4, 1.3, 1, 1.3)), (0, (2.5, 1.3)), (0, (7, 1.5)), (0, (1, 3)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# After Okabe and Ito, whose colours differ for colour-blind readers too: vermilion for the subject.
_COLD = ("#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#6A3D9A", "#1B5E63")
_COLD += ("#8A8D00", "#7A90B8", "#00324F", "#6CC08B", "#8C2D78", "#A6A6E0")
# Look of all policies of one role (see `role_of`): their colours, line width, drawing order, and dashes.
_ROLES: dict[str, tuple[tuple[str, ...], float, float, tuple[Any, ...]]] = {
    "subject": (("#D55E00",), 2.4, 3.6, (_SOLID,)),
    "variant": (("#E69F00", "#9E1B32", "#7F4A1E", "#F0767F", "#B8860B"), 1.8, 3.4, _DASHES[1:]),
    "rival": (_COLD, 1.5, 3.0, _DASHES),
    "weak": (("#B8AD9C", "#A9BCCB", "#C3B3D1", "#AFC7A8", "#D6BE9C"), 1.3, 2.6, _DASHES),
    "oracle": (("#000000", "#555555", "#8C8C8C"), 1.2, 4.0, _DASHES[1:]),
    "reference": (("#333333", "#6B6B6B"), 1.1, 2.5, _DOTS),
}
_SUBJECTS = ("StageRoute", "MESS+", "C2MAB-V (c)", "C2MAB-V", "ACQB", "COSMOS")
_WEAK = ("random", "uniform", "always ", "query all", "round robin")
_ORACLES = ("oracle", "optimal", "clairvoyant", "best single", "bestsingle", "contextsingle")
# Policies that appear in several figures of a problem, one line for each problem, in the order of their colours.
_SHARED = """UCB1, GaussianThompson, BetaThompson, EpsilonGreedy
Greedy, GreedyByRatio, GreedyToBest, NoFiller, RandomFiller, IndexFiller, RandomTie, Lemma3
EducatedGuessing, RouterDC, RouteLLM
CUCB, Thompson, Direct, EpsilonGreedy, ConstrainedThompson
CQB-eps, Q-UCB, Q-ThS
frugal, greedy, one call, static index, LinUCB, Thompson sampling, explore then commit, epsilon-greedy"""
_RIVALS = {name: place for line in _SHARED.splitlines() for place, name in enumerate(line.split(", "))}


def role_of(name: str) -> str:
    """Returns a policy's role by its name: "subject" (a paper's policy), "variant" of a subject, "oracle", "weak" (random or fixed), else "rival"."""
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


class LineStyles:
    """Assigns a line style to the name of each policy or reference line; the panels of a figure share one object, and so the styles."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[str, int]] = {}
        self._shades: dict[str, tuple[str, dict[str, Any]]] = {}

    def add(self, names: Iterable[str], role: str | None = None) -> None:
        """Assigns a style to each of `names` that has none, by its `role` (None: `role_of(name)`). Names with a preferred colour choose first."""
        new = [n for n in dict.fromkeys(names) if n not in self._places]
        for name in sorted(new, key=lambda n: n not in _RIVALS):
            kind = role or role_of(name)
            taken = {place for other, place in self._places.values() if other == kind}
            preferred = _RIVALS.get(name, 0) if kind == "rival" else 0
            self._places[name] = (kind, next(p for p in range(preferred, preferred + len(taken) + 1) if p not in taken))

    def style(self, name: str) -> dict[str, Any]:
        """Returns the look of a policy's line as arguments of `plot`: colour, dash, marker, width and drawing order."""
        self.add([name])
        kind, place = self._places[name]
        colours, width, height, dashes = _ROLES[kind]
        style: dict[str, Any] = {"color": colours[place % len(colours)], "linestyle": dashes[place % len(dashes)]}
        style |= {"linewidth": width, "zorder": height}
        if kind == "reference":
            return style
        return style | {"marker": _MARKERS[place % len(_MARKERS)], "markeredgecolor": "white", "markeredgewidth": 0.6}

    def shade(self, name: str, label: str, position: int, number: int) -> dict[str, Any]:
        """Returns matplotlib's options for the line `label` of policy `name`, always the same. Its shade is `position` (0: lightest) of `number`."""
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
        """Returns the sort key of a label in a legend: the order is subjects, variants, rivals, weak policies, oracles, references, other labels."""
        name = self._shades[label][0] if label in self._shades else label
        kinds = list(_ROLES)
        return kinds.index(self._places[name][0]) if name in self._places else len(kinds)


def _mixed(colour: str, position: int, number: int) -> tuple[float, ...]:
    """Returns one of `number` shades, from light (position 0) to dark. Up to three have the hue of `colour`; more shades go from yellow to violet."""
    place = 2 * position / (number - 1) - 1
    light, dark, reach = (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), 0.45
    if number > 3:
        light, dark, reach = (0.98, 0.86, 0.45), (0.10, 0.0, 0.18), 0.72
    end, part = (light, -reach * place) if place < 0 else (dark, reach * place)
    return tuple((1 - part) * int(colour[1 + 2 * i : 3 + 2 * i], 16) / 255 + part * end[i] for i in range(3))


def separate_overlaps(places: Sequence[Any], looks: Sequence[dict[str, Any]], joined: bool = False) -> list[int | None]:
    """Changes the looks of lines and points that coincide with others drawn above them, so that they are visible.

    `places` are the coordinates `(x, y)` of each line or set of points. `looks` are their keyword arguments of `plot`, changed in place; what has a
    larger `zorder` covers the others. With `joined`, a line that a solid one covers becomes thin and dashed and is drawn on top of it. Without
    `joined`, covered points get larger markers. Returns for each line or set the index of the uppermost one that covers it, or None.
    """
    at = [np.asarray(place, np.float64) for place in places]
    heights = [look["zorder"] for look in looks]
    every = np.concatenate([a[:, np.isfinite(a).all(axis=0)] for a in at], axis=1) if at else np.zeros((2, 0))
    near = 0.003 * np.ptp(every, axis=1, keepdims=True) if every.size else 0.0

    def alike(one: np.ndarray, other: np.ndarray) -> bool:
        tolerances = ((3e-3, 0.0), (0.0, near))  # On a logarithmic and on a linear axis.
        return one.shape == other.shape and all(np.isclose(one, other, *t, equal_nan=True).all() for t in tolerances)

    in_order = sorted(range(len(at)), key=lambda i: heights[i])  # From the lowest line to the uppermost.
    depth: list[int] = [0] * len(at)
    cover: list[int | None] = [None] * len(at)
    for rank, below in reversed(list(enumerate(in_order))):
        for above in (i for i in in_order[rank + 1 :] if alike(at[below], at[i])):
            depth[below], cover[below] = max(depth[below], depth[above] + 1), above
            if joined and looks[above]["linestyle"] == _SOLID:
                own = looks[below]["linestyle"]
                thin = {"linewidth": 0.5 * looks[above]["linewidth"], "linestyle": (0, (5, 5)) if own == _SOLID else own}
                looks[below].update(thin, zorder=heights[above] + 0.05)
    for look, deep in zip(looks, depth, strict=True):
        if deep and not joined:
            look["markersize"] = look.get("markersize", RC_PARAMS["lines.markersize"]) + 3 * min(deep, 3)
    return cover


@dataclass
class FigureState:
    """State of a figure, which its panels share.

    Attributes:
      styles: line styles.
      shared: whether the panels have one legend, below them.
      size: width and height without the common legend, in inches.
      rows: number of rows of panels.
      above: height of the legends above single panels, in inches.
      bars: for each label of a colour bar, the bar and a list of the panels that share it.
    """

    styles: LineStyles = field(default_factory=LineStyles)
    shared: bool = False
    size: tuple[float, float] = SIZE
    rows: int = 1
    above: float = 0.0
    bars: dict[str, tuple[Any, list[Any]]] = field(default_factory=dict)


STATES: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def state_of(figure: Any) -> FigureState:
    return STATES.setdefault(figure, FigureState())


def styles_of(ax: Any) -> LineStyles:
    return state_of(ax.figure).styles


def begin(ax: Any, names: Iterable[str] = (), size: tuple[float, float] = SIZE) -> tuple[Any, LineStyles, bool]:
    """Returns axes, their figure's line styles with `names` added, and whether the figure is new: `size` inches large, made if `ax` is None."""
    own = ax is None
    ax = pyplot().subplots(figsize=size, layout="constrained")[1] if own else ax
    styles_of(ax).add(names)
    return ax, styles_of(ax), own


def title(ax: Any, text: str | None) -> None:
    """Draws the title `text` above the axes, at the left, broken into lines; draws nothing if it is None."""
    if text:
        width = ax.get_position().width * ax.figure.get_figwidth()
        ax.set_title(wrapped(text, int(14 * width)), loc="left", fontsize=8, fontweight="bold")


def wrapped(text: str, width: int) -> str:
    """Breaks a text into lines of at most `width` letters. Existing line breaks stay."""
    return "\n".join(textwrap.fill(line, max(width, 12), break_long_words=False) for line in text.splitlines())


def legend(ax: Any, text: str | None, own: bool, shared: bool = True) -> None:
    """Draws the title of axes, and the legend: below all panels, above single axes, or beside them if the legend has more than three rows.

    `text` is the title. `own` is True if the figure is for these axes alone, so that it may be enlarged. With `shared=False`, these axes have a
    separate legend even in a figure of panels.
    """
    state = state_of(ax.figure)
    if state.shared and shared:
        title(ax, text)
        share_legend(ax.figure)
        return
    if not (labels := ax.get_legend_handles_labels()[1]):
        return title(ax, text)
    width = (1.1 if own else 1.0) * ax.get_position().width * ax.figure.get_figwidth()
    columns = _columns(labels, width)
    options: dict[str, Any] = {"title": text, "alignment": "left", "frameon": False, "labelspacing": 0.35}
    rows = -(-len(labels) // columns)
    if rows > 3 and not state.shared:
        if own:
            ax.figure.set_size_inches(SIZE[0] + 0.5 + 0.068 * max(map(len, labels)), max(SIZE[1], 0.8 + 0.165 * len(labels)))
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), handlelength=2.6, borderaxespad=0.2, **options)
    else:
        if own:
            ax.figure.set_size_inches(SIZE[0], SIZE[1] + 0.17 * rows)
        options |= {"ncols": columns, "handlelength": 2.4, "columnspacing": 1.4, "borderaxespad": 0.2}
        ax.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), **options)
        state.above = max(state.above, _LINE * rows)
        if state.shared:
            share_legend(ax.figure)
    ax.get_legend().get_title().set_fontweight("bold")


@styled
def share_legend(figure: Any) -> None:
    """Draws one legend of all labelled lines below the panels of a figure, which grows by the legend's height. A panel that has a legend keeps it."""
    state = state_of(figure)
    entries: dict[str, Any] = {}
    for ax in figure.axes:
        if ax.get_legend() is None:
            for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
                entries.setdefault(label, handle)
    for old in list(figure.legends):
        old.remove()
    height = state.size[1] + state.rows * state.above
    if labels := sorted(entries, key=state.styles.rank):
        columns = _columns(labels, state.size[0] - 0.2)
        height += _LINE * -(-len(labels) // columns) + 0.1
        options = {"handlelength": 2.6, "columnspacing": 1.6, "labelspacing": 0.35, "fontsize": RC_PARAMS["legend.fontsize"]}
        handles = [entries[label] for label in labels]
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, **options)
    figure.set_size_inches(state.size[0], height)


def _columns(labels: Sequence[str], width: float) -> int:
    """Returns the number of legend columns that fit into a width in inches, balanced so that the rows have about the same length."""
    columns = max(1, min(len(labels), int(width / (0.62 + 0.062 * max(map(len, labels))))))
    return -(-len(labels) // -(-len(labels) // columns))
