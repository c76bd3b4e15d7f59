"""Values shared by environment and policies of the queueing problem, and its metrics.

Sizes: `N` models, `K` answers shown, `d` features of a query, `B` places for waiting queries.
"""

from dataclasses import dataclass
from typing import Any

from flax import struct
from jax import Array

from jaxroute.core.types import Metric, Spec

METRICS = (
    Metric("queue_length", "queue length", "queries", "gauge"),
    Metric("queue_regret", "queue length above the optimal policy's", "queries", "gauge"),
    Metric("routing_regret", "cumulative routing regret", "departures", "total"),
    Metric("joint_regret", "cumulative joint regret", "departures", "total"),
    Metric("departures", "queries that left", "queries", "total"),
    Metric("retrials", "answers that were not accepted", "queries", "total"),
    Metric("mean_queue", "mean queue length", "queries", "average", default=False),
    Metric("mean_queue_regret", "mean queue length above the optimal policy's", "queries", "average", default=False),
    Metric("arrivals", "queries that arrived", "queries", "total", default=False),
    Metric("idle", "rounds without a query", "rounds", "total", default=False),
    Metric("explored", "rounds of forced exploration", "rounds", "total", default=False),
    Metric("sojourn", "total waiting time of the queries that left", "rounds", "total", default=False),
    Metric("waiting_times", "queries that left, by waiting time", "queries", "total", ("wait",), default=False),
    Metric("oldest_wait", "age of the oldest waiting query", "rounds", "average", default=False),
    Metric("rejected_contexts", "contexts drawn and rejected", "contexts", "total", default=False),
    Metric("peak", "longest queue so far", "queries", "gauge", default=False),
    Metric("offered_share", "answers shown by each model", "answers per round", "average", ("model",), default=False),
)
LEARNER_METRICS = (
    Metric("score", "logarithm of the largest weight in the samples", "", "average", default=False),
    Metric("radius", "mean confidence radius", "", "average", ("model",), default=False),
    Metric("min_eigenvalue", "least eigenvalue of the design matrix", "", "gauge", ("model",), default=False),
    Metric("residual", "bound of the largest remaining error of a logit", "", "gauge", default=False),
    Metric("nonfinite", "parameters that are not finite", "", "gauge", default=False),
)
# Flows that make a run invalid: a lost query, a query that no assortment serves well enough, an action outside the rules, a round after the
# horizon of the queue.
ZERO_FLOWS = ("dropped", "infeasible", "illegal", "after_horizon")


@dataclass(frozen=True)
class QueueSpec(Spec):
    """Sizes and properties of a queue, which policies may use.

    Attributes:
      num_offered: largest number of answers shown in a round, `K`.
      dim: number of features, `d`.
      capacity: places for waiting queries, `B`.
      rounds: number of rounds of a run.
      pair_features: whether features describe pairs of query and model, with one parameter vector for all models (the paper's Algorithm 1).
      prompts: number of prompts in the pool, `P`; 0 without a pool.
      mixed: whether fewer than `K` answers may be shown.
    """

    num_offered: int = 1
    dim: int = 1
    capacity: int = 1
    rounds: int = 1
    pair_features: bool = False
    prompts: int = 0
    mixed: bool = False


@struct.dataclass
class QueueView:
    """Waiting queries before a decision; they fill the first `queue_length` of the `B` places of the buffer.

    Attributes:
      waiting: `[B]` bool, whether a query waits at each place.
      arrival: `[B]` int32, round in which the query at each place arrived.
      in_use: `[]` int32, number of places that loops read, at least the longest queue of all runs in the batch. It saves time; results do not depend
        on it.
      queue_length: `[]` int32, number of waiting queries.
      arrived: `[]` bool, whether the previous round brought a query.
      newest, oldest: `[]` int32, places of the query that arrived last, and of the query that has waited longest.
    """

    waiting: Array
    arrival: Array
    in_use: Array
    queue_length: Array
    arrived: Array
    newest: Array
    oldest: Any = None


@struct.dataclass(kw_only=True)
class Observation(QueueView):
    """Waiting queries and their features, before a decision.

    Attributes:
      features: `[d, B]` features of the query at each of `B` places (`[N, d, B]` of query-model pairs); with a pool `[d, P]` of all its prompts.
      prompt: `[B]` int32, index of the prompt of the query at each place; None without a pool.
    """

    features: Array
    prompt: Any = None


@struct.dataclass
class Action:
    """Query to serve, and the models whose answers are shown.

    Attributes:
      query: `[]` int32, place of the query that is served.
      offered: `[N]` bool, models whose answers are shown.
      explored: `[]` bool, whether the decision was forced exploration, for a metric and the policy's `update`.
    """

    query: Array
    offered: Array
    explored: Array


# Result of a policy's `act`: the action, and values that can be recorded.
Decision = tuple[Action, dict[str, Array]]


@struct.dataclass
class Feedback:
    """Reaction of the user in a round, and the features of the served query.

    Attributes:
      chosen: `[N]` bool, True for the model whose answer the user accepted; all False if the user tries again or no query waited.
      features: `[d]` features of the served query (`[N, d]` of its pairs with models), whose place may be taken by another query now.
      prompt: `[]` int32, index of the served query's prompt; None without a pool.
    """

    chosen: Array
    features: Array
    prompt: Any = None
