"""Writes the source of a kernel: all rounds of a run as one C function, with loops over record intervals, chunks and rounds."""

import dataclasses
import math
import operator
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxroute.core.batching.dependence import is_key
from jaxroute.engine.rounds import Run
from jaxroute.kernels import ir, placement
from jaxroute.kernels.emitter import Emitter
from jaxroute.kernels.interleaving import interleaved
from jaxroute.kernels.ir import Value, add, dtype_of, flat, quotient, shape_of, times
from jaxroute.kernels.printer import c_type, print_block, print_function, print_tables

PRELUDE, LANES = (Path(__file__).with_name(name) for name in ("prelude.h", "lanes.h"))
WIDE_ENTRY = 'extern "C" void rounds'
# Largest number of elements of an input that is copied once to local storage, instead of being read in every round.
_MOST_KEPT = 128


@dataclasses.dataclass(frozen=True)
class Array:
    """Argument or result of the C function: an array of a shape and type for each of `R` runs, `[..., R]`, or one array that all runs share."""

    shape: tuple[int, ...]
    dtype: np.dtype
    shared: bool = False


@dataclasses.dataclass(frozen=True)
class Source:
    """Source of a kernel: its text, and the arrays that it reads and writes.

    Attributes:
      body: statements, in C for one run or in C++ for several runs at once.
      tables: declarations of constant arrays, and of functions that the statements call.
      inputs: arrays that the function reads, in the order of its arguments.
      outputs: arrays that the function writes, in the order of its arguments.
      wide: whether it simulates several runs at once.
      heap: number of vectors that its long arrays take on the heap of a CPU.
      scratch: bytes of a run's scratch memory on a GPU, for long arrays and for sums between two launches.
      states: number of state arrays, which are the last of the inputs and of the outputs.
      fast: whether divisions and roots on a GPU are approximate, by its special function units.
    """

    body: str
    tables: str
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    wide: bool = False
    heap: int = 0
    scratch: int = 0
    states: int = 0
    fast: bool = False

    def for_host(self) -> str:
        """Returns the text of a C or C++ function that simulates the runs `first`, ..., `last - 1` of `R` runs, sequentially or several at once."""
        given, made = ([(i, a, c_type(a.dtype)) for i, a in enumerate(arrays)] for arrays in (self.inputs, self.outputs))
        lines = [PRELUDE.read_text(), _HOST, *([LANES.read_text()] if self.wide else [])]
        lines += ["#define CONSTANT static const", self.tables]
        if not self.wide:
            lines += [
                "void rounds(long long first, long long last, long long R, const void **in, void **out) {",
                *(f"    const {one} *restrict const in{i} = in[{i}];" for i, _, one in given),
                *(f"    {one} *restrict const out{i} = out[{i}];" for i, _, one in made),
                "    for (long long r = first; r < last; ++r) {",
                *(self.body, "    }", "}", ""),
            ]
        else:
            lines += [
                f"{WIDE_ENTRY}(long long first, long long last, long long R, const void **in, void **out) {{",
                f"    vector_f *const heap = (vector_f *)aligned_alloc(sizeof(vector_f), {max(1, self.heap)} * sizeof(vector_f));",
                *(f"    const Shared<{one}> in{i} = {{(const {one} *)in[{i}]}};" for i, a, one in given if a.shared),
                *(f"    const {one} *const in{i} = (const {one} *)in[{i}];" for i, a, one in given if not a.shared),
                "    for (long long r = first; r < last; r += LANES) {\n    const long long count = last - r;",
                *(f"    const Made<{one}> out{i} = {{({one} *)out[{i}] + r, R, count}};" for i, _, one in made),
                *(self.body, "    }\n    free(heap);\n}\n"),
            ]
        return "\n".join(lines)

    def for_device(self, lead: Sequence[int] = (), spread: Sequence[Sequence[bool]] = ()) -> str:
        """Returns the text of a kernel in CUDA C, with a thread for each run; the second axis of the grid (`blockIdx.y`) is the setting.

        Its arguments are the inputs, the outputs, scratch memory, the number of runs, and two rounds: a launch simulates the rounds from `start`
        until before `stop`. A launch after the first round continues from the states in the outputs and the sums in scratch memory. `lead` has the
        length of each axis of settings (empty for one setting), `spread` has for each input whether it differs along each of these axes.
        """
        spread = spread or [()] * len(self.inputs)
        first_state, same = len(self.inputs) - self.states, len(self.outputs) - len(self.inputs)
        # Pointers do not overlap, except that states are read from their outputs.
        ins = [f"const {c_type(a.dtype)} *{'__restrict__' * (i < first_state)}" for i, a in enumerate(self.inputs)]
        outs = [f"{c_type(a.dtype)} *{'__restrict__' * (i < first_state + same)}" for i, a in enumerate(self.outputs)]
        given = [f"{kind} {name}{i}" for name, kinds in (("from", ins), ("to", outs)) for i, kind in enumerate(kinds)]
        given += ["unsigned char *__restrict__ memory", "const long long R", "const int start", "const int stop"]
        lines = [
            *("" if self.fast else "#define EXACT", PRELUDE.read_text(), _DEVICE, self.tables),
            f'extern "C" __global__ void rounds({", ".join(given)}) {{',
            "    const unsigned r = blockIdx.x * blockDim.x + threadIdx.x;",
            "    const long long setting = blockIdx.y;",
            "    if (r >= R) return;",
            f"    unsigned char *const scratch = memory + setting * {self.scratch} * R;",
            "    const bool continued = start > from0[0];",
        ]
        for i, array in enumerate(self.outputs):
            lines.append(f"    {outs[i]} const out{i} = to{i}{_offset(array, lead, (True,) * len(lead))};")
        for i, (array, own) in enumerate(zip(self.inputs, spread, strict=True)):
            at = f"from{i}{_offset(array, lead, own)}"
            at = at if i < first_state else f"continued ? out{i + same} : {at}"
            lines.append(f"    {ins[i]} const in{i} = {at};")
        return "\n".join([*lines, self.body, "}", ""])


# Macros and constants that differ between CPU and GPU: where long arrays are stored, and which rounds a call simulates.
_HOST = """#define ARRAY(kind, name, size, first) kind name[size]
#define STRIDE 1
static const int start = -2147483647 - 1, stop = 2147483647;
static const bool continued = false;"""
_DEVICE = """#define ARRAY(kind, name, size, first) kind *const name = (kind *)(scratch + (first) * R) + r
#define STRIDE R
#define CONSTANT static __device__ const"""


def steps(lead: Sequence[int], own: Sequence[bool]) -> list[int]:
    """Returns the strides of an input's arrays along the axes of settings, counted in arrays; 0 for an axis along which settings share an array.

    `lead` has the lengths of the axes, and `own` has for each axis whether every setting has a separate array.
    """
    found, step = [], 1
    for size, varies in reversed(list(zip(lead, own, strict=True))):
        found.append(step if varies else 0)
        step *= size if varies else 1
    return found[::-1]


def _offset(array: Array, lead: Sequence[int], own: Sequence[bool]) -> str:
    """Returns the C text of the offset of the current setting's data in `array`; empty if settings share them. `lead`, `own`: see `steps`."""
    terms, after = [], math.prod(lead)
    for size, step in zip(lead, steps(lead, own), strict=True):
        after //= size
        if step:
            terms.append(f"setting / {after} % {size} * {step}")
    whole = f"{math.prod(array.shape)}" + ("" if array.shared else " * R")
    return f" + ({' + '.join(terms)}) * {whole}" if terms else ""


class RoundsWriter(Emitter):
    """Writer of the kernel that simulates a run: it reads inputs, loops over record intervals, chunks of rounds and rounds, and writes outputs.

    Raises `Unsupported` if an operation cannot be written in C, or a random key is recorded.

    Args:
      run: functions of one environment and one policy that simulate a round, plan a stage (a fixed number of rounds) and read what is recorded.
      states: states of `R` runs, for their shapes.
      spans: int32 `[n, 2]` first round and number of rounds of each record interval. The kernel depends only on `n`.
      chunk: number of rounds that are summed up separately; it divides the lengths of stages, and of record intervals longer than a chunk.
      warm_up: whether the first interval consists of rounds that are not recorded.
      wide, fast: options of the `Emitter`.

    Attributes:
      shared: arrays that all runs share, the first inputs.
      names: names of the records, the first outputs.
    """

    def __init__(
        self, run: Run, states: Any, spans: Any, chunk: int, warm_up: bool = False, wide: bool = False, fast: bool = False
    ):
        super().__init__(wide, fast)
        self._run, self._warm_up, self._chunk_length = run, int(warm_up), chunk
        self._intervals, self._records = len(spans), len(spans) - warm_up
        self.shared: list[Any] = [spans]
        self._arrays: list[Array] = []
        self._known: dict[int, Value] = {}
        self._input((self._intervals, 2), np.int32, shared=True)

        one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[:-1], x.dtype), (run.instance, run.words, states))
        round_ = jax.ShapeDtypeStruct((), jnp.int32)
        self._step, (played, flows) = jax.make_jaxpr(run.round, return_shape=True)(*one, round_)
        self._read, gauges = jax.make_jaxpr(run.read, return_shape=True)(*one, round_)
        self._plan, planned = None, played
        if run.stage_length:
            self._plan, planned = jax.make_jaxpr(run.plan, return_shape=True)(*one, round_)
        kinds = [jax.tree.flatten(jax.tree.map(lambda y: (y.shape, y.dtype), x)) for x in (one[-1], played, planned)]
        if any(kind != kinds[0] for kind in kinds):  # The scan, which runs instead, names the part that changes.
            raise ir.Unsupported("a state that changes its shape or type between two rounds")
        recorded = [*sorted(flows.items()), *sorted(gauges.items())]
        if any(is_key(one) for _, one in recorded):
            raise ir.Unsupported("a gauge or probe that is a random key")
        self.names = [name for name, _ in recorded]
        self._recorded = [Array((self._records, *one.shape), np.dtype(one.dtype)) for _, one in recorded]

        traced = [one for one in (self._step, self._read, self._plan) if one is not None]
        self._consts = {id(one): [self._constant_or_input(c) for c in one.consts] for one in traced}
        self._own = [self._kept(self._given(leaf)) for leaf in jax.tree.leaves(one[:-1])]
        before, leaves = len(self._own), jax.tree.leaves(one[-1])
        varies, number = [*[True] * (before + len(leaves)), False], [*[None] * before, *range(len(leaves)), None]
        per_run = placement.by_rows(self._step, varies, number) if self.wide else set[int]()
        self._states = [self.copied(self._given(leaf), per_run=n in per_run) for n, leaf in enumerate(leaves)]
        self._zeros = [self.constant(np.zeros(flows[name].shape, np.float32)) for name in sorted(flows)]

    def source(self) -> Source:
        """Writes the loop over all record intervals, and returns the source of the kernel."""
        sums = [*self._zeros, *self._zeros]  # Sums of the interval and of its current chunk.
        between = [] if self.wide else [self.array(zero.dtype, (zero.size,)) for zero in sums]
        for memory in between:
            memory.writable, memory.stride = False, "STRIDE"
        if between:
            stored = [self.value_of(one, zero.shape) for one, zero in zip(between, sums, strict=True)]
            sums = self.repeat(ir.If(ir.variable(ir.Storage("continued", ir.FLAG, 0))), lambda _: stored, sums)
        loop, i = self.counting(self._intervals)
        loop.rolled = False
        last = self.repeat(loop, lambda carry: self._interval(i, carry), [*self._states, *sums])
        for memory, value in zip(between, last[len(self._states) :], strict=False):
            self.write(memory, value)
        outputs = self._recorded
        for number, value in enumerate(last[: len(self._states)], len(outputs)):
            outputs.append(Array(value.shape, value.dtype))
            self._write(number, value)
        return source_from(self, self._arrays, outputs, len(self._states))

    def _constant_or_input(self, const: Any) -> Value:
        """Returns a constant of a traced function as an array of the kernel: in its text (up to 128 elements) or as an input shared by all runs."""
        const = jax.random.key_data(const) if is_key(const) else const
        size = math.prod(const.shape)
        if not isinstance(const, Tracer) and size <= _MOST_KEPT:
            return self.constant(np.asarray(const))
        if id(const) in self._known:
            return self._known[id(const)]
        self.shared.append(const)
        array = self._input(const.shape, const.dtype, shared=True)
        memory = ir.Storage(f"in{len(self._arrays) - 1}", array.dtype, max(1, size), writable=False)
        value = self._known[id(const)] = self._kept(self.value_of(memory, array.shape))
        return value

    def _kept(self, value: Value) -> Value:
        value = value if value.size > _MOST_KEPT else self.copied(value)
        assert value.storage is not None
        value.storage.writable = False
        return value

    def _given(self, leaf: Any) -> Value:
        array = self._input(shape_of(leaf), dtype_of(leaf))
        memory = self.given(len(self._arrays) - 1, array.dtype, math.prod(array.shape))
        return self.value_of(memory, array.shape)

    def _input(self, shape: Sequence[int], dtype: Any, shared: bool = False) -> Array:
        self._arrays.append(Array(tuple(shape), np.dtype(dtype), shared))
        return self._arrays[-1]

    def _evaluated(self, traced: Any, states: Sequence[Value], t: ir.Expr) -> list[Value]:
        time = Value((), ir.INT, lambda place: t)
        return self.replay(traced.jaxpr, self._consts[id(traced)], [*self._own, *states, time])

    def _each(self, formula: Callable[..., ir.Expr], *lists: Sequence[Value]) -> list[Value]:
        def computed(*xs: Value) -> Value:
            return self.pointwise(xs[0].shape, xs[0].dtype, lambda place: formula(*(x.at(place) for x in xs)))

        return list(map(computed, *lists))

    def _interval(self, i: ir.Expr, carry: Sequence[Value]) -> list[Value]:
        """Writes the loop over this launch's rounds of record interval `i`, then the interval's record. Returns the new `carry`: states and sums."""
        start, stop = (ir.variable(ir.Storage(name, ir.INT, 0)) for name in ("start", "stop"))
        spans = ir.Storage("in0", ir.INT, 2 * self._intervals)
        begin = self.local(ir.element(spans, times(i, 2)), varying=False)
        end = self.local(ir.as_expr(add(begin, ir.element(spans, add(times(i, 2), 1)))), varying=False)
        self.add(ir.If(ir.either(end <= start, begin >= stop), [ir.Call("continue")]))
        last = self.local(ir.apply("min", end, stop), varying=False)
        c = ir.Storage(self.name("t"), ir.INT, 0)
        loop = ir.Loop(c, ir.apply("max", begin, start), ir.variable(c) < last, 0)
        carry = self.repeat(loop, lambda now: self._chunk(ir.variable(c), begin, end, last, now), carry)
        states, sums = carry[: len(self._states)], carry[len(self._states) :]

        def recorded(sums: list[Value]) -> list[Value]:
            self.finish()
            self.add(record := ir.If(i >= self._warm_up))
            with self.inside(record.body):
                for number, value in enumerate([*sums[: len(sums) // 2], *self._evaluated(self._read, states, end)]):
                    self._write(number, value, add(i, -self._warm_up))
            return [*self._zeros, *self._zeros]

        with self.held(states):
            return [*states, *self.repeat(ir.If(last.equals(end)), recorded, sums)]

    def _chunk(self, c: ir.Expr, begin: ir.Expr, end: ir.Expr, last: ir.Expr, carry: Sequence[Value]) -> list[Value]:
        """Writes a chunk of rounds from `c` on, with the plan of a stage that begins at `c`. Returns the new `carry`: states and sums.

        The record interval has the rounds from `begin` to before `end`; this launch simulates those before `last`.
        """
        states, sums = carry[: len(self._states)], carry[len(self._states) :]
        totals, partial = sums[: len(sums) // 2], sums[len(sums) // 2 :]
        if self._plan is not None:
            stage = ir.If(ir.apply("index_rem", c, self._run.stage_length or 1).equals(0))
            with self.held(sums):
                states = self.repeat(stage, lambda now: self._evaluated(self._plan, now, c), states)
        done = quotient(ir.apply("index_sub", c, begin), self._chunk_length)
        next_ = ir.as_expr(add(begin, times(add(done, 1), self._chunk_length)))
        behind = self.local(ir.apply("min", next_, end), varying=False)
        stop = self.local(ir.apply("min", behind, last), varying=False)
        with self.held(totals):
            carry = self.repeat(ir.Loop(c.storage, test=c < stop), lambda now: self._round(c, now), [*states, *partial])
        states, partial = carry[: len(states)], carry[len(states) :]

        def complete(sums: list[Value]) -> list[Value]:
            totals, partial = sums[: len(sums) // 2], sums[len(sums) // 2 :]
            new = self._each(operator.add, totals, partial)
            # The rounding error starts the next chunk, as in `numerics.add_up`.
            return [*new, *self._each(lambda a, b, c: b - (c - a), totals, partial, new)]

        with self.held(states):
            return [*states, *self.repeat(ir.If(stop.equals(behind)), complete, [*totals, *partial])]

    def _round(self, t: ir.Expr, carry: Sequence[Value]) -> list[Value]:
        states, totals = list(carry[: len(self._states)]), carry[len(self._states) :]
        self.add(ir.Call("begin_round"))
        played = self._evaluated(self._step, states, t)
        return [*played[: len(states)], *self._each(operator.add, totals, played[len(states) :])]

    def _write(self, number: int, value: Value, record: ir.Index | None = None) -> None:
        """Writes a value to the output with index `number` or, if `record` is given, to the entry of the output for this record."""
        self.ready(value)
        with self.loops(value.shape) as place:
            at = flat(place, value.shape) if record is None else flat((record, *place), (self._records, *value.shape))
            self.put(number, at, value.at(place))


def source_from(emitter: Emitter, inputs: Sequence[Array], outputs: Sequence[Array], states: int = 0) -> Source:
    """Returns the source of a kernel whose statements an emitter has written. `states`: how many of the last inputs and outputs are states."""
    wide = emitter.wide
    body, heap, scratch = print_block(interleaved(emitter.block) if wide else emitter.block, wide)
    lines = [print_tables(emitter.tables, wide), *(print_function(one, wide) for one in emitter.functions.values())]
    return Source(body, "\n".join(lines), tuple(inputs), tuple(outputs), wide, heap, scratch, states, emitter.fast)
