"""Where waiting queries are kept: in slots by round of arrival, or in a compact buffer.

Both have the methods of `Backlog`.
"""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from jaxroute.core import checks, numerics, xla
from jaxroute.problems.queueing.parts.scheduling import oldest_place
from jaxroute.problems.queueing.types import Action


@struct.dataclass
class Places:
    """What a backlog shows; see `Observation`, whose fields these are but for the features."""

    waiting: jax.Array
    arrival: jax.Array | None
    in_use: jax.Array
    queue_length: jax.Array
    arrived: jax.Array
    newest: jax.Array
    oldest: jax.Array = struct.field(default=None)  # type: ignore[assignment]
    in_front: bool = struct.field(pytree_node=False, default=False)

    def with_oldest(self) -> "Places":
        return self.replace(oldest=oldest_place(self))


class Backlog(Protocol):
    """A way to keep waiting queries. Its state has `length`, the `[]` int32 number of them."""

    @property
    def rounds(self) -> int:
        """Horizon."""
        ...

    @property
    def places(self) -> int:
        """`B`."""
        ...

    def check(self) -> None: ...

    def with_double_capacity(self) -> "Backlog | None":
        """The same with twice the places; None if nothing can be lost."""
        ...

    def init(self, row: Any) -> Any:
        """Empty, for queries like `row`."""
        ...

    def view(self, state: Any, t: jax.Array) -> Places:
        """Who waits before round `t`."""
        ...

    def rows(self, state: Any) -> Any:
        """What is stored of each query, a pytree `[..., B]`."""
        ...

    def serve(self, state: Any, action: Action) -> tuple[Any, Any, Action]:
        """The row of the query that is served, state and action; later writes of the state come after all that reads it."""
        ...

    def waits(self, state: Any, place: jax.Array) -> jax.Array:
        """Whether a query waits at a place, `[]` bool."""
        ...

    def waited(self, state: Any, place: jax.Array, t: jax.Array) -> jax.Array:
        """Rounds since the query at a place came."""
        ...

    def move(
        self, state: Any, place: jax.Array, departed: jax.Array, row: Any, arrived: jax.Array, t: jax.Array
    ) -> tuple[Any, jax.Array]:
        """What a round changes.

        Args:
          state: before the round.
          place: `[]`, of the query that was served.
          departed: `[]` bool, it leaves.
          row: of the query that comes after it has left.
          arrived: `[]` bool, one comes.
          t: `[]`, the round.

        Returns:
          the state after the round; `[]` bool, whether the new query was lost for want of space.
        """
        ...


def _served(state: "SlotState | BufferState", action: Action) -> tuple[Any, Any, Action]:
    """`Backlog.serve` of tables: they are written in place only if all that reads them, the decision too, comes before."""
    row = jax.tree.map(lambda x: numerics.take(x, action.query), state.rows)
    row, rows, action = xla.barrier((row, state.rows, action))
    return row, state.replace(rows=rows), action


@struct.dataclass
class SlotState:
    """State of `ByArrival`.

    Attributes:
      rows: pytree `[..., B]`, what is stored of each query.
      waiting: `[B]` bool.
      length: `[]` int32.
      arrived: `[]` bool.
    """

    rows: Any
    waiting: jax.Array
    length: jax.Array
    arrived: jax.Array


@struct.dataclass
class ByArrival:
    """One slot per round: slot `t` holds the query of round `t`. Nothing is ever moved, and nothing can be lost.

    The rows depend on the draws alone, so that all settings of a grid share them.

    Attributes:
      rounds: horizon (static).
    """

    rounds: int = struct.field(pytree_node=False)

    def check(self) -> None:
        checks.count("rounds", self.rounds)

    def with_double_capacity(self) -> None:
        return None

    @property
    def places(self) -> int:
        return xla.chunked_size(self.rounds)

    def init(self, row: Any) -> SlotState:
        return SlotState(
            rows=jax.tree.map(lambda x: jnp.zeros((*x.shape, self.places), x.dtype), row),
            waiting=jnp.zeros((self.places,), bool),
            length=jnp.zeros((), jnp.int32),
            arrived=jnp.zeros((), bool),
        )

    def view(self, state: SlotState, t: jax.Array) -> Places:
        in_use = jnp.minimum(t, self.rounds)
        return Places(
            waiting=state.waiting,
            arrival=None,
            in_use=in_use,
            queue_length=state.length,
            arrived=state.arrived,
            newest=jnp.maximum(t - 1, 0),
        ).with_oldest()

    def rows(self, state: SlotState) -> Any:
        return state.rows

    def serve(self, state: SlotState, action: Action) -> tuple[Any, SlotState, Action]:
        return _served(state, action)

    def waits(self, state: SlotState, place: jax.Array) -> jax.Array:
        return numerics.take(state.waiting, place)

    def waited(self, state: SlotState, place: jax.Array, t: jax.Array) -> jax.Array:
        del state
        return t - place

    def move(
        self, state: SlotState, place: jax.Array, departed: jax.Array, row: Any, arrived: jax.Array, t: jax.Array
    ) -> tuple[SlotState, jax.Array]:
        fits = t < self.rounds
        slot = jnp.minimum(t, self.rounds - 1)

        def written(table: jax.Array, new: jax.Array) -> jax.Array:
            old = lax.dynamic_index_in_dim(table, slot, table.ndim - 1, keepdims=False)
            return lax.dynamic_update_index_in_dim(table, jnp.where(fits, new, old), slot, table.ndim - 1)

        comes = arrived & fits
        number = lax.iota(jnp.int32, self.places)
        waiting = (state.waiting & ~(departed & (number == place))) | (comes & (number == t))
        length = state.length - departed.astype(jnp.int32) + comes.astype(jnp.int32)
        rows = jax.tree.map(written, state.rows, row)
        return SlotState(rows=rows, waiting=waiting, length=length, arrived=comes), arrived & ~fits


@struct.dataclass
class BufferState:
    """State of `CompactBuffer`.

    Attributes:
      rows: pytree `[..., B]`, the first `length` of which are waiting.
      arrival: `[B]` int32, round in which each came.
      length: `[]` int32.
      arrived: `[]` bool.
    """

    rows: Any
    arrival: jax.Array
    length: jax.Array
    arrived: jax.Array


@struct.dataclass
class CompactBuffer:
    """A buffer for a limited number of waiting queries, for long horizons.

    A query that finds it full is lost and counted (`dropped`); `simulate` then plays the run again with twice the places, so that what
    it returns has lost nothing. Queries stand in the first places; the last one moves to where one has left.

    Attributes:
      rounds: horizon (static).
      limit: most queries that wait (static).
    """

    rounds: int = struct.field(pytree_node=False)
    limit: int = struct.field(pytree_node=False)

    def check(self) -> None:
        checks.count("rounds", self.rounds)
        checks.count("limit", self.limit)

    def with_double_capacity(self) -> "CompactBuffer | None":
        return None if self.limit >= self.rounds else self.replace(limit=min(2 * self.limit, self.rounds))

    @property
    def places(self) -> int:
        return xla.chunked_size(self.limit)

    def init(self, row: Any) -> BufferState:
        return BufferState(
            rows=jax.tree.map(lambda x: jnp.zeros((*x.shape, self.places), x.dtype), row),
            arrival=jnp.zeros((self.places,), jnp.int32),
            length=jnp.zeros((), jnp.int32),
            arrived=jnp.zeros((), bool),
        )

    def view(self, state: BufferState, t: jax.Array) -> Places:
        del t
        return Places(
            waiting=lax.iota(jnp.int32, self.places) < state.length,
            arrival=state.arrival,
            in_use=xla.largest_over_runs(state.length),
            queue_length=state.length,
            arrived=state.arrived,
            newest=jnp.maximum(state.length - 1, 0),
            in_front=True,
        ).with_oldest()

    def rows(self, state: BufferState) -> Any:
        return state.rows

    def serve(self, state: BufferState, action: Action) -> tuple[Any, BufferState, Action]:
        return _served(state, action)

    def waits(self, state: BufferState, place: jax.Array) -> jax.Array:
        return place < state.length

    def waited(self, state: BufferState, place: jax.Array, t: jax.Array) -> jax.Array:
        return t - numerics.take(state.arrival, place)

    def move(
        self, state: BufferState, place: jax.Array, departed: jax.Array, row: Any, arrived: jax.Array, t: jax.Array
    ) -> tuple[BufferState, jax.Array]:
        length = state.length - departed.astype(jnp.int32)
        fits = length < self.limit
        comes = arrived & fits
        last = jnp.maximum(state.length - 1, 0)
        tables = (state.rows, state.arrival)
        moves = xla.barrier(jax.tree.map(lambda x: numerics.take(x, last), tables))
        newcomer = (row, jnp.asarray(t, jnp.int32))

        def written(part: Any, first: jax.Array) -> Any:
            number = first + lax.iota(jnp.int32, part[1].shape[-1])
            left, enters = departed & (number == place), comes & (number == length)

            def new(x: jax.Array, moved: jax.Array, come: jax.Array) -> jax.Array:
                return jnp.where(enters, jnp.expand_dims(come, -1), jnp.where(left, jnp.expand_dims(moved, -1), x))

            return jax.tree.map(new, part, moves, newcomer)

        rows, arrival = xla.chunked_map_inplace(tables, xla.largest_over_runs(state.length + 1), written)
        return BufferState(
            rows=rows, arrival=arrival, length=length + comes.astype(jnp.int32), arrived=comes
        ), arrived & ~fits
