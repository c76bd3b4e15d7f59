"""A traced function of one run, written as C.

Every operation on whole arrays becomes a loop over their elements, and those that follow each other on arrays of one shape share a loop (a
`Group`). What only moves elements (reshape, slice, broadcast, transpose) costs nothing: it is another expression of the same element.
Arrays are written in place where nobody needs what was there. Loops and branches are those of C.
"""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Generator, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from jaxroute.engine.batching.dependence import BARRIERS, CALLS, is_key, scan_sizes
from jaxroute.engine.kernels import operations
from jaxroute.engine.kernels.values import (
    Index,
    Place,
    Storage,
    Unsupported,
    Value,
    add,
    c_type,
    counting,
    flat,
    literal,
    places,
    unflat,
)

_MORE_CALLS = {
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
}
_CALLS = {**CALLS, **_MORE_CALLS}
# Operations that hand their operand on.
_SAME = frozenset([*BARRIERS, "copy", "copy_p", "stop_gradient", "random_wrap", "random_unwrap"])


def shape_of(aval: Any) -> tuple[int, ...]:
    """Shape of a value's numbers: keys are two words."""
    return (*aval.shape, 2) if is_key(aval) else tuple(aval.shape)


def dtype_of(aval: Any) -> np.dtype:
    """Type of a value's numbers."""
    return np.dtype(np.uint32) if is_key(aval) else np.dtype(aval.dtype)


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


class Emitter:
    """Writes the C of traced functions, one after the other, into `lines`."""

    def __init__(self) -> None:
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
        """All lines."""
        written = [line for line in self.lines if line.storage is None or line.storage.reads]
        out, depth = [], 1
        for line in written:
            depth -= line.text.startswith("}")
            out.append("    " * depth + line.text)
            depth += line.text.endswith("{")
        return "\n".join(out)

    # Storages

    def variable(self, dtype: Any, size: int, prefix: str = "") -> Storage:
        """Declares an array, or a plain variable for size 0."""
        storage = Storage(self.name(prefix or ("a" if size else "x")), np.dtype(dtype), size)
        self.line(f"{c_type(dtype)} {storage.name}{f'[{size}]' if size else ''};", storage)
        return storage

    def value_of(self, storage: Storage, shape: Sequence[int]) -> Value:
        """What a storage holds, as an array."""
        shape = tuple(shape)

        def at(place: Place) -> str:
            self._read(storage)
            return storage.element(flat(place, shape))

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
            self.tables.append(f"CONSTANT {c_type(array.dtype)} {table.name}[{array.size}] = {{{numbers}}};")
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

    def copied(self, value: Value, into: Storage | None = None) -> Value:
        """A value in a new storage, or in one that is there."""
        storage = self.variable(value.dtype, value.size if value.shape else 0) if into is None else into
        self.write(storage, value)
        return self.value_of(storage, value.shape)

    def write(self, storage: Storage, value: Value) -> None:
        """Gives a storage, which nobody reads any more, a value."""
        if value.storage is storage:
            return
        self.before_writing(storage)
        if not storage.size:
            self.line(f"{storage.name} = {value.at((0,) * len(value.shape))};", storage)
            return
        if not value.size:
            return
        self.ready(value)
        with self.loops(value.shape) as place:
            self.line(f"{storage.element(flat(place, value.shape))} = {value.at(place)};", storage)

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

    def index(self, number: Index) -> Index:
        """An index that is computed once."""
        if isinstance(number, int):
            return number
        name = self.name("n")
        self.line(f"const int {name} = {number};")
        return name

    def to_change(self, value: Value) -> Storage:
        """A storage with this value, which may be changed: its own if nobody needs it any more."""
        if self.may_overwrite(value):
            self.ready(value)
            assert value.storage is not None
            self.before_writing(value.storage)
            return value.storage
        storage = self.copied(value).storage
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
            self.line(f"{c_type(storage.dtype)} {storage.name}[{storage.size}];", storage)
        self.lines += group.before
        sizes = [(at, size) for at, size in zip(group.place, group.shape, strict=True) if at != 0]
        for at, size in sizes:
            self.line(counting(str(at), size) + " {")
        self.lines += group.lines
        for _ in sizes:
            self.line("}")
        self.lines += group.after

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
            storages = [Storage(self.name("x"), np.dtype(dtype), 0) for _, dtype in shapes]
            for text, storage in _declared(storages, make((0,) * len(shape), [s.name for s in storages])):
                self.line(text, storage)
            return [self.value_of(storage, shape) for storage in storages]
        names = [Storage(self.name("t"), np.dtype(dtype), 0) for _, dtype in shapes]
        group, lines = self._joined(shape, lambda place: make(place, [s.name for s in names]))
        group.lines += [_Line(text) for text, _ in _declared(names, lines)]
        values = []
        for name in names:
            storage = Storage(self.name("a"), name.dtype, math.prod(shape))
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
        numbers = [Storage(self.name("x"), np.dtype(dtype), 0, reads=1) for dtype, _ in starts]
        names = [number.name for number in numbers]
        first = [_Line(f"{c_type(n.dtype)} {n.name} = {start};") for n, (_, start) in zip(numbers, starts, strict=True)]
        if math.prod(shape) <= 1:
            steps = step((0,) * len(shape), names) if math.prod(shape) else ()
            self.lines += [*first, *map(_Line, (*steps, *last(names)))]
            return [self.value_of(number, ()) for number in numbers]
        group, lines = self._joined(tuple(shape), lambda place: step(place, names))
        group.before += first
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

    # Jaxprs

    def call(self, closed: Any, args: Sequence[Value]) -> list[Value]:
        """The results of a closed jaxpr."""
        consts = [self._closed_over(c) for c in closed.consts]
        return self.replay(closed.jaxpr, consts, args)

    def _closed_over(self, const: Any) -> Value:
        if isinstance(const, Tracer):
            raise Unsupported("a function that closes over a traced value within a loop or a branch")
        return self.constant(jax.random.key_data(const) if is_key(const) else const)

    def replay(self, jaxpr: Any, consts: Sequence[Value], args: Sequence[Value]) -> list[Value]:
        """Writes a jaxpr; values of its outputs."""
        env: dict[Any, Value] = {}
        last = _last_uses(jaxpr)

        def bind(var: Any, value: Value) -> None:
            env[var] = value
            for storage in value.storages:
                storage.readers += 1

        def release(var: Any) -> None:
            for storage in env[var].storages:
                storage.readers -= 1

        def read(var: Any) -> Value:
            return self.constant(np.asarray(var.val, var.aval.dtype)) if hasattr(var, "val") else env[var]

        for var, value in zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True):
            bind(var, value)
            if var not in last:
                release(var)
        for number, eqn in enumerate(jaxpr.eqns):
            values = [read(v) for v in eqn.invars]
            for var in {v for v in eqn.invars if not hasattr(v, "val")}:
                if last.get(var) == number:
                    release(var)
            outs = self._equation(eqn, values)
            for var, value in zip(eqn.outvars, outs, strict=True):
                assert value.shape == shape_of(var.aval), (eqn.primitive.name, value.shape, var.aval)
                bind(var, value)
                if var not in last:
                    release(var)
        outs = [read(v) for v in jaxpr.outvars]
        for var in {v for v in jaxpr.outvars if not hasattr(v, "val")}:
            release(var)
        return outs

    def _equation(self, eqn: Any, args: list[Value]) -> list[Value]:
        name = eqn.primitive.name
        if name in _CALLS:
            inner = eqn.params[_CALLS[name]]
            return self.call(inner, args) if hasattr(inner, "consts") else self.replay(inner, [], args)
        if name in _SAME:
            return args
        if name in ("scan", "cond", "while"):
            return getattr(self, f"_{name}")(eqn, args)
        return operations.write(self, eqn, args)

    # Loops and branches

    @contextlib.contextmanager
    def held(self, values: Sequence[Value]) -> Generator[None, None, None]:
        """Values that are needed again in the next step: nothing may be written over them."""
        storages = [s for value in values for s in value.storages]
        for storage in storages:
            storage.readers += 1
        yield
        for storage in storages:
            storage.readers -= 1

    def carried(self, values: Sequence[Value]) -> list[Storage]:
        """Storages of what a loop carries, with their first values: those that are free, or new ones."""
        taken: set[Storage] = set()
        storages: list[Storage] = []
        for value in values:
            storage = value.storage
            if (
                storage is not None
                and self.may_overwrite(value)
                and storage not in taken
                and bool(value.shape) == bool(storage.size)
            ):
                self.ready(value)
            else:
                storage = self.variable(value.dtype, value.size if value.shape else 0)
                self.write(storage, value)
            taken.add(storage)
            storages.append(storage)
        return storages

    def carry_on(self, storages: Sequence[Storage], values: Sequence[Value]) -> None:
        """At the end of a step: gives what is carried its new values, all at once."""
        others = set(storages)
        ready = []
        for storage, value in zip(storages, values, strict=True):
            mixed = value.storage is not storage and bool(value.storages & others)
            ready.append(self.copied(value) if mixed else value)
        for storage, value in zip(storages, ready, strict=True):
            self.write(storage, value)

    def repeat(self, head: str, body: Callable[[list[Value]], list[Value]], start: Sequence[Value]) -> list[Value]:
        """`carry = body(carry)` in a loop with this head; the last values.

        Args:
          head: of the loop, such as `for (...)`.
          body: writes one step.
          start: first values.
        """
        storages = self.carried(start)
        shapes = [value.shape for value in start]
        for storage in storages:
            storage.reads += 1
        with self.block(head):
            now = [self.value_of(storage, shape) for storage, shape in zip(storages, shapes, strict=True)]
            self.carry_on(storages, body(now))
        return [self.value_of(storage, shape) for storage, shape in zip(storages, shapes, strict=True)]

    def _scan(self, eqn: Any, args: list[Value]) -> list[Value]:
        params = eqn.params
        inner, length = params["jaxpr"], params["length"]
        num_consts, num_carry = scan_sizes(params)
        consts, carry = args[:num_consts], args[num_consts : num_consts + num_carry]
        xs = [self.stored(x) if x.known is None else x for x in args[num_consts + num_carry :]]
        outs = [(shape_of(v.aval), dtype_of(v.aval)) for v in inner.jaxpr.outvars[num_carry:]]
        ys = [
            self.variable(dtype, length * math.prod(shape)) if math.prod(shape) * length else None for shape, dtype in outs
        ]
        t = self.name("i")
        step = f"({length - 1} - {t})" if params["reverse"] else t

        def body(now: list[Value]) -> list[Value]:
            rows = [self.row(x, step) for x in xs]
            new = self.call(inner, [*consts, *now, *rows])
            for y, (shape, _), value in zip(ys, outs, new[num_carry:], strict=True):
                if y is not None:
                    self.write_part(y, (length, *shape), (step, *(0,) * len(shape)), value, (1, *shape))
            return new[:num_carry]

        with self.held([*consts, *xs]):
            last = self.repeat(counting(t, length), body, carry)
        whole = [
            Value((length, *shape), dtype, lambda place: "0") if y is None else self.value_of(y, (length, *shape))
            for y, (shape, dtype) in zip(ys, outs, strict=True)
        ]
        return [*last, *whole]

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
            self.line(f"{storage.element(number)} = {value.at(inside)};", storage)

    def _cond(self, eqn: Any, args: list[Value]) -> list[Value]:
        index, operands = args[0], args[1:]
        branches = eqn.params["branches"]
        if index.known is not None:
            return self.call(branches[min(max(int(index.known), 0), len(branches) - 1)], operands)
        shapes = [(shape_of(v.aval), dtype_of(v.aval)) for v in eqn.outvars]
        which = index.at(())
        self.finish()
        outs = self._handed_on(eqn, operands)
        for place, (shape, dtype) in enumerate(shapes):
            if outs[place] is None:
                outs[place] = self.variable(dtype, math.prod(shape) if shape else 0)
        for number, branch in enumerate(branches):
            if number == 0:
                test = f"!({which})" if index.dtype == np.bool_ else f"{which} <= 0" if len(branches) > 1 else "true"
                head = f"if ({test})"
            else:
                head = "else" if number == len(branches) - 1 else f"else if ({which} == {number})"
            with self.block(head):
                self.carry_on(outs, self.call(branch, operands))
        return [self.value_of(out, shape) for out, (shape, _) in zip(outs, shapes, strict=True)]

    def _handed_on(self, eqn: Any, operands: Sequence[Value]) -> list[Any]:
        """For each result of a choice the storage of an operand that some branch returns as it is, if nobody else needs that; else None."""
        outs: list[Any] = [None] * len(eqn.outvars)
        for branch in eqn.params["branches"]:
            inner = branch.jaxpr
            for place, var in enumerate(inner.outvars):
                if hasattr(var, "val") or var not in inner.invars or outs[place] is not None:
                    continue
                operand = operands[inner.invars.index(var)]
                if (
                    self.may_overwrite(operand)
                    and operand.storage not in outs
                    and bool(operand.shape) == bool(operand.storage.size)
                ):
                    outs[place] = operand.storage
                    operand.storage.reads += 1
        return outs

    def _while(self, eqn: Any, args: list[Value]) -> list[Value]:
        params = eqn.params
        num_cond, num_body = params["cond_nconsts"], params["body_nconsts"]
        cond_consts, body_consts = args[:num_cond], args[num_cond : num_cond + num_body]

        def body(now: list[Value]) -> list[Value]:
            with self.held(now):
                goes_on = self.call(params["cond_jaxpr"], [*cond_consts, *now])[0]
                text = goes_on.at(())
                self.finish()
                self.line(f"if (!({text})) break;")
            return self.call(params["body_jaxpr"], [*body_consts, *now])

        with self.held([*cond_consts, *body_consts]):
            return self.repeat("for (;;)", body, args[num_cond + num_body :])


def _declared(storages: Sequence[Storage], lines: Sequence[str]) -> list[tuple[str, Storage | None]]:
    """Lines that give variables their values, with their declarations; one that nobody needs may be left out."""
    found: list[tuple[str, Storage | None]] = []
    first = {f"{s.name} = ": s for s in storages}
    for line in lines:
        head = next((head for head in first if line.startswith(head)), None)
        storage = first.pop(head) if head else None
        number = f"{c_type(storage.dtype)} " if storage else ""
        found.append((number + line, storage if len(lines) == 1 else None))
    assert not first
    return found


def _last_uses(jaxpr: Any) -> dict[Any, int]:
    """Number of the equation that uses each variable last; of outputs, one behind the last."""
    last = {}
    for number, eqn in enumerate(jaxpr.eqns):
        for var in eqn.invars:
            if not hasattr(var, "val"):
                last[var] = number
    for var in jaxpr.outvars:
        if not hasattr(var, "val"):
            last[var] = len(jaxpr.eqns)
    return last


__all__ = ["Emitter", "Group", "Unsupported", "dtype_of", "places", "shape_of"]
