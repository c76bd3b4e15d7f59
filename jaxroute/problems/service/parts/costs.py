"""What a request would cost with each model: seen beforehand, or estimated from what was paid."""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import numerics
from jaxroute.problems.service.types import Action, Feedback, Observation, ServiceSpec

# What a cost model remembers; of its making.
CostState = Any


class CostModel(Protocol):
    """Estimates what a request costs with each model."""

    def init(self, spec: ServiceSpec) -> CostState:
        """What it remembers before the first request."""
        ...

    def estimate(self, state: CostState, obs: Observation) -> jax.Array:
        """Expected cost `[M]` of the request, J."""
        ...

    def update(self, state: CostState, action: Action, feedback: Feedback) -> CostState:
        """What it remembers after the request."""
        ...


@struct.dataclass
class KnownCost:
    """Costs are profiled and seen when a request arrives. Source: MESS+, section 2.2."""

    def init(self, spec: ServiceSpec) -> tuple[()]:
        if not spec.knows_cost:
            raise ValueError("KnownCost needs an environment with knows_cost=True; use LastCost() or RunningMeanCost()")
        return ()

    def estimate(self, state: tuple[()], obs: Observation) -> jax.Array:
        del state
        return obs.cost

    def update(self, state: tuple[()], action: Action, feedback: Feedback) -> tuple[()]:
        del action, feedback
        return state


@struct.dataclass
class LastCost:
    """The costs of the last explored request, 1 J before the first. Source: the MESS+ authors' later public code."""

    def init(self, spec: ServiceSpec) -> jax.Array:
        return jnp.ones((spec.num_models,), jnp.float32)

    def estimate(self, state: jax.Array, obs: Observation) -> jax.Array:
        del obs
        return state

    def update(self, state: jax.Array, action: Action, feedback: Feedback) -> jax.Array:
        return jnp.where(action.explore, feedback.costs, state)


@struct.dataclass
class RunningMeanCost:
    """The mean of all costs seen so far of each model, explored or served; 1e-6 J before the first."""

    def init(self, spec: ServiceSpec) -> dict[str, jax.Array]:
        size = spec.num_models
        return {"mean": jnp.full((size,), 1e-6, jnp.float32), "count": jnp.zeros((size,), jnp.int32)}

    def estimate(self, state: dict[str, jax.Array], obs: Observation) -> jax.Array:
        del obs
        return state["mean"]

    def update(self, state: dict[str, jax.Array], action: Action, feedback: Feedback) -> dict[str, jax.Array]:
        seen = action.explore | numerics.one_hot(action.serve, state["mean"].shape[-1])
        cost = jnp.where(action.explore, feedback.costs, feedback.cost)
        count = state["count"] + seen.astype(jnp.int32)
        weight = jnp.where(seen, 1.0 / jnp.maximum(count, 1).astype(jnp.float32), 0.0)
        return {"mean": state["mean"] + weight * (cost - state["mean"]), "count": count}
