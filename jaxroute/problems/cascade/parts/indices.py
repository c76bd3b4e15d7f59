"""Estimators of the reservation indices of boxes (models), their loss and design matrices; the estimators that store samples are in `window`.

An index is `L(u)` with a link `L` and `u = rho . psi`, eq. (5), for coefficients `rho` of the box and features `psi` of the request. A sample with
cost `c` and score `M`, estimated by a learned evaluator in eq. (22), has the loss `int_0^u (c - (M - L(v))^+) dv`, eq. (8). Its derivative is the
moment `c - (M - L(u))^+`, eqs. (7) and (9), with mean 0 at the true index. For the identity link the loss is quadratic where the index is below the
score, and linear with slope `c` above. All boxes are fitted side by side; they are the last axis of arrays.

Source: Belloni, Chen and Wei (2026), section 4.1, eqs. (7) to (10), and section 5.2, eqs. (22) and (23).

Differs from the paper: a ridge of 1e-4 makes the minimum of the loss unique (`Window`); coefficients with a norm above `bound` are shortened, not
projected. When a sample leaves the window, and for every new sample of `StreamingNewton`, the derivative of its loss is linearised in `rho`.
"""

import abc
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from flax import struct
from jax import Array, lax

from jaxroute.core import checks, numerics, xla
from jaxroute.core.types import Leaf, PyTree
from jaxroute.estimators.glm import shortened
from jaxroute.estimators.links import FAR, Link
from jaxroute.solvers.reservation import index_by_bisection


def first_inverse(ridge: Leaf, dim: int, number: int) -> Array:
    """Returns the inverse design matrices `I / ridge` `[m, m, K]`, eq. (13), of `number` boxes with `dim` features before the first sample."""
    eye = jnp.eye(dim, dtype=jnp.float32)[:, :, None] / jnp.asarray(ridge, jnp.float32)
    return jnp.broadcast_to(eye, (dim, dim, number))


def change_of_inverse(inverse: Array, x: Array) -> Array:
    """Returns the change of `K` inverse design matrices `[m, m, K]` when `x x'` is added to each matrix, for `x` `[m]`; exactly symmetric."""
    direction = xla.compute_once(numerics.combine(x, inverse))
    gain = 1.0 / (1.0 + numerics.combine(x, direction))
    return -gain * (direction[:, None] * direction[None])


def square_norm(inverse: Array, x: Array) -> Array:
    """Returns the squared norms `x' A_k x` `[K]` of `x` `[m]` in the boxes' inverse design matrices `A_k`, `inverse` `[m, m, K]`."""
    return jnp.maximum(numerics.combine(x, numerics.combine(x, inverse)), 0.0)


# Sums of up to this number of terms are written out.
_MOST_TERMS = 64


class Sizes(NamedTuple):
    """Sizes that an index estimator needs: `K` boxes, `m` features of a request, and `d` features of an output (0 if scores are seen)."""

    num_boxes: int
    dim: int
    feature_dim: int


class Sample(NamedTuple):
    """Outputs of the models (boxes) in one period (request), from which the reservation indices are estimated.

    Attributes:
      t: `[]` period.
      psi: `[m]` features of the request.
      seen: `[K]` bool, whether the sample of each box is used.
      cost: `[K]` costs.
      score: `[K]` scores, as seen or as estimated by the latest evaluator.
      features: `[K, d]` features of the outputs, None if scores are seen.
    """

    t: Array
    psi: Array
    seen: Array
    cost: Array
    score: Array
    features: Array | None


class Evaluator(NamedTuple):
    """Latest estimate `link(theta . features)` of an output's score, `theta` `[d]`, by which index estimators score stored outputs again."""

    theta: Array
    link: Link


class IndexEstimator(abc.ABC):
    """Base class of estimators of reservation indices. By default an index is a link function of a linear function of the request, eq. (5).

    Attributes:
      bound: largest norm of a box's coefficients `rho`, half the diameter of the paper's parameter space.
    """

    @abc.abstractmethod
    def init(self, sizes: Sizes) -> PyTree:
        """Returns the estimator's state before the first sample, for the given numbers of boxes and features."""

    @abc.abstractmethod
    def update(
        self, fit: PyTree, rho: Array, sample: Sample, evaluator: Evaluator | None, link: Link
    ) -> tuple[PyTree, Array]:
        """Returns state `fit` and coefficients `rho` `[m, K]` after a sample. `link` maps to indices; `evaluator` is None if scores are seen."""

    def predict(self, fit: PyTree, rho: Array, psi: Array, link: Link) -> tuple[Array, Callable[[Array], Array]]:
        """Returns numbers `[K]` for a request `psi` `[m]`, by default `rho . psi`, and the function that maps them to indices, by default `link`."""
        del fit
        return numerics.combine(psi, rho), link.value


def moment(link: Link, u: Array, score: Array, cost: Array) -> Array:
    """Returns the derivative of each sample's loss by `u`, `cost - (score - link(u))^+`, eqs. (7) and (9), where `link(u)` is the box's index."""
    return cost - jnp.maximum(score - link.value(u), 0.0)


def loss(link: Link, u: Array, score: Array, cost: Array) -> Array:
    """Returns each sample's loss, eq. (8), up to a constant, from its `score`, its `cost` and the number `u`, for which `link(u)` is the index."""
    # A score below the link's range is above no index.
    v = jnp.where(score > link.value(jnp.float32(-FAR)), jnp.minimum(u, link.inverse(score)), 0.0)
    return cost * u - (score * v - link.integral(v))


def curvature(link: Link, u: Array, score: Array, floor: Array | float) -> Array:
    """Returns the second derivative of each sample's loss by `u`: the link's slope at `u`, times `floor` unless `score` is above `link(u)`."""
    return jnp.maximum((score > link.value(u)).astype(u.dtype), floor) * link.slope(u)


def summed(values: Array) -> Array:
    """Sums `values` over the first axis: up to `_MOST_TERMS` terms in pairs (a tree of additions), longer arrays by `jnp.sum`."""
    size = values.shape[0]
    if size > _MOST_TERMS:
        return xla.compute_once(jnp.sum(values, axis=0))
    terms = [lax.squeeze(x, (0,)) for x in lax.split(values, (1,) * size)]
    while len(terms) > 1:  # In pairs: shorter chains of additions.
        terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)] + ([terms[-1]] if len(terms) % 2 else [])
    return xla.compute_once(terms[0])


@struct.dataclass
class StreamState:
    """State of `StreamingNewton`: `inverse` `[m, m, K]` of the summed second derivatives, and rounding `error` `[m, K]` of the estimates."""

    inverse: numerics.Sum
    error: Array


@struct.dataclass
class StreamingNewton(IndexEstimator):
    """Fastest estimator of reservation indices: takes one Newton step per sample on the loss, with constant memory.

    Scores estimated in the period of a sample are never updated. With a learned evaluator `Window`, which updates them, is better, above all if the
    evaluator's link is `IDENTITY`: all scores are then first estimated as 0, and these estimates are never corrected.

    Attributes:
      floor: `[]` least curvature of a sample, a factor of the link's slope; without it a sample whose score is below the index has curvature 0.
      start, bound: `[]` factor of the identity matrix that is the curvature before the first sample, and largest norm of a box's coefficients.
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

    def _curvature(self, link: Link, u: Array, score: Array) -> Array:
        return curvature(link, u, score, jnp.asarray(self.floor, jnp.float32))

    def update(
        self, fit: StreamState, rho: Array, sample: Sample, evaluator: Evaluator | None, link: Link
    ) -> tuple[StreamState, Array]:
        del evaluator
        return self.weighted(fit, rho, sample, sample.seen.astype(jnp.float32), link)

    def weighted(self, fit: StreamState, rho: Array, sample: Sample, weight: Array, link: Link) -> tuple[StreamState, Array]:
        """Returns the state `fit` and coefficients `rho` after a sample per box, whose loss is multiplied by `weight` `[K]`; 0 changes nothing."""
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
class GradientDescent(IndexEstimator):
    """Estimator of indices by gradient descent, with steps `1 / sqrt(s)` at a box's `s`-th sample; `bound` limits the norm of its coefficients."""

    bound: Leaf = 2.0

    def check(self) -> None:
        checks.positive("bound", self.bound, ())

    def init(self, sizes: Sizes) -> Array:
        """Returns the state before the first sample: the number of samples of each box, `[K]` int32, all 0."""
        return jnp.zeros((sizes.num_boxes,), jnp.int32)

    def update(self, fit: Array, rho: Array, sample: Sample, evaluator: Evaluator | None, link: Link) -> tuple[Array, Array]:
        del evaluator
        number = fit + sample.seen.astype(jnp.int32)
        slope = moment(link, numerics.combine(sample.psi, rho), sample.score, sample.cost)
        length = jnp.where(sample.seen, slope * lax.rsqrt(jnp.maximum(number, 1).astype(jnp.float32)), 0.0)
        return number, shortened(rho - length * sample.psi[:, None], jnp.asarray(self.bound, jnp.float32))


@struct.dataclass
class LocationState:
    """State of `LocationFamily`, an estimator of the distribution of scores, for `K` boxes and `m` features of a request.

    Attributes:
      inverse: `[m, m, K]` inverse design matrices of the regression of mean scores.
      target: `[m, K]` sums of scores times features.
      residual: `[R, K]` the latest `R` residuals (scores minus fitted means) of each box.
      number, cost: `[K]` int32 number of samples, and `[K]` mean cost, of each box.
      errors: rounding errors of the sums by name of the field, for which `numerics.accumulate` corrects.
    """

    inverse: Array
    target: Array
    residual: Array
    number: Array
    cost: Array
    errors: dict[str, Array]


@struct.dataclass
class LocationFamily(IndexEstimator):
    """Estimator that fits scores by a linear function of the request, and solves `E[(score - index)^+] = cost` with the latest residuals as noise.

    It is biased if the distribution of the noise depends on the request. Source: in the spirit of Liu et al. (2025), who learn distributions; the
    details are ours.

    Attributes:
      ridge: `[]` ridge of the regression.
      size, halvings: number of stored residuals per box, and number of bisection steps that compute an index (static).
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
        self, fit: LocationState, rho: Array, sample: Sample, evaluator: Evaluator | None, link: Link
    ) -> tuple[LocationState, Array]:
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

    def predict(self, fit: LocationState, rho: Array, psi: Array, link: Link) -> tuple[Array, Callable[[Array], Array]]:
        del link
        used = jnp.arange(self.size)[:, None] < fit.number
        score = numerics.combine(psi, rho) + fit.residual
        count = jnp.clip(fit.number, 1, self.size).astype(jnp.float32)

        def excess(level: Array) -> Array:
            return summed(jnp.where(used, jnp.maximum(score - level, 0.0), 0.0)) / count

        return index_by_bisection(excess, fit.cost, steps=self.halvings), lambda u: u
