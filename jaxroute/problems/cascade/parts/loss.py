"""Index estimation: the samples, the loss whose minimum is the estimate, and the methods of an estimator.

An index is `L(rho . psi)`, eq. (5); the loss of a sample is `int_0^u (c - (M - L(v))^+) dv` at `u = rho . psi`, eq. (8), and with a learned evaluator
eq. (22). Its derivative is the moment `c - (M - L(u))^+`, eqs. (7) and (9). For the identity link the loss is quadratic left of the score and rises
with slope `c` right of it. All boxes are fitted side by side; they are the last axis of arrays.

Source: Belloni, Chen and Wei (2026), section 4.1, eqs. (7) to (10), and section 5.2, eqs. (22) and (23).

Differs from the paper: a ridge of 1e-4 breaks ties; an estimate outside the ball is shortened, not projected. Samples that have left the window, and
all samples in `StreamingNewton`, are linearised at the estimate of their period.
"""

import abc
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxroute.core import numerics, xla
from jaxroute.core.types import PyTree
from jaxroute.estimators.links import FAR, Link

# Sums of up to this number of terms are written out.
_MOST_TERMS = 64


class Sizes(NamedTuple):
    """Sizes of an estimator.

    Attributes:
      num_boxes: `K`.
      dim: `m`.
      feature_dim: `d`, 0 if scores are seen.
    """

    num_boxes: int
    dim: int
    feature_dim: int


class Sample(NamedTuple):
    """Data of a period.

    Attributes:
      t: `[]`, the period.
      psi: `[m]`.
      seen: `[K]` bool, whether the sample of each box is used.
      cost: `[K]`.
      score: `[K]`, seen or by the latest evaluator.
      features: `[K, d]`, None with a known evaluator.
    """

    t: jax.Array
    psi: jax.Array
    seen: jax.Array
    cost: jax.Array
    score: jax.Array
    features: jax.Array | None


class Evaluator(NamedTuple):
    """The latest evaluator, by which old outputs are scored again.

    Attributes:
      theta: `[d]`.
      link: link of the evaluator.
    """

    theta: jax.Array
    link: Link


class IndexEstimator(abc.ABC):
    """An estimator of the indices of all boxes, by default of indices that are a link of a linear function of the features, eq. (5).

    Attributes:
      bound: largest length of the estimate, half the diameter of the paper's parameter space.
    """

    @abc.abstractmethod
    def init(self, sizes: Sizes) -> PyTree:
        """State before the first sample."""

    @abc.abstractmethod
    def update(
        self, fit: PyTree, rho: jax.Array, sample: Sample, evaluator: Evaluator | None, link: Link
    ) -> tuple[PyTree, jax.Array]:
        """State and estimates `[m, K]` after a period; `evaluator` is None if no evaluator is learned, `link` is that of the indices."""

    def predict(
        self, fit: PyTree, rho: jax.Array, psi: jax.Array, link: Link
    ) -> tuple[jax.Array, Callable[[jax.Array], jax.Array]]:
        """Estimates `[K]` before the link for a request `psi` `[m]`, and a function from such numbers to indices."""
        del fit
        return numerics.combine(psi, rho), link.value


def moment(link: Link, u: jax.Array, score: jax.Array, cost: jax.Array) -> jax.Array:
    """`c - (M - L(u))^+`, the derivative of the loss at `u`; elementwise. Source: eqs. (7) and (9)."""
    return cost - jnp.maximum(score - link.value(u), 0.0)


def loss(link: Link, u: jax.Array, score: jax.Array, cost: jax.Array) -> jax.Array:
    """Loss of samples at `u`, up to a constant; elementwise. Source: eq. (8)."""
    # A score below the link's range is above no index.
    v = jnp.where(score > link.value(jnp.float32(-FAR)), jnp.minimum(u, link.inverse(score)), 0.0)
    return cost * u - (score * v - link.integral(v))


def curvature(link: Link, u: jax.Array, score: jax.Array, floor: jax.Array | float) -> jax.Array:
    """Generalised second derivative of the loss, at least `floor` times the link's slope; elementwise."""
    return jnp.maximum((score > link.value(u)).astype(u.dtype), floor) * link.slope(u)


def summed(values: jax.Array) -> jax.Array:
    """Sum over the first axis, computed once; short sums are written out, which is vectorised over runs."""
    size = values.shape[0]
    if size > _MOST_TERMS:
        return xla.compute_once(jnp.sum(values, axis=0))
    terms = [lax.squeeze(x, (0,)) for x in lax.split(values, (1,) * size)]
    while len(terms) > 1:  # In pairs: shorter chains of additions.
        terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)] + ([terms[-1]] if len(terms) % 2 else [])
    return xla.compute_once(terms[0])
