"""Requests with normal features, for any number of models."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.scipy.special import ndtr

from jaxroute.core import checks, draws
from jaxroute.core.types import Leaf
from jaxroute.problems.service.sources.source import Contexts, equally_weighted, labelled, sampled
from jaxroute.problems.service.types import Request


@struct.dataclass
class ProbitRequests:
    """Requests with normal features; a model satisfies if features, a shared difficulty and noise exceed its threshold.

    `s_m = 1[threshold_m + r_f w_m . x + r_c g + sqrt(1 - r_f^2 - r_c^2) e_m > 0]` with standard normal `x [d]`, `g` and
    `e_m`: the marginal probability is exactly `Phi(threshold_m)`.

    Attributes:
      threshold: `[M]` thresholds.
      direction: `[M, d]` unit vectors.
      from_features: `[]` weight `r_f` of the features.
      shared: `[]` weight `r_c` of the shared difficulty.
      cost_mean: `[M]` mean costs.
      length_spread: `[]` standard deviation of the logarithm of a factor of all costs, the length of a request.
    """

    threshold: Leaf
    direction: Leaf
    from_features: Leaf
    shared: Leaf
    cost_mean: Leaf
    length_spread: Leaf

    @property
    def num_features(self) -> int:
        return self.direction.shape[-1]

    def check(self) -> None:
        shape = np.shape(checks.numbers("threshold", self.threshold))
        rows = checks.numbers("direction", self.direction)
        if rows.ndim != 2 or rows.shape[:1] != shape or np.any(np.abs(np.sum(rows**2, axis=1) - 1.0) > 1e-4):
            raise ValueError(f"direction must be {shape[0]} rows of length 1, got shape {rows.shape}")
        checks.non_negative("cost", self.cost_mean, shape)
        checks.non_negative("length_spread", self.length_spread, ())
        parts = [checks.numbers(name, getattr(self, name), ()) for name in ("from_features", "shared")]
        if sum(p**2 for p in parts) > 1.0 + 1e-6:
            raise ValueError(f"from_features^2 + shared^2 must be at most 1, got {sum(p**2 for p in parts):g}")

    def init(self, key: jax.Array) -> tuple[()]:
        del key
        return ()

    def draw(self, key: jax.Array, state: tuple[()], t: jax.Array) -> Request:
        del state, t
        k_x, k_shared, k_noise, k_length = draws.split(key, 4)
        models, size = np.shape(self.direction)
        x = draws.normal(k_x, (size,))
        lean = self.threshold + self.from_features * jnp.sum(self.direction * x, axis=-1)
        noise = jnp.sqrt(jnp.maximum(0.0, 1.0 - jnp.square(self.from_features) - jnp.square(self.shared)))
        latent = lean + self.shared * draws.normal(k_shared) + noise * draws.normal(k_noise, (models,))
        spread = jnp.asarray(self.length_spread, jnp.float32)
        length = jnp.exp(spread * draws.normal(k_length) - spread * spread / 2)
        cost = jnp.asarray(self.cost_mean, jnp.float32) * length
        return Request(features=x, satisfied=latent > 0, cost=cost, success=self._given(lean))

    def _given(self, lean: jax.Array) -> jax.Array:
        """Returns the probabilities `[M]` given the contribution of the features."""
        return ndtr(lean / jnp.sqrt(jnp.maximum(1e-12, 1.0 - jnp.square(self.from_features))))

    def success(self, features: jax.Array) -> jax.Array:
        """Returns the probabilities `[M]` given features `[d]`."""
        return self._given(self.threshold + self.from_features * jnp.sum(self.direction * features, axis=-1))

    def average(self) -> Contexts:
        """Returns all requests as one context: `Phi(threshold)` and the mean costs."""
        return Contexts(np.ones(1), *(np.asarray(x, np.float64)[None] for x in (ndtr(self.threshold), self.cost_mean)))

    def contexts(self, knows_cost: bool = True) -> Contexts:
        """Returns a sample of requests, by features and by observed lengths."""
        sample = sampled(self)
        contexts = equally_weighted(sample.success, sample.cost)
        return contexts if knows_cost else contexts.at_cost(self.cost_mean)

    def label_contexts(self) -> Contexts:
        """Returns a sample of requests by satisfaction."""
        return labelled(self)

    def clairvoyant_contexts(self, knows_cost: bool = True) -> Contexts:
        """Returns a sample of requests by satisfaction, at mean costs if costs are not observed."""
        return self.label_contexts() if knows_cost else self.label_contexts().at_cost(self.cost_mean)
