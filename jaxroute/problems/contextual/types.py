"""Values that pass between environment and policies of contextual bandits."""

from dataclasses import dataclass

from jaxroute.core.types import Metric, Spec

METRICS = (
    Metric("regret", "cumulative regret", "reward", "total"),
    Metric("reward", "mean reward", "reward per round", "average"),
    Metric("pulls", "times each model was used", "rounds", "total", ("model",), default=False),
)
# Of a table: nothing is known of a query but its outcomes, so that there are three benchmarks.
TABLE_METRICS = (
    Metric("regret", "cumulative regret against the best model of each query", "score", "total"),
    Metric("linear_regret", "cumulative regret against the linear rule fitted to all rows", "score", "total"),
    Metric("single_regret", "cumulative regret against the best single model", "score", "total"),
    Metric("reward", "mean score less weighted cost", "score per query", "average"),
    Metric("score", "mean score", "score per query", "average"),
    Metric("cost", "mean cost", "cost per query", "average"),
    Metric("pulls", "times each model was used", "queries", "total", ("model",), default=False),
)


@dataclass(frozen=True)
class ContextualSpec(Spec):
    """What is known in advance.

    dim: `d`, numbers of a context.
    rows: contexts of a round: 1 if all models see the same, else `K`, one for each.
    """

    dim: int = 1
    rows: int = 1
