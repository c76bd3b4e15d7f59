"""Index estimators that store the latest samples of each box, and fit them by Newton or Gauss-Newton steps."""

import abc
from typing import Any, NamedTuple, Self

import jax.numpy as jnp
from flax import struct
from jax import Array, lax

from jaxroute.core import checks, numerics, xla
from jaxroute.core.types import Leaf
from jaxroute.estimators.gaussian import solve
from jaxroute.estimators.glm import shortened
from jaxroute.estimators.links import Link
from jaxroute.problems.cascade.parts.indices import Evaluator, IndexEstimator, Sample, Sizes, curvature, moment, summed

# Number of trials of a line search, and the share of the interval that each keeps away from both ends.
_TRIALS, _MARGIN = 6, 0.02
# Difference of two indices below which all links are nearly linear.
_BEND = 0.5
# Added to the diagonal of the matrices of moment equations.
_DAMPING = 0.01
# Least ridge on the diagonal of a Newton matrix.
_LEAST_RIDGE = 1e-6
# Every round up to this one updates the estimates.
_EARLY = 20


@struct.dataclass
class WindowState:
    """State of a `SampleWindow`: the latest `W` samples of each of `K` boxes (models), and sums over earlier samples.

    Attributes:
      number: `[K]` int32, number of samples so far.
      psi: `[W, m, K]` features of the requests.
      cost, score: `[W, K]` costs and scores; `score` is None with a learned evaluator, which computes scores from `features` in each period.
      features: `[W, d, K]` features of the outputs, None if scores are seen.
      hessian, gradient, cross: `[m, m, K]`, `[m, K]` and `[m, d, K]` sums over samples that have left the window. The derivative of their loss is
        approximated by `hessian rho + gradient - cross theta`, for the coefficients `rho` of a box and `theta` of the evaluator. The terms of a
        sample are computed when it leaves. `cross` is None if scores are seen.
      errors: rounding errors of the sums by name of the field, for which `numerics.accumulate` corrects.
    """

    number: Array
    psi: Array
    cost: Array
    score: Array | None
    features: Array | None
    hessian: Array
    gradient: Array
    cross: Array | None
    errors: dict[str, Array]


class WindowSamples(NamedTuple):
    """Samples of the window, scored by the latest evaluator, for one fit of the indices.

    Attributes:
      columns: `[m, W, K]` features of the requests.
      score: `[W, K]` scores.
      used: `[W, K]` bool, True for slots of the window that hold a sample.
      gradient: `[m, K]` constant term of the derivative `hessian rho + gradient` by `rho` of the loss of samples that have left, see `WindowState`.
    """

    columns: Array
    score: Array
    used: Array
    gradient: Array


@struct.dataclass
class SampleWindow(IndexEstimator):
    """Base class of index estimators that store the latest samples, and a linear approximation of the loss's derivative for earlier ones.

    Subclasses define `_step`. Where scores must be learned, the latest evaluator scores the outputs in the window again. For earlier outputs the
    derivative of the loss changes linearly with the evaluator's coefficients.

    Attributes:
      ridge, bound: `[]` ridge of the loss, and largest norm of a box's coefficients.
      size: number of stored samples per box, `W` (static).
      tolerance: the iteration ends when the distance from the minimum, which each subclass estimates in its way, is at most this (static).
      iterations: largest number of steps per update (static).
      every: number of rounds between updates of the estimate, except that each of the first 20 rounds updates the estimate (static).
    """

    ridge: Leaf = 1e-4
    bound: Leaf = 2.0
    size: int = struct.field(pytree_node=False, default=32)
    tolerance: float = struct.field(pytree_node=False, default=1e-4)
    iterations: int = struct.field(pytree_node=False, default=32)
    every: int = struct.field(pytree_node=False, default=1)

    @classmethod
    def exact(cls, horizon: int, **options: Any) -> Self:
        """Returns the estimator that stores all samples of a run of `horizon` rounds, for exact comparisons; `options` are its other fields."""
        return cls(size=checks.count("horizon", horizon) + 1, **options)

    def check(self) -> None:
        checks.non_negative("ridge", self.ridge, ())
        checks.positive("bound", self.bound, ())
        checks.count("size", self.size)
        checks.non_negative("tolerance", self.tolerance, ())
        checks.count("iterations", self.iterations)
        checks.count("every", self.every)

    def init(self, sizes: Sizes) -> WindowState:
        number, dim, features = sizes
        scored = features == 0

        def zeros(*shape: int) -> Array:
            return jnp.zeros((*shape, number), jnp.float32)

        sums = {"hessian": zeros(dim, dim), "gradient": zeros(dim)} | ({} if scored else {"cross": zeros(dim, features)})
        state = WindowState(
            number=jnp.zeros((number,), jnp.int32),
            psi=zeros(self.size, dim),
            cost=zeros(self.size),
            score=zeros(self.size) if scored else None,
            features=None if scored else zeros(self.size, features),
            errors=numerics.no_errors(**sums),
            **{"cross": None, **sums},
        )
        # Otherwise the compiler computes sums over the zeros of a long window in advance, slowly.
        return xla.compute_once(state)

    def update(
        self, fit: WindowState, rho: Array, sample: Sample, evaluator: Evaluator | None, link: Link
    ) -> tuple[WindowState, Array]:
        fit = xla.compute_once(self._pushed(fit, rho, sample, evaluator, link))
        if self.every > 1:  # All runs are in the same round, so that this stays a branch.
            due = (sample.t <= _EARLY) | (sample.t % self.every == 0)
            return fit, lax.cond(due, lambda: self._fitted(fit, rho, evaluator, link), lambda: rho)
        new = self._fitted(fit, rho, evaluator, link)
        # A new evaluator changes the scores of old outputs, hence all estimates; a known one only those with a new sample.
        return fit, new if evaluator is not None else jnp.where(sample.seen, new, rho)

    def _pushed(self, fit: WindowState, rho: Array, sample: Sample, evaluator: Evaluator | None, link: Link) -> WindowState:
        """Returns `fit` with the new `sample`. In a full window the oldest moves to the sums, as the derivative of its loss linearised at `rho`."""
        slots = jnp.arange(self.size)[:, None]
        place = (slots == fit.number % self.size) & sample.seen  # [W, K]
        full = fit.number >= self.size

        def oldest(table: Array) -> Array:
            mask = place & full
            return summed(jnp.where(mask.reshape(self.size, *(1,) * (table.ndim - 2), -1), table, 0.0))

        psi, cost = oldest(fit.psi), oldest(fit.cost)
        u = jnp.sum(rho * psi, axis=0)
        more = {}
        if evaluator is None:
            assert fit.score is not None
            score = anchor = oldest(fit.score)
            counts = score > link.value(u)
        else:
            assert fit.features is not None
            phi = oldest(fit.features)
            s = numerics.combine(evaluator.theta, phi)
            score, slope = evaluator.link.value(s), evaluator.link.slope(s)
            anchor = score - slope * s
            counts = score > link.value(u)
            more = {"cross": psi[:, None] * (jnp.where(counts, slope, 0.0) * phi)[None]}
        h = curvature(link, u, score, 0.0)
        # The linearised loss has slope h u + psi (cost - active (anchor - L(u)) - h u) at the present estimate; psi = 0 without a leaving sample.
        constant = cost - jnp.where(counts, anchor - link.value(u), 0.0) - h * u
        h, constant, place = xla.compute_once((h, constant, place))
        at = place[:, None]
        features = fit.features
        if features is not None:
            assert sample.features is not None
            features = jnp.where(at, jnp.swapaxes(sample.features, 0, 1), features)
        left = numerics.accumulate(fit, hessian=h * psi[:, None] * psi[None], gradient=psi * constant, **more)
        return left.replace(
            number=fit.number + sample.seen.astype(jnp.int32),
            psi=jnp.where(at, sample.psi[None, :, None], fit.psi),
            cost=jnp.where(place, sample.cost, fit.cost),
            score=None if fit.score is None else jnp.where(place, sample.score, fit.score),
            features=features,
        )

    def _samples(self, fit: WindowState, evaluator: Evaluator | None) -> WindowSamples:
        columns, used = jnp.swapaxes(fit.psi, 0, 1), jnp.arange(self.size)[:, None] < fit.number
        if evaluator is None:
            assert fit.score is not None
            return WindowSamples(columns, fit.score, used, fit.gradient)
        assert fit.features is not None and fit.cross is not None
        s = numerics.combine(evaluator.theta, jnp.swapaxes(fit.features, 0, 1))
        moved = numerics.combine(evaluator.theta, jnp.swapaxes(fit.cross, 0, 1))
        return WindowSamples(columns, evaluator.link.value(s), used, fit.gradient - moved)

    def slope(self, fit: WindowState, rho: Array, evaluator: Evaluator | None, link: Link) -> Array:
        """Returns the derivative `[m, K]` at `rho` of the loss of samples in `fit` and of the ridge term. `evaluator` is None if scores are seen."""
        columns, score, used, gradient = self._samples(fit, evaluator)
        slope = jnp.where(used, moment(link, _linear(rho, columns), score, fit.cost), 0.0)
        samples = jnp.stack([summed(slope * column) for column in columns])
        return samples + numerics.combine(rho, fit.hessian) + gradient + jnp.asarray(self.ridge, jnp.float32) * rho

    def _fitted(self, fit: WindowState, rho: Array, evaluator: Evaluator | None, link: Link) -> Array:
        """Returns estimates `[m, K]` for the samples in `fit`: takes up to `iterations` steps from `rho` until every box is within the tolerance."""
        samples = self._samples(fit, evaluator)
        samples = WindowSamples(samples.columns, *xla.compute_once(samples[1:]))
        ridge = jnp.asarray(self.ridge, jnp.float32)

        def unfinished(point: _Point) -> Array:
            return (xla.largest_over_runs(jnp.any(point.active).astype(jnp.int32)) > 0) & (point.steps < self.iterations)

        def one(point: _Point) -> _Point:
            step, size = self._step(fit, point.rho, samples, ridge, link)
            moved = xla.compute_once(jnp.where(point.active, point.rho + step, point.rho))
            # A step within rounding changes nothing.
            active = point.active & (size > self.tolerance) & jnp.any(moved != point.rho, axis=0)
            return xla.compute_once(_Point(moved, active, point.steps + 1))

        start = _Point(rho, jnp.ones(rho.shape[1:], bool), jnp.int32(0))
        end = lax.while_loop(unfinished, one, xla.compute_once(start))
        return shortened(end.rho, jnp.asarray(self.bound, jnp.float32))

    @abc.abstractmethod
    def _step(self, fit: WindowState, rho: Array, samples: WindowSamples, ridge: Array, link: Link) -> tuple[Array, Array]:
        """Returns a step `[m, K]` from `rho` towards the minimum of the loss with `ridge` `[]`, and an estimated distance `[K]` of `rho` from it."""


class _Point(NamedTuple):
    """State of the fit of a `SampleWindow`: estimates `rho` `[m, K]`, whether each box needs more steps (`active` `[K]`), and steps so far."""

    rho: Array
    active: Array
    steps: Array


@struct.dataclass
class Window(SampleWindow):
    """Estimator of indices, eqs. (10) and (23), by Newton steps with a line search on the loss; it is exact until a sample leaves the window.

    Only samples whose score is above the index have a second derivative. With the identity link a full step ends at the minimum if these samples stay
    the same. The iteration ends when `sqrt(g' H^-1 g)`, with the gradient `g` and the second derivatives `H` of the loss, is within the tolerance.
    The probe `theory.residual` measures the remaining error of float32. Source: Qi and Sun (1993), "A nonsmooth version of Newton's method".
    """

    def _step(self, fit: WindowState, rho: Array, samples: WindowSamples, ridge: Array, link: Link) -> tuple[Array, Array]:
        dim, (columns, score, used, _) = rho.shape[0], samples
        u, slope, weight, frozen = _derivatives(fit, rho, samples, ridge, link, 0.0)
        slope, weight = xla.compute_once((slope, weight))
        frozen = xla.compute_once(frozen)
        total = xla.compute_once(jnp.stack([summed(slope * columns[i]) for i in range(dim)]) + frozen)
        matrix = _gram(weight, columns) + fit.hessian + jnp.maximum(ridge, _LEAST_RIDGE) * jnp.eye(dim)[:, :, None]
        direction = -jnp.moveaxis(solve(jnp.moveaxis(matrix, -1, 0), jnp.moveaxis(total, -1, 0)), 0, -1)
        direction = xla.compute_once(direction)
        along = xla.compute_once(_linear(direction, columns))
        first = jnp.sum(direction * total, axis=0)
        linear = jnp.sum(direction * frozen, axis=0)
        square = jnp.sum(direction * (numerics.combine(direction, fit.hessian) + ridge * direction), axis=0)

        def slope_at(length: Array) -> Array:
            samples = jnp.where(used, moment(link, u + length * along, score, fit.cost) * along, 0.0)
            return xla.compute_once(summed(samples) + linear + length * square)

        # For flat links the Newton step is too long by a factor of up to `1 / ridge`.
        short = xla.compute_once(_BEND / jnp.maximum(jnp.max(jnp.where(used, jnp.abs(along), 0.0), axis=0), _BEND))

        def narrower(_: Array, ends: tuple[Array, ...]) -> tuple[Array, ...]:
            low, high, at_low, at_high = ends  # Lengths of a step, and the slopes there.
            share = at_low / jnp.where(at_low < at_high, at_low - at_high, -1.0)
            least = jnp.maximum(low, short)
            secant = low + jnp.clip(share, _MARGIN, 1.0 - _MARGIN) * (high - low)
            # The geometric mean of lengths that are far apart, otherwise the zero of the secant.
            middle = jnp.where(high > 4.0 * least, jnp.sqrt(least * high), secant)
            at_middle = slope_at(middle)
            beyond = at_middle > 0
            new = ((low, middle), (middle, high), (at_low, at_middle), (at_middle, at_high))
            return xla.compute_once(tuple(jnp.where(beyond, *pair) for pair in new))

        one = jnp.ones_like(first)
        ends = jnp.zeros_like(first), one, first, slope_at(one)
        low, high, at_low, at_high = xla.repeat(_TRIALS, narrower, ends)
        # If a full step is not too long, it is taken as a whole.
        length = jnp.where(ends[3] <= 0, 1.0, jnp.where(at_high < -at_low, high, low))
        return length * direction, jnp.sqrt(jnp.maximum(-first, 0.0))


@struct.dataclass
class MomentEquations(SampleWindow):
    """Estimator of indices by the generalised method of moments: Gauss-Newton steps on the moments, weighted by the features' second moments.

    There are as many moments as parameters, so if the steps converge to a solution of the equations, the estimate is that of `Window`. The problem is
    not convex: if no parameter solves the equations, the iteration ends at another point. The paper discusses this method (section 4.1) and prefers
    to minimise the loss, as `Window` does. The iteration ends after a step that is shorter than the tolerance.

    Attributes:
      floor: `[]` least curvature of a sample, a factor of the link's slope. At 0 steps would nearly vanish where no score is above its index.
    """

    floor: Leaf = 0.1

    def check(self) -> None:
        super().check()
        checks.probability("floor", self.floor, ())

    def _step(self, fit: WindowState, rho: Array, samples: WindowSamples, ridge: Array, link: Link) -> tuple[Array, Array]:
        dim, columns = rho.shape[0], samples.columns
        floor = jnp.asarray(self.floor, jnp.float32)
        _, slope, weight, frozen = _derivatives(fit, rho, samples, ridge, link, floor)
        total = jnp.stack([summed(slope * columns[i]) for i in range(dim)]) + frozen
        eye = jnp.eye(dim)[:, :, None]
        design = _gram(jnp.where(samples.used, 1.0, 0.0), columns) + _DAMPING * eye
        jacobian = jnp.moveaxis(_gram(weight, columns) + fit.hessian + ridge * eye, -1, 0)
        weighted = solve(jnp.moveaxis(design, -1, 0), jnp.moveaxis(total, -1, 0))
        image = jnp.stack([solve(jnp.moveaxis(design, -1, 0), jacobian[:, :, i]) for i in range(dim)], axis=-1)
        normal = jnp.einsum("kji,kjl->kil", jacobian, image, precision="highest") + _DAMPING * jnp.eye(dim)
        direction = -solve(normal, jnp.einsum("kji,kj->ki", jacobian, weighted, precision="highest"))
        direction = jnp.moveaxis(direction, 0, -1)
        return direction, jnp.sqrt(jnp.sum(jnp.square(direction), axis=0))


def _derivatives(
    fit: WindowState, rho: Array, samples: WindowSamples, ridge: Array, link: Link, floor: Array | float
) -> tuple[Array, Array, Array, Array]:
    """Returns for the samples, `[W, K]` each, `u = rho . psi` and the first two derivatives of the loss by `u`; and a gradient by `rho`, `[m, K]`.

    The gradient is that of the ridge term and of samples that left the window. Second derivatives are at least `floor` times the slope of `link`.
    """
    columns, score, used, gradient = samples
    u = _linear(rho, columns)
    slope = jnp.where(used, moment(link, u, score, fit.cost), 0.0)
    weight = jnp.where(used, curvature(link, u, score, floor), 0.0)
    return u, slope, weight, numerics.combine(rho, fit.hessian) + gradient + ridge * rho


def _gram(weight: Array, columns: Array) -> Array:
    """Returns the matrices `sum_w weight psi psi'` `[m, m, K]` of samples with weights `[W, K]` and features `psi`, the `columns` `[m, W, K]`."""
    dim = columns.shape[0]
    rows = [[summed(weight * columns[i] * columns[j]) for j in range(i + 1)] for i in range(dim)]
    return jnp.stack([jnp.stack([rows[max(i, j)][min(i, j)] for j in range(dim)]) for i in range(dim)])


def _linear(rho: Array, columns: Array) -> Array:
    """Returns the products `rho . psi` `[W, K]` of coefficients `rho` `[m, K]` and the samples' features `psi`, the `columns` `[m, W, K]`."""
    terms = [rho[i] * columns[i] for i in range(rho.shape[0])]
    return sum(terms[1:], terms[0])
