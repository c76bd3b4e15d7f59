"""Policies that know the environment: optimal searches, the best single calls, and indices that ignore the request."""

import abc
import warnings
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxroute.core import checks, numerics
from jaxroute.core.types import FixedPolicy, FixedState, Leaf
from jaxroute.problems.cascade.env import CascadeEnv
from jaxroute.problems.cascade.optimum import JointPlan, joint_plan, single_values
from jaxroute.problems.cascade.parts.search import Decision, IndexSearch, LoopSearch, Scoring
from jaxroute.problems.cascade.types import CascadeSpec, Observation, Outputs


@struct.dataclass
class TrueSearch(FixedPolicy, abc.ABC):
    """Base class of policies that call models by priorities and thresholds computed from the known environment, and learn nothing.

    Attributes:
      env: known environment. Where scores are not seen, they are computed with its evaluator's true (recorded features: fitted) coefficients.
    """

    env: CascadeEnv

    @classmethod
    def of(cls, env: CascadeEnv) -> Self:
        """Returns the policy for `env`, all of whose parameters it knows."""
        return cls(checks.instance("env", env, CascadeEnv))

    def check(self) -> None:
        checks.instance("env", self.env, CascadeEnv).check()

    def check_spec(self, spec: CascadeSpec) -> None:
        for name in ("num_models", "context_dim", "feature_dim"):
            value, needed = getattr(self.env.spec, name), getattr(spec, name)
            if value != needed:
                raise ValueError(f"env must have {name}={needed}, as the environment of the run, got {value}")

    @abc.abstractmethod
    def _rule(self, psi: Array) -> IndexSearch:
        """Returns the search for a request with features `psi` `[m]`; `act` adds the rule that computes scores where they are not seen."""

    def act(self, key: Array, state: FixedState, obs: Observation, t: Array) -> Decision:
        del key, state, t
        search, evaluator = self._rule(obs.context), self.env.evaluator
        if evaluator is None:
            return search, {}
        theta, zero = jnp.asarray(evaluator.theta, jnp.float32), jnp.zeros((), jnp.float32)
        scoring = Scoring(theta, jnp.zeros((theta.shape[0],) * 2, jnp.float32), zero, zero, link=evaluator.link)
        return search.replace(scoring=scoring), {}


@struct.dataclass
class TrueIndexSearch(TrueSearch):
    """Policy by Weitzman's rule with the true reservation index of each box (model), the best policy if the outputs of the models are independent.

    If all models answer the same query, outputs depend on each other, and a single call may earn more.

    Source: Weitzman (1979); Belloni, Chen and Wei (2026), proposition 3.1.
    """

    def _rule(self, psi: Array) -> IndexSearch:
        index = self.env.true_index(psi)
        return IndexSearch(index, index, index=index)


@struct.dataclass
class Oracle(TrueIndexSearch):
    """Best policy for independent outputs: `TrueIndexSearch`, Weitzman's search by the true reservation indices, and a warning.

    If all models answer the same recorded query, `Oracle.of` warns that `JointOracle` is the best policy; `TrueIndexSearch.of` does not.
    """

    @classmethod
    def of(cls, env: CascadeEnv) -> Self:
        if getattr(checks.instance("env", env, CascadeEnv).boxes, "joint", False):
            warnings.warn(
                "Oracle is not the best policy where all models answer the same query, since outputs depend on each other: use "
                "JointOracle, or TrueIndexSearch for the same search without this warning",
                stacklevel=2,
            )
        return cls(env)


@struct.dataclass
class JointOracle(FixedPolicy):
    """Best policy on recorded queries (rows) that all models answer. It knows all rows on which it is evaluated, but not which row is drawn.

    Calls and stops depend on the query's group and on all outputs seen so far, according to the table `decisions`, the result of `joint_plan`.
    """

    decisions: JointPlan

    @classmethod
    def of(cls, env: CascadeEnv) -> Self:
        """Returns the policy that is best in `env`, whose parameters must be numbers, not traced arrays as inside a grid."""
        return cls(joint_plan(env))

    def check(self) -> None:
        checks.numbers("value", self.decisions.value, ())

    def check_spec(self, spec: CascadeSpec) -> None:
        shape = np.shape(self.decisions.signals)[-3], np.shape(self.decisions.start)[-1]
        if shape != (spec.num_models, spec.context_dim):
            needed = f"{spec.num_models} models and {spec.context_dim} groups, as the rows of the run"
            raise ValueError(f"decisions must be for {needed}, got {shape}")

    def act(self, key: Array, state: FixedState, obs: Observation, t: Array) -> tuple[LoopSearch, dict[str, Array]]:
        del key, state, t
        plan = jax.tree.map(jnp.asarray, self.decisions)
        start = jnp.sum(jnp.where(obs.context > 0.5, plan.start, 0))
        return LoopSearch(plan._replace(start=start), _next_call, _to_deploy), {}


def _next_call(plan: Any, opened: Array, seen: Outputs) -> tuple[Array, Array]:
    """Returns the action of the `JointPlan` `plan` after the models `opened` `[K]` have shown the outputs `seen`, and whether it ends the search."""
    shown: Any = seen.features if seen.score is None else seen.score[:, None]
    same = jnp.all(shown[:, None, :] == plan.signals, axis=-1)  # [K, V]
    number = 1 + jnp.sum(jnp.where(same, jnp.arange(same.shape[1], dtype=jnp.int32), 0), axis=1)
    history = plan.start + jnp.sum(jnp.where(opened, number * plan.strides, 0))
    action = numerics.take(plan.action, history)
    return action, action >= opened.shape[0]


def _to_deploy(plan: Any, opened: Array, seen: Outputs) -> Array:
    return _next_call(plan, opened, seen)[0] - opened.shape[0]


@struct.dataclass
class StaticIndex(TrueSearch):
    """Policy by Weitzman's rule that uses, for every request, the reservation indices of a request with the mean features."""

    def _rule(self, psi: Array) -> IndexSearch:
        del psi
        index = self.env.true_index(self.env.contexts.mean)
        return IndexSearch(index, index)


@struct.dataclass
class ContextSingle(TrueSearch):
    """Policy that calls one model per request, that with the largest expected score minus cost for the request: the best router without cascades."""

    def _rule(self, psi: Array) -> IndexSearch:
        value = self.env.single_value(psi)
        return IndexSearch(value, jnp.full_like(value, -jnp.inf))


@struct.dataclass
class BestSingle(TrueSearch):
    """Policy that calls one model per request, always the one with the index `model` `[]`."""

    model: Leaf

    @classmethod
    def of(cls, env: CascadeEnv) -> Self:
        """Returns the policy that calls the model with the largest mean score less cost (`single_values`)."""
        return cls(checks.instance("env", env, CascadeEnv), numerics.argmax(single_values(env)))

    def check(self) -> None:
        super().check()
        checks.whole("model", float(checks.numbers("model", self.model, ())), 0, self.env.spec.num_models - 1)

    def _rule(self, psi: Array) -> IndexSearch:
        del psi
        number = self.env.spec.num_models
        first = numerics.one_hot(jnp.asarray(self.model, jnp.int32), number)
        return IndexSearch(first.astype(jnp.float32), jnp.full((number,), -jnp.inf))
