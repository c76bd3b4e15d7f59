"""Statements of C: names, variables, arrays, and loops that operations on arrays of one shape share.

Every operation on whole arrays becomes a loop over their elements, and those that follow each other on arrays of one shape share a loop (a
`Group`). What only moves elements (reshape, slice, broadcast, transpose) costs nothing: it is another expression of the same element.
Arrays are written in place where nobody needs what was there.
"""

import contextlib
import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from jaxroute.kernels.values import (
    MOST_ON_DEVICE_STACK,
    Index,
    Place,
    Storage,
    Value,
    add,
    c_type,
    counting,
    flat,
    lane_type,
    literal,
    narrow,
    unflat,
)

# Longer arrays of vectors are not on the stack.
_MOST_ON_STACK = 64
_NAMES = re.compile(r"\b[a-z]\d+\b")


class _Line:
    """A line of C that is left out if nobody reads what it writes."""

    def __init__(self, text: str, storage: Storage | None = None):
        self.text, self.storage = text, storage


@dataclasses.dataclass(eq=False)
class Group:
    """Operations on arrays of one shape, element by element, that share a loop.

    shape: of the arrays. place: names of the indices. before, lines, after: what stands before the loop, in it, and behind it.
    made: what it stores. reads: storages that it reads.
    """

    shape: tuple[int, ...]
    place: Place
    before: list[_Line] = dataclasses.field(default_factory=list)
    lines: list[_Line] = dataclasses.field(default_factory=list)
    after: list[_Line] = dataclasses.field(default_factory=list)
    made: list[Storage] = dataclasses.field(default_factory=list)
    reads: set[Storage] = dataclasses.field(default_factory=set)
    open: bool = True


class _Elsewhere(Exception):
    """An element is needed at another place of the loop that makes it."""


class Writer:
    """Writes statements of C, one after the other, into `lines`.

    Args:
      wide: a number of a run is a vector of those of several runs, unless they share it (`lanes.h`).
    """

    def __init__(self, wide: bool = False) -> None:
        self.wide = wide
        self.masks: list[str] = []  # In force: of the runs that lines are meant for, the last the narrowest.
        self.heap = 0  # Vectors of long arrays.
        self.scratch = 0  # Bytes of a run's scratch memory on a GPU, of what `text` has written.
        self._varying: set[str] = set()
        self.lines: list[Any] = []
        self.tables: list[str] = []
        self._names = itertools.count()
        self._groups: dict[tuple[int, ...], Group] = {}
        self._building: Group | None = None
        self._tables: dict[Any, Storage] = {}

    # Text

    def name(self, prefix: str) -> str:
        """A new name."""
        return f"{prefix}{next(self._names)}"

    def line(self, text: str, storage: Storage | None = None) -> None:
        """Writes a line; one that only gives a storage its value may be left out."""
        self.lines.append(_Line(text, storage))

    def code(self, text: str) -> None:
        """Writes lines as they are, in braces of their own."""
        self.line("{")
        for line in text.strip("\n").splitlines():
            self.line(line.strip())
        self.line("}")

    @contextlib.contextmanager
    def block(self, head: str) -> Generator[None, None, None]:
        """Lines in braces. What was begun is finished before, and what is begun inside is finished inside."""
        self.finish()
        self.line(head + " {")
        yield
        self.finish()
        self.line("}")

    @contextlib.contextmanager
    def loops(self, shape: Sequence[int], name: str = "i") -> Generator[Place, None, None]:
        """Nested loops over all indices of a shape."""
        place: list[Index] = []
        for size in shape:
            place.append(0 if size == 1 else self.name(name))
        heads = [counting(str(at), size) for at, size in zip(place, shape, strict=True) if at != 0]
        for head in heads:
            self.line(head + " {")
        yield tuple(place)
        for _ in heads:
            self.line("}")

    def text(self) -> str:
        """All lines. Arrays of a block that has ended leave their place in scratch memory to others."""
        written = [line for line in self.lines if line.text and (line.storage is None or line.storage.reads)]
        out, ends, self.scratch = [], [0], 0
        for line in written:
            text = line.text
            if text.startswith("}"):
                ends.pop()
            if line.storage is not None and text.startswith("ARRAY("):
                text = text.replace("FIRST", str(ends[-1]))
                ends[-1] += -(-line.storage.size * line.storage.dtype.itemsize // 8) * 8
                self.scratch = max(self.scratch, ends[-1])
            out.append("    " * len(ends) + text)
            if text.endswith("{"):
                ends.append(ends[-1])
        return "\n".join(out)

    # Storages

    def variable(self, dtype: Any, size: int, varying: bool = True, apart: bool = False) -> Storage:
        """Declares an array, or a plain variable for size 0."""
        storage = self.storage("a" if size else "x", dtype, size, varying)
        storage.apart = apart
        self.line(self.declaration(storage), storage)
        return storage

    def storage(self, prefix: str, dtype: Any, size: int, varying: bool = True) -> Storage:
        """A storage with a name of its own, to be declared."""
        storage = Storage(self.name(prefix), np.dtype(dtype), size, varying=varying and self.wide, depth=len(self.masks))
        if not self.wide and size * storage.dtype.itemsize > MOST_ON_DEVICE_STACK:
            storage.stride = "STRIDE"
        if storage.varying:
            self._varying.add(storage.name)
        return storage

    def in_scratch(self, dtype: Any, size: int) -> Storage:
        """Declares an array in the scratch memory of a GPU, whatever its size."""
        storage = Storage(self.name("a"), np.dtype(dtype), size, writable=False, stride="STRIDE")
        self.line(self.declaration(storage), storage)
        return storage

    def type_of(self, dtype: Any, varying: bool = True) -> str:
        """Name of a type."""
        return lane_type(dtype) if varying and self.wide else c_type(dtype)

    def condition(self, *texts: str) -> str:
        """Type of what expressions say of each other."""
        return self.type_of(bool, self.varies(*texts))

    def declaration(self, storage: Storage) -> str:
        """Of a storage."""
        kind = self.type_of(storage.dtype, storage.varying)
        if not storage.size:
            return f"{kind} {storage.name};"
        if storage.stride:
            return f"ARRAY({kind}, {storage.name}, {storage.size}, FIRST);"  # Where it begins is known once all lines are.
        if not self.wide:
            return f"{kind} {storage.name}[{storage.size}];"
        if storage.apart:
            number = {"F": "float", "I": "int"}[kind]
            first, self.heap = self.heap, self.heap + storage.size
            return f"auto &{storage.name} = *(Apart<{number}, {storage.size}> *)(heap + {first});"
        if not storage.varying or storage.size <= _MOST_ON_STACK:
            return f"Array<{kind}, {storage.size}> {storage.name};"
        first, self.heap = self.heap, self.heap + storage.size
        return f"auto &{storage.name} = *(Array<{kind}, {storage.size}> *)(heap + {first});"

    def varies(self, *texts: str) -> bool:
        """Whether expressions or lines differ between runs that are played at once."""
        return self.wide and any(name in self._varying for text in texts for name in _NAMES.findall(text))

    def varies_here(self, value: Value) -> bool:
        """Whether a value does, as it is read."""
        if not self.wide or not value.size:
            return False
        return self.varies(value.at(tuple(0 if n == 1 else f"i{axis}" for axis, n in enumerate(value.shape))))

    @contextlib.contextmanager
    def masked(self, mask: str) -> Generator[None, None, None]:
        """Lines that are meant for some of the runs that are played at once."""
        self.masks.append(mask)
        yield
        self.masks.pop()

    def assigned(self, storage: Storage, target: str, text: str) -> str:
        """The line that gives an element of a storage its value, in the runs that are meant."""
        if storage.varying and storage.depth < len(self.masks):
            return f"SET_IF({self.masks[-1]}, {target}, {text});"
        if self.wide and not storage.varying and self.varies(text):
            return f"{target} = first_lane({text});"
        return f"{target} = {text};"

    def only_if(self, test: str, line: str) -> str:
        """The line that assigns something, where a test holds too."""
        if line.startswith("SET_IF("):
            return f"SET_IF(({test}) & {line.removeprefix('SET_IF(')}"
        target, text = line.removesuffix(";").split(" = ", 1)
        return f"SET_IF({test}, {target}, {text});"

    def converted(self, dtype: Any, text: str) -> str:
        """A number as one of another type, as C converts it."""
        if not self.wide:
            return f"(({c_type(dtype)}){text})"
        dtype = np.dtype(dtype)
        return f"to_{dtype.kind}{8 * dtype.itemsize if narrow(dtype) else ''}({text})"

    def given(self, number: int, dtype: Any, size: int) -> Storage:
        """The memory of an input `[..., R]`: what the runs that are played have of it."""
        kind = c_type(dtype)
        if not self.wide:
            name = self.name("p")
            self.line(f"const {kind} *const {name} = in{number} + r;")
            return Storage(name, np.dtype(dtype), max(1, size), writable=False, stride="R")
        lane_type(dtype)
        storage = self.storage("p", dtype, max(1, size))
        storage.writable = False
        self.line(f"const Given<{kind}> {storage.name} = {{in{number} + r, R, count}};")
        return storage

    def put(self, number: int, at: Index, text: str) -> None:
        """Writes a number to an output `[..., R]`."""
        self.line(f"out{number}.put({at}, {text});" if self.wide else f"out{number}[({at})*R + r] = {text};")

    def value_of(self, storage: Storage, shape: Sequence[int]) -> Value:
        """What a storage holds, as an array."""
        shape = tuple(shape)

        def at(place: Place) -> str:
            self._read(storage)
            return storage.read(flat(place, shape))

        return Value(shape, storage.dtype, at, frozenset([storage]), storage)

    def _read(self, storage: Storage) -> None:
        storage.reads += 1
        if self._building is not None:
            self._building.reads.add(storage)

    def constant(self, array: Any) -> Value:
        """A known array."""
        array = np.asarray(array)
        if not array.ndim:
            text = literal(array[()])
            return Value((), array.dtype, lambda place: text, known=array)
        same = array.size and (array == array.flat[0]).all()
        if same:
            text = literal(array.flat[0])
            return Value(array.shape, array.dtype, lambda place: text, known=array)

        def at(place: Place) -> str:
            if all(isinstance(i, int) for i in place):
                return literal(array[place])
            table = self._table(array)
            self._read(table)
            return table.element(flat(place, array.shape))

        return Value(array.shape, array.dtype, at, known=array)

    def _table(self, array: np.ndarray) -> Storage:
        """A known array in memory."""
        key = array.dtype.str, array.tobytes()
        if key not in self._tables:
            table = Storage(self.name("c"), array.dtype, array.size, writable=False)
            numbers = ", ".join(literal(number) for number in array.ravel())
            kind, name = c_type(array.dtype), table.name
            if self.wide:
                self.tables.append(f"CONSTANT Array<{kind}, {array.size}> {name} = {{{{{numbers}}}}};")
            else:
                self.tables.append(f"CONSTANT {kind} {name}[{array.size}] = {{{numbers}}};")
            self._tables[key] = table
        return self._tables[key]

    def view(self, value: Value, shape: Sequence[int], at: Callable[[Place], str], storage: Storage | None = None) -> Value:
        """Another way to look at a value."""
        return Value(tuple(shape), value.dtype, at, value.storages, storage)

    def stored(self, value: Value) -> Value:
        """A value with a storage of its own."""
        if value.storage is not None:
            return value
        return self.copied(value)

    def copied(self, value: Value, varying: bool = False, apart: bool = False) -> Value:
        """A value in a new storage, which may differ between runs if the value does or if it is to."""
        varying = varying or self.varies_here(value)
        storage = self.variable(value.dtype, value.size if value.shape else 0, varying, apart)
        self.write(storage, value)
        return self.value_of(storage, value.shape)

    def write(self, storage: Storage, value: Value) -> None:
        """Gives a storage, which nobody reads any more, a value."""
        if value.storage is storage:
            return
        self.before_writing(storage)
        if not storage.size:
            self.line(self.assigned(storage, storage.name, value.at((0,) * len(value.shape))), storage)
            return
        if not value.size:
            return
        self.ready(value)
        with self.loops(value.shape) as place:
            self.line(self.assigned(storage, storage.element(flat(place, value.shape)), value.at(place)), storage)

    def made_in(self, storage: Storage, value: Value) -> bool:
        """Makes a value in another storage from the start, in place of a copy at the end, if nobody reads what that one had any more.

        Args:
          storage: is to have the value at the end of the block that is being written.
          value: made by a loop of this block, and not needed elsewhere.

        Returns:
          Whether that could be done.
        """
        made = value.storage
        if made is None or made is storage or made.loop is None or not storage.writable:
            return False
        if (made.size, made.varying, made.dtype) != (storage.size, storage.varying, storage.dtype) or storage.apart:
            return False
        if not made.depth == storage.depth == len(self.masks):
            return False
        (first, behind), old, new = made.loop, f"{made.name}[", f"{storage.name}["
        own = next(
            (n for n in range(first, behind) if self.lines[n].storage is made and self.lines[n].text.startswith(old)), None
        )
        if own is None:
            return False
        at = self.lines[own].text.split("] = ", 1)[0].removeprefix(old)
        name, depth = re.compile(rf"\b{storage.name}\b"), 0
        for number, line in enumerate(self.lines[first:], first):
            depth += line.text.endswith("{") - line.text.startswith("}")
            reads = len(name.findall(line.text))
            if depth < 0 or (reads and (number >= own or reads != line.text.count(f"{new}{at}]"))):
                return False  # The block of the loop has ended, or what was there is read later, or at another place.
        made_name = re.compile(rf"\b{made.name}\b")
        declaration = next(n for n in range(first - 1, -1, -1) if made_name.search(self.lines[n].text))
        self.lines[declaration].text = ""
        for line in self.lines[first:]:
            if line.storage is made:
                line.storage = None
            line.text = made_name.sub(storage.name, line.text)
        made.name = storage.name
        return True

    def ready(self, *values: Value) -> None:
        """Finishes the loops that make values, before others begin that read them."""
        for value in values:
            if value.size:
                value.at(tuple(f"i{axis}" for axis in range(len(value.shape))))

    def before_writing(self, storage: Storage) -> None:
        """Finishes the loops that read a storage."""
        for group in list(self._groups.values()):
            if storage in group.reads:
                self._finish(group)

    def may_overwrite(self, value: Value) -> bool:
        """Whether a value that was just used for the last time has a storage that nobody else reads."""
        return value.storage is not None and value.storage.writable and not value.storage.readers

    def may_change(self, value: Value) -> bool:
        """Whether it has, and all runs that are meant at its declaration are meant here."""
        own = value.storage
        if own is None or not self.may_overwrite(value):
            return False
        return not self.wide or (own.varying and own.depth == len(self.masks))

    def index(self, number: Index) -> Index:
        """An index that is computed once."""
        if isinstance(number, int):
            return number
        name = self.name("n")
        if self.varies(number):
            self._varying.add(name)
        self.line(f"const {'auto' if self.wide else 'int'} {name} = {number};")
        return name

    def to_change(self, value: Value, assigned: bool = False) -> Storage:
        """A storage with this value, which may be changed: its own if nobody needs it any more.

        Args:
          value: the value.
          assigned: all changes are lines of `assigned`.
        """
        own = value.storage
        varies = own is not None and (own.varying or not self.wide)
        if own is not None and (self.may_overwrite(value) and varies if assigned else self.may_change(value)):
            self.ready(value)
            self.before_writing(own)
            return own
        storage = self.copied(value, varying=True).storage
        assert storage is not None
        return storage

    def apart(self, value: Value, other: Value) -> Value:
        """A value that does not read what another one is read from."""
        return self.copied(value) if value.known is None and value.storages & other.storages else value

    # Groups

    def finish(self) -> None:
        """Writes the loops that were begun."""
        for group in list(self._groups.values()):
            self._finish(group)

    def _finish(self, group: Group) -> None:
        if not group.open:
            return
        group.open = False
        del self._groups[group.shape]
        for storage in group.made:
            self.line(self.declaration(storage), storage)
        first = len(self.lines)
        self.lines += group.before
        sizes = [(at, size) for at, size in zip(group.place, group.shape, strict=True) if at != 0]
        for at, size in sizes:
            self.line(counting(str(at), size) + " {")
        self.lines += group.lines
        for _ in sizes:
            self.line("}")
        self.lines += group.after
        for storage in group.made:
            storage.loop = first, len(self.lines)

    def elementwise(
        self, shapes: Sequence[tuple[tuple[int, ...], Any]], make: Callable[[Place, Sequence[str]], Sequence[str]]
    ) -> list[Value]:
        """Values that are made element by element.

        Args:
          shapes: shape, the same for all, and type of each value.
          make: from the indices and the names of the results, the lines that compute them.
        """
        shape = shapes[0][0]
        if not math.prod(shape):
            return [Value(shape, np.dtype(dtype), lambda place: "0") for _, dtype in shapes]
        if math.prod(shape) == 1:
            storages = [self.storage("x", dtype, 0, varying=False) for _, dtype in shapes]
            for text, storage in self._declared(storages, make((0,) * len(shape), [s.name for s in storages])):
                self.line(text, storage)
            return [self.value_of(storage, shape) for storage in storages]
        names = [self.storage("t", dtype, 0, varying=False) for _, dtype in shapes]
        group, lines = self._joined(shape, lambda place: make(place, [s.name for s in names]))
        group.lines += [_Line(text) for text, _ in self._declared(names, lines)]
        values = []
        for name in names:
            storage = self.storage("a", name.dtype, math.prod(shape), name.varying)
            group.made.append(storage)
            group.lines.append(_Line(f"{storage.element(flat(group.place, shape))} = {name.name};", storage))
            values.append(self._member_value(group, name.name, storage, shape))
        return values

    def gathered(
        self,
        shape: Sequence[int],
        starts: Sequence[tuple[Any, str]],
        step: Callable[[Place, Sequence[str]], Sequence[str]],
        last: Callable[[Sequence[str]], Sequence[str]] = lambda names: (),
    ) -> list[Value]:
        """Numbers that a loop over all places of a shape makes, one after the other.

        Args:
          shape: of the places.
          starts: type of each number, and what it is before.
          step: from the indices and the names of the numbers, the lines for a place.
          last: from the names of the numbers, the lines behind the loop.
        """
        numbers = [self.storage("x", dtype, 0, varying=False) for dtype, _ in starts]
        names = [number.name for number in numbers]
        for number in numbers:
            number.reads += 1

        def first(lines: Sequence[str]) -> list[_Line]:
            self._found(numbers, lines)
            heads = (self.type_of(n.dtype, n.varying) + f" {n.name}" for n in numbers)
            return [_Line(f"{head} = {start};") for head, (_, start) in zip(heads, starts, strict=True)]

        if math.prod(shape) <= 1:
            steps = step((0,) * len(shape), names) if math.prod(shape) else ()
            self.lines += [*first(steps), *map(_Line, (*steps, *last(names)))]
            return [self.value_of(number, ()) for number in numbers]
        group, lines = self._joined(tuple(shape), lambda place: step(place, names))
        group.before += first(lines)
        group.lines += map(_Line, lines)
        group.after += map(_Line, last(names))
        return [self._member_value(group, "", number, ()) for number in numbers]

    def _joined(self, shape: tuple[int, ...], make: Callable[[Place], Sequence[str]]) -> tuple[Group, Sequence[str]]:
        """The loop of a shape that lines can be added to, and these lines."""
        for _ in range(2):
            group = self._groups.get(shape)
            if group is None:
                group = Group(shape, tuple(0 if n == 1 else self.name("i") for n in shape))
                self._groups[shape] = group
            before, self._building = self._building, group
            try:
                lines = make(group.place)
            except _Elsewhere:
                self._finish(group)
                continue
            finally:
                self._building = before
            return group, lines
        raise RuntimeError("an element needs another element of its own loop")

    def _member_value(self, group: Group, name: str, storage: Storage, shape: Sequence[int]) -> Value:
        def at(place: Place) -> str:
            if group.open and self._building is group:
                if place != group.place or not name:
                    raise _Elsewhere
                return name
            if group.open:
                self._finish(group)
            self._read(storage)
            return storage.element(flat(place, shape))

        return Value(tuple(shape), storage.dtype, at, frozenset([storage]), storage)

    # Parts

    def row(self, value: Value, number: Index) -> Value:
        """One slice along the first axis."""
        return self.view(value, value.shape[1:], lambda place: value.at((number, *place)))

    def write_part(
        self, storage: Storage, shape: Sequence[int], starts: Sequence[Index], value: Value, sizes: Sequence[int]
    ) -> None:
        """Writes a value, of the sizes that it has in there, into a part of a storage."""
        self.before_writing(storage)
        if not math.prod(sizes):
            return
        own = tuple(value.shape)
        self.ready(value)
        with self.loops(sizes) as place:
            number = flat(tuple(add(s, p) for s, p in zip(starts, place, strict=True)), shape)
            inside = unflat(flat(place, sizes), own) if own != tuple(sizes) else place
            self.line(self.assigned(storage, storage.element(number), value.at(inside)), storage)

    def _found(self, storages: Sequence[Storage], lines: Sequence[str]) -> None:
        """Says of variables whether the lines that make them differ between runs."""
        if self.varies(*lines):
            for storage in storages:
                storage.varying = True
                self._varying.add(storage.name)

    def _declared(self, storages: Sequence[Storage], lines: Sequence[str]) -> list[tuple[str, Storage | None]]:
        """Lines that give variables their values, with their declarations; one that nobody needs may be left out."""
        self._found(storages, lines)
        found: list[tuple[str, Storage | None]] = []
        first = {f"{s.name} = ": s for s in storages}
        for line in lines:
            head = next((head for head in first if line.startswith(head)), None)
            storage = first.pop(head) if head else None
            number = f"{self.type_of(storage.dtype, storage.varying)} " if storage else ""
            found.append((number + line, storage if len(lines) == 1 else None))
        assert not first
        return found
