"""What is recorded of a run, as few arrays: one for each type, in which every quantity has its places.

A program writes each array of its results by a loop of its own, copies it once more at the end, and each takes its time to compile.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

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
      places: of each quantity by name (static).
    """

    arrays: dict[str, Any]
    places: tuple[tuple[str, Place], ...] = struct.field(pytree_node=False)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Packed":
        """One record, from arrays `[..., R]` by name."""
        flat = {name: jnp.reshape(value, (-1, value.shape[-1])) for name, value in values.items()}
        kinds = {name: str(value.dtype) for name, value in values.items()}
        arrays, places = {}, {}
        for kind in dict.fromkeys(kinds.values()):
            first = 0
            for name in (one for one in values if kinds[one] == kind):
                places[name] = Place(kind, first, values[name].shape[:-1])
                first += flat[name].shape[0]
            arrays[kind] = jnp.concatenate([flat[name] for name in values if kinds[name] == kind])
        return cls(arrays, tuple(places.items()))

    @classmethod
    def apart(cls, values: Mapping[str, Any]) -> "Packed":
        """Several records, from arrays `[records, ..., R]` by name, which stay what they are."""
        arrays = {name: jnp.reshape(value, (value.shape[0], -1, value.shape[-1])) for name, value in values.items()}
        return cls(arrays, tuple((name, Place(name, 0, value.shape[1:-1])) for name, value in values.items()))

    def by_name(self) -> dict[str, Any]:
        """Arrays `[records, ..., R]` of several records, in the order in which they were given."""
        return {
            name: jnp.reshape(whole[:, place.numbers], (whole.shape[0], *place.shape, whole.shape[-1]))
            for name, place in self.places
            for whole in (self.arrays[place.array],)
        }

    def returned(self) -> dict[str, Any]:
        """Arrays `[..., R, records, ...]` from what a program has returned; of NumPy they are views."""
        return {
            name: whole[..., place.numbers].reshape(*whole.shape[:-1], *place.shape)
            for name, place in self.places
            for whole in (self.arrays[place.array],)
        }

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each quantity in one run, without time."""
        return {name: place.shape for name, place in self.places}
