"""Shared code of several policies."""

from typing import Any

from flax import struct
from jax import Array

from jaxroute.core import checks
from jaxroute.core.types import Leaf
from jaxroute.estimators.ridge import Ridge
from jaxroute.problems.contextual.policies.parameters import DisjointParameters, Parameters
from jaxroute.problems.contextual.types import ContextualSpec


@struct.dataclass
class StatelessPolicy:
    """Policy that learns nothing."""

    def init(self, key: Array, spec: ContextualSpec) -> Any:
        del key, spec
        return ()

    def update(self, key: Array, state: Any, obs: Array, action: Array, feedback: Array, t: Array) -> Any:
        del key, obs, action, feedback, t
        return state


@struct.dataclass
class ParameterPolicy:
    """Policy that learns linear parameters, `DisjointParameters()` (one for each model) or `SharedParameters()`."""

    parameters: Parameters = struct.field(default_factory=DisjointParameters, kw_only=True)

    def check(self) -> None:
        checks.part("parameters", self.parameters, "of_chosen", "DisjointParameters()")

    def check_spec(self, spec: ContextualSpec) -> None:
        self.parameters.check_spec(spec)


@struct.dataclass
class RidgePolicy(ParameterPolicy):
    """Policy that learns ridge regressions of the rewards on the features; `ridge` `[]` is the weight of the squared norm, the paper's lambda."""

    ridge: Leaf = struct.field(default=1.0, kw_only=True)

    def check(self) -> None:
        checks.positive("ridge", self.ridge, ())
        super().check()

    def init(self, key: Array, spec: ContextualSpec) -> Any:
        del key
        return Ridge.start(self.ridge, *self.parameters.sizes(spec))

    def update(self, key: Array, state: Any, obs: Array, action: Array, feedback: Array, t: Array) -> Any:
        del key, t
        x, seen = self.parameters.of_chosen(self.parameters.columns(obs), action, state.theta.shape[-1])
        return state.add(x, feedback, seen)
