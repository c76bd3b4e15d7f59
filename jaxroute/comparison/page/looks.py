"""Colours and marks of strategies, the same in the page, its pictures, and the files for print.

The colours follow Okabe and Ito, darkened to a contrast of 4.5 on white, and lightened for dark screens. Marks differ as well, so no
picture relies on colour alone.
"""

from dataclasses import dataclass, replace
from typing import Literal

from jaxroute.comparison.page import strategies
from jaxroute.comparison.points import Summary

_SERIES = ("#B84300", "#0069A6", "#00755A", "#A03A7F", "#7A5B00", "#6A3D9A", "#AD1F3F", "#2A6B78", "#55690C", "#8A4B2A")
_SERIES_DARK = ("#FF9457", "#5FB8F2", "#3FD0A6", "#F092CC", "#E3BC55", "#BBA1F2", "#FF8A9E", "#6CCBDC", "#B9CE58", "#DDA27F")
_BASE = {"paper": "#FFFFFF", "raised": "#F6F7F9", "ink": "#16191F", "muted": "#5A6270", "rule": "#DDE1E7", "grid": "#ECEEF2"}
_BASE |= {"dot": "#6F7785", "frontier": "#C9CFD9", "accent": "#0B5CAD", "wash": "#EEF4FB"}
_DARK = {"paper": "#14171C", "raised": "#1C2027", "ink": "#ECEFF4", "muted": "#A4ADBB", "rule": "#343A45", "grid": "#242931"}
_DARK |= {"dot": "#98A1AF", "frontier": "#4A5260", "accent": "#7DB9FF", "wash": "#192331"}
# Markers of matplotlib, with relative sizes that make their areas about equal.
MARKERS = {"o": 1.0, "s": 0.9, "^": 1.15, "D": 0.87, "v": 1.15, "P": 1.15, "X": 1.1, "*": 1.4, "h": 1.08}


def _palette(base: dict[str, str], series: tuple[str, ...], tint: float) -> dict[str, str]:
    """Returns colours by name: `base`, those of strategies (`series`) as `c0`, `c1`, ..., and `NAME-tint`, a share `tint` of NAME on the background."""

    def mixed(colour: str) -> str:
        channels = [(int(colour[i : i + 2], 16), int(base["paper"][i : i + 2], 16)) for i in (1, 3, 5)]
        return "#" + "".join(f"{round(tint * a + (1 - tint) * b):02X}" for a, b in channels)

    strong = {f"c{i}": colour for i, colour in enumerate(series)} | {"muted": base["muted"]}
    return base | strong | {f"{name}-tint": mixed(colour) for name, colour in strong.items()}


LIGHT, DARK = _palette(_BASE, _SERIES, 0.3), _palette(_DARK, _SERIES_DARK, 0.38)


@dataclass(frozen=True)
class Look:
    """Mark of a strategy.

    Attributes:
      colour: name in the palette.
      marker: shape, as in matplotlib.
      fill: full for online policies, a tint for fitted rules, hollow for strategies that cannot be deployed.
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
    """Assigns coloured marks to the strategies that route queries, and grey marks to upper bounds."""
    looks, markers = {}, list(MARKERS)
    groups = strategies.series(summary["points"])
    routing = [name for name, points in groups.items() if points[0]["kind"] != "bound"]
    for i, name in enumerate(routing):
        first = groups[name][0]
        fill = "hollow" if first["without"] else "full" if first["kind"] == "online" else "tint"
        looks[name] = Look(f"c{i % len(_SERIES)}", markers[i % len(markers)], fill)
    bounds = [name for name in groups if name not in looks]
    return looks | {name: Look("muted", markers[i % len(markers)], "hollow") for i, name in enumerate(bounds)}
