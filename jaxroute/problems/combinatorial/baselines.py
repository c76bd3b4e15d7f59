"""Policies to compare C2MAB-V with."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute import checks, draws
from jaxroute.estimators.confidence import hoeffding_radius
from jaxroute.problems.combinatorial.selector import BookState, Learner, Relaxer, top_models
from jaxroute.problems.combinatorial.types import CombinatorialSpec
from jaxroute.solvers.selection import best_subset
from jaxroute.types import Leaf


@struct.dataclass
class CUCB(Learner):
    """The `N` models of largest upper bound `mean + sqrt(3 log t / (2 n))`; costs are ignored.

    Source: Chen, Wang and Yuan (2013); Wang and Chen (2017); C2MAB-V, section 6.

    Differs from the paper: it does not print the radius; ties are broken at random.
    """

    noise: Leaf = 1e-4

    def act(self, key, state: BookState, obs, t):
        k_tie, k_order = draws.split(key)
        log_term = 3.0 * jnp.log((t + 1).astype(jnp.float32))
        value = jnp.minimum(state.outcome.mean + hoeffding_radius(state.outcome.count, log_term), 1.0)
        selected = top_models(value - self.noise * draws.uniform(k_tie, value.shape), obs)
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
class Thompson(Learner):
    """The `N` models of largest posterior draw; costs are ignored.

    Source: Thompson (1933); C2MAB-V, section 6. posterior: `BetaPosterior` or `NormalPosterior`.
    """

    posterior: Any = struct.field(default_factory=BetaPosterior)

    def sample(self, key, state: BookState):
        """One draw of each model's success chance, `[K]`."""
        count = state.outcome.count.astype(jnp.float32)
        wins = count * state.outcome.mean
        return self.posterior.sample(key, wins, count - wins)

    def act(self, key, state: BookState, obs, t):
        del t
        k_sample, k_order = draws.split(key)
        value = self.sample(k_sample, state)
        selected = top_models(value, obs)
        return self.action(k_order, obs, selected, selected.astype(jnp.float32), value, state.cost.mean), {"sampled": value}


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
        return self.action(k_order, obs, selected, found.z, value, cost), {"sampled": value}


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
        explore = top_models(-draws.uniform(k_set, value.shape), obs)
        epsilon = jnp.minimum(1.0, self.scale * jnp.sqrt(state.spec.num_models / (t + 1).astype(jnp.float32)))
        exploring = draws.uniform(k_coin) < epsilon
        selected = jnp.where(exploring, explore, exploit)
        relaxed = jnp.where(exploring, explore.astype(jnp.float32), found.z)
        return self.action(k_order, obs, selected, relaxed, value, cost), {"explored": exploring}


@struct.dataclass
class RandomSet(Learner):
    """A random set of `N` models in every round. Not in the paper."""

    def act(self, key, state: BookState, obs, t):
        del t
        k_set, k_order = draws.split(key)
        score = draws.uniform(k_set, obs.price.shape)
        selected = top_models(-score, obs)
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
class OfflineFixed:
    """The best set of an offline sample, kept for ever.

    Source: C2MAB-V, Fig. 13. Differs from the paper: nothing is said of the sample; ours are Bernoulli outcomes of every model on
    `sample_size` questions, and known mean costs.

    offline_mean: `[K]` success chances when the sample was taken; they may differ from those online. cost_mean: `[K]`.
    budget, size: `[]` of the offline problem. sample_size: questions (static).
    """

    offline_mean: Leaf
    cost_mean: Leaf
    budget: Leaf
    size: Leaf
    sample_size: int = struct.field(pytree_node=False, default=200)

    @classmethod
    def of(cls, env, offline_mean=None, sample_size: int = 200) -> "OfflineFixed":
        """For an environment; by default the sample has the environment's own means."""
        mean = env.outcomes.outcome_mean[0] if offline_mean is None else offline_mean
        return cls(mean, env.outcomes.cost_mean[0], env.budget, env.size, sample_size=sample_size)

    def check(self) -> None:
        checks.probability("offline_mean", self.offline_mean)
        checks.count("sample_size", self.sample_size)

    def init(self, key, spec: CombinatorialSpec) -> OfflineState:
        mean = jnp.asarray(self.offline_mean, jnp.float32)
        wins = draws.uniform(key, (self.sample_size, spec.num_models)) < mean
        estimate = jnp.clip(jnp.mean(wins.astype(jnp.float32), axis=0), 1e-6, 1.0 - 1e-6)
        found = best_subset(
            spec.reward.weight(estimate),
            jnp.asarray(self.cost_mean, jnp.float32),
            jnp.asarray(self.budget, jnp.float32),
            self.size,
            exact_size=spec.reward.exact_size,
            sizes=(spec.min_size, spec.max_size),
        )
        return OfflineState(selected=found.z > 0.5)

    def act(self, key, state, obs, t):
        del key, t
        action = Learner().action(None, obs, state.selected & obs.available, state.selected.astype(jnp.float32), None, None)
        return action, {}

    def update(self, key, state, obs, action, feedback, t):
        del key, obs, action, feedback, t
        return state
