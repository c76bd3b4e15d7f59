"""Confidence radii of CUCB."""

from typing import Protocol

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import checks
from jaxroute.core.types import Leaf
from jaxroute.estimators.confidence import hoeffding_radius, union_log_term


class Radius(Protocol):
    """Confidence radius of an empirical mean."""

    def radius(self, count: jax.Array, num_models: int, t: jax.Array) -> jax.Array:
        """Returns the radius of each model after `count` `[K]` observations, in round `t` (from 1)."""
        ...


@struct.dataclass
class PlainRadius:
    """Radius `sqrt(3 log t / (2 n))` of CUCB. Source: Wang and Chen (2017)."""

    def radius(self, count: jax.Array, num_models: int, t: jax.Array) -> jax.Array:
        del num_models
        return hoeffding_radius(count, 3.0 * jnp.log(t.astype(jnp.float32)))


@struct.dataclass
class UnionRadius:
    """Radius of C2MAB-V, `width` times `sqrt(log(2 pi^2 K t^3 / (3 delta)) / (2 n))`.

    Attributes:
      width: `[]` multiplier.
      delta: `[]` confidence level.
    """

    width: Leaf = 1.0
    delta: Leaf = 1e-4

    def check(self) -> None:
        checks.non_negative("width", self.width, ())
        checks.share("delta", self.delta, ())

    def radius(self, count: jax.Array, num_models: int, t: jax.Array) -> jax.Array:
        radius = hoeffding_radius(count, union_log_term(num_models, t, self.delta))
        return jnp.where(count > 0, self.width * radius, jnp.inf)  # Infinite also for a width of 0.
