"""Cross-fitting: a partition divides the queries into folds, and rules are fitted to all folds except one and evaluated on that one, for each fold.

Rules are selected by their quality and cost on the queries for fitting. Many rules maximise score minus price times cost, at a price from a grid.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxroute.data.predictors import Sample, random_folds

from ..points import Estimate, Measures
from .part import Part
from .sample import Outcomes


@dataclass(frozen=True)
class OfflineStrategy:
    """Routing strategy that is fitted to recorded queries.

    The result of `fit` has a method `tuned(target)`, which returns the rule that reaches a quality at the least cost on the queries for fitting, or
    the rule of highest quality if none does. A rule's method `evaluate(sample)` returns its `Outcomes`, and `str(rule)` describes it in words.

    Attributes:
      name: name of the strategy.
      line: Python code that fits the rule to a log, a template in which `str.format` inserts the target: "fit_mixture(log.table, {target})".
      needs: requirements in production, as texts.
      fit: function of a `Part` (queries for fitting) that fits the rules.
    """

    name: str
    line: str
    needs: tuple[str, ...]
    fit: Callable[[Part], Any]


class Record:
    """Results of a strategy for one target on `Q` queries, in `P` random partitions of the queries into folds.

    `values` has arrays `[P, Q]` by name: quality, cost, calls and, if recorded, latency. `rules` `[P, Q]` tells by which rule a query was routed: the
    index of the fold held out when the rule was fitted.
    """

    def __init__(self, num_partitions: int, sample: Sample) -> None:
        shape = (num_partitions, sample.num_queries)
        names = ("quality", "cost", "calls", *(() if sample.latency is None else ("latency",)))
        self.values = {name: np.empty(shape) for name in names}
        self.rules = np.zeros(shape, np.int64)
        self.sent, self.models = np.zeros((num_partitions, sample.num_models)), sample.models

    def write(self, partition: int, rule: int, rows: np.ndarray, outcomes: Outcomes) -> None:
        """Stores the outcomes of the queries `rows` in one partition; `rule` is the index of the fold that was held out when the rule was fitted."""
        self.rules[partition, rows] = rule
        self.sent[partition] += outcomes.sent
        for name, values in self.values.items():
            values[partition, rows] = getattr(outcomes, name)

    def same(self, other: "Record") -> bool:
        """Whether quality and cost of two records are equal on all queries in all partitions."""
        return all(np.array_equal(self.values[name], other.values[name]) for name in ("quality", "cost"))

    def measures(self, first: int = 0) -> Measures:
        """Returns means of quality, cost, calls and latency over queries and every second partition from `first` (0 or 1), with standard errors."""
        return Measures(**{name: estimate(values, self.rules, first) for name, values in self.values.items()})

    def shares(self) -> dict[str, float]:
        """Returns the share of queries for which each used model is called, by name, over the partitions of odd index, as in `Point.judged`."""
        judged = self.sent[1::2] if len(self.sent) > 1 else self.sent
        mean = judged.mean(0) / self.rules.shape[1]
        return {name: float(value) for name, value in zip(self.models, mean, strict=True) if value > 1e-12}


def estimate(values: np.ndarray, rules: np.ndarray, first: int = 0) -> Estimate:
    """Returns the mean of values over queries and over every second partition, with its standard error.

    The squared error is the sum of two variances. The first is that of a mean over queries. The second is that between rules fitted to different
    queries: each rule's mean is compared with the mean of all partitions on the same queries. It is not divided by the number of rules, because
    only one rule is used in production.

    Args:
      values: `[P, Q]` values for each partition and query; one partition if nothing was fitted, and then the second part is 0.
      rules: `[P, Q]` index of the rule, among those fitted in this partition, that gave the value.
      first: index of the first partition that is averaged, 0 or 1.
    """
    num_partitions = len(values)
    half = values[first::2] if num_partitions > 1 else values
    of_queries = half.mean(0)
    variance = of_queries.var(ddof=1) / of_queries.size
    if num_partitions > 1:
        deviations = values - values.mean(0)
        means = [np.bincount(r, weights=a) / np.bincount(r) for a, r in zip(deviations, rules)]
        variance += np.square(means).mean() * num_partitions / (num_partitions - 1)
    return Estimate(float(of_queries.mean()), float(np.sqrt(variance)))


def crossfit(
    sample: Sample,
    strategies: Sequence[OfflineStrategy],
    targets: Sequence[float],
    num_partitions: int,
    num_folds: int,
    progress: Callable[[str], None] = lambda line: None,
) -> list[list[Record]]:
    """Fits every strategy to all folds except one, tunes it there to every target, and evaluates it on the held-out fold.

    Divides queries `num_partitions` times into `num_folds` folds. Returns a record per strategy and target. Calls `progress` with each step's text.
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


def cheapest(quality: np.ndarray, cost: np.ndarray, target: float) -> int:
    """Returns the index of the candidate that reaches a target at the least cost. `C` candidates have mean scores and mean costs `[C]`.

    Ties in cost go to the higher quality, then to the first. If no candidate reaches the target, it is the one of highest quality, then the cheapest.
    """
    # Sums in different orders differ in their last digits, which must not decide between equal candidates.
    good = np.flatnonzero(quality >= min(target, float(quality.max())) - 1e-12)
    least = good[cost[good] <= cost[good].min() * (1 + 1e-12)]
    return int(least[np.argmax(quality[least] >= quality[least].max() - 1e-12)])


@dataclass(frozen=True, eq=False)
class Candidates:
    """Mean scores `reached` and mean costs `spent`, `[C]` each, of `C` rules on the queries for fitting; `rule(index)` makes one of them."""

    rule: Callable[[int], Any]
    reached: np.ndarray
    spent: np.ndarray

    def tuned(self, target: float) -> Any:
        """Returns the rule that reaches the target quality at the least cost, or that of highest quality if none does."""
        return self.rule(cheapest(self.reached, self.spent, target))


def multipliers(costs: np.ndarray, number: int) -> np.ndarray:
    """Returns `number` ascending prices of a unit of cost: 0, then a geometric grid; if all mean `costs` are 0, the only price is 0.

    At the highest price the smallest difference between models' mean costs outweighs any difference of their scores.
    """
    paid = costs[costs > 0]
    if not paid.size:
        return np.zeros(1)
    gaps = np.diff(np.sort(paid))
    least = min(float(paid.min()), float(gaps[gaps > 1e-9 * paid.max()].min(initial=np.inf)))
    return np.append(0.0, np.geomspace(3e-3 / paid.max(), 2.0 / least, number - 1))


def between(prices: np.ndarray, reached: np.ndarray, number: int) -> np.ndarray:
    """Returns `number` new prices between those in `prices` `[L]`, more of them in gaps across which the mean score `reached` `[L]` differs more."""
    gaps = np.abs(np.diff(reached))
    pieces = np.ones(len(gaps))
    for _ in range(number if len(gaps) else 0):
        pieces[np.argmax(gaps / pieces)] += 1
    further = []
    for lower, upper, count in zip(prices[:-1], prices[1:], pieces.astype(int)):
        further.append(np.geomspace(lower if lower > 0 else upper / 100, upper, count + 1)[1:-1])
    return np.concatenate(further) if further else np.zeros(0)
