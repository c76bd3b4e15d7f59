"""Verdicts on claims: numbers with confidence intervals, and statements about them.

A claim consists of statements: a number is below, above or between boundaries. It *holds* if the confidence intervals are on the stated side of
the boundaries, is *refuted* if they are on the other side, and is *not decided* otherwise. If the intervals cover the truth with the stated
probability, a verdict is wrong with a probability of at most 1 - `CONFIDENCE`, even if the truth lies on a boundary.

Means have Student's interval, widened to Hall's, which corrects for skewness, if the runs are skewed. At 99 % confidence, the widened interval misses
the mean of exponentially distributed numbers in 3 % of the cases with 3 runs, 1.9 % with 8 and .7 % with 64 (Student's alone: 4, 5 and 2 %).

`AtLeast` joins several statements. To show that all hold, each is tested at the full confidence (intersection-union test: a false claim has a false
statement, which would have to pass its own test). To refute the claim, each statement has its share of the risk (Bonferroni).
"""

import enum
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import special

from jaxroute import metrics

CONFIDENCE = 0.99
# The reported number of seeds decides with this power, nine in ten, if estimate and standard deviation are the true ones.
_POWER = float(special.ndtri(0.9))
_SEEDS = tuple(int(m * 10**k) for k in range(7) for m in (1, 1.5, 2, 3, 5, 7))


class Verdict(enum.StrEnum):
    """Verdict on a claim. It is vacuous if the claim holds, but a trivial policy satisfies it as well."""

    HOLDS = "holds"
    REFUTED = "refuted"
    NOT_DECIDED = "not decided"
    VACUOUS = "vacuous"


class Measured(NamedTuple("_Mean", [("mean", float), ("error", float)])):
    """Number with its standard error: a tuple `(mean, error)` with further attributes for its confidence interval.

    Attributes:
      mean: the number itself, often a mean over runs.
      error: standard error.
      dof: degrees of freedom of the error; infinite if the error is known.
      runs: one value per run, by label of the run; None if single runs are unknown. Runs of the same label are paired.
      number: how many runs there are.
      floor: part of the error that more seeds do not reduce.
      bounds: function `confidence -> (low, high)` that replaces Student's interval; None for Student's.
      least: smallest number of runs for which the interval is finite.
      places: coordinates (policy, setting, case) of the values from which `mean` was computed.
      missing: text that is printed if `mean` is NaN.
    """

    dof: float
    runs: pd.Series | None
    number: float
    floor: float
    bounds: Callable[[float], tuple[float, float]] | None
    least: int
    places: tuple[Mapping[str, Any], ...]
    missing: str

    def __new__(cls, mean: float, error: float = 0.0, *, dof: float = math.inf, **more: Any):
        made = super().__new__(cls, float(mean), float(error))
        rest = {"runs": None, "number": dof + 1, "floor": 0.0, "bounds": None, "least": 2, "places": (), "missing": "-"}
        vars(made).update({"dof": dof, **rest, **more})
        return made

    def __str__(self) -> str:
        return self.missing if math.isnan(self.mean) else metrics.rounded(*self)

    @classmethod
    def of_runs(cls, runs: pd.Series, **more: Any) -> "Measured":
        """Returns the mean of independent runs, with its standard error; `more` gives values of further attributes, such as `places`."""
        number, values = len(runs), runs.to_numpy(float)
        error = float(values.std(ddof=1)) / math.sqrt(number) if number > 1 else math.nan
        mean = float(values.mean()) if number else math.nan
        return cls(mean, error, **{"dof": number - 1, "runs": runs, "number": number, **more})

    def changed(self, mean: float | None = None, error: float | None = None, **more: Any) -> "Measured":
        """Returns a copy with other values of attributes: `mean` and `error` (None: unchanged) and those named in `more`."""
        values = (old if new is None else new for new, old in zip((mean, error), self, strict=True))
        return Measured(*values, **{**vars(self), **more})

    @property
    def certain(self) -> bool:
        """Whether the number is exact: without a standard error, and without an interval in `bounds`."""
        return self.error == 0.0 and self.bounds is None and self.dof == math.inf

    @property
    def skewness(self) -> float:
        """Skewness of the runs; 0 if single runs are unknown, or if it may be a rounding error."""
        skewness = np.asarray(self.runs.skew()).item() if self.runs is not None and len(self.runs) > 2 else 0.0
        return skewness if abs(skewness) > 1e-6 else 0.0

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Returns the ends of the interval: by `bounds`, else Student's, widened to include Hall's if runs are skewed; infinite for too few runs."""
        if self.bounds is not None:
            return self.bounds(confidence)
        if self.error == 0.0:
            return self.mean, self.mean
        quantile = _quantile((1 + confidence) / 2, self.dof) if self.dof >= 1 else math.inf
        if not math.isfinite(quantile * self.error):
            return -math.inf, math.inf
        ends = [self.mean - quantile * self.error, self.mean + quantile * self.error]
        if skewness := self.skewness:  # Hall (1992), "On the removal of skewness by transformation".
            for q in (quantile, -quantile):
                root = math.cbrt(1 + skewness * (q / math.sqrt(self.number) - skewness / (6 * self.number)))
                ends.append(self.mean - self.error * math.sqrt(self.number) * 3 * (root - 1) / skewness)
        return min(ends), max(ends)

    def times(self, factor: float) -> "Measured":
        bounds, runs = self.bounds, None if self.runs is None else self.runs * factor
        ends = None if bounds is None else lambda c: tuple(sorted(x * factor for x in bounds(c)))
        mean, error, floor = self.mean * factor, self.error * abs(factor), self.floor * abs(factor)
        return self.changed(mean, error, runs=runs, floor=floor, bounds=ends)

    def minus(self, other: "Measured | float") -> "Measured":
        """Returns the difference to another number, paired if both have runs with the same labels, otherwise as for independent numbers.

        If one of them is skewed or has another interval than Student's, the squared distance of each end from the estimate is the sum of the squared
        distances in the two intervals (Zou and Donner, 2008). This is exact for independent numbers, and too wide for positively correlated ones.
        """
        other = other if isinstance(other, Measured) else Measured(other)
        mean, places = self.mean - other.mean, self.places + other.places
        if other.certain:
            shift, bounds = other.mean, self.bounds
            runs = None if self.runs is None else self.runs - shift
            moved = None if bounds is None else lambda c: tuple(x - shift for x in bounds(c))
            return self.changed(mean, self.error, runs=runs, bounds=moved, places=places)
        floor, error = math.hypot(self.floor, other.floor), math.hypot(self.error, other.error)
        if self.bounds is None and other.bounds is None and self.runs is not None and other.runs is not None:
            pairs = pd.concat([self.runs, other.runs], axis=1, join="inner")
            if len(pairs) > 1:
                a, b = pairs.to_numpy(float).T
                gaps = np.where(abs(a - b) <= 1e-12 * (abs(a) + abs(b)), 0.0, a - b)  # Equal up to rounding.
                return Measured.of_runs(pd.Series(gaps, pairs.index), floor=floor, places=places)
        # Cochran and Cox (1957): the mean of the two quantiles, by variance. Welch's degrees of freedom are too many for two to four runs.
        quantiles = [x.error**2 / error**2 * _quantile((1 + CONFIDENCE) / 2, x.dof) for x in (self, other) if error]
        dof = float(special.stdtridf((1 + CONFIDENCE) / 2, sum(quantiles))) if error else math.inf
        more: dict[str, Any] = {"number": min(self.number, other.number), "floor": floor, "places": places}
        if any(x.bounds is not None or x.skewness for x in (self, other)):

            def ends(confidence: float) -> tuple[float, float]:
                (a, b), (c, d) = self.interval(confidence), other.interval(confidence)
                return mean - math.hypot(self.mean - a, d - other.mean), mean + math.hypot(b - self.mean, other.mean - c)

            more |= {"bounds": ends, "least": max(self.least, other.least)}
        return Measured(mean, error, dof=dof, **more)

    def plus(self, other: "Measured") -> "Measured":
        """Returns the sum with another number, paired as in `minus`."""
        return self.minus(other.times(-1.0))

    def below(self, other: "Measured | float") -> "Statement":
        """Returns the statement that the number is less than another."""
        return _about(self, other, high=0.0, strict=True)

    def above(self, other: "Measured | float") -> "Statement":
        """Returns the statement that the number is more than another."""
        return _about(self, other, low=0.0, strict=True)

    def at_most(self, other: "Measured | float", margin: float = 0.0) -> "Statement":
        """Returns the statement that the number is at most another one plus a margin."""
        return _about(self, other, high=margin)

    def at_least(self, other: "Measured | float", margin: float = 0.0) -> "Statement":
        """Returns the statement that the number is at least another one minus a margin."""
        return _about(self, other, low=-margin)

    def near(self, other: "Measured | float", margin: float) -> "Statement":
        """Returns the statement that the number differs from another one by at most a margin (equivalence)."""
        return _about(self, other, low=-margin, high=margin)

    def within(self, low: float, high: float, about: float | None = None) -> "Statement":
        """Returns the statement that the number is from `low` to `high`. Unless `about` is None, the interval must also include this value."""
        return Statement(self, low, high, about=about)


def _about(value: Measured, other: Measured | float, low: float = -math.inf, high: float = math.inf, strict: bool = False):
    """Makes the statement that `value - other` is from `low` to `high` (exclusive if `strict`). An exact number moves into the boundaries."""
    other = other if isinstance(other, Measured) else Measured(other)
    if other.certain:
        return Statement(value.changed(places=value.places + other.places), other.mean + low, other.mean + high, strict)
    if value.certain:
        return Statement(other.changed(places=value.places + other.places), value.mean - high, value.mean - low, strict)
    return Statement(value.minus(other), low, high, strict, gap=True)


def _quantile(probability: float, dof: float) -> float:
    """Returns the quantile at `probability` of Student's t distribution with `dof` degrees of freedom."""
    return float(special.stdtrit(dof, probability))


@dataclass(frozen=True)
class Statement:
    """Statement that a number lies between two boundaries.

    Attributes:
      value: the number.
      low, high: the boundaries.
      strict: whether the boundaries are excluded.
      gap: whether the number is a difference of two numbers; the text then begins with "difference".
      about: value that the confidence interval must also include, such as an exponent in a paper; None for none.
      trivial: name of a trivial policy, such as uniform choice, and the same statement about it; or None.
    """

    value: Measured
    low: float = -math.inf
    high: float = math.inf
    strict: bool = False
    gap: bool = False
    about: float | None = None
    trivial: "tuple[str, Statement] | None" = None

    def __bool__(self) -> bool:
        raise TypeError("a statement has no truth value before it is judged; join several by a list, not by `and`")

    def unless(self, policy: str, statement: "Statement") -> "Statement":
        """Returns a copy that counts as vacuous, not as holding, if `statement`, the same about the trivial policy named `policy`, holds as well."""
        return replace(self, trivial=(policy, statement))

    def holds(self, risk: float) -> bool:
        """Whether the interval of confidence 1 - `risk` lies between the boundaries and, unless `about` is None, includes this value."""
        low, high = self.value.interval(1 - risk)
        inside = self._before(self.low, low) and self._before(high, self.high) and not math.isnan(self.value.mean)
        return inside and (self.about is None or low <= self.about <= high)

    def refuted(self, risk: float) -> bool:
        """Whether the interval of confidence 1 - `risk` lies entirely outside the boundaries or, unless `about` is None, excludes this value."""
        low, high = self.value.interval(1 - risk)
        least, most = (self.low, self.high) if self.about is None else (self.about, self.about)
        return (high <= least or low >= most) if self.strict else (high < least or low > most)

    def _before(self, a: float, b: float) -> bool:
        return (a < b if self.strict else a <= b) or a == -math.inf or b == math.inf

    def leaves(self) -> "list[Statement]":
        """Returns a list with only this statement; `AtLeast.leaves` returns all its statements."""
        return [self]

    def distance(self) -> float:
        """Returns the distance from the number to the nearest boundary; negative if the number is not between the boundaries."""
        return min(self.value.mean - self.low, self.high - self.value.mean)

    def weight(self) -> float:
        """Returns `distance` in half-widths of the confidence interval; 0 if the interval is infinite."""
        low, high = self.value.interval()
        return self.distance() / max((high - low) / 2, 1e-300) if math.isfinite(high - low) else 0.0

    def seeds(self, risk: float) -> float:
        """Estimates the total number of seeds that decide the statement at confidence 1 - `risk`, taking mean and error as true; may be infinite."""
        value, (low, high) = self.value, self.value.interval(1 - risk)
        if self.holds(risk) or self.refuted(risk):
            return value.number
        error = value.error if value.bounds is None else (high - low) / 2 / _quantile(1 - risk / 2, value.dof)
        # The interval of a share of 0 or 1 shrinks with the number of runs, not with the root of this number.
        power = 2.0 if value.mean in (low, high) else 1.0
        for seeds in (one for one in _SEEDS if one > value.number and one >= value.least):
            left = math.hypot(math.sqrt(max(error**2 - value.floor**2, 0.0) * (value.number / seeds) ** power), value.floor)
            # If the interval is infinite, only the smallest number of seeds with a finite interval is known.
            if (_quantile(1 - risk / 2, seeds - 1) + _POWER) * left < abs(self.distance()) or not math.isfinite(error):
                return seeds
        return math.inf

    def rule(self) -> str:
        """Describes the boundaries in words."""
        low, high = map(metrics.show_value, (self.low, self.high))
        if math.isfinite(self.low) and math.isfinite(self.high):
            return f"from {low} to {high}" if self.about is None else f"{self.about:g}, from {low} to {high}"
        words = ("above", "below") if self.strict else ("at least", "at most")
        return f"{words[0]} {low}" if math.isfinite(self.low) else f"{words[1]} {high}"

    def __str__(self) -> str:
        low, high = self.value.interval()
        digits = max(0, 2 - math.floor(math.log10(max((high - low) / 2, 1e-12)))) if math.isfinite(high - low) else 3
        ends = f"{100 * CONFIDENCE:g} % interval {low:,.{min(digits, 9)}f} to {high:,.{min(digits, 9)}f}"
        return f"{'difference ' if self.gap else ''}{metrics.rounded(*self.value)}, {ends}, to be {self.rule()}"


@dataclass(frozen=True)
class AtLeast:
    """Statement that at least `number` of the statements in `parts` are true."""

    number: int
    parts: "tuple[Statement | AtLeast, ...]"

    def holds(self, risk: float) -> bool:
        """Whether at least `number` parts hold, each at `risk / (len(parts) - number + 1)`; the total risk of an error is at most `risk`."""
        # If fewer are true, at least `len(parts) - number + 1` are false, and one of these must hold for an error.
        share = risk / (len(self.parts) - self.number + 1)
        return sum(part.holds(share) for part in self.parts) >= self.number

    def refuted(self, risk: float) -> bool:
        """Whether more than `len(parts) - number` parts are refuted, each at `risk / number`; the total risk of an error is at most `risk`."""
        return sum(part.refuted(risk / self.number) for part in self.parts) > len(self.parts) - self.number

    def leaves(self) -> list[Statement]:
        """Returns the statements about single numbers among the parts and, recursively, in parts that are themselves `AtLeast`."""
        return [leaf for part in self.parts for leaf in part.leaves()]

    def distance(self) -> float:
        """Returns the `number`-th largest distance of a part to its nearest boundary; negative if fewer than `number` parts are inside theirs."""
        return sorted(part.distance() for part in self.parts)[-self.number]

    def seeds(self, risk: float) -> float:
        """Estimates how many seeds would decide the statement at confidence 1 - `risk` if the estimates were true; infinite if no number would."""
        right, left = [p for p in self.parts if p.distance() > 0], [p for p in self.parts if p.distance() < 0]
        if len(right) >= self.number:
            share = risk / (len(self.parts) - self.number + 1)
            return sorted(part.seeds(share) for part in right)[self.number - 1]
        without = len(self.parts) - self.number
        return sorted(part.seeds(risk / self.number) for part in left)[without] if len(left) > without else math.inf


# A statement, several statements that must all be true, or a truth value without error.
Stated = Statement | AtLeast | bool | np.bool_ | Iterable["Stated"]


def stated(what: Stated) -> Statement | AtLeast:
    """Returns one statement that stands for `what`: a statement, a truth value, or several of these that must all be true."""
    if isinstance(what, (Statement, AtLeast)):
        return what
    if isinstance(what, (bool, np.bool_)):
        return Statement(Measured(float(what)), low=0.5)
    return at_least(None, what)


def at_least(number: int | None, what: Iterable[Stated]) -> Statement | AtLeast:
    """Returns the statement that at least `number` of the given statements are true (default: all). Without any statement it is never decided."""
    parts = tuple(stated(one) for one in what)
    if not parts:
        return Statement(Measured(math.nan))
    return AtLeast(len(parts) if number is None else number, parts)


class Judgement(NamedTuple):
    """Verdict on a claim, with its reason.

    Attributes:
      verdict: the verdict.
      text: reason in words: the statement nearest to its boundary, with interval; if not decided, the seeds needed; if vacuous, the trivial policy.
      numbers: content of the text as plain JSON: interval, boundaries, confidence, runs, degrees of freedom, and `seeds_to_decide`.
      places: coordinates of all values from which the numbers were computed.
    """

    verdict: Verdict
    text: str
    numbers: dict[str, Any]
    places: tuple[Mapping[str, Any], ...]


def judge(what: Stated) -> Judgement:
    """Returns the verdict on a claim that consists of the statements `what`."""
    tree, risk = stated(what), 1 - CONFIDENCE
    leaves = tree.leaves()
    verdict = Verdict.HOLDS if tree.holds(risk) else Verdict.REFUTED if tree.refuted(risk) else Verdict.NOT_DECIDED
    bounds = [leaf.trivial for leaf in leaves if leaf.trivial is not None]
    if verdict is Verdict.HOLDS and bounds and all(statement.holds(risk) for _, statement in bounds):
        verdict = Verdict.VACUOUS
    uncertain = [leaf for leaf in leaves if leaf.value.error or leaf.value.bounds]
    texts, numbers = [], {}
    if uncertain:
        nearest = min(uncertain, key=Statement.weight)
        value = nearest.value
        texts = [f"{f'nearest of {len(uncertain)}: ' if len(uncertain) > 1 else ''}{nearest}"]
        pairs = {"interval": value.interval(), "boundaries": (nearest.low, nearest.high)}
        numbers = {name: [_finite(x) for x in pair] for name, pair in pairs.items()}
        numbers |= {"confidence": CONFIDENCE, "runs": _finite(value.number), "dof": _finite(value.dof)}
    if verdict is Verdict.NOT_DECIDED:
        seeds = tree.seeds(risk)
        numbers["seeds_to_decide"] = _finite(seeds)
        if any(math.isnan(leaf.value.mean) for leaf in leaves):
            texts.append("there is no number to judge")
        else:
            texts.append(f"{f'some {seeds:,}' if math.isfinite(seeds) else 'no number of'} seeds would decide")
    if verdict is Verdict.VACUOUS:
        policy, other = min(bounds, key=lambda bound: bound[1].distance())
        texts.append(f"vacuous at this size: {policy} satisfies it as well, {other.value}, to be {other.rule()}")
    return Judgement(verdict, "; ".join(texts), numbers, tuple(place for leaf in leaves for place in leaf.value.places))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
