"""Index estimators with one step per sample and constant memory."""

import abc

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from jaxroute.core import checks, numerics, xla
from jaxroute.core.types import Leaf
from jaxroute.estimators.glm import shortened
from jaxroute.estimators.links import Link
from jaxroute.problems.cascade.parts.designs import first_inverse
from jaxroute.problems.cascade.parts.loss import Evaluator, IndexEstimator, Sample, Sizes, curvature, moment


@struct.dataclass
class StreamState:
    """State of a `StreamEstimator`.

    Attributes:
      inverse: `[m, m, K]`, inverse curvature.
      error: `[m, K]`, rounding error of the estimates, see `numerics.add_up`.
    """

    inverse: numerics.Sum
    error: jax.Array


@struct.dataclass
class StreamEstimator(IndexEstimator):
    """One Newton step per sample, with a curvature that the derived classes define.

    Attributes:
      floor: `[]`, least curvature of a sample.
      start: `[]`, curvature before the first sample.
      bound: `[]`, largest length of the estimate.
    """

    floor: Leaf = 0.1
    start: Leaf = 0.1
    bound: Leaf = 2.0

    def check(self) -> None:
        checks.probability("floor", self.floor, ())
        checks.positive("start", self.start, ())
        checks.positive("bound", self.bound, ())

    def init(self, sizes: Sizes) -> StreamState:
        inverse = first_inverse(self.start, sizes.dim, sizes.num_boxes)
        return StreamState(numerics.Sum.of(inverse), jnp.zeros_like(inverse[0]))

    @abc.abstractmethod
    def _curvature(self, link: Link, u: jax.Array, score: jax.Array) -> jax.Array:
        """Curvature `[K]` of a sample at the estimate."""

    def update(
        self, fit: StreamState, rho: jax.Array, sample: Sample, evaluator: Evaluator | None, link: Link
    ) -> tuple[StreamState, jax.Array]:
        del evaluator
        return self.weighted(fit, rho, sample, sample.seen.astype(jnp.float32), link)

    def weighted(
        self, fit: StreamState, rho: jax.Array, sample: Sample, weight: jax.Array, link: Link
    ) -> tuple[StreamState, jax.Array]:
        """State and estimates after samples with weights `[K]`, 0 for no sample."""
        psi, score = sample.psi, sample.score
        u = numerics.combine(psi, rho)
        bend = weight * self._curvature(link, u, score)
        direction = xla.compute_once(numerics.combine(psi, fit.inverse.total))
        shrink = 1.0 / (1.0 + bend * numerics.combine(psi, direction))
        step = weight * shrink * moment(link, u, score, sample.cost)
        inverse = fit.inverse.add(-(bend * shrink) * (direction[:, None] * direction[None]), weight > 0)
        rho, error = numerics.add_up(rho, fit.error, -step * direction, weight > 0)
        return StreamState(inverse, error), shortened(rho, jnp.asarray(self.bound, jnp.float32))


@struct.dataclass
class StreamingNewton(StreamEstimator):
    """One Newton step per sample on the loss: constant memory, and the fastest estimator.

    Scores are those of the evaluator at the time of the sample and are never updated: with a learned evaluator `Window` is better, above all with the
    identity link, whose first estimate scores every output 0. Without the `floor` estimates stop changing.
    """

    def _curvature(self, link: Link, u: jax.Array, score: jax.Array) -> jax.Array:
        return curvature(link, u, score, jnp.asarray(self.floor, jnp.float32))


@struct.dataclass
class ConstantCurvature(StreamEstimator):
    """The textbook's online Newton step, with the same curvature for every sample: slow, for comparison.

    Attributes:
      floor: `[]`, that curvature.
    """

    floor: Leaf = 0.3

    def _curvature(self, link: Link, u: jax.Array, score: jax.Array) -> jax.Array:
        del link, u
        return jnp.full_like(score, self.floor)


@struct.dataclass
class GradientDescent(IndexEstimator):
    """Projected gradient descent on the loss, with steps `1 / sqrt(s)` at the `s`-th sample of a box.

    Attributes:
      bound: `[]`, largest length of the estimate.
    """

    bound: Leaf = 2.0

    def check(self) -> None:
        checks.positive("bound", self.bound, ())

    def init(self, sizes: Sizes) -> jax.Array:
        """Number `[K]` int32 of samples of each box."""
        return jnp.zeros((sizes.num_boxes,), jnp.int32)

    def update(
        self, fit: jax.Array, rho: jax.Array, sample: Sample, evaluator: Evaluator | None, link: Link
    ) -> tuple[jax.Array, jax.Array]:
        del evaluator
        number = fit + sample.seen.astype(jnp.int32)
        slope = moment(link, numerics.combine(sample.psi, rho), sample.score, sample.cost)
        length = jnp.where(sample.seen, slope * lax.rsqrt(jnp.maximum(number, 1).astype(jnp.float32)), 0.0)
        return number, shortened(rho - length * sample.psi[:, None], jnp.asarray(self.bound, jnp.float32))
