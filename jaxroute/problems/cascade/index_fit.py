"""Estimators of the reservation indices: convex M-estimators whose score is the moment `c - (M - index)^+`.

An index is `L(rho . psi)`; the loss of a sample is `int_0^u (c - (M - L(v))^+) dv` at `u = rho . psi`. For the identity link it is
quadratic left of the score and rises with slope `c` right of it. All boxes are fitted side by side; arrays have them last.

Each estimator has `init(sizes) -> fit`, `update(fit, rho, sample, evaluator, link) -> (fit, rho)` with `rho` `[m, K]`, and
`predict(fit, rho, psi, link) -> (u, level)`: estimates `[K]` before the link, and a function from `u` to indices.

Source: Belloni, Chen and Wei (2026), section 4.1, eqs. (8) to (10) and (22).

Differs from the paper: a ridge of 1e-4 breaks ties; an estimate outside the ball is shortened, not projected. Samples that have left the
window, or all in `Streaming`, are linearised at the estimate of their time.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from jaxroute.core import checks, numerics
from jaxroute.core.types import Leaf
from jaxroute.estimators.gaussian import solve
from jaxroute.estimators.glm import shortened
from jaxroute.estimators.links import FAR, Link
from jaxroute.solvers.reservation import index_by_bisection

# Lengths of a Newton step that are tried; the best is taken.
_LENGTHS = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01, 0.0)
# Added to the diagonal of a Newton matrix.
_DAMPING = 0.01
# Estimates are renewed in every round up to this one.
_EARLY = 20
# Sums of up to so many terms are written out.
_MOST_TERMS = 64


class Sizes(NamedTuple):
    """num_boxes: `K`. dim: `m`. feature_dim: `d`, 0 if scores are seen."""

    num_boxes: int
    dim: int
    feature_dim: int


class Sample(NamedTuple):
    """What a period brings: t `[]`; psi `[m]`; seen `[K]`; cost `[K]`; score `[K]`, seen or by the latest evaluator; features `[K, d]`
    or None."""

    t: jax.Array
    psi: jax.Array
    seen: jax.Array
    cost: jax.Array
    score: jax.Array
    features: Any


class Evaluator(NamedTuple):
    """The latest evaluator, by which old outputs are scored again: theta `[d]`, and its link."""

    theta: jax.Array
    link: Link


def moment(link: Link, u, score, cost):
    """`c - (M - L(u))^+`, the derivative of the loss at `u`; elementwise."""
    return cost - jnp.maximum(score - link.value(u), 0.0)


def loss(link: Link, u, score, cost):
    """Loss of samples at `u`, up to a constant; elementwise."""
    # A score below the link's range is above no index.
    v = jnp.where(score > link.value(jnp.float32(-FAR)), jnp.minimum(u, link.inverse(score)), 0.0)
    return cost * u - (score * v - link.integral(v))


def curvature(link: Link, u, score, floor):
    """Generalised second derivative of the loss, at least `floor` times the link's slope; elementwise."""
    return jnp.maximum((score > link.value(u)).astype(u.dtype), floor) * link.slope(u)


class LinearIndex:
    """An index that is a link of a linear function of the features."""

    def predict(self, fit, rho, psi, link: Link):
        del fit
        return numerics.combine(psi, rho), link.value


@struct.dataclass
class Streaming(LinearIndex):
    """One Newton step per sample: constant memory, and the fastest.

    Scores are those of the evaluator of their time and are never renewed: where the evaluator is learned, above all with the identity
    link, whose first estimate scores every output 0, `Window` is better.

    floor: `[]` least curvature of a sample, without which estimates freeze. start: `[]` curvature before the first sample.
    bound: `[]` longest estimate.
    """

    floor: Leaf = 0.1
    start: Leaf = 0.1
    bound: Leaf = 2.0

    def check(self) -> None:
        checks.probability("floor", self.floor, ())
        checks.positive("start", self.start, ())
        checks.positive("bound", self.bound, ())

    def init(self, sizes: Sizes) -> jax.Array:
        """Inverse curvature `[m, m, K]`."""
        eye = jnp.eye(sizes.dim, dtype=jnp.float32)[:, :, None] / jnp.asarray(self.start, jnp.float32)
        return jnp.broadcast_to(eye, (sizes.dim, sizes.dim, sizes.num_boxes))

    def _weight(self, link: Link, u, score):
        return curvature(link, u, score, jnp.asarray(self.floor, jnp.float32))

    def update(self, inverse, rho, sample: Sample, evaluator: Evaluator | None, link: Link):
        del evaluator
        weight = sample.seen.astype(jnp.float32)
        return self.weighted(inverse, rho, sample.psi, sample.score, sample.cost, weight, link)

    def weighted(self, inverse, rho, psi, score, cost, weight, link: Link):
        """With samples of weights `[K]`: 0 where nothing was seen."""
        u = numerics.combine(psi, rho)
        bend = weight * self._weight(link, u, score)
        direction = numerics.kept(numerics.combine(psi, inverse))
        shrink = 1.0 / (1.0 + bend * numerics.combine(psi, direction))
        step = jnp.where(weight > 0, weight * shrink * moment(link, u, score, cost), 0.0)
        inverse = inverse - (bend * shrink) * direction[:, None] * direction[None]
        return inverse, shortened(rho - step * direction, jnp.asarray(self.bound, jnp.float32))


@struct.dataclass
class ConstantCurvature(Streaming):
    """The textbook's online Newton step, with the same curvature for every sample: slow, for comparison.

    floor: `[]` that curvature.
    """

    floor: Leaf = 0.3

    def _weight(self, link: Link, u, score):
        del u, link
        return jnp.full_like(score, self.floor)


@struct.dataclass
class WindowState:
    """The latest samples of each box, and what remains of the earlier ones.

    number: `[K]` int32 samples so far. psi: `[W, m, K]`. cost, score: `[W, K]`. features: `[W, d, K]`, None with a known evaluator (then
    `score` is what counts). hessian: `[m, m, K]`, gradient: `[m, K]`, cross: `[m, d, K]` or None, of the samples that have left.
    """

    number: jax.Array
    psi: jax.Array
    cost: jax.Array
    score: Any
    features: Any
    hessian: jax.Array
    gradient: jax.Array
    cross: Any


@struct.dataclass
class Window(LinearIndex):
    """The latest samples exactly, earlier ones linearised. As long as nothing has left the window it is the exact estimator.

    With an unknown evaluator all old outputs are scored again by the latest one, those that have left the window to first order. What
    has left is summed in float32: with costs that do not vary the rounding passes the statistical error after some 100,000 samples.

    floor: `[]` least curvature of a sample in Newton's matrix. ridge: `[]`. bound: `[]` longest estimate. size: samples per box.
    iterations: Newton steps per round. every: the estimate is renewed in the first 20 rounds and then every so many (all static).
    """

    floor: Leaf = 0.1
    ridge: Leaf = 1e-4
    bound: Leaf = 2.0
    size: int = struct.field(pytree_node=False, default=32)
    iterations: int = struct.field(pytree_node=False, default=2)
    every: int = struct.field(pytree_node=False, default=1)

    @classmethod
    def exact(cls, horizon: int, iterations: int = 3, **options: Any) -> "Window":
        """Keeps all samples of a run of so many rounds: for references and short runs."""
        return cls(size=checks.count("horizon", horizon) + 1, iterations=iterations, **options)

    def check(self) -> None:
        checks.probability("floor", self.floor, ())
        checks.non_negative("ridge", self.ridge, ())
        checks.positive("bound", self.bound, ())
        checks.count("size", self.size)
        checks.count("iterations", self.iterations)
        checks.count("every", self.every)

    def init(self, sizes: Sizes) -> WindowState:
        number, dim, features = sizes
        known = features == 0

        def zeros(*shape):
            return jnp.zeros((*shape, number), jnp.float32)

        return WindowState(
            number=jnp.zeros((number,), jnp.int32),
            psi=zeros(self.size, dim),
            cost=zeros(self.size),
            score=zeros(self.size) if known else None,
            features=None if known else zeros(self.size, features),
            hessian=zeros(dim, dim),
            gradient=zeros(dim),
            cross=None if known else zeros(dim, features),
        )

    def update(self, fit: WindowState, rho, sample: Sample, evaluator: Evaluator | None, link: Link):
        fit = numerics.kept(self._pushed(fit, rho, sample, evaluator, link))
        if self.every > 1:  # All runs are in the same round: this is a branch, not a choice.
            due = (sample.t <= _EARLY) | (sample.t % self.every == 0)
            return fit, lax.cond(due, lambda: self._fitted(fit, rho, evaluator, link), lambda: rho)
        new = self._fitted(fit, rho, evaluator, link)
        # Scores of old outputs move with the evaluator, and with them every estimate; otherwise only those with a new sample.
        return fit, new if evaluator is not None else jnp.where(sample.seen, new, rho)

    def _pushed(self, fit: WindowState, rho, sample: Sample, evaluator: Evaluator | None, link: Link) -> WindowState:
        """With the new samples, in place of the oldest of a full window, which are linearised."""
        slots = jnp.arange(self.size)[:, None]
        place = (slots == fit.number % self.size) & sample.seen  # [W, K]
        full = fit.number >= self.size

        def oldest(table):
            """`[..., K]` of the slots that are written."""
            mask = place & full
            return _sum(jnp.where(mask.reshape(self.size, *(1,) * (table.ndim - 2), -1), table, 0.0))

        psi, cost = oldest(fit.psi), oldest(fit.cost)
        u = jnp.sum(rho * psi, axis=0)
        cross = fit.cross
        if evaluator is None:
            score = anchor = oldest(fit.score)
            h = curvature(link, u, score, 0.0)
            counts = score > link.value(u)
        else:
            features = oldest(fit.features)
            s = numerics.combine(evaluator.theta, features)
            score, slope = evaluator.link.value(s), evaluator.link.slope(s)
            h = curvature(link, u, score, 0.0)
            counts = score > link.value(u)
            anchor = score - slope * s
            cross = cross + psi[:, None] * (jnp.where(counts, slope, 0.0) * features)[None]
        # The frozen loss has slope h u + psi (cost - active (anchor - L(u)) - h u) at the present estimate; psi = 0 where nothing leaves.
        rest = cost - jnp.where(counts, anchor - link.value(u), 0.0) - h * u
        h, rest, place = numerics.kept((h, rest, place))
        at = place[:, None]
        return fit.replace(
            number=fit.number + sample.seen.astype(jnp.int32),
            psi=jnp.where(at, sample.psi[None, :, None], fit.psi),
            cost=jnp.where(place, sample.cost, fit.cost),
            score=None if fit.score is None else jnp.where(place, sample.score, fit.score),
            features=None if fit.features is None else jnp.where(at, jnp.swapaxes(sample.features, 0, 1), fit.features),
            hessian=fit.hessian + h * psi[:, None] * psi[None],
            gradient=fit.gradient + psi * rest,
            cross=cross,
        )

    def _samples(self, fit: WindowState, evaluator: Evaluator | None):
        """Present scores of the samples and which slots are in use, `[W, K]`, and the gradient `[m, K]` of what has left, at 0."""
        used = jnp.arange(self.size)[:, None] < fit.number
        if evaluator is None:
            return fit.score, used, fit.gradient
        s = numerics.combine(evaluator.theta, jnp.swapaxes(fit.features, 0, 1))
        moved = numerics.combine(evaluator.theta, jnp.swapaxes(fit.cross, 0, 1))
        return evaluator.link.value(s), used, fit.gradient - moved

    def slope(self, fit: WindowState, rho, evaluator: Evaluator | None, link: Link) -> jax.Array:
        """Derivative `[m, K]` of the penalised loss at `rho`."""
        score, used, gradient = self._samples(fit, evaluator)
        columns = jnp.swapaxes(fit.psi, 0, 1)
        slope = jnp.where(used, moment(link, _linear(rho, columns), score, fit.cost), 0.0)
        samples = jnp.stack([_sum(slope * column) for column in columns])
        return samples + numerics.combine(rho, fit.hessian) + gradient + jnp.asarray(self.ridge, jnp.float32) * rho

    def _fitted(self, fit: WindowState, rho, evaluator: Evaluator | None, link: Link):
        score, used, gradient = numerics.kept(self._samples(fit, evaluator))
        columns = jnp.swapaxes(fit.psi, 0, 1)  # [m, W, K]
        ridge = jnp.asarray(self.ridge, jnp.float32)
        for _ in range(self.iterations):
            rho = numerics.kept(rho + self._step(fit, rho, columns, score, used, gradient, ridge, link))
        return shortened(rho, jnp.asarray(self.bound, jnp.float32))

    def _step(self, fit: WindowState, rho, columns, score, used, gradient, ridge, link: Link):
        """A damped Newton step `[m, K]`, of the best of a few lengths."""
        dim = rho.shape[0]
        u = _linear(rho, columns)
        slope = jnp.where(used, moment(link, u, score, fit.cost), 0.0)
        weight = jnp.where(used, curvature(link, u, score, jnp.asarray(self.floor, jnp.float32)), 0.0)
        slope, weight = numerics.kept((slope, weight))
        frozen = numerics.combine(rho, fit.hessian) + gradient + ridge * rho
        total = jnp.stack([_sum(slope * columns[i]) for i in range(dim)]) + frozen
        matrix = _gram(weight, columns) + fit.hessian + (_DAMPING + ridge) * jnp.eye(dim)[:, :, None]
        direction = -jnp.moveaxis(solve(jnp.moveaxis(matrix, -1, 0), jnp.moveaxis(total, -1, 0)), 0, -1)
        direction = numerics.kept(direction)
        along = _linear(direction, columns)

        def value(length):
            samples = _sum(jnp.where(used, loss(link, u + length * along, score, fit.cost), 0.0))
            moved = rho + length * direction
            rest = 0.5 * numerics.combine(moved, fit.hessian) + gradient + 0.5 * ridge * moved
            return samples + jnp.sum(moved * rest, axis=0)

        best, least = jnp.zeros_like(rho[0]), None
        for length in _LENGTHS:
            found = numerics.kept(value(length))
            if least is None:
                best, least = jnp.full_like(found, length), found
            else:
                better = found < least
                best, least = jnp.where(better, length, best), jnp.where(better, found, least)
        return best * direction


@struct.dataclass
class MomentEquations(Window):
    """The generalised method of moments: Gauss-Newton steps on the moments themselves, weighted by the features' second moments.

    With as many moments as parameters it finds the same estimate, if it finds one: the problem is not convex, and where no parameter
    meets the moments it ends elsewhere. The paper discusses it and prefers the loss.

    Source: Belloni, Chen and Wei (2026), section 4.1.
    """

    iterations: int = struct.field(pytree_node=False, default=5)

    def _step(self, fit: WindowState, rho, columns, score, used, gradient, ridge, link: Link):
        dim = rho.shape[0]
        u = _linear(rho, columns)
        slope = jnp.where(used, moment(link, u, score, fit.cost), 0.0)
        weight = jnp.where(used, curvature(link, u, score, jnp.asarray(self.floor, jnp.float32)), 0.0)
        frozen = numerics.combine(rho, fit.hessian) + gradient + ridge * rho
        total = jnp.stack([_sum(slope * columns[i]) for i in range(dim)]) + frozen
        eye = jnp.eye(dim)[:, :, None]
        design = _gram(jnp.where(used, 1.0, 0.0), columns) + _DAMPING * eye
        jacobian = jnp.moveaxis(_gram(weight, columns) + fit.hessian + ridge * eye, -1, 0)
        weighted = solve(jnp.moveaxis(design, -1, 0), jnp.moveaxis(total, -1, 0))
        image = jnp.stack([solve(jnp.moveaxis(design, -1, 0), jacobian[:, :, i]) for i in range(dim)], axis=-1)
        normal = jnp.einsum("kji,kjl->kil", jacobian, image, precision="highest") + _DAMPING * jnp.eye(dim)
        direction = -solve(normal, jnp.einsum("kji,kj->ki", jacobian, weighted, precision="highest"))
        return jnp.moveaxis(direction, 0, -1)


def _gram(weight, columns) -> jax.Array:
    """`sum_w weight psi psi'` `[m, m, K]` of weights `[W, K]` and samples `[m, W, K]`."""
    dim = columns.shape[0]
    rows = [[_sum(weight * columns[i] * columns[j]) for j in range(i + 1)] for i in range(dim)]
    return jnp.stack([jnp.stack([rows[max(i, j)][min(i, j)] for j in range(dim)]) for i in range(dim)])


@struct.dataclass
class GradientDescent(LinearIndex):
    """Projected gradient descent on the loss, with steps `1 / sqrt(s)` at the `s`-th sample of a box.

    bound: `[]` longest estimate.
    """

    bound: Leaf = 2.0

    def check(self) -> None:
        checks.positive("bound", self.bound, ())

    def init(self, sizes: Sizes) -> jax.Array:
        """Samples `[K]` int32 of each box."""
        return jnp.zeros((sizes.num_boxes,), jnp.int32)

    def update(self, number, rho, sample: Sample, evaluator: Evaluator | None, link: Link):
        del evaluator
        number = number + sample.seen.astype(jnp.int32)
        slope = moment(link, numerics.combine(sample.psi, rho), sample.score, sample.cost)
        length = jnp.where(sample.seen, slope * lax.rsqrt(jnp.maximum(number, 1).astype(jnp.float32)), 0.0)
        return number, shortened(rho - length * sample.psi[:, None], jnp.asarray(self.bound, jnp.float32))


@struct.dataclass
class LocationState:
    """inverse: `[m, m, K]` of the design, target: `[m, K]`, of the mean scores' regression. residual: `[R, K]`, the latest ones.

    number: `[K]` int32 samples. cost: `[K]` their mean.
    """

    inverse: jax.Array
    target: jax.Array
    residual: jax.Array
    number: jax.Array
    cost: jax.Array


@struct.dataclass
class LocationFamily:
    """Scores are taken to be a linear mean plus noise of one law: the index is solved on the latest residuals. Wrong where it is not so.

    Source: in the spirit of Liu et al. (2025), who learn distributions; the details are ours.

    ridge: `[]` of the mean's regression. size: residuals that are kept. halvings: of the interval in which the index is sought
    (both static).
    """

    ridge: Leaf = 1.0
    size: int = struct.field(pytree_node=False, default=64)
    halvings: int = struct.field(pytree_node=False, default=30)

    def check(self) -> None:
        checks.positive("ridge", self.ridge, ())
        checks.count("size", self.size)
        checks.count("halvings", self.halvings)

    def init(self, sizes: Sizes) -> LocationState:
        number, dim = sizes.num_boxes, sizes.dim
        eye = jnp.eye(dim, dtype=jnp.float32)[:, :, None] / jnp.asarray(self.ridge, jnp.float32)
        return LocationState(
            inverse=jnp.broadcast_to(eye, (dim, dim, number)),
            target=jnp.zeros((dim, number), jnp.float32),
            residual=jnp.zeros((self.size, number), jnp.float32),
            number=jnp.zeros((number,), jnp.int32),
            cost=jnp.zeros((number,), jnp.float32),
        )

    def update(self, fit: LocationState, rho, sample: Sample, evaluator: Evaluator | None, link: Link):
        del rho, evaluator, link
        seen, psi = sample.seen, sample.psi
        inverse = grown_inverse(fit.inverse, psi, seen)
        target = fit.target + jnp.where(seen, sample.score, 0.0) * psi[:, None]
        rho = sum(target[i] * inverse[i] for i in range(psi.shape[0]))
        residual = sample.score - numerics.combine(psi, rho)
        place = (jnp.arange(self.size)[:, None] == fit.number % self.size) & seen
        number = fit.number + seen.astype(jnp.int32)
        return fit.replace(
            inverse=inverse,
            target=target,
            residual=jnp.where(place, residual, fit.residual),
            number=number,
            cost=fit.cost + jnp.where(seen, (sample.cost - fit.cost) / jnp.maximum(number, 1), 0.0),
        ), rho

    def predict(self, fit: LocationState, rho, psi, link: Link):
        del link
        used = jnp.arange(self.size)[:, None] < fit.number
        score = numerics.combine(psi, rho) + fit.residual
        count = jnp.clip(fit.number, 1, self.size).astype(jnp.float32)

        def excess(level):
            return _sum(jnp.where(used, jnp.maximum(score - level, 0.0), 0.0)) / count

        return index_by_bisection(excess, fit.cost, steps=self.halvings), lambda u: u


def grown_inverse(inverse, x, seen) -> jax.Array:
    """Inverse design matrices `[m, m, K]` after one more row `x` `[m]` where `seen` `[K]`."""
    direction = numerics.kept(numerics.combine(x, inverse))
    gain = jnp.where(seen, 1.0, 0.0) / (1.0 + numerics.combine(x, direction))
    return inverse - gain * direction[:, None] * direction[None]


def _linear(rho, columns) -> jax.Array:
    """`rho . psi` `[W, K]` of `rho` `[m, K]` and samples `[m, W, K]`."""
    terms = [rho[i] * columns[i] for i in range(rho.shape[0])]
    return sum(terms[1:], terms[0])


def _sum(values) -> jax.Array:
    """Sum over the first axis, computed once; written out where it is short, which is vectorised over runs."""
    size = values.shape[0]
    if size > _MOST_TERMS:
        return numerics.kept(jnp.sum(values, axis=0))
    terms = [lax.squeeze(x, (0,)) for x in lax.split(values, (1,) * size)]
    while len(terms) > 1:  # In pairs: shorter chains of additions.
        terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)] + ([terms[-1]] if len(terms) % 2 else [])
    return numerics.kept(terms[0])
