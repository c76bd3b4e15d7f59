"""Maps over policies, settings, instances and seeds: `simulate`."""

import json
import math
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.sharding import NamedSharding, PartitionSpec

from jaxroute.core import checks, draws
from jaxroute.core.types import Metric, Spec
from jaxroute.engine import diagnose, hosts, stopping
from jaxroute.engine.batching.lanes import compile_lanes
from jaxroute.engine.grid import FunctionGrid, Grid
from jaxroute.engine.rollout import (
    Record,
    build_policy,
    first_state,
    leaf_dependence,
    rollout,
    run_streams,
    spec_for,
    stage_length_of,
    state_bytes,
)
from jaxroute.store import locks, provenance
from jaxroute.store.description import fingerprint, store_path, stored_layout
from jaxroute.store.moments import MomentSink
from jaxroute.store.runs import Sink

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # tqdm.auto warns in notebooks without ipywidgets, and then shows its text bar
    from tqdm.auto import tqdm

# Runs x settings of one compiled call on a CPU core: enough to fill the vector units, few enough to stay in cache.
_CPU_LANES = 1024
# Runs with large states (a history, a long queue) are fewer: about as many as fit into this many bytes, but not below a number.
_CPU_CACHE = 8 << 20
_FEWEST_CPU_LANES = 128
_GPU_LANES = 1 << 17
# Settings of a compiled call along an axis that leaves most of a run's state as it is, and how many more runs fit in cache then.
_SHARED_TILE = 16
_LIGHT_LANES = 16
# With fewer settings than this the layout is not worth looking at the flow of data.
_FEW_SETTINGS = 5
# Runs of one device come in multiples of this, so that a run's arithmetic does not depend on its neighbours' number.
_LANE_MULTIPLE = 16
# A CPU thread is worth its start from about this many runs on.
_FEWEST_LANES = 32

# Who plays the rounds: a scan, or one kernel.
BACKENDS = ("scan", "pallas")
# What stays of the runs: all of them, or their statistics.
KEPT = ("runs", "moments")
# Bytes of the curves of a block, where they are not kept.
_CURVES = 1 << 30
_DIMENSIONS = ("policy", "baseline", "seed", "time", "model")

# Compiled programs that are kept for the next call. Each takes some hundred memory mappings, of which a process of Linux may have 65,530.
_MOST_PROGRAMS = 64

_traces = 0
_programs: "dict[Any, _Program]" = {}  # by what they depend on, the last used at the end
_shapes: dict[Any, Any] = {}


def trace_count() -> int:
    """Number of times a rollout has been traced in this process."""
    return _traces


def simulate(
    env: Any,
    policies: Any,
    *,
    horizon: int,
    seeds: int | Sequence[int],
    record_every: int | None = None,
    record: Sequence[str] | None = None,
    probes: Mapping[str, Callable] | None = None,
    instances: int | None = None,
    out: str | os.PathLike | None = None,
    key: int = 0,
    block: int | None = None,
    devices: Sequence[Any] | None = None,
    mesh: jax.sharding.Mesh | None = None,
    progress: bool = True,
    backend: str = "scan",
    keep: str = "runs",
    until_stderr: Mapping[str, float] | None = None,
    description: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    """Plays every policy on every setting for every seed, and returns the recorded curves.

    Args:
      env: an environment, a `Grid` of environments, or a sampler `key -> Environment` (a random instance per run, or
        `instances` of them shared by all seeds).
      policies: dict of name to policy; an entry may be a `Grid`, or a function `env -> policy` (an oracle), which follows a
        swept environment. A single policy is named after its class.
      horizon: `T`, counted rounds.
      seeds: number of seeds (0, 1, ...), or the seeds themselves. Seed `i` is the same run in any batch, on any number of
        devices, resumed or not.
      record_every: rounds between two points of a curve (default: 100 points).
      record: names of metrics to record (default: those that environment and policy mark as default); `"info.<name>"` records
        the running mean of an entry of a policy's Info.
      probes: functions `(env, policy, env_state, policy_state, t) -> array or dict`, read at record times.
      instances: number of random instances if `env` is a sampler.
      out: folder of a store. Every finished block is written there; a run that was killed continues where it stopped, and a
        store of other settings is refused.
      key: the root of all randomness; another key gives other luck to the same seeds.
      block: seeds per compiled call (default: by device and memory).
      devices: seeds are sharded over these (default: all local devices).
      mesh: in place of `devices`, a mesh of one axis over devices of this process or of several, after
        `jax.distributed.initialize`. All processes make the same call with the same `out`, which they share; each plays its share of
        the blocks, the first writes the provenance, and all return the whole result.
      progress: shows a progress bar.
      backend: "scan", a compiled scan over rounds, or "pallas", which plays the whole horizon of a run in one kernel, its state in
        registers: for GPUs, and for policies and environments with up to some hundreds of numbers. The streams are the same; the
        results are equal up to the rounding of sums. What does not fit into a kernel is played by the scan, with a warning and the
        reason in the attribute `fell_back`. On a CPU the kernel is only interpreted, for tests: compiling it takes long.
      keep: "runs", every run's curves, or "moments", only their statistics over the seeds: count, mean, variance, minimum, maximum and
        histogram of each metric at each recorded time, and of the differences between policies, seed by seed. Memory and store then do
        not grow with the number of seeds; `metrics` and `plot` answer the same questions, but for those about single runs.
      until_stderr: standard errors by metric, for example `{"regret": 0.5}`: the run stops when that of every policy and setting at the
        horizon is smaller; `seeds` is then the most that are played. It is looked at after 256 seeds (or the first block) and then each
        time their number has doubled. Whether to stop depends on the sample variance alone, which says nothing about the error of the
        mean where the two are independent (normal) or uncorrelated (symmetric distributions): the mean stays unbiased. Elsewhere their
        correlation is `r = skewness / sqrt(excess kurtosis + 2)`, and stopping prefers samples with too small a mean (for `r > 0`) by
        up to 0.2 r of a standard error, reached if the goal lies just at a look; mostly it lies between two, which are so far apart
        that luck hardly decides. None of this holds where events that matter are too rare to be seen at the first looks (a disaster
        in one run of a thousand): there give a fixed number of seeds. Several processes wait for each other at every look.
      description: more attributes for the result.

    Returns:
      An `xarray.Dataset` with dimensions `(policy, settings..., seed, time, ...)`, see `jaxroute.results`; of moments without seeds, see
      `jaxroute.streamed.dataset`. With `until_stderr` the attributes say how many seeds were played (`seeds_played`), whether the goal
      was reached, and the largest standard errors.

    Raises:
      ValueError: an argument is out of range, a name is unknown, or the store belongs to other settings or to a run that is still
        going on.
      OSError: the store cannot be written. MemoryError: not even the smallest block fits into memory.
      HostsError: another process of the mesh did not finish its blocks.
    """
    if mesh is not None and devices is not None:
        raise ValueError("mesh takes the place of devices; give one of them")
    with hosts.Crew(mesh, _device_list(devices), out) as crew:
        return _simulate(
            crew,
            env,
            policies,
            horizon=horizon,
            seeds=seeds,
            record_every=record_every,
            record=record,
            probes=probes,
            instances=instances,
            out=out,
            key=key,
            block=block,
            progress=progress,
            backend=backend,
            keep=keep,
            until_stderr=until_stderr,
            description=description,
        )


def _simulate(
    crew: hosts.Crew,
    env: Any,
    policies: Any,
    *,
    horizon: int,
    seeds: int | Sequence[int],
    record_every: int | None,
    record: Sequence[str] | None,
    probes: Mapping[str, Callable] | None,
    instances: int | None,
    out: str | os.PathLike | None,
    key: int,
    block: int | None,
    progress: bool,
    backend: str,
    keep: str,
    until_stderr: Mapping[str, float] | None,
    description: Mapping[str, Any] | None,
) -> xr.Dataset:
    """`simulate`, as one process of a crew."""
    horizon = checks.count("horizon", horizon, maximum=2**31 - 1)
    numbers = _seed_list(seeds)
    policies = _named(policies)
    if record_every is None:
        record_every = max(1, horizon // 100)
    record_every = min(checks.count("record_every", record_every), horizon)
    if block is not None:
        block = checks.count("block", block)
    if isinstance(key, bool) or not isinstance(key, (int, np.integer)) or not 0 <= key < 2**32:
        raise ValueError(f"key must be a whole number from 0 to 2**32 - 1, got {checks.show(key)}")
    devices = crew.devices
    checks.one_of("backend", backend, BACKENDS)
    checks.one_of("keep", keep, KEPT)
    try:
        json.dumps(dict(description or {}), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"description must be a dict of plain JSON values, got {checks.show(description)}: {error}"
        ) from None
    env = _as_grid("env", env, instances)
    policies = {name: _as_grid(f"policy {name!r}", policy) for name, policy in policies.items()}
    examples = {name: _example(name, env, policy) for name, policy in policies.items()}
    _check_values(env, policies, examples, horizon)
    _warn_horizon(horizon, env, policies)
    spec = next(iter(examples.values()))[0].spec
    records = _make_records(spec, examples, record, record_every, {} if probes is None else probes)
    axes = _setting_axes(env, policies, records)
    goals = stopping.goals(until_stderr, _recorded(records))
    settings = {
        "problem": problem_of(examples[next(iter(examples))][0]),
        "environment": provenance.describe(env),
        "policies": {name: provenance.describe(policy) for name, policy in policies.items()},
        "horizon": horizon,
        "record_every": record_every,
        "record": {name: provenance.describe(rec) for name, rec in records.items()},
        "key": int(key),
        "seeds": provenance.describe(numbers),
    }
    if backend != "scan":
        settings["backend"] = backend  # A store made before there was a choice belongs to the scan.
    if keep != "runs":
        settings["keep"] = keep
    if until_stderr is not None:
        settings["until_stderr"] = goals
    stops = np.unique(np.append(np.arange(record_every, horizon + 1, record_every), horizon))
    most = _runs_that_fit(examples, records, len(stops), devices)
    if keep == "moments":  # The curves of all policies of a block are in memory at the same time, for their differences.
        most = min(most, max(1, _CURVES // (8 * len(stops) * sum(_numbers(record, spec) for record in records.values()))))

    def cut() -> dict[str, Any]:
        stored = stored_layout(out, settings)
        if stored:
            return stored
        held = max(_state_bytes(*example) for example in examples.values())
        each = -(-len(numbers) // crew.size)  # Every process gets some blocks of seeds.
        return asdict(_Layout.choose(axes, _shared_axes(env, policies), each, block, most, devices, held))

    if out is not None:
        crew.hold(lambda: locks.StoreLock(store_path(out)))
    crew.check_same(fingerprint(settings))
    layout = _Layout(**crew.agree(cut))
    padded = layout.padded(len(devices))
    calls = {
        n: _Call(
            f"policy {n!r} on {type(examples[n][0]).__name__}",
            env,
            p,
            records[n],
            horizon,
            int(key),
            layout,
            devices,
            backend,
        )
        for n, p in policies.items()
    }
    start = time.perf_counter()
    variables = _variables(records, calls)  # Traces every policy.
    compile_s = time.perf_counter() - start
    owners = {metric: [name for name, call in calls.items() if metric in call.shapes()] for metric in goals}
    own_axes = {name: [a for a in axes if a in env.axes or a in policy.axes] for name, policy in policies.items()}

    def make_sink() -> Sink | MomentSink:
        common: dict[str, Any] = {
            "policies": list(policies),
            "axes": axes,
            "seeds": numbers,
            "times": stops,
            "variables": variables,
            "model_names": spec.model_names,
            "zero_flows": spec.zero_flows,
            "settings": settings,
            "layout": layout,
            "repair": crew.rank == 0,
        }
        if keep == "runs":
            return Sink(out, **common)
        memory = provenance.memory_limit(jax.local_devices(backend="cpu")[0])
        return MomentSink(out, own_axes=own_axes, memory=memory, rank=crew.rank, **common)

    sink = crew.in_turn(make_sink)
    tasks = [
        (name, tile, b)
        for name in policies
        for tile in layout.tiles({a: axes[a] for a in own_axes[name]})
        for b in range(layout.blocks(len(numbers)))
    ]
    tasks.sort(key=sink.order)
    tasks = [tasks[i] for i in crew.agree(lambda: [i for i, task in enumerate(tasks) if not sink.is_done(*task)])]
    tasks = sink.share(tasks, crew.rank, crew.size)
    start = time.perf_counter()
    _compile([calls[name] for name in dict.fromkeys(name for name, *_ in tasks)])
    compile_s += time.perf_counter() - start
    run_s, decisions = 0.0, 0
    looks = stopping.looks(len(numbers), layout.block) if goals else [layout.blocks(len(numbers))]
    played, seeds_played, met, errors = 0, 0, False, {}

    def look():
        """Whether the goals are reached, and the largest standard errors, by all that has been played."""
        if sink.begun(played):  # A run that has gone on before goes on.
            return False, {}
        sink.settle(crew.late_s)
        return stopping.reached(goals, {m: sink.errors(m, owners[m], played) for m in goals})

    with tqdm(total=len(tasks), disable=not progress or not tasks or crew.rank > 0, unit="block", leave=False) as bar:
        for blocks in looks:
            for name, tile, b in [task for task in tasks if played <= task[2] < blocks]:
                bar.set_description(name)
                chosen = numbers[b * layout.block : (b + 1) * layout.block]
                start = time.perf_counter()
                values, compiling = calls[name].run(tile, np.resize(chosen, padded))
                run_s += time.perf_counter() - start - compiling
                compile_s += compiling
                counts = {a: min(layout.tile[a], len(axes[a]) - first) for a, first in tile.items()}
                decisions += horizon * len(chosen) * math.prod(counts.values())
                real = tuple(slice(c) for c in (*counts.values(), len(chosen)))  # without padding
                values = {k: v[real] for k, v in values.items()}
                runs = tuple(s.stop for s in real)
                sink.write(name, tile, b, _accumulate(values, records[name], stops, runs))
                bar.update()
            played, seeds_played = blocks, sink.stop(blocks)
            if goals:
                crew.gather({}, sink.missing)
                met, errors = crew.agree(look)
            if met:
                break
    _forget_programs()
    measured = crew.gather({"compile_s": compile_s, "run_s": run_s, "decisions": decisions}, sink.missing)
    ended = {"seeds_played": seeds_played, "until_stderr": {"goal": goals, "reached": met, "stderr": errors}}
    data = sink.finish(crew.late_s)
    fell_back = {name: call.reason for name, call in calls.items() if call.reason}

    def report() -> dict[str, Any]:
        found = diagnose.first_bad_rounds(data, env, policies, records, horizon, int(key), devices[0])
        own = {"processes": crew.size, "backend": backend, "fell_back": fell_back, **measured}
        own |= {"invalid": found} if found else {}
        own |= ended if goals else {}
        return sink.sign({**provenance.provenance(crew.everyone, **own), **(description or {})})

    data.attrs = crew.agree(report)
    _warn_invalid(data)
    if goals and not met:
        warnings.warn(
            f"the standard errors after {ended['seeds_played']} seeds are not below the goal, until_stderr={goals}: the largest are {errors}",
            stacklevel=3,
        )
    return data


def _compile(calls: "Sequence[_Call]") -> None:
    """Compiles the blocks of several policies at the same time; what does not compile says so when it is played."""
    pool = ThreadPoolExecutor(_cores())
    try:
        wait([call.compile_in(pool) for call in calls])
    finally:
        pool.shutdown(cancel_futures=True)  # Interrupted, it does not compile all the others first.


def _forget_programs() -> None:
    """Drops the programs that have not been used for longest."""
    for key in list(_programs)[:-_MOST_PROGRAMS]:
        del _programs[key]


def _cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _threads(devices, runs: int) -> int:
    """Into how many equal parts a block is cut that are played at the same time: a CPU computes small operations on one core."""
    if devices[0].platform != "cpu" or len(devices) > 1:
        return 1
    number = 1
    while number * 2 <= _cores() and runs % (number * 2 * _LANE_MULTIPLE) == 0 and runs // (number * 2) >= _FEWEST_LANES:
        number *= 2
    return number


@dataclass(eq=False)
class _Program:
    """A block that was traced (`lowered`), and its compilation; or the reason why a kernel does not play it."""

    lowered: Any = None
    compiled: Future | None = None
    reason: str = ""


class _Call:
    """One policy's compiled block: its trace, its executable, and the running of one tile of settings and block of seeds."""

    def __init__(
        self,
        name: str,
        env: Grid,
        policy: Grid,
        record: Record,
        horizon: int,
        key: int,
        layout: "_Layout",
        devices,
        backend: str,
    ):
        self.name, self.grids = name, (env, policy)
        self.axes = [*env.axes, *policy.axes]
        self.layout = layout
        self.mesh = jax.sharding.Mesh(np.asarray(devices), ("seed",))
        self.threads = _threads(devices, layout.padded(len(devices)))
        self.root = np.asarray(jax.random.key_data(draws.key(key)))
        self.static = (record, horizon, tuple(devices), jax.config.read("jax_enable_x64"))
        self.backend, self.reason = backend, ""  # Why the scan plays in place of the kernel.

    def _arguments(self, tile: Mapping[str, int], seeds: np.ndarray):
        positions = {}
        for grid in self.grids:
            for name, coordinates in grid.axes.items():
                span = tile[name] + np.arange(self.layout.tile[name])
                positions[name] = np.minimum(span, len(coordinates) - 1)  # The last tile repeats its last setting.
        index = [np.zeros(self.layout.tile[a], np.int32) for a in self.axes]
        return tuple(tuple(g.tile(positions)) for g in self.grids), index, self.root, np.asarray(seeds, np.uint32)

    def _function(self):
        env, policy = self.grids
        record, horizon, *_ = self.static
        player = rollout if self.backend == "scan" else _kernel_player(self.mesh.devices.flat[0].platform)

        def play(leaves, index, root, seeds):
            global _traces
            _traces += 1
            del index
            streams = run_streams(root, seeds)
            values = player(env.build(leaves[0]), policy.build(leaves[1]), streams, horizon, record)
            return jax.tree.map(lambda v: jnp.moveaxis(v, -1, 0), values)

        # One vmap per axis of settings, outermost first, around the scan: it finds by itself which parts of the state depend
        # on a swept leaf. The unused `index` gives every vmap something to map.
        function = play
        for axis in reversed(range(len(self.axes))):
            own = axis if axis < len(env.axes) else axis - len(env.axes)
            leaf_axes = tuple(
                tuple(
                    0 if g is (env if axis < len(env.axes) else policy) and own in varies else None for varies in g.leaf_axes
                )
                for g in self.grids
            )
            index_axes = [0 if i == axis else None for i in range(len(self.axes))]
            function = jax.vmap(function, in_axes=(leaf_axes, index_axes, None, None))
        if self.mesh.size == 1:
            return function
        everywhere, by_seed = PartitionSpec(), PartitionSpec("seed")
        out = PartitionSpec(*[None] * len(self.axes), "seed")
        specs = (everywhere, everywhere, everywhere, by_seed)
        return jax.shard_map(function, mesh=self.mesh, in_specs=specs, out_specs=out, check_vma=False)

    def lower(self, seeds: np.ndarray) -> _Program:
        """The traced block for this number of seeds, from the cache if an equal one has been traced before."""
        arguments = self._arguments(dict.fromkeys(self.axes, 0), seeds)
        shapes = tuple((a.shape, str(a.dtype)) for a in jax.tree.leaves(arguments))
        structure = (*(g.structure for g in self.grids), *(tuple(g.leaf_axes) for g in self.grids))
        key = (*structure, shapes, self.static, self.backend)
        entry = _programs.pop(key, None)
        if entry is None:
            try:
                with jax.default_device(self.mesh.devices.flat[0]):
                    entry = _Program(jax.jit(self._function()).lower(*arguments))
            except Exception as error:
                if self.backend == "scan":
                    raise
                # Whatever is wrong besides, the scan will say.
                entry = _Program(reason=_first_line(error))
        _programs[key] = entry
        return self._fall_back(entry, seeds) if entry.reason else entry

    def _fall_back(self, entry: _Program, seeds: np.ndarray) -> _Program:
        """The scan's block in place of the kernel's, whose entry gives the reason."""
        self.backend, self.reason = "scan", entry.reason
        warnings.warn(f"{self.name} does not fit into a kernel, and is played by the scan: {self.reason}", stacklevel=2)
        return self.lower(seeds)

    def _any_seeds(self) -> np.ndarray:
        """As many seeds as one compiled call plays."""
        return np.zeros(self.layout.padded(self.mesh.size) // self.threads)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each recorded quantity in one run, without time."""
        info = self.lower(self._any_seeds()).lowered.out_info
        lead = len(self.axes) + 1  # settings and runs; then records
        return {name: tuple(out.shape[lead + 1 :]) for name, out in info.items()}

    def compile_in(self, pool: ThreadPoolExecutor, seeds: np.ndarray | None = None) -> Future:
        """Begins to compile the block, for this number of seeds or the usual one, unless an equal one has been compiled, or is being."""
        entry = self.lower(self._any_seeds() if seeds is None else seeds)
        begun = entry.compiled
        if begun is None or begun.cancelled() or (begun.done() and begun.exception()):
            begun = entry.compiled = pool.submit(compile_lanes, entry.lowered, self.mesh.devices.flat[0].platform)
        return begun

    def _program(self, seeds: np.ndarray) -> Callable:
        """The compiled block for this number of seeds; the scan's, where the kernel does not compile."""
        entry = self.lower(seeds)
        if entry.compiled is None:  # Part of a block that did not fit into memory, or in place of a kernel.
            with ThreadPoolExecutor(1) as pool:
                self.compile_in(pool, seeds)
        assert entry.compiled is not None
        try:
            return entry.compiled.result()
        except jax.errors.JaxRuntimeError as error:
            if self.backend == "scan":
                raise
            entry.reason = _first_line(error)
            return self._program(seeds)

    def run(self, tile: Mapping[str, int], seeds: np.ndarray) -> tuple[dict[str, np.ndarray], float]:
        """Plays the block; returns increments `[settings..., R, records, ...]` and the seconds spent compiling.

        A block that does not fit into memory is halved.
        """
        start = time.perf_counter()
        parts = np.split(seeds, self.threads)
        program = self._program(parts[0])
        compiling = time.perf_counter() - start
        precision = jax.config.read("jax_enable_x64")  # A setting of this thread, not of those below.

        def play(part):
            with jax.enable_x64(precision), jax.default_device(self.mesh.devices.flat[0]):
                leaves, index, root, part = self._arguments(tile, part)
                if self.mesh.size > 1:
                    part = jax.device_put(part, NamedSharding(self.mesh, PartitionSpec("seed")))
                return jax.device_get(program(leaves, index, root, part))

        try:
            with ThreadPoolExecutor(self.threads) as pool:
                return self._joined(list(pool.map(play, parts))), compiling
        except jax.errors.JaxRuntimeError as error:
            half = len(seeds) // 2
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            if half % (_LANE_MULTIPLE * self.mesh.size * self.threads):
                raise MemoryError(
                    f"a block of {len(seeds)} seeds does not fit into memory, and is too small to be halved; what is finished is kept"
                ) from error
            warnings.warn(f"a block of {len(seeds)} seeds does not fit into memory; halving it", stacklevel=4)
            (first, a), (second, b) = (self.run(tile, part) for part in (np.asarray(seeds)[:half], np.asarray(seeds)[half:]))
            return self._joined([first, second]), compiling + a + b

    def _joined(self, parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """The values of several parts of the seeds as those of all."""
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts], axis=len(self.axes)) for name in parts[0]}


def _kernel_player(platform: str) -> Callable:
    """`rollout` by one kernel, on this platform."""
    from jaxroute.engine.pallas import kernel

    return kernel.player(platform)


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]


def _accumulate(
    values: dict[str, np.ndarray], record: Record, stops: np.ndarray, runs: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Curves in float64 from the increments of the record intervals, and whether each run (of shape `runs`) is valid."""
    metrics = {m.name: m for m in (*record.flows, *record.info)}
    curves: dict[str, np.ndarray] = {}
    valid = np.ones(runs, bool)
    for name, raw in values.items():
        metric = metrics.get(name)
        if metric is None and not name.startswith("zero/"):
            curves[name] = raw
            continue
        time_axis = len(runs)
        total = np.cumsum(raw, axis=time_axis, dtype=np.float64)
        last = np.take(total, -1, axis=time_axis)
        extra = tuple(range(time_axis, last.ndim))
        valid = valid & np.isfinite(last).all(axis=extra)
        if metric is None:
            count = last.sum(axis=extra)
            curves[name.removeprefix("zero/")] = count
            valid = valid & (count == 0)
        elif metric.kind == "average":
            curves[name] = total / stops.reshape((-1,) + (1,) * len(metric.dims))
        else:
            curves[name] = total
    return curves | {"valid": valid}


def _variables(records: Mapping[str, Record], calls: Mapping[str, _Call]) -> dict[str, tuple[Metric, tuple[int, ...]]]:
    """Metric and shape of every recorded quantity, over all policies."""
    variables: dict[str, tuple[Metric, tuple[int, ...]]] = {}
    for name, record in records.items():
        metrics = {m.name: m for m in (*record.flows, *record.info, *record.env_gauges, *record.policy_gauges)}
        shapes = calls[name].shapes()
        for key in [*metrics, *(k for k in shapes if k not in metrics)]:
            if not key.startswith("zero/"):
                dims = tuple(f"{key}_{i}" for i in range(len(shapes[key])))
                variables.setdefault(key, (metrics.get(key, Metric(key, key, "", "gauge", dims)), shapes[key]))
    return variables


def run_bytes(env: Any, policy: Any) -> int:
    """Bytes of the state of one run: what thousands of runs at once take that many times.

    Leaves of environment and policy, which runs share, are not counted.

    Args:
      env: an environment, or a sampler. policy: a policy, or a function `env -> policy`.
    """
    example_env, example_policy = _example("policy", _as_grid("env", env), _as_grid("policy", policy))
    return _state_bytes(example_env, example_policy)


def _state_bytes(env, policy) -> int:
    def start(env, policy, key):
        return env.init(key), first_state(env, policy, key, spec_for(env, 1))

    return sum(map(state_bytes, jax.tree.leaves(_shapes_of("state", start, env, policy))))


def _shapes_of(what: str, function: Callable, env, policy) -> Any:
    """Shapes of `function(env, policy, key)`, from the cache if it has been traced for an equal structure before."""
    leaves, structure = jax.tree.flatten((env, policy))
    types = tuple((np.shape(leaf), str(jnp.result_type(leaf))) for leaf in leaves)
    key = (what, structure, types, jax.config.read("jax_enable_x64"))
    if key not in _shapes:
        _shapes[key] = jax.eval_shape(function, env, policy, draws.key(0))
    return _shapes[key]


def _runs_that_fit(examples, records: Mapping[str, Record], num_records: int, devices) -> int:
    """Runs whose states and curves fit into a quarter of the devices' memory: a guess that a halved block can correct.

    Raises:
      ValueError: not even the fewest runs that are played together fit into memory.
    """
    worst, memory = 1, provenance.memory_limit(devices[0])
    for name, (env, policy) in examples.items():
        numbers = _numbers(records[name], env.spec)
        held = _state_bytes(env, policy)
        if held * _LANE_MULTIPLE > memory:
            raise ValueError(
                f"policy {name!r} needs {held / 1e9:.3g} GB for the state of one run, and {_LANE_MULTIPLE} runs are played together: more "
                f"than the {memory / 1e9:.3g} GB of {devices[0].platform} memory; make the instance smaller"
            )
        worst = max(worst, 4 * num_records * numbers + 8 * held)
    return max(1, memory * len(devices) // 4 // worst)


def _numbers(record: Record, spec: Spec) -> int:
    """How many numbers a run writes at a record time."""
    metrics = (*record.flows, *record.info, *record.env_gauges, *record.policy_gauges)
    return sum(math.prod({"model": spec.num_models}.get(d, 1) for d in m.dims) for m in metrics) + len(record.zero_flows)


def _shared_axes(env: Grid, policies: Mapping[str, Grid]) -> tuple[str, ...]:
    """Axes of settings that leave most of a run's state as it is: a predictor that is trained alike whatever the settings are.

    In bytes, over all policies. Such settings belong into one compiled call, which computes the common part once.
    """
    total: dict[str, int] = {}
    kept: dict[str, int] = {}
    for policy in policies.values():
        if not hasattr(env.example, "step") or len(env.objects) * len(policy.objects) < _FEW_SETTINGS:
            continue  # Of a sampler every run has an environment of its own.
        for grid in (env, policy):
            for place, axis in enumerate(grid.axes):
                swept = [[g is grid and place in varies for varies in g.leaf_axes] for g in (env, policy)]
                for size, changed in leaf_dependence(env.example, policy.example, [*swept[0], *swept[1]]):
                    total[axis] = total.get(axis, 0) + size
                    kept[axis] = kept.get(axis, 0) + size * (not changed)
    return tuple(axis for axis in total if 2 * kept[axis] > total[axis])


def _warn_horizon(horizon: int, env: Grid, policies: Mapping[str, Grid]) -> None:
    """Budgets over a whole horizon refer to a leaf of that name: it should be the run's."""
    for what, grid in (("env", env), *((f"policy {n!r}", p) for n, p in policies.items())):
        leaves: list[Any] = [one.horizon for one in grid.objects if getattr(one, "horizon", None) is not None]
        own = {int(np.asarray(leaf)) for leaf in leaves if np.ndim(leaf) == 0}
        if own and own != {horizon}:
            warnings.warn(
                f"{what} was made for a horizon of {', '.join(map(str, sorted(own)))} rounds, the run has {horizon}: what it does with "
                "the horizon (a total budget, say) refers to the former",
                stacklevel=4,
            )


def _warn_invalid(data: xr.Dataset) -> None:
    if "invalid" in data:
        invalid, runs, where = int(data["invalid"].sum()), int(data["runs"].sum()), "'invalid'"
    else:
        invalid, runs, where = int((~data["valid"]).sum()), data["valid"].size, "'valid'"
    if invalid:
        found = "".join(f"; first bad value of {text}" for text in map(diagnose.text, data.attrs["invalid"]))
        warnings.warn(
            f"{invalid} of {runs} runs are invalid (a flow that must be zero is not, or a value is not finite): "
            f"see the variable {where} and the counters beside it{found}",
            stacklevel=4,
        )


def problem_of(env) -> str:
    """Name of the problem an environment belongs to: its folder, or its module outside jaxroute."""
    parts = type(env).__module__.split(".")
    return parts[parts.index("problems") + 1] if "problems" in parts[:-1] else parts[-1]


def _named(policies) -> dict[str, Any]:
    if isinstance(policies, Mapping):
        named = dict(policies)
    elif isinstance(policies, (list, tuple)):
        named = {_policy_name(p): p for p in policies}
        if len(named) < len(policies):
            raise ValueError("policies of the same class need names: pass a dict of name to policy")
    else:
        named = {_policy_name(policies): policies}
    if not named:
        raise ValueError("policies must hold at least one policy, got none")
    for name in named:
        if not isinstance(name, str):
            raise ValueError(f"policies must be named by strings, got {checks.show(name)}")
    return named


def _policy_name(policy) -> str:
    if isinstance(policy, Grid):
        return policy.name
    return policy.__qualname__.split(".")[0] if hasattr(policy, "__qualname__") else type(policy).__name__


def _seed_list(seeds) -> np.ndarray:
    if isinstance(seeds, (int, np.integer)) and not isinstance(seeds, bool):
        return np.arange(checks.count("seeds", seeds), dtype=np.uint32)
    try:
        values = np.asarray(list(seeds))  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"seeds must be a number of seeds or a list of them, got {checks.show(seeds)}") from None
    if not values.size or not np.issubdtype(values.dtype, np.integer) or values.ndim != 1:
        raise ValueError(f"seeds must be a non-empty list of whole numbers, got {checks.show(seeds)}")
    if values.min() < 0 or values.max() >= 2**32:
        raise ValueError(f"seeds must be from 0 to 2**32 - 1, got {values.min()} to {values.max()}")
    if len(np.unique(values)) < len(values):
        raise ValueError("seeds must differ from each other: equal seeds are equal runs")
    return values.astype(np.uint32)


def _as_grid(what: str, value, instances: int | None = None) -> Grid:
    if instances is not None and (isinstance(value, Grid) or hasattr(value, "step")):
        raise ValueError(
            "instances needs a sampler `key -> Environment` as env; for given environments use jaxroute.instances"
        )
    if isinstance(value, Grid):
        return value
    if isinstance(value, type):
        raise ValueError(f"{what} is the class {value.__name__}; pass an instance, for example {value.__name__}(...)")
    if hasattr(value, "step" if what == "env" else "act"):
        if jax.tree_util.all_leaves([value]):
            raise ValueError(f"{what} must be a pytree: decorate {type(value).__name__} with flax.struct.dataclass")
        return Grid({}, [value], type(value).__name__)
    if what == "env" and instances is None and callable(value) and not jax.tree_util.all_leaves([value]):
        return Grid({}, [value], type(value).__name__)  # A sampler with leaves of its own.
    if callable(value):
        return FunctionGrid(value, None if instances is None else checks.count("instances", instances))
    methods = "init, observe and step" if what == "env" else "init, act and update"
    raise ValueError(f"{what} must have the methods {methods}, or be a grid or a function, got {checks.show(value)}")


def _example(name: str, env: Grid, policy: Grid) -> tuple[Any, Any]:
    """One concrete environment and policy, to read what they declare."""
    example = env.example if hasattr(env.example, "step") else env.example(draws.key(0))
    if not hasattr(example, "step"):
        raise ValueError(f"env must return an environment when called with a key, got {checks.show(example)}")
    built = build_policy(policy.example, example)
    if not hasattr(built, "act"):
        raise ValueError(f"policy {name!r} must return a policy when called with an environment, got {checks.show(built)}")
    return example, built


def _check_values(env: Grid, policies: Mapping[str, Grid], examples, horizon: int) -> None:
    """Runs the optional `check` of everything that the user passed in, and the conditions between env and policies."""
    for what, value in [("env", env), *((f"policy {n!r}", p) for n, p in policies.items())]:
        for one in value.objects:
            if hasattr(one, "check"):
                try:
                    one.check()
                except ValueError as error:
                    raise ValueError(f"{what}: {error}") from None
    for name, (example_env, example_policy) in examples.items():
        if not isinstance(example_env.spec, Spec):
            raise ValueError(f"env.spec must be a Spec, got {checks.show(example_env.spec)}")
        given = hasattr(policies[name].example, "act")
        for one in policies[name].objects if given else [example_policy]:
            try:
                if not given and hasattr(one, "check"):
                    one.check()
                if hasattr(one, "check_for"):
                    one.check_for(spec_for(example_env, horizon))
            except ValueError as error:
                raise ValueError(f"policy {name!r}: {error}") from None
        if hasattr(example_policy, "plan") and stage_length_of(example_env, example_policy) is None:
            raise ValueError(f"policy {name!r} plans by stage, but neither it nor the environment has a stage_length")


def _make_records(spec: Spec, examples: Mapping[str, tuple[Any, Any]], names, every: int, probes) -> dict[str, Record]:
    """What is recorded of each policy: metrics by name, entries of its Info, probes."""
    own = {name: tuple(getattr(policy, "metrics", ())) for name, (_, policy) in examples.items()}
    everything = {m.name: m for m in (*spec.metrics, *(m for metrics in own.values() for m in metrics))}
    measured = {name: _measured(env, policy) for name, (env, policy) in examples.items()}
    _check_metrics(spec, own, measured)
    infos = {name: shapes["info"] for name, shapes in measured.items()}
    if names is None:
        chosen = [m.name for m in everything.values() if m.default]
    elif not isinstance(names, Sequence):
        raise ValueError(f"record must be a list of names, got {checks.show(names)}")
    else:
        chosen = [names] if isinstance(names, str) else list(names)
        known = [*sorted(everything), *sorted({f"info.{entry}" for shapes in infos.values() for entry in shapes})]
        for name in chosen:
            checks.one_of("record", name, known)
    if not isinstance(probes, Mapping):
        raise ValueError(f"probes must be a dict of name to function, got {checks.show(probes)}")
    for name, probe in probes.items():
        if not callable(probe):
            raise ValueError(f"probes[{name!r}] must be a function, got {checks.show(probe)}")
        if name in everything or name in _reserved(spec):
            raise ValueError(f"probes must not have the name of a metric, got {name!r}")

    def pick(metrics, gauge):
        return tuple(m for m in metrics if m.name in chosen and (m.kind == "gauge") == gauge)

    def entries(shapes):
        found = [n for n in chosen if n.startswith("info.") and n.removeprefix("info.") in shapes]
        ranks = {n: len(shapes[n.removeprefix("info.")]) for n in found}
        return tuple(
            Metric(n, n.removeprefix("info."), "", "average", tuple(f"{n}_{i}" for i in range(ranks[n]))) for n in found
        )

    return {
        name: Record(
            every=every,
            flows=pick(spec.metrics, False),
            info=pick(metrics, False) + entries(infos[name]),
            env_gauges=pick(spec.metrics, True),
            policy_gauges=pick(metrics, True),
            zero_flows=spec.zero_flows,
            probes=tuple(probes.items()),
        )
        for name, metrics in own.items()
    }


def _measured(env, policy) -> dict[str, dict[str, tuple[int, ...]]]:
    """Shapes of what a round gives: `flows`, `info`, `env_gauges` and `policy_gauges`."""

    def play(env, policy, key):
        t, env_state, policy_state = jnp.int32(0), env.init(key), first_state(env, policy, key, spec_for(env, 1))
        obs = env.observe(key, env_state, t)
        action, info = policy.act(key, policy_state, obs, t)
        env_state, _, flows = env.step(key, env_state, action, t)
        gauges = [
            owner.gauges(state) if hasattr(owner, "gauges") else {}
            for owner, state in ((env, env_state), (policy, policy_state))
        ]
        return {
            "flows": flows,
            "info": info if isinstance(info, dict) else {},
            "env_gauges": gauges[0],
            "policy_gauges": gauges[1],
        }

    found = _shapes_of("measured", play, env, policy)
    return {kind: {name: entry.shape for name, entry in entries.items()} for kind, entries in found.items()}


def _check_metrics(spec: Spec, own: Mapping[str, tuple[Metric, ...]], measured: Mapping[str, Any]) -> None:
    """Every declared metric is measured, with the declared dimensions, and its name means one thing."""
    known = {m.name: m for m in spec.metrics}
    for name, metrics in own.items():
        for metric in metrics:
            if metric.name in {m.name for m in spec.metrics} or known.setdefault(metric.name, metric) != metric:
                raise ValueError(
                    f"policy {name!r} declares the metric {metric.name!r}, which means something else elsewhere"
                )
        for metric, kinds in [(m, ("flows", "env_gauges")) for m in spec.metrics] + [
            (m, ("info", "policy_gauges")) for m in metrics
        ]:
            place = {"flows": "flows of step", "info": "Info of act"}.get(kinds[0]) if metric.kind != "gauge" else "gauges"
            shapes = measured[name][kinds[metric.kind == "gauge"]]
            if metric.name not in shapes:
                raise ValueError(f"the metric {metric.name!r} is declared, but the {place} do not have it (policy {name!r})")
            if len(shapes[metric.name]) != len(metric.dims):
                raise ValueError(
                    f"the metric {metric.name!r} must have the dimensions {metric.dims}, got shape {shapes[metric.name]} in the {place}"
                )


def _recorded(records: Mapping[str, Record]) -> list[str]:
    """Names of the metrics that are recorded."""
    found = (m for r in records.values() for m in (*r.flows, *r.info, *r.env_gauges, *r.policy_gauges))
    return list(dict.fromkeys(m.name for m in found))


def _reserved(spec: Spec) -> set[str]:
    """Names of a result that are taken before any metric is."""
    return {*_DIMENSIONS, "valid", "runs", "invalid", "first_invalid", *spec.zero_flows}


def _device_list(devices) -> list[Any]:
    if devices is None:
        return list(jax.local_devices())
    found = list(devices) if isinstance(devices, (list, tuple)) else []
    if not found or not all(hasattr(d, "platform") for d in found):
        raise ValueError(f"devices must be a non-empty list of jax devices, got {checks.show(devices)}")
    return found


def _setting_axes(env: Grid, policies: Mapping[str, Grid], records: Mapping[str, Record]) -> dict[str, np.ndarray]:
    axes = dict(env.axes)
    for policy in policies.values():
        for name, coordinates in policy.axes.items():
            if name in env.axes:
                raise ValueError(f"axis {name!r} is swept by env and by a policy; give one of them another name")
            if name in axes and not np.array_equal(axes[name], coordinates):
                raise ValueError(f"two policies sweep {name!r} over different values; give one axis another name")
            axes[name] = coordinates
    taken = {*_DIMENSIONS, "valid", "runs", "invalid", "first_invalid"}
    for record in records.values():
        taken |= {m.name for m in (*record.flows, *record.info, *record.env_gauges, *record.policy_gauges)}
        taken |= {*record.zero_flows, *dict(record.probes)}
    for name in axes:
        if name in taken:
            raise ValueError(f"a grid axis may not be called {name!r}: the result has a dimension or variable of that name")
    return axes


@dataclass(frozen=True)
class _Layout:
    """How a run is cut into compiled calls: `block` seeds, and `tile[a]` settings of each axis."""

    block: int
    tile: dict[str, int]

    @staticmethod
    def choose(
        axes: Mapping[str, np.ndarray],
        shared: Sequence[str],
        num_seeds: int,
        block: int | None,
        most: int,
        devices,
        held: int = 0,
    ) -> "_Layout":
        """Powers of two, so that other numbers of seeds and settings meet the same shapes; `most` runs of `held` bytes fit into memory."""
        multiple = _LANE_MULTIPLE * len(devices)
        on_cpu = devices[0].platform == "cpu"
        per_core = min(_CPU_LANES, max(_FEWEST_CPU_LANES, 1 << (max(1, _CPU_CACHE // max(held, 1)).bit_length() - 1)))
        lanes = per_core * max(len(devices), 1 << (_cores().bit_length() - 1)) if on_cpu else _GPU_LANES * len(devices)
        # A fixed tile: a grid with more settings meets the same shapes. The price is a last tile that is partly padding.
        # Beside axes that share the state the others stand alone, or what is shared would be computed for each of their settings.
        widest = (4 if on_cpu else 16) if len(axes) <= 2 else 2

        def width(axis, most_settings):
            return min(most_settings, 1 << (len(axes[axis]) - 1).bit_length())

        tile = {a: width(a, _SHARED_TILE if a in shared else 1 if shared else widest) for a in axes}
        while shared and math.prod(tile.values()) > max(1, most // multiple):
            tile[max(tile, key=lambda a: tile[a])] //= 2
        # A setting that shares most of its state is light.
        light = min(_LIGHT_LANES, math.prod(tile[a] for a in shared))
        cap = min(lanes * light, 1 << (most.bit_length() - 1))
        if block is None:
            block = min(cap // math.prod(tile.values()), 1 << (num_seeds.bit_length() - 1))
        for axis in axes:
            # With few seeds there is room for the others after all.
            while (
                shared
                and axis not in shared
                and tile[axis] < width(axis, widest)
                and 2 * block * math.prod(tile.values()) <= cap
            ):
                tile[axis] *= 2
        return _Layout(max(1, -(-block // multiple)) * multiple, tile)

    def padded(self, num_devices: int) -> int:
        """Runs of a compiled call: the block, rounded up for this number of devices."""
        multiple = _LANE_MULTIPLE * num_devices
        return -(-self.block // multiple) * multiple

    def blocks(self, num_seeds: int) -> int:
        return -(-num_seeds // self.block)

    def tiles(self, axes: Mapping[str, np.ndarray]):
        """Start of each tile along each axis."""
        starts = [[(a, s) for s in range(0, len(axes[a]), self.tile[a])] for a in axes]
        for combination in np.ndindex(*(len(s) for s in starts)):
            yield dict(s[i] for s, i in zip(starts, combination, strict=True))
