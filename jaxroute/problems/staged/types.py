"""Values shared by environment and policies of the staged problem, and its metrics.

Sizes: `N` models that ever arrive, `M` deployment slots, `I` rounds per stage.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from jaxroute.core import numerics
from jaxroute.core.types import Metric, Spec

METRICS = (
    Metric("regret", "cumulative regret", "reward", "total"),
    Metric("conditional_regret", "cumulative regret given the routing probabilities", "reward", "total"),
    Metric("realised_regret", "cumulative regret of the observed rewards", "reward", "total", default=False),
    Metric("reward", "mean reward", "reward per query", "average"),
    Metric("mean_reward", "mean expected reward of the chosen model", "reward per query", "average", default=False),
    Metric("expected_reward", "mean expected reward of the routing", "reward per query", "average", default=False),
    Metric("cost", "mean cost", "cost per query", "average"),
    Metric("mean_cost", "mean expected cost of the chosen model", "cost per query", "average", default=False),
    Metric("expected_cost", "mean expected cost of the routing", "cost per query", "average", default=False),
    Metric("cost_ratio", "spend / budget", "", "average", limit=1.0, violation="over budget"),
    Metric("served", "queries served before the budget was spent", "queries", "total", default=False),
    Metric("served_reward", "reward earned before the budget was spent", "reward", "total", default=False),
    Metric("capacity_excess", "routing probability above the capacities", "", "total", default=False),
    Metric("deployments", "models that entered the deployment", "models", "total", default=False),
    Metric("fee", "deployment fees", "cost", "total", default=False),
    Metric("pulls", "times each model was used", "queries", "total", ("model",), default=False),
    Metric("overspend", "spend above the budget so far", "cost", "gauge", default=False),
    Metric("worst_overspend", "largest spend above the budget of any prefix", "cost", "gauge", default=False),
    Metric("deployed", "model is live", "", "gauge", ("model",), default=False),
)
# Metrics of a policy that solves the paper's programs.
POLICY_METRICS = (
    Metric(
        "infeasible_share",
        "share of queries without feasible routing",
        "",
        "average",
        limit=0.5,
        violation="mostly infeasible",
    ),
    Metric("multiplier", "shadow price of the budget", "reward per cost", "average", default=False),
    Metric(
        *("unfinished_share", "share of queries with a deployment whose search stopped early", "", "average"),
        default=False,
        limit=0.0,
        violation="not always the best deployment",
    ),
)


@dataclass(frozen=True)
class StagedSpec(Spec):
    """Sizes that a policy knows in advance.

    Attributes:
      max_deployed: number of slots `M`.
      max_support: largest number of models in an optimal routing, `ceil(1 / smallest capacity) + 1`; sets are enumerated only if there are
        fewer slots.
    """

    max_deployed: int = 1
    max_support: int = 2


@struct.dataclass
class MarketState:
    """State of the market.

    Attributes:
      overspend: `[]` spend so far minus the budget of the queries so far.
      worst_overspend: `[]` largest overspend so far.
      alive: `[]` bool, whether the total budget is not yet spent.
      deployed: `[N]` bool, deployed models.
      errors: rounding errors of the sums, see `numerics.accumulate`.
      source: state of the outcomes.
    """

    overspend: jax.Array
    worst_overspend: jax.Array
    alive: jax.Array
    deployed: jax.Array
    errors: dict[str, jax.Array]
    source: Any


@struct.dataclass
class Observation:
    """Observation of the router before a decision.

    Attributes:
      available: `[N]` bool, models that have arrived.
      capacity: `[N]` largest share of the traffic of each model.
      budget: `[]` cost per query.
      overspend: `[]` spend so far minus `budget` times queries so far.
      rounds_left: `[]` int32, remaining queries, this one included.
      cost_floor: `[]` least cost `c_1` of a query, known in advance.
      cost_ceiling: `[]` largest cost `c_2` of a query, known in advance.
    """

    available: jax.Array
    capacity: jax.Array
    budget: jax.Array
    overspend: jax.Array
    rounds_left: jax.Array
    cost_floor: jax.Array
    cost_ceiling: jax.Array


@struct.dataclass
class Action:
    """Routing decision.

    Attributes:
      model: `[]` int32, model that serves the query.
      probabilities: `[N]` distribution from which it was drawn, zero outside the deployed set.
      deployed: `[N]` bool, deployed set; fixed within a stage.
    """

    model: jax.Array
    probabilities: jax.Array
    deployed: jax.Array


@struct.dataclass
class Feedback:
    """Observation of the router after a decision.

    Attributes:
      reward: `[]` reward of the chosen model.
      cost: `[]` cost of the chosen model.
    """

    reward: jax.Array
    cost: jax.Array


@struct.dataclass
class Statistics:
    """Sufficient statistics of some models.

    Attributes:
      pulls: `[...]` int32, uses of each model.
      reward_sum: `[...]` float32, sum of its rewards.
      cost_sum: `[...]` float32, sum of its costs.
      errors: rounding errors of the sums, see `numerics.accumulate`.
    """

    pulls: jax.Array
    reward_sum: jax.Array
    cost_sum: jax.Array
    errors: dict[str, jax.Array]

    @classmethod
    def of(cls, pulls: jax.Array, reward_sum: jax.Array, cost_sum: jax.Array) -> "Statistics":
        """Returns statistics with exact sums."""
        return cls(pulls, reward_sum, cost_sum, numerics.no_errors(reward_sum=reward_sum, cost_sum=cost_sum))

    def add(self, used: jax.Array, reward: jax.Array, cost: jax.Array) -> "Statistics":
        """Adds one use of the models `used` `[...]` bool, with its reward `[]` and its cost `[]`."""
        more = numerics.accumulate(self, used, reward_sum=reward, cost_sum=cost)
        return more.replace(pulls=self.pulls + used.astype(jnp.int32))


@struct.dataclass
class SlotState:
    """State of every staged policy: statistics of all models, and separately of the deployed ones.

    Attributes:
      book: statistics `[N]` of all models, up to the start of the stage.
      slots: statistics `[M]` of the deployed models.
      slot_model: `[M]` int32, model in each slot, in the order of ties.
      slot_filled: `[M]` bool, whether the slot is in use.
      slot_capacity: `[M]` largest share of the traffic of each.
      unfinished: `[]` bool, whether the search for this deployment stopped early.
      spec: sizes (static).
    """

    book: Statistics
    slots: Statistics
    slot_model: jax.Array
    slot_filled: jax.Array
    slot_capacity: jax.Array
    unfinished: jax.Array
    spec: StagedSpec = struct.field(pytree_node=False)

    def in_slots(self) -> jax.Array:
        """`[M, N]` bool: whether model `n` is in slot `m`."""
        here = self.slot_model[:, None] == lax.iota(jnp.int32, self.spec.num_models)[None, :]
        return here & self.slot_filled[:, None]
