"""The queue: queries wait until a user accepts one of the answers shown, and try again otherwise."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import checks, numerics
from jaxroute.problems.queueing.backlog import PoolCounts, best_place, best_rate_of
from jaxroute.problems.queueing.choice import choose
from jaxroute.problems.queueing.types import METRICS, ZERO_FLOWS, Feedback, Observation, QueueSpec


@struct.dataclass
class QueueState:
    """State of the queue.

    backlog: of the policy's queries. shadow: of the optimal policy's, with the same luck. peak: `[]` int32, longest queue so far.
    """

    backlog: Any
    shadow: Any
    peak: jax.Array


@struct.dataclass
class RetrialQueue:
    """One queue, `N` models: in each round a waiting query is served with the answers of `K` models, and leaves if one is accepted.

    A round: the operator sees who waits, serves a query with an assortment, the user accepts an answer or tries again, and then a new
    query may come, to be served from the next round on. A query that is tried again keeps its place. With nobody waiting nothing
    happens but arrivals.

    All policies meet the same arrivals, contexts and one uniform number per round that decides the user's choice (`choose`). Beside
    the policy's queue the environment plays that of the optimal policy, which serves the query and the assortment with the largest
    true departure rate; `queue_regret` is the difference.

    Source: ACQB, section 2 and appendix D.1.

    A round's key has three children, in this order: whether a query comes, its context (or its prompt), and the user's choice.
    `recorded_queue` and `pool_queue(recorded=...)` take them from arrays instead.

    Differs from the paper: on an empty queue the paper serves a dummy, whose departure `[Q + A - D]^+` would let swallow a real
    arrival; here nothing is served, `Q(t + 1) = Q(t) + A(t) - D(t)`, and no regret is counted.

    contexts: where queries come from. backlog: how they are kept. num_models, num_offered, dim: `N`, `K`, `d`; pair_features: features
    belong to pairs of query and model; mixed: assortments may be smaller than `K`; names: of the models (all static).
    """

    contexts: Any
    backlog: Any
    num_models: int = struct.field(pytree_node=False)
    num_offered: int = struct.field(pytree_node=False)
    dim: int = struct.field(pytree_node=False)
    pair_features: bool = struct.field(pytree_node=False, default=False)
    mixed: bool = struct.field(pytree_node=False, default=False)
    names: tuple[str, ...] = struct.field(pytree_node=False, default=())

    @property
    def pool(self) -> bool:
        """Whether queries come from a pool of prompts."""
        return isinstance(self.backlog, PoolCounts)

    @property
    def spec(self) -> QueueSpec:
        return QueueSpec(
            num_models=self.num_models,
            model_names=self.names,
            metrics=METRICS,
            zero_flows=ZERO_FLOWS,
            num_offered=self.num_offered,
            dim=self.dim,
            capacity=self.backlog.places,
            rounds=self.backlog.rounds,
            pair_features=self.pair_features,
            pool=self.pool,
            mixed=self.mixed,
        )

    @property
    def horizon(self) -> int:
        """Rounds that the queue was made for."""
        return self.backlog.rounds

    def check(self) -> None:
        checks.count("num_models", self.num_models)
        checks.count("dim", self.dim)
        if not isinstance(self.mixed, bool):
            raise ValueError(f"mixed must be True or False, got {checks.show(self.mixed)}")
        if self.names and len(self.names) != self.num_models:
            raise ValueError(f"names must have one name per model ({self.num_models}), got {len(self.names)}")
        checks.count("num_offered", self.num_offered, maximum=self.num_models)
        self.backlog.check()
        self.contexts.check()

    def init(self, key) -> QueueState:
        example = jax.eval_shape(lambda key: self.contexts.draw(key, jnp.int32(0), self.spec).row, key)
        rate = example if self.pool else {"best_rate": example.best_rate}
        return QueueState(backlog=self.backlog.init(example), shadow=self.backlog.init(rate), peak=jnp.zeros((), jnp.int32))

    def observe(self, key, state, t) -> Observation:
        del key
        seen = self.backlog.view(state.backlog, t)
        features = self.contexts.features if self.pool else state.backlog.rows.features
        return Observation(
            features=jnp.asarray(features),
            waiting=seen.waiting,
            arrival=seen.arrival,
            in_use=seen.in_use,
            queue_length=seen.queue_length,
            arrived=seen.arrived,
            newest=seen.newest,
            oldest=seen.oldest,
        )

    def _rates(self, backlog):
        """Departure rates `[B]` of the best assortments."""
        if self.pool:
            return jnp.asarray(self.contexts.best_rate)
        return backlog.rows.best_rate if hasattr(backlog.rows, "best_rate") else backlog.rows["best_rate"]

    def _best_waiting(self, backlog, t):
        """Place and departure rate of what the optimal policy would serve."""
        seen = self.backlog.view(backlog, t)
        return best_place(lambda rate: rate, self._rates(backlog), seen.waiting, seen.arrival, seen.in_use)

    def step(self, key, state, action, t):
        drawn = self.contexts.draw(key, t, self.spec)
        backlog, shadow = state.backlog, state.shadow
        busy = backlog.length > 0
        seen = self.backlog.view(backlog, t)
        row = self.backlog.row(backlog, action.query)
        if self.pool:
            features = numerics.take(jnp.asarray(self.contexts.features), row)
            utility = numerics.take(jnp.asarray(self.contexts.log_odds), row)
            own_best = numerics.take(self._rates(backlog), row)
        else:
            # Tables are written in place only if everything that reads them comes before, the decision too.
            row, rows, action = numerics.materialised((row, backlog.rows, action))
            backlog = backlog.replace(rows=rows)
            features = row.features
            utility = self.contexts.utility(features, self.pair_features)
            own_best = row.best_rate
        accepted, rate = choose(utility, action.offered, drawn.uniform)
        accepted &= busy
        departed = jnp.any(accepted)
        best_of_all = best_rate_of(seen.waiting, self._rates(backlog), seen.in_use)
        size = jnp.sum(action.offered.astype(jnp.int32))
        allowed = (size == self.num_offered) | (self.mixed & (size >= 1) & (size <= self.num_offered))
        waits = (
            (action.query >= 0)
            & numerics.take(seen.waiting, action.query).astype(bool)
            & (action.query < self.backlog.places)
        )

        shadow_place, shadow_rate = self._best_waiting(shadow, t)
        shadow_departed = (shadow.length > 0) & (drawn.uniform <= shadow_rate)
        shadow_row = drawn.row if self.pool else {"best_rate": drawn.row.best_rate}
        after, dropped = self.backlog.move(backlog, action.query, departed, drawn.row, drawn.arrived, t)
        shadow, lost = self.backlog.move(shadow, shadow_place, shadow_departed, shadow_row, drawn.arrived, t)

        def counted(flag):
            return flag.astype(jnp.float32)

        waited = self.backlog.waited(backlog, action.query, t).astype(jnp.float32)
        flows = {
            # Never negative but for rounding.
            "routing_regret": jnp.where(busy, jnp.maximum(own_best - rate, 0.0), 0.0),
            "joint_regret": jnp.where(busy, jnp.maximum(best_of_all - rate, 0.0), 0.0),
            "departures": counted(departed),
            "retrials": counted(busy & ~departed),
            "mean_queue": backlog.length.astype(jnp.float32),
            "mean_queue_regret": (backlog.length - state.shadow.length).astype(jnp.float32),
            "arrivals": counted(drawn.arrived),
            "idle": counted(~busy),
            "explored": counted(busy & action.explored),
            "sojourn": jnp.where(departed, waited, 0.0),
            "offered_share": counted(busy & action.offered),
            "dropped": counted(dropped | lost),
            "unslack": counted(drawn.unslack & drawn.arrived),
            "illegal": counted(busy & ~(allowed & waits)),
            "beyond": counted(t >= self.backlog.rounds),
        }
        peak = jnp.maximum(state.peak, after.length)
        return QueueState(backlog=after, shadow=shadow, peak=peak), Feedback(chosen=accepted, features=features), flows

    def gauges(self, state: QueueState):
        length = state.backlog.length
        return {
            "queue_length": length.astype(jnp.float32),
            "queue_regret": (length - state.shadow.length).astype(jnp.float32),
            "peak": state.peak.astype(jnp.float32),
        }
