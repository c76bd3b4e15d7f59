"""Formulas as MathML, which browsers draw themselves: no script, nothing from another server."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docutils.nodes import SkipNode
from latex2mathml.converter import convert
from sphinx.util import logging

_ziamath = find_spec("ziamath")
assert _ziamath is not None and _ziamath.origin is not None, "the extra `docs` has it"
# STIX Two Math, a part of ziamath.
FONTS = Path(_ziamath.origin).parent / "fonts"
_log = logging.getLogger(__name__)


def _converted(node: Any, display: str) -> str:
    made = convert(node.astext(), display=display)
    if "\\" in made:  # An unknown command stays as it is.
        _log.warning("a formula has an unknown command: %s", node.astext(), location=node)
    return made


def _inline(writer: Any, node: Any) -> None:
    writer.body.append(_converted(node, "inline"))
    raise SkipNode


def _block(writer: Any, node: Any) -> None:
    writer.body.append(f'<div class="formula">{_converted(node, "block")}</div>\n')
    raise SkipNode


def setup(app: Any) -> None:
    """Makes "mathml" a choice of `html_math_renderer`."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
