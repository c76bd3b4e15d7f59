"""StageRoute: deploys models in stages and routes queries under a budget and capacities.

The rounds of a stage update only the statistics of the `M` deployed models, stored in slots. Before each stage `plan` writes them back to the
statistics of all `N` models (`book`), chooses the next models, and copies their statistics into the slots.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax

from jaxroute.core import checks, draws, numerics
from jaxroute.core.protocols import Info
from jaxroute.core.types import Leaf, UnplannedState, planned_state
from jaxroute.estimators.running import bernstein_radius
from jaxroute.problems.staged.parts.budgets import BudgetRule, FixedBudget
from jaxroute.problems.staged.parts.deployment import Deployment, deploy
from jaxroute.problems.staged.parts.estimators import EmpiricalMean, Estimator
from jaxroute.problems.staged.parts.fillers import Filler, ReducedValue
from jaxroute.problems.staged.parts.routing import RouteOPT, Routing, RoutingRule
from jaxroute.problems.staged.parts.scopes import RunScope, Scope
from jaxroute.problems.staged.parts.ties import RandomOrderTie, Tie
from jaxroute.problems.staged.types import POLICY_METRICS, Action, Feedback, Observation, SlotState, StagedSpec, Statistics


@struct.dataclass
class StageRoute:
    """Policy that deploys `M` models per stage and routes each query, both by a linear program with optimistic rewards and costs.

    Deployment finds shares `d` of the queries that maximise `U . d` over `L . d <= budget`, `sum d = 1`, `0 <= d <= capacity` with exactly `M` models
    used (DeployOPT). Routing solves the same program over the deployed models for every query (RouteOPT), and samples a model. `U` is the upper bound
    of the mean reward, `L` the lower bound of the mean cost.

    Source: StageRoute (arXiv 2506.17254), Algorithm 1, eqs. (3) to (7). `init` is line 1, `plan` lines 4 to 6, `act` lines 9 and 10, `update` lines
    11 and 12; the engine has the loops of lines 3 and 8.

    Differs from the paper: only where the paper is silent. The paper leaves open the start values (see `EmpiricalMean`), the models in slots that the
    optimal routing does not use (see `ReducedValue`), ties (the model of lower cost, then a random one: see `RandomOrderTie`), and the routing when
    no routing meets the budget by the bounds (the cheapest one).

    Attributes:
      gamma: `[]` confidence parameter. The bounds `U` and `L` are the mean reward plus, and the mean cost minus, the radius
        `radius_multiplier * (sqrt(gamma mean / n) + gamma / n)`, where `n` is the number of uses plus 1.
      radius_multiplier: `[]` factor in front of the radius.
      cost_floor: `[]` least cost per query, known in advance, in the currency of the budget; also the assumed cost of an unused model. None for the
        market's value.
      cost_ceiling: `[]` largest cost per query, known in advance; None for the market's value.
      estimator: estimator of the means in the bounds, with their start values (static).
      scope: rule that selects the past data for deployment and routing (static).
      filler: rule that fills slots that the best routing does not need (static).
      tie: rule that breaks ties (static).
      budget_mode: rule for the budget of a query (static).
      routing: rule that routes a query to a deployed model (static).
    """

    gamma: Leaf = 0.2
    radius_multiplier: Leaf = 2.0
    cost_floor: Leaf | None = None
    cost_ceiling: Leaf | None = None
    estimator: Estimator = struct.field(pytree_node=False, default=EmpiricalMean(), kw_only=True)
    scope: Scope = struct.field(pytree_node=False, default=RunScope(), kw_only=True)
    filler: Filler = struct.field(pytree_node=False, default=ReducedValue(), kw_only=True)
    tie: Tie = struct.field(pytree_node=False, default=RandomOrderTie(), kw_only=True)
    budget_mode: BudgetRule = struct.field(pytree_node=False, default=FixedBudget(), kw_only=True)
    routing: RoutingRule = struct.field(pytree_node=False, default=RouteOPT(), kw_only=True)

    metrics = POLICY_METRICS

    def check(self) -> None:
        checks.positive("gamma", self.gamma, ())
        checks.positive("radius_multiplier", self.radius_multiplier, ())
        floor = 0.0 if self.cost_floor is None else checks.positive("cost_floor", self.cost_floor, ())
        ceiling = np.inf if self.cost_ceiling is None else checks.positive("cost_ceiling", self.cost_ceiling, ())
        if floor > ceiling:
            raise ValueError(f"cost_floor must be at most cost_ceiling = {ceiling:g}, got {floor:g}")

    def known_costs(self, obs: Observation) -> tuple[Leaf, Leaf]:
        """Returns the bounds `c_1` and `c_2` of a query's cost that are known in advance: the policy's if given, otherwise the market's."""
        floor = obs.cost_floor if self.cost_floor is None else self.cost_floor
        return floor, obs.cost_ceiling if self.cost_ceiling is None else self.cost_ceiling

    def bounds(self, statistics: Statistics, known_costs: tuple[Leaf, Leaf]) -> tuple[Array, Array]:
        """Returns upper bounds of mean rewards and lower bounds of mean costs, shaped like the statistics; costs are clipped to `known_costs`."""
        floor, ceiling = known_costs
        reward, cost = self.estimator.means(statistics, floor)
        count = jnp.asarray(statistics.pulls, reward.dtype) + 1.0
        reward_radius = self.radius_multiplier * bernstein_radius(reward, count, self.gamma)
        cost_radius = self.radius_multiplier * bernstein_radius(cost, count, self.gamma)
        upper = jnp.clip(reward + reward_radius, 0.0, 1.0)  # eq. (4)
        lower = jnp.clip(cost - cost_radius, floor, ceiling)  # eq. (5)
        return self.estimator.start(statistics, upper, lower, floor)

    def choose(self, key: Array, state: SlotState, value: Array, cost: Array, obs: Observation, t: Array) -> Deployment:
        """Selects the models to deploy from round `t` on (DeployOPT, eq. (3)); `value` and `cost` `[N]` are bounds of mean rewards and costs."""
        del t
        return deploy(key, value, cost, obs, state.spec, self.filler, self.tie)

    def init(self, key: Array, spec: StagedSpec) -> UnplannedState[SlotState]:
        del key

        def nothing(size: int) -> Statistics:
            zeros = jnp.zeros((size,), jnp.float32)
            return Statistics.of(pulls=jnp.zeros((size,), jnp.int32), reward_sum=zeros, cost_sum=zeros)

        slots = min(spec.max_deployed, spec.num_models)
        state = SlotState(  # Algorithm 1, line 1: nothing is known, nothing is deployed.
            book=nothing(spec.num_models),
            slots=nothing(slots),
            slot_model=jnp.zeros((slots,), jnp.int32),
            slot_filled=jnp.zeros((slots,), bool),
            slot_capacity=jnp.zeros((slots,), jnp.float32),
            unfinished=jnp.zeros((), bool),
            spec=spec,
        )
        return UnplannedState(state)

    def plan(self, key: Array, state: SlotState | UnplannedState[SlotState], obs: Observation, t: Array) -> SlotState:
        state = planned_state(state)
        in_slots = state.in_slots()

        def write_back(book: Array, slots: Array) -> Array:
            before = jnp.sum(jnp.where(in_slots, book[None, :], 0), axis=1).astype(book.dtype)
            after = self.scope.write_back(before, slots)
            spread = jnp.sum(jnp.where(in_slots, after[:, None], 0), axis=0).astype(book.dtype)
            return jnp.where(jnp.any(in_slots, axis=0), spread, book)

        book = jax.tree.map(write_back, state.book, state.slots)  # Statistics of all models at the end of the last stage.
        # Algorithm 1, line 4: models that are new have no pulls, and the start values.
        value, cost = self.bounds(book, self.known_costs(obs))
        chosen = self.choose(key, state.replace(book=book), value, cost, obs, t)  # Algorithm 1, line 5: DeployOPT, eq. (3)
        deployed = chosen.deployed & obs.available  # Algorithm 1, line 6 and eq. (6)
        _, priority = self.tie.apply(draws.split(key)[0], value)  # As `deploy` draws it.
        unfinished = ~jnp.asarray(chosen.converged)
        # The deployed models in the slots, lowest priority first.
        position = numerics.rank(deployed, -priority)
        slots = state.slot_model.shape[-1]
        load = (position[None, :] == lax.iota(jnp.int32, slots)[:, None]) & deployed[None, :]

        def take(values: Array) -> Array:
            return jnp.sum(jnp.where(load, values[None, :], 0), axis=1).astype(values.dtype)

        return state.replace(
            book=self.scope.retain(book),
            slots=self.scope.load(jax.tree.map(take, book)),
            slot_model=take(lax.iota(jnp.int32, state.spec.num_models)),
            slot_filled=jnp.any(load, axis=1),
            slot_capacity=take(obs.capacity),
            unfinished=unfinished,
        )

    def route_next(self, state: SlotState, obs: Observation) -> Routing:
        """Returns the probabilities of the models in the slots for the next query, by default from RouteOPT. Source: Algorithm 1, line 9, eq. (7)."""
        value, cost = self.bounds(state.slots, self.known_costs(obs))
        priority = lax.iota(jnp.int32, value.shape[-1])  # Slots are in the order of ties.
        return self.routing.route(value, cost, state, self.budget_mode.budget(obs), priority)

    def act(self, key: Array, state: SlotState, obs: Observation, t: Array) -> tuple[Action, Info]:
        del t
        return self.serve(key, state, obs, self.route_next(state, obs))

    def serve(self, key: Array, state: SlotState, obs: Observation, routing: Routing) -> tuple[Action, Info]:
        """Draws the model for a query by the slots' probabilities `routing` (Algorithm 1, line 10). Returns the action and diagnostics to record."""
        value, cost = self.bounds(state.slots, self.known_costs(obs))
        amount = routing.amount
        slot = numerics.one_hot(numerics.inverse_cdf(amount, draws.uniform(key)), amount.shape[-1])
        in_slots = state.in_slots()
        action = Action(
            model=numerics.pick(slot, state.slot_model),  # Algorithm 1, line 10: the sampled model
            probabilities=jnp.sum(jnp.where(in_slots, amount[:, None], 0.0), axis=0),
            deployed=jnp.any(in_slots, axis=0),
        )
        info = {
            "infeasible_share": 1.0 - routing.feasible.astype(jnp.float32),
            "multiplier": routing.multiplier,
            "unfinished_share": state.unfinished.astype(jnp.float32),
            "reward_ucb": value,
            "cost_lcb": cost,
        }
        return action, info

    def update(
        self, key: Array, state: SlotState, obs: Observation, action: Action, feedback: Feedback, t: Array
    ) -> SlotState:
        del key, obs, t
        slot = (state.slot_model == action.model) & state.slot_filled
        slots = state.slots.add(slot, feedback.reward, feedback.cost)  # Algorithm 1, lines 11 and 12
        return state.replace(slots=slots)
