"""Which points matter: the ways that were compared, the answer, the single model to beat, and the frontier."""

from collections.abc import Iterable

from jaxroute.comparison.page.numbers import known
from jaxroute.comparison.summary import PointSummary, Summary


def name_of(point: PointSummary) -> str:
    """What a point is called: a single model by the model's name, all others by their approach."""
    return point["setting"] or point["approach"] if point["kind"] == "single" else point["approach"]


def full_name(point: PointSummary) -> str:
    """Approach and setting."""
    return f"{point['approach']}, {point['setting']}" if point["setting"] else point["approach"]


def drawable(point: PointSummary) -> bool:
    """Whether a point has a place in the picture."""
    return known(point["quality"][0]) and known(point["cost"][0])


def number_of_ways(summary: Summary) -> int:
    """Approaches that route, neither single models nor bounds."""
    return len({p["approach"] for p in summary["points"] if p["kind"] in ("offline", "online")})


def series(points: Iterable[PointSummary]) -> dict[str, list[PointSummary]]:
    """Points of each approach that routes, from the cheapest on. Single models are no series.

    Approaches that learn come first and bounds last, each by the alphabet: a colour does not change with the target.
    """
    kinds = ("online", "offline", "bound")
    found: dict[str, list[PointSummary]] = {}
    routing = [p for p in points if p["kind"] in kinds]
    for point in sorted(routing, key=lambda p: (kinds.index(p["kind"]), p["approach"].casefold(), p["approach"])):
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


def rows(summary: Summary) -> tuple[list[PointSummary], list[PointSummary], list[PointSummary]]:
    """Chosen settings for the table: those that meet the target, those that do not, and bounds, each from the cheapest on.

    The cheapest single model that meets the target is among them, other single models are not.
    """
    single = cheapest_single(summary)
    chosen = [p for p in summary["points"] if p["answer"] and p["kind"] != "single"]
    chosen += [single] if single else []
    real = [p for p in chosen if p["kind"] != "bound"]
    meeting, missing = ([p for p in real if p["meets"] is want] for want in (True, False))
    return by_cost(meeting), by_cost(missing), by_cost(p for p in chosen if p["kind"] == "bound")


def frontier(points: Iterable[PointSummary]) -> list[PointSummary]:
    """Achievable points that no other beats in quality and cost, from the cheapest on."""
    found: list[PointSummary] = []
    highest = float("-inf")
    for point in by_cost(p for p in points if p["kind"] != "bound" and drawable(p)):
        quality = point["quality"][0]
        if known(quality) and quality > highest:
            highest = quality
            found.append(point)
    return found
