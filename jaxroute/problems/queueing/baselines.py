"""Baseline policies: a random one, Q-UCB and Q-ThS, which ignore contexts and serve the oldest query, and CQB-eps, from which ACQB was developed."""

import abc
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import FixedPolicy, FixedState, Leaf
from jaxroute.problems.queueing.acqb import ACQB
from jaxroute.problems.queueing.parts.scheduling import place_of_rank
from jaxroute.problems.queueing.parts.triggers import PhaseThenCoin
from jaxroute.problems.queueing.types import Action, Decision, Feedback, Observation, QueueSpec
from jaxroute.solvers.assortment import best_models


@struct.dataclass
class Random(FixedPolicy):
    """Serves a random waiting query with a random assortment (set of models), both uniformly distributed. Source: ACQB, appendix B.3."""

    def act(self, key: Array, state: FixedState, obs: Observation, t: Array) -> Decision:
        k_query, k_models = draws.split(key)
        length = obs.queue_length.astype(jnp.float32)
        rank = jnp.minimum(jnp.floor(draws.uniform(k_query) * length).astype(jnp.int32), obs.queue_length - 1)
        query = place_of_rank(obs, rank, t)
        offered = best_models(draws.uniform(k_models, (state.spec.num_models,)), state.spec.num_offered)
        return Action(query=query, offered=offered, explored=jnp.zeros((), bool)), {}


@struct.dataclass
class QueueBanditState:
    """State of the baselines Q-UCB and Q-ThS for `N` models.

    Attributes:
      pulls: `[N]` int32, number of rounds in which each model served a query.
      wins: `[N]` int32, number of accepted answers of each model.
    """

    pulls: Array
    wins: Array


@struct.dataclass
class _QueueBandit(abc.ABC):
    """Base class of Q-UCB and Q-ThS, which serve the oldest query by one of `N` models.

    In round `t` (from 1) a random model serves with probability `min(1, scale N log(t)^2 / t)`, otherwise the model with the largest `_index`.

    Attributes:
      scale: `[]` factor of the exploration probability, 3 in the paper.
    """

    scale: Leaf = 3.0

    def check(self) -> None:
        checks.non_negative("scale", self.scale, ())

    def check_spec(self, spec: QueueSpec) -> None:
        if spec.num_offered != 1:
            raise ValueError(f"{type(self).__name__} shows one answer at a time, got an environment with {spec.num_offered}")

    def init(self, key: Array, spec: QueueSpec) -> QueueBanditState:
        del key
        zeros = jnp.zeros((spec.num_models,), jnp.int32)
        return QueueBanditState(pulls=zeros, wins=zeros)

    @abc.abstractmethod
    def _index(self, key: Array, state: QueueBanditState, time: Array) -> Array:
        """Returns the index of each of `N` models, `[N]`, in round `time` (from 1); the model with the largest index serves."""

    def act(self, key: Array, state: QueueBanditState, obs: Observation, t: Array) -> Decision:
        k_explore, k_model, k_index = draws.split(key, 3)
        number = state.pulls.shape[-1]
        time = (t + 1).astype(jnp.float32)
        probability = jnp.minimum(1.0, self.scale * number * jnp.square(jnp.log(time)) / time)
        explore = draws.uniform(k_explore) <= probability
        random = draws.randint(k_model, number)
        best = numerics.argmax(self._index(k_index, state, time))
        model = jnp.where(explore, random, best)
        action = Action(query=obs.oldest, offered=numerics.one_hot(model, number), explored=explore)
        return action, {"explore_probability": probability}

    def update(
        self, key: Array, state: QueueBanditState, obs: Observation, action: Action, feedback: Feedback, t: Array
    ) -> QueueBanditState:
        del key, t
        busy = obs.queue_length > 0
        return QueueBanditState(
            pulls=state.pulls + (action.offered & busy).astype(jnp.int32),
            wins=state.wins + (feedback.chosen & busy).astype(jnp.int32),
        )


@struct.dataclass
class QUCB(_QueueBandit):
    """Q-UCB: the index of a model is `mean + sqrt(log(t)^2 / (2 pulls))`, for the share `mean` of its answers that were accepted.

    The index of an unused model is infinite, and ties go to the lowest index. In the horizons of ACQB's experiments the probability of exploration is
    near 1, so that Q-UCB chooses its models almost at random.

    Source: Krishnasamy et al. (2021), Algorithm 1; ACQB, appendix B.3. Exploration is uniform here; neither paper specifies it.
    """

    def _index(self, key: Array, state: QueueBanditState, time: Array) -> Array:
        del key
        pulls = jnp.maximum(state.pulls, 1).astype(jnp.float32)
        bound = state.wins.astype(jnp.float32) / pulls + jnp.abs(jnp.log(time)) * jax.lax.rsqrt(2.0 * pulls)
        return jnp.where(state.pulls > 0, bound, jnp.inf)


@struct.dataclass
class QThS(_QueueBandit):
    """Q-ThS: the index of a model is a draw from the beta posterior of the probability that its answer is accepted.

    Source: Krishnasamy et al. (2021), Algorithm 2; ACQB, appendix B.3.
    """

    def _index(self, key: Array, state: QueueBanditState, time: Array) -> Array:
        del time
        wins, losses = (count.astype(jnp.float32) for count in (state.wins, state.pulls - state.wins))
        return draws.beta(key, wins + 1.0, losses + 1.0)


@struct.dataclass
class CQBEpsilon(ACQB):
    """CQB-eps: the estimator and Thompson sampling of `ACQB`, with exploration in a first phase and then with constant probability.

    `CQBEpsilon.of(env)` builds the policy for the horizon of an environment. The field `trigger` decides which arrivals are explored, and `c1` has no
    effect; the other fields are those of `ACQB`.

    Source: CQB-eps (Bae et al., 2026), Algorithm 1, as adapted in ACQB, appendix B.3.
    """

    @classmethod
    def of(cls, env: Any, **settings: Any) -> "CQBEpsilon":
        """Returns a policy with fields `settings` that explores in the first tenth of `env`'s rounds, then with probability `1 / sqrt(horizon)`."""
        if not hasattr(env, "spec"):
            raise ValueError(
                f"env must be a queue, got {checks.show(env)}; for a sampler the policy is `CQBEpsilon.of` itself"
            )
        return cls(**{"trigger": PhaseThenCoin.for_horizon(env.spec.rounds), **settings})

    def check(self) -> None:
        super().check()
        if not isinstance(self.trigger, PhaseThenCoin):
            shown = checks.show(self.trigger)
            raise ValueError(f"trigger must be PhaseThenCoin(...), got {shown}; use CQBEpsilon.of(environment)")
