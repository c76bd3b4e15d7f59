"""How long the host holds up a device: a million runs of which the device's part is played by a clock.

    python scripts/overlap.py                      # 1e6 runs, blocks of 131,072 that take 44 ms
    python scripts/overlap.py --runs 1e5 --host    # what was played comes to the host, and is summed up there

The first block is played and summed up by this machine. From then on the device is a lock that is held for as long as an H100 is expected to
need, and what comes out is what the first block gave: all that takes longer is the host's. `--block-s` is that of 131,072 runs of 10,000 rounds of
UCB1 at 3e10 decisions per second, `--sum-s` that of sums, extremes and a sort of their curves.
"""

import argparse
import sys
import threading
import time
from typing import Any

import jax
import numpy as np

import jaxroute as jr
from jaxroute.core import reductions
from jaxroute.engine import programs, recording, simulate
from jaxroute.problems import stochastic


class Device:
    """Does one thing at a time, and each in a fixed time; what it gives is what was computed the first time."""

    def __init__(self) -> None:
        self.busy_s, self._lock, self._known = 0.0, threading.Lock(), dict[str, Any]()

    def instead(self, name: str, compute: Any, seconds: float) -> Any:
        """A function that takes this time."""

        def after(*arguments: Any, **options: Any) -> Any:
            if name not in self._known:
                self._known[name] = compute(*arguments, **options)
            with self._lock:
                time.sleep(seconds)
                self.busy_s += seconds
            return self._known[name]

        return after


def measure(runs: int, block: int, block_s: float, sum_s: float, on_host: bool) -> dict[str, float]:
    """Seconds of a run with statistics only, and of the device in it."""
    env, policy = stochastic.bernoulli(np.linspace(0.9, 0.0, 10).tolist()), stochastic.UCB1()
    options = {
        "horizon": 100,
        "record_every": 1,
        "execution": jr.Execution(block=block),
        "keep": "moments",
        "progress": False,
    }
    device, play = Device(), programs.Block.play
    kept = programs.stays_on_device, recording.curves_on_device, reductions.reduced
    try:
        simulate.stays_on_device = lambda keep, platform: not on_host
        programs.Block.play = device.instead("rounds", play, block_s)
        recording.curves_on_device = device.instead("curves", recording.curves_on_device, 0.0)
        if not on_host:
            reductions.reduced = device.instead("sums", reductions.reduced, sum_s)
        jr.simulate(env, policy, seeds=block, **options)  # All that is computed, is computed here.
        device.busy_s, start = 0.0, time.perf_counter()
        jr.simulate(env, policy, seeds=runs, **options)
        wall = time.perf_counter() - start
    finally:
        programs.Block.play = play
        simulate.stays_on_device, recording.curves_on_device, reductions.reduced = kept
    return {"wall_s": wall, "device_s": device.busy_s, "host_us_per_run": 1e6 * (wall - device.busy_s) / runs}


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints; returns 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=lambda text: int(float(text)), default=1_000_000)
    parser.add_argument("--block", type=lambda text: int(float(text)), default=1 << 17)
    parser.add_argument("--block-s", type=float, default=0.044, help="seconds of a block")
    parser.add_argument("--sum-s", type=float, default=0.010, help="seconds of its sums")
    parser.add_argument("--host", action="store_true", help="sum up on the host, as on a CPU")
    options = parser.parse_args(arguments)
    found = measure(options.runs, options.block, options.block_s, options.sum_s, options.host)
    print(", ".join(f"{name} {value:.3f}" for name, value in found.items()))
    return 0


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    sys.exit(main())
