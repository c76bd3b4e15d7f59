"""Policies that know the true means: one rounds the best relaxed selection in each round, the other selects the best set."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import checks, draws
from jaxroute.core.types import Leaf
from jaxroute.problems.combinatorial.env import CloudEnv
from jaxroute.problems.combinatorial.parts.rounding import Rounding, round_by_group
from jaxroute.problems.combinatorial.parts.rounds import ByPrice, Order, action_of
from jaxroute.problems.combinatorial.types import Action, CombinatorialSpec, Feedback, Info, Observation


@struct.dataclass
class OracleState:
    """State of an oracle, which never changes during a run.

    Attributes:
      spec: properties of the environment (static).
    """

    spec: CombinatorialSpec = struct.field(pytree_node=False)


@struct.dataclass
class _Oracle:
    """Policy that rounds a fixed selection to a set in every round.

    Attributes:
      relaxed: `[G, K]` fraction of each model in each of `G` segments of rounds (means drift between them); 0 and 1 for a set.
      switch: `[G]` first round of each segment.
      order: rule for the order of a cascade, such as `ByPrice`.
      rounding: `Pairwise` or `Swap` (default: the paper's for the reward).
    """

    relaxed: Leaf
    switch: Leaf
    order: Order = struct.field(default_factory=ByPrice, kw_only=True)
    rounding: Rounding | None = struct.field(default=None, kw_only=True)

    def check(self) -> None:
        checks.part("order", self.order, "order", "ByPrice()")

    def init(self, key: Array, spec: CombinatorialSpec) -> OracleState:
        del key
        return OracleState(spec=spec)

    def act(self, key: Array, state: OracleState, obs: Observation, t: Array) -> tuple[Action, Info]:
        k_round, k_order = draws.split(key)
        segment = jnp.sum((jnp.asarray(self.switch) <= t).astype(jnp.int32)) - 1
        z = jnp.asarray(self.relaxed, jnp.float32)[segment]
        selected = round_by_group(self.rounding, k_round, z, state.spec)
        return action_of(self.order, k_order, obs, selected, z, z, obs.price), {}

    def update(
        self, key: Array, state: OracleState, obs: Observation, action: Action, feedback: Feedback, t: Array
    ) -> OracleState:
        del key, obs, action, feedback, t
        return state


def _require_all(env: CloudEnv) -> CloudEnv:
    """Returns the environment. Raises `ValueError` if models may be unavailable."""
    if env.availability is not None:
        raise ValueError("availability must be None for an oracle: it does not select again from what is available")
    return env


@struct.dataclass
class OracleRelaxed(_Oracle):
    """Policy that rounds the best fractions of models for the true means to a set in every round; its mean cost meets the budget. Not in the paper."""

    @classmethod
    def of(cls, env: CloudEnv) -> "OracleRelaxed":
        return cls(relaxed=_require_all(env).best_relaxed_selection, switch=env.outcomes.switch)


@struct.dataclass
class OracleInteger(_Oracle):
    """Policy that always selects the best set within the budget for the true means. Source: C2MAB-V, section 3, the optimal action."""

    @classmethod
    def of(cls, env: CloudEnv) -> "OracleInteger":
        return cls(relaxed=_require_all(env).best_selection, switch=env.outcomes.switch)
