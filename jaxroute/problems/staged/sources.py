"""Where a query's rewards and costs come from: parametric distributions, or the rows of a table.

One standard normal shock drives all models (and two the token lengths): as only one model is seen per round, the distribution of a run is
that of independent models, draws are few, and two policies that differ in a few rounds meet the same luck.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.scipy.special import ndtr

from jaxroute.core import checks, draws
from jaxroute.core.types import Leaf


class Distribution(Protocol):
    """A random number with a given mean.

    Attributes:
      num_shocks: standard normal numbers that one draw needs.
    """

    num_shocks: ClassVar[int]

    def __call__(self, shock: jax.Array, mean: Leaf, scale: Leaf) -> jax.Array:
        """Values `[N]` for shocks `[num_shocks]`, means `[N]` and a scale `[]`."""
        ...


class Outcomes(Protocol):
    """Rewards and costs of all models, round by round."""

    @property
    def reward_mean(self) -> Leaf:
        """`[N]` expected reward of each model."""
        ...

    @property
    def cost_mean(self) -> Leaf:
        """`[N]` expected cost of each model."""
        ...

    def check(self) -> None:
        """Raises `ValueError` on values out of range."""
        ...

    def init(self, key: jax.Array) -> Any:
        """State of the source before the first round."""
        ...

    def draw(self, key: jax.Array, state: Any, t: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Rewards `[N]` and costs `[N]` of round `t`."""
        ...


@dataclass(frozen=True)
class Gaussian:
    """`mean + scale * z`; values may leave [0, 1].

    Attributes:
      relative: multiply the noise by the mean.
      clip: bounds of the value, None for none.
    """

    relative: bool = False
    clip: tuple[float, float] | None = None
    num_shocks: ClassVar[int] = 1

    def __call__(self, shock: jax.Array, mean: Leaf, scale: Leaf) -> jax.Array:
        value = mean * (1.0 + scale * shock[0]) if self.relative else mean + scale * shock[0]
        return value if self.clip is None else jnp.clip(value, *self.clip)


@dataclass(frozen=True)
class Bernoulli:
    """1 with probability `mean`, else 0."""

    num_shocks: ClassVar[int] = 1

    def __call__(self, shock: jax.Array, mean: Leaf, scale: Leaf) -> jax.Array:
        del scale
        return (ndtr(shock[0]) < mean).astype(jnp.float32)


@dataclass(frozen=True)
class LogNormal:
    """Log-normal with the given mean and coefficient of variation `scale`."""

    num_shocks: ClassVar[int] = 1

    def __call__(self, shock: jax.Array, mean: Leaf, scale: Leaf) -> jax.Array:
        variance = jnp.log1p(scale**2)
        return mean * jnp.exp(jnp.sqrt(variance) * shock[0] - variance / 2)


@dataclass(frozen=True)
class Fixed:
    """The mean itself."""

    num_shocks: ClassVar[int] = 0

    def __call__(self, shock: jax.Array, mean: Leaf, scale: Leaf) -> jax.Array:
        del shock, scale
        return mean


@dataclass(frozen=True)
class TokenCost:
    """Cost proportional to the tokens of a query: input and output lengths are log-normal with coefficient of variation `scale`.

    The output is capped, and the cost is scaled so that its mean is the table's. Lengths are shared by all models.

    An alternative to the noise of `arena_market` (`cost_distribution=TokenCost()`), for a user who knows the lengths of the queries; no
    experiment uses it.

    Source: the cost model of StageRoute, section 3; the length distributions are ours, for Table 1 gives one price per model.

    Attributes:
      mean_input: tokens of a query.
      mean_output: tokens of an answer, before the cap.
      cap_output: most tokens of an answer.
    """

    mean_input: float = 300.0
    mean_output: float = 500.0
    cap_output: float = 4096.0
    num_shocks: ClassVar[int] = 2

    def __call__(self, shock: jax.Array, mean: Leaf, scale: Leaf) -> jax.Array:
        variance = jnp.log1p(scale**2)
        sigma = jnp.sqrt(variance)
        tokens_in = self.mean_input * jnp.exp(sigma * shock[0] - variance / 2)
        tokens_out = jnp.minimum(self.mean_output * jnp.exp(sigma * shock[1] - variance / 2), self.cap_output)
        # E min(X, cap) of a log-normal X.
        z = (math.log(self.cap_output / self.mean_output) + variance / 2) / jnp.maximum(sigma, 1e-6)
        mean_out = self.mean_output * ndtr(z - sigma) + self.cap_output * (1.0 - ndtr(z))
        return mean * (tokens_in + tokens_out) / (self.mean_input + mean_out)


@struct.dataclass
class ParametricOutcomes:
    """Rewards and costs drawn from parametric distributions around fixed means.

    Attributes:
      reward_mean: `[N]` expected rewards.
      cost_mean: `[N]` expected costs.
      reward_noise: `[]` scale of the distribution of the rewards.
      cost_noise: `[]` scale of the distribution of the costs.
      reward_distribution: distribution of this module (static).
      cost_distribution: distribution of this module (static).
    """

    reward_mean: Leaf
    cost_mean: Leaf
    reward_noise: Leaf
    cost_noise: Leaf
    reward_distribution: Distribution = struct.field(pytree_node=False, default=Gaussian())
    cost_distribution: Distribution = struct.field(pytree_node=False, default=Gaussian(relative=True))

    def check(self) -> None:
        size = np.shape(self.reward_mean)
        checks.probability("reward_mean", self.reward_mean)  # Policies know that mean rewards are in [0, 1].
        checks.non_negative("cost_mean", self.cost_mean, size)
        checks.non_negative("reward_noise", self.reward_noise, ())
        checks.non_negative("cost_noise", self.cost_noise, ())

    def init(self, key: jax.Array) -> tuple[()]:
        del key
        return ()

    def draw(self, key: jax.Array, state: tuple[()], t: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Rewards `[N]` and costs `[N]` of round `t`."""
        del state, t
        split = self.reward_distribution.num_shocks
        shock = draws.normal(key, (split + self.cost_distribution.num_shocks,))
        reward = self.reward_distribution(shock[:split], self.reward_mean, self.reward_noise)
        return reward, self.cost_distribution(shock[split:], self.cost_mean, self.cost_noise)


@struct.dataclass
class TableOutcomes:
    """Rewards and costs of a table's queries: one row per round.

    Attributes:
      scores: `[Q, N]` reward of every model on every query.
      costs: `[Q, N]` cost of every model on every query.
      reward_mean: `[N]` mean of each column of `scores`.
      cost_mean: `[N]` mean of each column of `costs`.
      permute: play the rows in a random order, each once before any is repeated, instead of drawing with replacement (static).
    """

    scores: Leaf
    costs: Leaf
    reward_mean: Leaf
    cost_mean: Leaf
    permute: bool = struct.field(pytree_node=False, default=False)

    def check(self) -> None:
        checks.probability("scores", self.scores)
        checks.non_negative("costs", self.costs, np.shape(self.scores))

    def init(self, key: jax.Array) -> jax.Array | tuple[()]:
        if not self.permute:
            return ()
        return jax.random.permutation(key, self.scores.shape[0]).astype(jnp.int32)

    def draw(self, key: jax.Array, state: Any, t: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Rewards `[N]` and costs `[N]` of round `t`."""
        rows = self.scores.shape[0]
        row = state[t % rows] if self.permute else draws.randint(key, rows)
        return self.scores[row], self.costs[row]
