"""Measures scan and kernel on this CPU for every default policy and compiler: the table behind the default back end.

    python scripts/backends.py           # a table here, JSON in scripts/bench_results/backends/512-bits.json
    XLA_FLAGS=--xla_cpu_max_isa=AVX2 python scripts/backends.py --ways scan gcc-8 clang-8 --out scripts/bench_results/backends/256-bits.json
    XLA_FLAGS=--xla_cpu_max_isa=SSE4_2 python scripts/backends.py --ways scan gcc-4 clang-4 --out scripts/bench_results/backends/128-bits.json

For each way (as in `equality.py`): CPU seconds of the first call minus those of later ones, mostly for compilation, and decisions per CPU
second of later calls, the best of several in turns. The table has the speed as a multiple of the scan's.
"""

import resource
import statistics
import sys
import warnings
from pathlib import Path
from typing import Any

import jax
from equality import WAYS, available, prepared
from kernels import ENVIRONMENTS, pairs, parser_of, store, stored

import jaxroute as jr
from jaxroute.core.attributes import decoded
from jaxroute.engine import compiling, programs

RESULTS = Path(__file__).resolve().parent / "bench_results" / "backends" / "512-bits.json"
RUNS, REPEATS = 1024, 5
# Rounds of a call, which then takes at least some tenths of a second.
ROUNDS = dict.fromkeys(ENVIRONMENTS, 1000) | {"stochastic": 6000, "contextual": 2000, "queueing": 200}


def used() -> float:
    """Returns the CPU seconds of this process and of its compilers."""
    both = (resource.getrusage(which) for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def row_of(env: Any, policy: Any, runs: int, rounds: int, ways: list[str], repeats: int) -> dict[str, Any]:
    """Measures a policy with each way of execution that supports it.

    Returns for each way `first_call_s`, CPU seconds of the first call minus those of a later one, and `per_s`, decisions per CPU second.
    """
    caches, executions, first, best = {}, {}, {}, {}

    def call(way: str) -> tuple[float, Any]:
        programs.PROGRAMS, start = caches[way], used()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sizes = {"horizon": rounds, "record_every": rounds, "seeds": runs}
            result = jr.simulate(env, {"policy": policy}, progress=False, execution=executions[way], **sizes)
        return used() - start, result

    for way in ways:
        caches[way] = programs.PROGRAMS = compiling.ProgramCache()
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
    """Measures all policies, prints a table and stores it; returns the exit status 0."""
    parser, usual = parser_of(__doc__, RESULTS), ["scan", "gcc-16", "clang-16"]
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=usual, help="default: %(default)s")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--rounds", type=int, help="of a call (default: by problem)")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options = parser.parse_args(arguments)
    ways, rows = available(options.ways), stored(options.out)
    print(f"{'':<34}" + "".join(f"{way:>16}" for way in ways))
    for problem, name, env, policy in pairs(options.only, options.policies):
        rounds = options.rounds or ROUNDS[problem]
        row = row_of(env, policy, options.runs, rounds, ways, options.repeats)
        rows[problem, name] = {"problem": problem, "policy": name, "runs": options.runs, "rounds": rounds, **row}
        speed, first = ({way: row[name].get(way) for way in ways} for name in ("per_s", "first_call_s"))
        cells = [f"{speed[way] / speed['scan']:>8.2f}{first[way]:>6.1f} s" if speed[way] else f"{'-':>16}" for way in ways]
        print(f"{problem:<14}{name:<20}" + "".join(cells), flush=True)
        store(options.out, rows, jax=jax.__version__)
    for way in ways[1:]:
        ratios = sorted(row["per_s"][way] / row["per_s"]["scan"] for row in rows.values() if way in row["per_s"])
        if ratios:
            slower = sum(ratio < 1 for ratio in ratios)
            median = f"median {statistics.median(ratios):.2f} of the scan, least {ratios[0]:.2f}"
            print(f"{way}: {median}, {slower} of {len(ratios)} slower")
    return 0


if __name__ == "__main__":
    sys.exit(main())
