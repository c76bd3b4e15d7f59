"""Formulas as MathML, which browsers draw themselves: no script, nothing from another server."""

from typing import Any

from latex2mathml.converter import convert


def _inline(writer: Any, node: Any) -> None:
    writer.body.append(convert(node.astext(), display="inline"))
    raise _skip()


def _block(writer: Any, node: Any) -> None:
    writer.body.append(f'<div class="formula">{convert(node.astext(), display="block")}</div>\n')
    raise _skip()


def _skip() -> Exception:
    from docutils.nodes import SkipNode

    return SkipNode()


def setup(app: Any) -> None:
    """Makes "mathml" a choice of `html_math_renderer`."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
