"""Speed of scan and kernel on this CPU, for every default policy and compiler: the table behind the default back end.

    python scripts/backends.py           # a table here, JSON in scripts/bench_results/backends/512-bits.json
    XLA_FLAGS=--xla_cpu_max_isa=AVX2 python scripts/backends.py --ways scan gcc-8 clang-8 --out scripts/bench_results/backends/256-bits.json
    XLA_FLAGS=--xla_cpu_max_isa=SSE4_2 python scripts/backends.py --ways scan gcc-4 clang-4 --out scripts/bench_results/backends/128-bits.json

For each way (as in `equality.py`): CPU seconds of the first call minus those of later ones, mostly for compilation, and decisions per CPU
second of later calls, the best of several in turns. The table has the speed as a multiple of the scan's.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import jax
from equality import COMPILERS, WAYS, prepared
from kernels import ENVIRONMENTS, pairs

import jaxroute as jr
from jaxroute.core.attributes import decoded
from jaxroute.engine import cache, programs

RESULTS = Path(__file__).resolve().parent / "bench_results" / "backends" / "512-bits.json"
RUNS, REPEATS = 1024, 5
# Rounds of a call, which then takes at least some tenths of a second.
ROUNDS = {
    "stochastic": 6000,
    "contextual": 2000,
    "combinatorial": 1000,
    "service": 1000,
    "staged": 1000,
    "queueing": 200,
    "cascade": 1000,
}


def used() -> float:
    """CPU seconds of this process and of its compilers."""
    both = (resource.getrusage(which) for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def row_of(env: Any, policy: Any, runs: int, rounds: int, ways: list[str], repeats: int) -> dict[str, Any]:
    """`first_call_s`, without the time of a later call, and `per_s`, decisions per CPU second, of each way that has a kernel for the policy."""
    caches, executions, first, best = {}, {}, {}, {}

    def call(way: str) -> tuple[float, Any]:
        programs.PROGRAMS, start = caches[way], used()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = jr.simulate(
                env,
                {"policy": policy},
                horizon=rounds,
                record_every=rounds,
                seeds=runs,
                progress=False,
                execution=executions[way],
            )
        return used() - start, result

    for way in ways:
        caches[way] = programs.PROGRAMS = cache.ProgramCache()
        with prepared(way) as executions[way]:
            first[way], result = call(way)
        if decoded(result.attrs)["fell_back"]:
            del caches[way], first[way]
    for way in list(caches) * repeats:
        best[way] = min(best.get(way, float("inf")), call(way)[0])
    return {
        "first_call_s": {way: first[way] - best[way] for way in best},
        "per_s": {way: runs * rounds / seconds for way, seconds in best.items()},
    }


def main(arguments: list[str] | None = None) -> int:
    """Measures, prints and stores; returns 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=ENVIRONMENTS, metavar="PROBLEM", help="these problems only")
    parser.add_argument("--policies", nargs="+", help="names of policies (default: all)")
    parser.add_argument(
        "--ways", nargs="+", choices=WAYS, default=["scan", "gcc-16", "clang-16"], help="default: %(default)s"
    )
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--rounds", type=int, help="of a call (default: by problem)")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; pairs that are not measured stay as they are")
    options = parser.parse_args(arguments)
    ways = [way for way in options.ways if shutil.which(COMPILERS.get(way.partition("-")[0], "true"))]
    stored = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    rows = {(row["problem"], row["policy"]): row for row in stored}
    fresh = tempfile.TemporaryDirectory()
    os.environ["XDG_CACHE_HOME"] = fresh.name  # No kernel has been compiled before.
    print(f"{'':<34}" + "".join(f"{way:>16}" for way in ways))
    for problem, name, env, policy in pairs(options.only, options.policies):
        rounds = options.rounds or ROUNDS[problem]
        row = row_of(env, policy, options.runs, rounds, ways, options.repeats)
        rows[problem, name] = {"problem": problem, "policy": name, "runs": options.runs, "rounds": rounds, **row}
        cells = [
            f"{row['per_s'][way] / row['per_s']['scan']:>8.2f}{row['first_call_s'][way]:>6.1f} s"
            if way in row["per_s"]
            else f"{'-':>16}"
            for way in ways
        ]
        print(f"{problem:<14}{name:<20}" + "".join(cells), flush=True)
        report = {"jax": jax.__version__, "rows": [rows[key] for key in sorted(rows)]}
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    for way in ways[1:]:
        ratios = sorted(row["per_s"][way] / row["per_s"]["scan"] for row in rows.values() if way in row["per_s"])
        if ratios:
            slower = sum(ratio < 1 for ratio in ratios)
            print(
                f"{way}: median {statistics.median(ratios):.2f} of the scan, least {ratios[0]:.2f}, {slower} of {len(ratios)} slower"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
