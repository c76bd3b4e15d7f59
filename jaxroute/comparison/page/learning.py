"""How the answers that learn get there: quality and cost over the queries served, in pictures and in words."""

from jaxroute.comparison.page import lines, numbers, scales, ways
from jaxroute.comparison.page.lines import Curve
from jaxroute.comparison.page.looks import Look
from jaxroute.comparison.page.numbers import known
from jaxroute.comparison.page.scene import Scene
from jaxroute.comparison.summary import LearningSummary, PointSummary, Summary

_NEAR = 0.01  # Of quality: one percentage point.


def learners(summary: Summary) -> list[PointSummary]:
    """Chosen settings that learn and say how, in the order of the table."""
    return [
        p for points in ways.groups(summary).values() for p in points if p["kind"] == "online" and _pieces(p["learning"])
    ]


def pictures(summary: Summary, looked: dict[str, Look]) -> tuple[Scene, Scene]:
    """Quality and cost against the number of queries served."""
    points = learners(summary)
    right = lines.right_of([p["approach"] for p in points])
    pieces = [_pieces(p["learning"]) for p in points]
    x = scales.of_counts([n for piece in pieces for n, _, _ in piece], lines.LEFT, right)
    low, high = lines.HEIGHT - lines.BOTTOM, lines.TOP
    qualities = [q for piece in pieces for _, q, _ in piece if known(q)]
    y = scales.of_qualities([*qualities, summary["target"]], low, high)
    costs = scales.of_costs([c for piece in pieces for _, _, c in piece if known(c)], low, high)
    unit = summary["data"]["unit"]

    def curves(which: int) -> list[Curve]:
        found = []
        for point, piece in zip(points, pieces, strict=True):
            places, tips = [], []
            for served, *values in piece:
                value = values[which]
                place = (y(100 * value) if which == 0 else costs(value)) if known(value) else None
                places.append(None if place is None else (x(served), place))
                shown = numbers.percent((value, None)) if which == 0 else numbers.plain(value, unit)
                tips.append(f"{point['approach']}\nafter {numbers.count(served, 'query', 'queries')}\n{shown}")
            look = looked[point["approach"]]
            mark = (look.shape, "paper", look.colour)
            number, dash = list(looked).index(point["approach"]), () if ways.available(point) else (3.0, 3.0)
            found.append(Curve(point["approach"], places, look.colour, [mark] * len(places), tips, dash=dash, series=number))
        return found

    target = (100 * summary["target"], f"target {numbers.share(summary['target'])}")
    served = "queries served"
    names = ", ".join(p["approach"] for p in points)
    first = lines.draw(f"Quality while learning: {names}", x, y, served, "quality, %", curves(0), across=target)
    second = lines.draw(f"Cost while learning: {names}", x, costs, served, f"cost, {unit}", curves(1))
    return first, second


def words(point: PointSummary, summary: Summary) -> str:
    """When an approach has learned, and what learning costs: the pieces before, against what it does in its last piece."""
    pieces, name = [p for p in _pieces(point["learning"]) if known(p[1])], point["approach"]
    name += "" if ways.available(point) else f" (dashed: {ways.out_of_reach(point)})"
    if len(pieces) < 2:
        return f"{name}: too few queries to tell."
    last = pieces[-1][1] or 0.0
    away = [i for i, (_, quality, _) in enumerate(pieces) if abs((quality or 0.0) - last) > _NEAR + 1e-12]
    if not away:
        return f"{name} is within .01 of its last quality ({numbers.percent((last, None))}) from the first piece on."
    if away[-1] == len(pieces) - 2:
        return f"{name} is still changing at the end of {numbers.count(pieces[-1][0], 'query', 'queries')}."
    settled = pieces[away[-1]][0]
    text = (
        f"After {numbers.count(settled, 'query', 'queries')} {name} is within .01 of its last quality "
        f"({numbers.percent((last, None))})"
    )
    starts = [0, *(n for n, _, _ in pieces)]
    before = [(n - starts[i], q or 0.0, c) for i, (n, q, c) in enumerate(pieces[: away[-1] + 1])]
    lost = sum(size * (last - quality) for size, quality, _ in before)
    end = pieces[-1][2]
    if lost > 0:
        text += f". Until then a query is {numbers.plain(lost / settled * 100)} points worse on average"
        if known(end) and all(known(c) for _, _, c in before):
            extra = sum(size * ((c or 0.0) - end) for size, _, c in before)
            currency = summary["data"]["unit"].split(" per ")[0]
            more = "more" if extra > 0 else "less"
            text += f", and all of them together cost {numbers.plain(abs(extra), currency)} {more}, than at the end"
    return text + "."


def _pieces(learning: LearningSummary | None) -> list[tuple[int, float | None, float | None]]:
    return [] if learning is None else list(zip(learning["queries"], learning["quality"], learning["cost"], strict=True))
