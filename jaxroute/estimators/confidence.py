"""Confidence radii of empirical means."""

import jax.numpy as jnp


def bernstein_radius(mean, count, gamma):
    """The radius `sqrt(gamma * mean / count) + gamma / count`: small means get small radii.

    A mean below zero (noise is not clipped) counts as zero under the root.

    Source: Kleinberg, Slivkins and Upfal (2008); Babaioff et al. (2015); StageRoute (arXiv 2506.17254), section 4, `f_rad`.

    Args:
      mean: `[...]` empirical mean of values in [0, 1].
      count: `[...]` number of values, at least 1.
      gamma: `[]` confidence parameter, of the order of the logarithm of an inverse failure probability.

    Returns:
      `[...]` the radius, in the unit of `mean` if that is of order one: the radius is not scale-free.
    """
    return jnp.sqrt(gamma * jnp.maximum(mean, 0.0) / count) + gamma / count
