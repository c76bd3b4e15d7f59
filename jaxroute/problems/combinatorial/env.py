"""The cloud of models: each round a set is selected under a budget, and its outcomes and costs are seen in part."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf
from jaxroute.problems.combinatorial.benchmark import best_by_availability, best_relaxed, best_set
from jaxroute.problems.combinatorial.rewards import REWARDS
from jaxroute.problems.combinatorial.types import METRICS, CombinatorialSpec, Feedback, Observation
from jaxroute.solvers.selection import group_sums

# Benchmarks for every set of available models are tabulated up to this many models.
_MOST_MODELS_WITH_AVAILABILITY = 12


@struct.dataclass
class CloudState:
    """State of the cloud: running means over the rounds so far (float32 `[]`), and the state of the outcomes.

    spent: cost of the models asked, `[M]` with a budget for each group. reward: expected reward. violation: cost above the budget
    of a round. violation_eq1: of `max(spent - budget, 0)`.
    """

    spent: jax.Array
    reward: jax.Array
    violation: jax.Array
    violation_eq1: jax.Array
    source: Any


@struct.dataclass
class Cloud:
    """A pool of `K` models of which a set of `N` is selected per round; build one with `cloud` or the functions of `clouds`.

    Outcomes and costs of all models are realised in every round. With `AnyWin` the selected models are asked in the order of the
    action until the first success, and only those asked are seen and paid; otherwise all selected models are.

    Source: C2MAB-V, section 3, with the rewards of eqs. (3) to (5) and the violation of eq. (1).

    outcomes: where outcomes and costs come from. price: `[K]` known price of each model. budget: `[]` cost per round, or `[M]` that
    of each group. size: `[]` float32, `N`, or `[M]` that of each group.
    availability: `[K]` chance that a model can be selected in a round, None if all always can.
    arrival: `[]` chance that the feedback of a round arrives, None if it always does.
    best, best_relaxed: `[G, A]` reward of the best set and of the best relaxed selection, per segment of drift and, with
    availability, per set of available models (`A = 2 ** K`, otherwise 1).
    best_selection, best_relaxed_selection: `[G, K]` the selections themselves, with all models available.
    reward: `AnyWin`, `SumUp` or `AllIn`; sizes: smallest and largest `N` over all settings; groups: group of each model, from 0;
    sees_all_costs: the costs of all selected models are seen, also of those that were not asked; any_size: sets of another size
    are allowed; names: of the models (all static).
    """

    outcomes: Any
    price: Leaf
    budget: Leaf
    size: Leaf
    availability: Leaf | None
    arrival: Leaf | None
    best: Leaf
    best_relaxed: Leaf
    best_selection: Leaf
    best_relaxed_selection: Leaf
    reward: Any = struct.field(pytree_node=False, default=None)
    sizes: tuple[int, int] = struct.field(pytree_node=False, default=(1, 1))
    groups: tuple[int, ...] | None = struct.field(pytree_node=False, default=None)
    sees_all_costs: bool = struct.field(pytree_node=False, default=False)
    any_size: bool = struct.field(pytree_node=False, default=False)
    names: tuple[str, ...] = struct.field(pytree_node=False, default=())

    @property
    def spec(self) -> CombinatorialSpec:
        return CombinatorialSpec(
            num_models=self.price.shape[-1],
            model_names=self.names,
            metrics=METRICS,
            zero_flows=("illegal",),
            reward=self.reward,
            min_size=self.sizes[0],
            max_size=self.sizes[1],
            groups=self.groups,
            group_budgets=np.ndim(self.budget) > 0,
            always_available=self.availability is None,
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

    def init(self, key) -> CloudState:
        zero = jnp.zeros((), jnp.float32)
        spent = jnp.zeros(jnp.shape(self.budget), jnp.float32)
        return CloudState(spent=spent, reward=zero, violation=zero, violation_eq1=zero, source=self.outcomes.init(key))

    def _available(self, key):
        """Models `[K]` that can be selected in the round of this key."""
        shape = jnp.shape(self.price)
        if self.availability is None:
            return jnp.ones(shape, bool)
        return draws.uniform(draws.fold_in(key, 1), shape) < self.availability

    def _per_budget(self, cost):
        """Costs `[K]` summed over the models of each budget: `[]` or `[M]`."""
        return group_sums(self.groups if jnp.ndim(self.budget) else None, cost)

    def _above(self, spent):
        """What is spent above the budgets, `[]`."""
        return jnp.sum(jnp.maximum(spent - self.budget, 0.0))

    def observe(self, key, state, t) -> Observation:
        del state, t
        return Observation(
            price=jnp.asarray(self.price),
            available=self._available(key),
            budget=jnp.asarray(self.budget),
            size=jnp.asarray(self.size),
        )

    def step(self, key, state, action, t):
        available = self._available(key)
        outcome, success, cost = self.outcomes.draw(draws.fold_in(key, 0), state.source, t)
        segment = self.outcomes.segment(t)
        mean = jnp.asarray(self.outcomes.outcome_mean)[segment]
        selected = action.selected
        asked = selected
        if self.reward.cascade:
            wins_before = numerics.amount_ahead((selected & success).astype(jnp.float32), -action.order)
            asked = selected & (wins_before == 0.0)
        spent, selected_cost = (self._per_budget(jnp.where(who, cost, 0.0)) for who in (asked, selected))
        reward = self.reward.value(selected, mean)
        count = jnp.sum(selected.astype(jnp.float32))
        place = 0
        if self.availability is not None:
            place = jnp.sum(jnp.where(available, 2 ** np.arange(available.shape[-1]), 0))
        best, best_relaxed = (jnp.asarray(table)[segment][place] for table in (self.best, self.best_relaxed))
        illegal = jnp.any(selected & ~available)
        if not self.any_size:
            numbers, room = (group_sums(self.groups, who.astype(jnp.float32)) for who in (selected, available))
            room = jnp.minimum(self.size, room)
            illegal |= jnp.any((numbers != room) if self.reward.exact_size else (numbers > room))

        def running(mean_so_far, value):
            return mean_so_far + (value - mean_so_far) / (t + 1).astype(jnp.float32)

        violation = self._above(spent)
        mean_spent = running(state.spent, spent)
        eq1 = self._above(mean_spent)
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
            "num_asked": jnp.sum(asked.astype(jnp.float32)),
            "pulls": asked.astype(jnp.float32),
            "illegal": illegal.astype(jnp.float32),
        }
        state = state.replace(
            spent=mean_spent,
            reward=running(state.reward, reward),
            violation=running(state.violation, violation),
            violation_eq1=running(state.violation_eq1, eq1),
        )
        arrived = jnp.asarray(True)
        if self.arrival is not None:
            arrived = draws.uniform(draws.fold_in(key, 2)) < self.arrival
        seen, cost_seen = asked & arrived, (selected if self.sees_all_costs else asked) & arrived
        feedback = Feedback(
            arrived=arrived,
            observed=seen,
            cost_observed=cost_seen,
            outcome=jnp.where(seen, outcome, 0.0),
            cost=jnp.where(cost_seen, cost, 0.0),
        )
        return state, feedback, flows

    def gauges(self, state) -> dict[str, jax.Array]:
        return {
            "violation_eq1": self._above(state.spent),
            "ratio": state.reward / state.violation,
            "ratio_eq1": state.reward / state.violation_eq1,
        }


def relaxed_objective(price: float):
    """What `jaxroute.tune` differentiates: the relaxed reward of a round minus `price` times the relaxed cost above the budget.

    Both are taken at the selection before rounding, with the true means.
    """

    def objective(env: Cloud, state: CloudState, action, t) -> jax.Array:
        del state
        z, segment = action.relaxed, env.outcomes.segment(t)
        mean, cost = (jnp.asarray(x)[segment] for x in (env.outcomes.outcome_mean, env.outcomes.cost_mean))
        return env.reward.relaxed(z, mean) - price * env._above(env._per_budget(cost * z))

    return objective


def _grouped(groups, size, budget, sizes, count: int):
    """Groups as a tuple, sizes `[M]`, and the budget `[]` or `[M]`, after checks."""
    labels = np.asarray(groups)
    if labels.shape != (count,) or labels.dtype.kind not in "iu" or set(labels.tolist()) != set(range(labels.max() + 1)):
        raise ValueError(
            f"groups must be {count} whole numbers, the group of each model from 0 on, got {checks.show(groups)}"
        )
    if sizes is not None:
        raise ValueError(f"sizes must be None with groups, got {checks.show(sizes)}")
    number = int(labels.max()) + 1
    members = np.bincount(labels)
    size = checks.numbers("size", size, (number,))
    if (size != np.round(size)).any() or (size < 1).any() or (size > members).any():
        raise ValueError(
            f"size must be whole numbers from 1 to the size of each group {members.tolist()}, got {size.tolist()}"
        )
    budget = checks.positive("budget", budget, (number,) if np.ndim(budget) else ())
    return tuple(labels.tolist()), size.astype(int), budget if np.ndim(budget) else float(budget)


def cloud(
    outcomes: Any,
    *,
    reward: Any,
    budget: Any,
    size: Any,
    price: Leaf | None = None,
    groups: Sequence[int] | None = None,
    availability: Leaf | None = None,
    arrival: float | None = None,
    sizes: tuple[int, int] | None = None,
    sees_all_costs: bool = False,
    any_size: bool = False,
    names: Sequence[str] = (),
) -> Cloud:
    """A cloud of models with its benchmarks.

    Args:
      outcomes: `LawOutcomes` or `TableOutcomes` of `K` models.
      reward: `AnyWin()`, `SumUp()` or `AllIn()`, or "awc", "suc" or "aic".
      budget: cost per round that may be spent on average; with groups it may be one number for each group.
      size: `N`, models per set: at most (any win) or exactly; with groups one number for each group.
      price: `[K]` known prices, for the order of a cascade (default: the mean costs of the first segment).
      groups: group of each model, from 0: a set takes `size[g]` models from group `g` (appendix C.1, a partition matroid), for
        example one tutor for each subject. Default one group.
      availability: chance that a model can be selected in a round; one number or `[K]` (default: always).
      arrival: chance that the feedback of a round arrives (default: always).
      sizes: smallest and largest `size` of a grid over sizes (default only `size`).
      sees_all_costs: the costs of all selected models are seen, also of those not asked.
      any_size: sets of another size than `size` are allowed.
      names: of the models.

    Raises:
      ValueError: an argument is out of range.
    """
    if not (hasattr(outcomes, "draw") and hasattr(outcomes, "outcome_mean")):
        raise ValueError(f"outcomes must be LawOutcomes or TableOutcomes, got {checks.show(outcomes)}")
    outcomes.check()
    if isinstance(reward, str):
        reward = REWARDS[checks.one_of("reward", reward, REWARDS)]
    if not hasattr(reward, "relaxed"):
        raise ValueError(
            f"reward must be AnyWin(), SumUp(), AllIn() or one of {', '.join(REWARDS)}, got {checks.show(reward)}"
        )
    mean, cost = (np.asarray(x, np.float64) for x in (outcomes.outcome_mean, outcomes.cost_mean))
    count = mean.shape[-1]
    if groups is not None:
        groups, size, budget = _grouped(groups, size, budget, sizes, count)
        sizes = (int(size.sum()), int(size.sum()))
    else:
        size = checks.count("size", size, maximum=count)
        budget = float(checks.positive("budget", budget, ()))
    low, high = (size, size) if sizes is None else sizes
    high = checks.count("sizes[1]", high, minimum=int(np.sum(size)), maximum=count)
    low = checks.count("sizes[0]", low, maximum=int(np.sum(size)))
    prices = cost[0] if price is None else checks.non_negative("price", price, (count,))
    if names and len(names) != count:
        raise ValueError(f"names must have one name per model ({count}), got {len(names)}")
    if availability is not None:
        shape = (count,) if np.ndim(availability) else ()
        availability = np.broadcast_to(checks.share("availability", availability, shape), (count,)).astype(np.float32)
        if count > _MOST_MODELS_WITH_AVAILABILITY:
            raise ValueError(
                f"availability needs at most {_MOST_MODELS_WITH_AVAILABILITY} models, for the benchmark of every set of "
                f"available models is tabulated, got {count}"
            )

    def tabulate(find):
        """Values `[G, A]` and selections `[G, K]`."""
        found = [find(reward, m, c, budget, size, groups=groups) for m, c in zip(mean, cost, strict=True)]
        selections, values = (np.asarray(x, np.float32) for x in zip(*found, strict=True))
        if availability is None:
            return values[:, None], selections
        rows = [
            best_by_availability(lambda allowed, m=m, c=c: find(reward, m, c, budget, size, allowed, groups)[1], count)
            for m, c in zip(mean, cost, strict=True)
        ]
        return np.asarray(rows, np.float32), selections

    best, best_selection = tabulate(best_set)
    relaxed, relaxed_selection = tabulate(best_relaxed)

    return Cloud(
        outcomes=outcomes,
        price=prices.astype(np.float32),
        budget=np.float32(budget),
        size=np.float32(size),
        availability=availability,
        arrival=None if arrival is None else np.float32(checks.share("arrival", arrival, ())),
        best=best,
        best_relaxed=relaxed,
        best_selection=best_selection,
        best_relaxed_selection=relaxed_selection,
        reward=reward,
        sizes=(low, high),
        groups=groups,
        sees_all_costs=bool(sees_all_costs),
        any_size=bool(any_size),
        names=tuple(names),
    )
