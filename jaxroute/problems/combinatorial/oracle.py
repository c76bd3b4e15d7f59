"""Policies that know all means: the relaxed optimum, rounded in each round, and the best set."""

from typing import Any

import jax.numpy as jnp
from flax import struct

from jaxroute.core import draws
from jaxroute.core.types import Leaf
from jaxroute.problems.combinatorial.env import Cloud
from jaxroute.problems.combinatorial.relax import default_rounding, round_by_group
from jaxroute.problems.combinatorial.selector import Learner


@struct.dataclass
class OracleState:
    """Nothing is learned; `spec` is what is known in advance (static)."""

    spec: object = struct.field(pytree_node=False)


@struct.dataclass
class _Oracle(Learner):
    """relaxed: `[G, K]` selection for each segment of drift. switch: `[G]` first rounds of the segments.

    rounding: an object of `relax` (default the paper's).
    """

    relaxed: Leaf | None = None
    switch: Leaf | None = None
    rounding: Any = struct.field(default=None, kw_only=True)

    def init(self, key, spec) -> OracleState:
        del key
        return OracleState(spec=spec)

    def act(self, key, state, obs, t):
        k_round, k_order = draws.split(key)
        segment = jnp.sum((jnp.asarray(self.switch) <= t).astype(jnp.int32)) - 1
        z = jnp.asarray(self.relaxed, jnp.float32)[segment]
        rounding = default_rounding(state.spec) if self.rounding is None else self.rounding
        selected = round_by_group(rounding, k_round, z, state.spec)
        return self.action(k_order, obs, selected, z, z, obs.price), {}

    def update(self, key, state, obs, action, feedback, t):
        del key, obs, action, feedback, t
        return state


def _require_all(env: Cloud) -> Cloud:
    if env.availability is not None:
        raise ValueError("availability must be None for an oracle: it does not select again from what is available")
    return env


@struct.dataclass
class OracleRelaxed(_Oracle):
    """Rounds the relaxed optimum of the true means in every round: its average cost meets the budget. Not in the paper."""

    @classmethod
    def of(cls, env: Cloud) -> "OracleRelaxed":
        """The oracle of an environment."""
        return cls(relaxed=_require_all(env).best_relaxed_selection, switch=env.outcomes.switch)


@struct.dataclass
class OracleInteger(_Oracle):
    """Selects the best set within the budget in every round. Source: C2MAB-V, section 3, the optimal action."""

    @classmethod
    def of(cls, env: Cloud) -> "OracleInteger":
        """The oracle of an environment."""
        return cls(relaxed=_require_all(env).best_selection, switch=env.outcomes.switch)
