"""Writer of a kernel's statements, which manages storages and the values in them, and fuses loops.

An operation on arrays becomes a loop over their elements; consecutive operations on arrays of one shape share a loop (a `Group`). Operations that
only move elements (reshape, slice, broadcast, transpose) are free: they change the expression of an element. Arrays are updated in place if no
value needs the old contents.
"""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from jaxroute.kernels import ir
from jaxroute.kernels.ir import Value, add, flat, unflat
from jaxroute.kernels.printer import c_type

# Longer loops are not unrolled on a GPU: their arrays do not fit into registers, and compilation would take a minute.
_LONG = 16
# Larger arrays of a run (in bytes) are in scratch memory on a GPU: the driver reserves stacks for all resident threads.
MOST_ON_DEVICE_STACK = 2048
# Placeholder of an index, with which the storages of any element are found.
_SOMEWHERE = ir.variable(ir.Storage("i", ir.INT, 0))


@dataclasses.dataclass(eq=False)
class Group:
    """Loop of C over the elements of arrays of one shape, in which several elementwise operations are computed.

    Attributes:
      shape: shape of the arrays.
      place: tuple of indices of the element that a step of the loop computes.
      before: statements before the loop.
      body: statements of a step.
      after: statements after the loop.
      made: arrays and accumulated numbers that the loop computes.
      reads: C variables and arrays that the loop reads.
    """

    shape: tuple[int, ...]
    place: ir.Place
    before: ir.Block = dataclasses.field(default_factory=list[ir.Statement])
    body: ir.Block = dataclasses.field(default_factory=list[ir.Statement])
    after: ir.Block = dataclasses.field(default_factory=list[ir.Statement])
    made: list[ir.Storage] = dataclasses.field(default_factory=list[ir.Storage])
    reads: set[ir.Storage] = dataclasses.field(default_factory=set[ir.Storage])


class _Elsewhere(Exception):
    """Signal that an operation needs an element that an open loop computes in another step, so that it cannot join this loop."""


class Writer:
    """Writer of a kernel's statements into a block.

    Args:
      wide: whether several runs are simulated at once; a number that differs between runs is then a vector of C++ (defined in `lanes.h`).

    Attributes:
      masks: conditions of the enclosing branches that only some of the runs execute, outermost first; each mask also includes the masks before it.
      block: list to which statements are added.
      tables: constant arrays that the kernel reads from memory, by the C array that holds them.
    """

    def __init__(self, wide: bool = False) -> None:
        self.wide = wide
        self.masks: list[ir.Expr] = []
        self.block: ir.Block = []
        self.tables: dict[ir.Storage, np.ndarray] = {}
        self._table_of: dict[tuple[str, bytes], ir.Storage] = {}
        self._names = itertools.count()
        self._groups: dict[tuple[int, ...], Group] = {}
        self._building: Group | None = None

    # Statements

    def add(self, *statements: ir.Statement) -> None:
        self.block += statements

    @contextlib.contextmanager
    def inside(self, block: ir.Block) -> Generator[None, None, None]:
        """Context manager that adds statements to another block. Open loops are finished before and after, so that each stays in one block."""
        self.finish()
        outer, self.block = self.block, block
        yield
        self.finish()
        self.block = outer

    def counting(self, size: ir.Index, first: ir.Index = 0) -> tuple[ir.Loop, ir.Expr]:
        """Returns a loop over `first`, ..., `size - 1` with an empty body, which the caller adds to a block, and the expression of its index."""
        index = ir.Storage(self.name("i"), ir.INT, 0)
        now, rolled = ir.variable(index), not isinstance(size, ir.Expr) and size > _LONG
        return ir.Loop(index, ir.as_expr(first), now < ir.as_expr(size), rolled=rolled), now

    @contextlib.contextmanager
    def loop(self, size: ir.Index, first: ir.Index = 0, step: int = 1) -> Generator[ir.Expr, None, None]:
        """Context manager that writes a loop around the statements inside and yields its index: `first` to `size - 1`, reversed if `step` is -1."""
        loop, now = self.counting(size, first)
        if step < 0:
            loop.test, loop.step = now > 0, step
        self.add(loop)
        outer, self.block = self.block, loop.body
        yield now
        self.block = outer

    @contextlib.contextmanager
    def loops(self, shape: Sequence[int]) -> Generator[ir.Place, None, None]:
        """Context manager that writes nested loops over all elements of a shape around the statements inside, and yields the index tuple."""
        with contextlib.ExitStack() as stack:
            yield tuple(0 if size == 1 else stack.enter_context(self.loop(size)) for size in shape)

    @contextlib.contextmanager
    def masked(self, mask: ir.Expr) -> Generator[None, None, None]:
        """Context manager that restricts the statements inside to the runs for which `mask` is true."""
        self.masks.append(mask)
        yield
        self.masks.pop()

    def meant(self, depth: int = 0) -> ir.Expr:
        """Returns the mask for assignments to a variable that was declared inside `depth` masks; true for all runs if no mask was added since."""
        return self.masks[-1] if depth < len(self.masks) else ir.literal(True, bool)

    # Storages

    def name(self, prefix: str) -> str:
        return f"{prefix}{next(self._names)}"

    def storage(self, prefix: str, dtype: Any, size: int, varying: bool = True) -> ir.Storage:
        """Creates a C variable (`size` 0) or array, not yet declared; its unique name begins with `prefix`. `varying`: it differs between runs."""
        storage = ir.Storage(self.name(prefix), np.dtype(dtype), size, varying=varying and self.wide, depth=len(self.masks))
        c_type(dtype, storage.varying)
        if not self.wide and size * storage.dtype.itemsize > MOST_ON_DEVICE_STACK:
            storage.stride = "STRIDE"
        return storage

    def array(self, dtype: Any, shape: Sequence[int], varying: bool = True, per_run: bool = False) -> ir.Storage:
        """Declares a C array, or a variable for shape `()`. `varying`: it differs between runs; `per_run`: each run's elements are contiguous."""
        size = math.prod(shape) if shape else 0
        storage = self.storage("a" if size else "x", dtype, size, varying)
        storage.per_run = per_run
        self.add(ir.Declare(storage))
        return storage

    def local(self, value: ir.Expr, varying: bool = True) -> ir.Expr:
        """Declares a variable with the initial value `value` and returns its expression; `varying` means that it differs between runs."""
        storage = self.storage("s", value.dtype, 0, varying)
        self.add(ir.Declare(storage, value))
        return ir.variable(storage)

    def given(self, number: int, dtype: Any, size: int) -> ir.Storage:
        """Declares and returns a C array of `size` elements: the simulated runs' part of the kernel's input with index `number`, `[..., R]`."""
        storage = self.storage("p", dtype, max(1, size))
        storage.writable, storage.stride = False, "R"
        source = ir.Storage(f"in{number}", storage.dtype, size)
        self.add(ir.Call("given", (ir.variable(source), ir.variable(storage)), (storage,)))
        return storage

    def put(self, number: int, at: ir.Index, value: ir.Expr) -> None:
        """Writes a value of the runs being simulated to the kernel's output with index `number`, `[..., R]`, at flat index `at` of its first axes."""
        self.add(ir.Call("put", (ir.variable(ir.Storage(f"out{number}", value.dtype, 1)), ir.as_expr(at), value)))

    def assign(self, target: ir.Expr, value: ir.Expr, test: ir.Expr | None = None) -> None:
        """Assigns to `target`, a variable or element, in the runs that execute the statement and for which `test` holds; None means all of them."""
        storage = target.storage
        assert storage is not None
        mask = self.masks[-1] if storage.varying and storage.depth < len(self.masks) else None
        if mask is None and not storage.varying and value.varies:
            value = ir.apply("first_lane", value)
        self.add(ir.Assign(target, value, mask if test is None else test if mask is None else test & mask))

    # Values

    def value_of(self, storage: ir.Storage, shape: Sequence[int]) -> Value:
        """Returns the contents of a C variable or array, in row-major order, as an array of the traced function with a given shape."""
        shape, at = tuple(shape), lambda place: ir.element(storage, flat(place, shape))
        return Value(shape, storage.dtype, at, frozenset([storage]), storage)

    def constant(self, array: Any) -> Value:
        """Returns a constant as an array of the kernel. It is in memory only if an element is read at an index that the kernel computes."""
        array = np.asarray(array)
        if not array.ndim or (array.size and (array == array.flat[0]).all()):
            number = ir.literal(array.flat[0], array.dtype)
            return Value(array.shape, array.dtype, lambda place: number, known=array)

        def at(place: ir.Place) -> ir.Expr:
            if not any(isinstance(i, ir.Expr) for i in place):
                return ir.literal(array[place], array.dtype)
            key = array.dtype.str, array.tobytes()
            if key not in self._table_of:
                table = self._table_of[key] = ir.Storage(self.name("c"), array.dtype, array.size, writable=False)
                self.tables[table] = array
            return ir.element(self._table_of[key], flat(place, array.shape))

        return Value(array.shape, array.dtype, at, known=array)

    def view(
        self, value: Value, shape: Sequence[int], at: Callable[[ir.Place], ir.Expr], storage: ir.Storage | None = None
    ) -> Value:
        """Returns an array of a shape with elements `at(index tuple)`, taken from `value`. `storage`: C array or variable that holds it, if any."""
        return Value(tuple(shape), value.dtype, at, value.storages, storage)

    def row(self, value: Value, number: ir.Index, axis: int = 0) -> Value:
        """Returns the slice of `value` at index `number` along an axis, without this axis, such as a row of a matrix; nothing is copied."""
        shape = (*value.shape[:axis], *value.shape[axis + 1 :])
        return self.view(value, shape, lambda place: value.at((*place[:axis], number, *place[axis:])))

    def varies(self, value: Value) -> bool:
        """Whether the elements of an array differ between runs that are simulated at once."""
        return self.wide and bool(value.size) and value.at(tuple(0 if n == 1 else _SOMEWHERE for n in value.shape)).varies

    def stored(self, value: Value) -> Value:
        """Returns `value` itself if its elements are stored in memory, otherwise a stored copy of it."""
        return value if value.storage is not None else self.copied(value)

    def copied(self, value: Value, varying: bool = False, per_run: bool = False) -> Value:
        """Returns a copy of `value` in a new C array. `varying`: its elements may come to differ between runs; `per_run`: see `array`."""
        storage = self.array(value.dtype, value.shape, varying or self.varies(value), per_run)
        self.write(storage, value)
        return self.value_of(storage, value.shape)

    def write(self, storage: ir.Storage, value: Value) -> None:
        """Writes the elements of `value` to the C variable or array `storage`, whose old contents are no longer needed."""
        if value.storage is not storage:
            self.write_part(storage, value.shape, (0,) * len(value.shape), value, value.shape)

    def write_part(
        self, storage: ir.Storage, shape: Sequence[int], starts: Sequence[ir.Index], value: Value, sizes: Sequence[int]
    ) -> None:
        """Writes a value into a part of a C array with this `shape`. The part begins at the index tuple `starts` and has the lengths `sizes`."""
        self.before_writing(storage)
        if not math.prod(sizes):
            return
        own = tuple(value.shape)
        self.ready(value)
        with self.loops(sizes) as place:
            number = flat(tuple(add(s, p) for s, p in zip(starts, place, strict=True)), shape)
            inside = unflat(flat(place, sizes), own) if own != tuple(sizes) else place
            self.assign(ir.element(storage, number), value.at(inside))

    def concatenated(self, shape: tuple[int, ...], xs: Sequence[Value], widths: Sequence[int], axis: int) -> Value:
        """Concatenates the arrays `xs`, whose lengths along `axis` are `widths`, to an array of a given shape."""
        storage = self.array(xs[0].dtype, shape)
        for x, width, first in zip(xs, widths, itertools.accumulate(widths, initial=0), strict=False):
            starts = [first if i == axis else 0 for i in range(len(shape))]
            self.write_part(storage, shape, starts, x, (*shape[:axis], width, *shape[axis + 1 :]))
        return self.value_of(storage, shape)

    def stacked(self, xs: Sequence[Value], axis: int) -> Value:
        """Stacks the arrays `xs`, of one shape, along a new axis with index `axis`; -1 makes it the last."""
        axis = len(xs[0].shape) if axis < 0 else axis
        return self.concatenated((*xs[0].shape[:axis], len(xs), *xs[0].shape[axis:]), xs, [1] * len(xs), axis)

    def ready(self, *values: Value) -> None:
        """Finishes the open loops that compute these arrays, so that statements outside of the loops may read them."""
        storages = frozenset[ir.Storage]().union(*(value.storages for value in values))
        self.finish(lambda group: not storages.isdisjoint(group.made))

    def before_writing(self, storage: ir.Storage) -> None:
        """Finishes the open loops that read a C variable or array, so that statements outside of the loops may change it."""
        self.finish(lambda group: storage in group.reads)

    def free(self, value: Value) -> ir.Storage | None:
        """Returns the C variable or array that holds `value` if nothing still in use reads it, so that it may be overwritten; otherwise None."""
        own = value.storage
        return own if own is not None and own.writable and not own.readers else None

    def may_take(self, value: Value, varying: bool) -> bool:
        """Whether an operation may write its result, of the same shape, over the memory of `value`; `varying`: the result differs between runs."""
        own = self.free(value)
        if own is None or bool(value.shape) != bool(own.size):
            return False
        return own.varying == (varying and self.wide) and (varying or own.depth == len(self.masks))

    def to_change(self, value: Value) -> ir.Storage:
        """Returns a C variable or array that holds `value` and may be changed: the present one if nothing else needs it, else a copy."""
        own = self.free(value)
        if own is not None and (own.varying or not self.wide):
            self.ready(value)
            self.before_writing(own)
            return own
        storage = self.copied(value, varying=True).storage
        assert storage is not None
        return storage

    def without(self, value: Value, other: Value) -> Value:
        """Returns `value`, or a copy if it uses the same memory as `other`, so that it can be read after the memory of `other` has changed."""
        return self.copied(value) if value.known is None and value.storages & other.storages else value

    def made_in(self, storages: Sequence[ir.Storage], values: Sequence[Value]) -> list[bool]:
        """Lets loops of this block write `values` directly to `storages`, where possible. Returns for each value whether it needs no copying now."""
        made = [value.storage for value in values]
        pairs = zip(made, storages, strict=True)
        usable = [one if made.count(one) == 1 and self._may_become(one, storage) else None for one, storage in pairs]
        if not any(usable):
            return [False] * len(usable)
        first = next(n for n, one in enumerate(self.block) if isinstance(one, ir.Declare) and one.storage in usable)
        statements = list(ir.walk(self.block[first:]))
        begins = {one.storage: n for n, one in enumerate(statements) if isinstance(one, ir.Declare)}
        pairs = zip(usable, storages, strict=True)
        return [one is not None and self._replaced(one, storage, statements, begins[one]) for one, storage in pairs]

    def _may_become(self, made: ir.Storage | None, storage: ir.Storage) -> bool:
        if made is None or made is storage or made.store is None or not storage.writable or storage.per_run:
            return False
        same = (made.size, made.varying, made.dtype) == (storage.size, storage.varying, storage.dtype)
        return same and made.store[0] is self.block and made.depth == storage.depth == len(self.masks)

    def _replaced(self, made: ir.Storage, storage: ir.Storage, statements: list[ir.Statement], begin: int) -> bool:
        assert made.store is not None
        store, now = made.store[1], storage.current
        own = statements.index(store, begin)
        for number, statement in enumerate(statements[begin:], begin):
            if all(one.current is not now for one in (*statement.reads, *statement.written())):
                continue
            leaves = [leaf for e in statement.expressions() for leaf in e.leaves()]
            leaves += [statement.target] if isinstance(statement, ir.Assign) else []
            others = (leaf for leaf in leaves if leaf.operands != store.target.operands)
            if number >= own or any(leaf.storage is not None and leaf.storage.current is now for leaf in others):
                return False  # The old contents are needed later, or at another index.
        made.successor = storage
        return True

    # Groups

    def finish(self, which: Callable[[Group], bool] = lambda group: True) -> None:
        """Closes the open loops that satisfy the condition `which`, by default all of them, and adds them to the current block."""
        for group in list(filter(which, self._groups.values())):
            self._finish(group)

    def _finish(self, group: Group) -> None:
        del self._groups[group.shape]
        self.add(*(ir.Declare(one) for one in group.made if one.size), *group.before)
        inner: ir.Block = group.body
        for at, size in reversed(list(zip(group.place, group.shape, strict=True))):
            if isinstance(at, ir.Expr):
                inner = [ir.Loop(at.storage, ir.literal(0), at < size, rolled=size > _LONG, body=inner)]
        self.add(*inner, *group.after)

    def elementwise(
        self,
        shape: tuple[int, ...],
        dtypes: Sequence[Any],
        make: Callable[[ir.Place, Sequence[ir.Storage]], Sequence[ir.Statement]],
    ) -> list[Value]:
        """Writes a loop over the elements of a shape, which other operations may share, and returns an array of each dtype.

        `make(place, variables)` returns the statements of a step: they set C variables, one for each dtype, to the elements at index tuple `place`.
        """
        if not math.prod(shape):
            return [self.nothing(shape, dtype) for dtype in dtypes]
        results = [self.storage("x", dtype, 0, varying=False) for dtype in dtypes]
        if math.prod(shape) == 1:
            statements = make((0,) * len(shape), results)
            self._vary(results, statements)
            self.add(*statements)
            return [self.value_of(one, shape) for one in results]
        group, statements = self._joined(shape, lambda place: make(place, results))
        group.reads |= self._vary(results, statements)
        group.body += statements
        values: list[Value] = []
        for result in results:
            array = self.storage("a", result.dtype, math.prod(shape), result.varying)
            group.made.append(array)
            store = ir.Assign(ir.element(array, flat(group.place, shape)), ir.variable(result))
            array.store = self.block, store
            group.body.append(store)
            values.append(self._member_value(group, result, array, shape))
        return values

    def pointwise(self, shape: tuple[int, ...], dtype: Any, at: Callable[[ir.Place], ir.Expr]) -> Value:
        """Returns an array computed in a loop that other operations may share; `at` returns the C expression of the element at an index tuple."""
        return self.elementwise(shape, [dtype], lambda place, results: [ir.Declare(results[0], at(place))])[0]

    def nothing(self, shape: tuple[int, ...], dtype: Any) -> Value:
        """Returns an array without elements, whose `shape` has an axis of length 0."""
        return Value(shape, np.dtype(dtype), lambda place: ir.literal(0, dtype))

    def gathered(
        self,
        shape: tuple[int, ...],
        starts: Sequence[ir.Expr],
        step: Callable[[ir.Place, Sequence[ir.Expr]], Sequence[ir.Statement]],
        last: Callable[[Sequence[ir.Expr]], Sequence[ir.Statement]] = lambda numbers: (),
    ) -> list[Value]:
        """Returns numbers that a shared loop over all elements of a shape accumulates, starting from `starts`.

        `step(place, numbers)` returns statements that update the numbers with the elements at `place`, `last(numbers)` statements after the loop.
        """
        storages = [self.storage("x", start.dtype, 0, varying=False) for start in starts]
        numbers = [ir.variable(one) for one in storages]
        first = [ir.Declare(storage, start) for storage, start in zip(storages, starts, strict=True)]
        if math.prod(shape) <= 1:
            steps = step((0,) * len(shape), numbers) if math.prod(shape) else ()
            self._vary(storages, steps)
            self.add(*first, *steps, *last(numbers))
            return [self.value_of(one, ()) for one in storages]
        group, steps = self._joined(shape, lambda place: step(place, numbers))
        group.reads |= self._vary(storages, steps)
        group.made += storages
        group.before += first
        group.body += steps
        group.after += last(numbers)
        return [self._member_value(group, None, one, ()) for one in storages]

    def _vary(self, storages: Sequence[ir.Storage], statements: Sequence[ir.Statement]) -> set[ir.Storage]:
        """Marks `storages`, which the statements set, as varying between runs if the statements read anything that varies. Returns what they read."""
        reads = set[ir.Storage]().union(*(one.reads for one in statements))
        if any(one.varying for one in reads):
            for storage in storages:
                c_type(storage.dtype, wide=True)
                storage.varying = True
        return reads

    def _joined(
        self, shape: tuple[int, ...], make: Callable[[ir.Place], Sequence[ir.Statement]]
    ) -> tuple[Group, Sequence[ir.Statement]]:
        """Returns the open (else a new) loop over this shape, and the statements of a step: what `make` returns for the loop's index tuple."""
        for _ in range(2):
            group = self._groups.get(shape)
            if group is None:
                place = tuple(0 if n == 1 else ir.variable(ir.Storage(self.name("i"), ir.INT, 0)) for n in shape)
                group = self._groups[shape] = Group(shape, place)
            before, self._building = self._building, group
            try:
                statements = make(group.place)
            except _Elsewhere:
                self._finish(group)
                continue
            finally:
                self._building = before
            return group, statements
        raise RuntimeError("an element needs another element of its own loop")

    def _member_value(self, group: Group, result: ir.Storage | None, storage: ir.Storage, shape: tuple[int, ...]) -> Value:
        def at(place: ir.Place) -> ir.Expr:
            if self._building is group:
                if place != group.place or result is None:
                    raise _Elsewhere
                return ir.variable(result)
            if self._groups.get(group.shape) is group:
                self._finish(group)
            return ir.element(storage, flat(place, shape))

        return Value(shape, storage.dtype, at, frozenset([storage]), storage)
