"""Types that environment and policies of the staged problem exchange, and its metrics.

Sizes: `N` models that ever arrive, `M` deployment slots, `I` rounds per stage.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from flax import struct
from jax import Array, lax

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
    Metric("infeasible_share", "share of queries without feasible routing", "", "average", limit=0.5, violation="mostly infeasible"),
    Metric("multiplier", "shadow price of the budget", "reward per cost", "average", default=False),
    Metric("unfinished_share", "share of queries with a deployment whose search stopped early", "", "average", default=False, limit=0.0,
           violation="not always the best deployment"),
)  # fmt: skip


@dataclass(frozen=True)
class StagedSpec(Spec):
    """Sizes of the market that a policy knows in advance.

    Attributes:
      max_deployed: number of slots `M`.
      max_support: largest number of models that an optimal routing can need (`optimum.max_support`); with fewer
        slots DeployOPT must compare sets of models, otherwise one linear program suffices.
    """

    max_deployed: int = 1
    max_support: int = 2


@struct.dataclass
class MarketState:
    """State of the market between two queries.

    Attributes:
      overspend: `[]` spend so far minus `budget` times the number of queries so far.
      worst_overspend: `[]` largest overspend so far.
      alive: `[]` bool, whether part of the total budget is left; if not, a market with `stop_at_budget` serves nothing.
      deployed: `[N]` bool, True for deployed models.
      errors: rounding errors of the sums, see `numerics.accumulate`.
      source: state of the source of rewards and costs.
    """

    overspend: Array
    worst_overspend: Array
    alive: Array
    deployed: Array
    errors: dict[str, Array]
    source: Any


@struct.dataclass
class Observation:
    """Information that the router has before it decides about a query.

    Attributes:
      available: `[N]` bool, models that have arrived.
      capacity: `[N]` largest share of the queries that each model may serve.
      budget: `[]` mean cost that a query may have.
      overspend: `[]` spend so far minus `budget` times queries so far.
      rounds_left: `[]` int32, number of remaining queries, including the current query.
      cost_floor, cost_ceiling: `[]` least cost `c_1` and largest cost `c_2` of a query, known in advance.
    """

    available: Array
    capacity: Array
    budget: Array
    overspend: Array
    rounds_left: Array
    cost_floor: Array
    cost_ceiling: Array


@struct.dataclass
class Action:
    """Decision of the router about a query.

    Attributes:
      model: `[]` int32, model that serves the query.
      probabilities: `[N]` probabilities with which `model` was drawn, zero for models that are not deployed.
      deployed: `[N]` bool, True for deployed models; fixed within a stage.
    """

    model: Array
    probabilities: Array
    deployed: Array


@struct.dataclass
class Feedback:
    """Information that the router gets after its decision.

    Attributes:
      reward, cost: `[]` reward and cost of the chosen model.
    """

    reward: Array
    cost: Array


@struct.dataclass
class Statistics:
    """Counts and sums from which a policy estimates mean rewards and costs; `[...]` is `[N]` for all models, `[M]` for the deployed ones.

    Attributes:
      pulls: `[...]` int32, number of queries that each model served.
      reward_sum, cost_sum: `[...]` float32, sums of the rewards and of the costs of each model.
      errors: rounding errors of the sums, see `numerics.accumulate`.
    """

    pulls: Array
    reward_sum: Array
    cost_sum: Array
    errors: dict[str, Array]

    @classmethod
    def of(cls, pulls: Array, reward_sum: Array, cost_sum: Array) -> "Statistics":
        """Returns statistics with the given counts and sums, and rounding errors of zero."""
        return cls(pulls, reward_sum, cost_sum, numerics.no_errors(reward_sum=reward_sum, cost_sum=cost_sum))

    def add(self, used: Array, reward: Array, cost: Array) -> "Statistics":
        """Returns the statistics after a query with the scalar `reward` and `cost`, served by the model that the bool mask `used` marks."""
        more = numerics.accumulate(self, used, reward_sum=reward, cost_sum=cost)
        return more.replace(pulls=self.pulls + used.astype(jnp.int32))


@struct.dataclass
class SlotState:
    """State of every staged policy: statistics of all models before this stage, and those of the deployed models, updated by each query.

    Attributes:
      book: statistics `[N]` of all models, up to the start of the stage.
      slots: statistics `[M]` of the deployed models.
      slot_model: `[M]` int32, index of the model in each slot; slots are sorted by the priority that breaks ties.
      slot_filled: `[M]` bool, whether the slot is in use.
      slot_capacity: `[M]` largest share of the queries that the model in each slot may serve.
      unfinished: `[]` bool, whether the search for this deployment stopped early.
      spec: sizes of the market (static).
    """

    book: Statistics
    slots: Statistics
    slot_model: Array
    slot_filled: Array
    slot_capacity: Array
    unfinished: Array
    spec: StagedSpec = struct.field(pytree_node=False)

    def in_slots(self) -> Array:
        """Returns a bool matrix `[M, N]`, True where the row's slot holds the column's model."""
        here = self.slot_model[:, None] == lax.iota(jnp.int32, self.spec.num_models)[None, :]
        return here & self.slot_filled[:, None]
