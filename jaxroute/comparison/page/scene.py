"""What a picture consists of, in pixels: drawn as SVG in the page and by matplotlib in the files for print, from the same list."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Line:
    """A line through points; `dash` as in SVG, empty if it is drawn through; `series` is the number of its approach, or None."""

    points: tuple[tuple[float, float], ...]
    stroke: str
    width: float = 1.0
    dash: tuple[float, ...] = ()
    opacity: float = 1.0
    series: int | None = None


@dataclass(frozen=True)
class Area:
    """A filled rectangle."""

    left: float
    top: float
    right: float
    bottom: float
    fill: str


@dataclass(frozen=True)
class Mark:
    """A mark at a place."""

    x: float
    y: float
    shape: str
    radius: float
    stroke: str
    fill: str | None
    width: float = 1.3
    series: int | None = None


@dataclass(frozen=True)
class Hit:
    """Where the page says something when it is pointed at: a text with line breaks. It is not seen."""

    x: float
    y: float
    radius: float
    tip: str
    series: int | None = None


@dataclass(frozen=True)
class Text:
    """A text on one line, from its baseline."""

    x: float
    y: float
    text: str
    size: float
    colour: str
    anchor: Literal["start", "middle", "end"] = "start"
    bold: bool = False
    halo: bool = False
    series: int | None = None


Item = Line | Area | Mark | Hit | Text


@dataclass
class Scene:
    """A picture.

    Attributes:
      width: in pixels.
      height: in pixels.
      title: what it shows, for those who do not see it.
      items: from the lowest to the topmost.
    """

    width: float
    height: float
    title: str
    items: list[Item] = field(default_factory=list)

    def add(self, *items: Item) -> None:
        """Puts items on top."""
        self.items.extend(items)

    def texts(self) -> list[Text]:
        """All texts."""
        return [item for item in self.items if isinstance(item, Text)]
