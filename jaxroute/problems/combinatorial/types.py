"""Values that pass between environment and policies of the combinatorial problem, and what is measured.

Sizes: `K` models, sets of at most (or exactly) `N`.
"""

from dataclasses import dataclass
from typing import Any

import jax
from flax import struct

from jaxroute.types import Metric, Spec

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

    reward: `AnyWin`, `SumUp` or `AllIn`. min_size, max_size: smallest and largest size of a set, over all settings and rounds.
    """

    reward: Any = None
    min_size: int = 0
    max_size: int = 1


@struct.dataclass
class Observation:
    """What the server sees before a decision.

    price: `[K]` known price of each model. available: `[K]` bool. budget: `[]` cost per round. size: `[]` float32, `N`.
    """

    price: jax.Array
    available: jax.Array
    budget: jax.Array
    size: jax.Array


@struct.dataclass
class Action:
    """A selection.

    selected: `[K]` bool. order: `[K]` models are asked in rising order, ties by index (any win only). relaxed: `[K]` the
    fractional selection that was rounded; the environment ignores it.
    """

    selected: jax.Array
    order: jax.Array
    relaxed: jax.Array


@struct.dataclass
class Feedback:
    """What the server sees afterwards; zero where it sees nothing.

    observed: `[K]` bool, models whose outcome is seen. cost_observed: `[K]` bool, models whose cost is seen.
    outcome: `[K]` in [0, 1]. cost: `[K]`.
    """

    observed: jax.Array
    cost_observed: jax.Array
    outcome: jax.Array
    cost: jax.Array
