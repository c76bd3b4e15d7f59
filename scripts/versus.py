"""Two checkouts in turns: seconds, memory and results of rows of their benchmarks, one call of each after the other.

    git worktree add ../before 45934a7
    python scripts/versus.py ../before --out before_and_after.json
    python scripts/versus.py ../before --only "queueing, two answers/ACQB" --repeats 5

A row is "problem/policy" of `bench.PROBLEMS`, which each checkout reads from its own `scripts/bench.py`, but for those of `ROWS` that
name an environment. Every checkout has a process of its own for each row; the processes play in turns, so that what slows the machine slows
both. Paired differences are those of equal seeds.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import quiet

ROOT = Path(__file__).resolve().parents[1]

# Name -> problem of the bench, policy, runs, horizon (None: the bench's own), environment in place of the bench's.
ROWS: dict[str, dict[str, Any]] = {
    "queueing/ACQB": {},
    "queueing, two answers/ACQB": {},
    "queueing/ACQB, on line": {},
    "queueing, long/ACQB, on line": {"runs": 128},  # Of 256 two are invalid; finding out why takes longer than they do.
    "queueing, long/ACQB": {"runs": 64, "policy": "queueing.ACQB()"},
    "queueing, pool/ACQB": {
        "problem": "queueing",
        "runs": 16,
        "horizon": 300,
        "environment": "queueing.standin_queue('sprout', arrival_rate=.8, horizon=300)",
    },
    "stochastic/UCB1": {},
    "stochastic/EpsilonGreedy": {},
    "stochastic/BetaThompson": {},
    "combinatorial, any win/C2MABV": {},
    "cascade, unknown evaluator/COSMOS, streaming": {},
    "staged/StageRoute": {},
    "service/MessPlus": {},
}

_CHILD = """
import json, resource, sys, time
sys.path.insert(0, sys.argv[1] + "/scripts")
import bench, jax, jaxroute
from jaxroute.problems import queueing
row = json.loads(sys.argv[2])
parts = bench.PROBLEMS[row["problem"]]
env = eval(row["environment"]) if row["environment"] else parts["env"]()
policy = eval(row["policy_code"]) if row["policy_code"] else parts["policies"][row["policy"]]
metric = parts.get("metric", "regret")
answers = sys.stdout
sys.stdout = sys.stderr
for line in sys.stdin:
    start, used = time.perf_counter(), time.process_time()
    data = jaxroute.simulate(env, {"p": policy}, horizon=row["horizon"] or parts["horizon"], seeds=row["runs"], record=[metric], progress=False)
    seconds, cpu = time.perf_counter() - start, time.process_time() - used
    last = data[metric].isel(time=-1, policy=0).values.ravel()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    answer = {"seconds": seconds, "cpu_seconds": cpu, "decisions": data.attrs["decisions"], "peak_bytes": peak}
    print(json.dumps({**answer, "last": last.tolist(), "valid": bool(data["valid"].all())}), file=answers, flush=True)
"""


def _started(checkout: Path, row: dict[str, Any]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-c", _CHILD, str(checkout), json.dumps(row)]
    return subprocess.Popen(
        command,
        env=environment,
        cwd=checkout,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _asked(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What a process answers after one more call.

    Raises:
      RuntimeError: it ended.
    """
    given, answers = process.stdin, process.stdout
    assert isinstance(given, IO) or (given and answers)  # Both are pipes.
    given.write("\n")
    given.flush()
    line = answers.readline()
    if not line:
        raise RuntimeError((process.stderr.read().strip().splitlines() or ["it ended without a word"])[-1])
    return json.loads(line)


def compared(before: Path, after: Path, name: str, runs: int, repeats: int) -> dict[str, Any]:
    """One row of both checkouts: medians of `repeats` calls in turns, after one that compiles.

    Args:
      before: a checkout.
      after: another.
      name: of `ROWS`, or "problem/policy" of the bench.
      runs: if the row has no number of its own.
      repeats: timed calls of each.
    """
    problem, _, policy = name.partition("/")
    own = ROWS.get(name, {})
    row = {
        "problem": own.get("problem", problem),
        "policy": policy,
        "policy_code": own.get("policy"),
        "environment": own.get("environment"),
        "runs": own.get("runs", runs),
        "horizon": own.get("horizon"),
    }
    processes = [_started(checkout, row) for checkout in (before, after)]
    try:
        firsts = [_asked(p) for p in processes]
        answers = [[_asked(p) for p in processes] for _ in range(repeats)]
    finally:
        for process in processes:
            process.kill()
    columns = list(zip(*answers, strict=True))
    cpu = [statistics.median(a["cpu_seconds"] for a in column) for column in columns]
    results = [first["last"] for first in firsts]
    gaps = [y - x for x, y in zip(*results, strict=True)]
    return {
        "runs": row["runs"],
        "decisions": firsts[0]["decisions"],
        "cpu_seconds": cpu,
        "seconds": [statistics.median(a["seconds"] for a in column) for column in columns],
        "spread": [quiet.spread([a["cpu_seconds"] for a in column]) for column in columns],
        "decisions_per_cpu_s": [column[0]["decisions"] / used for column, used in zip(columns, cpu, strict=True)],
        "ratio": cpu[0] / cpu[1],
        "peak_bytes": [column[-1]["peak_bytes"] for column in columns],
        "mean": [statistics.fmean(values) for values in results],
        "stderr": [_error(values) for values in results],
        "difference": statistics.fmean(gaps),
        "difference_stderr": _error(gaps),
        "equal_bits": results[0] == results[1],
        "valid": all(first["valid"] for first in firsts),
    }


def _error(values: list[float]) -> float:
    return statistics.stdev(values) / len(values) ** 0.5


def line(name: str, row: dict[str, Any]) -> str:
    """A row as text."""
    speeds = " ".join(f"{speed:12,.0f}" for speed in row["decisions_per_cpu_s"])
    memory = " ".join(f"{peak / 2**20:6,.0f}" for peak in row["peak_bytes"])
    means = " ".join(f"{mean:.4g} ({error:.2g})" for mean, error in zip(row["mean"], row["stderr"], strict=True))
    same = "equal bits" if row["equal_bits"] else f"difference {row['difference']:+.3g} ({row['difference_stderr']:.2g})"
    invalid = "" if row["valid"] else "  INVALID RUNS: what is timed and measured is their diagnosis, too"
    return f"{name:46s} {speeds} {row['ratio']:6.2f} x  {memory} MiB  {means}  {same}{invalid}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("--only", nargs="+", help="rows, as problem/policy (default: those of this file)")
    parser.add_argument("--runs", type=int, default=512, help="of rows without a number of their own")
    parser.add_argument("--repeats", type=int, default=3, help="timed calls of each checkout")
    parser.add_argument("--out", type=Path, help="file for the result (JSON)")
    options = parser.parse_args()
    rows = {}
    print(f"{'row':46s} {'before':>12s} {'after':>12s} per CPU s      peak memory")
    for name in options.only or ROWS:
        rows[name] = compared(options.before.resolve(), ROOT, name, options.runs, options.repeats)
        print(line(name, rows[name]), flush=True)
        if options.out:
            options.out.write_text(json.dumps({"load": os.getloadavg()[0], "rows": rows}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
