"""What stays between two decisions of a policy that waits for a batch of feedback."""

from typing import Protocol

import jax
import jax.numpy as jnp
from flax import struct


class Hold(Protocol):
    """What stays between two batches.

    `fresh` `[]` bool says whether a new decision is made in this round.
    """

    def relaxed(self, fresh: jax.Array, z: jax.Array, held_z: jax.Array) -> jax.Array:
        """The relaxed selection `[K]` that is rounded in this round, from a new one and the one held."""
        ...

    def hold(
        self, fresh: jax.Array, new: tuple[jax.Array, jax.Array], held: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        """`(selected, relaxed)` of this round, from those of a new decision and those held."""
        ...


@struct.dataclass
class HoldAction:
    """Between two batches the set stays. Source: C2MAB-V, appendix E.3."""

    def relaxed(self, fresh: jax.Array, z: jax.Array, held_z: jax.Array) -> jax.Array:
        del fresh, held_z
        return z

    def hold(
        self, fresh: jax.Array, new: tuple[jax.Array, jax.Array], held: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        return jnp.where(fresh, new[0], held[0]), jnp.where(fresh, new[1], held[1])


@struct.dataclass
class HoldRelaxed:
    """Between two batches the relaxed selection stays and is rounded anew in every round. Not in the paper."""

    def relaxed(self, fresh: jax.Array, z: jax.Array, held_z: jax.Array) -> jax.Array:
        return jnp.where(fresh, z, held_z)

    def hold(
        self, fresh: jax.Array, new: tuple[jax.Array, jax.Array], held: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        del fresh, held
        return new
