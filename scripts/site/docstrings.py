"""Conversion of the package's docstrings to reStructuredText: fields, text in backticks, and `Source:`.

`name` of a documented object       a link to it
`any other` text in backticks       code
Attributes: of a class              its parameters, as in the call that makes it
name: text                          the same for fields of a dataclass without a heading
Source: ...                         in bold, like "Differs from the paper:"
"""

import dataclasses
import inspect
import re
import sys
from typing import Any

import api

_CODE = re.compile(r"(?<![`:\w])`([^`]+?)`(?!`)", re.DOTALL)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(\(\))?")
_LABELS = re.compile(r"^(Source|Sources|Differs from the paper|Not in the paper): ")
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields):$")


def _fields(thing: Any) -> set[str]:
    """Names of a class's fields: of a dataclass, of a NamedTuple, or annotated ones."""
    if not inspect.isclass(thing):
        return set()
    named = {f.name for f in dataclasses.fields(thing)} if dataclasses.is_dataclass(thing) else set()
    made_of = set(inspect.signature(thing).parameters) if vars(thing).get("__init__") else set()
    return named | set(getattr(thing, "_fields", ())) | set(inspect.get_annotations(thing)) | made_of


def _headed(lines: list[str], fields: set[str]) -> list[str]:
    """Lines with a heading for fields without one; attributes of a class become its parameters."""
    out: list[str] = []
    listing = False
    for line in lines:
        begins = re.match(r"(\w+): ", line)
        if begins and (begins.group(1) in fields or listing):
            if not listing:
                out += ["Args:"] if not out or not out[-1].strip() else ["", "Args:"]
            listing = True
            out.append(f"  {line}")
        elif listing and line.startswith("  "):
            out.append(f"  {line}")
        else:
            listing = listing and not line.strip()
            out.append("Args:" if line == "Attributes:" and fields else line)
    return out


def _resolved(text: str, thing: Any) -> str | None:
    """Full name of the documented object with a name in a docstring; None if there is none."""
    owner = thing.fget if isinstance(thing, property) else thing
    module = sys.modules.get(thing.__name__ if inspect.ismodule(thing) else getattr(owner, "__module__", None) or "")
    first, *more = text.split(".")
    scopes = [vars(module)] if module else []
    package = sys.modules.get(module.__name__.rpartition(".")[0]) if module else None
    scopes += [vars(package)] if package else []
    for scope in scopes:
        found = scope.get(first)
        for name in more:
            found = getattr(found, name, None)
        if found is not None and id(found) in api.names():
            return api.names()[id(found)]
    return None


def _inline(text: str, thing: Any, fields: set[str]) -> str:
    def replaced(match: re.Match) -> str:
        inside = " ".join(match.group(1).split())
        name = inside.removesuffix("()")
        if _IDENTIFIER.fullmatch(inside) and name not in fields:
            full = _resolved(name, thing)
            if full and full != api.names().get(id(thing)):
                return f":py:obj:`{inside} <{full}>`"
        return f"``{inside}``"

    return _CODE.sub(replaced, text)


def _blocks(lines: list[str]) -> list[str]:
    """Indented code after a blank line is a literal block."""
    out: list[str] = []
    literal, section = False, False
    for place, line in enumerate(lines):
        section = bool(_SECTION.match(line)) or (section and (not line.strip() or line.startswith(" ")))
        starts = place and line.startswith("    ") and not lines[place - 1].strip() and not section
        if starts and not literal:
            out += ["::", ""]
            literal = True
        elif literal and line.strip() and not line.startswith("    "):
            literal = False
        out.append(line)
    return out


def process(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Converts a docstring, in place, for napoleon and Sphinx."""
    fields = _fields(thing)
    if inspect.isclass(thing) and dataclasses.is_dataclass(thing) and lines and lines[0].startswith(f"{thing.__name__}("):
        lines[:] = []  # Written by `dataclass` for a class without docstring.
    blocks = _blocks(_headed([*lines], fields))
    text, literal = [], False
    pieces: list[list[str]] = [[]]
    for line in blocks:  # Code stays as it is; text is joined, as a formula may go over two lines.
        if line == "::":
            pieces += [[line]]
            literal = True
        elif literal and line.strip() and not line.startswith("    "):
            pieces += [[line]]
            literal = False
        else:
            pieces[-1].append(line)
    for piece in pieces:
        if piece and piece[0] == "::":
            text += piece
            continue
        joined = _inline("\n".join(piece), thing, fields)
        text += [_LABELS.sub(r"**\1:** ", line) for line in joined.split("\n")]
    lines[:] = text


def skip(app: Any, what: str, name: str, thing: Any, skipped: bool, options: Any) -> bool | None:
    """Skips members that `NamedTuple` and `dataclass` generate."""
    if inspect.isdatadescriptor(thing) and (inspect.getdoc(thing) or "").startswith("Alias for field number"):
        return True
    return True if name in ("replace", "tree_flatten", "tree_unflatten") else None
