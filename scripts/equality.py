"""Whether every default policy's kernel plays what the scan plays, on the host's C compiler; no GPU needed.

    python scripts/equality.py                     # a table here, JSON in scripts/bench_results/equality.json
    python scripts/equality.py --only staged --policies StageRoute --runs 256 --rounds 100

Both play the same runs, and everything that environment and policy declare is recorded in every round. A run has parted from the round on in
which a number differs by more than 1e-4 of the largest one of its unit: rounding of a logarithm, root or division has decided between two
models, say. `parted` is the number of such runs, `decisions` those before; `apart` the largest difference before, relative to the same; `z` the
largest difference of the means at the end in standard errors of that difference. Seconds are of writing the C and compiling it, and of XLA.
Where more than one decision in 100,000 parts two runs, both are compared with the scan in 64 bits: `from_64` says how many runs of kernel and of
scan part from that. If they are as many, 32 bits decide there, and the kernel is as near the truth as the scan.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
from kernels import ENVIRONMENTS, pairs

import jaxroute as jr
from jaxroute.core import draws
from jaxroute.core.attributes import decoded
from jaxroute.core.protocols import build_policy, is_environment, metrics_of
from jaxroute.kernels import host

RESULTS = Path(__file__).resolve().parent / "bench_results" / "equality.json"
RUNS, ROUNDS = 1024, 500
# Fewer of these: a run holds thousands of numbers.
HEAVY = {"queueing": (128, 200)}
# A shadow price is not unique where a vertex of the program meets the budget: rounding decides between slopes.
LOOSE = ("multiplier",)
_SAME = 1e-4
_RARE = 1e-5


def everything(env: Any, policy: Any) -> list[str]:
    """Names of all metrics."""
    example = env if is_environment(env) else env(draws.key(0))
    return [m.name for m in (*example.spec.metrics, *metrics_of(build_policy(policy, example))) if m.name not in LOOSE]


def in_full(env: Any, policy: Any, runs: int, rounds: int) -> dict[str, Any]:
    """Options of a simulation that records everything."""
    return {"horizon": rounds, "record_every": 1, "seeds": runs, "progress": False, "record": everything(env, policy)}


def both(env: Any, policy: Any, options: dict[str, Any]) -> tuple[Any, Any, dict[str, float]]:
    """Results of kernel and scan, and seconds to compile each; of a kernel that has never been compiled."""
    found, seconds = {}, {}
    for backend in ("kernel", "scan"):
        start = time.perf_counter()
        jr.simulate(env, {"policy": policy}, execution=jr.Execution(backend), **{**options, "seeds": 16, "horizon": 2})
        seconds[f"{backend}_first_s"] = round(time.perf_counter() - start, 2)
        found[backend] = jr.simulate(env, {"policy": policy}, execution=jr.Execution(backend), **options)
    return found["kernel"], found["scan"], seconds


def _kind(metric: Any) -> str:
    """What numbers of a metric count, summed or per round."""
    return metric.attrs.get("units", metric.name).split(" per ")[0]


def compare(ours: Any, theirs: Any) -> dict[str, Any]:
    """How alike two results are."""
    names = [n for n in theirs.data_vars if "time" in theirs[n].dims and theirs[n].dtype.kind == "f"]
    runs, rounds = theirs.sizes["seed"], theirs.sizes["time"]
    same, apart, z = np.ones((runs, rounds), bool), np.zeros((runs, rounds)), 0.0
    sizes: dict[str, float] = {}
    for (
        name
    ) in names:  # What is zero but for rounding (the regret of an optimal policy) is as large as what it is a difference of.
        b = theirs[name].values
        sizes[_kind(theirs[name])] = max(
            sizes.get(_kind(theirs[name]), 0.0), np.max(np.abs(b), initial=1e-9, where=np.isfinite(b))
        )
    for name in names:
        a, b = (np.moveaxis(d[name].values, d[name].dims.index("seed"), 0).reshape(runs, rounds, -1) for d in (ours, theirs))
        largest = sizes[_kind(theirs[name])]
        with np.errstate(invalid="ignore"):
            gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b) / largest)
        gap = np.nan_to_num(gap, nan=np.inf).max(axis=-1, initial=0.0)
        same &= gap <= _SAME
        apart = np.maximum(apart, gap)
        with np.errstate(invalid="ignore"):
            ends = (a - b)[:, -1].sum(axis=-1)
        ends = np.where(gap[:, -1] > _SAME, ends, 0.0)[np.isfinite(ends)]  # Rounding alone is no difference.
        if ends.size > 1 and ends.std() > 0:
            z = max(z, abs(ends.mean()) / (ends.std(ddof=1) / np.sqrt(ends.size)))
    alive = np.logical_and.accumulate(same, axis=1)
    return {
        "decisions": int(alive.sum()),
        "parted": int((~alive[:, -1]).sum()),
        "apart": float(np.max(apart, initial=0.0, where=alive)),
        "z": round(float(z), 2),
    }


def row_of(env: Any, policy: Any, runs: int, rounds: int) -> dict[str, Any]:
    """A row of the table; `reason` if the kernel does not play it."""
    options = in_full(env, policy, runs, rounds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs, seconds = both(env, policy, options)
    if fell_back := decoded(ours.attrs)["fell_back"]:
        return {"reason": next(iter(fell_back.values()))}
    row = {"runs": runs, "rounds": rounds, **compare(ours, theirs), **seconds}
    if row["parted"] > max(_RARE * row["decisions"], 1):
        with jax.enable_x64(True):
            exact = jr.simulate(env, {"policy": policy}, execution=jr.Execution("scan"), **options)
        row["from_64"] = [compare(result, exact)["parted"] for result in (ours, theirs)]
    return row


def show(row: dict[str, Any]) -> str:
    """A line of the table."""
    if "reason" in row:
        return f"  no kernel: {row['reason']}"
    return (
        f"{row['decisions']:>10,}{row['parted']:>8}{row['apart']:>10.1e}{row['z']:>6}{row['kernel_first_s']:>10}"
        f"{row['scan_first_s']:>8}" + (f"  from 64 bits {row['from_64']}" if "from_64" in row else "")
    )


def main(arguments: list[str] | None = None) -> int:
    """Compares, prints and stores; returns 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=ENVIRONMENTS, metavar="PROBLEM", help="these problems only")
    parser.add_argument("--policies", nargs="+", help="names of policies (default: all)")
    parser.add_argument("--runs", type=int, help=f"default {RUNS}, fewer for {', '.join(HEAVY)}")
    parser.add_argument("--rounds", type=int, help=f"default {ROUNDS}, fewer for {', '.join(HEAVY)}")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; pairs that are not compared stay as they are")
    options = parser.parse_args(arguments)
    stored = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    rows = {(row["problem"], row["policy"]): row for row in stored}
    fresh = tempfile.TemporaryDirectory()
    os.environ["XDG_CACHE_HOME"] = fresh.name  # No kernel has been compiled before.
    print(f"{'':<34}{'decisions':>10}{'parted':>8}{'apart':>10}{'z':>6}{'kernel s':>10}{'scan s':>8}")
    for problem, name, env, policy in pairs(options.only, options.policies):
        runs, rounds = HEAVY.get(problem, (RUNS, ROUNDS))
        row = row_of(env, policy, options.runs or runs, options.rounds or rounds)
        rows[problem, name] = {"problem": problem, "policy": name, **row}
        print(f"{problem:<14}{name:<20}" + show(row), flush=True)
        report = {"flags": host.FLAGS, "jax": jax.__version__, "rows": [rows[key] for key in sorted(rows)]}
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
