"""Index estimator that learns a distribution of the scores, of one shape for all requests, and solves for the index."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import checks, numerics
from jaxroute.core.types import Leaf
from jaxroute.estimators.links import Link
from jaxroute.problems.cascade.parts.designs import change_of_inverse, first_inverse
from jaxroute.problems.cascade.parts.loss import Evaluator, IndexEstimator, Sample, Sizes, summed
from jaxroute.solvers.reservation import index_by_bisection


@struct.dataclass
class LocationState:
    """State of `LocationFamily`.

    Attributes:
      inverse: `[m, m, K]`, inverse design matrices of the regression of mean scores.
      target: `[m, K]`, sums of scores times features.
      residual: `[R, K]`, the latest residuals.
      number: `[K]` int32, numbers of samples.
      cost: `[K]`, mean costs.
      errors: rounding errors of the sums, see `numerics.accumulate`.
    """

    inverse: jax.Array
    target: jax.Array
    residual: jax.Array
    number: jax.Array
    cost: jax.Array
    errors: dict[str, jax.Array]


@struct.dataclass
class LocationFamily(IndexEstimator):
    """Models scores as a linear mean plus noise of one distribution and solves for the index on the latest residuals; biased for other scores.

    Source: in the spirit of Liu et al. (2025), who learn distributions; the details are ours.

    Attributes:
      ridge: `[]`, ridge of the regression.
      size: number of stored residuals (static).
      halvings: number of bisections of the interval of the index (static).
    """

    bound = 2.0  # Largest length of the estimate for the radii of the proofs; not used here.
    ridge: Leaf = 1.0
    size: int = struct.field(pytree_node=False, default=64)
    halvings: int = struct.field(pytree_node=False, default=30)

    def check(self) -> None:
        checks.positive("ridge", self.ridge, ())
        checks.count("size", self.size)
        checks.count("halvings", self.halvings)

    def init(self, sizes: Sizes) -> LocationState:
        number, dim = sizes.num_boxes, sizes.dim
        sums = {
            "inverse": first_inverse(self.ridge, dim, number),
            "target": jnp.zeros((dim, number), jnp.float32),
            "cost": jnp.zeros((number,), jnp.float32),
        }
        return LocationState(
            **sums,
            residual=jnp.zeros((self.size, number), jnp.float32),
            number=jnp.zeros((number,), jnp.int32),
            errors=numerics.no_errors(**sums),
        )

    def update(
        self, fit: LocationState, rho: jax.Array, sample: Sample, evaluator: Evaluator | None, link: Link
    ) -> tuple[LocationState, jax.Array]:
        del rho, evaluator, link
        seen, psi = sample.seen, sample.psi
        number = fit.number + seen.astype(jnp.int32)
        sums = numerics.accumulate(
            fit,
            seen,
            inverse=change_of_inverse(fit.inverse, psi),
            target=jnp.where(seen, sample.score, 0.0) * psi[:, None],
            cost=(sample.cost - fit.cost) / jnp.maximum(number, 1).astype(fit.cost.dtype),
        )
        rho = jnp.asarray(sum(sums.target[i] * sums.inverse[i] for i in range(psi.shape[0])))
        residual = sample.score - numerics.combine(psi, rho)
        place = (jnp.arange(self.size)[:, None] == fit.number % self.size) & seen
        return sums.replace(residual=jnp.where(place, residual, fit.residual), number=number), rho

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
