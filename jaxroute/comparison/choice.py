"""Which way of routing is the answer for a target, and the sentence that says so.

The setting of an approach is chosen by `Point.chosen_by` alone; `Point.judged` is what is reported of it. The answer is the cheapest of the approaches
whose chosen setting meets the target where it is judged, too.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .page.numbers import measured, percent, plain, share
from .points import JUDGE, Estimate, Point, meets

# A saving is one if it is so many standard errors above 0.
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
      best: the cheapest available way that meets it, where it is chosen and where it is judged; None if none does.
      with_judge: the cheapest that meets it with a perfect judge, None if that is no cheaper than `best`, or none does.
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

    Bounds and single models are not among them, except the cheapest single model that meets the target.
    """
    points = list(points)
    by_approach: dict[str, list[Point]] = {}
    for point in points:
        if point.kind in ("offline", "online"):
            by_approach.setdefault(point.approach, []).append(point)
    chosen = []
    for of in by_approach.values():
        fits = [p for p in of if meets(p.chosen_by.quality, target)]
        chosen.append(_cheapest(fits, "chosen_by") or max(of, key=lambda p: p.chosen_by.quality.value))
    single = _cheapest([p for p in points if p.kind == "single" and p.meets(target)])
    return [*chosen, *([] if single is None else [single])]


def answer(points: Iterable[Point], target: float) -> Answer:
    """The answer for a target."""
    chosen = [p for p in answers(points, target) if p.meets(target)]
    best = _cheapest([p for p in chosen if p.available])
    judged = _cheapest([p for p in chosen if JUDGE in p.needs])
    if judged is not None and best is not None and judged.judged.cost.value >= (1 - _EQUAL) * best.judged.cost.value:
        judged = None
    return Answer(target, best, judged, next((p for p in chosen if p.kind == "single"), None))


def saved(points: Iterable[Point], target: float, fits: Callable[[Point], bool]) -> Point | None:
    """The answer if it is of a certain kind, else the cheapest available way of that kind that meets a target; None if there is none.

    Where nothing clearly saves money, the single model that reaches the target.
    """
    points = list(points)
    found = answer(points, target)
    if found.single is not None and not found.saves:
        return found.single
    if found.best is not None and fits(found.best):
        return found.best
    return _cheapest([p for p in answers(points, target) if fits(p) and p.available and p.meets(target)])


def _cheapest(points: Sequence[Point], by: str = "judged") -> Point | None:
    """The cheapest; of equals a single model, for a rule that always calls it is no other."""
    if not points:
        return None
    least = min(points, key=lambda p: getattr(p, by).cost.value)
    return min((p for p in points if _same_cost(p, least, by)), key=lambda p: p.kind != "single")


def _same_cost(point: Point, other: Point, by: str = "judged") -> bool:
    return math.isclose(getattr(point, by).cost.value, getattr(other, by).cost.value, rel_tol=_EQUAL)


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
        said = [_out_of_reach(points, found)]
    elif single is None:
        said = [f"No single model reaches {goal}. {_reaches(best, found, unit)}."]
    elif found.saves:
        said = [f"{_reaches(best, found, unit)} than {single.approach}, the cheapest single model that does."]
    else:
        alone = f"{single.approach} alone reaches it at {measured(single.judged.cost.pair)} {unit}."
        first = "Nothing available saves money" if best is single else "The cheapest choice does not clearly save money"
        said = [f"{first} at {goal}: {alone}"]
        if best is not single:
            said.append(f"{named(best)} costs {_less(saving(best, single))}.")
    mixture = next((p for p in answers(points, found.target) if p.approach == MIXTURE and p.meets(found.target)), None)
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
    near = f" ({share(found.target)} to half a standard error)" if point.judged.quality.value < found.target else ""
    text = f"{named(point)} {verb} {percent(point.judged.quality.pair)}{near} at {measured(point.judged.cost.pair)} {unit}"
    return text if found.single is None else f"{text}, {_less(saving(point, found.single))}"


def _less(saved: Estimate) -> str:
    return f"{percent(saved.pair)} less" if saved.value >= 0 else f"{percent(Estimate(-saved.value, saved.error).pair)} more"


def _out_of_reach(points: Sequence[Point], found: Answer) -> str:
    """The sentence where nothing available meets the target: which way is nearest, and how far it falls short."""
    most = max((p for p in points if p.available), key=lambda p: p.chosen_by.quality.value)
    which = "here" if found.with_judge is None else "without a perfect judge of answers"
    lucky = meets(most.judged.quality, found.target)
    short = plain(100 * (found.target - (most.chosen_by if lucky else most.judged).quality.value))
    text = (
        f"Nothing {which} reaches {share(found.target)}: the highest available quality is that of {named(most)}, "
        f"{percent(most.judged.quality.pair)}, {short} points short{' where it is chosen' if lucky else ''}"
    )
    bounds = [p for p in points if p.kind == "bound"]
    if bounds:
        top = max(bounds, key=lambda p: p.judged.quality.value)
        text += f"; the best answer to each query would have {percent(top.judged.quality.pair)}"
    return f"{text}."
