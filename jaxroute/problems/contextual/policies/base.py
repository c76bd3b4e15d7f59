"""What all policies on ridge regressions have in common: how they start, and how they learn."""

from typing import Any

import jax
from flax import struct

from jaxroute.core import checks
from jaxroute.core.types import Leaf
from jaxroute.estimators.ridge import Ridge
from jaxroute.problems.contextual.policies.parameters import Disjoint, Parameters
from jaxroute.problems.contextual.types import ContextualSpec


@struct.dataclass
class OnRidge:
    """Learns ridge regressions of the rewards on the features.

    Attributes:
      ridge: `[]` weight of the squared norm, the paper's lambda.
      parameters: `Disjoint()`, or `Shared()`: each model its own, or one for all.
    """

    ridge: Leaf = struct.field(default=1.0, kw_only=True)
    parameters: Parameters = struct.field(default_factory=Disjoint, kw_only=True)

    def check(self) -> None:
        checks.positive("ridge", self.ridge, ())
        checks.part("parameters", self.parameters, "of_chosen", "Disjoint()")

    def check_spec(self, spec: ContextualSpec) -> None:
        self.parameters.check_spec(spec)

    def init(self, key: jax.Array, spec: ContextualSpec) -> Any:
        del key
        return Ridge.start(self.ridge, *self.parameters.sizes(spec))

    def update(
        self, key: jax.Array, state: Any, obs: jax.Array, action: jax.Array, feedback: jax.Array, t: jax.Array
    ) -> Any:
        del key, t
        x, seen = self.parameters.of_chosen(self.parameters.columns(obs), action, state.theta.shape[-1])
        return state.add(x, feedback, seen)
