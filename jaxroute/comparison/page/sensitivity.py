"""What the answer would be for another target."""

from jaxroute.comparison.page import lines, numbers, scales, svg
from jaxroute.comparison.page.html import Markup, breakable, element
from jaxroute.comparison.page.lines import Curve
from jaxroute.comparison.page.looks import Look
from jaxroute.comparison.page.numbers import known
from jaxroute.comparison.page.table import Cell, symbol, table, value
from jaxroute.comparison.summary import Pair, Summary


def section(summary: Summary, looked: dict[str, Look]) -> Markup | None:
    """A small picture and a table: cost of the best way for each target, beside the cheapest single model."""
    rows = summary["sensitivity"]
    if not rows:
        return None
    unit, costs = summary["data"]["unit"], {m["name"]: m["cost"] for m in summary["data"]["models"]}
    heads = [
        ("target", "number"),
        ("best way", ""),
        ("its quality", "number"),
        (f"cost, {unit}", "number"),
        ("cheapest single model", ""),
        ("saving", "number"),
    ]
    cells: list[list[Cell]] = []
    for row in rows:
        single = costs.get(row["single"] or "")
        way: Markup | str = "none reaches it"
        if row["approach"] is not None:
            name = [element("span", breakable(row["approach"])), _note(row["setting"])]
            way = element("span", symbol(looked.get(row["approach"])), name, class_="name")
        cells.append(
            [
                value((row["target"], None), numbers.share(row["target"])),
                (way, row["approach"]),
                value(row["quality"], numbers.percent(row["quality"])),
                value(row["cost"], numbers.measured(row["cost"])),
                (_single(row["single"], single), row["single"]),
                value(row["saving"], numbers.percent(row["saving"])),
            ]
        )
    picture = element("div", svg.draw(_picture(summary, looked, costs), "small"), class_="small-box")
    listed = table(heads, [("", "", cells)], aria_label="Other targets")
    return element("div", picture, listed, class_="beside")


def _note(text: str | None) -> Markup | None:
    return element("span", breakable(text), class_="note") if text else None


def _single(name: str | None, cost: Pair | None) -> Markup | str:
    """The name of a single model, and what it costs."""
    return (
        element("span", breakable(name), _note(numbers.measured(cost) if cost else None), class_="stack")
        if name
        else "none reaches it"
    )


def _picture(summary: Summary, looked: dict[str, Look], costs: dict[str, Pair]):
    rows, unit = summary["sensitivity"], summary["data"]["unit"]
    names = ("best way", "single model")
    best = [row["cost"][0] if row["cost"] else None for row in rows]
    single = [costs[row["single"]][0] if row["single"] in costs else None for row in rows]
    everything = [c for c in [*best, *single] if known(c)]
    y = scales.of_costs(everything, lines.HEIGHT - lines.BOTTOM, lines.TOP)
    targets = [row["target"] for row in rows]
    x = scales.of_qualities([*targets, summary["target"]], lines.LEFT, lines.right_of(names))
    curves = []
    for name, values, colour in ((names[1], single, "dot"), (names[0], best, "accent")):
        places = [(x(100 * t), y(c)) if known(c) else None for t, c in zip(targets, values, strict=True)]
        marks, tips = [], []
        for row, cost in zip(rows, values, strict=True):
            who = row["approach"] if name == names[0] else row["single"]
            look = looked.get(row["approach"] or "") if name == names[0] else None
            marks.append((look.shape, "paper", look.colour) if look else ("circle", "paper", "dot"))
            tips.append(f"target {numbers.share(row['target'])}\n{who}\n{numbers.plain(cost, unit)}")
        curves.append(Curve(name, places, colour, marks, tips, width=2.0 if name == names[0] else 1.5))
    asked = (100 * summary["target"], f"asked for: {numbers.share(summary['target'])}")
    title = "Cost of the best way and of the cheapest single model for other targets"
    return lines.draw(title, x, y, "target, %", f"cost, {unit}", curves, upright=asked)
