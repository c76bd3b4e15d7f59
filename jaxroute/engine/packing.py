"""Recorded quantities packed into one array per type.

A program writes and copies each array of its results by a separate loop, and each takes time to compile.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct


class Slot(NamedTuple):
    """Slot of a quantity: its array, its first number there, and its shape."""

    array: str
    first: int
    shape: tuple[int, ...]

    @property
    def numbers(self) -> slice:
        """Numbers of the slot on the axis of quantities."""
        return slice(self.first, self.first + math.prod(self.shape))


@struct.dataclass
class PackedRecords:
    """Recorded quantities.

    Attributes:
      arrays: by name, with an axis of quantities: `[n, R]` of one record, `[records, n, R]` of several; `[..., R, records, n]` as
        a program returns them.
      slots: slots of the quantities (static).
      structure: structure of the pytree of the quantities, a dict by name (static).
    """

    arrays: dict[str, Any]
    slots: tuple[Slot, ...] = struct.field(pytree_node=False)
    structure: Any = struct.field(pytree_node=False)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "PackedRecords":
        """Packs one record, from arrays `[..., R]`."""
        leaves, structure = jax.tree.flatten(dict(values))
        parts: dict[str, list[Any]] = {}
        slots, used = [], dict.fromkeys({str(leaf.dtype) for leaf in leaves}, 0)
        for leaf in leaves:
            kind = str(leaf.dtype)
            slot = Slot(kind, used[kind], leaf.shape[:-1])
            used[kind] = slot.numbers.stop
            slots.append(slot)
            parts.setdefault(kind, []).append(jnp.reshape(leaf, (-1, leaf.shape[-1])))
        return cls({kind: jnp.concatenate(some) for kind, some in parts.items()}, tuple(slots), structure)

    @classmethod
    def unpacked(cls, values: Mapping[str, Any]) -> "PackedRecords":
        """Several records as one array each, from arrays `[records, ..., R]`."""
        leaves, structure = jax.tree.flatten(dict(values))
        slots = tuple(Slot(str(i), 0, leaf.shape[1:-1]) for i, leaf in enumerate(leaves))
        arrays = {str(i): jnp.reshape(leaf, (leaf.shape[0], -1, leaf.shape[-1])) for i, leaf in enumerate(leaves)}
        return cls(arrays, slots, structure)

    def by_name(self) -> dict[str, Any]:
        """Returns arrays `[records, ..., R]` of several records."""
        return self._with(lambda whole, slot: whole[:, slot.numbers].reshape(len(whole), *slot.shape, whole.shape[-1]))

    def returned(self) -> dict[str, Any]:
        """Returns arrays `[..., R, records, ...]` from the result of a program; of NumPy they are views."""
        return self._with(lambda whole, slot: whole[..., slot.numbers].reshape(*whole.shape[:-1], *slot.shape))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shape of each quantity in one run, without time."""
        return self._with(lambda _, slot: slot.shape)

    def _with(self, function: Callable[[Any, Slot], Any]) -> dict[str, Any]:
        """Applies a function to the array and the slot of each quantity."""
        return jax.tree.unflatten(self.structure, [function(self.arrays[slot.array], slot) for slot in self.slots])
