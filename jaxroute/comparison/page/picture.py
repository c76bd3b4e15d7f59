"""The picture: quality against cost of all that was compared, with the target, the frontier and what matters named."""

from dataclasses import dataclass

from jaxroute.comparison.page import looks, numbers, scales, ways
from jaxroute.comparison.page.labels import Box, Placer, shortened, text_width
from jaxroute.comparison.page.looks import Look
from jaxroute.comparison.page.numbers import known
from jaxroute.comparison.page.scales import Scale
from jaxroute.comparison.page.scene import Area, Hit, Line, Mark, Scene, Text
from jaxroute.comparison.summary import Pair, PointSummary, Summary


@dataclass(frozen=True)
class Format:
    """Sizes of a version of the picture.

    Attributes:
      width: of all, in pixels.
      height: of the part with the axes.
      left: room for the labels of qualities.
      font: size of letters.
      radius: of marks.
      letters: of a label, at most.
      singles: named single models, at most.
      ticks: of costs, at most.
      prices: what the place of an approach's label may cost; tried one after the other.
    """

    width: float
    height: float
    left: float
    font: float
    radius: float
    letters: int
    singles: int
    ticks: int
    prices: tuple[float, ...]


WIDE = Format(1080, 580, 40, 13, 5.2, 34, 14, 9, (30, 70))
NARROW = Format(360, 420, 30, 11.5, 4.2, 20, 5, 5, (12,))
_SIDE, _TOP, _BOTTOM = 4.0, 26.0, 46.0
# Size of the mark of a setting that another of the same approach beats in quality and cost.
_BEATEN = 0.5


def draw(summary: Summary, form: Format = WIDE) -> Scene:
    """The picture in one of its versions."""
    points = [p for p in summary["points"] if ways.drawable(p)]
    scene = Scene(form.width, form.height, title(summary))
    x, y = _axes(points, summary["target"], form)
    area = Box(form.left, _TOP, form.width - _SIDE, form.height - _BOTTOM)
    placer = Placer(Box(area.left + 3, area.top + 2, area.right, area.bottom - 3))
    _frame(scene, x, y, area, summary, form, placer)
    _frontier(scene, x, y, area, points, placer)
    looked = looks.cast(summary)
    _singles(scene, x, y, points, form, placer)
    groups = ways.series(points)
    order = list(looked)
    for name in reversed(list(groups)):  # Those that learn are drawn last, on top.
        _approach(scene, x, y, groups[name], looked[name], order.index(name), form, placer)
    _highlight(scene, x, y, summary, form)
    _labels(scene, x, y, summary, groups, looked, form, placer)
    _legend(scene, summary, looked, points, form)
    return scene


def title(summary: Summary) -> str:
    """What the picture shows, for those who do not see it."""
    best, single = ways.best(summary), ways.cheapest_single(summary)
    words = f"Quality against cost in {summary['data']['unit']}, target {numbers.share(summary['target'])}."
    if best is not None:
        words += f" {ways.CHEAPEST.capitalize()}: {tip(best, summary)}.".replace("\n", ", ")
    if single is not None and single is not best:
        words += f" Cheapest single model that does: {tip(single, summary)}.".replace("\n", ", ")
    return words + " All values are in the tables below."


def tip(point: PointSummary, summary: Summary) -> str:
    """What a mark says when pointed at."""
    quality, cost = numbers.percent(point["quality"]), numbers.measured(point["cost"], summary["data"]["unit"])
    lines = [ways.full_name(point), f"quality {quality}", f"cost {cost}"]
    return "\n".join(lines if ways.available(point) else [*lines, ways.out_of_reach(point)])


def _reach(pair: Pair) -> tuple[float, float]:
    """Ends of an error bar."""
    value, error = pair[0] or 0.0, pair[1] if known(pair[1]) else 0.0
    return value - error, value + error


def _axes(points: list[PointSummary], target: float, form: Format) -> tuple[Scale, Scale]:
    costs = [end for p in points for end in _reach(p["cost"]) if end > 0 or not (p["cost"][0] or 0.0) > 0]
    values = [p["cost"][0] or 0.0 for p in points]
    smallest = min((v for v in values if v > 0), default=0.0)
    costs = [max(c, 0.5 * smallest) if c > 0 else 0.0 for c in costs]  # An error bar may end near zero, an axis may not.
    qualities = [min(max(end, -0.02), 1.02) for p in points for end in _reach(p["quality"])]
    x = scales.of_costs([*costs, *values], form.left, form.width - _SIDE)
    return x, scales.of_qualities([*qualities, target], form.height - _BOTTOM, _TOP)


def _frame(scene: Scene, x: Scale, y: Scale, area: Box, summary: Summary, form: Format, placer: Placer) -> None:
    """Grid, ticks, titles of the axes and the target."""
    at, font, small = y(100 * summary["target"]), form.font, form.font - 1
    scene.add(Area(area.left, area.top, area.right, at, "wash"))
    for value, label in y.ticks(7):
        scene.add(Line(((area.left, y(value)), (area.right, y(value))), "grid"))
        scene.add(Text(area.left - 7, y(value) + 4, label, small, "muted", "end"))
    scene.add(Line(((area.left, area.bottom), (area.right, area.bottom)), "rule"))
    free = form.left - 20.0
    for value, label in x.ticks(form.ticks):
        middle, half = x(value), text_width(label, small) / 2
        scene.add(Line(((middle, area.top), (middle, area.bottom)), "grid"))
        middle = min(middle, form.width - half - 2)
        if middle - half > free:
            scene.add(Line(((x(value), area.bottom), (x(value), area.bottom + 4)), "rule"))
            scene.add(Text(middle, area.bottom + 17, label, small, "muted", "middle"))
            free = middle + half + 6
    if x.zero is not None:
        place = (x.zero + x.start) / 2
        scene.add(Line(((place, area.top), (place, area.bottom)), "rule", 1.2, (2, 3)))
    scene.add(Text(2, 14, "quality, %", font, "ink", bold=True))
    unit = shortened(summary["data"]["unit"], 30)
    scene.add(Text(area.right, area.bottom + 36, f"cost, {unit}{' (log scale)' if x.log else ''}", font, "ink", "end", True))
    scene.add(Line(((area.left, at), (area.right, at)), "accent", 1.5, (6, 4)))
    placer.avoid_line([(area.left, at), (area.right, at)], 8.0)
    label = f"target {numbers.share(summary['target'])}"
    width = text_width(label, font, bold=True)
    marks = [_place(p, x, y) for p in summary["points"] if ways.drawable(p)]

    def touched(left: float, base: float) -> int:
        return sum(left - 9 < a < left + width + 9 and base - font - 8 < b < base + 10 for a, b in marks)

    # Above the line if there is room, at the end where it hides least.
    bases = [base for base in (at - 6, at + font + 3) if area.top + font < base < area.bottom - 4] or [at - 6]
    left, base = min(((e, b) for b in bases for e in (area.left + 6, area.right - width - 4)), key=lambda p: touched(*p))
    placer.hard.append(Box(left, base - font, left + width, base + 3))
    scene.add(Text(left, base, label, font, "accent", bold=True, halo=True))


def _frontier(scene: Scene, x: Scale, y: Scale, area: Box, points: list[PointSummary], placer: Placer) -> None:
    """A staircase: the best quality that can be had for at most a cost."""
    corners: list[tuple[float, float]] = []
    for point in ways.frontier(filter(ways.available, points)):
        place = _place(point, x, y)
        corners += [(place[0], corners[-1][1])] if corners else []
        corners.append(place)
    if corners:
        corners.append((area.right, corners[-1][1]))
        scene.add(Line(tuple(corners), "frontier", 5))
        placer.avoid_line(corners, 1.0)


def _place(point: PointSummary, x: Scale, y: Scale) -> tuple[float, float]:
    return x(point["cost"][0] or 0.0), y(100 * (point["quality"][0] or 0.0))


def _bars(scene: Scene, x: Scale, y: Scale, point: PointSummary, stroke: str, series: int | None) -> None:
    """Error bars of one standard error, in both directions."""
    across, up = _place(point, x, y)
    low, high = _reach(point["cost"])
    if high > low and (point["cost"][0] or 0.0) > 0:
        scene.add(Line(((x(max(low, x.low)), up), (x(high), up)), stroke, 1.1, opacity=0.45, series=series))
    low, high = _reach(point["quality"])
    if high > low:
        scene.add(Line(((across, y(100 * low)), (across, y(100 * high))), stroke, 1.1, opacity=0.45, series=series))


def _singles(scene: Scene, x: Scale, y: Scale, points: list[PointSummary], form: Format, placer: Placer) -> None:
    for point in (p for p in points if p["kind"] == "single"):
        _bars(scene, x, y, point, "dot", None)
        across, up = _place(point, x, y)
        scene.add(Mark(across, up, "circle", form.radius * 0.62, "dot", "dot", 0.5))
        placer.avoid(across, up, 4.0, 26.0)


def _approach(
    scene: Scene, x: Scale, y: Scale, points: list[PointSummary], look: Look, number: int, form: Format, placer: Placer
) -> None:
    """One approach: settings that no other of its own beats, joined, with error bars and marks; the others as small marks."""
    good = ways.frontier(points)
    places = [_place(p, x, y) for p in good]
    dash = (3.0, 3.0) if look.fill == "hollow" else ()
    for point in points:
        if not any(point is other for other in good):
            scene.add(_mark(*_place(point, x, y), look, _BEATEN * form.radius, number))
    if len(places) > 1:
        scene.add(Line(tuple(places), look.colour, 1.2, dash, 0.6, number))
        placer.avoid_line(places, 2.5)
    for point in good:
        _bars(scene, x, y, point, look.colour, number)
    for across, up in places:
        scene.add(_mark(across, up, look, form.radius, number))
        placer.avoid(across, up, form.radius + 2, 24.0)


def _mark(across: float, up: float, look: Look, radius: float, number: int | None) -> Mark:
    fill = {"full": look.colour, "tint": look.tint, "hollow": "paper"}[look.fill]
    stroke = "paper" if look.fill == "full" else look.colour
    return Mark(across, up, look.shape, radius, stroke, fill, 1.0 if look.fill == "full" else 1.5, series=number)


def _highlight(scene: Scene, x: Scale, y: Scale, summary: Summary, form: Format) -> None:
    """Rings around the answer and the single model that it is compared with, and what each point says when pointed at."""
    best, single = ways.best(summary), ways.cheapest_single(summary)
    for point, colour in ((single, "ink"), (best, "accent")):
        if point is not None and (point is best or point is single):
            across, up = _place(point, x, y)
            scene.add(Mark(across, up, "circle", form.radius + (4.5 if point is best else 2.5), colour, None, 2.0))
    numbered = {name: i for i, name in enumerate(looks.cast(summary))}
    for point in summary["points"]:
        if ways.drawable(point):
            across, up = _place(point, x, y)
            series = numbered.get(point["approach"]) if point["kind"] != "single" else None
            scene.add(Hit(across, up, form.radius + 5, tip(point, summary), series))


def _labels(
    scene: Scene,
    x: Scale,
    y: Scale,
    summary: Summary,
    groups: dict[str, list[PointSummary]],
    looked: dict[str, Look],
    form: Format,
    placer: Placer,
) -> None:
    """Names: of the answer, of the single model to beat, of all approaches, then of as many single models as there is room for."""
    best, single = ways.best(summary), ways.cheapest_single(summary)
    gap = form.radius + 4

    def put(point: PointSummary, text: str, colour: str, size: float, limit: float, bold: bool, near: float) -> bool:
        place = _place(point, x, y)
        placed = placer.place(text, size, *place, near, limit, bold)
        if placed is None:
            return False
        if placed.leader:
            scene.add(Line(placed.leader, "dot", 0.8))
        number = list(looked).index(point["approach"]) if point["kind"] != "single" else None
        scene.add(Text(placed.x, placed.y, text, size, colour, bold=bold, halo=True, series=number))
        return True

    if best is not None and best["kind"] != "single":
        text = shortened(best["approach"], form.letters + 6)
        put(best, text, looked[best["approach"]].colour, form.font + 1, 1e9, True, gap + 4)
    if single is not None:
        name = shortened(ways.name_of(single), form.letters)
        put(single, name, "ink", form.font + (1 if single is best else 0), 1e9, True, gap + 2)
    for name, points in groups.items():
        if best is not None and name == best["approach"] and best["kind"] != "single":
            continue
        chosen = next((p for p in points if p["answer"]), None)
        tries = ([chosen] if chosen else []) + [points[-1], points[0]]
        look, text = looked[name], shortened(name, form.letters)
        any(put(p, text, look.colour, form.font, limit, False, gap) for limit in form.prices for p in tries)
    named = 0
    for point in _spaced([p for p in ways.singles(summary) if ways.drawable(p) and p is not single]):
        if named >= form.singles:
            break
        named += put(
            point,
            shortened(ways.name_of(point), form.letters),
            "muted",
            form.font - 1.5,
            min(26.0, *form.prices),
            False,
            gap - 1,
        )


def _spaced(points: list[PointSummary]) -> list[PointSummary]:
    """Points in an order in which the first few tell most: those on their own frontier, then both ends and what lies between."""
    front = ways.frontier(points)
    others = [p for p in points if not any(p is f for f in front)]
    step = max(1, len(others) // 8)
    return [*front, *(p for start in range(step) for p in others[start::step])]


def _legend(scene: Scene, summary: Summary, looked: dict[str, Look], points: list[PointSummary], form: Format) -> None:
    """Approaches with their marks, which colours alone do not tell apart, then what the other marks mean; in as many rows as it takes."""
    size, row = form.font - 0.5, form.font * 1.75
    kinds = {p["kind"] for p in points if ways.available(p)}
    drawn = {p["approach"] for p in points}
    entries: list[tuple[Mark | Line, str, int | None]] = [
        (_mark(0, 0, look, form.radius, i), shortened(name, form.letters), i)
        for i, (name, look) in enumerate(looked.items())
        if name in drawn
    ]
    marks: list[tuple[Mark | Line, str, int | None]] = []
    if "online" in kinds:
        marks.append((Mark(0, 0, "circle", form.radius, "muted", "muted"), "filled: learns while it serves", None))
    if "offline" in kinds:
        marks.append((Mark(0, 0, "circle", form.radius, "muted", "rule", 1.5), "pale: fitted beforehand", None))
    for rare in dict.fromkeys(ways.out_of_reach(of[0]) for of in ways.series(points).values() if not ways.available(of[0])):
        marks.append((Mark(0, 0, "circle", form.radius, "muted", "paper", 1.5), f"hollow: {rare}", None))
    if kinds & {"online", "offline"}:
        small = Mark(0, 0, "circle", _BEATEN * form.radius, "muted", "muted")
        marks.append((small, "small: another setting of its own is better and cheaper", None))
    if "single" in kinds:
        marks.append((Mark(0, 0, "circle", form.radius * 0.62, "dot", "dot"), "one model for all queries", None))
    if ways.best(summary) is not None:
        ring = Mark(0, 0, "circle", form.radius + 1.5, "accent", None, 2.0)
        marks.append((ring, ways.CHEAPEST, None))
    single = ways.cheapest_single(summary)
    if single is not None and single is not ways.best(summary):
        marks.append((Mark(0, 0, "circle", form.radius, "ink", None, 2.0), "cheapest single model that does", None))
    marks.append((Line(((-8, 0), (8, 0)), "frontier", 5), "frontier", None))
    marks.append((Line(((0, -7), (0, 7)), "muted", 1.1), "\N{PLUS-MINUS SIGN} one standard error", None))
    bottom = form.height + 12
    for group in (entries, marks):
        left = 4.0
        for symbol, text, number in group:
            width = 26 + text_width(text, size)
            if left > 4.0 and left + width > form.width:
                left, bottom = 4.0, bottom + row
            scene.add(_moved(symbol, left + 6, bottom))
            scene.add(Text(left + 20, bottom + 4, text, size, "ink" if group is entries else "muted", series=number))
            left += width + 8
        bottom += row + 2 if group else 0
    scene.height = bottom - 2


def _moved(symbol: Mark | Line, x: float, y: float) -> Mark | Line:
    if isinstance(symbol, Line):
        points = tuple((a + x, b + y) for a, b in symbol.points)
        return Line(points, symbol.stroke, symbol.width, series=symbol.series)
    return Mark(x, y, symbol.shape, symbol.radius, symbol.stroke, symbol.fill, symbol.width, series=symbol.series)
