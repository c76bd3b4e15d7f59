"""Environments of K-armed stochastic bandits with fixed or changing mean rewards; only the reward of the chosen model is observed."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics
from jaxroute.core.protocols import Flows, Transition
from jaxroute.core.rewards import Rewards
from jaxroute.core.types import Leaf, Spec
from jaxroute.problems.stochastic.sources import MeanPath
from jaxroute.problems.stochastic.types import METRICS
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
