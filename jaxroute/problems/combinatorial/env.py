"""Environment of the combinatorial problem: in each round a policy selects a set of models from a cloud (pool), under a budget."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics, xla
from jaxroute.core.protocols import Transition
from jaxroute.core.types import Leaf, priced
from jaxroute.problems.combinatorial.sources import Source
from jaxroute.problems.combinatorial.types import METRICS, Action, CombinatorialSpec, Feedback, Observation, Reward
from jaxroute.solvers.selection import group_sums


@struct.dataclass
class CloudState:
    """State of the cloud: running means over the rounds so far (float32), and the state of the source.

    Attributes:
      spent: `[]` mean cost per round of the models that were asked; `[M]` with a budget for each group.
      reward: `[]` mean expected reward.
      violation: `[]` mean over rounds of `max(cost - budget, 0)`, where `cost` is that of a single round.
      violation_eq1: `[]` mean over rounds of `max(spent - budget, 0)`, where `spent` is the mean cost up to the round: the violation of eq. (1).
      errors: rounding errors of the means by name of the field, for which `numerics.accumulate` corrects.
      source: state of the source of outcomes.
    """

    spent: Array
    reward: Array
    violation: Array
    violation_eq1: Array
    errors: dict[str, Array]
    source: Any


@struct.dataclass
class CloudEnv:
    """Cloud of `K` models, from which a set of `N` is selected per round; build one with `cloud` or another function of `instances`.

    In every round outcomes and costs of all models are drawn. With the reward `AnyWin` the selected models are asked in the order of the action
    until the first success; otherwise all selected models are asked. Only asked models are observed and paid.

    Source: C2MAB-V, section 3, with the rewards of eqs. (3) to (5) and the violation of eq. (1).

    Attributes:
      outcomes: source that draws outcomes and costs, `ParametricOutcomes` or `TableOutcomes`.
      price: `[K]` known price of each model, by which a cascade may order its models.
      budget: `[]` mean cost that a round may have, or `[M]` the same for each group.
      size: `[]` float32 number of models `N` in a set, or `[M]` number from each group.
      availability: `[K]` probability that a model is available in a round; None for always.
      arrival: `[]` probability that the feedback of a round arrives; None for always.
      best: `[G, A]` reward of the best set, for `G` segments of rounds (means drift between them) and `A` sets of available models: `2 ** K`,
        or 1 without `availability`.
      best_relaxed: `[G, A]` reward of the best relaxed selection, indexed like `best`.
      best_selection, best_relaxed_selection: `[G, K]` best set and best relaxed selection of each segment with all models available.
      reward: `AnyWin`, `SumUp` or `AllIn`, the function from a set's outcomes to its reward (static).
      sizes: smallest and largest number of models in a set, all groups together; a sweep may vary `size` within these limits (static).
      groups, names, currency: index of each model's group (None: one group), names of the models, and currency of costs (static).
      sees_all_costs, any_size: whether costs of selected models are seen that were not asked, and whether sets may have any size (static).
    """

    outcomes: Source
    price: Leaf
    budget: Leaf
    size: Leaf
    availability: Leaf | None
    arrival: Leaf | None
    best: Leaf
    best_relaxed: Leaf
    best_selection: Leaf
    best_relaxed_selection: Leaf
    reward: Reward = struct.field(pytree_node=False, kw_only=True)
    sizes: tuple[int, int] = struct.field(pytree_node=False, default=(1, 1))
    groups: tuple[int, ...] | None = struct.field(pytree_node=False, default=None)
    sees_all_costs: bool = struct.field(pytree_node=False, default=False)
    any_size: bool = struct.field(pytree_node=False, default=False)
    names: tuple[str, ...] = struct.field(pytree_node=False, default=())
    currency: str = struct.field(pytree_node=False, default="cost")

    @property
    def spec(self) -> CombinatorialSpec:
        return CombinatorialSpec(
            num_models=self.price.shape[-1],
            model_names=self.names,
            metrics=priced(METRICS, self.currency),
            zero_flows=("illegal",),
            reward=self.reward,
            min_size=self.sizes[0],
            max_size=self.sizes[1],
            groups=self.groups,
            group_budgets=np.ndim(self.budget) > 0,
            always_available=self.availability is None,
            any_size=self.any_size,
        )

    def check(self) -> None:
        self.outcomes.check()
        shape = np.shape(self.price)
        checks.non_negative("price", self.price, shape)
        checks.positive("budget", self.budget)
        if self.availability is not None:
            checks.share("availability", self.availability, shape)
        if self.arrival is not None:
            checks.share("arrival", self.arrival, ())

    def init(self, key: Array) -> CloudState:
        zero = jnp.zeros((), jnp.float32)
        spent = jnp.zeros(jnp.shape(self.budget), jnp.float32)
        means = {"spent": spent, "reward": zero, "violation": zero, "violation_eq1": zero}
        return CloudState(**means, errors=numerics.no_errors(**means), source=self.outcomes.init(key))

    def _available(self, key: Array) -> Array:
        shape = jnp.shape(self.price)
        if self.availability is None:
            return jnp.ones(shape, bool)
        return draws.uniform(draws.fold_in(key, 1), shape) < self.availability

    def _per_budget(self, cost: Array) -> Array:
        """Returns the sum of `cost` `[K]` over all models, a scalar; if each of `M` groups has a budget, the sum over each group, `[M]`."""
        return group_sums(self.groups if jnp.ndim(self.budget) else None, cost)

    def _above(self, spent: Array) -> Array:
        """Returns `max(spent - budget, 0)` for the cost `spent`, a scalar; if each group has a budget, the sum of this excess over the groups."""
        return jnp.sum(jnp.maximum(spent - self.budget, 0.0))

    def observe(self, key: Array, state: CloudState, t: Array) -> Observation:
        del state, t
        return Observation(
            price=jnp.asarray(self.price),
            available=self._available(key),
            budget=jnp.asarray(self.budget),
            size=jnp.asarray(self.size),
        )

    def step(self, key: Array, state: CloudState, action: Action, t: Array) -> Transition[CloudState, Feedback]:
        available = self._available(key)
        outcome, success, cost = self.outcomes.draw(draws.fold_in(key, 0), state.source, t)
        segment = self.outcomes.segment(t)
        mean = jnp.asarray(self.outcomes.outcome_mean)[segment]
        selected = action.selected
        called = selected
        if self.reward.cascade:
            wins_before = xla.weighted_sum_over_better((selected & success).astype(jnp.float32), -action.order)
            called = selected & (wins_before == 0.0)
        spent, selected_cost = (self._per_budget(jnp.where(who, cost, 0.0)) for who in (called, selected))
        reward = self.reward.value(selected, mean)
        count = jnp.sum(selected.astype(jnp.float32))
        # Column of the tables of optima for these available models.
        place = 0 if self.availability is None else jnp.sum(jnp.where(available, 2 ** np.arange(available.shape[-1]), 0))
        best, best_relaxed = (jnp.asarray(table)[segment][place] for table in (self.best, self.best_relaxed))
        illegal = jnp.any(selected & ~available)
        if not self.any_size:
            numbers, limit = (group_sums(self.groups, who.astype(jnp.float32)) for who in (selected, available))
            limit = jnp.minimum(self.size, limit)
            illegal |= jnp.any((numbers != limit) if self.reward.exact_size else (numbers > limit))

        def running(state: CloudState, **values: Array) -> CloudState:
            played = (t + 1).astype(jnp.float32)
            return numerics.accumulate(state, **{name: (x - getattr(state, name)) / played for name, x in values.items()})

        violation = self._above(spent)  # of the round; eq. (1) uses the mean
        state = running(state, spent=spent, reward=reward, violation=violation)
        eq1 = self._above(state.spent)
        flows = {
            "reward": reward,
            "realised_reward": self.reward.value(selected, outcome),
            "cost": jnp.sum(spent),
            "selected_cost": jnp.sum(selected_cost),
            "violation": violation,
            "selected_violation": self._above(selected_cost),
            "mean_violation_eq1": eq1,
            "regret": best - reward,
            "alpha_regret": self.reward.approximation * best - reward,
            "lp_regret": best_relaxed - reward,
            "over_budget": jnp.any(spent > self.budget).astype(jnp.float32),
            "num_selected": count,
            "num_asked": jnp.sum(called.astype(jnp.float32)),
            "pulls": called.astype(jnp.float32),
            "illegal": illegal.astype(jnp.float32),
        }
        state = running(state, violation_eq1=eq1)
        arrived = jnp.asarray(True)
        if self.arrival is not None:
            arrived = draws.uniform(draws.fold_in(key, 2)) < self.arrival
        seen, cost_seen = called & arrived, (selected if self.sees_all_costs else called) & arrived
        feedback = Feedback(
            arrived=arrived,
            observed=seen,
            cost_observed=cost_seen,
            outcome=jnp.where(seen, outcome, 0.0),
            cost=jnp.where(cost_seen, cost, 0.0),
        )
        return state, feedback, flows

    def gauges(self, state: CloudState) -> dict[str, Array]:
        return {
            "violation_eq1": self._above(state.spent),
            "ratio": state.reward / state.violation,
            "ratio_eq1": state.reward / state.violation_eq1,
        }


def relaxed_objective(price: float) -> Callable[[CloudEnv, CloudState, Action, Array], Array]:
    """Returns an objective for tuning by gradients: the expected reward of a round minus `price` times the expected cost above the budget.

    `price` is in reward per cost. The objective is a function of environment, state, action and round. It takes reward and cost from the action's
    relaxed selection, before it is rounded to a set, with the means of this round.
    """

    def objective(env: CloudEnv, state: CloudState, action: Action, t: Array) -> Array:
        del state
        z, segment = action.relaxed, env.outcomes.segment(t)
        mean, cost = (jnp.asarray(x)[segment] for x in (env.outcomes.outcome_mean, env.outcomes.cost_mean))
        return env.reward.relaxed(z, mean) - price * env._above(env._per_budget(cost * z))

    return objective
