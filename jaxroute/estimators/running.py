"""Statistics that are updated round by round: means of all observations, and sums over a sliding window of rounds."""

from typing import Self

import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.typing import ArrayLike

from jaxroute.core import draws, numerics, xla


@struct.dataclass
class RunningMean:
    """Running means of `K` quantities, updated value by value.

    Attributes:
      count: `[K]` int32 number of values.
      mean: `[K]` float32 means; zero without values.
      errors: rounding errors of the means, see `numerics.accumulate`.
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
        """Returns the means of `size` (`K`) quantities after `count` fictitious values, all equal to `mean`; both are numbers or `[K]`."""
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
      errors: rounding errors of the sums, see `numerics.accumulate`.
      order: `[K]` int32 order in which ties between models are broken; see `numerics.argmax`.
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
