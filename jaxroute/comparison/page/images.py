"""Pictures as files: SVG inside the page, PNG and PDF beside it. Equal summaries give equal bytes."""

import io
import re
import xml.etree.ElementTree as ET

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.markers import MarkerStyle
from matplotlib.patheffects import withStroke

from jaxroute.comparison.page.looks import LIGHT, MARKERS, Look
from jaxroute.comparison.page.pictures import Picture, style

_SPACE = "{http://www.w3.org/2000/svg}"
_VARIABLES = {colour.lower(): f"var(--{name})" for name, colour in LIGHT.items()}
ET.register_namespace("", _SPACE[1:-1])
ET.register_namespace("xlink", "http://www.w3.org/1999/xlink")


@style()
def svg(picture: Picture, name: str) -> Markup:
    """The picture as an element of the page, in the colours of its style sheet.

    The page forbids inline styles, so these become attributes. Identifiers and clips of matplotlib, which would repeat, are removed.

    Args:
      picture: a picture.
      name: class of the element.
    """
    matplotlib.rcParams["svg.hashsalt"] = name
    stream = io.StringIO()
    picture.figure.savefig(stream, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    root = ET.fromstring(stream.getvalue())
    for definitions in root.findall(f"{_SPACE}defs"):
        root.remove(definitions)
    for part in list(root.iter()):
        attributes, tag = part.attrib, part.tag.removeprefix(_SPACE)
        styles = [entry.split(":", 1) for entry in attributes.pop("style", "").split(";") if entry]
        styles = {key.strip(): value.strip() for key, value in styles}
        attributes.update({key: _VARIABLES.get(value, value) for key, value in styles.items() if key != "font-family"})
        for key in {"d", "x", "y"} & set(attributes):
            attributes[key] = re.sub(r"\d+\.\d+", lambda n: f"{float(n[0]):.1f}", " ".join(attributes[key].split()))
        attributes.pop("clip-path", None)
        if tag == "text":
            del attributes["transform"]  # All texts are horizontal.
        if tag == "g":
            kind, _, tip = attributes.pop("id", "").partition(": ")
            if kind == "tip":
                part.insert(0, title := ET.Element(f"{_SPACE}title"))
                title.text = tip
        part.text, part.tail = part.text if tag == "text" else None, None
    root.attrib = {"viewBox": root.get("viewBox", ""), "role": "img", "aria-label": picture.title, "class": name}
    return Markup(ET.tostring(root, encoding="unicode"))


@style()
def files(picture: Picture) -> dict[str, bytes]:
    """The picture as PNG and PDF."""
    for label in picture.figure.axes[0].texts:
        label.set_path_effects([withStroke(linewidth=2.5, foreground=LIGHT["paper"])])
    made = {}
    for kind, metadata in (("png", {"Software": None}), ("pdf", {"CreationDate": None})):
        picture.figure.savefig(stream := io.BytesIO(), format=kind, dpi=144, metadata=metadata)
        made[kind] = stream.getvalue()
    return made


def symbol(look: Look) -> Markup:
    """The mark of a strategy beside its name."""
    marker, size = MarkerStyle(look.marker), 10 * MARKERS[look.marker]
    corners = np.asarray(marker.get_path().transformed(marker.get_transform().scale(size, -size)).to_polygons()[0])[:-1]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in corners) + "Z"
    path = "M-5 0A5 5 0 1 1 5 0A5 5 0 1 1-5 0Z" if look.marker == "o" else path
    shape = Markup('<path d="{}" fill="var(--{})" stroke="var(--{})"/>').format(path, look.face, look.colour)
    return Markup('<svg class="symbol" viewBox="-8 -8 16 16" aria-hidden="true">{}</svg>').format(shape)
