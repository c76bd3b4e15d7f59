"""Constructors of clouds: with given means, with the paper's, random, and from tables."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxroute.core import checks
from jaxroute.core.types import Leaf
from jaxroute.data import C2MABV_TABLE_3, RoutingTable
from jaxroute.problems.combinatorial.env import CloudEnv
from jaxroute.problems.combinatorial.optimum import best_by_availability, best_relaxed, best_set
from jaxroute.problems.combinatorial.parts.rewards import REWARDS
from jaxroute.problems.combinatorial.sources import (
    BernoulliOutcomes,
    CopulaOutcomes,
    Costs,
    GradedOutcomes,
    ParametricOutcomes,
    ScaledCosts,
    Source,
    Successes,
    TableOutcomes,
)
from jaxroute.problems.combinatorial.types import Reward

# Largest number of models for which optima of every set of available models are tabulated.
_MOST_MODELS_WITH_AVAILABILITY = 12

# Probabilities of the graded levels of each model of Table 3: correct, formatted, empty. The paper publishes none; these are ours.
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


def _grouped(
    groups: Sequence[int], size: Any, budget: Any, sizes: tuple[int, int] | None, count: int
) -> tuple[tuple[int, ...], np.ndarray, Any]:
    """Validates groups (as a tuple), sizes `[M]` and the budget `[]` or `[M]`."""
    labels = np.asarray(groups)
    if labels.shape != (count,) or labels.dtype.kind not in "iu" or set(labels.tolist()) != set(range(labels.max() + 1)):
        raise ValueError(
            f"groups must be {count} whole numbers, the group of each model from 0 on, got {checks.show(groups)}"
        )
    if sizes is not None:
        raise ValueError(f"sizes must be None with groups, got {checks.show(sizes)}")
    number = int(labels.max()) + 1
    members = np.bincount(labels)
    size = checks.numbers("size", size, (number,))
    if (size != np.round(size)).any() or (size < 1).any() or (size > members).any():
        raise ValueError(
            f"size must be whole numbers from 1 to the size of each group {members.tolist()}, got {size.tolist()}"
        )
    budget = checks.positive("budget", budget, (number,) if np.ndim(budget) else ())
    return tuple(labels.tolist()), size.astype(int), budget if np.ndim(budget) else float(budget)


def _checked_reward(reward: Reward | str) -> Reward:
    """Validates a reward, given as a name or an object."""
    if isinstance(reward, str):
        return REWARDS[checks.one_of("reward", reward, REWARDS)]
    if not hasattr(reward, "relaxed"):
        raise ValueError(
            f"reward must be AnyWin(), SumUp(), AllIn() or one of {', '.join(REWARDS)}, got {checks.show(reward)}"
        )
    return reward


def _checked_availability(availability: Leaf | None, count: int) -> np.ndarray | None:
    """Validates probabilities `[K]` of availability; None for always."""
    if availability is None:
        return None
    shape = (count,) if np.ndim(availability) else ()
    probabilities = np.broadcast_to(checks.share("availability", availability, shape), (count,)).astype(np.float32)
    if count > _MOST_MODELS_WITH_AVAILABILITY:
        raise ValueError(
            f"availability needs at most {_MOST_MODELS_WITH_AVAILABILITY} models, for the optimum of every set of "
            f"available models is tabulated, got {count}"
        )
    return probabilities


def _optima(
    find: Callable,
    reward: Reward,
    mean: np.ndarray,
    cost: np.ndarray,
    budget: Any,
    size: Any,
    groups: Sequence[int] | None,
    by_availability: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns values `[G, A]` and selections `[G, K]` of `best_set` or `best_relaxed` in each segment of drift."""
    found = [find(reward, m, c, budget, size, groups=groups) for m, c in zip(mean, cost, strict=True)]
    selections, values = (np.asarray(x, np.float32) for x in zip(*found, strict=True))
    if not by_availability:
        return values[:, None], selections
    rows = [
        best_by_availability(lambda allowed, m=m, c=c: find(reward, m, c, budget, size, allowed, groups)[1], mean.shape[-1])
        for m, c in zip(mean, cost, strict=True)
    ]
    return np.asarray(rows, np.float32), selections


def cloud(
    outcomes: Source,
    *,
    reward: Reward | str,
    budget: Any,
    size: Any,
    price: Leaf | None = None,
    groups: Sequence[int] | None = None,
    availability: Leaf | None = None,
    arrival: float | None = None,
    sizes: tuple[int, int] | None = None,
    sees_all_costs: bool = False,
    any_size: bool = False,
    names: Sequence[str] = (),
    currency: str = "cost",
) -> CloudEnv:
    """Returns a cloud of models with its optima.

    Args:
      outcomes: `ParametricOutcomes` or `TableOutcomes` of `K` models.
      reward: `AnyWin()`, `SumUp()` or `AllIn()`, or "awc", "suc" or "aic".
      budget: mean cost per round; with groups optionally one number for each group.
      size: models per set, `N`: at most (any win) or exactly; with groups one number for each group.
      price: `[K]` known prices, for the order of a cascade (default: the mean costs of the first segment).
      groups: group of each model, from 0: a set takes `size[g]` models from group `g` (appendix C.1, a partition matroid), for example one tutor
        for each subject (default: one group).
      availability: probability that a model is available in a round; one number or `[K]` (default: 1).
      arrival: probability that the feedback of a round arrives (default: 1).
      sizes: smallest and largest `size` of a grid over sizes (default: `size`).
      sees_all_costs: whether the costs of all selected models are observed, also of models that were not asked.
      any_size: whether sets of another size are allowed.
      names: names of the models.
      currency: currency of the costs.

    Raises:
      ValueError: an argument is out of range.
    """
    if not (hasattr(outcomes, "draw") and hasattr(outcomes, "outcome_mean")):
        raise ValueError(f"outcomes must be ParametricOutcomes or TableOutcomes, got {checks.show(outcomes)}")
    outcomes.check()
    reward = _checked_reward(reward)
    mean, cost = (np.asarray(x, np.float64) for x in (outcomes.outcome_mean, outcomes.cost_mean))
    count = mean.shape[-1]
    labels = None
    if groups is not None:
        labels, size, budget = _grouped(groups, size, budget, sizes, count)
        sizes = (int(size.sum()), int(size.sum()))
    else:
        size = checks.count("size", size, maximum=count)
        budget = float(checks.positive("budget", budget, ()))
    low, high = (size, size) if sizes is None else sizes
    high = checks.count("sizes[1]", high, minimum=int(np.sum(size)), maximum=count)
    low = checks.count("sizes[0]", low, maximum=int(np.sum(size)))
    prices = cost[0] if price is None else checks.non_negative("price", price, (count,))
    if names and len(names) != count:
        raise ValueError(f"names must have one name per model ({count}), got {len(names)}")
    availability = _checked_availability(availability, count)
    task = (reward, mean, cost, budget, size, labels, availability is not None)
    best, best_selection = _optima(best_set, *task)
    relaxed, relaxed_selection = _optima(best_relaxed, *task)
    return CloudEnv(
        outcomes=outcomes,
        price=prices.astype(np.float32),
        budget=np.float32(budget),
        size=np.float32(size),
        availability=availability,
        arrival=None if arrival is None else np.float32(checks.share("arrival", arrival, ())),
        best=best,
        best_relaxed=relaxed,
        best_selection=best_selection,
        best_relaxed_selection=relaxed_selection,
        reward=reward,
        sizes=(low, high),
        groups=labels,
        sees_all_costs=bool(sees_all_costs),
        any_size=bool(any_size),
        names=tuple(names),
        currency=str(currency),
    )


def _segments(success: Leaf, cost: Leaf, switch: Leaf | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the means `[G, K]` of each segment of drift, and their first rounds."""
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
    success, cost = (np.broadcast_to(a, (rows, a.shape[1])).astype(np.float32) for a in (success, cost))
    return success, cost, first.astype(np.int32)


def parametric_cloud(
    success: Leaf,
    cost: Leaf,
    *,
    reward: Reward | str,
    budget: Any,
    size: Any,
    switch: Leaf | None = None,
    correlation: float | None = None,
    costs: Costs = ScaledCosts(),
    **options: Any,
) -> CloudEnv:
    """Returns a cloud with given means.

    Args:
      success: success probabilities `[K]`, or `[G, K]` for `G` segments of drift.
      cost: mean costs, likewise.
      switch: `[G]` first rounds (from 0) of the segments.
      correlation: weight of a shared difficulty in [0, 1) (`CopulaOutcomes`); by default successes are independent.
      costs: `FixedCosts()`, `ScaledCosts()` or `TokenCosts()`.
      reward, budget, size, options: as for `cloud`.
    """
    success, cost, switch = _segments(success, cost, switch)
    successes = BernoulliOutcomes(success) if correlation is None else CopulaOutcomes(success, np.float32(correlation))
    outcomes = ParametricOutcomes(successes=successes, costs=costs, cost_mean=cost, switch=switch)
    return cloud(outcomes, reward=reward, budget=budget, size=size, **options)


def sciq_cloud(
    *,
    reward: str = "suc",
    budget: Any = None,
    size: Any = 4,
    costs: Costs = ScaledCosts(),
    graded: bool = False,
    **options: Any,
) -> CloudEnv:
    """Returns the paper's nine models with list prices, a stand-in for its SciQ runs.

    Costs are prices relative to the most expensive model. The paper publishes no success rates; ours follow its graded scale (0.5 for a correct answer
    in the right format), and GPT-4 has the published accuracy of 73.2 %.

    Source: C2MAB-V, section 6 and appendix E, Table 3; sets of 4, budgets .45, .5 and .3.

    Args:
      reward: "awc" (any win), "suc" (sum up) or "aic" (all in).
      budget: cost per round (default: the paper's for the reward).
      graded: whether outcomes have four levels (`GradedOutcomes`) instead of 0 and 1 with the same mean.
      costs: as for `parametric_cloud`.
      size, options: as for `cloud`.
    """
    if budget is None:
        budget = BUDGETS[checks.one_of("reward", reward, BUDGETS)]
    price = (C2MABV_TABLE_3.prices / C2MABV_TABLE_3.prices.max()).astype(np.float32)
    successes: Successes = BernoulliOutcomes(SCIQ_SUCCESS[None].astype(np.float32))
    if graded:
        successes = GradedOutcomes(*(SCIQ_LEVELS[None, :, level].astype(np.float32) for level in range(3)))
    outcomes = ParametricOutcomes(successes=successes, costs=costs, cost_mean=price[None], switch=np.zeros(1, np.int32))
    return cloud(outcomes, reward=reward, budget=budget, size=size, **{"names": C2MABV_TABLE_3.names, **options})


def uniform_cloud(
    *, num_models: int = 25, reward: str = "suc", budget: float = 1.4, size: int = 8, instance: int = 0, **options: Any
) -> CloudEnv:
    """Returns a cloud with success probabilities and mean costs drawn uniformly on [0, 1]. Source: C2MAB-V, appendix E.3, Table 4.

    Args:
      num_models: number of models, `K`.
      reward, budget, size: as for `parametric_cloud`.
      instance: number of the random instance.
      options: as for `parametric_cloud`.
    """
    rng = np.random.default_rng(checks.count("instance", instance, minimum=0))
    success, cost = rng.random((2, checks.count("num_models", num_models, minimum=2)))
    return parametric_cloud(success, cost, reward=reward, budget=budget, size=size, **options)


def table_cloud(
    table: RoutingTable, *, reward: str = "suc", budget: float, size: int, threshold: float = 0.5, **options: Any
) -> CloudEnv:
    """Returns a cloud that replays the rows of a table, in a random order per run, each once before any is repeated.

    Rewards and optima use the column means of the table. The models of a row are dependent: the expected reward of a set is that of independent models
    with these means, and `realised_reward` is that of the rows.

    Args:
      table: scores in [0, 1] and costs `[Q, K]`.
      reward: as for `cloud`.
      budget: budget in the unit of the table's costs.
      size: as for `cloud`.
      threshold: smallest score that counts as a success.
      options: as for `cloud`.
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
    options = {"names": table.models, "currency": table.currency, **options}
    return cloud(outcomes, reward=reward, budget=budget, size=size, **options)


def copies_of(env: CloudEnv, model: int | str, copies: int | None = None) -> CloudEnv:
    """Returns the cloud in which every model is an independent copy of one model.

    With the policy `Everything` this is the paper's "Always ChatGPT-4": `N` copies, asked in sequence for any win. Regret and LP regret are relative to the
    best sets of the original cloud, for comparison with its policies; oracles of the copies choose the best sets of copies.

    Differs from the paper: it does not specify the number of calls of the model; only `N` independent calls agree with its figures.

    Args:
      env: cloud without groups that draws from distributions.
      model: name or index of the model.
      copies: number of copies (default: `N`).
    """
    if isinstance(model, str):
        model = env.names.index(checks.one_of("model", model, env.names))
    model = checks.count("model", model, minimum=0, maximum=env.spec.num_models - 1)
    if env.groups is not None:
        raise ValueError("env must not have groups: copies of one model belong to none")
    if env.availability is not None:
        raise ValueError("env must have no availability: then fewer than the copies could be asked")
    size = int(env.size) if copies is None else checks.count("copies", copies)
    outcomes = env.outcomes.copies(model, size)
    arrival = None if env.arrival is None else float(env.arrival)
    options: dict[str, Any] = {"sees_all_costs": env.sees_all_costs, "arrival": arrival, "currency": env.currency}
    made = cloud(outcomes, reward=env.reward, budget=float(env.budget), size=size, **options)
    return made.replace(best=env.best, best_relaxed=env.best_relaxed)
