"""Rules that decide whether a policy explores an arriving query: serves it at once with the next assortment (set of models) in turn."""

import math
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxroute.core import checks
from jaxroute.core.types import Leaf


class Trigger(Protocol):
    """Rule that decides whether an arrival is explored: served at once with the next assortment (set of models) of a fixed order."""

    def check(self) -> None: ...

    def fires(self, t: Array, coin: Array) -> Array:
        """Returns whether an arrival is explored in round `t`, from 0, a boolean scalar; `coin` is a random number uniform on [0, 1)."""
        ...


@struct.dataclass
class DecayingExploration:
    """Explores an arrival (serves it at once with the next assortment) with probability `min(1, c1 / sqrt(t))` in round `t = 1, 2, ...`.

    With `c1 = 0` nothing is explored. Source: ACQB, section 3, where the probability is `eta(t - 1)`, and Algorithm 1, line 12.
    """

    c1: Leaf = 1.0

    def check(self) -> None:
        checks.non_negative("c1", self.c1, ())

    def fires(self, t: Array, coin: Array) -> Array:
        return coin <= jnp.minimum(1.0, self.c1 * jax.lax.rsqrt((t + 1).astype(jnp.float32)))


@struct.dataclass
class RecordedCoins:
    """Explores an arrival (serves it at once with the next assortment) in round `t` (from 0) if `coins[t]` is True, and never after the last coin."""

    coins: Leaf

    def check(self) -> None:
        checks.booleans("coins", self.coins, ("T",))

    def fires(self, t: Array, coin: Array) -> Array:
        del coin
        coins = jnp.asarray(self.coins, bool)
        return jax.lax.dynamic_index_in_dim(coins, t, keepdims=False) & (t < coins.shape[0])


@struct.dataclass
class PhaseThenCoin:
    """Explores (serves at once with the next assortment) every arrival of the first `phase` rounds, and later ones with probability `coin`.

    Source: CQB-eps (Bae et al., 2026), Algorithm 1, as ACQB uses it for comparison (appendix B.3).
    """

    phase: Leaf
    coin: Leaf

    def check(self) -> None:
        checks.non_negative("phase", self.phase, ())
        checks.probability("coin", self.coin, ())

    @classmethod
    def for_horizon(cls, horizon: int) -> "PhaseThenCoin":
        """Returns the rule that explores all arrivals in the first tenth of the horizon, later arrivals with probability `1 / sqrt(horizon)`."""
        checks.count("horizon", horizon)
        return cls(phase=np.float32(horizon // 10), coin=np.float32(horizon**-0.5))

    @classmethod
    def for_data(cls, horizon: int, c1: float) -> "PhaseThenCoin":
        """Returns ACQB's rule for real data: explores all arrivals while `c1 / sqrt(t + 1) > 1`, later ones with probability `1 / sqrt(horizon)`."""
        checks.count("horizon", horizon)
        checks.non_negative("c1", c1, ())
        return cls(phase=np.float32(max(0, math.ceil(c1**2 - 1))), coin=np.float32(horizon**-0.5))

    def fires(self, t: Array, coin: Array) -> Array:
        return (jnp.asarray(t, jnp.result_type(self.phase)) < self.phase) | (coin <= self.coin)
