"""Order in which a cascade asks the models of a set, and the action with this order."""

from typing import Protocol

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import draws
from jaxroute.problems.combinatorial.types import Action, Observation


class Order(Protocol):
    """Order of a cascade: models in ascending order of a number, ties by index."""

    def order(self, key: jax.Array, obs: Observation, value: jax.Array, cost: jax.Array) -> jax.Array:
        """Returns the numbers `[K]`, from the policy's beliefs about rewards (`value` `[K]`) and costs (`cost` `[K]`)."""
        ...


@struct.dataclass
class ByPrice:
    """Cheap models first. The paper gives no order; its Fig. 2 starts with cheap models."""

    def order(self, key: jax.Array, obs: Observation, value: jax.Array, cost: jax.Array) -> jax.Array:
        del key, value, cost
        return obs.price


@struct.dataclass
class ByReward:
    """Models with large reward bounds first."""

    def order(self, key: jax.Array, obs: Observation, value: jax.Array, cost: jax.Array) -> jax.Array:
        del key, obs, cost
        return -value


@struct.dataclass
class ByCost:
    """Models with small cost bounds first."""

    def order(self, key: jax.Array, obs: Observation, value: jax.Array, cost: jax.Array) -> jax.Array:
        del key, obs, value
        return cost


@struct.dataclass
class ByIndex:
    """Models in the order of their index."""

    def order(self, key: jax.Array, obs: Observation, value: jax.Array, cost: jax.Array) -> jax.Array:
        del key, obs, value
        return jnp.zeros_like(cost)


@struct.dataclass
class ByProbability:
    """Models in a new random order in each round."""

    def order(self, key: jax.Array, obs: Observation, value: jax.Array, cost: jax.Array) -> jax.Array:
        del obs, value
        return draws.uniform(key, cost.shape)


def action_of(
    order: Order,
    key: jax.Array,
    obs: Observation,
    selected: jax.Array,
    relaxed: jax.Array,
    value: jax.Array,
    cost: jax.Array,
) -> Action:
    """Returns the action of a set without unavailable models.

    Args:
      order: order of a cascade.
      key: key for the order.
      obs: observation with the available models.
      selected: `[K]` bool, the set.
      relaxed: `[K]` relaxed selection before rounding.
      value: `[K]` the policy's beliefs about rewards.
      cost: `[K]` the policy's beliefs about costs.
    """
    return Action(
        selected=selected & obs.available,
        order=order.order(key, obs, value, cost),
        relaxed=relaxed,
        held=selected,
    )
