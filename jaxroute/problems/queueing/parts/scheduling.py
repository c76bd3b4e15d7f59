"""Functions that find a waiting query in the buffer: the one with the best score, with a given rank of arrival, or the oldest."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import struct
from jax import Array, lax

from jaxroute.core import numerics, xla
from jaxroute.core.types import Leaf
from jaxroute.problems.queueing.types import Feedback, Observation, QueueView

_NEVER = 2**31 - 1

# Function from one array of utilities per model to the logarithm of the best assortment's weight.
Weight = Callable[[list[Array]], Array]
# Data of a chunk of `C` places: arrays, whether a query waits at each place (`[C]` bool), and its round of arrival.
_Chunk = tuple[Any, Array, Array]


def _fold(leaves: Any, queue: QueueView, start: Any, step: Callable[[Any, _Chunk, Array], Any]) -> Any:
    """Returns the result of a loop over chunks of places: `carry = step(carry, chunk, place)` from `start`; `place` is the first one of a chunk."""

    def with_waiting(carry: Any, chunk: Any, first: Array) -> Any:
        leaves, arrival = chunk
        waiting = first + lax.iota(jnp.int32, arrival.shape[-1]) < queue.queue_length
        return step(carry, (leaves, waiting, arrival), first)

    return xla.chunked_fold((leaves, queue.arrival), queue.in_use, start, with_waiting)


def best_place(score: Callable[[Any], Array], leaves: Any, queue: QueueView) -> tuple[Array, Array]:
    """Returns the place of the waiting query with the largest score, and this score; the number of places `B` and -inf if no query waits.

    Ties go to the earlier arrival, then to the lower place. The places are read in chunks; a chunk with a score of NaN is ignored.

    Args:
      score: function that takes the entries of `leaves` for a chunk of `C` places and returns their scores `[C]`.
      leaves: pytree of arrays `[..., B]`, data of all `B` places.
      queue: waiting queries.
    """
    size = queue.waiting.shape[-1]

    def step(carry: tuple[Array, ...], chunk: _Chunk, first: Array) -> tuple[Array, ...]:
        leaves, waiting, arrival = chunk
        value = xla.barrier(jnp.where(waiting, score(leaves), -jnp.inf))
        best = xla.barrier(jnp.max(value, axis=-1))
        tied = waiting & (value == best)
        place = lax.iota(jnp.int32, value.shape[-1])
        earliest = xla.barrier(jnp.min(jnp.where(tied, arrival, _NEVER), axis=-1))
        place = first + jnp.min(jnp.where(tied & (arrival == earliest), place, size), axis=-1)
        best_before, _, earliest_before = carry
        better = (best > best_before) | ((best == best_before) & (earliest < earliest_before))
        return tuple(jnp.where(better, a, b) for a, b in zip((best, place, earliest), carry, strict=True))

    best, place, _ = _fold(leaves, queue, (jnp.full((), -jnp.inf), jnp.int32(size), jnp.int32(_NEVER)), step)
    return jnp.minimum(place, size), best


def place_of_rank(queue: QueueView, rank: Leaf, t: Array) -> Array:
    """Returns the place of the query that arrived as number `rank` (from 0) of those that wait in round `t`; the number of places if none waits."""

    def halve(_: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = low + (high - low) // 2

        def arrived_by_then(count: Array, chunk: _Chunk, first: Array) -> Array:
            del first
            _, waiting, arrival = chunk
            return count + jnp.sum(waiting & (arrival <= middle), axis=-1, dtype=jnp.int32)

        enough = _fold((), queue, jnp.int32(0), arrived_by_then) > rank
        return jnp.where(enough, low, middle + 1), jnp.where(enough, middle, high)

    # The round of its arrival, by bisection; an arbitrary round if no query has this rank.
    halvings = 32 - lax.clz(jnp.asarray(t, jnp.int32))
    arrived, _ = lax.fori_loop(0, halvings, halve, (jnp.int32(0), jnp.asarray(t, jnp.int32)))
    return best_place(lambda arrival: (arrival == arrived).astype(jnp.float32), queue.arrival, queue)[0]


def best_rate_waiting(rate: Array, queue: QueueView) -> Array:
    """Returns the largest departure rate of the waiting queries, a scalar, given the rates `[B]` at all `B` places; -1 if no query waits."""

    def step(carry: Array, chunk: _Chunk, first: Array) -> Array:
        del first
        rate, waiting, _ = chunk
        return jnp.maximum(carry, jnp.max(jnp.where(waiting, rate, -1.0), axis=-1))

    return _fold(rate, queue, jnp.full((), -1.0), step)


def optimistic_utilities(sample: Array, x: Array) -> list[Array]:
    """Returns, for each of `N` models, the largest utility `[C]` of its answer to each of `C` queries over `M` samples of the parameters.

    Source: ACQB, section 3 and appendix B.1.

    Args:
      sample: `[N, M, d]` sampled parameters, or `[1, M, d]` for features of query-model pairs.
      x: `[d, C]` features of the queries, or `[N, d, C]` of query-model pairs.
    """
    number, dim = sample.shape[1:]

    def largest(parameter: Array, x: Array) -> Array:
        if number == 1:
            return numerics.combine(parameter[0], x)
        terms = [parameter[:, i, None] * x[i][None, :] for i in range(dim)]
        return jnp.max(sum(terms[1:], terms[0]), axis=0)

    if x.ndim == 3:
        return [xla.compute_once(largest(sample[0], x[j])) for j in range(x.shape[0])]
    return [xla.compute_once(largest(sample[j], x)) for j in range(sample.shape[0])]


@struct.dataclass
class QueueQueries:
    """Reads features of queries (ACQB, Algorithm 2, line 1) and finds the query to serve, in queues that store each waiting query's features."""

    def features(self, obs: Observation) -> Array:
        """Returns the features of the queries at all `B` places, `[d, B]` (pairs: `[N, d, B]`); in `PromptQueries` those of all prompts, `[d, P]`."""
        return obs.features

    def utilities(self, sample: Array, obs: Observation, place: Array) -> Array:
        """Returns each model's largest utility, `[N]`, over the sampled parameters `sample`, for the query at `place`; see `optimistic_utilities`."""
        return jnp.stack(optimistic_utilities(sample, numerics.take(obs.features, place)[..., None]))[:, 0]

    def served(self, obs: Observation, feedback: Feedback) -> Array:
        """Returns the features of the served query, `[d]`, or `[N, d]` of its pairs with the models, from which the estimate learns."""
        del obs
        return feedback.features

    def best(self, sample: Array, weight: Weight, obs: Observation) -> tuple[Array, Array]:
        """Returns the place of the waiting query with the largest weight, and this weight.

        The function `weight` computes the weights `[C]` of `C` queries from `optimistic_utilities` of the sampled parameters `sample` `[N, M, d]`.
        """
        return best_place(lambda x: weight(optimistic_utilities(sample, x)), obs.features, obs)


@struct.dataclass
class PromptQueries:
    """Finds queries and their features if all queries are prompts of a pool, whose features are stored once for all runs.

    Attributes:
      table: `[d', P]` features that replace those of the environment (ACQB-CL); None for the environment's features.
    """

    table: Leaf | None = None

    def features(self, obs: Observation) -> Array:
        return obs.features if self.table is None else jnp.asarray(self.table, obs.features.dtype)

    def utilities(self, sample: Array, obs: Observation, place: Array) -> Array:
        phi = numerics.take(self.features(obs), numerics.take(obs.prompt, place))
        return jnp.max(jnp.einsum("nmd,d->nm", sample, phi, precision="highest"), axis=1)

    def served(self, obs: Observation, feedback: Feedback) -> Array:
        return feedback.features if self.table is None else numerics.take(self.features(obs), feedback.prompt)

    def best(self, sample: Array, weight: Weight, obs: Observation) -> tuple[Array, Array]:
        by_prompt = self.features(obs).T
        num, number, dim = sample.shape

        def score(prompt: Array) -> Array:
            x = jnp.take(by_prompt, prompt, axis=0, mode="clip").T
            utilities = numerics.project(sample.reshape(-1, dim), x).reshape(num, number, -1)
            return weight(list(jnp.max(utilities, axis=1)))

        return best_place(score, obs.prompt, obs)


Queries = QueueQueries | PromptQueries
