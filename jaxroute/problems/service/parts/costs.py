"""What a request would cost with each model: seen beforehand, or estimated from what was paid."""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import numerics
from jaxroute.estimators.running import RunningMean
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

    def init(self, spec: ServiceSpec) -> RunningMean:
        return RunningMean.empty(spec.num_models)

    def estimate(self, state: RunningMean, obs: Observation) -> jax.Array:
        del obs
        return jnp.where(state.count > 0, state.mean, 1e-6)

    def update(self, state: RunningMean, action: Action, feedback: Feedback) -> RunningMean:
        seen = action.explore | numerics.one_hot(action.serve, state.mean.shape[-1])
        return state.add(seen, jnp.where(action.explore, feedback.costs, feedback.cost))
