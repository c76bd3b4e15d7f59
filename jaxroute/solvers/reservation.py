"""Reservation values (indices) of Weitzman's Pandora's box: the score at which opening a box is worth exactly its cost.

The index of a box with random score `M` and mean cost `c` is the root `s` of `E[(M - s)^+] = c`. The left side is decreasing and convex and reaches
every positive value, so the root is unique. It is negative for a mean cost above `E[M]`.

Source: Weitzman (1979); Belloni, Chen and Wei (2026), eq. (2).
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxroute.core import checks, xla


def uniform_index(low: Array | float, width: Array | float, cost: Array | float) -> Array:
    """Returns Weitzman's index, the `s` with `E[(M - s)^+] = cost`, if the score `M` is uniform on `[low, low + width]`; elementwise."""
    inside = low + width - jnp.sqrt(2.0 * width * cost)
    return jnp.where(cost <= 0.5 * width, inside, low + 0.5 * width - cost)


def two_point_index(low: Array | float, high: Array | float, probability: Array | float, cost: Array | float) -> Array:
    """Returns Weitzman's index, the `s` with `E[(M - s)^+] = cost`, if the score `M` is `high` with `probability` > 0, else `low`; elementwise."""
    above = high - cost / probability
    return jnp.where(above >= low, above, probability * high + (1.0 - probability) * low - cost)


def index_by_bisection(
    excess: Callable[[Array], Array],
    cost: Array | float,
    low: Array | float = -1.0,
    high: Array | float = 1.0,
    steps: int = 40,
) -> Array:
    """Finds Weitzman's index elementwise by bisection: root of `excess(s) = cost` in `[low, high]` or the nearer end; NaN if `cost` is not finite.

    JAX's derivative of it is zero, because bisection only compares. The true derivative in the cost is one over the slope of `excess` at the root.

    Args:
      excess: function `s -> E[(M - s)^+]` of the random score `M`, on arrays of the shape of `cost`.
      cost: mean cost of observing the score.
      low, high: bounds of the root, numbers or arrays.
      steps: number of halvings (static); the error is at most `(high - low) / 2 ** (steps + 1)` plus rounding.
    """
    cost = jnp.asarray(cost)
    start = tuple(jnp.broadcast_to(jnp.asarray(end, cost.dtype), cost.shape) for end in (low, high))

    def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = 0.5 * (low + high)
        worth = excess(middle) > cost
        return jnp.where(worth, middle, low), jnp.where(worth, high, middle)

    below, above = xla.repeat(steps, halve, start)
    return jnp.where(jnp.isfinite(cost), 0.5 * (below + above), jnp.nan)


def discrete_index(values: ArrayLike, weights: ArrayLike, cost: ArrayLike) -> float:
    """Returns Weitzman's index, the `s` with `E[(M - s)^+] = cost`, for a score `M` in `values` `[n]`, exactly, in float64 on the host.

    The `weights` `[n]` are proportional to the probabilities of the scores.

    Raises:
      ValueError: a weight or the cost is negative, no weight is above zero, or the shapes differ.
    """
    values = checks.numbers("values", values)
    weights = checks.non_negative("weights", weights, values.shape)
    if values.ndim != 1 or not weights.sum() > 0:
        raise ValueError(
            f"values and weights must be vectors with weights above 0, got shapes {values.shape}, {weights.shape}"
        )
    cost = float(checks.non_negative("cost", cost, ()))
    probability = weights / weights.sum()
    order = np.argsort(-values)
    value, probability = values[order], probability[order]
    # For a root between the n-th and the next value: sum of the first n probabilities times (value - root) = cost.
    mass, mean = np.cumsum(probability), np.cumsum(probability * value)
    root = (mean - cost) / np.maximum(mass, np.finfo(float).tiny)
    following = np.append(value[1:], -np.inf)
    return float(root[np.argmax((root >= following) & (mass > 0))])


def linear_index(features: ArrayLike, values: ArrayLike, costs: ArrayLike, ridge: float = 1e-6) -> np.ndarray:
    """Fits Weitzman's index as a linear function `rho . psi` of features `psi` to `n` observations of score and cost. Returns `rho` `[m]`.

    It minimises a convex loss with the gradient `sum of psi (c - (M - rho . psi)^+)`, on the host in float64 by damped Newton steps. If `psi` is the
    indicator vector of an observation's group, it is the exact index of each group (`discrete_index`).

    Args:
      features: `[n, m]` features `psi` of each observation.
      values: `[n]` scores `M`.
      costs: `[n]` costs `c`, not negative, at least one above zero.
      ridge: weight of half the squared norm of `rho` per observation, which makes undetermined coefficients small.

    Raises:
      ValueError: shapes do not fit, costs are negative or all zero.

    Source: Belloni, Chen and Wei (2026), eqs. (7) and (8).
    """
    from scipy import optimize

    psi = checks.numbers("features", features)
    if psi.ndim != 2 or 0 in psi.shape:
        raise ValueError(f"features must have shape [n, m], got {psi.shape}")
    score, cost = (checks.numbers("values", values, psi.shape[:1]), checks.non_negative("costs", costs, psi.shape[:1]))
    if not cost.sum() > 0:
        raise ValueError("costs must be above 0 somewhere, or the index is not bounded")
    number = len(psi)

    def loss(rho: np.ndarray) -> float:
        u = psi @ rho
        below = np.minimum(u, score)
        return float(np.mean(cost * u - below * (score - 0.5 * below)) + 0.5 * ridge * rho @ rho)

    def slope(rho: np.ndarray) -> np.ndarray:
        return psi.T @ (cost - np.maximum(score - psi @ rho, 0.0)) / number + ridge * rho

    def curvature(rho: np.ndarray) -> np.ndarray:
        active = psi[score > psi @ rho]
        return active.T @ active / number + ridge * np.eye(psi.shape[1])

    options = {"gtol": 1e-9, "maxiter": 1000}
    found = optimize.minimize(loss, np.zeros(psi.shape[1]), jac=slope, hess=curvature, method="trust-exact", options=options)
    return found.x
