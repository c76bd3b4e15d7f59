"""What is recorded of a run, as few arrays: one for each type, in which every quantity has its places.

A program writes each array of its results by a loop of its own, copies it once more at the end, and each takes its time to compile.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct


class Place(NamedTuple):
    """Where a quantity is: in which array, from which number on, and of what shape."""

    array: str
    first: int
    shape: tuple[int, ...]

    @property
    def numbers(self) -> slice:
        """Its numbers on the axis of quantities."""
        return slice(self.first, self.first + math.prod(self.shape))


@struct.dataclass
class Packed:
    """Recorded quantities.

    Attributes:
      arrays: by name, with an axis of quantities: `[n, R]` of one record, `[records, n, R]` of several; `[..., R, records, n]` as
        a program returns them.
      places: of each quantity (static).
      structure: of the pytree whose leaves are the quantities, a dict by name (static).
    """

    arrays: dict[str, Any]
    places: tuple[Place, ...] = struct.field(pytree_node=False)
    structure: Any = struct.field(pytree_node=False)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Packed":
        """One record, from arrays `[..., R]`."""
        leaves, structure = jax.tree.flatten(dict(values))
        parts: dict[str, list[Any]] = {}
        places, used = [], dict.fromkeys({str(leaf.dtype) for leaf in leaves}, 0)
        for leaf in leaves:
            kind = str(leaf.dtype)
            place = Place(kind, used[kind], leaf.shape[:-1])
            used[kind] = place.numbers.stop
            places.append(place)
            parts.setdefault(kind, []).append(jnp.reshape(leaf, (-1, leaf.shape[-1])))
        return cls({kind: jnp.concatenate(some) for kind, some in parts.items()}, tuple(places), structure)

    @classmethod
    def apart(cls, values: Mapping[str, Any]) -> "Packed":
        """Several records, from arrays `[records, ..., R]`, which stay what they are."""
        leaves, structure = jax.tree.flatten(dict(values))
        places = tuple(Place(str(i), 0, leaf.shape[1:-1]) for i, leaf in enumerate(leaves))
        arrays = {str(i): jnp.reshape(leaf, (leaf.shape[0], -1, leaf.shape[-1])) for i, leaf in enumerate(leaves)}
        return cls(arrays, places, structure)

    def by_name(self) -> dict[str, Any]:
        """Arrays `[records, ..., R]` of several records."""
        return self._with(lambda whole, place: whole[:, place.numbers].reshape(len(whole), *place.shape, whole.shape[-1]))

    def returned(self) -> dict[str, Any]:
        """Arrays `[..., R, records, ...]` from what a program has returned; of NumPy they are views."""
        return self._with(lambda whole, place: whole[..., place.numbers].reshape(*whole.shape[:-1], *place.shape))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each quantity in one run, without time."""
        return self._with(lambda _, place: place.shape)

    def _with(self, function: Callable[[Any, Place], Any]) -> dict[str, Any]:
        """A function of the array and the place of each quantity."""
        return jax.tree.unflatten(self.structure, [function(self.arrays[place.array], place) for place in self.places])
