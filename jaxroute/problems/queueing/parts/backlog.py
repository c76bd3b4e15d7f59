"""Buffer that stores the waiting queries of a queue."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array, lax

from jaxroute.core import checks, numerics, xla
from jaxroute.problems.queueing.parts.scheduling import best_place
from jaxroute.problems.queueing.types import Action, QueueView


@struct.dataclass
class BacklogState:
    """State of a `Backlog` with `B` places for waiting queries.

    Attributes:
      rows: pytree of arrays `[..., B]`, data of the query in each place; queries wait in the first `length` places.
      arrival: `[B]` int32, round in which the query in each place arrived.
      length: `[]` int32, number of waiting queries.
      arrived: `[]` bool, whether the last round brought a query.
    """

    rows: Any
    arrival: Array
    length: Array
    arrived: Array


@struct.dataclass
class Backlog:
    """Buffer for a limited number of waiting queries.

    An arrival at a full buffer is lost and counted (`dropped`); `simulate` then repeats the run with twice the places, so that its result
    misses no query. Queries fill the first places; the last one moves into the place of a query that leaves.

    Attributes:
      rounds: number of rounds of a run, each with at most one arrival; `limit` is never doubled beyond it, since no more places are needed (static).
      limit: largest number of waiting queries (static).
    """

    rounds: int = struct.field(pytree_node=False)
    limit: int = struct.field(pytree_node=False)

    def check(self) -> None:
        checks.count("rounds", self.rounds)
        checks.count("limit", self.limit)

    @property
    def places(self) -> int:
        """Returns the number of places `B`: `limit`, which is rounded up to a multiple of 32 if it is above 32."""
        return xla.chunked_size(self.limit)

    def init(self, row: Any) -> BacklogState:
        """Returns an empty buffer for queries whose data have the same fields, shapes and types as those of the example `row`."""
        return BacklogState(
            rows=jax.tree.map(lambda x: jnp.zeros((*x.shape, self.places), x.dtype), row),
            arrival=jnp.zeros((self.places,), jnp.int32),
            length=jnp.zeros((), jnp.int32),
            arrived=jnp.zeros((), bool),
        )

    def view(self, state: BacklogState) -> QueueView:
        """Returns the part of `state` that policies see: which places are occupied, in which round each query arrived, and how many wait."""
        view = QueueView(
            waiting=lax.iota(jnp.int32, self.places) < state.length,
            arrival=state.arrival,
            in_use=xla.largest_over_runs(state.length),
            queue_length=state.length,
            arrived=state.arrived,
            newest=jnp.maximum(state.length - 1, 0),
        )
        oldest, _ = best_place(lambda waiting: jnp.zeros(waiting.shape, jnp.float32), view.waiting, view)
        return view.replace(oldest=oldest)

    def serve(self, state: BacklogState, action: Action) -> tuple[Any, BacklogState, Action]:
        """Returns the data of the query that `action` serves, with `state` and `action`, unchanged; callers must use these copies from then on.

        The copies pass an optimisation barrier, so that XLA reads the query before `move` overwrites the buffer in place.
        """
        row = jax.tree.map(lambda x: numerics.take(x, action.query), state.rows)
        row, rows, action = xla.barrier((row, state.rows, action))
        return row, state.replace(rows=rows), action

    def move(
        self, state: BacklogState, place: Array, departed: Array, row: Any, arrived: Array, t: Array
    ) -> tuple[BacklogState, Array]:
        """Returns the state after a departure and an arrival, and whether the new query was lost because the buffer was full.

        Args:
          state: state before the round.
          place, departed: `[]` place of the served query, and `[]` bool, whether it leaves.
          row, arrived: data of the query that may arrive afterwards, and `[]` bool, whether it arrives.
          t: `[]` index of the round.
        """
        length = state.length - departed.astype(jnp.int32)
        fits = length < self.limit
        enters = arrived & fits
        last = jnp.maximum(state.length - 1, 0)
        tables = (state.rows, state.arrival)
        moves = xla.barrier(jax.tree.map(lambda x: numerics.take(x, last), tables))
        newcomer = (row, jnp.asarray(t, jnp.int32))

        def written(part: Any, first: Array) -> Any:
            number = first + lax.iota(jnp.int32, part[1].shape[-1])
            leaves_here, enters_here = departed & (number == place), enters & (number == length)

            def new(x: Array, moved: Array, come: Array) -> Array:
                return jnp.where(
                    enters_here, jnp.expand_dims(come, -1), jnp.where(leaves_here, jnp.expand_dims(moved, -1), x)
                )

            return jax.tree.map(new, part, moves, newcomer)

        rows, arrival = xla.chunked_map_inplace(tables, xla.largest_over_runs(state.length + 1), written)
        after = BacklogState(rows=rows, arrival=arrival, length=length + enters.astype(jnp.int32), arrived=enters)
        return after, arrived & ~fits
