"""The staged market: models arrive over time, a few are deployed at each maintenance window, each query goes to one of them."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import checks, numerics
from jaxroute.core.types import Leaf
from jaxroute.problems.staged.benchmark import benchmark_steps, max_support, pool_value
from jaxroute.problems.staged.types import METRICS, Feedback, Observation, StagedSpec


@struct.dataclass
class MarketState:
    """State of the market.

    overspend: `[]` spend so far minus the budget of the queries so far. worst_overspend: `[]` its largest value.
    alive: `[]` bool, the total budget is not yet spent. deployed: `[N]` bool. source: state of the outcomes.
    """

    overspend: jax.Array
    worst_overspend: jax.Array
    alive: jax.Array
    deployed: jax.Array
    source: Any


@struct.dataclass
class Market:
    """A market of `N` models with staged deployment; build one with `market` or the functions of `instances`.

    Rewards and costs of all models are realised in every round; the chosen model's are revealed. Regret is counted against
    `V(budget, pool)`, the best expected reward per query within budget, capacities and slots for the models that are available.

    Source: StageRoute (arXiv 2506.17254), section 3.

    outcomes: where rewards and costs come from. capacity: `[N]` largest share of the traffic. arrival: `[N]` int32, first round
    of each model, 1-based. budget: `[]` per query. deploy_fee: `[N]` charged to the spend when a model enters the deployment.
    horizon: `[]` int32, number of queries that the total budget is meant for. benchmark_start: `[N + 1]` int32 rounds (0-based)
    and benchmark_value: `[N + 1]` values of the benchmark from there on.
    max_deployed: `M`, slots; stage_length: `I`, rounds between maintenance windows; support: bound on the models of an optimal
    routing; stop_at_budget: nothing is served once the total budget is spent; names: of the models (all static).
    """

    outcomes: Any
    capacity: Leaf
    arrival: Leaf
    budget: Leaf
    deploy_fee: Leaf
    horizon: Leaf
    benchmark_start: Leaf
    benchmark_value: Leaf
    max_deployed: int = struct.field(pytree_node=False, default=1)
    stage_length: int = struct.field(pytree_node=False, default=1)
    support: int = struct.field(pytree_node=False, default=2)
    stop_at_budget: bool = struct.field(pytree_node=False, default=False)
    names: tuple[str, ...] = struct.field(pytree_node=False, default=())

    @property
    def spec(self) -> StagedSpec:
        return StagedSpec(
            num_models=self.capacity.shape[-1],
            model_names=self.names,
            stage_length=self.stage_length,
            metrics=METRICS,
            zero_flows=("illegal",),
            max_deployed=self.max_deployed,
            max_support=self.support,
        )

    def check(self) -> None:
        self.outcomes.check()
        size = np.shape(self.outcomes.reward_mean)
        checks.share("capacity", self.capacity, size)
        checks.positive("budget", self.budget, ())
        checks.non_negative("deploy_fee", self.deploy_fee, size)
        if np.shape(self.arrival) != size or np.min(self.arrival) < 1:
            raise ValueError(f"arrival must be {size[0]} rounds of at least 1, got {checks.show(self.arrival)}")

    def init(self, key) -> MarketState:
        zero = jnp.zeros((), jnp.float32)
        return MarketState(
            overspend=zero,
            worst_overspend=zero,
            alive=jnp.ones((), bool),
            deployed=jnp.zeros(self.capacity.shape, bool),
            source=self.outcomes.init(key),
        )

    def observe(self, key, state, t) -> Observation:
        del key
        return Observation(
            available=jnp.asarray(self.arrival) <= t + 1,
            capacity=self.capacity,
            budget=self.budget,
            overspend=state.overspend,
            rounds_left=jnp.maximum(self.horizon - t, 1),
        )

    def step(self, key, state, action, t):
        size = self.capacity.shape[-1]
        chosen = numerics.one_hot(action.model, size)
        rewards, costs = self.outcomes.draw(key, state.source, t)
        # Spent so far is overspend + t * budget; the query that reaches the total budget is still served.
        alive = state.alive & (state.overspend < (self.horizon - t).astype(jnp.float32) * self.budget)
        live = alive if self.stop_at_budget else jnp.ones((), bool)
        entering = action.deployed & ~state.deployed & live
        fee = jnp.sum(jnp.where(entering, self.deploy_fee, 0.0))
        reward = jnp.where(live, numerics.pick(chosen, rewards), 0.0)
        cost = jnp.where(live, numerics.pick(chosen, costs), 0.0)
        mean_reward = jnp.where(live, numerics.pick(chosen, self.outcomes.reward_mean), 0.0)
        mean_cost = jnp.where(live, numerics.pick(chosen, self.outcomes.cost_mean), 0.0)
        expected_reward = jnp.where(live, jnp.sum(action.probabilities * self.outcomes.reward_mean), 0.0)
        expected_cost = jnp.where(live, jnp.sum(action.probabilities * self.outcomes.cost_mean), 0.0)
        overspend = state.overspend + (cost + fee - self.budget)
        segment = jnp.sum((jnp.asarray(self.benchmark_start) <= t).astype(jnp.int32)) - 1
        best = numerics.pick(numerics.one_hot(segment, self.benchmark_value.shape[-1]), self.benchmark_value)
        served = alive.astype(jnp.float32)
        count = jnp.sum(action.deployed.astype(jnp.int32))
        illegal = ~jnp.any(chosen & action.deployed) | jnp.any(action.deployed & (self.arrival > t + 1))
        illegal |= (count > self.max_deployed) | ((t % self.stage_length != 0) & jnp.any(action.deployed != state.deployed))
        flows = {
            "regret": best - mean_reward,
            "conditional_regret": best - expected_reward,
            "realised_regret": best - reward,
            "reward": reward,
            "mean_reward": mean_reward,
            "expected_reward": expected_reward,
            "cost": cost,
            "mean_cost": mean_cost,
            "expected_cost": expected_cost,
            "cost_ratio": (cost + fee) / self.budget,
            "served": served,
            "served_reward": served * reward,
            "capacity_excess": jnp.sum(jnp.maximum(action.probabilities - self.capacity, 0.0)),
            "deployments": jnp.sum(entering.astype(jnp.float32)),
            "fee": fee,
            "pulls": jnp.where(live, chosen.astype(jnp.float32), 0.0),
            "illegal": illegal.astype(jnp.float32),
        }
        state = state.replace(
            overspend=overspend,
            worst_overspend=jnp.maximum(state.worst_overspend, overspend),
            alive=alive,
            deployed=action.deployed,
        )
        return state, Feedback(reward=reward, cost=cost), flows

    def gauges(self, state) -> dict[str, jax.Array]:
        return {
            "overspend": state.overspend,
            "worst_overspend": state.worst_overspend,
            "deployed": state.deployed.astype(jnp.float32),
        }


def market(
    outcomes: Any,
    *,
    capacity: Leaf,
    arrival: Leaf | None = None,
    budget: float,
    max_deployed: int,
    stage_length: int,
    horizon: int,
    deploy_fee: Leaf = 0.0,
    benchmark: str = "stage",
    stop_at_budget: bool = False,
    names: Sequence[str] = (),
    require_feasible: bool = True,
) -> Market:
    """A market with its benchmark.

    Args:
      outcomes: `LawOutcomes` or `TableOutcomes` of `N` models.
      capacity: largest share of the traffic of each model, in (0, 1]; one number or `[N]`.
      arrival: `[N]` first round of each model, 1-based (default: all at the start).
      budget: cost per query that may be spent on average.
      max_deployed: `M`, models that may be live at once.
      stage_length: `I`, queries between two maintenance windows.
      horizon: queries that the total budget is meant for.
      deploy_fee: charged to the spend when a model enters the deployment; one number or `[N]`.
      benchmark: "stage" counts a model from the maintenance window at which it can first be deployed (the paper's definition),
        "continuous" from its arrival.
      stop_at_budget: serve nothing once `budget * horizon` is spent.
      names: of the models.
      require_feasible: refuse a market in which no deployment can carry all queries within the budget.

    Raises:
      ValueError: an argument is out of range, or no routing is feasible in some stage.
    """
    if not (hasattr(outcomes, "draw") and hasattr(outcomes, "reward_mean")):
        raise ValueError(f"outcomes must be LawOutcomes or TableOutcomes, got {checks.show(outcomes)}")
    outcomes.check()
    size = np.shape(outcomes.reward_mean)
    if len(size) != 1:
        raise ValueError(f"outcomes must hold the means of N models in one dimension, got shape {size}")
    max_deployed = checks.count("max_deployed", max_deployed)
    stage_length = checks.count("stage_length", stage_length)
    horizon = checks.count("horizon", horizon)
    capacity = np.broadcast_to(checks.share("capacity", capacity, size if np.ndim(capacity) else ()), size)
    deploy_fee = np.broadcast_to(checks.non_negative("deploy_fee", deploy_fee, size if np.ndim(deploy_fee) else ()), size)
    budget = float(checks.positive("budget", budget, ()))
    arrival = np.ones(size, np.int64) if arrival is None else np.asarray(arrival)
    if arrival.shape != size or not np.issubdtype(arrival.dtype, np.integer) or arrival.min() < 1:
        raise ValueError(f"arrival must be {size[0]} whole rounds of at least 1, got {checks.show(arrival.tolist())}")
    checks.one_of("benchmark", benchmark, ("stage", "continuous"))
    if names and len(names) != size[0]:
        raise ValueError(f"names must have one name per model ({size[0]}), got {len(names)}")
    mean, cost = (np.asarray(x, np.float64) for x in (outcomes.reward_mean, outcomes.cost_mean))
    if require_feasible:
        _require_feasible(cost, capacity, arrival, budget, max_deployed)
    start, value = benchmark_steps(
        mean, cost, capacity, arrival, budget, max_deployed, stage_length, benchmark == "continuous"
    )
    return Market(
        outcomes=outcomes,
        capacity=capacity.astype(np.float32),
        arrival=arrival.astype(np.int32),
        budget=np.float32(budget),
        deploy_fee=deploy_fee.astype(np.float32),
        horizon=np.int32(horizon),
        benchmark_start=start,
        benchmark_value=value.astype(np.float32),
        max_deployed=max_deployed,
        stage_length=stage_length,
        support=max_support(capacity),
        stop_at_budget=bool(stop_at_budget),
        names=tuple(names),
    )


def _require_feasible(cost, capacity, arrival, budget, max_deployed) -> None:
    """Refuses a market whose first pool cannot carry the traffic within budget; later pools only grow."""
    pool = np.flatnonzero(arrival <= 1)
    if not len(pool):
        raise ValueError(f"arrival must have a model in round 1, got {checks.show(np.asarray(arrival).tolist())}")
    room = np.sort(capacity[pool])[::-1][:max_deployed].sum()
    if room < 1.0 - 1e-9:
        raise ValueError(
            f"capacity must let some {max_deployed} models of the first stage carry all queries (sum at least 1), "
            f"got at most {room:g}"
        )
    # The cheapest routing is the best one for the reward `top - cost`, at a budget that never binds.
    top = cost[pool].max()
    value = pool_value(top - cost, cost, capacity, top, pool, max_deployed)
    if top - value > budget * (1 + 1e-9):
        raise ValueError(
            f"budget must be at least {top - value:g}, the cheapest way to serve all queries of the first stage, got {budget:g}"
        )
