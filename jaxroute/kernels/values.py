"""Arrays of a traced function as the writer of a kernel sees them, and the arithmetic of their indices."""

import dataclasses
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxroute.kernels import ir

_OF_NUMBERS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.floordiv, "rem": operator.mod}


def _computed(op: str, a: Any, b: Any) -> ir.Index:
    """An operation on indices, done at once if both are numbers."""
    return ir.apply(f"index_{op}", a, b) if isinstance(a, ir.Expr) or isinstance(b, ir.Expr) else _OF_NUMBERS[op](a, b)


def add(a: ir.Index, b: ir.Index) -> ir.Index:
    """Sum of two indices."""
    return b if a == 0 else a if b == 0 else _computed("add", a, b)


def times(a: ir.Index, factor: int) -> ir.Index:
    """Product of an index and a number."""
    return 0 if factor == 0 else a if factor == 1 else _computed("mul", a, factor)


def quotient(a: ir.Index, divisor: int) -> ir.Index:
    """Whole part of an index divided by a number."""
    return a if divisor == 1 else _computed("div", a, divisor)


def remainder(a: ir.Index, divisor: int) -> ir.Index:
    """Remainder of an index divided by a number."""
    return 0 if divisor == 1 else _computed("rem", a, divisor)


def mirrored(index: ir.Index, size: int) -> ir.Index:
    """The same place, counted from the end."""
    return _computed("sub", size - 1, index)


def flat(place: Sequence[ir.Index], shape: Sequence[int]) -> ir.Index:
    """Number of an element in the order of memory."""
    number: ir.Index = 0
    stride = math.prod(shape)
    for at, size in zip(place, shape, strict=True):
        stride //= max(size, 1)
        if size != 1:
            number = add(number, times(at, stride))
    return number


def unflat(number: ir.Index, shape: Sequence[int]) -> ir.Place:
    """Indices of the element of this number."""
    place: list[ir.Index] = []
    stride, outer = math.prod(shape), True
    for size in shape:
        stride //= max(size, 1)
        if size == 1:
            place.append(0)
            continue
        at = quotient(number, stride)
        place.append(at if outer else remainder(at, size))
        outer = False
    return tuple(place)


def is_row(shape: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether a part of these sizes is one row along the first axis."""
    return len(shape) > 1 and sizes[0] == 1 and tuple(sizes[1:]) == tuple(shape[1:])


@dataclasses.dataclass(eq=False)
class Value:
    """An array of a traced function.

    Attributes:
      shape: its shape; keys have one more axis, of their words.
      dtype: type of its numbers.
      at: expression of an element.
      storages: storages that `at` reads.
      storage: storage that holds exactly this array, in the order of memory.
      known: its numbers, if they are known.
      uniform: whether all elements are the same.
      lone: whether it is one line of which at most one element is true.
      chosen: condition of this kind, and value where it holds; elsewhere it is 0.
      steps: operations on numbers of a run, and on places, that an element takes where it is read.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    at: Callable[[ir.Place], ir.Expr]
    storages: frozenset[ir.Storage] = frozenset()
    storage: ir.Storage | None = None
    known: np.ndarray | None = None
    uniform: bool = False
    lone: bool = False
    chosen: "tuple[Value, Value] | None" = None
    steps: int = 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)
