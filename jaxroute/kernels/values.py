"""Values of a traced function in a kernel, and the arithmetic of their indices."""

import dataclasses
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxroute.kernels import ir

_OF_NUMBERS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.floordiv, "rem": operator.mod}


def _computed(op: str, a: Any, b: Any) -> ir.Index:
    """Returns an operation on indices, evaluated if both are numbers."""
    return ir.apply(f"index_{op}", a, b) if isinstance(a, ir.Expr) or isinstance(b, ir.Expr) else _OF_NUMBERS[op](a, b)


def add(a: ir.Index, b: ir.Index) -> ir.Index:
    """Returns the sum of two indices."""
    return b if a == 0 else a if b == 0 else _computed("add", a, b)


def times(a: ir.Index, factor: int) -> ir.Index:
    """Returns the product of an index and a number."""
    return 0 if factor == 0 else a if factor == 1 else _computed("mul", a, factor)


def quotient(a: ir.Index, divisor: int) -> ir.Index:
    """Returns the quotient of an index and a number, rounded down."""
    return a if divisor == 1 else _computed("div", a, divisor)


def remainder(a: ir.Index, divisor: int) -> ir.Index:
    """Returns the remainder of an index divided by a number."""
    return 0 if divisor == 1 else _computed("rem", a, divisor)


def mirrored(index: ir.Index, size: int) -> ir.Index:
    """Returns the index counted from the end."""
    return _computed("sub", size - 1, index)


def flat(place: Sequence[ir.Index], shape: Sequence[int]) -> ir.Index:
    """Returns the flat index of an element."""
    number: ir.Index = 0
    stride = math.prod(shape)
    for at, size in zip(place, shape, strict=True):
        stride //= max(size, 1)
        if size != 1:
            number = add(number, times(at, stride))
    return number


def unflat(number: ir.Index, shape: Sequence[int]) -> ir.Place:
    """Returns the indices of a flat index."""
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
    """Whether a part with these sizes is one row along the first axis."""
    return len(shape) > 1 and sizes[0] == 1 and tuple(sizes[1:]) == tuple(shape[1:])


@dataclasses.dataclass(eq=False)
class Value:
    """Array of a traced function.

    Attributes:
      shape: shape; keys have an additional axis of words.
      dtype: type of the elements.
      at: function from indices to the expression of an element.
      storages: storages that `at` reads.
      storage: storage that holds exactly this array, in memory order.
      known: elements, if they are constant.
      uniform: whether all elements are equal.
      lone: whether it is a vector with at most one true element.
      chosen: such a condition, and the value where it holds (0 elsewhere).
      steps: number of operations on numbers of a run and on indices to read an element.
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
        """Returns the number of elements."""
        return math.prod(self.shape)
