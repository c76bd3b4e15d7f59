"""Tables of points: the answers of all approaches, every setting, and the models."""

from collections.abc import Sequence

from jaxroute.comparison.page import numbers, svg, ways
from jaxroute.comparison.page.html import Markup, breakable, element
from jaxroute.comparison.page.looks import Look
from jaxroute.comparison.page.numbers import known
from jaxroute.comparison.page.scene import Mark, Scene
from jaxroute.comparison.summary import Pair, PointSummary, Summary

Cell = tuple[Markup | str, float | str | None]  # What is shown, and what it is sorted by.


def symbol(look: Look | None) -> Markup:
    """The mark of an approach, beside its name; a grey dot for a single model."""
    scene = Scene(16, 16, "")
    if look is None:
        scene.add(Mark(8, 8, "circle", 3.4, "dot", "dot", 1))
    else:
        fill = {"full": look.colour, "tint": look.tint, "hollow": "paper"}[look.fill]
        scene.add(Mark(8, 8, look.shape, 5, look.colour, fill, 1.4))
    drawn = svg.draw(scene, "symbol")
    return Markup(drawn.replace('role="img" aria-label=""', 'aria-hidden="true"'))


def value(pair: Pair | None, text: str) -> Cell:
    """A cell with a number whose error is fainter."""
    body, bracket, error = text.partition(" (")
    shown = [body, element("span", bracket + error, class_="error")] if bracket else [text]
    return element("span", shown, class_="number"), pair[0] if pair is not None and known(pair[0]) else None


def table(
    heads: Sequence[tuple[str, str]], groups: Sequence[tuple[str, str, Sequence[Sequence[Cell]]]], **attributes
) -> Markup:
    """A table that can be sorted, with the name of each row at its start.

    Args:
      heads: title of each column and its class, "number" for those aligned to the right.
      groups: class and title of each part of the table, and its rows.
      attributes: of the table.

    Returns:
      its HTML, in a box that scrolls by itself.
    """
    first = element("tr", [_head(title, kind) for title, kind in heads], role="row")
    bodies = [
        element(
            "tbody", _caption(title, len(heads)), [_row(row, heads) for row in rows], class_=kind or None, role="rowgroup"
        )
        for kind, title, rows in groups
    ]
    whole = element("table", element("thead", first, role="rowgroup"), bodies, role="table", **attributes)
    label = attributes.get("aria_label", "table")
    return element("div", whole, class_="scroll", tabindex="0", role="group", aria_label=label)


def _head(title: str, kind: str) -> Markup:
    return element("th", breakable(title), scope="col", class_=kind or None, role="columnheader")


def _caption(title: str, columns: int) -> Markup | None:
    """A row that names a part of a table."""
    if not title:
        return None
    return element(
        "tr", element("th", title, scope="rowgroup", colspan=columns, role="rowheader"), class_="group", role="row"
    )


def _row(row: Sequence[Cell], heads: Sequence[tuple[str, str]]) -> Markup:
    cells = []
    for i, ((shown, key), (title, kind)) in enumerate(zip(row, heads, strict=True)):
        more = {"scope": "row", "role": "rowheader"} if i == 0 else {"role": "cell", "data_label": title}
        sort = f"{key:.9g}" if isinstance(key, float) else key
        cells.append(element("td" if i else "th", shown, class_=kind or None, data_key=sort, **more))
    return element("tr", cells, role="row")


def answers(summary: Summary, looked: dict[str, Look]) -> Markup:
    """One row for each approach: its chosen setting. Those that meet the target come first, then those that do not, then what is out of reach."""
    groups = ways.groups(summary)
    if not groups:
        return element("p", "Nothing was chosen.", class_="muted")
    heads, used = _columns(summary, [p for points in groups.values() for p in points])
    best = ways.best(summary)
    parts = [
        ("meets" if title == ways.MEETS else "misses", title, [_cells(p, summary, looked, used, best) for p in points])
        for title, points in groups.items()
    ]
    many = " wide" if len(heads) > 7 else ""  # Errors go below their numbers where a line would not hold all columns.
    return table(heads, parts, class_=f"answers cards{many}", aria_label="Chosen settings")


def settings(summary: Summary, looked: dict[str, Look]) -> Markup:
    """Every point, from the cheapest on."""
    points = ways.by_cost(summary["points"])
    heads, used = _columns(summary, points, brief=True)
    best = ways.best(summary)
    rows = [_cells(p, summary, looked, used, best, brief=True) for p in points]
    return table(heads, [("", "", rows)], aria_label="All settings")


def shares(summary: Summary, looked: dict[str, Look]) -> Markup | None:
    """The chosen ways, and which models they ask how often, the most asked first; None if nothing is known of that."""
    parts: list[tuple[str, str, list[list[Cell]]]] = []
    for title, points in ways.groups(summary).items():
        rows: list[list[Cell]] = []
        for p in (p for p in points if p["shares"] and p["kind"] != "single"):
            name = [symbol(looked.get(p["approach"])), element("span", breakable(p["approach"]))]
            words = numbers.portions(p["shares"])
            rows.append([(element("span", name, class_="name"), p["approach"]), (breakable(words), words)])
        parts += [("", title, rows)] if rows else []
    heads = [("approach", ""), ("models asked", "")]
    return table(heads, parts, aria_label="Shares of the queries") if parts else None


def models(summary: Summary) -> Markup:
    """The models, from the cheapest on."""
    heads = [("model", ""), ("quality", "number"), (f"cost, {summary['data']['unit']}", "number")]
    rows: list[list[Cell]] = [
        [
            (breakable(m["name"]), m["name"]),
            value(m["quality"], numbers.percent(m["quality"])),
            value(m["cost"], numbers.measured(m["cost"])),
        ]
        for m in summary["data"]["models"]
    ]
    return table(heads, [("", "", rows)], aria_label="Models")


def _columns(
    summary: Summary, points: Sequence[PointSummary], brief: bool = False
) -> tuple[list[tuple[str, str]], tuple[bool, ...]]:
    """Titles of the columns, and whether there are savings, latencies, last halves and needs to show."""
    saving = any(p["saving"] is not None for p in points)
    latency = any(p["latency"] is not None for p in points)
    late = any(p["late_quality"] is not None for p in points)
    heads = [
        ("approach", ""),
        ("setting", ""),
        ("quality", "number"),
        (f"cost, {summary['data']['unit']}", "number"),
        *([("saving", "number")] if saving and not brief else []),
        ("calls per query", "number"),
        *([("latency", "number")] if latency else []),
        *([("last half", "number")] if late else []),
        *([("needs in production", "needs")] if not brief else [("meets the target", "")]),
    ]
    return heads, (saving, latency, late)


def _cells(
    point: PointSummary,
    summary: Summary,
    looked: dict[str, Look],
    used: tuple[bool, ...],
    best: PointSummary | None,
    brief: bool = False,
) -> list[Cell]:
    saving, latency, late = used
    look = looked.get(point["approach"]) if point["kind"] != "single" else None
    notes = []
    if point is best and not brief:
        notes.append(element("span", "cheapest choice", class_="badge"))
    if not ways.available(point) and brief:
        notes.append(element("span", ways.out_of_reach(point), class_="note"))
    name = element("span", symbol(look), element("span", breakable(point["approach"])), notes, class_="name")
    cells: list[Cell] = [
        (name, point["approach"]),
        (breakable(point["setting"]) or numbers.NOTHING, point["setting"]),
        value(point["quality"], numbers.percent(point["quality"])),
        value(point["cost"], numbers.measured(point["cost"])),
    ]
    if saving and not brief:
        cells.append(value(point["saving"], numbers.percent(point["saving"])))
    calls = point["calls"]
    cells.append(value(calls, numbers.measured((calls[0], calls[1] or None))))  # Mostly one call, always.
    if latency:
        cells.append(value(point["latency"], numbers.measured(point["latency"], "s")))
    if late:
        quality, cost = point["late_quality"], point["late_cost"]
        lines = [element("span", value(quality, numbers.percent(quality))[0], class_="late")]
        lines += [element("span", value(cost, numbers.measured(cost))[0], class_="late")] if cost else []
        cells.append((element("span", lines), quality[0]) if quality else (numbers.NOTHING, None))
    if brief:
        cells.append(("yes", "1") if point["meets"] else ("no", "0"))
    else:
        needs = element("ul", [element("li", breakable(n)) for n in point["needs"]]) if point["needs"] else "nothing"
        cells.append((needs, str(len(point["needs"]))))
    return cells
