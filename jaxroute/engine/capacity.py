"""Runs that overflow the capacity of their environment, and the settings with more capacity that simulate them again."""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from flax import struct

from jaxroute.core.protocols import AnyEnvironment, is_environment, with_double_capacity
from jaxroute.engine.grid import FunctionGrid, Grid


@struct.dataclass
class _LargerSampler:
    """A sampler of environments with double capacity.

    Attributes:
      sampler: `key -> Environment`.
    """

    sampler: Any

    def __call__(self, key: jax.Array) -> Any:
        return with_double_capacity(self.sampler(key))


class _LargerFunction:
    """A plain function that samples environments with double capacity; equal to another of the same function, so that its program is reused."""

    def __init__(self, function: Any):
        self.function = function
        self.__qualname__ = getattr(function, "__qualname__", type(function).__name__)

    def __call__(self, *args: Any) -> Any:
        return with_double_capacity(self.function(*args))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _LargerFunction) and other.function == self.function

    def __hash__(self) -> int:
        return hash((_LargerFunction, self.function))


def larger_settings(env: Grid, example: AnyEnvironment) -> Iterator[Grid]:
    """Yields the settings of an environment with 2, 4, 8, ... times the capacity, up to the most that a run can need.

    Args:
      env: the settings.
      example: one of the environments.
    """
    larger = with_double_capacity if is_environment(env.example) else _LargerSampler
    while (more := with_double_capacity(example)) is not None:
        example = more
        if isinstance(env, FunctionGrid):
            env = FunctionGrid(_LargerFunction(env.function), len(env.axes["instance"]) if env.axes else None)
        else:
            env = Grid(dict[str, Any](env.axes), [larger(one) for one in env.objects], env.name)
        yield env


def overflowed(values: Mapping[str, np.ndarray], flow: str | None, lead: int) -> np.ndarray:
    """Marks the runs that overflowed.

    Args:
      values: increments `[settings..., R, records, ...]` by name.
      flow: name of the flow that counts overflows; None for an environment without a capacity.
      lead: number of the leading dimensions `settings..., R`.

    Returns:
      `[settings..., R]` bool.
    """
    if flow is None:
        return np.zeros((1,) * lead, bool)
    lost = values[f"zero/{flow}"]
    return np.asarray((lost > 0).any(axis=tuple(range(lead, lost.ndim))))


def replaced(values: Mapping[str, np.ndarray], which: np.ndarray, again: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the values, those of the marked runs taken from a second simulation.

    Args:
      values: arrays `[settings..., R, ...]` by name.
      which: `[settings..., R]` bool.
      again: like `values`.
    """
    return {
        name: np.where(which.reshape(which.shape + (1,) * (old.ndim - which.ndim)), again[name], old)
        for name, old in values.items()
    }
