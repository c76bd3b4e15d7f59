"""What a round is, and the only scan over rounds: plays a block of runs of one environment and one policy."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxroute.core import draws
from jaxroute.core.protocols import build_policy, first_state, is_environment, is_policy, stage_length_of
from jaxroute.core.types import Metric, Spec
from jaxroute.engine.batching.dependence import carry_dependence, which_depend
from jaxroute.engine.batching.lanes import lanes

# Rounds of one inner scan: a float32 partial sum stays short, and records are sums of partial sums.
_LONGEST_CHUNK = 4096


class Record(NamedTuple):
    """What is written at each record time (static).

    every: rounds between two records.
    flows: metrics of the environment's flows, `info`: of the policy's Info, `env_gauges` and `policy_gauges`: of the states.
    zero_flows: flows whose absolute sum is recorded, to be checked on the host.
    probes: pairs of name and function `(env, policy, env_state, policy_state, t) -> array or dict`.
    """

    every: int
    flows: tuple[Metric, ...] = ()
    info: tuple[Metric, ...] = ()
    env_gauges: tuple[Metric, ...] = ()
    policy_gauges: tuple[Metric, ...] = ()
    zero_flows: tuple[str, ...] = ()
    probes: tuple[tuple[str, Callable], ...] = ()

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """All metrics that are recorded."""
        return (*self.flows, *self.info, *self.env_gauges, *self.policy_gauges)


def spec_for(env, horizon: int) -> Spec:
    """What the environment declares, with the counted rounds of the run."""
    return dataclasses.replace(env.spec, horizon=horizon)


def chunk_length(record_every: int, stage_length: int | None) -> int:
    """Rounds of the inner scan: divides the record interval, the stage length, and stays short where it can."""
    length = math.gcd(record_every, stage_length) if stage_length else record_every
    if length > _LONGEST_CHUNK:
        divisors = [d for d in range(256, _LONGEST_CHUNK + 1) if length % d == 0]
        length = divisors[-1] if divisors else length
    return length


def run_streams(root, seeds) -> dict[str, jax.Array]:
    """Words of the addressed key streams of each run, uint32 `[2, R]` per stream; `root` are the words `[2]` of the root key.

    Run key = fold_in(root, seed); its children are the instance, the environment's init and rounds, and the policy's init, plan,
    act and update. Round `t` of a stream is `fold_in(stream, t)`.
    """
    names = ("instance", "env_init", "env", "policy_init", "plan", "act", "update")

    def streams(seed):
        run_key = draws.fold_in(draws_key(root), seed)
        return {name: jax.random.key_data(draws.fold_in(run_key, i)) for i, name in enumerate(names)}

    return lanes(streams, seeds.shape[-1])(seeds)


def state_bytes(leaf) -> int:
    """Bytes of a leaf of a state; keys, which the host cannot size, count as nothing."""
    return 0 if jnp.issubdtype(leaf.dtype, jax.dtypes.extended) else leaf.size * leaf.dtype.itemsize


def leaf_dependence(env, policy, swept: Sequence[bool]) -> list[tuple[int, bool]]:
    """Which parts of a run's state a sweep of some leaves changes: what it does not change is computed once for all its settings.

    Args:
      env, policy: environment and policy, or a function `env -> policy`.
      swept: for each leaf of `(env, policy)`, whether it is swept.

    Returns:
      For each leaf of the states its size in bytes, 0 if no round writes it, and whether it depends on a swept leaf.
    """
    builds = not is_policy(policy)
    leaves, structure = jax.tree.flatten((env, () if builds else policy))
    shapes = [jax.ShapeDtypeStruct(np.shape(x), jax.dtypes.canonicalize_dtype(np.asarray(x).dtype)) for x in leaves]
    word, time = jax.ShapeDtypeStruct((2,), jnp.uint32), jax.ShapeDtypeStruct((), jnp.int32)

    def players(leaves):
        env, made = jax.tree.unflatten(structure, leaves)
        return env, policy(env) if builds else made

    def start(leaves, words):
        env, policy = players(leaves)
        return jax.tree.map(
            _strong, (env.init(draws_key(words)), first_state(env, policy, draws_key(words), spec_for(env, 1)))
        )

    def play(leaves, states, words, t):
        (env, policy), key = players(leaves), draws_key(words)
        env_state, policy_state = states
        obs = env.observe(key, env_state, t)
        if stage_length_of(env, policy):
            policy_state = policy.plan(key, policy_state, obs, t)
        action, _ = policy.act(key, policy_state, obs, t)
        env_state, feedback, _ = env.step(key, env_state, action, t)
        return jax.tree.map(_strong, (env_state, policy.update(key, policy_state, obs, action, feedback, t)))

    states = jax.eval_shape(start, shapes, word)
    sizes = [state_bytes(leaf) for leaf in jax.tree.leaves(states)]
    begin, go_on = jax.make_jaxpr(start)(shapes, word), jax.make_jaxpr(play)(shapes, states, word, time)
    given = go_on.jaxpr.invars[len(shapes) : len(shapes) + len(sizes)]
    sizes = [0 if now is then else size for size, now, then in zip(sizes, go_on.jaxpr.outvars, given, strict=True)]
    swept = list(swept)
    if len(swept) != len(shapes):
        raise ValueError(f"swept must have one entry per leaf ({len(shapes)}), got {len(swept)}")
    first = which_depend(begin, [*swept, False])
    changed = carry_dependence(first, lambda now: which_depend(go_on, [*swept, *now, False, False]))
    return list(zip(sizes, changed, strict=True))


@dataclasses.dataclass(frozen=True)
class Game:
    """One environment against one policy, as functions of one run: what a round is, whoever plays it.

    own: what differs from run to run besides the states, for random instances: dict of trees `[..., R]`.
    words: key words of the streams `[2, R]`, without that of the instance. size: `R`.
    free_rounds, stage_length: of the environment or policy. chunk: rounds of the inner loop.
    start: `(own, words) -> states`. plan: `(own, words, states, t) -> states`, at the start of a stage.
    play: `(own, words, states, t) -> (states, flows)`, a round. read: `(own, words, states, t) -> gauges and probes`.
    """

    own: dict[str, Any]
    words: dict[str, jax.Array]
    size: int
    free_rounds: int
    stage_length: int | None
    chunk: int
    start: Callable
    plan: Callable
    play: Callable
    read: Callable


def game(env, policy, streams: Mapping[str, jax.Array], horizon: int, record: Record) -> Game:
    """The rounds of `R` runs; arguments as for `rollout`."""
    size = streams["env"].shape[-1]
    own: dict[str, Any] = {}  # environment and policy, where they differ from run to run
    if is_environment(env):
        policy = build_policy(policy, env)
        example = {"env": env, "policy": policy}
    else:
        sampler, build = env, policy

        def instance(words):
            drawn = sampler(draws_key(words))
            return {"env": drawn} | ({} if is_policy(build) else {"policy": build(drawn)})

        own = lanes(instance, size)(streams["instance"])
        example = {"policy": policy} | jax.eval_shape(instance, jax.ShapeDtypeStruct((2,), jnp.uint32))
    spec, stage_length = example["env"].spec, stage_length_of(example["env"], example["policy"])
    known = spec_for(example["env"], horizon)

    def players(own):
        return own.get("env", env), own.get("policy", policy)

    def at(stream, t):
        return draws.fold_in(draws_key(stream), t)

    def start(own, words):
        env, policy = players(own)
        states = env.init(draws_key(words["env_init"])), first_state(env, policy, draws_key(words["policy_init"]), known)
        return jax.tree.map(_strong, states)

    def plan(own, words, states, t):
        (env, policy), (env_state, policy_state) = players(own), states
        obs = env.observe(at(words["env"], t), env_state, t)
        return env_state, policy.plan(at(words["plan"], t), policy_state, obs, t)

    def play(own, words, states, t):
        (env, policy), (env_state, policy_state) = players(own), states
        env_key = at(words["env"], t)
        obs = env.observe(env_key, env_state, t)
        action, info = policy.act(at(words["act"], t), policy_state, obs, t)
        env_state, feedback, flows = env.step(env_key, env_state, action, t)
        policy_state = policy.update(at(words["update"], t), policy_state, obs, action, feedback, t)
        sums = {m.name: flows[m.name] for m in record.flows}
        sums |= {m.name: info[m.name.removeprefix("info.")] for m in record.info}
        sums |= {f"zero/{name}": jnp.abs(flows[name]) for name in record.zero_flows}
        return (env_state, policy_state), {k: jnp.asarray(v).astype(jnp.float32) for k, v in sums.items()}

    def read(own, words, states, t):
        del words
        (env, policy), (env_state, policy_state) = players(own), states
        values = {}
        if record.env_gauges:
            gauges = env.gauges(env_state)
            values |= {m.name: gauges[m.name] for m in record.env_gauges}
        if record.policy_gauges:
            gauges = policy.gauges(policy_state)
            values |= {m.name: gauges[m.name] for m in record.policy_gauges}
        for name, probe in record.probes:
            value = probe(env, policy, env_state, policy_state, t)
            values |= {f"{name}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value}
        return values

    return Game(
        own=own,
        words={k: v for k, v in streams.items() if k != "instance"},
        size=size,
        free_rounds=spec.free_rounds,
        stage_length=stage_length,
        chunk=chunk_length(math.gcd(record.every, spec.free_rounds), stage_length),
        start=start,
        plan=plan,
        play=play,
        read=read,
    )


def rollout(env, policy, streams: Mapping[str, jax.Array], horizon: int, record: Record) -> dict[str, Any]:
    """Plays `horizon` counted rounds of `R` runs and returns what was recorded in each interval.

    Args:
      env: environment, or a sampler `key -> Environment` for one random instance per run.
      policy: policy, or a function `env -> policy`.
      streams: from `run_streams`.
      horizon: counted rounds (static).
      record: what to write, and how often (static).

    Returns:
      Arrays `[records, ..., R]` by name: increments of flows over each interval (float32 sums), gauges and probes after it.
      `zero/<name>` holds the sums of absolute zero flows. The last interval is shorter if `record.every` does not divide
      `horizon`.
    """
    the = game(env, policy, streams, horizon, record)
    stage_length, chunk = the.stage_length, the.chunk

    def on_runs(function, states, t):
        """`function(own, words, states, t)` of every run."""
        return lanes(lambda own, words, states: function(own, words, states, t), the.size)(the.own, the.words, states)

    states = lanes(the.start, the.size)(the.own, the.words)
    _, shapes = jax.eval_shape(lambda s: on_runs(the.play, s, jnp.int32(0)), states)
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    def add(a, b):
        return jax.tree.map(jnp.add, a, b)

    def rounds(states, first, count):
        """Plays `count <= chunk` rounds that begin at a chunk boundary; plans first if a stage begins there."""

        def one(carry, t):
            states, sums = carry
            states, values = on_runs(the.play, states, t)
            return (states, add(sums, values)), None

        if stage_length and chunk % stage_length == 0:
            states = on_runs(the.plan, states, first)
        elif stage_length:
            # An unbatched predicate: under vmap over settings this stays a branch.
            states = lax.cond(first % stage_length == 0, lambda s: on_runs(the.plan, s, first), lambda s: s, states)
        (states, sums), _ = lax.scan(one, (states, zeros), first + jnp.arange(count, dtype=jnp.int32))
        return states, sums

    def interval(states, first, count):
        """Plays `count` rounds from a record boundary: whole chunks, then a shorter one."""
        whole, rest = divmod(count, chunk)
        sums = zeros
        if whole == 1:
            states, sums = rounds(states, first, chunk)
        elif whole:

            def one(carry, i):
                states, sums = carry
                states, more = rounds(states, first + i * chunk, chunk)
                return (states, add(sums, more)), None

            (states, sums), _ = lax.scan(one, (states, zeros), jnp.arange(whole, dtype=jnp.int32))
        if rest:
            states, more = rounds(states, first + whole * chunk, rest)
            sums = add(sums, more)
        return states, sums

    def recorded(states, first, count):
        states, sums = interval(states, first, count)
        return states, {**sums, **on_runs(the.read, states, first + count)}

    if the.free_rounds:
        states, _ = interval(states, jnp.int32(0), the.free_rounds)
    whole, rest = divmod(horizon, record.every)
    parts = []
    if whole:
        firsts = the.free_rounds + record.every * jnp.arange(whole, dtype=jnp.int32)
        states, values = lax.scan(lambda s, first: recorded(s, first, record.every), states, firsts)
        parts.append(values)
    if rest:
        first = jnp.int32(the.free_rounds + whole * record.every)
        states, values = recorded(states, first, rest)
        parts.append(jax.tree.map(lambda v: v[None], values))
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda a, b: jnp.concatenate([a, b]), *parts)


def draws_key(words):
    """Typed key of two words `[2]`."""
    return jax.random.wrap_key_data(words, impl=draws.KEY_IMPL)


def _strong(leaf):
    """An array whose type does not depend on what it is combined with."""
    array = jnp.asarray(leaf)
    return lax.convert_element_type(array, array.dtype) if not jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else array
