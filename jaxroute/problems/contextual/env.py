"""Contextual bandits: the expected rewards of the models depend on a context, which is observed before the decision."""

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics
from jaxroute.core.protocols import Transition
from jaxroute.core.rewards import Rewards
from jaxroute.core.types import Leaf, priced
from jaxroute.estimators.links import IDENTITY, Link
from jaxroute.problems.contextual.types import (
    METRICS,
    SERVED_METRICS,
    TABLE_METRICS,
    ContextualSpec,
    LoggedRequest,
    ReplayFeedback,
    ServedSpec,
)
from jaxroute.sources.distributions import Bernoulli, DrawFunction, Gaussian
from jaxroute.sources.rows import random_order, row_in_order
from jaxroute.sources.served import ServedRequests

# Order `[Q]` of the rows of a table, `()` if rows are drawn with replacement.
Order = Array | tuple[()]


@struct.dataclass
class UniformContexts:
    """Contexts with independent entries, uniform on `[-1, 1] / sqrt(d)`; their norm is at most 1.

    Attributes:
      dim: dimension `d` (static).
      rows: number of contexts in a round, 1 if all models have the same, otherwise one for each model (static).
      intercept: whether the first entry is constant, `1 / sqrt(d)` (static).
    """

    dim: int = struct.field(pytree_node=False)
    rows: int = struct.field(pytree_node=False, default=1)
    intercept: bool = struct.field(pytree_node=False, default=False)

    def check(self) -> None:
        checks.count("dim", self.dim)
        checks.count("rows", self.rows)

    def draw(self, key: Array) -> Array:
        """Draws the contexts `[rows, d]` of a round."""
        scale = np.float32(1.0 / np.sqrt(self.dim))
        x = scale * (2.0 * draws.uniform(key, (self.rows, self.dim)) - 1.0)
        return jnp.where(jnp.arange(self.dim) == 0, scale, x) if self.intercept else x

    def sample(self, number: int) -> np.ndarray:
        """Returns the contexts `[number, rows, d]` of `number` rounds as a NumPy array, the same in every call."""
        x = np.random.default_rng(0).uniform(-1.0, 1.0, (number, self.rows, self.dim))
        if self.intercept:
            x[..., 0] = 1.0
        return x / np.sqrt(self.dim)


@struct.dataclass
class ContextualEnv:
    """Bandit whose expected rewards are `link(theta_k . x_k)`, generalised linear in the context.

    It covers both settings of the literature. With one context for all models, `x_k = x`, each model has a separate parameter vector (Li et al.,
    2010, disjoint); with a separate context for each model, all can have the same parameter vector (Chu et al., 2011).

    One random number per round drives the rewards of all models; only the chosen model's is observed.

    Attributes:
      contexts: distribution of the contexts `x`.
      theta: `[K, d]`, one parameter vector for each model, or `[1, d]`, the same for all.
      average: `[K]` expected reward of each model, averaged over all contexts, for `BestSingle`.
      scale: `[]` standard deviation of the noise (Gaussian distribution).
      num_models: number of models, `K` (static).
      link: link function of the linear predictor (static).
      distribution: reward distribution of `jaxroute.sources.distributions`, or a function `(key, mean, scale) -> rewards [K]` (static).
    """

    contexts: UniformContexts
    theta: Leaf
    average: Leaf
    scale: Leaf
    num_models: int = struct.field(pytree_node=False)
    link: Link = struct.field(pytree_node=False, default=IDENTITY)
    distribution: DrawFunction = struct.field(pytree_node=False, default=Gaussian())

    @property
    def spec(self) -> ContextualSpec:
        dim, rows = self.contexts.dim, self.contexts.rows
        return ContextualSpec(self.num_models, metrics=METRICS, zero_flows=("illegal",), dim=dim, rows=rows)

    def check(self) -> None:
        self.contexts.check()
        theta = checks.numbers("theta", self.theta)
        if theta.ndim != 2 or theta.shape[1] != self.contexts.dim or theta.shape[0] not in (1, self.num_models):
            raise ValueError(f"theta must have shape [{self.num_models} or 1, {self.contexts.dim}], got {theta.shape}")
        if self.contexts.rows not in (1, self.num_models):
            raise ValueError(f"contexts must have 1 or {self.num_models} rows, one per model, got {self.contexts.rows}")
        checks.non_negative("scale", self.scale, ())

    def rewards(self) -> Rewards | None:
        """Returns range and noise of the rewards, to check assumptions of policies; None if `distribution` is the user's function."""
        if self.distribution != Gaussian():
            return Rewards.unit("Bernoulli", 1.0) if isinstance(self.distribution, Bernoulli) else None
        # The norm of a context is at most 1.
        longest = float(np.linalg.norm(np.asarray(self.theta, np.float64), axis=-1).max())
        low, high = (float(self.link.value(jnp.float32(x))) for x in (-longest, longest))
        return Rewards.normal(low, high, float(self.scale))

    def means(self, features: Array) -> Array:
        """Returns the expected reward of each model, `[K]`, given the contexts `[rows, d]` of a round."""
        predictor = numerics.combine(features.T, jnp.asarray(self.theta).T)
        return self.link.value(jnp.broadcast_to(predictor, (self.num_models,)))

    def init(self, key: Array) -> tuple[()]:
        del key
        return ()

    def observe(self, key: Array, state: tuple[()], t: Array) -> Array:
        del state, t
        return self.contexts.draw(draws.fold_in(key, 0))

    def step(self, key: Array, state: tuple[()], action: Array, t: Array) -> Transition[tuple[()], Array]:
        means = self.means(self.observe(key, state, t))
        chosen = numerics.one_hot(action, self.num_models)
        reward = numerics.pick(chosen, self.distribution(draws.fold_in(key, 1), means, self.scale))
        flows = {
            "regret": jnp.max(means) - numerics.pick(chosen, means),
            "reward": reward,
            "pulls": chosen.astype(jnp.float32),
            "illegal": (~jnp.any(chosen)).astype(jnp.float32),  # There is no such model.
        }
        return state, reward, flows


@struct.dataclass
class TableEnv:
    """Routing of recorded queries as a contextual bandit: features of the query are the context, score minus weighted cost is the reward.

    A row has the outcomes of all models on a query; only that of the chosen model is observed. The expected rewards given the features are unknown,
    so that three benchmarks replace the optimum: the best model of each query, which is out of reach of any policy; the linear predictor fitted to
    all rows, which is about the best that a linear policy can do; and the best single model.

    Attributes:
      features: `[Q, d]` contexts.
      scores, costs: `[Q, K]` score, in [0, 1], and cost of every model on every query.
      cost_weight: `[]` score per unit of cost.
      fit: `[d, K]` coefficients of the linear predictor, fitted to the rewards of all rows by least squares.
      average: `[K]` mean reward of each model.
      one_pass: whether each row is used once, in a random order, before any is repeated; otherwise rows are drawn with replacement (static).
      names, currency: names of the models, and unit of costs (static).
    """

    features: Leaf
    scores: Leaf
    costs: Leaf
    cost_weight: Leaf
    fit: Leaf
    average: Leaf
    one_pass: bool = struct.field(pytree_node=False, default=True)
    names: tuple[str, ...] = struct.field(pytree_node=False, default=())
    currency: str = struct.field(pytree_node=False, default="cost")

    @property
    def spec(self) -> ContextualSpec:
        return ContextualSpec(
            num_models=self.scores.shape[-1],
            model_names=self.names,
            metrics=priced(TABLE_METRICS, self.currency),
            zero_flows=("illegal",),
            dim=self.features.shape[-1],
        )

    @property
    def num_queries(self) -> int:
        return self.features.shape[0]

    def check(self) -> None:
        shape = np.shape(checks.probability("scores", self.scores))
        checks.non_negative("costs", self.costs, shape)
        checks.non_negative("cost_weight", self.cost_weight, ())
        checks.numbers("features", self.features, (shape[0], "d"))

    def rewards(self) -> Rewards:
        """Returns range and noise of the rewards, to check assumptions of policies; the noise is the largest standard deviation of a model."""
        values = np.asarray(self.scores, np.float64) - float(self.cost_weight) * np.asarray(self.costs, np.float64)
        low, high = float(values.min()), float(values.max())
        return Rewards("recorded", low, high, float(values.std(axis=0).max()), high - low, float(values.mean(axis=0).max()))

    def init(self, key: Array) -> Order:
        return random_order(key, self.num_queries) if self.one_pass else ()

    def row(self, key: Array, state: Order, t: Array) -> Array:
        """Returns the index of round `t`'s row. It is drawn by `key` if `state` is `()`, else read from the random order `state`, which repeats."""
        return draws.randint(key, self.num_queries) if isinstance(state, tuple) else row_in_order(state, t)

    def observe(self, key: Array, state: Order, t: Array) -> Array:
        return jnp.asarray(self.features)[self.row(key, state, t)][None]

    def step(self, key: Array, state: Order, action: Array, t: Array) -> Transition[Order, Array]:
        row = self.row(key, state, t)
        x, score, cost = (jnp.asarray(table)[row] for table in (self.features, self.scores, self.costs))
        rewards = score - self.cost_weight * cost
        linear = numerics.argmax(numerics.project(x, jnp.asarray(self.fit)))
        single = numerics.argmax(jnp.asarray(self.average))
        chosen, by_rule, always = (numerics.one_hot(k, rewards.shape[-1]) for k in (action, linear, single))
        reward = numerics.pick(chosen, rewards)
        flows = {
            "regret": jnp.max(rewards) - reward,
            "linear_regret": numerics.pick(by_rule, rewards) - reward,
            "single_regret": numerics.pick(always, rewards) - reward,
            "reward": reward,
            "score": numerics.pick(chosen, score),
            "cost": numerics.pick(chosen, cost),
            "pulls": chosen.astype(jnp.float32),
            "illegal": (~jnp.any(chosen)).astype(jnp.float32),  # There is no such model.
        }
        return state, reward, flows


@struct.dataclass
class ServedState:
    """State of a replay.

    Attributes:
      order: `[Q]` int32, events of the run, first those that it retains.
      retained: `[]` int32, number of events that it retains.
      accepted: `[]` int32, number of requests that the policy has served.
    """

    order: Array
    retained: Array
    accepted: Array


@struct.dataclass
class ServedEnv:
    """Replay of served requests: a policy is evaluated without bias on a log in which one model answered each query, chosen by known probabilities.

    A round is an event of the log: a query with context `x`, the model that answered, its reward, and the probability (propensity) `p` of this choice.
    The event is accepted if the policy chooses the model that answered, and with probability `floor / p`. Other events are discarded: they do not
    count, and a `ReplayedPolicy` does not learn from them. The first `rounds` accepted events count.

    The accepted events are distributed like rounds with the real models, for each policy, under four conditions: queries are independent and have one
    distribution; propensities are right (they may depend on the query and on earlier requests); each model has at least the probability `floor` on
    each query; and almost every run reaches `rounds`. Then `reward / accepted` is an unbiased estimate of the policy's mean reward in its first
    `rounds` rounds. About `Q floor` of `Q` events are accepted, whatever the policy: this is the longest horizon that a log can evaluate. The metric
    `complete` is below 1 if runs did not reach `rounds`; their results are biased.

    Source: Li, Chu, Langford and Wang (2011), Algorithm 2 and Theorem 1 (of Algorithm 1, with an endless log).

    Differs from the paper: propensities need not be uniform. Rejection by `floor / p`, which does not depend on the policy, is decided for the whole
    log before the first round. Runs on one log share its noise; a standard error over runs does not contain it. With bootstrap samples of the log
    (Mary, Preux and Nicol, 2014) it does, but each repeats events, from which a policy may learn too much.

    Attributes:
      log: requests, models, rewards and probabilities.
      contexts: `[Q, d]` contexts of the requests.
      rounds: number of accepted events that count, the effective horizon (static).
    """

    log: ServedRequests
    contexts: Leaf
    rounds: int = struct.field(pytree_node=False)

    @property
    def spec(self) -> ServedSpec:
        return ServedSpec(
            num_models=self.log.num_models,
            model_names=self.log.names,
            metrics=priced(SERVED_METRICS, self.log.currency),
            zero_flows=("illegal",),
            dim=self.contexts.shape[-1],
            rounds=self.rounds,
        )

    @property
    def num_rounds(self) -> int:
        """Number of rounds to simulate, after which almost every run has used all events that it retains; there are no more than `Q`."""
        return self.log.num_rounds

    def check(self) -> None:
        self.log.check()
        checks.numbers("contexts", self.contexts, (self.log.num_requests, "d"))
        checks.count("rounds", self.rounds, 1, self.log.num_requests)

    def rewards(self) -> Rewards:
        """Returns range and noise of the log's rewards, to check assumptions of policies."""
        return self.log.rewards()

    def init(self, key: Array) -> ServedState:
        return ServedState(*self.log.draw(key), accepted=jnp.int32(0))

    def observe(self, key: Array, state: ServedState, t: Array) -> LoggedRequest:
        del key
        return LoggedRequest(jnp.asarray(self.contexts)[row_in_order(state.order, t)][None], state.accepted)

    def step(self, key: Array, state: ServedState, action: Array, t: Array) -> Transition[ServedState, ReplayFeedback]:
        del key
        event = row_in_order(state.order, t)
        agrees = action == numerics.at(jnp.asarray(self.log.chosen), (event,))
        accepted = agrees & (t < state.retained) & (state.accepted < self.rounds)
        _, flows = self.log.outcome(event, action, accepted)
        state = state.replace(accepted=state.accepted + accepted.astype(jnp.int32))
        return state, ReplayFeedback(flows["reward"], accepted), flows

    def gauges(self, state: ServedState) -> dict[str, Array]:
        return {"complete": (state.accepted >= self.rounds).astype(jnp.float32)}
