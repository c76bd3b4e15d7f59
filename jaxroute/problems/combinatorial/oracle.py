"""Policies that know the true means: one rounds the best relaxed selection in each round, the other selects the best set."""

from typing import ClassVar, Self

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import checks, draws
from jaxroute.core.types import FixedPolicy, FixedState, Leaf
from jaxroute.problems.combinatorial.env import CloudEnv
from jaxroute.problems.combinatorial.parts.rounding import Rounding, round_by_group
from jaxroute.problems.combinatorial.parts.rounds import ByPrice, Order, action_of
from jaxroute.problems.combinatorial.types import Action, Info, Observation


@struct.dataclass
class _Oracle(FixedPolicy):
    """Base class of policies that know the best selection: a fraction in [0, 1] of each model, which they round to a set in every round.

    Attributes:
      relaxed: `[G, K]` best fraction of each model in each of `G` segments of rounds (means drift between them); all are 0 or 1 for the best set.
      switch: `[G]` first round of each segment.
      order: rule for the order in which a cascade (reward `AnyWin`) asks the models of a set, such as `ByPrice`.
      rounding: `Pairwise` or `Swap` (default: the paper's for the reward).
      table: name of the field of `CloudEnv` from which `of` takes `relaxed` (class variable).
    """

    table: ClassVar[str]
    relaxed: Leaf
    switch: Leaf
    order: Order = struct.field(default_factory=ByPrice, kw_only=True)
    rounding: Rounding | None = struct.field(default=None, kw_only=True)

    def check(self) -> None:
        checks.part("order", self.order, "order", "ByPrice()")

    @classmethod
    def of(cls, env: CloudEnv) -> Self:
        if env.availability is not None:
            raise ValueError("availability must be None for an oracle: it does not select again from what is available")
        return cls(relaxed=getattr(env, cls.table), switch=env.outcomes.switch)

    def act(self, key: Array, state: FixedState, obs: Observation, t: Array) -> tuple[Action, Info]:
        k_round, k_order = draws.split(key)
        segment = jnp.sum((jnp.asarray(self.switch) <= t).astype(jnp.int32)) - 1
        z = jnp.asarray(self.relaxed, jnp.float32)[segment]
        selected = round_by_group(self.rounding, k_round, z, state.spec)
        return action_of(self.order, k_order, obs, selected, z, obs.price, z), {}


@struct.dataclass
class OracleRelaxed(_Oracle):
    """Policy that rounds the best fractions of models (for the true means) to a set in each round, within the budget on average. Not in the paper."""

    table = "best_relaxed_selection"


@struct.dataclass
class OracleInteger(_Oracle):
    """Policy that always selects the best set within the budget for the true means. Source: C2MAB-V, section 3, the optimal action."""

    table = "best_selection"
