"""With which chance a decision was drawn, as a differentiable function of what it was drawn from: the score function needs it."""

import jax
import jax.numpy as jnp

# A coordinate this close to 0 or 1 is integral, as in `jaxroute.solvers.rounding`.
_TOLERANCE = 1e-5


def categorical(probabilities: jax.Array, drawn: jax.Array) -> jax.Array:
    """Logarithm of the chance of one of `A` alternatives, `[]`.

    Args:
      probabilities: `[A]`.
      drawn: `[]` int32, the number of the one that was drawn, which has a chance above 0.
    """
    return jnp.log(jnp.sum(jnp.where(jnp.arange(probabilities.shape[-1]) == drawn, probabilities, 0.0)))


def pairwise(z: jax.Array, drawn: jax.Array) -> jax.Array:
    """Logarithm of the chance with which pairwise rounding gives a set, `[]`.

    Args:
      z: `[K]` in [0, 1], whose sum is a whole number.
      drawn: `[K]` bool, the set that was drawn.
    """
    return jnp.log(chance_of_set(z, drawn))


def chance_of_set(z: jax.Array, drawn: jax.Array) -> jax.Array:
    """The chance with which pairwise rounding (`jaxroute.solvers.rounding.pairwise`) gives a set, `[]`; 0 for one that it never gives.

    The value that is carried from meeting to meeting does not depend on the coins, only whose it is does. So it suffices to follow how likely
    the coins so far agree with the set, once with a carried model that is in the set and once with one that is not. The chance is
    that of the set, and not of the coins that gave it, of which there may be several.

    Args:
      z: `[K]` in [0, 1], whose sum is a whole number.
      drawn: `[K]` bool, the set.
    """

    def fractional(x: jax.Array) -> jax.Array:
        return (x > _TOLERANCE) & (x < 1.0 - _TOLERANCE)

    value, first = z[0], drawn[0].astype(z.dtype)
    member, other = first, 1.0 - first
    for k in range(1, z.shape[-1]):
        w, here = z[k], drawn[k].astype(z.dtype)
        total = value + w
        meet, below = fractional(value) & fractional(w), total < 1.0
        room = jnp.where(meet, jnp.where(below, total, 2.0 - total), 1.0)
        # Chance that it stays the same model's: then `k` is settled, out of the set below 1 and in it above.
        stays = jnp.where(below, value, 1.0 - value) / room
        goes = 1.0 - stays
        low = (stays * member * (1.0 - here) + goes * other * here, other * (1.0 - here))
        high = (member * here, goes * member * (1.0 - here) + stays * other * here)
        settled = ((w > 0.5) == (here > 0.5)).astype(z.dtype)  # `k` alone
        before = jnp.where(value > 0.5, member, other)  # the carried one alone
        carried = fractional(value)
        apart = [jnp.where(carried, kept * settled, before * new) for kept, new in ((member, here), (other, 1.0 - here))]
        member, other = (jnp.where(meet, jnp.where(below, a, b), c) for a, b, c in zip(low, high, apart, strict=True))
        alone = jnp.where(carried, value, w)
        value = jnp.where(meet, jnp.where(below, total, total - 1.0), alone)
    return jnp.where(value > 0.5, member, other)
