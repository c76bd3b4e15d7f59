"""Tables of results as plain text, LaTeX or Markdown: a row per policy and setting, two lines of heads, notes below."""

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# Width of the notes below a LaTeX table.
_NOTE = 90
_TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}
_NUMBER = re.compile(r"(?P<mean>-?[\d.,]+(?:e[+-]\d+)?)(?: \((?P<error>[\d.,]+(?:e[+-]\d+)?)\))?")


@dataclass(frozen=True)
class Table:
    """Content of a table in any format.

    Attributes:
      heads: name and unit of each column.
      rows: cells as text, a mean and its standard error as "36.0 (1.6)".
      keys: number of the first columns, which identify a row.
      notes: lines below.
    """

    heads: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[str]]
    keys: int
    notes: Sequence[str]

    def text(self, width: int | None = None) -> str:
        """Returns aligned lines. Columns beyond the width stand below the others, beside the same keys; notes are wrapped."""
        columns = [_column(head, [row[i] for row in self.rows], i > 0) for i, head in enumerate(self.heads)]
        keys, others = columns[: self.keys], columns[self.keys :]
        used, groups = _width(keys), [list[list[str]]()]
        for column in others:
            if width is not None and groups[-1] and used + _width(groups[-1]) + _width([column]) - 2 > width:
                groups.append([])
            groups[-1].append(column)
        blocks = ["\n".join(_lines([*keys, *group])) for group in groups]
        notes = self.notes if width is None else [line for note in self.notes for line in textwrap.wrap(note, width)]
        return "\n\n".join(blocks) + "".join(f"\n{note}" for note in notes)

    def latex(self) -> str:
        """Returns a `tabular` that needs the package booktabs; means as 36.0 ± 1.6, notes as rows below the last rule."""
        number = len(self.heads)
        lines = [
            r"% needs \usepackage{booktabs}",
            rf"\begin{{tabular}}{{l{'r' * (number - 1)}}}",
            r"\toprule",
            _tex_row([_escaped(_spaced(name)) for name, _ in self.heads]),
            *([_tex_row([_escaped(f"({unit})" if unit else "") for _, unit in self.heads])] * any(u for _, u in self.heads)),
            r"\midrule",
            *(_tex_row([_tex_cell(cell, i < self.keys) for i, cell in enumerate(row)]) for row in self.rows),
            r"\bottomrule",
        ]
        for note in self.notes:
            for line in textwrap.wrap(note.replace("(standard error)", "± standard error"), _NOTE):
                text = _escaped(line).replace("±", r"$\pm$")
                lines.append(rf"\multicolumn{{{number}}}{{l}}{{\footnotesize {text}}} \\")
        return "\n".join([*lines, r"\end{tabular}"])

    def markdown(self) -> str:
        """Returns a table with pipes, means as 36.0 ± 1.6, and a paragraph for each note."""

        def row(cells: Sequence[str]) -> str:
            return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"

        lines = [
            row([_spaced(name) + (f" ({unit})" if unit else "") for name, unit in self.heads]),
            f"| :-- |{' --: |' * (len(self.heads) - 1)}",
            *(row([_plain_cell(cell, i < self.keys) for i, cell in enumerate(cells)]) for cells in self.rows),
        ]
        notes = [note.replace("(standard error)", "± standard error") for note in self.notes]
        return "\n".join(lines) + "".join(f"\n\n{note}" for note in notes)


FORMATS: dict[str, Callable[[Table], str]] = {"latex": Table.latex, "markdown": Table.markdown}


def _column(head: tuple[str, str], cells: list[str], right: bool) -> list[str]:
    """Returns cells of equal width with aligned parentheses."""
    parts = [cell.partition(" (") for cell in cells]
    left, tail = (max((len(p[i]) + (2 if i and p[1] else 0) for p in parts), default=0) for i in (0, 2))
    cells = [p[0].rjust(left) + (p[1] + p[2]).ljust(tail) for p in parts] if right else cells
    width = max(map(len, [*head, *cells]))
    return [text.rjust(width) if right else text.ljust(width) for text in (*head, *cells)]


def _width(columns: Sequence[Sequence[str]]) -> int:
    """Returns the width of columns with two spaces after each."""
    return sum(len(column[0]) + 2 for column in columns)


def _lines(columns: Sequence[Sequence[str]]) -> list[str]:
    lines = ["  ".join(parts).rstrip() for parts in zip(*columns)]
    rule = "-" * max(map(len, lines))
    return [*lines[:2], rule, *lines[2:], rule]


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _escaped(text: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in text)


def _tex_row(cells: Sequence[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def _tex_cell(cell: str, key: bool) -> str:
    found = None if key else _NUMBER.fullmatch(cell)
    if found is None:
        return "--" if cell == "-" else _escaped(cell)
    mean, error = (_tex_number(part) if part else None for part in (found["mean"], found["error"]))
    return f"${mean}$" if error is None else rf"${mean} \pm {error}$"


def _tex_number(text: str) -> str:
    digits, e, power = text.partition("e")
    digits = digits.replace(",", "{,}")
    return rf"{digits} \times 10^{{{int(power)}}}" if e else digits


def _plain_cell(cell: str, key: bool) -> str:
    found = None if key else _NUMBER.fullmatch(cell)
    return cell if found is None or found["error"] is None else f"{found['mean']} ± {found['error']}"
