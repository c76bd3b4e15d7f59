"""Service environment: each request is served by one model or explored with all, under an agreement on satisfaction."""

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics
from jaxroute.core.protocols import Transition
from jaxroute.core.types import Leaf, priced
from jaxroute.problems.service.sources import RequestSource, fingerprint
from jaxroute.problems.service.types import METRICS, Action, Feedback, Observation, Price, ServiceSpec, ServiceState

# Number of initial requests that `first_compliance` ignores, because early compliance is random.
_BURN_IN = 50
# Tolerance of the target, below which float32 cannot distinguish shares of satisfied requests.
_TOLERANCE = 1e-6


@struct.dataclass
class ServiceEnv:
    """Service of `M` models in ascending order of cost; build one with the functions of `instances`.

    In each round the provider observes the features of a request and the costs of the models. It serves with one model, or explores: all models work
    and are paid, their satisfaction is revealed, and the user gets the answer of the largest model.

    Source: MESS+, section 2, eqs. (1) and (2), Algorithm 1.

    Differs from the paper: an explored request gets the answer of the largest model (section 2.3). Algorithm 1 returns the answer of a satisfying
    model, which a provider cannot know; `serve_best=True` does this. Taken literally, eq. (2) adds the satisfaction of all models for an explored
    request; here only the returned answer counts, as in Algorithm 1.

    Attributes:
      requests: source that draws the request of each round.
      alpha: `[]` share of satisfied requests that the agreement requires.
      arrival: `[]` probability that a user gives feedback; None for 1.
      knows_cost, reveals_labels: whether costs, and whether satisfaction (for clairvoyant policies only), are observed before a decision (static).
      serve_best: whether an explored request is answered by the largest satisfying model instead of the largest one (static).
      names, currency: names of the models, and currency of the costs (static).
      accuracy: `[M]` share of requests that each model satisfies.
      mean_cost: `[M]` mean cost of each model.
      best: `Price` (mean cost and shadow price) of the cheapest stationary policy that knows each model's probability of satisfaction given the
        features (`best_informed`).
      clairvoyant: `Price` of the cheapest policy that knows which models satisfy a request.
      blind_cost: `[]` cost per request of the cheapest mixture of models for a policy that observes nothing about requests (`best_blind`).
      blind_choice: `[M]` probability of each model in the mixture of `blind_cost`.
    """

    requests: RequestSource
    alpha: Leaf
    arrival: Leaf | None
    accuracy: Leaf
    mean_cost: Leaf
    best: Price
    clairvoyant: Price
    blind_cost: Leaf
    blind_choice: Leaf
    knows_cost: bool = struct.field(pytree_node=False, default=True)
    reveals_labels: bool = struct.field(pytree_node=False, default=False)
    serve_best: bool = struct.field(pytree_node=False, default=False)
    names: tuple[str, ...] = struct.field(pytree_node=False, default=())
    currency: str = struct.field(pytree_node=False, default="J")

    @property
    def spec(self) -> ServiceSpec:
        return ServiceSpec(
            num_models=np.shape(self.accuracy)[-1],
            model_names=self.names,
            metrics=priced(METRICS, self.currency),
            zero_flows=("illegal",),
            num_features=self.requests.num_features,
            knows_cost=self.knows_cost,
            reveals_labels=self.reveals_labels,
            fingerprint=fingerprint(self.requests),
        )

    def check(self) -> None:
        self.requests.check()
        checks.share("alpha", self.alpha, ())
        if self.arrival is not None:
            checks.share("arrival", self.arrival, ())

    def init(self, key: Array) -> ServiceState:
        return ServiceState.start(self.requests.init(key))

    def observe(self, key: Array, state: ServiceState, t: Array) -> Observation:
        request = self.requests.draw(draws.fold_in(key, 0), state.source, t)
        nothing = jnp.zeros_like(request.cost)
        return Observation(
            features=request.features,
            cost=request.cost if self.knows_cost else nothing,
            labels=request.satisfied.astype(jnp.float32) if self.reveals_labels else nothing,
            alpha=jnp.asarray(self.alpha, jnp.float32),
        )

    def step(self, key: Array, state: ServiceState, action: Action, t: Array) -> Transition[ServiceState, Feedback]:
        request = self.requests.draw(draws.fold_in(key, 0), state.source, t)
        models = request.cost.shape[-1]
        labels = request.satisfied.astype(jnp.float32)
        explored = action.explore
        serve = action.serve
        if self.serve_best:  # Algorithm 1, line 9.
            best = jnp.max(jnp.where(request.satisfied, jnp.arange(models), -1))
            serve = jnp.where(explored, jnp.where(best >= 0, best, models - 1), serve)
        chosen = numerics.one_hot(serve, models)
        satisfied = numerics.pick(chosen, labels)
        served_cost = numerics.pick(chosen, request.cost)
        all_costs = jnp.sum(request.cost)
        calls = jnp.where(explored, all_costs, served_cost)  # Algorithm 1, lines 10 and 14.
        cost = calls + action.energy
        arrived = jnp.ones((), bool)
        if self.arrival is not None:
            arrived = draws.uniform(draws.fold_in(key, 1)) < self.arrival

        alpha = jnp.asarray(self.alpha, jnp.float32)
        rounds = t + 1
        count = state.satisfied + satisfied.astype(jnp.int32)
        played = rounds.astype(jnp.float32)
        on_target = count.astype(jnp.float32) - alpha * played >= -_TOLERANCE * played
        first = on_target & (state.first_compliance == 0) & (rounds >= _BURN_IN)
        shown = chosen.astype(jnp.float32)
        flows = {
            "cost": cost,
            "served_cost": served_cost,
            "explore_cost": jnp.where(explored, all_costs, 0.0),
            "explore_overhead": calls - served_cost,
            "decision_cost": action.energy,
            "gap": cost - self.best.cost,
            "satisfaction": satisfied,
            "satisfaction_mean": numerics.pick(chosen, request.success),
            "mean_satisfaction": count.astype(jnp.float32) / played,
            "mean_queue": state.queue.length,
            "explored": explored.astype(jnp.float32),
            "served_share": shown,
            "called_share": jnp.where(explored, 1.0, shown),
            "illegal": ((serve < 0) | (serve >= models)).astype(jnp.float32),
        }
        state = state.replace(
            rounds=rounds,
            satisfied=count,
            queue=state.queue.served(alpha, satisfied),  # Eq. (2); Algorithm 1, line 17.
            first_compliance=jnp.where(first, rounds, state.first_compliance),
            last_violation=jnp.where(on_target, state.last_violation, rounds),
        )
        answered = arrived.astype(jnp.float32)
        revealed = jnp.where(explored & arrived, 1.0, 0.0)
        feedback = Feedback(
            arrived=arrived,
            satisfied=satisfied * answered,
            cost=calls,
            labels=labels * revealed,  # Algorithm 1, line 7.
            costs=jnp.where(explored, request.cost, 0.0),
        )
        return state, feedback, flows

    def gauges(self, state: ServiceState) -> dict[str, Array]:
        rounds = state.rounds.astype(jnp.float32)
        complied = state.first_compliance > 0
        return {
            "violation": self.alpha - state.satisfied.astype(jnp.float32) / rounds,
            "virtual_queue": state.queue.length,
            "complied": complied.astype(jnp.float32),
            "first_compliance": jnp.where(complied, state.first_compliance.astype(jnp.float32), jnp.nan),
            "last_violation": state.last_violation.astype(jnp.float32),
        }
