"""Expressions and statements of a kernel: typed nodes, which a printer turns into C once all of them are there."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np


class Unsupported(Exception):
    """A function that cannot be written as C; the message names the operation that has none."""


class SlowerThanScan(Unsupported):
    """A kernel that can be made, and that is slower than the scan."""


@dataclasses.dataclass(eq=False)
class Storage:
    """A variable or an array of C.

    Attributes:
      name: name in C.
      dtype: type of its numbers.
      size: how many numbers it has; 0 for a variable.
      writable: whether it may be written over when no value needs it any more.
      stride: distance in memory between two numbers, as C; empty for 1.
      apart: whether each run has its numbers side by side, where several are simulated at once (`placement`).
      varying: whether it differs between runs that are simulated at once.
      depth: number of masks in force where it is declared.
      readers: number of living values that read it.
      store: block, and statement in a loop of it, that gives it its value, if a group makes it.
      successor: storage that has taken its place.
    """

    name: str
    dtype: np.dtype
    size: int
    writable: bool = True
    stride: str = ""
    apart: bool = False
    varying: bool = False
    depth: int = 0
    readers: int = 0
    store: "tuple[Block, Assign] | None" = None
    successor: "Storage | None" = None

    @property
    def current(self) -> "Storage":
        """Itself, or the storage that has taken its place."""
        return self if self.successor is None else self.successor.current


def _operator(op: str) -> "Callable[[Expr, Operand], Expr]":
    return lambda self, other: apply(op, self, other)


@dataclasses.dataclass(frozen=True, slots=True)
class Expr:
    """An expression of C.

    Attributes:
      op: name of the operation, a key of `formats`; "literal", "variable" or "element" for a leaf.
      operands: expressions; the index of an element.
      dtype: type of its number.
      storage: variable or array of a leaf.
      number: value of a literal, or name of a function that is called.
    """

    op: str
    operands: "tuple[Expr, ...]"
    dtype: np.dtype
    storage: Storage | None = None
    number: Any = None

    def parts(self) -> "list[Expr]":
        """It and all expressions in it."""
        found = list[Expr]([self])
        for one in found:  # It grows meanwhile.
            found += one.operands
        return found

    def leaves(self) -> "list[Expr]":
        """All variables and elements in it."""
        return [one for one in self.parts() if one.storage is not None]

    @property
    def varies(self) -> bool:
        """Whether it differs between runs that are simulated at once."""
        return any(one.storage.varying for one in self.leaves() if one.storage is not None)

    __add__, __sub__, __mul__ = _operator("add"), _operator("sub"), _operator("mul")
    __and__, __or__, __xor__ = _operator("and"), _operator("or"), _operator("xor")
    __lt__, __le__, __gt__, __ge__ = _operator("lt"), _operator("le"), _operator("gt"), _operator("ge")
    equals, differs = _operator("eq"), _operator("ne")

    def __invert__(self) -> "Expr":
        return apply("not", self)

    def is_nan(self) -> "Expr":
        """Whether a number is NaN: it differs from itself."""
        return self.differs(self)


Operand: TypeAlias = "Expr | int | float | bool"
# An index of an array: a number, or an expression.
Index: TypeAlias = int | Expr
Place: TypeAlias = tuple[Index, ...]

INT, FLAG = np.dtype(np.int32), np.dtype(bool)
_CONDITIONS = frozenset(["lt", "le", "gt", "ge", "eq", "ne", "both", "either", "any", "le_to", "lt_to", "is_finite"])


def apply(op: str, *operands: Operand, dtype: Any = None, number: Any = None) -> Expr:
    """An operation on operands, of which numbers of Python take the type of the first expression.

    The type of the result is by default that of the first operand, and bool for conditions.
    """
    first = next(one for one in operands if isinstance(one, Expr))
    given = tuple(one if isinstance(one, Expr) else literal(one, first.dtype) for one in operands)
    if dtype is None:
        dtype = FLAG if op in _CONDITIONS else given[0].dtype
    return Expr(op, given, np.dtype(dtype), number=number)


def literal(number: Any, dtype: Any = INT) -> Expr:
    """A known number."""
    return Expr("literal", (), np.dtype(dtype), number=np.asarray(number, dtype)[()])


def variable(storage: Storage) -> Expr:
    """The value of a variable."""
    return Expr("variable", (), storage.dtype, storage)


def element(storage: Storage, index: Index) -> Expr:
    """An element of an array, or a variable, which has one."""
    if not storage.size:
        return variable(storage)
    return Expr("element", (as_expr(index),), storage.dtype, storage)


def as_expr(index: Index) -> Expr:
    """An index as an expression."""
    return index if isinstance(index, Expr) else literal(index)


def choose(condition: Expr, one: Operand, other: Operand) -> Expr:
    """`condition ? one : other`, of which both are computed first."""
    kind = one if isinstance(one, Expr) else other
    assert isinstance(kind, Expr)
    cases = (x if isinstance(x, Expr) else literal(x, kind.dtype) for x in (one, other))
    return Expr("choose", (condition, *cases), kind.dtype)


def both(*conditions: Expr) -> Expr:
    """Whether all conditions hold, each looked at if those before hold."""
    return functools.reduce(lambda a, b: apply("both", a, b), conditions)


def either(*conditions: Expr) -> Expr:
    """Whether one of the conditions holds, each looked at if none of those before holds."""
    return functools.reduce(lambda a, b: apply("either", a, b), conditions)


def convert(x: Index, dtype: Any) -> Expr:
    """A number as one of another type, as C converts it."""
    return apply("convert", as_expr(x), dtype=dtype)


# Statements


@dataclasses.dataclass(eq=False)
class Statement:
    """A statement of C: its fields are what it reads, what it writes, and blocks inside."""

    reads: set[Storage] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        """Notes which storages it reads, without those that its blocks read."""
        self.reads = {one.storage for e in self.expressions() for one in e.leaves() if one.storage is not None}

    def expressions(self) -> Iterable[Expr]:
        """Expressions whose storages it reads, without those of its blocks."""
        parts = [(one if isinstance(one, tuple) else (one,)) for one in vars(self).values()]
        return [one for part in parts for one in part if isinstance(one, Expr)]

    def written(self) -> tuple[Storage, ...]:
        """Storages that it writes; it has another effect if there are none."""
        return ()

    def blocks(self) -> "tuple[Block, ...]":
        """Statements inside."""
        return tuple(one for one in vars(self).values() if isinstance(one, list))


Block: TypeAlias = list[Statement]


@dataclasses.dataclass(eq=False)
class Declare(Statement):
    """Declares a storage, a variable perhaps with its value."""

    storage: Storage
    value: Expr | None = None

    def written(self) -> tuple[Storage, ...]:
        return (self.storage,)


@dataclasses.dataclass(eq=False)
class Assign(Statement):
    """Gives a variable or an element its value, where the mask holds if there is one."""

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
    """A loop `for (int index = first; test; index += step)`, of which each part may be missing; a `rolled` one is not unrolled on a GPU."""

    index: Storage | None = None
    first: Expr | None = None
    test: Expr | None = None
    step: int = 1
    rolled: bool = False
    body: Block = dataclasses.field(default_factory=list[Statement])


@dataclasses.dataclass(eq=False)
class If(Statement):
    """A branch."""

    test: Expr
    body: Block = dataclasses.field(default_factory=list[Statement])
    otherwise: Block = dataclasses.field(default_factory=list[Statement])


@dataclasses.dataclass(eq=False)
class Call(Statement):
    """A statement by its name in the printer's table, such as "break", with arguments, what it writes, and a size such as the width of rows."""

    name: str
    operands: tuple[Expr, ...] = ()
    writes: tuple[Storage, ...] = ()
    size: int = 0

    def written(self) -> tuple[Storage, ...]:
        return self.writes


def walk(block: Block) -> Iterator[Statement]:
    """All statements of a block and of the blocks inside, in order."""
    for statement in block:
        yield statement
        for inner in statement.blocks():
            yield from walk(inner)


def live(block: Block) -> set[Storage]:
    """Storages that are read, directly or not, by what has an effect."""
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
