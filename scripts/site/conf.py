"""Sphinx's settings. The source folder is put together by build.py: pages, notebooks, and what is made from the package."""

import pydoc
import re
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

import api  # noqa: E402
import docstrings  # noqa: E402
from docutils.nodes import SkipNode  # noqa: E402
from latex2mathml.converter import convert  # noqa: E402
from sphinx.util import logging  # noqa: E402

import jaxroute  # noqa: E402

_log = logging.getLogger(__name__)
_ziamath = find_spec("ziamath")
assert _ziamath is not None and _ziamath.origin is not None, "the extra `docs` has it"
# STIX Two Math, a part of ziamath, for formulas as MathML, which browsers draw themselves.
FONTS = Path(_ziamath.origin).parent / "fonts"

project = "jaxroute"
author = "The jaxroute developers"
copyright = author
version = release = jaxroute.__version__
language = "en"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "sphinx_design", "problem_pages"]
nitpicky = True
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "attrs_inline", "substitution"]
# Address of jaxroute, if pyproject.toml has it.
_HOME = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {}).get("Repository")
myst_substitutions = {"home": f"The sources are at [{_HOME}]({_HOME})." if _HOME else "It has no public address yet."}
myst_heading_anchors = 4
myst_links_external_new_tab = False
nb_execution_mode = "off"  # Pages show what a notebook was saved with; the tests run them.
nb_merge_streams = True
html_math_renderer = "mathml"  # In the page itself: no script, nothing from another server.

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
toc_object_entries_show_parents = "hide"
add_module_names = False

html_theme = "furo"
html_title = f"jaxroute {version}"
html_static_path = ["static", str(FONTS)]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
html_theme_options: dict[str, Any] = {"navigation_with_keys": True, "top_of_page_buttons": []}
if _HOME:
    html_theme_options["source_repository"] = _HOME
copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def _missing(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    """Resolves a link in a type hint; types of other packages become plain text. Links that an author wrote must exist."""
    if node.get("refdomain") != "py":
        return None
    # The name under which the object is shown may be another than that of its module.
    shown = api.names().get(id(pydoc.locate(node["reftarget"])))
    if shown and shown != node["reftarget"]:
        found = env.get_domain("py").resolve_xref(env, node["refdoc"], app.builder, "obj", shown, node, contnode)
        if found is not None:
            return found
    return contnode if node["refdoc"].startswith("api/") else None


def _short_hints(app: Any, domain: str, kind: str, content: Any) -> None:
    """Removes uninformative type hints: `Any`, parameters of protocols, and unions of more than two lines."""
    for hints in app.env.current_document.autodoc_annotations.values():
        for name, hint in list(hints.items()):
            short = re.sub(r"\[(~typing\.Any(, )?)+\]", "", hint)
            is_any = short.strip(":`~").endswith("typing.Any") and "[" not in short
            if is_any or len(re.sub(r"~[\w.]+\.", "", short)) > 110:
                del hints[name]
            else:
                hints[name] = short


def _signature(_: Any, what: str, name: str, thing: Any, options: Any, signature: str, returned: str) -> Any:
    """Removes the signature of protocols, which are not called."""
    return ("", returned) if what == "class" and getattr(thing, "_is_protocol", False) else None


def _converted(node: Any, display: str) -> str:
    made = convert(node.astext(), display=display)
    if "\\" in made:  # An unknown command stays as it is.
        _log.warning("a formula has an unknown command: %s", node.astext(), location=node)
    return made


def _inline_formula(writer: Any, node: Any) -> None:
    writer.body.append(_converted(node, "inline"))
    raise SkipNode


def _block_formula(writer: Any, node: Any) -> None:
    writer.body.append(f'<div class="formula">{_converted(node, "block")}</div>\n')
    raise SkipNode


def setup(app: Any) -> None:
    app.connect("object-description-transform", _short_hints, priority=400)  # Before autodoc writes the types.
    app.connect("autodoc-process-docstring", docstrings.process, priority=400)  # Before napoleon, which has 500.
    app.connect("autodoc-skip-member", docstrings.skip)
    app.connect("autodoc-process-signature", _signature)
    app.connect("missing-reference", _missing)
    app.add_html_math_renderer("mathml", (_inline_formula, None), (_block_formula, None))
