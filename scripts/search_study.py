"""Which search finds the best leaves: CMA-ES, random points, a lattice, a grid and the gradient, at the same number of runs.

    python scripts/search_study.py [--task c2mabv|stageroute] [--repeats 4] [--runs 768]

Each search is repeated with other keys, which change both the luck of the runs and the candidates. What it finds is scored on seeds and a key
that no search has seen, common to all; shown are the mean over the repeats with its standard error, which holds the luck of the search and not
that of the scoring, and the worst repeat.
"""

import argparse
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

import jaxroute as jr
from jaxroute import tune
from jaxroute.problems import combinatorial, staged

PRICE = 4.0
HELD_OUT, HELD_OUT_KEY = range(256), 2**31


def net_reward(values: Mapping[str, Any]) -> Any:
    """Reward less a price on the violation."""
    return values["reward"] - PRICE * values["violation"]


def net_regret(values: Mapping[str, Any]) -> Any:
    """Regret (less is better) with a price on what is spent above the budget: without it the best is to spend more."""
    above = values["cost_ratio"] - 1.0
    return -values["regret"] - 100.0 * above * (above > 0)


class Task(NamedTuple):
    """A setting: what is searched, and where.

    env, policy, leaves, horizon: as for `search`. score: to be maximised. record: what it needs. grid: values by leaf.
    """

    env: Any
    policy: Any
    leaves: Mapping[str, Any]
    horizon: int
    score: Callable[[Mapping[str, Any]], Any]
    record: list[str]
    grid: Mapping[str, list[float]]


def c2mabv() -> Task:
    """C2MAB-V on the sum-up task, with a price on the violation: the setting of notebooks/combinatorial.ipynb."""
    return Task(
        combinatorial.sciq_cloud(reward="suc"),
        combinatorial.C2MABV(reward_width=1.0, cost_width=1.0, solver=combinatorial.Smoothed(0.03)),
        {"reward_width": tune.Log(0.02, 5.0), "cost_width": tune.Log(0.001, 2.0), "budget_share": tune.Log(0.6, 1.5)},
        500,
        net_reward,
        ["reward", "violation"],
        {"reward_width": [0.1, 0.3, 1.0, 3.0], "cost_width": [0.01, 0.1, 1.0], "budget_share": [0.8, 1.0]},
    )


def stageroute() -> Task:
    """StageRoute on the market of its figures, in ten short stages."""
    return Task(
        staged.arena_market(max_deployed=6, stage_length=50, horizon=500),
        staged.StageRoute(),
        {"gamma": tune.Log(0.001, 10.0), "radius_multiplier": tune.Log(0.05, 5.0)},
        500,
        net_regret,
        ["regret", "cost_ratio"],
        {"gamma": [0.001, 0.01, 0.1, 0.3, 1.0, 10.0], "radius_multiplier": [0.1, 0.5, 1.0, 2.0]},
    )


TASKS = {"c2mabv": c2mabv, "stageroute": stageroute}


def scored(task: Task, values: Mapping[str, Any], seeds: Any, key: int) -> np.ndarray:
    """Scores of a candidate by seed."""
    policy = tune.replace(task.policy, {name: np.float32(value) for name, value in values.items()})
    data = jr.simulate(
        task.env,
        policy,
        horizon=task.horizon,
        seeds=seeds,
        key=key,
        record=task.record,
        record_every=task.horizon,
        progress=False,
    )
    end = data.isel(policy=0, time=-1)
    return task.score({name: end[name].values for name in task.record})


def by_search(strategy: Any, seeds: int) -> Callable[[Task, int, int], Mapping[str, Any]]:
    """`tune.search`; its judgement is this script's."""

    def find(task: Task, runs: int, key: int) -> Mapping[str, Any]:
        found = tune.search(
            task.env,
            task.policy,
            task.leaves,
            metric=task.score,
            maximise=True,
            record=task.record,
            horizon=task.horizon,
            rounds=runs * task.horizon,
            seeds=seeds,
            strategy=strategy,
            fresh=2,
            key=key,
            progress=False,
        )
        return found.values

    return find


def by_grid(task: Task, runs: int, key: int) -> Mapping[str, Any]:
    """All settings of a grid on the same seeds; the best mean."""
    swept = jr.grid(
        type(task.policy), **({"solver": task.policy.solver} if hasattr(task.policy, "solver") else {}), **task.grid
    )
    seeds = runs // len(swept.objects)
    data = jr.simulate(
        task.env,
        swept,
        horizon=task.horizon,
        seeds=seeds,
        key=key,
        record=task.record,
        record_every=task.horizon,
        progress=False,
    )
    end = data.isel(policy=0, time=-1)
    means = task.score({name: end[name] for name in task.record}).mean("seed")
    at = means.where(means == means.max(), drop=True)
    return {name: float(at[name].values[0]) for name in task.grid}


def by_gradient(task: Task, runs: int, key: int) -> Mapping[str, Any]:
    """`tune.improve` from the policy as it is, 16 seeds a step."""
    bounds = {name: (scale.low, scale.high) for name, scale in task.leaves.items()}
    steps = runs // 16
    found = tune.improve(
        task.env,
        task.policy,
        bounds,
        combinatorial.relaxed_objective(PRICE),
        horizon=task.horizon,
        seeds=16,
        steps=steps,
        fresh=2,
        key=key,
    )
    return found.values


SEARCHES = {
    "CMA-ES, 8 x 4 seeds": by_search(tune.CMAES(size=8), 4),
    "CMA-ES, 8 x 2 seeds": by_search(tune.CMAES(size=8), 2),
    "CMA-ES, 8 x 8 seeds": by_search(tune.CMAES(size=8), 8),
    "CMA-ES, 16 x 4 seeds": by_search(tune.CMAES(size=16), 4),
    "CMA-ES, 16 x 16 seeds": by_search(tune.CMAES(size=16), 16),
    "random, 4 seeds": by_search(tune.Random(), 4),
    "random, 16 seeds": by_search(tune.Random(), 16),
    "lattice, 4 seeds": by_search(tune.Lattice(5), 4),
    "grid of 24": by_grid,
    "gradient": by_gradient,
}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, default="c2mabv")
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--runs", type=int, default=768)
    parser.add_argument("--only", default="", help="searches whose name begins so")
    options = parser.parse_args()
    task = TASKS[options.task]()
    print(
        f"{options.task}: {options.runs} runs of {task.horizon} rounds, {options.repeats} repeats, scored on {len(HELD_OUT)} seeds",
        flush=True,
    )
    for name, find in SEARCHES.items():
        if not name.startswith(options.only) or (find is by_gradient and options.task != "c2mabv"):
            continue
        ends = [find(task, options.runs, key) for key in range(options.repeats)]
        scores = np.array([scored(task, values, HELD_OUT, HELD_OUT_KEY).mean() for values in ends])
        error = scores.std(ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else np.nan
        last = ", ".join(f"{leaf} {value:.3g}" for leaf, value in ends[-1].items())
        print(f"{name:<24} {scores.mean():9.4f} ({error:.4f})  worst {scores.min():9.4f}   last: {last}", flush=True)


if __name__ == "__main__":
    main()
