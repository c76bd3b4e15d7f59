"""The only scan over rounds: plays a block of runs of one environment and one policy."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxroute.core import rounding
from jaxroute.core.batching.lanes import exactly, lanes
from jaxroute.core.protocols import AnyEnvironment, AnyPolicy, PolicyOf, Sampler
from jaxroute.engine.packing import Packed
from jaxroute.engine.rounds import Record, States, leaves_of, one_run, states_of

Values = dict[str, Any]


def rollout(
    env: AnyEnvironment | Sampler,
    policy: AnyPolicy | PolicyOf,
    streams: Mapping[str, jax.Array],
    horizon: int,
    record: Record,
    *,
    since: int = 0,
    begun: Mapping[str, jax.Array] | None = None,
    keep_states: bool = False,
    reversible: bool = False,
) -> Values:
    """Plays `horizon` counted rounds of `R` runs, or those that are left of them, and returns what was recorded in each interval.

    Args:
      env: environment, or a sampler `key -> Environment` for one random instance per run.
      policy: policy, or a function `env -> policy`.
      streams: from `run_streams`.
      horizon: counted rounds (static).
      record: what to write, and how often (static).
      since: counted rounds that were played before, whole record intervals (static).
      begun: states after them, as `leaves_of` returns them.
      keep_states: returns the states after the last round, too (static).
      reversible: loops have lengths that are known, for derivatives in reverse; the program may hold the rounds several times (static).

    Returns:
      Arrays `[records, ..., R]` by name: increments of flows over each interval (float32 sums), gauges and probes after it.
      `zero/<name>` holds the sums of absolute zero flows. The last interval is shorter if `record.every` does not divide
      `horizon`.
    """
    with rounding.protected(streams["env"][0]):
        packed, states = packed_rollout(
            env, policy, streams, horizon, record, since=since, begun=begun, keep_states=keep_states, reversible=reversible
        )
    return packed.by_name() | states


def packed_rollout(
    env: AnyEnvironment | Sampler,
    policy: AnyPolicy | PolicyOf,
    streams: Mapping[str, jax.Array],
    horizon: int,
    record: Record,
    *,
    since: int = 0,
    begun: Mapping[str, jax.Array] | None = None,
    keep_states: bool = False,
    reversible: bool = False,
    spans: jax.Array | None = None,
) -> tuple[Packed, Values]:
    """What `rollout` returns, with the records packed; the states after the last round by name, if they are kept.

    Args:
      env, policy, streams, horizon, record, since, begun, keep_states, reversible: as for `rollout`.
      spans: what `spans_of` gives, as an argument of the program, which then is the same for other horizons with as many records.
    """
    run = one_run(env, policy, streams, horizon, record)
    stage_length, chunk, of_runs = run.stage_length, run.chunk, (run.instance, run.words)
    start = lambda: lanes(run.start, run.size)(*of_runs)  # noqa: E731
    states = states_of(begun, jax.eval_shape(start)) if begun else start()
    by_itself = run.size == 1
    if by_itself:
        # Without an axis of runs: reads and writes at a place stay what they are, and states are written in place.
        plan, play, read = exactly(run.plan), exactly(run.play), exactly(run.read)
        of_runs, states = _without_axis(of_runs), _without_axis(states)
        _, shapes = jax.eval_shape(play, *of_runs, states, jnp.int32(0))
    else:
        plan, play, read = (lanes(function, run.size, fixed=1) for function in (run.plan, run.play, run.read))
        _, shapes = play.shapes(*of_runs, states, jnp.int32(0))
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    def add(a: Values, b: Values) -> Values:
        return jax.tree.map(jnp.add, a, b)

    def rounds(states: States, first: Any, count: Any, begun: Values = zeros) -> tuple[States, Values]:
        """Plays `count <= chunk` rounds that begin at a chunk boundary; plans first if a stage begins there. begun: what is added to."""

        def one(i: Any, carry: tuple[States, Values]) -> tuple[States, Values]:
            states, sums = carry
            states, values = play(*of_runs, states, first + i.astype(jnp.int32))
            return states, add(sums, values)

        if stage_length and chunk % stage_length == 0:
            states = plan(*of_runs, states, first)
        elif stage_length:
            # An unbatched predicate: under vmap over settings this stays a branch.
            begins = first % stage_length == 0
            states = lax.cond(begins, lambda s: plan(*of_runs, s, first), lambda s: s, states)
        return lax.fori_loop(0, count, one, (states, begun))

    def interval(states: States, first: Any, count: Any, most: int) -> tuple[States, Values]:
        """Plays `count <= most` rounds from a record boundary: full chunks, the last one of which may be shorter."""
        if most <= chunk:
            return rounds(states, first, count)
        shorter = not isinstance(count, int) or count % chunk

        def one(i: Any, carry: tuple[States, Values, Values]) -> tuple[States, Values, Values]:
            states, sums, errors = carry
            played = chunk * i.astype(jnp.int32)
            number = jnp.minimum(chunk, count - played) if shorter else chunk
            states, more = rounds(states, first + played, number, errors)
            new = add(sums, more)
            # What rounding has left out is what the next chunk begins with, as in `numerics.add_up`.
            return states, new, jax.tree.map(lambda a, b, c: b - (c - a), sums, more, new)

        return lax.fori_loop(0, (count + chunk - 1) // chunk, one, (states, zeros, zeros))[:2]

    def recorded(states: States, first: Any, count: Any, most: int) -> tuple[States, Packed]:
        states, sums = interval(states, first, count, most)
        values = {**sums, **read(*of_runs, states, first + count)}
        return states, Packed.of(_with_axis(values) if by_itself else values)

    warm_up = 0 if begun else run.free_rounds
    known = spans_of(horizon - since, record.every, warm_up, run.free_rounds + since)
    most = int(known[:, 1].max())

    def played(states: States, part: np.ndarray) -> tuple[States, Packed]:
        """Plays some spans. Those of several lengths share one copy of the rounds, in a loop of as many as it takes: that has no derivative
        in reverse."""
        count = int(part[0, 1]) if spans is None and (part[:, 1] == part[0, 1]).all() else None

        def one(states: States, span: jax.Array) -> tuple[States, Packed]:
            return recorded(states, span[0], span[1] if count is None else count, most)

        return lax.scan(one, states, jnp.asarray(part if spans is None else spans, jnp.int32))

    parts = []
    for part in np.split(known, np.flatnonzero(np.diff(known[:, 1])) + 1) if reversible else [known]:
        states, packed = played(states, part)
        parts.append(packed)
    packed = jax.tree.map(lambda *arrays: jnp.concatenate(arrays)[1 if warm_up else 0 :], *parts)
    states = _with_axis(states) if by_itself else states
    return packed, leaves_of(states) if keep_states else {}


def _without_axis(tree: Any) -> Any:
    """Values of the only run, from arrays `[..., 1]`."""
    return jax.tree.map(lambda x: x[..., 0], tree)


def _with_axis(tree: Any) -> Any:
    """Arrays `[..., 1]` from the values of the only run."""
    return jax.tree.map(lambda x: jnp.asarray(x)[..., None], tree)


def spans_of(rounds: int, every: int, warm_up: int, first: int) -> np.ndarray:
    """First round and number of rounds of each interval that is played, int32 `[n, 2]`; the last record may be shorter.

    Args:
      rounds: that are recorded.
      every: rounds of a record.
      warm_up: rounds that are played before, and are not recorded; 0 for none.
      first: the first round that is recorded.
    """
    full, short = divmod(rounds, every)
    counts = [number for number in (warm_up, *[every] * full, short) if number]
    return np.stack([first - warm_up + np.cumsum([0, *counts[:-1]]), counts], axis=1).astype(np.int32)
