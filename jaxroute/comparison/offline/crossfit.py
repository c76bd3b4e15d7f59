"""Rules are fitted to one part of the queries and judged on another, so that each query is judged once in every partition."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from jaxroute.data.predictors import Sample, random_folds

from ..points import Estimate, Measures
from .part import Part
from .sample import Played


class Rule(Protocol):
    """A fitted rule. `str` says it in words."""

    def play(self, sample: Sample) -> Played:
        """What it does with each query."""
        ...


class Fitted(Protocol):
    """An approach that was fitted, with a rule for every target."""

    def tuned(self, target: float) -> Rule:
        """The rule that reaches the target on the fitting part at least cost; the one of highest quality where none does."""
        ...


class Approach(Protocol):
    """A way of routing that is fitted to recorded queries."""

    @property
    def name(self) -> str:
        """Of the approach."""
        ...

    @property
    def needs(self) -> tuple[str, ...]:
        """What it asks for in production."""
        ...

    @property
    def line(self) -> str:
        """Python that fits it, with `{target}`."""
        ...

    def fit(self, part: Part) -> Fitted:
        """Fits it."""
        ...


class Record:
    """What rules of one approach and target did with each query, in each partition.

    Args:
      num_partitions: `P`.
      sample: the queries.
    """

    def __init__(self, num_partitions: int, sample: Sample) -> None:
        shape = (num_partitions, sample.num_queries)
        self.quality, self.cost, self.calls = np.empty(shape), np.empty(shape), np.empty(shape)
        self.rules = np.zeros(shape, np.int64)
        self.sent, self.models = np.zeros((num_partitions, sample.num_models)), sample.models
        self.latency = None if sample.latency is None else np.empty(shape)

    def write(self, partition: int, rule: int, rows: np.ndarray, played: Played) -> None:
        """Enters what the rule of a fold played on some queries."""
        self.rules[partition, rows] = rule
        self.quality[partition, rows] = played.quality
        self.cost[partition, rows] = played.cost
        self.calls[partition, rows] = played.calls
        self.sent[partition] += played.sent
        if self.latency is not None and played.latency is not None:
            self.latency[partition, rows] = played.latency

    def same(self, other: "Record") -> bool:
        """Whether two did the same everywhere."""
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
        """Share of the queries for which each model is called, where it is judged; models that are never called are left out."""
        judged = self.sent[1::2] if len(self.sent) > 1 else self.sent
        mean = judged.mean(0) / self.quality.shape[1]
        return {name: float(value) for name, value in zip(self.models, mean, strict=True) if value > 1e-12}


def estimate(values: np.ndarray, rules: np.ndarray, first: int = 0) -> Estimate:
    """Mean over queries and over every second partition.

    The error has two parts, in quadrature: that of a mean over queries, and the standard deviation from one fitted rule to another, by what a
    rule owes to the queries that it was fitted to. The latter is not divided by the number of rules: in production there is one. It is seen in
    how far each rule's mean is from what all partitions have on the same queries.

    Args:
      values: `[P, Q]` for each partition and query; one partition where nothing was fitted.
      rules: `[P, Q]` which of its partition's rules played.
      first: the first of the partitions of the mean.
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
    approaches: Sequence[Approach],
    targets: Sequence[float],
    num_partitions: int,
    num_folds: int,
    progress: Callable[[str], None] = lambda line: None,
) -> list[list[Record]]:
    """Fits every approach to all folds but one, tunes it to every target there, and plays it on that one.

    Args:
      sample: the queries.
      approaches: what is fitted.
      targets: qualities.
      num_partitions: `P`.
      num_folds: of each partition.
      progress: is told how far it is.

    Returns:
      For each approach, for each target, what was played.
    """
    records = [[Record(num_partitions, sample) for _ in targets] for _ in approaches]
    for partition in range(num_partitions):
        folds = random_folds(sample, num_folds, (7, partition))
        for fold in range(num_folds):
            progress(f"rules that are fitted: part {partition * num_folds + fold + 1} of {num_partitions * num_folds}")
            part, judged = Part(sample.take(folds != fold), (11, partition, fold)), sample.take(folds == fold)
            for approach, of_targets in zip(approaches, records):
                fitted = approach.fit(part)
                for target, record in zip(targets, of_targets):
                    record.write(partition, fold, folds == fold, fitted.tuned(target).play(judged))
    return records
