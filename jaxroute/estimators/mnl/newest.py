"""Contribution of the last observation to the derivatives of the loss."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import numerics, xla
from jaxroute.estimators.mnl.likelihood import probabilities


@struct.dataclass
class NewestObservation:
    """Contribution of the last observation to the derivatives in the parameters of some items, at the last fit.

    Attributes:
      x: `[A, d]` features, zero for an item that was not shown; with one parameter for all items `[K, d]` features of the shown items.
      gradient: `[A, d]` gradient, `(p_j - y_j) x`.
      weight: `[A]` or `[K]` like `x`, variance of the acceptance, `p_j (1 - p_j)`.
      took: `[K]` float32, 1 for the accepted item; None if unused.
      shown: `[K]` bool, shown items; None if unused.
    """

    x: Array
    gradient: Array
    weight: Array
    took: Array | None = None
    shown: Array | None = None

    def rows_of(self, a: int, number: int) -> list[int]:
        """Returns the rows of `x` that concern a parameter: that of its item, or all of them for a single parameter.

        Args:
          a: index of the parameter.
          number: number of parameters.
        """
        return list(range(self.x.shape[0])) if number == 1 else [a]


def new_row(logits: Array, x: Array, items: Array, accepted: Array, chosen: Array) -> NewestObservation:
    """Returns the contribution of an observation with a parameter per item.

    Args:
      logits: `[N]` utilities of all items at the last fit.
      x: `[d]` features.
      items: `[K]` shown items, -1 for none.
      accepted: `[]` place of the accepted item, `K` for none.
      chosen: `[A]` items in whose parameters derivatives are taken.
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
    return NewestObservation(seen, missed[:, None] * seen, weight, (took & present).astype(jnp.float32), present)


def new_pair(theta: Array, x: Array, present: Array, accepted: Array) -> NewestObservation:
    """Returns the contribution of an observation with one parameter for all items.

    Args:
      theta: `[d]` last fit.
      x: `[K, d]` features of the pairs.
      present: `[K]` bool, shown items.
      accepted: `[]` place of the accepted item, `K` for none.
    """
    x = jnp.where(present[:, None], x, 0.0)
    probability = probabilities(jnp.sum(x * theta, axis=1)[:, None], present[:, None])
    probability = xla.compute_once(probability[:, 0])
    took = present & (jnp.arange(x.shape[0]) == accepted)
    gradient = jnp.sum((probability - took)[:, None] * x, axis=0)
    return NewestObservation(x, gradient[None], probability * (1.0 - probability), took.astype(jnp.float32), present)
