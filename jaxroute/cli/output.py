"""Prints the output of a command: paragraphs and tables for people, or one JSON document for programs."""

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any


def table_width() -> int:
    """Returns the width of tables in characters: the variable COLUMNS if it is set, else the terminal's width, else 80; at least 40."""
    return max(40, shutil.get_terminal_size((80, 24)).columns)


def text_width() -> int:
    """Returns the width of paragraphs in characters: `table_width()`, but at most 110, because longer lines are hard to read."""
    return min(table_width(), 110)


class Output:
    """Prints the output of a command.

    Attributes:
      json: whether to print JSON only; all methods except `document` then do nothing.
      quiet: whether `lines`, `text` and `rows` print nothing; `document` still prints its JSON.
    """

    def __init__(self, *, json: bool = False, quiet: bool = False) -> None:
        self.json, self.quiet = json, quiet
        self._stream = sys.stdout

    def document(self, value: Any) -> None:
        """Prints a value as JSON if `json` is set; otherwise does nothing."""
        if self.json:
            print(json.dumps(value, indent=2, default=str), file=self._stream)

    def lines(self, *lines: str) -> None:
        if not (self.json or self.quiet):
            print(*lines, sep="\n", file=self._stream, flush=True)

    def text(self, text: str, indent: int = 0) -> None:
        """Prints a paragraph, broken into lines; all lines except the first are indented by `indent` characters."""
        wrapper = textwrap.TextWrapper(text_width(), subsequent_indent=" " * indent, replace_whitespace=False)
        wrapper.break_on_hyphens = wrapper.break_long_words = False
        self.lines(wrapper.fill(text))

    def rows(
        self, rows: Iterable[Sequence[str]], heads: Sequence[str] = (), indent: int = 0, label_width: int | None = None
    ) -> None:
        """Prints a table with the headings `heads`, indented by `indent` characters, folding its last column if it is too wide.

        Without headings, rows are (label, text) or (label, text, colour of the label), and labels fill at least `label_width` characters, if given.
        """
        if self.json or self.quiet:
            return
        from rich.console import Console
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_header=bool(heads), pad_edge=False, padding=(0, 2, 0, 0), header_style="none")
        for i, head in enumerate(heads or ("", "")):
            table.add_column(Text.assemble((head, "bold")), no_wrap=i + 1 < len(heads or "12"), overflow="fold")
        table.columns[0].min_width = label_width
        for label, *texts in rows:
            style = "" if heads or len(texts) < 2 else texts.pop()
            table.add_row(Text.assemble((label, style)), *map(Text, texts))
        width = table_width() if heads else text_width()
        colours = None if os.environ.get("NO_COLOR") else "auto"
        console = Console(file=self._stream, color_system=colours, width=width, highlight=False)
        with console.capture() as captured:
            console.print(Padding(table, (0, 0, 0, indent)))
        self.lines(*(line.rstrip() for line in captured.get().splitlines()))
