"""K-armed stochastic bandit: only the chosen model's reward is seen; its distribution is fixed, or its mean changes."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import checks, draws, numerics
from jaxroute.core.rewards import Rewards
from jaxroute.core.types import Leaf, Spec
from jaxroute.problems.stochastic.sources import Path as MeanPath
from jaxroute.problems.stochastic.sources import (
    PoissonDistribution,
    bernoulli_distribution,
    beta_distribution,
    exponential_distribution,
    gaussian_distribution,
)
from jaxroute.problems.stochastic.types import METRICS

# Poisson rewards of a larger mean would take hundreds of terms in every round.
MOST_COUNTS = 64


@struct.dataclass
class BanditEnv:
    """A K-armed bandit with fixed means.

    The rewards of all models are drawn in every round from one shared shock. As only one of them is seen, the distribution of a run is that
    of independent rewards, while two policies that differ in a few rounds meet the same luck (smaller error of differences).

    Attributes:
      mean: `[K]` expected reward of each model.
      scale: `[]` standard deviation of the noise (Gaussian distribution), or concentration (beta distribution).
      distribution: reward distribution, `(key, mean, scale) -> rewards [K]` (static).
    """

    mean: Leaf
    scale: Leaf
    distribution: Callable[[jax.Array, Leaf, Leaf], jax.Array] = struct.field(
        pytree_node=False, default=bernoulli_distribution
    )

    @property
    def spec(self) -> Spec:
        return Spec(num_models=self.mean.shape[-1], metrics=METRICS, zero_flows=("illegal",))

    def check(self) -> None:
        if np.ndim(self.mean) != 1 or np.size(self.mean) < 1:
            raise ValueError(f"mean must have shape [K] with K >= 1, got shape {np.shape(self.mean)}")
        check_means(self.distribution, "mean", self.mean, self.scale)

    def rewards(self) -> Rewards | None:
        """Rewards of the means and the distribution; None with a function of the user's as `distribution`."""
        return _rewards(self.distribution, np.asarray(self.mean, np.float64), float(self.scale or 0.0))

    def init(self, key: jax.Array) -> tuple[()]:
        del key
        return ()

    def observe(self, key: jax.Array, state: tuple[()], t: jax.Array) -> tuple[()]:
        del key, state, t
        return ()

    def step(
        self, key: jax.Array, state: tuple[()], action: jax.Array, t: jax.Array
    ) -> tuple[tuple[()], jax.Array, dict[str, jax.Array]]:
        del t
        reward, flows = _played(self.distribution, key, self.mean, self.scale, action)
        return state, reward, flows


@struct.dataclass
class ChangingEnv:
    """A K-armed bandit whose means change; regret is against the best model of each round.

    Attributes:
      path: how the means change, for example `Pieces(means, starts)`.
      scale: `[]` as for `BanditEnv`.
      distribution: likewise (static).
    """

    path: MeanPath
    scale: Leaf
    distribution: Callable[[jax.Array, Leaf, Leaf], jax.Array] = struct.field(
        pytree_node=False, default=bernoulli_distribution
    )

    @property
    def spec(self) -> Spec:
        return Spec(num_models=self.path.num_models, metrics=METRICS, zero_flows=("illegal",))

    def check(self) -> None:
        checks.part("path", self.path, "move", "Pieces(means, starts)")
        checks.non_negative("scale", self.scale, ())

    def rewards(self) -> Rewards | None:
        """Rewards of means that change: known where they are 0 and 1, else None."""
        return _rewards(self.distribution, np.ones(1), 0.0) if self.distribution is bernoulli_distribution else None

    def init(self, key: jax.Array) -> Any:
        return self.path.init(key)

    def observe(self, key: jax.Array, state: Any, t: jax.Array) -> tuple[()]:
        del key, state, t
        return ()

    def step(
        self, key: jax.Array, state: Any, action: jax.Array, t: jax.Array
    ) -> tuple[Any, jax.Array, dict[str, jax.Array]]:
        k_reward, k_move = draws.split(key)
        reward, flows = _played(self.distribution, k_reward, self.path.mean(state, t), self.scale, action)
        return self.path.move(k_move, state, t), reward, flows


def check_means(distribution: Any, name: str, means: Any, scale: Any) -> None:
    """That a distribution can have these means.

    Args:
      distribution: of rewards.
      name: of the argument that holds the means.
      means: array of any shape.
      scale: the distribution's other number.
    """
    value = checks.non_negative("scale", scale, ())
    if distribution is bernoulli_distribution:
        checks.probability(name, means)
    elif distribution is beta_distribution:
        least = np.min(np.minimum(checks.probability(name, means), 1.0 - np.asarray(means, np.float64))) * value
        if least < 1.0 - 1e-5:
            raise ValueError(
                f"concentration times {name}, and times 1 - {name}, must be at least 1, got {least:g} with concentration {value:g}"
            )
    elif distribution is exponential_distribution:
        checks.positive(name, means)
    elif isinstance(distribution, PoissonDistribution) and np.max(checks.non_negative(name, means)) > MOST_COUNTS:
        raise ValueError(f"{name} must be at most {MOST_COUNTS} for counts, got {np.max(means):g}")
    checks.numbers(name, means)


def _rewards(distribution: Any, mean: np.ndarray, scale: float) -> Rewards | None:
    """Rewards with these means."""
    top = float(mean.max())
    if distribution is gaussian_distribution:
        return Rewards.normal(float(mean.min()), top, scale)
    if distribution is bernoulli_distribution or distribution is beta_distribution:
        return Rewards.unit("Bernoulli" if distribution is bernoulli_distribution else "beta", top)
    name = (
        "exponential"
        if distribution is exponential_distribution
        else "Poisson"
        if isinstance(distribution, PoissonDistribution)
        else ""
    )
    return Rewards(name, 0.0, np.inf, np.inf, np.inf, top) if name else None


def _played(
    distribution: Callable[[jax.Array, Leaf, Leaf], jax.Array],
    key: jax.Array,
    mean: jax.Array,
    scale: Leaf,
    action: jax.Array,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Reward and flows of a round with these means."""
    chosen = numerics.one_hot(action, mean.shape[-1])
    reward = numerics.pick(chosen, distribution(key, mean, scale))
    return reward, {
        "regret": jnp.max(mean) - numerics.pick(chosen, mean),
        "reward": reward,
        "pulls": chosen.astype(jnp.float32),
        "illegal": (~jnp.any(chosen)).astype(jnp.float32),  # There is no such model.
    }
