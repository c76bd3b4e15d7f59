"""Common metrics of all problems: quality, cost, calls and latency of every served query."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core.types import Leaf, Metric
from jaxroute.core.wrapper import Wrapper

_FLOWS = (("quality", "score of the answer", "score"), ("spent", "cost of all calls", "cost"))
_FLOWS += (("calls", "models called", "calls"), ("latency", "time until the answer", "s"))
METRICS = (
    *(
        m
        for n, what, unit in _FLOWS
        for m in (Metric(n, what, unit, "total"), Metric(f"{n}_square", f"square of {n}", "", "total"))
    ),
    Metric("answered", "answered queries", "queries", "total"),
    Metric("sent", "queries for which each model is called", "queries", "total", ("model",)),
)


@dataclass(frozen=True)
class Reading:
    """Functions that read the decisions of a problem.

    Attributes:
      row: `(env, state, feedback, t) -> []` served row of the table, from the state before the round.
      called: `flows -> [N]` mask of the called models.
      quality: `(flows, called, scores) -> []` score of the served answer, from scores `[N]`.
      answered: `flows -> []` 1 if the query is answered after this round, else 0.
      in_turn: whether calls are successive.
    """

    row: Callable[..., jax.Array]
    called: Callable[..., jax.Array]
    quality: Callable[..., jax.Array]
    answered: Callable[..., Any]
    in_turn: bool


@struct.dataclass
class Metered(Wrapper):
    """An environment that serves the rows of a table, with metrics from the table itself.

    Attributes:
      env: the environment.
      scores: `[Q, N]` scores, models in the order of `env`.
      costs: `[Q, N]` costs.
      latency: `[Q, N]` latencies in seconds, or None for 0.
      reading: functions that read the decisions (static).
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
        row = self.reading.row(self.env, state, feedback, t)
        scores, costs = (jnp.asarray(table, jnp.float32)[row] for table in (self.scores, self.costs))
        called, answered = self.reading.called(flows), self.reading.answered(flows)
        quality = self.reading.quality(flows, called, scores)
        spent = jnp.sum(jnp.where(called, costs, 0.0))
        latency = jnp.zeros(())
        if self.latency is not None:
            seconds = jnp.where(called, jnp.asarray(self.latency, jnp.float32)[row], 0.0)
            latency = jnp.sum(seconds) if self.reading.in_turn else jnp.max(seconds)
        calls = jnp.sum(called.astype(jnp.float32))
        metered = {
            "quality": quality,
            "quality_square": jnp.square(quality),
            "spent": spent,
            "spent_square": jnp.square(spent),
            "calls": calls,
            "calls_square": jnp.square(calls),
            "latency": latency,
            "latency_square": jnp.square(latency),
            "answered": jnp.asarray(answered, jnp.float32),
            "sent": called.astype(jnp.float32),
        }
        return after, feedback, metered | {name: flows[name] for name in self.env.spec.zero_flows}


def _is(flow: jax.Array) -> jax.Array:
    return flow > 0.5


def _of_one(flows: Any, chosen: str, scores: jax.Array) -> jax.Array:
    return jnp.sum(jnp.where(_is(flows[chosen]), scores, 0.0))


def _best(flows: Any, called: jax.Array, scores: jax.Array) -> jax.Array:
    del flows
    return jnp.max(jnp.where(called, scores, 0.0))


ROUTED = Reading(
    row=lambda env, state, feedback, t: state.source[t % env.outcomes.scores.shape[0]],
    called=lambda flows: _is(flows["pulls"]),
    quality=lambda flows, called, scores: _of_one(flows, "pulls", scores),
    answered=lambda flows: 1.0,
    in_turn=True,
)
EXPLORED = Reading(
    row=lambda env, state, feedback, t: state.source[t % env.requests.labels.shape[0]],
    called=lambda flows: _is(flows["called_share"]),
    quality=lambda flows, called, scores: _of_one(flows, "served_share", scores),
    answered=lambda flows: 1.0,
    in_turn=False,
)
AT_ONCE = Reading(
    row=lambda env, state, feedback, t: state.source[t % env.outcomes.outcomes.shape[0]],
    called=lambda flows: _is(flows["pulls"]),
    quality=_best,
    answered=lambda flows: 1.0,
    in_turn=False,
)
IN_TURN = replace(AT_ONCE, in_turn=True)
OPENED = Reading(
    row=lambda env, state, feedback, t: env.contexts.row(state, t),
    called=lambda flows: _is(flows["opened"]),
    quality=lambda flows, called, scores: _of_one(flows, "deployed", scores),
    answered=lambda flows: 1.0,
    in_turn=True,
)
# Only accepted answers count, and all answers are paid.
RETRIED = Reading(
    row=lambda env, state, feedback, t: feedback.prompt,
    called=lambda flows: _is(flows["offered_share"]),
    quality=lambda flows, called, scores: jnp.where(_is(flows["departures"]), _best(flows, called, scores), 0.0),
    answered=lambda flows: flows["departures"],
    in_turn=True,
)
