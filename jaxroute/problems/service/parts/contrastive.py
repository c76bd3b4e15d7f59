"""Training losses of RouterDC, and the clusters of requests that its second loss compares."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxroute.core import draws, numerics


def contrastive_loss(logits: Array, satisfied: Array, positives: int = 3, negatives: int = 3) -> Array:
    """Returns the sample-LLM loss of a request with logits `l` `[M]` and a mask `satisfied` `[M]` of the satisfying models.

    It is `sum_p -log(e^{l_p} / (e^{l_p} + sum_n e^{l_n}))`, or 0 if there is no `p` or no `n`. Here `p` are the first `positives` satisfying models,
    by index, and `n` the first `negatives` others, or all if there are fewer. Source: RouterDC (Chen et al., 2024), eq. (4), as MESS+ uses it.
    """
    good = satisfied & (numerics.rank(satisfied) < positives)
    bad = ~satisfied & (numerics.rank(~satisfied) < negatives)
    against = jax.nn.logsumexp(jnp.where(bad, logits, -jnp.inf))
    each = jnp.logaddexp(logits, against) - logits
    return jnp.sum(jnp.where(good & jnp.any(bad), each, 0.0))


def cluster_loss(code: Array, inside: Array, outside: Array) -> Array:
    """Returns the sample-sample loss, which is small if a request is more similar to one from its cluster than to requests from others.

    Similarity is the cosine of encodings: `code` `[e]` of the request, `inside` `[e]` of a request from its cluster, `outside` `[H, e]` of `H`
    requests from other clusters. Source: RouterDC (Chen et al., 2024), eq. (5).
    """
    near, far = _cosine(code, inside), jax.vmap(lambda other: _cosine(code, other))(outside)
    return jnp.logaddexp(near, jax.nn.logsumexp(far)) - near


def _cosine(a: Array, b: Array) -> Array:
    return jnp.sum(a * b) / jnp.sqrt(jnp.maximum(jnp.sum(a * a) * jnp.sum(b * b), 1e-12))


def nearest_clusters(x: Array, number: int, key: Array, sweeps: int = 10) -> Array:
    """Returns the cluster index of each row of `x`, `[n]`, after `sweeps` steps of k-means; the first `number` centres are random rows."""
    centres = x[jnp.argsort(draws.uniform(key, (x.shape[0],)))[:number]]

    def nearest(centres: Array) -> Array:
        return jnp.argmin(jnp.sum(jnp.square(x[:, None] - centres), axis=-1), axis=-1)

    def sweep(centres: Array, _: None) -> tuple[Array, None]:
        member = jax.nn.one_hot(nearest(centres), number, axis=0)
        count = jnp.sum(member, axis=1, keepdims=True)
        sums = jnp.dot(member, x, precision="highest")  # Not in TF32, on a GPU.
        return jnp.where(count > 0, sums / jnp.maximum(count, 1.0), centres), None

    centres, _ = lax.scan(sweep, centres, None, length=sweeps)
    return nearest(centres)


class Clusters(NamedTuple):
    """Requests sorted by cluster, to draw requests inside or outside a cluster.

    Attributes:
      order: `[n]` int32 indices of the `n` requests, one cluster after the other.
      start: `[C]` int32 position in `order` of the first request of each of `C` clusters.
      number: `[C]` int32 number of requests of each cluster.
    """

    order: Array
    start: Array
    number: Array

    @classmethod
    def of(cls, cluster: Array, number: int) -> "Clusters":
        """Sorts requests by cluster; `cluster` `[n]` is the cluster index of each request, from 0 to `number - 1`."""
        count = jnp.sum(cluster[:, None] == jnp.arange(number), axis=0, dtype=jnp.int32)
        return cls(jnp.argsort(cluster, stable=True).astype(jnp.int32), jnp.cumsum(count) - count, count)

    def inside(self, cluster: Array, uniform: Array) -> Array:
        """Returns the index of a random request of the cluster with index `cluster`, chosen by the random number `uniform` in [0, 1)."""
        return self.order[self.start[cluster] + _below(self.number[cluster], uniform)]

    def outside(self, cluster: Array, uniforms: Array) -> Array:
        """Returns indices of `H` distinct requests outside `cluster`, chosen by `uniforms` `[H]` in [0, 1). If too few exist, they may repeat."""
        start, count, size = self.start[cluster], self.number[cluster], self.order.shape[0]
        taken: list[Array] = []  # Positions among the outside requests, in ascending order.
        for number in range(uniforms.shape[0]):
            place = _below(size - count - number, uniforms[number])
            for other in taken:
                place = place + (place >= other).astype(jnp.int32)
            for i, other in enumerate(taken):
                taken[i], place = jnp.minimum(other, place), jnp.maximum(other, place)
            taken.append(place)
        places = jnp.stack(taken)
        return self.order[jnp.minimum(jnp.where(places >= start, places + count, places), size - 1)]


def _below(number: Array, uniform: Array) -> Array:
    """Converts the random number `uniform` in [0, 1) to a random integer from 0 to `number - 1`; 0 if `number` is 0."""
    return jnp.clip((uniform * number.astype(jnp.float32)).astype(jnp.int32), 0, jnp.maximum(number - 1, 0))
