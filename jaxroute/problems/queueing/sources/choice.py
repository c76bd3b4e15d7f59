"""Multinomial-logit model of a user, who accepts one of the answers shown or tries again: utilities, departure rates and choices."""

import jax.numpy as jnp
from jax import Array

from jaxroute.core import numerics, xla
from jaxroute.core.types import Leaf
from jaxroute.solvers.assortment import log_weight_of_best


def utilities_of(theta: Leaf, features: Array, pair_features: bool) -> Array:
    """Returns the utility of each of `N` models, `[N, ...]`: `x' theta_j` for a query with features `x`, or `x_j' theta` with pair features `x_j`.

    Args:
      theta: `[N, d]` parameters, or `[d]` with `pair_features`.
      features: `[d, ...]` features of queries, or `[N, d, ...]` with `pair_features`; the axes `...` are those of the queries.
      pair_features: whether features describe pairs of query and model.
    """
    parameters = jnp.asarray(theta)
    if pair_features:
        return numerics.combine(parameters, jnp.swapaxes(features, 0, 1))
    return jnp.stack([numerics.combine(parameters[j], features) for j in range(parameters.shape[0])])


def departure_rate(log_weight: Array) -> Array:
    """Returns the acceptance probability `Z / (1 + Z)` of the answers shown, from `log Z`, where `Z` sums their `exp(utility)` (ACQB, section 2)."""
    return 1.0 / (1.0 + jnp.exp(-log_weight))


def best_rate(utility: Array, size: int) -> Array:
    """Returns each query's departure rate (acceptance probability), `[...]`, for its best `size` models; `utility` `[N, ...]` has all `N` models."""
    return departure_rate(log_weight_of_best(list(utility), size))


def shortfall(best: Array, rate: Array) -> Array:
    """Returns `best - rate`, how far a departure rate (acceptance probability) is below the best one; 0 for up to 8 machine epsilons.

    Both rates sum the same terms in different orders, so that the optimal policy's rounding errors would otherwise count as regret.
    """
    gap = best - rate
    return jnp.where(gap > 8.0 * jnp.finfo(gap.dtype).eps, gap, 0.0)


def choose(utility: Array, offered: Array, uniform: Leaf) -> tuple[Array, Array]:
    """Returns the model whose answer the user accepts, `[N]` bool with at most one True, and the departure rate, a scalar.

    The user accepts the first model shown whose cumulative probability is at least `uniform`, or none if all are below. With the same `uniform`, an
    assortment satisfies the user whenever one with a smaller departure rate does. Source: ACQB, appendix D.1.

    Args:
      utility: `[N]` utilities of the models' answers.
      offered: `[N]` bool, models whose answers are shown.
      uniform: `[]` number on [0, 1).
    """
    top = jnp.maximum(jnp.max(jnp.where(offered, utility, -jnp.inf)), 0.0)
    weight = jnp.where(offered, jnp.exp(utility - top), 0.0)
    probability = weight / (jnp.exp(-top) + jnp.sum(weight))
    end = xla.barrier(numerics.prefix_sums(probability))
    reached = offered & (uniform <= end)
    first = numerics.argmax(reached.astype(jnp.float32), reached)
    return numerics.one_hot(first, utility.shape[-1]), jnp.max(jnp.where(offered, end, 0.0))
