"""Parts of the page, from the top to the bottom."""

from collections.abc import Iterable

from jaxroute.comparison.page import learning, numbers, picture, sensitivity, svg, table, ways
from jaxroute.comparison.page.html import Markup, breakable, element
from jaxroute.comparison.page.labels import shortened
from jaxroute.comparison.page.looks import Look
from jaxroute.comparison.page.table import symbol
from jaxroute.comparison.summary import Summary

MODEL_ROWS = 15  # Longer tables of models are folded.


def head(summary: Summary) -> Markup:
    """File, sizes, and the sentence: the answer."""
    data = summary["data"]
    models = numbers.count(len(data["models"]), "model")
    routing = numbers.count(ways.number_of_ways(summary), "way of routing", "ways of routing")
    sizes = f"{routing} {numbers.count(data['queries'], 'query', 'queries')} between {models}"
    return element(
        "header",
        element("p", element("b", breakable(data["file"])), element("span", sizes), class_="eyebrow"),
        element("h1", breakable(summary["sentence"])),
        element("p", breakable(" ".join(summary["besides"])), class_="besides") if summary["besides"] else None,
    )


def main_picture(summary: Summary) -> Markup:
    """The picture in two widths, of which the page shows one."""
    return element(
        "figure",
        svg.draw(picture.draw(summary, picture.WIDE), "wide"),
        svg.draw(picture.draw(summary, picture.NARROW), "narrow"),
        id="picture",
    )


def answers(summary: Summary, looked: dict[str, Look]) -> Markup:
    """The table, and all settings in a fold-out."""
    single = ways.cheapest_single(summary)
    against = (
        f"Savings are against {shortened(ways.name_of(single), 60)}, the cheapest single model that meets the target."
        if single is not None
        else "No single model meets the target, so there is nothing to save against."
    )
    against += " A setting meets the target if it misses it by at most half a standard error, where it is chosen and where it is judged."
    number = numbers.count(len(summary["points"]), "setting")
    late = any(p["late_quality"] is not None for p in summary["points"])
    note = f"{against} Standard errors are in parentheses."
    note += " “Last half” is the second half of the queries, when most has been learned." if late else ""
    return _section(
        "Side by side",
        element("p", note, class_="lead"),
        table.answers(summary, looked),
        _fold(f"All {number}" if len(summary["points"]) > 1 else number, table.settings(summary, looked)),
    )


def shares(summary: Summary, looked: dict[str, Look]) -> Markup | None:
    """How often each chosen way asks each model."""
    made = table.shares(summary, looked)
    if made is None:
        return None
    note = "Share of the queries for which each model is asked, at the chosen settings; more than 100 % in all where several are asked."
    return _section("Where queries go", element("p", note, class_="lead"), made)


def to_route(summary: Summary) -> Markup | None:
    """How to route a query that is new."""
    words, code = summary["to_route"]
    if not words:
        return None
    lead = element("p", breakable(words), class_="lead")
    return _section("To route a new query", lead, _code(code) if code else None)


def needs(summary: Summary, looked: dict[str, Look]) -> Markup | None:
    """Each feedback once, with who asks for it."""
    asked: dict[str, list[str]] = {}
    points = [p for p in summary["points"] if p["kind"] in ("online", "offline")]
    for point in points:
        for need in point["needs"]:
            asked.setdefault(need, [])
            if point["approach"] not in asked[need]:
                asked[need].append(point["approach"])
    modest = list(dict.fromkeys(p["approach"] for p in points if not p["needs"]))
    if modest:
        asked["nothing but the query"] = modest
    if not asked:
        return None
    order = {name: i for i, name in enumerate(looked)}
    rows = [
        element(
            "div",
            element("dt", breakable(need)),
            element("dd", [_chip(n, looked) for n in sorted(names, key=order.__getitem__)]),
        )
        for need, names in asked.items()
    ]
    return _section("What each asks for in production", element("dl", rows, class_="needs-list"))


def learned(summary: Summary, looked: dict[str, Look]) -> Markup | None:
    """Two small pictures and a line for each approach that learns."""
    points = learning.learners(summary)
    if not points:
        return None
    pictures = [element("div", svg.draw(p, "small"), class_="small-box") for p in learning.pictures(summary, looked)]
    lines = [element("li", symbol(looked[p["approach"]]), element("span", learning.words(p, summary))) for p in points]
    orders = numbers.count(summary["orders"], "random order")
    return _section(
        "While they learn",
        element("p", f"Means over {orders} of the queries, in pieces of the stream.", class_="lead"),
        element("div", pictures, class_="pair"),
        element("ul", lines, class_="plain"),
    )


def other_targets(summary: Summary, looked: dict[str, Look]) -> Markup | None:
    """Sensitivity to the target."""
    body = sensitivity.section(summary, looked)
    return body and _section("If the target were another", body)


def data(summary: Summary) -> Markup:
    """What was read, and the models."""
    found = summary["data"]
    listed = element("div", table.models(summary), class_="models")
    if len(found["models"]) > MODEL_ROWS:
        listed = _fold(f"All {len(found['models'])} models", listed)
    features = element("p", f"Features of queries: {found['features']}.", class_="lead") if found["features"] else None
    return _section("What was read", _items(found["read"]), features, listed if found["models"] else None)


def assumptions(summary: Summary) -> Markup | None:
    """What has to hold for all this to be true."""
    return _section("Assumptions", _items(summary["assumptions"])) if summary["assumptions"] else None


def further(summary: Summary, looked: dict[str, Look]) -> Markup | None:
    """How to go on with each approach: the line of its answer, or of its first setting that has one."""
    lines: dict[str, str] = {}
    for point in sorted(ways.by_cost(summary["points"]), key=lambda p: not p["answer"]):
        if point["further"]:
            lines.setdefault(ways.name_of(point), point["further"])
    if not lines:
        return None
    order = {name: i for i, name in enumerate(looked)}
    rows = [
        element(
            "div",
            element("dt", symbol(looked.get(name)), element("span", breakable(name)), class_="name"),
            element("dd", _code(line)),
        )
        for name, line in sorted(lines.items(), key=lambda item: order.get(item[0], len(order)))
    ]
    return _section("To go on", element("dl", rows, class_="further"))


def foot(summary: Summary) -> Markup:
    """How to make the page again, how long it took, and by what."""
    took = [f"{name} {numbers.plain(seconds)} s" for name, seconds in summary["seconds"].items()]
    files = "The same numbers are in summary.json and points.csv beside this page."
    return element(
        "footer",
        element("h2", "Make it again"),
        _code(summary["command"]),
        element("p", f"jaxroute {summary['jaxroute']}", *(f" · {t}" for t in took)),
        element("p", files),
    )


def _section(title: str, *children: Markup | None) -> Markup:
    return element("section", element("h2", title), *children)


def _fold(title: str, *children: Markup) -> Markup:
    return element("details", element("summary", title), *children)


def _items(lines: Iterable[str]) -> Markup | None:
    found = [element("li", breakable(line)) for line in lines]
    return element("ul", found) if found else None


def _chip(name: str, looked: dict[str, Look]) -> Markup:
    return element("span", symbol(looked.get(name)), element("span", breakable(name)), class_="chip")


def _code(line: str) -> Markup:
    return element("div", element("pre", element("code", line)), class_="code")
