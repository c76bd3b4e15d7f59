"""Best assortment (set of models offered to a query), and best query, under a multinomial-logit choice with the same revenue for every model.

The departure rate, the probability that the query accepts an offered model, increases with the sum of `exp(utility)`. The best assortment of a query
therefore has the models of largest utility, and the best query has the largest such sum: exact, without a search over assortments.

Source: ACQB, section 3 (line 7 of Algorithm 1).
"""

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array

from jaxroute.core import checks, numerics, xla
from jaxroute.solvers import boundary


def log_weight_of_best(utilities: Sequence[Array], size: int) -> Array:
    """Returns the logarithm of the largest sum of `exp(utility)` over `size` (static) models, elementwise; `utilities` has one array per model."""
    checks.count("size", size, maximum=len(utilities))
    largest: list[Array] = []
    for value in utilities:
        # Insertion into the descending list of the largest values.
        for i, other in enumerate(largest):
            largest[i], value = jnp.maximum(other, value), jnp.minimum(other, value)
        if len(largest) < size:
            largest.append(value)
    if size == 1:
        return largest[0]
    top = xla.compute_once(largest[0])
    return top + jnp.log1p(sum((jnp.exp(other - top) for other in largest[1:]), start=jnp.zeros_like(top)))


def best_models(utility: Array, size: Array | int) -> Array:
    """Returns a mask `[N]` of the `size` models with the largest `utility` `[N]`; ties go to the lower index."""
    return numerics.rank(boundary.vector("utility", utility)) < size


def best_pair(utility: Array, size: int, waiting: Array | None = None) -> tuple[Array, Array]:
    """Returns the query, and the set of `size` (static) models, for which the probability is largest that the query accepts one of the models.

    `utility` `[B, N]` has a row per query and a column per model. Returns the query's index (an int32 scalar) and a mask `[N]` of the models; ties go
    to the lower index. Only queries in the mask `waiting` `[B]` count (default: all). If none is, it returns `B` and the first models.
    """
    number = utility.shape[0]
    weight = log_weight_of_best([utility[:, j] for j in range(utility.shape[1])], size)
    query = numerics.argmax(weight, waiting)
    row = jnp.sum(jnp.where(numerics.one_hot(query, number)[:, None], utility, 0.0), axis=0)
    return query, best_models(row, size)
