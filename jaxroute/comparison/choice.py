"""Which way of routing is the answer for a target, and the sentence that says so.

A choice looks at `Point.chosen_by` alone; what is said of it is `Point.judged`.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .page.numbers import measured, percent, share
from .points import JUDGE, Estimate, Point, meets

# A saving is one if it is so many standard errors above 0.
_CLEAR = 2.0
# The approach that needs nothing but shares of the traffic, for comparison.
MIXTURE = "Best mixture"


@dataclass(frozen=True)
class Answer:
    """The answer for one target.

    Attributes:
      target: quality asked for.
      best: the cheapest way that reaches it and can be had, None if nothing does.
      without_judge: likewise, of those that need no perfect judge of answers before one is served.
      single: the cheapest single model that reaches it, None if none does.
    """

    target: float
    best: Point | None
    without_judge: Point | None
    single: Point | None

    @property
    def saves(self) -> bool:
        """Whether the best way clearly costs less than the cheapest single model that reaches the target."""
        if self.best is None or self.single is None or self.best is self.single:
            return False
        saved = saving(self.best, self.single)
        return saved.value > _CLEAR * (0.0 if math.isnan(saved.error) else saved.error)


def saving(point: Point, single: Point) -> Estimate:
    """Part of a single model's cost that a way of routing saves, with the error of a quotient of independent means."""
    cost, base = point.judged.cost, single.judged.cost
    if base.value <= 0:
        return Estimate(math.nan)
    ratio = cost.value / base.value
    error = math.hypot(cost.error / base.value, ratio * base.error / base.value)
    return Estimate(1.0 - ratio, error)


def answers(points: Iterable[Point], target: float) -> list[Point]:
    """The chosen setting of each approach: the cheapest that reaches the target, or that of the highest quality if none does.

    Bounds and single models are not among them, but for the single model that is the cheapest to reach the target.
    """
    points = list(points)
    by_approach: dict[str, list[Point]] = {}
    for point in points:
        if point.kind in ("offline", "online"):
            by_approach.setdefault(point.approach, []).append(point)
    chosen = [_cheapest(of, target) or max(of, key=lambda p: p.chosen_by.quality.value) for of in by_approach.values()]
    single = _cheapest([p for p in points if p.kind == "single"], target)
    return [*chosen, *([] if single is None else [single])]


def answer(points: Iterable[Point], target: float) -> Answer:
    """The answer for a target."""
    points = [p for p in points if p.kind != "bound"]
    chosen = answers(points, target)
    return Answer(
        target,
        _cheapest(chosen, target),
        _cheapest([p for p in chosen if JUDGE not in p.needs], target),
        _cheapest([p for p in points if p.kind == "single"], target),
    )


def _cheapest(points: Sequence[Point], target: float) -> Point | None:
    """The cheapest that reaches the target, by what a choice may look at."""
    fits = [p for p in points if meets(p.chosen_by.quality, target)]
    return min(fits, key=lambda p: p.chosen_by.cost.value) if fits else None


def named(point: Point) -> str:
    """An approach with its setting."""
    return f"{point.approach} ({point.setting})" if point.setting else point.approach


def sentence(points: Sequence[Point], found: Answer, unit: str) -> str:
    """The answer in words.

    Args:
      points: all of them.
      found: the answer.
      unit: of costs.
    """
    goal = share(found.target)
    if found.best is None:
        return _out_of_reach(points, goal)
    if found.saves:
        text = f"{_reaches(found.best, found, unit)}.{_with_a_judge(found, unit)}"
    elif found.single is None:
        text = f"No single model reaches {goal}. {_reaches(found.best, found, unit)}.{_with_a_judge(found, unit)}"
    else:
        text = f"Nothing clearly saves money at {goal}: {found.single.approach} alone reaches it at {measured(found.single.judged.cost.pair)} {unit}."
        if found.best is not found.single:
            text += f" {named(found.best)} costs {_less(saving(found.best, found.single))}."
        return text
    return text + _mixture(points, found)


def _reaches(point: Point, found: Answer, unit: str) -> str:
    judge = ", with a perfect judge of each answer before it is served," if JUDGE in point.needs else ""
    text = f"{named(point)}{judge} reaches {percent(point.judged.quality.pair)} at {measured(point.judged.cost.pair)} {unit}"
    if not meets(point.judged.quality, found.target):
        text += f" (chosen to reach {share(found.target)}, of which it falls short where it is judged)"
    if found.single is not None and point is not found.single:
        text += f", {_less(saving(point, found.single))}"
        text += f" than {found.single.approach}, the cheapest single model that does" if point is found.best else ""
    return text


def _less(saved: Estimate) -> str:
    return f"{percent(saved.pair)} less" if saved.value >= 0 else f"{percent(Estimate(-saved.value, saved.error).pair)} more"


def _with_a_judge(found: Answer, unit: str) -> str:
    """What is left where answers cannot be judged before they are served, if the answer needs that."""
    if found.best is None or JUDGE not in found.best.needs:
        return ""
    if found.without_judge is None:
        return " Without such a judge nothing reaches it."
    if found.without_judge is found.single:
        return " Without such a judge nothing is cheaper than that model."
    return f" Without such a judge: {_reaches(found.without_judge, found, unit)}."


def _mixture(points: Sequence[Point], found: Answer) -> str:
    """What the best mixture that does not look at queries saves."""
    mixture = _cheapest([p for p in points if p.approach == MIXTURE], found.target)
    if found.single is None or mixture is None or mixture in (found.best, found.without_judge):
        return ""
    saved = saving(mixture, found.single)
    verb = "saves" if saved.value >= 0 else "costs"
    more = "" if saved.value >= 0 else " more"
    return f" The best mixture that looks at no query {verb} {percent(Estimate(abs(saved.value), saved.error).pair)}{more}."


def _out_of_reach(points: Sequence[Point], goal: str) -> str:
    had = [p for p in points if p.kind != "bound"]
    most = max(had, key=lambda p: p.chosen_by.quality.value)
    text = f"Nothing here reaches {goal}: the highest quality is that of {named(most)}, {percent(most.judged.quality.pair)}"
    bounds = [p for p in points if p.kind == "bound"]
    if bounds:
        top = max(bounds, key=lambda p: p.judged.quality.value)
        text += f"; the best answer to each query would have {percent(top.judged.quality.pair)}"
    return f"{text}."
