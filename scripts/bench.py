"""Measures decisions per second of every policy, next to other tools in the same process.

    python scripts/bench.py                               # the rows of the page on performance, about five minutes on two cores
    python scripts/bench.py --full                        # every policy of every problem, about a quarter of an hour
    python scripts/bench.py --only staged --seeds 4096 --repeats 7
    python scripts/bench.py --full --backend scan kernel --runs 1e3 1e4 1e5 1e6 --no-comparators
    python scripts/bench.py --compare A.json B.json       # two stored results, row by row
    python scripts/bench.py --page                        # rewrites the table of the page on performance from the stored results

Prints a table and writes JSON to scripts/bench_results/. A speed is the median of several repeats after a warm-up. "first call" is the time
of tracing and compiling, with empty caches in memory and on disk. "per CPU s" divides by the CPU time of all threads. The last line reports
whether the machine was quiet: how far repeats differ, and which share of the cores other processes used. Comparators (`comparators.py`)
always run on the CPU, the slow ones with fewer decisions.

A row of the page is the latest result for a device, problem, policy, horizon and number of runs, with ratios to comparators of the same job.
A result from a noisy machine contributes no speeds, only the CPU time of first calls, which noise hardly changes. The page shows the policies
that have a comparator, and the first policy of each problem.
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

import jax
import numpy as np
from comparators import COMPARATORS, Comparator

import jaxroute
from jaxroute import metrics
from jaxroute.core import provenance
from jaxroute.core.attributes import decoded
from jaxroute.engine import BACKENDS
from jaxroute.engine.programs import PROGRAMS, Block
from jaxroute.estimators.mnl import Online
from jaxroute.problems import cascade, combinatorial, contextual, default_policies, queueing, service, staged, stochastic
from jaxroute.problems.cascade.parts.indices import StreamingNewton

T = TypeVar("T")
RESULTS = Path(__file__).resolve().parent / "bench_results"
PAGE = RESULTS.parents[1] / "notebooks" / "site" / "performance.md"
START, END = "<!-- performance -->", "<!-- /performance -->"
# Tool, problem and policy of today's comparisons; older results have more. The first is of a grid.
COMPARED = {("one setting at a time", "service, grid", "MessPlus"), *COMPARATORS}
THETA = np.random.default_rng(0).normal(size=(10, 10))
THETA /= np.linalg.norm(THETA, axis=1, keepdims=True)
MEANS = tuple(np.round(np.linspace(0.9, 0.0, 10), 6).tolist())


class Problem(NamedTuple):
    """One problem of the benchmark.

    Attributes:
      env: function that makes the environment.
      policies: policies by name.
      horizon: number of rounds.
      metric: recorded metric.
      short: policies on the page on performance, besides the first; None stands for those with a comparator.
    """

    env: Callable[[], Any]
    policies: dict[str, Any]
    horizon: int
    metric: str = "regret"
    short: tuple[str, ...] | None = None


def _grid_of_services() -> Any:
    alphas = np.linspace(0.6, 0.775, 8).tolist()
    return jaxroute.grid(service.benchmark_service, benchmark="winogrande", signal=0.15, alpha=alphas)


_SHARED = (contextual.OFUL, contextual.LinearThompson, contextual.LogisticThompson, contextual.SquareCB)
_C2MABV = {"C2MABV": combinatorial.C2MABV(), "C2MABV, best of": combinatorial.C2MABV(solver=combinatorial.BestOf())}
_SETS = {name: made for name, made in default_policies(combinatorial).items() if name != "Everything"}
_MESSPLUS = {
    "MessPlus": service.MessPlus(),
    "MessPlus, true probabilities": lambda env: service.MessPlus(predictor=service.TrueProbabilities(env.requests)),
    "MessPlus, Mlp 16": service.MessPlus(predictor=service.Learned(service.Mlp(width=16))),
}
_LEFT_OUT = ("MessPlus", "RouterDC", "OracleClairvoyant")
_SERVICES = {name: made for name, made in default_policies(service).items() if name not in _LEFT_OUT}
_MESSPLUS_GRID = jaxroute.grid(service.MessPlus, V=np.geomspace(1e-4, 1e-2, 16).tolist(), c=[0.05, 0.1, 0.2, 0.5])
_ACQB, _ONLINE = {"ACQB": queueing.ACQB()}, {"ACQB, on line": queueing.ACQB(solver=Online())}
_STREAMING = {"COSMOS, streaming": cascade.COSMOS(fit=StreamingNewton())}
PROBLEMS = {
    "stochastic": Problem(lambda: stochastic.bernoulli(MEANS), default_policies(stochastic), 10_000, "regret", ("UCB1", "BetaThompson", "EpsilonGreedy")),
    "contextual": Problem(lambda: contextual.linear(THETA, 0.1), default_policies(contextual) | {"LinUCB": contextual.LinUCB(alpha=0.5)}, 1000),
    "contextual, shared": Problem(lambda: contextual.linear(THETA[0], 0.1, num_models=10),
        {made.__name__: made(parameters=contextual.SharedParameters()) for made in _SHARED}, 1000),
    "staged": Problem(lambda: staged.arena_market(max_deployed=6, stage_length=250), default_policies(staged), 10_000),
    "combinatorial": Problem(lambda: combinatorial.sciq_cloud(reward="suc"),
        {**_SETS, "Thompson, normal": combinatorial.Thompson(combinatorial.NormalPosterior())}, 10_000, "lp_regret"),
    "combinatorial, any win": Problem(lambda: combinatorial.sciq_cloud(reward="awc"), _C2MABV, 2_000, "lp_regret"),
    "service": Problem(lambda: service.benchmark_service("winogrande", signal=0.15), {**_MESSPLUS, **_SERVICES}, 10_000, "cost"),
    "service, grid": Problem(_grid_of_services, {"MessPlus": _MESSPLUS_GRID}, 1267, "cost"),
    "queueing": Problem(queueing.RandomQueues, {**default_policies(queueing), **_ONLINE}, 1000, "routing_regret"),
    "queueing, compact": Problem(lambda: queueing.RandomQueues(limit=256), _ACQB, 1000, "routing_regret"),
    "queueing, long": Problem(lambda: queueing.RandomQueues(horizon=20_000, limit=1024), _ONLINE, 20_000, "routing_regret"),
    "queueing, two answers": Problem(lambda: queueing.RandomQueues(num_offered=2, limit=256), _ACQB, 1000, "routing_regret"),
    "cascade": Problem(cascade.uniform_cascade, {**_STREAMING, **default_policies(cascade)}, 2000),
    "cascade, unknown evaluator": Problem(lambda: cascade.uniform_cascade(evaluator=5), {**_STREAMING, "COSMOS": cascade.COSMOS()}, 2000),
    "cascade, long": Problem(cascade.uniform_cascade, _STREAMING, 100_000),
}  # fmt: skip
# Measured only on request: a repeat of the first takes about a minute on two cores.
LONG = ("queueing, long", "contextual", "contextual, shared")
# Seconds after which a row of the short benchmark is not repeated further, except for the second time.
PATIENCE = 6.0
# Rounds and runs of a slow comparator: about a second of work. A loop of another problem than the bandit has 1,000 rounds of 2 runs.
SLOW = {"loop": (2000, 10), "river": (2000, 10), "smpybandits": (2000, 5)}
LOOP_RUNS = {"queueing": 16, "queueing, two answers": 16, "cascade": 64}
# Limits of a quiet machine: median spread of repeats, share of all cores used by other processes; load average per core, where that share
# is unknown.
MOST_SPREAD, MOST_OTHERS, MOST_LOAD = 0.15, 0.05, 0.25


def plan(only: Sequence[str] = (), policies: Sequence[str] = (), full: bool = False) -> dict[str, list[str]]:
    """Returns for each problem the policies to measure; by default those on the page on performance, without the problems in `LONG`."""
    short = not (only or policies or full)
    rows: dict[str, list[str]] = {}
    for problem, parts in PROBLEMS.items():
        if (only and problem not in only) or (short and problem in LONG):
            continue
        compared = parts.short or [name for _, other, name in COMPARATORS if other == problem]
        names = [n for place, n in enumerate(parts.policies) if not short or place == 0 or n in compared]
        if chosen := [n for n in names if not policies or n in policies]:
            rows[problem] = chosen
    return rows


@contextlib.contextmanager
def empty_caches() -> Iterator[None]:
    """Context in which compiled programs are neither read from the disk nor written to it."""
    before = jax.config.jax_enable_compilation_cache
    with tempfile.TemporaryDirectory() as kernels, patch.dict(os.environ, XDG_CACHE_HOME=kernels):
        jax.config.update("jax_enable_compilation_cache", False)
        try:
            yield
        finally:
            jax.config.update("jax_enable_compilation_cache", before)


def timed(work: Callable[[], T]) -> tuple[T, float, float]:
    """Calls `work`. Returns its result, the seconds, and the CPU seconds of all threads and finished child processes (compilers)."""
    start, used = time.perf_counter(), _used()
    result = work()
    return result, time.perf_counter() - start, _used() - used


def _used() -> float:
    now = os.times()
    return time.process_time() + now.children_user + now.children_system


class _ReadyError(Exception):
    """Exception that ends a call of `simulate` after compilation."""


def first_call(simulate: Callable[[], Any]) -> dict[str, float]:
    """Measures the seconds and CPU seconds until a call of `simulate` has compiled its programs, with empty caches."""

    def compile_only(block: Block, *_: Any, **__: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            wait([block.compile_in(pool)])
        raise _ReadyError

    def prepare() -> None:
        with contextlib.suppress(_ReadyError):
            simulate()

    PROGRAMS.clear()
    jax.clear_caches()
    with patch.object(Block, "run", compile_only):
        _, seconds, cpu_seconds = timed(prepare)
    return {"first_call_s": seconds, "first_call_cpu_s": cpu_seconds}


def spread(seconds: Sequence[float]) -> float | None:
    """Returns the range of repeated timings divided by their median; None for fewer than two."""
    return (max(seconds) - min(seconds)) / statistics.median(seconds) if len(seconds) > 1 else None


def measured(
    work: Callable[[], Any], repeats: int, patience: float = float("inf"), compiled: bool = False
) -> dict[str, Any]:
    """Measures the median speed of a function that returns a mapping with its number of `decisions`.

    Args:
      work: the function.
      repeats: largest number of calls.
      patience: seconds after which the function is not called again; it is called at least twice.
      compiled: whether only compiled calls are timed, `run_s` of the mapping.
    """
    seconds, whole, cpu, found = [], [], [], {}
    while len(seconds) < repeats and (len(seconds) < 2 or sum(seconds) < patience):
        found, wall, used = timed(work)
        seconds.append(found["run_s"] if compiled else wall)
        whole.append(wall)
        cpu.append(used)
    middle, cpu_seconds = statistics.median(seconds), statistics.median(cpu)
    return {
        "decisions": found["decisions"],
        "repeats": len(seconds),
        "seconds": middle,
        "cpu_seconds": cpu_seconds,
        "seconds_all": [round(w, 4) for w in seconds],
        **({"wall_seconds": statistics.median(whole)} if compiled else {}),
        "spread": spread(seconds),
        "decisions_per_s": found["decisions"] / middle,
        "decisions_per_cpu_s": found["decisions"] / cpu_seconds,
    }


def bench_policy(
    problem: str, name: str, env: Any, policy: Any, options: Any, seeds: int, backend: str = "auto", compiled: bool = False
) -> dict[str, Any]:
    """Measures the speed of one policy in whole runs with a hundred records of one metric, and the time of its first call."""
    horizon, metric = options.horizon or PROBLEMS[problem].horizon, PROBLEMS[problem].metric

    def simulate():
        given = {"horizon": horizon, "seeds": seeds, "record": [metric], "execution": jaxroute.Execution(backend)}
        return jaxroute.simulate(env, {name: policy}, progress=False, **given)

    first = first_call(simulate)
    warm = simulate()
    entry = measured(lambda: simulate().attrs, options.repeats, options.patience, compiled)
    regret = warm[metric].isel(time=-1, policy=0).isel(dict.fromkeys(metrics.setting_axes(warm), 0))
    return {
        **entry,
        "tool": "jaxroute" if backend == "auto" else f"jaxroute, {backend}",
        "policy": name,
        **({"fell_back": reason} if (reason := decoded(warm.attrs)["fell_back"].get(name)) else {}),
        "horizon": horizon,
        "runs": seeds,
        "us_per_round": 1e6 * entry["seconds"] / horizon,
        **first,
        "mean_regret": float(regret.mean()),
        "stderr": float(regret.std(ddof=1) / np.sqrt(regret.size)),
    }


def bench_grid(problem: str, name: str, env: Any, grid: Any, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures the speed of a grid of settings in one call, and of one of its settings alone.

    Only compiled calls are timed: in a loop over settings, each setting would add the rest of `simulate`, a third of a second.
    """
    settings = len(env.objects) * len(grid.objects)
    rows = [
        bench_policy(problem, name, *pair, options, options.seeds, compiled=True)
        for pair in ((env, grid), (env.objects[0], grid.objects[0]))
    ]
    rows[0] |= {"policy": f"{name}, {settings} settings", "runs": options.seeds * settings}
    rows[1]["tool"] = "one setting at a time"
    return rows


def bench_comparator(one: Comparator, options: argparse.Namespace) -> dict[str, Any]:
    """Measures the speed of one comparator, and the time of its first call if the comparator compiles."""
    reason, seconds, cpu_seconds = timed(one.warm_up)
    if reason:
        return {"tool": one.tool, "policy": one.policy, "unavailable": reason}
    rounds, runs = SLOW.get(one.tool, (options.horizon or PROBLEMS[one.problem].horizon, options.seeds))
    if one.tool == "loop" and one.problem != "stochastic":
        rounds, runs = 1000, LOOP_RUNS.get(one.problem, 2)
    first = {"first_call_s": seconds, "first_call_cpu_s": cpu_seconds} if one.tool == "numba_lanes" else {}
    made: list[dict[str, float]] = []

    def work() -> dict[str, float]:
        made.append(one.run(rounds, runs, 1))
        return made[-1]

    entry = measured(work, 1 if one.tool in SLOW else options.repeats, options.patience)
    regret = {"mean_regret": made[-1]["mean_regret"], "stderr": made[-1]["standard_error"]}
    return {**entry, **first, **regret, "tool": one.tool, "policy": one.policy, "horizon": rounds, "runs": runs}


def show(problem: str, rows: list[dict[str, Any]], ratios: dict[str, dict[str, float]]) -> None:
    """Prints one problem's table."""
    print(
        f"\n{problem}\n  {'policy':<18} {'tool':<22} {'decisions/s':>13} {'first call':>10} {'per CPU s':>13} {'us/round':>9} "
        f"{'spread':>6}  mean regret (or metric)"
    )
    for row in rows:
        if "unavailable" in row:
            print(f"  {row['policy']:<18} {row['tool']:<22} unavailable: {row['unavailable']}")
            continue
        tool = row["tool"] + (", fell back" if "fell_back" in row else "")
        first = f"{row['first_call_s']:8.1f} s" if "first_call_s" in row else ""
        rounds = f"{row['us_per_round']:.1f}" if "us_per_round" in row else ""
        apart = f"{row['spread']:.0%}" if row["spread"] is not None else ""
        print(
            f"  {row['policy']:<18} {tool:<22} {row['decisions_per_s']:13,.0f} {first:>10} {row['decisions_per_cpu_s']:13,.0f} "
            f"{rounds:>9} {apart:>6}  {row['mean_regret']:.2f} ({row['stderr']:.2f}), T = {row['horizon']}, {row['runs']:,} runs"
        )
    for policy, by_tool in ratios.items():
        print(f"  {policy}: " + ", ".join(f"{ratio:,.1f} x {tool}" for tool, ratio in by_tool.items()))
    sys.stdout.flush()


def compare(first: Path, second: Path) -> str:
    """Formats two stored results as a table, row by row, with the ratio of their speeds.

    Raises:
      ValueError: a file is not a result of this script, or they have no row in common.
    """
    reports = [_stored(file) for file in (first, second)]
    tables = []
    for report in reports:
        rows = [(problem, row) for problem, parts in report["problems"].items() for row in parts["rows"]]
        names = ("policy", "tool", "horizon", "runs")
        tables.append({(p, *(row[n] for n in names)): row for p, row in rows if "decisions_per_s" in row})
    shared = [key for key in tables[0] if key in tables[1]]
    if not shared:
        raise ValueError(f"{first} and {second} must have a row in common, got {len(tables[0])} and {len(tables[1])} others")
    lines = [f"{name}: {r['created']}, {r['device']}, {r['commit']}" for name, r in zip("AB", reports, strict=True)]
    lines += [f"{name}: {r['noise']['line']}" for name, r in zip("AB", reports, strict=True) if "noise" in r]
    if len({r["device"] for r in reports}) > 1:
        lines.append("The devices differ.")
    width = max(len(" ".join(key[:3])) for key in shared) + 2
    lines += ["", f"{'':<{width}} {'rounds x runs':>18} {'A, per s':>14} {'B, per s':>14} {'B / A':>7}"]
    for key in shared:
        a, b = (table[key]["decisions_per_s"] for table in tables)
        lines.append(f"{' '.join(key[:3]):<{width}} {f'{key[3]:,} x {key[4]:,}':>18} {a:14,.0f} {b:14,.0f} {b / a:7.2f}")
    for name, own, other in (("A", *tables), ("B", *tables[::-1])):
        if alone := [" ".join(key[:3]) for key in own if key not in other]:
            lines.append(f"only in {name}: {', '.join(alone)}")
    return "\n".join(lines)


def _stored(file: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        report = json.loads(file.read_text())
        if "problems" in report and "device" in report:
            return report
    raise ValueError(f"--compare must be given two JSON files of this benchmark, got {str(file)!r}")


def latest(reports: Iterable[dict[str, Any]]) -> dict[tuple, dict[str, Any]]:
    """Returns the latest row of jaxroute for each device, problem, policy, horizon and number of runs.

    A row has `ratios` to comparators and `first`, whether its policy is the problem's first; `first_call_cpu_s` is from the latest result or None.
    """
    found: dict[tuple, dict[str, Any]] = {}
    calls: dict[tuple, float] = {}
    for report in sorted(reports, key=lambda r: r["created"]):
        for problem, parts in report["problems"].items():
            for place, row in enumerate(parts["rows"]):
                if row["tool"] != "jaxroute":
                    continue
                key = (report["device"], problem, row["policy"], row["horizon"], row["runs"])
                is_grid = row["policy"].endswith(" settings")
                name = row["policy"].partition(",")[0] if is_grid else row["policy"]
                ratios = {t: x for t, x in parts["ratios"].get(name, {}).items() if (t, problem, name) in COMPARED}
                if "first_call_cpu_s" in row:
                    calls[key] = row["first_call_cpu_s"]
                if report.get("noise", {}).get("verdict") != "noisy":
                    found[key] = {**row, "first": place == 0, "ratios": ratios}
    return {key: {**row, "first_call_cpu_s": calls.get(key)} for key, row in found.items()}


def section(folder: Path = RESULTS) -> str:
    """Formats a Markdown table per device from the results in `folder`."""
    stored = (json.loads(file.read_text()) for file in sorted(folder.glob("*.json")))
    rows = latest(report for report in stored if "problems" in report)
    if not rows:
        raise ValueError(f"folder must hold the JSON files of scripts/bench.py, got {str(folder)!r}")
    parts = []
    for device in sorted({key[0] for key in rows}):
        lines = [f"{device}:", "", "| problem | policy | rounds x runs | decisions/s | first call | compile | in the same job |", "| --- | --- | --- | ---: | ---: | ---: | --- |"]  # fmt: skip
        for key, row in sorted(rows.items(), key=lambda item: item[0]):
            if key[0] != device or not (row["first"] or row["ratios"]):
                continue
            _, problem, policy, horizon, runs = key
            ratios = ", ".join(f"{_short(ratio)} x {tool}" for tool, ratio in row["ratios"].items())
            call = "" if row["first_call_cpu_s"] is None else f"{row['first_call_cpu_s']:.1f} CPU s"
            compiling = f"{row['first_call_s'] if 'first_call_s' in row else row['compile_s']:.1f} s"
            cells = (problem, policy, f"{horizon:,} x {runs:,}", _speed(row["decisions_per_s"]), call, compiling, ratios)
            lines.append(f"| {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _short(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.2g}"


def _speed(number: float) -> str:
    return f"{number / 1e6:.3g} M" if number >= 1e6 else f"{number / 1e3:.3g} k"


def written(page: str, text: str) -> str:
    """Returns the text of the page with `text` between the marks of its section.

    Raises:
      ValueError: the page does not have each mark exactly once.
    """
    if page.count(START) != 1 or page.count(END) != 1:
        raise ValueError(f"{PAGE.name} must have one {START} and one {END}")
    before, rest = page.split(START)
    return f"{before}{START}\n\n{text}\n{END}{rest.split(END)[1]}"


def quietness(spreads: Sequence[float | None], others: float | None, load: float, cores: int) -> dict[str, Any]:
    """Judges whether other processes disturbed the measurement too much to quote a speed. Returns the verdict in words and as numbers.

    Args:
      spreads: `spread` of each row.
      others: share of all cores that other processes used meanwhile, None if unknown.
      load: load average of the minute before the start.
      cores: number of cores.
    """
    known = [s for s in spreads if s is not None]
    middle = statistics.median(known) if known else None
    noisy = (middle or 0.0) > MOST_SPREAD or (load > MOST_LOAD * cores if others is None else others > MOST_OTHERS)
    parts = [] if middle is None else [f"median spread of {len(known)} rows {middle:.0%}"]
    parts += [] if others is None else [f"other processes used {others:.0%} of {cores} cores"]
    parts.append(f"load average {load:.2f} at the start")
    verdict = "noisy" if noisy else "unknown" if middle is None else "quiet"
    advice = "; measure again before quoting a speed" if noisy else ""
    line = f"machine: {verdict} ({', '.join(parts)}){advice}"
    return {"verdict": verdict, "line": line, "spread": middle, "other_cpu": others, "load_at_start": load}


def _busy() -> tuple[float | None, float]:
    """Returns two numbers of CPU seconds: of all processes of the machine (None except on Linux), and of this process and its children."""
    times, busy = os.times(), None
    with contextlib.suppress(OSError, ValueError):
        user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
        busy = (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
    return busy, times.user + times.system + times.children_user + times.children_system


def main(arguments: list[str] | None = None) -> int:
    """Runs the benchmark; returns 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    full = "every policy of every problem, a quarter of an hour on two cores (default: the rows of the page on performance, five minutes)"
    add("--only", nargs="+", choices=list(PROBLEMS), default=[], metavar="PROBLEM", help="all policies of these problems")
    add("--policies", nargs="*", default=[], help="these policies only, of the chosen or of all problems")
    add("--full", action="store_true", help=full)
    add("--seeds", type=int, default=1024, help="runs (default 1024)")
    add("--runs", nargs="+", type=float, help="several numbers of runs, one after the other, instead of --seeds")
    add("--backend", nargs="+", choices=BACKENDS, default=["auto"], help="back ends, one after the other")
    add("--repeats", type=int, default=5, help="repeats of which the median is taken (default 5)")
    add("--horizon", type=int, help="rounds (default: by problem)")
    add("--no-comparators", action="store_true", help="jaxroute alone")
    add("--out", type=Path, default=RESULTS, help="folder of the JSON file")
    add("--compare", nargs=2, type=Path, metavar=("A", "B"), help="compare two stored results instead")
    add("--page", action="store_true", help="rewrite the table of the page on performance instead")
    options = parser.parse_args(arguments)
    if options.page:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), section()), encoding="utf-8")
    elif options.compare:
        try:
            print(compare(*options.compare))
        except ValueError as error:
            parser.error(str(error))
    else:
        with empty_caches():
            _bench(options)
    return 0


def _rows(problem: str, names: Sequence[str], options: argparse.Namespace) -> tuple[list, dict[str, dict[str, float]]]:
    """Measures one problem. Returns its rows and, for each policy, jaxroute's speed as a multiple of each other tool's speed."""
    parts, rows, ratios = PROBLEMS[problem], [], {}
    env = parts.env()
    for name in names:
        policy = parts.policies[name]
        if isinstance(policy, jaxroute.Grid):
            rows += bench_grid(problem, name, env, policy, options)
            ratios[name] = {rows[-1]["tool"]: rows[-2]["decisions_per_s"] / rows[-1]["decisions_per_s"]}
            continue
        own = [
            bench_policy(problem, name, env, policy, options, int(runs), backend)
            for runs in options.runs or [options.seeds]
            for backend in options.backend
        ]
        rows += own
        for one in () if options.no_comparators else COMPARATORS.values():
            if (one.problem, one.policy) == (problem, name):
                rows.append(row := bench_comparator(one, options))
                if "decisions_per_s" in row:
                    ratios.setdefault(name, {})[one.tool] = own[0]["decisions_per_s"] / row["decisions_per_s"]
    return rows, ratios


def _bench(options: argparse.Namespace) -> None:
    """Measures all problems, prints tables and stores a JSON file."""
    busy, own, clock = *_busy(), time.perf_counter()
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    short = not (options.full or options.only or options.policies)
    options.patience = PATIENCE if short else float("inf")
    report: dict[str, Any] = {
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": provenance.device_name(jax.local_devices()),
        "machine": f"{platform.machine()}, {cores} cores",
        "versions": provenance.versions(),
        "commit": provenance.commit(),
        "problems": {},
    }
    options.out.mkdir(parents=True, exist_ok=True)
    stamp = report["created"].replace(":", "").replace("-", "")[:15]
    file = options.out / f"{jax.local_devices()[0].platform}-{stamp}.json"
    for problem, names in plan(options.only, options.policies, options.full).items():
        rows, ratios = _rows(problem, names, options)
        report["problems"][problem] = {"rows": rows, "ratios": ratios}
        show(problem, rows, ratios)
        (busy_now, own_now), others = _busy(), None
        if busy is not None and busy_now is not None:
            others = max(busy_now - busy - (own_now - own), 0.0) / (cores * (time.perf_counter() - clock))
        spreads = [row.get("spread") for parts in report["problems"].values() for row in parts["rows"]]
        report["noise"] = quietness(spreads, others, load, cores)
        # After each problem, so that an interrupted benchmark is not lost.
        file.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\n{report['device']}; {file}")
    if short:
        print(f"The rows of the page on performance, except {', '.join(LONG)}; --full measures every policy")
    if "noise" in report:
        print(report["noise"]["line"])


if __name__ == "__main__":
    sys.exit(main())
