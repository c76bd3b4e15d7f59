"""Formats numbers, labels and tables of results as text."""

import math
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_NOTE = 90  # Width of the notes below a LaTeX table.
_TEX_NAMES = {"\\": "backslash", "~": "asciitilde", "^": "asciicircum", "<": "less", ">": "greater", "|": "bar"}
_TEX = str.maketrans({a: rf"\text{name}{{}}" for a, name in _TEX_NAMES.items()} | {a: f"\\{a}" for a in "&%$#_{}"})
_NUMBER = re.compile(r"(?P<mean>-?[\d.,]+(?:e[+-]\d+)?)(?: \((?P<error>[\d.,]+(?:e[+-]\d+)?)\))?")


def rounded(middle: float, error: float) -> str:
    """Returns a mean and its standard error as "36.0 (1.6)", rounded to two significant digits of the error.

    If the error is NaN (one seed), the text is the mean alone, with four digits. A mean of NaN is "-". An error below float64's rounding becomes 0.
    """
    middle, error = float(middle), float(error)
    error = 0.0 if error < 1e-13 * abs(middle) else error
    if not math.isfinite(middle):
        return "-" if math.isnan(middle) else f"{middle:g}"
    if middle == 0 and error == 0:
        return "0"
    if not math.isfinite(error) or error == 0:
        return f"{middle:,.4g}" + (" (0)" if error == 0 else "")
    decimals = 1 - int(f"{error:.1e}".split("e")[1])
    if decimals > 6:
        leading = int(f"{max(abs(middle), error):e}".split("e")[1])
        return f"{round(middle, decimals) + 0.0:.{max(decimals + leading, 0)}e} ({error:.1e})"
    digits = max(decimals, 0)
    return f"{round(middle, decimals) + 0.0:,.{digits}f} ({round(error, decimals):,.{digits}f})"


def plain(value: Any) -> Any:
    """Converts a NumPy scalar to a Python number. Returns any other value unchanged."""
    return value.item() if hasattr(value, "item") else value


def show_value(value: Any) -> str:
    """Returns the value of a setting as text, with commas in large numbers."""
    value = plain(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:,g}" if isinstance(value, float) else str(value)


def show_seeds(counts: Any) -> str:
    """Returns numbers of seeds as "50 seeds", or "48 to 50 seeds" if they differ. A zero, for a metric that a policy lacks, is ignored."""
    counts = np.asarray(counts).ravel()
    counts = counts[counts > 0]
    low, high = (int(counts.min()), int(counts.max())) if counts.size else (0, 0)
    return f"{high:,} seed{'s' * (high != 1)}" if low == high else f"{low:,} to {high:,} seeds"


@dataclass(frozen=True)
class Table:
    """Content of a table, and its conversion to text, LaTeX and Markdown.

    Attributes:
      heads: name and unit of each column.
      rows: cells as text, a mean and its standard error as "36.0 (1.6)".
      keys: number of leading columns that identify a row (policy and settings).
      notes: lines below the table.
    """

    heads: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[str]]
    keys: int
    notes: Sequence[str]

    def text(self, width: int | None = None) -> str:
        """Returns aligned lines. Columns beyond `width` (None: no limit) form blocks below that repeat the first `keys` columns. Long notes wrap."""
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
        """Returns a `tabular` that needs the package booktabs, with means as 36.0 ± 1.6 and notes as rows below the last rule."""
        number, units = len(self.heads), [f"({unit})".translate(_TEX) if unit else "" for _, unit in self.heads]
        lines = [
            r"% needs \usepackage{booktabs}",
            rf"\begin{{tabular}}{{l{'r' * (number - 1)}}}",
            r"\toprule",
            _tex_row([name.replace("_", " ").translate(_TEX) for name, _ in self.heads]),
            *([_tex_row(units)] * any(units)),
            r"\midrule",
            *(_tex_row([_tex_cell(cell, i < self.keys) for i, cell in enumerate(row)]) for row in self.rows),
            r"\bottomrule",
        ]
        for note in self.notes:
            for line in textwrap.wrap(note.replace("(standard error)", "± standard error"), _NOTE):
                text = line.translate(_TEX).replace("±", r"$\pm$")
                lines.append(rf"\multicolumn{{{number}}}{{l}}{{\footnotesize {text}}} \\")
        return "\n".join([*lines, r"\end{tabular}"])

    def markdown(self) -> str:
        """Returns a Markdown table with means as 36.0 ± 1.6, and a paragraph for each note."""

        def row(cells: Sequence[str]) -> str:
            return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"

        def plain_cell(cell: str, key: bool) -> str:
            found = None if key else _NUMBER.fullmatch(cell)
            return cell if found is None or found["error"] is None else f"{found['mean']} ± {found['error']}"

        lines = [
            row([name.replace("_", " ") + (f" ({unit})" if unit else "") for name, unit in self.heads]),
            f"| :-- |{' --: |' * (len(self.heads) - 1)}",
            *(row([plain_cell(cell, i < self.keys) for i, cell in enumerate(cells)]) for cells in self.rows),
        ]
        notes = [note.replace("(standard error)", "± standard error") for note in self.notes]
        return "\n".join(lines) + "".join(f"\n\n{note}" for note in notes)


FORMATS: dict[str, Callable[[Table], str]] = {"latex": Table.latex, "markdown": Table.markdown}


def _column(head: tuple[str, str], cells: list[str], right: bool) -> list[str]:
    """Pads the `head` (name, unit) and the `cells` of a column to equal width. If `right`, they are flush right, and parentheses line up."""
    parts = [cell.partition(" (") for cell in cells]
    left, tail = (max((len(p[i]) + (2 if i and p[1] else 0) for p in parts), default=0) for i in (0, 2))
    cells = [p[0].rjust(left) + (p[1] + p[2]).ljust(tail) for p in parts] if right else cells
    width = max(map(len, [*head, *cells]))
    return [text.rjust(width) if right else text.ljust(width) for text in (*head, *cells)]


def _width(columns: Sequence[Sequence[str]]) -> int:
    return sum(len(column[0]) + 2 for column in columns)


def _lines(columns: Sequence[Sequence[str]]) -> list[str]:
    lines = ["  ".join(parts).rstrip() for parts in zip(*columns)]
    rule = "-" * max(map(len, lines))
    return [*lines[:2], rule, *lines[2:], rule]


def _tex_row(cells: Sequence[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def _tex_cell(cell: str, key: bool) -> str:
    found = None if key else _NUMBER.fullmatch(cell)
    if found is None:
        return "--" if cell == "-" else cell.translate(_TEX)
    mean, error = (_tex_number(part) if part else None for part in (found["mean"], found["error"]))
    return f"${mean}$" if error is None else rf"${mean} \pm {error}$"


def _tex_number(text: str) -> str:
    digits, e, power = text.partition("e")
    digits = digits.replace(",", "{,}")
    return rf"{digits} \times 10^{{{int(power)}}}" if e else digits
