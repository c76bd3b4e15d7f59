"""Starts and kills processes that join one simulation, at random, and compares what they leave with the result of one process.

    python scripts/workers.py --cells 1000               # on a folder, for two minutes
    python scripts/workers.py --cells 1000 --s3          # on a local server that speaks S3 (moto)
    python scripts/workers.py --cells 1000 --versions 2  # half of them with other code, into the same store

A cell is a setting of UCB1 for 256 seeds. Cells that were simulated twice are counted apart from those that died with a process. Exit
status 1 if a number differs from that of one process of the same version, or one is missing.
"""

import argparse
import collections
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from flax import struct

import jaxroute as jr
from jaxroute.engine.programs import Block
from jaxroute.problems import stochastic

VERSION = int(os.environ.get("VERSION_OF_CODE", "0"))


@struct.dataclass
class Mine(stochastic.UCB1):
    """UCB1; another version of the code reads another clock."""

    def act(self, key, state, obs, t):
        return super().act(key, state, obs, t + VERSION)


def simulate(options: argparse.Namespace, **more):
    """Simulates a grid of UCB1 for 256 seeds."""
    grid = jr.grid(Mine, width=np.linspace(0.1, 3.0, options.cells).tolist())
    settings = {"horizon": options.rounds, "seeds": 256, "record_every": options.rounds // 10, "record": ["regret"]}
    return jr.simulate(stochastic.bernoulli([0.6, 0.5, 0.4]), {"UCB1": grid}, progress=False, **settings, **more)


def work(options: argparse.Namespace) -> None:
    """Joins the others, and notes each cell that this process simulates."""
    play, log = Block.play, Path(f"{options.log}.{VERSION}")

    def noted(self, tile, seeds, *begun):
        with log.open("a") as file:
            file.write("".join(f"{os.getpid()} {setting}\n" for setting in tile["width"]))
        return play(self, tile, seeds, *begun)

    Block.play = noted
    simulate(options, out=options.out, execution=jr.Execution(share="join"), accept_changed_code=True)


def check(options: argparse.Namespace) -> None:
    """Prints how many numbers are missing, and how many differ from those of one process."""
    there, alone = simulate(options, out=options.out, accept_changed_code=True), simulate(options)
    again = json.loads(there.attrs["last_call"])["decisions"]
    print(json.dumps([again, int((there["regret"].values != alone["regret"].values).sum())]))


@contextlib.contextmanager
def place(s3: bool):
    """A folder or the URL of a bucket, and a folder for logs."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        if not s3:
            yield f"{folder}/out", folder
            return
        import logging
        import urllib.request

        from moto.server import ThreadedMotoServer

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        stack.callback(server.stop)
        url = "http://127.0.0.1:{1}".format(*server.get_host_and_port())
        said = {
            "ENDPOINT_URL": url,
            "ALLOW_HTTP": "true",
            "ACCESS_KEY_ID": "a",
            "SECRET_ACCESS_KEY": "b",
            "REGION": "us-east-1",
        }
        os.environ |= {f"AWS_{name}": value for name, value in said.items()}
        urllib.request.urlopen(urllib.request.Request(f"{url}/workers", method="PUT"))
        yield "s3://workers/out", folder


def run(options: argparse.Namespace) -> int:
    """Starts and kills workers; prints what they left."""
    chance, killed, begin = random.Random(options.seed), set(), time.monotonic()
    with place(options.s3) as (out, folder):

        def start(number: int, mode: str = "--work") -> subprocess.Popen:
            command = [sys.executable, __file__, mode, "--out", out, "--log", f"{folder}/log"]
            command += ["--cells", str(options.cells), "--rounds", str(options.rounds)]
            env = {**os.environ, "VERSION_OF_CODE": str(number % options.versions), "JAX_PLATFORMS": "cpu"}
            return subprocess.Popen(command, env=env, stdout=subprocess.PIPE)

        workers = [start(number) for number in range(options.workers)]
        while time.monotonic() - begin < options.seconds and any(one.poll() is None for one in workers):
            time.sleep(chance.uniform(1.0, 5.0))
            number = chance.randrange(options.workers)
            if workers[number].poll() is None:
                workers[number].kill()
                workers[number].wait()
                killed.add(workers[number].pid)
                workers[number] = start(number)
        failed, seconds = sum(one.wait() != 0 for one in workers), time.monotonic() - begin
        wrong = missing = twice = lost = 0
        for version in range(options.versions):
            played = collections.defaultdict(list)
            for line in Path(f"{folder}/log.{version}").read_text().splitlines():
                pid, setting = line.split()
                played[setting].append(int(pid) in killed)
            twice += sum(max(0, dead.count(False) - 1) for dead in played.values())
            lost += sum(dead.count(True) for dead in played.values())
            again, different = json.loads(start(version, "--check").communicate()[0])
            missing, wrong = missing + again, wrong + different
    total = options.cells * options.versions
    print(
        f"{'S3' if options.s3 else 'folder'}, {options.versions} versions, {total:,} cells, {options.workers} workers, {len(killed)} kills, "
        f"{seconds:.0f} s: {wrong} numbers wrong, {missing} decisions missing, {twice} cells simulated twice ({twice / total:.2%}), "
        f"{lost} by processes that were killed, {failed} processes failed"
    )
    return int(bool(wrong or missing or failed))


def main() -> int:
    """Reads the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=120.0, help="in which processes are killed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--s3", action="store_true")
    parser.add_argument("--versions", type=int, default=1, help="of the code, that write to the same store")
    for hidden in ("--work", "--check"):
        parser.add_argument(hidden, action="store_true", help=argparse.SUPPRESS)
    for hidden in ("--out", "--log"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work or options.check:
        (work if options.work else check)(options)
        return 0
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
