"""Markets of the paper's experiments and theory, and markets that replay recorded queries."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxroute.core import checks, draws
from jaxroute.core.types import Leaf
from jaxroute.data import STAGEROUTE_TABLE_1, STAGEROUTE_TABLE_2, RoutingTable, divide_by_max, min_max
from jaxroute.problems.staged.env import MarketEnv
from jaxroute.problems.staged.optimum import max_support, optimum_steps, pool_value
from jaxroute.problems.staged.sources import Outcomes, ParametricOutcomes, TableOutcomes
from jaxroute.sources.distributions import Bernoulli, Constant, Gaussian, LogNormal, NormalTransform

NORMALISATIONS = {"min-max": min_max, "max": divide_by_max}
# Neither capacities nor the budget bind if all costs are 1.
_UNCONSTRAINED: dict[str, Any] = {"capacity": 1.0, "budget": 1.0, "known_costs": (0.1, 50.0)}


def market(
    outcomes: Outcomes,
    *,
    capacity: Leaf,
    arrival: Leaf | None = None,
    budget: float,
    max_deployed: int,
    stage_length: int,
    horizon: int,
    known_costs: tuple[float, float] | None = None,
    deploy_fee: Leaf = 0.0,
    optimum: str = "stage",
    stop_at_budget: bool = False,
    names: Sequence[str] = (),
    currency: str = "cost",
    require_feasible: bool = True,
) -> MarketEnv:
    """Builds a market and computes its optimum, the expected reward of the best feasible routing.

    Args:
      outcomes: `ParametricOutcomes` or `TableOutcomes` of `N` models.
      capacity: largest share of the traffic of each model, in (0, 1]; one number or `[N]`.
      arrival: `[N]` first round of each model, 1-based (default: all at the start).
      budget: mean cost that a query may have.
      max_deployed: number of slots `M`: models deployed at once.
      stage_length: queries `I` of a stage, between two maintenance windows (rounds in which models are exchanged).
      horizon: number of queries that the total budget must cover.
      known_costs: bounds `c_1` and `c_2` of the cost of a query, known to policies. By default the least positive and the largest cost of a table;
        with distributions, half the least positive mean and twice the largest.
      deploy_fee: fee, paid from the budget, when a model enters the deployment; one number or `[N]`.
      optimum: time from which the optimum may use a model: "stage" for the first maintenance window at or after the model's arrival (the paper's
        definition), "continuous" for its arrival.
      stop_at_budget: whether nothing is served once `budget * horizon` is spent.
      names, currency: names of the models, and unit of costs.
      require_feasible: whether to raise `ValueError` if no deployment can serve all queries of the first stage within the budget.
    """
    if not (hasattr(outcomes, "draw") and hasattr(outcomes, "reward_mean")):
        raise ValueError(f"outcomes must be ParametricOutcomes or TableOutcomes, got {checks.show(outcomes)}")
    outcomes.check()
    size = np.shape(outcomes.reward_mean)
    if len(size) != 1:
        raise ValueError(f"outcomes must hold the means of N models in one dimension, got shape {size}")
    max_deployed = checks.count("max_deployed", max_deployed)
    if max_deployed > size[0]:
        text = f"max_deployed is {max_deployed}, but there are {size[0]} models: all of them may be deployed at once"
        warnings.warn(text, stacklevel=3)
    stage_length = checks.count("stage_length", stage_length)
    horizon = checks.count("horizon", horizon)
    capacity = np.broadcast_to(checks.share("capacity", capacity, size if np.ndim(capacity) else ()), size)
    deploy_fee = np.broadcast_to(checks.non_negative("deploy_fee", deploy_fee, size if np.ndim(deploy_fee) else ()), size)
    budget = float(checks.positive("budget", budget, ()))
    arrival = np.ones(size, np.int64) if arrival is None else np.asarray(arrival)
    if arrival.shape != size or not np.issubdtype(arrival.dtype, np.integer) or arrival.min() < 1:
        raise ValueError(f"arrival must be {size[0]} whole rounds of at least 1, got {checks.show(arrival.tolist())}")
    checks.one_of("optimum", optimum, ("stage", "continuous"))
    if names and (len(names) != size[0] or len(set(names)) < size[0]):
        raise ValueError(f"names must have one name per model ({size[0]}), all different, got {checks.show(tuple(names))}")
    if isinstance(outcomes, ParametricOutcomes):  # The means may be lists of numbers.
        outcomes = outcomes.replace(reward_mean=np.asarray(outcomes.reward_mean), cost_mean=np.asarray(outcomes.cost_mean))
    mean, cost = (np.asarray(x, np.float64) for x in (outcomes.reward_mean, outcomes.cost_mean))
    if require_feasible:
        _require_feasible(cost, capacity, arrival, budget, max_deployed)
    bounds = _known_costs(outcomes) if known_costs is None else known_costs
    floor, ceiling = (checks.positive(f"known_costs[{i}]", bound, ()) for i, bound in enumerate(bounds))
    if floor > ceiling:
        raise ValueError(f"known_costs must be the least and the largest cost, got {floor:g} and {ceiling:g}")
    start, value = optimum_steps(mean, cost, capacity, arrival, budget, max_deployed, stage_length, optimum == "continuous")
    return MarketEnv(
        outcomes=outcomes,
        capacity=capacity.astype(np.float32),
        arrival=arrival.astype(np.int32),
        budget=np.float32(budget),
        deploy_fee=deploy_fee.astype(np.float32),
        horizon=np.int32(horizon),
        cost_floor=np.float32(floor),
        cost_ceiling=np.float32(ceiling),
        optimum_start=start,
        optimum_value=value.astype(np.float32),
        max_deployed=max_deployed,
        stage_length=stage_length,
        support=max_support(capacity),
        stop_at_budget=bool(stop_at_budget),
        names=tuple(names),
        currency=str(currency),
    )


def _scaled(currency: str, scale: float) -> str:
    """Returns the unit of costs that were multiplied by `scale`: for `currency` "USD" and `scale` 1000 it is "0.001 USD"."""
    return currency if scale == 1.0 else f"{1 / scale:.3g} {currency}"


def _known_costs(outcomes: Outcomes) -> tuple[float, float]:
    """Returns the default least and largest cost of a query that policies know in advance, used if the argument `known_costs` of `market` is None."""
    costs, margin = (outcomes.costs, 1.0) if isinstance(outcomes, TableOutcomes) else (outcomes.cost_mean, 2.0)
    costs = np.asarray(costs, np.float64)
    positive = costs[costs > 0]
    if not positive.size:
        return 1.0, 1.0  # Everything is free.
    return float(positive.min()) / margin, float(positive.max()) * margin


def _require_feasible(cost: np.ndarray, capacity: np.ndarray, arrival: np.ndarray, budget: float, max_deployed: int) -> None:
    """Raises `ValueError` if no set of `max_deployed` models of round 1 can serve all queries within budget and capacities; arrays are `[N]`."""
    pool = np.flatnonzero(arrival <= 1)
    if not len(pool):
        raise ValueError(f"arrival must have a model in round 1, got {checks.show(np.asarray(arrival).tolist())}")
    total = np.sort(capacity[pool])[::-1][:max_deployed].sum()
    if total < 1.0 - 1e-9:
        carriers = f"some {max_deployed} models of the first stage carry all queries (sum at least 1)"
        raise ValueError(f"capacity must let {carriers}, got at most {total:g}")
    # The cheapest routing is the best one for the reward `top - cost`, at a budget that never binds.
    top = cost[pool].max()
    value = pool_value(top - cost, cost, capacity, top, pool, max_deployed)
    if top - value > budget * (1 + 1e-9):
        least = f"{top - value:g}, the cheapest way to serve all queries of the first stage"
        raise ValueError(f"budget must be at least {least}, got {budget:g}")


def arena_market(
    *,
    max_deployed: int = 6,
    stage_length: int = 500,
    horizon: int = 10_000,
    budget: float = 2.0,
    capacity: Leaf = 0.4,
    reward_noise: float = 0.1,
    cost_noise: float = 0.1,
    arrival_interval: int = 1000,
    arrival_lag: int = 0,
    normalisation: str = "min-max",
    reward_distribution: NormalTransform = Gaussian(),
    cost_distribution: NormalTransform = Gaussian(relative=True),
    **options: Any,
) -> MarketEnv:
    """Builds the paper's synthetic market: 15 models with Chatbot-Arena scores and list prices (USD per million output tokens).

    Six models are available from the start, and one more arrives every `arrival_interval` queries. Yi-Lightning, the cheapest of the first six, may
    take all traffic, every other model the share `capacity`.

    Source: StageRoute (arXiv 2506.17254), section 6.1, Table 1. The paper gives neither the noise levels nor the normalisation; both are ours.

    Args:
      max_deployed, stage_length, horizon, budget: models deployed at once, queries of a stage and of a run, mean cost of a query.
      options: other arguments of `market`, such as `deploy_fee`.
      capacity: largest share of the traffic of a model; one number for all except Yi-Lightning, or `[N]`.
      reward_noise, cost_noise: standard deviation of a reward, and of a cost relative to its mean.
      arrival_interval: queries between two arrivals.
      arrival_lag: number of rounds by which each arrival after the first six models is delayed, so that it may miss a maintenance window.
      normalisation: "min-max" maps the scores to [0, 1], "max" divides them by the largest.
      reward_distribution, cost_distribution: distributions of a reward and of a cost.
    """
    table = STAGEROUTE_TABLE_1
    checks.one_of("normalisation", normalisation, NORMALISATIONS)
    interval = checks.count("arrival_interval", arrival_interval)
    lag = checks.count("arrival_lag", arrival_lag, minimum=0)
    number = np.maximum(np.arange(len(table.names)) - 5, 0)  # Models that have arrived before; 0 from the start.
    shares = _shares(capacity, table.names, "Yi-Lightning")
    outcomes = ParametricOutcomes(
        reward_mean=NORMALISATIONS[normalisation](table.scores),
        cost_mean=np.asarray(table.costs),
        reward_noise=np.float32(checks.non_negative("reward_noise", reward_noise, ())),
        cost_noise=np.float32(checks.non_negative("cost_noise", cost_noise, ())),
        reward_distribution=reward_distribution,
        cost_distribution=cost_distribution,
    )
    sizes: dict[str, Any] = {"max_deployed": max_deployed, "stage_length": stage_length, "horizon": horizon}
    arrival = 1 + interval * number + lag * (number > 0)
    options = {"known_costs": (0.1, 50.0), **options}
    return market(outcomes, capacity=shares, arrival=arrival, budget=budget, names=table.names, **sizes, **options)


def _shares(capacity: Leaf, names: Sequence[str], cheapest: str) -> np.ndarray:
    """Returns the capacity of each model in `names`, `[N]`. A scalar `capacity` holds for all but `cheapest`, which gets 1."""
    if np.ndim(capacity):
        return checks.share("capacity", capacity, (len(names),))
    return np.where(np.asarray(names) == cheapest, 1.0, checks.share("capacity", capacity, ()))


def routerbench_market(
    *,
    max_deployed: int = 3,
    stage_length: int = 500,
    horizon: int = 36_497,
    budget: float = 0.0002,
    capacity: Leaf = 0.4,
    cost_scale: float = 1.0,
    **options: Any,
) -> MarketEnv:
    """Builds a synthetic substitute for the paper's RouterBench experiment, whose queries are not public, with the published means of Table 2.

    Scores are Bernoulli and costs log-normal with coefficient of variation 1, independently. The correlation between models does not matter, because
    queries are independent and only one model is observed per query. Five models are available from the start, and one more arrives after each 5,000
    queries; WizardLM-13B may take all traffic.

    Source: StageRoute, section 6.2, Table 2. The paper does not give `max_deployed`, `stage_length`, the capacities and the known bounds 1e-5 and .05
    of costs; these are ours.

    Args:
      max_deployed, stage_length, horizon, budget: models deployed at once, queries of a stage and of a run, mean cost of a query.
      options: other arguments of `market`, such as `deploy_fee`.
      capacity: largest share of the traffic of a model; one number for all except WizardLM-13B, or `[N]`.
      cost_scale: factor of costs, of their known bounds and of the budget. Results depend on it, since the confidence radius does not scale with the
        costs.
    """
    table = STAGEROUTE_TABLE_2
    scale = float(checks.positive("cost_scale", cost_scale, ()))
    shares = _shares(capacity, table.names, "WizardLM/WizardLM-13B-V1.2")
    outcomes = ParametricOutcomes(
        reward_mean=np.asarray(table.scores),
        cost_mean=np.asarray(table.costs) * scale,
        reward_noise=np.float32(0.0),
        cost_noise=np.float32(1.0),
        reward_distribution=Bernoulli(),
        cost_distribution=LogNormal(),
    )
    sizes: dict[str, Any] = {"max_deployed": max_deployed, "stage_length": stage_length, "horizon": horizon}
    arrival = 1 + 5000 * np.maximum(np.arange(len(table.names)) - 4, 0)
    options = {"known_costs": (1e-5 * scale, 0.05 * scale), "currency": _scaled("USD", scale), **options}
    return market(outcomes, capacity=shares, arrival=arrival, budget=budget * scale, names=table.names, **sizes, **options)


def table_market(
    table: RoutingTable,
    *,
    max_deployed: int,
    stage_length: int,
    horizon: int,
    budget: float,
    capacity: Leaf = 1.0,
    arrival: Leaf | None = None,
    cost_scale: float = 1.0,
    one_pass: bool = False,
    **options: Any,
) -> MarketEnv:
    """Builds a market that replays the queries of a table of scores and costs.

    Args:
      table: scores and costs of every model on every query.
      max_deployed, stage_length, horizon, budget: models deployed at once, queries of a stage and of a run, mean cost of a query.
      capacity, arrival, options: largest share of the traffic of each model, its first round from 1 (default: 1), other arguments of `market`.
      one_pass: whether each query is used once, in a random order, before any is repeated; otherwise queries are drawn with replacement.
      cost_scale: factor by which the table's costs and `budget`, in the table's unit, are multiplied; for 1000 the market's unit is "0.001 USD".
    """
    checks.instance("table", table, RoutingTable)
    scale = float(checks.positive("cost_scale", cost_scale, ()))
    outcomes = TableOutcomes(
        scores=np.asarray(table.scores),
        costs=np.asarray(table.costs) * np.float32(scale),
        reward_mean=table.mean_scores(),
        cost_mean=table.mean_costs() * scale,
        one_pass=one_pass,
    )
    sizes: dict[str, Any] = {"max_deployed": max_deployed, "stage_length": stage_length, "horizon": horizon}
    options = {"currency": _scaled(table.currency, scale), **options}
    return market(
        outcomes, capacity=capacity, arrival=arrival, budget=budget * scale, names=table.models, **sizes, **options
    )


def discovery_market(
    *, horizon: int, stages: int, max_deployed: int = 3, num_models: int = 30, noise: float = 0.1
) -> MarketEnv:
    """Builds a market with many models and few slots, in which the search for the best model causes most of the regret.

    All models are available from the start. Costs are 1 and no constraint binds; model `m` has the mean reward `0.3 + 0.3 ((7 m) mod N) / N`, except
    model 20 with 0.9. The market is ours, to illustrate Theorem 1 of StageRoute.

    Args:
      horizon: number of queries `T`.
      stages: number of stages `K`; a stage has `horizon // stages` queries.
      max_deployed: number of slots `M`.
      num_models: number of models `N`, at least 21.
      noise: standard deviation of a reward.
    """
    stages = checks.count("stages", stages)
    size = checks.count("num_models", num_models, 21)
    mean = 0.3 + 0.3 * ((7 * np.arange(size)) % size) / size
    mean[20] = 0.9
    outcomes = ParametricOutcomes(mean, np.ones(size), np.float32(noise), np.float32(0.0), cost_distribution=Constant())
    length = max(1, checks.count("horizon", horizon) // stages)
    return market(outcomes, max_deployed=max_deployed, stage_length=length, horizon=horizon, **_UNCONSTRAINED)


def lower_bound_market(*, horizon: int, max_deployed: int = 2, constant: float = 1.0) -> Callable[[Array], MarketEnv]:
    """Returns a sampler `key -> MarketEnv` of the instances behind the lower bound: `M` models arrive per stage, and a random one is better by `eps`.

    With `eps = (c M / (8 T))^(1/3)` there are `1 / (4 eps)` stages, rounded. The strong model of stage `j` has mean `1/2 + j eps`, the others have
    `1/2 + (j - 1) eps`. Rewards are Bernoulli, costs are 1, and the budget never binds. Source: StageRoute, Theorem 2 and appendix C.

    Differs from the paper: it does not round the number of stages; here `eps` is computed again from the rounded number, as `1 / (4 stages)`, so that
    the last strong model has mean 3/4.

    Args:
      horizon: number of queries `T`.
      max_deployed: number of slots `M`, at least 2.
      constant: universal constant `c` of the theorem, unspecified there.
    """
    horizon = checks.count("horizon", horizon)
    slots = checks.count("max_deployed", max_deployed, 2)
    constant = float(checks.positive("constant", constant, ()))
    if horizon < 8 * constant * slots:
        raise ValueError(
            f"horizon must be at least 8 * constant * max_deployed = {8 * constant * slots:,g}, got {horizon:,}"
        )
    batches = max(1, round(0.25 / (constant * slots / (8 * horizon)) ** (1 / 3)))
    eps = 0.25 / batches
    length = -(-horizon // batches)
    batch = np.repeat(np.arange(1, batches + 1), slots)
    weak = 0.5 + (batch - 1) * eps
    # The optimum does not depend on which model of a stage is strong: here the first.
    strong_first = weak + eps * (np.arange(len(batch)) % slots == 0)
    template = market(
        ParametricOutcomes(strong_first, np.ones(len(batch)), np.float32(0.0), np.float32(0.0), Bernoulli(), Constant()),
        arrival=1 + (batch - 1) * length,
        max_deployed=slots,
        stage_length=length,
        horizon=horizon,
        **_UNCONSTRAINED,
    )

    def sample(key: Array) -> MarketEnv:
        """Draws a market: in each stage, each of the `M` new models is equally likely to be the strong one."""
        strong = draws.randint(key, slots, (batches,))
        is_strong = jnp.arange(slots)[None, :] == strong[:, None]
        mean = jnp.asarray(weak, jnp.float32) + eps * is_strong.reshape(-1).astype(jnp.float32)
        return template.replace(outcomes=template.outcomes.replace(reward_mean=mean))

    return sample
