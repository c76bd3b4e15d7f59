"""Rounds of one environment and one policy, as functions of one run that every back end calls.

Shapes: `R` runs on the last axis of every array inside a rollout, `N` records, `d...` the dimensions of a quantity. Increments are `[N, d..., R]`,
states `[d..., R]`, key words `[2, R]`; functions of one run see none of these axes. `t` is an int32 scalar, the index of a round.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Generator, Hashable, Mapping
from types import TracebackType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxroute.core import draws, numerics, protocols, xla
from jaxroute.core.batching.dependence import is_key
from jaxroute.core.batching.indexing import enter
from jaxroute.core.batching.lanes import exactly, lanes
from jaxroute.core.protocols import AnyEnvironment, AnyPolicy, PolicyOf, Sampler, is_environment, is_policy, stage_length_of
from jaxroute.core.types import Metric, PyTree, Spec, classes_of
from jaxroute.engine.precision import widened

# Rounds of one inner scan: a float32 partial sum stays short, and records are sums of partial sums.
LONGEST_CHUNK = 4096
# Runs of one device come in multiples of this, so that a run's arithmetic does not depend on the number of its neighbours.
LANE_MULTIPLE = 16

# Names of two counters: rounds in which feedback or Info have a NaN, and whether the states have one.
NAN_ROUNDS, NAN_STATES = "nan/rounds", "nan/states"
# Prefix of the names of the arrays of a state; the index of the array follows.
STATE = "state/"

# Streams of random keys of a run.
STREAMS: tuple[str, ...] = ("instance", "env_init", "env", "policy_init", "plan", "act", "update")
_METHODS = ("init", "observe", "plan", "act", "step", "update", "gauges")

# Arrays by name.
Arrays = dict[str, jax.Array]
# States of environment and policy.
States = tuple[PyTree, PyTree]
# The entries `env` and `policy`, each present only if it differs between runs.
Instance = dict[str, Any]


class Record(NamedTuple):
    """Quantities that are recorded for a policy (static).

    Attributes:
      every: rounds between two records.
      flows: metrics of the environment's flows (values of a round that are summed over rounds).
      info: metrics of the policy's Info (dict that `act` returns beside the action).
      env_gauges: metrics of the environment's state, read at record times.
      policy_gauges: metrics of the policy's state, read at record times.
      zero_flows: names of flows that must be zero; the sums of their absolute values are recorded and checked afterwards.
      probes: pairs of name and function `(env, policy, env_state, policy_state, t) -> array or dict`.
    """

    every: int
    flows: tuple[Metric, ...] = ()
    info: tuple[Metric, ...] = ()
    env_gauges: tuple[Metric, ...] = ()
    policy_gauges: tuple[Metric, ...] = ()
    zero_flows: tuple[str, ...] = ()
    probes: tuple[tuple[str, Callable[..., Any]], ...] = ()

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """All recorded metrics of the environment and the policy, without probes."""
        return (*self.flows, *self.info, *self.env_gauges, *self.policy_gauges)

    @property
    def names(self) -> list[str]:
        return [metric.name for metric in self.metrics]


class SimulationError(ValueError):
    """Error of a policy that does not fit an environment: a method of one fails on values that the other has returned."""


@contextlib.contextmanager
def explained(name: str, env: AnyEnvironment, policy: AnyPolicy) -> Generator[None, None, None]:
    """Context manager to trace rounds of policy `name`. Errors of methods become a `SimulationError` that names policy, environment and method."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        reason, where = str(error).strip().partition("\n")[0][:300], ""
        trace: TracebackType | None = error.__traceback__
        while trace is not None and not where:
            code, owner = trace.tb_frame.f_code, trace.tb_frame.f_locals.get("self")
            where = f", in {type(owner).__name__}.{code.co_name}" if owner is not None and code.co_name in _METHODS else ""
            trace = trace.tb_next
        homes = [f"{type(one).__name__} of {type(one).__module__}" for one in (policy, env)]
        raise SimulationError(
            f"policy {name!r} ({homes[0]}) does not fit {homes[1]}{where}: {type(error).__name__}: {reason}"
        ) from error


def once(function: Callable[..., Any] | str, *args: Any, **static: Any) -> Any:
    """Returns `function(*args, **static)`. The function is traced only once for all programs in which its arguments have equal structure and types.

    Args:
      function: function at the top level of a module, or the name of a method of the first argument. Closures would be traced each time.
      args: pytrees of arrays. If they contain other objects, the function is called normally, without a shared trace.
      static: keyword arguments of the function, hashable.
    """
    arrays = all(hasattr(leaf, "dtype") or isinstance(leaf, (bool, int, float)) for leaf in jax.tree.leaves(args))
    call = _traced_once if arrays else _called
    return call(function, tuple(static.items()), classes_of(args), *args)


def _called(
    function: Callable[..., Any] | str, static: tuple[tuple[str, Any], ...], classes: tuple[type, ...], *args: Any
) -> Any:
    del classes  # Part of the cache key.
    whole, others = (getattr(args[0], function), args[1:]) if isinstance(function, str) else (function, args)
    return whole(*others, **dict(static))


_traced_once = jax.jit(_called, static_argnums=(0, 1, 2), inline=True)
_measured: dict[Any, Any] = {}  # Results of `traced_once`.


def traced_once(what: Hashable, trace: Callable[[Any, Any], Any], env: AnyEnvironment, policy: AnyPolicy) -> Any:
    """Returns `trace(env, policy)`, called with shapes instead of arrays. The result is stored for calls with equal `what`, structure and types."""
    leaves, structure = jax.tree.flatten((env, policy))
    types = tuple((np.shape(leaf), str(jnp.result_type(leaf))) for leaf in leaves)
    key = (what, structure, types, jax.config.read("jax_enable_x64"))
    if key not in _measured:
        shapes = [jax.ShapeDtypeStruct(np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves]
        with jax.default_device(jax.local_devices()[0]):  # As for programs, which then share these traces.
            _measured[key] = trace(*jax.tree.unflatten(structure, shapes))
    return _measured[key]


def made_for(
    env: AnyEnvironment, policy: AnyPolicy | PolicyOf, arithmetic: Callable[..., Any] = lambda made: made
) -> AnyPolicy:
    """Returns `policy` or, if it is a function, the policy that it builds for `env`. `arithmetic` wraps the function to fix its rounding."""
    return policy if is_policy(policy) else arithmetic(widened(functools.partial(protocols.build_policy, policy)))(env)


def spec_for(env: AnyEnvironment, horizon: int) -> Spec:
    """Returns the `Spec` of `env` with its field `horizon` set to the number of rounds of the run."""
    return dataclasses.replace(env.spec, horizon=horizon)


def chunk_length(record_every: int, free_rounds: int, stage_length: int | None) -> int:
    """Returns the number of rounds of an inner loop: `record_every` or, with stages, the greatest common divisor of all three arguments.

    If it exceeds `LONGEST_CHUNK`, its largest divisor from 256 to `LONGEST_CHUNK` is returned. If there is none, the result is `LONGEST_CHUNK`
    without stages (`stage_length` None); with stages the number stays as it is.
    """
    length = math.gcd(record_every, free_rounds, stage_length) if stage_length else record_every
    if length > LONGEST_CHUNK:
        divisors = [d for d in range(256, LONGEST_CHUNK + 1) if length % d == 0]
        length = divisors[-1] if divisors else length if stage_length else LONGEST_CHUNK
    return length


def run_streams(root: Any, seeds: Any) -> Arrays:
    """Returns the random keys from which each of `R` runs draws, as two 32-bit words: uint32 `[2, R]` for each stream of keys, by name.

    The key of a run is `fold_in(root, seed)`, for the two words `root` `[2]` of the root key and uint32 `seeds` `[R]`. Its children are the streams:
    the instance, the environment's init and rounds, and the policy's init, plan, act and update. Round `t` of a stream uses `fold_in(stream, t)`.
    """

    def streams(seed: jax.Array) -> Arrays:
        run_key = jax.random.key_data(draws.fold_in(draws_key(root), seed))
        words = draws.child_words(run_key[0], run_key[1], np.arange(len(STREAMS), dtype=np.uint32))
        return {name: words[:, i] for i, name in enumerate(STREAMS)}

    return lanes(streams, seeds.shape[-1])(seeds)


def draws_key(words: Any) -> jax.Array:
    """Returns the typed random key that consists of two 32-bit words, `[2]`."""
    return jax.random.wrap_key_data(words, impl=draws.KEY_IMPL)


def state_bytes(leaf: Any) -> int:
    """Returns the size of an array of a state in bytes. Random keys count as 0, because their size is unknown on the host."""
    return 0 if jnp.issubdtype(leaf.dtype, jax.dtypes.extended) else leaf.size * leaf.dtype.itemsize


def bytes_of_run(env: AnyEnvironment, policy: AnyPolicy) -> int:
    """Returns how many bytes the states of environment and policy take in one run."""

    def start(env: AnyEnvironment, policy: AnyPolicy, key: jax.Array) -> tuple[Any, Any]:
        return once("init", env, key), once(protocols.first_state, env, policy, key, spec=spec_for(env, 1))

    def trace(env: AnyEnvironment, policy: AnyPolicy) -> int:
        return sum(map(state_bytes, jax.tree.leaves(jax.eval_shape(widened(start), env, policy, draws.key(0)))))

    return traced_once("state", trace, env, policy)


@dataclasses.dataclass(frozen=True)
class Run:
    """Functions and sizes with which a back end simulates `R` runs of one environment and one policy; the functions are those of a single run.

    Attributes:
      instance: environment and policy by name, where each run has its own, with the runs on the last axis of arrays; empty if all runs share both.
      words: words of the random keys `[2, R]` by stream, except the stream of the instance.
      size: number of runs, `R`.
      free_rounds: rounds at the start that are not counted.
      stage_length: rounds per stage, None without stages.
      chunk: number of rounds of the inner loop.
      start: `(instance, words) -> states` before the first round.
      plan: `(instance, words, states, t) -> states` at the start of a stage.
      round: `(instance, words, states, t) -> (states, values)` of a round; the back end adds up `values` over rounds.
      read: `(instance, words, states, t) -> gauges and probes` at a record time.
    """

    instance: Instance
    words: Arrays
    size: int
    free_rounds: int
    stage_length: int | None
    chunk: int
    start: Callable[..., States]
    plan: Callable[..., States]
    round: Callable[..., tuple[States, Arrays]]
    read: Callable[..., dict[str, Any]]


def one_run(
    env: AnyEnvironment | Sampler,
    policy: AnyPolicy | PolicyOf,
    streams: Mapping[str, jax.Array],
    horizon: int,
    record: Record,
) -> Run:
    """Builds the `Run` of `R` runs with random keys `streams`, words `[2, R]` by name. `env` may be a sampler, and `policy` a function of `env`."""
    size = streams["env"].shape[-1]
    instance: Instance = {}
    if is_environment(env):
        shared: Instance = {"env": env, "policy": made_for(env, policy, exactly)}
        example = shared
    else:
        sampler: Any = env
        build: Any = policy

        def drawn(words: jax.Array) -> Instance:
            env = sampler(draws_key(words))
            return {"env": env} | ({} if is_policy(build) else {"policy": build(env)})

        draw_instance = widened(drawn)
        instance = lanes(draw_instance, size)(streams["instance"])
        shared = {"policy": policy} if is_policy(policy) else {}
        example = shared | jax.eval_shape(draw_instance, jax.ShapeDtypeStruct((2,), jnp.uint32))
    env_spec, stage_length = example["env"].spec, stage_length_of(example["env"], example["policy"])
    spec = spec_for(example["env"], horizon)

    def components(shared: Instance, instance: Instance) -> tuple[Any, Any]:
        both = shared | instance
        return both["env"], both["policy"]

    def of_run(function: Callable[..., Any]) -> Callable[..., Any]:
        return functools.partial(widened(function), shared)

    def at(stream: jax.Array, t: jax.Array) -> jax.Array:
        return draws.fold_in(draws_key(stream), t)

    def start(shared: Instance, instance: Instance, words: Arrays) -> States:
        env, policy = components(shared, instance)
        env_state = once("init", env, draws_key(words["env_init"]))
        states = env_state, once(protocols.first_state, env, policy, draws_key(words["policy_init"]), spec=spec)
        return jax.tree.map(strong, states)

    def plan(shared: Instance, instance: Instance, words: Arrays, states: States, t: jax.Array) -> States:
        (env, policy), (env_state, policy_state) = components(shared, instance), states
        obs = once("observe", env, at(words["env"], t), env_state, t)
        return env_state, once("plan", policy, at(words["plan"], t), policy_state, obs, t)

    def one_round(
        shared: Instance, instance: Instance, words: Arrays, states: States, t: jax.Array
    ) -> tuple[States, Arrays]:
        (env, policy), (env_state, policy_state) = components(shared, instance), states
        env_key = at(words["env"], t)
        obs = once("observe", env, env_key, env_state, t)
        action, info = once("act", policy, at(words["act"], t), policy_state, obs, t)
        env_state, feedback, flows = once("step", env, env_key, env_state, action, t)
        policy_state = once("update", policy, at(words["update"], t), policy_state, obs, action, feedback, t)
        return (env_state, policy_state), recorded_flows(record, flows, info, feedback)

    def read(shared: Instance, instance: Instance, words: Arrays, states: States, t: jax.Array) -> dict[str, Any]:
        del words
        return recorded_gauges(record, *components(shared, instance), *states, t)

    return Run(
        instance=instance,
        words={k: v for k, v in streams.items() if k != "instance"},
        size=size,
        free_rounds=env_spec.free_rounds,
        stage_length=stage_length,
        chunk=chunk_length(record.every, env_spec.free_rounds, stage_length),
        start=of_run(start),
        plan=of_run(plan),
        round=of_run(one_round),
        read=of_run(read),
    )


def recorded_flows(record: Record, flows: Mapping[str, Any], info: Mapping[str, Any], feedback: PyTree) -> Arrays:
    """Returns those values of one round (flows, Info, feedback) that are summed over rounds for `record`, float32 by name.

    `zero/<name>` is the absolute value of a flow that must be zero. `NAN_ROUNDS` is 1 if feedback or Info contain a NaN.
    """
    sums = {NAN_ROUNDS: any_nan((feedback, info))} | {m.name: flows[m.name] for m in record.flows}
    sums |= {m.name: info[m.name.removeprefix("info.")] for m in record.info}
    sums |= {f"zero/{name}": jnp.abs(flows[name]) for name in record.zero_flows}
    return {k: jnp.asarray(v).astype(jnp.float32) for k, v in sums.items()}


def recorded_gauges(
    record: Record, env: Any, policy: Any, env_state: PyTree, policy_state: PyTree, t: jax.Array
) -> dict[str, Any]:
    """Returns the gauges and probes in `record`, by name, after `t` rounds (free ones count). `NAN_STATES` is True if a state contains a NaN."""
    values: dict[str, Any] = {NAN_STATES: any_nan((env_state, policy_state))}
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


def any_nan(tree: PyTree) -> jax.Array:
    """Returns a boolean scalar: whether any floating-point array of the pytree contains a NaN."""
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    floats = [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.size]
    found = [numerics.has_nan(leaf) for leaf in xla.compute_once(floats)]
    return functools.reduce(jnp.logical_or, found, jnp.bool_(False))


def strong(leaf: Any) -> jax.Array:
    """Converts a value to an array whose type is not "weak" in JAX, so that a round does not change the types of states; keys stay unchanged."""
    array = jnp.asarray(leaf)
    return array if is_key(array) else lax.convert_element_type(array, array.dtype)


def leaves_of(states: States) -> Arrays:
    """Converts the states of `R` runs to plain arrays `[..., R]` by name, for storage; random keys become their 32-bit words."""
    return {f"{STATE}{number}": enter(leaf).array for number, leaf in enumerate(jax.tree.leaves(states))}


def states_of(leaves: Mapping[str, jax.Array], like: States) -> States:
    """Restores the states of `R` runs from `leaves`, the result of `leaves_of`; `like` has the structure and types of the states."""
    shapes, structure = jax.tree.flatten(like)

    def typed(leaf: jax.Array, shape: Any) -> jax.Array:
        return draws_key(jnp.moveaxis(leaf, -2, -1)) if is_key(shape) else leaf

    return jax.tree.unflatten(structure, [typed(leaves[f"{STATE}{n}"], shape) for n, shape in enumerate(shapes)])
