"""Which waiting query is served: the place of the best score, of a rank, or of the oldest query."""

import functools
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from jaxroute.core import numerics, xla
from jaxroute.core.types import Leaf
from jaxroute.problems.queueing.types import Action, Feedback, Observation

_NEVER = 2**31 - 1

# Logarithm of the weight of the best assortment, from one array of utilities per model.
Weight = Callable[[list[jax.Array]], jax.Array]


class Waiting(Protocol):
    """Who waits where, as `Observation` tells it."""

    @property
    def waiting(self) -> jax.Array: ...

    @property
    def arrival(self) -> jax.Array | None: ...

    @property
    def in_use(self) -> jax.Array: ...

    @property
    def queue_length(self) -> jax.Array: ...

    @property
    def in_front(self) -> bool: ...


# A chunk of places: its leaves, where a query waits (`[C]` bool), and its rounds of arrival (None where places are in their order).
_Part = tuple[Any, jax.Array, jax.Array | None]


def _fold(leaves: Any, who: Waiting, start: Any, step: Callable[[Any, _Part, jax.Array], Any]) -> Any:
    """`xla.chunked_fold` over places: steps take a carry, a `_Part`, and the index of its first place."""
    tables = (leaves, None if who.in_front else who.waiting, who.arrival)

    def with_waiting(carry: Any, part: Any, first: jax.Array) -> Any:
        leaves, waiting, arrival = part
        if waiting is None:
            width = jax.tree.leaves(part)[0].shape[-1]
            waiting = first + lax.iota(jnp.int32, width) < who.queue_length
        return step(carry, (leaves, waiting, arrival), first)

    return xla.chunked_fold(tables, who.in_use, start, with_waiting)


def best_place(score: Callable[[Any], jax.Array], leaves: Any, who: Waiting) -> tuple[jax.Array, jax.Array]:
    """The place of the largest score where a query waits; ties go to the earlier arrival, then to the lower place.

    Args:
      score: function of the leaves of a chunk, returns `[C]`.
      leaves: pytree of arrays `[..., B]`.
      who: waits where.

    Returns:
      `[]` int32 place, `B` if nothing waits or a score is NaN; `[]` its score.
    """
    size = who.waiting.shape[-1]

    def step(carry: tuple[jax.Array, ...], part: _Part, first: jax.Array) -> tuple[jax.Array, ...]:
        leaves, here, arrival = part
        value = xla.barrier(jnp.where(here, score(leaves), -jnp.inf))
        best = xla.barrier(jnp.max(value, axis=-1))
        tied = here & (value == best)
        place = lax.iota(jnp.int32, value.shape[-1])
        if arrival is None:
            place = first + jnp.min(jnp.where(tied, place, size), axis=-1)
            best_before, place_before = carry
            better = best > best_before
            return jnp.where(better, best, best_before), jnp.where(better, place, place_before)
        came = xla.barrier(jnp.min(jnp.where(tied, arrival, _NEVER), axis=-1))
        place = first + jnp.min(jnp.where(tied & (arrival == came), place, size), axis=-1)
        best_before, place_before, came_before = carry
        better = (best > best_before) | ((best == best_before) & (came < came_before))
        new, old = (best, place, came), (best_before, place_before, came_before)
        return tuple(jnp.where(better, a, b) for a, b in zip(new, old, strict=True))

    start = (jnp.full((), -jnp.inf), jnp.int32(size), *([] if who.arrival is None else [jnp.int32(_NEVER)]))
    best, place, *_ = _fold(leaves, who, start, step)
    return jnp.minimum(place, size), best


def best_prompt(score: jax.Array, obs: Observation) -> tuple[jax.Array, jax.Array]:
    """The place of the waiting query with the largest score `[P]` of its prompt, and the score; see `best_place`."""
    return best_place(lambda prompt: jnp.take(score, prompt, mode="clip"), obs.prompt, obs)


def place_of_rank(who: Waiting, rank: Leaf, t: jax.Array) -> jax.Array:
    """Place of the query of a rank, counted in the order of arrival; `B` beyond the last.

    Args:
      who: waits where.
      rank: `[]`, from 0.
      t: `[]`, the round.
    """
    size = who.waiting.shape[-1]
    if who.arrival is not None:
        came = _round_of_rank(who, rank, t)
        return best_place(lambda arrival: (arrival == came).astype(jnp.float32), who.arrival, who)[0]

    def step(carry: tuple[jax.Array, jax.Array], part: _Part, first: jax.Array) -> tuple[jax.Array, jax.Array]:
        place, before = carry
        until = [before + number for number in xla.partial_sums(part[1].astype(jnp.int32))]
        inside = (rank >= before) & (rank < until[-1])
        behind = numerics.how_many([number <= rank for number in until])
        return jnp.where(inside, first + behind, place), until[-1]

    return _fold((), who, (jnp.int32(size), jnp.int32(0)), step)[0]


def _round_of_rank(who: Waiting, rank: Leaf, t: jax.Array) -> jax.Array:
    """The round in which the query of a rank came, by bisection; some round if there is none."""

    def step(last: jax.Array, count: jax.Array, part: _Part, first: jax.Array) -> jax.Array:
        del first
        _, waiting, arrival = part
        assert arrival is not None
        return count + jnp.sum(waiting & (arrival <= last), axis=-1, dtype=jnp.int32)

    def halve(_: jax.Array, bracket: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bracket
        middle = low + (high - low) // 2
        enough = _fold((), who, jnp.int32(0), functools.partial(step, middle)) > rank
        return jnp.where(enough, low, middle + 1), jnp.where(enough, middle, high)

    halvings = 32 - lax.clz(jnp.asarray(t, jnp.int32))
    return lax.fori_loop(0, halvings, halve, (jnp.int32(0), jnp.asarray(t, jnp.int32)))[0]


def oldest_place(who: Waiting) -> jax.Array:
    """Place of the query that has waited longest; `B` if nothing waits."""
    place, _ = best_place(lambda waiting: jnp.zeros(waiting.shape, jnp.float32), who.waiting, who)
    return place


def best_rate_waiting(rate: jax.Array, who: Waiting) -> jax.Array:
    """Largest of the rates `[B]` where a query waits, -1 if none does."""

    def step(carry: jax.Array, part: _Part, first: jax.Array) -> jax.Array:
        del first
        rate, waiting, _ = part
        return jnp.maximum(carry, jnp.max(jnp.where(waiting, rate, -1.0), axis=-1))

    return _fold(rate, who, jnp.full((), -1.0), step)


def optimistic(sample: jax.Array, x: jax.Array) -> list[jax.Array]:
    """Largest utility over the samples, `max_i x_{-j}' theta_i`, one array `[C]` per model.

    Source: ACQB, section 3 and appendix B.1.

    Args:
      sample: `[N, M, d]`, or `[1, M, d]` with pair features.
      x: `[d, C]`, with pair features `[N, d, C]`.
    """
    number, dim = sample.shape[1:]

    def largest(parameter: jax.Array, x: jax.Array) -> jax.Array:
        """Of one model: `[M, d]` and `[d, C]`."""
        if number == 1:
            return numerics.combine(parameter[0], x)
        terms = [parameter[:, i, None] * x[i][None, :] for i in range(dim)]
        return jnp.max(sum(terms[1:], terms[0]), axis=0)

    if x.ndim == 3:
        return [xla.compute_once(largest(sample[0], x[j])) for j in range(x.shape[0])]
    return [xla.compute_once(largest(sample[j], x)) for j in range(sample.shape[0])]


def optimistic_on_table(sample: jax.Array, table: jax.Array) -> jax.Array:
    """Largest utility over the samples, of all columns of a table that runs share: `[N, P]`.

    Args:
      sample: `[N, M, d]`.
      table: `[d, P]`.
    """
    num, number, dim = sample.shape
    return jnp.max(numerics.project(sample.reshape(-1, dim), table).reshape(num, number, -1), axis=1)


class Queries(Protocol):
    """The features that a policy sees, and which query is best by them: the context map phi of ACQB, Algorithm 2, line 1."""

    def features(self, obs: Observation) -> jax.Array:
        """phi of all places, or of all prompts of a pool."""
        ...

    def utilities(self, sample: jax.Array, obs: Observation, place: jax.Array) -> jax.Array:
        """The largest utilities over the samples, `[N]`, of the query at a place; see `optimistic`."""
        ...

    def served(self, obs: Observation, action: Action, feedback: Feedback) -> jax.Array:
        """phi of the query that was served, `[d]`, with pair features `[N, d]`."""
        ...

    def best(self, sample: jax.Array, weight: Weight, obs: Observation) -> tuple[jax.Array, jax.Array]:
        """The waiting query with the largest weight, and the weight.

        Args:
          sample: `[N, M, d]` of parameters.
          weight: of the best assortment, from utilities.
          obs: who waits.
        """
        ...


@struct.dataclass
class QueueQueries:
    """Queries in places of a queue: each run has features of its own."""

    def features(self, obs: Observation) -> jax.Array:
        return obs.features

    def utilities(self, sample: jax.Array, obs: Observation, place: jax.Array) -> jax.Array:
        return jnp.stack(optimistic(sample, numerics.take(obs.features, place)[..., None]))[:, 0]

    def served(self, obs: Observation, action: Action, feedback: Feedback) -> jax.Array:
        del obs, action
        return feedback.features

    def best(self, sample: jax.Array, weight: Weight, obs: Observation) -> tuple[jax.Array, jax.Array]:
        def score(x: jax.Array) -> jax.Array:
            return weight(optimistic(sample, x))

        return best_place(score, obs.features, obs)


@struct.dataclass
class PromptQueries:
    """Prompts of a pool: all runs share their features, which may be other ones than the environment's (ACQB-CL).

    Attributes:
      table: `[d', P]`, phi of the prompts, None for the environment's features.
    """

    table: Leaf | None = None

    def features(self, obs: Observation) -> jax.Array:
        return obs.features if self.table is None else jnp.asarray(self.table, obs.features.dtype)

    def utilities(self, sample: jax.Array, obs: Observation, place: jax.Array) -> jax.Array:
        phi = numerics.take(self.features(obs), numerics.take(obs.prompt, place))
        return jnp.max(jnp.einsum("nmd,d->nm", sample, phi, precision="highest"), axis=1)

    def served(self, obs: Observation, action: Action, feedback: Feedback) -> jax.Array:
        return feedback.features if self.table is None else numerics.take(self.features(obs), feedback.prompt)

    def best(self, sample: jax.Array, weight: Weight, obs: Observation) -> tuple[jax.Array, jax.Array]:
        by_prompt = self.features(obs).T

        def score(prompt: jax.Array) -> jax.Array:
            return weight(list(optimistic_on_table(sample, jnp.take(by_prompt, prompt, axis=0, mode="clip").T)))

        return best_place(score, obs.prompt, obs)
