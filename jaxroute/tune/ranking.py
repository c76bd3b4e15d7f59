"""What a search wants, and which of several candidates is better by what was measured.

A candidate is known by some runs of each metric. A bound is taken as kept where the mean keeps it by `margin` standard errors: a candidate
that only luck brings below a bound is not taken for one that keeps it, and one measured by more seeds may come closer. Candidates are
ordered

1. by whether all their runs are valid,
2. by what they lack: the sum over the bounds of `max(0, mean + margin * error - bound)`, in units of the largest lack of that bound among
   those that are compared; zero for those that keep all bounds,
3. by the mean score, or, where the numbers of seeds differ, by the mean and `margin` standard errors against it.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxroute import metrics
from jaxroute.core import checks
from jaxroute.core.types import Metric


class Runs(dict):
    """Values of metrics at the horizon by name, `[seed]` each; an unknown name is refused with those that there are."""

    def __missing__(self, name: Any) -> Any:
        checks.one_of("a metric in the function `metric`", name, self)
        raise KeyError(name)


MetricFunction = Callable[[Mapping[str, np.ndarray]], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What is known of a candidate.

    score: mean of what is searched for, and its standard error.
    bounded: mean and standard error of each metric that has a bound.
    valid: whether all runs are.
    """

    score: tuple[float, float]
    bounded: Mapping[str, tuple[float, float]]
    valid: bool


@dataclasses.dataclass(frozen=True)
class Goal:
    """What is searched for.

    metric: name of a metric, or a function of the values of all that are recorded.
    maximise: whether more is better.
    at_most: largest means by metric.
    at_least: smallest means by metric.
    margin: standard errors by which a bound must be kept.
    """

    metric: str | MetricFunction
    maximise: bool
    at_most: Mapping[str, float]
    at_least: Mapping[str, float]
    margin: float

    @staticmethod
    def of(metric: Any, maximise: Any, at_most: Any, at_least: Any, margin: Any, known: Mapping[str, Metric]) -> "Goal":
        """The goal that a user gave.

        Args:
          known: metrics that can be recorded.

        Raises:
          ValueError: a metric is unknown or has no single number, a bound is no number, or nothing says whether more is better.
        """
        if not callable(metric):
            _single("metric", metric, known)
        else:
            checks.takes("metric, a function,", metric, "values")
        bounds = {}
        for which, given in (("at_most", at_most), ("at_least", at_least)):
            if given is not None and not isinstance(given, Mapping):
                raise ValueError(f"{which} must be a dict of metric to bound, got {checks.show(given)}")
            bounds[which] = {
                _single(which, name, known): float(checks.numbers(f"{which}[{name!r}]", value, ()))
                for name, value in (given or {}).items()
            }
        if maximise is None:
            better = (
                None if callable(metric) else metrics.direction(metric, known[metric].attributes if metric in known else {})
            )
            if better is None:
                what = "of what the function returns" if callable(metric) else f"of {metric!r}"
                raise ValueError(f"maximise must be True or False: whether more {what} is better is not known")
            maximise = better == "max"
        if not isinstance(maximise, bool):
            raise ValueError(f"maximise must be True, False or None, got {checks.show(maximise)}")
        checks.non_negative("margin", margin, ())
        wanted: Any = metric
        return Goal(wanted, maximise, bounds["at_most"], bounds["at_least"], float(margin))

    @property
    def bounded(self) -> bool:
        """Whether there are bounds."""
        return bool(self.at_most or self.at_least)

    @property
    def limited(self) -> list[str]:
        """Metrics that have a bound."""
        return list(dict.fromkeys([*self.at_most, *self.at_least]))

    @property
    def name(self) -> str:
        """What is searched for, in a word."""
        return (
            self.metric
            if isinstance(self.metric, str)
            else getattr(self.metric, "__name__", "score").replace("<lambda>", "score")
        )

    @property
    def metrics(self) -> list[str]:
        """Metrics that have to be recorded."""
        named = [self.metric] if isinstance(self.metric, str) else []
        return list(dict.fromkeys([*named, *self.limited]))

    def scores(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """What is searched for, by run `[seed]`.

        Raises:
          ValueError: the function of the user returns something else.
        """
        if isinstance(self.metric, str):
            return np.asarray(values[self.metric], np.float64)
        found = np.asarray(self.metric(Runs(values)), np.float64)
        shape = next(iter(values.values())).shape
        if found.shape != shape:
            raise ValueError(
                f"metric, a function, must return an array of shape {shape}, one number per run, got shape {found.shape}"
            )
        return found

    def estimate(self, values: Mapping[str, np.ndarray], valid: np.ndarray) -> Estimate:
        """What runs `[seed]` say of a candidate."""
        scores = self.scores(values)
        bounded = {name: moments(np.asarray(values[name])) for name in self.limited}
        return Estimate(moments(scores), bounded, bool(np.all(valid) and np.isfinite(scores).all()))

    def lacks(self, one: Estimate, margin: float | None = None) -> np.ndarray:
        """By how much each bound is not kept with the margin (or another one); zeros for a candidate that keeps all."""
        margin = self.margin if margin is None else margin
        above = [one.bounded[n][0] + margin * one.bounded[n][1] - most for n, most in self.at_most.items()]
        below = [least - one.bounded[n][0] + margin * one.bounded[n][1] for n, least in self.at_least.items()]
        return np.maximum(np.array([*above, *below], np.float64), 0.0)

    def keeps(self, one: Estimate) -> bool:
        """Whether all bounds are kept with the margin."""
        return bool(one.valid and not self.lacks(one).any())

    def verdicts(self, one: Estimate) -> dict[str, str]:
        """For each bound whether it is kept or broken beyond the margin, or open."""
        said = {}
        for sign, word, bounds in ((1, "<=", self.at_most), (-1, ">=", self.at_least)):
            for name, bound in bounds.items():
                mean, error = one.bounded[name]
                gap, room = sign * (mean - bound), self.margin * error
                said[f"{name} {word} {bound:g}"] = "kept" if gap + room <= 0 else "broken" if gap - room > 0 else "open"
        return said

    def order(self, estimates: Sequence[Estimate], cautious: bool = False, margin: float | None = None) -> list[int]:
        """The candidates' numbers from best to worst.

        Args:
          estimates: of the candidates.
          cautious: they were measured by different numbers of seeds, and their errors count against them.
          margin: standard errors by which a bound must be kept, in place of the goal's.
        """
        if not estimates:
            return []
        lacks = np.array([self.lacks(one, margin) for one in estimates]).reshape(len(estimates), -1)
        finite = np.where(np.isfinite(lacks), lacks, 0.0)
        largest = finite.max(axis=0, initial=0.0)
        total = (lacks / np.where(largest > 0, largest, 1.0)).sum(axis=1)
        sign = -1.0 if self.maximise else 1.0
        means, errors = (np.array([one.score[i] for one in estimates]) for i in (0, 1))
        score = sign * means + (self.margin * errors if cautious else 0.0)
        invalid = np.array([not one.valid for one in estimates])
        return [int(i) for i in np.lexsort((np.nan_to_num(score, nan=np.inf), np.nan_to_num(total, nan=np.inf), invalid))]


def agreement(scores: np.ndarray) -> float:
    """Rank correlation between the candidates' means over one half of the seeds and over the other: 1 without noise, about 0 if all is noise.

    Args:
      scores: `[candidate, seed]`.
    """
    halves = [np.mean(scores[:, start::2], axis=1) for start in (0, 1)]
    ranks = [np.argsort(np.argsort(half)).astype(np.float64) for half in halves]
    if len(scores) < 3 or any(np.ptp(half) == 0 for half in halves):
        return 1.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def moments(values: np.ndarray) -> tuple[float, float]:
    """Mean and standard error; without an error for a single run."""
    if len(values) < 2:
        return float(np.mean(values)), 0.0
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


def _single(what: str, name: Any, known: Mapping[str, Metric]) -> str:
    """The name of a metric of single numbers."""
    if isinstance(name, str) and name.startswith("info."):
        return name  # What is in an Info shows when it is traced.
    checks.one_of(what, name, [n for n, m in known.items() if not m.dims])
    return name
