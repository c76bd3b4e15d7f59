"""Text that is HTML, and text that is not yet: whatever comes from the user's table is escaped by the way it is written."""

import html
import re
from collections.abc import Iterable
from typing import Any

_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_VOID = {"meta", "br", "hr", "wbr"}
_SHAPES = {"path", "circle", "line", "rect", "polyline"}  # Of SVG, which may close themselves.


class Markup(str):
    """A text that is HTML already and is put into a page as it is."""

    __slots__ = ()


def escape(value: Any) -> Markup:
    """Text as HTML; control characters become the replacement character."""
    return value if isinstance(value, Markup) else Markup(_escaped(str(value)))


def cleaned(text: str) -> str:
    """A text without control characters and halves of letters, which neither HTML nor fonts know."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def _escaped(text: str) -> str:
    return html.escape(cleaned(text), quote=True)


def breakable(text: str, letters: int = 22) -> Markup:
    """A text whose very long words may be broken, so that no table grows by them."""
    words = re.split(r"(\s+)", cleaned(text))
    return joined(
        joined([element("wbr"), w[i : i + letters]] if i else w[:letters] for i in range(0, len(w), letters))
        for w in words
        if w
    )


def joined(children: Iterable[Any]) -> Markup:
    """Children one after the other, escaped unless they are HTML; None is nothing, and lists are taken apart."""
    parts = []
    for child in children:
        if child is None:
            continue
        parts.append(joined(child) if isinstance(child, (list, tuple)) else escape(child))
    return Markup("".join(parts))


def element(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """An element with its contents.

    Args:
      name: of the element.
      children: texts, elements, None, or lists of them.
      attributes: `class_` is written `class`, `data_s` is written `data-s`; None and False are left out, True has no value.

    Returns:
      its HTML.
    """
    opened = [name]
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            opened.append(key)
        elif value is not None and value is not False:
            opened.append(f'{key}="{_escaped(str(value))}"')
    start = " ".join(opened)
    if name in _VOID:
        return Markup(f"<{start}>")
    inner = joined(children)
    if name in _SHAPES and not inner:
        return Markup(f"<{start}/>")
    return Markup(f"<{start}>{inner}</{name}>")
