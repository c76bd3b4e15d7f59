"""C2MAB-V: optimistic rewards, lower bounds of costs, a relaxed selection and its rounding."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import checks, draws
from jaxroute.core.types import Leaf, Metric
from jaxroute.estimators.confidence import hoeffding_radius, union_log_term
from jaxroute.estimators.running import RunningMean
from jaxroute.problems.combinatorial.rules import HoldAction, Optimistic
from jaxroute.problems.combinatorial.selector import RELAXATION_METRICS, BookState, Relaxer, empty_book
from jaxroute.solvers.selection import Selection, best_subset


@struct.dataclass
class C2MABV(Relaxer):
    """Selects by upper bounds of rewards and lower bounds of costs: the relaxed problem, then randomised rounding.

    Source: C2MAB-V, Algorithm 1 with Algorithms 2 and 3, eqs. (3) to (6).

    Differs from the paper: nothing where it is explicit. It leaves open the start (a model that was never seen has reward bound 1
    and cost bound 0), ties (see `Relaxer`), the order of a cascade (cheap first), what to select when no set is within the
    budget by the cost bounds (the cheapest), and `delta` of the experiments (1/T).

    reward_width, cost_width: `[]` multipliers of the two radii, the paper's alpha_mu and alpha_c. Settings (a) to (d) are
    (.3, .05), (1, .05), (.3, .01) and (1, .01).
    delta: `[]` confidence level, 1/T in the theorems (default for T = 10,000).
    batch: `[]` rounds of feedback that a decision waits for (appendix E.3); hold: `HoldAction` or `HoldRelaxed`, what stays
    meanwhile. A model that is held but not available is left out, which makes the set too small for an exact size.
    start: `Optimistic` or `RoundRobin`.
    budget_share: `[]` share of the budget that the relaxed problem plans with (ours; 1 in the paper).
    allowed: `[K]` bool, models that may be selected (all by default); two of them make the two-tier variant of Fig. 12.
    prior_pulls, prior_outcome, prior_cost: `[K]` or `[]`, a warm start by earlier observations.
    """

    reward_width: Leaf = 0.3
    cost_width: Leaf = 0.01
    delta: Leaf = 1e-4
    batch: Leaf = 1
    allowed: Leaf | None = None
    prior_pulls: Leaf = 0
    prior_outcome: Leaf = 0.0
    prior_cost: Leaf = 0.0
    budget_share: Leaf = 1.0
    hold: Any = struct.field(default_factory=HoldAction, kw_only=True)
    start: Any = struct.field(default_factory=Optimistic, kw_only=True)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        label = "mean upper bound of the set's reward"
        optimism = Metric("optimistic_reward", label, "reward per round", "average", default=False)
        return (*RELAXATION_METRICS, optimism)

    def check(self) -> None:
        Relaxer.check(self)
        checks.positive("reward_width", self.reward_width, ())
        checks.non_negative("cost_width", self.cost_width, ())
        checks.share("delta", self.delta, ())
        checks.positive("budget_share", self.budget_share, ())
        if self.allowed is not None and not np.any(self.allowed):
            raise ValueError("allowed must leave at least one model, got none")
        pulls = checks.non_negative("prior_pulls", self.prior_pulls)
        if (pulls != np.round(pulls)).any():
            raise ValueError(f"prior_pulls must be whole numbers, got {checks.show(self.prior_pulls)}")
        checks.probability("prior_outcome", self.prior_outcome)
        checks.non_negative("prior_cost", self.prior_cost)
        batch = checks.positive("batch", self.batch, ())
        if batch != np.round(batch):
            raise ValueError(f"batch must be a whole number of at least 1, got {checks.show(self.batch)}")

    def init(self, key, spec) -> BookState:
        del key
        size = spec.num_models
        for name in ("prior_pulls", "prior_outcome", "prior_cost"):
            if jnp.shape(getattr(self, name)) not in ((), (size,)):
                raise ValueError(
                    f"{name} must have one entry per model ({size}), got shape {jnp.shape(getattr(self, name))}"
                )
        if self.allowed is not None and jnp.shape(self.allowed) != (size,):
            raise ValueError(f"allowed must have one entry per model ({size}), got shape {jnp.shape(self.allowed)}")
        return empty_book(spec).replace(
            outcome=RunningMean.prior(self.prior_pulls, self.prior_outcome, size),
            cost=RunningMean.prior(self.prior_pulls, self.prior_cost, size),
        )

    def _allowed(self, obs):
        return obs.available if self.allowed is None else obs.available & jnp.asarray(self.allowed, bool)

    def bounds(self, state: BookState, t):
        """Upper bounds of the mean outcomes and lower bounds of the mean costs, `[K]` each, before round `t`.

        Source: C2MAB-V, section 4, before eq. (3), with the radius of Lemma 1.
        """
        models = state.spec.num_models if self.allowed is None else jnp.sum(jnp.asarray(self.allowed, jnp.float32))
        log_term = union_log_term(models, t + 1, self.delta)
        # Where nothing was seen the radius is infinite: it is masked first, or derivatives in the widths would be 0 times infinity.
        seen, cost_seen = state.outcome.count > 0, state.cost.count > 0
        radius = jnp.where(seen, hoeffding_radius(state.outcome.count, log_term), 0.0)
        cost_radius = jnp.where(cost_seen, hoeffding_radius(state.cost.count, log_term), 0.0)
        value = jnp.minimum(state.outcome.mean + self.reward_width * radius, 1.0)
        cost = jnp.maximum(state.cost.mean - self.cost_width * cost_radius, 0.0)
        return jnp.where(seen, value, 1.0), jnp.where(cost_seen, cost, 0.0)

    def _fresh(self, state: BookState, t):
        """Whether a new decision is made: in the first round, and whenever enough feedback has arrived."""
        return (t == 0) | (state.arrived >= self.batch)

    def act(self, key, state: BookState, obs, t):
        k_tie, k_round, k_order = draws.split(key, 3)
        value, cost = self.bounds(state, t)
        allowed = self._allowed(obs)
        planned = obs.replace(budget=self.budget_share * obs.budget)
        found = self.relax(k_tie, value, cost, planned, allowed, state.spec)
        fresh = self._fresh(state, t)
        z = self.hold.relaxed(fresh, found.z, state.held_relaxed)
        selected = self.round(k_round, z, state.spec)
        selected, z = self.hold.hold(fresh, (selected, z), (state.held, state.held_relaxed))
        selected = self.start.choose(state, obs, allowed, selected)
        action = self.action(k_order, obs, selected, z, value, cost)
        info = {
            **self.told(found),
            "optimistic_reward": state.spec.reward.value(action.selected, value),
            "reward_ucb": value,
            "cost_lcb": cost,
        }
        return action, info

    def update(self, key, state: BookState, obs, action, feedback, t) -> BookState:
        waited = jnp.where(self._fresh(state, t), 0, state.arrived) + feedback.arrived.astype(jnp.int32)
        # The bounds decide as soon as a start is over.
        waited = jnp.where(self.start.active(state, self._allowed(obs)), jnp.asarray(self.batch, jnp.int32), waited)
        return Relaxer.update(self, key, state, obs, action, feedback, t).replace(arrived=waited)


@struct.dataclass
class Direct(C2MABV):
    """The same bounds with the best set itself in place of a rounded relaxation, by comparing all sets.

    Source: C2MAB-V, appendix E.3, eq. (48).

    Differs from the paper: eq. (48) prints no bound on the size; without one the best set of `AllIn` would be empty. `any_size`
    (static) drops the bound (for an environment made with `any_size=True`), and then excludes only the empty set.
    """

    any_size: bool = struct.field(pytree_node=False, default=False, kw_only=True)

    def solve(self, spec, w, cost, obs, allowed) -> Selection:
        sizes = (1, spec.num_models) if self.any_size else (spec.smallest_set, spec.max_size)
        return best_subset(
            spec.reward.weight(w),
            cost,
            obs.budget,
            spec.num_models if self.any_size else obs.size,
            allowed=allowed,
            groups=None if self.any_size else spec.groups,
            exact_size=spec.reward.exact_size and not self.any_size,
            sizes=sizes,
        )

    def round(self, key, z, spec):
        del key, spec
        return z > 0.5


def two_tier(names, small: str = "Llama 2-7B", large: str = "ChatGPT-4"):
    """Mask `[K]` for `C2MABV(allowed=...)`: only one small and one large model. Source: C2MAB-V, Fig. 12; the pair is ours."""
    for model in (small, large):
        checks.one_of("model", model, names)
    return np.asarray([name in (small, large) for name in names])


def least_observed(success, order, size: int) -> float:
    """Theorem 1's `o`: the smallest chance that a cascade observes all of a set of `size` models; 1 without a cascade.

    All are observed if every model but the last one asked fails. success: `[K]`. order: `[K]` models are asked in rising order,
    ties by index.
    """
    checks.count("size", size)
    lose = 1.0 - checks.probability("success", success)
    ranked = lose[np.argsort(checks.numbers("order", order, lose.shape), kind="stable")]
    return min(float(np.prod(np.sort(ranked[:last])[: size - 1])) for last in range(len(ranked)))


def bound_regret(num_models: int, size: int, horizon: int, least_observed: float, best: float, power: int = 1) -> float:
    """Theorem 1's bound of the regret after `horizon` rounds: `(2 / o) sqrt(2 N K T log(2 pi^2 K T^power / 3)) + (K + 1) r*`.

    least_observed: `o`, see the function of that name. best: `r*`, the largest reward of a set.
    power: 1 as printed; the proof gives 4.
    """
    checks.share("least_observed", least_observed, ())
    log_term = math.log(2.0 * math.pi**2 * num_models * horizon**power / 3.0)
    return 2.0 / least_observed * math.sqrt(2.0 * size * num_models * horizon * log_term) + (num_models + 1) * best


def bound_violation(num_models: int, size: int, horizon: int, power: int = 1) -> float:
    """Theorem 2's bound of the violation of eq. (1) after `horizon` rounds, if all of a set is paid.

    power: 1 as printed; the proof gives 4.
    """
    share = math.sqrt(size * num_models / horizon)
    log_term = math.log(2.0 * math.pi**2 * num_models * horizon**power / 3.0)
    return share * (2.0 * math.sqrt(2.0 * log_term) + share)
