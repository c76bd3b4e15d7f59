"""Training losses of RouterDC, and the clusters of requests that one of them compares."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxroute.core import draws, numerics


def contrastive_loss(logits: jax.Array, satisfied: jax.Array, positives: int = 3, negatives: int = 3) -> jax.Array:
    """Returns the sample-LLM loss of one request: each of the best models against the worst ones.

    `sum_p -log(e^{l_p} / (e^{l_p} + sum_n e^{l_n}))` over at most `positives` satisfying models, against at most `negatives` others.

    Source: RouterDC (Chen et al., 2024), eq. (4), as MESS+ uses it.

    Args:
      logits: `[M]` logits.
      satisfied: `[M]` bool, satisfying models.
      positives: largest number of satisfying models (static).
      negatives: largest number of other models (static).
    """
    good = satisfied & (numerics.rank(satisfied) < positives)
    bad = ~satisfied & (numerics.rank(~satisfied) < negatives)
    against = jax.nn.logsumexp(jnp.where(bad, logits, -jnp.inf))
    each = jnp.logaddexp(logits, against) - logits
    return jnp.sum(jnp.where(good & jnp.any(bad), each, 0.0))


def cluster_loss(code: jax.Array, inside: jax.Array, outside: jax.Array) -> jax.Array:
    """Returns the sample-sample loss of one request: a request of the same cluster against some of other clusters, by cosine similarity.

    Source: RouterDC (Chen et al., 2024), eq. (5).

    Args:
      code: `[e]` encoded request.
      inside: `[e]` encoded request of the same cluster.
      outside: `[H, e]` encoded requests of other clusters.
    """
    near, far = _cosine(code, inside), jax.vmap(lambda other: _cosine(code, other))(outside)
    return jnp.logaddexp(near, jax.nn.logsumexp(far)) - near


def _cosine(a: jax.Array, b: jax.Array) -> jax.Array:
    """Returns the cosine of the angle between vectors `[e]`."""
    return jnp.sum(a * b) / jnp.sqrt(jnp.maximum(jnp.sum(a * a) * jnp.sum(b * b), 1e-12))


def nearest_clusters(x: jax.Array, number: int, key: jax.Array, sweeps: int = 10) -> jax.Array:
    """Assigns each row of `x` `[n, d]` to a cluster `[n]`, by Lloyd's algorithm from random rows."""
    centres = x[jnp.argsort(draws.uniform(key, (x.shape[0],)))[:number]]

    def nearest(centres: jax.Array) -> jax.Array:
        return jnp.argmin(jnp.sum(jnp.square(x[:, None] - centres), axis=-1), axis=-1)

    def sweep(centres: jax.Array, _: None) -> tuple[jax.Array, None]:
        member = jax.nn.one_hot(nearest(centres), number, axis=0)
        count = jnp.sum(member, axis=1, keepdims=True)
        sums = jnp.dot(member, x, precision="highest")  # Not in TF32, on a GPU.
        return jnp.where(count > 0, sums / jnp.maximum(count, 1.0), centres), None

    centres, _ = lax.scan(sweep, centres, None, length=sweeps)
    return nearest(centres)


class Clusters(NamedTuple):
    """Requests sorted by cluster, to draw requests inside or outside a cluster.

    Attributes:
      order: `[n]` int32 requests, one cluster after the other.
      start: `[C]` int32 position of the first request of each cluster.
      number: `[C]` int32 number of requests of each cluster.
    """

    order: jax.Array
    start: jax.Array
    number: jax.Array

    @classmethod
    def of(cls, cluster: jax.Array, number: int) -> "Clusters":
        """Sorts requests by their cluster `[n]`, given the number of clusters."""
        count = jnp.sum(cluster[:, None] == jnp.arange(number), axis=0, dtype=jnp.int32)
        return cls(jnp.argsort(cluster, stable=True).astype(jnp.int32), jnp.cumsum(count) - count, count)

    def inside(self, cluster: jax.Array, uniform: jax.Array) -> jax.Array:
        """Draws a request `[]` of a cluster by a uniform number."""
        return self.order[self.start[cluster] + _below(self.number[cluster], uniform)]

    def outside(self, cluster: jax.Array, uniforms: jax.Array) -> jax.Array:
        """Draws distinct requests `[H]` of other clusters by uniform numbers `[H]`; any requests if there are too few."""
        start, count, size = self.start[cluster], self.number[cluster], self.order.shape[0]
        taken: list[jax.Array] = []  # Positions among the outside requests, in ascending order.
        for number in range(uniforms.shape[0]):
            place = _below(size - count - number, uniforms[number])
            for other in taken:
                place = place + (place >= other).astype(jnp.int32)
            for i, other in enumerate(taken):
                taken[i], place = jnp.minimum(other, place), jnp.maximum(other, place)
            taken.append(place)
        places = jnp.stack(taken)
        return self.order[jnp.minimum(jnp.where(places >= start, places + count, places), size - 1)]


def _below(number: jax.Array, uniform: jax.Array) -> jax.Array:
    """Draws an integer below a bound by a uniform number; 0 if there is none."""
    return jnp.clip((uniform * number.astype(jnp.float32)).astype(jnp.int32), 0, jnp.maximum(number - 1, 0))
