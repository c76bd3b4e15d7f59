"""How a policy begins, before every model was seen."""

from typing import Protocol

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.problems.combinatorial.parts.rounding import top_models
from jaxroute.problems.combinatorial.parts.statistics import Statistics
from jaxroute.problems.combinatorial.types import Observation


class Start(Protocol):
    """How a policy begins; `allowed` `[K]` bool are the models that it may select in the round."""

    def active(self, state: Statistics, allowed: jax.Array) -> jax.Array:
        """Whether the start still goes on, `[]` bool."""
        ...

    def choose(self, state: Statistics, obs: Observation, allowed: jax.Array, selected: jax.Array) -> jax.Array:
        """The set `[K]` of this round, given the one of the bounds."""
        ...


@struct.dataclass
class Optimistic:
    """No rounds are set apart for a start: models that were never seen have the best bounds. Source: C2MAB-V, Algorithm 1."""

    def active(self, state: Statistics, allowed: jax.Array) -> jax.Array:
        del state, allowed
        return jnp.asarray(False)

    def choose(self, state: Statistics, obs: Observation, allowed: jax.Array, selected: jax.Array) -> jax.Array:
        del state, obs, allowed
        return selected


@struct.dataclass
class RoundRobin:
    """As long as some model was never seen, the least seen models are selected: `K / N` rounds if all that is selected is
    seen.

    Source: the first rounds of C2MAB-V's proofs, which assume that every model was seen.
    """

    def active(self, state: Statistics, allowed: jax.Array) -> jax.Array:
        return jnp.any(allowed & (state.outcome.count == 0))

    def choose(self, state: Statistics, obs: Observation, allowed: jax.Array, selected: jax.Array) -> jax.Array:
        least = top_models(-state.outcome.count, obs, state.spec, allowed)
        return jnp.where(self.active(state, allowed), least, selected)
