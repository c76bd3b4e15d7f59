"""Compares all back ends and compilers for every default policy: bit by bit, or by their speed on this CPU.

    python scripts/backends.py                     # bits: a table here, JSON in scripts/bench_results/equality.json
    python scripts/backends.py --only staged --policies StageRoute --runs 256 --rounds 100 --ways scan gcc-16 clang-4
    python scripts/backends.py --compare x86_64.json aarch64.json
    python scripts/backends.py --speed             # speeds, in scripts/bench_results/backends/512-bits.json
    XLA_FLAGS=--xla_cpu_max_isa=AVX2 python scripts/backends.py --speed --ways scan gcc-8 clang-8 --out scripts/bench_results/backends/256-bits.json
    XLA_FLAGS=--xla_cpu_max_isa=SSE4_2 python scripts/backends.py --speed --ways scan gcc-4 clang-4 --out scripts/bench_results/backends/128-bits.json

`gcc-16` is a kernel for vectors of 16 runs (AVX-512) compiled by GCC, 8 are AVX2, 4 are SSE without FMA; `one` is the kernel of a single run,
as on a GPU, compiled by the C compiler; `quick` is the scan compiled with few optimisations.

Bits: all ways simulate the same runs and record all metrics of environment and policy. A column has the number of runs that differ from the scan.
The JSON has digests of the scan's numbers, by which `--compare` compares machines.

Speeds, for the default back end: CPU seconds of the first call minus those of later ones, mostly for compilation, and decisions per CPU second of
later calls, the best of several in turns. The table has the speed as a multiple of the scan's.
"""

import atexit
import contextlib
import functools
import hashlib
import itertools
import operator
import os
import platform
import shutil
import statistics
import sys
import tempfile
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
from bench import timed
from kernels import ENVIRONMENTS, pairs, parser_of, store, stored

import jaxroute as jr
from jaxroute.core import draws
from jaxroute.core.attributes import decoded
from jaxroute.core.protocols import build_policy, is_environment, metrics_of
from jaxroute.engine import compiling, programs
from jaxroute.kernels import host

RESULTS = Path(__file__).resolve().parent / "bench_results"
RUNS, RECORDS = 1024, 50
# Rounds of a call: when bits are compared, and for speeds, where it takes at least some tenths of a second.
ROUNDS = 2000
TIMED = dict.fromkeys(ENVIRONMENTS, 1000) | {"stochastic": 6000, "contextual": 2000, "queueing": 200}
VECTORS = {16: host.X86_FLAGS, 8: ("-march=haswell",), 4: ("-march=x86-64",)}
COMPILERS = {"gcc": "g++", "clang": "clang++"}
WAYS = ["scan", *(f"{name}-{lanes}" for name in COMPILERS for lanes in VECTORS), "one", "quick", "reference"]


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


def simulated(env: Any, policy: Any, execution: jr.Execution, **sizes: Any) -> Any:
    """Simulates a policy without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jr.simulate(env, {"policy": policy}, progress=False, execution=execution, **sizes)


def runs_that_differ(ours: Any, theirs: Any) -> int:
    """Counts the runs in which any recorded number differs between two results; NaNs are equal."""
    assert set(ours.data_vars) == set(theirs.data_vars)
    differs = ((ours != theirs) & ~(ours.isnull() & theirs.isnull())).values()
    in_runs = [one.any([dim for dim in one.dims if dim != "seed"]) for one in differs if "seed" in one.dims]
    return int(functools.reduce(operator.or_, in_runs).sum())


def digest_of(result: Any) -> str:
    """Returns a digest of all recorded numbers of a result; all NaNs count as equal."""
    found = hashlib.sha256()
    for name in sorted(name for name in result.data_vars if "seed" in result[name].dims):
        values = result[name].values
        found.update(name.encode() + np.where(values != values, values.dtype.type(np.nan), values).tobytes())
    return found.hexdigest()[:16]


def bits_of(env: Any, policy: Any, runs: int, rounds: int, ways: list[str]) -> dict[str, Any]:
    """Returns for each way the number of runs that differ from the scan, or the reason why the policy has no such kernel."""
    example = env if is_environment(env) else env(draws.key(0))
    names = [m.name for m in (*example.spec.metrics, *metrics_of(build_policy(policy, example)))]
    sizes = {"horizon": rounds, "seeds": runs, "record_every": max(1, rounds // RECORDS), "record": names}
    row: dict[str, Any] = {"runs": runs, "rounds": rounds}
    scan = None
    for way in ways:
        with prepared(way) as execution:
            result = simulated(env, policy, execution, **sizes)
        about = decoded(result.attrs)
        if scan is None:
            scan, row["digest"] = result, digest_of(result)
            row["inexact"] = sorted(itertools.chain.from_iterable(about.get("inexact", {}).values()))
        else:
            row[way] = next(iter(about["fell_back"].values()), None) or runs_that_differ(result, scan)
    return row


def speed_of(env: Any, policy: Any, runs: int, rounds: int, ways: list[str], repeats: int) -> dict[str, Any]:
    """Measures a policy with each way of execution that supports it.

    Returns for each way `first_call_s`, CPU seconds of the first call minus those of a later one, and `per_s`, decisions per CPU second.
    """
    caches, executions, first, best = {}, {}, {}, {}

    def call(way: str) -> tuple[float, Any]:
        programs.PROGRAMS = caches[way]
        sizes = {"horizon": rounds, "record_every": rounds, "seeds": runs}
        result, _, seconds = timed(lambda: simulated(env, policy, executions[way], **sizes))
        return seconds, result

    for way in ways:
        caches[way] = programs.PROGRAMS = compiling.ProgramCache()
        with prepared(way) as executions[way]:
            first[way], result = call(way)
        if decoded(result.attrs)["fell_back"]:
            del caches[way], first[way]
    for way in list(caches) * repeats:
        best[way] = min(best.get(way, float("inf")), call(way)[0])
    measured = {"first_call_s": {way: first[way] - best[way] for way in best}}
    return {"runs": runs, "rounds": rounds, **measured, "per_s": {way: runs * rounds / best[way] for way in best}}


def compare(files: list[Path]) -> int:
    """Prints the policies whose scans differ between two reports; returns their number."""
    one, other = map(stored, files)
    both = [key for key in one if key in other and all(one[key][size] == other[key][size] for size in ("runs", "rounds"))]
    differ = [key for key in both if one[key]["digest"] != other[key]["digest"]]
    print(f"{len(differ)} of {len(both)} policies differ", *(f"{problem}/{name}" for problem, name in differ))
    return len(differ)


def main(arguments: list[str] | None = None) -> int:
    """Compares all policies, prints and stores the table; returns the number of rows whose bits differ without a reason."""
    parser = parser_of(__doc__, None)
    parser.add_argument("--speed", action="store_true", help="speeds instead of bits")
    text = "default: all, for speeds scan, gcc-16 and clang-16; the first is what the others are compared with"
    parser.add_argument("--ways", nargs="+", choices=WAYS, help=text)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--rounds", type=int, help=f"default: {ROUNDS}, for speeds by problem")
    parser.add_argument("--repeats", type=int, default=5, help="of calls whose speed is measured")
    text = "compares the digests of two reports, and does nothing else"
    parser.add_argument("--compare", nargs=2, type=Path, metavar="FILE", help=text)
    options = parser.parse_args(arguments)
    if options.compare:
        return compare(options.compare)
    out = options.out or RESULTS / ("backends/512-bits.json" if options.speed else "equality.json")
    # Compiled kernels are stored in a new folder; ways whose compiler is not installed are left out.
    os.environ["XDG_CACHE_HOME"] = folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    wanted = options.ways or (["scan", "gcc-16", "clang-16"] if options.speed else WAYS)
    ways = [way for way in wanted if shutil.which(COMPILERS.get(way.partition("-")[0], "true"))]
    rows, shown, wrong = stored(out), ways if options.speed else ways[1:], 0
    print(f"{'':<34}" + "".join(f"{way:>{16 if options.speed else 10}}" for way in shown))
    for problem, name, env, policy in pairs(options.only, options.policies):
        more: list[str] = []
        if options.speed:
            row = speed_of(env, policy, options.runs, options.rounds or TIMED[problem], ways, options.repeats)
            speed, first = row["per_s"], row["first_call_s"]
            cells = [
                f"{speed[way] / speed['scan']:>8.2f}{first[way]:>6.1f} s" if way in speed else f"{'-':>16}" for way in ways
            ]
            about = {"jax": jax.__version__}
        else:
            row = bits_of(env, policy, options.runs, options.rounds or ROUNDS, ways)
            cells = [f"{row[way] if isinstance(row[way], int) else '-':>10}" for way in shown]
            more = row["inexact"]
            wrong += not more and any(isinstance(row[way], int) and row[way] for way in shown)
            about = {"machine": platform.machine(), "flags": host.FLAGS, "jax": jax.__version__}
        rows[problem, name] = {"problem": problem, "policy": name, **row}
        print(f"{problem:<14}{name:<20}" + "".join(cells), *more, flush=True)
        store(out, rows, **about)
    for way in ways[1:] if options.speed else ():
        ratios = sorted(row["per_s"][way] / row["per_s"]["scan"] for row in rows.values() if way in row["per_s"])
        if ratios:
            slower = sum(ratio < 1 for ratio in ratios)
            median = f"median {statistics.median(ratios):.2f} of the scan, least {ratios[0]:.2f}"
            print(f"{way}: {median}, {slower} of {len(ratios)} slower")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
