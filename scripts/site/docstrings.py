"""Conversion of the package's docstrings to reStructuredText: fields, text in backticks, and `Source:`.

`name` of a documented object       a link to it
`any other` text in backticks       code
Attributes: of a class              its parameters, as in the call that makes it
Source: ...                         in bold, like "Differs from the paper:"
"""

import inspect
import re
import sys
from typing import Any

import api

_CODE = re.compile(r"(?<![`:\w])`([^`]+?)`(?!`)", re.DOTALL)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(\(\))?")
_LABELS = re.compile(r"(?m)^(Source|Sources|Differs from the paper|Not in the paper): ")
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields):$")


def _fields(thing: Any) -> set[str]:
    """Names of a class's fields: of a dataclass, of a NamedTuple, or annotated ones."""
    if not inspect.isclass(thing):
        return set()
    parameters = set(inspect.signature(thing).parameters) if vars(thing).get("__init__") else set()
    return parameters | set(getattr(thing, "_fields", ())) | set(inspect.get_annotations(thing))


def _resolved(text: str, thing: Any) -> str | None:
    """Returns the full name of the documented object with a name in a docstring; None if there is none."""
    owner = thing.fget if isinstance(thing, property) else thing
    name = thing.__name__ if inspect.ismodule(thing) else getattr(owner, "__module__", None) or ""
    first, *more = text.split(".")
    for scope in (sys.modules.get(name), sys.modules.get(name.rpartition(".")[0])):
        found = vars(scope).get(first) if scope else None
        for part in more:
            found = getattr(found, part, None)
        if found is not None and id(found) in api.names():
            return api.names()[id(found)]
    return None


def _inline(text: str, thing: Any, fields: set[str]) -> str:
    """Converts what is in backticks to links and code, and labels to bold text."""

    def replaced(match: re.Match) -> str:
        inside = " ".join(match.group(1).split())
        name = inside.removesuffix("()")
        full = _resolved(name, thing) if _IDENTIFIER.fullmatch(inside) and name not in fields else None
        return f":py:obj:`{inside} <{full}>`" if full and full != api.names().get(id(thing)) else f"``{inside}``"

    return _LABELS.sub(r"**\1:** ", _CODE.sub(replaced, text))


def process(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Converts a docstring, in place, for napoleon and Sphinx. Indented code after a blank line becomes a literal block."""
    fields = _fields(thing)
    pieces: list[tuple[bool, list[str]]] = [(False, [])]  # Whether it is code; a formula in text may span several lines.
    section, before = False, "text"
    for line in lines:
        line = "Args:" if line == "Attributes:" and fields else line
        section = bool(_SECTION.match(line)) or (section and (not line.strip() or line.startswith(" ")))
        literal = pieces[-1][0]
        if not literal and line.startswith("    ") and not before.strip() and not section:
            pieces.append((True, ["::", ""]))
        elif literal and line.strip() and not line.startswith("    "):
            pieces.append((False, []))
        pieces[-1][1].append(line)
        before = line
    text = ("\n".join(piece) if code else _inline("\n".join(piece), thing, fields) for code, piece in pieces if piece)
    lines[:] = "\n".join(text).split("\n") if any(piece for _, piece in pieces) else []


def skip(app: Any, what: str, name: str, thing: Any, skipped: bool, options: Any) -> bool | None:
    """Skips members that `NamedTuple` and `dataclass` generate."""
    field = inspect.isdatadescriptor(thing) and (inspect.getdoc(thing) or "").startswith("Alias for field number")
    return field or name in ("replace", "tree_flatten", "tree_unflatten") or None
