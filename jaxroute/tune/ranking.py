"""Goal of a search, and ranking of candidates by their measured metrics.

A bound counts as satisfied if the mean satisfies it by `margin` standard errors: no candidate passes by noise alone, and a candidate with more
seeds may come closer to the bound. Candidates are ordered

1. by whether all their runs are valid,
2. by their violation of the bounds: the sum of `max(0, mean + margin * error - bound)` over the bounds, each in units of its largest violation
   among the compared candidates; zero for feasible candidates,
3. by the mean score. Candidates with different numbers of seeds are compared by the mean, worsened by `margin` standard errors.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxroute import metrics
from jaxroute.core import checks
from jaxroute.core.types import Metric


class _Values(dict):
    """Dict of metric to its values at the horizon, `[seed]`. An unknown name raises an error that lists the known names."""

    def __missing__(self, name: Any) -> Any:
        checks.one_of("a metric in the function `metric`", name, self)
        raise KeyError(name)


MetricFunction = Callable[[Mapping[str, np.ndarray]], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Estimated score and bounded metrics of a candidate.

    Attributes:
      score: mean score and its standard error.
      bounded: mean and standard error of each metric with a bound.
      valid: whether all runs of the candidate are valid.
    """

    score: tuple[float, float]
    bounded: Mapping[str, tuple[float, float]]
    valid: bool


@dataclasses.dataclass(frozen=True)
class Goal:
    """Objective and bounds of a search.

    Attributes:
      metric: name of the metric that is the score, or a function of the values of all recorded metrics that returns the score.
      maximise: whether a larger score is better.
      at_most: largest allowed mean of each metric with an upper bound.
      at_least: smallest allowed mean of each metric with a lower bound.
      margin: number of standard errors by which a mean must satisfy its bound.
    """

    metric: str | MetricFunction
    maximise: bool
    at_most: Mapping[str, float]
    at_least: Mapping[str, float]
    margin: float

    @staticmethod
    def of(metric: Any, maximise: Any, at_most: Any, at_least: Any, margin: Any, known: Mapping[str, Metric]) -> "Goal":
        """Makes the goal from the user's arguments of `search`; `known` are the metrics that environment and policy can record, by name.

        Raises `ValueError` if a metric is unknown or no single number, a bound is no number, or it is unclear whether more is better.
        """
        if callable(metric):
            checks.takes("metric, a function,", metric, "values")
        else:
            _single("metric", metric, known)
        bounds = {}
        for argument, given in (("at_most", at_most), ("at_least", at_least)):
            if given is not None and not isinstance(given, Mapping):
                raise ValueError(f"{argument} must be a dict of metric to bound, got {checks.show(given)}")
            bounds[argument] = {
                _single(argument, name, known): float(checks.numbers(f"{argument}[{name!r}]", value, ()))
                for name, value in (given or {}).items()
            }
        if maximise is None and not callable(metric):
            better = metrics.direction(metric, known[metric].attributes if metric in known else {})
            maximise = None if better is None else better == "max"
        if maximise is None:
            score = "of what the function returns" if callable(metric) else f"of {metric!r}"
            how = "maximise must be True or False (--maximise or --minimise)"
            raise ValueError(f"{how}: whether more {score} is better is not known")
        if not isinstance(maximise, bool):
            raise ValueError(f"maximise must be True, False or None, got {checks.show(maximise)}")
        checks.non_negative("margin", margin, ())
        untyped: Any = metric  # Pyright cannot infer the signature of the function.
        return Goal(untyped, maximise, bounds["at_most"], bounds["at_least"], float(margin))

    @property
    def bounded(self) -> list[str]:
        """Names of the metrics with a bound."""
        return list(dict.fromkeys([*self.at_most, *self.at_least]))

    @property
    def name(self) -> str:
        """Name of the score: that of the metric or of the function; "score" for a lambda or a callable object without a name."""
        name = self.metric if isinstance(self.metric, str) else getattr(self.metric, "__name__", "score")
        return name.replace("<lambda>", "score")

    def record(self, known: Mapping[str, Metric], record: Sequence[str] | None) -> list[str]:
        """Returns the metrics to record: the score if it is one, bounded ones, and `record` (None: the defaults if the score is a function)."""
        named = [self.metric] if isinstance(self.metric, str) else []
        usual = [m.name for m in known.values() if m.default] if callable(self.metric) else []
        return list(dict.fromkeys([*named, *self.bounded, *(usual if record is None else record)]))

    def scores(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns each run's score `[seed]`, given all metrics' `values` `[seed]`. Raises ValueError if the user's function returns another shape."""
        if isinstance(self.metric, str):
            return np.asarray(values[self.metric], np.float64)
        scores = np.asarray(self.metric(_Values(values)), np.float64)
        shape = next(iter(values.values())).shape
        if scores.shape != shape:
            needed = f"an array of shape {shape}, one number per run"
            raise ValueError(f"metric, a function, must return {needed}, got shape {scores.shape}")
        return scores

    def estimate(self, values: Mapping[str, np.ndarray], valid: np.ndarray) -> Estimate:
        """Estimates a candidate from the values of its runs, `[seed]` for each metric, and their validity `[seed]`."""
        scores, bounded = self.scores(values), {name: moments(np.asarray(values[name])) for name in self.bounded}
        return Estimate(moments(scores), bounded, bool(np.all(valid) and np.isfinite(scores).all()))

    def violations(self, one: Estimate, margin: float | None = None) -> np.ndarray:
        """Returns by how much each bound is violated, in the unit of its metric, or 0 if it is satisfied; the bounds `at_most` come first.

        A bound applies to the mean, worsened by `margin` standard errors (None: the goal's margin).
        """
        margin = self.margin if margin is None else margin
        above = [one.bounded[n][0] + margin * one.bounded[n][1] - most for n, most in self.at_most.items()]
        below = [least - one.bounded[n][0] + margin * one.bounded[n][1] for n, least in self.at_least.items()]
        return np.maximum(np.array([*above, *below], np.float64), 0.0)

    def is_feasible(self, one: Estimate) -> bool:
        """Whether all runs are valid and all bounds are satisfied with the margin."""
        return bool(one.valid and not self.violations(one).any())

    def verdicts(self, one: Estimate) -> dict[str, str]:
        """Returns the verdict on each bound, such as `"cost <= 0.5"`: "satisfied" or "violated" by more than the margin, otherwise "undecided"."""
        verdicts = {}
        for sign, symbol, bounds in ((1, "<=", self.at_most), (-1, ">=", self.at_least)):
            for name, bound in bounds.items():
                mean, error = one.bounded[name]
                gap, margin = sign * (mean - bound), self.margin * error
                verdict = "satisfied" if gap + margin <= 0 else "violated" if gap - margin > 0 else "undecided"
                verdicts[f"{name} {symbol} {bound:g}"] = verdict
        return verdicts

    def order(self, estimates: Sequence[Estimate], cautious: bool = False, margin: float | None = None) -> list[int]:
        """Returns the indices in `estimates` from best to worst: first by validity, then by violation of bounds, then by score (see the module).

        Bounded means are worsened by `margin` standard errors (None: `self.margin`). If `cautious`, scores are worsened by `self.margin` standard
        errors, too; this is needed if candidates have different numbers of seeds.
        """
        if not estimates:
            return []
        violations = np.array([self.violations(one, margin) for one in estimates]).reshape(len(estimates), -1)
        largest = np.where(np.isfinite(violations), violations, 0.0).max(axis=0, initial=0.0)
        total = (violations / np.where(largest > 0, largest, 1.0)).sum(axis=1)
        means, errors = (np.array([one.score[i] for one in estimates]) for i in (0, 1))
        score = (-1.0 if self.maximise else 1.0) * means + (self.margin * errors if cautious else 0.0)
        invalid = np.array([not one.valid for one in estimates])
        return [int(i) for i in np.lexsort((np.nan_to_num(score, nan=np.inf), np.nan_to_num(total, nan=np.inf), invalid))]


def agreement(scores: np.ndarray) -> float:
    """Returns the rank correlation between candidates' mean scores on odd and on even seeds: 1 without noise. `scores` is `[candidate, seed]`."""
    halves = [np.mean(scores[:, start::2], axis=1) for start in (0, 1)]
    ranks = [np.argsort(np.argsort(half)).astype(np.float64) for half in halves]
    if len(scores) < 3 or any(np.ptp(half) == 0 for half in halves):
        return 1.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def moments(values: np.ndarray) -> tuple[float, float]:
    """Returns the mean of values and its standard error, which is 0 for a single value."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return float(np.mean(values)), float(error)


def _single(argument: str, name: Any, known: Mapping[str, Metric]) -> str:
    """Returns `name` if it is a known metric with one number per run, or begins with "info."; otherwise raises ValueError that names `argument`."""
    if not (isinstance(name, str) and name.startswith("info.")):
        checks.one_of(argument, name, [n for n, m in known.items() if not m.dims])
    return name
