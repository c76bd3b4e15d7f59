"""Rules for single rounds: the first rounds of a run, rounds between two batches of feedback, and the order in which a cascade asks models."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import draws
from jaxroute.problems.combinatorial.parts.beliefs import Statistics
from jaxroute.problems.combinatorial.parts.rounding import top_models
from jaxroute.problems.combinatorial.types import Action, Observation


@struct.dataclass
class Optimistic:
    """Rule that leaves even the first rounds to the policy, since unobserved models have the best bounds. Source: C2MAB-V, Algorithm 1."""

    def active(self, state: Statistics, allowed: Array) -> Array:
        """Returns whether this rule replaces the policy's choice among the models `allowed` `[K]` in a round, a scalar bool; here always False."""
        del state, allowed
        return jnp.asarray(False)

    def choose(self, state: Statistics, obs: Observation, allowed: Array, selected: Array) -> Array:
        """Returns the mask `[K]` of the round's set: here the policy's choice `selected`; other rules may select from the mask `allowed`."""
        del state, obs, allowed
        return selected


@struct.dataclass
class RoundRobin(Optimistic):
    """Rule for the first rounds that selects the least observed models until all `K` were observed: `K / N` rounds if each observes `N` models.

    Source: the first rounds of C2MAB-V's proofs, which assume an observation of every model.
    """

    def active(self, state: Statistics, allowed: Array) -> Array:
        return jnp.any(allowed & (state.outcome.count == 0))

    def choose(self, state: Statistics, obs: Observation, allowed: Array, selected: Array) -> Array:
        least = top_models(-state.outcome.count, obs, state.spec, allowed)
        return jnp.where(self.active(state, allowed), least, selected)


class Hold:
    """Base class of rules for the rounds between two decisions of a policy that decides once per batch of feedback.

    `fresh` is True in rounds with a decision. A policy gets a relaxed selection from `relaxed`, rounds the selection to a set, passes this set to
    `hold`, and uses the set that `hold` returns.
    """

    def relaxed(self, fresh: Array, z: Array, held_z: Array) -> Array:
        """Returns the fractions `[K]` to round: `z` of this round if `fresh`, else `held_z` of the last decision; in the base class always `z`."""
        del fresh, held_z
        return z

    def hold(self, fresh: Array, new: tuple[Array, Array], held: tuple[Array, Array]) -> tuple[Array, Array]:
        """Returns the pair of set and fractions to use: this round's `new` if `fresh`, else the last decision's `held`; here always `new`."""
        del fresh, held
        return new


@struct.dataclass
class HoldAction(Hold):
    """Rule that repeats the set of the last decision until a batch of feedback is complete. Source: C2MAB-V, appendix E.3."""

    def hold(self, fresh: Array, new: tuple[Array, Array], held: tuple[Array, Array]) -> tuple[Array, Array]:
        return jnp.where(fresh, new[0], held[0]), jnp.where(fresh, new[1], held[1])


@struct.dataclass
class HoldRelaxed(Hold):
    """Rule that repeats the last decision's fractions of models, and rounds them to a new set in every round. Not in the paper."""

    def relaxed(self, fresh: Array, z: Array, held_z: Array) -> Array:
        return jnp.where(fresh, z, held_z)


@struct.dataclass
class ByPrice:
    """Order of a cascade that asks models with a low known price first. The paper gives no order; its Fig. 2 starts with cheap models."""

    def order(self, key: Array, obs: Observation, value: Array, cost: Array) -> Array:
        """Returns numbers `[K]`; models are asked in ascending order. Here they are prices; other classes use `value`, `cost` or random draws."""
        del key, value, cost
        return obs.price


@struct.dataclass
class ByReward:
    """Order of a cascade that asks the model of largest reward first, by the policy's estimates or bounds."""

    def order(self, key: Array, obs: Observation, value: Array, cost: Array) -> Array:
        del key, obs, cost
        return -value


@struct.dataclass
class ByCost:
    """Order of a cascade that asks the model of least cost first, by the policy's estimates or bounds."""

    def order(self, key: Array, obs: Observation, value: Array, cost: Array) -> Array:
        del key, obs, value
        return cost


@struct.dataclass
class ByIndex:
    """Order of a cascade that asks models by ascending index."""

    def order(self, key: Array, obs: Observation, value: Array, cost: Array) -> Array:
        del key, obs, value
        return jnp.zeros_like(cost)


@struct.dataclass
class ByProbability:
    """Order of a cascade that is drawn at random in each round."""

    def order(self, key: Array, obs: Observation, value: Array, cost: Array) -> Array:
        del obs, value
        return draws.uniform(key, cost.shape)


Order = ByPrice | ByReward | ByCost | ByIndex | ByProbability


def action_of(
    order: Order, key: Array, obs: Observation, selected: Array, value: Array, cost: Array, relaxed: Array | None = None
) -> Action:
    """Returns the action that asks the available models of the mask `selected` `[K]`; `order` sorts them by the estimates `value`, `cost` `[K]`.

    `relaxed` `[K]` are the fractions from which the set was rounded, for the field `Action.relaxed`; if None, the field is `selected` as 0 and 1.
    """
    relaxed = selected.astype(jnp.float32) if relaxed is None else relaxed
    available = selected & obs.available
    return Action(selected=available, order=order.order(key, obs, value, cost), relaxed=relaxed, held=selected)
