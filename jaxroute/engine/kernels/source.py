"""The rounds of a run as one function of C: the same loops over record intervals, chunks and rounds that `rollout` has."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.engine.kernels.emitter import Emitter, dtype_of, shape_of
from jaxroute.engine.kernels.values import Storage, Unsupported, Value, c_type, flat
from jaxroute.engine.rounds import Run

PRELUDE = Path(__file__).with_name("prelude.h")
# Arrays of a run, or that all runs share, of so many numbers at most are read once and kept.
_MOST_KEPT = 128


@dataclasses.dataclass(frozen=True)
class Array:
    """What is handed to the function or comes back: `[..., R]`, or without `R` if all runs share it."""

    shape: tuple[int, ...]
    dtype: np.dtype
    shared: bool = False


@dataclasses.dataclass(frozen=True)
class Source:
    """The text of a function, and what it takes and gives.

    body: lines of C of one run. tables: its constants. inputs, outputs: in order.
    """

    body: str
    tables: str
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]

    def for_host(self) -> str:
        """C of a function that plays runs `first` to before `last` of `R`, one after the other."""
        lines = [PRELUDE.read_text(), "#define CONSTANT static const", self.tables]
        lines.append("void rounds(long long first, long long last, long long R, const void **in, void **out) {")
        lines += [f"    const {c_type(a.dtype)} *restrict const in{i} = in[{i}];" for i, a in enumerate(self.inputs)]
        lines += [f"    {c_type(a.dtype)} *restrict const out{i} = out[{i}];" for i, a in enumerate(self.outputs)]
        lines += ["    for (long long r = first; r < last; ++r) {", self.body, "    }", "}", ""]
        return "\n".join(lines)

    def for_device(self, lead: Sequence[int] = (), spread: Sequence[Sequence[bool]] = ()) -> str:
        """CUDA C of a kernel with a thread for each run, and a block along `y` for each setting.

        Args:
          lead: number of settings along each axis.
          spread: of each input, whether it differs along each axis.
        """
        spread = spread or [()] * len(self.inputs)
        inputs = [f"const {c_type(a.dtype)} *__restrict__ from{i}" for i, a in enumerate(self.inputs)]
        outputs = [f"{c_type(a.dtype)} *__restrict__ to{i}" for i, a in enumerate(self.outputs)]
        lines = [PRELUDE.read_text(), "#define CONSTANT static __device__ const", self.tables]
        lines.append(f'extern "C" __global__ void rounds({", ".join([*inputs, *outputs, "const long long R"])}) {{')
        lines.append("    const long long r = (long long)blockIdx.x * blockDim.x + threadIdx.x, setting = blockIdx.y;")
        lines.append("    if (r >= R) return;")
        for i, (array, own) in enumerate(zip(self.inputs, spread, strict=True)):
            at = _offset(array, lead, own)
            lines.append(f"    const {c_type(array.dtype)} *__restrict__ const in{i} = from{i}{at};")
        for i, array in enumerate(self.outputs):
            at = _offset(array, lead, (True,) * len(lead))
            lines.append(f"    {c_type(array.dtype)} *__restrict__ const out{i} = to{i}{at};")
        return "\n".join([*lines, self.body, "}", ""])


def steps(lead: Sequence[int], own: Sequence[bool]) -> list[int]:
    """How many arrays of one setting lie between those of two neighbours along each axis; 0 where they are the same."""
    found, step = [], 1
    for size, varies in reversed(list(zip(lead, own, strict=True))):
        found.append(step if varies else 0)
        step *= size if varies else 1
    return found[::-1]


def _offset(array: Array, lead: Sequence[int], own: Sequence[bool]) -> str:
    """Where the array of a setting begins, as something to be added to a pointer."""
    terms, after = [], math.prod(lead)
    for size, step in zip(lead, steps(lead, own), strict=True):
        after //= size
        if step:
            terms.append(f"setting / {after} % {size} * {step}")
    number = math.prod(array.shape)
    whole = f"{number}" if array.shared else f"{number} * R"
    return f" + ({' + '.join(terms)}) * {whole}" if terms else ""


def source_of(run: Run, states: Any, horizon: int, every: int, since: int = 0) -> tuple[Source, list[Any], list[str]]:
    """The function that plays the rounds of `run` from the given states.

    Args:
      run: the rounds of one environment against one policy.
      states: of `R` runs, for their shapes.
      horizon, every, since: counted rounds, those of a record interval, and those that were played before.

    Returns:
      The function; the arrays that all runs share, its first inputs; names of what is recorded, the first outputs.

    Raises:
      Unsupported: an operation has no C, or a random key is recorded.
    """
    fixed = jax.tree.leaves((run.instance, run.words))
    leaves = jax.tree.leaves(states)
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[:-1], x.dtype), (run.instance, run.words, states))
    round_ = jax.ShapeDtypeStruct((), jnp.int32)
    play, (_, flows) = jax.make_jaxpr(run.play, return_shape=True)(*one, round_)
    read, gauges = jax.make_jaxpr(run.read, return_shape=True)(*one, round_)
    plan = jax.make_jaxpr(run.plan)(*one, round_) if run.stage_length else None
    names = [*sorted(flows), *sorted(gauges)]

    emitter = Emitter()
    shared: list[Any] = []
    arrays: list[Array] = []
    known: dict[int, Value] = {}

    def constant(const: Any) -> Value:
        """What a function closes over: known, or an input that all runs share."""
        if jnp.issubdtype(const.dtype, jax.dtypes.prng_key):
            const = jax.random.key_data(const)
        if not isinstance(const, jax.core.Tracer) and np.size(const) <= _MOST_KEPT:
            return emitter.constant(np.asarray(const))
        if id(const) not in known:
            number = len(shared)
            shared.append(const)
            array = Array(tuple(const.shape), np.dtype(const.dtype), shared=True)
            arrays.append(array)
            memory = Storage(f"in{number}", array.dtype, max(1, math.prod(array.shape)), writable=False)
            value = emitter.value_of(memory, array.shape)
            if math.prod(array.shape) <= _MOST_KEPT:
                value = emitter.copied(value)
                assert value.storage is not None
                value.storage.writable = False
            known[id(const)] = value
        return known[id(const)]

    consts = {id(c): [constant(k) for k in c.consts] for c in (play, read, plan) if c is not None}

    def given(leaf: Any, keep: bool) -> Value:
        """An input of each run."""
        shape, dtype = shape_of(jax.typeof(leaf)), dtype_of(leaf)
        key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        own = (*leaf.shape[:-1], 2) if key else leaf.shape[:-1]
        del shape
        number = len(arrays)
        arrays.append(Array(tuple(own), dtype))
        name = emitter.name("p")
        emitter.line(f"const {c_type(dtype)} *const {name} = in{number} + r;")
        memory = Storage(name, dtype, max(1, math.prod(own)), writable=False, stride="R")
        value = emitter.value_of(memory, own)
        return emitter.copied(value) if keep or math.prod(own) <= _MOST_KEPT else value

    own = [given(leaf, keep=False) for leaf in fixed]
    for value in own:
        if value.storage is not None:
            value.storage.writable = False
    now = [given(leaf, keep=True) for leaf in leaves]
    zeros = [emitter.constant(np.zeros(flows[n].shape, np.float32)) for n in sorted(flows)]
    free, total = run.free_rounds, run.free_rounds + horizon
    first = free + since
    records = -(-(horizon - since) // every)
    outputs = [Array((records, *shape), dtype) for shape, dtype in _recorded(flows, gauges)]
    count = len(now)

    def function(traced: Any, states: Sequence[Value], t: str) -> list[Value]:
        time = Value((), np.dtype(np.int32), lambda place: t)
        return emitter.replay(traced.jaxpr, consts[id(traced)], [*own, *states, time])

    def added(totals: Sequence[Value], more: Sequence[Value]) -> list[Value]:
        return [
            emitter.elementwise([(a.shape, a.dtype)], lambda p, names, a=a, b=b: [f"{names[0]} = {a.at(p)} + {b.at(p)};"])[0]
            for a, b in zip(totals, more, strict=True)
        ]

    def one_round(t: str, carry: Sequence[Value]) -> list[Value]:
        states, totals = carry[:count], carry[count:]
        emitter.line("BEGIN_ROUND")
        outs = function(play, states, t)
        return [*outs[:count], *added(totals, outs[count:])]

    def one_chunk(c: str, end: str, carry: Sequence[Value]) -> list[Value]:
        states, totals = list(carry[:count]), carry[count:]
        if plan is not None:
            states = emitter.repeat(f"if ({c} % {run.stage_length} == 0)", lambda now: function(plan, now, c), states)
        t, stop = emitter.name("t"), emitter.name("n")
        emitter.line(f"const int {stop} = min_i({c} + {run.chunk}, {end});")
        outs = emitter.repeat(f"for (int {t} = {c}; {t} < {stop}; ++{t})", lambda now: one_round(t, now), [*states, *zeros])
        return [*outs[:count], *added(totals, outs[count:])]

    def interval(i: str, states: Sequence[Value]) -> list[Value]:
        begin, end, c = emitter.name("n"), emitter.name("n"), emitter.name("t")
        emitter.line(f"const int {begin} = {i} < 0 ? 0 : {first} + {i} * {every};")
        emitter.line(f"const int {end} = {i} < 0 ? {free} : min_i({begin} + {every}, {total});")
        outs = emitter.repeat(
            f"for (int {c} = {begin}; {c} < {end}; {c} += {run.chunk})",
            lambda now: one_chunk(c, end, now),
            [*states, *zeros],
        )
        states, totals = outs[:count], outs[count:]
        with emitter.block(f"if ({i} >= 0)"), emitter.held(states):
            measured = [*totals, *function(read, states, end)]
            for number, value in enumerate(measured):
                emitter.ready(value)
                with emitter.loops(value.shape) as place:
                    at = flat((i, *place), outputs[number].shape)
                    emitter.line(f"out{number}[({at})*R + r] = {value.at(place)};")
        return states

    i = emitter.name("i")
    last = emitter.repeat(
        f"for (int {i} = {-1 if free and not since else 0}; {i} < {records}; ++{i})", lambda now: interval(i, now), now
    )
    for number, value in enumerate(last, len(outputs)):
        outputs.append(Array(value.shape, value.dtype))
        with emitter.loops(value.shape) as place:
            emitter.line(f"out{number}[({flat(place, value.shape)})*R + r] = {value.at(place)};")
    return Source(emitter.text(), "\n".join(emitter.tables), tuple(arrays), tuple(outputs)), shared, names


def _recorded(flows: Any, gauges: Any) -> list[tuple[tuple[int, ...], np.dtype]]:
    found = [*(flows[n] for n in sorted(flows)), *(gauges[n] for n in sorted(gauges))]
    if any(jnp.issubdtype(one.dtype, jax.dtypes.prng_key) for one in found):
        raise Unsupported("a gauge or probe that is a random key")
    return [(tuple(one.shape), np.dtype(one.dtype)) for one in found]
