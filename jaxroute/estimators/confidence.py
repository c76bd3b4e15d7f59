"""Confidence radii of empirical means."""

import math

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxroute.core.types import Leaf


def bernstein_radius(mean: Array, count: Array, gamma: Leaf) -> Array:
    """Returns the radius `sqrt(gamma * mean / count) + gamma / count`: small means get small radii.

    A mean below zero (noise is not clipped) counts as zero under the root.

    Source: Kleinberg, Slivkins and Upfal (2008); Babaioff et al. (2015); StageRoute (arXiv 2506.17254), section 4, `f_rad`.

    Args:
      mean: `[...]` empirical mean of values in [0, 1].
      count: `[...]` number of values, at least 1.
      gamma: `[]` confidence parameter, of the order of the logarithm of an inverse failure probability.

    Returns:
      `[...]` radii. They suit means of order one, because scaling the values does not scale the radius.
    """
    return jnp.sqrt(gamma * jnp.maximum(mean, 0.0) / count) + gamma / count


def hoeffding_radius(count: ArrayLike, log_term: Leaf) -> Array:
    """Returns the radius `sqrt(log_term / (2 count))` for means of values in [0, 1]; infinite for a count of zero.

    Source: Hoeffding (1963); with `log_term = log(2 pi^2 K t^3 / (3 delta))` C2MAB-V, Lemma 1.

    Args:
      count: `[...]` number of values.
      log_term: `[]` logarithm of `2 / p` for radii that fail with probability `p`; for example from `union_log_term`.

    Returns:
      `[...]` radii.
    """
    count = jnp.asarray(count).astype(jnp.float32)
    return jnp.where(count > 0, jnp.sqrt(log_term / (2.0 * jnp.maximum(count, 1.0))), jnp.inf)


def union_log_term(num_means: int | Array, t: ArrayLike, delta: Leaf) -> Array:
    """Returns `log(2 pi^2 K t^3 / (3 delta))`, for which Hoeffding radii of `K` means hold in all rounds with probability `1 - delta / 2`.

    Source: C2MAB-V, Lemma 1.

    Args:
      num_means: number of means, `K`.
      t: `[]` round, from 1.
      delta: `[]` twice the probability that any radius fails in any round.
    """
    return jnp.log(2.0 * math.pi**2 * num_means / (3.0 * delta)) + 3.0 * jnp.log(jnp.asarray(t).astype(jnp.float32))


def mnl_radius(count: ArrayLike, dim: int, num_shown: int, curvature: Leaf, ridge: Leaf) -> Array:
    """Returns the confidence radius of a regularised multinomial-logit estimate, in the norm of the design matrix.

    `(curvature / 2) sqrt(d log(1 + count K / (d ridge)) + 4 log max(count, 1)) + curvature sqrt(ridge)`

    Source: ACQB, section 3 and eq. (3); Oh and Iyengar (2019). The paper's `log 0` before the first round is taken as 0.

    Args:
      count: `[...]` number of observed rounds.
      dim: dimension `d` of the features.
      num_shown: number of items that a round shows, `K`.
      curvature: `[]` factor of the radius, the paper's kappa.
      ridge: `[]` weight of the squared norm in the loss, the paper's lambda_0.

    Returns:
      `[...]` radii.
    """
    count = jnp.asarray(count).astype(jnp.float32)
    growth = dim * jnp.log1p(count * num_shown / (dim * ridge)) + 4.0 * jnp.log(jnp.maximum(count, 1.0))
    return 0.5 * curvature * jnp.sqrt(growth) + curvature * jnp.sqrt(ridge)
