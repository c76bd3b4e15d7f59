"""Finds faults of a matplotlib figure: texts that are cut off or overlap, squeezed axes, missing data, ambiguous legends."""

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

_SMALLEST = 7.0  # Points of the smallest legible text.
_SHARE = 1 / 3  # Least share of its panel that axes have in each direction.
_HIDDEN = 0.03  # Largest share of a line's length that a legend may cover.
_SLACK = 1.5  # Pixels by which boxes of texts may overlap: they are a little larger than the letters.
_NUMBER = re.compile(r"[-+\N{MINUS SIGN}]?[\d.,]+(e[-+]?\d+)?( ?%)?|\$.*\$")
_WIDEST = 18.0  # Inches of the widest figure in which letters of 8 points can be read on a page or a screen.


class _Text(NamedTuple):
    """A visible text of a figure: its kind (such as "title"), its letters, its bounding box in pixels, and its matplotlib object."""

    kind: str
    letters: str
    box: Any
    artist: Any

    def __str__(self) -> str:
        return f"{self.kind} {self.letters!r}"


def faults(figure: Any) -> list[str]:
    """Finds the faults of a matplotlib figure and describes each in one sentence; an empty list if there is none. The figure is laid out first.

    Faults are: text outside the canvas or across the frame of its axes; texts that overlap; text below 7 points; a figure wider than 18
    inches; axes narrower or lower than a third of their panel; axes without data; lines without a finite number or outside the view;
    axes in which nothing varies; titles of panels in different fonts; a legend over lines; a name in a legend that no data have; data in no
    legend; one name in several colours; several names with one look; an axis of numbers without a label, or with fewer than two numbers.
    """
    figure.draw_without_rendering()
    axes = [ax for ax in figure.axes if ax.get_visible()]
    texts = [text for text in _texts(figure, axes) if text.letters.strip()]
    found = [*_text_faults(figure.bbox, texts), *_named(figure, axes)]
    if figure.get_figwidth() > _WIDEST:
        found.append(f"too wide: {figure.get_figwidth():.0f} inches, where letters of 8 points are not legible on a page")
    letters = {(t.artist.get_fontsize(), t.artist.get_fontweight(), t.artist.get_ha()) for t in texts if t.kind == "title"}
    if len(letters) > 1:
        found.append(f"titles differ: panels have titles in {len(letters)} sorts of letters or places")
    for ax in axes:
        if ax.get_label() != "<colorbar>":
            found += [*_squeezed(figure, ax), *_without_data(ax), *_without_numbers(ax), *_covered(ax), *_across(ax)]
    return list(dict.fromkeys(found))


def _where(ax: Any) -> str:
    """Returns the name of an `Axes` for messages: its title or a label, otherwise its number in the figure."""
    texts = (*(ax.get_title(loc=side) for side in ("left", "center", "right")), ax.get_ylabel(), ax.get_xlabel())
    text = next(filter(None, texts), "")
    return f"the axes {text.splitlines()[0]!r}" if text else f"axes number {ax.figure.axes.index(ax) + 1}"


def _texts(figure: Any, axes: list[Any]) -> Iterator[_Text]:
    yield from _drawn("text", figure.texts)
    for legend in figure.legends:
        yield from _drawn("legend", [legend.get_title(), *legend.get_texts()])
    for ax in axes:
        yield from _drawn("title", [ax.title, ax._left_title, ax._right_title])
        yield from _drawn("text", ax.texts)
        if (legend := ax.get_legend()) is not None:
            yield from _drawn("legend", [legend.get_title(), *legend.get_texts()])
        for axis in (ax.xaxis, ax.yaxis):
            if ax.axison and axis.get_visible():
                yield from _drawn("label", [axis.label])
                yield from _drawn("offset", [axis.get_offset_text()])
                yield from _drawn("tick label", _tick_labels(axis))


def _drawn(kind: str, artists: Iterable[Any]) -> Iterator[_Text]:
    """Yields the visible, non-empty texts among matplotlib's text artists, each with the given `kind`, such as "title"."""
    from matplotlib.text import Text

    for artist in artists:
        if artist.get_visible() and artist.get_text():
            artist.get_window_extent()  # Calculates the place of an annotation.
            yield _Text(kind, artist.get_text(), Text.get_window_extent(artist), artist)  # Without its arrow.


def _tick_labels(axis: Any) -> list[Any]:
    low, high = sorted(axis.get_view_interval())
    slack, found = 1e-9 * (high - low), []
    for minor, ticks in ((False, axis.get_major_ticks), (True, axis.get_minor_ticks)):
        places = axis.get_ticklocs(minor=minor)
        labels = [(tick.label1, at) for tick, at in zip(ticks(len(places)), places, strict=False)]
        found += [label for label, at in labels if low - slack <= at <= high + slack]
    return [label for label in found if label.get_visible() and label.get_text()]


def _text_faults(canvas: Any, texts: list[_Text]) -> Iterator[str]:
    """Finds texts outside the bounding box `canvas` of the figure, texts that overlap, and small texts; yields a sentence for each fault."""
    for text in texts:
        box = text.box
        if box.x0 < canvas.x0 - 1 or box.y0 < canvas.y0 - 1 or box.x1 > canvas.x1 + 1 or box.y1 > canvas.y1 + 1:
            yield f"outside the canvas: {text}"
        if text.artist.get_fontsize() < _SMALLEST:
            yield f"smaller than {_SMALLEST:g} points: {text}"
    for one, other in itertools.combinations(texts, 2):
        if _overlap(one, other):
            yield f"texts overlap: {one} and {other}"


def _common(one: Any, other: Any) -> tuple[float, float]:
    """Returns width and height, in pixels, of the overlap of two bounding boxes. A negative number is minus their distance in that direction."""
    return min(one.x1, other.x1) - max(one.x0, other.x0), min(one.y1, other.y1) - max(one.y0, other.y0)


def _overlap(one: _Text, other: _Text) -> bool:
    if min(_common(one.box, other.box)) <= _SLACK:
        return False
    angle = one.artist.get_rotation()
    if angle == other.artist.get_rotation() and angle % 90:
        # Boxes of slanted texts may overlap although the texts do not, so the distance of their lines counts.
        (x, y), (u, v) = ((t.box.x1, t.box.y1) for t in (one, other))
        distance = abs((u - x) * np.sin(np.deg2rad(angle)) - (v - y) * np.cos(np.deg2rad(angle)))
        return bool(distance < one.artist.get_fontsize() * one.artist.get_figure().dpi / 72)
    return True


def _squeezed(figure: Any, ax: Any) -> Iterator[str]:
    if (place := ax.get_subplotspec()) is None:
        return
    rows, columns = place.get_gridspec().get_geometry()
    panel = (figure.bbox.width * len(place.colspan) / columns, figure.bbox.height * len(place.rowspan) / rows)
    box = ax.get_window_extent()
    for what, have, whole in (("wide", box.width, panel[0]), ("high", box.height, panel[1])):
        if have < _SHARE * whole:
            yield f"squeezed: {_where(ax)} is {have / whole:.0%} of its panel {what}"


def _without_data(ax: Any) -> Iterator[str]:
    # Reference lines across the whole axes, such as `axhline` draws, have another transformation.
    lines = [line for line in ax.lines if line.get_visible() and line.get_transform() == ax.transData]
    others = [c for c in (*ax.collections, *ax.patches, *ax.images) if c.get_visible()]
    if not lines and not others:
        yield f"empty: {_where(ax)} has no data"
        return
    varies = bool(others)
    for line in lines:
        points = np.asarray(line.get_xydata(), float)
        finite = points[np.isfinite(points).all(axis=1)]
        name = f"the line {line.get_label()!r} of {_where(ax)}"
        if not finite.size:
            yield f"no data: {name} has no finite number"
            continue
        (left, right), (low, high) = sorted(ax.get_xlim()), sorted(ax.get_ylim())
        x, y = finite.T
        if x.max() < left or x.min() > right or y.max() < low or y.min() > high:
            yield f"out of view: {name}"
        varies |= len(finite) == 1 or bool(np.ptp(y) > 0)
    if not varies:
        yield f"constant: nothing varies in {_where(ax)}"


def _without_numbers(ax: Any) -> Iterator[str]:
    from matplotlib.ticker import FixedLocator, NullFormatter

    for name, axis in (("horizontal", ax.xaxis), ("vertical", ax.yaxis)):
        if not (ax.axison and axis.get_visible()) or isinstance(axis.get_major_formatter(), NullFormatter):
            continue
        texts = [label.get_text() for label in _tick_labels(axis)]
        if len(texts) < 2 and not isinstance(axis.get_major_locator(), FixedLocator):
            yield f"without numbers: the {name} axis of {_where(ax)} has fewer than two"
        if any(_NUMBER.fullmatch(text) for text in texts) and not axis.get_label_text():
            yield f"without label: the {name} axis of {_where(ax)}"


def _across(ax: Any) -> Iterator[str]:
    frame = ax.get_window_extent()
    for text in _drawn("text", ax.texts):
        inside = _common(text.box, frame)
        if min(inside) > _SLACK and any(i < w - _SLACK for i, w in zip(inside, (text.box.width, text.box.height))):
            yield f"across the frame: {text} of {_where(ax)}"


def _covered(ax: Any) -> Iterator[str]:
    if (legend := ax.get_legend()) is None:
        return
    low, high = legend.get_window_extent().get_points()
    for line in ax.lines:
        path = _drawn_points(ax, line)
        inside = ((path > low) & (path < high)).all(axis=1)
        if len(path) and inside.mean() > _HIDDEN:
            yield f"legend over data: {inside.mean():.0%} of the line {line.get_label()!r} of {_where(ax)}"


def _drawn_points(ax: Any, line: Any) -> np.ndarray:
    """Samples at least 200 points along a drawn line; takes the data points if it has only markers. Returns those within the view, in pixels."""
    points = line.get_transform().transform(np.asarray(line.get_xydata(), float))
    points = points[np.isfinite(points).all(axis=1)]
    if len(points) > 1 and line.get_linestyle() not in ("None", "none", " ", ""):
        places = np.linspace(0, len(points) - 1, max(200, len(points)))
        points = np.stack([np.interp(places, np.arange(len(points)), points[:, i]) for i in (0, 1)], axis=1)
    low, high = ax.bbox.get_points()
    return points[((points >= low) & (points <= high)).all(axis=1)]


def _named(figure: Any, axes: list[Any]) -> Iterator[str]:
    """Yields a sentence for each legend entry without data, curve in no legend, name in several colours, and pair of names that look the same."""
    looks: dict[str, set[Any]] = {}
    by_axes = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            look = _look(handle)
            looks.setdefault(label, set()).add(look)
            by_axes.setdefault(ax, {})[label] = look
    of_figure = {t.get_text() for legend in figure.legends for t in legend.get_texts()}
    of_axes = {ax: {t.get_text() for t in ax.get_legend().get_texts()} for ax in axes if ax.get_legend() is not None}
    everywhere = of_figure.union(*of_axes.values())
    for label in sorted(everywhere - set(looks)):
        yield f"legend without data: nothing is called {label!r}"
    for label, found in looks.items():
        if len({look[0] for look in found}) > 1:
            yield f"several colours: {label!r} has {len({look[0] for look in found})}"
    for ax, labels in by_axes.items():
        if len(labels) > 1 and (unnamed := [label for label in labels if label not in everywhere]):
            yield f"in no legend: {', '.join(unnamed)} of {_where(ax)}"
        for one, other in itertools.combinations(labels, 2):
            if labels[one] == labels[other]:
                yield f"one look: {one!r} and {other!r} of {_where(ax)}"


def _look(handle: Any) -> tuple[Any, ...]:
    """Returns colour, dashes and marker of a handle of a legend (a line, patch or pair of them)."""
    from matplotlib import colors

    line = handle[0] if isinstance(handle, tuple) else handle
    if hasattr(line, "get_linestyle") and hasattr(line, "get_marker"):
        dashes = str(getattr(line, "_unscaled_dash_pattern", line.get_linestyle()))
        return colors.to_hex(line.get_color()), dashes if line.get_linestyle() != "None" else "None", line.get_marker()
    colour = line.get_facecolor() if hasattr(line, "get_facecolor") else line.get_color()
    return (str(np.round(np.ravel(np.asarray(colors.to_rgba_array(colour)))[:3], 3)), "", "")
