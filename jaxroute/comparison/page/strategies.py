"""Selects points of a report's summary for tables and pictures: the recommendation, single models, groups, and the Pareto frontier."""

from collections.abc import Iterable

from jaxroute.comparison.page.numbers import known
from jaxroute.comparison.points import PointSummary, Summary

# Titles of the groups of a table; strategies with a rare need are in further groups.
MEETS, MISSES = "meet the target, within half a standard error", "do not meet the target"
CHEAPEST = "cheapest that meets the target"
# Titles for a served log, whose answers are reweighted, so that some questions stay open.
PROVEN, SAFE = "proven to meet the target and to save", "proven to meet the target"
OPEN, BELOW = "open: the log does not decide whether the target is met", "proven to miss the target"
UNKNOWN = "extrapolated: predictions, where the log has no or too few answers"


def name_of(point: PointSummary) -> str:
    """Returns the name of a point: that of the model for a single model, otherwise that of the strategy."""
    return point["setting"] or point["strategy"] if point["kind"] == "single" else point["strategy"]


def drawable(point: PointSummary) -> bool:
    return known(point["quality"][0]) and known(point["cost"][0])


def deployable(point: PointSummary) -> bool:
    """Whether a point can be recommended: it is no upper bound, and needs nothing that is rarely available, such as a perfect judge."""
    return point["kind"] != "bound" and point["without"] is None


def obstacle(point: PointSummary) -> str:
    """Returns the reason why a point that is not `deployable` cannot be deployed."""
    return f"not deployable without {point['without']}" if point["without"] else "upper bound, not deployable"


def number_of_strategies(summary: Summary) -> int:
    """Counts the strategies that route queries; single models and upper bounds do not count."""
    return len({p["strategy"] for p in summary["points"] if p["kind"] in ("offline", "online")})


def series(points: Iterable[PointSummary]) -> dict[str, list[PointSummary]]:
    """Groups points by strategy, without single models. The points of a strategy are sorted from the cheapest to the most expensive.

    Online policies come first, then fitted rules, strategies with needs that are rarely available, and bounds, each in alphabetical order. Colours
    follow this order, so a strategy's colour does not depend on the target.
    """
    kinds = ("logged", "online", "offline", "bound")
    found: dict[str, list[PointSummary]] = {}

    def key(point: PointSummary) -> tuple[bool, str, int, str, str]:
        name, kind = point["strategy"], point["kind"]
        return kind == "bound", point["without"] or "", kinds.index(kind), name.casefold(), name

    for point in sorted((p for p in points if p["kind"] in kinds), key=key):
        found.setdefault(point["strategy"], []).append(point)
    return {name: by_cost(members) for name, members in found.items()}


def by_cost(points: Iterable[PointSummary]) -> list[PointSummary]:
    """Sorts points from the cheapest to the most expensive. Of equal costs the better point comes first; unknown costs come last."""

    def key(point: PointSummary) -> tuple[bool, float, float]:
        cost, quality = point["cost"][0], point["quality"][0]
        return (not known(cost), cost if known(cost) else 0.0, -quality if known(quality) else 0.0)

    return sorted(points, key=key)


def singles(summary: Summary) -> list[PointSummary]:
    return by_cost(p for p in summary["points"] if p["kind"] == "single")


def cheapest_single(summary: Summary) -> PointSummary | None:
    """Returns the cheapest single model that meets the target, or None."""
    return next((p for p in singles(summary) if p["meets"] and drawable(p)), None)


def best(summary: Summary) -> PointSummary | None:
    """Returns the recommended point, the cheapest deployable one of the chosen settings that meet the target; None if none does."""
    return None if summary["best"] is None else summary["points"][summary["best"]]


def groups(summary: Summary) -> dict[str, list[PointSummary]]:
    """Groups the chosen settings by title: those that meet the target, those that miss it, and, for each reason, those that cannot be deployed.

    Points are sorted by cost. Of the single models, only the cheapest that meets the target is included. No group is empty. Points of a served log,
    with all single models, are grouped by what the log proves.
    """
    if summary.get("overlap"):
        titles = (PROVEN, SAFE, OPEN, BELOW, UNKNOWN)
        shown = by_cost(p for p in summary["points"] if p["answer"])
        return {title: of for title in titles if (of := [p for p in shown if _proven(p) == title])}
    found: dict[str, list[PointSummary]] = {MEETS: [], MISSES: []}
    single = cheapest_single(summary)
    for point in by_cost(p for p in summary["points"] if p is single or (p["answer"] and p["kind"] != "single")):
        found.setdefault(obstacle(point) if point["without"] else MEETS if point["meets"] else MISSES, []).append(point)
    return {title: found[title] for title in (MEETS, MISSES, *sorted(found.keys() - {MEETS, MISSES})) if found[title]}


def _proven(point: PointSummary) -> str:
    if point["evidence"] == "extrapolated" or (point["evidence"] == "reweighted" and point["quality_interval"] is None):
        return UNKNOWN
    if point["meets"]:
        return PROVEN if point["saving_interval"] and point["saving_interval"][0] > 0 else SAFE
    return OPEN if point["meets"] is None else BELOW


def with_shares(summary: Summary) -> dict[str, list[PointSummary]]:
    """Returns the result of `groups` without single models, and without points whose shares of queries per model are unknown."""
    found = {t: [p for p in of if p["shares"] and p["kind"] != "single"] for t, of in groups(summary).items()}
    return {title: points for title, points in found.items() if points}


def needs(summary: Summary) -> dict[str, set[str]]:
    """Maps each requirement in production ("a perfect judge", "nothing except the query") to the names of the policies and rules that have it."""
    points = [p for p in summary["points"] if p["kind"] in ("online", "offline")]
    found = {need: {p["strategy"] for p in points if need in p["needs"]} for p in points for need in p["needs"]}
    modest = {p["strategy"] for p in points if not p["needs"]}
    return found | ({"nothing except the query": modest} if modest else {})


def further(summary: Summary) -> dict[str, str]:
    """Maps each strategy to the Python code that repeats its chosen setting, or else the cheapest of its settings that has such code."""
    lines: dict[str, str] = {}
    for point in sorted(by_cost(summary["points"]), key=lambda p: not p["answer"]):
        if point["further"]:
            lines.setdefault(name_of(point), point["further"])
    return {name: lines[name] for name in dict.fromkeys([*series(summary["points"]), *lines]) if name in lines}


def frontier(points: Iterable[PointSummary]) -> list[PointSummary]:
    """Returns the Pareto frontier, cheapest first: the points whose quality is above that of all cheaper points; of equally cheap ones, the best."""
    found: list[PointSummary] = []
    for point in by_cost(p for p in points if drawable(p)):
        if not found or point["quality"][0] > found[-1]["quality"][0]:
            found.append(point)
    return found
