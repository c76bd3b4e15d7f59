"""Small plots of lines, each named at its right end."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxroute.comparison.page.labels import shortened, spread, text_width
from jaxroute.comparison.page.scales import Scale
from jaxroute.comparison.page.scene import Hit, Line, Mark, Scene, Text

WIDTH, HEIGHT = 430.0, 260.0
LEFT, TOP, BOTTOM = 56.0, 32.0, 40.0
_SIZE, _LETTERS = 12.0, 20


@dataclass(frozen=True)
class Curve:
    """A line of a small plot.

    Attributes:
      name: written at its end.
      places: in pixels; None where there is a gap.
      colour: of the line and its name, in the palette.
      marks: shape, stroke and fill of the mark at each place, or None.
      tips: what each place says when pointed at.
      width: of the line.
      dash: as in SVG.
      series: number of the approach, or None.
    """

    name: str
    places: Sequence[tuple[float, float] | None]
    colour: str
    marks: Sequence[tuple[str, str, str] | None]
    tips: Sequence[str]
    width: float = 1.8
    dash: tuple[float, ...] = ()
    series: int | None = None


def right_of(names: Sequence[str]) -> float:
    """Where the axis ends, so that the names of the lines have room."""
    return WIDTH - 16 - max((text_width(shortened(n, _LETTERS), _SIZE) for n in names), default=0.0)


def draw(
    title: str,
    x: Scale,
    y: Scale,
    x_title: str,
    y_title: str,
    curves: Sequence[Curve],
    *,
    across: tuple[float, str] | None = None,
    upright: tuple[float, str] | None = None,
) -> Scene:
    """A small plot.

    Args:
      title: what it shows, for those who do not see it.
      x: horizontal axis.
      y: vertical axis.
      x_title: its quantity and unit.
      y_title: its quantity and unit.
      curves: lines.
      across: a value of `y` with a dashed line and its name; None for none.
      upright: a value of `x` with one.

    Returns:
      the picture.
    """
    scene = Scene(WIDTH, HEIGHT, title)
    right, bottom = x.end, HEIGHT - BOTTOM
    for value, label in y.ticks(5):
        scene.add(Line(((LEFT, y(value)), (right, y(value))), "grid"))
        scene.add(Text(LEFT - 7, y(value) + 4, label, _SIZE - 1, "muted", "end"))
    scene.add(Line(((LEFT, bottom), (right, bottom)), "rule"))
    free = 0.0
    for value, label in x.ticks(6):
        half = text_width(label, _SIZE - 1) / 2
        if x(value) - half > free:
            scene.add(Text(x(value), bottom + 16, label, _SIZE - 1, "muted", "middle"))
            free = x(value) + half + 6
    scene.add(Text(2, 14, y_title, _SIZE, "ink", bold=True))
    scene.add(Text(right, bottom + 34, x_title, _SIZE, "ink", "end", True))
    if across is not None:
        at = y(across[0])
        scene.add(Line(((LEFT, at), (right, at)), "accent", 1.3, (5, 4)))
        scene.add(Text(WIDTH - 2, 14, f"- - {across[1]}", _SIZE - 1, "accent", "end"))
    if upright is not None:
        at = x(upright[0])
        scene.add(Line(((at, TOP), (at, bottom)), "accent", 1.3, (5, 4)))
        scene.add(Text(WIDTH - 2, 14, f"- - {upright[1]}", _SIZE - 1, "accent", "end"))
    for curve in curves:
        _curve(scene, curve)
    _names(scene, [c for c in curves if any(c.places)], right, bottom)
    return scene


def _curve(scene: Scene, curve: Curve) -> None:
    run: list[tuple[float, float]] = []
    for place in [*curve.places, None]:
        if place is not None:
            run.append(place)
            continue
        if len(run) > 1:
            scene.add(Line(tuple(run), curve.colour, curve.width, curve.dash, series=curve.series))
        run = []
    for place, mark, tip in zip(curve.places, curve.marks, curve.tips, strict=True):
        if place is not None and mark is not None:
            scene.add(Mark(*place, mark[0], 4.0, mark[1], mark[2], 1.0, curve.series))
            scene.add(Hit(*place, 9.0, tip, curve.series))


def _names(scene: Scene, curves: list[Curve], right: float, bottom: float) -> None:
    ends = [[p for p in c.places if p is not None][-1] for c in curves]
    for curve, end, y in zip(curves, ends, spread([e[1] for e in ends], 15.0, TOP, bottom), strict=True):
        if abs(y - end[1]) > 3 or end[0] < right - 3:
            scene.add(Line(((end[0] + 5, end[1]), (right + 7, y)), curve.colour, 0.7, opacity=0.6))
        text = shortened(curve.name, _LETTERS)
        scene.add(Text(right + 10, y + 4, text, _SIZE, curve.colour, halo=True, series=curve.series))
