"""Values of a traced function as C sees them: what an element of an array is, as an expression, and where it is stored."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

# An index: known, or a C expression of type int.
Index: TypeAlias = int | str
Place: TypeAlias = tuple[Index, ...]
# Loops of more steps stay loops on a GPU.
_LONG = 16
# Arrays of a run of more bytes are in scratch memory on a GPU: the driver reserves memory for the stacks of all threads that the device can hold.
MOST_ON_DEVICE_STACK = 2048

TYPES = {
    "float32": "float",
    "float64": "double",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned",
    "uint64": "unsigned long long",
    "bool": "bool",
}


# What numbers of several runs are, see `lanes.h`.
LANE_TYPES = {
    **{"float32": "F", "int32": "I", "uint32": "U", "bool": "B"},
    **{"int8": "I", "int16": "I", "uint8": "U", "uint16": "U"},
}


class Unsupported(Exception):
    """A function that cannot be written as C; the message says which operation stands in the way."""


class SlowerThanScan(Unsupported):
    """A kernel that can be made, and that the scan outruns."""


def c_type(dtype: Any) -> str:
    """Its name in C."""
    name = np.dtype(dtype).name
    if name not in TYPES:
        raise Unsupported(f"numbers of type {name}")
    return TYPES[name]


def lane_type(dtype: Any) -> str:
    """The name of such numbers of several runs."""
    name = np.dtype(dtype).name
    if name not in LANE_TYPES:
        raise Unsupported(f"numbers of type {name} of several runs")
    return LANE_TYPES[name]


def narrow(dtype: Any) -> bool:
    """Whether these are whole numbers of fewer than 32 bits."""
    dtype = np.dtype(dtype)
    return dtype.kind in "iu" and dtype.itemsize < 4


def literal(number: Any) -> str:
    """A NumPy number in C."""
    kind = number.dtype.kind
    if kind == "b":
        return "true" if number else "false"
    if kind == "f":
        suffix = "f" if number.dtype.itemsize == 4 else ""
        if np.isnan(number):
            return "NAN_32" if suffix else "NAN_64"
        if np.isinf(number):
            return ("-" if number < 0 else "") + ("INF_32" if suffix else "INF_64")
        text = float(number).hex() + suffix
        return f"({text})" if text.startswith("-") else text
    if kind == "u":
        return f"{number}u" if number.dtype.itemsize <= 4 else f"{number}ull"
    if number.dtype.itemsize == 8:
        return f"({int(number) + 1}ll - 1)" if number < 0 else f"{number}ll"
    return f"({int(number) + 1} - 1)" if number < 0 else f"{number}"


def counting(name: str, size: int, first: int = 0) -> str:
    """Head of a loop. A long one is not to be unrolled: its arrays do not fit into registers anyway, and compiling would take a minute."""
    return f"{'ROLLED ' if size > _LONG else ''}for (int {name} = {first}; {name} < {size}; ++{name})"


def add(a: Index, b: Index) -> Index:
    """Sum of two indices."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if a == 0:
        return b
    if b == 0:
        return a
    return f"({a} + {b})"


def times(a: Index, factor: int) -> Index:
    """An index, so many times."""
    if isinstance(a, int):
        return a * factor
    return 0 if factor == 0 else a if factor == 1 else f"{a}*{factor}"


def quotient(a: Index, divisor: int) -> Index:
    """Whole part of an index divided by a number."""
    if isinstance(a, int):
        return a // divisor
    return a if divisor == 1 else f"({a})/{divisor}"


def rest(a: Index, divisor: int) -> Index:
    """What is left of it."""
    if isinstance(a, int):
        return a % divisor
    return 0 if divisor == 1 else f"({a})%{divisor}"


def flat(place: Sequence[Index], shape: Sequence[int]) -> Index:
    """Number of an element in the order of memory."""
    number: Index = 0
    stride = math.prod(shape)
    for at, size in zip(place, shape, strict=True):
        stride //= max(size, 1)
        number = add(number, times(at if size != 1 else 0, stride))
    return number


def unflat(number: Index, shape: Sequence[int]) -> Place:
    """Indices of the element of this number."""
    place: list[Index] = []
    stride = math.prod(shape)
    outer = True
    for size in shape:
        stride //= max(size, 1)
        if size == 1:
            place.append(0)
            continue
        at = quotient(number, stride)
        place.append(at if outer else rest(at, size))
        outer = False
    return tuple(place)


def is_row(shape: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether a part of these sizes is one row along the first axis."""
    return len(shape) > 1 and sizes[0] == 1 and tuple(sizes[1:]) == tuple(shape[1:])


@dataclasses.dataclass(eq=False)
class Storage:
    """A variable or an array of C.

    name: of it. dtype: of its numbers. size: how many; 0 for a plain variable.
    writable: it may be written over when nobody needs it any more.
    stride: expression of the distance between two numbers, empty for 1.
    readers: living variables whose value is read from it. reads: how often it is read, in the text.
    varying: it differs between runs that are played at once. depth: number of masks in force where it is declared.
    loop: numbers of the first line and of the one behind the last of the loop that gives it its value, if there is one.
    apart: each run has its numbers side by side, where several are played at once (`placement`).
    """

    name: str
    dtype: np.dtype
    size: int
    writable: bool = True
    stride: str = ""
    readers: int = 0
    reads: int = 0
    varying: bool = False
    depth: int = 0
    loop: tuple[int, int] | None = None
    apart: bool = False

    def read(self, number: Index) -> str:
        """An element, as C reads it."""
        return f"{self.name}.read({number})" if self.apart else self.element(number)

    def element(self, number: Index) -> str:
        """An element, as C writes it, and reads it if it is not apart."""
        if not self.size:
            return self.name
        if self.stride:
            return f"{self.name}[{times_text(number, self.stride)}]"
        return f"{self.name}[{number}]"


def times_text(number: Index, stride: str) -> str:
    """An index times a distance in memory."""
    return "0" if number == 0 else stride if number == 1 else f"({number})*{stride}"


@dataclasses.dataclass(eq=False)
class Value:
    """An array of the traced function.

    shape, dtype: of it; keys are their words.
    at: expression of an element.
    storages: that `at` reads.
    storage: the one that holds exactly this array, in the order of memory.
    known: what it is, if that is known.
    uniform: all elements are the same.
    lone: axis along which at most one element is true, if there is one.
    chosen: condition with such an axis, and value where it holds; it is 0 elsewhere.
    steps: operations on numbers of a run, and on places, that an element takes where it is read.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    at: Callable[[Place], str]
    storages: frozenset[Storage] = frozenset()
    storage: Storage | None = None
    known: np.ndarray | None = None
    uniform: bool = False
    lone: int | None = None
    chosen: "tuple[Value, Value] | None" = None
    steps: int = 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def element(self, number: int) -> str:
        """The element of this number in the order of memory."""
        return self.at(unflat(number, self.shape))


def places(shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All indices."""
    return np.ndindex(*shape)
