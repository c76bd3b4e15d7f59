"""When queries come, where that is not a coin of the same probability in every round: rates that change, bursts, several servers.

Given as `arrivals` of a queue. The context of a query that comes is drawn by the queue's source as ever; `arrival_rate` then only says
which contexts are kept (assumption 4 of ACQB), and should be the mean rate.

Not in ACQB, whose arrivals are coins of one probability.
"""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf


class Arrivals(Protocol):
    """A process of arrivals."""

    def check(self) -> None: ...

    def init(self, key: jax.Array) -> Any:
        """Its state before the first round."""
        ...

    def draw(self, key: jax.Array, state: Any, t: jax.Array) -> tuple[jax.Array, Any]:
        """Whether a query comes in round `t`, `[]` bool, and the state after it."""
        ...


@struct.dataclass
class Rates:
    """A rate per round: a day's course, a launch, a drift.

    Attributes:
      rates: `[T]`, probability that round `t` brings a query; later rounds have the last one.
    """

    rates: Leaf

    def check(self) -> None:
        if np.ndim(checks.probability("rates", self.rates)) != 1 or not np.size(self.rates):
            raise ValueError(f"rates must have shape [T], got {np.shape(self.rates)}")

    def init(self, key: jax.Array) -> None:
        del key

    def draw(self, key: jax.Array, state: None, t: jax.Array) -> tuple[jax.Array, None]:
        rates = jnp.asarray(self.rates, jnp.float32)
        return draws.bernoulli(
            key, lax.dynamic_index_in_dim(rates, t, keepdims=False)
        ), state  # The index is cut to the last.


@struct.dataclass
class Bursts:
    """A Markov-modulated process: a hidden phase changes from round to round, and each phase has a rate.

    Source: the discrete form of the Markov-modulated Poisson process; Fischer and Meier-Hellstern (1993).

    Attributes:
      rates: `[S]`, probability of a query in a round of each phase.
      moves: `[S, S]`, probability that phase `i` is followed by `j`; rows add up to one. A run starts in a phase drawn from the stationary distribution.
    """

    rates: Leaf
    moves: Leaf

    @classmethod
    def on_off(cls, rate: float, mean_on: float, mean_off: float) -> "Bursts":
        """Queries with probability `rate` in busy spells and none in quiet ones.

        Args:
          rate: in busy spells.
          mean_on: mean length of a busy spell, rounds, at least 1.
          mean_off: mean length of a quiet spell.
        """
        for name, length in (("mean_on", mean_on), ("mean_off", mean_off)):
            if not float(checks.positive(name, length, ())) >= 1.0:
                raise ValueError(f"{name} must be at least 1 round, got {length:g}")
        leave, come = 1.0 / mean_on, 1.0 / mean_off
        moves = np.array([[1.0 - leave, leave], [come, 1.0 - come]], np.float32)
        return cls(np.array([float(checks.probability("rate", rate, ())), 0.0], np.float32), moves)

    @property
    def mean_rate(self) -> float:
        """Queries per round in the long run."""
        return float(np.asarray(self.rates, np.float64) @ np.asarray(_stationary(jnp.asarray(self.moves)), np.float64))

    def check(self) -> None:
        rates = checks.probability("rates", self.rates)
        if rates.ndim != 1 or not rates.size:
            raise ValueError(f"rates must have shape [S], got {rates.shape}")
        moves = checks.probability("moves", self.moves, (rates.size, rates.size))
        if np.abs(moves.sum(axis=1) - 1.0).max() > 1e-5:
            raise ValueError(f"moves must have rows that add up to 1, got sums {checks.show(moves.sum(axis=1))}")

    def init(self, key: jax.Array) -> jax.Array:
        distribution = _stationary(jnp.asarray(self.moves, jnp.float32))
        return numerics.inverse_cdf(distribution, draws.uniform(key))

    def draw(self, key: jax.Array, state: jax.Array, t: jax.Array) -> tuple[jax.Array, jax.Array]:
        del t
        k_query, k_phase = draws.split(key)
        here = numerics.one_hot(state, np.shape(self.rates)[0])
        arrived = draws.uniform(k_query) < numerics.pick(here, jnp.asarray(self.rates, jnp.float32))
        row = numerics.pick(here, jnp.asarray(self.moves, jnp.float32).T)
        return arrived, numerics.inverse_cdf(row, draws.uniform(k_phase))


@struct.dataclass
class Slots:
    """Several servers: a time slot has a round for each, and a query may come in the first round of a slot only.

    In a slot that many queries are served, or one of them again if its user was not content. The operator serves one after the other and
    knows how each ended before the next: a little more than if all were served at the same time. A slot brings one query at most, so a round
    has no more than 1 / servers of them. Metrics count rounds; divide them by the servers for slots.

    Attributes:
      rate: `[]`, probability that a slot brings a query.
      servers: rounds in a slot (static).
    """

    rate: Leaf
    servers: int = struct.field(pytree_node=False, default=2)

    def check(self) -> None:
        checks.probability("rate", self.rate, ())
        checks.count("servers", self.servers)

    def init(self, key: jax.Array) -> None:
        del key

    def draw(self, key: jax.Array, state: None, t: jax.Array) -> tuple[jax.Array, None]:
        return (t % self.servers == 0) & draws.bernoulli(key, self.rate), state


def _stationary(moves: jax.Array) -> jax.Array:
    """The stationary distribution `[S]` of a chain `[S, S]`, from its first state where there are several, and the mean over time of a periodic one."""
    lazy = 0.5 * (moves + jnp.eye(moves.shape[0], dtype=moves.dtype))
    for _ in range(24):  # 16 million rounds: longer than any spell that a run could tell from an endless one.
        lazy = jnp.sum(lazy[:, :, None] * lazy[None], axis=1)
        lazy = lazy / jnp.sum(lazy, axis=1, keepdims=True)
    return lazy[0]
