"""Types that environment and policies of the combinatorial problem (selection of a set of models) exchange, and its metrics.

Sizes: `K` models, sets of at most (or exactly) `N` models, `M` groups. With a budget for each group, violations are summed over the groups.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxroute.core.types import Metric, Spec

# An array on the host or a device.
AnyArray = Array | np.ndarray
# Diagnostics of a decision by name.
Info = dict[str, Array]

METRICS = (
    Metric("reward", "mean expected reward of the set", "reward per round", "average"),
    Metric("realised_reward", "mean realised reward", "reward per round", "average", default=False),
    Metric("cost", "mean cost of the models asked", "cost per round", "average"),
    Metric("selected_cost", "mean cost of the models selected", "cost per round", "average", default=False),
    Metric("violation", "mean cost above the budget of a round", "cost per round", "average"),
    Metric("selected_violation", "mean cost of the selected models above the budget of a round", "cost per round", "average", default=False),
    Metric("violation_eq1", "mean cost above the budget", "cost per round", "gauge", limit=0.0, violation="over budget"),
    Metric("mean_violation_eq1", "mean over rounds of the mean cost above the budget", "cost per round", "average", default=False),
    Metric("ratio", "reward / violation", "reward per cost", "gauge"),
    Metric("ratio_eq1", "reward / mean violation by Eq. (1)", "reward per cost", "gauge", default=False),
    Metric("regret", "cumulative regret to the best set within budget", "reward", "total", default=False),
    Metric("alpha_regret", "cumulative alpha-regret", "reward", "total"),
    Metric("lp_regret", "cumulative regret to the relaxed optimum", "reward", "total"),
    Metric("over_budget", "share of rounds above the budget", "", "average", default=False),
    Metric("num_selected", "mean number of models selected", "models", "average", default=False),
    Metric("num_asked", "mean number of models asked", "models", "average", default=False),
    Metric("pulls", "times each model was asked", "rounds", "total", ("model",), default=False),
)  # fmt: skip


class Reward(Protocol):
    """Reward of a set of models, one of `parts.rewards`.

    Arguments and weights have one entry per model, `[..., K]`, rewards one per set, `[...]`. With `xp=numpy` instead of `jax.numpy` the methods run
    on the host in float64, for the computation of optima.

    Attributes:
      exact_size: whether a set must have exactly `N` models.
      cascade: whether asking stops at the first success.
      approximation: share of the best reward that a polynomial algorithm guarantees, the alpha of the metric `alpha_regret`.
    """

    exact_size: ClassVar[bool] = True
    cascade: ClassVar[bool] = False
    approximation: ClassVar[float] = 1.0

    def value(self, chosen: AnyArray, mean: AnyArray, xp: Any = jnp) -> Any:
        """Returns the expected reward of the set that the bool mask `chosen` marks, for success probabilities `mean`."""

    def relaxed(self, z: AnyArray, mean: AnyArray, xp: Any = jnp) -> Any:
        """Returns the expected reward of a relaxed selection, fractions `z` in [0, 1] of the models, for success probabilities `mean`."""

    def weight(self, w: AnyArray, xp: Any = jnp) -> Any:
        """Returns a weight of each model with success probability `w`. A set with a larger sum of weights has a larger `value`."""


@dataclass(frozen=True)
class CombinatorialSpec(Spec):
    """Properties of the environment that a policy knows in advance.

    Attributes:
      reward: `AnyWin`, `SumUp` or `AllIn`.
      min_size, max_size: least and largest number `N` of models in a set, of all groups together, among the settings of a sweep.
      groups: index of each model's group, from 0; None with one group.
      group_budgets: whether each group has a budget.
      always_available: whether all models are available in every round.
      any_size: whether sets of any size are allowed, not only of the size `N`.
    """

    reward: Reward = field(kw_only=True)
    min_size: int = 1
    max_size: int = 1
    groups: tuple[int, ...] | None = None
    group_budgets: bool = False
    always_available: bool = True
    any_size: bool = False


@struct.dataclass
class Observation:
    """Information that a policy has before it selects a set.

    Attributes:
      price: `[K]` known price of each model, by which a cascade may order its models.
      available: `[K]` bool, True for available models.
      budget: `[]` mean cost that a round may have, or `[M]` the same for each group.
      size: `[]` float32 number of models `N` in a set, or `[M]` number from each group.
    """

    price: Array
    available: Array
    budget: Array
    size: Array


@struct.dataclass
class Action:
    """Set that a policy selects for a round.

    Attributes:
      selected: `[K]` bool, True for selected models.
      order: `[K]` numbers; models are asked in ascending order, ties by index (any win only).
      relaxed: `[K]` fraction of each model before rounding to a set; the environment ignores it.
      held: `[K]` bool, the set that the policy may repeat in later rounds, including unavailable models; the environment ignores it.
    """

    selected: Array
    order: Array
    relaxed: Array
    held: Array


@struct.dataclass
class Feedback:
    """Information that a policy gets after its decision; unobserved values are zero.

    Attributes:
      arrived: `[]` bool, whether the feedback of the round arrived.
      observed, cost_observed: `[K]` bool, models with an observed outcome, and models with an observed cost.
      outcome, cost: `[K]` outcomes in [0, 1], and costs.
    """

    arrived: Array
    observed: Array
    cost_observed: Array
    outcome: Array
    cost: Array
