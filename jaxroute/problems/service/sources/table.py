"""Recorded requests."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import checks
from jaxroute.core.types import Leaf
from jaxroute.problems.service.sources.source import Contexts, equally_weighted
from jaxroute.problems.service.types import Request
from jaxroute.sources.rows import random_order, row_in_order

NO_TRUE_CHANCES = "a table of recorded requests has no true probabilities; use a predictor that learns, or labels"


@struct.dataclass
class TableRequests:
    """Recorded requests in a random order for each run, each once before any is repeated.

    Attributes:
      labels: `[N, M]` float32 satisfaction.
      cost_table: `[N, M]` costs, J.
      vectors: `[N, d]` features.
    """

    labels: Leaf
    cost_table: Leaf
    vectors: Leaf

    @property
    def num_features(self) -> int:
        return self.vectors.shape[-1]

    def check(self) -> None:
        shape = np.shape(checks.probability("labels", self.labels))
        checks.non_negative("costs", self.cost_table, shape)
        vectors = checks.numbers("features", self.vectors)
        if vectors.ndim != 2 or len(vectors) != shape[0]:
            raise ValueError(f"features must be {shape[0]} rows, one for each request, got shape {vectors.shape}")

    def init(self, key: jax.Array) -> jax.Array:
        """Draws the order of the rows `[N]`."""
        return random_order(key, self.labels.shape[0])

    def draw(self, key: jax.Array, state: jax.Array, t: jax.Array) -> Request:
        del key
        row = row_in_order(state, t)
        labels, cost, vector = (jnp.asarray(x)[row] for x in (self.labels, self.cost_table, self.vectors))
        return Request(features=vector, satisfied=labels > 0.5, cost=cost, success=labels)

    def success(self, features: jax.Array) -> jax.Array:
        """Raises `ValueError`, because a table has outcomes instead of probabilities."""
        raise ValueError(NO_TRUE_CHANCES)

    def average(self) -> Contexts:
        """Returns all requests as one context."""
        return self.label_contexts().mean()

    def contexts(self, knows_cost: bool = True) -> Contexts:
        """Returns all requests as one context, because there is no model of the features."""
        del knows_cost
        return self.average()

    def label_contexts(self) -> Contexts:
        """Returns each request as a context."""
        return equally_weighted(*(np.asarray(x, np.float64) for x in (self.labels, self.cost_table)))

    def clairvoyant_contexts(self, knows_cost: bool = True) -> Contexts:
        """Returns each request as a context, at mean costs if costs are not observed."""
        return self.label_contexts() if knows_cost else self.label_contexts().at_cost(self.average().cost[0])
