"""When a policy opens all boxes to learn, whatever it has seen, and which periods it learns from.

Period 0, in which all boxes are opened in any case, is not its concern.
"""

from typing import Protocol

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import checks, draws
from jaxroute.core.types import Leaf, PyTree


class Exploration(Protocol):
    """When boxes are opened to learn."""

    def check(self) -> None:
        """Raises `ValueError` on values out of range."""
        ...

    def init(self, key: jax.Array) -> PyTree:
        """State, which stays as it is."""
        ...

    def forced(self, key: jax.Array, state: PyTree, t: jax.Array, horizon: jax.Array) -> jax.Array:
        """Whether all boxes are opened in the period `t` of a run of `horizon` periods, `[]` bool."""
        ...

    def learns(self, forced: jax.Array, t: jax.Array, horizon: jax.Array) -> jax.Array:
        """Whether the period teaches something, `[]` bool."""
        ...


def rounded_up(horizon: jax.Array, power: float) -> jax.Array:
    """`ceil(T^power)` as a float, where `T^power` may miss a whole number by rounding: by less than `1e-6` of it."""
    return jnp.ceil(jnp.asarray(horizon, jnp.float32) ** power * (1.0 - 1e-6))


class StatelessExploration:
    """Learns from every period, keeps nothing."""

    def init(self, key: jax.Array) -> tuple[()]:
        del key
        return ()

    def learns(self, forced: jax.Array, t: jax.Array, horizon: jax.Array) -> jax.Array:
        del forced, t, horizon
        return jnp.ones((), bool)


@struct.dataclass
class WarmUp(StatelessExploration):
    """All boxes in the first periods.

    Attributes:
      rounds: `[]`, how many.
    """

    rounds: Leaf = 0

    def check(self) -> None:
        checks.non_negative("rounds", self.rounds, ())

    def forced(self, key: jax.Array, state: PyTree, t: jax.Array, horizon: jax.Array) -> jax.Array:
        del key, state, horizon
        return t <= jnp.asarray(self.rounds)


@struct.dataclass
class DecayingExploration(StatelessExploration):
    """All boxes with probability `min(1, scale t^-(1/3))`.

    Attributes:
      scale: `[]`.
    """

    scale: Leaf = 1.0

    def check(self) -> None:
        checks.non_negative("scale", self.scale, ())

    def forced(self, key: jax.Array, state: PyTree, t: jax.Array, horizon: jax.Array) -> jax.Array:
        del state, horizon
        return draws.uniform(key) < self.scale * jnp.maximum(t, 1).astype(jnp.float32) ** (-1.0 / 3.0)


@struct.dataclass
class ExplorationPhase(StatelessExploration):
    """All boxes in the first `T^(2/3)` periods, and indices that do not change any more afterwards.

    Attributes:
      rounds: `[]` first periods, None for `ceil(T^(2/3))`.
    """

    rounds: Leaf | None = None

    def check(self) -> None:
        if self.rounds is not None:
            checks.non_negative("rounds", self.rounds, ())

    def _rounds(self, horizon: jax.Array) -> jax.Array:
        return rounded_up(horizon, 2.0 / 3.0) if self.rounds is None else jnp.asarray(self.rounds)

    def forced(self, key: jax.Array, state: PyTree, t: jax.Array, horizon: jax.Array) -> jax.Array:
        del key, state
        rounds = self._rounds(horizon)
        return jnp.asarray(t, rounds.dtype) <= rounds

    def learns(self, forced: jax.Array, t: jax.Array, horizon: jax.Array) -> jax.Array:
        del forced
        rounds = self._rounds(horizon)
        return jnp.asarray(t, rounds.dtype) <= rounds


@struct.dataclass
class BlockExploration:
    """All boxes in one random period of each block, and nothing is learned from other periods.

    Attributes:
      length: `[]` periods of a block, None for `ceil(T^(1/6))`.
    """

    length: Leaf | None = None

    def check(self) -> None:
        if self.length is not None:
            length = float(checks.positive("length", self.length, ()))
            if length != int(length):
                raise ValueError(f"length must be a whole number of periods, got {length:g}")

    def init(self, key: jax.Array) -> jax.Array:
        return key

    def forced(self, key: jax.Array, state: PyTree, t: jax.Array, horizon: jax.Array) -> jax.Array:
        del key
        length = rounded_up(horizon, 1.0 / 6.0) if self.length is None else jnp.asarray(self.length)
        length = length.astype(jnp.int32)
        block = (t - 1) // length
        place = jnp.floor(draws.uniform(draws.fold_in(state, block)) * length.astype(jnp.float32)).astype(jnp.int32)
        return (t - 1) % length == place

    def learns(self, forced: jax.Array, t: jax.Array, horizon: jax.Array) -> jax.Array:
        del horizon
        return forced & (t > 0)
