"""Metrics that all online policies share: quality, cost, calls and latency of every served query, read from the recorded table."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core.protocols import Wrapper
from jaxroute.core.types import Leaf, Metric

_UNITS = {"quality": ("score of the answer", "score"), "spent": ("cost of all calls", "cost")}
_UNITS |= {"calls": ("models called", "calls"), "latency": ("time until the answer", "s")}
_TOTALS = [Metric(name, description, unit, "total") for name, (description, unit) in _UNITS.items()]
METRICS = (
    *(m for total in _TOTALS for m in (total, Metric(f"{total.name}_square", f"square of {total.name}", "", "total"))),
    Metric("answered", "answered queries", "queries", "total"),
    Metric("sent", "queries for which each model is called", "queries", "total", ("model",)),
)


@dataclass(frozen=True)
class Reading:
    """Specifies which of an environment's metrics of a round ("flows") show the models that were called and the answer that was served.

    Attributes:
      called: name of the flow that marks the called models, `[N]`.
      served: name of the flow that marks the served model, `[N]`; None if the best answer of the called models is served.
      in_turn: whether models are called one after the other rather than at the same time.
      row: function `(env, state, feedback, t)` that returns the index (a scalar) of the served row of the table, from the state before the
        round; None if the rows follow the random order in `state.source`.
      accepted: name of the flow that is 1 if the served answer is accepted and 0 if it does not count; None if every answer counts.
    """

    called: str
    served: str | None
    in_turn: bool
    row: Callable[..., jax.Array] | None = None
    accepted: str | None = None

    def quality(self, flows: dict[str, jax.Array], called: jax.Array, scores: jax.Array) -> jax.Array:
        """Returns the score of the served answer (a scalar). `called` marks the called models, `[N]`; `scores` are those of all models, `[N]`."""
        if self.served is not None:
            return jnp.sum(jnp.where(flows[self.served] > 0.5, scores, 0.0))
        if self.accepted is None:
            return jnp.max(jnp.where(called, scores, 0.0))
        return jnp.where(flows[self.accepted] > 0.5, jnp.max(jnp.where(called, scores, 0.0)), 0.0)


@struct.dataclass
class Metered(Wrapper):
    """Wraps an environment that serves recorded queries, and adds metrics of quality, cost, calls and latency from the table of these queries.

    Attributes:
      env: the environment.
      scores: `[Q, N]` scores, models in the order of `env`.
      costs: `[Q, N]` costs.
      latency: `[Q, N]` latencies in seconds; None counts as 0.
      reading: where `env` reports its decisions (static).
      names: names of the models, in the order of `env` (static).
    """

    scores: Leaf
    costs: Leaf
    latency: Leaf | None
    reading: Reading = struct.field(pytree_node=False)
    names: tuple[str, ...] = struct.field(pytree_node=False, default=())

    @property
    def spec(self) -> Any:
        return replace(
            self.env.spec, metrics=METRICS, overflow_flow=None, model_names=self.names or self.env.spec.model_names
        )

    def step(self, key: jax.Array, state: Any, action: Any, t: jax.Array) -> tuple[Any, Any, dict[str, jax.Array]]:
        after, feedback, flows = self.env.step(key, state, action, t)
        reading = self.reading
        if reading.row is None:
            row = state.source[t % self.scores.shape[0]]
        else:
            row = reading.row(self.env, state, feedback, t)
        scores, costs = (jnp.asarray(table, jnp.float32)[row] for table in (self.scores, self.costs))
        called = flows[reading.called] > 0.5
        answered = 1.0 if reading.accepted is None else flows[reading.accepted]
        totals = {"quality": reading.quality(flows, called, scores), "spent": jnp.sum(jnp.where(called, costs, 0.0))}
        latency = jnp.zeros(())
        if self.latency is not None:
            seconds = jnp.where(called, jnp.asarray(self.latency, jnp.float32)[row], 0.0)
            latency = jnp.sum(seconds) if reading.in_turn else jnp.max(seconds)
        totals |= {"calls": jnp.sum(called.astype(jnp.float32)), "latency": latency}
        squares = {f"{name}_square": jnp.square(value) for name, value in totals.items()}
        counts = {"answered": jnp.asarray(answered, jnp.float32), "sent": called.astype(jnp.float32)}
        return after, feedback, totals | squares | counts | {name: flows[name] for name in self.env.spec.zero_flows}


ROUTED = Reading("pulls", "pulls", in_turn=True)
EXPLORED = Reading("called_share", "served_share", in_turn=False)
AT_ONCE = Reading("pulls", None, in_turn=False)
IN_TURN = Reading("pulls", None, in_turn=True)
OPENED = Reading("opened", "deployed", in_turn=True, row=lambda env, state, feedback, t: env.contexts.row(state, t))
# Only accepted answers count, and all answers are paid.
RETRIED = Reading("offered_share", None, True, lambda env, state, feedback, t: feedback.prompt, "departures")
