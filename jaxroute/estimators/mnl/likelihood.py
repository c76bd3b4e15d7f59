"""Loss function that all solvers minimise, as the paper writes it, and the probabilities of one row."""

import jax.numpy as jnp
from jax import Array

from jaxroute.core import xla
from jaxroute.core.types import Leaf


def negative_log_likelihood(theta: Array, features: Array, offered: Array, chosen: Array, ridge: Leaf) -> Array:
    """Returns the regularised negative log-likelihood `[]`, for tests and for reading; the solvers use derivatives from packed sums.

    `ridge / 2 |theta|^2 - sum_i sum_{j in S_i and 0} y_ij log p_j(x_i, S_i)`,
    `p_j = exp(v_j) / (1 + sum_{k in S_i} exp(v_k))`, `p_0` of none.

    Source: ACQB, eq. (1), and with a parameter per item the display above eq. (4); its derivative in `theta_j` is
    `ridge theta_j - sum_i 1{j in S_i} (y_ij - p_j(x_i, S_i)) x_i`, which eq. (4) sets to zero.

    Differs from the paper: eq. (4) lacks the factor `x_i`.

    Args:
      theta: `[N, d]` parameters, or `[d]` one parameter for all items.
      features: `[H, N, d]` features of each row and item; `[H, d]` if all items share them.
      offered: `[H, N]` bool, shown items `S_i`.
      chosen: `[H]` int32 accepted item, -1 for none.
      ridge: `[]` the paper's lambda_0.
    """
    rows, items = offered.shape
    x = features if features.ndim == 3 else jnp.broadcast_to(features[:, None], (rows, items, features.shape[-1]))
    utility = jnp.sum(x * theta, axis=-1)
    log_none = -jnp.log1p(jnp.sum(jnp.where(offered, jnp.exp(utility), 0.0), axis=1))  # log p_0
    log_accepted = jnp.sum(jnp.where(jnp.arange(items) == chosen[:, None], utility, 0.0), axis=1) + log_none
    return 0.5 * ridge * jnp.sum(theta**2) - jnp.sum(log_accepted)


def probabilities(logits: Array, present: Array) -> Array:
    """Returns the probabilities `p_j` `[K, C]` of the items of each row, without overflow.

    Args:
      logits: `[K, C]` utilities of the items of each row.
      present: `[K, C]` bool, shown items.
    """
    top = jnp.maximum(jnp.max(jnp.where(present, logits, -jnp.inf), axis=0), 0.0)
    weight = jnp.where(present, jnp.exp(logits - top), 0.0)
    return weight / xla.compute_once(jnp.exp(-top) + jnp.sum(weight, axis=0))
