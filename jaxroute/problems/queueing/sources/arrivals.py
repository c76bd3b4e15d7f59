"""Processes of arrivals other than independent arrivals at one rate: rates that change, bursts, several servers. ACQB does not contain them.

A queue takes a process as its field `arrivals`; its source of queries still draws the contexts. Set the source's `arrival_rate` to the mean rate of
the process: random contexts are accepted if their best departure rate is at least `arrival_rate + slack` (assumption 4 of ACQB).
"""

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf


@struct.dataclass
class Rates:
    """Process of arrivals in which round `t` brings a query with probability `rates[t]` (`rates` `[T]`); from round `T` on, the last rate applies."""

    rates: Leaf

    def check(self) -> None:
        checks.probability("rates", self.rates, ("T",))

    def init(self, key: Array) -> None:
        del key

    def draw(self, key: Array, state: None, t: Array) -> tuple[Array, None]:
        """Returns whether a query arrives in round `t`, a boolean scalar, drawn with the random `key`, and None, since this process has no state."""
        rates = jnp.asarray(self.rates, jnp.float32)
        rate = lax.dynamic_index_in_dim(rates, t, keepdims=False)  # The index is clipped to the last.
        return draws.bernoulli(key, rate), state


@struct.dataclass
class Bursts:
    """Markov-modulated process of arrivals: a hidden phase changes from round to round, and each phase has a rate of arrivals.

    Source: the discrete form of the Markov-modulated Poisson process; Fischer and Meier-Hellstern (1993).

    Attributes:
      rates: `[S]` probability of a query in a round of each phase.
      moves: `[S, S]` probability that phase `j` follows phase `i`; rows sum to one. A run starts in a phase drawn from the stationary distribution.
    """

    rates: Leaf
    moves: Leaf

    @classmethod
    def on_off(cls, rate: float, mean_on: float, mean_off: float) -> "Bursts":
        """Returns a process that alternates between busy periods (`rate` arrivals per round) and quiet ones, of given mean lengths in rounds."""
        for name, length in (("mean_on", mean_on), ("mean_off", mean_off)):
            checks.at_least(name, length, 1.0)
        leave, come = 1.0 / mean_on, 1.0 / mean_off
        moves = np.array([[1.0 - leave, leave], [come, 1.0 - come]], np.float32)
        return cls(np.array([float(checks.probability("rate", rate, ())), 0.0], np.float32), moves)

    @property
    def mean_rate(self) -> float:
        """Returns the long-run mean number of arrivals per round."""
        return float(np.asarray(self.rates, np.float64) @ np.asarray(_stationary(jnp.asarray(self.moves)), np.float64))

    def check(self) -> None:
        size = checks.probability("rates", self.rates, ("S",)).size
        moves = checks.probability("moves", self.moves, (size, size))
        if np.abs(moves.sum(axis=1) - 1.0).max() > 1e-5:
            raise ValueError(f"moves must have rows that sum to 1, got sums {checks.show(moves.sum(axis=1))}")

    def init(self, key: Array) -> Array:
        distribution = _stationary(jnp.asarray(self.moves, jnp.float32))
        return numerics.inverse_cdf(distribution, draws.uniform(key))

    def draw(self, key: Array, state: Array, t: Array) -> tuple[Array, Array]:
        del t
        k_query, k_phase = draws.split(key)
        here = numerics.one_hot(state, np.shape(self.rates)[0])
        arrived = draws.uniform(k_query) < numerics.pick(here, jnp.asarray(self.rates, jnp.float32))
        row = numerics.pick(here, jnp.asarray(self.moves, jnp.float32).T)
        return arrived, numerics.inverse_cdf(row, draws.uniform(k_phase))


@struct.dataclass
class Slots:
    """Process for several servers: a time slot has one round for each server, and a query may arrive only in the first round of a slot.

    The services of a slot are one after the other, so that a policy knows the result of each before the next, and may serve a query again in the same
    slot if its user was not satisfied. A slot brings at most one query, so that the rate per round is at most 1 / servers. Metrics are in rounds;
    divide them by `servers` for slots.

    Attributes:
      rate: `[]` probability that a slot brings a query.
      servers: number of rounds in a slot (static).
    """

    rate: Leaf
    servers: int = struct.field(pytree_node=False, default=2)

    def check(self) -> None:
        checks.probability("rate", self.rate, ())
        checks.count("servers", self.servers)

    def init(self, key: Array) -> None:
        del key

    def draw(self, key: Array, state: None, t: Array) -> tuple[Array, None]:
        return (t % self.servers == 0) & draws.bernoulli(key, self.rate), state


Arrivals = Rates | Bursts | Slots


def _stationary(moves: Array) -> Array:
    """Returns the long-run distribution `[S]` of a Markov chain that starts in state 0, with transition probabilities `moves` `[S, S]`."""
    lazy = 0.5 * (moves + jnp.eye(moves.shape[0], dtype=moves.dtype))
    for _ in range(24):  # 16 million rounds: longer than any phase that a run could distinguish from an endless one.
        lazy = jnp.sum(lazy[:, :, None] * lazy[None], axis=1)
        lazy = lazy / jnp.sum(lazy, axis=1, keepdims=True)
    return lazy[0]
