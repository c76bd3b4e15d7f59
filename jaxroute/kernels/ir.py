"""Intermediate representation of a kernel: typed expressions and statements, which the printer turns into C, and arrays of expressions."""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from jaxroute.core.batching.dependence import is_key


class Unsupported(Exception):
    """Error: a function cannot become a kernel, for example because of an operation that the message names. The engine then uses the scan."""


class SlowerThanScan(Unsupported):
    """Error: a kernel would be slower than the scan over rounds, the other back end of the engine, which then runs."""


@dataclasses.dataclass(eq=False)
class Storage:
    """Variable or array of C that the statements of a kernel read and write.

    Attributes:
      name: name in C.
      dtype: type of its numbers.
      size: number of elements; 0 for a variable.
      writable: whether it may be overwritten when no array of the traced function needs it.
      stride: distance in memory between two elements, as an expression of C; empty for 1.
      per_run: whether the elements of each run are contiguous if several runs are simulated at once; otherwise runs are interleaved.
      varying: whether its contents differ between runs that are simulated at once.
      depth: number of masks (branches that only some of the runs execute) that enclose its declaration.
      readers: number of traced arrays whose elements are read from it and that later operations still use.
      store: if a shared loop computes this array, the pair (block with the loop, statement that assigns the elements); otherwise None.
      successor: storage that statements read and write instead of this one, which saves a copy; None if it was not replaced.
    """

    name: str
    dtype: np.dtype
    size: int
    writable: bool = True
    stride: str = ""
    per_run: bool = False
    varying: bool = False
    depth: int = 0
    readers: int = 0
    store: "tuple[Block, Assign] | None" = None
    successor: "Storage | None" = None

    @property
    def current(self) -> "Storage":
        """Returns the storage that now holds the contents: the last successor, or this storage if it was not replaced."""
        return self if self.successor is None else self.successor.current


def _operator(op: str) -> "Callable[[Expr, Operand], Expr]":
    return lambda self, other: apply(op, self, other)


@dataclasses.dataclass(frozen=True, slots=True)
class Expr:
    """Expression of C: a literal, a variable, an element of an array, or an operation on other expressions.

    Attributes:
      op: "literal", "variable", "element", "call" (of a C function), "choose" (see `choose`), "convert" (of a type), or a key of `printer.FORMATS`.
      operands: operands of the operation, or arguments of the call; for an element its flat index alone.
      dtype: type of its value.
      storage: C variable of a "variable", or C array of an "element"; None for others.
      number: value of a "literal", or name of the function of a "call"; None for others.
    """

    op: str
    operands: "tuple[Expr, ...]"
    dtype: np.dtype
    storage: Storage | None = None
    number: Any = None

    def parts(self) -> "list[Expr]":
        """Returns the expression itself and all its subexpressions."""
        found = list[Expr]([self])
        for one in found:  # The list grows during the loop.
            found += one.operands
        return found

    def leaves(self) -> "list[Expr]":
        """Returns all variables and elements in the expression."""
        return [one for one in self.parts() if one.storage is not None]

    @property
    def varies(self) -> bool:
        """Whether the result of the expression differs between runs that are simulated at once."""
        return any(one.storage.varying for one in self.leaves() if one.storage is not None)

    __add__, __sub__, __mul__ = _operator("add"), _operator("sub"), _operator("mul")
    __and__, __or__, __xor__ = _operator("and"), _operator("or"), _operator("xor")
    __lt__, __le__, __gt__, __ge__ = _operator("lt"), _operator("le"), _operator("gt"), _operator("ge")
    equals, differs = _operator("eq"), _operator("ne")

    def __invert__(self) -> "Expr":
        return apply("not", self)

    def is_nan(self) -> "Expr":
        """Returns an expression that tests whether the number is NaN: only NaN differs from itself."""
        return self.differs(self)


Operand: TypeAlias = "Expr | int | float | bool"
# Index of an array: a Python number or an expression.
Index: TypeAlias = int | Expr
Place: TypeAlias = tuple[Index, ...]

INT, FLAG = np.dtype(np.int32), np.dtype(bool)
_CONDITIONS = frozenset(["lt", "le", "gt", "ge", "eq", "ne", "both", "either", "any", "le_to", "lt_to", "is_finite"])


def apply(op: str, *operands: Operand, dtype: Any = None, number: Any = None) -> Expr:
    """Returns the expression of the operation `op` on operands; Python numbers take the type of the first operand that is an expression.

    A `dtype` of None is bool for a condition, otherwise the type of the first operand. `number`: a literal's value or a C function's name.
    """
    first = next(one for one in operands if isinstance(one, Expr))
    given = tuple(one if isinstance(one, Expr) else literal(one, first.dtype) for one in operands)
    if dtype is None:
        dtype = FLAG if op in _CONDITIONS else given[0].dtype
    return Expr(op, given, np.dtype(dtype), number=number)


def literal(number: Any, dtype: Any = INT) -> Expr:
    return Expr("literal", (), np.dtype(dtype), number=np.asarray(number, dtype)[()])


def variable(storage: Storage) -> Expr:
    return Expr("variable", (), storage.dtype, storage)


def element(storage: Storage, index: Index) -> Expr:
    """Returns the C expression of the element of an array at a flat index, or of the variable if the storage is a variable."""
    if not storage.size:
        return variable(storage)
    return Expr("element", (as_expr(index),), storage.dtype, storage)


def as_expr(index: Index) -> Expr:
    return index if isinstance(index, Expr) else literal(index)


def choose(condition: Expr, one: Operand, other: Operand) -> Expr:
    """Returns the expression that is `one` where a condition holds, otherwise `other`. Both are evaluated in any case."""
    kind = one if isinstance(one, Expr) else other
    assert isinstance(kind, Expr)
    cases = (x if isinstance(x, Expr) else literal(x, kind.dtype) for x in (one, other))
    return Expr("choose", (condition, *cases), kind.dtype)


def both(*conditions: Expr) -> Expr:
    """Returns the expression that holds where all conditions do; they are evaluated in order until one fails."""
    return functools.reduce(lambda a, b: apply("both", a, b), conditions)


def either(*conditions: Expr) -> Expr:
    """Returns the expression that holds where a condition does; conditions are evaluated in order until one holds."""
    return functools.reduce(lambda a, b: apply("either", a, b), conditions)


def convert(x: Index, dtype: Any) -> Expr:
    """Returns the expression of `x`, a Python number or an expression, converted to a NumPy type by C's rules."""
    return apply("convert", as_expr(x), dtype=dtype)


# Statements


@dataclasses.dataclass(eq=False)
class Statement:
    """Statement of C. The fields of a subclass are its expressions, the variables and arrays (`Storage`) that it writes, and its inner blocks.

    Attributes:
      reads: storages that its expressions read, without those of inner blocks.
    """

    reads: set[Storage] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.reads = {one.storage for e in self.expressions() for one in e.leaves() if one.storage is not None}

    def expressions(self) -> Iterable[Expr]:
        """Returns the expressions that the statement evaluates, without those of inner blocks."""
        parts = [(one if isinstance(one, tuple) else (one,)) for one in vars(self).values()]
        return [one for part in parts for one in part if isinstance(one, Expr)]

    def written(self) -> tuple[Storage, ...]:
        """Returns the C variables and arrays that the statement writes. A statement without any has another effect and is never dropped."""
        return ()

    def blocks(self) -> "tuple[Block, ...]":
        return tuple(one for one in vars(self).values() if isinstance(one, list))


Block: TypeAlias = list[Statement]


@dataclasses.dataclass(eq=False)
class Declare(Statement):
    """Declaration of a C array, or of a C variable with or without an initial value."""

    storage: Storage
    value: Expr | None = None

    def written(self) -> tuple[Storage, ...]:
        return (self.storage,)


@dataclasses.dataclass(eq=False)
class Assign(Statement):
    """Assignment to a variable or an element of an array. With a `mask` it takes effect only in the runs for which the mask is true."""

    target: Expr
    value: Expr
    mask: Expr | None = None

    def expressions(self) -> Iterable[Expr]:
        given = *self.target.operands, self.value
        return given if self.mask is None else (*given, self.mask)

    def written(self) -> tuple[Storage, ...]:
        assert self.target.storage is not None
        return (self.target.storage,)


@dataclasses.dataclass(eq=False)
class Loop(Statement):
    """Loop of C, `for (int index = first; test; index += step) body`, without the parts that are None. A `rolled` loop is not unrolled on a GPU."""

    index: Storage | None = None
    first: Expr | None = None
    test: Expr | None = None
    step: int = 1
    rolled: bool = False
    body: Block = dataclasses.field(default_factory=list[Statement])


@dataclasses.dataclass(eq=False)
class If(Statement):
    test: Expr
    body: Block = dataclasses.field(default_factory=list[Statement])
    otherwise: Block = dataclasses.field(default_factory=list[Statement])


@dataclasses.dataclass(eq=False)
class Call(Statement):
    """Statement printed by the template `name` in `printer`, such as "break". It may use `operands` and `size`, a number of elements to copy."""

    name: str
    operands: tuple[Expr, ...] = ()
    writes: tuple[Storage, ...] = ()
    size: int = 0

    def written(self) -> tuple[Storage, ...]:
        return self.writes


def walk(block: Block) -> Iterator[Statement]:
    """Yields all statements of a block, each before those of its inner blocks."""
    for statement in block:
        yield statement
        for inner in statement.blocks():
            yield from walk(inner)


def live(block: Block) -> set[Storage]:
    """Returns the variables and arrays on which a block's effects depend. Effects are statements that write no variable or array, such as outputs."""
    writers: dict[Storage, list[Statement]] = {}
    found, open_ = set[Storage](), list[Storage]()
    for statement in walk(block):
        written = statement.written()
        for storage in written:
            writers.setdefault(storage.current, []).append(statement)
        if not written:
            open_ += statement.reads
    while open_:
        storage = open_.pop().current
        if storage not in found:
            found.add(storage)
            for statement in writers.get(storage, ()):
                open_ += statement.reads
    return found


# Arrays of a traced function, and the arithmetic of their indices

_OF_NUMBERS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.floordiv, "rem": operator.mod}


def _computed(op: str, a: Any, b: Any) -> Index:
    return apply(f"index_{op}", a, b) if isinstance(a, Expr) or isinstance(b, Expr) else _OF_NUMBERS[op](a, b)


def add(a: Index, b: Index) -> Index:
    return b if a == 0 else a if b == 0 else _computed("add", a, b)


def times(a: Index, factor: int) -> Index:
    return 0 if factor == 0 else a if factor == 1 else _computed("mul", a, factor)


def quotient(a: Index, divisor: int) -> Index:
    return a if divisor == 1 else _computed("div", a, divisor)


def remainder(a: Index, divisor: int) -> Index:
    return 0 if divisor == 1 else _computed("rem", a, divisor)


def mirrored(index: Index, size: int) -> Index:
    """Returns the index of the same element on a reversed axis of length `size`: `size - 1 - index`."""
    return _computed("sub", size - 1, index)


def flat(place: Sequence[Index], shape: Sequence[int]) -> Index:
    """Returns the flat index, in row-major order, of the element at the index tuple `place` in an array with this shape."""
    number: Index = 0
    stride = math.prod(shape)
    for at, size in zip(place, shape, strict=True):
        stride //= max(size, 1)
        if size != 1:
            number = add(number, times(at, stride))
    return number


def unflat(number: Index, shape: Sequence[int]) -> Place:
    """Returns the index tuple of the element with the flat index `number` in an array with this shape; the inverse of `flat`."""
    place: list[Index] = []
    stride, outer = math.prod(shape), True
    for size in shape:
        stride //= max(size, 1)
        at = quotient(number, stride)
        place.append(0 if size == 1 else at if outer else remainder(at, size))
        outer = outer and size == 1
    return tuple(place)


def is_row(shape: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether lengths `sizes` are those of one row of an array of this `shape`: 1 on the first axis, complete on others. A vector has no rows."""
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
      lone: whether the array is known to be a bool vector with at most one true element.
      chosen: pair (condition, numbers) if this array is `where(condition, numbers, 0)` with a `lone` condition, so its sum is one number; else None.
      steps: number of operations that compute an element each time it is read; 0 if elements are stored.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    at: Callable[[Place], Expr]
    storages: frozenset[Storage] = frozenset()
    storage: Storage | None = None
    known: np.ndarray | None = None
    uniform: bool = False
    lone: bool = False
    chosen: "tuple[Value, Value] | None" = None
    steps: int = 0

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def shape_of(aval: Any) -> tuple[int, ...]:
    """Returns the shape in a kernel of an array of JAX's type `aval`; random keys have an additional axis for the two words of a key."""
    return (*aval.shape, 2) if is_key(aval) else tuple(aval.shape)


def dtype_of(aval: Any) -> np.dtype:
    return np.dtype(np.uint32) if is_key(aval) else np.dtype(aval.dtype)


def aval_of(eqn: Any, place: int = 0) -> tuple[tuple[int, ...], np.dtype]:
    """Returns the shape and number type in a kernel of the result of the operation `eqn`; `place` is the result's index if there are several."""
    aval = eqn.outvars[place].aval
    return shape_of(aval), dtype_of(aval)
