"""Cross-fitting: rules are fitted to one part of the queries and evaluated on the others, each query once in every partition."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from jaxroute.data.predictors import Sample, random_folds

from ..points import Estimate, Measures
from .part import Part
from .sample import Outcomes

RuleT_co = TypeVar("RuleT_co", covariant=True)


class Rule(Protocol):
    """A fitted rule; `str` describes it."""

    def evaluate(self, sample: Sample) -> Outcomes:
        """Outcome of each query."""
        ...


class RuleFamily(Protocol[RuleT_co]):
    """Fitted rules of a strategy, one for every target."""

    def tuned(self, target: float) -> RuleT_co:
        """The rule that reaches the target on the fitting part at the least cost; the one of highest quality if none does."""
        ...


@dataclass(frozen=True)
class OfflineStrategy(Generic[RuleT_co]):
    """A routing strategy that is fitted to recorded queries.

    Attributes:
      name: name of the strategy.
      line: Python code that fits it, with `{target}`.
      needs: requirements in production.
      fit: fits its rules to a part of the queries.
    """

    name: str
    line: str
    needs: tuple[str, ...]
    fit: Callable[[Part], RuleFamily[RuleT_co]]


class Record:
    """Outcomes of the rules of one strategy and target for each query, in each partition.

    Args:
      num_partitions: `P`, the number of partitions.
      sample: the queries.
    """

    def __init__(self, num_partitions: int, sample: Sample) -> None:
        shape = (num_partitions, sample.num_queries)
        self.quality, self.cost, self.calls = np.empty(shape), np.empty(shape), np.empty(shape)
        self.rules = np.zeros(shape, np.int64)
        self.sent, self.models = np.zeros((num_partitions, sample.num_models)), sample.models
        self.latency = None if sample.latency is None else np.empty(shape)

    def write(self, partition: int, rule: int, rows: np.ndarray, outcomes: Outcomes) -> None:
        """Records the outcomes of the rule of a fold on some queries."""
        self.rules[partition, rows] = rule
        self.quality[partition, rows] = outcomes.quality
        self.cost[partition, rows] = outcomes.cost
        self.calls[partition, rows] = outcomes.calls
        self.sent[partition] += outcomes.sent
        if self.latency is not None and outcomes.latency is not None:
            self.latency[partition, rows] = outcomes.latency

    def same(self, other: "Record") -> bool:
        """Whether all outcomes are equal."""
        return np.array_equal(self.quality, other.quality) and np.array_equal(self.cost, other.cost)

    def measures(self, first: int = 0) -> Measures:
        """Means over the partitions of one half, with their errors.

        Args:
          first: 0 for the even partitions, 1 for the odd ones.
        """
        latency = None if self.latency is None else estimate(self.latency, self.rules, first)
        quality, cost, calls = (estimate(values, self.rules, first) for values in (self.quality, self.cost, self.calls))
        return Measures(quality, cost, calls, latency)

    def shares(self) -> dict[str, float]:
        """Share of the queries for which each model is called in the odd partitions, without models that are never called."""
        judged = self.sent[1::2] if len(self.sent) > 1 else self.sent
        mean = judged.mean(0) / self.quality.shape[1]
        return {name: float(value) for name, value in zip(self.models, mean, strict=True) if value > 1e-12}


def estimate(values: np.ndarray, rules: np.ndarray, first: int = 0) -> Estimate:
    """Mean over queries and over every second partition.

    The error adds two parts in quadrature: that of a mean over queries, and the standard deviation between fitted rules, which depends on the
    queries that they were fitted to. The latter is not divided by the number of rules, as only one is used in production. It is estimated from
    the difference between each rule's mean and the mean over all partitions on the same queries.

    Args:
      values: `[P, Q]` values for each partition and query; one partition if nothing was fitted.
      rules: `[P, Q]` index of the rule within its partition.
      first: first partition of the mean.
    """
    num_partitions = len(values)
    half = values[first::2] if num_partitions > 1 else values
    of_queries = half.mean(0)
    variance = of_queries.var(ddof=1) / of_queries.size
    if num_partitions > 1:
        apart = values - values.mean(0)
        means = [np.bincount(r, weights=a) / np.bincount(r) for a, r in zip(apart, rules)]
        variance += np.square(means).mean() * num_partitions / (num_partitions - 1)
    return Estimate(float(of_queries.mean()), float(np.sqrt(variance)))


def crossfit(
    sample: Sample,
    strategies: Sequence[OfflineStrategy[Any]],
    targets: Sequence[float],
    num_partitions: int,
    num_folds: int,
    progress: Callable[[str], None] = lambda line: None,
) -> list[list[Record]]:
    """Fits every strategy to all folds except one, tunes it there to every target, and evaluates it on the held-out fold.

    Args:
      sample: the queries.
      strategies: strategies to fit.
      targets: target qualities.
      num_partitions: `P`, the number of partitions.
      num_folds: number of folds of each partition.
      progress: is called with each step in words.

    Returns:
      The outcomes for each strategy and target.
    """
    records = [[Record(num_partitions, sample) for _ in targets] for _ in strategies]
    for partition in range(num_partitions):
        folds = random_folds(sample, num_folds, (7, partition))
        for fold in range(num_folds):
            progress(f"fitted rules: part {partition * num_folds + fold + 1} of {num_partitions * num_folds}")
            part, judged = Part(sample.take(folds != fold), (11, partition, fold)), sample.take(folds == fold)
            for strategy, of_targets in zip(strategies, records):
                fitted = strategy.fit(part)
                for target, record in zip(targets, of_targets):
                    record.write(partition, fold, folds == fold, fitted.tuned(target).evaluate(judged))
    return records
