"""Where rewards come from: laws of the rewards of all models in a round."""

import jax
import jax.numpy as jnp

from jaxroute.core import draws
from jaxroute.core.types import Leaf


def bernoulli_law(key: jax.Array, mean: Leaf, scale: Leaf) -> jax.Array:
    """Reward 1 with probability `mean`, else 0; one uniform drives all models.

    Args:
      key: of the round.
      mean: `[K]` success probabilities.
      scale: not used.

    Returns:
      `[K]` rewards.
    """
    del scale
    return (draws.uniform(key) < mean).astype(jnp.float32)


def gaussian_law(key: jax.Array, mean: Leaf, scale: Leaf) -> jax.Array:
    """Normal rewards; one shock drives all models.

    Args:
      key: of the round.
      mean: `[K]` expected rewards.
      scale: `[]` standard deviation.

    Returns:
      `[K]` rewards.
    """
    return mean + scale * draws.normal(key)
