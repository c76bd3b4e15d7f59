"""The only scan over rounds: it simulates `R` runs of one environment and one policy.

Shapes: `R` runs on the last axis of every array inside a rollout, `N` records, `d...` the dimensions of a quantity. Increments are `[N, d..., R]`,
states `[d..., R]`, key words `[2, R]`; functions of one run see none of these axes. `t` is an int32 scalar, the index of a round.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

from jaxroute.core import rounding
from jaxroute.core.batching.lanes import exactly, lanes
from jaxroute.core.protocols import AnyEnvironment, AnyPolicy, PolicyOf, Sampler
from jaxroute.engine.rounds import Record, States, leaves_of, one_run, states_of

Values = dict[str, Any]


class Slot(NamedTuple):
    """Place of a quantity in `PackedRecords`: name of the array with its numbers, index of the first number, and shape of the quantity."""

    array: str
    first: int
    shape: tuple[int, ...]

    @property
    def numbers(self) -> slice:
        """Positions of the quantity's numbers along the axis of length `n` of the packed array."""
        return slice(self.first, self.first + math.prod(self.shape))


@struct.dataclass
class PackedRecords:
    """Recorded quantities, joined to one array for each type of number.

    XLA writes and copies each array of a program's result by a separate loop, and each loop takes time to compile.

    Attributes:
      arrays: arrays by name, with `n` numbers per record and run: `[n, R]` for one record, `[N, n, R]` for N records that a scan has stacked, or
        `[settings..., R, N, n]` as the compiled program returns them.
      slots: places of the quantities (static).
      structure: structure of the pytree of the quantities, a dict by name (static).
    """

    arrays: dict[str, Any]
    slots: tuple[Slot, ...] = struct.field(pytree_node=False)
    structure: Any = struct.field(pytree_node=False)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "PackedRecords":
        """Packs `values`, the quantities of one record of `R` runs, arrays `[..., R]` by name."""
        leaves, structure = jax.tree.flatten(dict(values))
        parts: dict[str, list[Any]] = {}
        slots, used = [], dict.fromkeys({str(leaf.dtype) for leaf in leaves}, 0)
        for leaf in leaves:
            kind = str(leaf.dtype)
            slots.append(Slot(kind, used[kind], leaf.shape[:-1]))
            used[kind] = slots[-1].numbers.stop
            parts.setdefault(kind, []).append(jnp.reshape(leaf, (-1, leaf.shape[-1])))
        return cls({kind: jnp.concatenate(some) for kind, some in parts.items()}, tuple(slots), structure)

    @classmethod
    def of_separate(cls, values: Mapping[str, Any]) -> "PackedRecords":
        """Wraps the arrays `[N, ..., R]`, by name, of a back end that returns an array per quantity, without joining them."""
        leaves, structure = jax.tree.flatten(dict(values))
        slots = tuple(Slot(str(i), 0, leaf.shape[1:-1]) for i, leaf in enumerate(leaves))
        arrays = {str(i): jnp.reshape(leaf, (leaf.shape[0], -1, leaf.shape[-1])) for i, leaf in enumerate(leaves)}
        return cls(arrays, slots, structure)

    def by_name(self) -> dict[str, Any]:
        """Returns the quantities of `N` records of `R` runs as arrays `[N, ..., R]` by name."""
        return self._with(lambda whole, slot: whole[:, slot.numbers].reshape(len(whole), *slot.shape, whole.shape[-1]))

    def returned(self) -> dict[str, Any]:
        """Returns the quantities as arrays `[settings..., R, N, ...]` by name, from the packed arrays that a compiled program has returned."""
        return self._with(lambda whole, slot: whole[..., slot.numbers].reshape(*whole.shape[:-1], *slot.shape))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shape of each quantity in one run at one time, by name."""
        return self._with(lambda _, slot: slot.shape)

    def _with(self, function: Callable[[Any, Slot], Any]) -> dict[str, Any]:
        return jax.tree.unflatten(self.structure, [function(self.arrays[slot.array], slot) for slot in self.slots])


def rollout(
    env: AnyEnvironment | Sampler,
    policy: AnyPolicy | PolicyOf,
    streams: Mapping[str, jax.Array],
    horizon: int,
    record: Record,
    **options: Any,
) -> Values:
    """Simulates `R` runs, or their rounds after a checkpoint, and returns the recorded quantities of each of the `N` record intervals.

    Args:
      env, policy: environment, or a sampler `key -> Environment`; policy, or a function `env -> policy`.
      streams, horizon, record: words of random keys (`run_streams`), number of counted rounds, quantities to record.
      options: the other arguments of `packed_rollout`, except `spans`.

    Returns:
      Arrays `[N, d..., R]` by name: increments of flows over each interval (float32 sums), gauges and probes at its end. `zero/<name>` holds the
      sums of absolute values of a flow that must be zero. The last interval is shorter if `record.every` does not divide `horizon`.
    """
    with rounding.protected(streams["env"][0]):
        packed, states = packed_rollout(env, policy, streams, horizon, record, **options)
    return packed.by_name() | states


def packed_rollout(
    env: AnyEnvironment | Sampler,
    policy: AnyPolicy | PolicyOf,
    streams: Mapping[str, jax.Array],
    horizon: int,
    record: Record,
    *,
    since: int = 0,
    resumed: Mapping[str, jax.Array] | None = None,
    keep_states: bool = False,
    reversible: bool = False,
    spans: jax.Array | None = None,
) -> tuple[PackedRecords, Values]:
    """Simulates `R` runs, or their rounds after a checkpoint. Returns packed records, and states after the last round by name (if `keep_states`).

    Args:
      env: environment, or a sampler `key -> Environment` for one random instance per run.
      policy: policy, or a function `env -> policy`.
      streams: words of the random keys, from `run_streams`.
      horizon: number of counted rounds (static).
      record: quantities to record (static).
      since: counted rounds before the checkpoint, a multiple of the record interval (static).
      resumed: states of the checkpoint, as `leaves_of` returns them; None to start in the first round.
      keep_states: whether the states after the last round are returned, too (static).
      reversible: whether each loop has a fixed length, as reverse-mode derivatives need; intervals of different lengths get separate loops (static).
      spans: result of `spans_of` as a traced array, so that one program serves several horizons with the same number of records; else None.
    """
    run = one_run(env, policy, streams, horizon, record)
    stage_length, chunk, of_runs = run.stage_length, run.chunk, (run.instance, run.words)
    start = lambda: lanes(run.start, run.size)(*of_runs)  # noqa: E731
    states = states_of(resumed, jax.eval_shape(start)) if resumed else start()
    single = run.size == 1
    if single:
        # Without an axis of runs, reads and writes by index remain, and states are written in place.
        plan, one_round, read = exactly(run.plan), exactly(run.round), exactly(run.read)
        of_runs, states = _without_axis(of_runs), _without_axis(states)
        _, shapes = jax.eval_shape(one_round, *of_runs, states, jnp.int32(0))
    else:
        plan, one_round, read = (lanes(function, run.size, fixed=1) for function in (run.plan, run.round, run.read))
        _, shapes = one_round.shapes(*of_runs, states, jnp.int32(0))
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    def add(a: Values, b: Values) -> Values:
        return jax.tree.map(jnp.add, a, b)

    def rounds(states: States, first: Any, count: Any, initial: Values = zeros) -> tuple[States, Values]:
        def one(i: Any, carry: tuple[States, Values]) -> tuple[States, Values]:
            states, sums = carry
            states, values = one_round(*of_runs, states, first + i.astype(jnp.int32))
            return states, add(sums, values)

        if stage_length and chunk % stage_length == 0:
            states = plan(*of_runs, states, first)
        elif stage_length:
            # An unbatched predicate: under vmap over settings this stays a branch.
            begins = first % stage_length == 0
            states = lax.cond(begins, lambda s: plan(*of_runs, s, first), lambda s: s, states)
        return lax.fori_loop(0, count, one, (states, initial))

    def interval(states: States, first: Any, count: Any, most: int) -> tuple[States, Values]:
        """Simulates `count` rounds from round `first` on; `count` may be traced, with the static upper bound `most`. Returns states and sums."""
        if most <= chunk:
            return rounds(states, first, count)
        shorter = not isinstance(count, int) or count % chunk

        def one(i: Any, carry: tuple[States, Values, Values]) -> tuple[States, Values, Values]:
            states, sums, errors = carry
            done = chunk * i.astype(jnp.int32)
            number = jnp.minimum(chunk, count - done) if shorter else chunk
            states, more = rounds(states, first + done, number, errors)
            new = add(sums, more)
            # The next chunk begins with the rounding error, as in `numerics.add_up`.
            return states, new, jax.tree.map(lambda a, b, c: b - (c - a), sums, more, new)

        return lax.fori_loop(0, (count + chunk - 1) // chunk, one, (states, zeros, zeros))[:2]

    def recorded(states: States, first: Any, count: Any, most: int) -> tuple[States, PackedRecords]:
        states, sums = interval(states, first, count, most)
        values = {**sums, **read(*of_runs, states, first + count)}
        return states, PackedRecords.of(_with_axis(values) if single else values)

    warm_up = 0 if resumed else run.free_rounds
    fixed = spans_of(horizon - since, record.every, warm_up, run.free_rounds + since)
    most = int(fixed[:, 1].max())

    def simulated(states: States, part: np.ndarray) -> tuple[States, PackedRecords]:
        count = int(part[0, 1]) if spans is None and (part[:, 1] == part[0, 1]).all() else None

        def one(states: States, span: jax.Array) -> tuple[States, PackedRecords]:
            return recorded(states, span[0], span[1] if count is None else count, most)

        return lax.scan(one, states, jnp.asarray(part if spans is None else spans, jnp.int32))

    parts = []
    for part in np.split(fixed, np.flatnonzero(np.diff(fixed[:, 1])) + 1) if reversible else [fixed]:
        states, packed = simulated(states, part)
        parts.append(packed)
    packed = jax.tree.map(lambda *arrays: jnp.concatenate(arrays)[1 if warm_up else 0 :], *parts)
    states = _with_axis(states) if single else states
    return packed, leaves_of(states) if keep_states else {}


def _without_axis(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[..., 0], tree)


def _with_axis(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.asarray(x)[..., None], tree)


def spans_of(rounds: int, every: int, warm_up: int, first: int) -> np.ndarray:
    """Returns the first round and the number of rounds of each record interval, int32 `[N, 2]`; the last interval may be shorter.

    Args:
      rounds: number of recorded rounds.
      every: rounds of an interval.
      warm_up: number of rounds before `first` that are simulated but not recorded; if it is not 0, the first row of the result has these rounds.
      first: index of the first recorded round, counted from the start of the run.
    """
    full, short = divmod(rounds, every)
    counts = [number for number in (warm_up, *[every] * full, short) if number]
    return np.stack([first - warm_up + np.cumsum([0, *counts[:-1]]), counts], axis=1).astype(np.int32)
