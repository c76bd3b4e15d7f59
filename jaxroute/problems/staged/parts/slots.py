"""Statistics of the `M` deployed models, stored in slots: the only statistics that the rounds of a stage update.

A plan writes the slots back to the book, the statistics of all `N` models, and loads the next deployment into the slots.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxroute.core import numerics
from jaxroute.problems.staged.parts.scopes import Scope
from jaxroute.problems.staged.types import SlotState, StagedSpec, Statistics


def empty_slots(spec: StagedSpec) -> SlotState:
    """Returns the state before the first deployment, without observations and deployed models."""

    def nothing(size: int) -> Statistics:
        zeros = jnp.zeros((size,), jnp.float32)
        return Statistics.of(pulls=jnp.zeros((size,), jnp.int32), reward_sum=zeros, cost_sum=zeros)

    slots = min(spec.max_deployed, spec.num_models)
    return SlotState(
        book=nothing(spec.num_models),
        slots=nothing(slots),
        slot_model=jnp.zeros((slots,), jnp.int32),
        slot_filled=jnp.zeros((slots,), bool),
        slot_capacity=jnp.zeros((slots,), jnp.float32),
        unfinished=jnp.zeros((), bool),
        spec=spec,
    )


def written_back(state: SlotState, scope: Scope) -> Statistics:
    """Returns the statistics `[N]` of all models at the end of a stage, where `scope` combines statistics in the slots with earlier ones."""
    in_slots = state.in_slots()

    def write_back(book: Array, slots: Array) -> Array:
        before = jnp.sum(jnp.where(in_slots, book[None, :], 0), axis=1).astype(book.dtype)
        after = scope.write_back(before, slots)
        spread = jnp.sum(jnp.where(in_slots, after[:, None], 0), axis=0).astype(book.dtype)
        return jnp.where(jnp.any(in_slots, axis=0), spread, book)

    return jax.tree.map(write_back, state.book, state.slots)


def loaded(
    state: SlotState, book: Statistics, deployed: Array, capacity: Array, scope: Scope, unfinished: Array, priority: Array
) -> SlotState:
    """Returns the state at the start of a stage, with the at most `M` models of the mask `deployed` in the slots, lowest `priority` first.

    `book` is the result of `written_back`, and `capacity` the largest share of the queries that each model may serve. `scope` selects the past data.
    `unfinished` is True if the search for the deployment stopped early.
    """
    position = numerics.rank(deployed, -priority)
    slots = state.slot_model.shape[-1]
    load = (position[None, :] == lax.iota(jnp.int32, slots)[:, None]) & deployed[None, :]

    def take(values: Array) -> Array:
        return jnp.sum(jnp.where(load, values[None, :], 0), axis=1).astype(values.dtype)

    return state.replace(
        book=scope.retain(book),
        slots=scope.load(jax.tree.map(take, book)),
        slot_model=take(lax.iota(jnp.int32, state.spec.num_models)),
        slot_filled=jnp.any(load, axis=1),
        slot_capacity=take(capacity),
        unfinished=unfinished,
    )
