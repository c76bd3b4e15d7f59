"""Environments of K-armed stochastic bandits with fixed, changing or recorded rewards; only the reward of the chosen model is observed."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics
from jaxroute.core.protocols import Flows, Transition
from jaxroute.core.rewards import Rewards
from jaxroute.core.types import Leaf, Spec, priced
from jaxroute.problems.stochastic.sources import MeanPath
from jaxroute.problems.stochastic.types import METRICS
from jaxroute.sources import served
from jaxroute.sources.distributions import Bernoulli, Distribution, DrawFunction


@struct.dataclass
class BanditEnv:
    """K-armed bandit with fixed means.

    One random number per round determines the rewards of all models. Only one reward is observed, so a run has the same distribution as with
    independent rewards, while all policies have common random numbers, which makes comparisons more precise.

    Attributes:
      mean: `[K]` expected reward of each model.
      scale: `[]` standard deviation (Gaussian distribution), or concentration (beta distribution).
      distribution: reward distribution of `jaxroute.sources.distributions`, or a function `(key, mean, scale) -> rewards [K]` (static).
    """

    mean: Leaf
    scale: Leaf
    distribution: DrawFunction = struct.field(pytree_node=False, default=Bernoulli())

    @property
    def spec(self) -> Spec:
        return Spec(num_models=self.mean.shape[-1], metrics=METRICS, zero_flows=("illegal",))

    def check(self) -> None:
        checks.numbers("mean", self.mean, ("K",))
        scale = float(checks.non_negative("scale", self.scale, ()))
        if isinstance(self.distribution, Distribution):
            self.distribution.check_mean("mean", self.mean, scale)

    def rewards(self) -> Rewards | None:
        """Returns range and noise of all models' rewards, to check assumptions of policies; None if `distribution` is the user's function."""
        if not isinstance(self.distribution, Distribution):
            return None
        mean = np.asarray(self.mean, np.float64)
        return self.distribution.rewards(float(mean.min()), float(mean.max()), float(self.scale or 0.0))

    def init(self, key: Array) -> tuple[()]:
        del key
        return ()

    def observe(self, key: Array, state: tuple[()], t: Array) -> tuple[()]:
        del key, state, t
        return ()

    def step(self, key: Array, state: tuple[()], action: Array, t: Array) -> Transition[tuple[()], Array]:
        del t
        reward, flows = _drawn(self.distribution, key, self.mean, self.scale, action)
        return state, reward, flows


@struct.dataclass
class ChangingEnv:
    """K-armed bandit whose means change; in each round regret is relative to the model with the largest mean in that round.

    Attributes:
      path: means of every round, a `MeanPath`, for example `Pieces(means, starts)`.
      scale, distribution: `[]` standard deviation (Gaussian) or concentration (beta) of the rewards, and their distribution (static).
    """

    path: MeanPath
    scale: Leaf
    distribution: DrawFunction = struct.field(pytree_node=False, default=Bernoulli())

    @property
    def spec(self) -> Spec:
        return Spec(num_models=self.path.num_models, metrics=METRICS, zero_flows=("illegal",))

    def check(self) -> None:
        checks.part("path", self.path, "move", "Pieces(means, starts)")
        checks.non_negative("scale", self.scale, ())

    def rewards(self) -> Rewards | None:
        """Returns range and noise of Bernoulli rewards, to check policies' assumptions; None for other distributions, so that nothing is checked."""
        return self.distribution.rewards(0.0, 1.0, 0.0) if isinstance(self.distribution, Bernoulli) else None

    def init(self, key: Array) -> Any:
        return self.path.init(key)

    def observe(self, key: Array, state: Any, t: Array) -> tuple[()]:
        del key, state, t
        return ()

    def step(self, key: Array, state: Any, action: Array, t: Array) -> Transition[Any, Array]:
        k_reward, k_move = draws.split(key)
        reward, flows = _drawn(self.distribution, k_reward, self.path.mean(state, t), self.scale, action)
        return self.path.move(k_move, state, t), reward, flows


def _drawn(distribution: DrawFunction, key: Array, mean: Array, scale: Leaf, action: Array) -> tuple[Array, Flows]:
    chosen = numerics.one_hot(action, mean.shape[-1])
    reward = numerics.pick(chosen, distribution(key, mean, scale))
    return reward, {
        "regret": jnp.max(mean) - numerics.pick(chosen, mean),
        "reward": reward,
        "pulls": chosen.astype(jnp.float32),
        "illegal": (~jnp.any(chosen)).astype(jnp.float32),  # There is no such model.
    }


@struct.dataclass
class QueueState:
    """State of a replay by queues.

    Attributes:
      order: `[Q]` int32, events of the run: the queue of each model in turn, then those that it does not retain.
      start: `[K]` int32, place of each queue in `order`.
      size: `[K]` int32, length of each queue.
      pulls: `[K]` int32, times each model was chosen.
      running: `[]` bool, whether no chosen queue was empty.
    """

    order: Array
    start: Array
    size: Array
    pulls: Array
    running: Array


@struct.dataclass
class ServedEnv:
    """Replay of served requests by queues: a policy without context is evaluated on a log in which one model answered each query.

    Each model has a queue of its logged rewards, in random order; a policy that chooses the model gets the next one. The run ends when the queue of
    the chosen model is empty: no later round counts, also of models with other queues, and the policy's state has no more meaning (the queues are
    repeated). `accepted` is the number of rounds before, `reward / accepted` their mean reward.

    If the log chose models by the query, a model's rewards are no sample of all queries. An event with propensity `p` therefore enters the queue with
    probability `floor / p` (`floor`: smallest propensity, by default separately for each model). Constant propensities leave the queues complete.

    Rounds are distributed like those with the real models, for each policy, under four conditions: queries are independent and have one distribution;
    propensities are right (they may depend on the query and on earlier requests); each model has at least the probability `floor` on each query; and
    almost no run ends before its horizon, so that `accepted` is the horizon. Each policy reaches the length of the shortest queue, about `Q floor`; a
    policy that divides its choices reaches more. Means over runs that have not ended are biased, because the policy's choices decide which runs end.

    Source: Mandel, Liu, Brunskill and Popovic (2016), the queue-based evaluator, with one context.

    Differs from the paper: propensities may depend on the query. Runs on one log share its noise; a standard error over runs contains it only with
    bootstrap samples, which repeat events.

    Attributes:
      log: models, rewards and probabilities of the requests.
    """

    log: served.ServedRequests

    @property
    def spec(self) -> Spec:
        metrics = priced(served.METRICS, self.log.currency)
        return Spec(self.log.num_models, model_names=self.log.names, metrics=metrics, zero_flows=("illegal",))

    def check(self) -> None:
        self.log.check()

    def rewards(self) -> Rewards:
        """Returns range and noise of the log's rewards, to check assumptions of policies."""
        return self.log.rewards()

    def init(self, key: Array) -> QueueState:
        order, retained = self.log.draw(key)
        number = self.log.num_models
        model = jnp.where(jnp.arange(order.shape[0]) < retained, jnp.asarray(self.log.chosen)[order], number)
        size = jnp.sum(model[:, None] == jnp.arange(number), axis=0, dtype=jnp.int32)
        start = jnp.cumsum(size, dtype=jnp.int32) - size
        order = order[jnp.argsort(model, stable=True)]
        return QueueState(order, start, size, pulls=jnp.zeros((number,), jnp.int32), running=jnp.bool_(True))

    def observe(self, key: Array, state: QueueState, t: Array) -> tuple[()]:
        del key, state, t
        return ()

    def step(self, key: Array, state: QueueState, action: Array, t: Array) -> Transition[QueueState, Array]:
        del key, t
        chosen = numerics.one_hot(action, self.log.num_models)
        start, size, pulls = (numerics.pick(chosen, x) for x in (state.start, state.size, state.pulls))
        running = state.running & (pulls < size)
        event = numerics.at(state.order, (start + pulls % jnp.maximum(size, 1),))
        reward, flows = self.log.outcome(event, action, running)
        return state.replace(pulls=state.pulls + chosen.astype(jnp.int32), running=running), reward, flows
