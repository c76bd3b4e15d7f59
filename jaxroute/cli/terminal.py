"""Abilities of the terminal: how wide its lines are, whether it has colours."""

import os
import shutil
import sys
import textwrap
from typing import TextIO

# Columns where nobody says how many there are: a file, a pipe, a log.
_USUAL = 80
# Text beyond this width is hard to read; tables may be as wide as the terminal.
_WIDEST_TEXT = 110
_COLOURS = {"green": 32, "red": 31, "yellow": 33}


def columns() -> int:
    """Columns of a table: those of the terminal, or what the variable COLUMNS says."""
    return max(40, shutil.get_terminal_size((_USUAL, 24)).columns)


def width() -> int:
    """Columns of a line of text."""
    return min(columns(), _WIDEST_TEXT)


def wrapped(label: str, text: str, indent: int = 8) -> str:
    """Text behind a label, in lines that fit; further lines are indented."""
    return textwrap.fill(text, width(), initial_indent=label, subsequent_indent=" " * indent, break_on_hyphens=False)


def has_colours(stream: TextIO) -> bool:
    """Whether colours may be written to a stream: to a terminal; NO_COLOR forbids them, FORCE_COLOR asks for them everywhere."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def coloured(text: str, colour: str) -> str:
    """Text in a colour (green, red or yellow), where standard output has it."""
    return f"\033[{_COLOURS[colour]}m{text}\033[0m" if has_colours(sys.stdout) else text
