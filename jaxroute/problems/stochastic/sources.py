"""Rules by which the mean rewards of a bandit change from round to round."""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf


class MeanPath(Protocol):
    """Rule by which the mean rewards of all models change during a run. By default a path has no state: means depend on the round alone."""

    @property
    def num_models(self) -> int:
        """Returns the number of models, by default the length of the last axis of the first field."""
        return np.shape(jax.tree.leaves(self)[0])[-1]

    def init(self, key: Array) -> Any:
        """Returns the path's state before the first round, from which `mean` computes the means."""
        del key
        return ()

    def mean(self, state: Any, t: Array) -> Array:
        """Returns the mean rewards `[K]` of the models in round `t`."""
        ...

    def move(self, key: Array, state: Any, t: Array) -> Any:
        """Returns the path's state for round `t + 1`, given its `state` in round `t`."""
        del key, state, t
        return ()


@struct.dataclass
class Pieces(MeanPath):
    """Piecewise constant means. Source: Garivier and Moulines (2011), section 2, abruptly changing environments.

    Attributes:
      means: `[P, K]` means in each of `P` pieces.
      starts: `[P]` int32, first round of each piece, rising from 0.
    """

    means: Leaf
    starts: Leaf

    def check(self) -> None:
        pieces, _ = checks.numbers("means", self.means, ("P", "K")).shape
        starts = checks.numbers("starts", self.starts, (pieces,))
        if starts[0] != 0 or (np.diff(starts) <= 0).any() or (starts % 1 != 0).any():
            raise ValueError(f"starts must be whole numbers that begin with 0 and rise, got {starts.tolist()}")

    def mean(self, state: tuple[()], t: Array) -> Array:
        del state
        place = jnp.sum((jnp.asarray(t, jnp.int32) >= jnp.asarray(self.starts)).astype(jnp.int32)) - 1
        return numerics.at(jnp.asarray(self.means), (place,))


@struct.dataclass
class Sinusoid(MeanPath):
    """Sinusoidal means: `centre + amplitude sin(2 pi (t / period + phase))`.

    Source: Garivier and Moulines (2011), their simulations; Besbes, Gur and Zeevi (2014), section 5.

    Attributes:
      centre: `[K]` average mean.
      amplitude: `[K]` largest distance from the average.
      phase: `[K]` phase, in periods.
      period: `[]` period, in rounds.
    """

    centre: Leaf
    amplitude: Leaf
    phase: Leaf
    period: Leaf

    def check(self) -> None:
        shape = checks.numbers("centre", self.centre, ("K",)).shape
        checks.numbers("amplitude", self.amplitude, shape)
        checks.numbers("phase", self.phase, shape)
        checks.positive("period", self.period, ())

    def mean(self, state: tuple[()], t: Array) -> Array:
        del state
        # Whole periods are subtracted first: the angle of a late round would be rounded to tenths.
        turns = jnp.mod(jnp.asarray(t, float), self.period) / self.period
        return self.centre + self.amplitude * jnp.sin(2.0 * np.pi * (turns + self.phase))


@struct.dataclass
class BrownianMotion(MeanPath):
    """Means that take a normal step in each round, reflected at both ends of an interval. Source: Slivkins and Upfal (2008), Definition 1.1.

    Attributes:
      start: `[K]` means of the first round.
      step: `[]` standard deviation of a step.
      low, high: `[]` ends of the interval.
    """

    start: Leaf
    step: Leaf
    low: Leaf = 0.0
    high: Leaf = 1.0

    def check(self) -> None:
        low, high = checks.numbers("low", self.low, ()), checks.numbers("high", self.high, ())
        if not low < high:
            raise ValueError(f"low must be below high, got {low:g} and {high:g}")
        checks.bounded("start", self.start, ("K",), f"in [{low:g}, {high:g}]", lambda x: (x >= low) & (x <= high))
        most = (high - low) / 8.0
        allowed = f"above 0 and at most an eighth of the interval, {most:g}"
        checks.bounded("step", self.step, (), allowed, lambda x: (x > 0) & (x <= most))

    def init(self, key: Array) -> Array:
        del key
        return jnp.asarray(self.start, jnp.float32)

    def mean(self, state: Array, t: Array) -> Array:
        del t
        return state

    def move(self, key: Array, state: Array, t: Array) -> Array:
        del t
        moved = state + self.step * draws.normal(key, state.shape)
        moved = jnp.where(moved < self.low, 2.0 * self.low - moved, moved)
        return jnp.clip(jnp.where(moved > self.high, 2.0 * self.high - moved, moved), self.low, self.high)


@struct.dataclass
class MarkovChains(MeanPath):
    """Means that jump between `low` and `high`, for each model by a separate Markov chain, whether the model is used or not: a restless bandit.

    Source: Gilbert (1960); Whittle (1988); Liu and Zhao (2010), section II.

    Attributes:
      low, high: `[K]` lower and higher mean of each model.
      up, down: `[K]` probability, after each round, of a change from `low` to `high`, and from `high` to `low`.
    """

    low: Leaf
    high: Leaf
    up: Leaf
    down: Leaf

    def check(self) -> None:
        shape = checks.numbers("low", self.low, ("K",)).shape
        checks.numbers("high", self.high, shape)
        checks.share("up", self.up, shape)
        checks.share("down", self.down, shape)

    def init(self, key: Array) -> Array:
        stationary = self.up / (self.up + self.down)
        return draws.bernoulli(key, stationary)

    def mean(self, state: Array, t: Array) -> Array:
        del t
        return jnp.where(state, self.high, self.low)

    def move(self, key: Array, state: Array, t: Array) -> Array:
        del t
        jumps = draws.bernoulli(key, jnp.where(state, self.down, self.up))
        return state ^ jumps
