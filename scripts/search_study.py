"""Does `jaxroute.tune.search` find better leaves than a grid, random points and the gradient, at the same number of rounds?

    python scripts/search_study.py [--tasks MESS+ "C2MAB-V, sum up" ...] [--searches search grid ...] [--repeats 8] [--runs 768] [--json FILE]

The grid is what a practitioner would lay over the same box, and the random points are 48; all of them meet the same seeds, and the best mean
wins, under the rule of the search where there is a bound: it has to be kept by a standard error. Everybody has the same number of runs of the
same length, and is repeated with other keys, which change the luck of the runs and the candidates.

What they find is scored on seeds and a key that none of them has seen, common to all: the mean of the metric, plus a price on what it is beyond
a bound, which is higher than what breaking the bound earns, and which nobody knew. Shown are the mean over the repeats with its standard error,
which holds the luck of the search and not that of the scoring; the share of the repeats that break a bound by more than two errors of the
scoring; and by how much each rival is worse than the search, repeat by repeat. `scripts/bench_results/search.json` has what came out.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import jaxroute as jr
from jaxroute import tune
from jaxroute.analysis.tune.ranking import Goal
from jaxroute.problems import cascade, combinatorial, service, staged

PRICE = 4.0
HELD_OUT, HELD_OUT_KEY = 512, 2**31
POINTS = 48
SEARCH = "search"

Values = Mapping[str, float]


class Task(NamedTuple):
    """A setting: what is searched, and where.

    env, policy, leaves, horizon: as for `search`. goal: what is searched for. record: metrics that it needs. grid: values by leaf. price: of a
    unit above or below a bound, by metric, in units of the score.
    """

    env: Any
    policy: Any
    leaves: Mapping[str, Any]
    goal: Goal
    record: list[str]
    grid: Mapping[str, list[float]]
    price: Mapping[str, float] = {}
    horizon: int = 500


def net_reward(values: Mapping[str, Any]) -> Any:
    """Reward less a price on the violation."""
    return values["reward"] - PRICE * values["violation"]


def c2mabv(reward: str) -> Task:
    """C2MAB-V with a price on the violation; the sum-up task is the setting of notebooks/combinatorial.ipynb."""
    return Task(
        combinatorial.sciq_cloud(reward=reward),
        combinatorial.C2MABV(reward_width=1.0, cost_width=1.0, solver=combinatorial.Smoothed(0.03)),
        {"reward_width": tune.Log(0.02, 5.0), "cost_width": tune.Log(0.001, 2.0), "budget_share": tune.Log(0.6, 1.5)},
        Goal(net_reward, True, {}, {}, 1.0),
        ["reward", "violation"],
        {"reward_width": [0.1, 0.3, 1.0, 3.0], "cost_width": [0.01, 0.1, 1.0], "budget_share": [0.8, 1.0]},
    )


def stageroute() -> Task:
    """StageRoute on the market of its figures, in ten short stages: regret, spending no more than the budget."""
    return Task(
        staged.arena_market(max_deployed=6, stage_length=50, horizon=500),
        staged.StageRoute(),
        {"gamma": tune.Log(0.001, 10.0), "radius_multiplier": tune.Log(0.05, 5.0)},
        Goal("regret", False, {"cost_ratio": 1.0}, {}, 1.0),
        ["regret", "cost_ratio"],
        {"gamma": [0.001, 0.01, 0.1, 0.3, 1.0, 10.0], "radius_multiplier": [0.1, 0.5, 1.0, 2.0]},
        {"cost_ratio": 100.0},
    )


def messplus() -> Task:
    """MESS+ on Winogrande with features that tell much: cost, satisfying as many requests as agreed."""
    env = service.benchmark_service("winogrande", signal=0.6)
    return Task(
        env,
        service.paper_policy("winogrande"),
        {"V": tune.Log(1e-5, 1e-1), "c": tune.Log(0.01, 1.0), "margin": tune.Linear(0.0, 0.1)},
        Goal("cost", False, {}, {"satisfaction": float(env.alpha)}, 1.0),
        ["cost", "satisfaction"],
        {"V": [1e-5, 1e-4, 1e-3, 1e-2, 1e-1], "c": [0.01, 0.1, 1.0], "margin": [0.0, 0.05]},
        {"satisfaction": 2.0 * float(env.best.price)},
    )


def cosmos() -> Task:
    """COSMOS on five models whose scores are seen: utility."""
    return Task(
        cascade.uniform_cascade(num_models=5, dim=3),
        cascade.COSMOS(fit=cascade.Streaming(), radius=cascade.Practical(0.1, 0.0, 0.0), exploration=cascade.WarmUp(1.0)),
        {"radius.index": tune.Log(0.01, 1.0), "exploration.rounds": tune.Log(1.0, 100.0), "eta1": tune.Log(0.1, 10.0)},
        Goal("utility", True, {}, {}, 1.0),
        ["utility"],
        {"radius.index": [0.01, 0.03, 0.1, 0.3, 1.0], "exploration.rounds": [1.0, 10.0, 100.0], "eta1": [0.3, 3.0]},
    )


TASKS: Mapping[str, Callable[[], Task]] = {
    "C2MAB-V, any win": lambda: c2mabv("awc"),
    "C2MAB-V, sum up": lambda: c2mabv("suc"),
    "C2MAB-V, all in": lambda: c2mabv("aic"),
    "StageRoute": stageroute,
    "MESS+": messplus,
    "COSMOS": cosmos,
}


def played(task: Task, points: Sequence[Values], seeds: int, key: int) -> dict[str, np.ndarray]:
    """Metrics `[point, seed]` of candidates."""
    policies = [tune.replace(task.policy, {name: np.float32(value) for name, value in one.items()}) for one in points]
    data = jr.simulate(
        task.env,
        {"candidate": jr.instances(policies)},
        horizon=task.horizon,
        seeds=seeds,
        key=key,
        record=task.record,
        record_every=task.horizon,
        progress=False,
    )
    end = data.isel(policy=0, time=-1)
    return {name: end[name].transpose("instance", "seed").values.astype(float) for name in task.record}


def the_best(task: Task, points: Sequence[Values], runs: int, key: int) -> Values:
    """All points on the same seeds; the best mean that keeps the bounds."""
    values = played(task, points, runs // len(points), key)
    known = [task.goal.estimate({n: v[i] for n, v in values.items()}, np.array(True)) for i in range(len(points))]
    return points[task.goal.order(known)[0]]


def by_grid(task: Task, runs: int, key: int) -> Values:
    """The best point of the grid."""
    return the_best(
        task, [dict(zip(task.grid, one, strict=True)) for one in itertools.product(*task.grid.values())], runs, key
    )


def by_random(task: Task, runs: int, key: int) -> Values:
    """The best of random points of the box."""
    cube = np.random.default_rng(key).random((POINTS, len(task.leaves)))
    return the_best(
        task, [{n: s.at(u) for (n, s), u in zip(task.leaves.items(), one, strict=True)} for one in cube], runs, key
    )


def by_gradient(task: Task, runs: int, key: int) -> Values:
    """`tune.improve` from the policy as it is, 16 seeds a step; of C2MAB-V alone."""
    return tune.improve(
        task.env,
        task.policy,
        {name: (scale.low, scale.high) for name, scale in task.leaves.items()},
        combinatorial.relaxed_objective(PRICE),
        horizon=task.horizon,
        seeds=16,
        steps=runs // 16,
        fresh=2,
        key=key,
    ).values


def by_search(**options: Any) -> Callable[[Task, int, int], Values]:
    """`tune.search`; its judgement is this script's."""

    def find(task: Task, runs: int, key: int) -> Values:
        return tune.search(
            task.env,
            task.policy,
            task.leaves,
            metric=task.goal.metric,
            maximise=task.goal.maximise,
            at_most=task.goal.at_most,
            at_least=task.goal.at_least,
            record=task.record,
            horizon=task.horizon,
            rounds=runs * task.horizon,
            fresh=2,
            key=key,
            progress=False,
            **options,
        ).values

    return find


SEARCHES: Mapping[str, Callable[[Task, int, int], Values]] = {
    SEARCH: by_search(),
    "grid": by_grid,
    "random": by_random,
    "gradient": by_gradient,
    # Not rivals: what the search does, with other candidates.
    "search, random points": by_search(strategy=tune.Random()),
    "search, 16 candidates": by_search(strategy=tune.CMAES(size=16)),
    "search, 2 seeds": by_search(seeds=2),
    "search, 8 seeds": by_search(seeds=8),
}
RIVALS = ("grid", "random", "gradient")


def scored(task: Task, points: Sequence[Values]) -> tuple[np.ndarray, np.ndarray]:
    """Net scores `[point]` on the seeds that nobody has seen, and whether a bound is broken by more than two errors."""
    values = played(task, points, HELD_OUT, HELD_OUT_KEY)
    nets, broken = [], []
    for place in range(len(points)):
        known = task.goal.estimate({n: v[place] for n, v in values.items()}, np.array(True))
        names = [*task.goal.at_most, *task.goal.at_least]
        prices = np.array([task.price[name] for name in names])
        sign = 1.0 if task.goal.maximise else -1.0
        nets.append(known.score[0] - sign * float(prices @ task.goal.lacks(known, 0.0)))
        broken.append(bool(task.goal.lacks(known, -2.0).any()))
    return np.array(nets), np.array(broken)


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Mean over the repeats and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def study(task: Task, names: Sequence[str], runs: int, repeats: int) -> dict[str, Any]:
    """What the searches find in a task, by repeat, and what it is worth."""
    found, seconds = {}, {}
    for name in names:
        start = time.process_time()
        found[name] = [SEARCHES[name](task, runs, key) for key in range(repeats)]
        seconds[name] = round(time.process_time() - start, 1)
    nets, broken = scored(task, [one for name in names for one in found[name]])
    rows = {}
    for place, name in enumerate(names):
        mine = slice(place * repeats, (place + 1) * repeats)
        mean, error = mean_and_error(nets[mine])
        rows[name] = {"mean": mean, "error": error, "breaks": float(broken[mine].mean()), "cpu_s": seconds[name]}
        rows[name] |= {"scores": nets[mine].tolist()}
        rows[name] |= {"found": [{leaf: float(f"{v:.4g}") for leaf, v in one.items()} for one in found[name]]}
    return rows


def gains(task: Task, rows: Mapping[str, Any]) -> dict[str, list[float]]:
    """By how much the search is better than each rival, repeat by repeat: mean and error."""
    sign = 1.0 if task.goal.maximise else -1.0
    scores = {name: sign * np.array(row["scores"]) for name, row in rows.items()}
    return {name: list(mean_and_error(scores[SEARCH] - scores[name])) for name in RIVALS if {name, SEARCH} <= set(rows)}


def main() -> None:
    """Prints the tables, and writes them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--searches", nargs="+", choices=SEARCHES, default=[SEARCH, *RIVALS])
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--runs", type=int, default=768)
    parser.add_argument(
        "--json", type=Path, help="file of results, in which those of other tasks and searches of these settings stay"
    )
    options = parser.parse_args()
    for name in options.tasks:
        task = TASKS[name]()
        names = [n for n in options.searches if n != "gradient" or name.startswith("C2MAB-V")]
        if not names:
            continue
        settings = {"runs": options.runs, "horizon": task.horizon, "repeats": options.repeats, "held_out_seeds": HELD_OUT}
        settings |= {"better": "more" if task.goal.maximise else "less", "price": dict(task.price)}
        kept = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
        before = kept.get(name, {})
        same = all(before.get(what) == value for what, value in settings.items())
        rows = (before["searches"] if same else {}) | study(task, names, options.runs, options.repeats)
        won = gains(task, rows)
        print(
            f"{name}: {options.runs} runs of {task.horizon} rounds, {options.repeats} repeats; {settings['better']} is better"
        )
        for search, row in rows.items():
            gain = f"  worse by {won[search][0]:.3g} ({won[search][1]:.2g})" if search in won else ""
            print(
                f"  {search:<24} {row['mean']:10.5g} ({row['error']:.2g})  breaks {row['breaks']:.0%}  {row['cpu_s']:.0f} s{gain}"
            )
        print(flush=True)
        if options.json:
            kept[name] = {**settings, "gain_over": won, "searches": rows}
            options.json.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
