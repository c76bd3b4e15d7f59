"""Values that pass between environment and policies of the combinatorial problem, and what is measured.

Sizes: `K` models, sets of at most (or exactly) `N`, `M` groups. With a budget for each group, what is spent above the budget
is the sum over the groups.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core.types import Metric, Spec

# A host or a device array.
Array = jax.Array | np.ndarray
# Name and value of what a person may want to see of a decision.
Info = dict[str, jax.Array]

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
    """What a set of models earns; see `parts.rewards`.

    Masks and selections are `[..., K]`. Each method also works in NumPy, for optima in float64: pass `xp=numpy`.

    Attributes:
      exact_size: whether a set must have exactly `N` models.
      cascade: whether asking stops at the first success.
      approximation: ratio that a polynomial algorithm guarantees, alpha of the alpha-regret.
    """

    @property
    def exact_size(self) -> bool: ...

    @property
    def cascade(self) -> bool: ...

    @property
    def approximation(self) -> float: ...

    def value(self, chosen: Array, mean: Array, xp: Any = jnp) -> Any:
        """Expected reward of the set `chosen`, with success probabilities `mean`."""
        ...

    def relaxed(self, z: Array, mean: Array, xp: Any = jnp) -> Any:
        """Reward of a relaxed selection `z` in [0, 1]."""
        ...

    def weight(self, w: Array, xp: Any = jnp) -> Any:
        """Weight of each model; their sum orders sets as `value` does."""
        ...


@dataclass(frozen=True)
class CombinatorialSpec(Spec):
    """What a policy may know in advance.

    Attributes:
      reward: `AnyWin`, `SumUp` or `AllIn`.
      min_size: smallest `N` (of all groups together) over all settings.
      max_size: largest `N` over all settings.
      groups: group of each model, from 0, None with one group.
      group_budgets: each group has a budget.
      always_available: every model can be selected in every round.
      any_size: sets of another size are allowed.
    """

    reward: Reward = field(kw_only=True)
    min_size: int = 1
    max_size: int = 1
    groups: tuple[int, ...] | None = None
    group_budgets: bool = False
    always_available: bool = True
    any_size: bool = False

    @property
    def smallest_set(self) -> int:
        """Size of the smallest set that can be legal."""
        return self.min_size if self.reward.exact_size and self.always_available else 0


@struct.dataclass
class Observation:
    """What the server sees before a decision.

    Attributes:
      price: `[K]` price of each model, which is known.
      available: `[K]` bool.
      budget: `[]` cost per round, or `[M]` that of each group.
      size: `[]` float32, `N`, or `[M]` that of each group.
    """

    price: jax.Array
    available: jax.Array
    budget: jax.Array
    size: jax.Array


@struct.dataclass
class Action:
    """A selection.

    Attributes:
      selected: `[K]` bool.
      order: `[K]` models are asked in rising order, ties by index (any win only).
      relaxed: `[K]` the fractional selection that was rounded; the environment ignores it.
      held: `[K]` bool, the set before unavailable models were left out; the environment ignores it.
    """

    selected: jax.Array
    order: jax.Array
    relaxed: jax.Array
    held: jax.Array


@struct.dataclass
class Feedback:
    """What the server sees afterwards; zero where it sees nothing.

    Attributes:
      arrived: `[]` bool, False if the feedback of the round was lost.
      observed: `[K]` bool, models whose outcome is seen.
      cost_observed: `[K]` bool, models whose cost is seen.
      outcome: `[K]` in [0, 1].
      cost: `[K]`.
    """

    arrived: jax.Array
    observed: jax.Array
    cost_observed: jax.Array
    outcome: jax.Array
    cost: jax.Array
