"""The staged market: models arrive over time, a few are deployed per stage, and each query goes to one of them."""

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxroute.core import checks, numerics
from jaxroute.core.protocols import Transition
from jaxroute.core.types import Leaf, priced
from jaxroute.problems.staged.optimum import pool_value
from jaxroute.problems.staged.sources import Outcomes
from jaxroute.problems.staged.types import METRICS, Action, Feedback, MarketState, Observation, StagedSpec


@struct.dataclass
class MarketEnv:
    """Market of `N` models with staged deployment; build it with `market` or another function of `instances`.

    In every round rewards and costs of all models are drawn, and the chosen model's are revealed. Regret is relative to `V(budget, pool)`, the best
    expected reward per query of a routing over at most `max_deployed` of the available models (`pool`), within budget and capacities.
    Source: StageRoute (arXiv 2506.17254), section 3.

    Attributes:
      outcomes: source of the rewards and costs of all models in each round.
      budget: `[]` mean cost that a query may have.
      capacity, deploy_fee: `[N]` largest share of the queries that each model may serve, and fee when it enters the deployment.
      max_deployed, stage_length: number of models deployed at once, and number of queries of a stage (static).
      stop_at_budget: whether nothing is served once the total budget is spent (static).
      names, currency: names of the models, and unit of costs (static).
      arrival: `[N]` int32, first round of each model, 1-based.
      horizon: `[]` int32, number of queries `T`; the total budget is `T * budget`.
      cost_floor, cost_ceiling: `[]` bounds of the cost of a query, known to policies in advance.
      optimum_start: `[N + 1]` int32 rounds (0-based) at which the best expected reward changes, padded with the largest int32.
      optimum_value: `[N + 1]` best expected reward per query from each of these rounds on, padded with 0.
      support: largest number of models that an optimal routing can need (static).
    """

    outcomes: Outcomes
    capacity: Leaf
    arrival: Leaf
    budget: Leaf
    deploy_fee: Leaf
    horizon: Leaf
    cost_floor: Leaf
    cost_ceiling: Leaf
    optimum_start: Leaf
    optimum_value: Leaf
    max_deployed: int = struct.field(pytree_node=False, default=1)
    stage_length: int = struct.field(pytree_node=False, default=1)
    support: int = struct.field(pytree_node=False, default=2)
    stop_at_budget: bool = struct.field(pytree_node=False, default=False)
    names: tuple[str, ...] = struct.field(pytree_node=False, default=())
    currency: str = struct.field(pytree_node=False, default="cost")

    @property
    def spec(self) -> StagedSpec:
        return StagedSpec(
            num_models=self.capacity.shape[-1],
            model_names=self.names,
            stage_length=self.stage_length,
            metrics=priced(METRICS, self.currency),
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
        floor = checks.positive("cost_floor", self.cost_floor, ())
        if floor > checks.positive("cost_ceiling", self.cost_ceiling, ()):
            raise ValueError(f"cost_floor must be at most cost_ceiling = {float(self.cost_ceiling):g}, got {floor:g}")
        if np.shape(self.arrival) != size or np.min(self.arrival) < 1:
            raise ValueError(f"arrival must be {size[0]} rounds of at least 1, got {checks.show(self.arrival)}")
        # If the market was changed after its optimum was computed, its regret would be wrong.
        mean, cost, capacity = (
            np.asarray(x, np.float64) for x in (self.outcomes.reward_mean, self.outcomes.cost_mean, self.capacity)
        )
        never = np.iinfo(np.int32).max
        given = float(np.asarray(self.optimum_value)[np.asarray(self.optimum_start) < never][-1])
        slack = 1.0 + 1e-6  # Budget and capacity are rounded to float32.
        best = pool_value(mean, cost, capacity * slack, float(self.budget) * slack, range(len(mean)), self.max_deployed)
        if abs(best - given) > 1e-4 * max(1.0, abs(best)):
            raise ValueError(
                f"optimum_value is {given:g} with all models, but the best feasible routing with the present means, costs, capacity, "
                f"budget and max_deployed earns {best:g}: build the market again with the function that built it (`jaxroute.grid` "
                "for several settings) instead of replacing a field"
            )

    def init(self, key: Array) -> MarketState:
        zero = jnp.zeros((), jnp.float32)
        return MarketState(
            overspend=zero,
            worst_overspend=zero,
            alive=jnp.ones((), bool),
            deployed=jnp.zeros(self.capacity.shape, bool),
            errors=numerics.no_errors(overspend=zero),
            source=self.outcomes.init(key),
        )

    def observe(self, key: Array, state: MarketState, t: Array) -> Observation:
        del key
        return Observation(
            available=jnp.asarray(self.arrival) <= t + 1,
            capacity=self.capacity,
            budget=self.budget,
            overspend=state.overspend,
            rounds_left=jnp.maximum(self.horizon - t, 1),
            cost_floor=self.cost_floor,
            cost_ceiling=self.cost_ceiling,
        )

    def step(self, key: Array, state: MarketState, action: Action, t: Array) -> Transition[MarketState, Feedback]:
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
        segment = jnp.sum((jnp.asarray(self.optimum_start) <= t).astype(jnp.int32)) - 1
        best = numerics.pick(numerics.one_hot(segment, self.optimum_value.shape[-1]), self.optimum_value)
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
        state = numerics.accumulate(state, overspend=cost + fee - self.budget)
        worst = jnp.maximum(state.worst_overspend, state.overspend)
        state = state.replace(worst_overspend=worst, alive=alive, deployed=action.deployed)
        return state, Feedback(reward=reward, cost=cost), flows

    def gauges(self, state: MarketState) -> dict[str, Array]:
        deployed = state.deployed.astype(jnp.float32)
        return {"overspend": state.overspend, "worst_overspend": state.worst_overspend, "deployed": deployed}


def optimum_total(env: MarketEnv, horizon: int) -> float:
    """Returns `OPT*` of the market `env`: the best expected reward summed over the rounds `0 .. horizon - 1`, in units of reward."""
    starts = np.asarray(env.optimum_start, np.int64)
    ends = np.append(starts[1:], np.iinfo(np.int32).max)
    lengths = np.clip(np.minimum(ends, horizon) - np.minimum(starts, horizon), 0, None)
    return float(np.sum(lengths * np.asarray(env.optimum_value, np.float64)))
