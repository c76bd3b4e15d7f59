"""C2MAB-V: solves the relaxed problem for upper bounds of rewards and lower bounds of costs, and rounds the fractions to a set."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxroute.core import checks, draws
from jaxroute.core.types import Leaf, Metric
from jaxroute.estimators.running import RunningMean, hoeffding_radius, union_log_term
from jaxroute.problems.combinatorial.parts import relaxation
from jaxroute.problems.combinatorial.parts.beliefs import Statistics
from jaxroute.problems.combinatorial.parts.rounding import Rounding, round_by_group
from jaxroute.problems.combinatorial.parts.rounds import ByPrice, Hold, HoldAction, Optimistic, Order, action_of
from jaxroute.problems.combinatorial.types import Action, CombinatorialSpec, Feedback, Info, Observation


@struct.dataclass
class C2MABVState(Statistics):
    """State of C2MAB-V: `Statistics`, and the last decision, which is repeated until the feedback of `batch` rounds has arrived.

    Attributes:
      held: `[K]` bool, set of the last decision.
      held_relaxed: `[K]` fraction of each model in the last decision, before rounding.
      arrived: `[]` int32, number of rounds with feedback since the last decision.
    """

    held: Array
    held_relaxed: Array
    arrived: Array


@struct.dataclass
class C2MABV:
    """Policy that finds the best fractions of models for upper bounds of rewards and lower bounds of costs, then rounds them to a random set.

    Source: C2MAB-V, Algorithm 1 with Algorithms 2 and 3, eqs. (3) to (6).

    Differs from the paper: adds what the paper leaves open. Models without observations have reward bound 1 and cost bound 0. For hundreds of rounds
    many bounds are clipped to 1, hence equal; random numbers (`noise`) break these ties. With the reward `AnyWin` the models of a set are asked in
    ascending order of price. If by the cost bounds every set exceeds the budget, the cheapest set is selected. The experiments take `delta = 1/T`.
    Rounds between two decisions repeat the last set without its unavailable models.

    Attributes:
      reward_width, cost_width: `[]` multipliers of the radii of rewards and costs, the paper's alpha_mu and alpha_c: (.3, .05), (1, .05), (.3, .01)
        and (1, .01) in its settings (a) to (d).
      delta: `[]` largest probability that any bound ever fails, for multipliers of 1; 1/T in the theorems (default: 1e-4, for T = 10,000 rounds).
      batch: `[]` number of rounds with feedback until the next decision (appendix E.3).
      allowed: `[K]` bool, models that may be selected (default: all); the policy with two tiers of Fig. 12 allows only two models (`two_tier`).
      prior_pulls: `[K]` number of observations of each model before the first round, or one number for all models.
      prior_outcome, prior_cost: `[K]` mean outcome and mean cost of these observations, or one number for all models.
      budget_share: `[]` share of the budget that the relaxed problem may spend (1 in the paper).
      hold: rule for the rounds between two decisions, `HoldAction` or `HoldRelaxed`.
      start: rule for the first rounds, `Optimistic` or `RoundRobin`.
      order: rule for the order in which a cascade (reward `AnyWin`) asks the models of a set, such as `ByPrice`.
      solver: solver of the relaxed problem, such as `Vertices` (default: `default_solver`).
      rounding: `Pairwise` or `Swap` (default: the paper's for the reward).
      cap: `[]` largest success probability that the solver receives.
      noise: `[]` largest random number that breaks ties. With `cap=1` and `noise=0` bounds are unchanged, and ties go to the lower index.
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
    hold: Hold = struct.field(default_factory=HoldAction, kw_only=True)
    start: Optimistic = struct.field(default_factory=Optimistic, kw_only=True)
    order: Order = struct.field(default_factory=ByPrice, kw_only=True)
    solver: relaxation.Solver | None = struct.field(default=None, kw_only=True)
    rounding: Rounding | None = struct.field(default=None, kw_only=True)
    cap: Leaf = struct.field(default=0.999, kw_only=True)
    noise: Leaf = struct.field(default=1e-4, kw_only=True)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        label = "mean upper bound of the set's reward"
        optimism = Metric("optimistic_reward", label, "reward per round", "average", default=False)
        return (*relaxation.metrics_of(self.solver), optimism)

    def check(self) -> None:
        checks.part("order", self.order, "order", "ByPrice()")
        relaxation.check(self.solver, self.rounding, self.cap, self.noise)
        checks.non_negative("reward_width", self.reward_width, ())
        checks.non_negative("cost_width", self.cost_width, ())
        checks.share("delta", self.delta, ())
        checks.positive("budget_share", self.budget_share, ())
        if self.allowed is not None and not np.any(self.allowed):
            raise ValueError("allowed must leave at least one model, got none")
        checks.bounded("prior_pulls", self.prior_pulls, None, "whole numbers from 0", lambda n: (n >= 0) & (n % 1 == 0))
        checks.probability("prior_outcome", self.prior_outcome)
        checks.non_negative("prior_cost", self.prior_cost)
        checks.whole("batch", float(checks.numbers("batch", self.batch, ())))

    def check_spec(self, spec: CombinatorialSpec) -> None:
        if self.allowed is None or spec.any_size or not spec.reward.exact_size:
            return
        number = int(np.sum(np.asarray(self.allowed) > 0))
        if np.shape(self.allowed) == (spec.num_models,) and number < spec.min_size:
            why = f"for a set of {type(spec.reward).__name__} has exactly so many"
            raise ValueError(f"allowed must leave at least {spec.min_size} models, {why}, got {number}")

    def init(self, key: Array, spec: CombinatorialSpec) -> C2MABVState:
        """Returns the state before the first round, Algorithm 1, line 2, with the prior observations, if any."""
        del key
        size = spec.num_models
        for name in ("prior_pulls", "prior_outcome", "prior_cost"):
            shape = jnp.shape(getattr(self, name))
            if shape not in ((), (size,)):
                raise ValueError(f"{name} must have one entry per model ({size}), got shape {shape}")
        if self.allowed is not None and jnp.shape(self.allowed) != (size,):
            raise ValueError(f"allowed must have one entry per model ({size}), got shape {jnp.shape(self.allowed)}")
        return C2MABVState(
            outcome=RunningMean.prior(self.prior_pulls, self.prior_outcome, size),
            cost=RunningMean.prior(self.prior_pulls, self.prior_cost, size),
            held=jnp.zeros((size,), bool),
            held_relaxed=jnp.zeros((size,), jnp.float32),
            arrived=jnp.zeros((), jnp.int32),
            spec=spec,
        )

    def bounds(self, state: C2MABVState, t: Array) -> tuple[Array, Array]:
        """Returns upper bounds of mean outcomes and lower bounds of mean costs, `[K]`, in round `t`. Source: C2MAB-V, section 4.1, Lemma 1."""
        models = state.spec.num_models if self.allowed is None else jnp.sum(jnp.asarray(self.allowed, jnp.float32))
        log_term = union_log_term(models, t + 1, self.delta)
        # Without observations the radius is infinite; it is masked first, or derivatives in the widths would be 0 times infinity.
        seen, cost_seen = state.outcome.count > 0, state.cost.count > 0
        radius = jnp.where(seen, hoeffding_radius(state.outcome.count, log_term), 0.0)
        cost_radius = jnp.where(cost_seen, hoeffding_radius(state.cost.count, log_term), 0.0)
        value = jnp.minimum(state.outcome.mean + self.reward_width * radius, 1.0)
        cost = jnp.maximum(state.cost.mean - self.cost_width * cost_radius, 0.0)
        return jnp.where(seen, value, 1.0), jnp.where(cost_seen, cost, 0.0)

    def act(self, key: Array, state: C2MABVState, obs: Observation, t: Array) -> tuple[Action, Info]:
        """Returns the action (a new decision by Algorithm 1, lines 4 to 7, or the last one until a batch of feedback is complete) and diagnostics."""
        k_tie, k_round, k_order = draws.split(key, 3)
        value, cost = self.bounds(state, t)  # lines 4 and 5
        # Line 6: the relaxed problem, eqs. (3) to (5).
        allowed = self._allowed(obs)
        w = relaxation.conditioned(k_tie, value, self.cap, self.noise)
        planned = obs.replace(budget=self.budget_share * obs.budget)
        found = relaxation.solve_by_group(self.solver, state.spec, w, cost, planned, allowed)
        # Line 7: rounding, Algorithm 2 or 3; a held selection does not change (appendix E.3).
        fresh = self._fresh(state, t)
        z = self.hold.relaxed(fresh, found.z, state.held_relaxed)
        selected = round_by_group(self.rounding, k_round, z, state.spec)
        selected, z = self.hold.hold(fresh, (selected, z), (state.held, state.held_relaxed))
        selected = self.start.choose(state, obs, allowed, selected)
        action = action_of(self.order, k_order, obs, selected, value, cost, z)
        info = {
            **relaxation.info_of(found),
            "optimistic_reward": state.spec.reward.value(action.selected, value),
            "reward_ucb": value,
            "cost_lcb": cost,
        }
        return action, info

    def update(
        self, key: Array, state: C2MABVState, obs: Observation, action: Action, feedback: Feedback, t: Array
    ) -> C2MABVState:
        """Returns the state after the feedback: updates the means of the observed models by eq. (6) (Algorithm 1, lines 8 and 9)."""
        del key
        arrived = jnp.where(self._fresh(state, t), 0, state.arrived) + feedback.arrived.astype(jnp.int32)
        # While `start` decides, no batch is awaited: the next round takes a new decision.
        arrived = jnp.where(self.start.active(state, self._allowed(obs)), jnp.asarray(self.batch, jnp.int32), arrived)
        held_relaxed = action.relaxed.astype(state.held_relaxed.dtype)
        return state.add(feedback).replace(held=action.held, held_relaxed=held_relaxed, arrived=arrived)

    def _allowed(self, obs: Observation) -> Array:
        return obs.available if self.allowed is None else obs.available & jnp.asarray(self.allowed, bool)

    def _fresh(self, state: C2MABVState, t: Array) -> Array:
        """Returns whether round `t` needs a new decision, a scalar bool: in the first round, and after every `batch` rounds with feedback."""
        return (t == 0) | (state.arrived >= self.batch)


def two_tier(names: Sequence[str], small: str = "Llama 2-7B", large: str = "ChatGPT-4") -> np.ndarray:
    """Returns a mask `[K]` of the models `small` and `large` among `names`, for `C2MABV(allowed=...)`. Source: C2MAB-V, Fig. 12; the pair is ours."""
    for model in (small, large):
        checks.one_of("model", model, names)
    return np.asarray([name in (small, large) for name in names])
