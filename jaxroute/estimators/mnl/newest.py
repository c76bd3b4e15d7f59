"""What the last observation alone adds to the derivatives of the loss."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import numerics, xla
from jaxroute.estimators.mnl.likelihood import probabilities


@struct.dataclass
class New:
    """What the last observation adds to the derivatives in the parameters of some items, at the last fit.

    Attributes:
      x: `[A, d]`, its features, zero for an item that was not shown; with one parameter for all items `[K, d]`, of those
        shown.
      gradient: `[A, d]`, `(p_j - y_j) x`.
      weight: `[A]` or `[K]` as `x`, probability times its complement, `p_j (1 - p_j)`.
      took: `[K]` float32, 1 for the item that was accepted; None where nobody asks.
      shown: `[K]` bool, which items there are; None where nobody asks.
    """

    x: jax.Array
    gradient: jax.Array
    weight: jax.Array
    took: jax.Array | None = None
    shown: jax.Array | None = None

    def rows_of(self, a: int, number: int) -> list[int]:
        """The rows of `x` that bear on a parameter: the one of its item, or all of them if there is only one parameter.

        Args:
          a: which parameter.
          number: of parameters.
        """
        return list(range(self.x.shape[0])) if number == 1 else [a]


def new_row(logits: jax.Array, x: jax.Array, items: jax.Array, accepted: jax.Array, chosen: jax.Array) -> New:
    """One observation, with a parameter per item.

    Args:
      logits: `[N]`, of all items, at the last fit.
      x: `[d]` features.
      items: `[K]`, those that were shown, -1 for none.
      accepted: `[]`, place of the accepted one, `K` for none.
      chosen: `[A]`, items in whose parameters the derivatives are taken.
    """
    number = logits.shape[0]
    shown = jnp.stack([numerics.pick(numerics.one_hot(items[k], number), logits) for k in range(items.shape[0])])
    probability = probabilities(shown[:, None], (items >= 0)[:, None])
    probability = xla.compute_once(probability[:, 0])
    took = jnp.arange(items.shape[0]) == accepted
    mine = (items == chosen[:, None]) & (items >= 0)
    share = jnp.sum(jnp.where(mine, probability, 0.0), axis=1)
    missed = share - jnp.sum(jnp.where(mine & took, 1.0, 0.0), axis=1)
    seen = jnp.where(jnp.any(mine, axis=1)[:, None], x, 0.0)
    weight = share * (1.0 - share)
    present = items >= 0
    return New(seen, missed[:, None] * seen, weight, (took & present).astype(jnp.float32), present)


def new_pair(theta: jax.Array, x: jax.Array, present: jax.Array, accepted: jax.Array) -> New:
    """One observation, with one parameter for all items.

    Args:
      theta: `[d]`, the last fit.
      x: `[K, d]`, features of the pairs.
      present: `[K]` bool, which of them were shown.
      accepted: `[]`, place of the accepted one, `K` for none.
    """
    x = jnp.where(present[:, None], x, 0.0)
    probability = probabilities(jnp.sum(x * theta, axis=1)[:, None], present[:, None])
    probability = xla.compute_once(probability[:, 0])
    took = present & (jnp.arange(x.shape[0]) == accepted)
    gradient = jnp.sum((probability - took)[:, None] * x, axis=0)
    return New(x, gradient[None], probability * (1.0 - probability), took.astype(jnp.float32), present)
