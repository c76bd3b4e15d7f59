"""Policies to compare C2MAB-V with."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import checks, draws
from jaxroute.core.types import Leaf
from jaxroute.estimators.confidence import hoeffding_radius, union_log_term
from jaxroute.problems.combinatorial.c2mabv import Direct
from jaxroute.problems.combinatorial.relax import solve_by_group
from jaxroute.problems.combinatorial.rules import top_models
from jaxroute.problems.combinatorial.selector import BookState, Learner, Relaxer
from jaxroute.problems.combinatorial.types import CombinatorialSpec, Observation


@struct.dataclass
class PlainRadius:
    """The radius `sqrt(3 log t / (2 n))` of CUCB. Source: Wang and Chen (2017)."""

    def radius(self, count, num_models: int, t):
        """Of each model seen `count` `[K]` times, in round `t` (from 1)."""
        del num_models
        return hoeffding_radius(count, 3.0 * jnp.log(t.astype(jnp.float32)))


@struct.dataclass
class UnionRadius:
    """The radius of C2MAB-V, `width` times `sqrt(log(2 pi^2 K t^3 / (3 delta)) / (2 n))`."""

    width: Leaf = 1.0
    delta: Leaf = 1e-4

    def check(self) -> None:
        checks.positive("width", self.width, ())
        checks.share("delta", self.delta, ())

    def radius(self, count, num_models: int, t):
        """Of each model seen `count` `[K]` times, in round `t` (from 1)."""
        return self.width * hoeffding_radius(count, union_log_term(num_models, t, self.delta))


@struct.dataclass
class CUCB(Learner):
    """The `N` models of largest upper bound; costs are ignored.

    Source: Chen, Wang and Yuan (2013); C2MAB-V, section 6.

    Differs from the paper: it does not print the radius; ties are broken at random.

    noise: `[]` size of the tie-breaks. radius: `PlainRadius` or `UnionRadius`.
    """

    noise: Leaf = 1e-4
    radius: Any = struct.field(default_factory=PlainRadius, kw_only=True)

    def check(self) -> None:
        Learner.check(self)
        checks.probability("noise", self.noise, ())
        if hasattr(self.radius, "check"):
            self.radius.check()

    def act(self, key, state: BookState, obs, t):
        k_tie, k_order = draws.split(key)
        radius = self.radius.radius(state.outcome.count, state.spec.num_models, t + 1)
        value = jnp.minimum(state.outcome.mean + radius, 1.0)
        selected = top_models(value - self.noise * draws.uniform(k_tie, value.shape), obs, state.spec)
        return self.action(k_order, obs, selected, selected.astype(jnp.float32), value, state.cost.mean), {
            "reward_ucb": value
        }


@struct.dataclass
class BetaPosterior:
    """Draws from Beta(1 + successes, 1 + failures); fractional outcomes count in part."""

    def sample(self, key, wins, losses):
        return draws.beta(key, 1.0 + wins, 1.0 + losses)


@struct.dataclass
class NormalPosterior:
    """Normal draws with the mean and variance of the Beta posterior: three times as fast."""

    def sample(self, key, wins, losses):
        a, b = 1.0 + wins, 1.0 + losses
        total = a + b
        mean = a / total
        return mean + jnp.sqrt(mean * (b / total) / (total + 1.0)) * draws.normal(key, jnp.shape(wins))


@struct.dataclass
class CountInPart:
    """An outcome `x` in [0, 1] counts as `x` of a success."""

    def count(self, key, outcome):
        """What outcomes `[K]` count as."""
        del key
        return outcome


@struct.dataclass
class CountByCoin:
    """An outcome `x` in [0, 1] counts as a success with chance `x`. Source: Agrawal and Goyal (2012)."""

    def count(self, key, outcome):
        """What outcomes `[K]` count as."""
        return (draws.uniform(key, outcome.shape) < outcome).astype(outcome.dtype)


@struct.dataclass
class Thompson(Learner):
    """The `N` models of largest posterior draw; costs are ignored.

    Source: Thompson (1933); C2MAB-V, section 6.

    posterior: `BetaPosterior` or `NormalPosterior`. graded: `CountInPart` or `CountByCoin`, for outcomes between 0 and 1.
    """

    posterior: Any = struct.field(default_factory=BetaPosterior)
    graded: Any = struct.field(default_factory=CountInPart)

    def sample(self, key, state: BookState):
        """One draw of each model's success chance, `[K]`."""
        count = state.outcome.count.astype(jnp.float32)
        wins = count * state.outcome.mean
        return self.posterior.sample(key, wins, count - wins)

    def act(self, key, state: BookState, obs, t):
        del t
        k_sample, k_order = draws.split(key)
        value = self.sample(k_sample, state)
        selected = top_models(value, obs, state.spec)
        return self.action(k_order, obs, selected, selected.astype(jnp.float32), value, state.cost.mean), {"sampled": value}

    def update(self, key, state: BookState, obs, action, feedback, t) -> BookState:
        counted = feedback.replace(outcome=self.graded.count(key, feedback.outcome))
        return Learner.update(self, key, state, obs, action, counted, t)


@struct.dataclass
class ConstrainedThompson(Relaxer):
    """Posterior draws of rewards and costs, then the relaxed problem and its rounding as in C2MAB-V. Not in the paper.

    A cost is drawn from a normal around its mean with variance `1 / (4 n)`, cut at zero; a model that was never seen costs nothing.
    """

    posterior: Any = struct.field(default_factory=BetaPosterior)

    def act(self, key, state: BookState, obs, t):
        del t
        k_reward, k_cost, k_tie, k_round, k_order = draws.split(key, 5)
        count = state.outcome.count.astype(jnp.float32)
        wins = count * state.outcome.mean
        value = self.posterior.sample(k_reward, wins, count - wins)
        seen = state.cost.count.astype(jnp.float32)
        shock = draws.normal(k_cost, value.shape) / (2.0 * jnp.sqrt(jnp.maximum(seen, 1.0)))
        cost = jnp.where(seen > 0, jnp.maximum(state.cost.mean + shock, 0.0), 0.0)
        found = self.relax(k_tie, value, cost, obs, obs.available, state.spec)
        selected = self.round(k_round, found.z, state.spec)
        return self.action(k_order, obs, selected, found.z, value, cost), {"sampled": value, **self.told(found)}


@struct.dataclass
class EpsilonGreedy(Relaxer):
    """A random set with probability `min(1, 2 sqrt(K / t))`, otherwise the relaxed problem with the empirical means.

    Source: C2MAB-V, section 6.

    Differs from the paper: it does not say how it exploits; only a budget-aware choice agrees with its figures.

    scale: `[]` the factor 2.
    """

    scale: Leaf = 2.0

    def check(self) -> None:
        Relaxer.check(self)
        checks.non_negative("scale", self.scale, ())

    def act(self, key, state: BookState, obs, t):
        k_coin, k_set, k_tie, k_round, k_order = draws.split(key, 5)
        value, cost = state.outcome.mean, state.cost.mean
        found = self.relax(k_tie, value, cost, obs, obs.available, state.spec)
        exploit = self.round(k_round, found.z, state.spec)
        explore = top_models(-draws.uniform(k_set, value.shape), obs, state.spec)
        epsilon = jnp.minimum(1.0, self.scale * jnp.sqrt(state.spec.num_models / (t + 1).astype(jnp.float32)))
        exploring = draws.uniform(k_coin) < epsilon
        selected = jnp.where(exploring, explore, exploit)
        relaxed = jnp.where(exploring, explore.astype(jnp.float32), found.z)
        return self.action(k_order, obs, selected, relaxed, value, cost), {"explored": exploring, **self.told(found)}


@struct.dataclass
class RandomSet(Learner):
    """A random set of `N` models in every round. Not in the paper."""

    def act(self, key, state: BookState, obs, t):
        del t
        k_set, k_order = draws.split(key)
        score = draws.uniform(k_set, obs.price.shape)
        selected = top_models(-score, obs, state.spec)
        return self.action(k_order, obs, selected, selected.astype(jnp.float32), score, obs.price), {}


@struct.dataclass
class Everything(Learner):
    """All available models, in every round: on `copies_of` one model it is "Always" that model."""

    def act(self, key, state: BookState, obs, t):
        del t, state
        zero = jnp.zeros_like(obs.price)
        return self.action(key, obs, obs.available, obs.available.astype(jnp.float32), zero, zero), {}


@struct.dataclass
class OfflineState:
    """The set `[K]` bool that was found offline."""

    selected: jax.Array


@struct.dataclass
class OfflineFixed(Learner):
    """The best set of an offline sample, kept for ever.

    Source: C2MAB-V, Fig. 13. Differs from the paper: nothing is said of the sample; ours are Bernoulli outcomes of every model on
    `sample_size` questions, and known mean costs.

    offline_mean: `[K]` success chances when the sample was taken; they may differ from those online. cost_mean: `[K]`.
    budget, size: `[]` or `[M]` of the offline problem. sample_size: questions (static).
    """

    offline_mean: Leaf
    cost_mean: Leaf
    budget: Leaf
    size: Leaf
    sample_size: int = struct.field(pytree_node=False, default=200)

    @classmethod
    def of(cls, env, offline_mean=None, sample_size: int = 200) -> "OfflineFixed":
        """For an environment; by default the sample has the environment's own means."""
        if env.availability is not None:
            raise ValueError("availability must be None for a fixed set: it does not select again from what is available")
        mean = env.outcomes.outcome_mean[0] if offline_mean is None else offline_mean
        return cls(mean, env.outcomes.cost_mean[0], env.budget, env.size, sample_size=sample_size)

    def check(self) -> None:
        Learner.check(self)
        checks.probability("offline_mean", self.offline_mean)
        checks.non_negative("cost_mean", self.cost_mean, np.shape(self.offline_mean))
        checks.positive("budget", self.budget)
        checks.positive("size", self.size)
        checks.count("sample_size", self.sample_size)

    def init(self, key, spec: CombinatorialSpec) -> OfflineState:
        if jnp.shape(self.offline_mean) != (spec.num_models,):
            shape = jnp.shape(self.offline_mean)
            raise ValueError(f"offline_mean must have one entry per model ({spec.num_models}), got shape {shape}")
        mean = jnp.asarray(self.offline_mean, jnp.float32)
        wins = draws.uniform(key, (self.sample_size, spec.num_models)) < mean
        estimate = jnp.clip(jnp.mean(wins.astype(jnp.float32), axis=0), 1e-6, 1.0 - 1e-6)
        cost = jnp.asarray(self.cost_mean, jnp.float32)
        obs = Observation(cost, jnp.ones(cost.shape, bool), jnp.asarray(self.budget, jnp.float32), jnp.asarray(self.size))
        found = solve_by_group(Direct().solve, spec, estimate, cost, obs, obs.available)
        return OfflineState(selected=found.z > 0.5)

    def act(self, key, state, obs, t):
        del t
        zero = jnp.zeros_like(obs.price)
        return self.action(key, obs, state.selected, state.selected.astype(jnp.float32), zero, zero), {}

    def update(self, key, state, obs, action, feedback, t):
        del key, obs, action, feedback, t
        return state
