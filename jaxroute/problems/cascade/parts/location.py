"""Index estimator that learns a law of the scores, of one shape for all requests, and solves for the index."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import checks, numerics
from jaxroute.core.types import Leaf
from jaxroute.estimators.links import Link
from jaxroute.problems.cascade.parts.designs import first_inverse, grown_inverse
from jaxroute.problems.cascade.parts.loss import Evaluator, Sample, Sizes, summed
from jaxroute.solvers.reservation import index_by_bisection


@struct.dataclass
class LocationState:
    """State of `LocationFamily`.

    Attributes:
      inverse: `[m, m, K]`, inverse design matrices of the mean scores' regression.
      target: `[m, K]`, sums of scores times features.
      residual: `[R, K]`, the latest residuals.
      number: `[K]` int32 samples.
      cost: `[K]`, mean costs.
    """

    inverse: jax.Array
    target: jax.Array
    residual: jax.Array
    number: jax.Array
    cost: jax.Array


@struct.dataclass
class LocationFamily:
    """Scores are taken to be a linear mean plus noise of one law: the index is solved on the latest residuals. Wrong where
    it is not so.

    Source: in the spirit of Liu et al. (2025), who learn distributions; the details are ours.

    Attributes:
      ridge: `[]` of the mean's regression.
      size: residuals that are kept (static).
      halvings: of the interval in which the index is sought (static).
    """

    bound = 2.0  # Not used here: what the radii of the proofs take for the longest estimate.
    ridge: Leaf = 1.0
    size: int = struct.field(pytree_node=False, default=64)
    halvings: int = struct.field(pytree_node=False, default=30)

    def check(self) -> None:
        checks.positive("ridge", self.ridge, ())
        checks.count("size", self.size)
        checks.count("halvings", self.halvings)

    def init(self, sizes: Sizes) -> LocationState:
        number, dim = sizes.num_boxes, sizes.dim
        return LocationState(
            inverse=first_inverse(self.ridge, dim, number),
            target=jnp.zeros((dim, number), jnp.float32),
            residual=jnp.zeros((self.size, number), jnp.float32),
            number=jnp.zeros((number,), jnp.int32),
            cost=jnp.zeros((number,), jnp.float32),
        )

    def update(
        self, fit: LocationState, rho: jax.Array, sample: Sample, evaluator: Evaluator | None, link: Link
    ) -> tuple[LocationState, jax.Array]:
        del rho, evaluator, link
        seen, psi = sample.seen, sample.psi
        inverse = grown_inverse(fit.inverse, psi, seen)
        target = fit.target + jnp.where(seen, sample.score, 0.0) * psi[:, None]
        rho = jnp.asarray(sum(target[i] * inverse[i] for i in range(psi.shape[0])))
        residual = sample.score - numerics.combine(psi, rho)
        place = (jnp.arange(self.size)[:, None] == fit.number % self.size) & seen
        number = fit.number + seen.astype(jnp.int32)
        return fit.replace(
            inverse=inverse,
            target=target,
            residual=jnp.where(place, residual, fit.residual),
            number=number,
            cost=fit.cost + jnp.where(seen, (sample.cost - fit.cost) / jnp.maximum(number, 1).astype(fit.cost.dtype), 0.0),
        ), rho

    def predict(
        self, fit: LocationState, rho: jax.Array, psi: jax.Array, link: Link
    ) -> tuple[jax.Array, Callable[[jax.Array], jax.Array]]:
        del link
        used = jnp.arange(self.size)[:, None] < fit.number
        score = numerics.combine(psi, rho) + fit.residual
        count = jnp.clip(fit.number, 1, self.size).astype(jnp.float32)

        def excess(level: jax.Array) -> jax.Array:
            return summed(jnp.where(used, jnp.maximum(score - level, 0.0), 0.0)) / count

        return index_by_bisection(excess, fit.cost, steps=self.halvings), lambda u: u
