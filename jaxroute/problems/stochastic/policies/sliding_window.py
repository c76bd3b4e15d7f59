"""Policies that use the latest rounds only."""

import math
from typing import Self

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf, Spec
from jaxroute.estimators.window import WindowSums
from jaxroute.problems.stochastic.policies.base import BetaPrior, RangeBound
from jaxroute.problems.stochastic.types import Choice


class WindowPolicy:
    """Policy whose state is the sums of the latest `window` rounds."""

    window: int  # The last field of each policy.

    def check(self) -> None:
        checks.count("window", self.window)

    def init(self, key: jax.Array, spec: Spec) -> WindowSums:
        return WindowSums.empty(key, spec.num_models, self.window)

    def update(
        self, key: jax.Array, state: WindowSums, obs: tuple[()], action: jax.Array, feedback: jax.Array, t: jax.Array
    ) -> WindowSums:
        del key, obs
        return state.add(action, feedback, t)


@struct.dataclass
class SlidingWindowUCB(RangeBound, WindowPolicy):
    """UCB of the latest `W` rounds: `mean + b sqrt(xi log(min(t, W)) / pulls)`, with mean and pulls in the window.

    For means that change abruptly. A model that was not used in the window comes first.

    Source: Garivier and Moulines (2011), SW-UCB; `t` is 1 in the first round.

    Attributes:
      xi: `[]` exploration; the theory requires more than 1/2.
      upper: `[]` largest reward `b`: rewards lie in `[0, b]`.
      window: number of rounds `W` (static); the default is that of `tuned(10_000)`.
    """

    window: int = struct.field(pytree_node=False, default=607)

    @classmethod
    def tuned(cls, horizon: int, changes: int = 1, upper: float = 1.0, **options: Leaf) -> Self:
        """Creates the policy with the window of the theory, `2 b sqrt(T log(T) / changes)`.

        Source: Garivier and Moulines (2011), for SW-UCB.

        Args:
          horizon: number of rounds `T`, at least 2.
          changes: number of changes of the means in them.
          upper: largest reward `b`.
          options: the other attributes.
        """
        rounds, times = checks.count("horizon", horizon, 2), checks.count("changes", changes)
        top = float(checks.positive("upper", upper, ()))
        return cls(window=math.ceil(2.0 * top * math.sqrt(rounds * math.log(rounds) / times)), upper=upper, **options)

    def act(self, key: jax.Array, state: WindowSums, obs: tuple[()], t: jax.Array) -> Choice:
        del key, obs
        share = 1.0 / jnp.maximum(state.pulls, 1).astype(jnp.float32)
        log_t = jnp.log(jnp.minimum(jnp.asarray(t, share.dtype) + 1.0, float(self.window)))
        bound = state.reward_sum * share + self.upper * jnp.sqrt(self.xi * log_t * share)
        bound = jnp.where(state.pulls > 0, bound, jnp.inf)
        return numerics.argmax(bound, order=state.order), {"bound": bound}


@struct.dataclass
class SlidingWindowThompson(BetaPrior, WindowPolicy):
    """Thompson sampling with a beta posterior of the latest `W` rounds: `Beta(successes + wins, failures + losses)`.

    Source: Trovo, Paladino, Restelli and Gatti (2020), SW-TS. A reward in (0, 1) counts as that fraction of a success. A draw is as
    expensive as one of `BetaThompson`.

    Attributes:
      successes: `[]` prior successes, at least 1.
      failures: `[]` prior failures, at least 1.
      window: number of rounds `W` (static); the default is that of `SlidingWindowUCB`.
    """

    window: int = struct.field(pytree_node=False, default=607)

    def act(self, key: jax.Array, state: WindowSums, obs: tuple[()], t: jax.Array) -> Choice:
        del obs, t
        wins = self.successes + state.reward_sum
        losses = self.failures + (state.pulls.astype(jnp.float32) - state.reward_sum)
        # Sums of fractional rewards have rounding errors.
        sample = draws.beta(key, jnp.maximum(wins, 1.0), jnp.maximum(losses, 1.0))
        return numerics.argmax(sample), {"sample": sample}
