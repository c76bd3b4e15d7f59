"""Clouds of the paper's experiments, and clouds made from tables."""

from typing import Any

import numpy as np

from jaxroute.core import checks
from jaxroute.core.types import Leaf
from jaxroute.data import C2MABV_TABLE_3, RoutingTable
from jaxroute.problems.combinatorial.env import Cloud, cloud
from jaxroute.problems.combinatorial.laws import (
    BernoulliOutcomes,
    CopulaOutcomes,
    GradedOutcomes,
    LawOutcomes,
    ScaledCosts,
    TableOutcomes,
)

# Chances of the graded levels of each model of Table 3: correct, formatted, empty. Ours: the paper prints none.
SCIQ_LEVELS = np.array(
    [
        (0.02, 0.03, 0.05),
        (0.60, 0.08, 0.02),
        (0.68, 0.08, 0.02),
        (0.52, 0.10, 0.04),
        (0.26, 0.12, 0.04),
        (0.34, 0.12, 0.04),
        (0.50, 0.10, 0.02),
        (0.62, 0.08, 0.02),
        (0.732, 0.10, 0.02),
    ]
)
SCIQ_SUCCESS = SCIQ_LEVELS @ np.array([0.5, 0.3, 0.1])
BUDGETS = {"awc": 0.45, "suc": 0.5, "aic": 0.3}


def _segments(success, cost, switch):
    """Means `[G, K]` of each segment of drift, and their first rounds."""
    success = np.atleast_2d(checks.probability("success", success))
    cost = np.atleast_2d(checks.non_negative("cost", cost))
    rows = max(len(success), len(cost))
    if success.shape[1] != cost.shape[1] or {len(success), len(cost)} - {1, rows}:
        raise ValueError(f"cost must have one column per model and one row or {len(success)}, got shape {cost.shape}")
    first = np.zeros(rows if rows == 1 else 0) if switch is None else checks.non_negative("switch", switch)
    if first.shape != (rows,) or (first != np.round(first)).any():
        raise ValueError(
            f"switch must give the first round of each of the {rows} rows of means, whole numbers, got {checks.show(switch)}"
        )
    switch = first
    return (np.broadcast_to(a, (rows, a.shape[1])).astype(np.float32) for a in (success, cost)), switch.astype(np.int32)


def law_cloud(
    success: Leaf,
    cost: Leaf,
    *,
    reward: Any,
    budget: float,
    size: int,
    switch: Leaf | None = None,
    correlation: float | None = None,
    costs: Any = ScaledCosts(),
    **options: Any,
) -> Cloud:
    """A cloud with your own means.

    Args:
      success: success chances `[K]`, or `[G, K]` for `G` segments of drift. cost: mean costs, likewise.
      switch: `[G]` first rounds (from 0) of the segments.
      correlation: weight of a shared difficulty in [0, 1) (`CopulaOutcomes`); default independent successes.
      costs: `FixedCosts()`, `ScaledCosts()` or `TokenCosts()`.
      reward, budget, size, options: as for `cloud`.
    """
    (success, cost), switch = _segments(success, cost, switch)
    successes = BernoulliOutcomes(success) if correlation is None else CopulaOutcomes(success, np.float32(correlation))
    outcomes = LawOutcomes(successes=successes, costs=costs, cost_mean=cost, switch=switch)
    return cloud(outcomes, reward=reward, budget=budget, size=size, **options)


def sciq_cloud(
    *,
    reward: str = "suc",
    budget: float | None = None,
    size: int = 4,
    costs: Any = ScaledCosts(),
    graded: bool = False,
    **options: Any,
) -> Cloud:
    """The paper's nine models with their list prices, as a stand-in for its SciQ runs.

    Costs are the prices over the dearest one. The paper prints no success rates; ours follow its graded scale (0.5 for a correct
    answer in the right format), so that GPT-4's accuracy is the printed 73.2 %.

    Source: C2MAB-V, section 6 and appendix E, Table 3; sets of 4, budgets .45, .5 and .3.

    Args:
      reward: "awc" (any win), "suc" (sum up) or "aic" (all in). budget: per round (default the paper's for the reward).
      graded: outcomes on four levels (`GradedOutcomes`) in place of 0 and 1 with the same mean.
      costs, size, options: as for `law_cloud` and `cloud`.
    """
    if budget is None:
        budget = BUDGETS[checks.one_of("reward", reward, BUDGETS)]
    price = (C2MABV_TABLE_3.prices / C2MABV_TABLE_3.prices.max()).astype(np.float32)
    successes: Any = BernoulliOutcomes(SCIQ_SUCCESS[None].astype(np.float32))
    if graded:
        successes = GradedOutcomes(*(SCIQ_LEVELS[None, :, level].astype(np.float32) for level in range(3)))
    outcomes = LawOutcomes(successes=successes, costs=costs, cost_mean=price[None], switch=np.zeros(1, np.int32))
    return cloud(outcomes, reward=reward, budget=budget, size=size, **{"names": C2MABV_TABLE_3.names, **options})


def uniform_cloud(
    *, num_models: int = 25, reward: str = "suc", budget: float = 1.4, size: int = 8, instance: int = 0, **options: Any
) -> Cloud:
    """A cloud whose success chances and mean costs are drawn uniformly on [0, 1]. Source: C2MAB-V, appendix E.3, Table 4.

    instance: which draw. Other arguments as for `law_cloud`.
    """
    rng = np.random.default_rng(checks.count("instance", instance, minimum=0))
    success, cost = rng.random((2, checks.count("num_models", num_models, minimum=2)))
    return law_cloud(success, cost, reward=reward, budget=budget, size=size, **options)


def table_cloud(
    table: RoutingTable, *, reward: str = "suc", budget: float, size: int, threshold: float = 0.5, **options: Any
) -> Cloud:
    """A cloud that replays the rows of a table, in a random order per run, each once before any is repeated.

    Rewards and benchmarks use the table's column means; the models of a row are not independent, so that the expected reward of
    a set is that of independent models with these means, and `realised_reward` is what the rows give.

    Args:
      table: scores in [0, 1] and costs `[Q, K]`. threshold: a score of at least this counts as a success.
      budget: in the unit of the table's costs. Other arguments as for `cloud`.
    """
    if not isinstance(table, RoutingTable):
        raise ValueError(f"table must be a RoutingTable, got {checks.show(table)}")
    outcomes = TableOutcomes(
        outcomes=table.scores.astype(np.float32),
        cost_table=table.costs.astype(np.float32),
        outcome_mean=table.mean_scores()[None].astype(np.float32),
        cost_mean=table.mean_costs()[None].astype(np.float32),
        threshold=float(checks.share("threshold", threshold, ())),
    )
    return cloud(outcomes, reward=reward, budget=budget, size=size, **{"names": table.models, **options})


def copies_of(env: Cloud, model: int | str, copies: int | None = None) -> Cloud:
    """The cloud in which every model is an independent copy of one: what always asking that model would earn.

    With `Everything` as the policy this is the paper's "Always ChatGPT-4": `N` copies, asked one after another for any win.

    Differs from the paper: it does not say how often the one model is asked; only `N` independent calls agree with its figures.

    Args:
      env: a cloud without groups that draws from laws. model: name or index. copies: how many (default `N`).
    """
    if isinstance(model, str):
        model = env.names.index(checks.one_of("model", model, env.names))
    model = checks.count("model", model, minimum=0, maximum=env.spec.num_models - 1)
    source = env.outcomes
    if env.groups is not None:
        raise ValueError("env must not have groups: copies of one model belong to none")
    if not isinstance(source, LawOutcomes):
        raise ValueError("env must draw its outcomes from laws: a table has no independent copies of a model")

    if env.availability is not None:
        raise ValueError("env must have no availability: then fewer than the copies could be asked")
    size = int(env.size) if copies is None else checks.count("copies", copies)

    def copy(values):
        return np.repeat(np.asarray(values)[:, [model]], size, axis=1)

    successes = source.successes
    fields = {
        name: copy(getattr(successes, name)) for name in ("mean", "correct", "formatted", "empty") if name in vars(successes)
    }
    outcomes = source.replace(successes=successes.replace(**fields), cost_mean=copy(source.cost_mean))
    arrival = None if env.arrival is None else float(env.arrival)
    options: dict[str, Any] = {"sees_all_costs": env.sees_all_costs, "arrival": arrival}
    return cloud(outcomes, reward=env.reward, budget=float(env.budget), size=size, **options)
