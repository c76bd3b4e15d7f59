"""The whole horizon of a block of runs in one kernel (Pallas, Triton on CUDA): the other way to play what `rollout` plays.

A scan over rounds launches some kernels per round on a GPU, which takes longer than what they compute. Here one kernel plays all rounds: a
thread holds a run's whole state in registers, draws its random numbers from the counter-based streams, and writes to memory at record
times only. The kernel is not written by hand: `scalarise.Replay` makes it from the same functions of one run that the scan plays.

Where a policy plans by stage, a kernel plays a stage, and XLA plans between them: plans are large programs that run seldom.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from jaxroute.engine.batching.lanes import lanes
from jaxroute.engine.pallas.scalarise import Replay, Table, Unsupported, is_key, key_words
from jaxroute.engine.rounds import Record, Run, one_run

# Numbers of a run's state, and of one array that all runs share, that are held in registers (or what the compiler makes of them).
_MOST_STATE = 2048
_MOST_SHARED = 128
# Runs of a block of threads: the fewest, spread over the processors of a GPU, until there are enough of them for larger blocks.
_WARP = 32
_MOST_WARPS = 4
_BLOCKS_WANTED = 1024


def block_width(size: int) -> int:
    """Runs per block of threads, for `size` runs: a multiple of a warp, a power of two."""
    warps = 1
    while warps < _MOST_WARPS and size >= 2 * warps * _WARP * _BLOCKS_WANTED:
        warps *= 2
    return warps * _WARP


def player(platform: str) -> Callable[..., dict[str, Any]]:
    """`rollout` by a kernel: interpreted on a CPU.

    Raises:
      Unsupported: there is no Triton for the platform.
    """
    if platform not in ("cpu", "gpu", "cuda", "rocm"):
        raise Unsupported(f"there are no Triton kernels for {platform}")
    return functools.partial(kernel_rollout, interpret=platform == "cpu")


def kernel_rollout(
    env, policy, streams: Mapping[str, jax.Array], horizon: int, record: Record, *, interpret: bool
) -> dict[str, Any]:
    """What `rollout` computes, with all rounds of a run, or of its stage, in one kernel.

    Args:
      env, policy, streams, horizon, record: as for `rollout`.
      interpret: run the kernel's operations by XLA, for platforms without Triton: slow to compile.

    Returns:
      As `rollout`: arrays `[records, ..., R]` by name.

    Raises:
      Unsupported: the round or a gauge has an operation that a kernel cannot have, or is too large for it.
    """
    size = streams["env"].shape[-1]
    width = block_width(size)
    padded = -(-size // width) * width
    streams = {k: jnp.pad(v, ((0, 0), (0, padded - size)), mode="edge") for k, v in streams.items()}
    run = one_run(env, policy, streams, horizon, record)
    states = lanes(run.start, padded)(run.instance, run.words)
    values = _played(run, states, horizon, record, width, interpret)
    return {name: value[..., :size] for name, value in values.items()}


def _one(tree):
    """Shapes of one run, from arrays `[..., R]`."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[:-1], x.dtype), tree)


def _words(leaf):
    """A typed key as its words, on the axis before the runs; any other array as it is."""
    return jnp.moveaxis(jax.random.key_data(leaf), -1, -2) if is_key(leaf) else leaf


def _holder(dtype) -> np.dtype:
    """The integers that hold a number's bits in memory: of 64 bits for numbers of 64, else of 32."""
    return np.dtype(np.int64 if np.dtype(dtype).itemsize == 8 else np.int32)


def _packed(array):
    """Numbers as the integers that hold them."""
    dtype = np.dtype(array.dtype)
    if dtype.itemsize < 4:
        array = array.astype(jnp.float32 if jnp.issubdtype(dtype, jnp.floating) else jnp.int32)
    return lax.bitcast_convert_type(array, _holder(dtype))


def _unpacked(array, dtype):
    """Numbers of a type from the integers that hold them."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return array != 0
    if dtype.itemsize < 4:
        floating = jnp.issubdtype(dtype, jnp.floating)
        return (lax.bitcast_convert_type(array, jnp.float32) if floating else array).astype(dtype)
    return lax.bitcast_convert_type(array, dtype)


class _Packing:
    """Several arrays `[..., R]` as rows of one array of integers per width of their numbers.

    A kernel that reads and writes such an array has one load and one store, each in a loop over rows: Triton looks at every number that
    an access to memory depends on, which for hundreds of accesses takes minutes.

    shapes: of the arrays of one run, without keys.
    """

    def __init__(self, shapes):
        self.shapes = list(shapes)
        self.places: list[tuple[np.dtype, int]] = []  # of each array its holder and its first row
        self.rows: dict[np.dtype, int] = {}
        for shape in self.shapes:
            holder = _holder(shape.dtype)
            self.places.append((holder, self.rows.get(holder, 0)))
            self.rows[holder] = self.rows.get(holder, 0) + math.prod(shape.shape)
        self.rows = {holder: count for holder, count in self.rows.items() if count}

    def pack(self, arrays) -> list[jax.Array]:
        """One array `[rows, R]` per holder."""
        flat = [_packed(a).reshape(-1, a.shape[-1]) for a in arrays]
        return [
            jnp.concatenate([f for f, (own, _) in zip(flat, self.places, strict=True) if own == holder])
            for holder in self.rows
        ]

    def unpack(self, packed) -> list[jax.Array]:
        """The arrays `[n, ..., R]` from `[n, rows, R]` per holder."""
        of = dict(zip(self.rows, packed, strict=True))
        first = packed[0]
        out = []
        for shape, (holder, row) in zip(self.shapes, self.places, strict=True):
            size = math.prod(shape.shape)
            part = of[holder][:, row : row + size] if size else first[:, :0].astype(holder)
            out.append(_unpacked(part, shape.dtype).reshape(first.shape[0], *shape.shape, first.shape[2]))
        return out

    def load(self, refs, width: int) -> list[list[jax.Array]]:
        """In a kernel: the numbers `[L]` of each array from one reference `[rows, L]` per holder."""
        rows: dict[np.dtype, list[jax.Array]] = {}
        for (holder, count), ref in zip(self.rows.items(), refs, strict=True):

            def one(i, numbers, ref=ref):
                row = ref[i, :]
                return [jnp.where(i == k, row, number) for k, number in enumerate(numbers)]

            empty = [jnp.zeros((width,), holder)] * count
            rows[holder] = lax.fori_loop(np.int32(0), np.int32(count), one, empty)
        return [
            [_unpacked(row, shape.dtype) for row in rows.get(holder, [])[first : first + math.prod(shape.shape)]]
            for shape, (holder, first) in zip(self.shapes, self.places, strict=True)
        ]

    def store(self, refs, index, numbers) -> None:
        """In a kernel: writes the numbers `[L]` of all arrays, in order, at an index of one reference `[n, rows, L]` per holder."""
        packed = [_packed(n) for n in numbers]
        for (holder, count), ref in zip(self.rows.items(), refs, strict=True):
            own = [n for n in packed if n.dtype == holder]

            def one(i, _, ref=ref, own=own):
                row = own[0]
                for k, number in enumerate(own[1:], 1):
                    row = jnp.where(i == k, number, row)
                ref[index, i, :] = row

            lax.fori_loop(np.int32(0), np.int32(count), one, None)


class _Traced:
    """A function `(instance, words, states, t)` of one run as a jaxpr, with the shape of its results."""

    def __init__(self, function: Callable, run: Run, states):
        example = (_one(run.instance), _one(run.words), _one(states), jax.ShapeDtypeStruct((), jnp.int32))
        self.closed, self.out = jax.make_jaxpr(function, return_shape=True)(*example)


class _Constants:
    """What the functions close over: numbers known by now, and arrays that become inputs of the kernel."""

    def __init__(self):
        self.inputs: list[jax.Array] = []
        self._place: dict[int, int] = {}

    def entries(self, traced: _Traced) -> list[Any]:
        """Of each constant its NumPy array, or the number of the input."""
        return [self._entry(c) for c in traced.closed.consts]

    def _entry(self, const) -> Any:
        number = id(const)
        if is_key(const):
            const = key_words(const)
        if not isinstance(const, jax.core.Tracer) and np.size(const) <= _MOST_SHARED:
            return np.asarray(const)
        if number not in self._place:
            self._place[number] = len(self.inputs)
            self.inputs.append(jnp.asarray(const))
        return self._place[number]


class _Schedule:
    """When the records are written. Rounds before the first counted one are an interval of their own, which nobody reads.

    A span is what one kernel plays: a stage, or all rounds where there are no stages. It touches at most `slots` intervals, and writes
    what it has of each.
    """

    def __init__(self, run: Run, horizon: int, every: int):
        self.free, self.every, self.total = run.free_rounds, every, run.free_rounds + horizon
        self.span = min(run.stage_length or self.total, self.total)
        self.spans = -(-self.total // self.span)
        stops = np.asarray(([self.free] if self.free else []) + [*range(self.free + every, self.total, every), self.total])
        spans = (stops - 1) // self.span
        first = np.asarray([self.interval(int(s) * self.span) for s in range(self.spans)])
        last = np.asarray([self.interval(min(int(s + 1) * self.span, self.total) - 1) for s in range(self.spans)])
        self.slots = int((last - first).max()) + 1
        # Where the record of each counted interval is: its span, and its slot there.
        counted = slice(int(self.free > 0), None)
        self.places = spans[counted], (np.arange(len(stops)) - first[spans])[counted]

    def interval(self, t):
        """Number of the interval that holds round `t` (an int, or int32 of the device)."""
        if isinstance(t, int):
            return 0 if t < self.free else int(self.free > 0) + (t - self.free) // self.every
        later = np.int32(self.free > 0) + lax.div(t - np.int32(self.free), np.int32(self.every))
        return jnp.where(t < np.int32(self.free), np.int32(0), later)

    def stop(self, interval):
        """The round after the last one of an interval, int32 of the device; 0 before the first."""
        later = np.int32(self.free) + (interval + np.int32(self.free == 0)) * np.int32(self.every)
        return jnp.where(interval < 0, np.int32(0), jnp.minimum(later, np.int32(self.total)))


def _played(run: Run, states, horizon: int, record: Record, width: int, interpret: bool) -> dict[str, Any]:
    """Records `[records, ..., R]` by name of all rounds that follow the given states."""
    play, read = (_Traced(f, run, states) for f in (run.play, run.read))
    flows, gauges = play.out[1], read.out
    if any(is_key(g) for g in jax.tree.leaves(gauges)):
        raise Unsupported("a gauge or probe that is a random key")
    names = [*sorted(flows), *sorted(gauges)]
    recorded = _Packing([{**flows, **gauges}[name] for name in names])
    if not recorded.rows:
        raise Unsupported("nothing is recorded")
    constants = _Constants()
    known = constants.entries(play), constants.entries(read)
    shared = [_packed(c).reshape(-1) for c in constants.inputs]

    sums = [jnp.zeros((*flows[name].shape, run.size), jnp.float32) for name in sorted(flows)]
    fixed = [_words(leaf) for leaf in jax.tree.leaves((run.instance, run.words))]
    leaves, structure = jax.tree.flatten(states)
    moving = _Packing([jax.ShapeDtypeStruct(x.shape[:-1], x.dtype) for x in map(_words, leaves)])
    given = _Packing([jax.ShapeDtypeStruct(x.shape[:-1], x.dtype) for x in (*fixed, *map(_words, leaves), *sums)])
    if sum(given.rows.values()) > _MOST_STATE:
        raise Unsupported(f"a state of {sum(given.rows.values()):,} numbers per run")
    when, num_states = _Schedule(run, horizon, record.every), len(leaves)
    ends = moving if when.spans > 1 else _Packing([])  # The last states matter where another span follows.
    chunk = np.int32(run.chunk)

    def kernel(*refs):
        shared_refs, (span, *refs) = refs[: len(shared)], refs[len(shared) :]
        given_refs, refs = refs[: len(given.rows)], refs[len(given.rows) :]
        record_refs, end_refs = refs[: len(recorded.rows)], refs[len(recorded.rows) :]
        replay = Replay(width, barriers=interpret)
        tables = [
            Table(lambda index, ref=ref, dtype=const.dtype: _unpacked(ref[index], dtype), const.shape, const.dtype)
            for ref, const in zip(shared_refs, constants.inputs, strict=True)
        ]

        def constant(entry):
            if isinstance(entry, np.ndarray):
                return replay.static(entry)
            table = tables[entry]
            return table if math.prod(table.shape) > _MOST_SHARED else replay.whole(table)

        play_consts, read_consts = ([constant(e) for e in entries] for entries in known)
        values = [
            np.asarray([replay.add(n) for n in numbers], np.int64).reshape(shape.shape)
            for numbers, shape in zip(given.load(given_refs, width), given.shapes, strict=True)
        ]
        own, states, sums = values[: len(fixed)], values[len(fixed) :][:num_states], values[len(fixed) + num_states :]
        zeros = [replay.static(np.zeros(s.shape, np.float32)) for s in sums]

        def run(traced, consts, states, t):
            outs = replay.replay(traced.closed.jaxpr, consts, [*own, *states, np.asarray(t, np.int64)])
            return [replay.whole(v) for v in outs]

        def repeat(first, stop, body, states, sums):
            """States and sums after `body(i, states) -> (states, values)` from `first` to before `stop`."""

            def step(i, carry):
                states, more = body(i, carry[:num_states])
                return [*states, *(replay.each("add", a, b) for a, b in zip(carry[num_states:], more, strict=True))]

            carry = replay.loop(first, stop, step, [*states, *sums], [True] * (num_states + len(sums)))
            return carry[:num_states], carry[num_states:]

        def one_round(t, states):
            outs = run(play, play_consts, states, t)
            return outs[:num_states], outs[num_states:]

        begin, stop = span[0], span[1]
        first = when.interval(begin)

        def interval(i, carry):
            """Plays what belongs to the span of one interval, and writes it."""
            number = first + replay.numbers[i]
            here, there = jnp.maximum(begin, when.stop(number - np.int32(1))), jnp.minimum(stop, when.stop(number))

            def one_chunk(c, states):
                start = here + replay.numbers[c] * chunk
                return repeat(start, jnp.minimum(start + chunk, there), one_round, states, zeros)

            count = lax.div(there - here + (chunk - np.int32(1)), chunk)
            states, sums = repeat(np.int32(0), count, one_chunk, carry[:num_states], carry[num_states:])
            measured = [*sums, *run(read, read_consts, states, replay.add(there))]
            recorded.store(record_refs, replay.numbers[i], _all_numbers(replay, measured))
            return [*states, *zeros]

        intervals = when.interval(stop - np.int32(1)) - first + np.int32(1)
        carry = replay.loop(np.int32(0), intervals, interval, [*states, *sums], [True] * (num_states + len(sums)))
        ends.store(end_refs, 0, _all_numbers(replay, carry[:num_states]))

    def call(span, states, sums):
        """Records `[slots, ..., R]` by name of the rounds from `span[0]` to before `span[1]`, and the states after them."""
        packed = given.pack([*fixed, *map(_words, jax.tree.leaves(states)), *sums])
        lengths = [(when.slots, rows) for rows in recorded.rows.values()] + [(1, rows) for rows in ends.rows.values()]
        outs = pl.pallas_call(
            kernel,
            grid=(run.size // width,),
            in_specs=[
                *(pl.BlockSpec(s.shape, lambda block: (0,)) for s in (*shared, span)),
                *(pl.BlockSpec((rows, width), lambda block: (0, block)) for rows in given.rows.values()),
            ],
            out_specs=[pl.BlockSpec((*length, width), lambda block: (0, 0, block)) for length in lengths],
            out_shape=[
                jax.ShapeDtypeStruct((*length, run.size), holder)
                for length, holder in zip(lengths, (*recorded.rows, *ends.rows), strict=True)
            ],
            compiler_params=plgpu.CompilerParams(num_warps=width // _WARP, num_stages=1),
            interpret=interpret,
            name="rounds",
        )(*shared, span, *packed)
        values = dict(zip(names, recorded.unpack(outs[: len(recorded.rows)]), strict=True))
        if ends is moving:
            last = [x[0] for x in ends.unpack(outs[len(recorded.rows) :])]
            states = jax.tree.unflatten(structure, [_typed(x, like) for x, like in zip(last, leaves, strict=True)])
        return values, states

    def stage(carry, begin):
        states, sums = carry
        states = lanes(lambda *args: run.plan(*args, begin), run.size)(run.instance, run.words, states)
        stop = jnp.minimum(begin + np.int32(when.span), np.int32(when.total))
        values, states = call(jnp.stack([begin, stop]), states, sums)
        # The sums of an interval that goes on in the next stage.
        slot = when.interval(stop - 1) - when.interval(begin)
        done = stop == when.stop(when.interval(stop - 1))
        rest = [values[name][slot] for name in sorted(flows)]
        return (states, [jnp.where(done, jnp.zeros_like(r), r) for r in rest]), values

    if run.stage_length:
        begins = np.int32(when.span) * jnp.arange(when.spans, dtype=jnp.int32)
        _, values = lax.scan(stage, (states, sums), begins)
    else:
        values, _ = call(jnp.asarray([0, when.total], jnp.int32), states, sums)
        values = {name: value[None] for name, value in values.items()}
    return {name: value[when.places] for name, value in values.items()}


def _all_numbers(replay: Replay, values) -> list[jax.Array]:
    return [replay.own(int(p)) for value in values for p in value.ravel()]


def _typed(words, like):
    """A typed key from its words, where there was one."""
    return jax.random.wrap_key_data(jnp.moveaxis(words, -2, -1)) if is_key(like) else words
