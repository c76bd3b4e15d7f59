"""Rules that choose the periods in which a policy opens all boxes (calls all models), and learns. Period 0 opens all whatever the rule."""

import abc

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import checks, draws
from jaxroute.core.types import Leaf, PyTree


def rounded_up(horizon: Array, power: float) -> Array:
    """Returns `ceil(horizon^power)`, a float. If `horizon^power` exceeds an integer by a relative 1e-6 at most, this integer is returned."""
    return jnp.ceil(jnp.asarray(horizon, jnp.float32) ** power * (1.0 - 1e-6))


class Exploration(abc.ABC):
    """Base class of rules that decide when a policy calls all models (`forced`), and from which periods it learns (`learns`, by default all)."""

    def init(self, key: Array) -> PyTree:
        """Returns the random state of this rule, for example a key, drawn once and the same in all periods of a run; by default it is empty."""
        del key
        return ()

    @abc.abstractmethod
    def forced(self, key: Array, state: PyTree, t: Array, horizon: Array) -> Array:
        """Returns whether all boxes are opened in the period `t` of a run of `horizon` periods, a boolean scalar; `state` comes from `init`."""

    def learns(self, forced: Array, t: Array, horizon: Array) -> Array:
        """Returns whether the policy learns from the period `t` of `horizon`, a boolean scalar; `forced` is True if this rule opened all boxes."""
        del forced, t, horizon
        return jnp.ones((), bool)


@struct.dataclass
class WarmUp(Exploration):
    """Rule that opens all boxes (calls all models) in the first `rounds` periods (requests)."""

    rounds: Leaf = 0

    def check(self) -> None:
        checks.non_negative("rounds", self.rounds, ())

    def forced(self, key: Array, state: PyTree, t: Array, horizon: Array) -> Array:
        del key, state, horizon
        return t <= jnp.asarray(self.rounds)


@struct.dataclass
class DecayingExploration(Exploration):
    """Rule that opens all boxes (calls all models) at the `t`-th request with probability `min(1, scale t^-(1/3))`."""

    scale: Leaf = 1.0

    def check(self) -> None:
        checks.non_negative("scale", self.scale, ())

    def forced(self, key: Array, state: PyTree, t: Array, horizon: Array) -> Array:
        del state, horizon
        return draws.uniform(key) < self.scale * jnp.maximum(t, 1).astype(jnp.float32) ** (-1.0 / 3.0)


@struct.dataclass
class ExplorationPhase(Exploration):
    """Rule that calls all models in the first `rounds` periods (None: `ceil(horizon^(2/3))`), and learns nothing afterwards."""

    rounds: Leaf | None = None

    def check(self) -> None:
        if self.rounds is not None:
            checks.non_negative("rounds", self.rounds, ())

    def _in_phase(self, t: Array, horizon: Array) -> Array:
        rounds = rounded_up(horizon, 2.0 / 3.0) if self.rounds is None else jnp.asarray(self.rounds)
        return jnp.asarray(t, rounds.dtype) <= rounds

    def forced(self, key: Array, state: PyTree, t: Array, horizon: Array) -> Array:
        del key, state
        return self._in_phase(t, horizon)

    def learns(self, forced: Array, t: Array, horizon: Array) -> Array:
        del forced
        return self._in_phase(t, horizon)


@struct.dataclass
class BlockExploration(Exploration):
    """Rule that calls all models in one random period of each block of `length` periods (None: `ceil(horizon^(1/6))`), and learns only then."""

    length: Leaf | None = None

    def check(self) -> None:
        if self.length is not None:
            checks.whole("length", float(checks.positive("length", self.length, ())))

    def init(self, key: Array) -> Array:
        return key

    def forced(self, key: Array, state: PyTree, t: Array, horizon: Array) -> Array:
        del key
        length = rounded_up(horizon, 1.0 / 6.0) if self.length is None else jnp.asarray(self.length)
        length = length.astype(jnp.int32)
        block = (t - 1) // length
        place = jnp.floor(draws.uniform(draws.fold_in(state, block)) * length.astype(jnp.float32)).astype(jnp.int32)
        return (t - 1) % length == place

    def learns(self, forced: Array, t: Array, horizon: Array) -> Array:
        del horizon
        return forced & (t > 0)
