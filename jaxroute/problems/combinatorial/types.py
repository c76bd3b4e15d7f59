"""Values that pass between environment and policies of the combinatorial problem, and what is measured.

Sizes: `K` models, sets of at most (or exactly) `N`, `M` groups. With a budget for each group, what is spent above the budget is the
sum over the groups.
"""

from dataclasses import dataclass
from typing import Any

import jax
from flax import struct

from jaxroute.core.types import Metric, Spec

METRICS = (
    Metric("reward", "mean expected reward of the set", "reward per round", "average"),
    Metric("realised_reward", "mean realised reward", "reward per round", "average", default=False),
    Metric("cost", "mean cost of the models asked", "cost per round", "average"),
    Metric("selected_cost", "mean cost of the models selected", "cost per round", "average", default=False),
    Metric("violation", "mean cost above the budget of a round", "cost per round", "average"),
    Metric("selected_violation", "mean cost of the selected models above the budget of a round", "cost per round", "average", default=False),
    Metric("violation_eq1", "mean cost above the budget", "cost per round", "gauge"),
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


@dataclass(frozen=True)
class CombinatorialSpec(Spec):
    """What a policy may know in advance.

    reward: `AnyWin`, `SumUp` or `AllIn`. min_size, max_size: smallest and largest `N` (of all groups together) over all settings.
    groups: group of each model, from 0, None with one group. group_budgets: each group has its own budget.
    always_available: every model can be selected in every round.
    """

    reward: Any = None
    min_size: int = 1
    max_size: int = 1
    groups: tuple[int, ...] | None = None
    group_budgets: bool = False
    always_available: bool = True

    @property
    def smallest_set(self) -> int:
        """Size of the smallest set that can be legal."""
        return self.min_size if self.reward.exact_size and self.always_available else 0


@struct.dataclass
class Observation:
    """What the server sees before a decision.

    price: `[K]` known price of each model. available: `[K]` bool. budget: `[]` cost per round, or `[M]` that of each group.
    size: `[]` float32, `N`, or `[M]` that of each group.
    """

    price: jax.Array
    available: jax.Array
    budget: jax.Array
    size: jax.Array


@struct.dataclass
class Action:
    """A selection.

    selected: `[K]` bool. order: `[K]` models are asked in rising order, ties by index (any win only).
    relaxed: `[K]` the fractional selection that was rounded; held: `[K]` bool, the set before unavailable models were left out.
    The environment ignores these two.
    """

    selected: jax.Array
    order: jax.Array
    relaxed: jax.Array
    held: jax.Array


@struct.dataclass
class Feedback:
    """What the server sees afterwards; zero where it sees nothing.

    observed: `[K]` bool, models whose outcome is seen. cost_observed: `[K]` bool, models whose cost is seen.
    outcome: `[K]` in [0, 1]. cost: `[K]`. arrived: `[]` bool, False if the feedback of the round was lost.
    """

    arrived: jax.Array
    observed: jax.Array
    cost_observed: jax.Array
    outcome: jax.Array
    cost: jax.Array
