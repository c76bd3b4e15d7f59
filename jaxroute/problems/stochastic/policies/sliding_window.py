"""Policies that forget: what is older than a window does not count."""

import math
from typing import Self

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import checks, draws, numerics
from jaxroute.core.rewards import UNIT, Assumptions
from jaxroute.core.types import Leaf, Spec
from jaxroute.estimators.window import WindowSums


class OnWindow:
    """Keeps the sums of the latest rounds, as many as its `window` says."""

    window: int  # A field of each policy, behind those that are its own.

    def init(self, key: jax.Array, spec: Spec) -> WindowSums:
        return WindowSums.empty(key, spec.num_models, self.window)

    def update(
        self, key: jax.Array, state: WindowSums, obs: tuple[()], action: jax.Array, feedback: jax.Array, t: jax.Array
    ) -> WindowSums:
        del key, obs
        return state.add(action, feedback, t)


@struct.dataclass
class SlidingWindowUCB(OnWindow):
    """UCB of the latest `W` rounds: `mean + b sqrt(xi log(min(t, W)) / pulls)`, with mean and pulls in the window.

    For means that change abruptly. A model that was not used in the window comes first.

    Source: Garivier and Moulines (2011), SW-UCB; `t` is 1 in the first round.

    Attributes:
      xi: `[]` exploration; the theory asks for more than 1/2.
      upper: `[]` the `b`: rewards lie in `[0, b]`.
      window: `W`, in rounds (static); the default is that of `tuned(10_000)`.
    """

    xi: Leaf = 0.6
    upper: Leaf = 1.0
    window: int = struct.field(pytree_node=False, default=607)

    @property
    def assumes(self) -> Assumptions:
        return Assumptions(noise=float(self.upper) / 2.0, remedy="give upper, the range of the rewards")

    @classmethod
    def tuned(cls, horizon: int, changes: int = 1, upper: float = 1.0, **options: Leaf) -> Self:
        """With the window of the theory, `2 b sqrt(T log(T) / changes)`.

        Source: Garivier and Moulines (2011), for SW-UCB.

        Args:
          horizon: rounds `T`, at least 2.
          changes: how often the means change in them.
          upper: `b`.
          options: the other attributes.
        """
        rounds, times = checks.count("horizon", horizon, 2), checks.count("changes", changes)
        top = float(checks.positive("upper", upper, ()))
        return cls(window=math.ceil(2.0 * top * math.sqrt(rounds * math.log(rounds) / times)), upper=upper, **options)

    def check(self) -> None:
        checks.non_negative("xi", self.xi, ())
        checks.positive("upper", self.upper, ())
        checks.count("window", self.window)

    def act(self, key: jax.Array, state: WindowSums, obs: tuple[()], t: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        del key, obs
        share = 1.0 / jnp.maximum(state.pulls, 1).astype(jnp.float32)
        log_t = jnp.log(jnp.minimum(jnp.asarray(t, share.dtype) + 1.0, float(self.window)))
        bound = state.reward_sum * share + self.upper * jnp.sqrt(self.xi * log_t * share)
        bound = jnp.where(state.pulls > 0, bound, jnp.inf)
        return numerics.argmax(bound, order=state.order), {"bound": bound}


@struct.dataclass
class SlidingWindowThompson(OnWindow):
    """Thompson sampling of the latest `W` rounds, with a beta posterior: `Beta(successes + wins, failures + losses)` of the window.

    Source: Trovo, Paladino, Restelli and Gatti (2020), SW-TS. A reward in (0, 1) counts as that share of a success. A draw costs as
    much as one of `BetaThompson`.

    Attributes:
      successes: `[]` prior successes, at least 1.
      failures: `[]` prior failures, at least 1.
      window: `W`, in rounds (static); the default is that of `SlidingWindowUCB`.
    """

    successes: Leaf = 1.0
    failures: Leaf = 1.0
    window: int = struct.field(pytree_node=False, default=607)

    assumes = UNIT

    def check(self) -> None:
        checks.at_least("successes", self.successes, 1.0)
        checks.at_least("failures", self.failures, 1.0)
        checks.count("window", self.window)

    def act(self, key: jax.Array, state: WindowSums, obs: tuple[()], t: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        del obs, t
        wins = self.successes + state.reward_sum
        losses = self.failures + (state.pulls.astype(jnp.float32) - state.reward_sum)
        # Sums of rewards that are no whole numbers are off by their rounding.
        sample = draws.beta(key, jnp.maximum(wins, 1.0), jnp.maximum(losses, 1.0))
        return numerics.argmax(sample), {"sample": sample}

    def update(
        self, key: jax.Array, state: WindowSums, obs: tuple[()], action: jax.Array, feedback: jax.Array, t: jax.Array
    ) -> WindowSums:
        return super().update(key, state, obs, action, jnp.clip(feedback, 0.0, 1.0), t)
