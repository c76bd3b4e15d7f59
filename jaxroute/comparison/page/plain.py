"""The chosen settings as a small table: as text for a terminal, as HTML for a notebook."""

import textwrap

from jaxroute.comparison.page import numbers, ways
from jaxroute.comparison.page.html import breakable, element
from jaxroute.comparison.summary import PointSummary, Summary

# Narrower columns of names or settings say nothing.
_NARROW = 24


def text(summary: Summary, width: int | None = None) -> str:
    """One line for each approach, under the title of its group.

    Args:
      summary: of a comparison.
      width: of a line; names and settings are cut to it, and columns that do not fit are left out.
    """
    heads = _heads(summary)
    groups = {title: [_cells(p) for p in points] for title, points in ways.groups(summary).items()}
    rows = [heads, *(row for rows in groups.values() for row in rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    if width is not None:
        least = [min(widths[0], _NARROW), *widths[1:5], min(widths[5], _NARROW)]
        while len(least) > 2 and sum(least) + 2 * len(least) - 2 > width:
            least.pop()
        widths = [min(widths[0], max(width - sum(least[1:]) - 2 * len(least) + 2, _NARROW)), *least[1:]]
        widths[5:] = [width - sum(widths[:5]) - 10 for _ in widths[5:]]

    def line(row: list[str]) -> str:
        return "  ".join(_cut(cell, w).ljust(w) for cell, w in zip(row, widths, strict=False)).rstrip()

    lines = [line(heads)]
    for title, rows in groups.items():
        lines += [_cut(f"{title}:", width or len(title) + 1), *map(line, rows)]
    return "\n".join(lines)


def shares(summary: Summary, width: int | None = None) -> str:
    """Shares of the queries for which each chosen way asks each model, in the order of the table."""
    lines = [
        "share of the queries for which each model is asked (more than 100 % in all: several are asked for some of them)"
    ]
    for title, points in ways.groups(summary).items():
        asked = [p for p in points if p["kind"] != "single" and p["shares"]]
        lines += [f"{title}:"] if asked else []
        lines += [f"{p['approach']}: {numbers.portions(p['shares'])}" for p in asked]
    if width is None:
        return "\n".join(lines)
    return "\n".join(textwrap.fill(line, width, subsequent_indent="    ", break_on_hyphens=False) for line in lines)


def html(summary: Summary) -> str:
    """The answer and the table, without styles or scripts."""
    heads = _heads(summary)
    rows = [element("tr", [element("th", breakable(head)) for head in heads])]
    for title, points in ways.groups(summary).items():
        rows.append(element("tr", element("th", title, colspan=len(heads))))
        rows += [element("tr", [element("td", breakable(cell)) for cell in _cells(p)]) for p in points]
    said = [element("p", breakable(words)) for words in (summary["sentence"], *summary["besides"])]
    return element("div", said, element("table", rows))


def _heads(summary: Summary) -> list[str]:
    return ["approach", "quality", summary["data"]["unit"], "saves", "calls", "setting"]


def _cells(point: PointSummary) -> list[str]:
    return [
        ways.name_of(point),
        numbers.percent(point["quality"]),
        numbers.measured(point["cost"]),
        numbers.percent(point["saving"]) if point["saving"] else "",
        numbers.measured((point["calls"][0], None), decimals=2),
        point["setting"],
    ]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(width - 3, 1)]}..."
