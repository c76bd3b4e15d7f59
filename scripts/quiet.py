"""Says whether a machine was quiet enough for its timings: how far repeats lie apart, and what others took of its processors."""

import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Above these a machine is noisy: the spread of the middle row, and the share of all cores that others took.
MOST_SPREAD, MOST_OTHERS = 0.15, 0.05
# Load average over the cores at the start, where what others take cannot be told.
MOST_LOAD = 0.25


def spread(seconds: Sequence[float]) -> float | None:
    """How far repeats lie apart: largest less smallest, over the median; None of fewer than two."""
    return (max(seconds) - min(seconds)) / statistics.median(seconds) if len(seconds) > 1 else None


def verdict(spreads: Sequence[float | None], others: float | None, load: float | None, cores: int) -> dict[str, Any]:
    """Whether a machine was quiet, in words and as numbers.

    Args:
      spreads: of each row's repeats, see `spread`.
      others: share of all cores that other processes took meanwhile, None if it cannot be told.
      load: load average of the minute before the start, None if it cannot be told.
      cores: of the machine.
    """
    known = [s for s in spreads if s is not None]
    middle = statistics.median(known) if known else None
    parts, noisy = [], False
    if middle is not None:
        noisy |= middle > MOST_SPREAD
        parts.append(f"repeats lie {middle:.0%} apart (the middle of {len(known)} rows)")
    if others is not None:
        noisy |= others > MOST_OTHERS
        parts.append(f"others took {others:.0%} of {cores} cores")
    if load is not None:
        noisy |= others is None and load > MOST_LOAD * cores
        parts.append(f"load average {load:.2f} at the start")
    state = "noisy" if noisy else "quiet" if middle is not None else "unknown, no row was repeated"
    advice = "; measure again before quoting a speed" if noisy else ""
    return {
        "verdict": state.partition(",")[0],
        "line": f"machine: {state} ({', '.join(parts)}){advice}" if parts else f"machine: {state}",
        "spread": middle,
        "other_cpu": others,
        "load_at_start": load,
    }


class Watch:
    """What others take of the processors from its making on."""

    def __init__(self) -> None:
        self.load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        self._start = _now()

    def verdict(self, spreads: Sequence[float | None]) -> dict[str, Any]:
        """See `verdict`."""
        (busy, own, clock), (busy_before, own_before, clock_before) = _now(), self._start
        cores, others = os.cpu_count() or 1, None
        if busy is not None and busy_before is not None and clock > clock_before:
            taken = (busy - busy_before) - (own - own_before)
            others = max(taken, 0.0) / (cores * (clock - clock_before))
        return verdict(spreads, others, self.load, cores)


def _now() -> tuple[float | None, float, float]:
    """Seconds that all cores have been busy (None but on Linux), that this process and its children took, and a clock's."""
    times, busy = os.times(), None
    try:
        user, nice, system, _, _, *interrupts = (
            int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        )
        busy = (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        pass
    own = times.user + times.system + times.children_user + times.children_system
    return busy, own, time.perf_counter()
