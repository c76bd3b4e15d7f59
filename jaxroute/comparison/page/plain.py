"""Table of chosen settings as text for a terminal or HTML for a notebook, and the course of learning in words."""

import textwrap
from html import escape

from jaxroute.comparison.page import numbers, strategies
from jaxroute.comparison.page.numbers import known
from jaxroute.comparison.points import PointSummary, Summary

_NARROW = 24  # Smallest width of the columns of names and settings.
_NEAR = 0.01  # Largest difference of quality that counts as none: one percentage point.


def text(summary: Summary, width: int | None = None) -> str:
    """Returns a table of each strategy's chosen setting, in groups; columns are left out and names cut to fit into `width` letters, if given."""
    heads = _heads(summary)
    groups = {title: [_cells(p) for p in points] for title, points in strategies.groups(summary).items()}
    all_rows = [heads, *(row for rows in groups.values() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*all_rows, strict=True)]
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
    """Returns as text the shares of queries for which each strategy in the table calls each model, in lines of up to `width` letters (None: any)."""
    lines = ["share of the queries for which each model is called (more than 100 % in total where several are called)"]
    for title, points in strategies.with_shares(summary).items():
        lines += [f"{title}:", *(f"{p['strategy']}: {numbers.portions(p['shares'])}" for p in points)]
    if width is not None:
        lines = [textwrap.fill(line, width, subsequent_indent="    ", break_on_hyphens=False) for line in lines]
    return "\n".join(lines)


def html(summary: Summary) -> str:
    """Returns the report's headline, further sentences and table of chosen settings as HTML without styles or scripts."""
    sentences = "".join(f"<p>{escape(words)}</p>" for words in (summary["sentence"], *summary["besides"]))
    rows = "".join(f"<th>{escape(head)}</th>" for head in _heads(summary))
    for title, points in strategies.groups(summary).items():
        rows += f'</tr><tr><th colspan="{len(_heads(summary))}">{escape(title)}</th>'
        for point in points:
            rows += "</tr><tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in _cells(point))
    return f"<div>{sentences}<table><tr>{rows}</tr></table></div>"


def _heads(summary: Summary) -> list[str]:
    unit = summary["data"]["unit"]
    if summary.get("overlap"):  # A served log.
        return ["strategy", "quality", "saving", unit, "sample size", "setting"]
    return ["strategy", "quality", unit, "saving", "calls", "setting"]


def _cells(point: PointSummary) -> list[str]:
    name, cost, setting = strategies.name_of(point), numbers.measured(point["cost"]), point["setting"]
    if "evidence" in point:  # Of a served log.
        quality = numbers.within(point["quality"], point["quality_interval"], point["evidence"])
        cost = f"{'about ' if point['evidence'] == 'extrapolated' else ''}{numbers.plain(point['cost'][0])}"
        saving = numbers.within(point["saving"], point["saving_interval"], "") if point["saving"] else ""
        return [name, quality, saving, cost, numbers.plain(point["size"]), setting]
    saving = numbers.percent(point["saving"]) if point["saving"] else ""
    calls = numbers.measured((point["calls"][0], None), decimals=2)
    return [name, numbers.percent(point["quality"]), cost, saving, calls, setting]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(width - 3, 1)]}..."


def learners(summary: Summary) -> list[PointSummary]:
    """Returns the chosen settings of online policies that have a recorded course of learning, in the order of the table."""
    chosen = [p for points in strategies.groups(summary).values() for p in points]
    return [p for p in chosen if p["kind"] == "online" and p["learning"] is not None and p["learning"]["queries"]]


def course_of_learning(point: PointSummary, summary: Summary) -> str:
    """Says after how many queries an online policy's quality stays within .01 of its last value, and how quality and cost differ before."""
    learning, name = point["learning"], point["strategy"]
    parts = [p for p in zip(learning["queries"], learning["quality"], learning["cost"], strict=True) if known(p[1])]
    name += "" if strategies.deployable(point) else f" (dashed: {strategies.obstacle(point)})"
    if len(parts) < 2:
        return f"{name}: too few queries."
    _, last, end = parts[-1]
    final = f"is within .01 of its final quality ({numbers.percent((last, None))})"
    away = [i for i, (_, quality, _) in enumerate(parts) if abs(quality - last) > _NEAR + 1e-12]
    if not away:
        return f"{name} {final} from the first part on."
    if away[-1] == len(parts) - 2:
        return f"{name} is still changing after {numbers.count(parts[-1][0], 'query', 'queries')}."
    settled = parts[away[-1]][0]
    text = f"After {numbers.count(settled, 'query', 'queries')} {name} {final}"
    starts = [0, *(n for n, _, _ in parts)]
    before = [(n - starts[i], q, c) for i, (n, q, c) in enumerate(parts[: away[-1] + 1])]
    lost = sum(size * (last - quality) for size, quality, _ in before)
    if lost > 0:
        text += f". Until then the mean quality is {numbers.plain(lost / settled * 100)} points lower than at the end"
        if known(end) and all(known(c) for _, _, c in before):
            extra = sum(size * (c - end) for size, _, c in before)
            currency, more = summary["data"]["unit"].split(" per ")[0], "more" if extra > 0 else "less"
            text += f", and the queries cost {numbers.plain(abs(extra), currency)} {more} in total"
    return text + "."
