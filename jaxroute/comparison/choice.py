"""Recommends a routing strategy for a target quality, and describes the recommendation in sentences.

A strategy's setting is chosen by the measures `Point.chosen_by`. Reports show `Point.judged`, from other random orders or partitions of the
queries. The recommendation is the cheapest strategy whose chosen setting also meets the target by `judged`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .page.numbers import measured, percent, plain, share
from .points import JUDGE, Estimate, Point, meets

_CLEAR = 2.0  # A saving is clear if it is more than this number of standard errors above 0.
_EQUAL = 1e-6  # Relative difference up to which costs count as equal: sums in different orders differ by rounding.
MIXTURE = "Best mixture"  # The query-blind strategy, which is reported for comparison.


@dataclass(frozen=True)
class Answer:
    """Recommendation for a target quality, among points (strategies at one setting). `Point.available` tells which of them are deployable.

    Attributes:
      target: requested quality.
      best: cheapest deployable point that meets the target, or None.
      with_judge: cheapest point that meets the target with a perfect judge (which knows true scores); None if there is none cheaper than `best`.
      single: cheapest single model that meets the target, or None.
    """

    target: float
    best: Point | None
    with_judge: Point | None
    single: Point | None

    @property
    def saves(self) -> bool:
        """Whether `best` is cheaper than `single` by more than two standard errors."""
        if self.best is None or self.single is None or self.best is self.single:
            return False
        saved = saving(self.best, self.single)
        return saved.value > _CLEAR * (0.0 if math.isnan(saved.error) else saved.error)


def saving(point: Point, single: Point) -> Estimate:
    """Returns the share of a single model's cost that a point saves, by `judged`; NaN without cost. Its error takes the two costs as independent."""
    cost, base = point.judged.cost, single.judged.cost
    if base.value <= 0:
        return Estimate(math.nan)
    ratio = cost.value / base.value
    error = math.hypot(cost.error / base.value, ratio * base.error / base.value)
    return Estimate(1.0 - ratio, error)


def answers(points: Iterable[Point], target: float) -> list[Point]:
    """Returns a point of each strategy: its cheapest that meets the target by `chosen_by`, or its point of highest quality if none does.

    The cheapest single model that meets the target, if there is one, comes last.
    """
    points = list(points)
    by_strategy: dict[str, list[Point]] = {}
    for point in points:
        if point.kind in ("offline", "online"):
            by_strategy.setdefault(point.strategy, []).append(point)
    chosen = []
    for of in by_strategy.values():
        fits = [p for p in of if meets(p.chosen_by.quality, target)]
        chosen.append(_cheapest(fits, "chosen_by") or max(of, key=lambda p: p.chosen_by.quality.value))
    single = _cheapest([p for p in points if p.kind == "single" and p.meets(target)])
    return [*chosen, *([] if single is None else [single])]


def answer(points: Iterable[Point], target: float) -> Answer:
    """Returns the recommendation for a target. Its points are chosen from the result of `answers`, without those that miss the target."""
    chosen = [p for p in answers(points, target) if p.meets(target)]
    best = _cheapest([p for p in chosen if p.available])
    judged = _cheapest([p for p in chosen if JUDGE in p.needs])
    if judged is not None and best is not None and judged.judged.cost.value >= (1 - _EQUAL) * best.judged.cost.value:
        judged = None
    return Answer(target, best, judged, next((p for p in chosen if p.kind == "single"), None))


def saved(points: Iterable[Point], target: float, fits: Callable[[Point], bool]) -> Point | None:
    """Returns the point whose rule is saved for new queries; None if there is none. `fits` tells whether the rule of a point can be saved.

    This is the cheapest single model that meets the target, if there is one and no deployable strategy is clearly cheaper. Otherwise it is the
    recommended point or, if its rule cannot be saved, the cheapest deployable point that meets the target and whose rule can.
    """
    points = list(points)
    found = answer(points, target)
    if found.single is not None and not found.saves:
        return found.single
    if found.best is not None and fits(found.best):
        return found.best
    return _cheapest([p for p in answers(points, target) if fits(p) and p.available and p.meets(target)])


def _cheapest(points: Sequence[Point], by: str = "judged") -> Point | None:
    """Returns the cheapest point by its measures `by` ("judged", "chosen_by"), a single model among equally cheap ones; None without points."""
    if not points:
        return None
    least = min(points, key=lambda p: getattr(p, by).cost.value)
    return min((p for p in points if _same_cost(p, least, by)), key=lambda p: p.kind != "single")


def _same_cost(point: Point, other: Point, by: str = "judged") -> bool:
    return math.isclose(getattr(point, by).cost.value, getattr(other, by).cost.value, rel_tol=_EQUAL)


def named(point: Point) -> str:
    """Returns the name of a point's strategy, with the setting in parentheses."""
    return f"{point.strategy} ({point.setting})" if point.setting else point.strategy


def sentences(points: Sequence[Point], found: Answer, unit: str) -> list[str]:
    """Describes the recommendation `found` among `points`: returns a headline and further sentences. `unit` is the unit of costs."""
    goal, single, best = share(found.target), found.single, found.best
    if best is None:
        texts = [_unreached(points, found)]
    elif single is None:
        texts = [f"No single model reaches {goal}. {_reaches(best, found, unit)}."]
    elif found.saves:
        texts = [f"{_reaches(best, found, unit)} than always using {single.strategy}, the cheapest single model that does."]
    else:
        at = f"{measured(single.judged.cost.pair)} {unit}"
        reached = f"always using {single.strategy} reaches the target at {at}."
        texts = [f"No deployable strategy is {'clearly ' if best is not single else ''}cheaper at {goal}: {reached}"]
        if best is not single:
            near = f" (tuned for {goal}, but up to half a standard error below it on held-out queries)"
            near = near if best.judged.quality.value < found.target else ""
            texts.append(f"{named(best)} costs {_less(saving(best, single))}{near}.")
    mixture = next((p for p in answers(points, found.target) if p.strategy == MIXTURE and p.meets(found.target)), None)
    if single is not None and mixture is not None and mixture is not best and not _same_cost(mixture, single):
        saved, more = saving(mixture, single), saving(mixture, single).value < 0
        amount = percent(Estimate(abs(saved.value), saved.error).pair)
        texts.append(f"The best query-blind mixture {'costs' if more else 'saves'} {amount}{' more' if more else ''}.")
    if found.with_judge is not None:
        reaches = _reaches(found.with_judge, found, unit, "would reach")
        texts.append(f"With a perfect judge of each answer before it is served, {reaches}.")
    return texts


def _reaches(point: Point, found: Answer, unit: str, verb: str = "reaches") -> str:
    near = f" ({share(found.target)} within half a standard error)" if point.judged.quality.value < found.target else ""
    text = f"{named(point)} {verb} {percent(point.judged.quality.pair)}{near} at {measured(point.judged.cost.pair)} {unit}"
    return text if found.single is None else f"{text}, {_less(saving(point, found.single))}"


def _less(saved: Estimate) -> str:
    return f"{percent(saved.pair)} less" if saved.value >= 0 else f"{percent(Estimate(-saved.value, saved.error).pair)} more"


def _unreached(points: Sequence[Point], found: Answer) -> str:
    """Returns the headline if no deployable point meets the target of `found`. It names the best deployable one and how far it is from the target."""
    most = max((p for p in points if p.available), key=lambda p: p.chosen_by.quality.value)
    which = "strategy" if found.with_judge is None else "strategy without a perfect judge of answers"
    reached = meets(most.judged.quality, found.target)
    short = plain(100 * (found.target - (most.chosen_by if reached else most.judged).quality.value))
    text = (
        f"No {which} reaches {share(found.target)}: the highest deployable quality is {percent(most.judged.quality.pair)}, by "
        f"{named(most)}, {short} points short{' on the data that its setting is chosen on' if reached else ''}"
    )
    bounds = [p for p in points if p.kind == "bound"]
    if bounds:
        top = max(bounds, key=lambda p: p.judged.quality.value)
        text += f"; the best answer to each query would have {percent(top.judged.quality.pair)}"
    return f"{text}."
