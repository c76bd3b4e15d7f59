"""Simulation of scheduled calls: each from the first round, or from the state at which earlier rounds ended."""

import contextlib
import itertools
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import jax
import numpy as np

from jaxroute.engine import capacity
from jaxroute.engine.curves import curves_of, curves_on_device
from jaxroute.engine.errors import located
from jaxroute.engine.layout import Layout
from jaxroute.engine.precision import in_64_bits
from jaxroute.engine.programs import Block
from jaxroute.engine.progress import Monitor
from jaxroute.engine.rounds import STATE
from jaxroute.engine.schedule import Batch, Call, Ending, Schedule, compare, seed_numbers
from jaxroute.engine.waiting import bar
from jaxroute.store.runs import Checkpoint

# Curves of a call by name, of NumPy, or of jax where they stay on the device.
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
      played_again: number of runs that overflowed and were simulated again, each time.
    """

    compile_s: float = 0.0
    run_s: float = 0.0
    decisions: int = 0
    played_again: int = 0

    @contextmanager
    def compiling(self) -> Generator[None, None, None]:
        """Context whose seconds are spent tracing and compiling."""
        start = time.perf_counter()
        yield
        self.compile_s += time.perf_counter() - start

    def measured(self) -> dict[str, float]:
        """Returns the attributes of the result."""
        return asdict(self)


def simulate_ahead(
    steps: Iterable[Step | None],
    simulate: Callable[[Call, Checkpoint | None], Simulated],
    waiting: Callable[[Call], None] = lambda call: None,
    interrupt: Callable[[bool], None] = lambda stopped: None,
) -> Generator[tuple[Batch, Call, Curves, Checkpoint | None], None, None]:
    """Yields calls with their curves and checkpoints; each is simulated while the one before is written.

    Args:
      steps: batches and calls in order; None while there is none.
      simulate: simulates a call from a checkpoint, as `simulate_call`.
      waiting: is called now and then with the call that is being simulated.
      interrupt: ends the call that is being simulated (True), or allows calls again (False).
    """
    precision = in_64_bits()  # A setting of this thread, not of the other.

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
    """Simulates the missing calls, until the goals are reached.

    Args:
      schedule: missing calls.
      goals: standard errors by metric.
      blocks: compiled blocks by label.
      block_of: the block of a call.
      effort: where the work is measured.
      progress: whether a bar is shown.
      monitor: callback of the user.
    """
    result, request = schedule.result, schedule.result.request

    def interrupt(stopped: bool) -> None:
        for block in blocks.values():
            block.ran.interrupt(stopped)

    def simulate(call: Call, checkpoint: Checkpoint | None) -> Simulated:
        return simulate_call(block_of(call), call, schedule.layout, request.times, effort, checkpoint)

    monitor.total = sum(len(batch.calls) for batch in schedule.batches(len(request.seeds)))
    finished, ending = 0, Ending()
    with bar(monitor.total, progress) as shown:

        def waiting(call: Call) -> None:
            """Shows the share of a block that a GPU has simulated."""
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


def simulate_call(
    block: Block,
    call: Call,
    layout: Layout,
    times: np.ndarray,
    effort: Effort,
    checkpoint: Checkpoint | None = None,
) -> Simulated:
    """Simulates a call, or the rounds after its checkpoint; returns its curves without padding, and the checkpoint at the end."""
    tile, chosen, variant = call.tile, call.seeds, block.variant
    record, horizon, *_ = block.static
    runs = (*map(len, tile.values()), len(chosen))
    inside = tuple(slice(count) for count in runs)
    whole = (*(layout.tile[a] for a in tile), block.padded(len(chosen)))
    first, states = 0, {}
    if checkpoint is not None:
        first, states = checkpoint.rounds, {n: _padded(v, whole) for n, v in checkpoint.states.items()}

    def run(block: Block) -> Curves:
        start = time.perf_counter()
        with located(f"policy {call.policy!r}, seeds {chosen[0]} to {chosen[-1]}"):
            increments, compiling = block.run(tile, np.resize(chosen, whole[-1]), states)
        effort.run_s += time.perf_counter() - start - compiling
        effort.compile_s += compiling
        return {key: values[inside] for key, values in increments.items()}

    effort.decisions += (horizon - first) * int(np.prod(runs))
    increments = run(block.after(first) if checkpoint else block)
    end = {key: increments.pop(key) for key in list(increments) if key.startswith(STATE)}
    larger_envs = capacity.larger_settings(variant.grids[0], variant.example[0])
    while (overflow := capacity.overflowed(increments, variant.spec.overflow_flow, len(runs))).any():
        if checkpoint is not None:  # It has the same capacity.
            return simulate_call(block, call, layout, times, effort)
        if (env := next(larger_envs, None)) is None:
            break
        larger = block.with_environment(env)
        if larger.shapes() != block.shapes():  # A probe may show the capacity itself.
            break
        again, end = run(larger), {}
        increments = capacity.replaced(increments, overflow, again)
        effort.played_again += int(overflow.sum())
    if not call.summed:  # Runs have the same bits, whether or not others are summed.
        increments = jax.device_get(increments)
    if all(isinstance(values, jax.Array) for values in increments.values()):
        return curves_on_device(increments, record, times, runs), None
    curves, totals = curves_of(increments, record, times, runs, checkpoint)
    return curves, Checkpoint(horizon, end, totals) if end else None


def _padded(values: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Values with the last settings, and the seeds from the first one on, as often again as there are places."""
    for axis, size in enumerate(sizes):
        span = np.arange(size)
        place = span % values.shape[axis] if axis == len(sizes) - 1 else np.minimum(span, values.shape[axis] - 1)
        values = np.take(values, place, axis=axis)
    return values
