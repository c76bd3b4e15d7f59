"""Baseline policies with which C2MAB-V is compared: those of its paper and others."""

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxroute.core import checks, draws
from jaxroute.core.types import FixedPolicy, Leaf, Metric
from jaxroute.estimators.running import RunningMean
from jaxroute.problems.combinatorial.c2mabv import C2MABV
from jaxroute.problems.combinatorial.env import CloudEnv
from jaxroute.problems.combinatorial.parts import beliefs, relaxation
from jaxroute.problems.combinatorial.parts.rounding import Indicator, Rounding, round_by_group, top_models
from jaxroute.problems.combinatorial.parts.rounds import ByPrice, Order, action_of
from jaxroute.problems.combinatorial.types import Action, CombinatorialSpec, Feedback, Info, Observation
from jaxroute.solvers.selection import Selection


@struct.dataclass
class Direct(C2MABV):
    """C2MAB-V that compares all sets by its bounds (`BestSet`) instead of solving the relaxed problem. Source: C2MAB-V, appendix E.3, eq. (48)."""

    solver: relaxation.Solver | None = struct.field(default_factory=relaxation.BestSet, kw_only=True)
    rounding: Rounding | None = struct.field(default_factory=Indicator, kw_only=True)


@struct.dataclass
class Learner:
    """Base class of policies that learn the mean outcome and cost of each model; subclasses define `act`.

    Attributes:
      order: rule for the order in which a cascade (reward `AnyWin`) asks the models of a set, such as `ByPrice`.
    """

    order: Order = struct.field(default_factory=ByPrice, kw_only=True)

    def check(self) -> None:
        checks.part("order", self.order, "order", "ByPrice()")

    def init(self, key: Array, spec: CombinatorialSpec) -> beliefs.Statistics:
        del key
        return beliefs.Statistics(RunningMean.empty(spec.num_models), RunningMean.empty(spec.num_models), spec)

    def update(
        self, key: Array, state: beliefs.Statistics, obs: Observation, action: Action, feedback: Feedback, t: Array
    ) -> beliefs.Statistics:
        del key, obs, action, t
        return state.add(feedback)


@struct.dataclass
class Relaxer(Learner):
    """Base class of policies that, like C2MAB-V, solve the relaxed problem (fractions in [0, 1] of models), and round its solution to a random set.

    Attributes:
      solver: solver of the relaxed problem, such as `Vertices`; None for `default_solver`, which depends on the reward and the number of models.
      rounding: `Swap` or `Pairwise`, which round fractions to a set; None for `Swap` with the reward `AnyWin`, `Pairwise` with the others.
      cap, noise: `[]` largest success probability that the solver receives, and largest random number that breaks ties.
    """

    solver: relaxation.Solver | None = struct.field(default=None, kw_only=True)
    rounding: Rounding | None = struct.field(default=None, kw_only=True)
    cap: Leaf = struct.field(default=0.999, kw_only=True)
    noise: Leaf = struct.field(default=1e-4, kw_only=True)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return relaxation.metrics_of(self.solver)

    def check(self) -> None:
        super().check()
        relaxation.check(self.solver, self.rounding, self.cap, self.noise)

    def relax(self, key: Array, value: Array, cost: Array, obs: Observation, spec: CombinatorialSpec) -> Selection:
        """Returns the best fractions of available models for success probabilities `value` and costs `cost` `[K]`, within the budget of `obs`."""
        w = relaxation.conditioned(key, value, self.cap, self.noise)
        return relaxation.solve_by_group(self.solver, spec, w, cost, obs, obs.available)


@struct.dataclass
class CUCB(Learner):
    """Policy that selects the `N` models (size of a set) with the largest upper bounds of success probabilities, and ignores costs.

    Source: Chen, Wang and Yuan (2013); C2MAB-V, section 6, which does not state the radius.

    Attributes:
      noise: `[]` largest random number that is subtracted from a bound to break ties.
      radius: rule for the width of the bounds, `PlainRadius` or `UnionRadius`.
    """

    noise: Leaf = 1e-4
    radius: beliefs.Radius = struct.field(default_factory=beliefs.PlainRadius, kw_only=True)

    def check(self) -> None:
        super().check()
        checks.probability("noise", self.noise, ())
        if self.radius is not None:
            checks.part("radius", self.radius, "radius", "PlainRadius()")

    def act(self, key: Array, state: beliefs.Statistics, obs: Observation, t: Array) -> tuple[Action, Info]:
        k_tie, k_order = draws.split(key)
        radius = self.radius.radius(state.outcome.count, state.spec.num_models, t + 1)
        value = jnp.minimum(state.outcome.mean + radius, 1.0)
        selected = top_models(value - self.noise * draws.uniform(k_tie, value.shape), obs, state.spec)
        action = action_of(self.order, k_order, obs, selected, value, state.cost.mean)
        return action, {"reward_ucb": value}


@struct.dataclass
class Thompson(Learner):
    """Policy that draws success probabilities from a posterior, selects the `N` models with the largest draws, and ignores costs.

    Source: Thompson (1933); C2MAB-V, section 6.

    Attributes:
      posterior: `BetaPosterior` or `NormalPosterior`.
      graded: rule by which the posterior counts outcomes between 0 and 1 as successes and failures, `CountInPart` or `CountByCoin`.
    """

    posterior: beliefs.Posterior = struct.field(default_factory=beliefs.BetaPosterior)
    graded: beliefs.Grading = struct.field(default_factory=beliefs.CountInPart)

    def act(self, key: Array, state: beliefs.Statistics, obs: Observation, t: Array) -> tuple[Action, Info]:
        del t
        k_sample, k_order = draws.split(key)
        count = state.outcome.count.astype(jnp.float32)
        value = self.posterior.sample(k_sample, count * state.outcome.mean, state.outcome.losses())
        selected = top_models(value, obs, state.spec)
        return action_of(self.order, k_order, obs, selected, value, state.cost.mean), {"sampled": value}

    def update(
        self, key: Array, state: beliefs.Statistics, obs: Observation, action: Action, feedback: Feedback, t: Array
    ) -> beliefs.Statistics:
        del obs, action, t
        return state.add(feedback.replace(outcome=self.graded.count(key, feedback.outcome)))


@struct.dataclass
class ConstrainedThompson(Relaxer):
    """Policy that draws rewards and costs from posteriors, then solves and rounds the relaxed problem like C2MAB-V. Not in the paper.

    The posterior of a cost after `n` observations is normal around the mean with variance `1 / (4 n)`, truncated at zero; without observations the
    cost is zero.

    Attributes:
      posterior: `BetaPosterior` or `NormalPosterior`.
    """

    posterior: beliefs.Posterior = struct.field(default_factory=beliefs.BetaPosterior)

    def act(self, key: Array, state: beliefs.Statistics, obs: Observation, t: Array) -> tuple[Action, Info]:
        del t
        k_reward, k_cost, k_tie, k_round, k_order = draws.split(key, 5)
        count = state.outcome.count.astype(jnp.float32)
        value = self.posterior.sample(k_reward, count * state.outcome.mean, state.outcome.losses())
        seen = state.cost.count.astype(jnp.float32)
        shock = draws.normal(k_cost, value.shape) / (2.0 * jnp.sqrt(jnp.maximum(seen, 1.0)))
        cost = jnp.where(seen > 0, jnp.maximum(state.cost.mean + shock, 0.0), 0.0)
        found = self.relax(k_tie, value, cost, obs, state.spec)
        selected = round_by_group(self.rounding, k_round, found.z, state.spec)
        action = action_of(self.order, k_order, obs, selected, value, cost, found.z)
        return action, {"sampled": value, **relaxation.info_of(found)}


@struct.dataclass
class EpsilonGreedy(Relaxer):
    """Policy that selects `N` of `K` models at random with probability `min(1, scale sqrt(K / t))` in round `t`, else solves the relaxed problem.

    Random sets ignore the budget. The relaxed problem, for the mean outcomes and costs so far, meets it on average. Source: C2MAB-V, section 6, which
    leaves open how sets are selected if not at random; its figures agree only with sets that meet the budget.

    Attributes:
      scale: `[]` factor of the exploration probability, 2 in the paper.
    """

    scale: Leaf = 2.0

    def check(self) -> None:
        super().check()
        checks.non_negative("scale", self.scale, ())

    def act(self, key: Array, state: beliefs.Statistics, obs: Observation, t: Array) -> tuple[Action, Info]:
        k_coin, k_set, k_tie, k_round, k_order = draws.split(key, 5)
        value, cost = state.outcome.mean, state.cost.mean
        found = self.relax(k_tie, value, cost, obs, state.spec)
        exploit = round_by_group(self.rounding, k_round, found.z, state.spec)
        explore = top_models(-draws.uniform(k_set, value.shape), obs, state.spec)
        epsilon = jnp.minimum(1.0, self.scale * jnp.sqrt(state.spec.num_models / (t + 1).astype(jnp.float32)))
        exploring = draws.uniform(k_coin) < epsilon
        selected = jnp.where(exploring, explore, exploit)
        relaxed = jnp.where(exploring, explore.astype(jnp.float32), found.z)
        action = action_of(self.order, k_order, obs, selected, value, cost, relaxed)
        return action, {"explored": exploring, **relaxation.info_of(found)}


@struct.dataclass
class RandomSet(Learner):
    """Policy that selects a random set of `N` models in every round. Not in the paper."""

    def act(self, key: Array, state: beliefs.Statistics, obs: Observation, t: Array) -> tuple[Action, Info]:
        del t
        k_set, k_order = draws.split(key)
        score = draws.uniform(k_set, obs.price.shape)
        selected = top_models(-score, obs, state.spec)
        return action_of(self.order, k_order, obs, selected, score, obs.price), {}


@struct.dataclass
class Everything(Learner):
    """Policy that selects all available models in every round. On `copies_of(env, model)` it is the paper's policy "Always" with this model."""

    def act(self, key: Array, state: beliefs.Statistics, obs: Observation, t: Array) -> tuple[Action, Info]:
        del t, state
        zero = jnp.zeros_like(obs.price)
        return action_of(self.order, key, obs, obs.available, zero, zero), {}


@struct.dataclass
class OfflineFixed(FixedPolicy):
    """Policy that always selects the set of models that is best in an offline sample. Source: C2MAB-V, Fig. 13.

    Differs from the paper: the paper does not describe the sample. Ours has outcomes 0 or 1 of all models on `sample_size` questions; the mean costs
    are known.

    Attributes:
      offline_mean, cost_mean: `[K]` success probabilities in the sample, which may differ from the environment's, and `[K]` mean costs.
      budget: `[]` largest mean cost of the set, or `[M]` largest mean cost of the models from each group.
      size: `[]` number of models `N` in the set, or `[M]` number from each group.
      sample_size: number of questions (static).
      order: rule for the order of a cascade, such as `ByPrice`.
    """

    offline_mean: Leaf
    cost_mean: Leaf
    budget: Leaf
    size: Leaf
    sample_size: int = struct.field(pytree_node=False, default=200)
    order: Order = struct.field(default_factory=ByPrice, kw_only=True)

    @classmethod
    def of(cls, env: CloudEnv, offline_mean: Leaf | None = None, sample_size: int = 200) -> "OfflineFixed":
        """Returns the policy for `env`: its sample has `sample_size` questions with means `offline_mean` (None: those of `env` before any drift)."""
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

    def init(self, key: Array, spec: CombinatorialSpec) -> Array:
        """Draws the offline sample and returns its best set, `[K]` bool, the state of this policy."""
        if jnp.shape(self.offline_mean) != (spec.num_models,):
            shape = jnp.shape(self.offline_mean)
            raise ValueError(f"offline_mean must have one entry per model ({spec.num_models}), got shape {shape}")
        mean = jnp.asarray(self.offline_mean, jnp.float32)
        wins = draws.uniform(key, (self.sample_size, spec.num_models)) < mean
        estimate = jnp.clip(jnp.mean(wins.astype(jnp.float32), axis=0), 1e-6, 1.0 - 1e-6)
        cost = jnp.asarray(self.cost_mean, jnp.float32)
        obs = Observation(cost, jnp.ones(cost.shape, bool), jnp.asarray(self.budget, jnp.float32), jnp.asarray(self.size))
        found = relaxation.solve_by_group(relaxation.BestSet(), spec, estimate, cost, obs, obs.available)
        return found.z > 0.5

    def act(self, key: Array, state: Array, obs: Observation, t: Array) -> tuple[Action, Info]:
        del t
        zero = jnp.zeros_like(obs.price)
        return action_of(self.order, key, obs, state, zero, zero), {}
