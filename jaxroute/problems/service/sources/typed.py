"""Requests of finitely many types."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf
from jaxroute.problems.service.sources.source import MOST_LISTED, Contexts, all_labels, equally_weighted, labelled, sampled
from jaxroute.problems.service.types import Request


@struct.dataclass
class TypeRequests:
    """Requests of `K` types. Given the type, models satisfy independently, or all by one uniform (`comonotone`).

    Attributes:
      weight: `[K]` shares of the types.
      probability: `[K, M]` probability that a model satisfies.
      cost_mean: `[K, M]` mean cost.
      cost_noise: `[]` standard deviation of the logarithm of a cost, with an unchanged mean.
      vectors: `[K, d]` features of a type.
      comonotone: whether one uniform decides for all models (static).
    """

    weight: Leaf
    probability: Leaf
    cost_mean: Leaf
    cost_noise: Leaf
    vectors: Leaf
    comonotone: bool = struct.field(pytree_node=False, default=False)

    @property
    def num_features(self) -> int:
        return self.vectors.shape[-1]

    def check(self) -> None:
        shape = np.shape(checks.probability("success", self.probability))
        if len(shape) != 2:
            raise ValueError(f"success must have shape [types, models], got {shape}")
        checks.non_negative("cost", self.cost_mean, shape)
        weight = checks.non_negative("weight", self.weight, shape[:1])
        if abs(weight.sum() - 1.0) > 1e-5:
            raise ValueError(f"weight must sum to 1, got {weight.sum():g}")
        checks.non_negative("cost_noise", self.cost_noise, ())
        vectors = checks.numbers("features", self.vectors)
        if vectors.ndim != 2 or len(vectors) != shape[0] or len(np.unique(vectors, axis=0)) < shape[0]:
            raise ValueError(f"features must be {shape[0]} different rows, one for each type, got shape {vectors.shape}")

    def init(self, key: jax.Array) -> tuple[()]:
        del key
        return ()

    def draw(self, key: jax.Array, state: tuple[()], t: jax.Array) -> Request:
        del state, t
        k_type, k_label, k_cost = draws.split(key, 3)
        which = numerics.inverse_cdf(jnp.asarray(self.weight, jnp.float32), draws.uniform(k_type))
        probability, cost, vector = (
            _row(numerics.one_hot(which, np.shape(self.weight)[0]), x)
            for x in (self.probability, self.cost_mean, self.vectors)
        )
        u = draws.uniform(k_label, () if self.comonotone else probability.shape)
        sigma = jnp.asarray(self.cost_noise, jnp.float32)
        noise = jnp.exp(sigma * draws.normal(k_cost, cost.shape) - sigma * sigma / 2)
        return Request(features=vector, satisfied=u < probability, cost=cost * noise, success=probability)

    def success(self, features: jax.Array) -> jax.Array:
        """Returns the probabilities `[M]` of the type with these features."""
        distance = jnp.sum(jnp.square(jnp.asarray(self.vectors) - features), axis=-1)
        return _row(numerics.one_hot(numerics.argmin(distance), distance.shape[0]), self.probability)

    def average(self) -> Contexts:
        """Returns all requests as one context."""
        return self.contexts(knows_cost=False).mean()

    def contexts(self, knows_cost: bool = True) -> Contexts:
        """Returns the types, with a sample of costs if these are noisy and observed."""
        weight, probability, cost = (np.asarray(x, np.float64) for x in (self.weight, self.probability, self.cost_mean))
        if not (self.cost_noise and knows_cost):
            return Contexts(weight / weight.sum(), probability, cost)
        sample = sampled(self)
        return equally_weighted(sample.success, sample.cost)

    def label_contexts(self) -> Contexts:
        """Returns a context for each type and each set of satisfying models, at mean costs; a sample for more than 12 independent models."""
        weight, probability, cost = (np.asarray(x, np.float64) for x in (self.weight, self.probability, self.cost_mean))
        if (
            self.comonotone
        ):  # Models above a uniform satisfy: between two neighbouring probabilities the labels are constant.
            edges = np.sort(
                np.concatenate([np.zeros((len(probability), 1)), probability, np.ones((len(probability), 1))], axis=1)
            )
            distribution = np.diff(edges)
            success = ((edges[:, :-1, None] + edges[:, 1:, None]) / 2 < probability[:, None, :]).astype(np.float64)
        elif probability.shape[1] > MOST_LISTED:
            return labelled(self.replace(cost_noise=np.float32(0.0)))
        else:
            labels = all_labels(probability.shape[1]).astype(np.float64)
            success = np.broadcast_to(labels, (len(probability), *labels.shape))
            distribution = np.prod(np.where(labels > 0, probability[:, None], 1.0 - probability[:, None]), axis=-1)
        full = weight[:, None] / weight.sum() * distribution
        costs = np.broadcast_to(cost[:, None], success.shape)
        return Contexts(full.ravel(), success.reshape(-1, probability.shape[1]), costs.reshape(-1, probability.shape[1]))

    def clairvoyant_contexts(self, knows_cost: bool = True) -> Contexts:
        """Returns the contexts of a policy that observes satisfaction, with a sample of costs if these are noisy and observed."""
        return labelled(self) if self.cost_noise and knows_cost else self.label_contexts()


def _row(mask: jax.Array, table: Leaf) -> jax.Array:
    """Returns the row `[...]` of a table `[K, ...]` where the one-hot mask `[K]` is True."""
    table = jnp.asarray(table, jnp.float32)
    return jnp.sum(jnp.where(mask[:, None], table, 0.0), axis=0)
