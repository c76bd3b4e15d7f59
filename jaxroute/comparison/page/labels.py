"""Finds places for the labels of a picture: near the point that each label names, on no other label, and inside the picture."""

import itertools
import math
import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

_ANGLES = tuple(math.radians(a) for a in (0, 180, 90, -90, 35, -35, 145, -145, 65, -65, 115, -115))
_DISTANCES = (0.0, 9.0, 20.0, 33.0, 48.0)  # Distances of a label from its point that are tried, in addition to `gap`.
Box = Sequence[float]  # Left, lower, right and upper border.


def shortened(text: str, letters: int) -> str:
    """Returns a text in at most `letters` characters. A longer one gets an ellipsis in its middle, as names differ at their beginnings and ends."""
    text = " ".join(text.split())
    tail = (letters - 1) // 3
    return text if len(text) <= letters else f"{text[: letters - 1 - tail]}…{text[len(text) - tail :]}"


def stand_in(text: str) -> str:
    """Replaces wide (East Asian) letters, which matplotlib's font lacks, by W, so that the width of a text can be measured for any font."""
    return "".join("W" if unicodedata.east_asian_width(letter) in "WF" else letter for letter in text)


class Placer:
    """Finds free places for labels in the rectangle `area`, one label after another, the most important first. Lengths are in points (1/72 inch)."""

    def __init__(self, area: Box) -> None:
        self._area = np.asarray(area, float)
        self._taken = np.empty((0, 4))
        self._obstacles = np.empty((0, 4))
        self._prices = np.empty(0)

    def avoid(self, points: ArrayLike, radius: float, price: float) -> None:
        """Adds a square of half-width `radius` around each of `points`. A label costs `price` more if it covers all of the square, less if a part."""
        centres = np.reshape(np.asarray(points, float), (-1, 2))
        self._obstacles = np.vstack([self._obstacles, np.hstack([centres - radius, centres + radius])])
        self._prices = np.append(self._prices, np.full(len(centres), price / (2 * radius) ** 2))

    def avoid_line(self, points: ArrayLike, price: float) -> None:
        """Discourages labels over a line: a label costs about `price` more for each 8 points (1/72 inch) of the line's length that it covers."""
        for start, end in itertools.pairwise(np.asarray(points, float)):
            pieces = max(1, int(np.hypot(*(end - start)) / 8))
            self.avoid(start + (end - start) * np.linspace(0, 1, pieces + 1)[:, None], 1.5, price)

    def place(
        self, size: Sequence[float], point: Sequence[float], gap: float, limit: float
    ) -> tuple[Box, Sequence[float] | None] | None:
        """Reserves the best free rectangle ("box") for a label of the given size (width, height) near a point, at least `gap` away from it.

        A box costs about its distance from the point plus the prices of what it covers. Returns None if all free boxes cost more than `limit`.
        Otherwise returns the box and the end of a line to it from the point; None for no line if the box is at most `gap + 7` away.
        """
        tries = [(d, i, a) for n, d in enumerate(_DISTANCES) for i, a in enumerate(_ANGLES) if n or i < 10]
        boxes = np.array([_beside(point, size, gap + distance, angle) for distance, _, angle in tries])
        ends = np.clip(point, boxes[:, :2], boxes[:, 2:])
        far = np.hypot(*(ends - point).T) > gap + 7
        spots = point + (ends - point)[:, None] * np.linspace(0, 1, 9)[:, None]
        inside = (spots[:, :, None] > self._taken[:, :2]) & (spots[:, :, None] < self._taken[:, 2:])
        refused = (far & np.any(inside.all(-1), axis=(1, 2))) | (_overlap(boxes, self._taken) > 0).any(1)
        refused |= (boxes[:, :2] < self._area[:2]).any(1) | (boxes[:, 2:] > self._area[2:]).any(1)
        prices = [0.8 * distance + 0.5 * turn for distance, turn, _ in tries]
        prices = prices + _overlap(boxes, self._obstacles) @ self._prices
        best = int(np.argmin(np.where(refused, math.inf, prices)))
        if refused[best] or prices[best] > limit:
            return None
        self._taken = np.vstack([self._taken, boxes[best] + (-2, -1, 2, 1)])
        if far[best]:
            self.avoid_line([point, ends[best]], 8.0)
        return boxes[best].tolist(), ends[best].tolist() if far[best] else None


def _overlap(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Returns the areas `[B, O]` that rectangles (left, bottom, right, top) in `boxes` `[B, 4]` share with those in `others` `[O, 4]`."""
    sides = np.minimum(boxes[:, None, 2:], others[:, 2:]) - np.maximum(boxes[:, None, :2], others[:, :2])
    return np.maximum(sides, 0.0).prod(-1)


def _beside(point: Sequence[float], size: Sequence[float], distance: float, angle: float) -> tuple[float, ...]:
    """Returns a rectangle (left, bottom, right, top) of a size (width, height) beside a point.

    The middle of a side, or a corner, is at `distance` from the point in the direction `angle`, in radians counterclockwise from the right.
    """
    (x, y), (width, height), dx, dy = point, size, math.cos(angle), math.sin(angle)
    left = x + distance * dx - width * (0.0 if dx > 0.2 else 1.0 if dx < -0.2 else 0.5)
    low = y + distance * dy - height * (0.0 if dy > 0.9 else 1.0 if dy < -0.9 else 0.5)
    return left, low, left + width, low + height
