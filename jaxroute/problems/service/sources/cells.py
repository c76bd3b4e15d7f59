"""Requests with a tabulated joint distribution of satisfaction."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf
from jaxroute.problems.service.sources.source import Contexts, all_labels, equally_weighted, labelled, sampled
from jaxroute.problems.service.types import Request


@struct.dataclass
class CellRequests:
    """Requests with a tabulated joint distribution of satisfaction, and features with a chosen amount of information.

    The feature of model `m` is `signal * (2 s_m - 1)` plus standard normal noise, followed by `num_noise` coordinates of noise and a constant 1. The
    probability of each cell given the features has a closed form. A feature's area under the curve is `Phi(sqrt(2) * signal)`: .15 is weak (.58), .6
    good (.80).

    Attributes:
      weight: `[2 ** M]` share of each cell, in the order of `all_labels`.
      cost_mean: `[M]` mean of a normal distribution, truncated at 5 % of the mean.
      cost_spread: `[M]` standard deviation of the cost.
      signal: `[]` information of a feature about its model.
      num_noise: number of uninformative features (static).
    """

    weight: Leaf
    cost_mean: Leaf
    cost_spread: Leaf
    signal: Leaf
    num_noise: int = struct.field(pytree_node=False, default=4)

    @property
    def num_features(self) -> int:
        return self.cost_mean.shape[-1] + self.num_noise + 1

    def check(self) -> None:
        shape = np.shape(checks.non_negative("cost", self.cost_mean))
        if len(shape) != 1:
            raise ValueError(f"cost must have shape [models], got {shape}")
        checks.non_negative("cost_spread", self.cost_spread, shape)
        weight = checks.non_negative("cells", self.weight, (2 ** shape[0],))
        if abs(weight.sum() - 1.0) > 1e-5:
            raise ValueError(f"cells must sum to 1, got {weight.sum():g}")
        checks.numbers("signal", self.signal, ())
        checks.count("num_noise", self.num_noise, minimum=0)

    def init(self, key: jax.Array) -> tuple[()]:
        del key
        return ()

    def draw(self, key: jax.Array, state: tuple[()], t: jax.Array) -> Request:
        del state, t
        k_cell, k_feature, k_cost = draws.split(key, 3)
        models = np.shape(self.cost_mean)[0]
        cell = numerics.inverse_cdf(jnp.asarray(self.weight, jnp.float32), draws.uniform(k_cell))
        bits = (cell >> np.arange(models)[::-1]) & 1
        noise = draws.normal(k_feature, (models + self.num_noise,))
        lean = jnp.asarray(self.signal, jnp.float32) * (2 * bits - 1).astype(jnp.float32)
        features = jnp.concatenate([noise[:models] + lean, noise[models:], jnp.ones(1, jnp.float32)])
        mean, spread = jnp.asarray(self.cost_mean, jnp.float32), jnp.asarray(self.cost_spread, jnp.float32)
        cost = jnp.maximum(0.05 * mean, mean + spread * draws.normal(k_cost, (models,)))
        return Request(features=features, satisfied=bits == 1, cost=cost, success=self.success(features))

    def success(self, features: jax.Array) -> jax.Array:
        """Returns the probabilities `[M]` given features `[d]`.

        `P(j | x)` is proportional to `w_j exp(signal * sum_m (2 s_m(j) - 1) x_m)`.
        """
        labels = all_labels(np.shape(self.cost_mean)[0])
        lean = self.signal * jnp.sum((2.0 * labels - 1.0) * features[: labels.shape[1]], axis=-1)
        mass = jnp.asarray(self.weight, jnp.float32) * jnp.exp(lean - jnp.max(lean))
        return jnp.sum(mass[:, None] * labels, axis=0) / jnp.sum(mass)

    def average(self) -> Contexts:
        """Returns all requests as one context."""
        return self.label_contexts().mean()

    def contexts(self, knows_cost: bool = True) -> Contexts:
        """Returns a sample of requests, by features and by observed costs."""
        sample = sampled(self)
        contexts = equally_weighted(sample.success, sample.cost)
        return contexts if knows_cost else contexts.at_cost(self.cost_mean)

    def label_contexts(self) -> Contexts:
        """Returns the cells, at mean costs."""
        labels = all_labels(np.shape(self.cost_mean)[0]).astype(np.float64)
        weight = np.asarray(self.weight, np.float64)
        return Contexts(weight / weight.sum(), labels, np.broadcast_to(np.asarray(self.cost_mean, np.float64), labels.shape))

    def clairvoyant_contexts(self, knows_cost: bool = True) -> Contexts:
        """Returns a sample of requests by satisfaction and costs; the cells if costs are not observed."""
        return labelled(self) if knows_cost else self.label_contexts()
