"""One task: a policy on a tile of settings and a block of seeds, played from the first round, or from where earlier rounds ended."""

import itertools
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import jax
import numpy as np

from jaxroute.engine import capacity, recording
from jaxroute.engine.errors import located
from jaxroute.engine.inputs import Inputs
from jaxroute.engine.layout import Layout
from jaxroute.engine.plan import Step, Task
from jaxroute.engine.precision import in_64_bits
from jaxroute.engine.programs import Block
from jaxroute.engine.rounds import STATE
from jaxroute.store.runs import Checkpoint

# Curves of a block by name, of NumPy, or of jax where they stay on the device.
Curves: TypeAlias = dict[str, Any]
# The curves of a task, and what it is continued from.
Played: TypeAlias = tuple[Curves, Checkpoint | None]
# Seconds between two looks at a task that is being simulated.
_WAIT_S = 0.5


@dataclass
class Effort:
    """Measurements of the work of a call.

    compile_s: seconds of tracing and compiling.
    run_s: seconds of playing.
    decisions: that were played.
    played_again: runs that were short of room, as often as they were.
    """

    compile_s: float = 0.0
    run_s: float = 0.0
    decisions: int = 0
    played_again: int = 0

    @contextmanager
    def compiling(self) -> Generator[None, None, None]:
        """A context whose seconds are spent tracing and compiling."""
        start = time.perf_counter()
        yield
        self.compile_s += time.perf_counter() - start

    def measured(self) -> dict[str, float]:
        """As attributes of the result."""
        return asdict(self)


def played_ahead(
    steps: Iterable[Step | None],
    play: Callable[[Task, Checkpoint | None], Played],
    waiting: Callable[[Step], None] = lambda step: None,
    interrupt: Callable[[bool], None] = lambda stopped: None,
) -> Generator[tuple[Step, Curves, Checkpoint | None], None, None]:
    """Yields steps with their curves and what they are continued from; each is played while the one before is written.

    Args:
      steps: in order; None where there is none yet.
      play: plays a task from its first rounds, as `play_task`.
      waiting: is called now and then with the step that is being simulated.
      interrupt: ends what is being simulated (True), or allows it again (False).
    """
    precision = in_64_bits()  # A setting of this thread, not of the other.

    def aside(task: Task, begun: Checkpoint | None) -> Played:
        with jax.enable_x64(precision):
            return play(task, begun)

    pool, coming = ThreadPoolExecutor(1), None
    try:
        for step in itertools.chain(steps, [None]):
            ready, coming = coming, None if step is None else (step, pool.submit(aside, step.task, step.begun()))
            if ready is not None:
                while not wait([ready[1]], _WAIT_S).done:
                    waiting(ready[0])
                yield ready[0], *ready[1].result()
    finally:
        try:
            if coming is not None and not coming[1].done():
                interrupt(True)
            pool.shutdown(cancel_futures=True)
        finally:
            interrupt(False)


def play_task(
    asked: Inputs,
    layout: Layout,
    block: Block,
    task: Task,
    effort: Effort,
    begun: Checkpoint | None = None,
) -> Played:
    """Plays one task, or what is left of it; its curves, without what is padding, and what it is continued from."""
    name, tile, chosen = task.policy, task.tile, task.seeds
    runs = (*map(len, tile.values()), len(chosen))
    inside = tuple(slice(count) for count in runs)
    whole = (*(layout.tile[a] for a in tile), block.padded(len(chosen)))
    first, states = (0, {}) if begun is None else (begun.rounds, {n: _padded(v, whole) for n, v in begun.states.items()})

    def played(block: Block) -> Curves:
        start = time.perf_counter()
        with located(f"policy {name!r}, seeds {chosen[0]} to {chosen[-1]}"):
            increments, compiling = block.play(tile, np.resize(chosen, whole[-1]), states)
        effort.run_s += time.perf_counter() - start - compiling
        effort.compile_s += compiling
        return {key: values[inside] for key, values in increments.items()}

    effort.decisions += (asked.horizon - first) * int(np.prod(runs))
    increments = played(block.after(first) if begun else block)
    kept = {key: increments.pop(key) for key in list(increments) if key.startswith(STATE)}
    part = asked.part(name, tile)
    larger_envs = capacity.larger_settings(part.env, part.example[0])
    while (overflow := capacity.overflowed(increments, asked.spec.overflow_flow, len(runs))).any():
        if begun is not None:  # The checkpoint has the same capacity.
            return play_task(asked, layout, block, task, effort)
        if (env := next(larger_envs, None)) is None:
            break
        larger = block.with_environment(env)
        if larger.shapes() != block.shapes():  # A probe may show the capacity itself.
            break
        again, kept = played(larger), {}
        increments = capacity.replaced(increments, overflow, again)
        effort.played_again += int(overflow.sum())
    if not task.summed:  # Runs have the same bits, whatever is kept of others.
        increments = jax.device_get(increments)
    if all(isinstance(values, jax.Array) for values in increments.values()):
        return recording.curves_on_device(increments, asked.records[name], asked.times, runs), None
    curves, totals = recording.curves_of(increments, asked.records[name], asked.times, runs, begun)
    return curves, Checkpoint(asked.horizon, kept, totals) if kept else None


def _padded(values: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Values with the last settings, and the seeds from the first one on, as often again as there are places."""
    for axis, size in enumerate(sizes):
        span = np.arange(size)
        place = span % values.shape[axis] if axis == len(sizes) - 1 else np.minimum(span, values.shape[axis] - 1)
        values = np.take(values, place, axis=axis)
    return values
