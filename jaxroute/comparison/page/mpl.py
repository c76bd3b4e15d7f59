"""A picture as PNG and PDF, by matplotlib: the same marks at the same places as in the page."""

import io
import warnings

from jaxroute.comparison.page.looks import LIGHT, outline
from jaxroute.comparison.page.scene import Area, Item, Line, Mark, Scene, Text

_PIXEL = 1 / 96  # Of the page, in inches.
_POINT = 0.75  # Points in a pixel.
_FONTS = ("Helvetica Neue", "Helvetica", "Arial", "Liberation Sans")
_WIDE = "DejaVu Sans"  # Comes with matplotlib, and is wider than the fonts of the page.


def files(scene: Scene) -> dict[str, bytes]:
    """The picture as a PNG and a PDF, by the ends of their names; none without matplotlib."""
    try:
        import matplotlib.font_manager
        from matplotlib.figure import Figure
    except ImportError:
        return {}
    with warnings.catch_warnings(), matplotlib.rc_context({"pdf.fonttype": 42, "text.usetex": False, "path.sketch": None}):
        warnings.simplefilter("ignore")  # Letters that none of the fonts has are drawn as boxes.
        figure = Figure(figsize=(scene.width * _PIXEL, scene.height * _PIXEL), facecolor=LIGHT["paper"])
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, scene.width), ylim=(scene.height, 0))
        axes.set_axis_off()
        there = matplotlib.font_manager.get_font_names()
        fonts = [*(f for f in _FONTS if f in there), _WIDE]
        for order, item in enumerate(scene.items):
            _draw(axes, item, order, fonts)
        found = {}
        for end, metadata in (("png", {"Software": None}), ("pdf", {"CreationDate": None})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=end, dpi=192, metadata=metadata)
            found[end] = buffer.getvalue()
        return found


def _draw(axes, item: Item, order: int, fonts: list[str]) -> None:
    from matplotlib.patches import Circle, Polygon, Rectangle
    from matplotlib.patheffects import withStroke

    if isinstance(item, Area):
        size = (item.right - item.left, item.bottom - item.top)
        axes.add_patch(Rectangle((item.left, item.top), *size, facecolor=LIGHT[item.fill], linewidth=0, zorder=order))
    elif isinstance(item, Line):
        style = (0, tuple(d / item.width for d in item.dash)) if item.dash else "-"
        look = {"color": LIGHT[item.stroke], "linewidth": item.width * _POINT, "alpha": item.opacity, "linestyle": style}
        axes.plot(*zip(*item.points, strict=True), **look, zorder=order)
    elif isinstance(item, Mark):
        corners = outline(item.shape, item.x, item.y, item.radius)
        look = {
            "facecolor": LIGHT[item.fill] if item.fill else "none",
            "edgecolor": LIGHT[item.stroke],
            "linewidth": item.width * _POINT,
            "zorder": order,
        }
        axes.add_patch(Polygon(corners, closed=True, **look) if corners else Circle((item.x, item.y), item.radius, **look))
    elif isinstance(item, Text):
        axes.text(
            item.x,
            item.y,
            item.text,
            fontsize=item.size * _POINT * (0.9 if fonts[0] == _WIDE else 1.0),
            color=LIGHT[item.colour],
            ha={"start": "left", "middle": "center", "end": "right"}[item.anchor],
            va="baseline",
            fontfamily=fonts,
            fontweight="bold" if item.bold else "normal",
            parse_math=False,
            path_effects=[withStroke(linewidth=2.5, foreground=LIGHT["paper"])] if item.halo else None,
            zorder=order,
        )
