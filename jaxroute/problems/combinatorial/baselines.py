"""Baselines of C2MAB-V."""

import abc

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import checks, draws
from jaxroute.core.types import Leaf, Metric
from jaxroute.problems.combinatorial.c2mabv import C2MABV
from jaxroute.problems.combinatorial.env import CloudEnv
from jaxroute.problems.combinatorial.parts.cascade_order import ByPrice, Order, action_of
from jaxroute.problems.combinatorial.parts.posteriors import BetaPosterior, CountInPart, Grading, Posterior
from jaxroute.problems.combinatorial.parts.radii import PlainRadius, Radius
from jaxroute.problems.combinatorial.parts.relaxation import (
    BestSet,
    Solver,
    conditioned,
    info_of,
    metrics_of,
    solve_by_group,
)
from jaxroute.problems.combinatorial.parts.rounding import Indicator, Rounding, round_by_group, top_models
from jaxroute.problems.combinatorial.parts.statistics import Statistics
from jaxroute.problems.combinatorial.types import Action, CombinatorialSpec, Feedback, Info, Observation
from jaxroute.solvers.selection import Selection


@struct.dataclass
class Direct(C2MABV):
    """C2MAB-V with the best set instead of a rounded relaxation, by enumeration.

    Source: C2MAB-V, appendix E.3, eq. (48); see `BestSet`.
    """

    solver: Solver | None = struct.field(default_factory=BestSet, kw_only=True)
    rounding: Rounding | None = struct.field(default_factory=Indicator, kw_only=True)


@struct.dataclass
class Learner(abc.ABC):
    """Abstract base of baselines with `Statistics`; subclasses define `act`.

    Attributes:
      order: order of a cascade, an object of `parts.cascade_order`.
    """

    order: Order = struct.field(default_factory=ByPrice, kw_only=True)

    def check(self) -> None:
        checks.part("order", self.order, "order", "ByPrice()")

    def init(self, key: jax.Array, spec: CombinatorialSpec) -> Statistics:
        del key
        return Statistics.empty(spec)

    @abc.abstractmethod
    def act(self, key: jax.Array, state: Statistics, obs: Observation, t: jax.Array) -> tuple[Action, Info]:
        """Returns the action of round `t`, and diagnostics."""

    def update(
        self, key: jax.Array, state: Statistics, obs: Observation, action: Action, feedback: Feedback, t: jax.Array
    ) -> Statistics:
        del key, obs, action, t
        return state.add(feedback)


@struct.dataclass
class Relaxer(Learner):
    """Abstract base of baselines that solve the relaxed problem and round it, like C2MAB-V.

    Attributes:
      solver, rounding, cap, noise: as in `C2MABV`.
    """

    solver: Solver | None = struct.field(default=None, kw_only=True)
    rounding: Rounding | None = struct.field(default=None, kw_only=True)
    cap: Leaf = struct.field(default=0.999, kw_only=True)
    noise: Leaf = struct.field(default=1e-4, kw_only=True)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return metrics_of(self.solver)

    def check(self) -> None:
        super().check()
        if self.solver is not None:
            checks.part("solver", self.solver, "solve", "BestOf()")
        if self.rounding is not None:
            checks.part("rounding", self.rounding, "round", "Swap()")
        checks.share("cap", self.cap, ())
        checks.probability("noise", self.noise, ())

    def relax(
        self, key: jax.Array, value: jax.Array, cost: jax.Array, obs: Observation, spec: CombinatorialSpec
    ) -> Selection:
        """Returns the relaxed selection of available models for reward indices `value` `[K]` and cost indices `cost` `[K]`."""
        w = conditioned(key, value, self.cap, self.noise)
        return solve_by_group(self.solver, spec, w, cost, obs, obs.available)


@struct.dataclass
class CUCB(Learner):
    """Policy that selects the `N` models with the largest upper bounds and ignores costs.

    Source: Chen, Wang and Yuan (2013); C2MAB-V, section 6.

    Differs from the paper: it does not state the radius; ties are broken at random.

    Attributes:
      noise: `[]` size of the tie-breaks.
      radius: `PlainRadius` or `UnionRadius`.
    """

    noise: Leaf = 1e-4
    radius: Radius = struct.field(default_factory=PlainRadius, kw_only=True)

    def check(self) -> None:
        super().check()
        checks.probability("noise", self.noise, ())
        if self.radius is not None:
            checks.part("radius", self.radius, "radius", "PlainRadius()")

    def act(self, key: jax.Array, state: Statistics, obs: Observation, t: jax.Array) -> tuple[Action, Info]:
        k_tie, k_order = draws.split(key)
        radius = self.radius.radius(state.outcome.count, state.spec.num_models, t + 1)
        value = jnp.minimum(state.outcome.mean + radius, 1.0)
        selected = top_models(value - self.noise * draws.uniform(k_tie, value.shape), obs, state.spec)
        relaxed = selected.astype(jnp.float32)
        action = action_of(self.order, k_order, obs, selected, relaxed, value, state.cost.mean)
        return action, {"reward_ucb": value}


@struct.dataclass
class Thompson(Learner):
    """Policy that selects the `N` models with the largest posterior draws and ignores costs.

    Source: Thompson (1933); C2MAB-V, section 6.

    Attributes:
      posterior: `BetaPosterior` or `NormalPosterior`.
      graded: `CountInPart` or `CountByCoin`, for outcomes between 0 and 1.
    """

    posterior: Posterior = struct.field(default_factory=BetaPosterior)
    graded: Grading = struct.field(default_factory=CountInPart)

    def sample(self, key: jax.Array, state: Statistics) -> jax.Array:
        """Draws the success probability of each model, `[K]`."""
        count = state.outcome.count.astype(jnp.float32)
        return self.posterior.sample(key, count * state.outcome.mean, state.outcome.losses())

    def act(self, key: jax.Array, state: Statistics, obs: Observation, t: jax.Array) -> tuple[Action, Info]:
        del t
        k_sample, k_order = draws.split(key)
        value = self.sample(k_sample, state)
        selected = top_models(value, obs, state.spec)
        relaxed = selected.astype(jnp.float32)
        return action_of(self.order, k_order, obs, selected, relaxed, value, state.cost.mean), {"sampled": value}

    def update(
        self, key: jax.Array, state: Statistics, obs: Observation, action: Action, feedback: Feedback, t: jax.Array
    ) -> Statistics:
        del obs, action, t
        return state.add(feedback.replace(outcome=self.graded.count(key, feedback.outcome)))


@struct.dataclass
class ConstrainedThompson(Relaxer):
    """Policy that draws rewards and costs from posteriors, then solves and rounds the relaxed problem like C2MAB-V. Not in the paper.

    A cost is drawn from a normal distribution around its mean with variance `1 / (4 n)`, truncated at zero; models without observations have cost
    zero.

    Attributes:
      posterior: `BetaPosterior` or `NormalPosterior`.
    """

    posterior: Posterior = struct.field(default_factory=BetaPosterior)

    def act(self, key: jax.Array, state: Statistics, obs: Observation, t: jax.Array) -> tuple[Action, Info]:
        del t
        k_reward, k_cost, k_tie, k_round, k_order = draws.split(key, 5)
        count = state.outcome.count.astype(jnp.float32)
        value = self.posterior.sample(k_reward, count * state.outcome.mean, state.outcome.losses())
        seen = state.cost.count.astype(jnp.float32)
        shock = draws.normal(k_cost, value.shape) / (2.0 * jnp.sqrt(jnp.maximum(seen, 1.0)))
        cost = jnp.where(seen > 0, jnp.maximum(state.cost.mean + shock, 0.0), 0.0)
        found = self.relax(k_tie, value, cost, obs, state.spec)
        selected = round_by_group(self.rounding, k_round, found.z, state.spec)
        action = action_of(self.order, k_order, obs, selected, found.z, value, cost)
        return action, {"sampled": value, **info_of(found)}


@struct.dataclass
class EpsilonGreedy(Relaxer):
    """Policy that selects a random set with probability `min(1, 2 sqrt(K / t))`, otherwise solves the relaxed problem for the empirical means.

    Source: C2MAB-V, section 6.

    Differs from the paper: it does not specify the exploitation; only a budget-aware choice agrees with its figures.

    Attributes:
      scale: `[]` factor of the exploration probability (2).
    """

    scale: Leaf = 2.0

    def check(self) -> None:
        super().check()
        checks.non_negative("scale", self.scale, ())

    def act(self, key: jax.Array, state: Statistics, obs: Observation, t: jax.Array) -> tuple[Action, Info]:
        k_coin, k_set, k_tie, k_round, k_order = draws.split(key, 5)
        value, cost = state.outcome.mean, state.cost.mean
        found = self.relax(k_tie, value, cost, obs, state.spec)
        exploit = round_by_group(self.rounding, k_round, found.z, state.spec)
        explore = top_models(-draws.uniform(k_set, value.shape), obs, state.spec)
        epsilon = jnp.minimum(1.0, self.scale * jnp.sqrt(state.spec.num_models / (t + 1).astype(jnp.float32)))
        exploring = draws.uniform(k_coin) < epsilon
        selected = jnp.where(exploring, explore, exploit)
        relaxed = jnp.where(exploring, explore.astype(jnp.float32), found.z)
        action = action_of(self.order, k_order, obs, selected, relaxed, value, cost)
        return action, {"explored": exploring, **info_of(found)}


@struct.dataclass
class RandomSet(Learner):
    """Policy that selects a random set of `N` models in every round. Not in the paper."""

    def act(self, key: jax.Array, state: Statistics, obs: Observation, t: jax.Array) -> tuple[Action, Info]:
        del t
        k_set, k_order = draws.split(key)
        score = draws.uniform(k_set, obs.price.shape)
        selected = top_models(-score, obs, state.spec)
        return action_of(self.order, k_order, obs, selected, selected.astype(jnp.float32), score, obs.price), {}


@struct.dataclass
class Everything(Learner):
    """Policy that selects all available models in every round; with `copies_of` one model it is the paper's "Always" that model."""

    def act(self, key: jax.Array, state: Statistics, obs: Observation, t: jax.Array) -> tuple[Action, Info]:
        del t, state
        zero = jnp.zeros_like(obs.price)
        return action_of(self.order, key, obs, obs.available, obs.available.astype(jnp.float32), zero, zero), {}


@struct.dataclass
class OfflineState:
    """Result of the offline sample.

    Attributes:
      selected: `[K]` bool, selected set.
    """

    selected: jax.Array


@struct.dataclass
class OfflineFixed:
    """Policy that always selects the best set of an offline sample.

    Source: C2MAB-V, Fig. 13.

    Differs from the paper: it does not describe the sample; ours has Bernoulli outcomes of every model on `sample_size` questions, and known
    mean costs.

    Attributes:
      offline_mean: `[K]` success probabilities of the sample, which may differ from those online.
      cost_mean: `[K]` mean costs.
      budget: `[]` or `[M]` budget of the offline problem.
      size: `[]` or `[M]` size of the offline problem.
      sample_size: number of questions (static).
      order: order of a cascade, an object of `parts.cascade_order`.
    """

    offline_mean: Leaf
    cost_mean: Leaf
    budget: Leaf
    size: Leaf
    sample_size: int = struct.field(pytree_node=False, default=200)
    order: Order = struct.field(default_factory=ByPrice, kw_only=True)

    @classmethod
    def of(cls, env: CloudEnv, offline_mean: Leaf | None = None, sample_size: int = 200) -> "OfflineFixed":
        """Returns the policy for an environment; by default the sample has the environment's means."""
        if env.availability is not None:
            raise ValueError("availability must be None for a fixed set: it does not select again from what is available")
        mean = env.outcomes.outcome_mean[0] if offline_mean is None else offline_mean
        return cls(mean, env.outcomes.cost_mean[0], env.budget, env.size, sample_size=sample_size)

    def check(self) -> None:
        checks.part("order", self.order, "order", "ByPrice()")
        checks.probability("offline_mean", self.offline_mean)
        checks.non_negative("cost_mean", self.cost_mean, np.shape(self.offline_mean))
        checks.positive("budget", self.budget)
        checks.positive("size", self.size)
        checks.count("sample_size", self.sample_size)

    def init(self, key: jax.Array, spec: CombinatorialSpec) -> OfflineState:
        if jnp.shape(self.offline_mean) != (spec.num_models,):
            shape = jnp.shape(self.offline_mean)
            raise ValueError(f"offline_mean must have one entry per model ({spec.num_models}), got shape {shape}")
        mean = jnp.asarray(self.offline_mean, jnp.float32)
        wins = draws.uniform(key, (self.sample_size, spec.num_models)) < mean
        estimate = jnp.clip(jnp.mean(wins.astype(jnp.float32), axis=0), 1e-6, 1.0 - 1e-6)
        cost = jnp.asarray(self.cost_mean, jnp.float32)
        obs = Observation(cost, jnp.ones(cost.shape, bool), jnp.asarray(self.budget, jnp.float32), jnp.asarray(self.size))
        found = solve_by_group(BestSet(), spec, estimate, cost, obs, obs.available)
        return OfflineState(selected=found.z > 0.5)

    def act(self, key: jax.Array, state: OfflineState, obs: Observation, t: jax.Array) -> tuple[Action, Info]:
        del t
        zero = jnp.zeros_like(obs.price)
        return action_of(self.order, key, obs, state.selected, state.selected.astype(jnp.float32), zero, zero), {}

    def update(
        self, key: jax.Array, state: OfflineState, obs: Observation, action: Action, feedback: Feedback, t: jax.Array
    ) -> OfflineState:
        del key, obs, action, feedback, t
        return state
