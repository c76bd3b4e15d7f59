"""Where waiting queries are kept: in slots by round of arrival, in a compact buffer, or as numbers of prompts of a pool."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from jaxroute.core import checks, numerics

_NEVER = 2**31 - 1


def _fold(leaves: Any, in_use, start: Any, step: Callable) -> Any:
    """`numerics.fold`, or one step over the whole of a pool, whose tables are not padded to whole chunks."""
    size = jax.tree.leaves(leaves)[0].shape[-1]
    if size != numerics.padded(size):
        return step(start, leaves, jnp.int32(0))
    return numerics.fold(leaves, in_use, start, step)


def best_place(score: Callable, leaves: Any, waiting, arrival, in_use) -> tuple[jax.Array, jax.Array]:
    """The place of the largest score among those where a query waits; ties go to the earlier arrival, then to the lower place.

    Args:
      score: function of the leaves of a chunk, returns `[C]`.
      leaves: pytree of arrays `[..., B]`. waiting: `[B]`, whether or how many. arrival: `[B]`, None if places are in that order.
      in_use: `[]`, see `numerics.fold`.

    Returns:
      `[]` int32 place, `B` if nothing waits or a score is NaN; `[]` its score.
    """
    size = waiting.shape[-1]

    def step(carry, part, first):
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


def place_of_rank(waiting, rank, in_use) -> jax.Array:
    """Place of the query number `rank` (from 0), counted in the order of places; `B` beyond the last. waiting: `[B]`, whether or how many."""
    size = waiting.shape[-1]

    def step(carry, waiting, first):
        place, before = carry
        until = [before + number for number in numerics.partial_sums(waiting.astype(jnp.int32))]
        inside = (rank >= before) & (rank < until[-1])
        behind = numerics.how_many([number <= rank for number in until])
        return jnp.where(inside, first + behind, place), until[-1]

    return _fold(waiting, in_use, (jnp.int32(size), jnp.int32(0)), step)[0]


@struct.dataclass
class Places:
    """What a backlog shows: the fields of `Observation` but for the features."""

    waiting: jax.Array
    arrival: jax.Array | None
    in_use: jax.Array
    queue_length: jax.Array
    arrived: jax.Array
    newest: jax.Array
    oldest: jax.Array


def _oldest(waiting, arrival, in_use):
    place, _ = best_place(lambda waiting: jnp.zeros(waiting.shape, jnp.float32), waiting, waiting, arrival, in_use)
    return place


def best_rate_of(waiting, rate, in_use):
    """Largest of the rates `[B]` where a query waits, -1 if none does."""

    def step(carry, part, first):
        del first
        waiting, rate = part
        return jnp.maximum(carry, jnp.max(jnp.where(waiting.astype(bool), rate, -1.0), axis=-1))

    return _fold((waiting, rate), in_use, jnp.full((), -1.0), step)


@struct.dataclass
class SlotState:
    """rows: pytree `[..., B]`, what is known of each query. waiting: `[B]` bool. length: `[]` int32. arrived: `[]` bool."""

    rows: Any
    waiting: jax.Array
    length: jax.Array
    arrived: jax.Array


@struct.dataclass
class ByArrival:
    """One slot per round: slot `t` holds the query of round `t`. Nothing is ever moved, and nothing can be lost.

    The rows depend on the draws alone, so that all settings of a grid share them.

    rounds: horizon (static).
    """

    rounds: int = struct.field(pytree_node=False)

    def check(self) -> None:
        checks.count("rounds", self.rounds)

    @property
    def places(self) -> int:
        return numerics.padded(self.rounds)

    def init(self, row) -> SlotState:
        """Empty, for queries like `row`."""
        return SlotState(
            rows=jax.tree.map(lambda x: jnp.zeros((*x.shape, self.places), x.dtype), row),
            waiting=jnp.zeros((self.places,), bool),
            length=jnp.zeros((), jnp.int32),
            arrived=jnp.zeros((), bool),
        )

    def view(self, state, t) -> Places:
        in_use = jnp.minimum(t, self.rounds)
        return Places(
            waiting=state.waiting,
            arrival=None,
            in_use=in_use,
            queue_length=state.length,
            arrived=state.arrived,
            newest=jnp.maximum(t - 1, 0),
            oldest=_oldest(state.waiting, None, in_use),
        )

    def row(self, state, place) -> Any:
        return jax.tree.map(lambda x: numerics.take(x, place), state.rows)

    def waited(self, state, place, t) -> jax.Array:
        """Rounds since the query at a place came."""
        del state
        return t - place

    def move(self, state, place, departed, row, arrived, t) -> tuple[SlotState, jax.Array]:
        """The query at a place leaves if `departed`, then `row` comes if `arrived`; also whether it was lost for want of space."""
        fits = t < self.rounds
        slot = jnp.minimum(t, self.rounds - 1)

        def written(table, new):
            old = lax.dynamic_index_in_dim(table, slot, table.ndim - 1, keepdims=False)
            return lax.dynamic_update_index_in_dim(table, jnp.where(fits, new, old), slot, table.ndim - 1)

        comes = arrived & fits
        number = lax.iota(jnp.int32, self.places)
        waiting = (state.waiting & ~(departed & (number == place))) | (comes & (number == t))
        length = state.length - departed.astype(jnp.int32) + comes.astype(jnp.int32)
        rows = jax.tree.map(written, state.rows, row)
        return SlotState(rows=rows, waiting=waiting, length=length, arrived=comes), arrived & ~fits


@struct.dataclass
class CompactState:
    """rows: pytree `[..., B]`, the first `length` of which are waiting. arrival: `[B]` int32. arrived: `[]` bool."""

    rows: Any
    arrival: jax.Array
    length: jax.Array
    arrived: jax.Array


@struct.dataclass
class Compact:
    """A buffer for a limited number of waiting queries, for long horizons. A query that finds it full is lost and counted (`dropped`).

    Queries stand in the first places; the last one moves to where one has left.

    rounds: horizon; limit: most queries that wait (both static).
    """

    rounds: int = struct.field(pytree_node=False)
    limit: int = struct.field(pytree_node=False)

    def check(self) -> None:
        checks.count("rounds", self.rounds)
        checks.count("limit", self.limit)

    @property
    def places(self) -> int:
        return numerics.padded(self.limit)

    def init(self, row) -> CompactState:
        return CompactState(
            rows=jax.tree.map(lambda x: jnp.zeros((*x.shape, self.places), x.dtype), row),
            arrival=jnp.zeros((self.places,), jnp.int32),
            length=jnp.zeros((), jnp.int32),
            arrived=jnp.zeros((), bool),
        )

    def view(self, state, t) -> Places:
        waiting = lax.iota(jnp.int32, self.places) < state.length
        in_use = jnp.minimum(t, self.limit)
        return Places(
            waiting=waiting,
            arrival=state.arrival,
            in_use=in_use,
            queue_length=state.length,
            arrived=state.arrived,
            newest=jnp.maximum(state.length - 1, 0),
            oldest=_oldest(waiting, state.arrival, in_use),
        )

    def row(self, state, place) -> Any:
        return jax.tree.map(lambda x: numerics.take(x, place), state.rows)

    def waited(self, state, place, t) -> jax.Array:
        return t - numerics.take(state.arrival, place)

    def move(self, state, place, departed, row, arrived, t) -> tuple[CompactState, jax.Array]:
        """See `ByArrival.move`."""
        number = lax.iota(jnp.int32, self.places)
        left = departed & (number == place)
        length = state.length - departed.astype(jnp.int32)
        fits = length < self.limit
        comes = arrived & fits
        enters = comes & (number == length)
        last = jnp.maximum(state.length - 1, 0)

        def moved(x, new):
            return jnp.where(enters, jnp.expand_dims(new, -1), jnp.where(left, numerics.take(x, last)[..., None], x))

        return CompactState(
            rows=jax.tree.map(moved, state.rows, row),
            arrival=moved(state.arrival, jnp.asarray(t, jnp.int32)),
            length=length + comes.astype(jnp.int32),
            arrived=comes,
        ), arrived & ~fits


@struct.dataclass
class PoolState:
    """count: `[P]` int32, queries waiting with each prompt. prompt: `[L]` int32, of each round's query; here: `[L]` bool, it waits."""

    count: jax.Array
    prompt: jax.Array
    here: jax.Array
    length: jax.Array
    arrived: jax.Array


@struct.dataclass
class PoolCounts:
    """How often each prompt of a pool waits: exact for every policy that looks at contexts, and nothing can be lost.

    Queries with the same prompt are the same to such a policy; the oldest of them leaves first.

    rounds: horizon; prompts: size of the pool (both static).
    """

    rounds: int = struct.field(pytree_node=False)
    prompts: int = struct.field(pytree_node=False)

    def check(self) -> None:
        checks.count("rounds", self.rounds)
        checks.count("prompts", self.prompts)

    @property
    def places(self) -> int:
        return self.prompts

    def init(self, row) -> PoolState:
        del row
        slots = numerics.padded(self.rounds)
        return PoolState(
            count=jnp.zeros((self.prompts,), jnp.int32),
            prompt=jnp.zeros((slots,), jnp.int32),
            here=jnp.zeros((slots,), bool),
            length=jnp.zeros((), jnp.int32),
            arrived=jnp.zeros((), bool),
        )

    def view(self, state, t) -> Places:
        first = _oldest(state.here, None, jnp.minimum(t, self.rounds))
        return Places(
            waiting=state.count,
            arrival=None,
            in_use=jnp.int32(self.prompts),
            queue_length=state.length,
            arrived=state.arrived,
            newest=lax.dynamic_index_in_dim(state.prompt, jnp.maximum(t - 1, 0), keepdims=False),
            oldest=numerics.take(state.prompt, first),
        )

    def row(self, state, place) -> jax.Array:
        del state
        return place

    def _first(self, state, place, t) -> jax.Array:
        """Slot of the oldest query with a prompt."""
        return _oldest(state.here & (state.prompt == place), None, jnp.minimum(t, self.rounds))

    def waited(self, state, place, t) -> jax.Array:
        return t - self._first(state, place, t)

    def move(self, state, place, departed, row, arrived, t) -> tuple[PoolState, jax.Array]:
        """See `ByArrival.move`; `row` is the prompt."""
        fits = t < self.rounds
        comes = arrived & fits
        number, slots = lax.iota(jnp.int32, self.prompts), lax.iota(jnp.int32, state.here.shape[-1])
        change = (comes & (number == row)).astype(jnp.int32) - (departed & (number == place)).astype(jnp.int32)
        gone = departed & (slots == self._first(state, place, t))
        slot = jnp.minimum(t, self.rounds - 1)
        prompt = jnp.where(fits, row, lax.dynamic_index_in_dim(state.prompt, slot, keepdims=False))
        return PoolState(
            count=state.count + change,
            prompt=lax.dynamic_update_index_in_dim(state.prompt, prompt, slot, 0),
            here=(state.here & ~gone) | (comes & (slots == t)),
            length=state.length - departed.astype(jnp.int32) + comes.astype(jnp.int32),
            arrived=comes,
        ), arrived & ~fits
