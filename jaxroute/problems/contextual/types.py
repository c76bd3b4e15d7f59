"""Metrics of contextual bandits, and the sizes that policies may use."""

from dataclasses import dataclass

from flax import struct
from jax import Array

from jaxroute.core.types import Metric, Spec
from jaxroute.sources import served

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
# The share of runs that count all rounds shows whether a log is long enough.
SERVED_METRICS = (*served.METRICS, Metric("complete", "share of runs that have counted all requests", "", "gauge"))


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


@dataclass(frozen=True)
class ServedSpec(ContextualSpec):
    """Sizes of a replay: `rounds` is the number of accepted events that count, the horizon of a policy that learns from them."""

    rounds: int = 1


@struct.dataclass
class LoggedRequest:
    """Observation of a replay: a request of the log that the policy may serve.

    Attributes:
      context: `[1, d]` context of the request.
      round: `[]` int32, number of requests that the policy has served before, its own round.
    """

    context: Array
    round: Array

    def __getattr__(self, name: str) -> None:
        # Only called for missing names. copy, pickle and JAX read names with two underscores.
        raise AttributeError(
            name
            if name.startswith("__")
            else f"{name}: policies of a replay must be wrapped: contextual.ReplayedPolicy(policy)"
        )


@struct.dataclass
class ReplayFeedback:
    """Feedback of a replay.

    Attributes:
      reward: `[]` reward of the request, 0 if it is not accepted.
      accepted: `[]` bool, whether the log has the chosen model's answer and the request counts. A policy must not learn from other requests.
    """

    reward: Array
    accepted: Array
