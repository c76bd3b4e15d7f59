"""Runs that need more room than their environment has: which they are, and the settings that play them again with more."""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from flax import struct

from jaxroute.core.protocols import AnyEnvironment, is_environment, roomier_of
from jaxroute.engine.grid import FunctionGrid, Grid


@struct.dataclass
class _RoomierSampler:
    """A sampler of environments with more room.

    sampler: `key -> Environment`.
    """

    sampler: Any

    def __call__(self, key: jax.Array) -> Any:
        return roomier_of(self.sampler(key))


class _RoomierFunction:
    """The same of a plain function, equal to another one of the same function, so that programs are found again."""

    def __init__(self, function: Any):
        self.function = function
        self.__qualname__ = getattr(function, "__qualname__", type(function).__name__)

    def __call__(self, *args: Any) -> Any:
        return roomier_of(self.function(*args))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _RoomierFunction) and other.function == self.function

    def __hash__(self) -> int:
        return hash((_RoomierFunction, self.function))


def roomier(env: Grid, example: AnyEnvironment) -> Iterator[Grid]:
    """The settings of an environment with twice the room for what its runs hold, four times, and so on to all that a run can need.

    Args:
      env: the settings.
      example: one of them, as it is played.
    """
    more = roomier_of if is_environment(env.example) else _RoomierSampler
    while (larger := roomier_of(example)) is not None:
        example = larger
        if isinstance(env, FunctionGrid):
            env = FunctionGrid(_RoomierFunction(env.function), len(env.axes["instance"]) if env.axes else None)
        else:
            env = Grid(dict[str, Any](env.axes), [more(one) for one in env.objects], env.name)
        yield env


def short_of_room(values: Mapping[str, np.ndarray], flow: str | None, lead: int) -> np.ndarray:
    """Which runs found no room at some time.

    Args:
      values: increments `[settings..., R, records, ...]` by name.
      flow: the one that counts what found no room; None for an environment that has room for everything.
      lead: number of the leading dimensions `settings..., R`.

    Returns:
      `[settings..., R]` bool.
    """
    if flow is None:
        return np.zeros((1,) * lead, bool)
    lost = values[f"zero/{flow}"]
    return np.asarray((lost > 0).any(axis=tuple(range(lead, lost.ndim))))


def replaced(values: Mapping[str, np.ndarray], short: np.ndarray, again: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The values, with those of the runs that were short of room from another playing.

    Args:
      values: arrays `[settings..., R, ...]` by name.
      short: `[settings..., R]` bool.
      again: like `values`.
    """
    return {
        name: np.where(short.reshape(short.shape + (1,) * (old.ndim - short.ndim)), again[name], old)
        for name, old in values.items()
    }
