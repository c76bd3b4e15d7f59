"""Reservation values of Weitzman's Pandora's box: the score at which opening a box is worth exactly its cost.

The index of a box with score `M` and mean cost `c` is the root `s` of `E[(M - s)^+] = c`. The left side falls, is convex, and reaches
every positive value, so that there is exactly one root. A mean cost above `E[M]` makes it negative.

Source: Weitzman (1979); Belloni, Chen and Wei (2026), eq. (2).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.core import checks, numerics
from jaxroute.core.types import Leaf


def uniform_index(low, width, cost):
    """Index of a box whose score is uniform on `[low, low + width]`; elementwise."""
    inside = low + width - jnp.sqrt(2.0 * width * cost)
    return jnp.where(cost <= 0.5 * width, inside, low + 0.5 * width - cost)


def two_point_index(low, high, chance, cost):
    """Index of a box whose score is `high` with the given chance and `low` otherwise; elementwise."""
    above = high - cost / chance
    return jnp.where(above >= low, above, chance * high + (1.0 - chance) * low - cost)


def index_by_bisection(excess: Callable, cost: Leaf, low: Leaf = -1.0, high: Leaf = 1.0, steps: int = 40) -> jax.Array:
    """Root of `excess(s) = cost` in `[low, high]`, elementwise, in a fixed number of halvings.

    Args:
      excess: function `s -> E[(M - s)^+]` on arrays of the shape of `cost`. low, high: bounds of the root, numbers or arrays.
    """
    cost = jnp.asarray(cost)
    start = (
        jnp.broadcast_to(jnp.asarray(low, cost.dtype), cost.shape),
        jnp.broadcast_to(jnp.asarray(high, cost.dtype), cost.shape),
    )

    def halve(_, bounds):
        low, high = bounds
        middle = 0.5 * (low + high)
        worth = excess(middle) > cost
        return jnp.where(worth, middle, low), jnp.where(worth, high, middle)

    low, high = numerics.repeat(steps, halve, start)
    return 0.5 * (low + high)


def discrete_index(values, weights, cost) -> float:
    """Index of a box with finitely many scores: exact, in float64 on the host.

    Args:
      values: `[n]` scores. weights: `[n]` their chances, or anything proportional to them. cost: mean cost, not negative.

    Raises:
      ValueError: negative weights, none above zero, or not as many as values; a negative cost, for which there is no index.
    """
    values = checks.numbers("values", values)
    weights = checks.non_negative("weights", weights, values.shape)
    if values.ndim != 1 or not weights.sum() > 0:
        raise ValueError(
            f"values and weights must be vectors with weights above 0, got shapes {values.shape}, {weights.shape}"
        )
    cost = float(checks.non_negative("cost", cost, ()))
    chance = weights / weights.sum()
    order = np.argsort(-values)
    value, chance = values[order], chance[order]
    # With the root between the n-th and the next value: sum of the first n chances times (value - root) = cost.
    mass, mean = np.cumsum(chance), np.cumsum(chance * value)
    root = (mean - cost) / np.maximum(mass, np.finfo(float).tiny)
    following = np.append(value[1:], -np.inf)
    return float(root[np.argmax((root >= following) & (mass > 0))])
