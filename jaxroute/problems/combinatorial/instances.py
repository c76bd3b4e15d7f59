"""Functions that build clouds: with given means, with the paper's means, with random means, and from tables."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxroute.core import checks
from jaxroute.core.types import Leaf
from jaxroute.data import C2MABV_TABLE_3, RoutingTable
from jaxroute.problems.combinatorial import sources
from jaxroute.problems.combinatorial.env import CloudEnv
from jaxroute.problems.combinatorial.optimum import best_relaxed, best_set
from jaxroute.problems.combinatorial.parts.rewards import REWARDS
from jaxroute.problems.combinatorial.types import Reward

# Largest number of models for which optima of every set of available models are tabulated.
_MOST_MODELS_WITH_AVAILABILITY = 12

# Probabilities of the graded levels of each model of Table 3: correct, formatted, empty. The paper publishes none; these are ours.
SCIQ_LEVELS = np.array([
    (0.02, 0.03, 0.05), (0.60, 0.08, 0.02), (0.68, 0.08, 0.02), (0.52, 0.10, 0.04), (0.26, 0.12, 0.04), (0.34, 0.12, 0.04),
    (0.50, 0.10, 0.02), (0.62, 0.08, 0.02), (0.732, 0.10, 0.02),
])  # fmt: skip
SCIQ_SUCCESS = SCIQ_LEVELS @ np.array([0.5, 0.3, 0.1])
BUDGETS = {"awc": 0.45, "suc": 0.5, "aic": 0.3}


def cloud(
    outcomes: sources.Source,
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
    """Builds a cloud of models, and computes the best set and the best relaxed selection, to which regret is relative.

    Args:
      outcomes: source of outcomes and costs of `K` models, `ParametricOutcomes` or `TableOutcomes`.
      reward: `AnyWin()` or its name "awc", `SumUp()` ("suc"), or `AllIn()` ("aic").
      budget: mean cost per round; with groups optionally one number for each group.
      size: number `N` of models in a set, with `AnyWin` the largest number; with groups one number for each group.
      price: `[K]` known prices, for the order of a cascade (default: the mean costs of the first segment).
      groups: index of each model's group, from 0 (default: one group). A set takes `size[g]` models from group `g`, for example one tutor for each
        subject (appendix C.1, a partition matroid).
      availability: probability that a model is available in a round; one number or `[K]` (default: always).
      arrival: probability that the feedback of a round arrives (default: 1).
      sizes: smallest and largest value of `size` if one compiled program sweeps over it (default: `size`).
      sees_all_costs: whether the costs of all selected models are observed, also of models that were not asked.
      any_size: whether sets of any size are allowed, not only of `size`.
      names: names of the models.
      currency: currency of the costs.
    """
    if not (hasattr(outcomes, "draw") and hasattr(outcomes, "outcome_mean")):
        raise ValueError(f"outcomes must be ParametricOutcomes or TableOutcomes, got {checks.show(outcomes)}")
    outcomes.check()
    if isinstance(reward, str):
        reward = REWARDS[checks.one_of("reward", reward, REWARDS)]
    if not hasattr(reward, "relaxed"):
        allowed = f"AnyWin(), SumUp(), AllIn() or one of {', '.join(REWARDS)}"
        raise ValueError(f"reward must be {allowed}, got {checks.show(reward)}")
    mean, cost = (np.asarray(x, np.float64) for x in (outcomes.outcome_mean, outcomes.cost_mean))
    count = mean.shape[-1]
    labels = None
    if groups is None:
        size = checks.count("size", size, maximum=count)
        budget = float(checks.positive("budget", budget, ()))
    else:
        given = np.asarray(groups)
        if given.shape != (count,) or given.dtype.kind not in "iu" or set(given.tolist()) != set(range(given.max() + 1)):
            expected = f"{count} whole numbers, the group of each model from 0 on"
            raise ValueError(f"groups must be {expected}, got {checks.show(groups)}")
        if sizes is not None:
            raise ValueError(f"sizes must be None with groups, got {checks.show(sizes)}")
        labels, members = tuple(given.tolist()), np.bincount(given)
        size = checks.numbers("size", size, members.shape)
        if (size != np.round(size)).any() or (size < 1).any() or (size > members).any():
            largest = f"the size of each group {members.tolist()}"
            raise ValueError(f"size must be whole numbers from 1 to {largest}, got {size.tolist()}")
        size, sizes = size.astype(int), (int(size.sum()), int(size.sum()))
        budget = checks.positive("budget", budget, members.shape if np.ndim(budget) else ())
    low, high = (size, size) if sizes is None else sizes
    high = checks.count("sizes[1]", high, minimum=int(np.sum(size)), maximum=count)
    low = checks.count("sizes[0]", low, maximum=int(np.sum(size)))
    prices = cost[0] if price is None else checks.non_negative("price", price, (count,))
    if names and len(names) != count:
        raise ValueError(f"names must have one name per model ({count}), got {len(names)}")
    if availability is not None:
        shape = (count,) if np.ndim(availability) else ()
        availability = np.broadcast_to(checks.share("availability", availability, shape), (count,)).astype(np.float32)
        if count > _MOST_MODELS_WITH_AVAILABILITY:
            why = "for the optimum of every set of available models is tabulated"
            raise ValueError(f"availability needs at most {_MOST_MODELS_WITH_AVAILABILITY} models, {why}, got {count}")

    def optima(find: Callable) -> tuple[np.ndarray, np.ndarray]:
        """Applies `find`, either `best_set` or `best_relaxed`, in each of `G` segments to each of `A` sets of available models.

        Returns the rewards `[G, A]`, with sets in the order of their bit masks, and the selections `[G, K]` for the set of all models.
        """
        segments = list(zip(mean, cost, strict=True))
        found = [find(reward, m, c, budget, size, groups=labels) for m, c in segments]
        selections, values = (np.asarray(x, np.float32) for x in zip(*found, strict=True))
        if availability is None:
            return values[:, None], selections
        # The index of a set of available models is the sum of `2 ** k` over its models `k`.
        sets = ((np.arange(2**count)[:, None] >> np.arange(count)) & 1).astype(bool)
        rows = [[find(reward, m, c, budget, size, allowed, labels)[1] for allowed in sets] for m, c in segments]
        return np.asarray(rows, np.float32), selections

    best, best_selection = optima(best_set)
    relaxed, relaxed_selection = optima(best_relaxed)
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


def parametric_cloud(
    success: Leaf,
    cost: Leaf,
    *,
    reward: Reward | str,
    budget: Any,
    size: Any,
    switch: Leaf | None = None,
    correlation: float | None = None,
    costs: sources.Costs = sources.ScaledCosts(),
    **options: Any,
) -> CloudEnv:
    """Builds a cloud that draws outcomes and costs from distributions with given means.

    Args:
      success: success probabilities `[K]`, or `[G, K]` for `G` segments of rounds if means drift.
      cost: mean costs, `[K]` or `[G, K]`.
      switch: `[G]` first round (from 0) of each segment; required if means drift.
      correlation: weight in [0, 1) of the difficulty of a round, which all models share (`CopulaOutcomes`); by default successes are independent.
      costs: distribution of costs around their means, `FixedCosts()`, `ScaledCosts()` or `TokenCosts()`.
      reward, budget, size: "awc" (any win), "suc" (sum up), "aic" (all in) or an object like `AnyWin()`; mean cost per round; models in a set.
      options: other arguments of `cloud`.
    """
    success = np.atleast_2d(checks.probability("success", success))
    cost = np.atleast_2d(checks.non_negative("cost", cost))
    rows = max(len(success), len(cost))
    if success.shape[1] != cost.shape[1] or {len(success), len(cost)} - {1, rows}:
        raise ValueError(f"cost must have one column per model and one row or {len(success)}, got shape {cost.shape}")
    first = np.zeros(rows if rows == 1 else 0) if switch is None else checks.non_negative("switch", switch)
    if first.shape != (rows,) or (first != np.round(first)).any():
        expected = f"the first round of each of the {rows} rows of means, whole numbers"
        raise ValueError(f"switch must give {expected}, got {checks.show(switch)}")
    success, cost = (np.broadcast_to(a, (rows, a.shape[1])).astype(np.float32) for a in (success, cost))
    successes: sources.Successes = sources.BernoulliOutcomes(success)
    if correlation is not None:
        successes = sources.CopulaOutcomes(success, np.float32(correlation))
    outcomes = sources.ParametricOutcomes(successes=successes, costs=costs, cost_mean=cost, switch=first.astype(np.int32))
    return cloud(outcomes, reward=reward, budget=budget, size=size, **options)


def sciq_cloud(
    *,
    reward: str = "suc",
    budget: Any = None,
    size: Any = 4,
    costs: sources.Costs = sources.ScaledCosts(),
    graded: bool = False,
    **options: Any,
) -> CloudEnv:
    """Builds a substitute for the paper's runs on SciQ, from its nine models with list prices.

    Costs are prices relative to the most expensive model. The paper publishes no success rates; ours are chosen to fit its graded scale (0.5 for a
    correct answer in the right format), and the published accuracy of GPT-4, 73.2 %.

    Source: C2MAB-V, section 6 and appendix E, Table 3; sets of 4, budgets .45, .5 and .3.

    Args:
      reward: "awc" (any win), "suc" (sum up) or "aic" (all in).
      budget: cost per round (default: the paper's for the reward).
      graded: whether outcomes have four levels (`GradedOutcomes`) instead of 0 and 1 with the same mean.
      costs: distribution of costs around the prices, `FixedCosts()`, `ScaledCosts()` or `TokenCosts()`.
      size, options: number of models in a set, and other arguments of `cloud`.
    """
    if budget is None:
        budget = BUDGETS[checks.one_of("reward", reward, BUDGETS)]
    price = (C2MABV_TABLE_3.prices / C2MABV_TABLE_3.prices.max()).astype(np.float32)
    successes: sources.Successes = sources.BernoulliOutcomes(SCIQ_SUCCESS[None].astype(np.float32))
    if graded:
        successes = sources.GradedOutcomes(*(SCIQ_LEVELS[None, :, level].astype(np.float32) for level in range(3)))
    outcomes = sources.ParametricOutcomes(successes, costs, cost_mean=price[None], switch=np.zeros(1, np.int32))
    return cloud(outcomes, reward=reward, budget=budget, size=size, **{"names": C2MABV_TABLE_3.names, **options})


def uniform_cloud(
    *, num_models: int = 25, reward: str = "suc", budget: float = 1.4, size: int = 8, instance: int = 0, **options: Any
) -> CloudEnv:
    """Builds an environment with success probabilities and mean costs drawn uniformly on [0, 1]. Source: C2MAB-V, appendix E.3, Table 4.

    Args:
      num_models: number of models, `K`.
      reward, budget, size: "awc" (any win), "suc" (sum up) or "aic" (all in); mean cost allowed per round; number of models in a set.
      instance, options: seed of the draws, and other arguments of `parametric_cloud`.
    """
    rng = np.random.default_rng(checks.count("instance", instance, minimum=0))
    success, cost = rng.random((2, checks.count("num_models", num_models, minimum=2)))
    return parametric_cloud(success, cost, reward=reward, budget=budget, size=size, **options)


def table_cloud(
    table: RoutingTable, *, reward: str = "suc", budget: float, size: int, threshold: float = 0.5, **options: Any
) -> CloudEnv:
    """Builds a cloud that replays the rows of a table, in a random order per run, each once before any is repeated.

    The outcomes of a row may be dependent. Expected rewards and optima are computed for independent models with the column means of the table; the
    metric `realised_reward` is computed from the rows.

    Args:
      table: scores in [0, 1] and costs of `K` models on `Q` queries, `[Q, K]`.
      reward, size, options: "awc" (any win), "suc" (sum up) or "aic" (all in); number of models in a set; other arguments of `cloud`.
      budget: mean cost allowed per round, in the unit of the table's costs.
      threshold: smallest score that counts as a success.
    """
    checks.instance("table", table, RoutingTable)
    outcomes = sources.TableOutcomes(
        outcomes=table.scores.astype(np.float32),
        cost_table=table.costs.astype(np.float32),
        outcome_mean=table.mean_scores()[None].astype(np.float32),
        cost_mean=table.mean_costs()[None].astype(np.float32),
        threshold=float(checks.share("threshold", threshold, ())),
    )
    options = {"names": table.models, "currency": table.currency, **options}
    return cloud(outcomes, reward=reward, budget=budget, size=size, **options)


def copies_of(env: CloudEnv, model: int | str, copies: int | None = None) -> CloudEnv:
    """Returns the cloud in which every model is an independent copy of the model `model` of `env`.

    With the policy `Everything` this is the paper's "Always ChatGPT-4": `N` copies, asked in sequence for any win. Regret (metrics
    `regret` and `lp_regret`) is relative to the optima of the original cloud, for comparison with its policies; oracles choose among the copies. The
    budget stays the same.

    Differs from the paper: it does not specify the number of calls of the model; only `N` independent calls agree with its figures.

    Args:
      env: cloud without groups that draws from distributions.
      model: name or index of the model.
      copies: number of copies (default: the set size `N`).
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
