"""What a policy does around its choice: the order of a cascade, what it holds between batches, and how it starts, as small objects."""

import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import draws, numerics


def top_models(score, obs, spec, allowed=None):
    """The `N` available models (of each group) of largest `score` `[K]`, ties to the lower index; all if there are fewer.

    allowed: `[K]` bool, models to choose from in place of all available ones.
    """
    allowed = obs.available if allowed is None else allowed
    if spec.groups is None:
        return allowed & (numerics.rank(allowed, score) < obs.size)
    place = numerics.rank(allowed, score, together=np.equal.outer(spec.groups, spec.groups))
    return allowed & (place < numerics.of_group(spec.groups, obs.size))


@struct.dataclass
class ByPrice:
    """Cheap models first. The paper gives no order; its Fig. 2 goes from cheap to dear."""

    def order(self, key, obs, value, cost):
        del key, value, cost
        return obs.price


@struct.dataclass
class ByReward:
    """Models of large reward bound first."""

    def order(self, key, obs, value, cost):
        del key, obs, cost
        return -value


@struct.dataclass
class ByCost:
    """Models of small cost bound first."""

    def order(self, key, obs, value, cost):
        del key, obs, value
        return cost


@struct.dataclass
class ByIndex:
    """In the order of the models."""

    def order(self, key, obs, value, cost):
        del key, obs, value
        return jnp.zeros_like(cost)


@struct.dataclass
class ByChance:
    """In a new random order each round."""

    def order(self, key, obs, value, cost):
        del obs, value
        return draws.uniform(key, cost.shape)


@struct.dataclass
class HoldAction:
    """Between two batches the set stays. Source: C2MAB-V, appendix E.3."""

    def hold(self, fresh, new, held):
        """`(selected, relaxed)` of this round, from those of a new decision and those held."""
        return tuple(jnp.where(fresh, n, h) for n, h in zip(new, held, strict=True))

    def relaxed(self, fresh, z, held_z):
        del fresh, held_z
        return z


@struct.dataclass
class HoldRelaxed:
    """Between two batches the relaxed selection stays and is rounded anew in every round."""

    def hold(self, fresh, new, held):
        """`(selected, relaxed)` of this round, from those of a new decision and those held."""
        del fresh, held
        return new

    def relaxed(self, fresh, z, held_z):
        return jnp.where(fresh, z, held_z)


@struct.dataclass
class Optimistic:
    """No rounds of their own for a start: models that were never seen have the best bounds. Source: C2MAB-V, Algorithm 1."""

    def active(self, state, allowed):
        """Whether the start still goes on, `[]` bool."""
        del state, allowed
        return jnp.asarray(False)

    def choose(self, state, obs, allowed, selected):
        """The set `[K]` of this round, given the one of the bounds."""
        del state, obs, allowed
        return selected


@struct.dataclass
class RoundRobin:
    """As long as some model was never seen, the least seen models are selected: `K / N` rounds if all that is selected is seen.

    Source: the first rounds of C2MAB-V's proofs, which assume that every model was seen.
    """

    def active(self, state, allowed):
        """Whether the start still goes on, `[]` bool."""
        return jnp.any(allowed & (state.outcome.count == 0))

    def choose(self, state, obs, allowed, selected):
        """The set `[K]` of this round, given the one of the bounds."""
        least = top_models(-state.outcome.count, obs, state.spec, allowed)
        return jnp.where(self.active(state, allowed), least, selected)
