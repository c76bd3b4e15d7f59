"""Starts and kills processes that share one simulation, at random, and compares their result with that of one process.

    python scripts/workers.py --cells 1000               # on a folder, for two minutes
    python scripts/workers.py --cells 1000 --s3          # on a local server that speaks S3 (moto)
    python scripts/workers.py --cells 1000 --versions 2  # half of them with other code, into the same store

A cell is a setting of UCB1 for 256 seeds. Cells that living processes simulated twice are counted separately from cells that were simulated again
because a process was killed. Exit status 1 if a number differs from that of one process of the same version, or a number is missing.
"""

import argparse
import collections
import contextlib
import inspect
import json
import logging
import os
import random
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from chaos import PROCESSES, blocks_by, other_code

import jaxroute as jr
from jaxroute.problems import stochastic
from jaxroute.store.packs import PackStore


def simulate(options: argparse.Namespace, version: int, **more: Any) -> Any:
    """Simulates a grid of UCB1 for 256 seeds, as if by the given version of the code."""
    grid = jr.grid(stochastic.UCB1, width=np.linspace(0.1, 3.0, options.cells).tolist())
    settings = {"horizon": options.rounds, "seeds": 256, "record_every": options.rounds // 10, "record": ["regret"]}
    with other_code(version):
        return jr.simulate(stochastic.bernoulli([0.6, 0.5, 0.4]), {"UCB1": grid}, progress=False, **settings, **more)


def work(options: argparse.Namespace, version: int, out: str, log: Path) -> None:
    """Simulates in this process together with the others that share `out`, and writes each cell that this process simulates to `log`."""

    def logged(simulated: Any, block: Any, tile: Any, *args: Any) -> Any:
        with log.open("a") as file:
            file.write("".join(f"{os.getpid()} {setting}\n" for setting in tile["width"]))
        return simulated(block, tile, *args)

    with blocks_by(logged):
        simulate(options, version, out=jr.Store(out, accept_changed_code=True), execution=jr.Execution(share="join"))


def check(options: argparse.Namespace, version: int, out: str) -> tuple[int, int]:
    """Counts the decisions missing in the shared store, and the numbers that differ from a simulation by one process."""
    there, alone = simulate(options, version, out=jr.Store(out, accept_changed_code=True)), simulate(options, version)
    return json.loads(there.attrs["last_call"])["decisions"], int((there["regret"].values != alone["regret"].values).sum())


def again(log: Path, killed: set[int]) -> tuple[int, int]:
    """Counts the cells that living processes simulated twice, and those that were simulated again because a process was killed."""
    lines = [line.split() for line in log.read_text().splitlines()]
    living = collections.Counter(cell for process, cell in lines if int(process) not in killed)
    twice = living.total() - len(living)
    return twice, len(lines) - len({cell for _, cell in lines}) - twice


@contextlib.contextmanager
def bucket() -> Iterator[str]:
    """Context in which a local server speaks S3; yields the URL of a bucket on it."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    url = "http://127.0.0.1:{1}".format(*server.get_host_and_port())
    keys = {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "REGION": "us-east-1", "ENDPOINT_URL": url, "ALLOW_HTTP": "true"}
    os.environ |= {f"AWS_{name}": value for name, value in keys.items()}
    urllib.request.urlopen(urllib.request.Request(f"{url}/workers", method="PUT"))
    yield "s3://workers/out"
    server.stop()


def main() -> int:
    """Starts and kills worker processes and prints the comparison; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=1000, help="number (default 1000)")
    parser.add_argument("--rounds", type=int, default=20_000, help="of each run (default 20,000)")
    parser.add_argument("--workers", type=int, default=8, help="processes at a time (default 8)")
    parser.add_argument("--seconds", type=float, default=120.0, help="in which processes are killed (default 120)")
    parser.add_argument("--seed", type=int, default=0, help="of what is random (default 0)")
    parser.add_argument("--s3", action="store_true", help="uses a local server instead of a folder")
    parser.add_argument("--versions", type=int, default=1, help="of the code, that write to the same store (default 1)")
    options = parser.parse_args()
    rng, killed, begin, versions = random.Random(options.seed), set(), time.monotonic(), range(options.versions)
    os.environ["JAX_PLATFORMS"] = "cpu"  # Of the workers.
    jax.config.update("jax_platforms", "cpu")
    with tempfile.TemporaryDirectory() as folder, bucket() if options.s3 else contextlib.nullcontext(f"{folder}/out") as out:

        def start(number: int) -> Any:
            version = number % options.versions
            process = PROCESSES.Process(target=work, args=(options, version, out, Path(f"{folder}/log.{version}")))
            process.start()
            return process

        workers = [start(number) for number in range(options.workers)]
        while time.monotonic() - begin < options.seconds and any(one.is_alive() for one in workers):
            time.sleep(rng.uniform(1.0, 5.0))
            number = rng.randrange(options.workers)
            if workers[number].is_alive():
                workers[number].kill()
                workers[number].join()
                killed.add(workers[number].pid)
                workers[number] = start(number)
        for one in workers:
            one.join()
        failed, seconds = sum(one.exitcode != 0 for one in workers), time.monotonic() - begin
        found = np.array([[*again(Path(f"{folder}/log.{one}"), killed), *check(options, one, out)] for one in versions])
    twice, lost, missing, wrong = found.sum(axis=0).tolist()
    total, interval = options.cells * options.versions, inspect.signature(PackStore).parameters["seconds"].default
    print(
        f"{'S3' if options.s3 else 'folder'}, {options.versions} versions, {total:,} cells, {options.workers} workers, {len(killed)} kills, "
        f"{seconds:.0f} s, flushed every {interval:g} s: {wrong} numbers wrong, {missing} decisions missing, {twice} cells simulated twice "
        f"({twice / total:.2%}), {lost} again because of a kill, {failed} processes failed"
    )
    return int(bool(wrong or missing or failed))


if __name__ == "__main__":
    raise SystemExit(main())
