"""Seconds to the first picture: every experiment in a process of its own, without and with compiled programs of an earlier one.

    python scripts/first_call.py                                  # every experiment with --smoke
    python scripts/first_call.py --full staged/figure-2           # at its own size
    python scripts/first_call.py --compare before.json after.json # two stored measurements, as a table
    python scripts/first_call.py --sources ../older queueing      # another checkout, the experiments of one problem

Tracing, lowering and compiling are the sums over all programs, of which several are compiled at the same time; `compile_s` and `run_s` are
the seconds that passed, as the run itself reports them; `all_s` and `cpu_s` are those of the whole command.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_CHILD = """
import collections, json, sys
import jax
spent = collections.Counter()
names = {"jaxpr_trace_duration": "trace", "jaxpr_to_mlir_module_duration": "lower", "backend_compile_duration": "compile"}
def note(event, seconds, **more):
    kind = names.get(event.rsplit("/", 1)[-1])
    if kind:
        spent[kind] += seconds
        spent[kind + "_number"] += 1
jax.monitoring.register_event_duration_secs_listener(note)
from jaxroute import cli
status = cli.main(sys.argv[2:])
open(sys.argv[1], "w").write(json.dumps(spent))
sys.exit(status)
"""


def measured(name: str, arguments: list[str], cache: Path, sources: Path) -> dict:
    """One run of an experiment."""
    with tempfile.TemporaryDirectory() as folder:
        out, spent = Path(folder) / "out", Path(folder) / "spent.json"
        command = [sys.executable, "-c", _CHILD, str(spent), "run", name, *arguments, "--out", str(out)]
        environment = {**os.environ, "PYTHONPATH": str(sources), "JAX_COMPILATION_CACHE_DIR": str(cache)}
        environment |= {
            "XDG_CACHE_HOME": str(cache),
            "MPLCONFIGDIR": str(Path.home() / ".cache" / "matplotlib"),
        }  # Kernels; fonts stay.
        environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"  # As the command sets it.
        used, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(
            command, env=environment, cwd=sources, capture_output=True, text=True
        )  # `-c` looks there first.
        seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1][:300]}
        summary, kinds = json.loads((out / "summary.json").read_text()), json.loads(spent.read_text())
    return {
        **{f"{kind}_sum_s": round(kinds.get(kind, 0.0), 2) for kind in ("trace", "lower", "compile")},
        "programs": kinds.get("compile_number", 0),
        "compile_s": round(summary["compile_s"], 2),
        "run_s": round(summary["run_s"], 2),
        "all_s": round(seconds, 2),
        "cpu_s": round(after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime, 2),
    }


def table(results: dict[str, dict]) -> str:
    """Rows of a measurement: cold, then warm."""
    lines = [f"{'experiment':28s} {'compiling':>16s} {'playing':>8s} {'all':>16s} {'CPU':>16s}"]
    for name, row in results.items():
        cold, warm = row["cold"], row["warm"]
        if "error" in cold or "error" in warm:
            lines.append(f"{name:28s} {cold.get('error') or warm.get('error')}")
            continue
        pairs = [f"{cold[key]:7.1f} {warm[key]:7.1f}" for key in ("compile_s", "all_s", "cpu_s")]
        lines.append(f"{name:28s} {pairs[0]:>16s} {cold['run_s']:8.1f} {pairs[1]:>16s} {pairs[2]:>16s}")
    return "\n".join(lines)


def compared(before: dict[str, dict], after: dict[str, dict]) -> str:
    """Cold seconds of two measurements, side by side."""
    lines = [f"{'experiment':28s} {'compiling':>16s} {'all':>16s} {'all, warm':>16s}"]
    for name in (name for name in after if name in before):
        rows = [before[name], after[name]]
        if any("error" in row[state] for row in rows for state in ("cold", "warm")):
            continue
        pairs = [
            " ".join(f"{row[state][key]:7.1f}" for row in rows)
            for state, key in (("cold", "compile_s"), ("cold", "all_s"), ("warm", "all_s"))
        ]
        lines.append(f"{name:28s} " + " ".join(f"{pair:>16s}" for pair in pairs))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="experiments, or problems (default: every experiment that needs no data)")
    parser.add_argument("--full", action="store_true", help="at their own size, not with --smoke")
    parser.add_argument("--sources", type=Path, default=ROOT, help="checkout that is measured")
    parser.add_argument("--out", type=Path, help="file for the result (JSON)")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("BEFORE", "AFTER"), help="two results as a table")
    options = parser.parse_args()
    if options.compare:
        print(compared(*(json.loads(path.read_text())["experiments"] for path in options.compare)))
        return 0
    known = json.loads((ROOT / "jaxroute" / "catalogue.json").read_text())["experiments"]
    chosen = [n for n in known if not options.names or n in options.names or n.split("/")[0] in options.names]
    if not chosen:
        parser.error(f"names must be experiments or problems, got {' '.join(options.names)}")
    results = {}
    for name in chosen:
        with tempfile.TemporaryDirectory() as cache:
            arguments = [] if options.full else ["--smoke"]
            results[name] = {s: measured(name, arguments, Path(cache), options.sources.resolve()) for s in ("cold", "warm")}
        print(table({name: results[name]}).splitlines()[-1], flush=True)
        if options.out:
            options.out.write_text(
                json.dumps({"load": os.getloadavg()[0], "smoke": not options.full, "experiments": results}, indent=1)
            )
    print("\n" + table(results))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
