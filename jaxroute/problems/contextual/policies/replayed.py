"""Wrapper of a policy for a replay, in which it learns only from requests that the log answered by the model that it chooses."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import checks
from jaxroute.core.protocols import optional
from jaxroute.core.types import Metric
from jaxroute.problems.contextual.types import Choice, LoggedRequest, ReplayFeedback, ServedSpec

# Optional members of the protocol that are those of the wrapped policy; `family` states assumptions, too.
_PASSED = ("gauges", "assumes", "family", "cost_hint")


@struct.dataclass
class ReplayedPolicy:
    """Contextual policy in a replay (`ServedEnv`): only accepted events are its rounds; its state does not change in the others.

    The policy sees the number of accepted events as its round `t`, and `rounds` of the environment as its horizon. Its state is that of the policy.

    Source: Li, Chu, Langford and Wang (2011), Algorithm 2.

    Attributes:
      policy: contextual policy without the method `plan`.
    """

    policy: Any

    def __getattr__(self, name: str) -> Any:
        if name not in _PASSED:
            raise AttributeError(name)
        return getattr(self.policy, name)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Gauges of the policy; other metrics would be sums over all events, also those that are not accepted."""
        return tuple(metric for metric in getattr(self.policy, "metrics", ()) if metric.kind == "gauge")

    def check(self) -> None:
        checks.part("policy", self.policy, "act", "LinUCB()")
        if hasattr(self.policy, "plan"):
            raise ValueError(
                f"policy must have no method plan, because a replay has no stages, got {type(self.policy).__name__}"
            )

    def check_spec(self, spec: ServedSpec) -> None:
        if not isinstance(spec, ServedSpec):
            raise ValueError(
                "ReplayedPolicy needs a replay, such as contextual.served_routing(...); elsewhere use the policy itself"
            )
        optional(self.policy, "check_spec", _own(spec))

    def init(self, key: Array, spec: ServedSpec) -> Any:
        return self.policy.init(key, _own(spec))

    def act(self, key: Array, state: Any, obs: LoggedRequest, t: Array) -> Choice:
        del t
        return self.policy.act(key, state, obs.context, obs.round)

    def update(self, key: Array, state: Any, obs: LoggedRequest, action: Array, feedback: ReplayFeedback, t: Array) -> Any:
        del t
        learned = self.policy.update(key, state, obs.context, action, feedback.reward, obs.round)
        return jax.tree.map(lambda new, old: jnp.where(feedback.accepted, new, old), learned, state)


def _own(spec: ServedSpec) -> ServedSpec:
    return dataclasses.replace(spec, horizon=spec.rounds)
