"""What a request would cost with each model: known beforehand, or estimated from what was paid."""

from typing import Any

import jax.numpy as jnp
from flax import struct

from jaxroute.core import numerics


@struct.dataclass
class KnownCost:
    """Costs are profiled and known when a request arrives. Source: MESS+, section 2.2."""

    def init(self, spec) -> tuple:
        if not spec.knows_cost:
            raise ValueError("KnownCost needs an environment with knows_cost=True; use LastCost() or RunningMeanCost()")
        return ()

    def estimate(self, state, obs):
        del state
        return obs.cost

    def update(self, state, action, feedback) -> Any:
        del action, feedback
        return state


@struct.dataclass
class LastCost:
    """The costs of the last explored request, 1 J before the first."""

    def init(self, spec):
        return jnp.ones((spec.num_models,), jnp.float32)

    def estimate(self, state, obs):
        del obs
        return state

    def update(self, state, action, feedback):
        return jnp.where(action.explore, feedback.costs, state)


@struct.dataclass
class RunningMeanCost:
    """The mean of all costs seen so far of each model, explored or served; 1e-6 J before the first."""

    def init(self, spec):
        size = spec.num_models
        return {"mean": jnp.full((size,), 1e-6, jnp.float32), "count": jnp.zeros((size,), jnp.int32)}

    def estimate(self, state, obs):
        del obs
        return state["mean"]

    def update(self, state, action, feedback):
        seen = action.explore | numerics.one_hot(action.serve, state["mean"].shape[-1])
        cost = jnp.where(action.explore, feedback.costs, feedback.cost)
        count = state["count"] + seen.astype(jnp.int32)
        weight = jnp.where(seen, 1.0 / jnp.maximum(count, 1).astype(jnp.float32), 0.0)
        return {"mean": state["mean"] + weight * (cost - state["mean"]), "count": count}
