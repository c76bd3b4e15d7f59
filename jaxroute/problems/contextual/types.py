"""Metrics of contextual bandits, and the sizes that policies may use."""

from dataclasses import dataclass

from jax import Array

from jaxroute.core.types import Metric, Spec

METRICS = (
    Metric("regret", "cumulative regret", "reward", "total"),
    Metric("reward", "mean reward", "reward per round", "average"),
    Metric("pulls", "times each model was used", "rounds", "total", ("model",), default=False),
)
# The expected outcomes of a recorded query are unknown, so there are three benchmarks.
TABLE_METRICS = (
    Metric("regret", "cumulative regret against the best model of each query", "score", "total"),
    Metric("linear_regret", "cumulative regret against the linear rule fitted to all rows", "score", "total"),
    Metric("single_regret", "cumulative regret against the best single model", "score", "total"),
    Metric("reward", "mean score less weighted cost", "score per query", "average"),
    Metric("score", "mean score", "score per query", "average"),
    Metric("cost", "mean cost", "cost per query", "average"),
    Metric("pulls", "times each model was used", "queries", "total", ("model",), default=False),
)


# Chosen model `[]` int32, and values that can be recorded.
Choice = tuple[Array, dict[str, Array]]


@dataclass(frozen=True)
class ContextualSpec(Spec):
    """Sizes of a contextual bandit, which policies may use.

    Attributes:
      dim: dimension `d` of a context.
      rows: number of contexts in a round: 1 if all models have the same, otherwise `K`, one for each.
    """

    dim: int = 1
    rows: int = 1
