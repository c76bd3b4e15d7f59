"""Values that pass between environment and policies of the queueing problem, and what is measured.

Sizes: `N` models, `K` answers shown, `d` features of a query, `B` places (places for waiting queries).
"""

from dataclasses import dataclass
from typing import Any

import jax
from flax import struct

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
    Metric("arrivals", "queries that came", "queries", "total", default=False),
    Metric("idle", "rounds without a query", "rounds", "total", default=False),
    Metric("explored", "rounds of forced exploration", "rounds", "total", default=False),
    Metric("sojourn", "rounds that the departed had waited", "rounds", "total", default=False),
    Metric("waiting_times", "queries that left by how long they had waited", "queries", "total", ("wait",), default=False),
    Metric("oldest_wait", "age of the oldest waiting query", "rounds", "average", default=False),
    Metric("rejected_contexts", "contexts drawn and not kept", "contexts", "total", default=False),
    Metric("peak", "longest queue so far", "queries", "gauge", default=False),
    Metric("offered_share", "answers shown by each model", "answers per round", "average", ("model",), default=False),
)
# What must not happen: a lost query, one that no assortment serves well enough, an action outside the rules, a round after
# the horizon that the queue was made for.
ZERO_FLOWS = ("dropped", "infeasible", "illegal", "after_horizon")


@dataclass(frozen=True)
class QueueSpec(Spec):
    """What a policy may know in advance.

    Attributes:
      num_offered: `K`, most answers shown.
      dim: `d`.
      capacity: `B`.
      rounds: horizon that the queue was made for.
      pair_features: features describe pairs of query and model, with one parameter for all (the paper's Algorithm 1).
      prompts: `P`, size of the pool of prompts that queries come from; 0 without one.
      mixed: fewer answers may be shown.
    """

    num_offered: int = 1
    dim: int = 1
    capacity: int = 1
    rounds: int = 1
    pair_features: bool = False
    prompts: int = 0
    mixed: bool = False


@struct.dataclass
class Observation:
    """What the operator sees before a decision.

    Attributes:
      features: `[d, B]`, with pair features `[N, d, B]`; with a pool `[d, P]`, those of its prompts.
      waiting: `[B]` bool, whether a query waits at each place.
      arrival: `[B]` int32, round in which the query there came; it decides ties. None if places are in order of arrival.
      in_use: `[]` int32, places from here on are empty, the same number in all runs: for bounds of loops alone, since it may
        depend on the other runs.
      queue_length: `[]` int32.
      arrived: `[]` bool, the round before brought a query.
      newest: `[]` int32, the place of that query.
      oldest: `[]` int32, place of the query that has waited longest.
      prompt: `[B]` int32, the prompt of the query at each place; None without a pool.
      in_front: queries wait in the first `queue_length` places (static).
    """

    features: jax.Array
    waiting: jax.Array
    arrival: jax.Array | None
    in_use: jax.Array
    queue_length: jax.Array
    arrived: jax.Array
    newest: jax.Array
    oldest: jax.Array
    prompt: Any = None
    in_front: bool = struct.field(pytree_node=False, default=False)


@struct.dataclass
class Action:
    """A decision.

    Attributes:
      query: `[]` int32, place of the query that is served.
      offered: `[N]` bool, models whose answers are shown.
      explored: `[]` bool, the decision was forced exploration; it is counted, and tells the policy's `update`.
    """

    query: jax.Array
    offered: jax.Array
    explored: jax.Array


@struct.dataclass
class Feedback:
    """What the operator sees after a round.

    Attributes:
      chosen: `[N]` bool, whose answer the user accepted; all False if the user tries again (or nobody waited).
      features: `[d]`, with pair features `[N, d]`, of the query that was served: the place may have been taken by another
        one.
      prompt: `[]` int32, its prompt; None without a pool.
    """

    chosen: jax.Array
    features: jax.Array
    prompt: Any = None
