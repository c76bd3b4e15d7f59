"""Policies that know the environment: the optimal search, the best single calls, and indices that ignore the request."""

import abc
from typing import Self

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import checks, numerics
from jaxroute.core.types import Leaf
from jaxroute.problems.cascade.env import CascadeEnv, as_cascade
from jaxroute.problems.cascade.optimum import single_values
from jaxroute.problems.cascade.parts.search import Decision, IndexSearch, Scoring
from jaxroute.problems.cascade.types import CascadeSpec, Feedback, Observation


@struct.dataclass
class TrueSearch(abc.ABC):
    """A search by the true scores that learns nothing.

    Attributes:
      env: the environment. With an unknown evaluator scores come from its true coefficients, with recorded features from a
        fit to all.
    """

    env: CascadeEnv

    @classmethod
    def of(cls, env: CascadeEnv) -> Self:
        """The policy of an environment."""
        return cls(as_cascade(env))

    def check(self) -> None:
        as_cascade(self.env).check()

    def check_for(self, spec: CascadeSpec) -> None:
        for name in ("num_models", "context_dim", "feature_dim"):
            value, played = getattr(self.env.spec, name), getattr(spec, name)
            if value != played:
                raise ValueError(f"env must have {name}={played}, as the one that is played, got {value}")

    def init(self, key: jax.Array, spec: CascadeSpec) -> tuple[()]:
        del key, spec
        return ()

    @abc.abstractmethod
    def act(self, key: jax.Array, state: tuple[()], obs: Observation, t: jax.Array) -> Decision:
        """The search of a period."""

    def update(
        self, key: jax.Array, state: tuple[()], obs: Observation, action: IndexSearch, feedback: Feedback, t: jax.Array
    ) -> tuple[()]:
        del key, obs, action, feedback, t
        return state

    def _scoring(self) -> Scoring | None:
        evaluator = self.env.evaluator
        if evaluator is None:
            return None
        theta, zero = jnp.asarray(evaluator.theta, jnp.float32), jnp.zeros((), jnp.float32)
        return Scoring(theta, jnp.zeros((theta.shape[0],) * 2, jnp.float32), zero, zero, link=evaluator.link)


@struct.dataclass
class Oracle(TrueSearch):
    """Weitzman's rule with the true indices: the best policy, if outputs are independent.

    Source: Weitzman (1979); Belloni, Chen and Wei (2026), proposition 3.1.
    """

    def act(self, key: jax.Array, state: tuple[()], obs: Observation, t: jax.Array) -> Decision:
        del key, state, t
        index = self.env.true_index(obs.context)
        return IndexSearch(index, index, self._scoring(), index), {}


@struct.dataclass
class StaticIndex(TrueSearch):
    """Weitzman's rule with the indices of the mean request (in the main cascade the intercepts): the same way for every
    request.
    """

    def act(self, key: jax.Array, state: tuple[()], obs: Observation, t: jax.Array) -> Decision:
        del key, state, obs, t
        index = self.env.true_index(self.env.contexts.mean)
        return IndexSearch(index, index, self._scoring()), {}


@struct.dataclass
class ContextSingle(TrueSearch):
    """One call, of the model with the largest expected score less cost for the request: the best that any router can do."""

    def act(self, key: jax.Array, state: tuple[()], obs: Observation, t: jax.Array) -> Decision:
        del key, state, t
        value = self.env.single_value(obs.context)
        return IndexSearch(value, jnp.full_like(value, -jnp.inf), self._scoring()), {}


@struct.dataclass
class BestSingle(TrueSearch):
    """One call, always of the same model.

    Attributes:
      model: `[]`, its number.
    """

    model: Leaf

    @classmethod
    def of(cls, env: CascadeEnv) -> Self:
        """The model with the largest mean score less cost (`single_values`)."""
        return cls(as_cascade(env), numerics.argmax(single_values(env)))

    def check(self) -> None:
        super().check()
        model = checks.numbers("model", self.model, ())
        checks.count("model", int(model) if model == int(model) else self.model, 0, self.env.spec.num_models - 1)

    def act(self, key: jax.Array, state: tuple[()], obs: Observation, t: jax.Array) -> Decision:
        del key, state, obs, t
        number = self.env.spec.num_models
        first = numerics.one_hot(jnp.asarray(self.model, jnp.int32), number)
        return IndexSearch(first.astype(jnp.float32), jnp.full((number,), -jnp.inf), self._scoring()), {}
