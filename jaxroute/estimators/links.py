"""Link functions: increasing maps of a linear predictor, with slope and inverse.

A link bundles its functions, as in `LOGISTIC.value(s)`. Links are static fields of policies and environments: another link means a new compilation.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy import stats as jsp

# Value at which the flattened identity starts to bend towards 1.
_BEND = 0.9
# Inverse outside the range (-1, 1) of a link: finite, and larger than any linear predictor.
FAR = 1e4


@dataclass(frozen=True)
class Link:
    """Increasing map of a linear predictor to a mean, with its slope, inverse and integral; all functions are elementwise.

    Attributes:
      name: name for messages and results.
      value: the map.
      slope: derivative of the map.
      inverse: inverse of the map; large and finite for arguments that the map never reaches.
      integral: integral of the map from 0.
    """

    name: str
    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    inverse: Callable[[Array], Array]
    integral: Callable[[Array], Array]

    def __repr__(self) -> str:
        return f"{self.name} link"


def _same(s: Array) -> Array:
    return s


def _flat(u: Array) -> Array:
    size = jnp.abs(u)
    beyond = _BEND + (1.0 - _BEND) * jnp.tanh((size - _BEND) / (1.0 - _BEND))
    return jnp.where(size <= _BEND, u, jnp.sign(u) * beyond)


def _flat_slope(u: Array) -> Array:
    size = jnp.abs(u)
    return jnp.where(size <= _BEND, 1.0, 1.0 - jnp.square(jnp.tanh((size - _BEND) / (1.0 - _BEND))))


def _tanh_inverse(v: Array) -> Array:
    inside = jnp.abs(v) < 1.0
    return jnp.where(inside, jnp.arctanh(jnp.where(inside, v, 0.0)), jnp.sign(v) * FAR)


def _flat_inverse(v: Array) -> Array:
    size = jnp.abs(v)
    beyond = _BEND + (1.0 - _BEND) * _tanh_inverse(jnp.maximum(size - _BEND, 0.0) / (1.0 - _BEND))
    return jnp.where(size <= _BEND, v, jnp.sign(v) * beyond)


def _log_cosh(u: Array) -> Array:
    size = jnp.abs(u)
    return size + jnp.log1p(jnp.exp(-2.0 * size)) - np.log(2.0).astype(np.float32)


def _half_square(u: Array) -> Array:
    return 0.5 * jnp.square(u)


def _flat_integral(u: Array) -> Array:
    size = jnp.abs(u)
    more = jnp.maximum(size - _BEND, 0.0)
    beyond = 0.5 * _BEND**2 + _BEND * more + (1.0 - _BEND) ** 2 * _log_cosh(more / (1.0 - _BEND))
    return jnp.where(size <= _BEND, _half_square(u), beyond)


def _logistic_slope(s: Array) -> Array:
    p = jax.nn.sigmoid(s)
    return p * (1.0 - p)


def _tanh_slope(u: Array) -> Array:
    return 1.0 - jnp.square(jnp.tanh(u))


def _logit(p: Array) -> Array:
    return jnp.log(p) - jnp.log1p(-p)


def _softplus(s: Array) -> Array:
    return jax.nn.softplus(s) - np.log(2.0).astype(np.float32)


def _normal_integral(s: Array) -> Array:
    return s * jsp.norm.cdf(s) + jsp.norm.pdf(s) - jsp.norm.pdf(0.0)


IDENTITY = Link("identity", _same, jnp.ones_like, _same, _half_square)
TANH = Link("tanh", jnp.tanh, _tanh_slope, _tanh_inverse, _log_cosh)
# Identity up to a magnitude of .9, then flattened towards 1: a link into [-1, 1] that is mostly linear.
FLAT = Link("flat", _flat, _flat_slope, _flat_inverse, _flat_integral)
LOGISTIC = Link("logistic", jax.nn.sigmoid, _logistic_slope, _logit, _softplus)
PROBIT = Link("probit", jsp.norm.cdf, jsp.norm.pdf, jax.scipy.special.ndtri, _normal_integral)

INDEX_LINKS = {link.name: link for link in (IDENTITY, TANH, FLAT)}
SCORE_LINKS = {link.name: link for link in (LOGISTIC, PROBIT, IDENTITY)}
