"""DeployOPT and any win against mixed-integer programs, and what they take; on the host's CPU.

    python scripts/exactness.py                     # tables here, JSON in scripts/bench_results/exactness.json
    python scripts/exactness.py --only seconds compile

- agreement: `instances` random problems of 8 to 40 models of ten kinds each, half of them degenerate (ties, equal models, no costs, no
  capacity, budgets met exactly), in float64 and float32, against SciPy's HiGHS. DeployOPT's set and HiGHS's are both valued by the exact dual
  of the routing program in float64, any win's selections by their formula: `worst` is the largest relative shortfall of ours, `missed` how many
  are short by more than 1e-9 (1e-5 in float32), `theirs` the largest shortfall of HiGHS, `over` the largest relative overspend of a selection.
- seconds: 100 models and 20 places, random problems of the plain kinds, one by one and 64 at once; also 18 models and 8 places.
- compile: tracing, lowering and compiling for 3 places, the caches empty.
- hard: value and price differ by a constant and prices are whole numbers, so that no bound is good enough: the share of searches that end at
  the limit of nodes, and how much better than what they return another answer may be.

Seconds are of the process, not of the clock: what else the machine does counts less. `--enumerated` leaves out what can only be searched, to
measure a version without branch and bound.
"""

import argparse
import functools
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.core import draws
from jaxroute.problems.combinatorial import optimum as any_win_optimum
from jaxroute.problems.staged import optimum as staged_optimum
from jaxroute.problems.staged.parts.deployment import deploy
from jaxroute.problems.staged.types import Observation, StagedSpec
from jaxroute.solvers import exact_any_win

RESULTS = Path(__file__).resolve().parent / "bench_results" / "exactness.json"
SIZES = (8, 15, 25, 40)
NUMBERS = (2, 4, 8, 19)
LARGE = (100, 20)
Problem = tuple[Any, ...]  # Arrays of one element a model, then the budget and the number of places.


def markets(rng: np.random.Generator, size: int, most: int, kind: int) -> Problem:
    """Values, costs, capacities, budget and slots of one of ten kinds."""
    value, cost = rng.uniform(0.05, 1, size), 10.0 ** rng.uniform(-1, 1.2, size)
    capacity = np.minimum(rng.uniform(0.5, 2.2, size) / most, 1.0)
    budget = float(cost.min() * 10.0 ** rng.uniform(-0.05, 1.0))
    if kind in (1, 3):  # A price-quality frontier, also with equal capacities that are just enough.
        value = np.clip((cost / 16) ** 0.4 + 0.05 * rng.normal(size=size), 0.01, 1)
        capacity = np.full(size, 1 / (most - 0.5)) if kind == 3 else capacity
    elif kind == 2:  # Bounds in eighths.
        value, cost, capacity = np.round(value * 8) / 8, np.ceil(cost), np.ceil(capacity * 8) / 8
        budget = float(rng.integers(1, 9))
    elif kind == 4:  # Prices near values.
        cost = rng.uniform(0.5, 1, size)
        value, capacity, budget = cost + 0.1 * rng.uniform(size=size), np.full(size, 1 / most), float(rng.uniform(0.55, 0.9))
    elif kind == 5:  # Some are free, some have no capacity, some are worth nothing.
        cost, capacity, value = (np.where(rng.random(size) < 0.2, 0.0, x) for x in (cost, capacity, value))
        budget = float(rng.uniform(0, 2))
    elif kind == 6:  # Few different models, many of each.
        which = rng.integers(0, max(2, size // 5), size)
        value, cost, capacity = value[which], cost[which], capacity[which]
    elif kind == 7:  # Prices that differ by a thousandth.
        cost = 1 + 1e-3 * rng.random(size)
        capacity, budget = np.full(size, 1.5 / most), float(1 + 1e-3 * rng.uniform(0.1, 0.9))
    elif kind == 8:  # Prices from a thousandth to a thousand.
        cost = 10.0 ** rng.uniform(-3, 3, size)
        budget = float(np.sort(cost)[: max(2, most)].mean() * rng.uniform(0.5, 20))
    elif kind == 9:  # A budget that some mix meets exactly; values are upper bounds at 1.
        value, capacity = np.minimum(value * 1.5, 1.0), np.full(size, 1 / most)
        budget = float(np.mean(rng.permutation(np.sort(cost)[: most + 3])[:most]))
    return value, cost, capacity, np.float64(budget), np.int64(most)


def chances(rng: np.random.Generator, size: int, places: int, kind: int) -> Problem:
    """Chances, costs, budget and places of one of ten kinds."""
    w, cost = rng.random((2, size))
    budget = float(rng.random() * rng.choice([0.3, 1, 3]))
    if kind == 1:
        w = np.clip(cost + 0.05 * rng.normal(size=size), 0.01, 0.99)
    elif kind == 2:
        w, cost = np.round(w * 8) / 9, np.round(cost * 4) / 4
    elif kind == 3:
        w = w * 0.2
    elif kind == 4:  # Bounds at the cap, and nothing known of the price.
        w, cost = np.minimum(w * 1.5, 0.999), np.where(rng.random(size) < 0.3, 0.0, cost)
    elif kind == 5:
        which = rng.integers(0, max(2, size // 5), size)
        w, cost = w[which], cost[which]
    elif kind == 6:
        cost, budget = 1 + 1e-3 * rng.random(size), float(rng.uniform(0.5, places))
    elif kind == 7:
        cost = 10.0 ** rng.uniform(-3, 3, size)
        budget = float(np.sort(cost)[:places].sum() * rng.uniform(0.2, 20))
    elif kind == 8:  # A budget that some set meets exactly.
        budget = float(rng.permutation(np.sort(cost)[: places + 3])[:places].sum())
    elif kind == 9:
        cost = rng.uniform(0.5, 1, size)
        w, budget = -np.expm1(-0.3 * cost - 0.03 * rng.random(size)), float(rng.uniform(0.4, 0.7) * places)
    return w, cost, np.float64(budget), np.int64(places)


def problems(make: Callable[..., Problem], seed: int, count: int) -> Iterator[Problem]:
    """Kinds in turn, sizes at random."""
    rng = np.random.default_rng(seed)
    for row in range(count):
        size = int(rng.choice(SIZES))
        yield make(rng, size, int(rng.choice([n for n in NUMBERS if n <= max(2, size // 2)])), row % 10)


def deployment(value: Any, cost: Any, capacity: Any, budget: Any, available: Any, *, slots: int) -> Any:
    """DeployOPT: the set, and what is said of the search."""
    spec = StagedSpec(num_models=value.shape[-1], max_deployed=slots, max_support=slots + 1)
    zero = jnp.zeros((), value.dtype)
    obs = Observation(available, capacity, budget, zero, jnp.int32(1), zero, zero)
    deployed, feasible, *said = deploy(draws.key(0), value, cost, obs, spec)
    return deployed, feasible, *(said or (0, True, 0))


def selection(w: Any, cost: Any, budget: Any, allowed: Any, *, places: int) -> Any:
    """Any win: the selection, and what is said of the search."""
    found = exact_any_win(w, cost, budget, jnp.asarray(places, w.dtype), allowed=allowed, sizes=(places, places))
    return found.z, *(getattr(found, name, old) for name, old in (("residual", 0), ("converged", True), ("nodes", 0)))


@functools.cache
def compiled(fn: Callable[..., Any], number: int, dtype: Any) -> Callable[..., Any]:
    """The solver for a number of places (static)."""
    del dtype
    return jax.jit(functools.partial(fn, **({"slots": number} if fn is deployment else {"places": number})))


def padded(arrays: list[np.ndarray], width: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Models that may not be used are added, so that few programs are compiled."""
    size = len(arrays[0])
    return [np.append(x, np.full(width - size, 0.5)) for x in arrays], np.arange(width) < size


def solved(fn: Callable[..., Any], problem: Problem, dtype: Any) -> tuple[np.ndarray, dict[str, float]]:
    """The answer for the models of the problem, and residual, end and nodes of the search."""
    *arrays, budget, number = problem
    arrays, usable = padded([np.asarray(x, dtype) for x in arrays], 40)
    out = jax.device_get(compiled(fn, int(number), dtype)(*(jnp.asarray(x, dtype) for x in arrays), dtype(budget), usable))
    return out[0][: usable.sum()], {"residual": float(out[-3]), "converged": bool(out[-2]), "nodes": int(out[-1])}


def compare_mix(problem: Problem, dtype: Any) -> dict[str, float] | None:
    """One instance of DeployOPT; None if no set is feasible."""
    value, cost, capacity, budget, most = problem
    most = int(most)
    exact = [np.asarray(np.asarray(x, dtype), float) for x in (value, cost, capacity)]
    budget = float(dtype(budget))
    theirs = staged_optimum._best_set(*exact, budget, most)
    chosen, said = solved(deployment, problem, dtype)
    if theirs is None or not chosen.sum():
        return None
    values = [float(staged_optimum.routing_values(*exact, budget * (1 + slack), [s])[0]) for s, slack in
              ((theirs, 0.0), (np.flatnonzero(chosen), 1e-6 if dtype == np.float32 else 0.0))]  # fmt: skip
    if not values[0]:
        return None
    return {"mine": values[1], "theirs": values[0], "over": 0.0, **said}


def compare_selection(problem: Problem, dtype: Any) -> dict[str, float]:
    """One instance of any win."""
    w, cost, budget, places = problem
    w, cost = (np.asarray(np.asarray(x, dtype), float) for x in (w, cost))
    budget = float(dtype(budget))
    other = any_win_optimum._any_win_by_chords(w, cost, budget, np.array([places]), np.ones((1, len(w)), bool))
    z, said = solved(selection, problem, dtype)
    z = z.astype(float)
    over = max(float(cost @ z - budget) / max(budget, 1e-6), float(z.sum() - places) / float(places))
    mine, theirs = (float(1 - np.prod(1 - w * x)) for x in (z, other))
    return {"mine": mine, "theirs": theirs, "over": over, **said}


def agreement(make: Callable[..., Problem], compare: Callable[..., Any], count: int, dtype: Any) -> dict[str, Any]:
    """How ours compare with HiGHS's over instances."""
    rows, per_kind = [], {}
    for number, problem in enumerate(itertools.islice(problems(make, 1, 10 * count), 10 * count)):
        row = compare(problem, dtype)
        if row is not None:
            row["short"] = (row["theirs"] - row["mine"]) / max(row["theirs"], 1e-6)
            rows.append(row)
            per_kind[number % 10] = max(per_kind.get(number % 10, -1.0), row["short"])
        if len(rows) == count:
            break
    limit = 1e-5 if dtype == np.float32 else 1e-9
    nodes = [row["nodes"] for row in rows]
    return {
        "instances": len(rows),
        "missed": sum(row["short"] > limit for row in rows),
        "worst": max(row["short"] for row in rows),
        "theirs": max(-row["short"] for row in rows),
        "over": max(row["over"] for row in rows),
        "unfinished": sum(not row["converged"] for row in rows),
        "searched": sum(n > 0 for n in nodes),
        "nodes_median": statistics.median(nodes),
        "nodes_most": max(nodes),
        "worst_by_kind": per_kind,
    }


def clocked(fn: Callable[..., Any], *args: Any, repeats: int = 1) -> float:
    """Seconds of a call."""
    start = time.process_time()
    for _ in range(repeats):
        jax.block_until_ready(fn(*args))
    return (time.process_time() - start) / repeats


def timed(make: Callable[..., Problem], fn: Callable[..., Any], size: int, number: int, count: int = 64) -> dict[str, Any]:
    """Seconds a solve, one by one and all at once, in float32; kinds 0, 1, 3 and 4 in turn (of any win 0, 1, 3 and 9)."""
    rng = np.random.default_rng(2)
    kinds = (0, 1, 3, 4) if fn is deployment else (0, 1, 3, 9)
    cases = [make(rng, size, number, kinds[row % 4])[:-1] for row in range(count)]
    usable = np.ones(size, bool)
    one = compiled(fn, number, np.float32)
    args = [[*(jnp.asarray(x, jnp.float32) for x in case), usable] for case in cases]
    jax.block_until_ready(one(*args[0]))
    alone = [clocked(one, *arg) for arg in args]
    ends = [jax.device_get(one(*arg)) for arg in args]
    batch = jax.jit(jax.vmap(one))
    stacked = [jnp.stack(x) for x in zip(*args, strict=True)]
    jax.block_until_ready(batch(*stacked))
    together = clocked(batch, *stacked, repeats=3) / count
    nodes = [int(end[-1]) for end in ends]
    return {
        "models": size, "places": number, "median_s": statistics.median(alone), "most_s": max(alone), "batch_s": together,
        "nodes_median": statistics.median(nodes), "nodes_most": max(nodes), "unfinished": sum(not end[-2] for end in ends),
    }  # fmt: skip


def compile_seconds(fn: Callable[..., Any], size: int, places: int = 3) -> dict[str, float]:
    """Seconds to trace, lower and compile for `size` models, the caches empty."""
    args = [jnp.full(size, 0.5, jnp.float32) for _ in range(3 if fn is deployment else 2)]
    jax.clear_caches()
    compiled.cache_clear()
    times = [time.process_time()]
    traced = compiled(fn, places, np.float32).trace(*args, jnp.float32(1), np.ones(size, bool))
    times.append(time.process_time())
    lowered = traced.lower()
    times.append(time.process_time())
    lowered.compile()
    times.append(time.process_time())
    trace, lower, build = np.diff(times)
    return {
        "models": size,
        "places": places,
        "trace_s": trace,
        "lower_s": lower,
        "compile_s": build,
        "total_s": times[3] - times[0],
    }


def hard(size: int, number: int, kind: str, seed: int) -> Problem:
    """Values are prices plus a constant, prices are whole numbers."""
    cost = np.random.default_rng(seed).integers(1, 1000, size).astype(float)
    if kind == "mixes":
        return (
            (cost + 100) / 1100,
            cost,
            np.full(size, 1.0 / number),
            np.float64(np.sort(cost)[:number].mean() * 1.7 + 0.3 / number),
        )
    weight = (cost + 100) / 4000
    return -np.expm1(-weight), cost, np.float64(np.sort(cost)[:number].sum() * 1.7 + 0.5)


def hardest(fn: Callable[..., Any], kind: str, count: int) -> dict[str, Any]:
    """Searches of the hard kind, in float32."""
    rows = []
    for seed in range(count):
        *arrays, budget = hard(*LARGE, kind, seed)
        args = [*(jnp.asarray(x, jnp.float32) for x in arrays), jnp.float32(budget), np.ones(LARGE[0], bool)]
        run = compiled(fn, LARGE[1], np.float32)
        start = time.process_time()
        out = jax.device_get(run(*args))
        rows.append((float(out[-3]), bool(out[-2]), int(out[-1]), time.process_time() - start))
    residual, converged, nodes, seconds = zip(*rows, strict=True)
    return {
        "searches": count, "unfinished": sum(not x for x in converged), "residual_median": statistics.median(residual),
        "residual_most": max(residual), "nodes_median": statistics.median(nodes), "seconds_most": max(seconds),
    }  # fmt: skip


def measure(only: list[str], instances: int, enumerated: bool) -> dict[str, Any]:
    """All parts that were asked for."""
    pairs = {"DeployOPT": (markets, compare_mix, deployment), "any win": (chances, compare_selection, selection)}
    found: dict[str, Any] = {}
    for name, (make, compare, fn) in pairs.items():
        if "compile" in only:
            found[f"compile, {name}"] = [compile_seconds(fn, size) for size in (8, 8, 64, *(() if enumerated else (256,)))][
                1:
            ]
            print(name, *found[f"compile, {name}"], sep="\n  ", flush=True)
        if "seconds" in only:
            found[f"seconds, {name}"] = [timed(make, fn, *size) for size in ((18, 8), *(() if enumerated else (LARGE,)))]
            print(name, *found[f"seconds, {name}"], sep="\n  ", flush=True)
        if "agreement" in only:
            for dtype in (np.float64, np.float32):
                with jax.enable_x64(dtype == np.float64):
                    key = f"agreement, {name}, {np.dtype(dtype).name}"
                    found[key] = agreement(make, compare, instances, dtype)
                    print(key, found[key], sep="\n  ", flush=True)
        if "hard" in only:
            found[f"hard, {name}"] = hardest(fn, "mixes" if fn is deployment else "selections", 5)
            print(name, found[f"hard, {name}"], sep="\n  ", flush=True)
    return found


def main() -> None:
    parts = ("agreement", "seconds", "compile", "hard")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--instances", type=int, default=500)
    parser.add_argument("--enumerated", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    found = measure(args.only, args.instances, args.enumerated)
    old = json.loads(args.out.read_text()) if args.out.exists() else {}
    args.out.write_text(json.dumps({**old, "jax": jax.__version__, **found}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
