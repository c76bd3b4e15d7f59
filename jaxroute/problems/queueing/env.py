"""Environment of a queue: a query waits until its user accepts one of the answers shown, and is tried again otherwise."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics, xla
from jaxroute.core.protocols import Transition
from jaxroute.problems.queueing.parts.backlog import Backlog
from jaxroute.problems.queueing.parts.scheduling import best_place, best_rate_waiting
from jaxroute.problems.queueing.parts.waiting import class_of
from jaxroute.problems.queueing.sources.arrivals import Arrivals
from jaxroute.problems.queueing.sources.choice import choose, shortfall
from jaxroute.problems.queueing.sources.contexts import Source
from jaxroute.problems.queueing.types import METRICS, ZERO_FLOWS, Action, Feedback, Observation, QueueSpec

# Number of the child of a round's key that the process of arrivals uses; the source of queries uses children from 0 on.
_ARRIVALS = 2**16


@struct.dataclass
class QueueState:
    """State of a `QueueEnv`.

    Attributes:
      backlog: `BacklogState` of the queries that wait under the policy.
      optimal: `BacklogState` of the queries that wait under the optimal policy, which faces the same arrivals, contexts and random numbers.
      peak: `[]` int32, longest queue so far.
      arrivals: state of the process of arrivals, None without one.
    """

    backlog: Any
    optimal: Any
    peak: Array
    arrivals: Any = None


@struct.dataclass
class QueueEnv:
    """Queue of queries and `N` models: a waiting query is served with the answers of `K` models, and leaves if the user accepts an answer.

    In a round the policy sees the waiting queries and serves one with an assortment (set of models). The user accepts an answer or tries again, and
    then a new query may arrive, to be served from the next round on. A query that is tried again stays at its place. Nothing is served
    on an empty queue.

    All policies face the same arrivals, contexts and one uniform number per round that decides the user's choice (`choose`). The environment also
    simulates the queue of the optimal policy, which serves the query and the assortment with the largest true departure rate; `queue_regret` is the
    difference of the lengths of both queues. Source: ACQB, section 2 and appendix D.1.

    A round's key is split into three, in this order: for the arrival, the context (or the prompt), and the user's choice. `recorded_queue` and
    `pool_queue(recorded=...)` read arrivals, contexts and uniform numbers from arrays instead.

    Differs from the paper: on an empty queue the paper serves a dummy query. By its recursion `Q(t + 1) = [Q(t) + A(t) - D(t)]^+`, a query that
    arrives while the dummy leaves would be lost. Here nothing is served on an empty queue, `Q(t + 1) = Q(t) + A(t) - D(t)`, and no
    regret is counted.

    Attributes:
      contexts: source that draws the queries.
      backlog: buffer of the waiting queries.
      num_models, num_offered: number of models, `N`, and number of answers shown in a round, `K` (static).
      dim: number of features, `d` (static).
      pair_features: whether features describe pairs of query and model, not queries alone (static).
      mixed: whether fewer than `K` answers may be shown in a round (static).
      names: names of the models (static).
      arrivals: process of arrivals, `Rates`, `Bursts` or `Slots`; None for independent arrivals with the source's `arrival_rate`.
    """

    contexts: Source
    backlog: Backlog
    num_models: int = struct.field(pytree_node=False)
    num_offered: int = struct.field(pytree_node=False)
    dim: int = struct.field(pytree_node=False)
    pair_features: bool = struct.field(pytree_node=False, default=False)
    mixed: bool = struct.field(pytree_node=False, default=False)
    names: tuple[str, ...] = struct.field(pytree_node=False, default=())
    arrivals: Arrivals | None = None

    @property
    def spec(self) -> QueueSpec:
        return QueueSpec(
            num_models=self.num_models,
            model_names=self.names,
            metrics=METRICS,
            zero_flows=ZERO_FLOWS,
            overflow_flow="dropped",
            num_offered=self.num_offered,
            dim=self.dim,
            capacity=self.backlog.places,
            rounds=self.backlog.rounds,
            pair_features=self.pair_features,
            prompts=self.contexts.pool_size,
            mixed=self.mixed,
        )

    @property
    def horizon(self) -> int:
        return self.backlog.rounds

    def check(self) -> None:
        checks.count("num_models", self.num_models)
        checks.count("dim", self.dim)
        checks.boolean("mixed", self.mixed)
        if self.names and len(self.names) != self.num_models:
            raise ValueError(f"names must have one name per model ({self.num_models}), got {len(self.names)}")
        checks.count("num_offered", self.num_offered, maximum=self.num_models)
        self.backlog.check()
        self.contexts.check()
        if self.arrivals is not None:
            checks.part("arrivals", self.arrivals, "draw", "Bursts.on_off(...)")

    def with_double_capacity(self) -> "QueueEnv | None":
        """Returns the queue with twice the places, but at most one per round, for a run that lost queries. None if it already has one per round."""
        rounds, limit = self.backlog.rounds, self.backlog.limit
        return None if limit >= rounds else self.replace(backlog=self.backlog.replace(limit=min(2 * limit, rounds)))

    def init(self, key: Array) -> QueueState:
        example = jax.eval_shape(lambda key: self.contexts.draw(key, jnp.int32(0), self.spec).row, key)
        return QueueState(
            backlog=self.backlog.init(example),
            optimal=self.backlog.init(example.for_optimum()),
            peak=jnp.zeros((), jnp.int32),
            arrivals=None if self.arrivals is None else self.arrivals.init(draws.fold_in(key, _ARRIVALS)),
        )

    def observe(self, key: Array, state: QueueState, t: Array) -> Observation:
        del key, t
        view, rows = self.backlog.view(state.backlog), state.backlog.rows
        return Observation(**vars(view), features=jnp.asarray(self.contexts.features_of(rows)), prompt=rows.prompt)

    def step(self, key: Array, state: QueueState, action: Action, t: Array) -> Transition[QueueState, Feedback]:
        drawn, arrivals = self.contexts.draw(key, t, self.spec), state.arrivals
        if self.arrivals is not None:
            arrived, arrivals = self.arrivals.draw(draws.fold_in(key, _ARRIVALS), arrivals, t)
            drawn = drawn.replace(arrived=arrived)
        busy = state.backlog.length > 0
        view = self.backlog.view(state.backlog)

        # A query is served, and the user accepts an answer or tries again.
        row, backlog, action = self.backlog.serve(state.backlog, action)
        features, utility = self.contexts.serve(row, self.spec)
        accepted, rate = choose(utility, action.offered, drawn.uniform)
        accepted &= busy
        departed = jnp.any(accepted)
        best_of_all = best_rate_waiting(backlog.rows.best_rate, view)
        best_of_all, backlog = xla.barrier((best_of_all, backlog))
        size = jnp.sum(action.offered.astype(jnp.int32))
        allowed = (size == self.num_offered) | (self.mixed & (size >= 1) & (size <= self.num_offered))
        waits = (action.query >= 0) & (action.query < self.backlog.places) & (action.query < backlog.length)
        waited, oldest = (t - numerics.take(backlog.arrival, place) for place in (action.query, view.oldest))

        # Then a query may arrive; the optimal policy's queue has the same arrivals, contexts and uniform number.
        after, dropped = self.backlog.move(backlog, action.query, departed, drawn.row, drawn.arrived, t)
        # That queue stores only the departure rate of a query's best assortment; a query leaves if this is at least the uniform number.
        place, most = best_place(lambda rate: rate, state.optimal.rows.best_rate, self.backlog.view(state.optimal))
        place, most, optimal = xla.barrier((place, most, state.optimal))
        leaves = (optimal.length > 0) & (drawn.uniform <= most)
        optimal, lost = self.backlog.move(optimal, place, leaves, drawn.row.for_optimum(), drawn.arrived, t)

        def counted(flag: Array) -> Array:
            return flag.astype(jnp.float32)

        flows = {
            "routing_regret": jnp.where(busy, shortfall(row.best_rate, rate), 0.0),
            "joint_regret": jnp.where(busy, shortfall(best_of_all, rate), 0.0),
            "departures": counted(departed),
            "retrials": counted(busy & ~departed),
            "mean_queue": backlog.length.astype(jnp.float32),
            "mean_queue_regret": (backlog.length - state.optimal.length).astype(jnp.float32),
            "arrivals": counted(drawn.arrived),
            "idle": counted(~busy),
            "explored": counted(busy & action.explored),
            "sojourn": jnp.where(departed, waited.astype(jnp.float32), 0.0),
            "waiting_times": counted(departed & class_of(waited)),
            "oldest_wait": jnp.where(busy, oldest.astype(jnp.float32), 0.0),
            "rejected_contexts": jnp.where(drawn.arrived, drawn.rejected, 0).astype(jnp.float32),
            "offered_share": counted(busy & action.offered),
            "dropped": counted(dropped | lost),
            "infeasible": counted(drawn.infeasible & drawn.arrived),
            "illegal": counted(busy & ~(allowed & waits)),
            "after_horizon": counted(t >= self.backlog.rounds),
        }
        peak = jnp.maximum(state.peak, after.length)
        feedback = Feedback(chosen=accepted, features=features, prompt=row.prompt)
        return QueueState(backlog=after, optimal=optimal, peak=peak, arrivals=arrivals), feedback, flows

    def gauges(self, state: QueueState) -> dict[str, Array]:
        length = state.backlog.length
        return {
            "queue_length": length.astype(jnp.float32),
            "queue_regret": (length - state.optimal.length).astype(jnp.float32),
            "peak": state.peak.astype(jnp.float32),
        }
