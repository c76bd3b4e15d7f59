"""Simulates the scheduled calls, each from the first round or from a stored checkpoint.

A call returns the increments of each record interval, and the host adds them up to curves. Runs that overflow the capacity of their environment
are simulated again with a larger capacity.
"""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.engine.grid import larger_settings
from jaxroute.engine.precision import in_64_bits
from jaxroute.engine.programs import Block
from jaxroute.engine.progress import Monitor, bar
from jaxroute.engine.rounds import NAN_ROUNDS, NAN_STATES, STATE, Record
from jaxroute.engine.schedule import Batch, Call, Ending, Schedule, compare, seed_numbers
from jaxroute.store.moments import Statistics
from jaxroute.store.runs import Checkpoint, Runs

# Curves of a call by name: NumPy arrays, or jax arrays if they stay on the device.
Curves: TypeAlias = dict[str, Any]
# The curves of a call, and the state from which it can be continued.
Simulated: TypeAlias = tuple[Curves, Checkpoint | None]
# A call and the batch that it belongs to.
Step: TypeAlias = tuple[Batch, Call]
# Seconds between two updates of the progress of a call.
_WAIT_S = 0.5


@dataclass
class Effort:
    """Measurements of the work of a simulation.

    Attributes:
      compile_s: seconds of tracing and compiling.
      run_s: seconds of simulating.
      decisions: number of simulated decisions.
      played_again: number of runs simulated again after an overflow, each time counted.
    """

    compile_s: float = 0.0
    run_s: float = 0.0
    decisions: int = 0
    played_again: int = 0

    @contextmanager
    def compiling(self) -> Generator[None, None, None]:
        """Context whose duration is added to the seconds of tracing and compiling."""
        start = time.perf_counter()
        yield
        self.compile_s += time.perf_counter() - start


def simulate_ahead(
    steps: Iterable[Step | None],
    simulate: Callable[[Call, Checkpoint | None], Simulated],
    waiting: Callable[[Call], None] = lambda call: None,
    interrupt: Callable[[bool], None] = lambda stopped: None,
) -> Generator[tuple[Batch, Call, Curves, Checkpoint | None], None, None]:
    """Simulates calls in a second thread. Yields batch, call, curves and checkpoint of each, which the caller can store while the next call runs.

    Args:
      steps: batches and calls in order. None means that no call is available yet: the running call is then finished and yielded first.
      simulate: function that simulates a call from a checkpoint, as `simulate_call` does.
      waiting: function that is called twice a second with the running call, to show its progress.
      interrupt: function that ends the running call (argument True) if the caller stops, and later allows calls again (False).
    """
    precision = in_64_bits()  # The second thread does not have this setting.

    def in_thread(call: Call, checkpoint: Checkpoint | None) -> Simulated:
        with jax.enable_x64(precision):
            return simulate(call, checkpoint)

    pool, coming = ThreadPoolExecutor(1), None
    try:
        for step in itertools.chain(steps, [None]):
            ready, coming = coming, None
            if step is not None:
                batch, call = step
                coming = batch, call, pool.submit(in_thread, call, batch.checkpoint(call))
            if ready is not None:
                while not wait([ready[2]], _WAIT_S).done:
                    waiting(ready[1])
                yield ready[0], ready[1], *ready[2].result()
    finally:
        try:
            if coming is not None and not coming[2].done():
                interrupt(True)
            pool.shutdown(cancel_futures=True)
        finally:
            interrupt(False)


def run_schedule(
    schedule: Schedule,
    goals: Mapping[str, float],
    blocks: Mapping[str, Block],
    block_of: Callable[[Call], Block],
    effort: Effort,
    progress: bool,
    monitor: Monitor,
) -> Ending:
    """Simulates the missing calls until the standard errors reach their goals, the callback ends the simulation, or no call is left.

    Args:
      schedule: missing calls, each for a block of seeds and a tile of settings, and the result that stores their curves.
      goals: for each metric, the standard error at which the simulation stops; empty to simulate all calls.
      blocks: compiled blocks by label.
      block_of: function that returns the block of a call.
      effort: collects the measurements of the work.
      progress: whether a bar is shown.
      monitor: callback of the user.
    """
    result, request = schedule.result, schedule.result.request

    def interrupt(stopped: bool) -> None:
        for block in blocks.values():
            block.ran.interrupt(stopped)

    def simulate(call: Call, checkpoint: Checkpoint | None) -> Simulated:
        return simulate_call(block_of(call), call, effort, checkpoint)

    monitor.total = sum(len(batch.calls) for batch in schedule.batches(len(request.seeds)))
    finished, ending = 0, Ending()
    with _interruptible(result, schedule.store is not None), bar(monitor.total, progress) as shown:

        def waiting(call: Call) -> None:
            """Shows on the bar how much of the running call a GPU has simulated. On a CPU, where this is unknown, the bar does not move."""
            shown.update(round(finished + 0.99 * block_of(call).ran.done, 2) - shown.n)

        for number in seed_numbers(goals, request.cut):
            calls = contextlib.closing(schedule.calls(number, monitor.callback is not None))
            with calls as some, contextlib.closing(simulate_ahead(some, simulate, waiting, interrupt)) as simulated:
                for batch, call, curves, checkpoint in simulated:
                    shown.set_description(call.policy)
                    batch.take(call, curves, checkpoint)
                    finished += 1
                    shown.update(finished - shown.n)
                    setting = {axis: request.axes[axis][places].tolist() for axis, places in call.tile.items()}
                    if monitor.report(result.so_far, call.policy, setting, int(batch.seeds.max()) + 1):
                        return ending
            ending = compare(goals, result, number)
            if ending.met:
                break
    return ending


@contextlib.contextmanager
def _interruptible(result: Runs | Statistics, stored: bool) -> Generator[None, None, None]:
    """Context manager that writes a `Statistics` result at its end. A note on a `KeyboardInterrupt` tells whether finished blocks are `stored`."""
    try:
        yield
    except KeyboardInterrupt as error:
        rest = "finished blocks are stored, and the same call continues" if stored else "nothing is stored without a folder"
        error.add_note(f"stopped; {rest}")
        raise
    finally:
        if isinstance(result, Statistics):
            result.write()


def simulate_call(block: Block, call: Call, effort: Effort, checkpoint: Checkpoint | None = None) -> Simulated:
    """Simulates a call by its compiled program, `block`, from a checkpoint (None: from the first round). `effort` collects times and counts.

    Runs that overflow are simulated again with more capacity. Returns the curves by name, for the call's settings and seeds alone, and the checkpoint
    at the end (None if states are not stored).
    """
    tile, chosen, variant = call.tile, call.seeds, block.variant
    record, horizon, *_ = block.static
    runs = (*map(len, tile.values()), len(chosen))
    inside = tuple(slice(count) for count in runs)
    whole = (*(block.layout.tile[a] for a in tile), len(chosen) if block.one_by_one else block.layout.block)
    first, states = 0, {}
    if checkpoint is not None:
        first, states = checkpoint.rounds, {n: _padded(v, whole) for n, v in checkpoint.states.items()}

    def run(block: Block) -> Curves:
        start = time.perf_counter()
        try:
            increments, compiling = block.run(tile, np.resize(chosen, whole[-1]), states)
        except jax.errors.JaxRuntimeError as error:  # For example an error of a callback.
            error.add_note(f"while policy {call.policy!r}, seeds {chosen[0]} to {chosen[-1]} was simulated")
            raise
        effort.run_s += time.perf_counter() - start - compiling
        effort.compile_s += compiling
        return {key: values[inside] for key, values in increments.items()}

    effort.decisions += (horizon - first) * int(np.prod(runs))
    increments = run(block.changed(since=first))
    end = {key: increments.pop(key) for key in list(increments) if key.startswith(STATE)}
    larger_envs, flow = larger_settings(variant.grids[0], variant.example[0]), variant.spec.overflow_flow
    while flow is not None:
        lost = increments[f"zero/{flow}"]
        overflow = np.asarray((lost > 0).any(axis=tuple(range(len(runs), lost.ndim))))  # Bool `[settings..., R]`.
        if not overflow.any():
            break
        if checkpoint is not None:  # Its states have the smaller capacity.
            return simulate_call(block, call, effort)
        if (env := next(larger_envs, None)) is None:
            break
        larger = block.changed(env=env)
        if larger.shapes() != block.shapes():  # A probe may show the capacity itself.
            break
        again, end = run(larger), {}
        for name, old in increments.items():
            increments[name] = np.where(overflow.reshape(runs + (1,) * (old.ndim - len(runs))), again[name], old)
        effort.played_again += int(overflow.sum())
    if not call.summed:  # Runs have the same bits, whether or not others are summed.
        increments = jax.device_get(increments)
    if all(isinstance(values, jax.Array) for values in increments.values()):
        with jax.enable_x64(True):
            return _curves_on_device(dict(increments), block.times, record, runs), None
    curves, totals = curves_of(increments, record, block.times, runs, checkpoint)
    return curves, Checkpoint(horizon, end, totals) if end else None


def _padded(values: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Lengthens the axes of `values` (settings, then seeds) to `sizes`: the last setting is repeated, and seeds start again from the first."""
    for axis, size in enumerate(sizes):
        values = np.take(values, np.arange(size), axis=axis, mode="wrap" if axis == len(sizes) - 1 else "clip")
    return values


def curves_of(
    increments: Mapping[str, Any],
    record: Record,
    times: np.ndarray,
    runs: tuple[int, ...],
    before: Checkpoint | None = None,
    xp: Any = np,
) -> tuple[Curves, Curves]:
    """Converts the increments of the record intervals to curves (cumulative sums, running means, gauges) in float64, and finds the valid runs.

    A run is valid if its flows are finite, the flows that must be zero are zero, and no state, feedback or Info was ever NaN. Quantities that are
    only recorded, Info and gauges, may be infinite.

    Args:
      increments: arrays `[settings..., R, records, ...]` by name, for `R` seeds, as `Block.run` returns them.
      record: recorded quantities.
      times: `[records]` numbers of counted rounds.
      runs: shape `(settings..., R)` of the runs.
      before: checkpoint of these runs, with the sums and curves of earlier rounds; None if there are none.
      xp: numpy; or jax.numpy with numbers of 64 bits, for arrays on a device.

    Returns:
      Two dicts by name. The first has the curves, of the shapes of the increments and including earlier rounds, the sum of each flow that must be
      zero, and `valid`, bool `[settings..., R]`. The second has the sums at the end, `[settings..., R, ...]` float64.
    """
    earlier = {} if before is None else before.curves
    sums = {} if before is None else before.totals
    totals: dict[str, Any] = {}
    time_axis = len(runs)
    times = times[-next(iter(increments.values())).shape[time_axis] :]
    metrics = {m.name: m for m in (*record.flows, *record.info)}
    must_be_finite = {m.name for m in record.flows}
    curves: dict[str, Any] = {}
    valid = earlier["valid"] if "valid" in earlier else xp.ones(runs, bool)
    for name, raw in increments.items():
        if name in (NAN_ROUNDS, NAN_STATES):
            valid = valid & ~raw.astype(bool).any(axis=time_axis)
            continue
        metric = metrics.get(name)
        if metric is None and not name.startswith("zero/"):
            curves[name] = raw
            continue
        if name in sums:
            raw = np.concatenate([np.expand_dims(sums[name], time_axis), raw], axis=time_axis)
        total = xp.cumsum(raw, axis=time_axis, dtype=np.float64)
        if name in sums:
            total = np.delete(total, 0, axis=time_axis)
        last = totals[name] = xp.take(total, -1, axis=time_axis)
        extra = tuple(range(time_axis, last.ndim))
        if metric is None or name in must_be_finite:
            valid = valid & xp.isfinite(last).all(axis=extra)
        if metric is None:
            count = last.sum(axis=extra)
            curves[name.removeprefix("zero/")] = count
            valid = valid & (count == 0)
        elif metric.kind == "average":
            curves[name] = total / times.reshape((-1,) + (1,) * len(metric.dims))
        else:
            curves[name] = total
    for name in curves.keys() & earlier.keys():
        if curves[name].ndim > time_axis:
            curves[name] = np.concatenate([earlier[name], curves[name]], axis=time_axis)
    return curves | {"valid": valid}, totals


@functools.partial(jax.jit, static_argnums=(2, 3))
def _curves_on_device(increments: Curves, times: Any, record: Record, runs: tuple[int, ...]) -> Curves:
    return curves_of(increments, record, times, runs, xp=jnp)[0]
