"""The same work by 1, 2 and 4 processes of this machine: time, efficiency, and whether the bits are equal.

    python scripts/bench_hosts.py [--seeds N] [--horizon T] [--processes 1 2 4]

Each process is bound to one core, as if it were a machine of its own; with more processes than cores, several share one, and the
efficiency is that of the cores in use. "work" is the processor time of one process over that of all: the efficiency on cores that nobody
else uses.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time


def play(port: int, processes: int, index: int, cores: int, seeds: int, horizon: int, out: str) -> None:
    """One process: joins, plays, prints its seconds, without those of compiling."""
    os.sched_setaffinity(0, [sorted(os.sched_getaffinity(0))[index % cores]])
    from jaxroute.engine import hosts

    if processes > 1:
        hosts.initialize(f"127.0.0.1:{port}", processes, index)
    import jaxroute as jr
    from jaxroute.problems import stochastic

    env = stochastic.bernoulli([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05])
    policies = {"UCB1": stochastic.UCB1(), "Thompson": stochastic.GaussianThompson()}
    options = {"horizon": horizon, "block": 512, "progress": False, "mesh": hosts.whole_mesh()}
    with tempfile.TemporaryDirectory() as warm:  # Compiles, for a block of the same shape.
        jr.simulate(env, policies, seeds=512 * processes, out=_shared(out, "warm") if processes > 1 else warm, **options)
    start, cpu = time.perf_counter(), time.process_time()
    data = jr.simulate(env, policies, seeds=seeds, out=_shared(out, "store"), **options)
    elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(json.dumps({"elapsed": elapsed, "cpu": cpu, "decisions": data.attrs["decisions"]}), flush=True)
    hosts.leave()


def _shared(folder: str, name: str) -> str:
    return os.path.join(folder, name)


def measure(processes: int, cores: int, seeds: int, horizon: int, out: str) -> dict:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    numbers = [str(n) for n in (port, processes)]
    rest = [str(cores), str(seeds), str(horizon), out]
    children = [
        subprocess.Popen([sys.executable, __file__, "--child", *numbers, str(i), *rest], stdout=subprocess.PIPE, text=True)
        for i in range(processes)
    ]
    found = []
    for child in children:
        shown, _ = child.communicate()
        if child.returncode:
            raise SystemExit(f"a process failed with status {child.returncode}")
        found.append(json.loads(shown.splitlines()[-1]))
    return {**found[0], "elapsed": max(one["elapsed"] for one in found), "cpu": sum(one["cpu"] for one in found)}


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=16384)
    parser.add_argument("--horizon", type=int, default=5000)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    options = parser.parse_args(arguments)
    import xarray as xr

    import jaxroute as jr

    cores = len(os.sched_getaffinity(0))
    first, alone, work = None, 0.0, 0.0
    print("processes  cores  time [s]  decisions/s  speedup  efficiency  CPU [s] of all  work  bits")
    for number in options.processes:
        with tempfile.TemporaryDirectory() as out:
            one = measure(number, cores, options.seeds, options.horizon, out)
            data = jr.load(_shared(out, "store"))
        if first is None:
            first, alone, work = data, one["elapsed"], one["cpu"]
        used = min(number, cores)
        speedup = alone / one["elapsed"]
        equal = "equal" if xr.Dataset.equals(first, data) else "DIFFERENT"
        print(
            f"{number:>9}  {used:>5}  {one['elapsed']:>8.2f}  {one['decisions'] / one['elapsed'] / 1e6:>9.1f} M  {speedup:>7.2f}  "
            f"{speedup / used:>10.2f}  {one['cpu']:>14.2f}  {work / one['cpu']:>4.2f}  {equal}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        play(*map(int, sys.argv[2:8]), sys.argv[8])
    else:
        sys.exit(main())
