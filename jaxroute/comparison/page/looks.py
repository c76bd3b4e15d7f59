"""Colours and marks: the same names in the page, in its pictures and in the files for print.

After Okabe and Ito, darkened until each has a contrast of 4.5 on white, and lightened for dark screens. Marks differ as well, so that no
picture rests on colour alone.
"""

import math
from dataclasses import dataclass
from typing import Literal

from jaxroute.comparison.page import ways
from jaxroute.comparison.summary import Summary

Fill = Literal["full", "tint", "hollow"]

_LIGHT = ("#B84300", "#0069A6", "#00755A", "#A03A7F", "#7A5B00", "#6A3D9A", "#AD1F3F", "#2A6B78", "#55690C", "#8A4B2A")
_DARK = ("#FF9457", "#5FB8F2", "#3FD0A6", "#F092CC", "#E3BC55", "#BBA1F2", "#FF8A9E", "#6CCBDC", "#B9CE58", "#DDA27F")
SHAPES = ("circle", "square", "triangle", "diamond", "down", "plus", "cross", "star", "hexagon")


def _mixed(colour: str, other: str, part: float) -> str:
    """`part` of one colour in another."""
    channels = ((int(c[i : i + 2], 16) for i in (1, 3, 5)) for c in (colour, other))
    return "#" + "".join(f"{round(part * a + (1 - part) * b):02X}" for a, b in zip(*channels, strict=True))


def _palette(base: dict[str, str], series: tuple[str, ...], tint: float) -> dict[str, str]:
    colours = {f"c{i}": colour for i, colour in enumerate(series)}
    tints = {f"t{i}": _mixed(colour, base["paper"], tint) for i, colour in enumerate(series)}
    return base | colours | tints


LIGHT = _palette(
    {
        "paper": "#FFFFFF",
        "raised": "#F6F7F9",
        "ink": "#16191F",
        "muted": "#5A6270",
        "rule": "#DDE1E7",
        "grid": "#ECEEF2",
        "dot": "#6F7785",
        "frontier": "#C9CFD9",
        "accent": "#0B5CAD",
        "wash": "#EEF4FB",
    },
    _LIGHT,
    0.3,
)
DARK = _palette(
    {
        "paper": "#14171C",
        "raised": "#1C2027",
        "ink": "#ECEFF4",
        "muted": "#A4ADBB",
        "rule": "#343A45",
        "grid": "#242931",
        "dot": "#98A1AF",
        "frontier": "#4A5260",
        "accent": "#7DB9FF",
        "wash": "#192331",
    },
    _DARK,
    0.38,
)


@dataclass(frozen=True)
class Look:
    """How an approach is drawn.

    Attributes:
      colour: name in the palette.
      tint: name of the paler colour in the palette.
      shape: of the mark.
      fill: full for what learns, a tint for what is fitted, hollow for what is out of reach.
    """

    colour: str
    tint: str
    shape: str
    fill: Fill


def cast(summary: Summary) -> dict[str, Look]:
    """A look for each approach that routes; bounds are grey."""
    looks, bounds = {}, 0
    for name, points in ways.series(summary["points"]).items():
        first, place = points[0], len(looks) - bounds
        kind = first["kind"]
        if kind == "bound":
            looks[name] = Look("muted", "paper", SHAPES[bounds % len(SHAPES)], "hollow")
            bounds += 1
        else:
            colour = place % len(_LIGHT)
            fill: Fill = "hollow" if first["without"] else "full" if kind == "online" else "tint"
            looks[name] = Look(f"c{colour}", f"t{colour}", SHAPES[place % len(SHAPES)], fill)
    return looks


def outline(shape: str, x: float, y: float, radius: float) -> list[tuple[float, float]]:
    """Corners of a mark around a place, all of about the same area; a circle has none."""
    if shape == "circle":
        return []
    return [(x + radius * a, y + radius * b) for a, b in _CORNERS[shape]]


def _turned(corners: int, radius: float, start: float, inner: float = 1.0) -> list[tuple[float, float]]:
    """A regular polygon, or a star if every other corner is nearer to the middle."""
    angles = [math.radians(start) + 2 * math.pi * i / corners for i in range(corners)]
    radii = [radius * (inner if i % 2 else 1.0) for i in range(corners)]
    return [(r * math.cos(a), r * math.sin(a)) for r, a in zip(radii, angles, strict=True)]


def _cross(arm: float, half: float, turn: float) -> list[tuple[float, float]]:
    corners = [(arm, -half), (arm, half), (half, half), (half, arm), (-half, arm), (-half, half)]
    corners = [*corners, *((-a, -b) for a, b in corners)]
    c, s = math.cos(math.radians(turn)), math.sin(math.radians(turn))
    return [(c * a - s * b, s * a + c * b) for a, b in corners]


_CORNERS = {
    "square": _turned(4, 1.25, 45),
    "triangle": _turned(3, 1.4, -90),
    "diamond": _turned(4, 1.3, 0),
    "down": _turned(3, 1.4, 90),
    "plus": _cross(1.25, 0.45, 0),
    "cross": _cross(1.25, 0.45, 45),
    "star": _turned(10, 1.5, -90, 0.5),
    "hexagon": _turned(6, 1.15, 0),
}
