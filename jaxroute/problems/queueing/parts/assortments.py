"""Assortments (sets of models whose answers are shown), as indices `[K]` and as masks `[N]`, and the order in which they are explored."""

import jax.numpy as jnp
from jax import Array

from jaxroute.core import numerics


def shown_items(offered: Array, size: int) -> Array:
    """Converts a mask `offered` `[N]` of the models shown to their indices in rising order; -1 fills up the result to `size` entries."""
    place = numerics.prefix_sums(offered.astype(jnp.int32))
    models = jnp.arange(offered.shape[0], dtype=jnp.int32)
    return jnp.stack([jnp.sum(jnp.where(offered & (place == k + 1), models + 1, 0)) - 1 for k in range(size)])


def mask_of(items: Array, number: int) -> Array:
    """Converts indices of models, `items` `[K]`, to a mask `[number]` of all models, True at these indices."""
    return jnp.any(items[:, None] == jnp.arange(number), axis=0)


def accepted_place(items: Array, chosen: Array) -> Array:
    """Returns the position, in the models shown (`items` `[K]`), of the accepted model, which the mask `chosen` `[N]` marks; `K` if there is none."""
    size = items.shape[0]
    models = jnp.arange(chosen.shape[0])
    hit = jnp.stack([jnp.any(chosen & (models == items[k])) for k in range(size)])
    return jnp.where(jnp.any(hit), jnp.sum(jnp.where(hit, jnp.arange(size), 0)), size)


def next_combination(items: Array, number: int) -> Array:
    """Returns the combination of `K` of `number` models that follows `items` `[K]` (rising) in lexicographic order; the first one follows the last.

    It makes the counter `c` of ACQB, Algorithm 1, line 4, and a table of all combinations unnecessary.
    """
    size = items.shape[0]
    places = jnp.arange(size, dtype=jnp.int32)
    can_rise = items < number - size + places
    last = jnp.max(jnp.where(can_rise, places, -1))
    from_value = numerics.pick(places == last, items)
    risen = jnp.where(places < last, items, from_value + 1 + places - last)
    return jnp.where(last >= 0, risen, places).astype(items.dtype)
