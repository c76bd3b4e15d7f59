"""Compiled blocks: programs that simulate the rounds of one policy for a block of seeds and a tile of settings.

A tile is a rectangle of settings, given by indices along each axis. Blocks and tiles have fixed sizes (see `layout`), so that one program serves all
calls of a variant.
"""

import copy
import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxroute.core import checks, draws, rounding
from jaxroute.core.provenance import cores
from jaxroute.engine import reference
from jaxroute.engine.compiling import PROGRAMS, Program, calls_lapack, compile_lanes, one_at_a_time
from jaxroute.engine.components import Variant
from jaxroute.engine.grid import Grid
from jaxroute.engine.layout import Layout
from jaxroute.engine.progress import wait_for_compilations
from jaxroute.engine.request import Setup
from jaxroute.engine.rollout import PackedRecords, packed_rollout, spans_of
from jaxroute.engine.rounds import LANE_MULTIPLE, STATE, explained, run_streams
from jaxroute.kernels import DeviceKernel, SlowerThanScan, Unsupported, compilations, finish, kernel_rollout, raise_interrupt


def _packing(rollout: Callable[..., dict[str, Any]]) -> Callable[..., tuple[PackedRecords, dict[str, Any]]]:
    """Wraps `rollout`, a back end that returns records and states in one dict, so that it returns a pair: `PackedRecords`, and a dict of states."""

    def packed(*args: Any, **options: Any) -> tuple[PackedRecords, dict[str, Any]]:
        values = rollout(*args, **options)
        states = {name: values.pop(name) for name in list(values) if name.startswith(STATE)}
        return PackedRecords.of_separate(values), states

    return packed


# Rollouts of the back ends, with the arguments and results of `packed_rollout`. The last one is for comparison.
ROLLOUTS = {
    "scan": packed_rollout,
    "kernel": _packing(kernel_rollout),
    "reference": _packing(lambda *args, spans, **options: reference.rollout(*args, **options)),
}
# States of a checkpoint, arrays by name.
States: TypeAlias = Mapping[str, np.ndarray]
NO_STATES: States = MappingProxyType({})
# A CPU thread is worth its start from about this many runs on.
_FEWEST_LANES = 32
# Whether kernels on a CPU simulate several runs at once; otherwise one after the other, with the source text of GPU kernels.
WIDE = True


@dataclass
class Backend:
    """State of the back end that runs a `Block` (a compiled program): its name, progress and stop request. Copies by `Block.changed` share it.

    Attributes:
      name: "scan", "kernel" or "reference".
      reason: why the scan runs instead of the kernel; empty if it does not.
      blocks: number of groups of seeds that the kernel has finished.
      kernels: GPU kernels of the call in progress, which report how far they are.
      stopped: whether GPU kernels must end their calls early.
    """

    name: str
    reason: str = ""
    blocks: int = 0
    kernels: list[DeviceKernel] = field(default_factory=list)
    stopped: bool = False

    @property
    def done(self) -> float:
        """Fraction of the running block that has been simulated, in [0, 1]; 0 if it is unknown."""
        return min((kernel.done for kernel in self.kernels), default=0.0)

    def interrupt(self, stopped: bool = True) -> None:
        """Ends calls of GPU kernels as soon as their running launch (some of the rounds) is finished; `stopped=False` allows calls again."""
        self.stopped = stopped
        for kernel in self.kernels:
            kernel.interrupt(stopped)

    def begin(self, kernels: list[DeviceKernel]) -> None:
        """Sets the GPU kernels that the next call runs, with no progress yet. If `stopped` is True, these kernels are stopped too."""
        for kernel in kernels:
            kernel.done = 0.0
            kernel.interrupt(False)
        self.kernels = kernels
        if self.stopped:  # Stopped before this block began.
            self.interrupt()


class Block:
    """Compiled program of one variant. Each call of `run` simulates `layout.block` seeds at a tile of settings, a rectangle in the grid of settings.

    Args:
      variant: settings of the environment and the policy.
      setup: quantities to record, horizon and root seed, devices, back end and rounding.
      layout: number of seeds of a call, and number of settings of its tile along each axis; the program has these fixed sizes.
      silent: whether to omit the warning that a policy has no kernel.
    """

    def __init__(self, variant: Variant, setup: Setup, layout: Layout, silent: bool = False):
        recording, target = setup.recording, setup.target
        self.name = f"policy {variant.label!r} on {type(variant.example[0]).__name__}"
        self.variant, self.grids = variant, variant.grids
        self.axes = [axis for grid in variant.grids for axis in grid.axes]
        self.one_by_one = target.one_by_one(variant.hint)
        self.layout, devices = layout, target.devices
        self.mesh = Mesh(np.asarray(devices), ("seed",))
        self.threads = cores() if self.one_by_one else threads(devices, layout.block)
        self.root = np.asarray(jax.random.key_data(draws.key(setup.sampling.root_seed)))
        record, horizon = recording.records[variant.policy], setup.sampling.horizon
        self.static = (record, horizon, devices, jax.config.read("jax_enable_x64"), setup.keep_states)
        self.times, self.since, self.free_rounds = recording.times, 0, variant.spec.free_rounds
        self.on_device = recording.keep == "moments" and not target.on_cpu  # Statistics are computed on the device.
        # Expensive rounds would take longer than quick compilation saves.
        self.quick, self.arithmetic = target.quick and not self.one_by_one, target.arithmetic
        self.silent = silent or target.quick or (target.chosen and target.on_cpu)
        backend = "scan" if self.one_by_one else target.backend_of(variant.hint)
        self.ran = Backend(backend, target.no_kernel)

    @property
    def device(self) -> Any:
        return self.mesh.devices.flat[0]

    @property
    def backend(self) -> str:
        return self.ran.name

    def _arguments(self, tile: Mapping[str, Any], seeds: np.ndarray, resumed: States) -> tuple[Any, ...]:
        positions: dict[str, np.ndarray] = {}
        for name in self.axes:
            places = np.ravel(tile[name])  # A small tile repeats its last setting.
            positions[name] = places[np.minimum(np.arange(self.layout.tile[name]), len(places) - 1)]
        index = [np.zeros(self.layout.tile[a], np.int32) for a in self.axes]
        leaves = tuple(tuple(g.tile(positions)) for g in self.grids)
        record, horizon, *_ = self.static
        first = self.free_rounds + self.since
        spans = spans_of(horizon - self.since, record.every, 0 if resumed else self.free_rounds, first)
        return leaves, index, self.root, spans, np.asarray(seeds, np.uint32), dict(resumed)

    def _function(self) -> Callable[..., Any]:
        """Returns the function to compile. It takes the result of `_arguments`, and returns packed records and states `[settings..., seeds, ...]`."""
        env, policy = self.grids
        record, horizon, _, _, keep_states = self.static
        rollout, since = ROLLOUTS[self.backend], self.since

        def run(leaves: Any, index: Any, root: Any, spans: Any, seeds: Any, resumed: Any) -> Any:
            PROGRAMS.traces += 1
            del index
            options: dict[str, Any] = {"keep_states": True} if keep_states else {}
            if self.backend == "kernel":
                on_cpu = self.device.platform == "cpu"
                options |= {"wide": WIDE and not self.quick and on_cpu, "fast": self.arithmetic == "fast"}
            if resumed:
                options |= {"since": since, "resumed": jax.tree.map(lambda v: jnp.moveaxis(v, 0, -1), resumed)}
            streams = run_streams(root, seeds)
            with rounding.compilers_own() if self.arithmetic == "fast" else rounding.protected(seeds):
                components = env.build(leaves[0]), policy.build(leaves[1])
                values = rollout(*components, streams, horizon, record, spans=spans, **options)
            return jax.tree.map(lambda v: jnp.moveaxis(v, -1, 0), values)

        # One vmap per axis of settings, outermost first, around the scan: it finds which parts of the state depend on a swept field.
        # The unused `index` gives every vmap something to map.
        function: Callable[..., Any] = run
        for axis in reversed(range(len(self.axes))):
            swept, place = (env, axis) if axis < len(env.axes) else (policy, axis - len(env.axes))
            leaf_axes = tuple(
                tuple(0 if grid is swept and place in varies else None for varies in grid.leaf_axes) for grid in self.grids
            )
            index_axes = [0 if i == axis else None for i in range(len(self.axes))]
            in_axes = (leaf_axes, index_axes, None, None, None, 0)
            function = _of_one_setting(function, in_axes) if self.one_by_one else jax.vmap(function, in_axes=in_axes)
        if self.mesh.size == 1:
            return function
        everywhere, (by_seed, by_run) = PartitionSpec(), self._specs()
        specs = (everywhere, everywhere, everywhere, everywhere, by_seed, by_run)
        return jax.shard_map(function, mesh=self.mesh, in_specs=specs, out_specs=by_run, check_vma=False)

    def changed(self, since: int = 0, env: Grid | None = None) -> "Block":
        """Returns a copy for runs that continue after `since` counted rounds, or for an `env` that differs in capacity only (None: the same one)."""
        other = copy.copy(self)
        other.since, other.grids = since, (env or self.grids[0], self.grids[1])
        return other

    def lower(self, seeds: np.ndarray | None = None, resumed: States = NO_STATES) -> Program:
        """Returns the traced program for `len(seeds)` runs (None: those of one thread) from the states `resumed`; if empty, from round 0."""
        if seeds is None:  # The values of seeds do not matter when a program is traced.
            seeds = np.zeros(1 if self.one_by_one else self.layout.block // self.threads)
        arguments = self._arguments(dict.fromkeys(self.axes, 0), seeds, resumed)

        def trace() -> Program:
            own = [d.local_hardware_id or 0 for d in self.mesh.devices.flat]
            try:
                with jax.default_device(self.device), compilations(own) as kernels:
                    lowered = jax.jit(self._function()).lower(*arguments)
            except Exception as error:
                if self.backend != "kernel":
                    raise
                return Program(reason=_first_line(error))  # Other errors are raised by the scan.
            return Program(lowered, kernels, shapes=lowered.out_info[0].shapes(), calls_lapack=calls_lapack(lowered))

        shapes = tuple((a.shape, str(a.dtype)) for a in jax.tree.leaves(arguments))
        structure = (*(g.structure for g in self.grids), *(tuple(g.leaf_axes) for g in self.grids))
        program = PROGRAMS.use(
            (*structure, shapes, self.static, self.since, self.backend, self.quick, self.one_by_one, self.arithmetic), trace
        )
        if program.reason:
            self._fall_back(program.reason, program.refused, program.slower)
            return self.lower(seeds, resumed)
        return program

    def _fall_back(self, reason: str, refused: bool, slower: bool = False) -> None:
        """Replaces the kernel by the scan from now on, because of a `reason` in words.

        `refused` means that a compiler or driver failed, which always gives a warning. Other reasons give one unless the block is silent or `slower`
        is True, which means that the scan is faster than the kernel.
        """
        if self.arithmetic == "exact" and self.device.platform != "cpu":
            raise RuntimeError(
                f"{self.name}: on a GPU arithmetic='exact' is that of kernels, and no kernel runs it: {reason}; give devices=jax.devices('cpu') or "
                "arithmetic='fast'"
            )
        self.ran.name, self.ran.kernels = "scan", []
        self.ran.reason = f"after {self.ran.blocks} blocks of kernels: {reason}" if self.ran.blocks else reason
        if refused or not (self.silent or slower):
            checks.warn(f"{self.name} is run by the scan, which is slower than a kernel: {self.ran.reason}")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shape of each recorded quantity in one run at one time, by name."""
        return self.lower().shapes

    def needs(self) -> tuple[int, int] | None:
        """Returns the bytes of scratch memory of a run, and how many runs all GPUs together simulate at once; None if no GPU kernel is used."""
        program = self.lower()
        try:
            finish(program.kernels)
        except Unsupported:  # Compilation of the program raises it again.
            return None
        kernels = [kernel for _, kernel in program.kernels if isinstance(kernel, DeviceKernel)]
        if not kernels:
            return None
        return max(k.scratch for k in kernels), min(k.threads_at_once() for k in kernels) * self.mesh.size

    def compile_in(
        self, pool: ThreadPoolExecutor, seeds: np.ndarray | None = None, resumed: States = NO_STATES
    ) -> "Future[Any]":
        """Returns the future of the compiled program of `lower(seeds, resumed)`; starts the compilation, on a thread of `pool`, if needed."""
        program = self.lower(seeds, resumed)
        compiling = program.compiled
        failed = compiling is not None and (compiling.cancelled() or (compiling.done() and compiling.exception()))
        if compiling is None or failed:
            compiling = program.compiled = pool.submit(_compile, program, self.device.platform, self.quick)
        return compiling

    def _executable(self, seeds: np.ndarray, resumed: States) -> Callable[..., Any]:
        """Waits for the compiled program of `lower(seeds, resumed)` and returns it. If the kernel does not compile, the scan takes its place."""
        program = self.lower(seeds, resumed)
        if program.compiled is None:  # Part of a block that did not fit into memory, or the scan instead of a kernel.
            with ThreadPoolExecutor(1) as pool:
                self.compile_in(pool, seeds, resumed)
        assert program.compiled is not None
        try:
            compiled = program.compiled.result()
        except (jax.errors.JaxRuntimeError, Unsupported) as error:
            if self.backend != "kernel":
                raise
            program.reason, program.slower = _first_line(error), isinstance(error, SlowerThanScan)
            program.refused = not program.slower
            return self._executable(seeds, resumed)
        self.ran.begin([kernel for _, kernel in program.kernels if isinstance(kernel, DeviceKernel)])
        return one_at_a_time(compiled) if program.calls_lapack else compiled

    def run(self, tile: Mapping[str, Any], seeds: np.ndarray, resumed: States = NO_STATES) -> tuple[dict[str, Any], float]:
        """Simulates a block of seeds. A block that does not fit into memory is divided into halves.

        Args:
          tile: indices of the settings along each axis.
          seeds: `[R]` seeds of the block.
          resumed: states `[settings..., R, ...]` of a checkpoint, by name, if the block continues runs; empty otherwise.

        Returns:
          A dict of increments over record intervals, gauges, probes (`[settings..., R, records, ...]`) and states; and the seconds of compilation.

        Raises:
          MemoryError: not even the smallest block fits into memory.
          RuntimeError: the GPU fails with the kernel and with the scan.
        """
        start = time.perf_counter()
        parts = self._parts(seeds, resumed, len(seeds) if self.one_by_one else self.threads)
        executable = self._executable(*parts[0])
        compiling = time.perf_counter() - start
        precision = jax.config.read("jax_enable_x64")  # The other threads below do not have this setting.

        def run(part: tuple[np.ndarray, States]) -> Any:
            with jax.enable_x64(precision), jax.default_device(self.device):
                leaves, index, root, spans, *runs = self._arguments(tile, *part)
                if self.mesh.size > 1:
                    runs = [
                        jax.device_put(v, NamedSharding(self.mesh, spec))
                        for v, spec in zip(runs, self._specs(), strict=True)
                    ]
                values = executable(leaves, index, root, spans, *runs)
                return jax.block_until_ready(values) if self.on_device else jax.device_get(values)

        try:
            with ThreadPoolExecutor(self.threads) as pool:
                packed, states = self._joined(list(pool.map(run, parts)))
                self.ran.blocks += self.backend == "kernel"
                return packed.returned() | states, compiling
        except (jax.errors.JaxRuntimeError, ValueError) as error:  # JAX 0.9 raises ValueError from the second call on.
            half = len(seeds) // 2
            raise_interrupt()
            if self.backend == "kernel" and (refused := re.search(r"DriverError: (.*?\(\d+\))", str(error))):
                self._fall_back(refused[1], True)
                try:
                    values, more = self.run(tile, seeds, resumed)
                except (jax.errors.JaxRuntimeError, ValueError) as again:
                    raise RuntimeError(
                        f"the GPU failed ({refused[1]}), and fails with the scan too ({_first_line(again)}); finished blocks are stored, and a "
                        "new process continues it"
                    ) from again
                return values, compiling + more
            if "InterruptedError" in str(error) and not self.ran.stopped:  # It was meant for another run.
                return self.run(tile, seeds, resumed)
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            if self.one_by_one or half % (LANE_MULTIPLE * self.mesh.size * self.threads):
                raise MemoryError(
                    f"a block of {len(seeds)} seeds does not fit into memory, and is too small to be halved; finished blocks are stored"
                ) from error
            checks.warn(f"a block of {len(seeds)} seeds does not fit into memory; halving it")
            (first, a), (second, b) = (self.run(tile, *part) for part in self._parts(np.asarray(seeds), resumed, 2))
            return self._joined([first, second]), compiling + a + b

    def _parts(self, seeds: np.ndarray, resumed: States, number: int) -> list[tuple[np.ndarray, States]]:
        """Divides the seeds, and the checkpoint states `resumed` of their runs, into `number` equal parts. Returns pairs (seeds, states)."""
        states = {name: np.split(leaf, number, axis=len(self.axes)) for name, leaf in resumed.items()}
        return [
            (part, {name: leaves[i] for name, leaves in states.items()}) for i, part in enumerate(np.split(seeds, number))
        ]

    def _specs(self) -> tuple[PartitionSpec, PartitionSpec]:
        """Returns how two kinds of arrays are divided among the devices: arrays `[seeds]`, and arrays `[settings..., seeds, ...]`."""
        return PartitionSpec("seed"), PartitionSpec(*[None] * len(self.axes), "seed")

    def _joined(self, parts: list[Any]) -> Any:
        if len(parts) == 1:
            return parts[0]
        concatenate = jnp.concatenate if self.on_device else np.concatenate
        return jax.tree.map(lambda *arrays: concatenate(arrays, axis=len(self.axes)), *parts)


def _of_one_setting(function: Callable[..., Any], in_axes: Any) -> Callable[..., Any]:
    """Returns a function that computes what `jax.vmap(function, in_axes)` does for axes of length one, by one plain call without batching."""

    def one(*args: Any) -> Any:
        def at_first(axis: int | None, part: Any) -> Any:
            return part if axis is None else jax.tree.map(lambda x: x[0], part)

        inside = jax.tree.map(at_first, in_axes, args, is_leaf=lambda x: x is None)
        return jax.tree.map(lambda x: x[None], function(*inside))

    return one


@contextmanager
def compiler() -> Generator[ThreadPoolExecutor, None, None]:
    """Context manager that yields a pool of threads for compilation, one for each core that the process may use."""
    pool = ThreadPoolExecutor(cores())
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)  # After an interruption, waiting compilations are dropped.


def compile_blocks(blocks: Mapping[str, Block], pool: ThreadPoolExecutor, progress: bool = False) -> None:
    """Compiles `blocks`, given by label, on threads of `pool`; `progress` shows this. A failed compilation raises its error when the block runs."""
    compiling = {name: block.compile_in(pool) for name, block in blocks.items()}
    wait_for_compilations(compiling, {name: block.name for name, block in blocks.items()}, progress)


def threads(devices: Sequence[Any], runs: int) -> int:
    """Returns the number of CPU threads for a block of `runs` runs, with at least 32 runs per thread; 1 if `devices` are GPUs or several."""
    if devices[0].platform != "cpu" or len(devices) > 1:
        return 1
    number = 1
    while number * 2 <= cores() and runs % (number * 2 * LANE_MULTIPLE) == 0 and runs // (number * 2) >= _FEWEST_LANES:
        number *= 2
    return number


def trace_blocks(
    blocks: Mapping[str, Block], pool: ThreadPoolExecutor | None = None
) -> dict[str, dict[str, tuple[int, ...]]]:
    """Traces blocks, given by label. Returns shapes of recorded quantities by policy and name. `pool`, if given, compiles traced blocks meanwhile.

    Raises:
      ValueError: a quantity has different shapes in two variants of a policy.
    """
    shapes: dict[str, dict[str, tuple[int, ...]]] = {}
    firsts: dict[str, str] = {}
    for block in blocks.values():
        one = block.variant
        with explained(one.label, *one.example):
            own = block.shapes()
            if pool is not None:
                block.compile_in(pool)
        first, label = shapes.setdefault(one.policy, own), firsts.setdefault(one.policy, one.label)
        for name in (*first, *own):
            if first.get(name) != own.get(name):
                raise ValueError(
                    f"what is recorded must have one shape: {name!r} has {own.get(name)} at {one.label!r}, and {first.get(name)} at "
                    f"{label!r}; leave it out (record), or sweep in separate calls"
                )
    return shapes


def device_needs(setup: Setup) -> dict[str, tuple[int, int]]:
    """Returns for each variant with GPU kernels, by label, the bytes of scratch memory of a run, and how many runs all GPUs simulate at once."""
    target = setup.target
    if target.on_cpu or target.backend != "kernel" or target.no_kernel:
        return {}
    smallest = Layout(LANE_MULTIPLE * len(target.devices), dict.fromkeys(setup.components.axes, 1))
    blocks = {one.label: Block(one, setup, smallest, silent=True) for one in setup.components.variants}
    trace_blocks(blocks)  # All kernels are compiled at the same time.
    needs = {label: block.needs() for label, block in blocks.items()}
    return {label: found for label, found in needs.items() if found is not None}


def _compile(program: Program, platform: str, quick: bool) -> Any:
    finish(program.kernels)
    return compile_lanes(program.lowered, platform, quick)


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
