"""Initial rounds of a policy, before every model has been observed."""

from typing import Protocol

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.problems.combinatorial.parts.rounding import top_models
from jaxroute.problems.combinatorial.parts.statistics import Statistics
from jaxroute.problems.combinatorial.types import Observation


class Start(Protocol):
    """Rule for the initial rounds; `allowed` `[K]` bool are the models that may be selected in the round."""

    def active(self, state: Statistics, allowed: jax.Array) -> jax.Array:
        """Whether the start continues, `[]` bool."""
        ...

    def choose(self, state: Statistics, obs: Observation, allowed: jax.Array, selected: jax.Array) -> jax.Array:
        """Returns the set `[K]` of this round, given the one selected by the bounds."""
        ...


@struct.dataclass
class Optimistic:
    """No initial rounds: models without observations have the best bounds. Source: C2MAB-V, Algorithm 1."""

    def active(self, state: Statistics, allowed: jax.Array) -> jax.Array:
        del state, allowed
        return jnp.asarray(False)

    def choose(self, state: Statistics, obs: Observation, allowed: jax.Array, selected: jax.Array) -> jax.Array:
        del state, obs, allowed
        return selected


@struct.dataclass
class RoundRobin:
    """Selection of the least observed models until all models have been observed: `K / N` rounds without a cascade.

    Source: the first rounds of C2MAB-V's proofs, which assume an observation of every model.
    """

    def active(self, state: Statistics, allowed: jax.Array) -> jax.Array:
        return jnp.any(allowed & (state.outcome.count == 0))

    def choose(self, state: Statistics, obs: Observation, allowed: jax.Array, selected: jax.Array) -> jax.Array:
        least = top_models(-state.outcome.count, obs, state.spec, allowed)
        return jnp.where(self.active(state, allowed), least, selected)
