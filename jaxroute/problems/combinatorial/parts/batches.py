"""Selections between two decisions of a policy that waits for a batch of feedback."""

from typing import Protocol

import jax
import jax.numpy as jnp
from flax import struct


class Hold(Protocol):
    """Rule for the rounds between two batches; `fresh` `[]` bool marks a round with a new decision."""

    def relaxed(self, fresh: jax.Array, z: jax.Array, held_z: jax.Array) -> jax.Array:
        """Returns the relaxed selection `[K]` to round in this round, from a new one and the held one."""
        ...

    def hold(
        self, fresh: jax.Array, new: tuple[jax.Array, jax.Array], held: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        """Returns `(selected, relaxed)` of this round, from those of a new decision and the held ones."""
        ...


@struct.dataclass
class HoldAction:
    """Repetition of the set between batches. Source: C2MAB-V, appendix E.3."""

    def relaxed(self, fresh: jax.Array, z: jax.Array, held_z: jax.Array) -> jax.Array:
        del fresh, held_z
        return z

    def hold(
        self, fresh: jax.Array, new: tuple[jax.Array, jax.Array], held: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        return jnp.where(fresh, new[0], held[0]), jnp.where(fresh, new[1], held[1])


@struct.dataclass
class HoldRelaxed:
    """Repetition of the relaxed selection between batches, with new rounding in every round. Not in the paper."""

    def relaxed(self, fresh: jax.Array, z: jax.Array, held_z: jax.Array) -> jax.Array:
        return jnp.where(fresh, z, held_z)

    def hold(
        self, fresh: jax.Array, new: tuple[jax.Array, jax.Array], held: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        del fresh, held
        return new
