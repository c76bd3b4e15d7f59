"""Which waiting query is served: the place of the best score, of a rank, or of the oldest query, in a queue or a pool."""

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from jaxroute.core import numerics
from jaxroute.core.types import Leaf
from jaxroute.problems.queueing.types import Action, Feedback, Observation

_NEVER = 2**31 - 1

# Logarithm of the weight of the best assortment, from one array of utilities per model.
Weight = Callable[[list[jax.Array]], jax.Array]


def _fold(leaves: Any, in_use: Leaf, start: Any, step: Callable) -> Any:
    """`numerics.fold`, or one step over all places of a pool, whose tables are not padded to whole chunks."""
    size = jax.tree.leaves(leaves)[0].shape[-1]
    if size != numerics.padded(size):
        return step(start, leaves, jnp.int32(0))
    return numerics.fold(leaves, in_use, start, step)


def best_place(
    score: Callable[[Any], jax.Array], leaves: Any, waiting: jax.Array, arrival: jax.Array | None, in_use: Leaf
) -> tuple[jax.Array, jax.Array]:
    """The place of the largest score where a query waits; ties go to the earlier arrival, then to the lower place.

    Args:
      score: function of the leaves of a chunk, returns `[C]`.
      leaves: pytree of arrays `[..., B]`.
      waiting: `[B]`, whether or how many.
      arrival: `[B]`, None if places are in that order.
      in_use: `[]`, see `numerics.fold`.

    Returns:
      `[]` int32 place, `B` if nothing waits or a score is NaN; `[]` its score.
    """
    size = waiting.shape[-1]

    def step(carry: tuple[jax.Array, ...], part: tuple, first: jax.Array) -> tuple[jax.Array, ...]:
        leaves, waiting, arrival = part
        here = waiting.astype(bool)
        value = numerics.materialised(jnp.where(here, score(leaves), -jnp.inf))
        best = numerics.materialised(jnp.max(value, axis=-1))
        tied = here & (value == best)
        place = lax.iota(jnp.int32, value.shape[-1])
        if arrival is None:
            place = first + jnp.min(jnp.where(tied, place, size), axis=-1)
            best_before, place_before = carry
            better = best > best_before
            return jnp.where(better, best, best_before), jnp.where(better, place, place_before)
        came = numerics.materialised(jnp.min(jnp.where(tied, arrival, _NEVER), axis=-1))
        place = first + jnp.min(jnp.where(tied & (arrival == came), place, size), axis=-1)
        best_before, place_before, came_before = carry
        better = (best > best_before) | ((best == best_before) & (came < came_before))
        new, old = (best, place, came), (best_before, place_before, came_before)
        return tuple(jnp.where(better, a, b) for a, b in zip(new, old, strict=True))

    start = (jnp.full((), -jnp.inf), jnp.int32(size), *([] if arrival is None else [jnp.int32(_NEVER)]))
    best, place, *_ = _fold((leaves, waiting, arrival), in_use, start, step)
    return jnp.minimum(place, size), best


def place_of_rank(waiting: jax.Array, rank: Leaf, in_use: Leaf) -> jax.Array:
    """Place of the query of a rank, counted in the order of places; `B` beyond the last.

    Args:
      waiting: `[B]`, whether or how many.
      rank: `[]`, from 0.
      in_use: `[]`, see `numerics.fold`.
    """
    size = waiting.shape[-1]

    def step(carry: tuple[jax.Array, jax.Array], waiting: jax.Array, first: jax.Array) -> tuple[jax.Array, jax.Array]:
        place, before = carry
        until = [before + number for number in numerics.partial_sums(waiting.astype(jnp.int32))]
        inside = (rank >= before) & (rank < until[-1])
        behind = numerics.how_many([number <= rank for number in until])
        return jnp.where(inside, first + behind, place), until[-1]

    return _fold(waiting, in_use, (jnp.int32(size), jnp.int32(0)), step)[0]


def oldest_place(waiting: jax.Array, arrival: jax.Array | None, in_use: Leaf) -> jax.Array:
    """Place of the query that has waited longest; arguments as for `best_place`."""
    place, _ = best_place(lambda waiting: jnp.zeros(waiting.shape, jnp.float32), waiting, waiting, arrival, in_use)
    return place


def best_rate_waiting(waiting: jax.Array, rate: jax.Array, in_use: Leaf) -> jax.Array:
    """Largest of the rates `[B]` where a query waits, -1 if none does; arguments as for `best_place`."""

    def step(carry: jax.Array, part: tuple[jax.Array, jax.Array], first: jax.Array) -> jax.Array:
        del first
        waiting, rate = part
        return jnp.maximum(carry, jnp.max(jnp.where(waiting.astype(bool), rate, -1.0), axis=-1))

    return _fold((waiting, rate), in_use, jnp.full((), -1.0), step)


def optimistic(sample: jax.Array, x: jax.Array) -> list[jax.Array]:
    """Largest utility over the samples, `max_i x_{-j}' theta_i`, one array `[C]` per model.

    Source: ACQB, section 3 and appendix B.1.

    Args:
      sample: `[N, d, M]`, or `[1, d, M]` with pair features.
      x: `[d, C]`, with pair features `[N, d, C]`.
    """
    dim, number = sample.shape[1:]

    def largest(parameter: jax.Array, x: jax.Array) -> jax.Array:
        """Of one model: `[d, M]` and `[d, C]`."""
        if number == 1:
            return numerics.combine(parameter[:, 0], x)
        terms = [parameter[i][:, None] * x[i][None, :] for i in range(dim)]
        return jnp.max(sum(terms[1:], terms[0]), axis=0)

    if x.ndim == 3:
        return [numerics.kept(largest(sample[0], x[j])) for j in range(x.shape[0])]
    return [numerics.kept(largest(sample[j], x)) for j in range(sample.shape[0])]


def optimistic_on_table(sample: jax.Array, table: jax.Array) -> jax.Array:
    """Largest utility over the samples, of all columns of a table that runs share: `[N, P]`.

    Args:
      sample: `[N, d, M]`.
      table: `[d, P]`.
    """
    num, dim, number = sample.shape
    flat = jnp.moveaxis(sample, 1, 2).reshape(num * number, dim)
    return jnp.max(numerics.project(flat, table).reshape(num, number, -1), axis=1)


class Queries(Protocol):
    """The features that a policy sees, and which query is best by them: the context map phi of ACQB, Algorithm 2, line 1."""

    def features(self, obs: Observation) -> jax.Array:
        """phi of all places."""
        ...

    def served(self, obs: Observation, action: Action, feedback: Feedback) -> jax.Array:
        """phi of the query that was served, `[d]`, with pair features `[N, d]`."""
        ...

    def best(self, sample: jax.Array, weight: Weight, obs: Observation) -> tuple[jax.Array, jax.Array]:
        """The waiting query with the largest weight, and the weight.

        Args:
          sample: `[N, d, M]` of parameters.
          weight: of the best assortment, from utilities.
          obs: who waits.
        """
        ...


@struct.dataclass
class QueueQueries:
    """Queries in places of a queue: each run has features of its own."""

    def features(self, obs: Observation) -> jax.Array:
        return obs.features

    def served(self, obs: Observation, action: Action, feedback: Feedback) -> jax.Array:
        del obs, action
        return feedback.features

    def best(self, sample: jax.Array, weight: Weight, obs: Observation) -> tuple[jax.Array, jax.Array]:
        def score(x: jax.Array) -> jax.Array:
            return weight(optimistic(sample, x))

        return best_place(score, obs.features, obs.waiting, obs.arrival, obs.in_use)


@struct.dataclass
class PromptQueries:
    """Prompts of a pool: all runs share their features, which may be other ones than the environment's (ACQB-CL).

    Attributes:
      table: `[d', P]`, phi of the prompts, None for the environment's features.
    """

    table: Leaf | None = None

    def features(self, obs: Observation) -> jax.Array:
        return obs.features if self.table is None else jnp.asarray(self.table, obs.features.dtype)

    def served(self, obs: Observation, action: Action, feedback: Feedback) -> jax.Array:
        return feedback.features if self.table is None else numerics.take(self.features(obs), action.query)

    def best(self, sample: jax.Array, weight: Weight, obs: Observation) -> tuple[jax.Array, jax.Array]:
        score = weight(list(optimistic_on_table(sample, self.features(obs))))
        return best_place(lambda value: value, score, obs.waiting, obs.arrival, obs.in_use)
