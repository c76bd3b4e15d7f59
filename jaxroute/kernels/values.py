"""Values of a traced function in a kernel, the arithmetic of their indices, and the registry of the rules for operations."""

import dataclasses
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxroute.core.batching.dependence import is_key
from jaxroute.kernels import ir

_OF_NUMBERS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.floordiv, "rem": operator.mod}


def _computed(op: str, a: Any, b: Any) -> ir.Index:
    """Computes the operation `op` on two indices. The result is a number if both indices are numbers, else a C expression."""
    return ir.apply(f"index_{op}", a, b) if isinstance(a, ir.Expr) or isinstance(b, ir.Expr) else _OF_NUMBERS[op](a, b)


def add(a: ir.Index, b: ir.Index) -> ir.Index:
    return b if a == 0 else a if b == 0 else _computed("add", a, b)


def times(a: ir.Index, factor: int) -> ir.Index:
    return 0 if factor == 0 else a if factor == 1 else _computed("mul", a, factor)


def quotient(a: ir.Index, divisor: int) -> ir.Index:
    return a if divisor == 1 else _computed("div", a, divisor)


def remainder(a: ir.Index, divisor: int) -> ir.Index:
    return 0 if divisor == 1 else _computed("rem", a, divisor)


def mirrored(index: ir.Index, size: int) -> ir.Index:
    """Returns the index of the same element on a reversed axis of length `size`: `size - 1 - index`."""
    return _computed("sub", size - 1, index)


def flat(place: Sequence[ir.Index], shape: Sequence[int]) -> ir.Index:
    """Returns the flat index, in row-major order, of the element at the index tuple `place` in an array with this shape."""
    number: ir.Index = 0
    stride = math.prod(shape)
    for at, size in zip(place, shape, strict=True):
        stride //= max(size, 1)
        if size != 1:
            number = add(number, times(at, stride))
    return number


def unflat(number: ir.Index, shape: Sequence[int]) -> ir.Place:
    """Returns the tuple of indices, one for each axis, of the element with the flat index `number`; the inverse of `flat`."""
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
    """Whether a part of an array, with `sizes` along each axis, is one whole row: index 0 of the part spans all later axes."""
    return len(shape) > 1 and sizes[0] == 1 and tuple(sizes[1:]) == tuple(shape[1:])


@dataclasses.dataclass(eq=False)
class Value:
    """Array of a traced function in a kernel, represented by a function that returns the C expression of each element.

    Attributes:
      shape: shape of the array; an array of random keys has an additional axis for the two words of a key.
      dtype: type of the elements.
      at: function from an index tuple to the C expression of the element there.
      storages: C variables and arrays that the expressions of elements read.
      storage: C variable or array that holds exactly this array, in row-major order; None if there is none.
      known: the elements if they are constant, else None.
      uniform: whether all elements are known to be equal.
      lone: whether the array is known to be a vector with at most one true element.
      chosen: a `lone` condition and an array, if this array equals that one where the condition holds, and 0 elsewhere; else None.
      steps: number of operations by which an element is computed where it is read; 0 if it is stored.
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
        return math.prod(self.shape)


# Functions that write an operation of a jaxpr in C, `(writer, equation, *operands) -> results`, by the name of the operation's primitive.
Rule = Callable[..., list[Value]]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Returns a decorator that registers a function as the translation to C (in `RULES`) of JAX's operations with these names."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def shape_of(aval: Any) -> tuple[int, ...]:
    """Returns the shape of an array in a kernel; an array of random keys has an additional axis for the two words of a key."""
    return (*aval.shape, 2) if is_key(aval) else tuple(aval.shape)


def dtype_of(aval: Any) -> np.dtype:
    return np.dtype(np.uint32) if is_key(aval) else np.dtype(aval.dtype)


def aval_of(eqn: Any, place: int = 0) -> tuple[tuple[int, ...], np.dtype]:
    """Returns the shape and the type, in a kernel, of an operation's result; `place` is the index of the result, if there are several."""
    aval = eqn.outvars[place].aval
    return (shape_of(aval), dtype_of(aval)) if is_key(aval) else (tuple(aval.shape), aval.dtype)
