"""Statistics that are updated round by round (means of all observations, sums over a sliding window of rounds), and confidence radii of means."""

import math
from typing import Self

import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.typing import ArrayLike

from jaxroute.core import draws, numerics, xla
from jaxroute.core.types import Leaf


@struct.dataclass
class RunningMean:
    """Running means of `K` quantities, updated value by value.

    Attributes:
      count: `[K]` int32 number of values.
      mean: `[K]` float32 means; zero without values.
      errors: rounding errors of `mean`, by name, which `numerics.accumulate` adds to the next change.
    """

    count: Array
    mean: Array
    errors: dict[str, Array]

    @classmethod
    def empty(cls, size: int) -> Self:
        """Returns the means of `size` quantities without values."""
        return cls.prior(0, 0.0, size)

    @classmethod
    def prior(cls, count: ArrayLike, mean: ArrayLike, size: int) -> Self:
        """Returns the means of `size` (`K`) quantities after `count` fictitious values equal to `mean`; `count` and `mean` are numbers or `[K]`."""
        counts = jnp.broadcast_to(jnp.asarray(count, jnp.int32), (size,))
        means = jnp.broadcast_to(jnp.asarray(mean, jnp.float32), (size,))
        means = jnp.where(counts > 0, means, 0.0)
        return cls(counts, means, numerics.no_errors(mean=means))

    def add(self, seen: Array, value: Array) -> Self:
        """Returns the means after a new `value` `[K]` of each quantity whose mask `seen` `[K]` is True."""
        count = self.count + seen.astype(jnp.int32)
        step = (value - self.mean) / jnp.maximum(count, 1).astype(jnp.float32)
        return numerics.accumulate(self, seen, mean=step).replace(count=count)

    def losses(self) -> Array:
        """Returns for each quantity the sum of `1 - value` over its values, `[K]`, accurate even if almost all values are 1."""
        return self.count.astype(jnp.float32) * jnp.maximum((1.0 - self.mean) - self.errors["mean"], 0.0)


@struct.dataclass
class WindowSums:
    """Choices and rewards of the last `W` rounds and their sums by model, updated in a time independent of `W`.

    It is a ring buffer: round `t` overwrites the entry at `t` modulo `W`.

    Attributes:
      pulls: `[K]` int32 number of uses of each model in the window.
      reward_sum: `[K]` float32 total reward of each model in the window.
      actions: `[W]` int32 model of each round; `K` for none.
      rewards: `[W]` float32 reward of each round.
      errors: rounding errors of `reward_sum`, by name, which `numerics.accumulate` adds to the next change.
      order: `[K]` int32 priorities that break ties between models: the smallest wins; None for the lowest index.
    """

    pulls: Array
    reward_sum: Array
    actions: Array
    rewards: Array
    errors: dict[str, Array]
    order: Array | None = None

    @classmethod
    def empty(cls, key: Array, num_models: int, window: int) -> Self:
        """Returns an empty window of `window` (`W`) rounds for `num_models` (`K`) models; `key` draws the order in which ties are broken."""
        zeros = jnp.zeros((num_models,), jnp.float32)
        return cls(
            pulls=jnp.zeros((num_models,), jnp.int32),
            reward_sum=zeros,
            actions=jnp.full((window,), num_models, jnp.int32),
            rewards=jnp.zeros((window,), jnp.float32),
            errors=numerics.no_errors(reward_sum=zeros),
            order=draws.order(key, num_models),
        )

    def add(self, action: Array, reward: Array, t: Array) -> Self:
        """Returns the window after round `t`, in which the model `action` earned `reward`; round `t - W` leaves the window."""
        place = (jnp.asarray(t, jnp.int32) % self.actions.shape[-1],)
        old_action, old_reward = xla.barrier((numerics.at(self.actions, place), numerics.at(self.rewards, place)))
        size = self.pulls.shape[-1]
        new, old = numerics.one_hot(action, size), numerics.one_hot(old_action, size)
        pulls = self.pulls + new.astype(jnp.int32) - old.astype(jnp.int32)
        added = numerics.accumulate(self, new, reward_sum=reward)
        added = numerics.accumulate(added, old, reward_sum=-old_reward)
        return added.replace(
            pulls=pulls,
            reward_sum=jnp.where(pulls > 0, added.reward_sum, 0.0),  # Without rounding errors of rewards that have left.
            actions=numerics.put(self.actions, place, action),
            rewards=numerics.put(self.rewards, place, reward),
        )


def bernstein_radius(mean: Array, count: Array, gamma: Leaf) -> Array:
    """Returns the radii `[...]`, `sqrt(gamma * mean / count) + gamma / count`, which are small for small means.

    A mean below zero (noise is not clipped) counts as zero under the root. Values far below 1, such as costs in dollars, get too large radii.

    Source: Kleinberg, Slivkins and Upfal (2008); Babaioff et al. (2015); StageRoute (arXiv 2506.17254), section 4, `f_rad`.

    Args:
      mean: `[...]` empirical mean of values in [0, 1].
      count: `[...]` number of values, at least 1.
      gamma: `[]` confidence parameter, of the order of the logarithm of an inverse failure probability.
    """
    return jnp.sqrt(gamma * jnp.maximum(mean, 0.0) / count) + gamma / count


def hoeffding_radius(count: ArrayLike, log_term: Leaf) -> Array:
    """Returns the radii `[...]`, `sqrt(log_term / (2 count))`, for means of values in [0, 1]; infinite for a count of zero.

    Source: Hoeffding (1963); with `log_term = log(2 pi^2 K t^3 / (3 delta))` C2MAB-V, Lemma 1.

    Args:
      count: `[...]` number of values.
      log_term: `[]` `log(2 / p)` for a failure with probability at most `p`. For radii that hold for all means and rounds, see `union_log_term`.
    """
    count = jnp.asarray(count).astype(jnp.float32)
    return jnp.where(count > 0, jnp.sqrt(log_term / (2.0 * jnp.maximum(count, 1.0))), jnp.inf)


def union_log_term(num_means: int | Array, t: ArrayLike, delta: Leaf) -> Array:
    """Returns `log(2 pi^2 K t^3 / (3 delta))`. With it, the Hoeffding radii of `K` means all hold in all rounds `t` with probability `1 - delta / 2`.

    Source: C2MAB-V, Lemma 1.

    Args:
      num_means: number of means, `K`.
      t: `[]` round, from 1.
      delta: `[]` twice the probability that any radius fails in any round.
    """
    return jnp.log(2.0 * math.pi**2 * num_means / (3.0 * delta)) + 3.0 * jnp.log(jnp.asarray(t).astype(jnp.float32))


def mnl_radius(count: ArrayLike, dim: int, num_shown: int, curvature: Leaf, ridge: Leaf) -> Array:
    """Returns the confidence radii `[...]` of a regularised multinomial-logit estimate, in the norm of the design matrix.

    `(curvature / 2) sqrt(d log(1 + count K / (d ridge)) + 4 log max(count, 1)) + curvature sqrt(ridge)`

    Source: ACQB, section 3 and eq. (3); Oh and Iyengar (2019). The paper's `log 0` before the first round is taken as 0.

    Args:
      count: `[...]` number of rounds whose outcome the estimate has used.
      dim: dimension `d` of the features.
      num_shown: number of items that a round shows, `K`.
      curvature: `[]` factor of the radius, the paper's kappa, at least 0: smaller values explore less.
      ridge: `[]` weight of the squared norm in the loss, the paper's lambda_0.
    """
    count = jnp.asarray(count).astype(jnp.float32)
    growth = dim * jnp.log1p(count * num_shown / (dim * ridge)) + 4.0 * jnp.log(jnp.maximum(count, 1.0))
    return 0.5 * curvature * jnp.sqrt(growth) + curvature * jnp.sqrt(ridge)
