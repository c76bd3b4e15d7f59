"""Which points matter: the ways that were compared, the answer, the single model to beat, and the frontier."""

from collections.abc import Iterable

from jaxroute.comparison.page.numbers import known
from jaxroute.comparison.summary import PointSummary, Summary

# Titles of the groups of a table; further ones are of what is out of reach.
MEETS, MISSES = "meet the target, to half a standard error", "do not meet the target"
CHEAPEST = "cheapest choice to meet the target to half an error"


def name_of(point: PointSummary) -> str:
    """What a point is called: a single model by the model's name, all others by their approach."""
    return point["setting"] or point["approach"] if point["kind"] == "single" else point["approach"]


def full_name(point: PointSummary) -> str:
    """Approach and setting."""
    return f"{point['approach']}, {point['setting']}" if point["setting"] else point["approach"]


def drawable(point: PointSummary) -> bool:
    """Whether a point has a place in the picture."""
    return known(point["quality"][0]) and known(point["cost"][0])


def available(point: PointSummary) -> bool:
    """Whether a point may be an answer: it is no bound, and needs nothing rare."""
    return point["kind"] != "bound" and point["without"] is None


def out_of_reach(point: PointSummary) -> str:
    """Why a point that is not available is none."""
    return f"out of reach without {point['without']}" if point["without"] else "out of reach, for scale"


def number_of_ways(summary: Summary) -> int:
    """Approaches that route, neither single models nor bounds."""
    return len({p["approach"] for p in summary["points"] if p["kind"] in ("offline", "online")})


def series(points: Iterable[PointSummary]) -> dict[str, list[PointSummary]]:
    """Points of each approach that routes, from the cheapest on. Single models are no series.

    What learns comes first, then what is fitted, what is out of reach, and bounds, each by the alphabet: a colour does not change with the target.
    """
    kinds = ("online", "offline", "bound")
    found: dict[str, list[PointSummary]] = {}
    routing = [p for p in points if p["kind"] in kinds]

    def key(point: PointSummary) -> tuple[bool, str, int, str, str]:
        name, kind = point["approach"], point["kind"]
        return kind == "bound", point["without"] or "", kinds.index(kind), name.casefold(), name

    for point in sorted(routing, key=key):
        found.setdefault(point["approach"], []).append(point)
    return {name: by_cost(members) for name, members in found.items()}


def by_cost(points: Iterable[PointSummary]) -> list[PointSummary]:
    """Points from the cheapest on, those without a cost last, the better of two that cost the same first."""

    def key(point: PointSummary) -> tuple[bool, float, float]:
        cost, quality = point["cost"][0], point["quality"][0]
        return (not known(cost), cost if known(cost) else 0.0, -quality if known(quality) else 0.0)

    return sorted(points, key=key)


def singles(summary: Summary) -> list[PointSummary]:
    """Points that are a model for every query, from the cheapest on."""
    return by_cost(p for p in summary["points"] if p["kind"] == "single")


def cheapest_single(summary: Summary) -> PointSummary | None:
    """The cheapest single model that meets the target."""
    return next((p for p in singles(summary) if p["meets"] and drawable(p)), None)


def best(summary: Summary) -> PointSummary | None:
    """The point that the sentence is about."""
    return None if summary["best"] is None else summary["points"][summary["best"]]


def groups(summary: Summary) -> dict[str, list[PointSummary]]:
    """Chosen settings for the tables, under the title of their group, each from the cheapest on; no group is empty.

    The cheapest single model that meets the target is among them, other single models are not.
    """
    found: dict[str, list[PointSummary]] = {MEETS: [], MISSES: []}
    single = cheapest_single(summary)
    for point in by_cost(p for p in summary["points"] if p is single or (p["answer"] and p["kind"] != "single")):
        found.setdefault(out_of_reach(point) if point["without"] else MEETS if point["meets"] else MISSES, []).append(point)
    return {title: found[title] for title in (MEETS, MISSES, *sorted(found.keys() - {MEETS, MISSES})) if found[title]}


def frontier(points: Iterable[PointSummary]) -> list[PointSummary]:
    """Points that no other beats in quality and cost, from the cheapest on."""
    found: list[PointSummary] = []
    highest = float("-inf")
    for point in by_cost(p for p in points if drawable(p)):
        quality = point["quality"][0]
        if known(quality) and quality > highest:
            highest = quality
            found.append(point)
    return found
