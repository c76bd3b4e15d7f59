"""Tables for tests of offline routing strategies."""

import numpy as np

from jaxroute.comparison.offline.sample import Sample
from jaxroute.data import RoutingTable

# Probability that each model is right in each of four categories, and what it costs: a cheap, a middle and a dear one.
RIGHT = np.array([[0.9, 0.9, 0.95], [0.3, 0.8, 0.9], [0.2, 0.3, 0.9], [0.6, 0.5, 0.7]])
COSTS = np.array([0.1, 0.4, 2.0])


def world(seed, num_queries, right=RIGHT, costs=COSTS, features=True):
    """A table of queries whose category is known and, if wanted, seen in noisy features."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, len(right), num_queries)
    scores = rng.random((num_queries, right.shape[1])) < right[groups]
    paid = costs * rng.gamma(20, 1 / 20, (num_queries, right.shape[1]))
    seen = np.eye(len(right))[groups] + 0.3 * rng.standard_normal((num_queries, len(right)))
    names = tuple(f"model {i}" for i in range(right.shape[1]))
    kinds = tuple("abcdefgh"[: len(right)])
    return RoutingTable(scores.astype(np.float32), paid, names, seen if features else None, groups, kinds)


def noise(seed, num_queries, num_models=3):
    """Scores that nothing predicts."""
    return world(seed, num_queries, np.full((4, num_models), 0.5), np.linspace(1.0, 2.0, num_models))


def random_sample(seed, num_queries=12, num_models=3, levels=5):
    """A few queries with fractional scores, in the package's form, without anything known before."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, levels, (num_queries, num_models)) / (levels - 1)
    costs = rng.random((num_queries, num_models)) * np.arange(1, num_models + 1)
    costs = costs[:, np.argsort(costs.mean(0))]
    return Sample(tuple("abcdefgh"[:num_models]), scores, costs, latency=rng.random((num_queries, num_models)))


def by_name(points):
    """Points by strategy and target, or setting where there is no target."""
    return {(p.strategy, p.setting.split(":")[0]): p for p in points}
