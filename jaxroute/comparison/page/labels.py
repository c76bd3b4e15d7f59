"""Placing labels: next to what they name, on nothing else, and inside the picture."""

import itertools
import math
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from jaxroute.comparison.page.html import cleaned

_WIDTHS = {
    letter: width
    for width, letters in (
        (0.29, "ijlIJ'"),
        (0.34, " ,./:;|\\-f"),
        (0.41, "()[]t!r"),
        (0.52, '"*_`sz?'),
        (0.6, "cLFkvxyPTYa"),
        (0.64, "oeESbdghnpqu$0123456789{}"),
        (0.84, "w+<=>~^#"),
        (1.0, "mMW@%"),
    )
    for letter in letters
}


class Box(NamedTuple):
    """A rectangle, from its left and upper to its right and lower border."""

    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: "Box") -> float:
        """Area that two have in common."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return width * height if width > 0 and height > 0 else 0.0

    def inside(self, other: "Box") -> bool:
        """Whether it lies in another."""
        return (
            self.left >= other.left and self.right <= other.right and self.top >= other.top and self.bottom <= other.bottom
        )


class Placed(NamedTuple):
    """Where a label stands.

    x: left end of the text. y: its baseline. box: around it. leader: line to what it names if that is not next to it, else None.
    """

    x: float
    y: float
    box: Box
    leader: tuple[tuple[float, float], tuple[float, float]] | None


def text_width(text: str, size: float, bold: bool = False) -> float:
    """Width of a text in DejaVu Sans, which is wider than most fonts that a page may meet."""
    width = 0.0
    for letter in text:
        if unicodedata.combining(letter):
            continue
        if unicodedata.east_asian_width(letter) in "WF":
            width += 1.05
        elif letter in _WIDTHS:
            width += _WIDTHS[letter]
        else:
            width += 0.79 if letter.isupper() else 0.7
    return width * size * (1.13 if bold else 1.0)


def shortened(text: str, letters: int) -> str:
    """A text with its middle left out if it is long; beginnings and ends of names tell them apart."""
    text = cleaned(" ".join(text.split()))
    if len(text) <= letters:
        return text
    tail = (letters - 1) // 3
    return f"{text[: letters - 1 - tail]}…{text[len(text) - tail :]}"


@dataclass
class Placer:
    """Finds free places for labels, one after the other: the first has the choice.

    Attributes:
      area: labels stay inside.
      hard: boxes that no label may touch.
      soft: boxes that a label had better not touch, with what touching all of it costs.
    """

    area: Box
    hard: list[Box] = field(default_factory=list)
    soft: list[tuple[Box, float]] = field(default_factory=list)

    def avoid(self, x: float, y: float, radius: float, price: float) -> None:
        """Keeps labels away from a mark."""
        self.soft.append((Box(x - radius, y - radius, x + radius, y + radius), price))

    def avoid_line(self, points: Iterable[tuple[float, float]], price: float) -> None:
        """Keeps labels away from a line."""
        points = list(points)
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            pieces = max(1, int(math.hypot(x1 - x0, y1 - y0) / 8))
            for i in range(pieces + 1):
                self.avoid(x0 + (x1 - x0) * i / pieces, y0 + (y1 - y0) * i / pieces, 1.5, price)

    def place(
        self, text: str, size: float, x: float, y: float, gap: float, limit: float, bold: bool = False
    ) -> Placed | None:
        """The best free place for the label of a mark.

        Args:
          text: the label.
          size: of its letters.
          x: place of the mark.
          y: place of the mark.
          gap: between the mark's middle and the label, at least.
          limit: what a place may cost: pixels of distance, and prices of what it touches.
          bold: whether the letters are.

        Returns:
          the place, which is then taken; None if all cost too much.
        """
        width, height = text_width(text, size, bold), size * 1.2
        best: tuple[float, Box] | None = None
        for ring, distance in enumerate((gap, gap + 9, gap + 20, gap + 33, gap + 48)):
            for turn, angle in enumerate((0, 180, -90, 90, -35, 35, -145, 145, -65, 65, -115, 115)):
                if ring == 0 and turn > 7:
                    continue
                box = _beside(x, y, distance, math.radians(angle), width, height)
                price = (distance - gap) * 0.8 + turn * 0.5
                if (best and price >= best[0]) or not box.inside(self.area) or any(box.overlap(b) for b in self.hard):
                    continue
                if ring > 1 and self._crossed(_leader(x, y, box, gap)):
                    continue
                touched = 0.0
                for other, costs in self.soft:
                    left, top, right, bottom = other
                    if left < box.right and right > box.left and top < box.bottom and bottom > box.top:
                        touched += costs * box.overlap(other) / ((right - left) * (bottom - top))
                price += touched
                if best is None or price < best[0]:
                    best = price, box
        if best is None or best[0] > limit:
            return None
        box = best[1]
        self.hard.append(Box(box.left - 2, box.top - 1, box.right + 2, box.bottom + 1))
        leader = _leader(x, y, box, gap)
        if leader:
            self.avoid_line(leader, 8.0)
        return Placed(box.left, box.bottom - 0.28 * size, box, leader)

    def _crossed(self, leader: tuple[tuple[float, float], tuple[float, float]] | None) -> bool:
        """Whether a line runs through a label."""
        if leader is None:
            return False
        (x0, y0), (x1, y1) = leader
        spots = [(x0 + (x1 - x0) * i / 8, y0 + (y1 - y0) * i / 8) for i in range(9)]
        return any(b.left < x < b.right and b.top < y < b.bottom for b in self.hard for x, y in spots)


def _beside(x: float, y: float, distance: float, angle: float, width: float, height: float) -> Box:
    """The box of a label whose nearest side or corner is at a distance of a mark in a direction."""
    dx, dy = math.cos(angle), math.sin(angle)
    across = 0.0 if dx > 0.2 else (-width if dx < -0.2 else -width / 2)
    down = 0.0 if dy > 0.9 else (-height if dy < -0.9 else -height / 2)
    left, top = x + distance * dx + across, y + distance * dy + down
    return Box(left, top, left + width, top + height)


def _leader(x: float, y: float, box: Box, gap: float) -> tuple[tuple[float, float], tuple[float, float]] | None:
    end = (min(max(x, box.left), box.right), min(max(y, box.top + 2), box.bottom - 2))
    length = math.hypot(end[0] - x, end[1] - y)
    if length <= gap + 7:
        return None
    part = gap * 0.75 / length
    return (x + part * (end[0] - x), y + part * (end[1] - y)), end


def spread(places: list[float], height: float, low: float, high: float) -> list[float]:
    """Places of labels in a column, moved as little as needed to be `height` apart and inside; in the given order."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved = list(places)
    step = min(height, (high - low) / max(len(places) - 1, 1))
    floor = low
    for i in order:
        moved[i] = floor = max(moved[i], floor)
        floor += step
    ceiling = high
    for i in reversed(order):
        moved[i] = ceiling = min(moved[i], ceiling)
        ceiling -= step
    return moved
