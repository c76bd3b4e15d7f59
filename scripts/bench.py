"""Measures decisions per second of every policy, next to other tools in the same job.

    jaxroute bench                               # the README's rows, about five minutes on two cores
    jaxroute bench --full                        # every policy of every problem, about a quarter of an hour
    jaxroute bench --only staged --seeds 4096 --repeats 7
    jaxroute bench --full --backend scan kernel --runs 1e3 1e4 1e5 1e6 --no-comparators
    jaxroute bench --compare A.json B.json       # two stored results, row by row

Prints a table, and writes JSON under scripts/bench_results/. Every speed is the median of several repeats after a warm-up. "first call" is
what a first call takes until it plays, for tracing and compiling, from cold: nothing was traced or compiled before, in this process or on
disk. "per CPU s" divides by the processor time of all threads. The last line says whether the machine was quiet
(`quiet.py`). Comparators (see `comparators.py`) run in the same process, between the repeats' blocks; river, SMPyBandits and MABWiser play
fewer decisions because they are slow. Works unchanged on a GPU, where the comparators still run on the CPU.
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

import jaxroute
from jaxroute.analysis import metrics
from jaxroute.core import provenance
from jaxroute.core.attributes import decoded
from jaxroute.engine import BACKENDS
from jaxroute.engine.programs import PROGRAMS, Block
from jaxroute.estimators.mnl import Online
from jaxroute.problems import cascade, combinatorial, contextual, default_policies, queueing, service, staged, stochastic

sys.path.insert(0, str(Path(__file__).resolve().parent))
import comparators
import quiet
import solver_bench

T = TypeVar("T")
RESULTS = Path(__file__).resolve().parent / "bench_results"
CONTEXTUAL = comparators.contextual_comparators.ContextualSetting()
MEANS = tuple(np.round(np.linspace(0.9, 0.0, 10), 6).tolist())

# Problem -> environment, policies, horizon, and the comparators' name of each policy; `short`: which of these are the README's rows, if not all.
PROBLEMS: dict[str, dict[str, Any]] = {
    "stochastic": {
        "env": lambda: stochastic.bernoulli(MEANS),
        "policies": default_policies(stochastic),
        "horizon": 10_000,
        "comparators": {
            "UCB1": "ucb1",
            "GaussianThompson": "gaussian_thompson",
            "BetaThompson": "beta_thompson",
            "EpsilonGreedy": "epsilon_greedy",
            "KLUCB": "kl_ucb",
            "UCBV": "ucb_v",
            "MOSS": "moss",
            "AnytimeMOSS": "moss_anytime",
            "IMED": "imed",
            "BayesUCB": "bayes_ucb",
            "Exp3": "exp3",
            "Exp3PlusPlus": "exp3_plus_plus",
            "SlidingWindowUCB": "sliding_window_ucb",
            "DiscountedUCB": "discounted_ucb",
            "DiscountedThompson": "discounted_thompson",
        },
        "short": ("UCB1", "GaussianThompson", "BetaThompson", "EpsilonGreedy"),
    },
    "contextual": {
        "env": lambda: contextual.linear(CONTEXTUAL.theta, CONTEXTUAL.noise),
        "policies": default_policies(contextual) | {"LinUCB": contextual.LinUCB(alpha=CONTEXTUAL.alpha)},
        "horizon": 1000,
        "comparators": {"LinUCB": "linucb", "LinearThompson": "linear_thompson"},
    },
    "contextual, shared": {
        "env": lambda: contextual.linear(CONTEXTUAL.theta[0], CONTEXTUAL.noise, num_models=CONTEXTUAL.num_models),
        "policies": {
            made.__name__: made(parameters=contextual.Shared())
            for made in (contextual.OFUL, contextual.LinearThompson, contextual.LogisticThompson, contextual.SquareCB)
        },
        "horizon": 1000,
        "comparators": {},
    },
    "staged": {
        "env": lambda: staged.arena_market(max_deployed=6, stage_length=250),
        "policies": default_policies(staged),
        "horizon": 10_000,
        "comparators": {"StageRoute": "stageroute"},
    },
    "combinatorial": {
        "env": lambda: combinatorial.sciq_cloud(reward="suc"),
        "policies": {
            **{name: made for name, made in default_policies(combinatorial).items() if name != "Everything"},
            "Thompson, normal": combinatorial.Thompson(combinatorial.NormalPosterior()),
        },
        "horizon": 10_000,
        "metric": "lp_regret",
        "comparators": {"C2MABV": "c2mabv"},
    },
    "combinatorial, any win": {
        "env": lambda: combinatorial.sciq_cloud(reward="awc"),
        "policies": {
            "C2MABV": combinatorial.C2MABV(),
            "C2MABV, best of": combinatorial.C2MABV(solver=combinatorial.BestOf()),
        },
        "horizon": 2_000,
        "metric": "lp_regret",
        "comparators": {},
    },
    "service": {
        "env": lambda: service.benchmark_service("winogrande", signal=0.15),
        "policies": {
            "MessPlus": service.MessPlus(),
            "MessPlus, true chances": lambda env: service.MessPlus(predictor=service.TrueChances(env.requests)),
            "MessPlus, Mlp 16": service.MessPlus(predictor=service.Learned(service.Mlp(width=16))),
            **{
                name: made
                for name, made in default_policies(service).items()
                if name not in ("MessPlus", "RouterDC", "OracleClairvoyant")
            },
        },
        "horizon": 10_000,
        "metric": "cost",
        "comparators": {"MessPlus": "messplus"},
    },
    "service, grid": {
        "env": lambda: jaxroute.grid(
            service.benchmark_service, benchmark="winogrande", signal=0.15, alpha=np.linspace(0.6, 0.775, 8).tolist()
        ),
        "policies": {
            "MessPlus": jaxroute.grid(service.MessPlus, V=np.geomspace(1e-4, 1e-2, 16).tolist(), c=[0.05, 0.1, 0.2, 0.5])
        },
        "horizon": 1267,
        "metric": "cost",
    },
    "queueing": {
        "env": queueing.RandomQueues,
        "policies": {
            **default_policies(queueing),
            "ACQB, on line": queueing.ACQB(solver=Online()),
        },
        "horizon": 1000,
        "metric": "routing_regret",
        "comparators": {"ACQB": "acqb"},
    },
    "queueing, compact": {
        "env": lambda: queueing.RandomQueues(limit=256),
        "policies": {"ACQB": queueing.ACQB()},
        "horizon": 1000,
        "metric": "routing_regret",
        "comparators": {},
    },
    "queueing, long": {
        "env": lambda: queueing.RandomQueues(horizon=20_000, limit=1024),
        "policies": {"ACQB, on line": queueing.ACQB(solver=Online())},
        "horizon": 20_000,
        "metric": "routing_regret",
        "comparators": {},
    },
    "queueing, two answers": {
        "env": lambda: queueing.RandomQueues(num_offered=2, limit=256),
        "policies": {"ACQB": queueing.ACQB()},
        "horizon": 1000,
        "metric": "routing_regret",
        "comparators": {"ACQB": "acqb_pairs"},
    },
    "cascade": {
        "env": cascade.uniform_cascade,
        "policies": {"COSMOS, streaming": cascade.COSMOS(fit=cascade.Streaming()), **default_policies(cascade)},
        "horizon": 2000,
        "metric": "regret",
        "comparators": {"COSMOS, streaming": "cosmos"},
    },
    "cascade, unknown evaluator": {
        "env": lambda: cascade.uniform_cascade(evaluator=5),
        "policies": {"COSMOS, streaming": cascade.COSMOS(fit=cascade.Streaming()), "COSMOS": cascade.COSMOS()},
        "horizon": 2000,
        "metric": "regret",
        "comparators": {},
    },
    "cascade, long": {
        "env": cascade.uniform_cascade,
        "policies": {"COSMOS, streaming": cascade.COSMOS(fit=cascade.Streaming())},
        "horizon": 100_000,
        "metric": "regret",
        "comparators": {},
    },
}
# Not a problem: the solvers by themselves, on request.
SOLVERS = "solvers"
# Not played unless asked for: a repeat of the first takes about a minute on two cores.
LONG = ("queueing, long", "contextual", "contextual, shared")
# By default the repeats of a row end when they have taken so many seconds, but for the first two.
PATIENCE = 6.0
# Rounds and runs of a comparator: as jaxroute's where it is fast, otherwise about a second of work.
LOOP_RUNS = {"queueing": 16, "cascade": 64}
SLOW = {
    "loop": (2000, 10),
    "river": (2000, 10),
    "smpybandits": (2000, 5),
    "mabwiser": (1000, 2),
    "contextualbandits": (1000, 2),
}


def plan(only: Sequence[str] = (), policies: Sequence[str] = (), full: bool = False) -> dict[str, list[str]]:
    """Policies to be played of each problem: of problems that were chosen, or with `full`, all; else the README's rows but for `LONG`.

    Args:
      only: problems that were chosen.
      policies: names that were chosen.
      full: whether all of all problems are.
    """
    short = not (only or policies or full)
    rows: dict[str, list[str]] = {}
    for problem, parts in PROBLEMS.items():
        if (only and problem not in only) or (short and problem in LONG):
            continue
        compared = parts.get("short", parts.get("comparators", ()))
        names = [n for place, n in enumerate(parts["policies"]) if not short or place == 0 or n in compared]
        if chosen := [n for n in names if not policies or n in policies]:
            rows[problem] = chosen
    return rows


@contextlib.contextmanager
def nothing_kept() -> Iterator[None]:
    """A context in which no compiled program is taken from the disk, or left there."""
    before, home = jax.config.jax_enable_compilation_cache, os.environ.get("XDG_CACHE_HOME")
    with tempfile.TemporaryDirectory() as folder:
        jax.config.update("jax_enable_compilation_cache", False)
        os.environ["XDG_CACHE_HOME"] = folder  # Of kernels.
        try:
            yield
        finally:
            jax.config.update("jax_enable_compilation_cache", before)
            os.environ.pop("XDG_CACHE_HOME")
            if home is not None:
                os.environ["XDG_CACHE_HOME"] = home


def timed(work: Callable[[], T]) -> tuple[T, float, float]:
    """What a function returns, and how long it took: seconds, and seconds of all threads."""
    start, used = time.perf_counter(), _used()
    made = work()
    return made, time.perf_counter() - start, _used() - used


def _used() -> float:
    """Processor time of this process, and of those that it has waited for: compilers."""
    now = os.times()
    return time.process_time() + now.children_user + now.children_system


class _ReadyError(Exception):
    """Ends a call of `simulate` where it would begin to play."""


def first_call(play: Callable[[], Any]) -> dict[str, float]:
    """What a call of `simulate` takes until it plays, where this process has traced and compiled nothing: seconds, and those of all threads."""

    def ready(block: Block, *_: Any, **__: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            wait([block.compile_in(pool)])
        raise _ReadyError

    def prepare() -> None:
        with contextlib.suppress(_ReadyError):
            play()

    PROGRAMS.clear()
    jax.clear_caches()
    played, Block.play = Block.play, ready
    try:
        _, seconds, cpu_seconds = timed(prepare)
    finally:
        Block.play = played
    return {"first_call_s": seconds, "first_call_cpu_s": cpu_seconds}


def measured(work: Callable[[], int], repeats: int, patience: float = float("inf")) -> dict[str, Any]:
    """Median speed of a function that returns the number of decisions it took.

    Args:
      work: the function.
      repeats: how often it is called, at most.
      patience: seconds after which no further call is made, but for the second.
    """
    wall, cpu, decisions = [], [], 0
    while len(wall) < repeats and (len(wall) < 2 or sum(wall) < patience):
        decisions, seconds, used = timed(work)
        wall.append(seconds)
        cpu.append(used)
    middle, cpu_seconds = statistics.median(wall), statistics.median(cpu)
    return {
        "decisions": decisions,
        "repeats": len(wall),
        "seconds": middle,
        "cpu_seconds": cpu_seconds,
        "seconds_all": [round(w, 4) for w in wall],
        "spread": quiet.spread(wall),
        "decisions_per_s": decisions / middle,
        "decisions_per_cpu_s": decisions / cpu_seconds,
    }


def peak_memory() -> int:
    """Peak bytes so far: of the device where it reports them, else of the process."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return stats.get("peak_bytes_in_use") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def bench_policy(
    env,
    name: str,
    policy,
    horizon: int,
    seeds: int,
    repeats: int,
    metric: str,
    backend: str = "auto",
    patience: float = float("inf"),
) -> dict[str, Any]:
    """Speed of one policy: whole runs with a hundred records of one metric; and what the first call takes before it plays."""

    def play():
        options = {
            "horizon": horizon,
            "seeds": seeds,
            "record": [metric],
            "progress": False,
            "execution": jaxroute.Execution(backend),
        }
        return jaxroute.simulate(env, {name: policy}, **options)

    first = first_call(play)
    warm = play()
    entry = measured(lambda: play().attrs["decisions"], repeats, patience)
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
        "compile_s": first["first_call_s"],  # The name in results of before.
        "peak_bytes": peak_memory(),
        "mean_regret": float(regret.mean()),
        "stderr": float(regret.std(ddof=1) / np.sqrt(regret.size)),
    }


def bench_grid(
    env, name: str, grid, horizon: int, seeds: int, repeats: int, metric: str, patience: float = float("inf")
) -> list[dict[str, Any]]:
    """Speed of a grid of settings in one call, and of one of its settings alone.

    By the time that the compiled calls take: what `simulate` does besides, about a third of a second, a loop over settings would pay
    for each of them.
    """
    settings = len(env.objects) * len(grid.objects)
    rows = []
    for tool, where, who, number in (
        ("jaxroute", env, grid, settings),
        ("one setting at a time", env.objects[0], grid.objects[0], 1),
    ):
        row = bench_policy(where, name, who, horizon, seeds, 1, metric)
        seconds = []
        while len(seconds) < repeats and (len(seconds) < 2 or sum(seconds) < patience):
            options = {"horizon": horizon, "seeds": seeds, "record": [metric], "progress": False}
            seconds.append(jaxroute.simulate(where, {name: who}, **options).attrs["run_s"])
        middle = statistics.median(seconds)
        speed = {"decisions_per_s": row["decisions"] / middle, "us_per_round": 1e6 * middle / horizon, "seconds": middle}
        wall = {"wall_seconds": row["seconds"], "runs": seeds * number, "repeats": len(seconds), "seconds_all": seconds}
        rows.append(
            {
                **row,
                **speed,
                **wall,
                "spread": quiet.spread(seconds),
                "tool": tool,
                "policy": f"{name}, {number} settings" if number > 1 else name,
            }
        )
    return rows


def bench_comparator(
    name: str, comparator, horizon: int, seeds: int, repeats: int, patience: float = float("inf")
) -> dict[str, Any]:
    """Speed of one comparator; of compiled ones the first call's time, which compiles, too."""
    usable, reason = comparators.available(name)
    if not usable:
        return {"tool": comparator.tool, "policy": comparator.policy, "unavailable": reason}
    rounds, runs = SLOW.get(comparator.tool, (horizon, seeds))
    if comparator.tool == "loop" and comparator.problem != "stochastic":
        rounds, runs = 1000, LOOP_RUNS.get(comparator.problem.split(",")[0], 2)
    _, seconds, cpu_seconds = timed(comparator.warm_up)
    first = {"first_call_s": seconds, "first_call_cpu_s": cpu_seconds} if comparator.tool.startswith("numba") else {}
    last: dict[str, Any] = {}

    def work() -> int:
        last.update(comparator.run(rounds, runs, 1))
        return last["decisions"]

    entry = measured(work, repeats if comparator.tool not in SLOW else 1, patience)
    extra = {**first, "mean_regret": last["mean_regret"], "stderr": last["standard_error"], "threads": comparator.threads}
    return {**entry, **extra, "tool": comparator.tool, "policy": comparator.policy, "horizon": rounds, "runs": runs}


def show(problem: str, rows: list[dict[str, Any]], ratios: dict[str, dict[str, float]]) -> None:
    """Prints one problem's table."""
    print(f"\n{problem}")
    print(
        f"  {'policy':<18} {'tool':<22} {'decisions/s':>13} {'first call':>10} {'per CPU s':>13} {'us/round':>9} {'apart':>6}  mean regret (or metric)"
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
    """Speeds of two stored results row by row, and how many times as fast the second is, as a table.

    Raises:
      ValueError: a file is not a result of this script, or they have nothing in common.
    """
    reports = [_stored(file) for file in (first, second)]
    tables = []
    for report in reports:
        rows = [(problem, row) for problem, parts in report["problems"].items() for row in parts["rows"]]
        names = ("policy", "tool", "horizon", "runs")
        tables.append({(p, *(row[n] for n in names)): row for p, row in rows if "decisions_per_s" in row})
    shared = [key for key in tables[0] if key in tables[1]]
    if not shared:
        raise ValueError(
            f"{first} and {second} must have a row in common, got {len(tables[0])} and {len(tables[1])} other ones"
        )
    lines = [f"{name}: {r['created']}, {r['device']}, {r['commit']}" for name, r in zip("AB", reports, strict=True)]
    lines += [f"{name}: {r['noise']['line']}" for name, r in zip("AB", reports, strict=True) if "noise" in r]
    if len({r["device"] for r in reports}) > 1:
        lines.append("The devices differ.")
    width = max(len(" ".join(key[:3])) for key in shared) + 2
    lines += ["", f"{'':<{width}} {'rounds x runs':>18} {'A, per s':>14} {'B, per s':>14} {'B / A':>7} {'compile A, B':>15}"]
    for key in shared:
        a, b = (table[key] for table in tables)
        compiling = f"{a['compile_s']:.1f}, {b['compile_s']:.1f} s" if "compile_s" in a and "compile_s" in b else ""
        speeds = [row["decisions_per_s"] for row in (a, b)]
        lines.append(
            f"{' '.join(key[:3]):<{width}} {f'{key[3]:,} x {key[4]:,}':>18} {speeds[0]:14,.0f} {speeds[1]:14,.0f} "
            f"{speeds[1] / speeds[0]:7.2f} {compiling:>15}"
        )
    for name, own, other in (("A", *tables), ("B", *tables[::-1])):
        alone = [" ".join(key[:3]) for key in own if key not in other]
        if alone:
            lines.append(f"only in {name}: {', '.join(alone)}")
    return "\n".join(lines)


def _stored(file: Path) -> dict[str, Any]:
    """A stored result."""
    try:
        report = json.loads(file.read_text())
        if "problems" in report and "device" in report:
            return report
    except (OSError, ValueError):
        pass
    raise ValueError(f"--compare must be given two JSON files of this benchmark, got {str(file)!r}")


def main(arguments: list[str] | None = None) -> int:
    """Runs the benchmark; returns 0."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[*PROBLEMS, SOLVERS],
        default=[],
        metavar="PROBLEM",
        help=f"all policies of these problems, or {SOLVERS}",
    )
    parser.add_argument("--policies", nargs="*", default=[], help="these policies only, of the problems chosen or of all")
    parser.add_argument(
        "--full",
        action="store_true",
        help="every policy of every problem, a quarter of an hour on two quiet cores (default: the README's rows, about five minutes)",
    )
    parser.add_argument("--seeds", type=int, default=1024, help="runs (default 1024)")
    parser.add_argument("--runs", nargs="+", type=float, help="numbers of runs, one after the other, in place of --seeds")
    parser.add_argument(
        "--backend",
        nargs="+",
        choices=BACKENDS,
        default=["auto"],
        help="who plays the rounds, one after the other (default: whoever does where nothing is said)",
    )
    parser.add_argument("--repeats", type=int, default=5, help="repeats of which the median is taken (default 5)")
    parser.add_argument("--horizon", type=int, help="rounds (default 10,000)")
    parser.add_argument("--no-comparators", action="store_true", help="jaxroute alone")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON file")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("A", "B"), help="compare two stored results instead")
    options = parser.parse_args(arguments)
    if options.compare:
        print(compare(*options.compare))
        return 0
    with nothing_kept():
        _bench(options)
    return 0


def _whole(bench: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """A row, and how long it took in all: seconds, and seconds of all threads."""
    row, seconds, cpu_seconds = timed(lambda: bench(*arguments))
    return {**row, "took_s": seconds, "took_cpu_s": cpu_seconds}


def _bench(options: argparse.Namespace) -> None:
    """Measures, prints and writes what was asked for."""
    watch = quiet.Watch()
    short = not (options.full or options.only or options.policies)
    patience = PATIENCE if short else float("inf")
    report: dict[str, Any] = {
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": provenance.device_name(jax.local_devices()),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": provenance.versions(),
        "commit": provenance.commit(),
        "problems": {},
    }
    options.out.mkdir(parents=True, exist_ok=True)
    stamp = report["created"].replace(":", "").replace("-", "")[:15]
    file = options.out / f"{jax.local_devices()[0].platform}-{stamp}.json"
    if SOLVERS in options.only:
        about = {name: value for name, value in report.items() if name != "problems"}
        solver_bench.main(options.repeats, options.out / f"{SOLVERS}.json", about)
        if options.only == [SOLVERS]:
            return
    for problem, names in plan(options.only, options.policies, options.full).items():
        parts, rows, ratios, start = PROBLEMS[problem], [], {}, time.perf_counter()
        env, horizon = parts["env"](), options.horizon or parts["horizon"]
        for name in names:
            policy = parts["policies"][name]
            if "comparators" not in parts:
                rows += bench_grid(env, name, policy, horizon, options.seeds, options.repeats, parts["metric"], patience)
                ratios[name] = {rows[-1]["tool"]: rows[-2]["decisions_per_s"] / rows[-1]["decisions_per_s"]}
                continue
            metric = parts.get("metric", "regret")
            own = [
                _whole(bench_policy, env, name, policy, horizon, int(runs), options.repeats, metric, backend, patience)
                for runs in options.runs or [options.seeds]
                for backend in options.backend
            ]
            rows += own
            other = parts["comparators"].get(name)
            if other is None or options.no_comparators:
                continue
            found = comparators.comparators(bandit=comparators.BanditSetting(means=MEANS))
            for key, comparator in found.items():
                if comparator.policy == other and comparator.problem == problem:
                    row = _whole(bench_comparator, key, comparator, horizon, options.seeds, options.repeats, patience)
                    rows.append({**row, "policy": name})
                    if "decisions_per_s" in row:
                        ratios.setdefault(name, {})[comparator.tool] = own[0]["decisions_per_s"] / row["decisions_per_s"]
        report["problems"][problem] = {"rows": rows, "ratios": ratios, "took_s": time.perf_counter() - start}
        show(problem, rows, ratios)
        report["noise"] = watch.verdict([r.get("spread") for p in report["problems"].values() for r in p["rows"]])
        file.write_text(json.dumps(report, indent=1) + "\n")  # After each problem: a run that is cut short is not lost.
    print(f"\n{report['device']}; {file}")
    if short:
        print(f"The README's rows, but for {', '.join(LONG)}; --full plays every policy of every problem")
    if "noise" in report:
        print(report["noise"]["line"])


if __name__ == "__main__":
    sys.exit(main())
