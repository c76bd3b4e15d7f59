"""The only scan over rounds: plays a block of runs of one environment and one policy."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxroute.core.protocols import AnyEnvironment, AnyPolicy, PolicyOf, Sampler
from jaxroute.engine.batching.lanes import lanes
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

    Returns:
      Arrays `[records, ..., R]` by name: increments of flows over each interval (float32 sums), gauges and probes after it.
      `zero/<name>` holds the sums of absolute zero flows. The last interval is shorter if `record.every` does not divide
      `horizon`.
    """
    run = one_run(env, policy, streams, horizon, record)
    stage_length, chunk = run.stage_length, run.chunk

    def on_runs(function: Callable[..., Any], states: States, t: Any) -> Any:
        """`function(instance, words, states, t)` of every run."""
        mapped = lanes(lambda instance, words, states: function(instance, words, states, t), run.size)
        return mapped(run.instance, run.words, states)

    start = lambda: lanes(run.start, run.size)(run.instance, run.words)  # noqa: E731
    states = states_of(begun, jax.eval_shape(start)) if begun else start()
    _, shapes = jax.eval_shape(lambda s: on_runs(run.play, s, jnp.int32(0)), states)
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    def add(a: Values, b: Values) -> Values:
        return jax.tree.map(jnp.add, a, b)

    def rounds(states: States, first: Any, count: int) -> tuple[States, Values]:
        """Plays `count <= chunk` rounds that begin at a chunk boundary; plans first if a stage begins there."""

        def one(carry: tuple[States, Values], t: jax.Array) -> tuple[tuple[States, Values], None]:
            states, sums = carry
            states, values = on_runs(run.play, states, t)
            return (states, add(sums, values)), None

        if stage_length and chunk % stage_length == 0:
            states = on_runs(run.plan, states, first)
        elif stage_length:
            # An unbatched predicate: under vmap over settings this stays a branch.
            states = lax.cond(first % stage_length == 0, lambda s: on_runs(run.plan, s, first), lambda s: s, states)
        (states, sums), _ = lax.scan(one, (states, zeros), first + jnp.arange(count, dtype=jnp.int32))
        return states, sums

    def interval(states: States, first: Any, count: int) -> tuple[States, Values]:
        """Plays `count` rounds from a record boundary: full chunks, then a shorter one."""
        full, short = divmod(count, chunk)
        sums = zeros
        if full == 1:
            states, sums = rounds(states, first, chunk)
        elif full:

            def one(carry: tuple[States, Values], i: jax.Array) -> tuple[tuple[States, Values], None]:
                states, sums = carry
                states, more = rounds(states, first + i * chunk, chunk)
                return (states, add(sums, more)), None

            (states, sums), _ = lax.scan(one, (states, zeros), jnp.arange(full, dtype=jnp.int32))
        if short:
            states, more = rounds(states, first + full * chunk, short)
            sums = add(sums, more)
        return states, sums

    def recorded(states: States, first: Any, count: int) -> tuple[States, Values]:
        states, sums = interval(states, first, count)
        return states, {**sums, **on_runs(run.read, states, first + count)}

    if run.free_rounds and not begun:
        states, _ = interval(states, jnp.int32(0), run.free_rounds)
    full, short = divmod(horizon - since, record.every)
    parts: list[Values] = []
    if full:
        firsts = run.free_rounds + since + record.every * jnp.arange(full, dtype=jnp.int32)
        states, values = lax.scan(lambda s, first: recorded(s, first, record.every), states, firsts)
        parts.append(values)
    if short:
        first = jnp.int32(run.free_rounds + since + full * record.every)
        states, values = recorded(states, first, short)
        parts.append(jax.tree.map(lambda v: v[None], values))
    values = parts[0] if len(parts) == 1 else jax.tree.map(lambda a, b: jnp.concatenate([a, b]), *parts)
    return values | (leaves_of(states) if keep_states else {})
