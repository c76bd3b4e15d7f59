"""Which way of routing is the answer for a target, and the sentence that says so.

A choice looks at `Point.chosen_by` alone; what is said of it is `Point.judged`. A way that clearly misses the target where it is judged is no
answer: the next one is.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .page.numbers import measured, percent, share
from .points import JUDGE, RETRIES, Estimate, Point, meets

# A saving is one if it is so many standard errors above 0, and a target is missed if it is so many above what is judged.
_CLEAR = 2.0
# Costs that differ by less, relatively, are the same sums in another order.
_EQUAL = 1e-6
# The approach that needs nothing but shares of the traffic, for comparison.
MIXTURE = "Best mixture"


@dataclass(frozen=True)
class Answer:
    """The answer for one target.

    Attributes:
      target: quality asked for.
      best: the cheapest way that reaches it and can be had, and does not miss it by two standard errors where it is judged; None if nothing
        does. Who needs a perfect judge of answers, or users who try
        again, is no answer for those who have neither.
      with_judge: likewise with such a judge, None if that is no cheaper than `best`, or nothing does.
      single: the cheapest single model that reaches it, None if none does.
    """

    target: float
    best: Point | None
    with_judge: Point | None
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
    chosen = [p for p in answers(points, target) if not _misses(p, target)]
    best = _cheapest([p for p in chosen if _can_be_had(p)], target)
    judged = _cheapest([p for p in chosen if JUDGE in p.needs], target)
    if judged is not None and best is not None and _cheapest([best, judged], target) is best:
        judged = None
    return Answer(target, best, judged, _cheapest([p for p in points if p.kind == "single"], target))


def saved(points: Iterable[Point], target: float, fits: Callable[[Point], bool]) -> Point | None:
    """The answer if it is of a certain kind, else the cheapest way of that kind that reaches a target and can be had; None if there is none.

    Where nothing clearly saves money, the single model that reaches the target.
    """
    points = [p for p in points if p.kind != "bound"]
    found = answer(points, target)
    if found.single is not None and not found.saves:
        return found.single
    if found.best is not None and fits(found.best):
        return found.best
    chosen = [p for p in answers(points, target) if fits(p) and _can_be_had(p) and not _misses(p, target)]
    return _cheapest(chosen, target)


def _misses(point: Point, target: float) -> bool:
    """Whether a way clearly misses the target where it is judged."""
    quality = point.judged.quality
    return quality.value + _CLEAR * (0.0 if math.isnan(quality.error) else quality.error) < target


def _can_be_had(point: Point) -> bool:
    return point.kind != "bound" and JUDGE not in point.needs and RETRIES not in point.needs


def _cheapest(points: Sequence[Point], target: float) -> Point | None:
    """The cheapest that reaches the target, by what a choice may look at; of equals a single model, for a rule that always calls it is no other."""
    fits = [p for p in points if meets(p.chosen_by.quality, target)]
    if not fits:
        return None
    least = min(fits, key=lambda p: p.chosen_by.cost.value)
    return min((p for p in fits if _same_cost(p, least)), key=lambda p: p.kind != "single")


def _same_cost(point: Point, other: Point) -> bool:
    return math.isclose(point.chosen_by.cost.value, other.chosen_by.cost.value, rel_tol=_EQUAL)


def named(point: Point) -> str:
    """An approach with its setting."""
    return f"{point.approach} ({point.setting})" if point.setting else point.approach


def sentences(points: Sequence[Point], found: Answer, unit: str) -> list[str]:
    """The answer in words: first the answer itself, then what is to be said besides.

    Args:
      points: all of them.
      found: the answer.
      unit: of costs.
    """
    goal = share(found.target)
    single, best = found.single, found.best
    if best is None:
        said = [_out_of_reach(points, goal, found.with_judge is not None)]
    elif single is None:
        said = [f"No single model reaches {goal}. {_reaches(best, found, unit)}."]
    elif found.saves:
        said = [f"{_reaches(best, found, unit)} than {single.approach}, the cheapest single model that does."]
    else:
        alone = f"{single.approach} alone reaches it at {measured(single.judged.cost.pair)} {unit}."
        said = [f"Nothing that can be had clearly saves money at {goal}: {alone}"]
        if best is not single:
            said.append(f"{named(best)} costs {_less(saving(best, single))}.")
    mixture = _cheapest([p for p in points if p.approach == MIXTURE], found.target)
    if single is not None and mixture is not None and mixture is not best and not _same_cost(mixture, single):
        saved = saving(mixture, single)
        verb = "saves" if saved.value >= 0 else "costs"
        more = "" if saved.value >= 0 else " more"
        said.append(
            f"The best mixture that looks at no query {verb} {percent(Estimate(abs(saved.value), saved.error).pair)}{more}."
        )
    if found.with_judge is not None:
        said.append(
            f"With a perfect judge of each answer before it is served, {_reaches(found.with_judge, found, unit, 'would reach')}."
        )
    return said


def _reaches(point: Point, found: Answer, unit: str, verb: str = "reaches") -> str:
    text = f"{named(point)} {verb} {percent(point.judged.quality.pair)} at {measured(point.judged.cost.pair)} {unit}"
    if not meets(point.judged.quality, found.target):
        text += f" (chosen to reach {share(found.target)}, of which it falls short where it is judged)"
    return text if found.single is None else f"{text}, {_less(saving(point, found.single))}"


def _less(saved: Estimate) -> str:
    return f"{percent(saved.pair)} less" if saved.value >= 0 else f"{percent(Estimate(-saved.value, saved.error).pair)} more"


def _out_of_reach(points: Sequence[Point], goal: str, judge: bool) -> str:
    most = max(filter(_can_be_had, points), key=lambda p: p.chosen_by.quality.value)
    which = "without a perfect judge of answers" if judge else "here"
    text = (
        f"Nothing {which} reaches {goal}: the highest quality is that of {named(most)}, {percent(most.judged.quality.pair)}"
    )
    bounds = [p for p in points if p.kind == "bound"]
    if bounds:
        top = max(bounds, key=lambda p: p.judged.quality.value)
        text += f"; the best answer to each query would have {percent(top.judged.quality.pair)}"
    return f"{text}."
