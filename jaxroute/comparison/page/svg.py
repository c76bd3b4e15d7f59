"""A picture as SVG. Colours are classes, so that the page can change them on dark screens."""

from collections.abc import Mapping

from jaxroute.comparison.page.html import Markup, element
from jaxroute.comparison.page.looks import DARK, LIGHT, outline
from jaxroute.comparison.page.scene import Area, Hit, Item, Line, Scene, Text


def draw(scene: Scene, class_: str = "") -> Markup:
    """The SVG element of a picture."""
    return element(
        "svg",
        [_drawn(item) for item in scene.items],
        viewBox=f"0 0 {_n(scene.width)} {_n(scene.height)}",
        role="img",
        aria_label=scene.title,
        class_=class_ or None,
    )


def colours() -> str:
    """Style rules that give the classes of pictures their colours, on light and dark screens."""
    rules = [f".s-{name}{{stroke:var(--{name})}}.f-{name}{{fill:var(--{name})}}" for name in LIGHT]
    return (
        f":root{{{_variables(LIGHT)}}}"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}" + "".join(rules)
    )


def _variables(palette: Mapping[str, str]) -> str:
    return ";".join(f"--{name}:{colour}" for name, colour in palette.items())


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _path(points, closed: bool = False) -> str:
    return "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in points) + ("Z" if closed else "")


def _drawn(item: Item) -> Markup:
    if isinstance(item, Area):
        size = {"width": _n(item.right - item.left), "height": _n(item.bottom - item.top)}
        return element("rect", x=_n(item.left), y=_n(item.top), **size, class_=f"f-{item.fill}")
    if isinstance(item, Line):
        return element(
            "path",
            d=_path(item.points),
            class_=f"line s-{item.stroke}",
            stroke_width=_n(item.width),
            stroke_dasharray=" ".join(map(_n, item.dash)) or None,
            opacity=None if item.opacity == 1 else item.opacity,
            data_s=item.series,
        )
    if isinstance(item, Text):
        return element(
            "text",
            item.text,
            x=_n(item.x),
            y=_n(item.y),
            font_size=_n(item.size),
            text_anchor=None if item.anchor == "start" else item.anchor,
            font_weight="600" if item.bold else None,
            class_=f"f-{item.colour}{' halo' if item.halo else ''}",
            data_s=item.series,
        )
    if isinstance(item, Hit):
        where = {"cx": _n(item.x), "cy": _n(item.y), "r": _n(item.radius)}
        return element("circle", element("title", item.tip), **where, class_="hit", data_s=item.series)
    name = {"class_": f"s-{item.stroke} {f'f-{item.fill}' if item.fill else 'none'}", "stroke_width": _n(item.width)}
    corners = outline(item.shape, item.x, item.y, item.radius)
    where = {"d": _path(corners, closed=True)} if corners else {"cx": _n(item.x), "cy": _n(item.y), "r": _n(item.radius)}
    return element("path" if corners else "circle", **where, **name, data_s=item.series)
