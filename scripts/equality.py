"""Comparison of all back ends and compilers, bit by bit, for every default policy.

    python scripts/equality.py                     # a table here, JSON in scripts/bench_results/equality.json
    python scripts/equality.py --only staged --policies StageRoute --runs 256 --rounds 100 --ways scan gcc-16 clang-4

All ways simulate the same runs and record all metrics of environment and policy. A column has the number of runs that differ from the scan.
`gcc-16` is a kernel for vectors of 16 runs (AVX-512) compiled by GCC, 8 are AVX2, 4 are SSE without FMA; `one` is the kernel of a single run,
as on a GPU, compiled by the C compiler; `quick` is the scan compiled with few optimisations. The JSON has digests of the scan's numbers, to
compare machines:

    python scripts/equality.py --compare x86_64.json aarch64.json
"""

import atexit
import contextlib
import functools
import hashlib
import itertools
import os
import platform
import shutil
import sys
import tempfile
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
from kernels import pairs, parser_of, store, stored

import jaxroute as jr
from jaxroute.core import draws
from jaxroute.core.attributes import decoded
from jaxroute.core.protocols import build_policy, is_environment, metrics_of
from jaxroute.engine import programs
from jaxroute.kernels import host

RESULTS = Path(__file__).resolve().parent / "bench_results" / "equality.json"
RUNS, ROUNDS, RECORDS = 1024, 2000, 50
VECTORS = {16: host.X86_FLAGS, 8: ("-march=haswell",), 4: ("-march=x86-64",)}
COMPILERS = {"gcc": "g++", "clang": "clang++"}
WAYS = ["scan", *(f"{name}-{lanes}" for name in COMPILERS for lanes in VECTORS), "one", "quick", "reference"]


def everything(env: Any, policy: Any) -> list[str]:
    """Returns the names of all metrics that the environment and the policy can record."""
    example = env if is_environment(env) else env(draws.key(0))
    return [m.name for m in (*example.spec.metrics, *metrics_of(build_policy(policy, example)))]


@contextlib.contextmanager
def prepared(way: str) -> Generator[jr.Execution, None, None]:
    """Context in which kernels are compiled in a way, such as "gcc-16"; yields the `Execution` that uses these kernels."""
    name, _, lanes = way.partition("-")
    host.compiler.cache_clear()
    programs.PROGRAMS.clear()
    flags, compiler = (VECTORS[int(lanes)], {"CXX": COMPILERS[name]}) if lanes else (host.X86_FLAGS, {})
    backend = "kernel" if lanes or way == "one" else "reference" if way == "reference" else "scan"
    wide = patch.object(programs, "WIDE", way != "one")
    with patch.object(host, "X86_FLAGS", flags), wide, patch.dict(os.environ, compiler):
        yield jr.Execution(backend, compile="quick" if way == "quick" else "full")


def runs_that_differ(ours: Any, theirs: Any) -> int:
    """Counts the runs in which any recorded number differs between two results; NaNs are equal."""

    def parts(a: Any, b: Any) -> np.ndarray:
        axis = a.dims.index("seed")
        same = (a.values == b.values) | ((a.values != a.values) & (b.values != b.values))
        return np.moveaxis(~same, axis, 0).reshape(a.shape[axis], -1).any(axis=1)

    names = [name for name in theirs.data_vars if "seed" in theirs[name].dims]
    assert set(ours.data_vars) == set(theirs.data_vars)
    return int(functools.reduce(np.logical_or, (parts(ours[name], theirs[name]) for name in names)).sum())


def digest_of(result: Any) -> str:
    """Returns a digest of all recorded numbers of a result; all NaNs count as equal."""
    found = hashlib.sha256()
    for name in sorted(name for name in result.data_vars if "seed" in result[name].dims):
        values = result[name].values
        found.update(name.encode() + np.where(values != values, values.dtype.type(np.nan), values).tobytes())
    return found.hexdigest()[:16]


def row_of(env: Any, policy: Any, runs: int, rounds: int, ways: list[str]) -> dict[str, Any]:
    """Returns for each way the number of runs that differ from the scan, or the reason why the policy has no such kernel."""
    options = {
        "horizon": rounds,
        "seeds": runs,
        "record_every": max(1, rounds // RECORDS),
        "record": everything(env, policy),
    }
    row: dict[str, Any] = {"runs": runs, "rounds": rounds}
    scan = None
    for way in ways:
        with prepared(way) as execution, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = jr.simulate(env, {"policy": policy}, progress=False, execution=execution, **options)
        about = decoded(result.attrs)
        if scan is None:
            scan, row["digest"] = result, digest_of(result)
            row["inexact"] = sorted(itertools.chain.from_iterable(about.get("inexact", {}).values()))
        else:
            row[way] = next(iter(about["fell_back"].values()), None) or runs_that_differ(result, scan)
    return row


def available(ways: list[str]) -> list[str]:
    """Returns those of the `ways` whose compiler is installed; also replaces the cache of compiled kernels by an empty folder."""
    os.environ["XDG_CACHE_HOME"] = folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    return [way for way in ways if shutil.which(COMPILERS.get(way.partition("-")[0], "true"))]


def compare(files: list[Path]) -> int:
    """Prints the policies whose scans differ between two reports; returns their number."""
    one, other = map(stored, files)
    both = [key for key in one if key in other and all(one[key][size] == other[key][size] for size in ("runs", "rounds"))]
    differ = [key for key in both if one[key]["digest"] != other[key]["digest"]]
    print(f"{len(differ)} of {len(both)} policies differ", *(f"{problem}/{name}" for problem, name in differ))
    return len(differ)


def main(arguments: list[str] | None = None) -> int:
    """Compares all policies, prints and stores the table; returns the number of rows in which something differs without a reason."""
    parser = parser_of(__doc__, RESULTS)
    text = "default: all; the first is what the others are compared with"
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help=text)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    text = "compares the digests of two reports, and does nothing else"
    parser.add_argument("--compare", nargs=2, type=Path, metavar="FILE", help=text)
    options = parser.parse_args(arguments)
    if options.compare:
        return compare(options.compare)
    ways, rows = available(options.ways), stored(options.out)
    print(f"{'':<34}" + "".join(f"{way:>10}" for way in ways[1:]))
    wrong = 0
    for problem, name, env, policy in pairs(options.only, options.policies):
        row = row_of(env, policy, options.runs, options.rounds, ways)
        rows[problem, name] = {"problem": problem, "policy": name, **row}
        wrong += not row["inexact"] and any(isinstance(row[way], int) and row[way] for way in ways[1:])
        cells = [f"{row[way] if isinstance(row[way], int) else '-':>10}" for way in ways[1:]]
        print(f"{problem:<14}{name:<20}" + "".join(cells), *row["inexact"], flush=True)
        store(options.out, rows, machine=platform.machine(), flags=host.FLAGS, jax=jax.__version__)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
