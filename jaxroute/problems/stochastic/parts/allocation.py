"""Optimal shares of samples for best-arm identification, and the evidence for the best model."""

import jax
import jax.numpy as jnp

from jaxroute.core import numerics, xla
from jaxroute.estimators.families import Family

# Newton steps from the solution for normal distributions, and Newton steps to that solution.
_STEPS, _START_STEPS = 5, 5


def optimal_shares(mean: jax.Array, family: Family) -> jax.Array:
    """Returns the shares of samples `[K]`, sum 1, that identify the best model soonest.

    With the best model 1 and `x = w / w_1`, `m = (mean_1 + x mean) / (1 + x)` for each other model, all transportation costs
    `kl(mean_1, m) + x kl(mean, m)` are one number `y`, and `sum of kl(mean_1, m) / kl(mean, m) = 1`. Newton's method in `log x` solves for all `x`
    and `y` together: five steps from the solution for normal distributions, to 1e-4 (a test measures it). Several best models get equal shares.

    Source: Garivier and Kaufmann (2016), Theorem 5.

    Args:
      mean: `[K]` means in the range of the family.
      family: family of reward distributions.
    """
    size = mean.shape[-1]
    mean = xla.barrier(mean)
    best = jnp.max(mean, axis=-1)
    first = mean == best
    ties = jnp.sum(first.astype(mean.dtype), axis=-1)
    if size == 1:
        return jnp.ones_like(mean)
    others = ~first
    gap = jnp.where(others, best - mean, 1.0)
    cost = jnp.square(gap) / family.variance(0.5 * (best + jnp.where(others, mean, best - 1e-3)))
    cost = jnp.where(others, cost, jnp.inf)
    cost = xla.compute_once(cost)
    relative = xla.compute_once(cost / jnp.min(cost, axis=-1))

    # Normal distributions: x = u / (relative (1 + u) - u), with u that of the closest model, and the sum of squares 1.
    def ratio(u: jax.Array) -> jax.Array:
        return jnp.where(others, u / (jnp.where(others, relative, 1.0) * (1.0 + u) - jnp.where(others, u, 0.0)), 0.0)

    u = jnp.ones_like(best)
    least = (size - 1.0) ** -0.5
    for _ in range(_START_STEPS):
        x = ratio(u)
        squares, slopes = xla.compute_once((jnp.square(x), 2.0 * x * jnp.square(x / u) * jnp.where(others, relative, 0.0)))
        u = jnp.clip(u - (jnp.sum(squares, axis=-1) - 1.0) / jnp.sum(slopes, axis=-1), least, 1.0)
    log_x = jnp.log(jnp.where(others, ratio(u), 1.0))

    low = jnp.where(others, mean, best - gap)
    for _ in range(_STEPS):
        x = jnp.exp(log_x)
        share = 1.0 / (1.0 + x)
        middle = best - x * share * gap
        above = jnp.broadcast_to(best, mean.shape)
        from_best, from_other = family.divergence(above, middle), jnp.maximum(family.divergence(low, middle), 1e-30)
        quotient = from_best / from_other
        slope = x * from_other  # of the cost in log x
        bend = jnp.square(gap) * share**3 / (family.variance(middle) * from_other) * (x + quotient) * x  # of the quotient
        ahead = bend / slope
        # Stored before the sum: a sum that computes its terms is not vectorised over runs.
        parts = xla.compute_once([jnp.where(others, part, 0.0) for part in (ahead * (from_best + slope), quotient, ahead)])
        level, total, pull = (jnp.sum(part, axis=-1) for part in parts)
        y = (1.0 - total + level) / pull
        log_x = xla.compute_once(log_x + jnp.clip((y - from_best - slope) / slope, -1.5, 1.5))
    weight = jnp.where(others, jnp.exp(log_x), 1.0)
    alone = ties == 1.0
    weight = xla.compute_once(jnp.where(alone, weight, first.astype(mean.dtype)))
    return weight / jnp.sum(weight, axis=-1)


def evidence(pulls: jax.Array, mean: jax.Array, family: Family) -> jax.Array:
    """Returns the generalised likelihood ratio `[]` of the hypothesis that the model with the largest mean is the best.

    It is `min over the others of pulls_1 kl(mean_1, m) + pulls kl(mean, m)`, with `m` the mean of both models' rewards together: 0 if there are
    several best models, infinite if there is one model.

    Source: Garivier and Kaufmann (2016), section 3.2.

    Args:
      pulls: `[K]` uses of each model, at least 1.
      mean: `[K]` empirical means.
      family: family of reward distributions.
    """
    mean = xla.barrier(mean)
    place = numerics.argmax(mean)
    first = numerics.one_hot(place, mean.shape[-1])
    best, times = numerics.pick(first, mean), numerics.pick(first, pulls)
    middle = (times * best + pulls * mean) / (times + pulls)
    above = jnp.broadcast_to(best, mean.shape)
    cost = times * family.divergence(above, middle) + pulls * family.divergence(mean, middle)
    cost = jnp.where(first, jnp.inf, jnp.where(mean < best, cost, 0.0))
    return jnp.min(xla.compute_once(cost), axis=-1)
