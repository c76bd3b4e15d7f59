"""Cost models: the cost of a request with each model, observed beforehand or estimated from payments."""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import numerics
from jaxroute.estimators.running import RunningMean
from jaxroute.problems.service.types import Action, Feedback, Observation, ServiceSpec

# State of a cost model: any pytree.
CostState = Any


class CostModel(Protocol):
    """Estimator of the cost of a request with each model."""

    def init(self, spec: ServiceSpec) -> CostState:
        """Returns the state before the first request."""
        ...

    def estimate(self, state: CostState, obs: Observation) -> jax.Array:
        """Returns the expected cost `[M]` of the request, J."""
        ...

    def update(self, state: CostState, action: Action, feedback: Feedback) -> CostState:
        """Returns the state after the request."""
        ...


@struct.dataclass
class KnownCost:
    """Known costs, observed on arrival of a request. Source: MESS+, section 2.2."""

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
    """Costs of the last explored request, 1 J before the first. Source: the MESS+ authors' later public code."""

    def init(self, spec: ServiceSpec) -> jax.Array:
        return jnp.ones((spec.num_models,), jnp.float32)

    def estimate(self, state: jax.Array, obs: Observation) -> jax.Array:
        del obs
        return state

    def update(self, state: jax.Array, action: Action, feedback: Feedback) -> jax.Array:
        return jnp.where(action.explore, feedback.costs, state)


@struct.dataclass
class RunningMeanCost:
    """Mean of all observed costs of each model; 1e-6 J before the first."""

    def init(self, spec: ServiceSpec) -> RunningMean:
        return RunningMean.empty(spec.num_models)

    def estimate(self, state: RunningMean, obs: Observation) -> jax.Array:
        del obs
        return jnp.where(state.count > 0, state.mean, 1e-6)

    def update(self, state: RunningMean, action: Action, feedback: Feedback) -> RunningMean:
        seen = action.explore | numerics.one_hot(action.serve, state.mean.shape[-1])
        return state.add(seen, jnp.where(action.explore, feedback.costs, feedback.cost))
