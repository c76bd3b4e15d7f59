"""Evaluates routing rules on a served log: their quality, cost and latency with confidence intervals, and whether the log supports them."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from jaxroute.core import checks
from jaxroute.data import ServedLog

from .crossfit import Fits, folds_of
from .estimators import ESTIMATORS, Evidence, direct_method, doubly_robust, effective_size
from .intervals import (
    Interval,
    covariance,
    degrees_of_freedom,
    positive_interval,
    quantile,
    score_interval,
    simultaneous_quantile,
    standard_error,
)

# How the value of a rule is known: from answers as they were given, from reweighted answers, or from predictions alone.
Known = Literal["observed", "reweighted", "extrapolated"]
# Least effective sample size of a rule with an interval, and fewest degrees of freedom of its mean weight. These do not depend on outcomes:
# a threshold on the error itself would select the logs in which the error happens to be too small.
LEAST_SIZE, _LEAST_DEGREES = 50.0, 10.0
_FREE = 1e-9  # Cost of a rule that counts as none, relative to that of the base.
_MOST_MISSING = 3.0  # Largest share of a rule's choices that the log may lack, in standard errors of this share.
LOGGED = "As logged"


@dataclass(frozen=True, eq=False)
class Value:
    """Estimated mean of one outcome under one rule.

    Attributes:
      value: estimated mean.
      error: its standard error.
      degrees: degrees of freedom of the standard error.
      interval: 95 % confidence interval of this value alone; None if the log does not support one.
      contributions: `[Q]` numbers whose mean is `value`.
    """

    value: float
    error: float
    degrees: float
    interval: Interval | None
    contributions: np.ndarray


@dataclass(frozen=True, eq=False)
class Evaluated:
    """Routing rule with its estimated quality and cost.

    Attributes:
      name: name of the rule.
      shares: `[N]` share of the queries that it sends to each model.
      quality, cost: estimated mean score and mean cost.
      latency: estimated mean latency in seconds, or None.
      known: how the values are known; extrapolated values are predictions alone (direct method), without errors.
      size: effective sample size, number of equally weighted answers with the same information.
      missing: estimated share of the rule's choices for which the log has no answers.
    """

    name: str
    shares: np.ndarray
    quality: Value
    cost: Value
    latency: Value | None
    known: Known
    size: float
    missing: float


class Evaluator:
    """Evaluates rules on one served log by the doubly robust estimator with cross-fitted predictions.

    Args:
      log: served log with propensities.
      seed: seed of the folds.
    """

    def __init__(self, log: ServedLog, seed: int = 0) -> None:
        if not isinstance(log, ServedLog) or log.propensity is None:
            raise ValueError(f"log must be a ServedLog with propensities, got {checks.show(log)}")
        self.log, self.folds = log, folds_of(log, seed)
        self.num_folds = int(self.folds.max()) + 1
        self.clusters, self._propensity = log.clusters, log.propensity

    @cached_property
    def scores(self) -> Fits:
        """Predictions of scores."""
        return Fits(self.log, self.log.scores, self.folds)

    @cached_property
    def costs(self) -> Fits:
        """Predictions of costs."""
        return Fits(self.log, self.log.costs, self.folds, np.inf)

    @cached_property
    def latencies(self) -> Fits | None:
        """Predictions of latencies, or None."""
        return None if self.log.latency is None else Fits(self.log, self.log.latency, self.folds, np.inf)

    @cached_property
    def _predicted(self) -> dict[str, np.ndarray]:
        fits = {"quality": self.scores, "cost": self.costs, "latency": self.latencies}
        return {name: fit.predicted() for name, fit in fits.items() if fit is not None}

    def evidence(self, target: np.ndarray, outcome: str = "quality") -> Evidence:
        """Returns the log as the rule with the probabilities `target` `[Q, N]` sees it; `outcome` is "quality", "cost" or "latency"."""
        log = self.log
        values = {"quality": log.scores, "cost": log.costs, "latency": log.latency}[outcome]
        assert values is not None
        return Evidence(target, log.query, log.model, self._propensity, values, self._predicted[outcome])

    def rule(self, name: str, target: np.ndarray) -> Evaluated:
        """Evaluates a rule; `target` is the probability of each model for each query, `[Q, N]`."""
        shape = (self.log.num_queries, self.log.num_models)
        target = checks.probability("target", target, shape)
        checks.bounded("target.sum(1)", target.sum(1), None, "1", lambda total: np.abs(total - 1) < 1e-6)
        seen = self.evidence(target)
        weights = seen.sums(seen.weights)
        missing, error = 1 - float(weights.mean()), standard_error(weights, self.clusters)
        size, degrees = effective_size(seen.weights), degrees_of_freedom(weights, self.clusters)
        clusters = weights if self.clusters is None else np.bincount(self.clusters, weights)
        supported = (
            min(size, effective_size(clusters)) >= LEAST_SIZE
            and degrees >= _LEAST_DEGREES
            and abs(missing) <= _MOST_MISSING * error + 1e-9
        )
        known: Known = "reweighted" if supported else "extrapolated"
        estimator = doubly_robust if supported else direct_method
        return self._evaluated(name, target, known, estimator, size, max(missing, 0.0))

    def logged(self) -> Evaluated:
        """Evaluates the log's own rule by the means of its answers; a query with several answers counts as the mean of these."""
        return self._evaluated(LOGGED, None, "observed", doubly_robust, float(self.log.num_queries), 0.0)

    def _evaluated(
        self,
        name: str,
        target: np.ndarray | None,
        known: Known,
        estimator: Callable[[Evidence], np.ndarray],
        size: float,
        missing: float,
    ) -> Evaluated:
        log = self.log
        number = np.maximum(np.bincount(log.query, minlength=log.num_queries), 1)

        def value(outcome: str, observed: np.ndarray) -> Value:
            if target is None:
                found = np.bincount(log.query, observed, log.num_queries) / number
            else:
                found = estimator(self.evidence(target, outcome))
            mean, bounded = float(found.mean()), outcome == "quality"
            mean = min(max(mean, 0.0), 1.0) if bounded else max(mean, 0.0)
            if known == "extrapolated":
                return Value(mean, math.nan, 0.0, None, found)
            error = standard_error(found, self.clusters)
            degrees = min(degrees_of_freedom(found, self.clusters), max(size - 1, 0.0))
            interval = (score_interval if bounded else positive_interval)(mean, error, quantile(degrees), degrees)
            return Value(mean, error, degrees, interval, found)

        latency = None if log.latency is None else value("latency", log.latency)
        shares = np.bincount(log.model, minlength=log.num_models) / log.num_answers if target is None else target.mean(0)
        return Evaluated(name, shares, value("quality", log.scores), value("cost", log.costs), latency, known, size, missing)

    def estimates(self, target: np.ndarray, outcome: str = "quality") -> Mapping[str, tuple[float, float]]:
        """Returns the estimated mean and its standard error by each estimator, for comparison; the errors ignore biases."""
        seen = self.evidence(target, outcome)
        found = {name: estimator(seen) for name, estimator in ESTIMATORS.items()}
        return {name: (float(values.mean()), standard_error(values, self.clusters)) for name, values in found.items()}


@dataclass(frozen=True, eq=False)
class Verdict:
    """Quality and saving of a rule in intervals that hold for all compared rules together with probability .95.

    Attributes:
      rule: the rule.
      quality: simultaneous interval of its quality.
      saving: simultaneous interval of the share of the base's cost that it saves.
      saved: estimated share of the base's cost that it saves.
    """

    rule: Evaluated
    quality: Interval
    saving: Interval
    saved: float


def verdicts(rules: list[Evaluated], base: Evaluated, clusters: np.ndarray | None) -> list[Verdict]:
    """Returns simultaneous intervals of the rules that the log supports, relative to the cost of `base`.

    The best of many rules looks better than it is; in simultaneous intervals it does not.

    Source: the max-t method of Hothorn, Bretz and Westfall (2008).
    """
    rules = [rule for rule in rules if rule.known != "extrapolated"]
    if not rules or not base.cost.value > 0:
        return []
    # The logarithm of the ratio of costs, by the delta method; a rule without costs saves everything.
    costs = [rule.cost.value if rule.cost.value > _FREE * base.cost.value else math.inf for rule in rules]
    ratios = [
        rule.cost.contributions / cost - base.cost.contributions / base.cost.value
        for rule, cost in zip(rules, costs, strict=True)
    ]
    matrix = covariance(np.array([*(rule.quality.contributions for rule in rules), *ratios]), clusters)
    errors = np.sqrt(np.diag(matrix))
    positive = errors > 1e-12
    correlation = (matrix / np.where(errors, errors, 1.0) / np.where(errors, errors, 1.0)[:, None])[
        np.ix_(positive, positive)
    ]
    multiple = simultaneous_quantile(correlation) if positive.any() else 0.0
    found = []
    for i, rule in enumerate(rules):
        # Few degrees of freedom widen the multiple as they widen the quantile of a single interval.
        own = multiple * quantile(rule.quality.degrees) / quantile(np.inf)
        quality = score_interval(rule.quality.value, rule.quality.error, own, rule.quality.degrees)
        own = multiple * quantile(rule.cost.degrees) / quantile(np.inf)
        ratio, error = rule.cost.value / base.cost.value, errors[len(rules) + i]
        saving = Interval(1 - ratio * float(np.exp(own * error)), 1 - ratio * float(np.exp(-own * error)))
        found.append(Verdict(rule, quality, saving, 1 - ratio))
    return found
