"""Statistics in slots: the rounds of a stage update only those of the `M` deployed models.

A plan writes them back to the book of all `N` models, selects the next deployment and loads it into the slots in the order of ties.
"""

import jax
import jax.numpy as jnp
from jax import lax

from jaxroute.core import numerics
from jaxroute.problems.staged.parts.scopes import Scope
from jaxroute.problems.staged.types import SlotState, StagedSpec, Statistics


def empty_slots(spec: StagedSpec) -> SlotState:
    """Returns the state without observations and without deployed models."""

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
    """Returns the book `[N]` at the end of a stage, with the statistics of the slots."""
    in_slots = state.in_slots()

    def write_back(book: jax.Array, slots: jax.Array) -> jax.Array:
        before = jnp.sum(jnp.where(in_slots, book[None, :], 0), axis=1).astype(book.dtype)
        after = scope.write_back(before, slots)
        spread = jnp.sum(jnp.where(in_slots, after[:, None], 0), axis=0).astype(book.dtype)
        return jnp.where(jnp.any(in_slots, axis=0), spread, book)

    return jax.tree.map(write_back, state.book, state.slots)


def loaded(
    state: SlotState,
    book: Statistics,
    deployed: jax.Array,
    capacity: jax.Array,
    scope: Scope,
    unfinished: jax.Array,
    priority: jax.Array,
) -> SlotState:
    """Returns the state at the start of a stage, with the deployed models in the slots.

    Args:
      state: state at the end of the previous stage.
      book: statistics `[N]`, from `written_back`.
      deployed: `[N]` bool, at most `M` models.
      capacity: `[N]` largest share of the traffic of each model.
      scope: past data for deployment and routing.
      unfinished: `[]` bool, whether the search for the deployment stopped early.
      priority: `[N]` int32, order of the slots.
    """
    position = numerics.rank(deployed, -priority)
    slots = state.slot_model.shape[-1]
    load = (position[None, :] == lax.iota(jnp.int32, slots)[:, None]) & deployed[None, :]

    def take(values: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(load, values[None, :], 0), axis=1).astype(values.dtype)

    return state.replace(
        book=scope.retain(book),
        slots=scope.load(jax.tree.map(take, book)),
        slot_model=take(lax.iota(jnp.int32, state.spec.num_models)),
        slot_filled=jnp.any(load, axis=1),
        slot_capacity=take(capacity),
        unfinished=unfinished,
    )
