"""Policies for comparison: the optimal policy, which knows the choice model, and a switch from one policy to another."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxroute.core import checks, numerics
from jaxroute.core.protocols import cost_hint, is_policy, metrics_of, optional
from jaxroute.core.types import CostHint, FixedPolicy, FixedState, Leaf, Metric
from jaxroute.problems.queueing.env import QueueEnv
from jaxroute.problems.queueing.parts.scheduling import QueueQueries, best_place
from jaxroute.problems.queueing.types import Action, Decision, Feedback, Observation, QueueSpec
from jaxroute.solvers.assortment import best_models, log_weight_of_best


@struct.dataclass
class Optimal(FixedPolicy):
    """Serves the query and the assortment (set of models) with the largest true departure rate. Source: ACQB, section 2 and appendix B.3.

    Attributes:
      theta: `[N, d]` true parameters of the utilities, `[1, d]` for features of query-model pairs; None if queries are prompts of a pool.
      log_odds: `[N, P]` true utilities of each model's answers to a pool's prompts, None without a pool.
      fifo: whether the query that has waited longest is served, with its best assortment (static).
    """

    theta: Leaf | None = None
    log_odds: Leaf | None = None
    fifo: bool = struct.field(pytree_node=False, default=False)

    @classmethod
    def of(cls, env: QueueEnv, fifo: bool = False) -> "Optimal":
        """Returns the optimal policy of a queue; with `fifo` it serves the query that has waited longest."""
        if not isinstance(env, QueueEnv):
            raise ValueError(
                f"env must be a QueueEnv, got {checks.show(env)}; for a sampler the policy is `Optimal.of` itself"
            )
        if env.contexts.pool_size:
            return cls(log_odds=env.contexts.log_odds, fifo=fifo)
        theta = jnp.asarray(env.contexts.theta)
        return cls(theta=theta[None] if env.pair_features else theta, fifo=fifo)

    def check_spec(self, spec: QueueSpec) -> None:
        name, table = ("theta", self.theta) if self.theta is not None else ("log_odds", self.log_odds)
        if table is None:
            raise ValueError("theta and log_odds must not both be None; use Optimal.of(environment)")
        columns = spec.prompts or spec.dim
        shape = (1 if spec.pair_features else spec.num_models, columns)
        if np.shape(table) != shape or (self.theta is None) != (spec.prompts > 0):
            kind, given = "log_odds" if spec.prompts else "theta", f"{name} of shape {np.shape(table)}"
            raise ValueError(f"{kind} must have shape {shape}, got {given}; use Optimal.of(environment)")

    def act(self, key: Array, state: FixedState, obs: Observation, t: Array) -> Decision:
        del key, t
        size = state.spec.num_offered
        if self.theta is None:
            table = jnp.asarray(self.log_odds, obs.features.dtype)
            score = log_weight_of_best(list(table), size)
            place, _ = best_place(lambda prompt: jnp.take(score, prompt, mode="clip"), obs.prompt, obs)
            place = obs.oldest if self.fifo else place
            utility = numerics.take(table, numerics.take(obs.prompt, place))
        else:
            sample = jnp.asarray(self.theta, obs.features.dtype)[:, None]  # The truth as the only sample.
            place, _ = QueueQueries().best(sample, lambda utilities: log_weight_of_best(utilities, size), obs)
            place = obs.oldest if self.fifo else place
            utility = QueueQueries().utilities(sample, obs, place)
        offered = best_models(utility, size)
        return Action(query=place.astype(jnp.int32), offered=offered, explored=jnp.zeros((), bool)), {}


@struct.dataclass
class PolicySwitch:
    """Uses one policy before round `at` (from 0) and another from then on; the first stops learning at the switch, the second learns from the start.

    With a learner first and `Optimal` second, `at = i` gives the paper's policy-switching queue `Q(i, t)`; a sweep of `at` simulates these
    queues for all `i` in one compiled call. Source: ACQB, section 4.1 and appendix D.1.

    Attributes:
      first, second: policy before round `at`, and policy from then on.
      at: `[]` round of the switch.
    """

    first: Any
    second: Any
    at: Leaf = 0

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return metrics_of(self.first)

    def check(self) -> None:
        checks.non_negative("at", self.at, ())
        for policy in (self.first, self.second):
            if not is_policy(policy):
                raise ValueError(f"first and second must be policies, got {type(policy).__name__}")
            optional(policy, "check")

    def check_spec(self, spec: QueueSpec) -> None:
        for policy in (self.first, self.second):
            optional(policy, "check_spec", spec)

    def cost_hint(self, spec: QueueSpec) -> CostHint:
        return CostHint(*map(max, cost_hint(self.first, spec), cost_hint(self.second, spec)))

    def init(self, key: Array, spec: QueueSpec) -> tuple[Any, Any]:
        return self.first.init(key, spec), self.second.init(key, spec)

    def act(self, key: Array, state: tuple[Any, Any], obs: Observation, t: Array) -> Decision:
        before = t < self.at
        action, info = self.first.act(key, state[0], obs, t)
        other, _ = self.second.act(key, state[1], obs, t)
        return jax.tree.map(lambda a, b: jnp.where(before, a, b), action, other), info

    def update(
        self, key: Array, state: tuple[Any, Any], obs: Observation, action: Action, feedback: Feedback, t: Array
    ) -> tuple[Any, Any]:
        before = t < self.at
        # The first policy learns nothing from an empty queue, hence nothing from the queries that the second one serves.
        seen = obs.replace(queue_length=jnp.where(before, obs.queue_length, 0))
        first = self.first.update(key, state[0], seen, action, feedback, t)
        return first, self.second.update(key, state[1], obs, action, feedback, t)

    def gauges(self, state: tuple[Any, Any]) -> dict[str, Array]:
        return dict(optional(self.first, "gauges", state[0], default={}))
