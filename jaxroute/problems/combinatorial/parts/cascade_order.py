"""The order in which a cascade asks the models of a set, and the action that says so."""

from typing import Protocol

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import draws
from jaxroute.problems.combinatorial.types import Action, Observation


class Order(Protocol):
    """How a cascade is asked: models in rising order of a number, ties by index."""

    def order(self, key: jax.Array, obs: Observation, value: jax.Array, cost: jax.Array) -> jax.Array:
        """The numbers `[K]`, from the policy's beliefs about rewards (`value` `[K]`) and costs (`cost` `[K]`)."""
        ...


@struct.dataclass
class ByPrice:
    """Cheap models first. The paper gives no order; its Fig. 2 goes from cheap to dear."""

    def order(self, key: jax.Array, obs: Observation, value: jax.Array, cost: jax.Array) -> jax.Array:
        del key, value, cost
        return obs.price


@struct.dataclass
class ByReward:
    """Models of large reward bound first."""

    def order(self, key: jax.Array, obs: Observation, value: jax.Array, cost: jax.Array) -> jax.Array:
        del key, obs, cost
        return -value


@struct.dataclass
class ByCost:
    """Models of small cost bound first."""

    def order(self, key: jax.Array, obs: Observation, value: jax.Array, cost: jax.Array) -> jax.Array:
        del key, obs, value
        return cost


@struct.dataclass
class ByIndex:
    """In the order of the models."""

    def order(self, key: jax.Array, obs: Observation, value: jax.Array, cost: jax.Array) -> jax.Array:
        del key, obs, value
        return jnp.zeros_like(cost)


@struct.dataclass
class ByProbability:
    """In a new random order each round."""

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
    """The action of a set, less what is not available.

    Args:
      order: how a cascade is asked.
      key: consumed by the order.
      obs: what is available.
      selected: `[K]` bool, the set.
      relaxed: `[K]`, the relaxed selection that it was rounded from.
      value: `[K]`, what the policy believes of rewards.
      cost: `[K]`, what it believes of costs.
    """
    return Action(
        selected=selected & obs.available,
        order=order.order(key, obs, value, cost),
        relaxed=relaxed,
        held=selected,
    )
